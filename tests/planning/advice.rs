//! Plans of forty requests: each can be run on its stack, is within the memory of its devices and hosts, and states no two numbers that
//! contradict each other.
//!
//! `tests/planning/advice/requests.jsonl` has the requests: of the README, of published runs, odd numbers of devices, slow networks, small
//! devices, long sequences, experts. `BLESS=1 cargo test --test planning advice` writes the table of their plans in docs/plans.md.

mod famous;
mod page;
mod recipes;

use crate::sample::is_whole;
use ir::config_key::ConfigKey;
use meshwright::autotune::explain::{self, brief};
use meshwright::autotune::plan::{Found, Search, find};
use meshwright::compiler::parallel::{self, Pins, pinned, print};
use meshwright::cost::{CLUSTERS, Cluster};
use meshwright::estimator::{EstimateReport, EstimateRequest, Estimator};
use meshwright::{PlanReport, PlanRequest, Planned};
use page::root;
use serde::Deserialize;
use std::fs;
use support::units::{gib, percent, time};

/// The relative error of numbers that are computed twice.
const ROUNDING: f64 = 1e-9;

/// The largest share of a notes' difference in seconds that a second prediction may have, of the step.
const NOTED: f64 = 1e-6;

/// The least chance to fit.
const LEAST_CHANCE: f64 = 0.95;

/// The comments around the table in docs/plans.md.
const MARKS: [&str; 2] = ["<!-- requests: begin -->\n", "<!-- requests: end -->\n"];

/// The head of the table.
const HEAD: &str =
    "| request | job | plan | step | MFU | memory of a device | chance to fit |\n|---|---|---|---|---|---|---|\n";

#[derive(Deserialize)]
struct Asked {
    name: String,
    /// True if a sample has it: one request or two of each kind that are planned soon.
    #[serde(default)]
    sampled: bool,
    request: PlanRequest,
}

/// True if all requests are planned: a table is written as a whole.
fn are_all() -> bool {
    is_whole() || page::is_written()
}

fn requests() -> Vec<Asked> {
    let text = fs::read_to_string(root().join("tests/planning/advice/requests.jsonl")).unwrap();
    let asked = |line: &str| serde_json::from_str(line).unwrap_or_else(|why| panic!("{line}: {why}"));
    let requests: Vec<Asked> = text.lines().map(asked).collect();
    assert!(requests.len() >= 40, "{} requests", requests.len());
    requests.into_iter().filter(|request| are_all() || request.sampled).collect()
}

fn planned(estimator: &Estimator, Asked { name, request, .. }: &Asked) -> PlanReport {
    let found = find(estimator, request, &|_| {}).unwrap_or_else(|why| panic!("{name}: {why:?}"));
    match explain::plan(estimator, request, found).unwrap() {
        Planned::Best(plan) => *plan,
        Planned::Infeasible(none) => panic!("{name}: {none}"),
    }
}

/// The prediction of another configuration of a plan's job.
fn predicted(estimator: &Estimator, plan: &PlanReport, parallel: &str) -> EstimateReport {
    let request = EstimateRequest { parallel: parallel.to_string(), ..plan.chosen.inputs.clone() };
    estimator.estimate(&request).unwrap_or_else(|why| panic!("{parallel}: {why:?}"))
}

/// The devices hold it, the hosts what is offloaded, and the stack runs it.
fn can_be_run(name: &str, report: &EstimateReport) {
    let held = &report.predicted.memory_gib;
    assert!(report.beyond_stack.is_empty(), "{name}: {:?}", report.beyond_stack);
    assert!(report.predicted.fits && report.predicted.keeps_headroom, "{name} does not fit");
    let chance = report.predicted.chance_to_fit;
    assert!(chance >= LEAST_CHANCE, "{name} runs out of memory with a chance of {}", 1.0 - chance);
    for stage in &held.per_stage {
        assert!(stage.device <= held.usable, "{name}: {} of {} GiB", stage.device, held.usable);
        let host = held.host_capacity.unwrap_or(f64::INFINITY);
        assert!(stage.host <= host, "{name}: {} of {host} GiB of the host", stage.host);
    }
}

