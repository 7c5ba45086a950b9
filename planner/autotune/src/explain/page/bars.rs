//! Time and memory as bars.

use crate::explain::compare::parts;
use estimator::{EstimateReport, StageMemory, part_name};
use std::ops::Range;
use support::units::{gib, percent, time as seconds};
use view::draw::escaped;

/// Pixels of the widest bar.
const WIDTH: f64 = 560.0;
/// Pixels left of the bars.
const LEFT: f64 = 250.0;
/// Pixels from bar to bar.
const ROW: f64 = 26.0;

/// Bars of the parts of the step, largest first.
pub(super) fn time(plan: &EstimateReport) -> String {
    let mut shares: Vec<(&str, f64)> =
        plan.predicted.time_s.by_name().into_iter().filter(|part| part.1 > 0.0).collect();
    shares.sort_by(|a, b| b.1.total_cmp(&a.1));
    let most = shares.first().map_or(1.0, |part| part.1);
    let bar = |(row, (part, taken)): (usize, &(&str, f64))| {
        let (y, width) = (ROW * row as f64, (taken / most * WIDTH).max(1.0));
        let value = format!("{} ({})", seconds(*taken), percent(taken / plan.predicted.step_time_s).trim());
        format!(
            "<g class=\"{}\"><title>{name}: {value}</title><text class=\"name\" x=\"{:.0}\" y=\"{:.0}\">{name}</text>\
             <rect x=\"{LEFT}\" y=\"{:.0}\" width=\"{width:.1}\" height=\"18\" rx=\"2\"/>\
             <text x=\"{:.1}\" y=\"{:.0}\">{value}</text></g>\n",
            kind(part),
            LEFT - 10.0,
            y + 17.0,
            y + 4.0,
            LEFT + width + 8.0,
            y + 17.0,
            name = part_name(part),
        )
    };
    let bars: String = shares.iter().enumerate().map(bar).collect();
    drawing("step time by category", LEFT + WIDTH + 160.0, ROW * shares.len() as f64 + 6.0, &bars)
}

/// CSS class of a part of the step: work, communication, or neither.
fn kind(part: &str) -> &'static str {
    match part {
        "gemm" | "attention" | "memory_bound" | "optimizer" => "work",
        "tp" | "cp" | "ep" | "dp" | "p2p" | "host" => "talk",
        _ => "rest",
    }
}

/// The difference in GiB below which memory counts as alike: what a bar of a few pixels less shows.
const ALIKE: f64 = 0.25;

/// Runs of pipeline ranks whose parts of memory are alike.
fn alike(ranks: &[StageMemory]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    let near = |a: StageMemory, b: StageMemory| {
        let pairs = parts(a).into_iter().zip(parts(b));
        (a.device - b.device).abs() < ALIKE && pairs.into_iter().all(|((_, a), (_, b))| (a - b).abs() < ALIKE)
    };
    for rank in 0..ranks.len() {
        match runs.last_mut() {
            Some(run) if near(ranks[run.start], ranks[rank]) => run.end = rank + 1,
            _ => runs.push(rank..rank + 1),
        }
    }
    runs
}

/// Bars of the memory of each pipeline rank, with the memory of a device. Neighbours that are alike share a bar, that of the one with most.
pub(super) fn memory(plan: &EstimateReport, limit: f64) -> String {
    let ranks = &plan.predicted.memory_gib.per_stage;
    let most = ranks.iter().map(|rank| rank.device).fold(limit, f64::max);
    let scale = (WIDTH + LEFT - 90.0) / most;
    let left = 90.0;
    let mut text = legend();
    let runs = alike(ranks);
    for (row, run) in runs.iter().enumerate() {
        let y = 34.0 + ROW * row as f64;
        let held = ranks[run.clone()].iter().max_by(|a, b| a.device.total_cmp(&b.device)).copied().unwrap_or_default();
        let name = match run.len() {
            1 => format!("rank {}", run.start),
            _ => format!("ranks {}-{}", run.start, run.end - 1),
        };
        text += &format!("<text class=\"name\" x=\"{:.0}\" y=\"{:.0}\">{name}</text>", left - 10.0, y + 13.0);
        let beside = held.device - held.allocated;
        let mut x = left;
        for (place, (what, size)) in parts(held).into_iter().chain([(BESIDE, beside)]).enumerate() {
            let width = size.max(0.0) * scale;
            text += &format!(
                "<rect class=\"part{place}\" x=\"{x:.1}\" y=\"{y:.0}\" width=\"{width:.1}\" height=\"18\"><title>{name}, {what}: {}</title></rect>",
                gib(size)
            );
            x += width;
        }
        text += &format!(
            "<text x=\"{:.1}\" y=\"{:.0}\">{}</text>\n",
            left + most * scale + 10.0,
            y + 13.0,
            gib(held.device)
        );
    }
    let (end, at) = (40.0 + ROW * runs.len() as f64, left + limit * scale);
    text += &format!(
        "<line class=\"limit\" x1=\"{at:.1}\" y1=\"26\" x2=\"{at:.1}\" y2=\"{end:.0}\"><title>device memory {}</title></line>\
         <text class=\"limit-name\" x=\"{at:.1}\" y=\"{:.0}\">device memory {}</text>",
        gib(limit),
        end + 14.0,
        gib(limit)
    );
    drawing("memory of each pipeline rank", LEFT + WIDTH + 160.0, end + 22.0, &text)
}

/// Device memory in addition to the allocated memory.
const BESIDE: &str = "allocator, CUDA and communicators";

fn legend() -> String {
    let names = parts(Default::default()).map(|(what, _)| what);
    let mut x = 90.0;
    let mut text = String::new();
    for (place, what) in names.into_iter().chain([BESIDE]).enumerate() {
        text += &format!(
            "<rect class=\"part{place}\" x=\"{x:.0}\" y=\"4\" width=\"12\" height=\"12\" rx=\"2\"/><text x=\"{:.0}\" y=\"14\">{what}</text>",
            x + 17.0
        );
        // Letters of the page's font are about 6.6 pixels wide.
        x += 34.0 + 6.6 * what.len() as f64;
    }
    text
}

/// An SVG drawing of a size in pixels, which shrinks with the page, and scrolls on narrow ones.
pub(super) fn drawing(what: &str, width: f64, height: f64, content: &str) -> String {
    format!(
        "<div class=\"charted\"><svg class=\"chart\" role=\"img\" aria-label=\"{}\" viewBox=\"0 0 {width:.0} {height:.0}\" style=\"max-width:{width:.0}px\">\n{content}</svg></div>\n",
        escaped(what)
    )
}
