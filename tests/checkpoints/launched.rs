//! Runs in several processes that `launch` has started: the bits of one process, and an end for all whatever happens to one.

use super::faults::{TRAIN, ended, folder, on_its_way, shell, signal};
use super::runs::{Folder, losses};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// The names and bytes of all files of a checkpoint.
pub(super) fn files(folder: &Folder, checkpoint: &str) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder.path(checkpoint)).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
}

#[test]
fn processes_joined_by_tcp_have_the_bits_of_one() {
    let folder = folder();
    for (number, (processes, parallel)) in [(2, "dp=2,tp=2,zero=3"), (4, "pp=2,dp=2,schedule=1f1b")].iter().enumerate()
    {
        let train = format!("{TRAIN} --steps 3 --save-every 3 --parallel {parallel} --mbs 1");
        let (one, several) = (format!("one-{number}"), format!("several-{number}"));
        folder.answer(&format!("{train} --out {one}"));
        let answer = folder.answer(&format!("launch -n {processes} -- {train} --out {several}"));
        assert_eq!(answer.matches("validation loss").count(), 2, "one process speaks: {answer}");
        let losses = |out: &str| losses(&folder.read(&format!("{out}/metrics.jsonl")));
        assert_eq!(losses(&one), losses(&several), "{parallel}");
        let files = |out: &str| files(&folder, &format!("{out}/step-00000003"));
        assert!(files(&one) == files(&several), "{parallel}: another checkpoint");
    }
}

#[test]
fn a_signal_to_the_launcher_ends_all_with_a_checkpoint() {
    let folder = folder();
    let child = on_its_way(&folder, ":", &format!("launch -n 2 -- {TRAIN} --steps 1000000 --parallel dp=2 --out a"));
    signal(&child, "TERM");
    let (status, message) = ended(child);
    assert_eq!(status, Some(143), "{message}");
    let step = folder.steps("a").pop().unwrap();
    assert!(message.contains(&format!("[0] error[MW0726]: SIGTERM ended the run after step {step} of")), "{message}");
    // Another number of processes goes on.
    let answer = folder.answer(&format!("train --resume a --steps {}", step + 1));
    assert!(answer.contains(&format!("resumed   after step {step} of")), "{answer}");
}

#[test]
fn ranks_are_listed_before_anything_runs() {
    let folder = folder();
    for (before, after, processes) in [("", "", 1), ("", "--comm looped:2", 2), ("launch -n 4 -- ", "", 4)] {
        let listed = format!("{before}{TRAIN} --parallel pp=2,dp=2,tp=2 --out a {after} --print-ranks");
        let report = folder.json(&format!("{listed} --format json"));
        let ranks = report["ranks"].as_array().unwrap();
        let process = |rank: &Value| rank["process"].as_u64().unwrap();
        assert_eq!(
            ranks.iter().map(process).collect::<Vec<_>>(),
            (0..8).map(|rank| rank * processes / 8).collect::<Vec<_>>()
        );
        assert_eq!(ranks[5]["coordinates"], serde_json::json!({"pp": 1, "dp": 0, "tp": 1}));
        let ids: std::collections::BTreeSet<u64> = ranks.iter().map(|rank| rank["pid"].as_u64().unwrap()).collect();
        assert_eq!(ids.len() as u64, if before.is_empty() { 1 } else { processes });
        let text = folder.answer(&listed);
        let far = if processes == 1 { "inside a process" } else { "across" };
        assert!(text.lines().any(|line| line.starts_with("pp    2     ") && line.contains(far)), "{text}");
        assert!(text.contains("tp    2     inside a process\n") && !folder.path("a").exists(), "{text}");
    }
}

#[test]
fn a_flipped_bit_of_a_replica_is_found() {
    let folder = folder();
    let train = format!("{TRAIN} --steps 9 --check-replicas=2 --out a");
    folder.answer(&format!("launch -n 2 -- {train} --parallel pp=2,dp=2"));
    for (parallel, flips, ranks) in [
        ("dp=4", "flip=4:3", "but rank 3 (process 1 on "),
        ("dp=2,zero=1", "flip=4:1", "but ranks 0, 1 (process 0 on "),
        ("pp=2,tp=2", "flip=4:0", "but ranks 0, 2 (process 0 on "),
    ] {
        let (status, message) =
            folder.failure(&format!("launch -n 2 -- {train} --parallel {parallel} --inject {flips}"));
        assert_eq!(status, 5, "{message}");
        let found = message.contains("[0] error[MW0715]: step 4: `") && message.contains(ranks);
        assert!(found && message.contains(" differ"), "{message}");
        let one = folder.failure(&format!("{train} --parallel {parallel} --inject {flips}"));
        assert!(one.0 == 5 && one.1.contains("error[MW0715]: step 4: `"), "{}", one.1);
    }
}