/// Parts add up, and figures that follow from others are what follows.
fn adds_up(name: &str, report: &EstimateReport) {
    let predicted = &report.predicted;
    let near = |what: &str, got: f64, want: f64| {
        assert!((got - want).abs() <= ROUNDING * want.abs().max(1e-6), "{name}, {what}: {got} is not {want}");
    };
    let step = predicted.step_time_s;
    near("parts of the step", predicted.time_s.by_name().iter().map(|(_, seconds)| seconds).sum(), step);
    let (parts, comm) = (&predicted.time_s, &predicted.exposed_comm_s);
    for (what, part, exposed) in [
        ("tp", parts.tp, comm.tp),
        ("cp", parts.cp, comm.cp),
        ("ep", parts.ep, comm.ep),
        ("dp", parts.dp, comm.dp),
        ("pp", parts.p2p, comm.pp),
    ] {
        near(what, part, exposed);
    }
    let tokens = (report.inputs.seq * report.inputs.global_batch) as f64;
    near("tokens", predicted.tokens_per_s_per_gpu * step * report.mesh.devices as f64, tokens);
    let rate = predicted.tokens_per_s_per_gpu * predicted.flops_per_token;
    near("MFU", predicted.mfu, rate / predicted.peak_flops);
    assert!((predicted.interval_s.low..=predicted.interval_s.high).contains(&step), "{name}: the interval");
    assert!((0.0..1.0).contains(&predicted.bubble), "{name}: {} idle", predicted.bubble);
    for stage in &predicted.memory_gib.per_stage {
        let sum = [stage.parameters, stage.gradients, stage.optimizer, stage.activations, stage.logits, stage.buffers];
        near("parts of the memory", sum.iter().sum(), stage.allocated);
        assert!(stage.allocated <= stage.reserved && stage.reserved <= stage.device, "{name}: {stage:?}");
    }
    let most = predicted.memory_gib.per_stage.iter().map(|stage| stage.device).fold(0.0, f64::max);
    near("the worst rank", predicted.fullest().device, most);
}

/// One configuration has one number, wherever an answer states it.
fn agrees(name: &str, estimator: &Estimator, plan: &PlanReport) {
    let step = plan.chosen.predicted.step_time_s;
    let again = predicted(estimator, plan, &plan.chosen.inputs.parallel);
    assert_eq!(again.predicted, plan.chosen.predicted, "{name}");
    for other in &plan.alternatives {
        let text = print(&other.parallel);
        assert_eq!(predicted(estimator, plan, &text).predicted, other.predicted, "{name}: {text}");
        let difference = other.difference.as_ref().expect("alternatives are explained");
        let slower = other.predicted.step_time_s / step - 1.0;
        assert!((difference.slower - slower).abs() < ROUNDING, "{name}: {text}");
    }
    let search = plan.search.as_ref().expect("a plan has a search");
    if let Some(fastest) = &search.fastest {
        let text = print(&fastest.parallel);
        assert_eq!(predicted(estimator, plan, &text).predicted.step_time_s, fastest.step_time_s, "{name}: {text}");
        assert!(fastest.step_time_s <= step && fastest.gain <= search.tie, "{name}: {text}");
    }
    for note in &plan.why.as_ref().expect("a plan has reasons").choices {
        let Some(saves) = note.saves_s else { continue };
        let whole = print(&plan.chosen.parallel);
        let other = predicted(estimator, plan, &pinned(&whole, &note.against));
        let more = other.predicted.step_time_s - step;
        assert!(
            (more - saves).abs() <= NOTED * step,
            "{name}, {} against {}: {saves} or {more}",
            note.choice,
            note.against
        );
    }
}

