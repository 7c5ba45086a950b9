//! Tests that traces survive a write and a read unchanged.

use super::*;
use serde_json::Value;

fn site(name: &str, kind: SiteKind) -> TraceSite {
    TraceSite {
        name: name.into(),
        op: name.into(),
        kind,
        flops: 0,
        bytes: 8,
        axes: String::new(),
        shapes: String::new(),
    }
}

fn event(site: u32, start: f64, seconds: f64) -> Event {
    Event { site, start, seconds, run: None, awaits: None, bytes: None }
}

/// Two ranks and a message.
fn small() -> Trace {
    let mut trace = Trace {
        sites: vec![site("send %y", SiteKind::Transfer), site("a.F %y = silu", SiteKind::Memory)],
        ..Trace::default()
    };
    let receives = trace.track(4, 1, &Stream::Receives);
    let to = trace.push(receives, event(0, 2e-6, 1e-6));
    let row = trace.track(0, 0, &Stream::Main);
    trace.push(row, event(1, 0.0, 2e-6));
    let sends = trace.track(0, 0, &Stream::Sends);
    let from = trace.push(sends, event(0, 2e-6, 1e-6));
    trace.flows.push(Flow { from, to });
    trace
}

#[test]
fn a_written_trace_is_what_perfetto_reads() {
    let mut text = Vec::new();
    write(&small(), &mut text).unwrap();
    let file: Value = serde_json::from_slice(&text).unwrap();
    let events = file["traceEvents"].as_array().unwrap();
    let events_of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).collect::<Vec<_>>();
    assert_eq!((events_of("X").len(), events_of("s").len(), events_of("f").len()), (3, 1, 1));
    assert_eq!(events_of("M").len(), 4 * 3, "names and order of a process and a thread for each lane");
    let kernel = events_of("X").into_iter().find(|event| event["name"] == "a.F %y = silu").unwrap();
    assert_eq!((kernel["ts"].as_f64(), kernel["dur"].as_f64(), &kernel["pid"]), (Some(0.0), Some(2.0), &0.into()));
    let (start, end) = (events_of("s")[0], events_of("f")[0]);
    assert_eq!((&start["id"], &start["pid"], &end["pid"]), (&end["id"], &0.into(), &4.into()));
    assert!(start["ts"].as_f64() <= end["ts"].as_f64());
}

#[test]
fn sorting_keeps_who_is_meant() {
    let mut trace = small();
    trace.sort();
    let streams: Vec<(u64, Stream)> = trace.tracks.iter().map(|track| (track.rank, track.stream.clone())).collect();
    assert_eq!(streams, [(0, Stream::Main), (0, Stream::Sends), (4, Stream::Receives)]);
    let Flow { from, to } = trace.flows[0];
    assert_eq!((from.track, to.track), (1, 2));
}
