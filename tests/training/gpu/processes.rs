//! `launch -n N -- train --backend cuda --comm nccl` on the stand-in: real processes with a device each, joined by the stand-in of NCCL.

use super::training::{Curve, GPT2, LLAMA, MIXTRAL, Runs, apart};
use super::{CLOSE, stand_in};
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A run in a number of processes.
fn launched(runs: &Runs<'_>, processes: usize, options: &[&str]) -> Command {
    let count = processes.to_string();
    let mut command = runs.command(&["launch", "-n", &count, "--"], "cuda", options);
    command.args(["--comm", "nccl"]).env("STAND_IN_DEVICES", &count);
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The numbers that such a run reports.
fn curve(runs: &Runs<'_>, processes: usize, options: &[&str]) -> Curve {
    let output = launched(runs, processes, options).output().unwrap();
    assert!(output.status.success(), "{options:?}: {}", said(&output));
    runs.reported("cuda")
}

/// Each layout of a model trains in processes with a GPU each as on the processor.
fn follows(test: &str, layouts: &[(&str, usize, &str)]) {
    let folder = stand_in(test);
    for (model, processes, options) in layouts {
        let (runs, options) = (Runs::new(&folder, test, model), options.split(' ').collect::<Vec<_>>());
        let options = [&["--parallel"], &options[..]].concat();
        let (right, curve) = (runs.curve("cpu", &options), curve(&runs, *processes, &options));
        let apart = apart(&right, &curve);
        assert!(right.len() == curve.len() && apart < CLOSE, "{options:?}: {apart:e}\n{right:?}\n{curve:?}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn processes_with_a_gpu_each_train_data_and_tensor_parallel_as_the_processor() {
    follows(
        "nccl-layers",
        &[
            (LLAMA, 4, "dp=4,zero=1"),
            (LLAMA, 4, "dp=4,zero=2"),
            (LLAMA, 3, "dp=3,zero=3 --global-batch 6"),
            (LLAMA, 4, "dp=2,tp=2,sp=true"),
            (LLAMA, 4, "cp=4,cp_kind=ring"),
            (GPT2, 2, "tp=2"),
        ],
    );
}

#[test]
fn processes_with_a_gpu_each_train_pipelines_and_experts_as_the_processor() {
    follows(
        "nccl-stages",
        &[
            (LLAMA, 4, "dp=2,pp=2,mbs=1"),
            (LLAMA, 4, "tp=2,pp=2,schedule=zb-h1,mbs=1"),
            (MIXTRAL, 4, "dp=4,ep=4"),
            (MIXTRAL, 4, "dp=2,tp=2,ep=2"),
        ],
    );
}

#[test]
fn steps_of_processes_as_graphs_are_the_steps_and_rows_keep_them_eager() {
    let folder = stand_in("nccl-graphs");
    for (model, processes, parallel, is_graph) in
        [(LLAMA, 4, "dp=2,pp=2,zero=1,mbs=1", true), (LLAMA, 2, "tp=2,sp=true", true), (MIXTRAL, 2, "dp=2,ep=2", false)]
    {
        let runs = Runs::new(&folder, "nccl-graphs", model);
        let (options, noted) = (["--parallel", parallel], folder.join("graphs"));
        let run = |options: &[&str]| {
            let _ = fs::remove_file(&noted);
            let output = launched(&runs, processes, options).env("STAND_IN_GRAPHS", &noted).output().unwrap();
            let (said, launches) = (said(&output), fs::read_to_string(&noted).unwrap_or_default().lines().count());
            assert!(output.status.success(), "{said}");
            let told = String::from_utf8_lossy(&output.stdout);
            (runs.reported("cuda"), launches, told.contains("not as CUDA graphs: the host waits for the numbers"))
        };
        let (graph, launches, is_eager) = run(&options);
        let (eager, none, _) = run(&[&options[..], &["--no-graphs"]].concat());
        // The first of four steps makes all ready, and so does the first of two batches of validation.
        let expected = if is_graph { processes * (3 + 1) } else { 0 };
        assert_eq!((graph, launches, none, is_eager), (eager, expected, 0, !is_graph), "{parallel}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn sums_in_bf16_err_as_bf16() {
    let folder = stand_in("nccl-narrow");
    let runs = Runs::new(&folder, "nccl-narrow", LLAMA);
    let parallel = ["--parallel", "dp=2,tp=2,sp=true"];
    let narrow = [&parallel[..], &["--precision", "bf16"]].concat();
    let [exact, right] = [&parallel[..], &narrow].map(|options| runs.curve("cpu", options));
    let curve = curve(&runs, 4, &narrow);
    assert!(apart(&right, &curve) < apart(&exact, &right), "{exact:?}\n{right:?}\n{curve:?}");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_checkpoint_of_processes_with_gpus_goes_on_anywhere() {
    let folder = stand_in("nccl-saved");
    let runs = Runs::new(&folder, "nccl-saved", LLAMA);
    let whole = curve(&runs, 2, &["--parallel", "dp=2,zero=3", "--save-every", "2"]);
    let saved = runs.path("cuda").join("step-00000002");
    let rest = ["--resume", saved.to_str().unwrap(), "--parallel", "tp=2"];
    let mut resumed = Command::new(env!("CARGO_BIN_EXE_meshwright"));
    resumed.arg("train").args(rest).args(["--backend", "cpu", "--out"]).arg(runs.path("cpu"));
    let output = resumed.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let rest = runs.reported("cpu");
    let apart = apart(&whole[whole.len() - rest.len()..].to_vec(), &rest);
    assert!(rest.len() == 5 && apart < CLOSE, "{apart:e}\n{whole:?}\n{rest:?}");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn members_that_do_not_agree_are_named() {
    let folder = stand_in("nccl-order");
    let runs = Runs::new(&folder, "nccl-order", LLAMA);
    for (parallel, processes, skipped, why) in [
        // One leaves a sum out, and meets the next one of the others with it; or a message, and nobody sends what another awaits.
        ("tp=2,sp=true", 2, "1 3", "members of a communicator of 2 do not agree: member"),
        ("pp=2,mbs=4", 2, "0 1", "all processes wait for each other"),
    ] {
        let mut command = launched(&runs, processes, &["--parallel", parallel]);
        let output = command.env("STAND_IN_SKIP", skipped).output().unwrap();
        let said = said(&output);
        assert!(output.status.code() == Some(5) && said.contains("error[MW0707]"), "{:?} {said}", output.status);
        assert!(said.contains(why), "{said}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn processes_that_wait_in_nccl_for_ever_end_and_are_named() {
    let folder = stand_in("nccl-stuck");
    let runs = Runs::new(&folder, "nccl-stuck", LLAMA);
    // One leaves out a message that the other awaits, in the first step or in the graph of the second.
    for (skipped, step) in [("0 1", 1), ("0 4", 2)] {
        let mut command = launched(&runs, 2, &["--parallel", "pp=2,mbs=4", "--silence", "2"]);
        let began = Instant::now();
        let output = command.env("STAND_IN_SKIP", skipped).env("STAND_IN_PATIENT", "1").output().unwrap();
        let said = said(&output);
        assert!(output.status.code() == Some(5) && said.contains("error[MW0707]"), "{:?} {said}", output.status);
        let waits = format!("all processes wait for each other (step {step}): ");
        let waits = [&waits, "; process 1: rank 1 waits for rank 0 to send tag "];
        assert!(waits.iter().all(|wait| said.contains(wait)), "{said}");
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_rank_that_is_stuck_ends_all_that_wait_for_it_on_a_device() {
    let folder = stand_in("nccl-sticks");
    let runs = Runs::new(&folder, "nccl-sticks", LLAMA);
    let options = ["--timeout", "1", "--inject", "stuck=3:1"];
    let mut joined = launched(&runs, 2, &[&["--parallel", "pp=2,mbs=4"], &options[..]].concat());
    joined.env("STAND_IN_PATIENT", "1");
    let shared = runs.command(&[], "cuda", &[&["--parallel", "dp=2"], &options[..]].concat());
    for (mut command, place) in [(joined, "(step 3, process 1 on "), (shared, "(step 3); rank 0 waits for rank 1 ")] {
        let output = command.output().unwrap();
        let said = said(&output);
        let is_named = said.contains("error[MW0707]: rank 1 failed: it has been stuck for ") && said.contains(place);
        assert!(output.status.code() == Some(5) && is_named, "{:?} {said}", output.status);
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_copy_of_a_save_that_hangs_ends_the_run() {
    let folder = stand_in("nccl-hangs");
    let runs = Runs::new(&folder, "nccl-hangs", LLAMA);
    let options = ["--parallel", "dp=2", "--timeout", "1", "--save-every", "2"];
    for mut command in [launched(&runs, 2, &options), runs.command(&[], "cuda", &options)] {
        let output = command.env("STAND_IN_HANGS", "1").output().unwrap();
        let said = said(&output);
        let is_named = said.contains(" failed: it has been stuck for ") && said.contains(" s in a copy of ");
        assert!(output.status.code() == Some(5) && is_named && said.contains("(step 2"), "{:?} {said}", output.status);
    }
    fs::remove_dir_all(folder).unwrap();
}

/// The processes that a launcher has started, in their order.
fn children(launcher: &Child) -> Vec<String> {
    let path = format!("/proc/{0}/task/{0}/children", launcher.id());
    fs::read_to_string(path).unwrap().split_whitespace().map(str::to_string).collect()
}

fn steps(out: &Path) -> usize {
    fs::read_to_string(out.join("metrics.jsonl")).unwrap_or_default().lines().count()
}

#[test]
fn a_process_that_is_killed_ends_all_that_wait_for_it_in_nccl() {
    let folder = stand_in("nccl-killed");
    let runs = Runs::new(&folder, "nccl-killed", LLAMA);
    let options = ["--parallel", "dp=3", "--global-batch", "6", "--steps", "1000000", "--silence", "4"];
    let mut command = launched(&runs, 3, &options);
    let launcher = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let began = Instant::now();
    while steps(&runs.path("cuda")) < 4 {
        assert!(began.elapsed() < Duration::from_secs(120), "it takes no steps");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(Command::new("kill").args(["-KILL", &children(&launcher)[1]]).status().unwrap().success());
    let output = launcher.wait_with_output().unwrap();
    let said = said(&output);
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(said.contains("error[MW0707]: rank 1 failed: process 1 on ") && said.contains("is gone"), "{said}");
    assert!(said.contains("error[MW0707]: signal 9 ended process 1"), "{said}");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_cannot_be_joined_so_is_refused() {
    let folder = stand_in("nccl-refused");
    let runs = Runs::new(&folder, "nccl-refused", LLAMA);
    let refused = |launcher: &[&str], backend: &str, options: &[&str], why: &str| {
        let mut command = runs.command(launcher, backend, options);
        let output = command.env("STAND_IN_DEVICES", "2").output().unwrap();
        assert!(output.status.code() == Some(1) && said(&output).contains(why), "{}", said(&output));
    };
    refused(&[], "cpu", &["--comm", "nccl"], "`comm` is `nccl`, which joins GPUs");
    refused(&[], "cuda", &["--comm", "tcp"], "which does not join the memories of GPUs");
    refused(&[], "cuda", &["--comm", "nccl"], "RANK or SLURM_PROCID is not set");
    let two = ["launch", "-n", "2", "--"];
    refused(&two, "cuda", &["--comm", "nccl", "--parallel", "dp=4"], "2 processes have 4 devices");
    refused(
        &["launch", "-n", "4", "--"],
        "cuda",
        &["--comm", "nccl", "--parallel", "dp=4"],
        ": there is no device 2: the CUDA driver shows 2",
    );
    let shared = |process: &str| {
        let mut command = runs.command(&[], "cuda", &["--comm", "nccl", "--parallel", "dp=2"]);
        command.envs([("RANK", process), ("WORLD_SIZE", "2"), ("LOCAL_RANK", "0"), ("MASTER_ADDR", "127.0.0.1")]);
        command.stderr(Stdio::piped()).stdout(Stdio::null());
        command
    };
    let port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port().to_string();
    let both = ["0", "1"].map(|process| shared(process).env("MASTER_PORT", &port).spawn().unwrap());
    for process in both {
        let output = process.wait_with_output().unwrap();
        let said = said(&output);
        assert!(output.status.code() == Some(1) && said.contains("have the same GPU"), "{said}");
    }
    fs::remove_file(folder.join("libnccl.so.2")).unwrap();
    refused(&two, "cuda", &["--comm", "nccl", "--parallel", "dp=2"], "the library of NCCL is not there");
    fs::remove_dir_all(folder).unwrap();
}
