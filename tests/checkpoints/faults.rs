//! Faults from outside a run: signals, full disks, special files, limits on the process.

use super::runs::{Folder, text};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub(super) const CONFIG: &str =
    r#"{"model_type": "gpt2", "vocab_size": 257, "n_positions": 16, "n_embd": 16, "n_layer": 2, "n_head": 2}"#;
pub(super) const TRAIN: &str =
    "train config.json --data text.txt --seq 16 --global-batch 4 --eval-every 0 --valid-fraction 0.1";

pub(super) fn folder() -> Folder {
    let folder = Folder::new();
    folder.write("config.json", CONFIG);
    folder.write("text.txt", &text());
    folder
}

/// A shell that becomes the binary: `before` is done first, such as setting a limit.
pub(super) fn shell(folder: &Folder, before: &str, args: &str) -> Command {
    let mut command = Command::new("sh");
    let line = format!("{before}; exec {} {args}", env!("CARGO_BIN_EXE_meshwright"));
    command.args(["-c", &line]).current_dir(folder.path("")).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn run(folder: &Folder, before: &str, args: &str) -> (Option<i32>, String) {
    ended(shell(folder, before, args).spawn().unwrap())
}

/// The exit status and standard error, within a time limit.
pub(super) fn ended(mut child: Child) -> (Option<i32>, String) {
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > Duration::from_secs(120) {
            child.kill().unwrap();
            panic!("it hangs");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let Output { status, stderr, .. } = child.wait_with_output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

/// A run that is some steps on its way.
pub(super) fn on_its_way(folder: &Folder, before: &str, args: &str) -> Child {
    let child = shell(folder, before, args).spawn().unwrap();
    let steps = || fs::read_to_string(folder.path("a/metrics.jsonl")).unwrap_or_default().lines().count();
    let began = Instant::now();
    while steps() < 4 {
        assert!(began.elapsed() < Duration::from_secs(120), "it takes no steps");
        std::thread::sleep(Duration::from_millis(10));
    }
    child
}

pub(super) fn signal(child: &Child, name: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap().success());
}

#[test]
fn a_signal_ends_a_run_behind_its_step_and_the_run_goes_on() {
    for (name, number) in [("INT", 2), ("TERM", 15), ("HUP", 1)] {
        let folder = folder();
        let child = on_its_way(&folder, ":", &format!("{TRAIN} --steps 1000000 --out a"));
        signal(&child, name);
        let (status, message) = ended(child);
        assert_eq!(status, Some(128 + number), "{message}");
        let step = folder.steps("a").pop().unwrap();
        assert!(message.contains(&format!("error[MW0726]: SIG{name} ended the run after step {step} of")), "{message}");
        assert!(message.contains(&format!("meshwright train --resume a resumes after step {step}")), "{message}");
        let answer = folder.answer(&format!("train --resume a --steps {}", step + 1));
        assert!(answer.contains(&format!("resumed   after step {step} of")), "{answer}");
    }
}

#[test]
fn a_signal_that_is_ignored_from_the_start_stays_so() {
    let folder = folder();
    let child = on_its_way(&folder, "trap '' HUP", &format!("{TRAIN} --steps 1000000 --out a"));
    signal(&child, "HUP");
    std::thread::sleep(Duration::from_millis(300));
    signal(&child, "TERM");
    let (status, message) = ended(child);
    assert_eq!(status, Some(143), "{message}");
}

#[test]
fn a_second_signal_ends_a_run_at_once() {
    let folder = folder();
    // A step of minutes.
    let args = "train tiny-llama --data text.txt --seq 128 --global-batch 4096 --valid-fraction 0.1 --out a";
    let mut child = shell(&folder, ":", args).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().starts_with("data ")), "it begins");
    signal(&child, "INT");
    let mut told = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(told.next().unwrap().unwrap().contains("SIGINT: the step is finished and a checkpoint saved"));
    let began = Instant::now();
    signal(&child, "TERM");
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn a_folder_that_is_taken_away_ends_the_run() {
    for more in ["", "--save-every 1000000"] {
        let folder = folder();
        let child = on_its_way(&folder, ":", &format!("{TRAIN} --steps 1000000 --out a {more}"));
        fs::remove_dir_all(folder.path("a")).unwrap();
        let (status, message) = ended(child);
        assert_eq!(status, Some(5), "{message}");
        assert!(message.contains("error[MW0801]: cannot write a/metrics.jsonl: it was removed"), "{message}");
        assert!(!folder.path("a").exists());
    }
}

/// Root may write anywhere, unless it has given its capabilities away.
#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_is_read_only_ends_the_run_at_once() {
    use std::os::unix::fs::PermissionsExt;
    let folder = folder();
    folder.answer(&format!("{TRAIN} --steps 2 --save-every 2 --out a"));
    let set = |mode| fs::set_permissions(folder.path("a"), fs::Permissions::from_mode(mode)).unwrap();
    set(0o555);
    let powerless = "[ $(id -u) != 0 ] || set -- setpriv --bounding-set=-all";
    let script = format!("{powerless}; exec \"$@\" {} train --resume a --steps 3", env!("CARGO_BIN_EXE_meshwright"));
    let mut command = Command::new("sh");
    command.args(["-c", &script]).current_dir(folder.path("")).stdout(Stdio::piped()).stderr(Stdio::piped());
    let (status, message) = ended(command.spawn().unwrap());
    set(0o755);
    assert!(status == Some(1) && message.contains("Permission denied"), "{status:?} {message}");
    let answer = folder.answer("train --resume a --steps 3");
    assert!(answer.contains("resumed   after step 2 of 3"), "{answer}");
}

