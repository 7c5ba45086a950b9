//! Mixture of experts: the choice of experts, and rows that go to them and back.

use super::picks::Picks;
use super::{At, Steps, of_operand, of_result, result_len, threads, warps};
use device::backend::KernelSite;
use ir::ops::TopK;
use ir::types::Type;
use kernels::cuda::written::{Definitions, texts};

/// The rows of a tensor and the size of its last dim.
fn rows(sizes: &[usize]) -> Result<(usize, usize), String> {
    let (&last, rows) = sizes.split_last().ok_or("a scalar has no rows")?;
    Ok((rows.iter().product(), last))
}

pub(super) fn top_k(op: &TopK, site: &KernelSite<'_>) -> Result<Steps, String> {
    let ((rows, columns), bias) = (rows(&site.operand(0)?)?, if site.operands.len() == 2 { 1 } else { 0 });
    let mut define = Definitions::new()
        .tensor("X", of_operand(site, 0))
        .tensor("BIAS", of_operand(site, bias))
        .tensor("OUT", of_result(site, 0))
        .size("ROWS", rows)
        .size("COLUMNS", columns)
        .size("K", op.k as usize)
        .flag("BIAS", bias == 1);
    if let Some(limit) = op.limit {
        define = define.size("GROUPS", limit.groups as usize).size("OF_GROUPS", limit.from as usize);
        define = define.size("BY", limit.by as usize).size("GROUP_SIZE", columns / limit.groups as usize);
    }
    let work = define.kernel(texts::TOP_K, "top_k", threads(rows));
    Ok(Steps::one(work, vec![At::Operand(0), At::Operand(bias)], vec![At::Result(0), At::Result(1)]))
}

pub(super) fn top_k_grad(site: &KernelSite<'_>) -> Result<Steps, String> {
    let ((_, k), (_, columns), n) = (rows(&site.operand(0)?)?, rows(&site.result(0)?)?, result_len(site, 0));
    let define = Definitions::new().tensor("X", of_operand(site, 1)).tensor("OUT", of_result(site, 0));
    let work =
        define.size("N", n).size("K", k).size("COLUMNS", columns).kernel(texts::TOP_K_GRAD, "top_k_grad", threads(n));
    Ok(Steps::one(work, vec![At::Operand(0), At::Operand(1)], vec![At::Result(0)]))
}

/// The sizes of a routing.
struct Routing {
    groups: usize,
    tokens: usize,
    each: usize,
    experts: usize,
    capacity: usize,
    h: usize,
    origin: i64,
}

impl Routing {
    /// From the types of the choices `[*g, t, k]` and those of the experts' rows `[*g, e, c, h]`.
    fn new(site: &KernelSite<'_>, index: &Type, rows: &Type) -> Result<Routing, String> {
        let (index, sizes) = (site.sizes(index)?, site.sizes(rows)?);
        let (&[ref groups @ .., tokens, each], &[.., experts, capacity, h]) = (&index[..], &sizes[..]) else {
            return Err("wants choices [.., t, k] and rows [.., e, c, h]".to_string());
        };
        let origin = site.origin(rows, rows.rank() - 3);
        Ok(Routing { groups: groups.iter().product(), tokens, each, experts, capacity, h, origin })
    }

    fn define(&self) -> Definitions {
        let Routing { groups, tokens, each, experts, capacity, h, .. } = *self;
        let define = Definitions::new().size("ROUTING_GROUPS", groups).size("TOKENS", tokens).size("EACH", each);
        let define = define.size("CHOICES", tokens * each).size("EXPERTS", experts).size("CAPACITY", capacity);
        define.size("H", h)
    }

    /// The steps that deal the choices of an operand: scratch memory 0 has their rows, and 1 the choices of the rows.
    fn deal(&self, index: usize, counts: At) -> Steps {
        let picks = Picks {
            batches: self.groups,
            picks: self.tokens * self.each,
            length: self.experts,
            origin: self.origin,
            pad: None,
        };
        let kernel = |name, blocks| picks.define(self.define()).kernel(texts::DEAL, name, blocks);
        let rows = picks.places() * self.capacity;
        let numbers = [picks.all(), rows, picks.places()].map(|words| words * size_of::<u32>());
        let steps = Steps { scratch: [&numbers[..], &picks.scratch()].concat(), ..Steps::default() };
        let [by_chunk, ranks, starts, bases] = [3, 4, 5, 6].map(At::Scratch);
        let index = At::Operand(index);
        picks.count(steps, kernel, index, [by_chunk, ranks, starts, bases], counts).then(
            kernel("deal", threads(picks.all().max(rows))),
            vec![index, by_chunk, ranks, counts],
            vec![At::Scratch(0), At::Scratch(1)],
        )
    }
}

/// The operand of weights, or the first one if there are none.
fn weights(define: Definitions, site: &KernelSite<'_>) -> Result<(Definitions, At), String> {
    let weights = if site.operands.len() == 3 { 2 } else { 0 };
    let define = define.tensor("WEIGHT", of_operand(site, weights)).flag("WEIGHTED", weights == 2);
    let define = define.tensor("X", of_operand(site, 0)).tensor("OUT", of_result(site, 0));
    Ok((define, At::Operand(weights)))
}

pub(super) fn dispatch(site: &KernelSite<'_>) -> Result<Steps, String> {
    let routing = Routing::new(site, site.operands[1], site.results[0])?;
    let (define, weights) = weights(routing.define(), site)?;
    let work = define.kernel(texts::DISPATCH, "dispatch", threads(result_len(site, 0)));
    let steps = routing.deal(1, At::Result(1));
    let steps = steps.then(work, vec![At::Operand(0), weights, At::Scratch(1)], vec![At::Result(0)]);
    if !site.forward {
        return Ok(steps);
    }
    let tally = routing.define().kernel(texts::TALLY, "tally", 1);
    Ok(steps.then(tally, vec![At::Result(1)], vec![At::Tally]))
}

pub(super) fn combine(site: &KernelSite<'_>) -> Result<Steps, String> {
    let routing = Routing::new(site, site.operands[1], site.operands[0])?;
    let (define, weights) = weights(routing.define(), site)?;
    let work = define.kernel(texts::COMBINE, "combine", threads(result_len(site, 0)));
    let steps = routing.deal(1, At::Scratch(2));
    Ok(steps.then(work, vec![At::Operand(0), weights, At::Scratch(0)], vec![At::Result(0)]))
}

/// Operands x, y, index.
pub(super) fn combine_dw(site: &KernelSite<'_>) -> Result<Steps, String> {
    let routing = Routing::new(site, site.operands[2], site.operands[1])?;
    let define = routing.define().tensor("X", of_operand(site, 0)).tensor("Y", of_operand(site, 1));
    let define = define.tensor("OUT", of_result(site, 0));
    let work = define.kernel(texts::COMBINE_DW, "combine_dw", warps(result_len(site, 0)));
    let steps = routing.deal(2, At::Scratch(2));
    Ok(steps.then(work, vec![At::Operand(0), At::Operand(1), At::Scratch(0)], vec![At::Result(0)]))
}
