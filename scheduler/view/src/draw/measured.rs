//! Pictures of measured traces in Chrome's format, as `train --trace` or `schedule --format trace` writes them.
//!
//! One process of each pipeline rank is drawn, the first. The events drawn are block instances, named `layer.F`, or actions,
//! named `2F3`. Consecutive block instances of the same section and micro-batch form one bar.

use super::trace::microseconds_of;
use super::{Bar, DrawnRow, Hue, Picture};
use ir::schedule::{Action, Kind};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Why a trace cannot be drawn.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum MeasuredError {
    /// It is no JSON of this form.
    #[error("no trace in Chrome's format: {0}")]
    Form(String),
    /// A run is at a time that no trace has.
    #[error("the trace has `{0}` at {1:e} us for {2:e} us, which cannot be")]
    Time(String, f64, f64),
    /// It has no run of a block.
    #[error("the trace has no instance of a section F, I, W or B of a block")]
    Empty,
}

#[derive(Deserialize)]
struct File {
    #[serde(rename = "traceEvents")]
    events: Vec<Event>,
}

#[derive(Deserialize)]
struct Event {
    ph: String,
    #[serde(default)]
    pid: u64,
    #[serde(default)]
    name: String,
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    #[serde(default)]
    args: Args,
}

#[derive(Default, Deserialize)]
struct Args {
    stage: Option<u32>,
    microbatch: Option<u32>,
}

/// The latest time of a trace, in microseconds: beyond the age of any clock.
const LATEST: f64 = 1e18;

/// Reads a trace as a picture with times in `unit`; its first bar starts at 0.
///
/// # Errors
/// The text is no trace, or one without runs.
pub fn measured(text: &str, name: &str, unit: &str) -> Result<Picture, MeasuredError> {
    let file: File = serde_json::from_str(text).map_err(|why| MeasuredError::Form(why.to_string()))?;
    let scale = microseconds_of(unit).unwrap_or(1e6);
    // By pipeline rank: the process that stands for it, and its bars.
    let mut ranks: BTreeMap<u64, (u64, Vec<Bar>)> = BTreeMap::new();
    for event in file.events.iter().filter(|event| event.ph == "X") {
        let Some(bar) = bar(event, scale) else { continue };
        if event.ts.abs() > LATEST || !(0.0..=LATEST).contains(&event.dur) {
            return Err(MeasuredError::Time(event.name.clone(), event.ts, event.dur));
        }
        let rank = event.args.stage.map_or(event.pid, u64::from);
        let (process, bars) = ranks.entry(rank).or_insert((event.pid, Vec::new()));
        if event.pid < *process {
            (*process, *bars) = (event.pid, Vec::new());
        }
        if event.pid == *process {
            bars.push(bar);
        }
    }
    let start = ranks.values().flat_map(|(_, bars)| bars).map(|bar| bar.start).fold(f64::INFINITY, f64::min);
    let rows: Vec<DrawnRow> = (ranks.into_iter())
        .map(|(rank, (_, bars))| DrawnRow {
            name: format!("rank {rank}"),
            bars: joined(bars, start),
            peak: None,
            limit: None,
        })
        .collect();
    if rows.is_empty() {
        return Err(MeasuredError::Empty);
    }
    let makespan = rows.iter().filter_map(|row| row.bars.last()).map(|bar| bar.end).fold(0.0, f64::max);
    Ok(Picture {
        title: format!("{name}: {} ranks, from a trace", rows.len()),
        summary: summary(&rows, makespan, unit),
        unit: unit.into(),
        makespan,
        rows,
    })
}

fn summary(rows: &[DrawnRow], makespan: f64, unit: &str) -> String {
    let busy = rows.iter().map(|row| row.bars.iter().map(|bar| bar.end - bar.start).sum());
    let busiest = busy.fold(0.0, f64::max);
    let bubble = if makespan > 0.0 { 100.0 * (makespan - busiest) / makespan } else { 0.0 };
    format!("makespan {} {unit}; bubble {bubble:.1} %", super::axis::figure(makespan))
}

/// The bar of a run; `None` for any other event.
fn bar(event: &Event, scale: f64) -> Option<Bar> {
    let (hue, name) = match event.name.parse::<Action>() {
        Ok(Action::One(item)) if item.stage.is_some() && item.microbatch.is_some() => {
            (Hue::of(item.kind), event.name.clone())
        }
        Ok(Action::Pair(..)) => (Hue::P, event.name.clone()),
        _ => {
            let (_, section) = event.name.rsplit_once('.')?;
            let mut letters = section.chars();
            let kind = letters.next().and_then(Kind::from_letter).filter(|_| letters.next().is_none())?;
            (Hue::of(kind), format!("{section}{}", event.args.microbatch?))
        }
    };
    let texts = name.trim_matches(['(', ')']).split('|').map(str::to_string).collect();
    let (start, end) = (event.ts / scale, (event.ts + event.dur) / scale);
    (hue != Hue::X).then_some(Bar {
        hue,
        name,
        texts,
        start,
        end,
        shade: 0.0,
        critical: false,
        gap: None,
        memory: None,
    })
}

/// Bars in the order of time, from `start` on; those of the same name that follow each other are one.
fn joined(mut bars: Vec<Bar>, start: f64) -> Vec<Bar> {
    bars.sort_by(|a, b| a.start.total_cmp(&b.start));
    let mut joined: Vec<Bar> = Vec::with_capacity(bars.len());
    for bar in bars {
        match joined.last_mut() {
            Some(last) if last.name == bar.name => last.end = last.end.max(bar.end - start),
            _ => joined.push(Bar { start: bar.start - start, end: bar.end - start, ..bar }),
        }
    }
    joined
}
