//! The two predictions of a step compared: the stage estimate and the simulated program; and
//! the predicted step next to the measured one.

use crate::lanes::{Lanes, lanes};
use codegen::buffers::report;
use cost::{CPU, Cluster, Link, PROGRAM, Platform};
use ir::text::{self, File};
use meshwright::compiler::compile::{CompileRequest, compile_source};
use meshwright::compiler::model_source::ModelSource;
use meshwright::compiler::parallel;
use meshwright::predicting::{StepPrediction, predict, write_trace};
use meshwright::train::{self, Quiet, TrainRequest, train};
use scheduler::model_costs;
use scheduler::schedules::{SCHEDULES, ScheduleKind};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::sync::LazyLock;
use trace::{SiteKind, Stream, Trace};

/// Links that cost nothing.
static NEAR: LazyLock<Cluster> =
    LazyLock::new(|| Cluster { links: vec![Link::plain(f64::INFINITY, 0.0)], ..CPU.clone() });

/// A compiled preset.
fn compiled(model: &str, mesh: &str) -> File {
    let source = ModelSource::open(model).unwrap();
    let (model, parallel) = (model.into(), mesh.into());
    let order = CompileRequest { model, parallel, ..CompileRequest::default() };
    compile_source(&source, &order, None, &mut |_, _| {}).unwrap()
}

fn predicted(model: &str, mesh: &str, cluster: &Cluster) -> (StepPrediction, Trace) {
    predict(&compiled(model, mesh), &Platform::of_program(cluster)).unwrap()
}

fn kernels(trace: &Trace) -> f64 {
    let works = |event: &&trace::Event| trace.site(event).kind.computes();
    let lanes = trace.tracks.iter().filter(|track| matches!(track.stream, Stream::Main | Stream::Async));
    lanes.flat_map(|track| track.events.iter().filter(works)).map(|event| event.seconds).sum()
}

/// Seconds of the row's own copies and sums, which costs of stages leave out.
fn between_runs(trace: &Trace) -> f64 {
    let own = |event: &&trace::Event| event.run.is_none() && trace.site(event).kind == SiteKind::Memory;
    trace.tracks[0].events.iter().filter(own).map(|event| event.seconds).sum()
}

#[test]
fn on_one_rank_a_step_is_the_sum_of_its_ops_and_both_agree() {
    for model in ["tiny-llama", "tiny-gpt2"] {
        let (step, trace) = predicted(model, "dp=1", &CPU);
        assert!((kernels(&trace) / step.program_s - 1.0).abs() < 1e-9, "{model}: {step:?}");
        let beyond = step.program_s - between_runs(&trace);
        assert!((beyond / step.schedule_s - 1.0).abs() < 1e-6, "{model}: {beyond} of {}", step.schedule_s);
    }
}

/// The difference that is left: the program sums losses and cotangents between runs, and all stages join the norm.
#[test]
fn a_pipeline_on_links_that_cost_nothing_takes_what_its_stages_say() {
    for (mesh, bound) in [("pp=2", 0.01), ("pp=4", 0.01), ("pp=4,schedule=gpipe", 0.01)] {
        let (step, _) = predicted("tiny-llama", mesh, &NEAR);
        assert!((step.ratio - 1.0).abs() < bound, "{mesh}: {step:?}");
    }
}

/// Programs are compiled by the figures of `cpu`, and predicted by those of the cluster that is asked for.
#[test]
fn stages_take_what_the_asked_cluster_says() {
    let h100 = Cluster::find("h100").unwrap();
    for mesh in ["dp=2,tp=2", "pp=2,tp=2"] {
        let (step, _) = predicted("tiny-llama", mesh, &h100);
        assert!((0.5..1.1).contains(&step.ratio), "{mesh}: {step:?}");
    }
}

/// Bytes of the arena for each predicted one: inner values overlap more than the costs assume, and messages may be
/// fewer than two at a time.
const BYTES: std::ops::Range<f64> = 0.75..1.15;

