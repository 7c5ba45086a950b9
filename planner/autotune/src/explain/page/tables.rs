//! Explanations as tables.

use crate::explain::brief::differences;
use crate::plan::{Infeasible, PlanReport, Search, saved};
use support::units::{count, gib, share, time};
use view::draw::escaped;

/// Table of the alternatives, numbered as in the plot.
pub(super) fn alternatives(plan: &PlanReport) -> String {
    let row = |(place, other): (usize, &crate::plan::Alternative)| {
        let difference = other.difference.as_ref();
        let slower = difference.map_or_else(String::new, |difference| {
            share(difference.slower) + if difference.tie { " (tie)" } else { "" }
        });
        vec![
            (place + 1).to_string(),
            differences(&plan.chosen.parallel, &other.parallel),
            time(other.predicted.step_time_s),
            slower,
            gib(other.predicted.fullest().device),
            difference.map_or_else(String::new, |difference| difference.reason.clone()),
        ]
    };
    let rows: Vec<_> = plan.alternatives.iter().enumerate().map(row).collect();
    table(&["", "difference", "step", "slower", "memory", "why"], &rows)
}

/// Table of the choices, compared with others.
pub(super) fn why(plan: &PlanReport) -> String {
    let notes = plan.why.iter().flat_map(|why| &why.choices);
    let mut told = "";
    let rows: Vec<_> = notes
        .map(|note| {
            let first = note.choice != told;
            told = &note.choice;
            let (choice, meaning) = if first { (note.choice.as_str(), note.meaning.as_str()) } else { ("", "") };
            vec![choice.to_string(), meaning.to_string(), note.against.clone(), note.comparison.clone()]
        })
        .collect();
    table(&["choice", "meaning", "alternative", "effect"], &rows)
}

/// Table of the binding constraints.
pub(super) fn constraints(plan: &PlanReport) -> String {
    let constraints = plan.why.iter().flat_map(|why| &why.constraints);
    table(&["limit", ""], &constraints.map(|bind| vec![bind.limit.clone(), bind.message.clone()]).collect::<Vec<_>>())
}

/// Table of the what-if changes.
pub(super) fn what_ifs(plan: &PlanReport) -> String {
    let what_ifs = plan.why.iter().flat_map(|why| &why.what_if);
    let row = |what_if: &crate::plan::WhatIf| {
        let saved = saved(what_if.gain).unwrap_or_else(|| "nothing".to_string());
        vec![what_if.condition.clone(), time(what_if.step_time_s), saved, what_if.parallel.clone()]
    };
    let base = plan.why.as_ref().and_then(|why| why.savings_of(&plan.chosen));
    let saves = base.map_or_else(|| "saves".to_string(), |base| format!("saves of {}", time(base)));
    table(&["if", "step", &saves, "best config found"], &what_ifs.map(row).collect::<Vec<_>>())
}

/// Table of the conflict.
pub(super) fn conflict(answer: &Infeasible) -> String {
    if answer.conflict.is_empty() {
        return "<p>Not determined before the deadline.</p>\n".to_string();
    }
    let rows: Vec<_> =
        answer.conflict.iter().map(|conflict| vec![conflict.constraint.clone(), conflict.message.clone()]).collect();
    "<p>Dropping any one of these makes the request feasible.</p>\n".to_string() + &table(&["constraint", ""], &rows)
}

/// Table of the relaxations.
pub(super) fn relaxations(answer: &Infeasible) -> String {
    let row = |way: &crate::plan::Relaxation| vec![way.change.clone(), time(way.step_time_s), way.parallel.clone()];
    table(&["fix", "step", "config"], &answer.relaxations.iter().map(row).collect::<Vec<_>>())
}

/// Text on the search.
pub(super) fn search(search: Option<&Search>) -> String {
    let Some(search) = search else { return "<p>None: the configuration was given.</p>".to_string() };
    let proved = search.optimal_under.map_or_else(|| search.stopped(), |basis| basis.text().to_string());
    let rows = [
        (
            "configurations in the search space",
            if search.has_more { "more than " } else { "" }.to_string() + &count(search.space as f64),
        ),
        ("predicted", count(search.candidates as f64)),
        ("pruned by bounds, or as duplicates", count(search.pruned as f64)),
        ("seconds", format!("{:.2}", search.seconds)),
        ("optimal under", proved),
        ("stages", search.stages_covered()),
        ("pinned", if search.pin.is_empty() { "nothing".to_string() } else { search.pin.clone() }),
    ];
    table(&["search", ""], &rows.map(|(name, value)| vec![name.to_string(), value]))
}

/// Largest number of characters of a cell that does not wrap: a time, a size, a choice.
const SHORT: usize = 14;

/// A cell. Options of a configuration and recomputed values may wrap.
fn cell(text: &str) -> String {
    let class = if text.len() <= SHORT { " class=\"short\"" } else { "" };
    let mut cell = String::new();
    let (mut in_word, escaped) = (false, escaped(text));
    for char in escaped.chars() {
        cell.push(char);
        // Not after a sign.
        if char == ',' || (char == '+' && in_word) {
            cell.push_str("<wbr>");
        }
        in_word = char.is_alphanumeric();
    }
    format!("<td{class}>{cell}</td>")
}

/// A table; empty without rows.
pub(super) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return "<p>None.</p>".to_string();
    }
    let body: String = rows
        .iter()
        .map(|row| format!("<tr>{}</tr>\n", row.iter().map(|text| cell(text)).collect::<String>()))
        .collect();
    let head: String = head.iter().map(|name| format!("<th>{}</th>", escaped(name))).collect();
    format!("<div class=\"wide\"><table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table></div>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_may_be_broken_after_an_item_and_sums_may_not() {
        assert_eq!(cell("dp=2,recompute=selective:a+n"), "<td>dp=2,<wbr>recompute=selective:a+<wbr>n</td>");
        assert_eq!(cell("+7.0 GiB"), "<td class=\"short\">+7.0 GiB</td>");
    }
}
