//! Attention to chosen keys, the indexer that chooses them, and its loss.

use super::KernelFn;
use device::backend::KernelSite;
use ir::ops::KernelOp;
use kernels::cpu::sparse::{
    self, ChosenAttention, Cotangents, Gradients, Indexer, IndexerInputs, Inputs, Places, Saved,
};

/// Sizes of the operands of an op.
struct Sizes<'a>(&'a [Vec<usize>]);

/// The kernel of one of these ops; `None` if an operand is no box, or has other dims.
pub(super) fn kernel(op: &KernelOp, site: &KernelSite<'_>) -> Option<KernelFn> {
    let operands: Vec<_> = (0..site.operands.len()).map(|at| site.operand(at).ok()).collect::<Option<_>>()?;
    let sizes = Sizes(&operands);
    match op {
        KernelOp::SelectKeys(op) => sizes.indexer(op.keys as usize).map(select_keys),
        KernelOp::IndexScores(_) => sizes.indexer(sizes.last(3)).map(index_scores),
        KernelOp::IndexScoresGrad(_) => sizes.indexer(sizes.last(3)).map(index_scores_grad),
        KernelOp::SparseAttention(op) => sizes.attention(op.scale, 3, sizes.last(2)).map(attention),
        KernelOp::SparseAttentionGrad(op) => sizes.attention(op.scale, 6, sizes.last(2)).map(attention_grad),
        KernelOp::KeyMass(op) => sizes.attention(op.scale, 3, 0).map(key_mass),
        KernelOp::IndexLoss(_) => Some(index_loss(sizes.last(0))),
        KernelOp::IndexLossGrad(_) => Some(index_loss_grad(sizes.last(0))),
        _ => None,
    }
}

impl Sizes<'_> {
    /// The last size of an operand.
    fn last(&self, operand: usize) -> usize {
        self.0.get(operand).and_then(|sizes| sizes.last()).copied().unwrap_or(1)
    }

    /// An indexer with this number of choices.
    fn indexer(&self, j: usize) -> Option<Indexer> {
        let (&[b, s, n, d], &[_, t, _]) = (self.0.first()?.as_slice(), self.0.get(1)?.as_slice()) else { return None };
        Some(Indexer { b, s, t, n, d, j })
    }

    /// An attention with the choices at a place, whose values have `c` elements.
    fn attention(&self, scale: f64, index: usize, c: usize) -> Option<ChosenAttention> {
        let (&[b, s, g, r, d], &[_, t, _, _]) = (self.0.first()?.as_slice(), self.0.get(1)?.as_slice()) else {
            return None;
        };
        Some(ChosenAttention { b, s, t, g, r, d, c, j: self.last(index), scale: scale as f32 })
    }
}

fn select_keys(indexer: Indexer) -> KernelFn {
    Box::new(move |call, par| {
        let (q, k, w) = (call.float(0), call.float(1), call.float(2));
        let (qpos, kpos, qseg, kseg) = (call.int(3), call.int(4), call.int(5), call.int(6));
        let places = Places { qpos, kpos, qseg, kseg };
        sparse::select(&indexer, IndexerInputs { q, k, w }, places, call.stored(0), par, call.scratch);
    })
}

fn index_scores(indexer: Indexer) -> KernelFn {
    Box::new(move |call, par| {
        let x = IndexerInputs { q: call.float(0), k: call.float(1), w: call.float(2) };
        let [scores] = call.outs();
        indexer.scores(x, call.int(3), scores, par, call.scratch);
    })
}

fn index_scores_grad(indexer: Indexer) -> KernelFn {
    Box::new(move |call, par| {
        let x = IndexerInputs { q: call.float(0), k: call.float(1), w: call.float(2) };
        let [dq, dk, dw] = call.outs();
        indexer.gradient(x, call.int(3), call.float(4), Cotangents { dq, dk, dw }, par, call.scratch);
    })
}

fn attention(attention: ChosenAttention) -> KernelFn {
    Box::new(move |call, par| {
        let x = Inputs { q: call.float(0), k: call.float(1), v: call.float(2), index: call.int(3) };
        let [out, lse] = call.outs();
        attention.forward(&x, out, lse, par, call.scratch);
    })
}

fn attention_grad(attention: ChosenAttention) -> KernelFn {
    Box::new(move |call, par| {
        let x = Inputs { q: call.float(0), k: call.float(1), v: call.float(2), index: call.int(6) };
        let saved = Saved { out: call.float(3), lse: call.float(4), dout: call.float(5) };
        let [dq, dk, dv] = call.outs();
        attention.backward(&x, &saved, Gradients { dq, dk, dv }, par, call.scratch);
    })
}

fn key_mass(attention: ChosenAttention) -> KernelFn {
    Box::new(move |call, par| {
        let x = Inputs { q: call.float(0), k: call.float(1), v: &[], index: call.int(3) };
        let [mass] = call.outs();
        attention.mass(&x, call.float(2), mass, par, call.scratch);
    })
}

fn index_loss(j: usize) -> KernelFn {
    Box::new(move |call, _| {
        call.out()[0] = sparse::index_loss(call.float(0), call.float(1), call.int(2), j);
    })
}

fn index_loss_grad(j: usize) -> KernelFn {
    Box::new(move |call, par| {
        let (scores, mass, index, dloss) = (call.float(0), call.float(1), call.int(2), call.scalar(3));
        sparse::index_loss_grad(scores, mass, index, j, dloss, call.out(), par);
    })
}
