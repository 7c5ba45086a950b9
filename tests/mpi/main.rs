//! Processes of MPI: losses, norms and checkpoints have the bits of one process, whatever the configuration and the number of processes.
//!
//! `cargo test --features mpi --test mpi` needs `mpirun` of Open MPI.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A configuration, and the numbers of processes that it runs in.
const CASES: &[(&str, &str, &[usize])] = &[
    ("tiny-llama", "dp=4", &[2, 4]),
    ("tiny-llama", "dp=2,tp=4,sp=true", &[2, 8]),
    ("tiny-llama", "pp=2,dp=2,schedule=1f1b", &[4]),
    ("tiny-llama", "pp=2,tp=2,vp=2,schedule=interleaved-1f1b", &[2]),
    ("tiny-llama", "pp=4,schedule=zb-h1", &[4]),
    ("tiny-llama", "dp=4,zero=1", &[4]),
    ("tiny-llama", "dp=4,zero=2", &[2]),
    ("tiny-llama", "dp=4,tp=2,zero=3", &[8]),
    ("tiny-llama", "cp=2,cp_kind=ring,dp=2", &[4]),
    ("tiny-moe", "dp=4,ep=2", &[2, 4]),
];

struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("meshwright-mpi-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        let text = include_str!("../../docs/schedules.md");
        fs::write(path.join("text.md"), text).unwrap();
        Folder(path)
    }

    /// Trains in a number of processes of MPI, or with 0 in this one alone.
    fn train(&self, processes: usize, out: &str, flags: &[&str]) -> Output {
        let meshwright = env!("CARGO_BIN_EXE_meshwright");
        let mut command = match processes {
            0 => Command::new(meshwright),
            _ => {
                let mut command = Command::new("mpirun");
                command.args(["--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-n"]);
                command.arg(processes.to_string()).arg(meshwright);
                command
            }
        };
        command.env("OMPI_MCA_mpi_yield_when_idle", "1").current_dir(&self.0);
        command.arg("train").args(flags).args(["--out", out]);
        if processes > 0 {
            command.args(["--comm", "mpi"]);
        }
        command.output().expect("mpirun of Open MPI is installed")
    }

    /// Trains a case from the beginning.
    fn trained(&self, processes: usize, out: &str, model: &str, parallel: &str, [steps, sums]: [&str; 2]) {
        let flags =
            [model, "--data", "text.md", "--parallel", parallel, "--steps", steps, "--seq", "32", "--global-batch"];
        let more = ["16", "--mbs", "2", "--final-eval-batches", "1", "--save-every", "2", "--sums", sums];
        let flags = [&flags[..], &more].concat();
        let output = self.train(processes, out, &flags);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{parallel} in {processes} processes: {told}");
        let printed = String::from_utf8_lossy(&output.stdout);
        assert_eq!(printed.matches("validation loss").count(), 2, "one process speaks: {printed}");
    }

    /// The losses and norms of all steps and validations, as written.
    fn losses(&self, out: &str) -> Vec<String> {
        let text = fs::read_to_string(self.0.join(out).join("metrics.jsonl")).unwrap();
        let numbers = |line: &str| {
            let record: serde_json::Value = serde_json::from_str(line).unwrap();
            let fields = ["step", "loss", "grad_norm", "dropped", "valid_loss"];
            fields.map(|field| record.get(field).map(ToString::to_string).unwrap_or_default()).join(" ")
        };
        text.lines().skip(1).map(numbers).collect()
    }

    /// The files of a checkpoint.
    fn files(&self, out: &str, step: u64) -> BTreeMap<String, Vec<u8>> {
        let folder = self.0.join(out).join(format!("step-{step:08}"));
        let file = |path: &Path| (path.file_name().unwrap().to_str().unwrap().to_string(), fs::read(path).unwrap());
        fs::read_dir(folder).unwrap().map(|entry| file(&entry.unwrap().path())).collect()
    }

    /// The weights and moments of a checkpoint, without the description of its run.
    fn states(&self, out: &str, step: u64) -> BTreeMap<String, Vec<u8>> {
        let mut files = self.files(out, step);
        files.retain(|name, _| name.ends_with(".safetensors"));
        assert!(!files.is_empty(), "{out} has no states");
        files
    }
}

#[test]
fn processes_have_the_bits_of_one() {
    let folder = Folder::new("bits");
    for (number, (model, parallel, counts)) in CASES.iter().enumerate() {
        let one = format!("{number}-one");
        folder.trained(0, &one, model, parallel, ["2", "exact"]);
        for &processes in *counts {
            let several = format!("{number}-{processes}");
            folder.trained(processes, &several, model, parallel, ["2", "exact"]);
            assert_eq!(folder.losses(&one), folder.losses(&several), "{parallel} in {processes} processes");
            let same = folder.files(&one, 2) == folder.files(&several, 2);
            assert!(same, "{parallel}: {processes} processes save another checkpoint");
        }
    }
}

#[test]
fn sums_of_mpi_differ_by_rounding() {
    let folder = Folder::new("sums");
    let mut differ = 0;
    for (number, (model, parallel, counts)) in CASES.iter().enumerate() {
        let (one, several) = (format!("{number}-one"), format!("{number}-several"));
        folder.trained(0, &one, model, parallel, ["1", "exact"]);
        folder.trained(counts[0], &several, model, parallel, ["1", "engine"]);
        // Losses and norms hide most roundings; weights and moments of millions of parameters do not.
        differ += usize::from(folder.states(&one, 1) != folder.states(&several, 1));
        let (one, several) = (folder.losses(&one), folder.losses(&several));
        assert_eq!(one.len(), several.len(), "{parallel}");
        let numbers = |line: &String| line.split(' ').filter_map(|word| word.parse::<f64>().ok()).collect::<Vec<_>>();
        for (a, b) in one.iter().flat_map(numbers).zip(several.iter().flat_map(numbers)) {
            assert!((a - b).abs() <= 1e-6 * a.abs(), "{parallel} in {} processes: {one:?} {several:?}", counts[0]);
        }
    }
    assert!(differ > 0, "MPI adds nothing");
}

#[test]
fn another_number_of_processes_resumes() {
    let folder = Folder::new("resume");
    folder.trained(0, "one", "tiny-llama", "dp=2,tp=2,zero=1", ["4", "exact"]);
    folder.trained(4, "several", "tiny-llama", "dp=2,tp=2,zero=1", ["2", "exact"]);
    let output = folder.train(2, "several", &["--resume", "--steps", "4"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(folder.files("one", 4).len(), folder.files("several", 4).len());
}

#[test]
fn what_processes_cannot_run_is_refused_once() {
    let folder = Folder::new("refused");
    let output = folder.train(2, "out", &["--data", "text.md", "--parallel", "dp=3", "--global-batch", "3"]);
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && told.matches("2 processes do not divide the 3 devices").count() == 1, "{told}");
}
