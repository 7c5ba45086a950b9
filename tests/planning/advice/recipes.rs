//! Recipes of frameworks beside plans of the same jobs.
//!
//! `tests/planning/advice/recipes.jsonl` has the recipes, with their sources. A plan may be slower than a recipe only if the stack does not
//! support the recipe, if its chance to fit is below that of plans, or if it asks for an overlap: plans leave those to the stack.

use super::page::{self, root};
use super::{Asked, are_all, planned};
use meshwright::PlanRequest;
use meshwright::autotune::explain::brief;
use meshwright::estimator::{EstimateReport, EstimateRequest, Estimator};
use serde::Deserialize;
use std::fs;
use support::units::{gib, percent, time};

/// Comments around the table in docs/plans.md.
const MARKS: [&str; 2] = ["<!-- recipes: begin -->\n", "<!-- recipes: end -->\n"];

/// Head of the table.
const HEAD: &str = "| job | recipe | its step | memory, chance to fit | plan | its step | memory, chance to fit | plan saves |\n\
    |---|---|---|---|---|---|---|---|\n";

/// Share of a step by which the simplest plan may be slower than the fastest one.
const TIE: f64 = 0.02;

#[derive(Deserialize)]
struct Recipe {
    source: String,
    /// True if a sample has it.
    sampled: bool,
    request: EstimateRequest,
}

fn recipes() -> Vec<Recipe> {
    let text = fs::read_to_string(root().join("tests/planning/advice/recipes.jsonl")).unwrap();
    let recipes = text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|why| panic!("{line}: {why}")));
    recipes.filter(|recipe: &Recipe| are_all() || recipe.sampled).collect()
}

/// The job of a recipe, without its configuration.
fn job(recipe: &Recipe) -> Asked {
    let EstimateRequest { model, cluster, gpus, seq, global_batch, stack, precision, .. } = recipe.request.clone();
    let request =
        PlanRequest { stack, precision, ..PlanRequest::new(&model, &cluster, gpus.unwrap(), seq, global_batch) };
    Asked { name: format!("{model} on {} {cluster}", gpus.unwrap()), sampled: recipe.sampled, request }
}

fn memory(report: &EstimateReport) -> String {
    format!("{}, {}", gib(report.predicted.fullest().device), percent(report.predicted.chance_to_fit).trim())
}

#[test]
fn plans_are_no_slower_than_recipes() {
    let estimator = Estimator::new();
    let mut rows = String::new();
    let mut sources: Vec<String> = Vec::new();
    for recipe in recipes() {
        let asked = job(&recipe);
        let theirs = estimator.estimate(&recipe.request).unwrap_or_else(|why| panic!("{}: {why:?}", asked.name));
        let plan = planned(&estimator, &asked).chosen;
        let [recipe_s, plan_s] = [&theirs, &plan].map(|report| report.predicted.step_time_s);
        let may_be_planned = theirs.beyond_stack.is_empty() && theirs.predicted.keeps_headroom;
        assert!(
            !may_be_planned || plan_s <= recipe_s * (1.0 + TIE),
            "{}: {plan_s} s, the recipe {recipe_s}",
            asked.name
        );
        rows += &format!(
            "| {} {} {}, {} x {}, {} | `{}` | {} | {} | `{}` | {} | {} | {} |\n",
            asked.request.model,
            asked.request.gpus,
            asked.request.cluster,
            asked.request.global_batch,
            asked.request.seq,
            asked.request.precision,
            recipe.request.parallel,
            time(recipe_s),
            memory(&theirs),
            brief(&plan.parallel),
            time(plan_s),
            memory(&plan),
            percent(1.0 - plan_s / recipe_s).trim(),
        );
        sources.push(recipe.source);
    }
    sources.sort();
    sources.dedup();
    if are_all() {
        let sources: String = sources.iter().map(|source| format!("- {source}\n")).collect();
        page::holds(MARKS, &format!("{HEAD}{rows}\nSources:\n\n{sources}"));
    } else {
        page::has_lines(MARKS, &rows);
    }
}
