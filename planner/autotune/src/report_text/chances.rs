//! Text of the best steps at other chances to fit.

use super::shortened;
use crate::explain::differences;
use crate::plan::{AtChance, PlanReport, saved};
use support::table::table;
use support::units::{gib, share, time};

/// Gain of the step from one chance to the next lower one from which on a line warns.
const WORTH_WARNING: f64 = 0.1;

/// Table of the best step at each chance, and warnings where little memory costs much time; empty without any, or if all are the plan.
pub(super) fn chances(report: &PlanReport) -> String {
    let Some(all) = report.search.as_ref().map(|search| search.chances.as_slice()) else { return String::new() };
    let plan = &report.chosen.parallel;
    if all.iter().all(|at| at.parallel == *plan) {
        return String::new();
    }
    let row = |at: &AtChance| {
        let config = differences(plan, &at.parallel);
        [
            share(at.chance),
            time(at.step_time_s),
            saved(at.gain).unwrap_or_else(|| "nothing".to_string()),
            gib(at.device_gib),
            if config.is_empty() { "the plan".to_string() } else { shortened(&config) },
        ]
    };
    let rows: Vec<_> = all.iter().map(row).collect();
    table(["CHANCE TO FIT", "STEP", "SAVES", "MEMORY", "BEST CONFIG"], &rows) + &warnings(report, all)
}

/// A line for each chance at which the step is much shorter than at the next higher one.
fn warnings(report: &PlanReport, all: &[AtChance]) -> String {
    let chosen = &report.chosen.predicted;
    let mut before = chosen.step_time_s;
    let mut text = String::new();
    let asked = 1.0 - report.chosen.inputs.headroom / 100.0;
    for at in all.iter().filter(|at| at.chance < asked) {
        let gain = 1.0 - at.step_time_s / before;
        if gain > WORTH_WARNING {
            let more = at.device_gib - chosen.fullest().device;
            text += &format!(
                "warning   --headroom {}: {} instead of {}, for {} more on a device (chance to fit {})\n",
                (100.0 * (1.0 - at.chance)).round(),
                time(at.step_time_s),
                time(chosen.step_time_s),
                gib(more.max(0.0)),
                share(at.chance)
            );
            before = at.step_time_s;
        }
    }
    text
}
