//! Attention to chosen keys, the indexer that chooses them, and its loss.

use super::KernelFn;
use super::rows::last;
use device::backend::KernelSite;
use ir::ops::SelectKeys;
use kernels::cpu::sparse::{self, Attention, Cotangents, Gradients, Indexer, Inputs, Places, Saved};

/// Sizes by operands q, k and the number of choices.
fn indexer(site: &KernelSite<'_>, j: usize) -> Result<Indexer, String> {
    let (q, k) = (site.operand(0)?, site.operand(1)?);
    let (&[b, s, n, d], &[_, t, _]) = (q.as_slice(), k.as_slice()) else {
        return Err("wants q [b, s, n, d] and k [b, t, d]".to_string());
    };
    Ok(Indexer { b, s, t, n, d, j })
}

pub(super) fn select_keys(op: &SelectKeys, site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let keys = usize::try_from(op.keys).map_err(|_| format!("{} keys are too many", op.keys))?;
    let indexer = indexer(site, keys)?;
    Ok(Box::new(move |call, par| {
        let [qpos, kpos, qseg, kseg] = [3, 4, 5, 6].map(|operand| call.int(operand));
        let places = Places { qpos, kpos, qseg, kseg };
        let x = [0, 1, 2].map(|operand| call.float(operand));
        sparse::select(&indexer, x, places, call.stored(0), par, call.scratch);
    }))
}

pub(super) fn index_scores(site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let indexer = indexer(site, choices(site, 3)?)?;
    Ok(Box::new(move |call, par| {
        let x = [0, 1, 2].map(|operand| call.float(operand));
        let [scores] = call.outs();
        indexer.scores(x, call.int(3), scores, par, call.scratch);
    }))
}

pub(super) fn index_scores_grad(site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let indexer = indexer(site, choices(site, 3)?)?;
    Ok(Box::new(move |call, par| {
        let x = [0, 1, 2].map(|operand| call.float(operand));
        let of_scores = (call.int(3), call.float(4));
        let [dq, dk, dw] = call.outs();
        indexer.gradient(x, of_scores, Cotangents { dq, dk, dw }, par, call.scratch);
    }))
}

/// The number of choices of a query.
fn choices(site: &KernelSite<'_>, operand: usize) -> Result<usize, String> {
    site.operand(operand)?.last().copied().ok_or_else(|| "choices have no dims".to_string())
}

/// Sizes by operands q, k, and the choices at a place; `c` are the elements of a value.
fn sizes(scale: f64, site: &KernelSite<'_>, index: usize, c: usize) -> Result<Attention, String> {
    let (q, k) = (site.operand(0)?, site.operand(1)?);
    let (&[b, s, g, r, d], &[_, t, _, _]) = (q.as_slice(), k.as_slice()) else {
        return Err("wants q [b, s, g, r, d] and k [b, t, g, d]".to_string());
    };
    Ok(Attention { b, s, t, g, r, d, c, j: choices(site, index)?, scale: scale as f32 })
}

/// The elements of a value, operand 2.
fn value(site: &KernelSite<'_>) -> Result<usize, String> {
    site.operand(2)?.last().copied().ok_or_else(|| "values have no dims".to_string())
}

pub(super) fn attention(scale: f64, site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let attention = sizes(scale, site, 3, value(site)?)?;
    Ok(Box::new(move |call, par| {
        let [q, k, v] = [0, 1, 2].map(|operand| call.float(operand));
        let x = Inputs { q, k, v, index: call.int(3) };
        attention.forward(&x, call.outs(), par, call.scratch);
    }))
}

pub(super) fn attention_grad(scale: f64, site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let attention = sizes(scale, site, 6, value(site)?)?;
    Ok(Box::new(move |call, par| {
        let [q, k, v, out, lse, dout] = [0, 1, 2, 3, 4, 5].map(|operand| call.float(operand));
        let (x, saved) = (Inputs { q, k, v, index: call.int(6) }, Saved { out, lse, dout });
        let [dq, dk, dv] = call.outs();
        attention.backward(&x, &saved, Gradients { dq, dk, dv }, par, call.scratch);
    }))
}

pub(super) fn key_mass(scale: f64, site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let attention = sizes(scale, site, 3, 0)?;
    Ok(Box::new(move |call, par| {
        let x = Inputs { q: call.float(0), k: call.float(1), v: &[], index: call.int(3) };
        let [mass] = call.outs();
        attention.mass(&x, call.float(2), mass, par, call.scratch);
    }))
}

pub(super) fn index_loss(site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let j = last(site)?;
    Ok(Box::new(move |call, _| call.out()[0] = sparse::index_loss([call.float(0), call.float(1)], call.int(2), j)))
}

pub(super) fn index_loss_grad(site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let j = last(site)?;
    Ok(Box::new(move |call, par| {
        let (x, dloss) = ([call.float(0), call.float(1)], call.scalar(3));
        sparse::index_loss_grad(x, call.int(2), j, dloss, call.out(), par);
    }))
}