#[test]
fn the_traces_of_processes_are_one_by_one_clock() {
    let folder = folder();
    let train = format!("{TRAIN} --steps 4 --parallel pp=2,dp=2 --mbs 1 --profile --trace trace.json");
    let report = folder.json(&format!("launch -n 4 -- {train} --format json"));
    assert_eq!((&report["profile"]["ranks"], &report["profile"]["steps"]), (&4.into(), &3.into()));
    let trace: Value = serde_json::from_str(&folder.read("trace.json")).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).collect::<Vec<_>>();
    let names = of("M").into_iter().filter(|event| event["name"] == "process_name");
    let names: std::collections::BTreeSet<&str> = names.map(|event| event["args"]["name"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 4, "{names:?}");
    assert!(names.iter().zip(0..).all(|(name, number)| name.starts_with(&format!("process {number} on "))));
    // A flow joins both ends of a message: no receive ends before its send began.
    let span = |end: &Value| {
        let at = end["ts"].as_f64().unwrap();
        let holds = |event: &&&Value| {
            let (start, long) = (event["ts"].as_f64().unwrap(), event["dur"].as_f64().unwrap());
            event["tid"] == end["tid"] && start - 1e-3 <= at && at <= start + long + 1e-3
        };
        let event = *of("X").iter().find(holds).expect("a flow begins and ends in events");
        (event["ts"].as_f64().unwrap(), event["ts"].as_f64().unwrap() + event["dur"].as_f64().unwrap(), event)
    };
    let starts: BTreeMap<u64, &Value> = of("s").into_iter().map(|flow| (flow["id"].as_u64().unwrap(), flow)).collect();
    let mut far = 0;
    for end in of("f") {
        let (from, to) = (span(starts[&end["id"].as_u64().unwrap()]), span(end));
        assert!(from.0 <= to.1, "{:?} {:?}", from, to);
        far += usize::from(from.2["pid"] != to.2["pid"] && from.2["name"].as_str().unwrap().starts_with("send "));
    }
    assert!(far >= 8, "two micro-batches and more go between stages, and back: {far}");
}

