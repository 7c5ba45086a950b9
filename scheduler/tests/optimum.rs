//! Proven optima of others, against ours.
//!
//! `published/optima.json` has, for each source, pipelines with costs and limits, the least value of the objective that was
//! found, the bound that was proved, and whether the two meet.

use meshwright_scheduler::check::check_pipeline;
use meshwright_scheduler::costs::CostsFile;
use meshwright_scheduler::placement::{Pipeline, Placement};
use meshwright_scheduler::problem::{Backward, Objective, Problem};
use meshwright_scheduler::schedules::solve;
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Source {
    source: String,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    placement: Placement,
    ranks: u32,
    microbatches: u32,
    #[serde(default)]
    backward: Backward,
    costs: CostsFile,
    objective: Objective,
    value: f64,
    bound: Option<f64>,
    proven: bool,
}

#[test]
fn all_optima_are_found_and_proved() {
    let sources: Vec<Source> =
        serde_json::from_str(include_str!("published/optima.json")).expect("the cases are well formed");
    let mut complaints = Vec::new();
    for Source { source, cases } in &sources {
        for case in cases {
            let Case { placement, ranks, microbatches, .. } = case;
            let told =
                |what: String| format!("{source}: {placement} of {ranks} ranks, {microbatches} micro-batches: {what}");
            complaints.extend(differences(case).into_iter().map(told));
        }
    }
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

/// All that is not as good as what was published: half a unit of a bound of theirs may be rounding.
fn differences(case: &Case) -> Vec<String> {
    let pipeline = Pipeline::new(case.placement, case.ranks, case.microbatches);
    let costs = case.costs.resolve(pipeline.stages(), case.ranks).expect("costs of a published case");
    let Case { objective, backward, .. } = *case;
    let problem = Problem { costs: &costs, pipeline: &pipeline, objective, backward, deadline: None };
    let answer = match solve(&problem, &|_| ()) {
        Ok(answer) => answer,
        Err(why) => return vec![why.to_string()],
    };
    let mut found: Vec<String> =
        check_pipeline(&answer.schedule, &costs, &pipeline).iter().map(ToString::to_string).collect();
    let close = 1e-6 * case.value;
    if answer.value > case.value + close {
        found.push(format!("{} is more than {}", answer.value, case.value));
    }
    if case.proven && (answer.value < case.value - close || !answer.optimal) {
        found.push(format!("{} with the bound {} is not the optimum {}", answer.value, answer.bound, case.value));
    }
    if case.bound.is_some_and(|bound| answer.bound < bound.min(case.value) - close) {
        found.push(format!("the bound {} is less than {:?}", answer.bound, case.bound));
    }
    found
}
