//! `attention`: scores by a contraction, their softmax, and the contraction with the values.

use super::mask::{Index, Limit, masked};
use crate::egraph::language::{Contraction, Made, Node, NodeKind, Number, Shape, Spread};
use crate::egraph::look::Look;
use crate::egraph::plain::PlainOp;
use crate::egraph::rule::{Equal, Rounding, Rule, Term};
use egg::Id;

pub(super) const RULES: [Rule; 1] = [Rule { name: "attention", rounding: Rounding::Reorders, find: attention }];

fn contractions<'a>(look: &Look<'a>, class: Id) -> Vec<(&'a Contraction, [Id; 2])> {
    look.kinds(class, |node: &'a Node| match &node.kind {
        NodeKind::Einsum(contraction) => Some((contraction, [node.operands[0], node.operands[1]])),
        _ => None,
    })
}

/// `dropout(softmax(mask(scale q k))) v`, or without mask or dropout
fn attention(look: &Look<'_>, class: Id) -> Vec<Equal> {
    let mut found = Vec::new();
    for (weighted, operands) in contractions(look, class) {
        for side in [0, 1] {
            let weights = &weighted.operands[side];
            let (values, v) = (&weighted.operands[1 - side], operands[1 - side]);
            let sum = Sum { weights, values, result: &weighted.result, v };
            for (masked_scores, dropout) in weights_of(look, operands[side]) {
                for (scores, limits) in masked(look, masked_scores) {
                    for (scale, q, k) in products(look, scores) {
                        let terms = Terms { limits: &limits, scale, dropout, to: look.shape(class) };
                        let term = Heads::new(look, &sum, q, k, &limits).and_then(|heads| heads.term(look, &terms));
                        found.extend(term.map(|term| Equal { class, term }));
                    }
                }
            }
        }
    }
    found
}

/// Probability and path of a dropout.
type Dropout<'a> = (Number, &'a str);

/// The scores whose softmax the class is, and the dropout of the softmax.
fn weights_of<'a>(look: &Look<'a>, class: Id) -> Vec<(Id, Option<Dropout<'a>>)> {
    let dropped = look.kinds(class, |node: &'a Node| match &node.kind {
        NodeKind::Dropout(p, path) => Some((node.operands[0], (*p, path.as_str()))),
        _ => None,
    });
    let dropped = dropped.into_iter().map(|(weights, dropout)| (weights, Some(dropout)));
    let mut found = Vec::new();
    for (weights, dropout) in [(class, None)].into_iter().chain(dropped) {
        found.extend(look.unary(weights, PlainOp::Softmax).into_iter().map(|scores| (scores, dropout)));
    }
    found
}

/// An operand of the scores, and its indices.
#[derive(Clone, Copy)]
struct Operand<'a> {
    class: Id,
    indices: &'a [u8],
    result: &'a [u8],
}

impl<'a> Operand<'a> {
    fn of(contraction: &'a Contraction, class: Id, place: usize) -> Operand<'a> {
        Operand { class, indices: &contraction.operands[place], result: &contraction.result }
    }

    fn has(&self, index: u8) -> bool {
        self.indices.contains(&index)
    }

    /// The size of the dim of an index.
    fn size(&self, look: &Look<'_>, index: u8) -> Option<u64> {
        position(self.indices, index).map(|dim| look.shape(self.class).sizes[dim])
    }
}

fn position(indices: &[u8], index: u8) -> Option<usize> {
    indices.iter().position(|other| *other == index)
}

/// The ways to write a class as a number times another class.
fn scaled(look: &Look<'_>, class: Id) -> Vec<(Id, f64)> {
    let products = look.products(class).into_iter();
    products.filter(|(factors, _)| factors.len() == 1).map(|(factors, by)| (factors[0], by)).collect()
}

/// The ways to write scores as a scale times the product of queries and keys.
fn products<'a>(look: &Look<'a>, class: Id) -> Vec<(f64, Operand<'a>, Operand<'a>)> {
    let mut found = Vec::new();
    for (scores, scale) in scaled(look, class) {
        for (contraction, operands) in contractions(look, scores) {
            for [q, k] in [[0, 1], [1, 0]] {
                for (a, first) in scaled(look, operands[q]) {
                    for (b, second) in scaled(look, operands[k]) {
                        let (a, b) = (Operand::of(contraction, a, q), Operand::of(contraction, b, k));
                        found.push((scale * first * second, a, b));
                    }
                }
            }
        }
    }
    found
}

