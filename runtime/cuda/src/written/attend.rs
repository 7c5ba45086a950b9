//! Attention and its gradient.

use super::tiles::{self, Tiles};
use super::{At, Steps, of_operand, threads, warps};
use device::backend::KernelSite;
use device::region::row_major;
use device::sizes::in_blocks;
use ir::ops::{Attention, AttentionGrad, AttentionSettings, KernelOp};
use kernels::cuda::written::{Definitions, texts};
use kernels::scalar::{Element, Strides};

/// Sizes of an attention, as its op names them.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) b: usize,
    pub(super) s: usize,
    pub(super) t: usize,
    pub(super) g: usize,
    pub(super) r: usize,
    pub(super) d: usize,
    pub(super) c: usize,
}

impl Sizes {
    /// Query rows.
    fn rows(&self) -> usize {
        self.b * self.s * self.g * self.r
    }

    /// Key rows.
    fn keys(&self) -> usize {
        self.b * self.t * self.g
    }
}

/// The definitions of a text, and the sizes.
pub(super) fn define(settings: &AttentionSettings, site: &KernelSite<'_>) -> Result<(Definitions, Sizes), String> {
    let AttentionSettings { scale, causal, window, chunk, softcap, dropout, block, .. } = settings;
    let (q, k, v) = (site.operand(0)?, site.operand(1)?, site.operand(2)?);
    let (&[b, s, g, r, d], &[_, t, _, _], &[_, _, _, c]) = (q.as_slice(), k.as_slice(), v.as_slice()) else {
        return Err("wants q [b, s, g, r, d], k [b, t, g, d] and v [b, t, g, c]".to_string());
    };
    let [b, s, t] = in_blocks(*block, b, s, t);
    let sizes = [("B", b), ("S", s), ("T", t), ("G", g), ("R", r), ("D", d), ("C", c)];
    let define = Definitions::new().tensor("X", of_operand(site, 0)).number("SCALE", *scale as f32);
    let define = sizes.into_iter().fold(define, |define, (name, size)| define.size(name, size));
    let mut define = define.integer("CAUSAL", (*causal).into()).key(dropout.as_ref().map(|dropout| &dropout.path));
    if let Some(window) = window {
        define = define.integer("WINDOW", i64::try_from(*window).unwrap_or(i64::MAX));
    }
    if let Some(chunk) = chunk {
        define = define.integer("CHUNK", i64::try_from(*chunk).unwrap_or(i64::MAX));
    }
    // Without a scale all scores are 0, which no bound changes.
    if let Some(softcap) = softcap.filter(|_| *scale != 0.0) {
        let share = scale / softcap;
        define = define.flag("IS_BOUNDED", true).number("TO_SHARE", share as f32);
        define = define.number("FROM_SHARE", (1.0 / share) as f32);
    }
    Ok((define_dropout(settings, define, site, [b, s, g, r, t]), Sizes { b, s, t, g, r, d, c }))
}

/// The numbers of dropout are those of the weights `[b, s, g, r, t]` among all of a micro-batch.
fn define_dropout(
    settings: &AttentionSettings,
    define: Definitions,
    site: &KernelSite<'_>,
    sizes: [usize; 5],
) -> Definitions {
    let view = |operand: usize| {
        let ty = site.operands[operand];
        (ty.local_origin(site.mesh, site.coordinates), ty.sizes())
    };
    let ((queries, q_sizes), (keys, k_sizes)) = (view(0), view(1));
    let weights = |q: &[u64], k: &[u64]| [q[0], q[1], q[2], q[3], k[1]].map(|n| n as usize);
    let (mut origin, mut whole) = (weights(&queries, &keys), weights(&q_sizes, &k_sizes));
    if let Some(piece) = settings.piece {
        origin[1] += piece.origin as usize;
        (whole[1], whole[4]) = (piece.whole as usize, piece.whole as usize);
    }
    let strides = row_major(&whole);
    let offset = origin.iter().zip(&strides).map(|(at, stride)| at * stride).sum();
    let define = define.size("MICROBATCH", whole.iter().product());
    let Some(dropout) = &settings.dropout else { return define };
    let p = dropout.p as f32;
    let counter = Strides { dims: sizes.into_iter().zip(strides).collect(), offset };
    let define = define.flag("DROPOUT", true).place("COUNTER", &counter);
    define.number("P", p).number("KEEP", 1.0 / (1.0 - p))
}

