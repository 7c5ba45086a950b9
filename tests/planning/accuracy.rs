//! Published runs, predicted: errors stay where they are. `tests/accuracy/runs.jsonl` has the facts; `docs/accuracy.md` is
//! made from the same runs by `meshwright calibrate --from tests/accuracy/runs.jsonl --report docs/accuracy.md`.

use cost::Stack;
use meshwright::accuracy::{
    ChanceRange, FewFit, Run, Scored, Summary, by_source, by_stack, fit_few, memory_by_source, memory_by_stack,
    memory_chances, rank_sets, read, regimes, regimes_stated, residual, score, stated, total,
};
use meshwright::autotune::explain::TIE;
use meshwright::compiler::parallel::parse_any;
use meshwright::estimator::{EstimateRequest, Estimator, JobNumbers, beyond};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Sources, and the most that the median and the 90th percentile of their errors in time may be.
const TIME: [(&str, f64, f64); 18] = [
    ("HF Ultra-Scale Playbook", 0.033, 0.15),
    ("HF Ultra-Scale Playbook, tp_internode", 0.3, 0.8),
    ("llm-foundry", 0.02, 0.075),
    ("NeMo docs / launcher", 0.03, 0.135),
    ("torchtitan", 0.025, 0.18),
    ("NeMo AutoModel performance summary", 0.09, 0.15),
    ("NeMo AutoModel yaml comments", 0.065, 0.125),
    ("JAX-Toolbox", 0.085, 0.165),
    ("Megatron-Bridge performance summary", 0.055, 0.22),
    ("Megatron-Bridge skills", 0.085, 0.175),
    ("Megatron-Bridge verification cards", 0.02, 0.17),
    ("BigScience tr3m-1B3 (V100)", 0.03, 0.055),
    ("arXiv 2205.05198", 0.025, 0.065),
    ("Megatron-LM README/examples", 0.015, 0.05),
    ("BigScience BLOOM prequel", 0.04, 0.125),
    ("NVIDIA dgxc-benchmarking", 0.065, 0.15),
    ("arXiv 2401.10241 Zero Bubble", 0.035, 0.085),
    ("InternEvo train_performance", 0.06, 0.16),
];

/// The same in memory.
const MEMORY: [(&str, f64, f64); 7] = [
    ("arXiv 2401.10241 Zero Bubble", 0.02, 0.04),
    ("HF Ultra-Scale Playbook", 0.035, 0.11),
    ("HF Ultra-Scale Playbook, tp_internode", 0.09, 0.85),
    ("NeMo AutoModel yaml comments", 0.03, 0.04),
    ("BigScience tr3m-1B3 (V100)", 0.04, 0.075),
    ("torchtitan", 0.035, 0.12),
    ("Megatron-Bridge skills", 0.02, 0.026),
];

static RUNS: LazyLock<Vec<Run>> = LazyLock::new(|| read(include_str!("../accuracy/runs.jsonl")).unwrap());

/// The runs with their predictions.
static SCORED: LazyLock<Vec<Scored<'static>>> = LazyLock::new(|| score(&Estimator::new(), RUNS.iter()));

#[test]
fn predictions_stay_as_near_as_they_are() {
    assert!(RUNS.len() > 1000, "{} runs", RUNS.len());
    hold(&by_source(&SCORED), &TIME);
    hold(&memory_by_source(&SCORED), &MEMORY);
    // Sets of a few configurations, of which two that differ by less than a run from the next have any order, say little.
    let large: Vec<_> = rank_sets(&SCORED).into_iter().filter(|set| set.configs >= 6).collect();
    let choice = total(&large);
    assert!(choice.regret < 0.01 && choice.regret < choice.recipe / 2.0, "{choice:?}");
    assert!(choice.single < 0.02, "{choice:?}");
    assert!(choice.spearman > 0.85 && choice.reach > choice.spearman, "{choice:?}");
}

/// Number of runs below which the prior of a stack's errors widens its intervals.
const FEW: usize = 50;

/// Shares of the measurements within the 80 % intervals, of stacks with enough runs to count. Those of fewer runs have wider intervals, which
/// may hold more, but no more than chance allows.
#[test]
fn intervals_hold_as_often_as_they_say() {
    let (time, memory) = (by_stack(&SCORED), memory_by_stack(&SCORED));
    let many: Vec<&Summary> = time.iter().chain(&memory).filter(|summary| summary.rows >= 20).collect();
    assert!(many.len() > 6, "{many:?}");
    for summary in many {
        let outside = ((1.0 - summary.inside) * summary.rows as f64).round() as usize;
        let is_chance = summary.rows < FEW && 1.0 - chance_of(outside + 1, summary.rows, 0.2) >= RARE;
        assert!(summary.inside >= 0.75 && (is_chance || summary.inside <= 0.85), "{summary:?}");
    }
}

