//! Traces in Chrome's trace event format, which Perfetto (ui.perfetto.dev) opens.
//!
//! A rank is a process, a stream a thread. Events are complete (`X`) with times in microseconds; flows are pairs of `s` and
//! `f` that are bound to the enclosing events. Source: "Trace Event Format", Duca and Sinclair, 2016.

use super::{Event, EventRef, Flow, Trace, Track};
use serde_json::{Map, Value, json};
use std::io::{self, Write};

/// Writes a trace as text, one event per line.
///
/// # Errors
/// Those of the writer.
pub fn write(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    out.write_all(b"{\"displayTimeUnit\":\"ms\",")?;
    if !trace.note.is_empty() {
        write!(out, "\"otherData\":{},", json!({ "note": trace.note }))?;
    }
    out.write_all(b"\"traceEvents\":[")?;
    let mut lines = Lines { out, first: true };
    for (number, track) in trace.tracks.iter().enumerate() {
        lines.head(track, number)?;
        for event in &track.events {
            lines.line(&complete(trace, track, number, event))?;
        }
    }
    for (number, flow) in trace.flows.iter().enumerate() {
        lines.flow(trace, number, flow)?;
    }
    out.write_all(b"\n]}\n")
}

struct Lines<'a, W> {
    out: &'a mut W,
    first: bool,
}

impl<W: Write> Lines<'_, W> {
    fn line(&mut self, value: &Value) -> io::Result<()> {
        self.out.write_all(if self.first { b"\n" } else { b",\n" })?;
        self.first = false;
        serde_json::to_writer(&mut *self.out, value).map_err(io::Error::from)
    }

    /// Names and order of a rank and a stream.
    fn head(&mut self, track: &Track, number: usize) -> io::Result<()> {
        let mut meta = |name: &str, key: &str, value: Value| {
            let args: Map<String, Value> = [(key.to_string(), value)].into_iter().collect();
            self.line(&json!({ "ph": "M", "pid": track.rank, "tid": number, "name": name, "args": args }))
        };
        let stage = format!("rank {} (stage {})", track.rank, track.stage);
        meta("process_name", "name", stage.into())?;
        meta("process_sort_index", "sort_index", track.rank.into())?;
        meta("thread_name", "name", track.stream.label().into())?;
        meta("thread_sort_index", "sort_index", number.into())
    }

    /// From the start of one event into the middle of the other, or to its position when the first starts: both are in their
    /// slices, and the second is not earlier.
    fn flow(&mut self, trace: &Trace, number: usize, flow: &Flow) -> io::Result<()> {
        let mut end = |place: EventRef, phase: &str, ts: f64| {
            let event = trace.event(place);
            let (pid, tid) = (trace.tracks[place.track as usize].rank, place.track);
            let cat = trace.site(event).kind.label();
            self.line(&json!({
                "ph": phase, "bp": "e", "id": number, "pid": pid, "tid": tid, "ts": ts, "cat": cat, "name": "transfer"
            }))
        };
        let (from, to) = (trace.event(flow.from), trace.event(flow.to));
        end(flow.from, "s", microseconds(from.start))?;
        end(flow.to, "f", microseconds(from.start.max(to.start + to.seconds / 2.0)))
    }
}

fn complete(trace: &Trace, track: &Track, number: usize, event: &Event) -> Value {
    let site = trace.site(event);
    let mut args = Map::from_iter([("stage".to_string(), json!(track.stage))]);
    let mut arg = |name: &str, value: Value| drop(args.insert(name.to_string(), value));
    if let Some(run) = event.run {
        arg("call", run.call.into());
        arg("instance", run.instance.into());
        run.microbatch.into_iter().for_each(|microbatch| arg("microbatch", microbatch.into()));
    }
    for (name, count) in [("bytes", event.bytes.unwrap_or(site.bytes)), ("flops", site.flops)] {
        if count > 0 {
            arg(name, count.into());
        }
    }
    for (name, text) in [("axes", &site.axes), ("shapes", &site.shapes)] {
        if !text.is_empty() {
            arg(name, text.as_str().into());
        }
    }
    json!({
        "ph": "X", "pid": track.rank, "tid": number, "name": site.name, "cat": site.kind.label(),
        "ts": microseconds(event.start), "dur": microseconds(event.seconds), "args": args
    })
}

fn microseconds(seconds: f64) -> f64 {
    seconds * 1e6
}
