//! From chosen nodes back to statements.

use super::construct::Construct;
use super::extract::Replaced;
use super::language::{Made, Node, NodeKind, Spread};
use egg::Id;
use ir::graph::{Block, SectionKind, Stmt};
use ir::ids::Value;
use ir::ops::{
    Attention, Broadcast, Builder, Compare, CompareKind, CrossEntropy, Embedding, Equation, Iota, LayerNorm, Op,
    Permute, Reshape, RmsNorm, Rope, Softmax, Unary, UnaryKind,
};
use ir::types::{DType, Dim, Type};
use std::collections::{BTreeMap, HashMap};

/// A section under construction.
struct Decoder<'a> {
    construct: &'a Construct<'a>,
    replaced: &'a BTreeMap<Value, Replaced>,
    statement: HashMap<Value, usize>,
    builder: Builder<'a>,
    /// The results of each new op.
    made: HashMap<Node, Vec<Value>>,
    /// True for the statements that are appended.
    is_done: Vec<bool>,
    /// The value of the block for each new one.
    names: HashMap<Value, Value>,
}

/// Replaces the forward of a block by one in which recognised ops compute some values.
///
/// # Errors
/// An op does not accept its operands.
pub(crate) fn decode(
    block: &mut Block,
    construct: &Construct<'_>,
    replaced: &BTreeMap<Value, Replaced>,
) -> Result<(), String> {
    let stmts = construct.block()[SectionKind::F].stmts.as_slice();
    let results =
        |(place, stmt): (usize, &Stmt)| stmt.results.iter().map(|&result| (result, place)).collect::<Vec<_>>();
    let statement = stmts.iter().enumerate().flat_map(results).collect();
    let mut decoder = Decoder {
        construct,
        replaced,
        statement,
        builder: Builder::new(block),
        made: HashMap::new(),
        is_done: vec![false; stmts.len()],
        names: HashMap::new(),
    };
    let dropped: Vec<usize> = replaced.values().flat_map(|value| value.dropped.iter().copied()).collect();
    for (place, stmt) in stmts.iter().enumerate() {
        let is_replaced = stmt.results.iter().any(|result| replaced.contains_key(result));
        if is_replaced || !dropped.contains(&place) {
            decoder.value(stmt.results[0])?;
        }
    }
    let names = decoder.names;
    let mut new = decoder.builder.stmts;
    for value in new.iter_mut().flat_map(|stmt| stmt.results.iter_mut().chain(&mut stmt.operands)) {
        *value = names.get(value).copied().unwrap_or(*value);
    }
    block[SectionKind::F].stmts = new;
    Ok(())
}

