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
    let of =
        |(weights, dropout)| look.unary(weights, PlainOp::Softmax).into_iter().map(move |scores| (scores, dropout));
    let whole = [(class, None)].into_iter();
    whole.chain(dropped.into_iter().map(|(x, dropout)| (x, Some(dropout)))).flat_map(of).collect()
}

/// An operand of the scores, and its indices.
#[derive(Clone, Copy)]
struct Operand<'a> {
    class: Id,
    indices: &'a [u8],
    result: &'a [u8],
}

/// The ways to write scores as a scale times the product of queries and keys.
fn products<'a>(look: &Look<'a>, class: Id) -> Vec<(f64, Operand<'a>, Operand<'a>)> {
    let scaled = |id| look.products(id).into_iter().filter(|(factors, _)| factors.len() == 1).map(|(x, by)| (x[0], by));
    let mut found = Vec::new();
    for (scores, scale) in scaled(class) {
        for (equation, operands) in contractions(look, scores) {
            for [q, k] in [[0, 1], [1, 0]] {
                for (a, first) in scaled(operands[q]) {
                    for (b, second) in scaled(operands[k]) {
                        let operand = |class, place: usize| Operand {
                            class,
                            indices: &equation.operands[place],
                            result: &equation.result,
                        };
                        found.push((scale * first * second, operand(a, q), operand(b, k)));
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
    /// The places of `b`, `s`, `g`, `r`, `d` in the queries.
    q: (Id, [Option<usize>; 5]),
    /// The places of `b`, `t`, `g`, `d` in the keys.
    k: (Id, [Option<usize>; 4]),
    /// The places of `b`, `t`, `g`, `c` in the values.
    v: (Id, [Option<usize>; 4]),
    /// The places of `b`, `s`, `g`, `r`, `c` in the result.
    out: [Option<usize>; 5],
}

impl Heads {
    /// The roles of all dims; `None` if the contractions are others than those of attention.
    fn new(look: &Look<'_>, sum: &Sum<'_>, q: Operand<'_>, k: Operand<'_>, limits: &[Limit]) -> Option<Heads> {
        let scores = q.result;
        let last = scores.len().checked_sub(1)?;
        let in_both = |index: &u8| q.indices.contains(index) && k.indices.contains(index);
        let mut contracted = q.indices.iter().chain(k.indices).filter(|index| !scores.contains(index));
        let d = *contracted.next()?;
        let is_sound = contracted.all(|&other| other == d)
            && in_both(&d)
            && !q.indices.contains(&scores[last])
            && scores[..last].iter().all(|index| q.indices.contains(index));
        let shared: Vec<usize> = (0..last).filter(|&place| in_both(&scores[place])).collect();
        let own: Vec<usize> = (0..last).filter(|&place| !in_both(&scores[place])).collect();
        if !is_sound {
            return None;
        }
        let size = |operand: Operand<'_>, place: usize| {
            let dim = operand.indices.iter().position(|index| *index == scores[place]);
            dim.map(|dim| look.shape(operand.class).sizes[dim])
        };
        let [b, g] = chosen(&shared, limits, |_| false)?;
        let [s, r] = chosen(&own, limits, |place| size(q, place) == size(k, last))?;
        let c = *sum.values.iter().find(|index| !sum.weights.contains(index))?;
        let score_places = [b, s, g, r];
        let at = |indices: &[u8], place: Option<usize>, of: &[u8]| {
            let index = of[place?];
            indices.iter().position(|other| *other == index)
        };
        let (t, find) = (Some(last), |indices: &[u8], index: u8| indices.iter().position(|other| *other == index));
        let q_places = score_places.map(|place| at(q.indices, place, scores));
        let k_places = [b, t, g].map(|place| at(k.indices, place, scores));
        let v_places = [b, t, g].map(|place| at(sum.values, place, sum.weights));
        let out_places = score_places.map(|place| at(sum.result, place, sum.weights));
        let heads = Heads {
            scores: score_places,
            q: (q.class, with(q_places, find(q.indices, d))),
            k: (k.class, with(k_places, find(k.indices, d))),
            v: (sum.v, with(v_places, find(sum.values, c))),
            out: with(out_places, find(sum.result, c)),
        };
        let is_whole = |places: &[Option<usize>], indices: &[u8]| places.iter().flatten().count() == indices.len();
        let agree = is_whole(&heads.q.1, q.indices)
            && is_whole(&heads.k.1, k.indices)
            && is_whole(&heads.v.1, sum.values)
            && is_whole(&heads.out, sum.result)
            && heads.v.1[2].is_some() == g.is_some();
        agree.then_some(heads)
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
        let own = |id| look.in_dtype(id, to.dtype);
        let (q, k, v) = (own(self.q.0)?, own(self.k.0)?, own(self.v.0)?);
        let repeats = match self.scores {
            [_, _, Some(_), None] => repeated(look, k, self.k.1[2]?).zip(repeated(look, v, self.v.1[2]?)),
            _ => None,
        };
        let (mut q_term, q_sizes) = arranged(look, q, &self.q.1);
        let (mut k_term, k_sizes) = arranged(look, k, &self.k.1);
        let (mut v_term, v_sizes) = arranged(look, v, &self.v.1);
        let [b, s, heads, r, _] = q_sizes;
        let mut sizes = [b, s, heads, r, v_sizes[3]];
        if let Some((k0, v0)) = repeats.filter(|(k, v)| (k.groups, k.times) == (v.groups, v.times)) {
            sizes = [b, s, k0.groups, k0.times, v_sizes[3]];
            q_term = Term::Node(NodeKind::Reshape(vec![b, s, k0.groups, k0.times, q_sizes[4]]), vec![q_term]);
            k_term = k0.arranged(&self.k.1, [b, k_sizes[1], k0.groups, k_sizes[3]]);
            v_term = v0.arranged(&self.v.1, [b, v_sizes[1], k0.groups, v_sizes[3]]);
        }
        let indices = self.indices(look, limits, [b, s, k_sizes[1]])?;
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
    fn indices(&self, look: &Look<'_>, limits: &[Limit], [b, s, t]: [u64; 3]) -> Option<[Term; 4]> {
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
            if s != t || key != query || !look.is_same(pair.0.class, pair.1.class) || slot.is_some() {
                return None;
            }
            *slot = Some((pair.0.class, key));
        }
        let count = |dim: usize, sizes: [u64; 2]| {
            let count = Term::Node(NodeKind::Iota(sizes[dim]), Vec::new());
            count.spread(Spread { places: vec![dim], sizes: sizes.to_vec() })
        };
        let sized = |sizes: [u64; 2]| {
            let placed = |(class, places): &(Id, Vec<usize>)| {
                Term::Class(*class).spread(Spread { places: places.clone(), sizes: sizes.to_vec() })
            };
            match [positions.as_ref(), segments.as_ref()].map(|given| given.map(placed)) {
                [Some(positions), Some(segments)] => [positions, segments],
                // All are equal to themselves.
                [Some(positions), None] => {
                    [positions.clone(), Term::plain(PlainOp::Equal, [positions.clone(), positions])]
                }
                [None, Some(segments)] => [segments.clone(), segments],
                [None, None] => [count(1, sizes), count(0, sizes)],
            }
        };
        let ([qpos, qseg], [kpos, kseg]) = (sized([b, s]), sized([b, t]));
        Some([qpos, kpos, qseg, kseg])
    }

    /// The places of an index's dims among two dims of the scores.
    fn placed(&self, index: &Index, dims: [Option<usize>; 2]) -> Option<Vec<usize>> {
        index.places.iter().map(|place| dims.iter().position(|dim| *dim == Some(*place))).collect()
    }
}

/// The first of one or two places, and the second if there is one. Indices of a mask belong to the first; without a mask, the
/// likely one is the first.
fn chosen(places: &[usize], limits: &[Limit], is_likely: impl Fn(usize) -> bool) -> Option<[Option<usize>; 2]> {
    let is_limited = |place: &usize| {
        limits.iter().any(|limit| {
            let (Limit::Causal(a, b) | Limit::Equal(a, b)) = limit;
            a.places.contains(place) || b.places.contains(place)
        })
    };
    match *places {
        [one] => Some([Some(one), None]),
        [first, second] if is_limited(&second) && !is_limited(&first) => Some([Some(second), Some(first)]),
        [first, second] if !is_limited(&first) && is_likely(second) && !is_likely(first) => {
            Some([Some(second), Some(first)])
        }
        [first, second] => Some([Some(first), Some(second)]),
        _ => None,
    }
}

fn with<const N: usize, const M: usize>(places: [Option<usize>; N], last: Option<usize>) -> [Option<usize>; M] {
    let mut all = places.into_iter().chain([last]);
    std::array::from_fn(|_| all.next().flatten())
}

/// A tensor with its dims at places in the op's order; missing dims have one element.
fn arranged<const N: usize>(look: &Look<'_>, class: Id, places: &[Option<usize>; N]) -> (Term, [u64; N]) {
    let own = &look.shape(class).sizes;
    let sizes = places.map(|place| place.map_or(1, |place| own[place]));
    let target = |dim: usize| places.iter().position(|place| *place == Some(dim)).unwrap_or(dim);
    let spread = Spread { places: (0..own.len()).map(target).collect(), sizes: sizes.to_vec() };
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
        let target = |own: &usize| places.iter().position(|place| *place == Some(*own)).unwrap_or(*own);
        let places = self.places.iter().map(target).collect();
        Term::Class(self.class).spread(Spread { places, sizes: sizes.to_vec() })
    }
}
