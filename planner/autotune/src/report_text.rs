//! Reports of plans as text, whose width is that of the formatter: `format!("{plan:80}")`.

mod chances;

use crate::explain::{Planned, WhyNot, brief, differences, signed};
use crate::plan::{Alternative, Gap, Infeasible, PlanReport, Relaxation, Search, StageCover, WhatIf, Why, saved};
use compiler::parallel;
use estimator::{EstimateReport, EstimateRequest};
use std::fmt;
use support::quantities::Price;
use support::table::table;
use support::units::{count, gib, seconds, share, significant, small_share, tenths, time};

/// Width of a choice, in columns.
const LABEL: usize = 15;

/// Width of running text, in columns, where the formatter has none.
pub const TEXT_WIDTH: usize = 100;

/// The narrowest running text, in columns.
const NARROWEST: usize = 50;

/// Text of the prediction, then the [explanation](PlanReport::explanation); ends in a newline.
impl fmt::Display for PlanReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.chosen, self.explanation(f.width().unwrap_or(TEXT_WIDTH)))
    }
}

/// Text of the conflict and its fixes, or of the progress of an unfinished search; ends in a newline.
impl fmt::Display for Infeasible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&infeasible(self, f.width().unwrap_or(TEXT_WIDTH)))
    }
}

/// Text of the answer: a plan, or an infeasible request.
impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Planned::Best(plan) => plan.fmt(f),
            Planned::Infeasible(answer) => answer.fmt(f),
        }
    }
}

impl PlanReport {
    /// Text of the explanation, without the prediction, in a number of columns: choices, binding constraints, alternatives,
    /// what-ifs, and the line on the search.
    pub fn explanation(&self, width: usize) -> String {
        explanation(self, width)
    }
}

impl WhyNot {
    /// Text of the comparison with `plan`, in a number of columns; ends in a newline.
    pub fn text(&self, plan: &PlanReport, width: usize) -> String {
        why_not(plan, self, width)
    }
}

fn explanation(report: &PlanReport, width: usize) -> String {
    let mut parts = Vec::new();
    match &report.why {
        Some(why) => {
            parts.push(choices(why, width));
            parts.push(constraints(why, width));
        }
        None => parts.push(
            "WHY THIS CONFIGURATION: no time was left before the deadline to compare it with others\n".to_string(),
        ),
    }
    if !report.alternatives.is_empty() {
        parts.push(runners_up(report));
    }
    if let Some(why) = report.why.as_ref().filter(|why| !why.what_if.is_empty()) {
        parts.push(what_ifs(why, &report.chosen));
    }
    parts.extend(Some(chances::chances(report)).filter(|text| !text.is_empty()));
    parts.extend(report.search.as_ref().map(|found| search(found) + &beyond(report, found)));
    parts.join("\n")
}

/// Table of the choices, each compared with others.
fn choices(why: &Why, width: usize) -> String {
    let mut text = "WHY THIS CONFIGURATION\n".to_string();
    let mut last = "";
    for note in &why.choices {
        if note.choice != last {
            // A long choice has a line of its own.
            let long = note.choice.len() >= LABEL;
            text += &if long { format!("  {}\n", note.choice) } else { String::new() };
            text += &hung(&format!("{:<LABEL$}", if long { "" } else { &note.choice }), &note.meaning, width);
            last = &note.choice;
        }
        if !note.comparison.is_empty() {
            let comparison = format!("{}: {}", shortened(&note.against), note.comparison);
            text += &hung(&format!("{:17}", ""), &comparison, width);
        }
    }
    text
}

fn constraints(why: &Why, width: usize) -> String {
    let constraints = why.constraints.iter().map(|bind| hung(&format!("{:<15}", bind.limit), &bind.message, width));
    "BINDING CONSTRAINTS\n".to_string() + &constraints.collect::<String>()
}

/// Note on differences within the prediction error.
const TIE: &str = "within prediction error: benchmark both if the difference matters";

/// Largest number of characters of an option that is not shortened in a table.
const LONG_ITEM: usize = 24;

/// Table of the alternatives.
fn runners_up(report: &PlanReport) -> String {
    let row = |other: &Alternative| {
        let difference = other.difference.as_ref();
        let slower = difference.map_or_else(String::new, |difference| {
            format!("{}{}", if difference.tie { "~" } else { "" }, share(difference.slower))
        });
        [
            time(other.predicted.step_time_s),
            slower,
            gib(other.predicted.fullest().device),
            shortened(&differences(&report.chosen.parallel, &other.parallel)),
            difference.map_or_else(String::new, |difference| difference.reason.clone()),
        ]
    };
    let rows: Vec<_> = report.alternatives.iter().map(row).collect();
    let tie = report.alternatives.iter().filter_map(|other| other.difference.as_ref()).any(|difference| difference.tie);
    let note = if tie { format!("~ {TIE}\n") } else { String::new() };
    table(["ALTERNATIVES", "SLOWER", "MEMORY", "DIFFERENCE", "WHY"], &rows) + &note
}

