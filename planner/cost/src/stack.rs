//! The software: how well a framework uses the hardware. A file of `planner/cost/stacks/`.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A framework in a version.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stack {
    /// As `--stack` says it.
    pub name: String,
    /// One line on it, and where its facts are from.
    pub about: String,
    /// What is fitted to measured runs, at most eight, by name.
    pub fitted: BTreeMap<String, Constant>,
    /// What is known of its code.
    #[serde(flatten)]
    pub facts: Facts,
}

/// A fitted figure and the interval that physics leaves it.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    /// The figure.
    pub value: f64,
    /// The least that it can be.
    pub low: f64,
    /// The most that it can be.
    pub high: f64,
}

/// What is known of a framework's code.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Facts {
    /// Kernels are replayed from graphs: launches cost nothing.
    pub graphs: bool,
    /// Groups of ops that are one kernel.
    pub fused: Vec<String>,
    /// What it keeps for the backward beyond what the graph reads, by op.
    pub saved: BTreeMap<String, f64>,
    /// Which communication hides behind compute: tp, dp, cp, ep, p2p.
    pub hides: Vec<String>,
    /// Bytes of an accumulated gradient.
    pub gradient_bytes: f64,
    /// Bytes of a gradient on the wire.
    pub wire_bytes: f64,
}