/// Largest ratio of measured and predicted memory of a run, either way: those of the Ultra-Scale Playbook whose processor is slower than
/// their device hold fewer tensors than the stack's others.
const MOST_OFF: f64 = 1.9;

/// Least probability of as many runs outside of their intervals, if a fifth is outside in the mean.
const RARE: f64 = 0.01;

/// Each stack with runs of known memory states how many they are. No run is far off, and no more are outside of their intervals than a
/// fifth allows.
#[test]
fn no_stack_is_wrong_about_memory() {
    let mut stacks: BTreeMap<&str, Vec<&Scored<'_>>> = BTreeMap::new();
    for row in SCORED.iter().filter(|row| !row.run.apart && row.run.memory.is_some()) {
        stacks.entry(&row.run.request.stack).or_default().push(row);
    }
    assert!(stacks.contains_key("zero-bubble-2023") && stacks.len() > 10, "{:?}", stacks.keys());
    for (name, rows) in stacks {
        assert_eq!(Stack::find(name).unwrap().residual.memory.runs as usize, rows.len(), "{name}");
        for row in &rows {
            let ratio = row.memory_ratio().unwrap();
            assert!((1.0 / MOST_OFF..=MOST_OFF).contains(&ratio), "{name} {}: {ratio}", row.run.id);
        }
        let outside = rows.iter().filter(|row| row.memory_inside() == Some(false)).count();
        assert!(chance_of(outside, rows.len(), 0.2) >= RARE, "{name}: {outside} of {} outside", rows.len());
    }
}

/// Probability that at least `least` of `all` independent events happen, of a `chance` each.
fn chance_of(least: usize, all: usize, chance: f64) -> f64 {
    let mut exactly = vec![1.0];
    for _ in 0..all {
        let happens = std::iter::once(0.0).chain(exactly.iter().map(|it| it * chance));
        let not = exactly.iter().map(|it| it * (1.0 - chance)).chain([0.0]);
        exactly = happens.zip(not).map(|(a, b)| a + b).collect();
    }
    exactly[least..].iter().sum()
}

/// Predicted chances of memory are shares of the runs that stacks are fitted to, in each fifth and below each quantile: within 5 points of
/// a hundred.
#[test]
fn chances_of_memory_are_shares_of_runs() {
    let ranges = memory_chances(&SCORED);
    let all: usize = ranges.iter().map(|range| range.runs).sum();
    assert!(ranges.len() == 5 && all > 450, "{all} {ranges:?}");
    for ChanceRange { from, to, runs, below } in &ranges {
        let share = *runs as f64 / all as f64;
        assert!((share - (to - from)).abs() < 0.05 && (below - to).abs() < 0.05, "{from} to {to}: {share} {below}");
    }
}

/// InternLM 7B with optimizer states over all devices and over those of a node: predicted in the order of the measured steps, which over all
/// devices grow with their number.
#[test]
fn optimizer_states_within_nodes_are_ranked_as_measured() {
    let of_source = SCORED.iter().filter(|row| row.run.source == "InternEvo train_performance");
    let scored: Vec<_> = of_source.collect();
    assert_eq!(scored.len(), 32);
    let mut pairs: BTreeMap<String, [Option<f64>; 2]> = BTreeMap::new();
    for row in scored.iter().filter(|row| row.run.request.gpus > Some(64)) {
        let is_within = row.run.request.parallel.contains("shard=");
        let seconds = row.prediction.as_ref().unwrap().step_time_s;
        let job = row.run.id.replace("/all/", "/").replace("/node/", "/");
        pairs.entry(job).or_default()[usize::from(is_within)] = Some(seconds);
    }
    assert_eq!(pairs.len(), 8);
    for (job, pair) in pairs {
        let [Some(all), Some(within)] = pair else { panic!("{job}: {pair:?}") };
        assert!(within < all, "{job}: {within} within nodes, {all} over all");
    }
}

/// The files of stacks state the errors of this version; `BLESS=1` writes them.
#[test]
fn stacks_state_their_errors() {
    let mut stacks: BTreeMap<&str, Vec<Scored<'_>>> = BTreeMap::new();
    for row in SCORED.iter() {
        stacks.entry(&row.run.request.stack).or_default().push(row.clone());
    }
    for (name, rows) in stacks {
        let path = format!("{}/planner/cost/stacks/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        let found = std::fs::read_to_string(&path).unwrap();
        let wanted = stated(&found, &residual(&rows)).unwrap();
        if std::env::var_os("BLESS").is_some() {
            std::fs::write(&path, wanted).unwrap();
        } else {
            assert_eq!(found, wanted, "{name}: `BLESS=1 cargo test --test planning accuracy` writes it");
        }
    }
}

/// The factors on intervals of regimes are those of this version; `BLESS=1` writes them.
#[test]
fn regimes_state_their_factors() {
    let path = format!("{}/planner/cost/src/regimes.toml", env!("CARGO_MANIFEST_DIR"));
    let wanted = regimes_stated(&regimes(&SCORED)).unwrap();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, wanted).unwrap();
    } else {
        let found = std::fs::read_to_string(&path).unwrap();
        assert_eq!(found, wanted, "`BLESS=1 cargo test --test planning accuracy` writes it");
    }
}

