//! Runs of the built binary in a folder of their own, and what they leave there.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that is gone when the test ends.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Folder {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("meshwright-checkpoints-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// Output of a successful command.
    pub(crate) fn answer(&self, args: &str) -> String {
        let output = self.run(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "meshwright {args}: {}\n{stderr}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }

    pub(crate) fn json(&self, args: &str) -> Value {
        serde_json::from_str(&self.answer(args)).unwrap()
    }

    /// The exit status and the message when it does not.
    pub(crate) fn failure(&self, args: &str) -> (i32, String) {
        let output = self.run(args);
        assert!(!output.status.success(), "meshwright {args} goes well");
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    }

    /// The steps of a run's checkpoints.
    pub(crate) fn steps(&self, run: &str) -> Vec<u64> {
        let checkpoints = meshwright::runtime::checkpoint::list(&self.path(run)).unwrap();
        checkpoints.into_iter().map(|(step, _)| step).collect()
    }

    pub(super) fn run(&self, args: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
        command.args(args.split_whitespace()).current_dir(&self.0).output().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Text that a small model learns something from.
pub(crate) fn text() -> String {
    (0..400).fold(String::new(), |mut text, n| {
        let _ = writeln!(text, "line {n}: the quick brown fox jumps over {} lazy dogs", n * n % 97);
        text
    })
}

/// The losses of a `metrics.jsonl` to the last digit, with their steps, in their order: of training and validation.
pub(crate) fn losses(metrics: &str) -> Vec<(u64, Value, Value)> {
    let records = metrics.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let loss = |record: Value| Some((record["step"].as_u64()?, record["loss"].clone(), record["valid_loss"].clone()));
    records.filter_map(loss).collect()
}

/// The data files of a checkpoint by name.
pub(crate) fn data_files(checkpoint: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(checkpoint).unwrap().map(|entry| entry.unwrap());
    let files = entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()));
    let files: BTreeMap<_, _> = files.filter(|(name, _)| name.ends_with(".safetensors")).collect();
    assert!(!files.is_empty());
    files
}

/// Copies a folder with all that is in it.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(|entry| entry.unwrap()) {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}
