//! From the statements of a section to the e-graph.

use super::facts::{Facts, Graph};
use super::language::{Contraction, Node, NodeKind, Number, Shape, Spread};
use super::plain::PlainOp;
use egg::Id;
use ir::graph::{Block, SectionKind, Stmt};
use ir::ids::Value;
use ir::ops::{
    Binary, BinaryKind, Broadcast, CompareKind, Dropout, Einsum, Equation, KernelOp, Op, Permute, Selected, Take,
    UnaryKind,
};
use ir::types::{PartialKind, Type};
use std::collections::{HashMap, HashSet};

/// A section in the e-graph.
pub(crate) struct Encoded {
    /// The e-graph.
    pub(crate) graph: Graph,
    /// The class of each value.
    pub(crate) class: HashMap<Value, Id>,
    /// The place of the statement of each value of the section.
    pub(crate) statement: HashMap<Value, usize>,
    /// The classes of the operands of each statement.
    pub(crate) operands: Vec<Vec<Id>>,
    /// The class of what a statement computes, by its place, if the language describes it.
    pub(crate) term: HashMap<usize, Id>,
    /// The places of statements that write or read what the section stores. They stay as they are, in their order.
    pub(crate) fixed: HashSet<usize>,
}

/// Encodes a section of a block.
pub(crate) fn encode(block: &Block, kind: SectionKind) -> Encoded {
    let stmts = &block[kind].stmts;
    let stored = stored(block, stmts);
    let touches = |stmt: &Stmt| {
        let writes = stmt.results.iter().any(|value| stored.contains(value)) && !stmt.accumulate;
        writes || stmt.operands.iter().any(|value| stored.contains(value))
    };
    let fixed: HashSet<usize> = (0..stmts.len()).filter(|&place| touches(&stmts[place])).collect();
    let mut encoded = Encoded {
        graph: Graph::new(Facts),
        class: HashMap::new(),
        statement: HashMap::new(),
        operands: Vec::new(),
        term: HashMap::new(),
        fixed,
    };
    for (place, stmt) in stmts.iter().enumerate() {
        encoded.stmt(block, &stored, place, stmt);
    }
    encoded.graph.rebuild();
    encoded
}

/// The values that a section stores: arguments that it writes, and what it adds to.
fn stored(block: &Block, stmts: &[Stmt]) -> HashSet<Value> {
    let is_arg = |value: &Value| block.arg_kind(*value).is_some();
    let written = |stmt: &Stmt| -> Vec<Value> {
        stmt.results.iter().copied().filter(|value| stmt.accumulate || is_arg(value)).collect()
    };
    stmts.iter().flat_map(written).collect()
}

impl Encoded {
    fn stmt(&mut self, block: &Block, stored: &HashSet<Value>, place: usize, stmt: &Stmt) {
        for &operand in &stmt.operands {
            if !self.class.contains_key(&operand) {
                self.leaf(block, operand, 0);
            }
        }
        self.operands.push(stmt.operands.iter().map(|operand| self.class[operand]).collect());
        let term = if self.fixed.contains(&place) { None } else { self.statement(block, stmt) };
        self.term.extend(term.map(|term| (place, term)));
        for &result in stmt.results.iter().filter(|result| !stored.contains(result)) {
            self.statement.insert(result, place);
            match term {
                Some(class) => self.holds(result, class, place + 1),
                None => self.leaf(block, result, place + 1),
            }
        }
    }

    /// Follows the unions of classes.
    pub(crate) fn refresh(&mut self) {
        let graph = &self.graph;
        let classes = self.operands.iter_mut().flatten().chain(self.term.values_mut()).chain(self.class.values_mut());
        classes.for_each(|class| *class = graph.find(*class));
    }

    /// The class of a value; none for what the section stores.
    pub(crate) fn of(&self, value: Value) -> Option<Id> {
        self.class.get(&value).map(|class| self.graph.find(*class))
    }

    /// True if a value holds the class.
    pub(crate) fn has_value(&self, class: Id) -> bool {
        self.graph[class].data.value.is_some()
    }

    /// The value from outside of the section that holds the class.
    pub(crate) fn outside(&self, class: Id) -> Option<Value> {
        self.graph[class].data.value.filter(|(order, _)| *order == 0).map(|(_, value)| value)
    }

    /// The first value of the section that holds the class, if none from outside does, and the place of its statement.
    pub(crate) fn first(&self, class: Id) -> Option<(usize, Value)> {
        let (order, value) = self.graph[class].data.value?;
        Some((order.checked_sub(1)?, value))
    }

