//! Rotations and attention.

use super::{Speller, Style};
use ir::graph::Stmt;
use ir::ids::Value;
use ir::ops::{Binary, BinaryKind, Compare, CompareKind, Concat, Iota, Select, Slice, UnaryKind};
use ir::types::{DType, Dim};

impl Speller<'_> {
    /// The angles of positions, `[b, s, d / 2]`.
    fn turns(&mut self, positions: Value, frequency: Value) -> Value {
        if self.style != Style::Export {
            return self.einsum(positions, frequency, "b s, e -> b s e");
        }
        let rows = self.dims(positions);
        let positions = self.reshape(positions, vec![rows[0].clone(), Dim::sized(1), rows[1].clone()]);
        let columns = self.broadcast(frequency, "e -> b e u", &[rows[0].clone(), Dim::sized(1)]);
        let angle = self.einsum(columns, positions, "b e u, b u s -> b e s");
        self.permute(angle, "b e s -> b s e")
    }

    /// Cosines and sines of the angles of positions, `[b, s, d / 2]`, twice along the last dim if so wanted.
    fn angles(&mut self, positions: Value, theta: f64, half: u64, is_whole: bool) -> [Value; 2] {
        let count = self.one(Iota { dim: 0, dims: vec![Dim::sized(half)], dtype: DType::I32 }, &[]);
        let count = self.unary(UnaryKind::Cast(DType::F32), count);
        let power = self.unary(UnaryKind::Scale(-theta.ln() / half as f64), count);
        let frequency = self.unary(UnaryKind::Exp, power);
        let positions = self.unary(UnaryKind::Cast(DType::F32), positions);
        let mut angle = self.turns(positions, frequency);
        if is_whole {
            angle = self.one(Concat { dim: 2 }, &[angle, angle]);
        }
        [UnaryKind::Cos, UnaryKind::Sin].map(|kind| self.unary(kind, angle))
    }

    pub(super) fn rope(&mut self, x: Value, positions: Value, theta: f64, result: Value) -> Value {
        let half = self.dims(x).last().unwrap().size / 2;
        let is_whole = !matches!(self.style, Style::MaxText | Style::LlmC);
        let functions = self.angles(positions, theta, half, is_whole).map(|y| self.narrow(y, x));
        let heads = if self.b.ty(x).rank() == 5 { "g r" } else { "g" };
        if !is_whole {
            return self.turned_halves(x, functions, half, heads);
        }
        let (moved, names) = self.heads_first(x, heads);
        let turned = self.turned_whole(moved, functions, half, &names);
        self.heads.insert(result, turned);
        self.heads_last(turned, heads, self.dims(x))
    }

    /// The tensor with its heads in front of the sequence, and their labels; all heads as one dim if the style joins them.
    fn heads_first(&mut self, x: Value, heads: &str) -> (Value, String) {
        if self.style.joins_heads() {
            let dims = self.dims(x);
            let count = dims[2..dims.len() - 1].iter().map(|dim| dim.size).product();
            let flat = [&dims[..2], &[Dim::sized(count), dims[dims.len() - 1].clone()]].concat();
            let flat = if heads == "g r" { self.reshape(x, flat) } else { x };
            return (self.permute(flat, "b s n d -> b n s d"), "n".to_string());
        }
        (self.permute(x, &format!("b s {heads} d -> b {heads} s d")), heads.to_string())
    }

    fn heads_last(&mut self, x: Value, heads: &str, dims: Vec<Dim>) -> Value {
        if self.style.joins_heads() {
            let flat = self.permute(x, "b n s d -> b s n d");
            return if heads == "g r" { self.reshape(flat, dims) } else { flat };
        }
        self.permute(x, &format!("b {heads} s d -> b s {heads} d"))
    }

    /// `x cos + rotate_half(x) sin`
    fn turned_whole(&mut self, x: Value, [cos, sin]: [Value; 2], half: u64, heads: &str) -> Value {
        let dim = self.b.ty(x).rank() - 1;
        let [first, second] = [0, half].map(|start| self.one(Slice { dim, start, length: half }, &[x]));
        let negative = self.unary(UnaryKind::Neg, second);
        let turned = self.one(Concat { dim }, &[negative, first]);
        let by = |kind| Binary::spread(kind, &format!("b {heads} s d, b s d -> b {heads} s d")).unwrap();
        if self.style == Style::Export {
            let count = self.dims(x)[1].clone();
            let [along, across] = [(x, cos), (turned, sin)].map(|(x, factor)| {
                let factor = self.broadcast(factor, "b s d -> b n s d", std::slice::from_ref(&count));
                self.binary(BinaryKind::Mul, x, factor)
            });
            return self.binary(BinaryKind::Add, along, across);
        }
        let along = self.one(by(BinaryKind::Mul), &[x, cos]);
        let across = self.one(by(BinaryKind::Mul), &[turned, sin]);
        self.binary(BinaryKind::Add, along, across)
    }

    /// `concat(x1 cos - x2 sin, x2 cos + x1 sin)`
    fn turned_halves(&mut self, x: Value, [cos, sin]: [Value; 2], half: u64, heads: &str) -> Value {
        let dim = self.b.ty(x).rank() - 1;
        let [first, second] = [0, half].map(|start| self.one(Slice { dim, start, length: half }, &[x]));
        let eq = format!("b s {heads} e, b s e -> b s {heads} e");
        let mut by = |x, y| self.one(Binary::spread(BinaryKind::Mul, &eq).unwrap(), &[x, y]);
        let [a, b, c, d] = [by(first, cos), by(second, sin), by(second, cos), by(first, sin)];
        let halves = [self.binary(BinaryKind::Sub, a, b), self.binary(BinaryKind::Add, c, d)];
        self.one(Concat { dim }, &halves)
    }

    pub(super) fn attention(&mut self, stmt: &Stmt, scale: f64) -> Value {
        let &[q, k, v, positions, _, segments, _] = stmt.operands.as_slice() else { panic!("{stmt:?}") };
        let own = self.dims(q);
        let repeats = own[3].clone();
        match self.style {
            Style::HuggingFace | Style::Export => {
                let moved = |x: Value, heads: &str, all: &mut Self| {
                    all.heads.get(&x).copied().unwrap_or_else(|| all.heads_first(x, heads).0)
                };
                let q = moved(q, "g r", self);
                let [k, v] = [k, v].map(|x| {
                    let x = moved(x, "g", self);
                    let repeated = self.broadcast(x, "b g s d -> b g r s d", std::slice::from_ref(&repeats));
                    let dims = self.dims(q);
                    self.reshape(repeated, dims)
                });
                if self.style == Style::Export {
                    let out = self.batched(q, k, v, scale, [positions, segments]);
                    return self.heads_last(out, "g r", own);
                }
                let scores = self.einsum(q, k, "b n s d, b n t d -> b n s t");
                let weights = self.weights(scores, "n", scale, [positions, segments]);
                let weights = self.narrow(weights, v);
                let out = self.einsum(weights, v, "b n s t, b n t d -> b n s d");
                self.heads_last(out, "g r", own)
            }
            Style::LlmC => {
                let count = Dim::sized(own[2].size * own[3].size);
                let joined = |x: Value, all: &mut Self| {
                    let dims = all.dims(x);
                    all.reshape(x, vec![dims[0].clone(), dims[1].clone(), count.clone(), dims[dims.len() - 1].clone()])
                };
                let q = joined(q, self);
                let [k, v] = [k, v].map(|x| {
                    let repeated = self.broadcast(x, "b s g d -> b s g r d", std::slice::from_ref(&repeats));
                    joined(repeated, self)
                });
                let scores = self.einsum(q, k, "b s n d, b t n d -> b n s t");
                let weights = self.weights(scores, "n", scale, [positions, segments]);
                let weights = self.narrow(weights, v);
                let out = self.einsum(weights, v, "b n s t, b t n d -> b s n d");
                self.reshape(out, own)
            }
            Style::MaxText => {
                let scores = self.einsum(q, k, "b s g r d, b t g d -> b g r s t");
                let weights = self.weights(scores, "g r", scale, [positions, segments]);
                let weights = self.narrow(weights, v);
                self.einsum(weights, v, "b g r s t, b t g d -> b s g r d")
            }
            Style::Transposed => {
                let q = self.heads.get(&q).copied().unwrap_or_else(|| self.permute(q, "b s g r d -> b g r s d"));
                let k = self.heads.get(&k).copied().unwrap_or_else(|| self.permute(k, "b s g d -> b g s d"));
                let v = self.permute(v, "b s g d -> b g s d");
                let scaled = self.unary(UnaryKind::Scale(scale), q);
                let scores = self.einsum(scaled, k, "b g r s d, b g t d -> b g r s t");
                let weights = self.weights(scores, "g r", 1.0, [positions, segments]);
                let weights = self.narrow(weights, v);
                let out = self.einsum(weights, v, "b g r s t, b g t d -> b g r s d");
                self.permute(out, "b g r s d -> b s g r d")
            }
        }
    }

    /// Products of batches of matrices, one for each head, on queries and keys that both have a part of the scale.
    fn batched(&mut self, q: Value, k: Value, v: Value, scale: f64, indices: [Value; 2]) -> Value {
        let dims = self.dims(q);
        let [b, n, s, d] = [0, 1, 2, 3].map(|dim: usize| dims[dim].clone());
        let all = Dim::sized(b.size * n.size);
        let q = self.unary(UnaryKind::Scale(scale.sqrt()), q);
        let k = self.permute(k, "b n t d -> b n d t");
        let k = self.unary(UnaryKind::Scale(scale.sqrt()), k);
        let q = self.reshape(q, vec![all.clone(), s.clone(), d.clone()]);
        let k = self.reshape(k, vec![all.clone(), d.clone(), s.clone()]);
        let scores = self.einsum(q, k, "m s d, m d t -> m s t");
        let scores = self.reshape(scores, vec![b.clone(), n.clone(), s.clone(), s.clone()]);
        let bias = self.bias(indices, n);
        let wide = self.wide(scores);
        let masked = self.binary(BinaryKind::Add, wide, bias);
        let weights = self.softmax(masked);
        let weights = self.narrow(weights, v);
        let weights = self.reshape(weights, vec![all.clone(), s.clone(), s.clone()]);
        let values = self.reshape(v, vec![all, s, d]);
        let out = self.einsum(weights, values, "m s t, m t d -> m s d");
        self.reshape(out, dims)
    }

    /// The summand of scores that hides later keys and those of other segments, the same for each head.
    fn bias(&mut self, [positions, segments]: [Value; 2], heads: Dim) -> Value {
        let length = self.dims(positions)[1].clone();
        let [queries, keys] = ["s", "t"].map(|own| {
            [positions, segments]
                .map(|x| self.broadcast(x, &format!("b {own} -> b s t"), std::slice::from_ref(&length)))
        });
        let seen = self.one(Compare(CompareKind::LessEqual), &[keys[0], queries[0]]);
        let same = self.one(Compare(CompareKind::Equal), &[queries[1], keys[1]]);
        let [seen, same] = [seen, same].map(|mask| self.unary(UnaryKind::Cast(DType::F32), mask));
        let both = self.binary(BinaryKind::Mul, seen, same);
        let not = self.unary(UnaryKind::Neg, both);
        let hidden = self.unary(UnaryKind::Shift(1.0), not);
        let bias = self.unary(UnaryKind::Scale(f64::from(f32::MIN)), hidden);
        self.broadcast(bias, "b s t -> b n s t", &[heads])
    }

    /// The softmax of scaled scores; keys that are later or of another segment are hidden.
    fn weights(&mut self, scores: Value, heads: &str, scale: f64, indices: [Value; 2]) -> Value {
        let mut scores = self.wide(scores);
        if scale != 1.0 {
            scores = self.unary(UnaryKind::Scale(scale), scores);
        }
        let dims = self.dims(scores);
        let free = |sides: [usize; 2]| -> Vec<Dim> {
            let all = (1..dims.len()).filter(|dim| !sides.contains(dim));
            all.map(|dim| dims[dim].clone()).collect()
        };
        let (s, t) = (dims.len() - 2, dims.len() - 1);
        let [queries, keys] = [[s, s], [t, t]].map(|sides| {
            let (own, free) = (if sides[0] == s { "s" } else { "t" }, free(sides));
            indices.map(|x| self.broadcast(x, &format!("b {own} -> b {heads} s t"), &free))
        });
        let masked = match self.style {
            Style::HuggingFace => {
                let late = self.one(Compare(CompareKind::Less), &[queries[0], keys[0]]);
                let late = self.unary(UnaryKind::Cast(DType::F32), late);
                let bias = self.unary(UnaryKind::Scale(-1e9), late);
                self.binary(BinaryKind::Add, scores, bias)
            }
            _ => {
                let seen = self.one(Compare(CompareKind::LessEqual), &[keys[0], queries[0]]);
                let low = self.low(dims.clone());
                self.one(Select { not: false }, &[seen, scores, low])
            }
        };
        let same = self.one(Compare(CompareKind::Equal), &[queries[1], keys[1]]);
        let low = self.low(dims);
        let masked = self.one(Select { not: false }, &[same, masked, low]);
        self.softmax(masked)
    }

    fn low(&mut self, dims: Vec<Dim>) -> Value {
        let count = self.one(Iota { dim: 0, dims, dtype: DType::F32 }, &[]);
        let zero = self.unary(UnaryKind::Scale(0.0), count);
        self.unary(UnaryKind::Shift(-1e9), zero)
    }
}
