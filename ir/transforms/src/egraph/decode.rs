//! From chosen forms back to statements.

use super::extract::{Definition, Extraction, Slot};
use super::forms::Form;
use super::language::{Contraction, Made, NodeKind, Number, Shape, Spread};
use super::plain::PlainOp;
use egg::Id;
use ir::graph::{Block, SectionKind};
use ir::ids::Value;
use ir::ops::{
    Attention, AttentionSettings, Broadcast, Builder, Concat, CrossEntropy, Dropout, Einsum, Embedding, Equation, Iota,
    LayerNorm, Op, Permute, Reduce, Reshape, RmsNorm, Rope, Select, Selected, Slice, Take, Unary, UnaryKind,
};
use ir::types::{DType, Dim, Dims, PartialKind, Type};
use std::collections::{HashMap, HashSet};

/// A section under construction.
struct Decoder<'a> {
    extraction: &'a Extraction<'a>,
    dims: &'a Dims,
    builder: Builder<'a>,
    /// The results of each new statement.
    made: HashMap<Form, Vec<Value>>,
    /// The slots that are computed.
    done: HashSet<Slot>,
    /// The statements that are appended.
    appended: Vec<usize>,
    /// The value of the block for each new one.
    names: HashMap<Value, Value>,
    /// Comments of the statements that are left out, for the next one.
    comments: Vec<String>,
    /// The forms of the new statements, in their order.
    order: Vec<Form>,
}

/// Replaces a section by the chosen statements, and gives the forms of the new ones. `dims` are those of the model.
///
/// # Errors
/// An op does not accept its operands, or statements would change their order that must not.
pub(crate) fn decode(
    block: &mut Block,
    kind: SectionKind,
    dims: &Dims,
    extraction: &Extraction<'_>,
) -> Result<Vec<Form>, String> {
    let mut decoder = Decoder {
        extraction,
        dims,
        builder: Builder::new(block),
        made: HashMap::new(),
        done: HashSet::new(),
        appended: Vec::new(),
        names: HashMap::new(),
        comments: Vec::new(),
        order: Vec::new(),
    };
    decoder.section()?;
    let (names, order) = (decoder.names, decoder.order);
    let mut new = decoder.builder.stmts;
    for value in new.iter_mut().flat_map(|stmt| stmt.results.iter_mut().chain(&mut stmt.operands)) {
        *value = names.get(value).copied().unwrap_or(*value);
    }
    let mut defined = HashSet::new();
    let mut results = new.iter().filter(|stmt| !stmt.accumulate).flat_map(|stmt| &stmt.results);
    if !results.all(|&result| defined.insert(result)) {
        return Err("a value would have two statements".to_string());
    }
    block[kind].stmts = new;
    Ok(order)
}