/// The contraction of the weights with the values.
struct Sum<'a> {
    weights: &'a [u8],
    values: &'a [u8],
    result: &'a [u8],
    v: Id,
}

/// The rest of the term.
struct Terms<'a> {
    limits: &'a [Limit],
    scale: f64,
    dropout: Option<Dropout<'a>>,
    /// The shape of the result.
    to: &'a Shape,
}

/// The places of the dims of attention in its operands. Scores have the dims `b g s r` in any order, `g` and `r` perhaps
/// missing, and then `t`.
struct Heads {
    /// The place of `b`, `s`, `g`, `r` in the scores.
    scores: [Option<usize>; 4],
    /// `b`, `s`, `g`, `r`, `d` in the queries.
    q: Placed<5>,
    /// `b`, `t`, `g`, `d` in the keys.
    k: Placed<4>,
    /// `b`, `t`, `g`, `c` in the values.
    v: Placed<4>,
    /// The places of `b`, `s`, `g`, `r`, `c` in the result.
    out: [Option<usize>; 5],
}

/// An operand of the op, and the places of the op's dims in it.
struct Placed<const N: usize> {
    class: Id,
    places: [Option<usize>; N],
}

impl Heads {
    /// The roles of all dims; `None` if the contractions are others than those of attention.
    fn new(look: &Look<'_>, sum: &Sum<'_>, q: Operand<'_>, k: Operand<'_>, limits: &[Limit]) -> Option<Heads> {
        let scores = q.result;
        let last = scores.len().checked_sub(1)?;
        let mut contracted = q.indices.iter().chain(k.indices).filter(|index| !scores.contains(index));
        let d = *contracted.next()?;
        let is_sound = contracted.all(|&other| other == d)
            && q.has(d)
            && k.has(d)
            && !q.has(scores[last])
            && scores[..last].iter().all(|index| q.has(*index));
        let (shared, own): (Vec<usize>, Vec<usize>) = (0..last).partition(|&place| k.has(scores[place]));
        if !is_sound {
            return None;
        }
        let [b, g] = chosen(&shared, limits, |_| false)?;
        let [s, r] = chosen(&own, limits, |place| q.size(look, scores[place]) == k.size(look, scores[last]))?;
        let c = *sum.values.iter().find(|index| !sum.weights.contains(index))?;
        let (of_queries, of_keys) = ([b, s, g, r], [b, Some(last), g]);
        let q_places = with(carried(of_queries, scores, q.indices), position(q.indices, d));
        let k_places = with(carried(of_keys, scores, k.indices), position(k.indices, d));
        let v_places = with(carried(of_keys, sum.weights, sum.values), position(sum.values, c));
        let out = with(carried(of_queries, sum.weights, sum.result), position(sum.result, c));
        let agree = covers(&q_places, q.indices)
            && covers(&k_places, k.indices)
            && covers(&v_places, sum.values)
            && covers(&out, sum.result)
            && v_places[2].is_some() == g.is_some();
        agree.then_some(Heads {
            scores: of_queries,
            q: Placed { class: q.class, places: q_places },
            k: Placed { class: k.class, places: k_places },
            v: Placed { class: sum.v, places: v_places },
            out,
        })
    }

    /// True if the scores have the op's order of dims. It decides which random number drops which weight.
    fn is_in_order(&self) -> bool {
        self.scores.iter().flatten().enumerate().all(|(place, at)| place == *at)
    }