/// Keys that mean nothing without another one: they are compared under one value of it.
const CONTEXTS: [(ConfigKey, ConfigKey); 8] = [
    (ConfigKey::Sp, ConfigKey::Tp),
    (ConfigKey::TpOverlap, ConfigKey::Tp),
    (ConfigKey::CpKind, ConfigKey::Cp),
    (ConfigKey::Vp, ConfigKey::Pp),
    (ConfigKey::Schedule, ConfigKey::Pp),
    (ConfigKey::Stages, ConfigKey::Pp),
    (ConfigKey::Gather, ConfigKey::Zero),
    (ConfigKey::Shard, ConfigKey::Zero),
];

/// Nothing that an answer states is a configuration of the request that fits and is faster than the plan by more than the tie, and each
/// choice is compared with another value of itself.
fn knows_no_better(name: &str, estimator: &Estimator, request: &PlanRequest, plan: &PlanReport) {
    let pins = Pins::parse(&request.pin).unwrap();
    assert!(pins.holds(&plan.chosen.parallel), "{name}: {}", request.pin);
    let whole = print(&plan.chosen.parallel);
    let reasons = plan.why.as_ref().expect("a plan has reasons");
    let others = plan.alternatives.iter().map(|other| print(&other.parallel));
    let noted = reasons.choices.iter().filter(|note| note.saves_s.is_some()).map(|note| pinned(&whole, &note.against));
    let supposed = reasons.what_if.iter().map(|what_if| what_if.parallel.clone());
    let step = plan.chosen.predicted.step_time_s;
    let [fewest, most] = request.devices();
    for text in others.chain(noted).chain(supposed) {
        let other = predicted(estimator, plan, &text);
        let is_asked = (fewest..=most).contains(&other.mesh.devices) && pins.holds(&other.parallel);
        let slower = other.predicted.step_time_s / step - 1.0;
        assert!(
            !is_asked || !other.predicted.keeps_headroom || slower >= -request.tie,
            "{name}: {text} is {slower} slower"
        );
    }
    for note in &reasons.choices {
        assert!(note.comparison.is_empty() || !note.against.is_empty(), "{name}: {note:?}");
        let key = note.choice.split('=').next().unwrap_or_default();
        for &(_, context) in CONTEXTS.iter().filter(|(of, _)| of.name() == key) {
            assert!(!parallel::has_key(&note.against, context), "{name}, {}: {}", note.choice, note.against);
        }
    }
    let search = plan.search.as_ref().expect("a plan has a search");
    assert!(!search.complete || search.gap.is_none(), "{name}: {:?}", search.gap);
    supposes(name, estimator, plan);
}

/// What-if changes save what they say, and no two rows are of nearly the same hardware, or of that of another vendor.
fn supposes(name: &str, estimator: &Estimator, plan: &PlanReport) {
    let what_ifs = &plan.why.as_ref().expect("a plan has reasons").what_if;
    let fastest = plan.search.as_ref().and_then(|search| search.fastest.as_ref());
    let base = fastest.map_or(plan.chosen.predicted.step_time_s, |fastest| fastest.step_time_s);
    let mut sizes = Vec::new();
    for what_if in what_ifs {
        let gain = 1.0 - what_if.step_time_s / base;
        assert!((what_if.gain - gain).abs() < ROUNDING, "{name}: {what_if:?} of {base}");
        if let Some(size) = what_if.condition.strip_prefix("memory ") {
            sizes.push(size.split(' ').next().unwrap().parse::<f64>().unwrap());
        }
        if let Some((_, device)) = what_if.condition.split_once(", as on ") {
            let own = estimator.cluster(&plan.chosen.inputs.cluster).unwrap().device.vendor.clone();
            let mut all = CLUSTERS.iter().filter_map(|preset| Cluster::parse(preset.text).ok());
            assert!(all.any(|other| other.device.name == device && other.device.vendor == own), "{name}: {device}");
        }
    }
    assert!(sizes.windows(2).all(|pair| pair[1] > 1.04 * pair[0]), "{name}: {sizes:?}");
}

