//! Written traces, read back.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Events of a written trace by rank and lane: name, kind, start and end.
pub(crate) type Lanes = BTreeMap<(u64, String), Vec<(String, String, f64, f64)>>;

/// Reads a trace back and checks invariants of all traces. Events of a lane follow each other, except that the steps of a run
/// are within the run. Flows come in pairs that do not end before they begin, each at an event of its lane.
pub(crate) fn lanes(path: &Path) -> Lanes {
    let file: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    let (mut names, mut lanes, mut flows) = (BTreeMap::new(), Lanes::new(), BTreeMap::<u64, Vec<(u64, f64)>>::new());
    for event in file["traceEvents"].as_array().unwrap() {
        let (lane, ts) = (event["tid"].as_u64().unwrap(), event["ts"].as_f64());
        match event["ph"].as_str().unwrap() {
            "M" if event["name"] == "thread_name" => {
                let rank = event["pid"].as_u64().unwrap();
                names.insert(lane, (rank, event["args"]["name"].as_str().unwrap().to_string()));
            }
            "M" => {}
            "X" => {
                let text = |key: &str| event[key].as_str().unwrap().to_string();
                let (start, seconds) = (ts.unwrap(), event["dur"].as_f64().unwrap());
                let of_lane = lanes.entry(names[&lane].clone()).or_default();
                of_lane.push((text("name"), text("cat"), start, start + seconds));
            }
            _ => flows.entry(event["id"].as_u64().unwrap()).or_default().push((lane, ts.unwrap())),
        }
    }
    for (lane, events) in &lanes {
        let (mut run, mut before) = ((f64::INFINITY, 0.0), 0.0);
        for (name, kind, start, end) in events {
            assert!(*start >= before - 1e-6, "{name} begins at {start}, before {before}, on {lane:?}");
            if kind == "run" {
                (run, before) = ((*start, *end), *start);
            } else {
                let outside = *start >= run.1 - 1e-6 || *end <= run.0;
                assert!(outside || *end <= run.1 + 1e-6, "{name} leaves its run on {lane:?}");
                before = *end;
            }
        }
    }
    for ends in flows.values() {
        let [(from, start), (to, end)] = ends[..] else { panic!("a flow has two ends: {ends:?}") };
        assert!(start <= end, "a flow from {start} to {end}");
        for (lane, at) in [(from, start), (to, end)] {
            assert!(
                lanes[&names[&lane]].iter().any(|event| event.2 - 1e-6 <= at && at <= event.3 + 1e-6),
                "a flow ends at no event"
            );
        }
    }
    lanes
}
