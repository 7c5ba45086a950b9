//! Training that is killed, interrupted, or whose reads and writes fail: whatever happens, the run goes on from what it left,
//! and in the end has the losses and the checkpoint of a run that nothing happened to.

use crate::cases::{Cases, Failure};
use crate::models;
use crate::process::{Ended, Folder, start};
use crate::random::Random;
use crate::seeds::{TEXT, text, words};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const CASES: u64 = 12;
const MESHES: [&str; 3] = ["dp=1", "dp=2,zero=1", "tp=2,pp=2"];
/// Faults of one run, at most.
const FAULTS: u64 = 4;
/// Errors that a system answers with, by number on Linux: EIO, EACCES, EMFILE, ENOSPC, EROFS.
const ERRORS: [i32; 5] = [5, 13, 24, 28, 30];
const CALLS: [&str; 8] = ["create", "open", "read", "write", "sync", "rename", "remove", "mkdir"];
/// Signals that end a run, by name and number.
const SIGNALS: [(&str, i32); 4] = [("KILL", 9), ("INT", 2), ("TERM", 15), ("HUP", 1)];

/// A run that nothing happens to.
struct Unbroken {
    losses: BTreeMap<String, String>,
    checkpoint: BTreeMap<String, Vec<u8>>,
    /// How long it takes.
    wall: Duration,
}

#[test]
fn faults() {
    let home = Folder::new("fuzz-faults");
    let library = compiled(home.path());
    let unbroken: Vec<Unbroken> = MESHES.iter().map(|mesh| unbroken(home.path(), mesh)).collect();
    Cases::asked(CASES).run("faults", 1, |case| {
        let mut random = Random::new(case);
        let at = random.below(MESHES.len());
        let folder = Folder::new(&format!("fuzz-faults-{case}"));
        prepare(folder.path());
        match broken(&mut random, folder.path(), MESHES[at], &unbroken[at], &library) {
            Ok(word) => Ok(word),
            Err(why) => Err(Failure { why: format!("{}: {why}", MESHES[at]), folder: Some(folder.keep()) }),
        }
    });
}

/// The library that makes calls fail.
fn compiled(folder: &Path) -> PathBuf {
    let library = folder.join("io_errors.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/io_errors.c");
    let built = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).status().unwrap();
    assert!(built.success(), "cc makes no library");
    library
}

fn prepare(folder: &Path) {
    let mut model = models::all()[0].clone();
    for dropout in ["embd_pdrop", "attn_pdrop", "resid_pdrop"] {
        model[dropout] = Value::from(0.1);
    }
    fs::write(folder.join("config.json"), model.to_string()).unwrap();
    fs::write(folder.join(TEXT), text()).unwrap();
}

fn unbroken(home: &Path, mesh: &str) -> Unbroken {
    let folder = home.join(mesh);
    fs::create_dir(&folder).unwrap();
    prepare(&folder);
    let ended = start(&folder, &command(mesh, false), &[]).end();
    assert_eq!(ended.code(), Some(0), "{}", ended.stderr);
    Unbroken { losses: losses(&folder), checkpoint: checkpoint(&folder), wall: ended.wall() }
}

fn command(mesh: &str, resumes: bool) -> Vec<String> {
    let options = "--data text.txt --seq 8 --global-batch 4 --steps 16 --eval-every 8 --eval-batches 1 --save-every 2";
    let resume = if resumes { "--resume" } else { "" };
    words(&format!("train config.json {options} --parallel {mesh} --trace trace.json {resume}"))
}

