//! Aggregated traces of many steps: the time per kernel, and each kernel's fraction of the machine's peak.

use super::{SiteKind, Trace, shares};
use serde::Serialize;
use std::collections::BTreeMap;

/// Peak rates of a machine, over all its cores.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Peak {
    /// Floating-point operations per second of a large matrix product.
    pub flops: f64,
    /// Bytes per second between memory and cores.
    pub bandwidth: f64,
}

/// A kernel on equal shapes, over all ranks and steps.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct KernelTime {
    /// The op.
    pub op: String,
    /// The shapes of its operands on a rank.
    pub shapes: String,
    /// `matmul`, `attention` or `memory-bound`.
    pub kind: &'static str,
    /// How often it ran.
    pub calls: u64,
    /// Seconds of all calls.
    pub seconds: f64,
    /// FLOPs of all calls.
    pub flops: u64,
    /// Bytes that all calls read and wrote.
    pub bytes: u64,
}

/// Profile of some steps.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Profile {
    /// How many steps.
    pub steps: u64,
    /// Number of ranks; each of them computes.
    pub ranks: u64,
    /// Seconds of all steps.
    pub seconds: f64,
    kernels: BTreeMap<(String, String), KernelTime>,
    shares: BTreeMap<String, f64>,
}

impl Profile {
    /// Adds a step.
    pub fn add(&mut self, trace: &Trace) {
        self.steps += 1;
        self.seconds += trace.seconds;
        let mut calls = vec![(0, 0.0); trace.sites.len()];
        for event in trace.tracks.iter().flat_map(|track| &track.events) {
            let (count, seconds) = &mut calls[event.site as usize];
            (*count, *seconds) = (*count + 1, *seconds + event.seconds);
        }
        for (site, (calls, seconds)) in trace.sites.iter().zip(calls) {
            if site.kind.computes() && calls > 0 {
                let key = (site.op.clone(), site.shapes.clone());
                let kernel = self.kernels.entry(key).or_insert_with_key(|(op, shapes)| KernelTime {
                    op: op.clone(),
                    shapes: shapes.clone(),
                    kind: site.kind.label(),
                    calls: 0,
                    seconds: 0.0,
                    flops: 0,
                    bytes: 0,
                });
                kernel.calls += calls;
                kernel.seconds += seconds;
                kernel.flops = kernel.flops.saturating_add(calls.saturating_mul(site.flops));
                kernel.bytes = kernel.bytes.saturating_add(calls.saturating_mul(site.bytes));
            }
        }
        for (name, seconds) in seconds_by_share(trace) {
            *self.shares.entry(name).or_default() += seconds;
        }
        self.ranks = shares(trace).len() as u64;
    }

    /// Kernels, the longest first.
    pub fn kernels(&self) -> Vec<KernelTime> {
        let mut kernels: Vec<KernelTime> = self.kernels.values().cloned().collect();
        kernels.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
        kernels
    }

    /// Shares of the time of all ranks, by name.
    pub fn shares(&self) -> BTreeMap<String, f64> {
        let all: f64 = self.shares.values().sum();
        self.shares.iter().map(|(name, seconds)| (name.clone(), seconds / all)).collect()
    }
}

impl KernelTime {
    /// The share that it reaches of what the machine allows for its FLOPs and bytes, where it has one of so many equal parts
    /// of the machine (the roofline of Williams, Waterman and Patterson 2009).
    pub fn of_roofline(&self, peak: &Peak, parts: u64) -> f64 {
        let least = (self.flops as f64 / peak.flops).max(self.bytes as f64 / peak.bandwidth);
        least * parts as f64 / self.seconds
    }
}

/// Rank seconds of a step by what they go to; those of all ranks add up to the step times its ranks.
pub fn seconds_by_share(trace: &Trace) -> BTreeMap<String, f64> {
    let mut all: BTreeMap<String, f64> = BTreeMap::new();
    for rank in &shares(trace) {
        let kernels = [SiteKind::Matmul, SiteKind::Attention, SiteKind::Memory]
            .map(|kind| (kind.label().to_string(), rank.compute.get(&kind).copied().unwrap_or(0.0)));
        let transfers = rank.exposed.iter().map(|(axes, seconds)| (format!("communication over {axes}"), *seconds));
        let pauses = [
            ("waiting for async runs".to_string(), rank.async_work),
            ("waiting for other ranks".to_string(), rank.waiting),
            ("idle".to_string(), rank.idle),
        ];
        for (name, seconds) in kernels.into_iter().chain(transfers).chain(pauses) {
            *all.entry(name).or_default() += seconds;
        }
    }
    all.retain(|_, seconds| *seconds > 0.0);
    all
}
