//! The records of delayed scaling. Each scaled tensor of a block has one: a parameter that no optimizer updates, with the ages of its exponents.
//! W counts exponents into its gradient, and U updates the ages.

use crate::build_error::BuildError;
use crate::differentiate::add_arg;
use ir::graph::{ArgKind, Block, GRADIENT, Init, Model, Param, ParamIndex, ParamRef, RECORDS, SectionKind, Span, Stmt};
use ir::ids::{BlockId, Value};
use ir::ops::{Ages, EXPONENTS, Op, Unary, UnaryKind};
use ir::types::{DType, Dim, Type};

/// The age of what was never seen.
const NEVER: f64 = 65536.0;

/// The records of a block.
#[derive(Default)]
pub(super) struct Records(Vec<Record>);

struct Record {
    /// Its name within the block's array.
    field: String,
    ages: Value,
    /// The counts of a micro-batch.
    seen: Value,
}

impl Records {
    /// Adds the record of a value as an argument of the block, and returns it.
    ///
    /// # Errors
    /// Those of [`add_arg`], which does not fail on a free name.
    pub(super) fn add(&mut self, block: &mut Block, of: Value, seen: Value) -> Result<Value, BuildError> {
        let mut field = block.value_name(of).replace('.', "_");
        while block.find(&format!("{field}_ages")).is_some() {
            field.push('_');
        }
        let ty = Type::new(DType::F32, vec![Dim::sized(EXPONENTS)]);
        let ages = add_arg(block, format!("{field}_ages"), ArgKind::Param, ty)?;
        self.0.push(Record { field, ages, seen });
        Ok(ages)
    }

    /// Appends the counts to W and the updates to U, and returns the names of the records.
    pub(super) fn write(self, block: &mut Block) -> Vec<String> {
        let clip = block.find("clip");
        for Record { ages, seen, .. } in &self.0 {
            let name = format!("{}{GRADIENT}", block.value_name(*ages));
            let counts = block.add_value(&name, block.ty(*ages).clone());
            let count = stmt(Unary(UnaryKind::Scale(1.0)), counts, vec![*seen]);
            block[SectionKind::W].stmts.push(Stmt { accumulate: true, ..count });
            let update = clip.map(|clip| stmt(Ages, *ages, vec![*ages, counts, clip]));
            block[SectionKind::U].stmts.extend(update);
        }
        self.0.into_iter().map(|record| record.field).collect()
    }
}

fn stmt(op: impl Into<Op>, result: Value, operands: Vec<Value>) -> Stmt {
    let (op, comments, span) = (op.into(), Vec::new(), Span::default());
    Stmt { results: vec![result], accumulate: false, op, operands, comments, span }
}

/// Declares the records of a block for every run of the block, and passes them to its calls behind the other parameters.
pub(super) fn declare(model: &mut Model, id: BlockId, fields: Vec<String>) {
    let repeats = model.calls.iter().filter(|call| call.block == id).filter_map(|call| call.repeat.as_ref());
    let mut count = repeats.map(|repeat| repeat.range.end).max().unwrap_or(0);
    let name = format!("{}{RECORDS}", model.blocks[id].name);
    for call in model.calls.iter_mut().filter(|call| call.block == id) {
        let index = if call.repeat.is_some() { ParamIndex::Repeat } else { ParamIndex::At(count) };
        count += u32::from(call.repeat.is_none());
        call.params.push(ParamRef { name: name.clone(), index });
    }
    for field in fields {
        model.params.push(Param {
            name: name.clone(),
            field: Some(field),
            count: Some(count),
            ty: Type::new(DType::F32, vec![Dim::sized(EXPONENTS)]),
            init: Init::Constant(NEVER),
            decay: false,
            frozen: false,
            part_of: None,
            comments: Vec::new(),
            span: Span::default(),
        });
    }
}
