//! Mixture of experts: routing, dispatch and combine.

use super::rows::last;
use super::{Call, KernelFn, Shared};
use device::backend::KernelSite;
use ir::ops::{GroupLimit, TopK};
use kernels::cpu::experts::{self, Routing};
use kernels::cpu::top_k;
use std::sync::Arc;

pub(super) fn top_k(op: &TopK, site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let (columns, k, biased) = (last(site)?, op.k as usize, site.operands.len() == 2);
    let limit = op.limit.map(|GroupLimit { groups, from, by }| top_k::GroupLimit {
        groups: groups as usize,
        from: from as usize,
        by: by as usize,
    });
    Ok(Box::new(move |call, par| {
        let (x, bias) = (call.float(0), biased.then(|| call.float(1)));
        let index = call.stored(1);
        let [values] = call.outs();
        top_k::top_k(x, &top_k::TopK { columns, k, bias, limit }, values, index, par);
    }))
}

pub(super) fn top_k_grad(site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let (k, scores) = (last(site)?, site.result(0)?);
    let columns = scores[scores.len() - 1];
    Ok(Box::new(move |call, _| {
        let (index, dvalues) = (call.int(0), call.float(1));
        top_k::top_k_grad(index, dvalues, k, columns, call.out());
    }))
}

/// The sizes of a routing.
struct Sizes {
    tokens: usize,
    choices: usize,
    experts: usize,
    capacity: usize,
    origin: i64,
    h: usize,
}

impl Sizes {
    /// From the local sizes of the choices `[*g, t, k]` and those of the experts' rows `[*g, e, c, h]`, and the first expert.
    fn new(index: &[usize], rows: &[usize], origin: i64) -> Result<Sizes, String> {
        let (&[.., tokens, choices], &[.., experts, capacity, h]) = (index, rows) else {
            return Err("wants choices [.., t, k] and rows [.., e, c, h]".to_string());
        };
        Ok(Sizes { tokens, choices, experts, capacity, origin, h })
    }

    fn routing<'a>(&self, index: &'a [i32], weights: Option<&'a [f32]>) -> Routing<'a> {
        let Sizes { tokens, choices, experts, capacity, origin, .. } = *self;
        Routing { index, weights, tokens, choices, experts, capacity, origin }
    }
}

/// Writes the result with a place for a number of each local expert of each group.
fn with_counts(
    (call, counts): (&mut Call<'_>, &mut Vec<i32>),
    sizes: &Sizes,
    choices: usize,
    write: impl FnOnce(&mut [f32], &mut [i32]),
) {
    counts.resize(choices / (sizes.tokens * sizes.choices).max(1) * sizes.experts, 0);
    write(call.out(), counts);
}

pub(super) fn dispatch(site: &KernelSite<'_>, shared: &Arc<Shared>) -> Result<KernelFn, String> {
    let rows = site.results[0];
    let sizes = Sizes::new(&site.operand(1)?, &site.result(0)?, site.origin(rows, rows.rank() - 3))?;
    let weighted = site.operands.len() == 3;
    let shared = site.forward.then(|| shared.clone());
    Ok(Box::new(move |call, par| {
        let routing = sizes.routing(call.int(1), weighted.then(|| call.float(2)));
        let x = call.float(0);
        let count = call.stored(1);
        let [out] = call.outs();
        experts::dispatch(x, sizes.h, &routing, out, count, par);
        shared.iter().for_each(|shared| shared.tally.note(count, sizes.capacity));
    }))
}

pub(super) fn combine(site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let rows = site.operands[0];
    let sizes = Sizes::new(&site.operand(1)?, &site.operand(0)?, site.origin(rows, rows.rank() - 3))?;
    let weighted = site.operands.len() == 3;
    let mut counts = Vec::new();
    Ok(Box::new(move |call, par| {
        let (y, index) = (call.float(0), call.int(1));
        let routing = sizes.routing(index, weighted.then(|| call.float(2)));
        with_counts((call, &mut counts), &sizes, index.len(), |out, count| {
            experts::combine(y, sizes.h, &routing, out, count, par);
        });
    }))
}

pub(super) fn combine_dw(site: &KernelSite<'_>) -> Result<KernelFn, String> {
    let rows = site.operands[1];
    let sizes = Sizes::new(&site.operand(2)?, &site.operand(1)?, site.origin(rows, rows.rank() - 3))?;
    let mut counts = Vec::new();
    Ok(Box::new(move |call, par| {
        let (x, y, index) = (call.float(0), call.float(1), call.int(2));
        with_counts((call, &mut counts), &sizes, index.len(), |out, count| {
            experts::combine_dw(x, y, sizes.h, &sizes.routing(index, None), out, count, par);
        });
    }))
}
