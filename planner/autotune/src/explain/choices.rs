//! Costs and savings of each part of the configuration.

use super::brief::differences;
use super::compare::{ALIKE, misfit, pace};
use super::pool::Pool;
use crate::plan::ChoiceNote;
use crate::search::keys::{NOTED, row};
use compiler::parallel::item;
use estimator::{EstimateReport, Predicted};
use ir::config_key::ConfigKey;
use support::units::gib;

/// Notes on each choice of the configuration, compared with less of it and with more of it if those exist.
pub(super) fn choices(best: &EstimateReport, pool: &Pool) -> Vec<ChoiceNote> {
    let mut notes = vec![rest(best, pool)];
    for key in NOTED {
        let sides = [false, true].map(|more| pool.without(key, more));
        for (more, other) in [false, true].into_iter().zip(sides) {
            match other {
                Some(other) => notes.push(note(key, best, other, pool)),
                None if !more && (row(key).is_used)(&best.parallel) => notes.extend(alone(key, best, pool)),
                None => {}
            }
        }
    }
    notes
}

/// The meaning of a choice, and whether the request pins it.
fn stated(key: ConfigKey, best: &EstimateReport, pool: &Pool) -> String {
    let meaning = (row(key).meaning)(best);
    if pool.is_pinned(key) { format!("pinned: {meaning}") } else { meaning }
}

/// Note on dp, which follows from the other degrees.
fn rest(best: &EstimateReport, pool: &Pool) -> ChoiceNote {
    ChoiceNote {
        choice: item(ConfigKey::Dp, &best.parallel),
        against: String::new(),
        saves_s: None,
        costs_s: (row(ConfigKey::Dp).spends)(&best.predicted),
        saves_gib: None,
        meaning: stated(ConfigKey::Dp, best, pool),
        comparison: String::new(),
    }
}

fn note(key: ConfigKey, best: &EstimateReport, other: &EstimateReport, pool: &Pool) -> ChoiceNote {
    let (here, there) = (&best.predicted, &other.predicted);
    let against = differences(&best.parallel, &other.parallel);
    let saves_s = there.step_time_s - here.step_time_s;
    let saves_gib = there.fullest().device - here.fullest().device;
    let verdict = match (here.keeps_headroom, there.keeps_headroom) {
        (_, false) => misfit(here, there),
        (false, true) => format!("would fit, and is {}", pace(here, there)),
        (true, true) => pace(here, there),
    };
    let memory = if there.keeps_headroom { memory_change(here, there) } else { String::new() };
    ChoiceNote {
        choice: item(key, &best.parallel),
        meaning: stated(key, best, pool),
        comparison: format!("{verdict}{memory}"),
        against,
        saves_s: Some(saves_s),
        costs_s: (row(key).spends)(here),
        saves_gib: Some(saves_gib),
    }
}

/// Note on a part without which no configuration is valid.
fn alone(key: ConfigKey, best: &EstimateReport, pool: &Pool) -> Option<ChoiceNote> {
    let (parallel, error) = pool.refused(key, false)?;
    let against = differences(&best.parallel, parallel);
    Some(ChoiceNote {
        choice: item(key, &best.parallel),
        meaning: stated(key, best, pool),
        comparison: format!("impossible: {error}"),
        against,
        saves_s: None,
        costs_s: (row(key).spends)(&best.predicted),
        saves_gib: None,
    })
}

/// Difference in memory, if times alone do not decide.
fn memory_change(here: &Predicted, there: &Predicted) -> String {
    let more = there.fullest().device - here.fullest().device;
    // Memory is printed in tenths of a GiB.
    if (there.step_time_s / here.step_time_s - 1.0).abs() >= ALIKE || more.abs() < 0.1 {
        return String::new();
    }
    format!(", using {} {} memory", gib(more.abs()), if more > 0.0 { "more" } else { "less" })
}