impl Decoder<'_> {
    fn section(&mut self) -> Result<(), String> {
        let slots = self.extraction.slots();
        let stays = |place: usize| slots.iter().any(|&slot| self.extraction.home(slot) == Some(place));
        let places: Vec<bool> = (0..self.extraction.stmts.len()).map(stays).collect();
        for (place, stmt) in self.extraction.stmts.iter().enumerate() {
            if !places[place] {
                self.comments.extend(stmt.comments.iter().cloned());
            }
            for &slot in slots.iter().filter(|&&slot| self.extraction.home(slot) == Some(place)) {
                self.slot(slot)?;
            }
        }
        let fixed: Vec<usize> =
            self.appended.iter().copied().filter(|place| self.extraction.encoded.fixed.contains(place)).collect();
        if fixed.is_sorted() { Ok(()) } else { Err("stored values would be written in another order".to_string()) }
    }

    /// Appends the statements of a slot, unless they are there.
    fn slot(&mut self, slot: Slot) -> Result<(), String> {
        if !self.done.insert(slot) {
            return Ok(());
        }
        match self.extraction.definition(slot).ok_or("a value has no statement")? {
            Definition::Stmt(place) => self.stmt(place),
            Definition::Form(form) => self.form_of(slot, form),
        }
    }

    /// Appends a statement of the section.
    fn stmt(&mut self, place: usize) -> Result<(), String> {
        if self.appended.contains(&place) {
            return Ok(());
        }
        let mut stmt = self.extraction.stmts[place].clone();
        for (operand, &class) in stmt.operands.iter_mut().zip(&self.extraction.encoded.operands[place]) {
            *operand = self.operand(class)?;
        }
        for result in &mut stmt.results {
            *result = self.extraction.result(place, *result);
        }
        stmt.comments.splice(0..0, self.comments.drain(..));
        self.appended.push(place);
        self.builder.stmts.push(stmt);
        Ok(())
    }

    /// Appends a form and gives its result the name of the slot's value.
    fn form_of(&mut self, slot: Slot, form: &Form) -> Result<(), String> {
        let (value, accumulates) = match slot {
            Slot::Class(class) => (self.extraction.holder(class).ok_or("a value has no name")?, false),
            Slot::Place(place) => {
                let stmt = &self.extraction.stmts[place];
                (*stmt.results.first().ok_or("a statement has no result")?, stmt.accumulate)
            }
        };
        let mut result = self.form(form, Some(value))?;
        if self.names.contains_key(&result) {
            // Another value has this result; the op runs again for this one.
            self.made.clear();
            result = self.form(form, Some(value))?;
        }
        let (made, wanted) = (self.builder.ty(result), self.builder.ty(value));
        // A statement that adds to a wider value keeps its own element type.
        if !(made.same_tensor(wanted) || accumulates && made.sizes() == wanted.sizes()) {
            return Err(format!("the new op gives `%{}` another type", self.builder.block.value_name(value)));
        }
        self.names.insert(result, value);
        if accumulates {
            let last = self.builder.stmts.last_mut().filter(|stmt| stmt.results.contains(&result));
            last.ok_or("a sum has no statement of its own")?.accumulate = true;
        }
        Ok(())
    }

    /// The value of a class, whose statements are appended unless they are there.
    fn operand(&mut self, class: Id) -> Result<Value, String> {
        if let Some(value) = self.extraction.encoded.outside(class) {
            return Ok(value);
        }
        if let Some(value) = self.extraction.holder(class) {
            return self.slot(Slot::Class(class)).map(|()| value);
        }
        match self.extraction.definition(Slot::Class(class)) {
            Some(Definition::Form(form)) => self.form(form, None),
            _ => Err("an operand has no statement".to_string()),
        }
    }

    /// The value of a form, whose statements are appended unless they are there. Dims that it adds are those of the target.
    fn form(&mut self, form: &Form, target: Option<Value>) -> Result<Value, String> {
        if let Some(known) = self.made.get(form) {
            return Ok(known[0]);
        }
        let operands = form.operands.iter().map(|&class| self.operand(class)).collect::<Result<Vec<_>, _>>()?;
        if let (NodeKind::Out(place, _), [first]) = (&form.kind, operands.as_slice()) {
            let all = self.made.values().find(|results| results.first() == Some(first));
            return all.and_then(|all| all.get(*place)).copied().ok_or_else(|| "a result is missing".to_string());
        }
        let target = target.map(|value| self.builder.ty(value).logical().dims);
        let first = self.builder.stmts.len();
        let results = match &form.kind {
            NodeKind::Spread(spread) if operands.is_empty() => {
                vec![self.iota(spread.places[0], &spread.sizes, target)?]
            }
            NodeKind::Spread(spread) => vec![self.spread(spread, operands[0], target)?],
            NodeKind::Iota(size) => vec![self.iota(0, &[*size], target)?],
            NodeKind::Full(number, shape) => vec![self.constant(number.get(), shape, target)?],
            _ => {
                let op = self.op(form, &operands, target)?;
                self.builder.op(op, &operands)?
            }
        };
        if let Some(stmt) = self.builder.stmts.get_mut(first) {
            stmt.comments.append(&mut self.comments);
        }
        self.order.push(form.clone());
        self.made.insert(form.clone(), results.clone());
        Ok(results[0])
    }

    fn iota(&mut self, dim: usize, sizes: &[u64], target: Option<Vec<Dim>>) -> Result<Value, String> {
        let dims = target.unwrap_or_else(|| sizes.iter().map(|&size| Dim::sized(size)).collect());
        self.builder.one(Iota { dim, dims, dtype: DType::I32 }, &[])
    }

    /// A tensor of one number, which counts times 0 give.
    fn constant(&mut self, number: f64, shape: &Shape, target: Option<Vec<Dim>>) -> Result<Value, String> {
        let dims = target.unwrap_or_else(|| shape.sizes.iter().map(|&size| Dim::sized(size)).collect());
        let count = self.builder.one(Iota { dim: 0, dims, dtype: shape.dtype }, &[])?;
        let zero = self.builder.one(Unary(UnaryKind::Scale(0.0)), &[count])?;
        if number == 0.0 { Ok(zero) } else { self.builder.one(Unary(UnaryKind::Shift(number)), &[zero]) }
    }

    /// The names of dims in an equation: their own where these are names and differ, else letters from `k` on.
    fn labels<'d>(&self, dims: impl Iterator<Item = Option<&'d Dim>>) -> Vec<String> {
        let is_name = |name: &String| name.starts_with(|first: char| first.is_alphabetic());
        let own = |dim: Option<&Dim>| Some(self.dims[dim?.name?].name.clone()).filter(is_name);
        let mut all: Vec<Option<String>> = dims.map(own).collect();
        for place in 0..all.len() {
            if all[..place].contains(&all[place]) {
                all[place] = None;
            }
        }
        let used: HashSet<String> = all.iter().flatten().cloned().collect();
        let letters = ('k'..='z').map(|letter| letter.to_string()).chain((0..).map(|number| format!("d{number}")));
        let mut free = letters.filter(|letter| !used.contains(letter));
        all.into_iter().map(|name| name.or_else(|| free.next()).unwrap_or_default()).collect()
    }

    /// A permutation, if dims change their order, and a broadcast or a reshape, if there are new dims.
    fn spread(&mut self, spread: &Spread, x: Value, target: Option<Vec<Dim>>) -> Result<Value, String> {
        let own = self.builder.ty(x).logical().dims;
        let place = |to: usize| spread.places.iter().position(|&place| place == to);
        let all = (0..spread.sizes.len()).map(|to| place(to).map(|from| &own[from]));
        let result = self.labels(all);
        let from: Vec<String> = spread.places.iter().map(|&to| result[to].clone()).collect();
        let ordered: Vec<String> =
            (0..spread.sizes.len()).filter(|&to| place(to).is_some()).map(|to| result[to].clone()).collect();
        let mut x = x;
        if from != ordered {
            let equation = Equation { operands: vec![from], result: ordered.clone() };
            x = self.builder.one(Permute { equation }, &[x])?;
        }
        let new: Vec<usize> = (0..spread.sizes.len()).filter(|&to| place(to).is_none()).collect();
        if new.is_empty() {
            return Ok(x);
        }
        let mut old = self.builder.ty(x).logical().dims.into_iter();
        let dim = |(to, &size): (usize, &u64)| {
            let kept = if new.contains(&to) { None } else { old.next() };
            kept.unwrap_or_else(|| Dim::sized(size))
        };
        let inferred: Vec<Dim> = spread.sizes.iter().enumerate().map(dim).collect();
        let dims = target.unwrap_or(inferred);
        if new.iter().all(|&to| spread.sizes[to] == 1) {
            return self.builder.one(Reshape { dims }, &[x]);
        }
        let free = new.iter().map(|&to| dims[to].clone()).collect();
        self.builder.one(Broadcast { equation: Equation { operands: vec![ordered], result }, free }, &[x])
    }

    /// The equation of an elementwise op that repeats operands.
    fn elementwise(&self, spreads: &[Option<Spread>], operands: &[Value]) -> Equation {
        let rank = spreads.iter().flatten().map(|spread| spread.sizes.len()).max().unwrap_or(0);
        let types: Vec<Vec<Dim>> = operands.iter().map(|&x| self.builder.ty(x).logical().dims).collect();
        let place = |operand: usize, to: usize| match &spreads[operand] {
            None => Some(to),
            Some(spread) => spread.places.iter().position(|&place| place == to),
        };
        let dim = |to: usize| (0..operands.len()).find_map(|operand| Some(&types[operand][place(operand, to)?]));
        let result = self.labels((0..rank).map(dim));
        let operand = |operand: usize| {
            (0..rank).filter(|&to| place(operand, to).is_some()).map(|to| result[to].clone()).collect()
        };
        Equation { operands: (0..operands.len()).map(operand).collect(), result }
    }

    /// The equation of a contraction.
    fn contraction(&self, contraction: &Contraction, operands: &[Value]) -> Equation {
        let count = contraction.operands.iter().flatten().max().map_or(0, |&last| usize::from(last) + 1);
        let types: Vec<Vec<Dim>> = operands.iter().map(|&x| self.builder.ty(x).logical().dims).collect();
        let dim = |index: usize| {
            let find = |(indices, dims): (&Vec<u8>, &'_ Vec<Dim>)| {
                indices.iter().position(|&other| usize::from(other) == index).map(|place| dims[place].clone())
            };
            contraction.operands.iter().zip(&types).find_map(find)
        };
        let dims: Vec<Option<Dim>> = (0..count).map(dim).collect();
        let labels = self.labels(dims.iter().map(Option::as_ref));
        let named = |indices: &Vec<u8>| indices.iter().map(|&index| labels[usize::from(index)].clone()).collect();
        Equation { operands: contraction.operands.iter().map(named).collect(), result: named(&contraction.result) }
    }

    /// The equation of a reduction.
    fn reduction(&self, over: &[usize], x: Value) -> Equation {
        let dims = self.builder.ty(x).logical().dims;
        let all = self.labels(dims.iter().map(Some));
        let kept = (0..all.len()).filter(|dim| !over.contains(dim)).map(|dim| all[dim].clone()).collect();
        Equation { operands: vec![all], result: kept }
    }

    /// The op of a form.
    ///
    /// # Errors
    /// There is none.
    fn op(&self, form: &Form, operands: &[Value], target: Option<Vec<Dim>>) -> Result<Op, String> {
        let first = operands.first().copied().ok_or("an op has no operand")?;
        Ok(match &form.kind {
            NodeKind::Plain(op) => self.plain(*op, form, operands)?,
            NodeKind::Cast(to) => Unary(UnaryKind::Cast(*to)).into(),
            NodeKind::Reshape(sizes) => {
                Reshape { dims: target.unwrap_or_else(|| reshaped(self.builder.ty(first), sizes)) }.into()
            }
            NodeKind::Reduce { is_max, over } => {
                let kind = if *is_max { PartialKind::Max } else { PartialKind::Sum };
                Reduce { kind, equation: self.reduction(over, first) }.into()
            }
            NodeKind::Einsum(contraction) => {
                Einsum { equation: self.contraction(contraction, operands), scaled: None, ragged: None }.into()
            }
            NodeKind::Slice(dim, start, length) => Slice { dim: *dim, start: *start, length: *length }.into(),
            NodeKind::Concat(dim) => Concat { dim: *dim }.into(),
            NodeKind::Select(not) => Select { not: *not }.into(),
            NodeKind::Take(dim) => Take { at: Selected { dim: *dim, batch: 0 } }.into(),
            NodeKind::Dropout(p, path) => dropout(*p, path).into(),
            NodeKind::Made(made) => self::made(made),
            _ => return Err("a form has no op".to_string()),
        })
    }

    /// The op of a form without attributes, but for the constant and the equation that stand for nodes around it.
    fn plain(&self, op: PlainOp, form: &Form, operands: &[Value]) -> Result<Op, String> {
        let Some(number) = form.number.map(Number::get) else {
            let equation = (!form.spreads.is_empty()).then(|| self.elementwise(&form.spreads, operands));
            return Ok(op.op(equation));
        };
        let kind = match op {
            PlainOp::Mul => UnaryKind::Scale(number),
            PlainOp::Add => UnaryKind::Shift(number),
            PlainOp::Max => UnaryKind::AtLeast(number),
            PlainOp::Min => UnaryKind::AtMost(number),
            _ => return Err(format!("`{}` takes no constant", op.name())),
        };
        Ok(Unary(kind).into())
    }
}

fn dropout(p: Number, path: &str) -> Dropout {
    Dropout { p: p.get(), path: path.to_string(), piece: None }
}

/// The op that a recogniser makes.
fn made(made: &Made) -> Op {
    match made {
        Made::RmsNorm(eps) => RmsNorm { eps: eps.get() }.into(),
        Made::LayerNorm(eps) => LayerNorm { eps: eps.get() }.into(),
        Made::CrossEntropy => CrossEntropy.into(),
        Made::Attention { scale, causal, dropout } => {
            let dropout = dropout.as_ref().map(|(p, path)| self::dropout(*p, path));
            Attention(AttentionSettings { dropout, ..AttentionSettings::new(scale.get(), *causal) }).into()
        }
        Made::Rope { theta } => {
            Rope { theta: theta.get(), scaling: None, turned: None, gain: 1.0, inverse: false }.into()
        }
        Made::Embedding => Embedding { pad: None }.into(),
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
