//! The accuracy tables as a document.

use super::folds::Fold;
use super::ranks::{RankSet, RankTotal, rank_sets, total};
use super::score::Scored;
use super::summary::{Summary, by_source, memory_by_source, summary};
use cost::Stack;
use std::fmt::Write;

/// All tables in Markdown: errors by source in time and memory, on runs not seen by the fit, choices, and the constants.
pub fn document(scored: &[Scored<'_>], folds: &[Fold], stacks: &[Stack]) -> String {
    let mut text = String::from(HEAD);
    let total_of_all = summary("all but those apart", &scored.iter().filter(|row| !row.run.apart).collect::<Vec<_>>());
    let mut rows = by_source(scored);
    rows.push(total_of_all);
    text += "## Step time by source\n\n";
    text += &table("source", &rows, true);
    text += "\n## Memory by source\n\nWhere a source prints it, on the rank and of the kind that it prints.\n\n";
    text += &table("source", &memory_by_source(scored), false);
    if !folds.is_empty() {
        text += "\n## Runs that the fit has not seen\n\nAll stacks together; each part is predicted with constants fitted to the rest, by a search near those below.\n\n";
        text += &table("left out", &folds.iter().map(|fold| fold.summary.clone()).collect::<Vec<_>>(), false);
    }
    text += &choices(scored);
    text += &constants(stacks);
    text + &refusals(scored)
}

const HEAD: &str = "\
# Accuracy

Predictions of `meshwright estimate` against published runs. Errors are |predicted / measured - 1|; `bias` is the median of
predicted / measured; `inside` is the share of measurements within the predicted interval from the 10th to the 90th percentile.

";

fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn table(head: &str, rows: &[Summary], with_interval: bool) -> String {
    let mut text = format!("| {head} | runs | refused | median | 90th percentile | bias |");
    text += if with_interval { " inside |\n|---|---|---|---|---|---|---|\n" } else { "\n|---|---|---|---|---|---|\n" };
    for row in rows {
        let Summary { name, rows, refused, median, p90, bias, inside } = row;
        let (median, p90) = (percent(*median), percent(*p90));
        let _ = write!(text, "| {name} | {rows} | {refused} | {median} | {p90} | {bias:.3} |");
        text += &if with_interval { format!(" {} |\n", percent(*inside)) } else { "\n".into() };
    }
    text
}

fn choices(scored: &[Scored<'_>]) -> String {
    let sets = rank_sets(scored);
    if sets.is_empty() {
        return String::new();
    }
    let mut text = String::from(
        "\n## Choosing\n\nLayouts of one job. `lost` is the share of the best throughput that is lost by running the three \
         configurations that are\npredicted fastest and keeping the best; `recipe` the same for the one configuration of \"least tp x pp, \
         then least pp, then largest\nmicro-batch\". `reach` is Spearman's correlation if all runs were predicted as they \
         were measured but those that are off by\nmore than e^0.35: runs of one configuration differ by as much, and no configuration says \
         which are slow.\n\n| job | configurations | lost | recipe | Spearman | reach | farthest from its place |\n\
         |---|---|---|---|---|---|---|\n",
    );
    for set in &sets {
        let (lost, recipe) = (percent(set.regret), percent(set.recipe));
        let RankSet { name, configs, spearman, reach, farthest, .. } = set;
        let _ = writeln!(
            text,
            "| {name} | {configs} | {lost} | {recipe} | {spearman:.2} | {reach:.2} | {}: {}., predicted {}. |",
            farthest.parallel, farthest.measured, farthest.predicted
        );
    }
    let mean = total(&sets);
    let (lost, recipe) = (percent(mean.regret), percent(mean.recipe));
    let (count, RankTotal { spearman, reach, .. }) = (sets.len(), mean);
    let _ = writeln!(text, "| mean of {count} | | {lost} | {recipe} | {spearman:.2} | {reach:.2} | |");
    text
}

fn constants(stacks: &[Stack]) -> String {
    let mut text = String::from("\n## Fitted constants\n\n");
    for (number, stack) in stacks.iter().enumerate() {
        let mut fitted = stack.fitted;
        if number == 0 {
            let names: Vec<&str> = fitted.by_name().into_iter().map(|(name, _)| name).collect();
            let _ = writeln!(text, "| stack | {} |\n|---|{}", names.join(" | "), "---|".repeat(names.len()));
        }
        let values: Vec<String> =
            fitted.by_name().into_iter().map(|(_, constant)| format!("{}", constant.value)).collect();
        let _ = writeln!(text, "| {} | {} |", stack.name, values.join(" | "));
    }
    text
}

fn refusals(scored: &[Scored<'_>]) -> String {
    let mut reasons: Vec<(String, usize)> = Vec::new();
    for why in scored.iter().filter_map(|row| row.prediction.as_ref().err()) {
        let line = why.to_string().lines().next().unwrap_or_default().to_string();
        match reasons.iter_mut().find(|(known, _)| *known == line) {
            Some((_, count)) => *count += 1,
            None => reasons.push((line, 1)),
        }
    }
    if reasons.is_empty() {
        return String::new();
    }
    let mut text = String::from("\n## Refused\n\n| reason | runs |\n|---|---|\n");
    for (reason, count) in reasons {
        let _ = writeln!(text, "| {} | {count} |", reason.replace('|', "/"));
    }
    text
}
