//! Tests that are ignored, run in processes of their own, which find the stand-in in place of CUDA.

use crate::stand_in;
use std::path::Path;
use std::process::Command;

/// Runs the ignored test of a name; the libraries of the process are in a folder that `name` has part in.
///
/// # Panics
/// The test fails, or there is none.
pub(crate) fn passes_on_stand_in(test: &str, name: &str) {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/tests/stand_in");
    let folder = stand_in::linked(&sources, &format!("{name}-{}", std::process::id()));
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args(["--ignored", "--exact", test, "--test-threads", "1"]);
    let output = stand_in::on_stand_in(&mut process, &folder).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&output.stderr));
    std::fs::remove_dir_all(folder).unwrap();
}
