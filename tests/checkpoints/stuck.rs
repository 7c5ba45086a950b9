//! Ranks that are stuck while their processes live: the run ends in all processes as after other failures. A slow rank is waited for.

use super::faults::{TRAIN, ended, folder};
use super::launched::team;
use super::runs::Folder;
use serde_json::Value;

/// A run whose rank 1 is stuck in the third step.
fn stuck(parallel: &str) -> String {
    format!("{TRAIN} --steps 1000000 --parallel {parallel} --mbs 1 --timeout 1 --inject stuck=3:1 --out a")
}

/// Checks the end of a process.
fn check(status: Option<i32>, message: &str) {
    let is_named = message.contains("error[MW0707]: rank 1 failed: it has been stuck for ")
        && message.contains(" = ") // the op
        && message.contains(", micro-batch 0) (step 3");
    assert!(status == Some(5) && is_named && message.contains("raise --timeout"), "{status:?} {message}");
}

/// Checks the flight record of a process.
fn check_record(folder: &Folder, process: usize) {
    let record: Value = serde_json::from_str(&folder.read(&format!("a/faults/3-process-{process}.json"))).unwrap();
    let is_named = record["why"].as_str().unwrap().contains("it has been stuck for ");
    assert!(is_named && record["failed_rank"] == 1 && record["process"] == process, "{record}");
    assert!(!record["events"].as_array().unwrap().is_empty(), "{record}");
}

#[test]
fn a_rank_that_is_stuck_ends_all_processes() {
    for (parallel, processes, place) in [("dp=2", 2, 1), ("dp=2,pp=2", 2, 0), ("dp=2,pp=2", 4, 1)] {
        let (folder, train, mut waits) = (folder(), stuck(parallel), 0);
        for (number, child) in team(&folder, &vec![(":", &*train); processes]).into_iter().enumerate() {
            let (status, message) = ended(child);
            check(status, &message);
            assert!(message.contains(&format!("(step 3, process {place} on ")), "{message}");
            waits += usize::from(message.contains(" waits for rank 1 "));
            check_record(&folder, number);
        }
        assert!(waits > 0, "nobody says who waits for rank 1");
    }
}

#[test]
fn a_rank_that_is_stuck_ends_a_process_of_several_ranks() {
    // The process of rank 1, if it has a wire, and whether rank 0 is in it too.
    for (comm, process, is_shared) in
        [("threads", None, true), ("looped:2", Some(0), true), ("looped:4", Some(1), false)]
    {
        let folder = folder();
        let (status, message) = folder.failure(&format!("{} --comm {comm}", stuck("dp=2,pp=2")));
        check(Some(status), &message);
        assert!(message.contains(" waits for rank 1 ") == is_shared, "{message}");
        process.into_iter().for_each(|process| check_record(&folder, process));
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_launcher_of_a_rank_that_is_stuck_leaves_nobody() {
    use super::faults::shell;
    use super::launched::{children, is_running};
    use std::time::{Duration, Instant};
    let folder = folder();
    let launcher = shell(&folder, ":", &format!("launch -n 4 -- {}", stuck("dp=4"))).spawn().unwrap();
    let (began, mut all) = (Instant::now(), Vec::new());
    while all.len() < 4 {
        assert!(began.elapsed() < Duration::from_secs(60), "it starts no processes");
        all = children(&launcher);
    }
    let (status, message) = ended(launcher);
    check(status, &message);
    assert!(!all.into_iter().any(is_running), "{message}");
}

#[test]
fn a_rank_that_is_slow_is_waited_for() {
    let folder = folder();
    // Each step after the first takes longer than the limit, and each batch of the validation.
    let limits = "--timeout 2 --inject slow=1:2500 --steps 3 --final-eval-batches 2 --save-every 2";
    let answer = folder.answer(&format!("launch -n 2 -- {TRAIN} --parallel dp=2 --out a {limits}"));
    assert!(answer.contains("validation loss") && folder.steps("a") == [2, 3], "{answer}");
}
