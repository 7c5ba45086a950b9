//! A test in processes of its own that find the stand-in, one for each order of threads.

use super::stand_in::{linked, on_stand_in};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Variable with the file in which such a process leaves the bits of all results.
const BITS: &str = "STAND_IN_BITS";

/// Runs the ignored test of a name under three orders. Each must pass and leave the same bits. The stand-in's sources are given by
/// their folder, and it lies in a folder of the target folder that no other test has.
pub(crate) fn in_all_orders(sources: &Path, folder: &str, test: &str) {
    let folder = linked(sources, folder);
    let run = |order: &str| {
        let bits = folder.join(format!("bits-{order}"));
        let mut other = Command::new(std::env::current_exe().unwrap());
        other.args([test, "--exact", "--ignored", "--nocapture"]);
        let ran = on_stand_in(&mut other, &folder).env("STAND_IN_ORDER", order).env(BITS, &bits).output().unwrap();
        let told = [ran.stdout, ran.stderr].map(|told| String::from_utf8_lossy(&told).into_owned()).concat();
        assert!(ran.status.success(), "{order}: {told}");
        fs::read(bits).unwrap()
    };
    let first = run("forward");
    assert!(!first.is_empty());
    for order in ["reverse", "5"] {
        assert!(run(order) == first, "{order}: an order of the threads changes bits");
    }
}

/// Leaves the bits of all results, in such a process.
pub(crate) fn leave(bits: &[u8]) {
    fs::write(std::env::var(BITS).unwrap(), bits).unwrap();
}
