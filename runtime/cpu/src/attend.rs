//! Attention and the rotary embedding of its queries and keys.

use super::pointwise::dropout_key;
use super::{Call, KernelFn, Rng};
use device::backend::KernelSite;
use device::host::narrow;
use device::sizes::in_blocks;
use ir::ops::{Attention, AttentionGrad, AttentionSettings, Dropout, Rope};
use kernels::cpu::attention::{self, Gradients, Inputs, Saved};
use kernels::cpu::rope::{self, Beyond, Heads, Turn};

pub(super) fn rope(op: &Rope, site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let sizes = site.operand(0)?;
    let [_, _, heads @ .., d] = sizes.as_slice() else {
        return Err("the operand needs dims b, s and d".to_string());
    };
    let heads = Heads { heads: heads.iter().product(), d: *d };
    let (frequencies, beyond, gain, inverse) = (op.frequencies(*d), op.beyond(*d), op.gain as f32, op.inverse);
    Ok(Box::new(move |call, par| {
        let beyond = beyond.as_ref().map(|beyond| Beyond {
            lengths: call.int(2),
            context: beyond.context,
            frequencies: &beyond.frequencies,
        });
        let turn = Turn { frequencies: &frequencies, beyond, gain, inverse };
        rope::rope(call.float(0), heads, call.int(1), turn, call.out(), par);
    }))
}

fn plan(settings: &AttentionSettings, site: &KernelSite<'_>) -> Result<Plan, String> {
    let AttentionSettings { scale, causal, window, chunk, softcap, ref dropout, piece, block } = *settings;
    let (q, k, v) = (site.operand(0)?, site.operand(1)?, site.operand(2)?);
    let (&[b, s, g, r, d], &[_, t, _, _], &[_, _, _, c]) = (q.as_slice(), k.as_slice(), v.as_slice()) else {
        return Err("wants q [b, s, g, r, d], k [b, t, g, d] and v [b, t, g, c]".to_string());
    };
    let (scale, softcap) = (scale as f32, softcap.map(|softcap| softcap as f32));
    let [b, s, t] = in_blocks(block, b, s, t);
    let attention = attention::Attention { b, s, t, g, r, d, c, scale, causal, window, chunk, softcap, dropout: None };
    let view = |operand: usize| {
        let ty = site.operands[operand];
        (ty.local_origin(site.mesh, site.coordinates), ty.sizes())
    };
    let ((queries, q_sizes), (keys, k_sizes)) = (view(0), view(1));
    let weights = |q: &[u64], k: &[u64]| [q[0], q[1], q[2], q[3], k[1]];
    let (mut origin, mut whole) = (weights(&queries, &keys), weights(&q_sizes, &k_sizes));
    if let Some(piece) = piece {
        origin[1] += piece.origin;
        (whole[1], whole[4]) = (piece.whole, piece.whole);
    }
    Ok(Plan { attention, dropout: dropout.clone(), origin, whole })
}

/// An attention, and what dropout needs: the place of the local weights `[b, s, g, r, t]` among all of a micro-batch, and the
/// sizes of those.
struct Plan {
    attention: attention::Attention,
    dropout: Option<Dropout>,
    origin: [u64; 5],
    whole: [u64; 5],
}

impl Plan {
    /// The attention with its dropout key. Random numbers are those of `dropout` on the weights.
    fn at(&self, rng: Rng) -> attention::Attention {
        let mut origin = self.origin;
        origin[0] += rng.site.microbatch * self.whole[0];
        let drop = |op: &Dropout| attention::Dropout {
            p: op.p as f32,
            key: dropout_key(rng, &op.path),
            origin,
            global_dims: self.whole,
        };
        attention::Attention { dropout: self.dropout.as_ref().map(drop), ..self.attention }
    }
}

/// Queries, keys and values, and the positions and segments from operand `at` on.
fn inputs<'a>(call: &Call<'a>, at: usize) -> Inputs<'a> {
    let ([q, k, v], [qpos, kpos, qseg, kseg]) =
        ([0, 1, 2].map(|i| call.floats(i)), [0, 1, 2, 3].map(|i| call.int(at + i)));
    Inputs { q, k, v, qpos, kpos, qseg, kseg, sink: None }
}

/// True if all these operands and the first `results` results have one format, in which the attention writes.
fn writes(plan: &Plan, site: &KernelSite<'_>, operands: &[usize], results: usize) -> bool {
    let types = operands.iter().map(|&at| site.operands[at]).chain(site.results[..results].iter().copied());
    let mut formats = types.map(|ty| narrow(ty.dtype));
    let first = formats.next().flatten();
    first.is_some_and(|format| plan.attention.writes(format) && formats.all(|other| other == Some(format)))
}

/// The kernel, and whether it writes narrow results as they are.
pub(super) fn attention(op: &Attention, site: &KernelSite<'_>) -> Result<(KernelFn, bool), String> {
    let (plan, has_sink) = (plan(&op.0, site)?, site.operands.len() > 7);
    let writes = writes(&plan, site, &[0, 1, 2], 1);
    let run: KernelFn = Box::new(move |call, par| {
        let sink = has_sink.then(|| call.floats(7));
        let x = Inputs { sink, ..inputs(call, 3) };
        let [out, lse] = call.floats_out();
        plan.at(call.rng).forward(&x, out, lse.wide(), par, call.scratch);
    });
    Ok((run, writes))
}

/// As [`attention`].
pub(super) fn attention_grad(op: &AttentionGrad, site: &KernelSite<'_>) -> Result<(KernelFn, bool), String> {
    let plan = plan(&op.0, site)?;
    let writes = writes(&plan, site, &[0, 1, 2, 3, 5], 3);
    let run: KernelFn = Box::new(move |call, par| {
        let x = inputs(call, 6);
        let saved = Saved { out: call.floats(3), lse: call.float(4), dout: call.floats(5) };
        let [dq, dk, dv] = call.floats_out();
        let gradients = Gradients { dq, dk, dv };
        plan.at(call.rng).backward(&x, &saved, gradients, par, call.scratch);
    });
    Ok((run, writes))
}
