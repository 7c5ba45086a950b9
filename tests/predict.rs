//! The two predictions of a step held together: that of the stages' costs and that of the emitted program on clocks.

use cost::{CPU, Cluster, Link};
use ir::text::File;
use meshwright::compiling::{Compiling, compile_source};
use meshwright::model_source::ModelSource;
use meshwright::predicting::{StepPrediction, predict};
use runtime::trace::{Kind, Lane, Trace};

/// Links that cost nothing.
const NEAR: Cluster = Cluster { links: &[Link { joins: u64::MAX, bandwidth: f64::INFINITY, latency: 0.0 }], ..CPU };

fn compiled(model: &str, mesh: &str) -> File {
    let source = ModelSource::open(model).unwrap();
    let order = Compiling { model: model.into(), mesh: mesh.into(), ..Compiling::default() };
    compile_source(&source, &order, None, &mut |_, _| {}).unwrap()
}

fn predicted(model: &str, mesh: &str, cluster: &Cluster) -> (StepPrediction, Trace) {
    predict(&compiled(model, mesh), cluster).unwrap()
}

fn kernels(trace: &Trace) -> f64 {
    let works = |event: &&runtime::trace::Event| trace.site(event).kind.computes();
    let row = trace.tracks.iter().filter(|track| track.lane == Lane::Row);
    row.flat_map(|track| track.events.iter().filter(works)).map(|event| event.seconds).sum()
}

/// Seconds of the row's own copies and sums, which costs of stages leave out.
fn between_runs(trace: &Trace) -> f64 {
    let own = |event: &&runtime::trace::Event| event.run.is_none() && trace.site(event).kind == Kind::Memory;
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

/// What is left: the program sums losses and cotangents between runs, and the norm is met by all stages.
#[test]
fn a_pipeline_on_links_that_cost_nothing_takes_what_its_stages_say() {
    for (mesh, bound) in [("pp=2", 0.01), ("pp=4", 0.01), ("pp=4,schedule=gpipe", 0.01)] {
        let (step, _) = predicted("tiny-llama", mesh, &NEAR);
        assert!((step.ratio - 1.0).abs() < bound, "{mesh}: {step:?}");
    }
}

/// The program hides layout changes behind kernels, the stages' costs add them up: it may be faster, by at most all
/// communication, and slower only by what waits in between: messages are not free of each other on one way out.
#[test]
fn with_communication_the_program_hides_some_of_it() {
    for mesh in ["dp=2", "tp=2", "tp=2,sp=true", "dp=2,zero=1", "pp=2", "dp=2,tp=2", "dp=2,tp=2,pp=2"] {
        let (step, _) = predicted("tiny-llama", mesh, &CPU);
        assert!((0.75..1.05).contains(&step.ratio), "{mesh}: {step:?}");
        let sum: f64 = step.shares.values().sum();
        assert!((sum - 1.0).abs() < 1e-9, "{mesh}: {:?}", step.shares);
    }
}

/// Events of a lane follow each other, but for those of a run's steps, which lie within it; names stand in the program;
/// every message has its flow.
#[test]
fn a_trace_is_well_formed() {
    let file = compiled("tiny-llama", "dp=2,tp=2,pp=2");
    let (_, trace) = predict(&file, &CPU).unwrap();
    let program = file.program.as_ref().unwrap();
    for track in &trace.tracks {
        let (mut run, mut before) = ((0.0, f64::INFINITY), 0.0);
        for event in &track.events {
            let site = trace.site(event);
            assert!(event.start >= before - 1e-12, "{} overlaps on {:?}", site.name, track.lane);
            if site.kind == Kind::Run {
                (run, before) = ((event.start, event.end()), event.start);
            } else {
                let in_run = event.run.is_none() || !matches!(track.lane, Lane::Row | Lane::Beside);
                assert!(
                    in_run || (event.start >= run.0 && event.end() <= run.1 + 1e-12),
                    "{} leaves its run",
                    site.name
                );
                before = event.end();
            }
            let body = site.name.split(' ').next().unwrap();
            let known = program.bodies.values().any(|known| known.name == body);
            assert!(known || event.run.is_none(), "no body `{body}`");
        }
    }
    let named = |word: &str| {
        let events = trace.tracks.iter().flat_map(|track| &track.events);
        events.filter(|event| trace.site(event).name.starts_with(word)).count()
    };
    let messages = trace.flows.iter().filter(|flow| trace.site(trace.event(flow.from)).op == "send").count();
    assert_eq!((named("send "), named("recv ")), (messages, messages));
    for flow in &trace.flows {
        assert!(trace.event(flow.from).start <= trace.event(flow.to).end());
    }
}
