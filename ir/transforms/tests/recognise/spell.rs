//! Models in primitives: the ops of a built-in model are spelt out as other frameworks do.

use ir::graph::{Block, Model, SectionKind, Stmt};
use ir::ids::Value;
use ir::ops::{
    Binary, BinaryKind, Broadcast, Builder, Compare, CompareKind, Concat, Einsum, Equation, Iota, KernelOp, Op,
    Permute, Pick, Reduce, Reshape, Select, Slice, Unary, UnaryKind,
};
use ir::types::{DType, Dim, PartialKind};
use std::collections::HashMap;

/// A way to spell ops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Style {
    /// Heads before the sequence, keys and values repeated for each query head, matrices of two dims, one-hot embeddings.
    HuggingFace,
    /// Grouped heads behind the sequence, rotation by halves, equations in place of broadcasts.
    MaxText,
    /// Grouped heads before the sequence, straight from the products.
    Transposed,
}

pub(crate) const STYLES: [Style; 3] = [Style::HuggingFace, Style::MaxText, Style::Transposed];

/// Spells the forwards of a model.
pub(crate) fn spell(model: &mut Model, style: Style) {
    for block in model.blocks.values_mut() {
        let stmts = std::mem::take(&mut block[SectionKind::F].stmts);
        let mut speller = Speller { b: Builder::new(block), style, heads: HashMap::new() };
        let mut names = HashMap::new();
        for stmt in stmts {
            match speller.stmt(&stmt) {
                None => speller.b.stmts.push(stmt),
                Some(value) => drop(names.insert(value, stmt.results[0])),
            }
            for value in speller.b.stmts.iter_mut().flat_map(|stmt| stmt.operands.iter_mut().chain(&mut stmt.results)) {
                *value = names.get(value).copied().unwrap_or(*value);
            }
        }
        let mut stmts = speller.b.stmts;
        drop_unread(block, &mut stmts);
        block[SectionKind::F].stmts = stmts;
    }
}

/// Leaves out statements that lead to no result.
fn drop_unread(block: &Block, stmts: &mut Vec<Stmt>) {
    let mut read: Vec<Value> = block[SectionKind::F].ret.clone();
    for place in (0..stmts.len()).rev() {
        if stmts[place].results.iter().any(|result| read.contains(result)) {
            read.extend(&stmts[place].operands);
        } else {
            stmts.remove(place);
        }
    }
}

struct Speller<'a> {
    b: Builder<'a>,
    style: Style,
    /// Tensors with the heads in front of the sequence.
    heads: HashMap<Value, Value>,
}

