//! Traces in Chrome's trace event format, which Perfetto (ui.perfetto.dev) opens.
//!
//! A rank is a process, a stream a thread; of several processes each is one, with the streams of all its ranks. Events are complete (`X`) with times in microseconds; flows are pairs of `s` and
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
        lines.head(trace, track, number)?;
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

    /// Names and order of a process and a thread.
    fn head(&mut self, trace: &Trace, track: &Track, number: usize) -> io::Result<()> {
        let pid = process_of(trace, track);
        let mut meta = |name: &str, key: &str, value: Value| {
            let args: Map<String, Value> = [(key.to_string(), value)].into_iter().collect();
            self.line(&json!({ "ph": "M", "pid": pid, "tid": number, "name": name, "args": args }))
        };
        let rank = format!("rank {} (stage {})", track.rank, track.stage);
        let (process, thread) = match trace.processes.get(pid as usize) {
            Some(process) => (format!("process {pid} on {}", process.host), format!("{rank} {}", track.stream.label())),
            None => (rank, track.stream.label()),
        };
        meta("process_name", "name", process.into())?;
        meta("process_sort_index", "sort_index", pid.into())?;
        meta("thread_name", "name", thread.into())?;
        meta("thread_sort_index", "sort_index", number.into())
    }

    /// From the start of one event into the middle of the other, or to its position when the first starts: both are in their
    /// slices, and the second is not earlier.
    fn flow(&mut self, trace: &Trace, number: usize, flow: &Flow) -> io::Result<()> {
        let mut end = |place: EventRef, phase: &str, ts: f64| {
            let event = trace.event(place);
            let (pid, tid) = (process_of(trace, &trace.tracks[place.track as usize]), place.track);
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

/// The number of a track's process: that of its rank, unless there are several processes.
fn process_of(trace: &Trace, track: &Track) -> u64 {
    let process = trace.processes.iter().position(|process| process.ranks.contains(&track.rank));
    process.map_or(track.rank, |number| number as u64)
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
        "ph": "X", "pid": process_of(trace, track), "tid": number, "name": site.name, "cat": site.kind.label(),
        "ts": microseconds(event.start), "dur": microseconds(event.seconds), "args": args
    })
}

fn microseconds(seconds: f64) -> f64 {
    seconds * 1e6
}