    fn leaf(&mut self, block: &Block, value: Value, order: usize) {
        let class = self.add(NodeKind::Leaf(value, shape(block, value)), &[]);
        self.holds(value, class, order);
    }

    fn holds(&mut self, value: Value, class: Id, order: usize) {
        self.class.insert(value, class);
        let mut fact = self.graph[class].data.clone();
        fact.value = [fact.value, Some((order, value))].into_iter().flatten().min();
        self.graph.set_analysis_data(class, fact);
    }

    fn add(&mut self, kind: NodeKind, operands: &[Id]) -> Id {
        self.graph.add(Node { kind, operands: operands.to_vec() })
    }

    /// The class of a statement's result; `None` if the language does not describe it.
    fn statement(&mut self, block: &Block, stmt: &Stmt) -> Option<Id> {
        let &[result] = stmt.results.as_slice() else { return None };
        let mut values = stmt.operands.iter().chain([&result]);
        if values.any(|&value| block.ty(value).dims.iter().any(|dim| dim.count.is_some())) {
            return None;
        }
        let Op::Kernel(op) = &stmt.op else { return None };
        let operands: Vec<Id> = stmt.operands.iter().map(|value| self.class[value]).collect();
        // A statement that adds to a value may have a narrower type.
        let types: Vec<&Type> = stmt.operands.iter().map(|&value| block.ty(value)).collect();
        let to = shape(block, result).with(stmt.op.infer(&types).ok()?.first()?.dtype);
        self.term(op, &operands, &to)
    }

    /// The class of an op's result; `None` if the op is outside the language.
    fn term(&mut self, op: &KernelOp, operands: &[Id], to: &Shape) -> Option<Id> {
        let kind = match op {
            KernelOp::Unary(op) => return self.unary(op.0, operands[0], to),
            KernelOp::Binary(op) => return self.binary(op, operands, to),
            KernelOp::Einsum(Einsum { equation, scaled: None, .. }) => {
                return self.einsum(equation, operands, to);
            }
            KernelOp::Broadcast(Broadcast { equation, .. }) | KernelOp::Permute(Permute { equation }) => {
                return self.spread_all(equation, operands, to).map(|all| all[0]);
            }
            KernelOp::Reshape(_) => return Some(self.reshape(operands[0], to)),
            KernelOp::Reduce(op) => return Some(self.reduce(op.kind == PartialKind::Max, &op.equation, operands[0])),
            KernelOp::Iota(op) => return Some(self.iota(op.dim, to)),
            KernelOp::Compare(op) => NodeKind::Plain(match op.0 {
                CompareKind::Less => PlainOp::Less,
                CompareKind::LessEqual => PlainOp::LessEqual,
                CompareKind::Equal => PlainOp::Equal,
            }),
            KernelOp::Softmax(_) => NodeKind::Plain(PlainOp::Softmax),
            KernelOp::SumExp(_) => NodeKind::Plain(PlainOp::SumExp),
            KernelOp::Pick(_) => NodeKind::Plain(PlainOp::Pick),
            KernelOp::TokenLoss(_) => NodeKind::Plain(PlainOp::TokenLoss),
            KernelOp::Slice(op) => NodeKind::Slice(op.dim, op.start, op.length),
            KernelOp::Concat(op) => NodeKind::Concat(op.dim),
            KernelOp::Select(op) => NodeKind::Select(op.not),
            KernelOp::Take(Take { at: Selected { dim, batch: 0 } }) => NodeKind::Take(*dim),
            KernelOp::Dropout(Dropout { p, path, piece: None }) => NodeKind::Dropout(Number::new(*p), path.clone()),
            // The ops outside the language.
            KernelOp::Einsum(_)
            | KernelOp::Pad(_)
            | KernelOp::Reverse(_)
            | KernelOp::Windows(_)
            | KernelOp::Fold(_)
            | KernelOp::Take(_)
            | KernelOp::ScatterAdd(_)
            | KernelOp::DynamicSlice(_)
            | KernelOp::DynamicPad(_)
            | KernelOp::RmsNorm(_)
            | KernelOp::RmsNormDx(_)
            | KernelOp::RmsNormDgamma(_)
            | KernelOp::LayerNorm(_)
            | KernelOp::LayerNormDx(_)
            | KernelOp::LayerNormDgamma(_)
            | KernelOp::SoftmaxGrad(_)
            | KernelOp::Rope(_)
            | KernelOp::Attention(_)
            | KernelOp::AttentionGrad(_)
            | KernelOp::Scan(_)
            | KernelOp::ScanGrad(_)
            | KernelOp::ScanState(_)
            | KernelOp::ScanDstart(_)
            | KernelOp::Carry(_)
            | KernelOp::ShortConv(_)
            | KernelOp::ShortConvDx(_)
            | KernelOp::ShortConvDw(_)
            | KernelOp::ShortConvDstart(_)
            | KernelOp::Dropout(_)
            | KernelOp::Jitter(_)
            | KernelOp::Embedding(_)
            | KernelOp::EmbeddingGrad(_)
            | KernelOp::CrossEntropy(_)
            | KernelOp::CrossEntropyGrad(_)
            | KernelOp::TopK(_)
            | KernelOp::TopKGrad(_)
            | KernelOp::Dispatch(_)
            | KernelOp::Combine(_)
            | KernelOp::CombineDw(_)
            | KernelOp::SelectKeys(_)
            | KernelOp::IndexScores(_)
            | KernelOp::IndexScoresGrad(_)
            | KernelOp::SparseAttention(_)
            | KernelOp::SparseAttentionGrad(_)
            | KernelOp::KeyMass(_)
            | KernelOp::IndexLoss(_)
            | KernelOp::IndexLossGrad(_)
            | KernelOp::AbsMax(_)
            | KernelOp::ScaleFor(_)
            | KernelOp::Quantise(_)
            | KernelOp::Exponents(_)
            | KernelOp::Ages(_)
            | KernelOp::DelayedScale(_)
            | KernelOp::SumSquares(_)
            | KernelOp::AdamW(_)
            | KernelOp::Sgd(_)
            | KernelOp::Composite(_) => return None,
        };
        Some(self.add(kind, operands))
    }

