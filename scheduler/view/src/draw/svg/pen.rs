//! SVG elements as text.

use super::super::page::escaped;
use super::super::{Hue, ink};
use std::fmt::Write;

/// A point in pixels.
#[derive(Clone, Copy)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
}

/// The size of a rectangle in pixels.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) width: f64,
    pub(super) height: f64,
}

/// The elements written so far.
#[derive(Default)]
pub(super) struct Pen {
    out: String,
}

/// The look of what has a class.
const STYLE: &str = include_str!("style.css");

/// The hatchings, one for each hue but F, and those of idle time.
const PATTERNS: &str = include_str!("patterns.svg");

impl Pen {
    /// The whole file.
    pub(super) fn page(self, width: f64, height: f64) -> String {
        let (w, h) = (number(width), number(height));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{h}\" viewBox=\"0 0 {w} {h}\">\n\
             <style>\n{STYLE}</style>\n<defs>\n{PATTERNS}</defs>\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{}</svg>\n",
            self.out
        )
    }

    pub(super) fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        let _ = writeln!(
            self.out,
            "<text x=\"{}\" y=\"{}\" class=\"{class}\">{}</text>",
            number(x),
            number(y),
            escaped(text)
        );
    }

    /// Text in the middle of a bar, as large as fits.
    pub(super) fn centred(&mut self, at: Point, size: f64, white: bool, text: &str) {
        let class = if white { "white" } else { "black" };
        let _ = writeln!(
            self.out,
            "<text x=\"{}\" y=\"{}\" class=\"{class}\" font-size=\"{}\">{}</text>",
            number(at.x),
            number(at.y + 0.36 * size),
            number(size),
            escaped(text)
        );
    }

    pub(super) fn line(&mut self, class: &str, from: Point, to: Point) {
        let [x1, y1, x2, y2] = [from.x, from.y, to.x, to.y].map(number);
        let _ = writeln!(self.out, "<line class=\"{class}\" x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\"/>");
    }

    pub(super) fn rect(&mut self, class: &str, at: Point, size: Size) {
        let _ = writeln!(self.out, "<rect class=\"{class}\" {}/>", bounds(at, size));
    }

    /// A bar in its colour, hatched, with what a browser shows when the pointer rests on it.
    pub(super) fn bar(&mut self, hue: Hue, shade: f64, at: Point, size: Size, tip: &str) {
        let (fill, place) = (ink::fill(hue, shade), bounds(at, size));
        let _ =
            writeln!(self.out, "<rect class=\"bar\" {place} fill=\"{fill}\"><title>{}</title></rect>", escaped(tip));
        if hue != Hue::F {
            let _ = writeln!(self.out, "<rect class=\"over\" {place} fill=\"url(#{hue:?})\"/>");
        }
    }

    /// A broken line through points, or with `class="area"` what lies below it.
    pub(super) fn path(&mut self, class: &str, points: &[Point]) {
        let _ = write!(self.out, "<path class=\"{class}\" d=\"");
        for (at, Point { x, y }) in points.iter().enumerate() {
            let letter = if at == 0 { 'M' } else { 'L' };
            let _ = write!(self.out, "{letter}{} {}", number(*x), number(*y));
        }
        self.out.push_str("\"/>\n");
    }
}

/// The attributes of a rectangle.
fn bounds(at: Point, size: Size) -> String {
    let [x, y, width, height] = [at.x, at.y, size.width, size.height].map(number);
    format!("x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"")
}

/// A number to hundredths of a pixel, as short as it can be.
fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}
