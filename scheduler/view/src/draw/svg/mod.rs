//! Pictures as SVG: one file, no scripts, readable on paper without colour.
//!
//! Under each rank's bars is the rank's memory over time, with its limit. Pictures drawn together are stacked on one time
//! axis.

mod legend;
mod pen;
mod row;

use super::{Picture, axis};
use pen::{Pen, Point};
use row::{BAR, MEMORY};

/// Pixels left of time 0, for names of ranks; right of the last bar; and above the first row.
const LEFT: f64 = 84.0;
const RIGHT: f64 = 24.0;
const HEAD: f64 = 58.0;
/// Between two rows, and between two pictures.
const BETWEEN: f64 = 12.0;
const APART: f64 = 22.0;

/// Pixels of a bar on average, so that it holds its text, and the least and the most of a whole row.
const BAR_WIDTH: f64 = 24.0;
const LEAST_WIDTH: f64 = 920.0;
const MOST_WIDTH: f64 = 12_000.0;

/// Pixels between two marks of the time axis, at least.
const MARKS: f64 = 70.0;

/// Layout of a picture on the page.
struct Frame {
    /// Pixels per unit of time.
    scale: f64,
    /// Pixels from left to right.
    width: f64,
    /// Memory at the top of the curve's scale; 0 without a curve.
    most_memory: f64,
}

impl Frame {
    fn of(pictures: &[Picture]) -> Frame {
        let makespan = pictures.iter().map(|picture| picture.makespan).fold(0.0, f64::max);
        let bars = pictures.iter().flat_map(|picture| &picture.rows).map(|row| row.bars.len()).max().unwrap_or(0);
        let width = (bars as f64 * BAR_WIDTH).clamp(LEAST_WIDTH, MOST_WIDTH);
        let most_memory = pictures.iter().map(Picture::most_memory).fold(0.0, f64::max);
        Frame { scale: if makespan > 0.0 { width / makespan } else { 0.0 }, width, most_memory }
    }

    /// Pixels of a row, with the gap to the next.
    fn row(&self, picture: &Picture) -> f64 {
        let known = self.most_memory > 0.0 && picture.rows.iter().any(|row| row.peak.is_some());
        BAR + if known { MEMORY } else { 0.0 } + BETWEEN
    }

    fn x(&self, time: f64) -> f64 {
        LEFT + time * self.scale
    }
}

/// Draws one picture, or several above each other.
pub fn svg(pictures: &[Picture]) -> String {
    let frame = Frame::of(pictures);
    let mut pen = Pen::default();
    let mut y = 0.0;
    for picture in pictures {
        let top = y + HEAD;
        let height = frame.row(picture);
        let bottom = top + height * picture.rows.len() as f64;
        pen.text(LEFT, y + 26.0, "title", &picture.title);
        pen.text(LEFT, y + 44.0, "facts", &picture.summary);
        grid_lines(&mut pen, &frame, picture, top - 6.0, bottom);
        for (number, row) in picture.rows.iter().enumerate() {
            row::draw(&mut pen, &frame, row, top + height * number as f64);
        }
        row::critical_path(&mut pen, &frame, picture, top);
        y = bottom + 14.0 + APART;
    }
    y = legend::draw(&mut pen, &frame, pictures, y - 6.0);
    pen.page(frame.width + LEFT + RIGHT, y)
}

/// A line and a number for round times.
fn grid_lines(pen: &mut Pen, frame: &Frame, picture: &Picture, top: f64, bottom: f64) {
    if frame.scale == 0.0 {
        return;
    }
    let step = axis::step(MARKS / frame.scale);
    for number in 0.. {
        let time = f64::from(number) * step;
        let x = frame.x(time);
        if time > picture.makespan * (1.0 + 1e-9) {
            break;
        }
        pen.line("tick", Point { x, y: top }, Point { x, y: bottom });
        let unit = if number == 0 { format!(" {}", picture.unit) } else { String::new() };
        pen.text(x, bottom + 12.0, "time", &format!("{}{unit}", axis::label(time, step)));
    }
}