impl Decoder<'_> {
    /// Appends the statements that define a value of the block, unless they are there.
    fn value(&mut self, value: Value) -> Result<(), String> {
        let Some(&place) = self.statement.get(&value) else { return Ok(()) };
        if std::mem::replace(&mut self.is_done[place], true) {
            return Ok(());
        }
        let stmt = &self.construct.block()[SectionKind::F].stmts[place];
        let Some(replaced) = self.replaced.get(&value) else {
            stmt.operands.iter().try_for_each(|&operand| self.value(operand))?;
            self.builder.stmts.push(stmt.clone());
            return Ok(());
        };
        let first = self.builder.stmts.len();
        let mut result = self.node(&replaced.node)?;
        if self.names.contains_key(&result) {
            // Another value has this result; the op runs again for this one.
            self.made.clear();
            result = self.node(&replaced.node)?;
        }
        if !self.builder.ty(result).same_tensor(self.builder.ty(value)) {
            return Err(format!("the new op gives `%{}` another type", self.builder.block.value_name(value)));
        }
        self.names.insert(result, value);
        let stmts = &self.construct.block()[SectionKind::F].stmts;
        let comments = replaced.dropped.iter().flat_map(|&place| stmts[place].comments.iter().cloned());
        if let Some(stmt) = self.builder.stmts.get_mut(first) {
            stmt.comments.extend(comments);
        }
        Ok(())
    }

    /// The value of a node, whose statement is appended unless it is there.
    fn node(&mut self, node: &Node) -> Result<Value, String> {
        let mut node = node.clone();
        node.operands.iter_mut().for_each(|class| *class = self.construct.graph().find(*class));
        if let Some(known) = self.made.get(&node) {
            return Ok(known[0]);
        }
        let mut operands = Vec::new();
        for &class in self.construct.operands(&node) {
            operands.push(self.operand(class)?);
        }
        if let (NodeKind::Out(place, _), [first]) = (&node.kind, operands.as_slice()) {
            let all = self.made.values().find(|results| results.first() == Some(first));
            return all.and_then(|all| all.get(*place)).copied().ok_or_else(|| "a result is missing".to_string());
        }
        let results = match &node.kind {
            NodeKind::Spread(spread) => match self.construct.counted(&node) {
                Some(dim) => vec![self.iota(dim, &spread.sizes)?],
                None => vec![self.spread(spread, operands[0])?],
            },
            NodeKind::Iota(size) => vec![self.iota(0, &[*size])?],
            kind => {
                let op = self.op(kind, &operands)?;
                self.builder.op(op, &operands)?
            }
        };
        self.made.insert(node, results.clone());
        Ok(results[0])
    }

    /// The value of a class, whose statements are appended unless they are there.
    fn operand(&mut self, class: Id) -> Result<Value, String> {
        if let Some(value) = self.construct.value(class) {
            return self.value(value).map(|()| value);
        }
        let node = self.construct.node(class).ok_or("an operand has no statement")?;
        self.node(node)
    }

    fn iota(&mut self, dim: usize, sizes: &[u64]) -> Result<Value, String> {
        let dims = sizes.iter().map(|&size| Dim::sized(size)).collect();
        self.builder.one(Iota { dim, dims, dtype: DType::I32 }, &[])
    }

    /// A permutation, if dims change their order, and a broadcast or a reshape, if there are new dims.
    fn spread(&mut self, spread: &Spread, x: Value) -> Result<Value, String> {
        let label = |dim: usize| format!("d{dim}");
        let from: Vec<String> = (0..spread.places.len()).map(label).collect();
        let mut order: Vec<usize> = (0..spread.places.len()).collect();
        order.sort_by_key(|&dim| spread.places[dim]);
        let ordered: Vec<String> = order.iter().map(|&dim| label(dim)).collect();
        let mut x = x;
        if from != ordered {
            let equation = Equation { operands: vec![from], result: ordered.clone() };
            x = self.builder.one(Permute { equation }, &[x])?;
        }
        let mut new: Vec<Dim> = Vec::new();
        let mut old = self.builder.ty(x).logical().dims.into_iter();
        let dims: Vec<Dim> = spread
            .sizes
            .iter()
            .enumerate()
            .filter_map(|(place, &size)| {
                if spread.places.contains(&place) {
                    return old.next();
                }
                new.push(Dim::sized(size));
                new.last().cloned()
            })
            .collect();
        if new.is_empty() {
            return Ok(x);
        }
        if new.iter().all(|dim| dim.size == 1) {
            return self.builder.one(Reshape { dims }, &[x]);
        }
        let mut kept = ordered.into_iter();
        let result = (0..spread.sizes.len())
            .filter_map(|place| if spread.places.contains(&place) { kept.next() } else { Some(format!("n{place}")) });
        let result = result.collect();
        let operand = order.iter().map(|&dim| label(dim)).collect();
        let equation = Equation { operands: vec![operand], result };
        self.builder.one(Broadcast { equation, free: new }, &[x])
    }

    /// The op of a node.
    ///
    /// # Errors
    /// There is none.
    fn op(&self, kind: &NodeKind, operands: &[Value]) -> Result<Op, String> {
        Ok(match kind {
            NodeKind::Plain("softmax") => Softmax.into(),
            NodeKind::Plain("sigmoid") => Unary(UnaryKind::Sigmoid).into(),
            NodeKind::Plain("silu") => Unary(UnaryKind::Silu).into(),
            NodeKind::Plain("gelu") => Unary(UnaryKind::Gelu).into(),
            NodeKind::Plain("gelu_erf") => Unary(UnaryKind::GeluErf).into(),
            NodeKind::Plain("relu_squared") => Unary(UnaryKind::ReluSquared).into(),
            NodeKind::Plain("equal") => Compare(CompareKind::Equal).into(),
            NodeKind::Cast(to) => Unary(UnaryKind::Cast(*to)).into(),
            NodeKind::Reshape(sizes) => {
                let dims = operands.first().map_or_else(Vec::new, |&x| reshaped(self.builder.ty(x), sizes));
                Reshape { dims }.into()
            }
            NodeKind::Made(made) => match made {
                Made::RmsNorm(eps) => RmsNorm { eps: eps.get() }.into(),
                Made::LayerNorm(eps) => LayerNorm { eps: eps.get() }.into(),
                Made::CrossEntropy => CrossEntropy.into(),
                Made::Attention { scale, causal } => {
                    Attention { scale: scale.get(), causal: *causal, dropout: None, piece: None }.into()
                }
                Made::Rope { theta } => Rope { theta: theta.get(), scaling: None, inverse: false }.into(),
                Made::Embedding => Embedding { pad: None }.into(),
            },
            _ => return Err("a node has no statement".to_string()),
        })
    }
}

/// The dims of a reshape; those in front and at the end that do not change keep their names.
fn reshaped(from: &Type, sizes: &[u64]) -> Vec<Dim> {
    let own = from.logical().dims;
    let ahead = own.iter().zip(sizes).take_while(|(dim, size)| dim.size == **size).count();
    let rest = own.len().min(sizes.len()) - ahead;
    let behind = own.iter().rev().zip(sizes.iter().rev()).take(rest);
    let behind = behind.take_while(|(dim, size)| dim.size == **size).count();
    let dim = |(place, &size): (usize, &u64)| {
        if place < ahead {
            own[place].clone()
        } else if place + behind >= sizes.len() {
            own[own.len() + place - sizes.len()].clone()
        } else {
            Dim::sized(size)
        }
    };
    sizes.iter().enumerate().map(dim).collect()
}
