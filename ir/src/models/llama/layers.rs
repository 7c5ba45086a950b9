//! The kinds of a model's layers, and their order.

use super::config::{LlamaConfig, Norms, Sinks};
use crate::ids::BlockId;
use crate::models::experts::Experts;
use crate::models::layer_set::Window;
use crate::models::mixers::Scanned;
use crate::models::rotation::{GRID, LENGTHS, Rotation};
use crate::ops::Scaling;
use std::ops::Range;

/// The dims of heads in a kind of layer, behind `b s`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct HeadDims {
    /// Heads.
    pub(super) heads: &'static str,
    /// Queries.
    pub(super) queries: &'static str,
    /// Keys.
    pub(super) keys: &'static str,
    /// Values.
    pub(super) values: &'static str,
    /// Results of heads.
    pub(super) given: &'static str,
    /// Elements of a query or key.
    pub(super) size: &'static str,
}

impl HeadDims {
    const ALIKE: HeadDims =
        HeadDims { heads: "g r", queries: "g r d", keys: "g d", values: "g d", given: "g r d", size: "d" };
    const LOCAL: HeadDims =
        HeadDims { heads: "gl rl", queries: "gl rl d", keys: "gl d", values: "gl d", given: "gl rl d", size: "d" };
    /// Local heads of another size.
    const SMALL: HeadDims =
        HeadDims { heads: "gl rl", queries: "gl rl dl", keys: "gl dl", values: "gl dl", given: "gl rl dl", size: "dl" };

    fn of(is_local: bool, has_values: bool, has_size: bool) -> HeadDims {
        match (is_local, has_values) {
            _ if is_local && has_size => HeadDims::SMALL,
            (false, false) => HeadDims::ALIKE,
            (false, true) => HeadDims { values: "g dv", given: "g r dv", ..HeadDims::ALIKE },
            (true, false) => HeadDims::LOCAL,
            (true, true) => HeadDims { values: "gl dv", given: "gl rl dv", ..HeadDims::LOCAL },
        }
    }
}

/// How a layer has the keys to which its queries attend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum KeyChoice {
    /// They attend to all that they see.
    All,
    /// Its own indexer chooses.
    Own,
    /// They are those of the last layer with an indexer.
    Shared,
}

/// A kind of layer: a block of the model.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct LayerKind<'a> {
    /// The name of the block, and of the array of its parameters.
    pub(super) name: String,
    /// The experts in place of a feed-forward net, if any.
    pub(super) experts: Option<&'a Experts>,
    /// It has attention, or what is in its place.
    pub(super) mixes: bool,
    /// It has a feed-forward net, or experts in its place.
    pub(super) has_net: bool,
    /// The state that it carries in place of attention or together with it, if any.
    pub(super) scanned: Option<&'a Scanned>,
    /// The window of attention, if any.
    pub(super) window: Option<Window>,
    /// How positions turn queries and keys; none: they have no positions.
    pub(super) rotation: Option<&'a Rotation>,
    /// The norms of its branches.
    pub(super) norms: Norms,
    /// Attention reads the stream itself.
    pub(super) bare: bool,
    /// The result of attention has a bias.
    pub(super) out_bias: bool,
    /// Key and value heads.
    pub(super) kv_heads: u64,
    /// The dims of heads.
    pub(super) dims: HeadDims,
    /// Size of a head.
    pub(super) head: u64,
    /// Values are what keys are made of.
    pub(super) keys_are_values: bool,
    /// Heads have a sink.
    pub(super) sinks: bool,
    /// The keys of queries.
    pub(super) choice: KeyChoice,
}

impl LayerKind<'_> {
    /// True if it has attention.
    pub(super) fn attends(&self) -> bool {
        self.mixes && self.scanned.is_none_or(|scanned| scanned.with_attention.is_some())
    }

    /// The inputs of its block.
    pub(super) fn inputs(&self) -> &'static [&'static str] {
        match (self.mixes, self.attends()) {
            (false, _) => return &[],
            (true, false) => return &["pos"],
            (true, true) => {}
        }
        if self.rotation.is_some_and(|rotation| rotation.sections.is_some()) {
            return &["pos", "seg", GRID[0], GRID[1], GRID[2]];
        }
        let scaling = self.rotation.and_then(|rotation| rotation.scaling.as_ref());
        if scaling.is_some_and(Scaling::reads_lengths) { &["pos", "seg", LENGTHS] } else { &["pos", "seg"] }
    }
}

