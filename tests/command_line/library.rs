//! The library as other programs use it: builders, typed values and texts, and cancellation.

use meshwright::ir::diag::Coded;
use meshwright::ir::models::{Batch, preset};
use meshwright::{
    CancelToken, Cluster, Code, DType, Estimator, ModelSource, ParallelConfig, Plan, Planned, UpdateRule,
};
use std::fs;
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
    let text = include_str!("../../docs/example.ir");
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

#[test]
fn a_model_in_memory_is_planned_and_estimated_as_its_name() {
    let config = preset("tiny-llama").unwrap().config.clone();
    let of_value = meshwright::estimate(config.clone()).batch(16, 128).parallel("dp=2").run().unwrap();
    let of_name = meshwright::estimate("tiny-llama").batch(16, 128).parallel("dp=2").run().unwrap();
    assert_eq!(of_value.predicted, of_name.predicted);
    let plan = meshwright::plan(config.clone()).on("h100", 2).batch(16, 128).run().unwrap();
    assert_eq!(plan.compile().unwrap().model.mesh.devices(), 2);
    assert!(plan.why_not("tp=2").is_ok());
    // A model at level 1 has its own batch and its name.
    let model = config.build(&Batch { batch: 2, seq: 16, dtype: DType::F32 }).unwrap();
    let name = model.name.clone();
    let report = meshwright::estimate(model).batch(2, 16).precision(DType::F32).run().unwrap();
    assert_eq!(report.inputs.model, name);
}

#[test]
fn an_update_rule_is_its_name() {
    let request = || meshwright::estimate("tiny-llama").batch(16, 128).parallel("dp=2");
    for (rule, name) in [
        (UpdateRule::AdamW, "adamw"),
        (UpdateRule::AdamWBf16, "adamw-bf16"),
        (UpdateRule::Momentum, "momentum"),
        (UpdateRule::Sgd, "sgd"),
    ] {
        assert_eq!(request().optimizer(rule).run().unwrap(), request().optimizer(name).run().unwrap());
    }
    let only_trains = request().optimizer(UpdateRule::Muon).run().unwrap_err();
    assert!(only_trains.to_string().contains("--optimizer muon"), "{only_trains}");
}

#[test]
fn a_plan_on_a_cluster_of_ones_own_goes_on_from_its_file() {
    let mut cluster = Cluster::find("h100").unwrap();
    cluster.name = "mine".to_string();
    let plan = meshwright::plan("tiny-llama").on(cluster.clone(), 2).batch(16, 128).run().unwrap();
    let path = std::env::temp_dir().join(format!("meshwright-own-cluster-{}.json", std::process::id()));
    plan.save(&path).unwrap();
    let read = Plan::open(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(read.report, plan.report);
    assert!(read.why_not("tp=2").unwrap_err().to_string().contains("mine"));
    let read = Plan::of(read.report, Estimator::new().with_cluster(cluster));
    assert_eq!(read.why_not("tp=2").unwrap(), plan.why_not("tp=2").unwrap());
}

#[test]
fn a_cancelled_run_saves_a_checkpoint_and_is_resumed() {
    let folder = std::env::temp_dir().join(format!("meshwright-cancelled-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let text = folder.join("text.txt");
    fs::write(&text, "A checkpoint is a folder of tensors with a manifest. ".repeat(200)).unwrap();
    let request = || meshwright::train("tiny-llama").data(&text).out(folder.join("out")).batch(4, 16).steps(3);
    let token = CancelToken::new();
    let error = request().progress(|_| token.cancel()).cancel(&token).run().unwrap_err();
    assert_eq!(error.code(), Some(Code::Cancelled));
    assert!(error.to_string().contains("after step 1 of 3"), "{error}");
    let (mut steps, mut validations) = (Vec::new(), 0);
    let resumed = request().resume(folder.join("out")).parallel("dp=2").progress(|step| steps.push(step.step));
    let report = resumed.validations(|_| validations += 1).run().unwrap();
    assert_eq!((report.run.done, validations), (1, 1));
    assert_eq!(steps, [2, 3]);
    assert!(report.to_string().contains("validation loss"));
    fs::remove_dir_all(&folder).unwrap();
}
