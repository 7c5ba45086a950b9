//! A step that a run traced.

use super::training::{Curve, Runs};
use crate::lanes::{Lanes, lanes};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;

/// The trace of a step, and the numbers that the run reported.
pub(crate) struct Traced {
    pub(crate) curve: Curve,
    pub(crate) lanes: Lanes,
    /// Events without their times: rank, lane, name, kind and arguments, each with its number.
    pub(crate) events: BTreeMap<String, usize>,
    pub(crate) note: String,
}

impl Traced {
    /// Traces a step of a run. Events of a lane do not overlap.
    pub(crate) fn step(runs: &Runs<'_>, backend: &str, parallel: &str, step: u64) -> Traced {
        let path = runs.path(&format!("{backend}.json"));
        let (file, step) = (path.to_str().unwrap(), step.to_string());
        let curve = runs.curve(backend, &["--parallel", parallel, "--trace", file, "--trace-step", &step]);
        let trace: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let all = trace["traceEvents"].as_array().unwrap();
        let named = all.iter().filter(|event| event["name"] == "thread_name");
        let names: BTreeMap<u64, &Value> =
            named.map(|event| (event["tid"].as_u64().unwrap(), &event["args"]["name"])).collect();
        let mut events = BTreeMap::new();
        for event in all.iter().filter(|event| event["ph"] == "X") {
            let lane = names[&event["tid"].as_u64().unwrap()];
            let [rank, name, kind] = ["pid", "name", "cat"].map(|key| &event[key]);
            let mut args = event["args"].clone();
            // How many rows a ragged exchange moves is read on the device: the host of a GPU knows the mean.
            if name.as_str().is_some_and(|name| name.ends_with("all_to_all")) {
                args["bytes"].take();
            }
            *events.entry(format!("{rank} {lane} {name} {kind} {args}")).or_default() += 1;
        }
        let note = trace["otherData"]["note"].as_str().unwrap_or_default().to_string();
        Traced { curve, lanes: lanes(&path), events, note }
    }
}
