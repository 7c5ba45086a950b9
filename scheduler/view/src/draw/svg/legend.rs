//! Legend of a page's colours and marks. It has only those that occur.

use super::super::{Bar, DrawnRow, Hue, Picture, ink};
use super::pen::{Pen, Point, Size};
use super::{Frame, LEFT, RIGHT};
use std::collections::BTreeSet;

/// Pixels of a sample, and of a letter of its text.
const SAMPLE: Size = Size { width: 26.0, height: 14.0 };
const LETTER: f64 = 6.8;
const LINE: f64 = 22.0;

enum LegendKey {
    Bar(Hue),
    Shade(f64),
    Idle(&'static str),
    Line(&'static str),
}

/// Draws the legend from `top` on and gives where it ends.
pub(super) fn draw(pen: &mut Pen, frame: &Frame, pictures: &[Picture], top: f64) -> f64 {
    let (mut x, mut y) = (LEFT, top);
    for (key, text) in keys(pictures) {
        let width = SAMPLE.width + 6.0 + LETTER * text.len() as f64 + 16.0;
        if x > LEFT && x + width > LEFT + frame.width + RIGHT {
            (x, y) = (LEFT, y + LINE);
        }
        let (at, middle) = (Point { x, y }, y + 0.5 * SAMPLE.height);
        match key {
            LegendKey::Bar(hue) => pen.bar(hue, 0.0, at, SAMPLE, text),
            LegendKey::Shade(shade) => pen.bar(Hue::F, shade, at, SAMPLE, text),
            LegendKey::Idle(class) => pen.rect(class, at, SAMPLE),
            LegendKey::Line("critical") => {
                pen.rect("critical", Point { x, y: middle - 1.5 }, Size { height: 3.0, ..SAMPLE });
            }
            LegendKey::Line(class) => {
                pen.line(class, Point { x, y: middle }, Point { x: x + SAMPLE.width, y: middle });
            }
        }
        pen.text(x + SAMPLE.width + 6.0, y + 11.0, "key", text);
        x += width;
    }
    y + LINE + 4.0
}

fn keys(pictures: &[Picture]) -> Vec<(LegendKey, &'static str)> {
    let rows: Vec<&DrawnRow> = pictures.iter().flat_map(|picture| &picture.rows).collect();
    let bars: Vec<&Bar> = rows.iter().flat_map(|row| &row.bars).collect();
    let reasons: BTreeSet<&str> = bars.iter().filter_map(|bar| bar.gap.as_ref()).map(|gap| gap.reason).collect();
    let is_shaded = bars.iter().any(|bar| bar.shade > 0.0);
    let mut keys: Vec<(LegendKey, &'static str)> = ink::ALL
        .into_iter()
        .filter(|hue| pictures.iter().any(|picture| picture.hues().contains(hue)))
        .map(|hue| (LegendKey::Bar(hue), ink::meaning(hue)))
        .collect();
    let known = [
        (LegendKey::Shade(0.0), "dark: a rank's first stage, or the way down", is_shaded),
        (LegendKey::Shade(1.0), "light: its last, or the way up", is_shaded),
        (LegendKey::Idle("idle"), "waits for another rank", reasons.contains("dependency")),
        (LegendKey::Idle("latency"), "in flight", bars.iter().any(|bar| bar.waits_for_message())),
        (LegendKey::Idle("memory"), "blocked by the memory limit", reasons.contains("memory")),
        (LegendKey::Line("critical"), "critical path", bars.iter().any(|bar| bar.critical)),
        (LegendKey::Line("curve"), "memory in use", rows.iter().any(|row| row.peak.is_some())),
        (LegendKey::Line("limit"), "memory limit", rows.iter().any(|row| row.limit.is_some())),
    ];
    keys.extend(known.into_iter().filter(|(_, _, occurs)| *occurs).map(|(key, text, _)| (key, text)));
    keys
}