/// The prediction from costs alone, the run of the program on clocks, and the arena: one configuration, one answer.
#[test]
fn every_kind_is_predicted_from_costs_alone() {
    let of_kind =
        |kind: &ScheduleKind| ["pp=2", "pp=2,dp=2,tp=2,zero=1"].map(|mesh| format!("{mesh},schedule={}", kind.name));
    let again = ["full", "selective:mlp"].map(|again| format!("pp=2,dp=2,zero=3,recompute={again}"));
    let once = "pp=2,dp=2,zero=3,gather=step".to_string();
    for mesh in SCHEDULES.iter().flat_map(of_kind).chain(again).chain([once]) {
        let source = ModelSource::open("tiny-llama").unwrap();
        let order = CompileRequest { model: "tiny-llama".into(), parallel: mesh.clone(), ..CompileRequest::default() };
        let file = compile_source(&source, &order, None, &mut |_, _| {}).unwrap();
        let program = file.program.as_ref().unwrap();
        let costs = model_costs(&file.model, &PROGRAM, program.microbatches, true);
        let step = scheduler::predict::predict(&costs, &parallel::parse(&mesh).unwrap()).unwrap();
        let (prediction, _) = predict(&file, &PROGRAM).unwrap();
        assert!((step.seconds / prediction.schedule_s - 1.0).abs() < 1e-9, "{mesh}: {step:?}, {prediction:?}");
        assert!((0.75..1.1).contains(&prediction.ratio), "{mesh}: {step:?}, {prediction:?}");
        for class in report(&file.model, program) {
            for rank in class.first_rank..class.first_rank + class.ranks {
                let ratio = class.arena as f64 / step.bytes[rank as usize] as f64;
                assert!(BYTES.contains(&ratio), "{mesh}: {ratio} of {step:?} on {rank}: {class:?}");
            }
        }
    }
}

/// The program hides reshards behind kernels; the stage estimate adds them up. The program may be faster by at most all
/// communication. It may be slower only by waits between messages, since those on one link follow each other.
#[test]
fn with_communication_the_program_hides_some_of_it() {
    for mesh in [
        "dp=2",
        "tp=2",
        "tp=2,sp=true",
        "dp=2,zero=1",
        "dp=2,zero=3,recompute=full",
        "dp=2,zero=3,gather=step",
        "pp=2",
        "dp=2,tp=2",
        "dp=2,tp=2,pp=2",
        "pp=2,recompute=full:1",
    ] {
        let (step, _) = predicted("tiny-llama", mesh, &CPU);
        assert!((0.75..1.05).contains(&step.ratio), "{mesh}: {step:?}");
        let sum: f64 = step.shares.values().sum();
        assert!((sum - 1.0).abs() < 1e-9, "{mesh}: {:?}", step.shares);
    }
}

/// Seconds beside those of the program, by the stack: the next batch, and the record of the step.
const FIXED: f64 = 0.3e-3;

/// One job has one answer: a compiled program hides some of its communication, and an estimate of this stack hides none.
#[test]
fn an_estimate_and_a_simulated_program_agree() {
    for (model, parallel, devices) in [
        ("tiny-llama", "dp=1,mbs=8", 1),
        ("tiny-llama", "dp=2,tp=2,pp=2,mbs=2", 8),
        ("tiny-llama", "tp=4,sp=true,mbs=4", 4),
        ("tiny-llama", "dp=4,zero=3,mbs=4", 4),
        ("tiny-gpt2", "dp=2,tp=2,mbs=4", 4),
        ("tiny-gpt2", "pp=2,cp=2,mbs=4", 4),
        ("tiny-moe", "dp=2,ep=2,tp=2,mbs=4", 4),
        ("tiny-moe", "dp=4,ep=4,zero=1,mbs=4", 4),
    ] {
        let source = ModelSource::open(model).unwrap();
        let (text, global_batch) = (parallel.to_string(), Some(16));
        let order =
            CompileRequest { model: model.into(), parallel: text, seq: 128, global_batch, ..Default::default() };
        let (step, _) = predict(&compile_source(&source, &order, None, &mut |_, _| {}).unwrap(), &PROGRAM).unwrap();
        let estimate = meshwright::estimate(model).on("cpu", devices).stack("meshwright-threads").precision("f32");
        let estimate = estimate.batch(16, 128).parallel(parallel).run().unwrap().predicted.step_time_s;
        let ratio = (step.program_s + FIXED) / estimate;
        assert!((0.92..1.01).contains(&ratio), "{model}, {parallel}: {} and {estimate}", step.program_s);
    }
}

