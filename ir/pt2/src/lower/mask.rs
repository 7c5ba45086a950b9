//! Masks of attention: which keys a query sees, by the elements of the mask on a sample.

use super::Lowering;
use crate::eval::{Call, ElementKind, Item, Tensor, evaluate};
use crate::graph::{Arg, ValueId};
use crate::refusal::Refusal;
use ir::ops::AttentionSettings;
use std::collections::BTreeSet;

/// Scores below this are those of hidden keys.
pub(super) const LOW: f64 = -1e30;

/// True if a bias is the slope of the head times the position of the key, but for a number of each query: `[.., heads, queries, keys]` or
/// `[batch * heads, 1, keys]`.
pub(super) fn is_lean(bias: &Tensor, slopes: &[f64], keys: usize) -> bool {
    const NEAR: f64 = 1e-4;
    let Some(&[outer, rows, width]) = bias.sizes.last_chunk::<3>() else { return false };
    if slopes.is_empty()
        || width != keys
        || !outer.is_multiple_of(slopes.len().max(1))
        || bias.sizes[..bias.sizes.len() - 3].iter().any(|&size| size != 1)
    {
        return false;
    }
    bias.data.chunks(width.max(1)).enumerate().all(|(at, row)| {
        let slope = slopes[at / rows.max(1) % slopes.len()];
        let far = slope * keys as f64;
        row.iter().enumerate().all(|(key, x)| (x - row[0] - slope * key as f64).abs() <= NEAR * far.max(1.0))
    })
}

/// A mask, and which of its truth values hide a key.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Hides {
    pub(super) value: ValueId,
    /// The true ones hide; else the false ones.
    pub(super) is_set: bool,
}

/// The keys that queries see.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Mask {
    pub(super) is_causal: bool,
    /// The last positions that a query sees, its own among them.
    pub(super) window: Option<u64>,
}

impl Mask {
    pub(super) fn settings(self, scale: f64) -> AttentionSettings {
        AttentionSettings { window: self.window, ..AttentionSettings::new(scale, self.is_causal) }
    }

    /// The keys that are visible under both.
    pub(super) fn and(self, other: Mask) -> Mask {
        let window = self.window.into_iter().chain(other.window).min();
        Mask { is_causal: self.is_causal || other.is_causal, window }
    }

    fn sees(self, query: usize, key: usize) -> bool {
        let ahead = key > query;
        !(self.is_causal && ahead) && self.window.is_none_or(|window| ahead || query - key < window as usize)
    }

    /// True if the mask is this one for all heads and sequences: truth values, or numbers far below 0 for what is hidden.
    fn is(self, mask: &Tensor, is_set: bool) -> bool {
        let &[.., queries, keys] = mask.sizes.as_slice() else { return false };
        let is_visible = |x: f64| match mask.kind {
            ElementKind::Bool => Some((x != 0.0) != is_set),
            _ if x == 0.0 => Some(true),
            _ if x < LOW => Some(false),
            _ => None,
        };
        mask.data.iter().enumerate().all(|(at, &x)| {
            let (query, key) = (at / keys.max(1) % queries.max(1), at % keys.max(1));
            is_visible(x) == Some(self.sees(query, key))
        })
    }
}

/// Windows that stand for one that is longer than the sample.
const SHORT: [u64; 2] = [3, 5];

impl Lowering<'_> {
    /// The keys that a mask hides. A window may be longer than the sample: then short ones take the place of the number that states it.
    pub(super) fn read_mask(&self, Hides { value, is_set }: Hides) -> Result<Mask, Refusal> {
        let mask = self.known(value).ok_or("a mask depends on the tokens or on parameters")?;
        let causal = Mask { is_causal: true, window: None };
        let tokens = self.atoms.size(self.sequence);
        let plain = [Mask { is_causal: false, window: None }, causal];
        let windows = (1..tokens).map(|window| Mask { window: Some(window), ..causal });
        let found = plain.into_iter().chain(windows).find(|kind| kind.is(mask, is_set));
        let found = found.ok_or("a mask hides other keys than those ahead and those before a window")?;
        if found != causal {
            return Ok(found);
        }
        for number in self.numbers(value).into_iter().filter(|&number| number >= tokens as i64) {
            if SHORT.iter().all(|&short: &u64| {
                self.replaced(value, number, short as i64)
                    .is_some_and(|mask| Mask { window: Some(short), ..causal }.is(&mask, is_set))
            }) {
                return Ok(Mask { window: Some(number as u64), ..causal });
            }
        }
        Ok(causal)
    }

    /// The nodes that a known value depends on.
    fn ancestors(&self, value: ValueId) -> BTreeSet<usize> {
        let mut wanted = BTreeSet::from([self.id(value)]);
        let mut nodes = BTreeSet::new();
        for (at, node) in self.graph.nodes.iter().enumerate().take(self.node + 1).rev() {
            if node.outputs.iter().any(|output| wanted.contains(output)) {
                nodes.insert(at);
                wanted.extend(node.operands());
            }
        }
        nodes
    }

    /// The integers among the arguments of these nodes.
    fn numbers(&self, value: ValueId) -> BTreeSet<i64> {
        let arguments = self.ancestors(value).into_iter().flat_map(|at| &self.graph.nodes[at].args);
        arguments
            .filter_map(
                |(name, arg)| {
                    if let (Arg::Int(int), "other" | "self") = (arg, name.as_str()) { Some(*int) } else { None }
                },
            )
            .collect()
    }

    /// The mask with another number in the place of one.
    fn replaced(&self, value: ValueId, number: i64, by: i64) -> Option<Tensor> {
        let mut values = self.known.clone();
        let nodes = self.ancestors(value).into_iter().map(|at| &self.graph.nodes[at]);
        // Sizes are known from the axes of activations.
        for node in nodes.filter(|node| node.family() != "aten.sym_size") {
            let results = evaluate(&Call { node, values: &values, replaced: Some((number, by)) }).ok()?;
            for (&output, item) in node.outputs.iter().zip(results) {
                values[output.index()] = Some(item);
            }
        }
        match values[self.id(value).index()].take()? {
            Item::Tensor(tensor) => Some((*tensor).clone()),
            _ => None,
        }
    }
}
