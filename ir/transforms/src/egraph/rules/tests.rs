//! Each rule on random shapes.

use crate::egraph::generated::{Draft, LeftSide, check};
use crate::egraph::language::{Contraction, NodeKind, Spread};
use crate::egraph::plain::PlainOp;
use egg::Id;
use ir::types::DType;

const CASES: [LeftSide; 47] = [
    ("commute", |d| {
        let sizes = d.sizes(3);
        let [a, b] = [0; 2].map(|_| d.leaf(&sizes));
        let op = if d.below(2) == 0 { PlainOp::Add } else { PlainOp::Mul };
        d.plain(op, &[a, b]);
        d.plain(op, &[b, a])
    }),
    ("div-is-mul-recip", |d| binary(d, PlainOp::Div)),
    ("recip-sqrt", |d| chain(d, &[PlainOp::Exp, PlainOp::Sqrt, PlainOp::Recip])),
    ("exp-of-half-log", |d| {
        let x = chain(d, &[PlainOp::Exp, PlainOp::Log]);
        let half = d.below(2) as f64 - 0.5;
        let half = d.full(half, x);
        let power = d.plain(PlainOp::Mul, &[x, half]);
        d.plain(PlainOp::Exp, &[power])
    }),
    ("mul-self-is-square", |d| {
        let x = tensor(d, 3);
        d.plain(PlainOp::Mul, &[x, x])
    }),
    ("mul-one", |d| with_number(d, PlainOp::Mul, 1.0)),
    ("negative-scale", |d| with_number(d, PlainOp::Mul, -1.0)),
    ("neg-neg", |d| chain(d, &[PlainOp::Neg, PlainOp::Neg])),
    ("sub-constant", |d| with_number(d, PlainOp::Sub, 0.3)),
    ("scale-scale", |d| twice(d, PlainOp::Mul)),
    ("shift-shift", |d| twice(d, PlainOp::Add)),
    ("select-same", |d| {
        let x = tensor(d, 2);
        let mask = d.integers(&d.shape(x).sizes);
        d.node(NodeKind::Select(false), &[mask, x, x])
    }),
    ("scale-through-sum", |d| {
        let x = with_number(d, PlainOp::Mul, 0.7);
        reduce(d, false, x, &[1])
    }),
    ("cast-back", |d| cast(d, DType::BF16, &[DType::F32, DType::BF16])),
    ("cast-cast", |d| cast(d, DType::BF16, &[DType::F32, DType::F16])),
    ("spread-of-view", |d| {
        let x = merged(d);
        let sizes = d.shape(x).sizes;
        d.node(NodeKind::Spread(Spread { places: vec![0, 2], sizes: vec![sizes[0], 1, sizes[1]] }), &[x])
    }),
    ("view-of-spread", |d| {
        let x = tensor(d, 2);
        let sizes = d.shape(x).sizes;
        d.node(NodeKind::Spread(Spread { places: vec![3, 1], sizes: vec![1, sizes[1], 1, sizes[0]] }), &[x])
    }),
    ("spread-of-reshape", |d| {
        let x = merged(d);
        spread(d, x)
    }),
    ("spread-spread", |d| {
        let x = tensor(d, 2);
        let x = spread(d, x);
        spread(d, x)
    }),
    ("reshape-spread", |d| {
        let x = tensor(d, 2);
        let sizes = d.shape(x).sizes;
        let x = d.node(NodeKind::Spread(Spread { places: vec![1, 2], sizes: [vec![1], sizes.clone()].concat() }), &[x]);
        d.node(NodeKind::Reshape(sizes), &[x])
    }),
    ("reshape-reshape", |d| {
        let x = merged(d);
        let size = d.shape(x).sizes.iter().product();
        d.node(NodeKind::Reshape(vec![size]), &[x])
    }),
    ("spread-after-elementwise", |d| {
        let sizes = d.sizes(2);
        let spread = Spread { places: vec![2, 0], sizes: vec![sizes[1], 3, sizes[0]] };
        let operands = [0; 2].map(|_| {
            let x = d.leaf(&sizes);
            d.node(NodeKind::Spread(spread.clone()), &[x])
        });
        d.plain(PlainOp::Sub, &operands)
    }),
    ("reshape-after-elementwise", |d| {
        let sizes = d.sizes(2);
        let operands = [0; 2].map(|_| {
            let x = d.leaf(&sizes);
            d.node(NodeKind::Reshape(vec![sizes[0] * sizes[1]]), &[x])
        });
        d.plain(PlainOp::Max, &operands)
    }),
    ("scale-after-permute", |d| {
        let x = with_number(d, PlainOp::Mul, 0.7);
        permuted(d, x)
    }),
    ("permute-of-einsum", |d| {
        let (x, y) = (tensor(d, 2), tensor(d, 2));
        let x = outer_sum(d, x, y);
        permuted(d, x)
    }),
    ("einsum-of-permute", |d| {
        let sizes = d.sizes(3);
        let (x, y) = (d.leaf(&sizes), d.leaf(&[sizes[2], 3]));
        let x = d.permute(x, &[1, 0, 2]);
        einsum(d, [&[0, 1, 2], &[2, 3]], &[1, 3, 0], [x, y])
    }),
    ("einsum-of-permuted-sum", |d| {
        let sizes = d.sizes(3);
        let (x, y) = (d.leaf(&[sizes[1], sizes[0], sizes[2]]), d.leaf(&[sizes[0], sizes[1], 2]));
        let x = d.permute(x, &[1, 0, 2]);
        einsum(d, [&[0, 1, 2], &[0, 1, 3]], &[2, 3], [x, y])
    }),
    ("einsum-of-broadcast", |d| {
        let sizes = d.sizes(3);
        let (x, y) = (d.leaf(&[sizes[0], sizes[2]]), d.leaf(&sizes));
        let x = d.node(NodeKind::Spread(Spread { places: vec![0, 2], sizes: sizes.clone() }), &[x]);
        einsum(d, [&[0, 1, 2], &[0, 1, 2]], &[1, 0], [x, y])
    }),
    ("einsum-of-reshape", |d| {
        let sizes = d.sizes(3);
        let (x, y) = (d.leaf(&sizes), d.leaf(&[sizes[1], sizes[2], 2, 3]));
        let x = d.node(NodeKind::Reshape(vec![sizes[0], sizes[1] * sizes[2]]), &[x]);
        let y = d.node(NodeKind::Reshape(vec![sizes[1] * sizes[2], 6]), &[y]);
        einsum(d, [&[0, 1], &[1, 2]], &[2, 0], [x, y])
    }),
    ("sum-of-product", |d| {
        let sizes = d.sizes(3);
        let (x, y) = (d.leaf(&sizes), d.leaf(&[sizes[1]]));
        let y = d.node(NodeKind::Spread(Spread { places: vec![1], sizes: sizes.clone() }), &[y]);
        let x = d.plain(PlainOp::Mul, &[x, y]);
        reduce(d, false, x, &[1])
    }),
    ("einsum-of-units", |d| {
        let sizes = d.sizes(3);
        let (x, y) = (d.leaf(&sizes[..2]), d.leaf(&[sizes[0], 1, sizes[2]]));
        let view = Spread { places: vec![0, 1], sizes: vec![sizes[0], sizes[1], 1] };
        let x = d.node(NodeKind::Spread(view), &[x]);
        einsum(d, [&[0, 1, 2], &[0, 2, 3]], &[0, 3, 1], [x, y])
    }),
    ("einsum-is-sum", |d| {
        let sizes = d.sizes(3);
        let (x, y) = (d.leaf(&sizes), d.leaf(&sizes));
        einsum(d, [&[0, 1, 2], &[0, 1, 2]], &[0, 2], [x, y])
    }),
    ("einsum-of-scale", |d| {
        let x = with_number(d, PlainOp::Mul, 0.7);
        let y = tensor(d, 2);
        outer_sum(d, x, y)
    }),
    ("einsum-common-factor", |d| {
        let sizes = d.sizes(3);
        let (x, y, w) = (d.leaf(&sizes[..2]), d.leaf(&sizes[..2]), d.leaf(&sizes[1..]));
        let parts = [x, y].map(|x| einsum(d, [&[0, 1], &[1, 2]], &[0, 2], [x, w]));
        d.plain(PlainOp::Add, &parts)
    }),
    ("max-of-spread", |d| {
        let x = tensor(d, 2);
        let x = spread(d, x);
        reduce(d, true, x, &[0, 2])
    }),
    ("sum-of-spread", |d| {
        let x = tensor(d, 3);
        let x = d.permute(x, &[1, 0, 2]);
        reduce(d, false, x, &[1, 2])
    }),
    ("sum-of-broadcast", |d| {
        let sizes = d.sizes(3);
        let x = d.leaf(&sizes[1..]);
        let x = d.node(NodeKind::Spread(Spread { places: vec![1, 2], sizes }), &[x]);
        reduce(d, false, x, &[0, 2])
    }),
    ("max-of-max", |d| reduce_twice(d, true)),
    ("sum-of-sum", |d| reduce_twice(d, false)),
    ("reduce-of-reshape", |d| {
        let x = merged(d);
        let over = d.below(2) as usize;
        reduce(d, over == 0, x, &[over])
    }),
    ("slice-of-all", |d| {
        let x = tensor(d, 2);
        let size = d.shape(x).sizes[1];
        slice(d, x, 1, 0, size)
    }),
    ("slice-of-slice", |d| {
        let x = d.leaf(&[6, 2]);
        let x = slice(d, x, 0, 1, 4);
        let start = d.below(3);
        slice(d, x, 0, start, 2)
    }),
    ("slice-of-concat", |d| {
        let (x, y) = (d.leaf(&[3, 2]), d.leaf(&[2, 2]));
        let x = d.node(NodeKind::Concat(0), &[x, y]);
        let start = [0, 1, 3][d.below(3) as usize];
        slice(d, x, 0, start, 2)
    }),
    ("slice-of-elementwise", |d| {
        let sizes = d.sizes(2);
        let operands = [d.leaf(&sizes), d.leaf(&sizes)];
        let x = d.plain(PlainOp::Sub, &operands);
        let x = if d.below(2) == 0 { d.plain(PlainOp::Neg, &[x]) } else { x };
        slice(d, x, 0, 1, 1)
    }),
    ("slice-of-spread", |d| {
        let x = tensor(d, 2);
        let x = spread(d, x);
        let dim = d.below(3) as usize;
        slice(d, x, dim, 1, 1)
    }),
    ("slice-of-einsum", |d| {
        let (x, y) = (tensor(d, 2), tensor(d, 2));
        let x = outer_sum(d, x, y);
        let dim = d.below(2) as usize;
        slice(d, x, dim, 0, 2)
    }),
    ("concat-of-slices", |d| {
        let x = d.leaf(&[2, 6]);
        let (start, first) = (d.below(2), 1 + d.below(3));
        let parts = [(start, first), (start + first, 2)].map(|(start, length)| slice(d, x, 1, start, length));
        d.node(NodeKind::Concat(1), &parts)
    }),
];