    fn unary(&mut self, kind: UnaryKind, x: Id, to: &Shape) -> Option<Id> {
        let op = match kind {
            UnaryKind::Neg => PlainOp::Neg,
            UnaryKind::Exp => PlainOp::Exp,
            UnaryKind::Log => PlainOp::Log,
            UnaryKind::Sqrt => PlainOp::Sqrt,
            UnaryKind::Rsqrt => PlainOp::Rsqrt,
            UnaryKind::Recip => PlainOp::Recip,
            UnaryKind::Square => PlainOp::Square,
            UnaryKind::Tanh => PlainOp::Tanh,
            UnaryKind::Erf => PlainOp::Erf,
            UnaryKind::Sin => PlainOp::Sin,
            UnaryKind::Cos => PlainOp::Cos,
            UnaryKind::Sigmoid => PlainOp::Sigmoid,
            UnaryKind::Silu => PlainOp::Silu,
            UnaryKind::Gelu => PlainOp::Gelu,
            UnaryKind::GeluErf => PlainOp::GeluErf,
            UnaryKind::ReluSquared => PlainOp::ReluSquared,
            UnaryKind::Scale(by) => return Some(self.with_number(PlainOp::Mul, x, by)),
            UnaryKind::Shift(by) => return Some(self.with_number(PlainOp::Add, x, by)),
            UnaryKind::AtLeast(min) => return Some(self.with_number(PlainOp::Max, x, min)),
            UnaryKind::AtMost(max) => return Some(self.with_number(PlainOp::Min, x, max)),
            UnaryKind::Cast(_) if self.graph[x].data.shape.dtype == to.dtype => return Some(x),
            UnaryKind::Cast(_) => return Some(self.add(NodeKind::Cast(to.dtype), &[x])),
            UnaryKind::Softplus | UnaryKind::Floor | UnaryKind::Stop => return None,
        };
        Some(self.add(NodeKind::Plain(op), &[x]))
    }

    fn binary(&mut self, op: &Binary, operands: &[Id], to: &Shape) -> Option<Id> {
        let plain = match op.kind {
            BinaryKind::Add => PlainOp::Add,
            BinaryKind::Sub => PlainOp::Sub,
            BinaryKind::Mul => PlainOp::Mul,
            BinaryKind::Div => PlainOp::Div,
            BinaryKind::Max => PlainOp::Max,
            BinaryKind::Min => PlainOp::Min,
            BinaryKind::SigmoidGrad
            | BinaryKind::SiluGrad
            | BinaryKind::GeluGrad
            | BinaryKind::GeluErfGrad
            | BinaryKind::ReluSquaredGrad => return None,
        };
        let operands = match &op.equation {
            None => operands.to_vec(),
            Some(equation) => self.spread_all(equation, operands, to)?,
        };
        Some(self.add(NodeKind::Plain(plain), &operands))
    }