/// Options of a configuration, long lists shortened to their ends: `stages=2,4,..,126`, `recompute=selective:a+q0+..+fp`.
fn shortened(parallel: &str) -> String {
    let short = |item: String| {
        let list = if item.contains('+') { "+" } else { "," };
        match item.split(list).collect::<Vec<_>>().as_slice() {
            [first, second, .., last] if item.len() > LONG_ITEM => [first, second, "..", last].join(list),
            _ => item,
        }
    };
    parallel::pins(parallel).into_iter().map(short).collect::<Vec<_>>().join(",")
}

/// Table of what-if changes. If the plan is not the fastest known configuration, the head of the savings names the time that they are
/// relative to.
fn what_ifs(why: &Why, plan: &EstimateReport) -> String {
    let row = |what_if: &WhatIf| {
        let saved = saved(what_if.gain).unwrap_or_else(|| "nothing".to_string());
        [what_if.condition.clone(), time(what_if.step_time_s), saved, shortened(&what_if.parallel)]
    };
    let saves = why.savings_of(plan).map_or_else(|| "SAVES".to_string(), |base| format!("SAVES OF {}", time(base)));
    table(["IF", "STEP", &saves, "BEST CONFIG FOUND"], &why.what_if.iter().map(row).collect::<Vec<_>>())
}

/// Line on how the search found the configuration.
fn search(search: &Search) -> String {
    let Search { space, has_more, candidates, pruned, seconds: took, optimal_under, ref pin, .. } = *search;
    let given = if pin.is_empty() { String::new() } else { format!(" with {pin}") };
    let among = if search.covers.stages == StageCover::Listed { " among the stages below" } else { "" };
    let verdict = match (optimal_under, &search.fastest) {
        (Some(basis), None) => format!("optimal{given}{among} under {}", basis.text()),
        (Some(basis), Some(fastest)) => format!(
            "the simplest{given} within {} of the optimum{among} under {}, {} away",
            share(search.tie),
            basis.text(),
            small_share(fastest.gain)
        ),
        (None, _) => search.stopped(),
    };
    let warning = if search.gap.is_some_and(Gap::is_wide) { EARLY } else { "" };
    let stages = if among.is_empty() || optimal_under.is_none() {
        String::new()
    } else {
        format!("\nstages    {}", search.stages_covered())
    };
    // Configurations that an unfinished search did not predict are not ruled out.
    let rest =
        if optimal_under.is_some() { format!(", {} pruned by bounds", count(pruned as f64)) } else { String::new() };
    format!(
        "search    {}{} configurations: {} predicted{rest}, in {}; {verdict}{stages}\n{warning}{}",
        if has_more { "more than " } else { "" },
        count(space as f64),
        count(candidates as f64),
        seconds(took),
        training(search)
    )
}

/// Lines on the time and the price of a training.
fn training(search: &Search) -> String {
    let unit = search.price_unit.as_deref().unwrap_or_default();
    let in_unit = |amount: f64| Price { amount, unit: unit.to_string() }.text(significant);
    let unnamed = if unit.is_empty() { ", in the unit of --price" } else { "" };
    let days = search.days.zip(search.tokens).map_or_else(String::new, |(days, tokens)| {
        let hours = search.device_hours.map_or_else(String::new, |hours| format!(": {} device hours", count(hours)));
        let cost = search.price.map_or_else(String::new, |price| format!(", which cost {}{unnamed}", in_unit(price)));
        format!("days      {} for {} tokens{hours}{cost}\n", tenths(days), count(tokens))
    });
    let price = search
        .price_per_million
        .map_or_else(String::new, |price| format!("price     {} for a million tokens{unnamed}\n", in_unit(price)));
    days + &price
}

/// Warning of a search that was stopped far from the optimum.
const EARLY: &str =
    "warning   the search was stopped early: a longer --deadline, or none, may find a much better plan\n";

/// Line on a faster configuration that the stack does not support.
fn beyond(report: &PlanReport, search: &Search) -> String {
    let Some(other) = &search.beyond else { return String::new() };
    let (stack, otherwise) =
        (&report.chosen.inputs.stack, shortened(&differences(&report.chosen.parallel, &other.parallel)));
    format!(
        "beyond    {otherwise} would save {}, but {stack} does not support it (--beyond-stack)\n",
        share(other.gain)
    )
}

impl Search {
    /// Boundaries between stages that a complete search has compared, as text.
    pub(crate) fn stages_covered(&self) -> String {
        match (self.covers.stages, self.covers.gap) {
            (StageCover::All, _) => "all".to_string(),
            (StageCover::Pinned, _) => "pinned".to_string(),
            (StageCover::Listed, gap) => {
                let others = gap.map_or_else(
                    || "others were not searched".to_string(),
                    |gap| format!("others would save at most {}", small_share(gap)),
                );
                format!("equal, with fewer layers at the ends, or balanced by predicted time; {others}")
            }
        }
    }
}

