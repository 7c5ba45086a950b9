//! The library as other programs use it: builders, typed values and texts, and cancellation.

use meshwright::{CancelToken, Cluster, Code, ModelSource, ParallelConfig, Planned};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

#[test]
fn typed_values_ask_what_their_texts_ask() {
    let request = || meshwright::estimate("llama3-8b").on("h100", 64).batch(128, 8192);
    let config = ParallelConfig { tp: 4, pp: 2, sp: true, zero: 1, ..Default::default() };
    let typed = request().parallel(&config).run().unwrap();
    assert_eq!(typed, request().parallel("tp=4,pp=2,sp=true,zero=1").run().unwrap());
    let cluster = Cluster::find("h100").unwrap();
    let by_value = meshwright::estimate("llama3-8b").on(cluster, 64).batch(128, 8192).parallel(config).run().unwrap();
    assert_eq!(by_value.predicted, typed.predicted);
}

#[test]
fn a_cluster_and_a_stack_of_ones_own_hold_together() {
    let mut cluster = Cluster::find("h100").unwrap();
    cluster.name = "slow".to_string();
    for link in &mut cluster.links {
        (link.bandwidth, link.switch) = (link.bandwidth / 10.0, None);
    }
    let mut stack = meshwright::Stack::find("megatron-core-2025").unwrap();
    stack.name = "only tensor parallelism".to_string();
    let run = |cluster, stack| {
        let request = meshwright::estimate("llama3-8b").stack(stack).batch(64, 8192).parallel("tp=8");
        request.on(cluster, 8).memory(40 << 30).run().unwrap()
    };
    let (fast, slow) = (run(Cluster::find("h100").unwrap(), stack.clone()), run(cluster, stack));
    assert_eq!((slow.inputs.cluster.as_str(), slow.inputs.stack.as_str()), ("slow", "only tensor parallelism"));
    assert!(slow.predicted.step_time_s > fast.predicted.step_time_s);
    assert!(fast.predicted.memory_gib.capacity == 40.0 && slow.predicted.memory_gib.capacity == 40.0);
}

#[test]
fn a_plan_without_a_fit_is_an_error_with_a_fix() {
    let error = meshwright::plan("llama3-70b").on("h100", 1).batch(8, 4096).pin("mbs=1").run().err().unwrap();
    assert_eq!(error.code(), Some(Code::NothingFits));
    assert!(error.to_string().contains("the cheapest fix"), "{error}");
    let refused = meshwright::plan("llama3-70b").on("h100", 1).run().err().unwrap();
    assert!(refused.to_string().contains("--seq"), "{refused}");
}

#[test]
fn a_running_search_ends_when_it_is_cancelled() {
    let (token, calls) = (CancelToken::new(), AtomicU64::new(0));
    // Every configuration of 1,024 devices takes minutes.
    let request = meshwright::plan("llama3.1-405b").on("h100", 1024).batch(512, 8192).with(|it| it.exhaustive = true);
    let began = Instant::now();
    let stop = |_: &meshwright::Search| {
        calls.fetch_add(1, Ordering::Relaxed);
        token.cancel();
    };
    let error = request.progress(stop).cancel(&token).run().err().unwrap();
    assert_eq!((error.code(), calls.into_inner() > 0), (Some(Code::Cancelled), true));
    assert!(began.elapsed() < Duration::from_secs(100), "{:?}", began.elapsed());
}

#[test]
fn a_deadline_gives_the_best_answer_found_by_then() {
    let request = meshwright::plan("llama3-8b").on("h100", 64).batch(128, 8192);
    match request.deadline(Duration::from_millis(200)).answer().unwrap() {
        Planned::Best(plan) => assert!(plan.chosen.predicted.fits),
        Planned::Infeasible(answer) => assert_eq!(answer.error().code(), Some(Code::NotFinished)),
    }
}

#[test]
fn a_model_in_memory_compiles() {
    let text = include_str!("../docs/example.ir");
    let source = ModelSource::read("example", text).unwrap();
    let file = meshwright::compile(source).parallel("dp=2,tp=2,pp=2").run().unwrap();
    let parsed = meshwright::ir::text::parse(text).unwrap();
    let mut passes = Vec::new();
    let again = meshwright::compile(parsed).parallel(ParallelConfig { dp: 2, tp: 2, pp: 2, ..Default::default() });
    let again = again.observe(|pass, _| passes.push(pass)).run().unwrap();
    assert_eq!(file, again);
    assert_eq!((passes.first(), passes.last()), (Some(&"differentiate"), Some(&"assign_buffers")));
    let wrong = ModelSource::read("wrong", "dims [b=").err().unwrap();
    assert!(wrong.to_string().contains("wrong:1"), "{wrong}");
}