/// The tiles of an attention or of its gradient, if it runs on tensor cores.
///
/// # Errors
/// The site is not that of the op.
pub(in super::super) fn tiles_of(op: &KernelOp, site: &KernelSite<'_>) -> Result<Option<Tiles>, String> {
    let tiles = |settings: &AttentionSettings, of: fn(&AttentionSettings, Sizes, Element) -> Option<Tiles>| {
        Ok(of(settings, define(settings, site)?.1, of_operand(site, 0)))
    };
    match op {
        KernelOp::Attention(op) => tiles(&op.0, Tiles::forward),
        KernelOp::AttentionGrad(op) => tiles(&op.0, Tiles::backward),
        _ => Ok(None),
    }
}

/// An attention or its gradient on tensor cores, by tiles that are given.
///
/// # Errors
/// It is another op, or the site is not that of the op.
pub(in super::super) fn by_tiles(op: &KernelOp, site: &KernelSite<'_>, tiles: Tiles) -> Result<Steps, String> {
    match op {
        KernelOp::Attention(op) => tiles::attention(&op.0, site, tiles),
        KernelOp::AttentionGrad(op) => tiles::attention_grad(&op.0, site, tiles),
        _ => Err(format!("`{}` has no tiles", op.def().name())),
    }
}

/// True if an attention has a sink, its last operand.
pub(super) fn has_sink(site: &KernelSite<'_>) -> bool {
    site.operands.len() == 8
}

/// The operands of an attention's kernel. In place of a sink that it does not have are the queries, which nothing reads there.
pub(super) fn operands(site: &KernelSite<'_>) -> impl Iterator<Item = At> {
    let sink = if has_sink(site) { 7 } else { 0 };
    (0..7).chain([sink]).map(At::Operand)
}

/// Operands q, k, v, the positions and segments of queries and keys, and a sink, if any.
pub(super) fn attention(op: &Attention, site: &KernelSite<'_>) -> Result<Steps, String> {
    let (define, sizes) = define(&op.0, site)?;
    let define = define.flag("SINK", has_sink(site));
    if let Some(tiles) = Tiles::forward(&op.0, sizes, of_operand(site, 0)) {
        return tiles::attention(&op.0, site, tiles);
    }
    let work = define.kernel(texts::ATTENTION, "attention", warps(sizes.rows()));
    Ok(Steps::one(work, operands(site).collect(), vec![At::Result(0), At::Result(1)]))
}

/// Operands q, k, v, the result, its log-sum-exp, its gradient, and positions and segments.
pub(super) fn attention_grad(op: &AttentionGrad, site: &KernelSite<'_>) -> Result<Steps, String> {
    let sizes = define(&op.0, site)?.1;
    if let Some(tiles) = Tiles::backward(&op.0, sizes, of_operand(site, 0)) {
        return tiles::attention_grad(&op.0, site, tiles);
    }
    let kernel = |name, blocks| Ok::<_, String>(define(&op.0, site)?.0.kernel(texts::ATTENTION_GRAD, name, blocks));
    let mut delta = kernel("attention_delta", threads(sizes.rows()))?;
    delta.is_random = false;
    let dq = kernel("attention_dq", warps(sizes.rows()))?;
    let dkv = kernel("attention_dkv", warps(sizes.keys()))?;
    let operands: Vec<At> =
        [0, 1, 2, 5, 4].map(At::Operand).into_iter().chain([At::Scratch(0)]).chain((6..10).map(At::Operand)).collect();
    let steps = Steps { scratch: vec![4 * sizes.rows()], ..Steps::default() };
    Ok(steps
        .then(delta, vec![At::Operand(3), At::Operand(5)], vec![At::Scratch(0)])
        .then(dq, operands.clone(), vec![At::Result(0)])
        .then(dkv, operands, vec![At::Result(1), At::Result(2)]))
}
