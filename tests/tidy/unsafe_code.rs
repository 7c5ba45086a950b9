//! Files with unsafe code are those that docs/unsafe.md lists, with what needs it.

use super::{none_of, root, sources};
use std::collections::BTreeSet;
use std::fs;

/// True if a line begins an unsafe block, implementation, function or declaration.
fn is_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    let after = |(at, word): (usize, &str)| code[at + word.len()..].trim_start().to_string();
    let begins = |rest: String| ["{", "impl", "fn ", "extern "].iter().any(|next| rest.starts_with(next));
    let is_word = |at: usize| !code[..at].ends_with(|before: char| before.is_alphanumeric() || "_\"`".contains(before));
    code.match_indices("unsafe").filter(|(at, _)| is_word(*at)).map(after).any(begins)
}

#[test]
fn files_with_unsafe_code_are_listed_with_a_reason() {
    let list = fs::read_to_string(root().join("docs/unsafe.md")).expect("the list is there");
    let rows = list.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
    let listed: BTreeSet<&str> = rows.filter(|(_, reason)| reason.len() > 10).map(|(file, _)| file).collect();
    let sources = sources();
    let found = sources.iter().filter(|source| source.text.lines().any(is_unsafe));
    let found: BTreeSet<&str> = found.map(|source| source.path.as_str()).collect();
    let missing = found.difference(&listed).map(|file| format!("{file}: docs/unsafe.md does not say what needs it"));
    let gone =
        listed.difference(&found).map(|file| format!("{file}: it has no unsafe code; leave it out of docs/unsafe.md"));
    none_of(missing.chain(gone).collect());
}

#[test]
fn unsafe_code_is_told_from_the_word() {
    let code = ["{", "impl Send for A {}", "fn f() {", "extern \"C\" {"].map(|rest| format!("pub {} {rest}", "unsafe"));
    assert!(code.iter().all(|line| is_unsafe(line)));
    let words = ["// unsafe {", "is_unsafe {", "\"unsafe\" {", "an unsafe place"];
    assert!(words.iter().all(|line| !is_unsafe(line)));
}