fn hold(found: &[Summary], bounds: &[(&str, f64, f64)]) {
    for (source, median, p90) in bounds {
        let summary = found.iter().find(|summary| summary.name == *source).unwrap();
        assert!(summary.median <= *median && summary.p90 <= *p90, "{summary:?}");
    }
}

/// Check of [`TIE`] against published runs.
#[test]
fn predictions_hardly_order_what_is_called_a_tie() {
    struct Logs {
        measured: f64,
        predicted: f64,
    }
    #[derive(Default, Debug)]
    struct Pairs {
        all: f64,
        in_order: f64,
    }
    let mut jobs: BTreeMap<String, Vec<Logs>> = BTreeMap::new();
    for row in SCORED.iter() {
        let Some(ratio) = row.ratio() else { continue };
        let EstimateRequest { gpus, global_batch, seq, precision, .. } = &row.run.request;
        let job = format!("{} {} {gpus:?} {global_batch} {seq} {precision}", row.run.source, row.run.model);
        let seconds = row.run.step_time_s;
        jobs.entry(job).or_default().push(Logs { measured: seconds.ln(), predicted: (seconds * ratio).ln() });
    }
    let pairs =
        jobs.values().flat_map(|rows| (1..rows.len()).flat_map(move |a| (0..a).map(move |b| (&rows[a], &rows[b]))));
    let (mut near, mut far) = (Pairs::default(), Pairs::default());
    for (a, b) in pairs {
        let (measured, predicted) = (a.measured - b.measured, a.predicted - b.predicted);
        let side = if predicted.abs() < TIE { &mut near } else { &mut far };
        side.all += 1.0;
        side.in_order += f64::from(u8::from(measured * predicted > 0.0));
    }
    assert!(near.all > 1000.0 && near.in_order / near.all < 2.0 / 3.0, "{near:?}");
    assert!(far.all > 1000.0 && far.in_order / far.all > 3.0 / 4.0, "{far:?}");
}

/// The published runs are within the stacks that they ran on.
#[test]
fn what_was_run_is_supported() {
    for run in RUNS.iter() {
        let request = &run.request;
        let mut parallel = parse_any(&request.parallel).unwrap();
        parallel.dp = request.gpus.unwrap() / parallel.devices().max(1);
        let stack = Stack::find(&request.stack).unwrap();
        let (seq, global_batch) = (Some(request.seq), Some(request.global_batch));
        let job = JobNumbers { seq, global_batch, ..JobNumbers::default() };
        assert_eq!(beyond(&parallel, &stack, &job), [], "{} on {}", run.id, stack.name);
    }
}

/// Runs of a job under some configurations, as a stack with a slower matmul measures them.
fn measured() -> Vec<Run> {
    let run = |parallel: &str| {
        format!(
            r#"{{"source":"mine","model":"llama3-8b","cluster":"h100","stack":"nemo","gpus":8,"seq":4096,"global_batch":32,"precision":"bf16","parallel":"{parallel}","step_time_s":1.0}}"#
        )
    };
    let text =
        ["tp=1,zero=1", "tp=2,sp=true,zero=1", "tp=4,sp=true,zero=1", "tp=2,pp=2,sp=true,zero=1"].map(run).join("\n");
    let mut runs = read(&text).unwrap();
    let mut slow = Stack::find("nemo").unwrap();
    slow.fitted.matmul.value *= 0.8;
    let estimator = Estimator::new().with_stack(slow);
    let seconds: Vec<f64> =
        score(&estimator, &runs).iter().map(|row| row.prediction.as_ref().unwrap().step_time_s).collect();
    runs.iter_mut().zip(seconds).for_each(|(run, seconds)| run.step_time_s = seconds);
    runs
}

#[test]
fn four_runs_find_the_constant_that_differs() {
    let (runs, stack) = (measured(), Stack::find("nemo").unwrap());
    let FewFit { fit, fitted, narrow } = fit_few(&Estimator::new(), &stack, &runs.iter().collect::<Vec<_>>());
    assert_eq!(fitted[0], "matmul");
    assert!(fitted.len() <= 2 && fit.error < 0.01, "{fitted:?} {}", fit.error);
    assert!((fit.stack.fitted.matmul.value / stack.fitted.matmul.value - 0.8).abs() < 0.03);
    assert_eq!((fit.stack.residual.time.runs, fit.stack.residual.time.sources), (4, 1));
    // The file has the intervals that the stack had; parts of the runs are fitted within those of the fitted constants.
    assert_eq!(fit.stack.fitted.traffic.high, stack.fitted.traffic.high);
    assert_eq!(narrow.fitted.step_ms.low, narrow.fitted.step_ms.high);
}