fn tensor(d: &mut Draft, rank: usize) -> Id {
    let sizes = d.sizes(rank);
    d.leaf(&sizes)
}

fn binary(d: &mut Draft, op: PlainOp) -> Id {
    let sizes = d.sizes(3);
    let operands = [d.leaf(&sizes), d.leaf(&sizes)];
    d.plain(op, &operands)
}

fn chain(d: &mut Draft, ops: &[PlainOp]) -> Id {
    let x = tensor(d, 2);
    ops.iter().fold(x, |x, &op| d.plain(op, &[x]))
}

fn with_number(d: &mut Draft, op: PlainOp, number: f64) -> Id {
    let x = tensor(d, 2);
    let number = d.full(number, x);
    d.plain(op, &[x, number])
}

fn twice(d: &mut Draft, op: PlainOp) -> Id {
    let x = with_number(d, op, 0.7);
    let number = d.full(1.9, x);
    d.plain(op, &[number, x])
}

fn cast(d: &mut Draft, from: DType, to: &[DType]) -> Id {
    let sizes = d.sizes(2);
    let x = d.leaf_of(from, &sizes);
    to.iter().fold(x, |x, to| d.node(NodeKind::Cast(*to), &[x]))
}

/// A tensor of three dims, the first two of which a reshape merges.
fn merged(d: &mut Draft) -> Id {
    let x = tensor(d, 3);
    let sizes = d.shape(x).sizes;
    d.node(NodeKind::Reshape(vec![sizes[0] * sizes[1], sizes[2]]), &[x])
}

