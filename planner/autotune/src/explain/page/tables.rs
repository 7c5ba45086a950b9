//! Explanations as tables.

use crate::explain::brief::differences;
use crate::plan::PlanReport;
use crate::plan::{Infeasible, Search};
use scheduler::draw::escaped;
use support::units::{count, gib, share, time};

/// The runners-up, numbered as in the plot.
pub(super) fn alternatives(plan: &PlanReport) -> String {
    let row = |(place, other): (usize, &crate::plan::Alternative)| {
        let lost = other.lost.as_ref();
        let slower = lost.map_or_else(String::new, |lost| share(lost.slower) + if lost.tie { " (tie)" } else { "" });
        vec![
            (place + 1).to_string(),
            differences(&plan.chosen.layout, &other.layout),
            time(other.predicted.step_time_s),
            slower,
            gib(other.predicted.fullest().device),
            lost.map_or_else(String::new, |lost| lost.because.clone()),
        ]
    };
    let rows: Vec<_> = plan.alternatives.iter().enumerate().map(row).collect();
    table(&["", "difference", "step", "slower", "memory", "why"], &rows)
}

/// Each choice and how others compare.
pub(super) fn why(plan: &PlanReport) -> String {
    let notes = plan.why.iter().flat_map(|why| &why.axes);
    let mut told = "";
    let rows: Vec<_> = notes
        .map(|note| {
            let first = note.choice != told;
            told = &note.choice;
            let (choice, means) = if first { (note.choice.as_str(), note.means.as_str()) } else { ("", "") };
            vec![choice.to_string(), means.to_string(), note.against.clone(), note.says.clone()]
        })
        .collect();
    table(&["choice", "meaning", "alternative", "effect"], &rows)
}

/// The limits.
pub(super) fn binds(plan: &PlanReport) -> String {
    let binds = plan.why.iter().flat_map(|why| &why.binds);
    table(&["limit", ""], &binds.map(|bind| vec![bind.limit.clone(), bind.says.clone()]).collect::<Vec<_>>())
}

/// What more would buy.
pub(super) fn wishes(plan: &PlanReport) -> String {
    let wishes = plan.why.iter().flat_map(|why| &why.wishes);
    let row = |wish: &crate::plan::Wish| {
        let saved = if wish.gain > 0.0 { share(wish.gain) } else { "nothing".to_string() };
        vec![wish.given.clone(), time(wish.step_time_s), saved, wish.layout.clone()]
    };
    table(&["if", "step", "saves", "best config found"], &wishes.map(row).collect::<Vec<_>>())
}

/// What clashes.
pub(super) fn clash(answer: &Infeasible) -> String {
    if answer.clash.is_empty() {
        return "<p>Not determined before the deadline.</p>\n".to_string();
    }
    let rows: Vec<_> = answer.clash.iter().map(|clash| vec![clash.constraint.clone(), clash.says.clone()]).collect();
    "<p>Dropping any one of these makes the request feasible.</p>\n".to_string() + &table(&["constraint", ""], &rows)
}

/// What would make something fit.
pub(super) fn ways_out(answer: &Infeasible) -> String {
    let row = |way: &crate::plan::WayOut| vec![way.change.clone(), time(way.step_time_s), way.layout.clone()];
    table(&["fix", "step", "config"], &answer.ways_out.iter().map(row).collect::<Vec<_>>())
}

/// How it was found.
pub(super) fn search(search: Option<&Search>) -> String {
    let Some(search) = search else { return "<p>None: the layout was given.</p>".to_string() };
    let proved = if search.proved_optimal { "proved" } else { "not proved" };
    let rows = [
        (
            "layouts in the search space",
            if search.has_more { "more than " } else { "" }.to_string() + &count(search.space as f64),
        ),
        ("predicted", count(search.candidates as f64)),
        ("pruned by bounds, or as duplicates", count(search.pruned as f64)),
        ("seconds", format!("{:.2}", search.seconds)),
        ("optimal under this cost model", proved.to_string()),
        ("pinned", if search.pin.is_empty() { "nothing".to_string() } else { search.pin.clone() }),
    ];
    table(&["search", ""], &rows.map(|(name, value)| vec![name.to_string(), value]))
}

/// The longest text that stays on its line: a time, a size, a choice.
const SHORT: usize = 14;

/// A cell; the items of a layout, and the values that it makes again, may stand on lines of their own.
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

/// A table, where it has rows.
fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return "<p>None.</p>".to_string();
    }
    let body: String = rows
        .iter()
        .map(|row| format!("<tr>{}</tr>\n", row.iter().map(|text| cell(text)).collect::<String>()))
        .collect();
    let head: String = head.iter().map(|name| format!("<th>{}</th>", escaped(name))).collect();
    format!("<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_may_be_broken_after_an_item_and_sums_may_not() {
        assert_eq!(cell("dp=2,recompute=selective:a+n"), "<td>dp=2,<wbr>recompute=selective:a+<wbr>n</td>");
        assert_eq!(cell("+7.0 GiB"), "<td class=\"short\">+7.0 GiB</td>");
    }
}