    /// The op on operands in its order of dims, and its result in that of the class.
    fn term(&self, look: &Look<'_>, terms: &Terms<'_>) -> Option<Term> {
        let Terms { limits, scale, dropout, to } = *terms;
        if dropout.is_some() && !self.is_in_order() {
            return None;
        }
        let q = look.in_dtype(self.q.class, to.dtype)?;
        let k = look.in_dtype(self.k.class, to.dtype)?;
        let v = look.in_dtype(self.v.class, to.dtype)?;
        let repeats = match self.scores {
            [_, _, Some(_), None] => repeated(look, k, self.k.places[2]?).zip(repeated(look, v, self.v.places[2]?)),
            _ => None,
        };
        let (mut q_term, q_sizes) = arranged(look, q, &self.q.places);
        let (mut k_term, k_sizes) = arranged(look, k, &self.k.places);
        let (mut v_term, v_sizes) = arranged(look, v, &self.v.places);
        let [b, s, heads, r, _] = q_sizes;
        let mut sizes = [b, s, heads, r, v_sizes[3]];
        if let Some((k0, v0)) = repeats.filter(|(k, v)| (k.groups, k.times) == (v.groups, v.times)) {
            sizes = [b, s, k0.groups, k0.times, v_sizes[3]];
            q_term = Term::Node(NodeKind::Reshape(vec![b, s, k0.groups, k0.times, q_sizes[4]]), vec![q_term]);
            k_term = k0.arranged(&self.k.places, [b, k_sizes[1], k0.groups, k_sizes[3]]);
            v_term = v0.arranged(&self.v.places, [b, v_sizes[1], k0.groups, v_sizes[3]]);
        }
        let indices = self.indices(look, limits, [b, s], [b, k_sizes[1]])?;
        let is_causal = limits.iter().any(|limit| matches!(limit, Limit::Causal(..)));
        let dropout = dropout.map(|(p, path)| (p, path.to_string()));
        let op = Made::Attention { scale: Number::new(scale), causal: is_causal, dropout };
        let operands = [q_term, k_term, v_term].into_iter().chain(indices).collect();
        let shape = Shape { dtype: to.dtype, sizes: sizes.to_vec() };
        Some(self.returned(Term::Node(NodeKind::Made(op), operands).out(0, shape), to))
    }

    /// The op's result with the dims of the class.
    fn returned(&self, out: Term, to: &Shape) -> Term {
        let places: Vec<usize> = self.out.iter().flatten().copied().collect();
        let sizes = places.iter().map(|&place| to.sizes[place]).collect();
        let flat = if places.len() == 5 { out } else { Term::Node(NodeKind::Reshape(sizes), vec![out]) };
        flat.spread(Spread { places, sizes: to.sizes.clone() })
    }

    /// Positions and segments of queries and keys. Without limits, indices that hide nothing. Each query sees its own key, so
    /// no row of scores is hidden as a whole.
    fn indices(&self, look: &Look<'_>, limits: &[Limit], queries: [u64; 2], keys: [u64; 2]) -> Option<[Term; 4]> {
        let rank = self.scores.iter().flatten().count();
        let (mut positions, mut segments) = (None, None);
        for limit in limits {
            let (slot, pair) = match limit {
                Limit::Causal(key, query) => (&mut positions, (key, query)),
                Limit::Equal(a, b) if a.places.contains(&rank) => (&mut segments, (a, b)),
                Limit::Equal(a, b) => (&mut segments, (b, a)),
            };
            let key = self.placed(pair.0, [self.scores[0], Some(rank)])?;
            let query = self.placed(pair.1, [self.scores[0], self.scores[1]])?;
            if queries != keys || key != query || !look.is_same(pair.0.class, pair.1.class) || slot.is_some() {
                return None;
            }
            *slot = Some(Index { class: pair.0.class, places: key });
        }
        let [qpos, qseg] = positions_and_segments(positions.as_ref(), segments.as_ref(), queries);
        let [kpos, kseg] = positions_and_segments(positions.as_ref(), segments.as_ref(), keys);
        Some([qpos, kpos, qseg, kseg])
    }

    /// The places of an index's dims among two dims of the scores.
    fn placed(&self, index: &Index, dims: [Option<usize>; 2]) -> Option<Vec<usize>> {
        index.places.iter().map(|place| dims.iter().position(|dim| *dim == Some(*place))).collect()
    }
}

/// The positions and the segments of queries or of keys with dims of these sizes.
fn positions_and_segments(positions: Option<&Index>, segments: Option<&Index>, sizes: [u64; 2]) -> [Term; 2] {
    match [positions, segments].map(|index| index.map(|index| placed(index, sizes))) {
        [Some(positions), Some(segments)] => [positions, segments],
        // All are equal to themselves.
        [Some(positions), None] => [positions.clone(), Term::plain(PlainOp::Equal, [positions.clone(), positions])],
        [None, Some(segments)] => [segments.clone(), segments],
        [None, None] => [count(1, sizes), count(0, sizes)],
    }
}

/// An index with its dims at places among those of these sizes.
fn placed(index: &Index, sizes: [u64; 2]) -> Term {
    Term::Class(index.class).spread(Spread { places: index.places.clone(), sizes: sizes.to_vec() })
}

/// The numbers of the entries along one of two dims.
fn count(dim: usize, sizes: [u64; 2]) -> Term {
    let count = Term::Node(NodeKind::Iota(sizes[dim]), Vec::new());
    count.spread(Spread { places: vec![dim], sizes: sizes.to_vec() })
}

