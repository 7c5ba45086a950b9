//! `gpu-check` without CUDA: `kernels/tests/stand_in/` replaces the driver, NVRTC and cuBLASLt. So all that is
//! between the command line and the libraries runs: loading, memory, staging, order, kernels' texts, descriptors, comparison.
//! And each fault of the replacement must be found.
#![cfg(target_os = "linux")]

#[path = "../kernels/tests/stand_in/build.rs"]
mod stand_in;

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The folder with the libraries.
fn stand_in() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("gpu-{}", std::process::id()));
    stand_in::build(&Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/tests/stand_in"), &folder);
    folder
}

fn check(folder: &Path, faulty: bool) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
    command.args(["gpu-check", "--quick", "--format", "json"]);
    command.env("LD_LIBRARY_PATH", folder).env("STAND_IN_FOLDER", folder);
    if faulty { command.env("STAND_IN_FAULTS", "1") } else { &mut command }.output().unwrap()
}

fn rows(output: &Output) -> Vec<Value> {
    let report: Result<Value, _> = serde_json::from_slice(&output.stdout);
    let report = report.unwrap_or_else(|why| panic!("{why}: {}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(report["device"]["name"], "no GPU, a stand-in");
    report["rows"].as_array().unwrap().clone()
}

#[test]
fn everything_between_the_command_and_cuda_works_and_faults_are_found() {
    let folder = stand_in();
    let output = check(&folder, false);
    let right = rows(&output);
    let wrong: Vec<String> = right.iter().filter(|row| row["right"] != true).map(ToString::to_string).collect();
    assert!(wrong.is_empty() && output.status.code() == Some(0), "{}", wrong.join("\n"));
    let order = right.iter().find(|row| row["what"] == "an event orders two lanes").unwrap();
    let note = order["note"].as_str().unwrap();
    assert!(note.contains("too early for 100 %"), "the stand-in does nothing before it must: {note}");

    let output = check(&folder, true);
    assert_eq!(output.status.code(), Some(3));
    for row in rows(&output) {
        // The replacement's copies to and from the host have no fault.
        let faultless = row["what"].as_str().is_some_and(|what| what.contains("host"));
        assert_eq!(row["right"], faultless, "{row}");
    }
    fs::remove_dir_all(folder).unwrap();
}
