//! Pictures as one HTML page with zoom, pan and a tooltip for every element. The page loads no external resource.

use super::page::{filled, page};
use super::{Bar, DrawnRow, Picture, ink};
use serde_json::{Value, json};
use support::one_line::in_json;

const BODY: &str = include_str!("html/page.html");
const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = include_str!("html/page.js");

/// A page with one picture, or several above each other on one time axis.
pub fn html(pictures: &[Picture]) -> String {
    let titles: Vec<&str> = pictures.iter().map(|picture| picture.title.as_str()).collect();
    let colours: serde_json::Map<String, Value> =
        ink::ALL.into_iter().map(|hue| (format!("{hue:?}"), colour(hue))).collect();
    let data = json!({ "colours": colours, "pictures": pictures.iter().map(picture).collect::<Vec<_>>() });
    // No text may end the element that holds it.
    let data = in_json(&data.to_string()).replace('<', "\\u003c");
    page(&titles.join(" / "), STYLE, &filled(BODY, &[("script", SCRIPT), ("data", &data)]))
}

fn colour(hue: super::Hue) -> Value {
    let ends = [0.0, 1.0].map(|shade| ink::fill(hue, shade).channels());
    json!({ "ends": ends, "meaning": ink::meaning(hue) })
}

fn picture(picture: &Picture) -> Value {
    json!({
        "title": picture.title,
        "facts": picture.summary,
        "unit": picture.unit,
        "makespan": picture.makespan,
        "rows": picture.rows.iter().map(row).collect::<Vec<_>>(),
    })
}

fn row(row: &DrawnRow) -> Value {
    let bars: Vec<Value> = row.bars.iter().map(bar).collect();
    json!({ "name": row.name, "peak": row.peak, "limit": row.limit, "bars": bars })
}

/// Lists are shorter than objects: a large schedule has tens of thousands of bars.
fn bar(bar: &Bar) -> Value {
    let gap = bar.gap.as_ref().map(|gap| json!([short(gap.since), short(gap.made), gap.reason, gap.on[0], gap.on[1]]));
    let memory = bar.memory.map(|memory| [memory.during, memory.after].map(short));
    json!([
        format!("{:?}", bar.hue),
        bar.name,
        bar.texts,
        short(bar.start),
        short(bar.end),
        short(bar.shade),
        u8::from(bar.critical),
        gap,
        memory
    ])
}

/// A number without the digits that nobody sees: nine are enough for the deepest zoom.
fn short(value: f64) -> Value {
    if value.fract() == 0.0 && value.abs() < 1e15 {
        return json!(value as i64);
    }
    json!(format!("{value:.8e}").parse::<f64>().unwrap_or(value))
}
