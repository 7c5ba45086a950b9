//! Scatter plot of the plan and its alternatives: time against memory.

use super::bars::drawing;
use crate::explain::brief::{brief, differences};
use crate::plan::PlanReport;
use estimator::Predicted;
use support::units::{gib, share, time};
use view::draw::escaped;

/// Pixels of the plot, and around it.
const SIZE: [f64; 2] = [760.0, 300.0];
const LEFT: f64 = 80.0;
const TOP: f64 = 24.0;

/// Label of the plan's point.
const PLAN: &str = "P";

/// A point on the plot.
struct Point {
    name: String,
    message: String,
    at: [f64; 2],
}

/// The best configuration and the others, numbered as in the table.
pub(super) fn runners_up(report: &PlanReport, limit: f64) -> String {
    let plan = &report.chosen;
    if report.alternatives.is_empty() {
        return String::new();
    }
    let at = |predicted: &Predicted| [predicted.fullest().device, predicted.step_time_s];
    let told = |what: &str, predicted: &Predicted| {
        format!("{what}: {}, {} per device", time(predicted.step_time_s), gib(predicted.fullest().device))
    };
    let best =
        Point { name: PLAN.into(), message: told(&brief(&plan.parallel), &plan.predicted), at: at(&plan.predicted) };
    let others = report.alternatives.iter().enumerate().map(|(place, other)| Point {
        name: (place + 1).to_string(),
        message: told(&differences(&plan.parallel, &other.parallel), &other.predicted),
        at: at(&other.predicted),
    });
    let points: Vec<Point> = std::iter::once(best).chain(others).collect();
    let most = |axis: usize| points.iter().map(|point| point.at[axis]).fold(0.0, f64::max);
    let least = points.iter().map(|point| point.at[1]).fold(f64::INFINITY, f64::min);
    // All points and the limit, with some air.
    let lightest = points.iter().map(|point| point.at[0]).fold(limit, f64::min);
    let air = ((most(1) - least) * 0.15).max(least * 0.002);
    let ranges = [[lightest * 0.9, most(0).max(limit) * 1.02], [least - air, most(1) + air]];
    let x = |gib: f64| LEFT + (gib - ranges[0][0]) / (ranges[0][1] - ranges[0][0]) * SIZE[0];
    let y = |seconds: f64| TOP + SIZE[1] - (seconds - ranges[1][0]) / (ranges[1][1] - ranges[1][0]) * SIZE[1];
    let mut text = String::new();
    for step in 0..=4 {
        let part = |range: [f64; 2]| range[0] + (range[1] - range[0]) * f64::from(step) / 4.0;
        let (memory, seconds) = (part([ranges[0][0], limit]), part(ranges[1]));
        text += &format!(
            "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{sy:.1}\" x2=\"{:.1}\" y2=\"{sy:.1}\"/><text class=\"name\" x=\"{:.0}\" y=\"{:.1}\">{}</text>\
             <text class=\"middle\" x=\"{:.1}\" y=\"{:.0}\">{}</text>\n",
            LEFT + SIZE[0],
            LEFT - 8.0,
            y(seconds) + 4.0,
            change(seconds / plan.predicted.step_time_s - 1.0),
            x(memory),
            TOP + SIZE[1] + 18.0,
            gib(memory),
            sy = y(seconds),
        );
    }
    text += &format!(
        "<line class=\"limit\" x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{:.0}\"><title>device memory {}</title></line>\
         <text class=\"limit-name\" x=\"{at:.1}\" y=\"{:.0}\">device memory {}</text>\n",
        TOP + SIZE[1],
        gib(limit),
        TOP - 8.0,
        gib(limit),
        at = x(limit),
    );
    // The plan is drawn last, above all.
    text.extend(points.iter().rev().map(|point| {
        let (px, py) = (x(point.at[0]), y(point.at[1]));
        let class = if point.name == PLAN { "best" } else { "other" };
        format!(
            "<g class=\"{class}\"><title>{}</title><circle cx=\"{px:.1}\" cy=\"{py:.1}\" r=\"9\"/><text class=\"on\" x=\"{px:.1}\" y=\"{:.1}\">{}</text></g>\n",
            escaped(&point.message),
            py + 4.0,
            point.name
        )
    }));
    text += &format!(
        "<text class=\"middle\" x=\"{:.0}\" y=\"{:.0}\">memory of the worst rank; slowdown relative to the plan, P</text>",
        LEFT + SIZE[0] / 2.0,
        TOP + SIZE[1] + 38.0
    );
    drawing("step time against memory", LEFT + SIZE[0] + 60.0, TOP + SIZE[1] + 46.0, &text)
}

/// How much slower than the plan: `+1.2 %`.
fn change(slower: f64) -> String {
    format!("{}{}", if slower < 0.0 { "" } else { "+" }, share(slower))
}
