//! Ops on vocabulary tables: embedding and the loss, on the full vocabulary or on the rank's shard of it.

use super::KernelFn;
use super::rows::last;
use device::backend::KernelSite;
use ir::ops::EmbeddingGrad;
use kernels::cpu::cross_entropy::{self, Shard};
use kernels::cpu::embedding;

pub(super) fn embedding(site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let (table, origin) = (site.operand(1)?, site.origin(site.operands[1], 0));
    let h = table[1];
    Ok(Box::new(move |call, par| {
        let ids = call.int(0);
        match call.word() {
            None => embedding::embedding(ids, call.float(1), h, origin, call.out(), par),
            Some(4) => embedding::embedding::<u32>(ids, call.elements(1), h, origin, call.stored(0), par),
            Some(2) => embedding::embedding::<u16>(ids, call.elements(1), h, origin, call.stored(0), par),
            Some(_) => embedding::embedding::<u8>(ids, call.elements(1), h, origin, call.stored(0), par),
        }
    }))
}

pub(super) fn embedding_grad(site: &KernelSite<'_>, op: &EmbeddingGrad) -> Result<KernelFn, String> {
    let (table, origin) = (site.result(0)?, site.origin(site.results[0], 0));
    let h = table[1];
    let pad = op.pad.and_then(|pad| i32::try_from(pad).ok());
    Ok(Box::new(move |call, _| {
        let accumulate = call.accumulate;
        embedding::embedding_grad(call.int(0), call.float(1), h, (origin, pad), call.out(), accumulate);
    }))
}

pub(super) fn cross_entropy(site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let v = last(site)?;
    Ok(Box::new(move |call, par| {
        let (logits, labels) = (call.float(0), call.int(1));
        let [loss, lse] = call.outs();
        cross_entropy::cross_entropy(logits, v, labels, &mut loss[0], lse, par);
    }))
}

/// The logits' last dim: its local size and its first index.
fn vocabulary(site: &KernelSite<'_>) -> Result<(usize, i64), String> {
    let logits = site.operands[0];
    Ok((last(site)?, site.origin(logits, logits.rank() - 1)))
}

pub(super) fn cross_entropy_grad(site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let (v, origin) = vocabulary(site)?;
    Ok(Box::new(move |call, par| {
        let logits = Shard { values: call.float(0), v, origin };
        let (labels, lse, dloss) = (call.int(1), call.float(2), call.scalar(3));
        cross_entropy::cross_entropy_grad(logits, labels, lse, dloss, call.out(), par);
    }))
}

pub(super) fn sum_exp(site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let v = last(site)?;
    Ok(Box::new(move |call, par| cross_entropy::sum_exp(call.float(0), v, call.float(1), call.out(), par)))
}

pub(super) fn pick(site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let (v, origin) = vocabulary(site)?;
    Ok(Box::new(move |call, _| {
        let logits = Shard { values: call.float(0), v, origin };
        let labels = call.int(1);
        cross_entropy::pick(logits, labels, call.out());
    }))
}

pub(super) fn token_loss() -> KernelFn {
    Box::new(|call, _| {
        let (lse, picked, labels) = (call.float(0), call.float(1), call.int(2));
        let rows = lse.iter().zip(picked).zip(labels).filter(|(_, label)| **label >= 0);
        call.out()[0] = rows.map(|((&lse, &picked), _)| f64::from(lse) - f64::from(picked)).sum::<f64>() as f32;
    })
}