/// Formats the conflict and its fixes, or the progress of an unfinished search.
fn infeasible(answer: &Infeasible, columns: usize) -> String {
    let Infeasible { inputs, conflict, relaxations, .. } = answer;
    if !answer.is_known() {
        return unknown(answer);
    }
    let mut text =
        format!("{} does not fit on {}: no configuration satisfies the request\n", inputs.model, inputs.cluster);
    text += &asked(inputs);
    if answer.search.covers.stages == StageCover::Listed {
        text += &format!("stages    {}\n", answer.search.stages_covered());
    }
    text.push('\n');
    if conflict.is_empty() {
        text += "CONFLICT: not determined before the deadline\n\n";
    } else {
        text += "CONFLICT: dropping any one of these makes the request feasible\n";
        let width = conflict.iter().map(|conflict| conflict.constraint.len() + 2).fold(17, usize::max);
        text.extend(conflict.iter().map(|it| hung(&format!("{:<width$}", it.constraint), &it.message, columns)));
        text.push('\n');
    }
    if relaxations.is_empty() {
        return text + "No single change makes it fit.\n";
    }
    let row = |way: &Relaxation| [way.change.clone(), time(way.step_time_s), way.parallel.clone()];
    text + &table(["FIX", "STEP", "CONFIG"], &relaxations.iter().map(row).collect::<Vec<_>>())
}

/// Line on the batch as it was understood.
fn asked(inputs: &EstimateRequest) -> String {
    format!("batch     {}\n", inputs.batch())
}

/// Formats the progress of a search that found nothing that fits before its deadline.
fn unknown(answer: &Infeasible) -> String {
    let Infeasible { inputs, closest, search: found, .. } = answer;
    let mut text = format!("not known yet whether {} fits on {}\n", inputs.model, inputs.cluster);
    text += &asked(inputs);
    text.push('\n');
    if let Some(closest) = closest {
        let needs = gib(closest.predicted.fullest().device);
        text += &format!("closest   {}: {needs} on its worst rank\n", brief(&closest.parallel));
    }
    text + &search(found)
}

/// Text of the answer to `--why-not`.
fn why_not(plan: &PlanReport, answer: &WhyNot, width: usize) -> String {
    let chosen = &plan.chosen;
    let mut text = format!("batch     {}\n", chosen.inputs.batch());
    text += &format!("plan      {}: {}\n", brief(&chosen.parallel), time(chosen.predicted.step_time_s));
    let found = match (&answer.parallel, &answer.predicted) {
        (Some(parallel), Some(predicted)) => format!("{parallel}: {}", time(predicted.step_time_s)),
        _ => "no configuration".to_string(),
    };
    text += &format!("{:<9} {found}\n", answer.asked);
    text += &hung(&format!("{:<9} ", answer.verdict), &answer.message, width);
    let is_timed = matches!(answer.verdict, "slower" | "faster");
    if answer.difference.as_ref().is_some_and(|difference| difference.tie) && is_timed {
        text += &format!("          {TIE}\n");
    }
    let changes = |unit: fn(f64) -> String, changes: &[(&'static str, f64)], whole: f64| {
        // Differences below a thousandth of the plan's figure are left out.
        let large = changes.iter().filter(|(_, by)| by.abs() > 1e-3 * whole);
        large.map(|(what, by)| [what.to_string(), signed(*by, unit)]).collect::<Vec<_>>()
    };
    let seconds = changes(time, &answer.seconds, plan.chosen.predicted.step_time_s);
    let memory = changes(gib, &answer.gib, plan.chosen.predicted.fullest().device);
    for (head, rows) in [("STEP TIME CHANGE", seconds), ("MEMORY CHANGE ON THE WORST RANK", memory)] {
        if !rows.is_empty() {
            text += &format!("\n{}", table([head, ""], &rows));
        }
    }
    text
}

/// Formats a label and a text that is wrapped below its own start, at a number of columns.
fn hung(label: &str, text: &str, columns: usize) -> String {
    let indent = label.chars().count() + 2;
    let mut lines = vec![format!("  {label}")];
    for word in text.split(' ') {
        let line = &mut lines.last_mut().expect("there is a first line");
        let width = line.chars().count();
        if width > indent && width + 1 + word.chars().count() > columns.max(NARROWEST) {
            lines.push(format!("{:indent$}{word}", ""));
        } else if width > indent {
            **line += &format!(" {word}");
        } else {
            **line += word;
        }
    }
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_hangs_behind_its_label() {
        for width in [60, 100] {
            let text = hung("tp=4 ", &"word ".repeat(30), width);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{text}");
        }
        let text = hung("tp=4 ", &"word ".repeat(30), TEXT_WIDTH);
        assert!(
            text.starts_with("  tp=4 word word") && text.lines().nth(1).unwrap().starts_with("       word"),
            "{text}"
        );
        assert_eq!(hung("a", "b", TEXT_WIDTH), "  ab\n");
    }
}
