//! `gpu-check`, `train` and `calibrate` without CUDA: `kernels/tests/stand_in/` replaces the driver, NVRTC and cuBLASLt. So all that is
//! between the command line and the libraries runs: loading, memory, staging, order, kernels' texts, descriptors, comparison.
//! And each fault of the replacement must be found.

mod processes;
mod traces;
mod training;

use crate::sample::sampled;
use crate::stand_in::on_stand_in;
use meshwright::Cluster;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use traces::Traced;
use training::{BALANCED, GPT2, LLAMA, MIXTRAL, Runs, apart};

/// The folder with the libraries, for one test.
fn stand_in(test: &str) -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/tests/stand_in");
    crate::stand_in::linked(&sources, &format!("gpu-{test}-{}", std::process::id()))
}

/// The program with the libraries of a folder.
fn command(folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
    on_stand_in(command.args(args), folder);
    command
}

fn check(folder: &Path, faulty: bool) -> Output {
    let mut command = command(folder, &["gpu-check", "--quick", "--format", "json"]);
    if faulty {
        // A sample looks for the faults of what is done in 16 bits.
        command.env("STAND_IN_FAULTS", "1").args(sampled(&["--only", "f16"][..], &[]));
    }
    command.output().unwrap()
}

fn rows(output: &Output) -> Vec<Value> {
    let report: Result<Value, _> = serde_json::from_slice(&output.stdout);
    let report = report.unwrap_or_else(|why| panic!("{why}: {}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(report["device"]["name"], "no GPU, a stand-in");
    report["rows"].as_array().unwrap().clone()
}

#[test]
fn everything_between_the_command_and_cuda_works_and_faults_are_found() {
    let folder = stand_in("check");
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

/// A row: its number, its check, whether it is right, and its note.
type Told = (u64, String, bool, String);

/// The status of `gpu-check`, the rows that it prints as it finds them, and what it prints of errors.
fn told(folder: &Path, args: &[&str], crash: Option<&str>) -> (Option<i32>, Vec<Told>, String) {
    let mut command = command(folder, &[&["gpu-check", "--quick", "--format", "lines"], args].concat());
    command.envs(crash.map(|kernel| ("STAND_IN_CRASH", kernel)));
    let Output { status, stdout, stderr } = command.output().unwrap();
    let row = |line: &str| {
        let row: Value = serde_json::from_str(line).unwrap_or_else(|why| panic!("{why}: {line}"));
        let text = |key: &str| row[key].as_str().unwrap_or_default().to_string();
        (row["number"].as_u64().unwrap(), text("what"), row["right"] == true, text("note"))
    };
    let rows = String::from_utf8(stdout).unwrap().lines().map(row).collect();
    (status.code(), rows, String::from_utf8(stderr).unwrap())
}

#[test]
fn rows_of_a_check_are_chosen_and_the_next_ones_run_after_a_crash() {
    let folder = stand_in("rows");
    let (status, all, why) = told(&folder, &["--only", "a warp"], None);
    assert_eq!((status, all.len() > 3, all.iter().all(|row| row.2)), (Some(0), true, true), "{all:?} {why}");
    // By number, and by the beginning of a name.
    let from = all[2].0.to_string();
    assert_eq!(told(&folder, &["--only", "a warp", "--from", &from], None).1, all[2..]);
    assert_eq!(told(&folder, &["--only", "a warp", "--from", &all[2].1], None).1, all[2..]);
    let (status, rows, why) = told(&folder, &["--from", "transpoze f32"], None);
    assert_eq!((status, rows.len()), (Some(1), 0));
    assert!(
        why.contains("no row begins with `transpoze f32`") && why.contains("did you mean `transpose f32`"),
        "{why}"
    );
    let (status, _, why) = told(&folder, &["--only", "nothing"], None);
    assert!(status == Some(1) && why.contains("no row is chosen"), "{why}");

    // After an error in a kernel the driver takes nothing more from the process.
    let (status, rows, why) = told(&folder, &["--only", "a warp"], Some("try_mma"));
    let names = |rows: &[Told]| rows.iter().map(|row| row.1.clone()).collect::<Vec<_>>();
    assert_eq!((status, names(&rows)), (Some(3), names(&all)), "{why}");
    let failed: Vec<_> = rows.iter().filter(|row| !row.2).collect();
    assert!(!failed.is_empty() && failed.len() < rows.len() && rows.last().unwrap().2, "{rows:?}");
    assert!(failed.iter().all(|row| row.3.contains("an illegal address")), "{failed:?}");

    // Tiles of attention are rows of their own.
    let (status, rows, why) = told(&folder, &["--variants", "--only", "attention bf16, 4 warps, steps of 32, 3"], None);
    assert!(status == Some(0) && rows.len() == 2 && rows.iter().all(|row| row.2), "{rows:?} {why}");
    fs::remove_dir_all(folder).unwrap();
}

/// Sums of a thousand terms in other orders, a few in a row, differ by some 10^-6.
const CLOSE: f64 = 1e-5;

/// Each layout of a model trains as on the processor, and its ranks find each other.
fn follows(test: &str, layouts: &[(&str, &str)]) {
    let folder = stand_in(test);
    for (model, parallel) in layouts {
        let (runs, options) = (Runs::new(&folder, test, model), ["--parallel", parallel]);
        let (right, curve) = (runs.curve("cpu", &options), runs.curve("cuda", &options));
        let apart = apart(&right, &curve);
        assert!(apart < CLOSE, "{parallel}: {apart:e}\n{right:?}\n{curve:?}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn training_on_data_and_tensor_parallel_ranks_of_a_gpu_follows_the_processor() {
    follows(
        "layers",
        &[
            (LLAMA, "dp=2,zero=3"),
            (LLAMA, "dp=2,zero=3,gather=step"),
            (LLAMA, "tp=2,sp=true"),
            (LLAMA, "cp=2"),
            (LLAMA, "cp=2,cp_kind=ring"),
            (GPT2, "dp=2,zero=1"),
        ],
    );
}

#[test]
fn training_on_pipeline_and_expert_parallel_ranks_of_a_gpu_follows_the_processor() {
    follows(
        "stages",
        &[(LLAMA, "dp=2,tp=2,pp=2,zero=1,mbs=1"), (LLAMA, "pp=2,schedule=zb-h1,mbs=1"), (MIXTRAL, "dp=2,ep=2")],
    );
}

#[test]
fn routers_are_balanced_on_a_gpu_as_on_the_processor() {
    follows("balance", &[(BALANCED, "dp=1"), (BALANCED, "dp=2,ep=2,zero=1")]);
}

#[test]
fn a_step_as_a_graph_is_the_step_and_bf16_errs_as_bf16() {
    let folder = stand_in("graph");
    let runs = Runs::new(&folder, "graph", LLAMA);
    let [right, graph, eager] = [("cpu", &[][..]), ("cuda", &[]), ("cuda", &["--no-graphs"])]
        .map(|(backend, options)| runs.curve(backend, options));
    assert!(apart(&right, &graph) < CLOSE, "{right:?}\n{graph:?}");
    assert_eq!(graph, eager);
    assert_eq!(graph, runs.curve("cuda", &["--poison"]));
    assert!(apart(&right, &runs.curve("cuda", &["--time-products"])) < CLOSE);
    // Two orders of sums make some numbers round to neighbours, which changes no more than rounding itself.
    let narrow = ["--precision", "bf16"];
    let [narrow_right, narrow] = ["cpu", "cuda"].map(|backend| runs.curve(backend, &narrow));
    assert!(apart(&narrow_right, &narrow) < apart(&right, &narrow_right), "{narrow_right:?}\n{narrow:?}");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_traced_step_has_the_events_of_the_processor_and_changes_nothing() {
    let folder = stand_in("trace");
    let layouts = [(LLAMA, "dp=1"), (LLAMA, "dp=2,tp=2,pp=2,zero=1,mbs=1"), (MIXTRAL, "dp=2,ep=2")];
    for (model, parallel) in layouts {
        let runs = Runs::new(&folder, "trace", model);
        let plain = runs.curve("cuda", &["--parallel", parallel]);
        let [right, traced] = ["cpu", "cuda"].map(|backend| Traced::step(&runs, backend, parallel, 3));
        assert_eq!(traced.curve, plain, "{parallel}");
        assert!(traced.events.values().sum::<usize>() > 100, "{parallel}: {:?}", traced.events);
        assert_eq!(traced.events, right.events, "{parallel}");
        let ends = traced.lanes.values().flatten().map(|event| event.3);
        let (end, seconds) = (ends.fold(0.0, f64::max), runs.records("cuda")[2]["step_time_s"].as_f64().unwrap());
        assert!(end > 0.0 && end <= 1e6 * seconds, "{parallel}: {end} us in a step of {seconds} s");
        assert!(traced.note.contains("not as a CUDA graph") && right.note.is_empty(), "{}", traced.note);
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_profile_of_a_gpu_has_the_kernels_and_changes_nothing() {
    let folder = stand_in("profile");
    let runs = Runs::new(&folder, "profile", LLAMA);
    for options in [&["--parallel", "tp=2"][..], &["--precision", "bf16"]] {
        let plain = runs.curve("cuda", options);
        let output = runs.run("cuda", &[options, &["--profile"]].concat());
        let said = String::from_utf8_lossy(&output.stdout);
        for part in
            ["(matmul and copy on the GPU, measured before the run)", "3 steps of", "\nmatmul ", "\nattention_grad "]
        {
            assert!(said.contains(part), "no `{part}` in\n{said}{}", String::from_utf8_lossy(&output.stderr));
        }
        assert_eq!(runs.reported("cuda"), plain);
        assert!(runs.records("cuda").iter().any(|record| record["mfu"].as_f64().is_some_and(|mfu| mfu > 0.0)));
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn streams_of_exchanges_have_the_highest_priority() {
    let folder = stand_in("priorities");
    let runs = Runs::new(&folder, "priorities", LLAMA);
    let [path, waits] = ["priorities", "waits"].map(|name| runs.path(name));
    let settings = [("STAND_IN_PRIORITIES", path.to_str().unwrap()), ("STAND_IN_WAITS", waits.to_str().unwrap())];
    let output = runs.with("cuda", &["--parallel", "dp=2,pp=2,mbs=1"], &settings);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let pairs = |path: PathBuf| {
        let text = fs::read_to_string(path).unwrap();
        let pair = |line: &str| line.split(' ').map(|number| number.parse().unwrap()).collect::<Vec<i32>>();
        text.lines().map(pair).collect::<Vec<_>>()
    };
    let priorities: BTreeMap<i32, i32> = pairs(path).into_iter().map(|pair| (pair[0], pair[1])).collect();
    // Work of ranks meets only in the streams of transfers, so that these wait for streams of several ranks.
    let mut sources: BTreeMap<i32, BTreeSet<i32>> = BTreeMap::new();
    for pair in pairs(waits) {
        sources.entry(pair[0]).or_default().insert(pair[1]);
    }
    let of_ranks = |stream: &i32| priorities[stream] == 0;
    let joining = sources.iter().filter(|(_, from)| from.iter().filter(|from| of_ranks(from)).count() > 1);
    let joining: BTreeSet<i32> = joining.map(|(&stream, _)| stream).collect();
    let urgent: BTreeSet<i32> = priorities.iter().filter(|(_, priority)| **priority == -5).map(|(&s, _)| s).collect();
    assert!(!urgent.is_empty() && priorities.len() > urgent.len(), "{priorities:?}");
    assert!(joining.is_subset(&urgent) && !joining.is_empty(), "{joining:?} of {priorities:?}");
    fs::remove_dir_all(folder).unwrap();
}

/// Operands of 8 bits are multiplied as they are by a GPU of capability 9.0, if they have one scale, and in bf16 by one of 8.0.
#[test]
fn training_in_8_bits_errs_as_8_bits() {
    let folder = stand_in("eight-bits");
    for (model, precision, parallel, capability) in [
        (LLAMA, "fp8-delayed", "dp=1", "90"),
        (LLAMA, "fp8-delayed", "dp=1", "80"),
        (LLAMA, "fp8-tensor", "tp=2,sp=true", "90"),
        (LLAMA, "fp8-block", "dp=2,zero=3", "90"),
        (MIXTRAL, "fp8-tensor", "dp=2,ep=2", "90"),
    ] {
        let runs = Runs::new(&folder, "eight-bits", model);
        let [exact, options] = ["f32", precision].map(|name| ["--parallel", parallel, "--precision", name]);
        let [exact, right] = [exact, options].map(|options| runs.curve("cpu", &options));
        let timed = [&options[..], &["--time-products"]].concat();
        let curve = runs.curve_with("cuda", &timed, &[("STAND_IN_CAPABILITY", capability)]);
        // As in bf16.
        assert!(
            apart(&right, &curve) < apart(&exact, &right),
            "{precision} {parallel}\n{exact:?}\n{right:?}\n{curve:?}"
        );
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_stream_that_does_not_wait_is_found() {
    let folder = stand_in("waits");
    let runs = Runs::new(&folder, "waits", LLAMA);
    let right = runs.curve("cuda", &["--parallel", "dp=2"]);
    // The first two streams are those of the threads of rank 0: the gradients' collectives wait for the backward, and the update for them.
    for forgotten in ["0 1", "1 0"] {
        let output = runs.with("cuda", &["--parallel", "dp=2"], &[("STAND_IN_FORGET", forgotten)]);
        let differs = !output.status.success() || runs.reported("cuda") != right;
        assert!(differs, "stream, and the one it does not wait for: {forgotten}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_gpu_is_measured_as_a_cluster_that_estimates_take() {
    let folder = stand_in("calibrate");
    let run = |args: &str| {
        let output = command(&folder, &args.split(' ').collect::<Vec<_>>()).current_dir(&folder).output().unwrap();
        let [out, err] = [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        (output.status.code(), out, err)
    };
    let (status, report, progress) = run("calibrate --backend cuda --quick -o gpu.toml");
    assert_eq!(status, Some(0), "{progress}");
    for part in ["matrix products", "attention", "memory", "communication"] {
        assert!(progress.contains(&format!("measuring {part}\n")), "{progress}");
    }
    for part in [
        "matmul bf16 3 x 32x32, depth 48",
        "matmul f8e4m3 48x64, depth 96, added",
        "attention backward f32",
        "sum over 8 ranks",
        "device    no GPU, a stand-in",
    ] {
        assert!(report.contains(part), "no `{part}` in\n{report}");
    }
    let cluster = Cluster::parse(&fs::read_to_string(folder.join("gpu.toml")).unwrap()).unwrap();
    assert_eq!((cluster.cores, cluster.device.sms), (Some(1), 2));
    assert!(cluster.device.flops_f8.is_some(), "tensor cores take 8 bits");

    let job =
        "estimate tiny-llama --cluster gpu.toml --stack meshwright-cuda --seq 128 --global-batch 16 --format json";
    for precision in ["f32", "bf16", "fp8-tensor"] {
        let (status, report, why) = run(&format!("{job} --precision {precision} --parallel dp=2,tp=2,mbs=2"));
        assert_eq!(status, Some(0), "{why}");
        let report: Value = serde_json::from_str(&report).unwrap();
        let [step, waiting] = ["/predicted/step_time_s", "/predicted/time_s/cores"]
            .map(|path| report.pointer(path).and_then(Value::as_f64).unwrap_or_else(|| panic!("{path} of {report}")));
        // Four ranks take turns on one device.
        assert!(waiting > 0.5 * step && waiting < step, "{waiting} of {step}");
    }

    let (status, _, why) = run("calibrate --backend cuda --quick --device 7");
    assert_eq!(status, Some(1));
    assert!(why.contains("error[MW0730]"), "{why}");
    fs::remove_dir_all(folder).unwrap();
}
