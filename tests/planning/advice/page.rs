//! Tables of docs/plans.md that tests hold.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

const REMEDY: &str = "BLESS=1 cargo test --test planning advice rewrites them";

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_path_buf()
}

/// True if tests write the page.
pub(crate) fn is_written() -> bool {
    std::env::var_os("BLESS").is_some()
}

/// The page has each of these lines between two comments.
pub(crate) fn has_lines(marks: [&str; 2], wanted: &str) {
    let text = fs::read_to_string(root().join("docs/plans.md")).unwrap();
    let [begin, end] = marks.map(|mark| text.find(mark).unwrap_or_else(|| panic!("{mark:?} in docs/plans.md")));
    let written: Vec<&str> = text[begin..end].lines().collect();
    for line in wanted.lines() {
        assert!(written.contains(&line), "docs/plans.md has no line `{line}`: {REMEDY}");
    }
}

/// Tests of one binary write the page one after the other.
static PAGE: Mutex<()> = Mutex::new(());

/// The page has this text between two comments. `BLESS=1` writes it there.
pub(crate) fn holds(marks: [&str; 2], wanted: &str) {
    let _alone = PAGE.lock();
    let path = root().join("docs/plans.md");
    let text = fs::read_to_string(&path).unwrap();
    let [begin, end] = marks.map(|mark| text.split_once(mark).unwrap_or_else(|| panic!("{mark:?} in docs/plans.md")));
    let written = format!("{}{}\n{wanted}\n{}{}", begin.0, marks[0], marks[1], end.1);
    if is_written() {
        fs::write(&path, written).unwrap();
    } else {
        assert!(text == written, "docs/plans.md has other figures: {REMEDY}");
    }
}
