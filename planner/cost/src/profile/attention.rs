//! Attention on one rank: its shape, its time under context parallelism, and its scores if they are in memory.

use super::local::Local;
use super::site::Site;
use super::sparse;
use crate::attention::AttentionShape;
use crate::collective_time::{CollectiveKind, Group};
use crate::platform::Format;
use crate::quantities::Passes;
use ir::graph::{Block, SectionKind, Stmt};
use ir::ids::Value;
use ir::ops::{AttentionSettings, KernelOp, Op};
use ir::options::CpKind;
use ir::types::{Dim, Type};

/// An attention, forward or backward.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attention {
    pub(super) shape: AttentionShape,
    pub(super) causal: bool,
    /// How far a causal query sees back; `None` where queries choose their keys, or see all.
    pub(super) reach: Option<Reach>,
    /// The fraction of pairs that model FLOPs count: half of them if causal, and of those at most what queries reach.
    pub(super) counted: f64,
    /// True if weights are dropped.
    pub(super) dropout: bool,
    pub(super) backward: bool,
}

/// Cost of an attention.
#[derive(Clone, Copy, Default)]
pub(super) struct Cost {
    /// Seconds of its kernels.
    pub(super) attention: f64,
    /// Seconds of the all-to-alls between heads and sequences, nothing hidden.
    pub(super) cp: f64,
    /// Number of kernels.
    pub(super) kernels: f64,
}

/// Attention of a statement on one rank; `None` for other statements.
pub(super) fn local(local: &Local<'_>, stmt: &Stmt) -> Option<Attention> {
    of_stmt(local, stmt, |dim| local.size(dim))
}

/// The same on unsharded tensors.
pub(super) fn logical(local: &Local<'_>, stmt: &Stmt) -> Option<Attention> {
    of_stmt(local, stmt, |dim| dim.size as f64)
}

fn of_stmt(local: &Local<'_>, stmt: &Stmt, size: impl Fn(&Dim) -> f64) -> Option<Attention> {
    let Op::Kernel(op) = &stmt.op else { return None };
    let dims: Vec<&[Dim]> = stmt.operands.iter().map(|&operand| local.dims(operand)).collect();
    sparse::of(op, &dims, &size).or_else(|| attention(op, dims.first_chunk()?, size))
}

fn elements(dim: &Dim) -> f64 {
    dim.size as f64
}

/// Shape of an op on tensors of these types, if it is an attention, and whether it is a gradient.
pub(crate) fn attention_shape(op: &KernelOp, operands: &[Type]) -> Option<(AttentionShape, bool)> {
    let dims: Vec<&[Dim]> = operands.iter().map(|ty| ty.dims.as_slice()).collect();
    let attention = sparse::of(op, &dims, &elements).or_else(|| attention(op, dims.first_chunk()?, elements))?;
    Some((attention.shape, attention.backward))
}

/// The operands are q `[b, s, g, r, d]`, k `[b, t, g, d]` and v `[b, t, g, c]`. A causal query reads `(s + 1)/2` of `s` keys on
/// average, and no more than it reaches. So do the queries of a rank if sequences are sharded in zig-zag order (Dubey et al. 2024,
/// section 3.3.2).
fn attention(op: &KernelOp, dims: &[&[Dim]; 3], size: impl Fn(&Dim) -> f64) -> Option<Attention> {
    let (settings, backward) = match op {
        KernelOp::Attention(op) => (&op.0, false),
        KernelOp::AttentionGrad(op) => (&op.0, true),
        _ => return None,
    };
    let causal = settings.causal;
    let keys = dims[1].get(1).map_or(1.0, |dim| dim.size as f64);
    let [q, k, v] = dims.map(|dims| [0, 1, 2, 3, 4].map(|dim| dims.get(dim).map_or(1.0, &size)));
    let shape = AttentionShape {
        batch: q[0],
        heads: q[2] * q[3],
        kv_heads: k[2],
        queries: q[1],
        keys: settings.block.map_or(f64::INFINITY, |block| block as f64).min(k[1]),
        d: q[4],
        c: v[3],
        share: if causal { Reach::of(settings).causal_pairs(keys) / (keys * keys) } else { 1.0 },
    };
    let counted = if causal { Reach::of(settings).halved_pairs(keys) / (keys * keys) } else { 1.0 };
    let reach = causal.then(|| Reach::of(settings));
    Some(Attention { shape, causal, reach, counted, dropout: settings.dropout.is_some(), backward })
}

/// How far queries see back in their document.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reach {
    /// To its first token.
    All,
    /// So many tokens, their own included.
    Window(u64),
    /// To the start of their chunk, of this number of tokens.
    Chunk(u64),
}

