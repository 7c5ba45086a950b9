//! Equalities of sums and maxima over dims.

use super::moves::{reshapes, spreads};
use crate::egraph::language::{NodeKind, Spread, merged};
use crate::egraph::look::Look;
use crate::egraph::plain::PlainOp;
use crate::egraph::rule::{Equal, Rounding, Rule, Term};
use egg::Id;

pub(crate) const RULES: [Rule; 6] = [
    Rule { name: "max-of-spread", rounding: Rounding::Exact, find: max_of_spread },
    Rule { name: "sum-of-spread", rounding: Rounding::Exact, find: sum_of_spread },
    Rule { name: "sum-of-broadcast", rounding: Rounding::Fewer, find: sum_of_broadcast },
    Rule { name: "max-of-max", rounding: Rounding::Exact, find: max_of_max },
    Rule { name: "sum-of-sum", rounding: Rounding::Reorders, find: sum_of_sum },
    Rule { name: "reduce-of-reshape", rounding: Rounding::Exact, find: reduced_merged },
];

fn reductions<'a>(look: &Look<'a>, class: Id) -> impl Iterator<Item = (bool, &'a [usize], Id)> + use<'a> {
    look.nodes(class).filter_map(|node| match &node.kind {
        NodeKind::Reduce { is_max, over } => Some((*is_max, over.as_slice(), node.operands[0])),
        _ => None,
    })
}

fn reduced(is_max: bool, over: Vec<usize>, x: Term) -> Term {
    if over.is_empty() { x } else { Term::Node(NodeKind::Reduce { is_max, over }, vec![x]) }
}

/// A reduction of a spread as the spread of a reduction.
struct Moved {
    is_max: bool,
    /// The number of times that a sum has each element.
    times: u64,
    /// True if the summed dims keep their order.
    stays: bool,
    term: Term,
}

fn moved(look: &Look<'_>, class: Id) -> Vec<Moved> {
    let mut found = Vec::new();
    for (is_max, over, middle) in reductions(look, class) {
        for (spread, x) in spreads(look, middle) {
            let Spread { places, sizes } = spread;
            let own: Vec<usize> = (0..places.len()).filter(|&dim| over.contains(&places[dim])).collect();
            let kept: Vec<usize> = (0..sizes.len()).filter(|place| !over.contains(place)).collect();
            let target = |dim: &usize| kept.iter().position(|place| *place == places[*dim]);
            let outer = Spread {
                places: (0..places.len()).filter_map(|dim| target(&dim)).collect(),
                sizes: kept.iter().map(|&place| sizes[place]).collect(),
            };
            let new = over.iter().filter(|place| !places.contains(place));
            found.push(Moved {
                is_max,
                times: new.map(|&place| sizes[place]).product(),
                stays: own.iter().map(|&dim| places[dim]).is_sorted(),
                term: reduced(is_max, own, Term::Class(x)).spread(outer),
            });
        }
    }
    found
}

/// `max(spread(x)) = spread(max(x))`
fn max_of_spread(look: &Look<'_>, class: Id) -> Vec<Equal> {
    moved(look, class).into_iter().filter(|moved| moved.is_max).map(|moved| Equal { class, term: moved.term }).collect()
}

/// `sum(spread(x)) = spread(sum(x))` where no new dim is summed and summed dims keep their order.
fn sum_of_spread(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let sums = moved(look, class).into_iter().filter(|moved| !moved.is_max && moved.times == 1 && moved.stays);
    sums.map(|moved| Equal { class, term: moved.term }).collect()
}

/// `sum(broadcast(x)) = n x`
fn sum_of_broadcast(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let sums = moved(look, class).into_iter().filter(|moved| !moved.is_max && moved.times > 1 && moved.stays);
    let scaled = |moved: Moved| {
        let times = Term::full(moved.times as f64, look.shape(class));
        Equal { class, term: Term::plain(PlainOp::Mul, [moved.term, times]) }
    };
    sums.map(scaled).collect()
}

/// The reductions of reductions of the same kind as one.
fn joined(look: &Look<'_>, class: Id, wanted: bool) -> Vec<Equal> {
    let mut found = Vec::new();
    for (is_max, outer, middle) in reductions(look, class).filter(|(is_max, ..)| *is_max == wanted) {
        for (_, inner, x) in reductions(look, middle).filter(|(is_max, ..)| *is_max == wanted) {
            let left: Vec<usize> = (0..look.shape(x).rank()).filter(|dim| !inner.contains(dim)).collect();
            let mut over: Vec<usize> = inner.iter().copied().chain(outer.iter().map(|&dim| left[dim])).collect();
            over.sort_unstable();
            found.push(Equal { class, term: reduced(is_max, over, Term::Class(x)) });
        }
    }
    found
}

/// `max(max(x)) = max(x)`
fn max_of_max(look: &Look<'_>, class: Id) -> Vec<Equal> {
    joined(look, class, true)
}

/// `sum(sum(x)) = sum(x)`
fn sum_of_sum(look: &Look<'_>, class: Id) -> Vec<Equal> {
    joined(look, class, false)
}

/// `reduce(reshape(x)) = reshape(reduce(x))` where the reshape merges dims.
fn reduced_merged(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let mut found = Vec::new();
    for (is_max, over, middle) in reductions(look, class) {
        for x in reshapes(look, middle) {
            let own = &look.shape(x).sizes;
            let Some(groups) = merged(own, &look.shape(middle).sizes) else { continue };
            let dims: Vec<usize> = over.iter().flat_map(|&dim| groups[dim].clone()).collect();
            let kept = own.iter().enumerate().filter(|(dim, _)| !dims.contains(dim)).map(|(_, &size)| size);
            let to = &look.shape(class).sizes;
            let is_same = kept.eq(to.iter().copied());
            let term = reduced(is_max, dims, Term::Class(x));
            found.push(Equal {
                class,
                term: if is_same { term } else { Term::Node(NodeKind::Reshape(to.clone()), vec![term]) },
            });
        }
    }
    found
}
