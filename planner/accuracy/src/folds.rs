//! Prediction errors on runs that a fit has not seen.

use super::fit::refit;
use super::kinds::by_kind;
use super::runs::Run;
use super::score::{Scored, score};
use super::summary::{Summary, by_stack, memory_by_stack, summary};
use cost::{Residual, Stack};
use estimator::Estimator;

/// Prediction errors of one kind of cross-validation.
#[derive(Clone, PartialEq, Debug)]
pub struct Fold {
    /// Kind of the parts that are left out: `by model`, `more than 8 devices` or `by source`.
    pub name: &'static str,
    /// Errors on all parts, each predicted with constants that were fitted to the other runs.
    pub summary: Summary,
    /// The same by stack.
    pub stacks: Vec<Summary>,
    /// The same by kind of job.
    pub kinds: Vec<Summary>,
    /// Errors in memory by stack, where runs state memory.
    pub memory: Vec<Summary>,
}

/// Cross-validates all stacks together, in three ways. The parts left out are each model, all runs on more than 8
/// devices, and each source. A stack takes its constants from its remaining runs; a stack without remaining runs takes
/// the mean of the other stacks' constants. Runs that are reported apart are neither fitted nor predicted.
pub fn folds(estimator: &Estimator, stacks: &[Stack], runs: &[Run]) -> Vec<Fold> {
    let (mut models, mut devices, mut sources) = (Vec::new(), Vec::new(), Vec::new());
    for stack in stacks {
        let own: Vec<&Run> = runs.iter().filter(|run| run.request.stack == stack.name && !run.apart).collect();
        let unseen = |out: &dyn Fn(&Run) -> bool| {
            let (test, rest): (Vec<&Run>, Vec<&Run>) = own.iter().partition(|run| out(run));
            let stack = if rest.is_empty() { mean(stack, stacks) } else { refit(estimator, stack, &rest) };
            score(&estimator.with_stack(stack), test)
        };
        for model in names(&own, |run| &run.model) {
            models.extend(unseen(&|run| run.model == model));
        }
        devices.extend(unseen(&|run| run.request.gpus.is_some_and(|gpus| gpus > 8)));
        for source in names(&own, |run| &run.source) {
            sources.extend(unseen(&|run| run.source == source));
        }
    }
    let fold = |name, scored: Vec<Scored<'_>>| Fold {
        name,
        summary: summary(name, &scored.iter().collect::<Vec<_>>()),
        stacks: by_stack(&scored),
        kinds: by_kind(&scored),
        memory: memory_by_stack(&scored),
    };
    vec![fold("by model", models), fold("more than 8 devices", devices), fold("by source", sources)]
}

fn names<'a>(runs: &[&'a Run], of: fn(&Run) -> &String) -> Vec<&'a str> {
    let mut names: Vec<&str> = runs.iter().map(|run| of(run).as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Returns the stack with the means of the other stacks' constants, within its own intervals.
fn mean(stack: &Stack, stacks: &[Stack]) -> Stack {
    let mut made = Stack { residual: Residual::default(), ..stack.clone() };
    let mut others: Vec<Stack> = stacks.iter().filter(|other| other.name != stack.name).cloned().collect();
    let count = others.len() as f64;
    for (at, (_, constant)) in made.fitted.by_name().into_iter().enumerate() {
        let sum: f64 = others.iter_mut().map(|other| other.fitted.by_name()[at].1.value).sum();
        constant.value = if count > 0.0 { (sum / count).clamp(constant.low, constant.high) } else { constant.value };
    }
    made
}
