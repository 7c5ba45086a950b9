//! A timeline in Chrome's trace event format, which Perfetto (ui.perfetto.dev) opens. A rank is a process with a thread of
//! actions and a memory counter. A message is a flow from the action that produces it to the action that consumes it.
//!
//! Source: "Trace Event Format", Duca and Sinclair, 2016. Times are in microseconds.

use super::{BarMemory, Picture};
use ir::schedule::{Item, Kind};
use scheduler::simulate::Timeline;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The text of a trace, an event a line; the picture is of the timeline.
pub fn trace(picture: &Picture, timeline: &Timeline) -> String {
    let scale = microseconds_of(&picture.unit).unwrap_or(1e6);
    let mut events = Vec::new();
    for (rank, row) in picture.rows.iter().enumerate() {
        events.push(meta(rank, "process_name", json!({ "name": row.name })));
        events.push(meta(rank, "process_sort_index", json!({ "sort_index": rank })));
        events.push(meta(rank, "thread_name", json!({ "name": "actions" })));
        for bar in &row.bars {
            let (ts, dur) = (bar.start * scale, (bar.end - bar.start) * scale);
            let mut args = json!({ "critical": bar.critical });
            if let Some(gap) = &bar.gap {
                args["idle before"] = json!((bar.start - gap.since) * scale);
                args["because of"] = gap.reason.into();
                args["waited for"] = picture.rows[gap.on[0]].bars[gap.on[1]].name.as_str().into();
            }
            let name = bar.name.as_str();
            let cat = format!("{:?}", bar.hue);
            events.push(json!({
                "ph": "X", "pid": rank, "tid": 0, "name": name, "cat": cat, "ts": ts, "dur": dur, "args": args
            }));
            if let Some(BarMemory { during, after }) = bar.memory {
                events.push(counter(rank, ts, during));
                events.push(counter(rank, ts + dur, after));
            }
        }
    }
    for (number, [from, to]) in messages(timeline).into_iter().enumerate() {
        // Late in the one and early in the other, but inside both: by its time a flow is bound to a bar.
        for (phase, (rank, at), share) in [("s", from, 0.95), ("f", to, 0.05)] {
            let slot = &timeline.rows[rank][at];
            let ts = (slot.start + share * (slot.end - slot.start)) * scale;
            events.push(json!({
                "ph": phase, "bp": "e", "id": number, "pid": rank, "tid": 0, "ts": ts, "cat": "message", "name": "message"
            }));
        }
    }
    let lines: Vec<String> = events.iter().map(Value::to_string).collect();
    format!("{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{}\n]}}\n", lines.join(",\n"))
}

/// How many microseconds a unit is; `None` for one that is no time.
pub(super) fn microseconds_of(unit: &str) -> Option<f64> {
    match unit {
        "s" => Some(1e6),
        "ms" => Some(1e3),
        "us" | "µs" => Some(1.0),
        "ns" => Some(1e-3),
        _ => None,
    }
}

fn meta(rank: usize, name: &str, args: Value) -> Value {
    json!({ "ph": "M", "pid": rank, "tid": 0, "name": name, "args": args })
}

fn counter(rank: usize, ts: f64, memory: f64) -> Value {
    json!({ "ph": "C", "pid": rank, "name": "memory", "ts": ts, "args": { "memory": memory } })
}

/// A rank and a position in its row.
type At = (usize, usize);

/// All that goes from rank to rank: by whom it is made and needed.
fn messages(timeline: &Timeline) -> Vec<[At; 2]> {
    let mut places: BTreeMap<Item, At> = BTreeMap::new();
    for (rank, row) in timeline.rows.iter().enumerate() {
        for (at, slot) in row.iter().enumerate() {
            places.extend(slot.action.items().map(|item| (item, (rank, at))));
        }
    }
    let mut messages = Vec::new();
    for (&item, &to) in &places {
        let (stage, kinds): (Option<u32>, &[Kind]) = match item.kind {
            Kind::F => (item.stage.and_then(|stage| stage.checked_sub(1)), &[Kind::F]),
            Kind::I | Kind::B => (item.stage.map(|stage| stage + 1), &[Kind::I, Kind::B]),
            _ => continue,
        };
        let Some(stage) = stage else { continue };
        let made = kinds.iter().find_map(|&kind| places.get(&Item { kind, stage: Some(stage), ..item }).copied());
        if let Some(from) = made.filter(|from| from.0 != to.0) {
            messages.push([from, to]);
        }
    }
    messages
}
