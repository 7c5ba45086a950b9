//! Traces in Chrome's trace event format, which Perfetto (ui.perfetto.dev) opens.
//!
//! A rank is a process, a stream a thread; of several processes each is one, with the streams of all its ranks. Events are complete (`X`) with times in microseconds; flows are pairs of `s` and
//! `f` that are bound to the enclosing events. Source: "Trace Event Format", Duca and Sinclair, 2016.

use super::{Event, Flow, Trace, Track};
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
        let rank = format!("rank {} (stage {})", track.rank, track.stage);
        let (process, thread) = match trace.processes.get(pid as usize) {
            Some(process) => (format!("process {pid} on {}", process.host), format!("{rank} {}", track.stream.label())),
            None => (rank, track.stream.label()),
        };
        let metadata = [
            ("process_name", json!({ "name": process })),
            ("process_sort_index", json!({ "sort_index": pid })),
            ("thread_name", json!({ "name": thread })),
            ("thread_sort_index", json!({ "sort_index": number })),
        ];
        metadata.into_iter().try_for_each(|(name, args)| {
            self.line(&json!({ "ph": "M", "pid": pid, "tid": number, "name": name, "args": args }))
        })
    }

    /// From the start of one event into the middle of the other, or to its position when the first starts: both are in their
    /// slices, and the second is not earlier.
    fn flow(&mut self, trace: &Trace, number: usize, flow: &Flow) -> io::Result<()> {
        let (from, to) = (trace.event(flow.from), trace.event(flow.to));
        let arrival = from.start.max(to.start + to.seconds / 2.0);
        for (place, phase, seconds) in [(flow.from, "s", from.start), (flow.to, "f", arrival)] {
            let (pid, tid) = (process_of(trace, &trace.tracks[place.track as usize]), place.track);
            let (ts, cat) = (microseconds(seconds), trace.site(trace.event(place)).kind.label());
            self.line(&json!({
                "ph": phase, "bp": "e", "id": number, "pid": pid, "tid": tid, "ts": ts, "cat": cat, "name": "transfer"
            }))?;
        }
        Ok(())
    }
}

/// The number of a track's process: that of its rank, unless there are several processes.
fn process_of(trace: &Trace, track: &Track) -> u64 {
    let process = trace.processes.iter().position(|process| process.ranks.contains(&track.rank));
    process.map_or(track.rank, |number| number as u64)
}

fn complete(trace: &Trace, track: &Track, number: usize, event: &Event) -> Value {
    let site = trace.site(event);
    let mut args: Vec<(&str, Value)> = vec![("stage", track.stage.into())];
    if let Some(run) = event.run {
        args.extend([("call", run.call.into()), ("instance", run.instance.into())]);
        args.extend(run.microbatch.map(|microbatch| ("microbatch", microbatch.into())));
    }
    let counts = [("bytes", event.bytes.unwrap_or(site.bytes)), ("flops", site.flops)];
    args.extend(counts.into_iter().filter(|(_, count)| *count > 0).map(|(name, count)| (name, count.into())));
    let texts = [("axes", site.axes.as_str()), ("shapes", site.shapes.as_str())];
    args.extend(texts.into_iter().filter(|(_, text)| !text.is_empty()).map(|(name, text)| (name, text.into())));
    let args: Map<String, Value> = args.into_iter().map(|(name, value)| (name.to_string(), value)).collect();
    json!({
        "ph": "X", "pid": process_of(trace, track), "tid": number, "name": site.name, "cat": site.kind.label(),
        "ts": microseconds(event.start), "dur": microseconds(event.seconds), "args": args
    })
}

fn microseconds(seconds: f64) -> f64 {
    seconds * 1e6
}