impl Speller<'_> {
    /// The value of a statement's first result in primitives; `None` leaves the statement.
    fn stmt(&mut self, stmt: &Stmt) -> Option<Value> {
        let Op::Kernel(op) = &stmt.op else { return None };
        let x = stmt.operands[0];
        match op {
            KernelOp::RmsNorm(norm) => Some(self.rms_norm(x, stmt.operands[1], norm.eps)),
            KernelOp::LayerNorm(norm) => Some(self.layer_norm(x, [stmt.operands[1], stmt.operands[2]], norm.eps)),
            KernelOp::Unary(Unary(UnaryKind::Silu)) => Some(self.silu(x)),
            KernelOp::Unary(Unary(UnaryKind::Gelu)) => Some(self.gelu(x)),
            KernelOp::Softmax(_) => Some(self.softmax(x)),
            KernelOp::CrossEntropy(_) => Some(self.cross_entropy(x, stmt.operands[1])),
            KernelOp::Embedding(op) if op.pad.is_none() => Some(self.embedding(x, stmt.operands[1])),
            KernelOp::Rope(rope) => Some(self.rope(x, stmt.operands[1], rope.theta, stmt.results[0])),
            KernelOp::Attention(op) => Some(self.attention(stmt, op.scale)),
            KernelOp::Einsum(op) => self.product(&op.equation, x, stmt.operands[1], stmt.results[0]),
            KernelOp::Binary(Binary { kind, equation: Some(equation) }) if self.style == Style::HuggingFace => {
                let y = self.spread_to(equation, stmt.operands[1], stmt.results[0]);
                Some(self.binary(*kind, x, y))
            }
            _ => None,
        }
    }

    fn one(&mut self, op: impl Into<Op>, operands: &[Value]) -> Value {
        self.b.one(op, operands).unwrap_or_else(|why| panic!("{why}"))
    }

    fn unary(&mut self, kind: UnaryKind, x: Value) -> Value {
        self.one(Unary(kind), &[x])
    }

    fn binary(&mut self, kind: BinaryKind, a: Value, b: Value) -> Value {
        self.one(Binary::of(kind), &[a, b])
    }

    fn dims(&self, x: Value) -> Vec<Dim> {
        self.b.ty(x).logical().dims
    }

    fn permute(&mut self, x: Value, eq: &str) -> Value {
        self.one(Permute::new(eq).unwrap(), &[x])
    }

    fn reshape(&mut self, x: Value, dims: Vec<Dim>) -> Value {
        self.one(Reshape { dims }, &[x])
    }

    fn broadcast(&mut self, x: Value, eq: &str, free: &[Dim]) -> Value {
        self.one(Broadcast { equation: Equation::parse(eq).unwrap(), free: free.to_vec() }, &[x])
    }

    fn einsum(&mut self, a: Value, b: Value, eq: &str) -> Value {
        self.one(Einsum::new(eq).unwrap(), &[a, b])
    }

    /// The labels of the dims in front of the last, and those with the last one `z`.
    fn rows(&self, x: Value) -> [String; 2] {
        let rows: Vec<String> = (1..self.b.ty(x).rank()).map(|dim| format!("r{dim}")).collect();
        [rows.join(" "), format!("{} z", rows.join(" "))]
    }

    fn reduce(&mut self, kind: PartialKind, x: Value) -> Value {
        let [rows, all] = self.rows(x);
        self.one(Reduce::new(kind, &format!("{all} -> {rows}")).unwrap(), &[x])
    }

    /// `kind(x, row)` for each element of a row.
    fn by_row(&mut self, kind: BinaryKind, x: Value, row: Value) -> Value {
        let [rows, all] = self.rows(x);
        if self.style != Style::HuggingFace {
            return self.one(Binary::spread(kind, &format!("{all}, {rows} -> {all}")).unwrap(), &[x, row]);
        }
        let last = self.dims(x).pop().unwrap();
        let kept = [self.dims(row), vec![Dim::sized(1)]].concat();
        let kept = self.reshape(row, kept);
        let flat = self.dims(row);
        let row = self.reshape(kept, flat);
        let row = self.broadcast(row, &format!("{rows} -> {all}"), &[last]);
        self.binary(kind, x, row)
    }

    /// `kind(x, column)` for each row.
    fn by_column(&mut self, kind: BinaryKind, x: Value, column: Value) -> Value {
        let [_, all] = self.rows(x);
        self.one(Binary::spread(kind, &format!("{all}, z -> {all}")).unwrap(), &[x, column])
    }

    /// The second operand of an elementwise op repeated to the result of an equation.
    fn spread_to(&mut self, equation: &Equation, x: Value, result: Value) -> Value {
        let dims = self.dims(result);
        let new = equation.result.iter().zip(dims).filter(|(label, _)| !equation.operands[1].contains(label));
        let free: Vec<Dim> = new.map(|(_, dim)| dim).collect();
        let equation = Equation { operands: vec![equation.operands[1].clone()], result: equation.result.clone() };
        self.one(Broadcast { equation, free }, &[x])
    }

    fn mean(&mut self, x: Value) -> Value {
        let n = self.dims(x).last().unwrap().size as f64;
        let sum = self.reduce(PartialKind::Sum, x);
        self.unary(UnaryKind::Scale(1.0 / n), sum)
    }

    fn wide(&mut self, x: Value) -> Value {
        if self.b.ty(x).dtype == DType::F32 { x } else { self.unary(UnaryKind::Cast(DType::F32), x) }
    }

    fn narrow(&mut self, x: Value, as_of: Value) -> Value {
        let dtype = self.b.ty(as_of).dtype;
        if dtype == DType::F32 { x } else { self.unary(UnaryKind::Cast(dtype), x) }
    }

    fn normed(&mut self, x: Value, eps: f64) -> Value {
        let square = match self.style {
            Style::MaxText => self.unary(UnaryKind::Square, x),
            _ => self.binary(BinaryKind::Mul, x, x),
        };
        let mean = self.mean(square);
        let shifted = self.unary(UnaryKind::Shift(eps), mean);
        if self.style == Style::Transposed {
            let root = self.unary(UnaryKind::Sqrt, shifted);
            return self.by_row(BinaryKind::Div, x, root);
        }
        let root = self.unary(UnaryKind::Rsqrt, shifted);
        self.by_row(BinaryKind::Mul, x, root)
    }

    fn rms_norm(&mut self, x: Value, gamma: Value, eps: f64) -> Value {
        let wide = self.wide(x);
        let normed = self.normed(wide, eps);
        let normed = self.narrow(normed, x);
        self.by_column(BinaryKind::Mul, normed, gamma)
    }

    fn layer_norm(&mut self, x: Value, [gamma, beta]: [Value; 2], eps: f64) -> Value {
        let wide = self.wide(x);
        let mean = self.mean(wide);
        let centred = self.by_row(BinaryKind::Sub, wide, mean);
        let normed = self.normed(centred, eps);
        let normed = self.narrow(normed, x);
        let scaled = self.by_column(BinaryKind::Mul, normed, gamma);
        self.by_column(BinaryKind::Add, scaled, beta)
    }

    fn silu(&mut self, x: Value) -> Value {
        if self.style == Style::MaxText {
            let gate = self.unary(UnaryKind::Sigmoid, x);
            return self.binary(BinaryKind::Mul, x, gate);
        }
        let negative = self.unary(UnaryKind::Neg, x);
        let exp = self.unary(UnaryKind::Exp, negative);
        let sum = self.unary(UnaryKind::Shift(1.0), exp);
        self.binary(BinaryKind::Div, x, sum)
    }

    fn gelu(&mut self, x: Value) -> Value {
        let square = self.unary(UnaryKind::Square, x);
        let cube = self.binary(BinaryKind::Mul, square, x);
        let small = self.unary(UnaryKind::Scale(0.044_715), cube);
        let inner = self.binary(BinaryKind::Add, x, small);
        let inner = self.unary(UnaryKind::Scale((2.0 / std::f64::consts::PI).sqrt()), inner);
        let tanh = self.unary(UnaryKind::Tanh, inner);
        let gate = self.unary(UnaryKind::Shift(1.0), tanh);
        let half = self.unary(UnaryKind::Scale(0.5), x);
        self.binary(BinaryKind::Mul, half, gate)
    }

    fn softmax(&mut self, x: Value) -> Value {
        let wide = self.wide(x);
        let max = self.reduce(PartialKind::Max, wide);
        let low = self.by_row(BinaryKind::Sub, wide, max);
        let exp = self.unary(UnaryKind::Exp, low);
        let sum = self.reduce(PartialKind::Sum, exp);
        let share = self.by_row(BinaryKind::Div, exp, sum);
        self.narrow(share, x)
    }

    fn cross_entropy(&mut self, x: Value, labels: Value) -> Value {
        let x = self.wide(x);
        let max = self.reduce(PartialKind::Max, x);
        let low = self.by_row(BinaryKind::Sub, x, max);
        let exp = self.unary(UnaryKind::Exp, low);
        let sum = self.reduce(PartialKind::Sum, exp);
        let log = self.unary(UnaryKind::Log, sum);
        let shares = self.by_row(BinaryKind::Sub, low, log);
        let picked = self.one(Pick, &[shares, labels]);
        let negative = self.unary(UnaryKind::Neg, picked);
        self.one(Reduce::new(PartialKind::Sum, "b s -> ()").unwrap(), &[negative])
    }

    fn embedding(&mut self, ids: Value, table: Value) -> Value {
        let dims = [self.dims(ids), vec![self.dims(table).remove(0)]].concat();
        let wanted = self.broadcast(ids, "b s -> b s v", &dims[2..]);
        let all = self.one(Iota { dim: 2, dims, dtype: DType::I32 }, &[]);
        let hot = self.one(Compare(CompareKind::Equal), &[wanted, all]);
        let hot = self.unary(UnaryKind::Cast(self.b.ty(table).dtype), hot);
        self.einsum(hot, table, "b s v, v h -> b s h")
    }

    /// A product with a parameter of heads, as a matrix of two dims, or with heads in front of the sequence.
    fn product(&mut self, equation: &Equation, x: Value, w: Value, result: Value) -> Option<Value> {
        let (text, dims) = (equation.print(), self.dims(w));
        let [to, from] = [text.starts_with("b s h, h g"), text.starts_with("b s g r d, g r d h")];
        match self.style {
            Style::HuggingFace if to => {
                let size = dims[1..].iter().map(|dim| dim.size).product();
                let matrix = self.reshape(w, vec![dims[0].clone(), Dim::sized(size)]);
                let flat = self.einsum(x, matrix, "b s h, h k -> b s k");
                let dims = self.dims(result);
                Some(self.reshape(flat, dims))
            }
            Style::HuggingFace if from => {
                let size = dims[..3].iter().map(|dim| dim.size).product();
                let matrix = self.reshape(w, vec![Dim::sized(size), dims[3].clone()]);
                let rows = [self.dims(x)[..2].to_vec(), vec![Dim::sized(size)]].concat();
                let flat = self.reshape(x, rows);
                Some(self.einsum(flat, matrix, "b s k, k h -> b s h"))
            }
            Style::Transposed if to => {
                let heads = if dims.len() == 4 { "g r" } else { "g" };
                let y = self.einsum(x, w, &format!("b s h, h {heads} d -> b {heads} s d"));
                Some(self.permute(y, &format!("b {heads} s d -> b s {heads} d")))
            }
            _ => None,
        }
    }

    /// Cosines and sines of the angles of positions, `[b, s, d / 2]`, twice along the last dim if so wanted.
    fn angles(&mut self, positions: Value, theta: f64, half: u64, is_whole: bool) -> [Value; 2] {
        let count = self.one(Iota { dim: 0, dims: vec![Dim::sized(half)], dtype: DType::I32 }, &[]);
        let count = self.unary(UnaryKind::Cast(DType::F32), count);
        let power = self.unary(UnaryKind::Scale(-theta.ln() / half as f64), count);
        let frequency = self.unary(UnaryKind::Exp, power);
        let positions = self.unary(UnaryKind::Cast(DType::F32), positions);
        let mut angle = self.einsum(positions, frequency, "b s, e -> b s e");
        if is_whole {
            angle = self.one(Concat { dim: 2 }, &[angle, angle]);
        }
        [UnaryKind::Cos, UnaryKind::Sin].map(|kind| self.unary(kind, angle))
    }

    fn rope(&mut self, x: Value, positions: Value, theta: f64, result: Value) -> Value {
        let half = self.dims(x).last().unwrap().size / 2;
        let is_whole = self.style != Style::MaxText;
        let functions = self.angles(positions, theta, half, is_whole).map(|y| self.narrow(y, x));
        let heads = if self.b.ty(x).rank() == 5 { "g r" } else { "g" };
        if self.style == Style::MaxText {
            return self.turned_halves(x, functions, half, heads);
        }
        let (moved, names) = self.heads_first(x, heads);
        let turned = self.turned_whole(moved, functions, half, &names);
        self.heads.insert(result, turned);
        self.heads_last(turned, heads, self.dims(x))
    }

    /// The tensor with its heads in front of the sequence, and their labels; in the style of Hugging Face as one dim.
    fn heads_first(&mut self, x: Value, heads: &str) -> (Value, String) {
        if self.style == Style::HuggingFace {
            let dims = self.dims(x);
            let count = dims[2..dims.len() - 1].iter().map(|dim| dim.size).product();
            let flat = [&dims[..2], &[Dim::sized(count), dims[dims.len() - 1].clone()]].concat();
            let flat = if heads == "g r" { self.reshape(x, flat) } else { x };
            return (self.permute(flat, "b s n d -> b n s d"), "n".to_string());
        }
        (self.permute(x, &format!("b s {heads} d -> b {heads} s d")), heads.to_string())
    }

    fn heads_last(&mut self, x: Value, heads: &str, dims: Vec<Dim>) -> Value {
        if self.style == Style::HuggingFace {
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

    fn attention(&mut self, stmt: &Stmt, scale: f64) -> Value {
        let &[q, k, v, positions, _, segments, _] = stmt.operands.as_slice() else { panic!("{stmt:?}") };
        let own = self.dims(q);
        let repeats = own[3].clone();
        match self.style {
            Style::HuggingFace => {
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
                let scores = self.einsum(q, k, "b n s d, b n t d -> b n s t");
                let weights = self.weights(scores, "n", scale, [positions, segments]);
                let weights = self.narrow(weights, v);
                let out = self.einsum(weights, v, "b n s t, b n t d -> b n s d");
                self.heads_last(out, "g r", own)
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
