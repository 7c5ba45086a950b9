//! A block for one slice of the sequence.

use super::SequenceSplit;
use super::along::{Along, SequencePart};
use super::unsliced::Unsliced;
use ir::graph::{Arg, ArgKind, Block, ResultKind, Section, SectionKind, Span, Stmt};
use ir::ids::Value;
use ir::ops::{Attrs, Concat, Op, Piece, Shapes, Slice};
use ir::types::Type;
use std::collections::HashMap;

/// The block for a slice, from 0: values from earlier slices follow its own value arguments, and values for later slices
/// follow its own results.
///
/// # Errors
/// An op does not support the rows of a slice.
pub(super) fn sliced(block: &Block, along: &Along, split: &SequenceSplit, slice: u32) -> Result<Block, Unsliced> {
    let mut writer = Writer::new(block, along, split, slice);
    writer.args();
    for (stmt, parts) in block[SectionKind::F].stmts.iter().zip(&along.parts) {
        writer.statement(stmt, parts)?;
    }
    let mut made = writer.made;
    let mut ret: Vec<Value> = block[SectionKind::F].ret.iter().map(|value| writer.value[value]).collect();
    made.results = block.results.clone();
    if slice + 1 < split.slices {
        ret.extend(along.passed.iter().map(|value| writer.value[value]));
        made.results.extend(along.passed.iter().map(|_| ResultKind::Value));
    }
    made[SectionKind::F] = Section { stmts: writer.stmts, ret, args: Vec::new() };
    Ok(made)
}

struct Writer<'a> {
    block: &'a Block,
    along: &'a Along,
    split: &'a SequenceSplit,
    slice: u32,
    made: Block,
    stmts: Vec<Stmt>,
    /// The new value of each value of the block.
    value: HashMap<Value, Value>,
    /// Per passed value, those of the earlier slices in order.
    earlier: HashMap<Value, Vec<Value>>,
    /// The results of slices and concatenations of rows.
    taken: HashMap<(Value, SequencePart), Value>,
}