    /// An elementwise op of a tensor and a constant.
    fn with_number(&mut self, op: PlainOp, x: Id, number: f64) -> Id {
        let shape = self.graph[x].data.shape.clone();
        let number = self.add(NodeKind::Full(Number::new(number), shape), &[]);
        self.add(NodeKind::Plain(op), &[x, number])
    }

    /// The operands spread to the dims of the result; `None` if one has an index that the result lacks.
    fn spread_all(&mut self, equation: &Equation, operands: &[Id], to: &Shape) -> Option<Vec<Id>> {
        let spread = |(indices, &operand): (&Vec<String>, &Id)| {
            let place = |index: &String| equation.result.iter().position(|other| other == index);
            let places = indices.iter().map(place).collect::<Option<Vec<_>>>()?;
            Some((Spread { places, sizes: to.sizes.clone() }, operand))
        };
        let spreads = equation.operands.iter().zip(operands).map(spread).collect::<Option<Vec<_>>>()?;
        Some(spreads.into_iter().map(|(spread, operand)| self.spread(spread, operand)).collect())
    }

    fn spread(&mut self, spread: Spread, x: Id) -> Id {
        if spread.is_identity() { x } else { self.add(NodeKind::Spread(spread), &[x]) }
    }

    /// A contraction; one that sums nothing is a product, and one of a single operand a sum.
    fn einsum(&mut self, equation: &Equation, operands: &[Id], to: &Shape) -> Option<Id> {
        if let &[x] = operands {
            let kept = equation.operands[0].iter().filter(|index| equation.result.contains(index));
            let kept = Equation { operands: equation.operands.clone(), result: kept.cloned().collect() };
            let sum = self.reduce(false, &kept, x);
            let permutation = Equation { operands: vec![kept.result], result: equation.result.clone() };
            return self.spread_all(&permutation, &[sum], to).map(|all| all[0]);
        }
        if let Some(operands) = self.spread_all(equation, operands, to) {
            return Some(self.add(NodeKind::Plain(PlainOp::Mul), &operands));
        }
        let [a, b] = equation.operands.as_slice() else { return None };
        let mut names = Vec::new();
        let operand_indices = [a, b].map(|indices| numbered(indices, &mut names));
        let contraction = Contraction { operands: operand_indices, result: numbered(&equation.result, &mut names) };
        Some(self.add(NodeKind::Einsum(contraction), operands))
    }

    fn reduce(&mut self, is_max: bool, equation: &Equation, x: Id) -> Id {
        let indices = equation.operands[0].iter().enumerate();
        let over: Vec<usize> =
            indices.filter(|(_, index)| !equation.result.contains(index)).map(|(dim, _)| dim).collect();
        if over.is_empty() { x } else { self.add(NodeKind::Reduce { is_max, over }, &[x]) }
    }

    /// A reshape. One that only inserts dims of one element is a spread.
    fn reshape(&mut self, x: Id, to: &Shape) -> Id {
        let from = self.graph[x].data.shape.sizes.clone();
        match inserted(&from, &to.sizes) {
            Some(places) => self.spread(Spread { places, sizes: to.sizes.clone() }, x),
            None => self.add(NodeKind::Reshape(to.sizes.clone()), &[x]),
        }
    }

    fn iota(&mut self, dim: usize, to: &Shape) -> Id {
        let count = self.add(NodeKind::Iota(to.sizes[dim]), &[]);
        let indices = self.spread(Spread { places: vec![dim], sizes: to.sizes.clone() }, count);
        if to.dtype.is_float() { self.add(NodeKind::Cast(to.dtype), &[indices]) } else { indices }
    }
}

/// The number of each index in the order of first use.
fn numbered<'e>(indices: &'e [String], names: &mut Vec<&'e String>) -> Vec<u8> {
    let mut number = |index: &'e String| {
        let known = names.iter().position(|name| *name == index);
        known.unwrap_or_else(|| {
            names.push(index);
            names.len() - 1
        }) as u8
    };
    indices.iter().map(&mut number).collect()
}

/// The places of the dims among those of a reshape that only inserts dims of one element.
fn inserted(from: &[u64], to: &[u64]) -> Option<Vec<usize>> {
    let (mut places, mut next) = (Vec::new(), 0);
    for (place, size) in to.iter().enumerate() {
        if from.get(next) == Some(size) {
            places.push(place);
            next += 1;
        } else if *size != 1 {
            return None;
        }
    }
    (next == from.len()).then_some(places)
}

/// The shape of a value.
pub(crate) fn shape(block: &Block, value: Value) -> Shape {
    let ty = block.ty(value);
    Shape { dtype: ty.dtype, sizes: ty.sizes() }
}
