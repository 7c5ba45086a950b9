//! Scatter plot of the plan and its alternatives: time against memory.

use super::bars::drawing;
use crate::explain::brief::{brief, differences};
use crate::plan::PlanReport;
use cost::Interval;
use estimator::Predicted;
use support::units::{gib, share, time};
use view::draw::escaped;

/// Size of the plot, and its distance from the page's edges, in pixels.
const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 80.0;
const TOP: f64 = 24.0;

/// Label of the plan's point.
const PLAN: &str = "P";

/// A point on the plot.
struct Point {
    name: String,
    message: String,
    memory_gib: f64,
    step_s: f64,
}

impl Point {
    fn of(name: String, config: &str, predicted: &Predicted) -> Point {
        let (memory_gib, step_s) = (predicted.fullest().device, predicted.step_time_s);
        let message = format!("{config}: {}, {} per device", time(step_s), gib(memory_gib));
        Point { name, message, memory_gib, step_s }
    }
}

/// Draws the best configuration and the alternatives, numbered as in the table.
pub(super) fn runners_up(report: &PlanReport, limit: f64) -> String {
    let plan = &report.chosen;
    if report.alternatives.is_empty() {
        return String::new();
    }
    let best = Point::of(PLAN.into(), &brief(&plan.parallel), &plan.predicted);
    let others = report.alternatives.iter().enumerate().map(|(place, other)| {
        Point::of((place + 1).to_string(), &differences(&plan.parallel, &other.parallel), &other.predicted)
    });
    let points: Vec<Point> = std::iter::once(best).chain(others).collect();
    let (memory, time) = (memory_range(&points, limit), time_range(&points));
    let x = |gib: f64| LEFT + (gib - memory.low) / memory.width() * WIDTH;
    let y = |seconds: f64| TOP + HEIGHT - (seconds - time.low) / time.width() * HEIGHT;
    let mut text = String::new();
    for step in 0..=4 {
        let at = |range: Interval| range.low + range.width() * f64::from(step) / 4.0;
        let (memory, seconds) = (at(Interval { high: limit, ..memory }), at(time));
        text += &format!(
            "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{sy:.1}\" x2=\"{:.1}\" y2=\"{sy:.1}\"/><text class=\"name\" x=\"{:.0}\" y=\"{:.1}\">{}</text>\
             <text class=\"middle\" x=\"{:.1}\" y=\"{:.0}\">{}</text>\n",
            LEFT + WIDTH,
            LEFT - 8.0,
            y(seconds) + 4.0,
            change(seconds / plan.predicted.step_time_s - 1.0),
            x(memory),
            TOP + HEIGHT + 18.0,
            gib(memory),
            sy = y(seconds),
        );
    }
    text += &format!(
        "<line class=\"limit\" x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{:.0}\"><title>device memory {}</title></line>\
         <text class=\"limit-name\" x=\"{at:.1}\" y=\"{:.0}\">device memory {}</text>\n",
        TOP + HEIGHT,
        gib(limit),
        TOP - 8.0,
        gib(limit),
        at = x(limit),
    );
    // The plan is drawn last, above all.
    text.extend(points.iter().rev().map(|point| {
        let (px, py) = (x(point.memory_gib), y(point.step_s));
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
        LEFT + WIDTH / 2.0,
        TOP + HEIGHT + 38.0
    );
    drawing("step time against memory", LEFT + WIDTH + 60.0, TOP + HEIGHT + 46.0, &text)
}

/// GiB on the x axis: all points and the device memory `limit`, with a margin.
fn memory_range(points: &[Point], limit: f64) -> Interval {
    let all = || points.iter().map(|point| point.memory_gib);
    let (least, most) = (all().fold(limit, f64::min), all().fold(0.0, f64::max));
    Interval { low: least * 0.9, high: most.max(limit) * 1.02 }
}

/// Seconds on the y axis: all points, with a margin.
fn time_range(points: &[Point]) -> Interval {
    let all = || points.iter().map(|point| point.step_s);
    let (least, most) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
    let margin = ((most - least) * 0.15).max(least * 0.002);
    Interval { low: least - margin, high: most + margin }
}

/// Slowdown relative to the plan: `+1.2 %`.
fn change(slower: f64) -> String {
    format!("{}{}", if slower < 0.0 { "" } else { "+" }, share(slower))
}