/// Names of the events of some kinds.
fn named<'a>(lanes: &'a Lanes, lane: &(u64, String), kinds: &[&str]) -> BTreeSet<&'a str> {
    let of = lanes.get(lane).into_iter().flatten();
    of.filter(|event| kinds.contains(&event.1.as_str())).map(|event| event.0.as_str()).collect()
}

#[test]
fn a_measured_step_has_the_names_and_lanes_of_the_predicted_one() {
    let folder = std::env::temp_dir().join(format!("meshwright-predict-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let text = folder.join("text.txt");
    fs::write(&text, "What happens when is written down, and read back as it was. ".repeat(400)).unwrap();
    let request = TrainRequest {
        parallel: "dp=2,tp=2,pp=2".into(),
        data: text,
        steps: 2,
        seq: 16,
        global_batch: 8,
        out: folder.join("out"),
        profile: true,
        trace: Some(folder.join("measured.json")),
        ..TrainRequest::default()
    };
    let report = train(&request, &mut Quiet).unwrap();
    let (step, trace) = train::predict(&request).unwrap();
    write_trace(&trace, &folder.join("predicted.json")).unwrap();
    let [measured, predicted] = ["measured.json", "predicted.json"].map(|name| lanes(&folder.join(name)));
    let metrics = fs::read_to_string(folder.join("out/metrics.jsonl")).unwrap();
    fs::remove_dir_all(&folder).unwrap();

    let ranks: BTreeSet<u64> = measured.keys().map(|(rank, _)| *rank).collect();
    assert_eq!(ranks, (0..8).collect());
    for lane in predicted.keys() {
        let kinds = ["matmul", "attention", "run"];
        assert_eq!(named(&measured, lane, &kinds), named(&predicted, lane, &kinds), "{lane:?}");
        if !["row", "async runs"].contains(&lane.1.as_str()) {
            let moves = ["communication"];
            assert_eq!(named(&measured, lane, &moves), named(&predicted, lane, &moves), "{lane:?}");
        }
        let memory = named(&predicted, lane, &["memory-bound"]);
        assert!(named(&measured, lane, &["memory-bound"]).is_superset(&memory), "{lane:?}");
    }
    assert!((step.shares.values().sum::<f64>() - 1.0).abs() < 1e-9);

    let profile = report.profile.unwrap();
    assert_eq!((profile.steps, profile.ranks), (1, 8), "the first step warms up");
    assert!((profile.shares.values().sum::<f64>() - 1.0).abs() < 1e-9);
    assert!(profile.peak.flops > 0.0 && profile.peak.bandwidth > 0.0);
    let products: u64 =
        profile.kernels.iter().filter(|kernel| kernel.kind == "matmul").map(|kernel| kernel.flops).sum();
    let model = step.mfu * step.program_s * CPU.device.flops_f32 * 8.0;
    assert!((0.9..1.0).contains(&(products as f64 / model)), "all but attention: {products} of {model}");
    let last: Value = serde_json::from_str(metrics.lines().nth(2).unwrap()).unwrap();
    assert!(last["mfu"].as_f64().is_some_and(|mfu| mfu > 0.0), "{last}");
}

#[test]
fn a_file_that_cannot_be_written_is_not_there() {
    let nowhere = std::env::temp_dir().join("meshwright-no-such-folder").join("trace.json");
    assert!(write_trace(&Trace::default(), &nowhere).is_err());
    let path = std::env::temp_dir().join(format!("meshwright-trace-{}.json", std::process::id()));
    write_trace(&Trace::default(), &path).unwrap();
    let text = fs::read_to_string(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert!(serde_json::from_str::<Value>(&text).is_ok());
}

/// Switches that sum take less time for an all-reduce than for its halves; other links do not.
#[test]
fn the_cluster_that_is_named_decides_between_collectives() {
    for (cluster, sums) in [("a100", 0), ("h100", 2)] {
        let request = meshwright::compile("llama3-8b").parallel("tp=8").batch(1, 512).auto_shard().cluster(cluster);
        let text = text::print(&request.stop_after("collectives").run().unwrap());
        let layer = text.split("block @layer").nth(1).and_then(|text| text.split("\nI(").next()).unwrap();
        assert_eq!(layer.matches("all_reduce(").count(), sums, "{cluster}:\n{layer}");
    }
}
