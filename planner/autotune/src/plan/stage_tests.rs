//! Boundaries between stages, against all boundaries of small models.

use super::report::{Covers, StageCover};
use super::request::PlanRequest;
use super::{Explorer, find, simplest};
use compiler::deadline::Deadline;
use estimator::{EstimateRequest, Estimator};

/// A Llama of this many layers, whose head takes as long as two of them.
fn llama(layers: u32) -> String {
    format!(
        r#"{{"model_type": "llama", "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336,
            "num_hidden_layers": {layers}, "num_attention_heads": 32, "num_key_value_heads": 8,
            "max_position_embeddings": 8192, "tie_word_embeddings": false}}"#
    )
}

/// All boundaries that cut block instances into a number of stages.
fn boundaries(runs: u32, stages: u32) -> Vec<Vec<u32>> {
    let mut all: Vec<Vec<u32>> = vec![Vec::new()];
    for stage in 1..stages {
        let next = |starts: Vec<u32>| {
            let from = starts.last().map_or(1, |last| last + 1);
            (from..=runs + stage - stages).map(move |start| [starts.as_slice(), &[start]].concat())
        };
        all = all.into_iter().flat_map(next).collect();
    }
    all
}

/// No boundaries save more than the answer says that others may save, and the plan is no slower than equal stages.
#[test]
fn the_answer_says_what_other_stages_may_save() {
    let estimator = Estimator::new();
    for (layers, stages, pin) in [
        (8, 2, "pp=2,schedule=1f1b"),
        (8, 4, "pp=4,schedule=1f1b"),
        (7, 3, "pp=3,schedule=1f1b"),
        (8, 4, "pp=4,schedule=zb-h1"),
        (8, 4, "pp=4,schedule=gpipe"),
        (8, 4, "pp=2,schedule=interleaved-1f1b,vp=2"),
        (8, 4, "pp=2,schedule=zb-v"),
        (8, 4, "pp=4,schedule=dualpipe"),
    ] {
        let ranks = if pin.starts_with("pp=2") { 2 } else { u64::from(stages) };
        let pin = format!("{pin},mbs=1,recompute=none");
        let request = PlanRequest {
            pin: pin.clone(),
            top: 1,
            beyond_stack: true,
            ..PlanRequest::new(&llama(layers), "h100", ranks, 4096, 32)
        };
        let found = find(&estimator, &request, &|_| {}).unwrap();
        let step = |stages: &str| {
            let asked = EstimateRequest { gpus: Some(ranks), ..request.under(format!("{pin}{stages}")) };
            estimator.estimate(&asked).unwrap().predicted.step_time_s
        };
        let all = boundaries(layers + 2, stages).into_iter().map(|starts| {
            let text: Vec<String> = starts.iter().map(u32::to_string).collect();
            step(&format!(",stages={}", text.join(",")))
        });
        let (least, even, best) = (all.fold(f64::INFINITY, f64::min), step(""), found.best[0].predicted.step_time_s);
        let Covers { stages: covered, gap } = found.search.covers;
        let bound = best * (1.0 - gap.unwrap());
        let at = format!("{pin}: {best}, even {even}, least {least}, bound {bound}");
        assert!(bound <= least * (1.0 + 1e-9) && least <= best * (1.0 + 1e-9) && best <= even * (1.0 + 1e-9), "{at}");
        assert_eq!(found.search.proved_optimal, covered == StageCover::All, "{at}");
        assert!(found.search.complete && (covered == StageCover::Listed || best <= least * (1.0 + 1e-9)), "{at}");
        // Equal stages idle behind the head. Seven layers on three ranks are balanced by default.
        assert!(best < 0.97 * even || layers == 7, "{at}");
        assert!(best < 1.06 * least, "{at}");
    }
}

/// A pin of the boundaries is all that is covered, and a plan without a pipeline is proved against all stages.
#[test]
fn pinned_stages_and_none_are_proved() {
    let estimator = Estimator::new();
    let covers = |pin: &str| {
        let request = PlanRequest { pin: pin.into(), ..PlanRequest::new(&llama(8), "h100", 4, 4096, 32) };
        let search = find(&estimator, &request, &|_| {}).unwrap().search;
        assert!(search.proved_optimal, "{pin}: {search:?}");
        search.covers.stages
    };
    assert_eq!(covers("pp=4,stages=3,6,9"), StageCover::Pinned);
    assert_eq!(covers("pp=1"), StageCover::All);
}

/// 32 layers on eight ranks: with equal stages a third of the pipeline waits for the head.
#[test]
fn a_heavy_head_leaves_its_stage_fewer_layers() {
    let estimator = Estimator::new();
    let best = |pin: &str| {
        let request = PlanRequest { pin: pin.into(), ..PlanRequest::new("llama3-8b", "h100", 8, 4096, 64) };
        find(&estimator, &request, &|_| {}).unwrap().best[0].predicted.step_time_s
    };
    let even = best("pp=8,mbs=1,schedule=1f1b,stages=even");
    assert!(best("pp=8,mbs=1,schedule=1f1b") < 0.85 * even);
    assert!(
        best("pp=8,mbs=1,schedule=interleaved-1f1b,vp=2")
            < 0.94 * best("pp=8,mbs=1,vp=2,schedule=interleaved-1f1b,stages=even")
    );
}

/// Eight copies with ZeRO-2 are as fast as a pipeline with stages of unequal length, and simpler, although two choices away.
#[test]
fn unequal_stages_yield_to_data_parallelism_alone() {
    let estimator = Estimator::new();
    let request = PlanRequest::new("llama3-8b", "h100", 8, 8192, 128);
    let found = find(&estimator, &request, &|_| {}).unwrap();
    let (nominal, others) = found.best.split_first().unwrap();
    let explorer = Explorer::new(&estimator, &request, &nominal.parallel, Deadline::default()).unwrap();
    let plan = simplest(&explorer, nominal, others, request.tie);
    assert_eq!((plan.parallel.dp, plan.parallel.stages.is_empty()), (8, true), "{:?}", plan.parallel);
}
