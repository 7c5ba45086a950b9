//! Models in primitives: the ops of a built-in model are spelt out as other frameworks do.

#[path = "spell/attention.rs"]
mod attention;
#[path = "spell/products.rs"]
mod products;

use ir::graph::{Block, Model, SectionKind, Stmt};
use ir::ids::Value;
use ir::ops::{
    Binary, BinaryKind, Broadcast, Builder, Compare, CompareKind, Einsum, Equation, Iota, KernelOp, Op, Permute, Pick,
    Reduce, Reshape, Selected, Take, Unary, UnaryKind,
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
    /// llm.c: one product for queries, keys and values, which are slices of its result.
    LlmC,
    /// A decomposed export of PyTorch: matrices of all rows, batches of matrices of all heads, statistics with a kept dim.
    Export,
}

pub(crate) const STYLES: [Style; 5] =
    [Style::HuggingFace, Style::MaxText, Style::Transposed, Style::LlmC, Style::Export];

impl Style {
    /// True if operands of elementwise ops are repeated by statements.
    fn broadcasts(self) -> bool {
        matches!(self, Style::HuggingFace | Style::Export)
    }

    /// True if all heads are one dim.
    fn joins_heads(self) -> bool {
        matches!(self, Style::HuggingFace | Style::LlmC | Style::Export)
    }
}

/// Spells the forwards of a model.
pub(crate) fn spell(model: &mut Model, style: Style) {
    for block in model.blocks.values_mut() {
        let stmts = std::mem::take(&mut block[SectionKind::F].stmts);
        let joint = if style == Style::LlmC { products::joint(&stmts) } else { Vec::new() };
        let mut speller = Speller { b: Builder::new(block), style, heads: HashMap::new(), joint };
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
    /// Products of one tensor that become one product.
    joint: Vec<products::Joint>,
}

impl Speller<'_> {
    /// The value of a statement's first result in primitives; `None` leaves the statement.
    fn stmt(&mut self, stmt: &Stmt) -> Option<Value> {
        let Op::Kernel(op) = &stmt.op else { return None };
        let x = stmt.operands[0];
        if let Some(part) = self.joint_part(stmt.results[0]) {
            return Some(part);
        }
        match op {
            KernelOp::RmsNorm(norm) => Some(self.rms_norm(x, stmt.operands[1], norm.eps)),
            KernelOp::LayerNorm(norm) => Some(self.layer_norm(x, [stmt.operands[1], stmt.operands[2]], norm.eps)),
            KernelOp::Unary(Unary(UnaryKind::Silu)) => Some(self.silu(x)),
            KernelOp::Unary(Unary(UnaryKind::Gelu)) => Some(self.gelu(x)),
            KernelOp::Softmax(_) => Some(self.softmax(x)),
            KernelOp::CrossEntropy(_) => Some(self.cross_entropy(x, stmt.operands[1])),
            KernelOp::Embedding(op) if op.pad.is_none() => Some(self.embedding(x, stmt.operands[1])),
            KernelOp::Rope(rope) if rope.turned.is_none() && rope.scaling.is_none() => {
                Some(self.rope(x, stmt.operands[1], rope.theta, stmt.results[0]))
            }
            KernelOp::Attention(op) if op.0.window.is_none() && op.0.softcap.is_none() => {
                Some(self.attention(stmt, op.0.scale))
            }
            KernelOp::Einsum(op) => self.product(&op.equation, x, stmt.operands[1], stmt.results[0]),
            KernelOp::Binary(Binary { kind, equation: Some(equation) }) if self.style.broadcasts() => {
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
        if !self.style.broadcasts() {
            return self.one(Binary::spread(kind, &format!("{all}, {rows} -> {all}")).unwrap(), &[x, row]);
        }
        let last = self.dims(x).pop().unwrap();
        let row = self.kept(row);
        let row = self.flat(row);
        let row = self.broadcast(row, &format!("{rows} -> {all}"), &[last]);
        self.binary(kind, x, row)
    }

    /// Statistics of rows with a last dim of one element.
    fn kept(&mut self, row: Value) -> Value {
        let dims = [self.dims(row), vec![Dim::sized(1)]].concat();
        self.reshape(row, dims)
    }

    /// The tensor without its last dim of one element.
    fn flat(&mut self, kept: Value) -> Value {
        let mut dims = self.dims(kept);
        dims.pop();
        self.reshape(kept, dims)
    }

    /// `kind(x, column)` for each row.
    fn by_column(&mut self, kind: BinaryKind, x: Value, column: Value) -> Value {
        let [_, all] = self.rows(x);
        if self.style == Style::Export {
            let dims = self.dims(x);
            let free = dims[..dims.len() - 1].to_vec();
            let column = self.broadcast(column, &format!("z -> {all}"), &free);
            return self.binary(kind, column, x);
        }
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

    /// The mean of the squares of each row.
    fn mean_square(&mut self, x: Value) -> Value {
        let square = match self.style {
            Style::MaxText | Style::Export => self.unary(UnaryKind::Square, x),
            Style::HuggingFace | Style::Transposed => self.binary(BinaryKind::Mul, x, x),
            Style::LlmC => {
                let ([rows, all], n) = (self.rows(x), self.dims(x).last().unwrap().size as f64);
                let sum = self.einsum(x, x, &format!("{all}, {all} -> {rows}"));
                return self.unary(UnaryKind::Scale(1.0 / n), sum);
            }
        };
        self.mean(square)
    }

    fn normed(&mut self, x: Value, eps: f64) -> Value {
        let mean = self.mean_square(x);
        let mean = if self.style == Style::Export { self.kept(mean) } else { mean };
        let shifted = self.unary(UnaryKind::Shift(eps), mean);
        match self.style {
            Style::HuggingFace | Style::MaxText => {
                let root = self.unary(UnaryKind::Rsqrt, shifted);
                self.by_row(BinaryKind::Mul, x, root)
            }
            Style::Transposed => {
                let root = self.unary(UnaryKind::Sqrt, shifted);
                self.by_row(BinaryKind::Div, x, root)
            }
            Style::LlmC => {
                let root = self.unary(UnaryKind::Sqrt, shifted);
                let root = self.unary(UnaryKind::Recip, root);
                self.by_row(BinaryKind::Mul, x, root)
            }
            Style::Export => {
                let root = self.unary(UnaryKind::Rsqrt, shifted);
                let root = self.flat(root);
                self.by_row(BinaryKind::Mul, x, root)
            }
        }
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
        if matches!(self.style, Style::MaxText | Style::Export) {
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
        if matches!(self.style, Style::LlmC | Style::Export) {
            return self.one(Take { at: Selected { dim: 0, batch: 0 } }, &[table, ids]);
        }
        let dims = [self.dims(ids), vec![self.dims(table).remove(0)]].concat();
        let wanted = self.broadcast(ids, "b s -> b s v", &dims[2..]);
        let all = self.one(Iota { dim: 2, dims, dtype: DType::I32 }, &[]);
        let hot = self.one(Compare(CompareKind::Equal), &[wanted, all]);
        let hot = self.unary(UnaryKind::Cast(self.b.ty(table).dtype), hot);
        self.einsum(hot, table, "b s v, v h -> b s h")
    }
}
