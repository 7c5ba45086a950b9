//! Runs the search for the best order on a file of published cases, and prints a table.
//!
//! ```sh
//! cargo run --release -p meshwright-scheduler --example optimal -- CASES.json [ID..] [--deadline SECONDS] [--log]
//! ```
//! The file is `{"cases": [..]}`; each case has `id`, `group`, `schedule`, `p`, `m`, `v`, `cost_per_op`, `comm`, the limit
//! as `mem_limit_chunks`, `mem_weighted` or `mem_model` with `mem_limit`, `objective_kind`, `objective`, `proven_bound`.

use meshwright_scheduler::costs::StageCosts;
use meshwright_scheduler::placement::{Pipeline, Placement};
use meshwright_scheduler::problem::{Backward, Objective, Problem};
use meshwright_scheduler::schedules::solve;
use serde_json::Value;
use std::time::{Duration, Instant};

struct Case {
    id: String,
    pipeline: Pipeline,
    costs: StageCosts,
    objective: Objective,
    backward: Backward,
    published: f64,
    published_bound: f64,
    proven: bool,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let log = arguments.iter().any(|argument| argument == "--log");
    let after = |name: &str| arguments.iter().position(|argument| argument == name).map(|at| arguments[at + 1].clone());
    let seconds: Option<f64> = after("--deadline").map(|text| text.parse().expect("seconds"));
    let path = arguments.first().expect("a file of cases");
    let ids: Vec<&String> = arguments[1..].iter().filter(|argument| !argument.starts_with("--")).collect();
    let text = std::fs::read_to_string(path).expect("a readable file");
    let file: Value = serde_json::from_str(&text).expect("JSON");
    let cases = file["cases"].as_array().expect("cases").iter().filter(|case| case["group"] != "peer").map(read);
    println!(
        "{:16} {:>24} {:>10} {:>10} {:>10} {:>10} {:>8} {:14} verdict",
        "case", "problem", "published", "pub.bound", "value", "bound", "seconds", "engine"
    );
    let (mut times, mut optimal, mut worse) = (Vec::new(), 0, 0);
    for case in cases.filter(|case| {
        ids.is_empty() || ids.iter().any(|id| **id == case.id || seconds.is_some_and(|s| s.to_string() == **id))
    }) {
        let began = Instant::now();
        let deadline = seconds.map(|seconds| began + Duration::from_secs_f64(seconds));
        let (costs, pipeline, objective, backward) = (&case.costs, &case.pipeline, case.objective, case.backward);
        let problem = Problem { costs, pipeline, objective, backward, deadline };
        let say = |line: &str| {
            if log {
                println!("  {:8.3} {line}", began.elapsed().as_secs_f64());
            }
        };
        let answer = solve(&problem, &say).expect("a published case can be had");
        let took = began.elapsed().as_secs_f64();
        let below = case.proven && answer.value < case.published - 1e-6;
        let above = answer.value > case.published + 1e-6;
        let verdict = match (below, above, answer.optimal) {
            (true, ..) => "BELOW THE PROVEN OPTIMUM",
            (_, true, _) => "WORSE",
            (_, _, true) => "optimal",
            (_, _, false) if case.proven => "UNPROVED",
            _ if answer.bound < case.published_bound - 1e-6 => "WEAKER BOUND",
            _ => "open",
        };
        let problem = format!("{} p{} m{} {:?}", pipeline.placement, pipeline.ranks, pipeline.microbatches, objective);
        println!(
            "{:16} {:>24} {:>10.0} {:>10.0} {:>10.0} {:>10.0} {:>8.3} {:14} {verdict}",
            case.id, problem, case.published, case.published_bound, answer.value, answer.bound, took, answer.engine
        );
        times.push(took);
        optimal += usize::from(answer.optimal);
        worse += usize::from(above || below);
    }
    times.sort_by(f64::total_cmp);
    let under = times.iter().filter(|&&seconds| seconds < 10.0).count();
    println!(
        "{} cases, {optimal} optimal, {worse} wrong, median {:.3} s, {under} under 10 s, longest {:.1} s",
        times.len(),
        times[times.len() / 2],
        times[times.len() - 1]
    );
}

fn read(case: &Value) -> Case {
    let number = |value: &Value| value.as_f64();
    let (p, m) = (case["p"].as_u64().unwrap() as u32, case["m"].as_u64().unwrap() as u32);
    let schedule = case["schedule"].as_str().unwrap();
    let placement = if schedule.contains("bidir") {
        Placement::Bidirectional
    } else if schedule.contains(" V") {
        Placement::V
    } else if schedule.contains("loop") {
        Placement::Loop
    } else {
        Placement::Chain
    };
    let m = if placement == Placement::Bidirectional { 2 * m } else { m };
    let pipeline = Pipeline::new(placement, p, m);
    let stages = pipeline.stages() as usize;
    let list = |value: &Value| match value {
        Value::Array(each) => each.iter().map(|x| x.as_f64().unwrap()).collect(),
        one => vec![one.as_f64().unwrap(); stages],
    };
    let cost = &case["cost_per_op"];
    let (mem_i, mem_w, limit) = if let Some(chunks) = number(&case["mem_limit_chunks"]) {
        (0.0, 1.0, Some(chunks))
    } else if let Some(limit) = number(&case["mem_weighted"]["limit"]) {
        let w = number(&case["mem_weighted"]["mW"]).unwrap();
        (number(&case["mem_weighted"]["mB"]).unwrap() - w, w, Some(limit))
    } else if let Some(limit) = number(&case["mem_limit"]) {
        (1.0, 1.0, Some(limit))
    } else {
        (0.0, 1.0, None)
    };
    let costs = StageCosts {
        unit: "s".into(),
        f: list(&cost["F"]),
        i: list(&cost["B"]),
        w: list(&cost["W"]),
        comm: vec![case["comm"].as_f64().unwrap(); stages - 1],
        fb: None,
        mem_f: vec![mem_i + mem_w; stages],
        mem_i: vec![mem_i; stages],
        mem_w: vec![mem_w; stages],
        limit: limit.map(|limit| vec![limit; p as usize]),
    };
    let objective = if case["objective_kind"] == "span" { Objective::Span } else { Objective::Makespan };
    let backward = if schedule.contains("fused") { Backward::Fused } else { Backward::Split };
    let published = if case["objective"] == 0.0 { &case["resim_span"] } else { &case["objective"] }.as_f64().unwrap();
    let proven = case["status"] == "OPTIMAL" || case["proven_optimal"] == true;
    let published_bound = number(&case["proven_bound"]).unwrap_or(f64::NEG_INFINITY);
    let id = case["id"].as_str().unwrap().to_string();
    Case { id, pipeline, costs, objective, backward, published: published.round(), published_bound, proven }
}