/// One configuration has one memory, and text, page and exports state it.
fn has_one_memory(name: &str, estimator: &Estimator, plan: &PlanReport) {
    let predicted = &plan.chosen.predicted;
    let held = predicted.fullest().device;
    assert_eq!(predicted.memory_gib.total, held, "{name}");
    assert!(plan.to_string().contains(&format!("most on a device {held:.2} (")), "{name}: {held}");
    let page = explain::page(estimator, plan).unwrap();
    assert!(page.contains(&format!("<span>memory of the worst rank</span><b>{}</b>", gib(held))), "{name}: {held}");
    let job = meshwright::exporting::job(estimator, &plan.chosen).unwrap();
    let [step, memory] = [time(predicted.step_time_s), format!("{held:.1} of")];
    assert!(job.predicted.contains(&step) && job.predicted.contains(&memory), "{name}: {}", job.predicted);
}

/// A plan as if its search had been stopped after the slowest of its configurations.
fn stopped(estimator: &Estimator, Asked { name, request, .. }: &Asked, plan: &PlanReport) -> PlanReport {
    let slowest = plan.alternatives.last().map_or(&plan.chosen.parallel, |other| &other.parallel);
    let best = vec![estimator.estimate(&request.of(slowest)).unwrap()];
    let search = Search {
        complete: false,
        proved_optimal: false,
        optimal_under: None,
        fastest: None,
        ..plan.search.clone().unwrap()
    };
    match explain::plan(estimator, request, Found { best, search, ..Found::default() }).unwrap() {
        Planned::Best(plan) => *plan,
        Planned::Infeasible(none) => panic!("{name}: {none}"),
    }
}

fn row(asked: &Asked, plan: &PlanReport) -> String {
    let PlanRequest { model, cluster, gpus, seq, stack, .. } = &asked.request;
    let model = short(model);
    let predicted = &plan.chosen.predicted;
    format!(
        "| {} | {model}, {gpus} {cluster}, {seq} tokens, `{stack}` | `{}` | {} | {} | {} | {} |\n",
        asked.name,
        brief(&plan.chosen.parallel),
        time(predicted.step_time_s),
        percent(predicted.mfu).trim(),
        gib(predicted.fullest().device),
        percent(predicted.chance_to_fit).trim(),
    )
}

/// A preset, or the family of a `config.json`.
fn short(model: &str) -> String {
    let json: Result<serde_json::Value, _> = serde_json::from_str(model);
    let family = json.ok().and_then(|json| json["model_type"].as_str().map(str::to_string));
    family.unwrap_or_else(|| model.to_string())
}

/// The plan of a search that was stopped is the best that its answer knows.
#[test]
fn stopped_plans_know_no_better() {
    let estimator = Estimator::new();
    for asked in requests().iter().step_by(5) {
        let plan = stopped(&estimator, asked, &planned(&estimator, asked));
        can_be_run(&asked.name, &plan.chosen);
        agrees(&asked.name, &estimator, &plan);
        let strict = PlanRequest { tie: ROUNDING, ..asked.request.clone() };
        knows_no_better(&asked.name, &estimator, &strict, &plan);
    }
}

#[test]
fn plans_can_be_run_and_their_numbers_agree() {
    let (estimator, mut rows) = (Estimator::new(), String::new());
    for asked in &requests() {
        let plan = planned(&estimator, asked);
        can_be_run(&asked.name, &plan.chosen);
        adds_up(&asked.name, &plan.chosen);
        agrees(&asked.name, &estimator, &plan);
        knows_no_better(&asked.name, &estimator, &asked.request, &plan);
        has_one_memory(&asked.name, &estimator, &plan);
        rows += &row(asked, &plan);
    }
    match are_all() {
        true => page::holds(MARKS, &format!("{HEAD}{rows}")),
        false => page::has_lines(MARKS, &rows),
    }
}