impl Writer<'_> {
    fn new<'a>(block: &'a Block, along: &'a Along, split: &'a SequenceSplit, slice: u32) -> Writer<'a> {
        let name = format!("{}.{slice}", block.name);
        let comments = if slice == 0 { block.comments.clone() } else { Vec::new() };
        let made = Block { name, comments, span: block.span, ..Block::default() };
        let (value, earlier, taken) = (HashMap::new(), HashMap::new(), HashMap::new());
        Writer { block, along, split, slice, made, stmts: Vec::new(), value, earlier, taken }
    }

    fn args(&mut self) {
        let (early, late): (Vec<Arg>, Vec<Arg>) =
            self.block.args.iter().partition(|arg| matches!(arg.kind, ArgKind::Value | ArgKind::Input));
        early.into_iter().for_each(|arg| self.arg(arg));
        for slice in 0..self.slice {
            for &passed in &self.along.passed {
                let name = self.free(format!("{}.{slice}", self.block.value_name(passed)));
                let mut ty = self.ty(passed);
                // Unnamed, so that no annotation rule for values between layers applies.
                ty.dims[self.along.dim[&passed]].name = None;
                let value = self.made.add_value(&name, ty);
                self.made.args.push(Arg { value, kind: ArgKind::Value });
                self.earlier.entry(passed).or_default().push(value);
            }
        }
        late.into_iter().for_each(|arg| self.arg(arg));
    }

    fn arg(&mut self, arg: Arg) {
        let value = self.made.add_value(self.block.value_name(arg.value), self.ty(arg.value));
        self.made.args.push(Arg { value, kind: arg.kind });
        self.value.insert(arg.value, value);
    }

    /// The type of the new value of a value.
    fn ty(&self, value: Value) -> Type {
        let ty = self.block.ty(value);
        if !self.along.is_sliced(value) {
            return self.split.whole(ty);
        }
        let mut ty = ty.clone();
        if let Some(&dim) = self.along.dim.get(&value) {
            ty.dims[dim].size = self.split.length;
            ty.dims[dim].name = Some(self.split.dim);
        }
        ty
    }

    /// The name, or a numbered form that no value of the block has.
    fn free(&self, mut name: String) -> String {
        while self.block.find(&name).is_some() || self.made.find(&name).is_some() {
            name.push('_');
        }
        name
    }

    fn statement(&mut self, stmt: &Stmt, parts: &[SequencePart]) -> Result<(), Unsliced> {
        let operands: Vec<Value> =
            stmt.operands.iter().zip(parts).map(|(&value, &part)| self.operand(value, part)).collect();
        let types: Vec<Type> = stmt.results.iter().map(|&value| self.ty(value)).collect();
        let op = self.op(&stmt.op, &operands, &types)?;
        let given: Vec<&Type> = operands.iter().map(|&value| self.made.ty(value)).collect();
        let inferred = op.infer(&given).map_err(Unsliced::Op)?;
        if inferred.len() != types.len() || inferred.iter().zip(&types).any(|(a, b)| !a.same_tensor(b)) {
            return Err(Unsliced::Other(op.name()));
        }
        let mut results = Vec::new();
        for (&value, ty) in stmt.results.iter().zip(types) {
            let result = self.made.add_value(self.block.value_name(value), ty);
            self.value.insert(value, result);
            results.push(result);
        }
        let comments = if self.slice == 0 { stmt.comments.clone() } else { Vec::new() };
        self.stmts.push(Stmt { results, op, operands, comments, ..*stmt });
        Ok(())
    }

    /// The op for the shapes of a slice, at its position in the sequence.
    fn op(&self, op: &Op, operands: &[Value], results: &[Type]) -> Result<Op, Unsliced> {
        let operands: Vec<&Type> = operands.iter().map(|&value| self.made.ty(value)).collect();
        let attrs = op.attrs().into_iter().map(|(name, attr)| (name.to_string(), attr)).collect();
        let op = Op::parse(op.name(), &mut Attrs(attrs), &Shapes { operands: &operands, results });
        let op = op.map_err(Unsliced::Op)?;
        let piece = Piece { origin: u64::from(self.slice) * self.split.length, whole: self.split.size };
        let runs_along = results.iter().any(|ty| ty.dims.get(1).is_some_and(|dim| dim.name == Some(self.split.dim)));
        match op.extras().positioned {
            Some(placed) if runs_along => Ok(placed.on_piece(piece)),
            Some(_) => Err(Unsliced::Placed(op.name())),
            None => Ok(op),
        }
    }

    fn operand(&mut self, value: Value, part: SequencePart) -> Value {
        let own = self.value[&value];
        let part = if part == SequencePart::UpTo && self.slice == 0 { SequencePart::Rows } else { part };
        let Some(&dim) = self.along.dim.get(&value).filter(|_| part != SequencePart::Same) else { return own };
        if part == SequencePart::Rows && self.along.is_sliced(value) {
            return own;
        }
        if let Some(&taken) = self.taken.get(&(value, part)) {
            return taken;
        }
        let before = u64::from(self.slice) * self.split.length;
        let end = before + self.split.length;
        let (start, length) = if part == SequencePart::Rows { (before, self.split.length) } else { (0, end) };
        let (op, operands): (Op, Vec<Value>) = if self.along.is_sliced(value) {
            let earlier = self.earlier.get(&value).into_iter().flatten().copied();
            (Concat { dim }.into(), earlier.chain([own]).collect())
        } else {
            (Slice { dim, start, length }.into(), vec![own])
        };
        if operands.len() == 1 && self.made.ty(own).dims[dim].size == length {
            return own;
        }
        let taken = self.rows(value, part, length, op, operands);
        self.taken.insert((value, part), taken);
        taken
    }

    /// Appends a statement that takes rows of a value: `%pos.s` are those of the slice, `%k.t` those up to its end.
    fn rows(&mut self, value: Value, part: SequencePart, length: u64, op: Op, operands: Vec<Value>) -> Value {
        let mut ty = self.block.ty(value).clone();
        let dim = &mut ty.dims[self.along.dim[&value]];
        dim.size = length;
        dim.name = if part == SequencePart::Rows {
            Some(self.split.dim)
        } else {
            self.split.whole.filter(|_| length == self.split.size)
        };
        let letter = if part == SequencePart::Rows { "s" } else { "t" };
        let name = self.free(format!("{}.{letter}", self.block.value_name(value)));
        let result = self.made.add_value(&name, ty);
        let span = Span::default();
        self.stmts.push(Stmt { results: vec![result], accumulate: false, op, operands, comments: Vec::new(), span });
        result
    }
}