impl Reach {
    fn of(settings: &AttentionSettings) -> Reach {
        match (settings.window, settings.chunk) {
            (Some(tokens), _) => Reach::Window(tokens),
            (None, Some(tokens)) => Reach::Chunk(tokens),
            (None, None) => Reach::All,
        }
    }

    /// That of a block's attention; all without attention.
    pub fn of_block(block: &Block) -> Reach {
        let reach = block[SectionKind::F].stmts.iter().find_map(|stmt| match &stmt.op {
            Op::Kernel(KernelOp::Attention(op)) => Some(Reach::of(&op.0)),
            _ => None,
        });
        reach.unwrap_or(Reach::All)
    }

    /// Pairs of a query and a key that it sees in a causal document of some tokens: `n (n + 1) / 2`, with a window `w` of fewer
    /// tokens `w (w + 1) / 2 + (n - w) w`, and with chunks the sum over them.
    pub fn causal_pairs(self, tokens: f64) -> f64 {
        // Queries see their own key wholly, and the others by half on average.
        self.halved_pairs(tokens) + self.side(tokens) / 2.0
    }

    /// The pairs where queries see half of their own key, as usual formulas of FLOPs count.
    fn halved_pairs(self, tokens: f64) -> f64 {
        match self {
            Reach::All => tokens * tokens / 2.0,
            Reach::Window(_) => {
                let window = self.side(tokens);
                window * tokens - window * window / 2.0
            }
            Reach::Chunk(size) => {
                let (size, rest) = (size as f64, tokens % size as f64);
                ((tokens - rest) * size + rest * rest) / 2.0
            }
        }
    }

    /// Pairs of the last of some ranks that have parts of a sequence in the order of the text, over the mean: that rank has the most keys.
    fn of_last(self, tokens: f64, ranks: f64) -> f64 {
        let (all, others) = (self.causal_pairs(tokens), self.causal_pairs(tokens - tokens / ranks));
        ranks * (all - others) / all
    }

    /// Queries that see their key of the diagonal by half in [`Reach::halved_pairs`].
    fn side(self, tokens: f64) -> f64 {
        if let Reach::Window(size) = self { tokens.min(size as f64) } else { tokens }
    }
}

impl Attention {
    /// Number of scores on one rank.
    pub(super) fn scores(&self) -> f64 {
        self.shape.batch * self.shape.heads * self.shape.queries * self.shape.keys
    }

    /// Bytes saved per score if scores are in memory: the softmax and, with dropout, its mask and its result (Korthikanti et al.
    /// 2022, section 4.1: 5 a s^2 b).
    pub(super) fn saved(&self, element: f64) -> f64 {
        if self.dropout { 2.0 * element + 1.0 } else { element }
    }

    /// Peak bytes of scores in addition to the saved ones: the input of the softmax in the forward, two gradients in the
    /// backward. A fused softmax overwrites one of the gradients (fused_kernels of Megatron-LM).
    pub(super) fn inner(&self, element: f64, is_fused: bool) -> f64 {
        self.scores() * element * if self.backward && !is_fused { 2.0 } else { 1.0 }
    }

    /// Cost on one rank; `ranks` is the group over which sequences are sharded, if they are. Where a rank has the queries of a part of
    /// a sequence, a stack may take the keys piece by piece.
    pub(super) fn cost(&self, site: &Site<'_>, ranks: Option<(Group, CpKind)>) -> Cost {
        let pieces = site.platform.stack.traits.kernels.pieces;
        if let (Some((group, CpKind::Ring | CpKind::AllGather)), Some(reach)) = (ranks, self.reach)
            && site.keeps_order()
        {
            let share = self.shape.share * reach.of_last(self.shape.keys, group.ranks as f64);
            let last = Attention { shape: AttentionShape { share, ..self.shape }, reach: None, ..*self };
            return last.cost(site, ranks);
        }
        match ranks {
            Some((group, CpKind::Ulysses)) => self.by_heads(site, group),
            Some((group, CpKind::Ring)) => {
                let steps = group.ranks as f64;
                let block = AttentionShape { keys: self.shape.keys / steps, ..self.shape };
                let attention = steps * site.platform.attention(&block, self.backward) * pieces;
                Cost {
                    attention: attention + (steps - 1.0) * self.merge(site, &block),
                    cp: 0.0,
                    kernels: steps * self.launches(site),
                }
            }
            Some((_, CpKind::AllGather)) => {
                let attention = site.platform.attention(&self.shape, self.backward) * pieces;
                Cost { attention, cp: 0.0, kernels: self.launches(site) }
            }
            None => {
                let attention = site.platform.attention(&self.shape, self.backward);
                Cost { attention, cp: 0.0, kernels: self.launches(site) }
            }
        }
    }