#[test]
fn a_full_disk_costs_the_trace_and_no_step() {
    let folder = folder();
    let (status, message) =
        run(&folder, ":", &format!("{TRAIN} --steps 3 --save-every 9 --trace-step 2 --trace /dev/full --out a"));
    assert_eq!(status, Some(5), "{message}");
    assert!(message.contains("error[MW0801]: cannot write /dev/full: No space left"), "{message}");
    assert!(message.contains("free disk space, then meshwright train --resume a resumes after step 3"), "{message}");
    assert_eq!((folder.steps("a"), folder.read("a/metrics.jsonl").lines().count()), (vec![3], 5));
}

#[test]
fn a_checkpoint_that_is_too_large_for_the_limit_on_files_is_told() {
    let folder = folder();
    let (status, message) = run(&folder, "ulimit -f 16", &format!("{TRAIN} --steps 3 --save-every 1 --out a"));
    assert_eq!(status, Some(5), "{message}");
    assert!(message.contains("error[MW0723]: ") && message.contains("start the run again: it has no"), "{message}");
    assert!(folder.steps("a").is_empty());
    let (status, message) = run(&folder, "ulimit -f 16", "compile gpt2 --dump dump");
    assert_eq!(status, Some(1), "{message}");
    assert!(message.contains("error[MW0801]: cannot write dump/") && message.contains("ulimit -f"), "{message}");
    assert!(!folder.path("dump").exists());
}

#[test]
fn a_checkpoint_that_fails_is_tried_again_at_the_next_step_that_saves() {
    let folder = folder();
    // A file in the place of the first checkpoint is not replaced by a folder.
    fs::create_dir(folder.path("a")).unwrap();
    folder.write("a/step-00000002", "of the user");
    let text = folder.answer(&format!("{TRAIN} --steps 8 --save-every 2 --out a"));
    assert!(text.contains("note      the checkpoint a/step-00000002 cannot be written: "), "{text}");
    assert!(text.contains("; the run goes on, and the next step that saves tries again"), "{text}");
    assert_eq!((folder.steps("a"), folder.read("a/step-00000002")), (vec![4, 6, 8], "of the user".to_string()));
}

#[test]
fn what_is_no_file_is_refused_at_once() {
    let folder = folder();
    folder.answer(&format!("{TRAIN} --steps 2 --save-every 2 --out a"));
    let step = "a/step-00000002";
    let files = ["manifest.json", "manifest.crc32", "data-0000.safetensors"].map(|name| format!("{step}/{name}"));
    for file in files.iter().map(String::as_str).chain(["a/run.toml", "a/metrics.jsonl", "a/run.lock", "text.txt"]) {
        let (path, kept) = (folder.path(file), folder.path("kept"));
        fs::rename(&path, &kept).unwrap();
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        let (status, message) = run(&folder, ":", "train --resume a --steps 3");
        assert!(matches!(status, Some(1 | 6)), "{file}: {status:?} {message}");
        assert!(
            message.contains("error[MW0") && message.contains(file.rsplit('/').next().unwrap()),
            "{file}: {message}"
        );
        fs::remove_file(&path).unwrap();
        fs::rename(&kept, &path).unwrap();
    }
    assert!(Command::new("mkfifo").arg(folder.path("pipe.toml")).status().unwrap().success());
    for args in [
        "train --config",
        "train --request",
        "train --plan",
        "compile",
        "estimate llama3-8b --gpus 8 --seq 64 \
         --global-batch 8 --configs",
        "plan llama3-8b --gpus 8 --seq 64 --global-batch 8 --cluster",
        "stacks",
        "explain",
        "schedule --from",
        "calibrate --from",
    ] {
        let (status, message) = run(&folder, ":", &format!("{args} ./pipe.toml"));
        assert!(status == Some(1) && message.contains("it is a pipe, not a file"), "{args}: {status:?} {message}");
    }
}

/// Changes the manifest of a checkpoint, and its checksum with it.
fn change(checkpoint: &Path, change: impl Fn(&mut Value)) {
    let mut manifest = serde_json::from_slice(&fs::read(checkpoint.join("manifest.json")).unwrap()).unwrap();
    change(&mut manifest);
    let text = serde_json::to_vec(&manifest).unwrap();
    fs::write(checkpoint.join("manifest.crc32"), format!("{:08x}\n", crc32(&text))).unwrap();
    fs::write(checkpoint.join("manifest.json"), text).unwrap();
}

