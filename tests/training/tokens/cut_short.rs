//! A file of tokens that another program cuts short while a run reads it.

use super::{SHORT, folder, report, run};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The longest time in which a run comes to its first steps, or to its end.
const PATIENCE: Duration = Duration::from_secs(120);

/// The losses of the steps that a run has recorded.
fn losses(out: &Path) -> Vec<f64> {
    let text = fs::read_to_string(out.join("metrics.jsonl")).unwrap_or_default();
    let records = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    records.filter_map(|record| record["loss"].as_f64()).collect()
}

/// A run of many steps whose tokens are cut short behind the third: its exit status and messages, and the steps that it has done.
fn cut_while_running(folder: &Path, args: &str) -> (Option<i32>, String, usize) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
    command.args(args.split_whitespace()).args(["--steps", "1000000", "--out", "run"]).current_dir(folder);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    while losses(&folder.join("run")).len() < 3 {
        assert!(began.elapsed() < PATIENCE && child.try_wait().unwrap().is_none(), "no step is done");
        sleep(Duration::from_millis(5));
    }
    fs::OpenOptions::new().write(true).open(folder.join("narrow.bin")).unwrap().set_len(100).unwrap();
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), stderr, losses(&folder.join("run")).len())
}

#[test]
fn processes_whose_tokens_are_cut_short_save_a_step_together() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let whole = fs::read(at("narrow.bin")).unwrap();
    let train = SHORT.replace("--steps 4", "--lr-schedule constant --data narrow --parallel dp=2 --mbs 1");
    let (status, stderr, done) = cut_while_running(folder.path(), &format!("launch -n 2 -- {train}"));
    assert_eq!(status, Some(6), "{stderr}");
    let help = format!("meshwright train --resume run resumes after step {done}");
    assert!(stderr.contains("[0] error[MW0711]") && stderr.contains(&help), "{stderr}");
    fs::write(at("narrow.bin"), &whole).unwrap();
    report(folder.path(), &format!("train --resume run --steps {} --format json", done + 2));
    assert_eq!(losses(&at("run")).len(), done + 2);
}

#[test]
fn a_run_whose_tokens_are_cut_short_saves_its_last_step_and_says_so() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    let whole = fs::read(at("narrow.bin")).unwrap();
    let train = SHORT.replace("--steps 4", "--lr-schedule constant --data narrow");
    let (status, stderr, done) = cut_while_running(folder.path(), &train);
    assert_eq!(status, Some(6), "{stderr}");
    let cut = format!("narrow.bin was cut short while it was in use: it has 100 bytes, and had {}", whole.len());
    let place = format!("the run ended after step {done} of 1000000");
    let help = format!("meshwright train --resume run resumes after step {done}");
    for said in ["error[MW0711]", &cut, &place, &help] {
        assert!(stderr.contains(said), "{said}: {stderr}");
    }
    let again = run(folder.path(), "train --resume run");
    assert_eq!(again.status.code(), Some(1), "the file is still short");

    fs::write(at("narrow.bin"), &whole).unwrap();
    let steps = done + 3;
    report(folder.path(), &format!("train --resume run --steps {steps} --format json"));
    report(folder.path(), &format!("{train} --steps {steps} --out unbroken"));
    let (resumed, unbroken) = (losses(&at("run")), losses(&at("unbroken")));
    assert_eq!((resumed.len(), resumed), (steps, unbroken));
}
