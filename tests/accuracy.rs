//! Published runs, predicted: errors stay where they are. `tests/accuracy/runs.jsonl` has the facts; `docs/accuracy.md` is
//! made from the same runs by `meshwright calibrate --from tests/accuracy/runs.jsonl --report docs/accuracy.md`.

use meshwright::accuracy::{Summary, by_source, memory_by_source, rank_sets, read, score, total};
use meshwright::estimate::Estimator;

/// Sources, and the most that the median and the 90th percentile of their errors in time may be.
const TIME: [(&str, f64, f64); 13] = [
    ("HF Ultra-Scale Playbook", 0.033, 0.15),
    ("llm-foundry", 0.025, 0.09),
    ("NeMo docs / launcher", 0.04, 0.16),
    ("torchtitan", 0.045, 0.15),
    ("NeMo AutoModel performance summary", 0.09, 0.28),
    ("NeMo AutoModel yaml comments", 0.1, 0.15),
    ("JAX-Toolbox", 0.09, 0.17),
    ("Megatron-Bridge performance summary", 0.065, 0.3),
    ("Megatron-Bridge skills", 0.085, 0.2),
    ("Megatron-Bridge verification cards", 0.03, 0.2),
    ("BigScience tr3m-1B3 (V100)", 0.04, 0.07),
    ("arXiv 2205.05198", 0.03, 0.08),
    ("Megatron-LM README/examples", 0.02, 0.06),
];

/// The same in memory.
const MEMORY: [(&str, f64, f64); 6] = [
    ("HF Ultra-Scale Playbook", 0.035, 0.11),
    ("HF Ultra-Scale Playbook, tp_internode", 0.09, 0.85),
    ("NeMo AutoModel yaml comments", 0.03, 0.04),
    ("BigScience tr3m-1B3 (V100)", 0.04, 0.075),
    ("torchtitan", 0.035, 0.12),
    ("Megatron-Bridge skills", 0.02, 0.026),
];

#[test]
fn predictions_stay_as_near_as_they_are() {
    let text = include_str!("accuracy/runs.jsonl");
    let runs = read(text).unwrap();
    assert!(runs.len() > 1000, "{} runs", runs.len());
    let scored = score(&Estimator::new(), &runs);
    hold(&by_source(&scored), &TIME);
    hold(&memory_by_source(&scored), &MEMORY);
    let choice = total(&rank_sets(&scored));
    assert!(choice.regret < 0.02 && choice.regret < choice.recipe / 2.0, "{choice:?}");
    assert!(choice.spearman > 0.82 && choice.reach > choice.spearman, "{choice:?}");
}

fn hold(found: &[Summary], bounds: &[(&str, f64, f64)]) {
    for (source, median, p90) in bounds {
        let summary = found.iter().find(|summary| summary.name == *source).unwrap();
        assert!(summary.median <= *median && summary.p90 <= *p90, "{summary:?}");
    }
}