/// CRC-32 (IEEE 802.3), bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |sum, &byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 })
    })
}

#[test]
fn a_manifest_that_no_run_has_written_is_refused() {
    let folder = folder();
    folder.answer(&format!("{TRAIN} --steps 2 --save-every 2 --out a"));
    let whole = fs::read(folder.path("a/step-00000002/manifest.json")).unwrap();
    let elsewhere = folder.path("elsewhere.safetensors");
    fs::copy(folder.path("a/step-00000002/data-0000.safetensors"), &elsewhere).unwrap();
    type Change = Box<dyn Fn(&mut Value)>;
    let set = |at: &'static str, to: Value| -> Change {
        Box::new(move |manifest| *manifest.pointer_mut(at).unwrap() = to.clone())
    };
    let first = "/parameters/final_bias";
    for (change_it, why) in [
        (set("/files/0/name", "../../elsewhere.safetensors".into()), "names a file outside of its folder"),
        (set("/files/0/name", elsewhere.to_str().unwrap().into()), "names a file outside of its folder"),
        (set("/files/0/name", "/dev/zero".into()), "names a file outside of its folder"),
        (set("/consumed_samples", u64::MAX.into()), "has 18446744073709551615 samples in 2 steps of 4"),
        (set("/consumed_samples", (1u64 << 63).into()), "samples in 2 steps of 4"),
        (set("/step", 0.into()), "is that of step 0"),
        (set("/epoch", 9.into()), "has epoch 9 after 8 samples"),
        (
            Box::new(move |manifest| {
                let sizes = manifest.pointer_mut(first).map(|parameter| &mut parameter["sizes"]);
                *sizes.expect("a GPT-2 has this parameter") = serde_json::json!([1u64 << 32, 1u64 << 32]);
            }),
            "has sizes of `final_bias` that cannot be",
        ),
    ] {
        fs::write(folder.path("a/step-00000002/manifest.json"), &whole).unwrap();
        change(&folder.path("a/step-00000002"), change_it);
        let (status, message) = folder.failure("train --resume a --steps 3");
        assert_eq!(status, 6, "{message}");
        assert!(message.contains("error[MW0721]: ") && message.contains(why), "{why}: {message}");
    }
}

#[test]
fn a_line_that_is_no_record_costs_no_other() {
    let folder = folder();
    folder.answer(&format!("{TRAIN} --steps 6 --save-every 6 --out a"));
    let metrics = folder.read("a/metrics.jsonl");
    let third = metrics.lines().nth(3).unwrap();
    let garbled = metrics.replace(third, "garbled");
    folder.write("a/metrics.jsonl", &garbled);
    let answer = folder.answer("train --resume a --steps 7");
    assert!(answer.contains("a/metrics.jsonl: line 4 is no record and was left out"), "{answer}");
    assert_eq!(folder.read("a/metrics.damaged-1.jsonl"), garbled);
    let steps: Vec<u64> = super::runs::losses(&folder.read("a/metrics.jsonl")).iter().map(|record| record.0).collect();
    assert_eq!(steps, [1, 2, 4, 5, 6, 7, 7]);
}

#[cfg(target_os = "linux")]
#[test]
fn limits_of_the_process_are_seen_before_the_run() {
    let folder = folder();
    folder.write("long.json", &CONFIG.replace("\"n_positions\": 16", "\"n_positions\": 32000000"));
    let (status, message) = run(&folder, "ulimit -v 6000000", &format!("{} --out a", TRAIN.replace("config", "long")));
    assert_eq!(status, Some(1), "{message}");
    assert!(message.contains("error[MW0710]: the run needs "), "{message}");
    // Arenas of 256 MB; other memory of the threads counts too.
    let many = TRAIN.replace("--global-batch 4", "--global-batch 1024 --parallel dp=1024");
    let (status, message) = run(&folder, "ulimit -v 6000000", &format!("{many} --out a"));
    assert_eq!(status, Some(1), "{message}");
    assert!(message.contains("for its devices (1024)"), "{message}");
    let large = fs::File::create(folder.path("text.txt")).unwrap();
    std::io::Write::write_all(&mut &large, &[b'a'; 8192]).unwrap();
    large.set_len(7 << 30).unwrap();
    let (status, message) = run(&folder, "ulimit -v 6000000", &format!("{TRAIN} --out a"));
    assert_eq!(status, Some(1), "{message}");
    assert!(message.contains("error[MW0710]: the text at text.txt has 7.0 GiB"), "{message}");
    assert!(!folder.path("a").exists());
}

#[cfg(target_os = "linux")]
#[test]
fn memory_that_is_not_given_is_a_message_and_no_abort() {
    let folder = folder();
    folder.write("brackets.ir", &"[".repeat(16 << 20));
    let (status, message) = run(&folder, "ulimit -v 300000", "compile brackets.ir");
    assert_eq!(status, Some(1), "{message}");
    assert!(message.starts_with("error[MW0710]: the system gives no more memory: "), "{message}");
    assert!(message.contains("= help: ") && message.lines().count() == 2, "{message}");
}