/// The first of one or two places, and the second if there is one. Indices of a mask belong to the first; without a mask, the
/// likely one is the first.
fn chosen(places: &[usize], limits: &[Limit], is_likely: impl Fn(usize) -> bool) -> Option<[Option<usize>; 2]> {
    let (first, second) = match *places {
        [one] => return Some([Some(one), None]),
        [first, second] => (first, second),
        _ => return None,
    };
    let [of_first, of_second] = [first, second].map(|place| limits.iter().any(|limit| limit.has(place)));
    let is_swapped = !of_first && (of_second || is_likely(second) && !is_likely(first));
    Some(if is_swapped { [Some(second), Some(first)] } else { [Some(first), Some(second)] })
}

/// The places of the dims at `places` of one tensor in another with some of its indices.
fn carried<const N: usize>(places: [Option<usize>; N], from: &[u8], to: &[u8]) -> [Option<usize>; N] {
    places.map(|place| place.and_then(|place| position(to, from[place])))
}

/// True if each index has one of the places.
fn covers(places: &[Option<usize>], indices: &[u8]) -> bool {
    places.iter().flatten().count() == indices.len()
}

fn with<const N: usize, const M: usize>(places: [Option<usize>; N], last: Option<usize>) -> [Option<usize>; M] {
    let mut all = places.into_iter().chain([last]);
    std::array::from_fn(|_| all.next().flatten())
}

/// A tensor with its dims at places in the op's order; missing dims have one element.
fn arranged<const N: usize>(look: &Look<'_>, class: Id, places: &[Option<usize>; N]) -> (Term, [u64; N]) {
    let own = &look.shape(class).sizes;
    let sizes = places.map(|place| place.map_or(1, |place| own[place]));
    let targets = (0..own.len()).map(|dim| places.iter().position(|place| *place == Some(dim)).unwrap_or(dim));
    let spread = Spread { places: targets.collect(), sizes: sizes.to_vec() };
    (Term::Class(class).spread(spread), sizes)
}

/// Keys or values that an operand repeats for each query of a group.
struct Repeated {
    class: Id,
    /// Per dim of the class, its place in the operand.
    places: Vec<usize>,
    groups: u64,
    times: u64,
}

/// The operand without the repetition of each entry of a dim.
fn repeated(look: &Look<'_>, class: Id, dim: usize) -> Option<Repeated> {
    let rank = look.shape(class).rank();
    let mut orders = vec![((0..rank).collect(), class)];
    let permuted = look.spreads(class).into_iter().filter(|(spread, _)| spread.places.len() == rank);
    orders.extend(permuted.map(|(spread, x)| (spread.places.clone(), x)));
    orders.into_iter().find_map(|(places, merged): (Vec<usize>, Id)| {
        let own = places.iter().position(|&place| place == dim)?;
        let (class, groups, times) = unmerged(look, merged, own)?;
        Some(Repeated { class, places, groups, times })
    })
}

/// The class of which the class repeats each entry of a dim, the number of entries, and how often each is repeated.
fn unmerged(look: &Look<'_>, class: Id, dim: usize) -> Option<(Id, u64, u64)> {
    let to = &look.shape(class).sizes;
    let merged =
        look.nodes(class).filter(|node| matches!(node.kind, NodeKind::Reshape(_))).map(|node| node.operands[0]);
    let mut spreads = merged.flat_map(|middle| look.spreads(middle));
    spreads.find_map(|(spread, x)| {
        let expected: Vec<usize> = (0..spread.sizes.len()).filter(|&place| place != dim + 1).collect();
        let [groups, times] = [*spread.sizes.get(dim)?, *spread.sizes.get(dim + 1)?];
        let joined = [&spread.sizes[..dim], &[groups * times], &spread.sizes[dim + 2..]].concat();
        (spread.places == expected && joined == *to).then_some((x, groups, times))
    })
}

impl Repeated {
    /// The class with its dims in the op's order, given the places of the op's dims in the operand.
    fn arranged(&self, places: &[Option<usize>; 4], sizes: [u64; 4]) -> Term {
        let own = self.places.iter();
        let places = own.map(|own| places.iter().position(|place| *place == Some(*own)).unwrap_or(*own));
        Term::Class(self.class).spread(Spread { places: places.collect(), sizes: sizes.to_vec() })
    }
}