#[test]
fn a_slow_rank_is_named() {
    let folder = folder();
    let train = format!("{TRAIN} --steps 12 --parallel dp=2 --inject slow=1:400 --out a");
    let answer = folder.answer(&format!("launch -n 2 -- {train}"));
    assert!(answer.contains("note      rank 1 (process 1 on ") && answer.contains(" is a straggler: "), "{answer}");
    let records: Vec<Value> =
        folder.read("a/metrics.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let slowest = records.iter().filter(|record| record["slowest"]["rank"] == 1 && record["slowest"]["process"] == 1);
    assert!(slowest.filter(|record| record["slowest"]["ratio"].as_f64().unwrap() > 2.0).count() >= 8);
}

#[test]
fn numbers_that_are_none_end_all_processes_alike() {
    let folder = folder();
    let train = format!("{TRAIN} --steps 9 --parallel dp=2 --inject nan=3:1 --save-every 2 --out a");
    let (status, message) = folder.failure(&format!("launch -n 2 --max-restarts 2 -- {train}"));
    assert!(status == 6 && message.contains("[0] error[MW0706]: step 3: "), "{status} {message}");
    assert!(!message.contains("launch: ") && folder.steps("a") == [2], "{message}");
}

/// Processes that find each other, each behind its own beginning of a script.
pub(super) fn team(folder: &Folder, all: &[(&str, &str)]) -> Vec<Child> {
    let (port, count) = (tcp::free_port().unwrap().to_string(), all.len().to_string());
    let process = |(number, (before, args)): (usize, &(&str, &str))| {
        let mut command = shell(folder, before, &format!("{args} --comm tcp"));
        let number = number.to_string();
        let place = [("RANK", &*number), ("WORLD_SIZE", &count), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", &port)];
        command.envs(place).spawn().unwrap()
    };
    all.iter().enumerate().map(process).collect()
}

#[test]
fn a_disk_that_is_full_for_one_process_ends_all_and_leaves_the_older_checkpoint() {
    let folder = folder();
    folder.answer(&format!("launch -n 2 -- {TRAIN} --steps 4 --save-every 2 --parallel dp=2 --out a"));
    fs::remove_dir_all(folder.path("a/step-00000004")).unwrap();
    // A limit on the size of files stands for a full disk.
    let full = "trap '' XFSZ; ulimit -f 16";
    for child in team(&folder, &[(":", "train --resume a"), (full, "train --resume a")]) {
        let (status, message) = ended(child);
        let named = message.contains("error[MW0723]: the checkpoint a/step-00000004 cannot be written: ");
        assert!(status == Some(5) && named && message.contains("(process 1 on "), "{status:?} {message}");
    }
    assert_eq!(folder.steps("a"), [2]);
    let answer = folder.answer("launch -n 2 -- train --resume a");
    assert!(answer.contains("resumed   after step 2 of 4") && folder.steps("a") == [2, 4], "{answer}");
}

#[test]
fn a_damaged_checkpoint_ends_all_processes_before_the_first_step() {
    let folder = folder();
    folder.answer(&format!("launch -n 2 -- {TRAIN} --steps 4 --save-every 2 --parallel dp=2 --out a"));
    let file = folder.path("a/step-00000004/data-0001.safetensors");
    let mut bytes = fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    fs::write(&file, bytes).unwrap();
    let (status, message) = folder.failure("launch -n 2 --max-restarts 2 -- train --resume a --steps 6");
    let named = message.matches("error[MW0721]: the checkpoint a/step-00000004 is damaged: data-0001.safetensors");
    assert!(status == 6 && named.count() == 1, "{status} {message}");
    assert!(!message.contains("launch: ") && message.contains("--resume a/step-00000002"), "{message}");
}

#[test]
fn processes_of_other_programs_are_turned_away() {
    let folder = folder();
    // Statements one by one are another program.
    let train = format!("{TRAIN} --steps 3 --parallel dp=2 --out a");
    for child in team(&folder, &[(":", &train), (":", &format!("{train} --no-fusion"))]) {
        let (status, message) = ended(child);
        let named = message.contains("error[MW0716]") && message.contains("--no-fusion is false in process 0 on ");
        assert!(status == Some(1) && named, "{status:?} {message}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_run_goes_on_with_the_processes_that_are_there() {
    let folder = folder();
    let train = TRAIN.replace("--global-batch 4", "--global-batch 12") + " --steps 400 --parallel dp=4 --mbs 1";
    folder.answer(&format!("{train} --out whole"));
    folder.write("count", "4");
    let launch = "launch -n 4 --max-restarts 2 --min-devices 2 --processes-from count --";
    let launcher = on_its_way(&folder, ":", &format!("{launch} {train} --out a"));
    for count in [3, 4] {
        folder.write("count", &count.to_string());
        let began = Instant::now();
        while !folder.read("a/run.toml").contains(&format!("parallel = \"dp={count},")) {
            assert!(began.elapsed() < Duration::from_secs(60), "there are not {count} processes");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    let (status, message) = ended(launcher);
    assert_eq!(status, Some(0), "{message}");
    let notes = ["launch: 3 processes are available", "launch: 4 processes are available"];
    assert!(notes.iter().all(|note| message.contains(note)), "{message}");
    let losses = |out: &str| losses(&folder.read(&format!("{out}/metrics.jsonl")));
    let (whole, shrunk) = (losses("whole"), losses("a"));
    assert_eq!(whole.len(), shrunk.len());
    for (want, got) in whole.iter().zip(&shrunk) {
        assert_eq!(want.0, got.0);
        let [want, got] = [want, got].map(|(_, loss, valid)| loss.as_f64().or(valid.as_f64()).unwrap());
        assert!((want - got).abs() <= 1e-5 * want, "{want} {got}");
    }
}

#[test]
fn what_all_refuse_is_said_once() {
    let folder = folder();
    for (args, why) in [
        ("-n 2 -- train --steps 1 --data text.txt", "2 processes do not divide the 1 devices"),
        ("-n 2 -- train --steps 0", "`steps` is 0"),
        ("-n 2 -- plan gpt2", "`launch` starts `plan`"),
    ] {
        let (status, message) = folder.failure(&format!("launch {args}"));
        assert!(status == 1 && message.matches(why).count() == 1, "{status} {message}");
    }
    let (_, message) = folder.failure(&format!("{TRAIN} --steps 1 --comm tcp"));
    assert!(message.contains("cannot be joined: RANK or SLURM_PROCID is not set"), "{message}");
}

/// The processes that a launcher has started, in their order.
#[cfg(target_os = "linux")]
pub(super) fn children(launcher: &Child) -> Vec<u32> {
    let path = format!("/proc/{0}/task/{0}/children", launcher.id());
    fs::read_to_string(path).unwrap().split_whitespace().map(|id| id.parse().unwrap()).collect()
}

#[cfg(target_os = "linux")]
pub(super) fn kill(process: u32, name: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), &process.to_string()]).status().unwrap().success());
}

/// True if a process is there, and no zombie.
#[cfg(target_os = "linux")]
pub(super) fn is_running(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    status.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

#[cfg(target_os = "linux")]
#[test]
fn a_process_that_is_killed_is_named_and_ends_all() {
    let folder = folder();
    for (victim, signal, why) in
        [(1, "KILL", "is gone"), (0, "KILL", "is gone"), (1, "STOP", "has said nothing for 1 s")]
    {
        let train = format!("{TRAIN} --steps 1000000 --parallel dp=2 --silence 1 --out a");
        let launcher = on_its_way(&folder, ":", &format!("launch -n 2 -- {train}"));
        kill(children(&launcher)[victim], signal);
        let began = Instant::now();
        let (status, message) = ended(launcher);
        assert!(began.elapsed() < Duration::from_secs(10), "{:?}: {message}", began.elapsed());
        let named = format!("[{}] error[MW0707]: rank {victim} failed: process {victim} on ", 1 - victim);
        assert!(message.contains(&named) && message.contains(why) && message.contains("(step "), "{message}");
        assert!(
            signal == "STOP" || message.contains(&format!("error[MW0707]: signal 9 ended process {victim}")),
            "{message}"
        );
        assert_eq!(status, Some(5), "{message}");
        let record = message.split("; ").find_map(|part| Some(part.split_once(" has the last messages")?.0));
        let record: Value = serde_json::from_str(&folder.read(record.expect("a record is named"))).unwrap();
        assert!(record["why"].as_str().unwrap().contains(why) && record["process"] == 1 - victim, "{record}");
        let events = record["events"].as_array().unwrap();
        assert!((1..=256).contains(&events.len()) && events.iter().all(|event| event["process"] == victim), "{record}");
        fs::remove_dir_all(folder.path("a")).unwrap();
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_process_that_is_stopped_while_it_starts_ends_all() {
    let folder = folder();
    let args = format!("launch -n 2 -- {TRAIN} --steps 1000000 --parallel dp=2 --silence 0.5 --out a");
    let launcher = shell(&folder, ":", &args).spawn().unwrap();
    let began = Instant::now();
    // The launcher waits for a process that is stopped before its program begins.
    let command = |process: &u32| fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let has_begun = |process: &&u32| command(process).contains("\0train\0") && !command(process).contains("\0launch\0");
    while children(&launcher).iter().filter(has_begun).count() < 2 {
        assert!(began.elapsed() < Duration::from_secs(30), "it starts no processes");
    }
    kill(children(&launcher)[1], "STOP");
    let (status, message) = ended(launcher);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}: {message}", began.elapsed());
    let noted = message.contains("launch: process 1 has been stopped for 2.5 s, and is ended");
    let named = noted && message.contains("error[MW0707]: signal 9 ended process 1");
    assert!(status == Some(5) && (named || message.contains("has said nothing for 0.5 s")), "{status:?} {message}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_run_that_is_killed_twice_ends_with_the_bits_of_an_undisturbed_one() {
    let folder = folder();
    let train = format!("{TRAIN} --steps 300 --save-every 10 --keep-last 2 --parallel dp=2");
    folder.answer(&format!("{train} --out whole"));
    let launcher = on_its_way(&folder, ":", &format!("launch -n 2 --max-restarts 2 -- {train} --out a"));
    let mut before = Vec::new();
    for victim in [1, 0] {
        let began = Instant::now();
        let steps = || fs::read_to_string(folder.path("a/metrics.jsonl")).unwrap_or_default().lines().count();
        let (mut now, first) = (children(&launcher), steps());
        while now.len() < 2 || now == before || steps() <= first {
            assert!(began.elapsed() < Duration::from_secs(30), "it is not started again");
            std::thread::sleep(Duration::from_millis(1));
            now = children(&launcher);
        }
        kill(now[victim], "KILL");
        before = now;
    }
    let (status, message) = ended(launcher);
    assert_eq!(status, Some(0), "{message}");
    assert_eq!(message.matches("launch: signal 9 ended process").count(), 2, "{message}");
    let losses = |out: &str| losses(&folder.read(&format!("{out}/metrics.jsonl")));
    assert_eq!(losses("whole"), losses("a"));
    assert!(files(&folder, "whole/step-00000300") == files(&folder, "a/step-00000300"));
}

#[cfg(target_os = "linux")]
#[test]
fn nobody_outlives_the_launcher() {
    let folder = folder();
    let train = format!("{TRAIN} --steps 1000000 --parallel dp=2 --out a");
    let mut launcher = on_its_way(&folder, ":", &format!("launch -n 2 -- {train}"));
    let all = children(&launcher);
    assert_eq!(all.len(), 2);
    launcher.kill().unwrap();
    launcher.wait().unwrap();
    let began = Instant::now();
    while all.iter().any(|&id| is_running(id)) {
        assert!(began.elapsed() < Duration::from_secs(5), "a process outlives the one that started it");
        std::thread::sleep(Duration::from_millis(20));
    }
}
