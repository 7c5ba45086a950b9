//! The accuracy tables as a document.

use super::chances::{ChanceRange, memory_chances};
use super::folds::Fold;
use super::kinds::by_kind;
use super::ranks::{RankSet, RankTotal, rank_sets, total};
use super::score::Scored;
use super::summary::{Summary, by_source, by_stack, memory_by_source, memory_by_stack, summary};
use cost::{Errors, Stack};
use std::fmt::Write;

/// All tables in Markdown: errors by source in time and memory, on runs left out of the fit, choices, and the constants.
pub fn document(scored: &[Scored<'_>], folds: &[Fold], stacks: &[Stack]) -> String {
    let mut text = String::from(HEAD);
    let total_of_all =
        summary("all but those reported apart", &scored.iter().filter(|row| !row.run.apart).collect::<Vec<_>>());
    let mut rows = by_source(scored);
    rows.push(total_of_all);
    text += "## Step time by source\n\n";
    text += &table("source", &rows, true);
    text += KINDS;
    text += &by_kinds(&by_kind(scored), folds);
    text += "\n## Memory by source\n\nRuns whose source states memory: compared on the rank, and in the kind of figure, that it states.\n\n";
    text += &table("source", &memory_by_source(scored), true);
    text += &chances(&memory_chances(scored));
    if !folds.is_empty() {
        text += UNSEEN;
        text += &table("left out", &folds.iter().map(|fold| fold.summary.clone()).collect::<Vec<_>>(), true);
        text += INTERVALS;
        let sources = |errors: fn(&Stack) -> Errors| {
            move |name: &str| stacks.iter().find(|stack| stack.name == name).map_or(0, |stack| errors(stack).sources)
        };
        let of = |stacks: fn(&Fold) -> &[Summary]| {
            folds.iter().map(|fold| (fold.name, stacks(fold))).collect::<Vec<(&str, &[Summary])>>()
        };
        text += &coverage(&by_stack(scored), &of(|fold| &fold.stacks), sources(|stack| stack.residual.time));
        text += "\nThe table for memory:\n\n";
        text += &coverage(&memory_by_stack(scored), &of(|fold| &fold.memory), sources(|stack| stack.residual.memory));
    }
    text += &choices(scored);
    text += &constants(stacks);
    text + &refusals(scored)
}

const HEAD: &str = "\
# Accuracy

Predictions of `meshwright estimate` against published runs. An error is |predicted / measured - 1|. `bias` is the median of
predicted / measured. `inside` is the share of measurements within the predicted interval, from the 10th to the 90th percentile.

";

const KINDS: &str = "
## Step time by kind of job

Median errors over all stacks, and shares within the intervals: of the runs that stacks are fitted to, and of runs left out as below. The
intervals of requests that were not measured have the factors of `planner/cost/src/regimes.toml`.

";

const CHANCES: &str = "
## Chances of memory

A run's measured memory has a predicted chance: that of less memory than was measured. If chances are right, each range has a fifth of the runs.
The runs are those that the stacks are fitted to, without those reported apart.

| predicted chance | runs | share of the runs | runs below the upper end |
|---|---|---|---|
";

const UNSEEN: &str = "
## Runs left out of the fit

All stacks together. Each part of the runs is predicted with constants that are fitted to the other runs. Each fit starts from
the constants at the end of this page.

";

const INTERVALS: &str = "
## Intervals

Share of the measured times within their 80 % interval, by stack: of the runs that the stack is fitted to, and of runs left out as
above. An interval widens with few runs, and with the doublings by which a request lies outside their ranges. A request that was not
measured itself may be of another source, with other versions, clocks and ways to count. Its interval of time has the errors between
sources too, which shrink with the number of sources that a stack was fitted to.

A stack with one source is left out whole by source. It is then predicted with the mean constants of the others, and all of its runs share
the error of that mean. The share of one such stack can be anything; the last row has the mean of those with 20 runs and more.

";

/// Number of runs from which a share within an interval says something of a stack.
const MANY: usize = 20;

const RANKING: &str = "
## Choice among configurations

The configurations of one job, ranked by throughput.

- `lost`: the share of the best throughput that is lost if the three configurations predicted fastest are run and the best one is used.
- `single`: the same if the one predicted fastest is run, of those with a chance of 95 % to fit as `plan` asks for. The last row has
  the median.
- `recipe`: the same for one configuration, with the least tp x pp, then the least pp, then the largest micro-batch.
- `Spearman`: rank correlation of predicted and measured throughput.
- `reach`: the correlation if predictions were exact, except for errors above e^0.35. Repeated runs of one configuration differ by
  as much.

| job | configurations | lost | single | recipe | Spearman | reach | largest rank error |
|---|---|---|---|---|---|---|---|
";

const CONSTANTS: &str = "
## Fitted constants

`calibrate` fits these constants of a stack. The other values of a stack's file state what the framework does; no fit changes them.

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

/// Table of the medians and of the shares within the intervals by kind: of the fitted runs, and of each kind of runs left out.
fn by_kinds(fitted: &[Summary], folds: &[Fold]) -> String {
    let names: String = folds.iter().map(|fold| format!(" {} | inside |", fold.name)).collect();
    let mut text =
        format!("| kind | runs | fitted | inside |{names}\n|---|---|---|---|{}\n", "---|---|".repeat(folds.len()));
    for (at, kind) in fitted.iter().enumerate() {
        let others: String = folds.iter().map(|fold| median_and_share(&fold.kinds[at])).collect();
        let _ = writeln!(text, "| {} | {} |{}{others}", kind.name, kind.rows, median_and_share(kind));
    }
    text
}

/// Two cells of a table: the median error, and the share within the intervals.
fn median_and_share(Summary { rows, median, inside, .. }: &Summary) -> String {
    match rows {
        0 => " - | - |".to_string(),
        _ => format!(" {} | {} |", percent(*median), percent(*inside)),
    }
}

/// Table of predicted chances of memory, and of the shares of runs.
fn chances(ranges: &[ChanceRange]) -> String {
    let all = ranges.iter().map(|range| range.runs).sum::<usize>().max(1);
    let mut text = String::from(CHANCES);
    for ChanceRange { from, to, runs, below } in ranges {
        let range = format!("{:.0} % to {:.0} %", 100.0 * from, 100.0 * to);
        let (share, below) = (percent(*runs as f64 / all as f64), percent(*below));
        let _ = writeln!(text, "| {range} | {runs} | {share} | {below} |");
    }
    text
}

/// Table of the shares within the intervals: of the fitted runs, and of each kind of runs left out. The last row has the means over
/// the stacks of one source with at least [`MANY`] runs.
fn coverage(fitted: &[Summary], folds: &[(&str, &[Summary])], sources: impl Fn(&str) -> u32) -> String {
    let names: Vec<&str> = folds.iter().map(|(name, _)| *name).collect();
    let mut text = format!(
        "| stack | runs | sources | fitted | {} |\n|---|---|---|---|{}\n",
        names.join(" | "),
        "---|".repeat(names.len())
    );
    let shares = |name: &str| -> Vec<Option<f64>> {
        let found = |stacks: &[Summary]| {
            stacks.iter().find(|stack| stack.name == name && stack.rows > 0).map(|stack| stack.inside)
        };
        std::iter::once(fitted).chain(folds.iter().map(|(_, stacks)| *stacks)).map(found).collect()
    };
    let line = |shares: &[Option<f64>]| -> String {
        shares.iter().map(|share| format!(" {} |", share.map_or_else(|| "-".to_string(), percent))).collect()
    };
    for Summary { name, rows, .. } in fitted.iter().filter(|summary| summary.rows > 0) {
        let _ = writeln!(text, "| {name} | {rows} | {} |{}", sources(name), line(&shares(name)));
    }
    let alone = fitted.iter().filter(|summary| summary.rows >= MANY && sources(&summary.name) == 1);
    let alone: Vec<Vec<Option<f64>>> = alone.map(|summary| shares(&summary.name)).collect();
    let mean = |column: usize| {
        let shares: Vec<f64> = alone.iter().filter_map(|shares| shares[column]).collect();
        (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / shares.len() as f64)
    };
    let means: Vec<Option<f64>> = (0..=folds.len()).map(mean).collect();
    let _ = writeln!(text, "| mean of {} with one source | | |{}", alone.len(), line(&means));
    text
}

fn choices(scored: &[Scored<'_>]) -> String {
    let sets = rank_sets(scored);
    if sets.is_empty() {
        return String::new();
    }
    let mut text = String::from(RANKING);
    for set in &sets {
        let [lost, single, recipe] = [set.regret, set.single, set.recipe].map(percent);
        let RankSet { name, configs, spearman, reach, farthest, .. } = set;
        let _ = writeln!(
            text,
            "| {name} | {configs} | {lost} | {single} | {recipe} | {spearman:.2} | {reach:.2} | {}: rank {}, predicted {} |",
            farthest.parallel, farthest.measured, farthest.predicted
        );
    }
    let mean = total(&sets);
    let [lost, single, recipe] = [mean.regret, mean.single, mean.recipe].map(percent);
    let (count, RankTotal { spearman, reach, .. }) = (sets.len(), mean);
    let _ = writeln!(text, "| mean of {count} | | {lost} | {single} | {recipe} | {spearman:.2} | {reach:.2} | |");
    text
}

fn constants(stacks: &[Stack]) -> String {
    let mut text = String::from(CONSTANTS);
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