    /// Seconds of adding a step's results to the sums of a ring in f32: the result by its log-sum-exp; in the backward the gradients of
    /// queries, keys and values.
    fn merge(&self, site: &Site<'_>, block: &AttentionShape) -> f64 {
        let AttentionShape { batch, heads, kv_heads, queries, keys, d, c, .. } = *block;
        let of_queries = heads * queries * if self.backward { d } else { c };
        let of_keys = if self.backward { kv_heads * keys * (d + c) } else { 0.0 };
        // A sum is read and written, a term is read.
        let bytes = 2.0 * Format::F32.bytes() + site.platform.recipe.activation;
        site.platform.memory_bound(batch * (of_queries + of_keys) * bytes)
    }

    /// Number of kernels. Flash attention has one in the forward. Its backward has three: row sums, products, and the cast of
    /// dq (Dao 2023). With scores in memory there are two products and the softmax in the forward, four products and the
    /// softmax in the backward, and one more kernel with dropout.
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

    /// Cost by all-to-alls of q, k, v and the result, or of their gradients: each rank has entire sequences of some heads
    /// (Jacobs et al. 2023). Of too few key heads each rank has all, with some of their query heads: k and v are gathered, and
    /// gathered again in the backward, which scatters sums of their gradients.
    fn by_heads(&self, site: &Site<'_>, group: Group) -> Cost {
        let ranks = group.ranks as f64;
        let AttentionShape { heads, kv_heads, queries, d, c, .. } = self.shape;
        let is_sharded = kv_heads % ranks == 0.0;
        let exchanges = HeadExchanges { attention: self, site, group, is_sharded };
        let own = AttentionShape {
            heads: heads / ranks,
            kv_heads: if is_sharded { kv_heads / ranks } else { kv_heads },
            queries: queries * ranks,
            ..self.shape
        };
        Cost {
            attention: site.platform.attention(&own, self.backward),
            cp: exchanges.of_queries(heads, d)
                + exchanges.of_keys(d)
                + exchanges.of_keys(c)
                + exchanges.of_queries(heads, c),
            kernels: self.launches(site) + 4.0,
        }
    }
}

/// Collectives between the heads and the sequences of an attention, nothing hidden.
struct HeadExchanges<'e, 's> {
    attention: &'e Attention,
    site: &'e Site<'s>,
    group: Group,
    /// True if each rank has some of the key heads.
    is_sharded: bool,
}

impl HeadExchanges<'_, '_> {
    /// Bytes of some heads of this size on a rank.
    fn bytes(&self, heads: f64, size: f64) -> f64 {
        let AttentionShape { batch, queries, .. } = self.attention.shape;
        batch * queries * heads * size * self.site.platform.recipe.activation
    }

    fn time(&self, kind: CollectiveKind, bytes: f64) -> f64 {
        self.site.platform.collective_time(kind, bytes, self.group)
    }

    /// Seconds of the all-to-all of heads of this size.
    fn of_queries(&self, heads: f64, size: f64) -> f64 {
        self.time(CollectiveKind::AllToAll, self.bytes(heads, size))
    }

    /// Seconds of the exchange, or of the gather and of the sums of gradients, of key heads of this size.
    fn of_keys(&self, size: f64) -> f64 {
        let kv_heads = self.attention.shape.kv_heads;
        let whole = self.bytes(kv_heads, size) * self.group.ranks as f64;
        match (self.is_sharded, self.attention.backward) {
            (true, _) => self.of_queries(kv_heads, size),
            (false, false) => self.time(CollectiveKind::AllGather, whole),
            (false, true) => {
                self.time(CollectiveKind::AllGather, whole) + self.time(CollectiveKind::ReduceScatter, whole)
            }
        }
    }
}

/// FLOPs that kernels execute for a forward and for its backward. With scores in memory there are two and four products of all
/// pairs. Flash attention computes only unmasked pairs, and recomputes the scores in the backward (Dao 2023).
pub(super) fn executed(attention: &Attention, is_flash: bool) -> Passes {
    let AttentionShape { batch, heads, queries, keys, d, c, share, .. } = attention.shape;
    let pairs = 2.0 * batch * heads * queries * keys;
    if is_flash {
        Passes { forward: pairs * share * (d + c), backward: pairs * share * (3.0 * d + 2.0 * c) }
    } else {
        Passes { forward: pairs * (d + c), backward: pairs * 2.0 * (d + c) }
    }
}

/// Result of an attention.
pub(super) fn result(stmt: &Stmt) -> Value {
    stmt.results[0]
}