/// A tensor with its dims in a random order and a new one.
fn spread(d: &mut Draft, x: Id) -> Id {
    let own = d.shape(x).sizes;
    let mut places: Vec<usize> = (0..=own.len()).collect();
    for place in (1..places.len()).rev() {
        let other = d.below(place as u64 + 1) as usize;
        places.swap(place, other);
    }
    places.truncate(own.len());
    let mut sizes = vec![3; own.len() + 1];
    places.iter().zip(own).for_each(|(&place, size)| sizes[place] = size);
    d.node(NodeKind::Spread(Spread { places, sizes }), &[x])
}

/// A tensor with its dims in another order.
fn permuted(d: &mut Draft, x: Id) -> Id {
    let rank = d.shape(x).rank();
    let by = 1 + d.below(rank as u64 - 1) as usize;
    let places: Vec<usize> = (0..rank).map(|dim| (dim + by) % rank).collect();
    d.permute(x, &places)
}

fn slice(d: &mut Draft, x: Id, dim: usize, start: u64, length: u64) -> Id {
    d.node(NodeKind::Slice(dim, start, length), &[x])
}

fn reduce(d: &mut Draft, is_max: bool, x: Id, over: &[usize]) -> Id {
    d.node(NodeKind::Reduce { is_max, over: over.to_vec() }, &[x])
}

fn reduce_twice(d: &mut Draft, is_max: bool) -> Id {
    let x = tensor(d, 4);
    let first = d.below(4) as usize;
    let x = reduce(d, is_max, x, &[first]);
    let second = d.below(3) as usize;
    reduce(d, is_max, x, &[second])
}

fn einsum(d: &mut Draft, operands: [&[usize]; 2], result: &[usize], tensors: [Id; 2]) -> Id {
    d.node(NodeKind::Einsum(Contraction::numbered(operands, result)), &tensors)
}

/// `a[i, k] b[k, ..]`, for which the second tensor is drawn again with the size of k.
fn outer_sum(d: &mut Draft, x: Id, y: Id) -> Id {
    let (k, n) = (d.shape(x).sizes[1], d.shape(y).sizes[1]);
    let y = d.leaf(&[k, n]);
    einsum(d, [&[0, 1], &[1, 2]], &[0, 2], [x, y])
}

#[test]
fn both_sides_of_each_rule_are_equal() {
    check(&super::all(), &CASES);
}