/// Some faults one after the other, and at last a run without.
fn broken(random: &mut Random, folder: &Path, mesh: &str, whole: &Unbroken, library: &Path) -> Result<String, String> {
    let mut happened = Vec::new();
    for _ in 0..random.between(1, FAULTS) {
        let (name, ended, signal) = fault(random, folder, mesh, whole, library);
        happened.push(name);
        if !signal.is_some_and(|number| ended.ended_by(number)) {
            ended.judged().map_err(|why| format!("after {}: {why}", happened.join(", ")))?;
        }
        if ended.code() == Some(0) {
            break;
        }
    }
    let said = format!("after {}", happened.join(", "));
    let ended = start(folder, &command(mesh, has_checkpoint(folder)), &[]).end();
    if ended.code() != Some(0) {
        return Err(format!("{said}: it does not go on\n{}", ended.stderr));
    }
    compare(folder, whole).map_err(|why| format!("{said}: {why}"))?;
    Ok(format!("{} first", happened[0].split(':').next().unwrap_or_default()))
}

/// One run that something happens to: what that is, how the run ended, and the number of the signal, if it was one.
fn fault(
    random: &mut Random,
    folder: &Path,
    mesh: &str,
    whole: &Unbroken,
    library: &Path,
) -> (String, Ended, Option<i32>) {
    let command = command(mesh, has_checkpoint(folder));
    if random.chance(50) {
        let (signal, number) = *random.pick(&SIGNALS);
        let process = start(folder, &command, &[]);
        std::thread::sleep(whole.wall.mul_f64(random.below(1000) as f64 / 1000.0));
        process.signal(signal);
        return (format!("SIG{signal}"), process.end(), Some(number));
    }
    let from = random.between(1, 40);
    let last = if random.chance(50) { from } else { i32::MAX as u64 };
    let fails = format!("{}:{from}:{last}:{}", random.pick(&CALLS), random.pick(&ERRORS));
    let env = [("LD_PRELOAD", library.display().to_string()), ("MESHWRIGHT_FAIL", fails.clone())];
    (fails, start(folder, &command, &env).end(), None)
}

fn has_checkpoint(folder: &Path) -> bool {
    last_checkpoint(folder).is_some()
}

/// Only whole checkpoints have such a name.
fn last_checkpoint(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder.join("out")).ok()?.flatten();
    let whole = entries.filter(|entry| {
        let name = entry.file_name().into_string().unwrap_or_default();
        name.strip_prefix("step-").is_some_and(|step| step.bytes().all(|byte| byte.is_ascii_digit()))
    });
    whole.map(|entry| entry.path()).max()
}

fn compare(folder: &Path, whole: &Unbroken) -> Result<(), String> {
    let losses = losses(folder);
    if losses != whole.losses {
        return Err(format!("other losses\n{losses:?}\n{:?}", whole.losses));
    }
    let checkpoint = checkpoint(folder);
    match checkpoint.iter().find(|(name, bytes)| whole.checkpoint.get(*name) != Some(bytes)) {
        Some((name, _)) => Err(format!("{name} of the last checkpoint differs")),
        None if checkpoint.len() != whole.checkpoint.len() => Err("the last checkpoint has other files".into()),
        None => Ok(()),
    }
}

/// The losses of `metrics.jsonl` by step and kind; each must be there once.
fn losses(folder: &Path) -> BTreeMap<String, String> {
    let text = fs::read_to_string(folder.join("out/metrics.jsonl")).unwrap_or_default();
    let mut losses = BTreeMap::new();
    for line in text.lines() {
        let record: Value = serde_json::from_str(line).unwrap_or_default();
        for kind in ["loss", "valid_loss"] {
            if !record[kind].is_null() {
                let twice = losses.insert(format!("{} {kind}", record["step"]), record[kind].to_string());
                let note = twice.map(|first| format!("{first} and {}", record[kind]));
                note.map(|note| losses.insert(format!("{} {kind}", record["step"]), note));
            }
        }
    }
    losses
}

fn checkpoint(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let Some(last) = last_checkpoint(folder) else { return BTreeMap::new() };
    let files = fs::read_dir(last).unwrap().flatten();
    files.map(|file| (file.file_name().into_string().unwrap(), fs::read(file.path()).unwrap())).collect()
}
