//! One rank: its bars, its idle time and its memory.

use super::super::axis::figure;
use super::super::{Bar, DrawnRow, Hue, Picture, ink};
use super::pen::{Pen, Point, Size};
use super::{Frame, LEFT};

/// Pixels of a bar, of the memory curve, and of the mark of the critical path below a bar.
pub(super) const BAR: f64 = 24.0;
pub(super) const MEMORY: f64 = 30.0;
const MARK: f64 = 3.0;

/// The largest and the smallest text on a bar, in pixels.
const LARGE: f64 = 11.0;
const SMALL: f64 = 6.5;

/// A letter is so wide, as a share of its height (DejaVu Sans, digits and capitals).
const LETTER: f64 = 0.72;

pub(super) fn draw(pen: &mut Pen, frame: &Frame, row: &DrawnRow, y: f64) {
    pen.text(LEFT - 8.0, y + 0.5 * BAR + 4.0, "rank", &row.name);
    let end = row.bars.last().map_or(0.0, |bar| bar.end);
    pen.rect("idle", Point { x: LEFT, y }, Size { width: frame.x(end) - LEFT, height: BAR });
    for bar in &row.bars {
        gap(pen, frame, bar, y);
        draw_bar(pen, frame, bar, y);
    }
    if frame.most_memory > 0.0 && row.peak.is_some() {
        memory(pen, frame, row, y + BAR + MARK + 2.0);
    }
}

fn gap(pen: &mut Pen, frame: &Frame, bar: &Bar, y: f64) {
    let Some(gap) = &bar.gap else { return };
    let (class, from) = if gap.reason == "memory" { ("memory", gap.since) } else { ("latency", gap.made) };
    let width = (bar.start - from) * frame.scale;
    if width > 0.05 {
        pen.rect(class, Point { x: frame.x(from), y: y + 3.0 }, Size { width, height: BAR - 6.0 });
    }
}

fn draw_bar(pen: &mut Pen, frame: &Frame, bar: &Bar, y: f64) {
    let (x, width) = (frame.x(bar.start), (bar.end - bar.start) * frame.scale);
    let tip = format!("{}: {} to {}", bar.name, figure(bar.start), figure(bar.end));
    pen.bar(bar.hue, bar.shade, Point { x, y }, Size { width, height: BAR }, &tip);
    let white = ink::fill(bar.hue, bar.shade).takes_white();
    let lines = bar.texts.len() as f64;
    for (at, text) in bar.texts.iter().enumerate() {
        if let Some((size, shown)) = fitting(text, width - 2.0, LARGE.min(BAR / lines - 1.5)) {
            let middle = Point { x: x + 0.5 * width, y: y + BAR * (at as f64 + 0.5) / lines };
            pen.centred(middle, size, white, shown);
        }
    }
}

/// The full text, the text from its letter on, or its micro-batch: the first that fits at a readable size.
fn fitting(text: &str, width: f64, largest: f64) -> Option<(f64, &str)> {
    let letter = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(0);
    let candidates = [(text, 8.0), (&text[letter..], 8.0), (text.get(letter + 1..).unwrap_or(""), SMALL)];
    candidates.into_iter().filter(|(text, _)| !text.is_empty()).find_map(|(text, least)| {
        let size = (width / (LETTER * text.len() as f64)).min(largest);
        (size >= least.min(largest)).then_some((size, text))
    })
}

/// Axis of a rank's memory curve.
struct MemoryAxis<'a> {
    frame: &'a Frame,
    bottom: f64,
    height: f64,
}

impl MemoryAxis<'_> {
    fn y(&self, used: f64) -> f64 {
        self.bottom - self.height * used / self.frame.most_memory
    }

    fn at(&self, time: f64, used: f64) -> Point {
        Point { x: self.frame.x(time), y: self.y(used) }
    }
}

/// Draws the memory of the rank and its limit; all curves of a page have one scale.
fn memory(pen: &mut Pen, frame: &Frame, row: &DrawnRow, top: f64) {
    let height = MEMORY - MARK - 4.0;
    let bottom = top + height;
    let axis = MemoryAxis { frame, bottom, height };
    let mut points = vec![Point { x: LEFT, y: bottom }];
    let (mut end, mut left) = (0.0, 0.0); // of the last bar
    for bar in &row.bars {
        let Some(memory) = bar.memory else { continue };
        if bar.start > end {
            points.extend([axis.at(end, left), axis.at(bar.start, left)]);
        }
        points.extend([axis.at(bar.start, memory.during), axis.at(bar.end, memory.during)]);
        (end, left) = (bar.end, memory.after);
    }
    points.push(axis.at(end, left));
    let end = frame.x(end);
    pen.path("curve", &points);
    points.push(Point { x: end, y: bottom });
    pen.path("area", &points);
    pen.line("base", Point { x: LEFT, y: bottom }, Point { x: end, y: bottom });
    let peak = figure(row.peak.unwrap_or(0.0));
    let limit = row.limit.map_or_else(String::new, |limit| format!(" of {}", figure(limit)));
    pen.text(LEFT - 8.0, bottom - 3.0, "held", &format!("peak {peak}{limit}"));
    if let Some(limit) = row.limit {
        let y = axis.y(limit);
        pen.line("limit", Point { x: LEFT, y }, Point { x: end, y });
    }
}

/// A strip below each bar of the critical path, and a line where it goes to another rank.
pub(super) fn critical_path(pen: &mut Pen, frame: &Frame, picture: &Picture, top: f64) {
    let strips: Vec<f64> = (0..picture.rows.len()).map(|row| top + frame.row(picture) * row as f64 + BAR).collect();
    for (number, row) in picture.rows.iter().enumerate() {
        for bar in row.bars.iter().filter(|bar| bar.critical && bar.hue != Hue::X) {
            let start = Point { x: frame.x(bar.start), y: strips[number] };
            pen.rect("critical", start, Size { width: (bar.end - bar.start) * frame.scale, height: MARK });
            let Some(gap) = &bar.gap else { continue };
            let [there, at] = gap.on;
            let from = picture.rows[there].bars[at].end;
            // From strip to strip, past the bar that lies lower.
            pen.line("hop", Point { x: frame.x(from), y: strips[there] + MARK }, start);
        }
    }
}
