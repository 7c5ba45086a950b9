//! Attention on one rank: its shape, its seconds where sequences are cut, and its scores where they lie in memory.

use super::local::Local;
use super::site::Site;
use crate::attention::AttentionShape;
use crate::collective_time::{CollectiveKind, Group};
use ir::graph::Stmt;
use ir::ids::Value;
use ir::ops::{KernelOp, Op};
use ir::options::CpKind;
use ir::types::Dim;

/// An attention, forward or backward.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attention {
    pub(super) shape: AttentionShape,
    pub(super) causal: bool,
    /// True if weights are dropped.
    pub(super) dropout: bool,
    pub(super) backward: bool,
}

/// Seconds of an attention.
#[derive(Clone, Copy, Default)]
pub(super) struct Cost {
    pub(super) attention: f64,
    /// All-to-alls of the cut of heads, nothing hidden.
    pub(super) cp: f64,
    pub(super) kernels: f64,
}

/// The shape on one rank of a statement, if it is an attention.
pub(super) fn local(local: &Local<'_>, stmt: &Stmt) -> Option<Attention> {
    attention(local, stmt, |dim| local.size(dim))
}

/// The same of whole tensors.
pub(super) fn logical(local: &Local<'_>, stmt: &Stmt) -> Option<Attention> {
    attention(local, stmt, |dim| dim.size as f64)
}

/// q `[b, s, g, r, d]`, k `[b, t, g, d]`, v `[b, t, g, c]`. Of the `s` keys a query sees `(s + 1)/2` in the mean, and so do
/// those of a rank where sequences are cut in zig-zag order (Dubey et al. 2024, section 3.3.2).
fn attention(local: &Local<'_>, stmt: &Stmt, size: impl Fn(&Dim) -> f64) -> Option<Attention> {
    let (causal, dropout, backward) = match &stmt.op {
        Op::Kernel(KernelOp::Attention(op)) => (op.causal, op.dropout.is_some(), false),
        Op::Kernel(KernelOp::AttentionGrad(op)) => (op.causal, op.dropout.is_some(), true),
        _ => return None,
    };
    let of = |operand: usize, dim: usize| local.dims(stmt.operands[operand]).get(dim).map_or(1.0, &size);
    let keys = local.dims(stmt.operands[1]).get(1).map_or(1.0, |dim| dim.size as f64);
    let shape = AttentionShape {
        batch: of(0, 0),
        heads: of(0, 2) * of(0, 3),
        kv_heads: of(1, 2),
        queries: of(0, 1),
        keys: of(1, 1),
        d: of(0, 4),
        c: of(2, 3),
        share: if causal { (1.0 + 1.0 / keys) / 2.0 } else { 1.0 },
    };
    Some(Attention { shape, causal, dropout, backward })
}

impl Attention {
    /// Scores on one rank.
    pub(super) fn scores(&self) -> f64 {
        self.shape.batch * self.shape.heads * self.shape.queries * self.shape.keys
    }

    /// Bytes that the backward of an attention whose scores go through memory reads of each: the softmax, and where weights
    /// are dropped their mask and what is left (Korthikanti et al. 2022, section 4.1: 5 a s^2 b).
    pub(super) fn saved(&self, element: f64) -> f64 {
        if self.dropout { 2.0 * element + 1.0 } else { element }
    }

    /// Bytes of scores at once beside the saved ones: before the softmax, and in the backward their two cotangents, or one that
    /// a fused softmax writes on (fused_kernels of Megatron-LM).
    pub(super) fn inner(&self, element: f64, is_fused: bool) -> f64 {
        self.scores() * element * if self.backward && !is_fused { 2.0 } else { 1.0 }
    }

    /// Seconds on one of the ranks among which sequences are cut, if any.
    pub(super) fn cost(&self, site: &Site<'_>, ranks: Option<(Group, CpKind)>) -> Cost {
        match ranks {
            Some((group, CpKind::Ulysses)) => self.by_heads(site, group),
            Some((group, CpKind::Ring)) => {
                let steps = group.ranks as f64;
                let block = AttentionShape { keys: self.shape.keys / steps, ..self.shape };
                let attention = steps * site.platform.attention(&block, self.backward);
                Cost { attention, cp: 0.0, kernels: steps * self.launches(site) }
            }
            _ => {
                let attention = site.platform.attention(&self.shape, self.backward);
                Cost { attention, cp: 0.0, kernels: self.launches(site) }
            }
        }
    }

    /// Kernels of flash attention: one forward; backward the row sums, the products, and the cast of dq (Dao 2023). With the
    /// scores in memory two products and the softmax, four and it backward; dropout is one more.
    fn launches(&self, site: &Site<'_>) -> f64 {
        match (site.platform.has_flash(), self.backward) {
            (true, backward) => {
                if backward {
                    3.0
                } else {
                    1.0
                }
            }
            (false, backward) => f64::from(u8::from(self.dropout)) + if backward { 5.0 } else { 3.0 },
        }
    }

    /// Each rank gets whole sequences of some of the heads, and gives its part of them back (Jacobs et al. 2023): q, k, v and
    /// the result go through all-to-alls, in the backward their cotangents do.
    fn by_heads(&self, site: &Site<'_>, group: Group) -> Cost {
        let ranks = group.ranks as f64;
        let own = AttentionShape {
            heads: self.shape.heads / ranks,
            kv_heads: (self.shape.kv_heads / ranks).max(1.0),
            queries: self.shape.queries * ranks,
            ..self.shape
        };
        let AttentionShape { batch, heads, kv_heads, queries, d, c, .. } = self.shape;
        let element = site.platform.recipe.activation;
        let exchange = |heads: f64, size: f64| {
            site.platform.collective_time(CollectiveKind::AllToAll, batch * queries * heads * size * element, group)
        };
        Cost {
            attention: site.platform.attention(&own, self.backward),
            cp: exchange(heads, d) + exchange(kv_heads, d) + exchange(kv_heads, c) + exchange(heads, c),
            kernels: self.launches(site) + 4.0,
        }
    }
}

/// FLOPs that its kernels execute for a forward, and for its backward. With the scores in memory these are two and four matmuls
/// over all pairs. Flash attention computes only the pairs that the mask leaves, and recomputes the scores in the backward (Dao 2023).
pub(super) fn executed(attention: &Attention, is_flash: bool) -> [f64; 2] {
    let AttentionShape { batch, heads, queries, keys, d, c, share, .. } = attention.shape;
    let pairs = 2.0 * batch * heads * queries * keys;
    if is_flash {
        [pairs * share * (d + c), pairs * share * (3.0 * d + 2.0 * c)]
    } else {
        [pairs * (d + c), pairs * 2.0 * (d + c)]
    }
}

/// The value that an attention gives.
pub(super) fn result(stmt: &Stmt) -> Value {
    stmt.results[0]
}