/// The kind of each layer.
///
/// Layers with experts are called `layer`, and those without them `dense`; without any experts all are called `layer`. Where
/// only some layers have a window, these are called `local` and `local_dense`. Where only some layers of the same window have no
/// positions, the names of these have `nope` in them. A first layer without a norm of what attention reads has `first`, a last one
/// with a bias of its own `last`. Where only some layers carry a state in place of attention, the names of these have `scan` in them. Layers
/// without attention and a state have `still`, those without a net `netless`, and those that take the choice of keys of another layer
/// `shared`.
pub(super) fn kinds(config: &LlamaConfig) -> impl Iterator<Item = LayerKind<'_>> {
    let mixed = config.window.is_some_and(|window| (1..config.layers).contains(&window.full.count(config.layers)));
    // The numbers of layers with and without positions, by whether they have a window.
    let mut turns = [[0_u32; 2]; 2];
    for layer in (0..config.layers).filter(|&layer| config.attends(layer)) {
        turns[usize::from(config.window_of(layer).is_some())][usize::from(config.nope.contains(layer))] += 1;
    }
    let some_have_nets = config.netless.count(config.layers) < config.layers;
    let scans = (0..config.layers).filter(|&layer| config.scanned_of(layer).is_some()).count() as u32;
    (0..config.layers).map(move |layer| {
        let scanned = config.scanned_of(layer);
        let in_place = scanned.is_some_and(|scanned| scanned.with_attention.is_none());
        let (mixes, has_net) = (!config.still.contains(layer), !config.netless.contains(layer));
        let experts = config.experts.as_ref().filter(|experts| has_net && !experts.dense.contains(layer));
        let nope = mixes && !in_place && config.nope.contains(layer);
        let window = config.window_of(layer).filter(|_| mixes && !in_place);
        let local = config.local_rotation.as_ref().filter(|_| window.is_some());
        let rotation = (!nope).then_some(local.unwrap_or(&config.rotation));
        let is_dense = config.experts.is_some() && has_net && experts.is_none();
        let differs = nope && turns[usize::from(window.is_some())].iter().all(|&count| count > 0);
        let choice = match config.indexer {
            None => KeyChoice::All,
            Some(indexer) if indexer.shared.contains(layer) => KeyChoice::Shared,
            Some(_) => KeyChoice::Own,
        };
        let (bare, last) = (config.bare_first && layer == 0, config.last_bias && layer + 1 == config.layers);
        let parts = [
            (bare, "first"),
            (last, "last"),
            (scanned.is_some() && scans < config.layers, "scan"),
            (mixed && window.is_some(), "local"),
            (differs, "nope"),
            (!mixes, "still"),
            (!has_net && some_have_nets, "netless"),
            (choice == KeyChoice::Shared, "shared"),
            (is_dense, "dense"),
        ];
        let parts: Vec<&str> = parts.iter().filter(|(holds, _)| *holds).map(|(_, part)| *part).collect();
        let name = if parts.is_empty() { "layer".to_string() } else { parts.join("_") };
        let out_bias = config.out_bias && (!config.last_bias || last);
        let is_local = window.is_some();
        let kv_heads = config.local_kv_heads.filter(|_| is_local);
        let dims = HeadDims::of(kv_heads.is_some(), config.value.is_some(), config.local_head.is_some());
        let head = config.local_head.filter(|_| is_local).unwrap_or(config.head);
        let keys_are_values = config.keys_are_values && !is_local;
        let sinks = config.sinks == Sinks::All || config.sinks == Sinks::Local && is_local;
        let kv_heads = kv_heads.unwrap_or(config.kv_heads);
        let norms = scanned.and_then(|scanned| scanned.norms).unwrap_or(config.norms);
        LayerKind {
            norms,
            name,
            mixes,
            has_net,
            experts,
            scanned,
            window,
            rotation,
            bare,
            out_bias,
            kv_heads,
            dims,
            head,
            keys_are_values,
            sinks,
            choice,
        }
    })
}

/// Consecutive layers of one kind, and their places in the array of the kind's parameters.
pub(super) fn runs(config: &LlamaConfig) -> Vec<(LayerKind<'_>, Range<u32>)> {
    let mut runs: Vec<(LayerKind<'_>, Range<u32>)> = Vec::new();
    for kind in kinds(config) {
        match runs.last_mut().filter(|(last, _)| last.name == kind.name) {
            Some((_, range)) => range.end += 1,
            None => {
                let before = runs.iter().rev().find(|(known, _)| known.name == kind.name);
                let start = before.map_or(0, |(_, range)| range.end);
                runs.push((kind, start..start + 1));
            }
        }
    }
    runs
}

/// Runs of layers, cut behind each of the first `count` layers.
pub(super) fn cut_behind_first(runs: Vec<(LayerKind<'_>, Range<u32>)>, count: u32) -> Vec<(LayerKind<'_>, Range<u32>)> {
    let (mut cut, mut done) = (Vec::new(), 0);
    for (kind, range) in runs {
        let mut start = range.start;
        while start < range.end && done < count {
            cut.push((kind.clone(), start..start + 1));
            (start, done) = (start + 1, done + 1);
        }
        if start < range.end {
            done += range.end - start;
            cut.push((kind, start..range.end));
        }
    }
    cut
}

/// The layers of a model under construction.
pub(super) struct Layers {
    /// The name of the last one's result.
    pub(super) last: String,
    /// Those of the sums that the last one with experts passes on, if the loss of balance spans layers.
    pub(super) passed: Vec<String>,
    /// The block of the last one, and the array of its parameters.
    pub(super) block: BlockId,
    pub(super) array: String,
    /// The inputs of that block.
    pub(super) inputs: &'static [&'static str],
    /// The layers of that block.
    pub(super) count: u32,
}
