//! The quantised form of statements.

use super::ages::Records;
use super::product::{Forward, Part, part};
use crate::build_error::BuildError;
use ir::graph::{ArgKind, Block, SectionKind, Stmt};
use ir::ids::Value;
use ir::ops::{AbsMax, Builder, DelayedScale, Exponents, Quantise, Reshape, ScaleFor};
use ir::options::{Quantisation, Scales};
use ir::types::{DType, Dim};
use std::collections::HashMap;

/// A tensor with the blocks and the format in which it is quantised.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Narrow {
    value: Value,
    block: Vec<Option<u64>>,
    to: DType,
}

pub(super) struct Rewriter<'a> {
    recipe: &'a Quantisation,
    forwards: &'a [Forward],
    /// Values whose 8-bit copies the backward reads.
    saved: Vec<Value>,
    /// Scales that exist.
    scales: HashMap<Narrow, Value>,
    /// 8-bit copies that exist.
    narrow: HashMap<Narrow, Value>,
    /// The records of delayed scaling.
    pub(super) records: Records,
}

impl<'a> Rewriter<'a> {
    pub(super) fn new(recipe: &'a Quantisation, forwards: &'a [Forward], saved: Vec<Value>) -> Rewriter<'a> {
        let (scales, narrow, records) = (HashMap::new(), HashMap::new(), Records::default());
        Rewriter { recipe, forwards, saved, scales, narrow, records }
    }

    /// Rewrites a section, after those that it reads.
    ///
    /// # Errors
    /// A statement does not hold.
    pub(super) fn section(&mut self, block: &mut Block, kind: SectionKind) -> Result<(), BuildError> {
        let stmts = std::mem::take(&mut block[kind].stmts);
        let mut builder = Builder::new(block);
        stmts.into_iter().try_for_each(|stmt| self.statement(&mut builder, kind, stmt))?;
        block[kind].stmts = builder.stmts;
        if kind == SectionKind::F {
            // The backward makes again what F made for its own products: it has what that is made of.
            self.narrow.retain(|copy, _| self.saved.contains(&copy.value));
        }
        Ok(())
    }

    /// Appends a statement, or its quantised form.
    fn statement(&mut self, builder: &mut Builder<'_>, kind: SectionKind, stmt: Stmt) -> Result<(), BuildError> {
        let forwards = self.forwards;
        let Some((forward, part)) = part(&stmt, kind, forwards, builder.block) else {
            builder.stmts.push(stmt);
            return Ok(());
        };
        let to = builder.ty(stmt.operands[0]).dtype;
        let product = stmt.op.extras().contraction.ok_or(BuildError::NoScales)?;
        let (equation, op) = (product.equation(), product.with_scales(to));
        let [first, second] = [0, 1].map(|at| forward.block(&equation.operands[at], part));
        let to = if part == Part::Forward { DType::F8E4M3 } else { self.recipe.cotangents };
        let a = self.quantised(builder, Narrow { value: stmt.operands[0], block: first, to })?;
        let b = self.quantised(builder, Narrow { value: stmt.operands[1], block: second, to: DType::F8E4M3 })?;
        builder.stmts.push(Stmt { op, operands: vec![a[0], b[0], a[1], b[1]], ..stmt });
        if part == Part::Forward && self.saved.contains(&forward.x) {
            let block = forward.block(&forward.x_labels, Part::Weight);
            self.quantised(builder, Narrow { value: forward.x, block, to: DType::F8E4M3 })?;
        }
        Ok(())
    }

    /// The 8-bit copy of a tensor, and its scales.
    fn quantised(&mut self, builder: &mut Builder<'_>, narrow: Narrow) -> Result<[Value; 2], BuildError> {
        let value = narrow.value;
        let scale = match self.scales.get(&narrow) {
            Some(&scale) => scale,
            None => {
                let scale = self.scale(builder, &narrow)?;
                named(builder.block, scale, value, "scale");
                scale
            }
        };
        let copy = match self.narrow.get(&narrow) {
            Some(&copy) => copy,
            None => {
                let copy = builder.one(Quantise { to: narrow.to }, &[value, scale])?;
                named(builder.block, copy, value, "q");
                copy
            }
        };
        self.scales.insert(narrow.clone(), scale);
        self.narrow.insert(narrow, copy);
        Ok([copy, scale])
    }

    /// The scales of a tensor, from its elements or from its record.
    fn scale(&mut self, builder: &mut Builder<'_>, narrow: &Narrow) -> Result<Value, BuildError> {
        let Narrow { value, ref block, to } = *narrow;
        let is_param = builder.block.arg_kind(value) == Some(ArgKind::Param);
        match self.recipe.scales {
            Scales::Delayed(within) if !is_param => {
                let seen = builder.one(Exponents, &[value])?;
                let ages = self.records.add(builder.block, value, seen)?;
                let scale = builder.one(DelayedScale { to, within }, &[ages])?;
                Ok(builder.one(Reshape { dims: vec![Dim::sized(1); block.len()] }, &[scale])?)
            }
            _ => {
                let max = builder.one(AbsMax { block: block.clone() }, &[value])?;
                Ok(builder.one(ScaleFor { to }, &[max])?)
            }
        }
    }
}

/// Names a value after the one that it is made of, if the name is free.
fn named(block: &mut Block, value: Value, of: Value, suffix: &str) {
    let name = format!("{}.{suffix}", block.value_name(of));
    if block.find(&name).is_none() {
        block.values[value].name = name;
    }
}
