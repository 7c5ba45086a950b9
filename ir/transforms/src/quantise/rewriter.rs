//! The quantised form of statements.

use super::ages::Records;
use super::product::{Forward, Part, part};
use ir::graph::{ArgKind, Block, SectionKind, Stmt};
use ir::ids::Value;
use ir::ops::{AbsMax, Builder, DelayedScale, Exponents, Quantise, Reshape, ScaleFor};
use ir::options::{Quantisation, Scales};
use ir::types::{DType, Dim};
use std::collections::HashMap;

/// A tensor with the blocks and the format in which it is quantised.
type Key = (Value, Vec<Option<u64>>, DType);

pub(super) struct Rewriter<'a> {
    recipe: &'a Quantisation,
    forwards: &'a [Forward],
    /// Values whose 8-bit copies the backward reads.
    saved: Vec<Value>,
    /// Scales that exist.
    scales: HashMap<Key, Value>,
    /// 8-bit copies that exist.
    narrow: HashMap<Key, Value>,
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
    pub(super) fn section(&mut self, block: &mut Block, kind: SectionKind) -> Result<(), String> {
        let stmts = std::mem::take(&mut block[kind].stmts);
        let mut builder = Builder::new(block);
        stmts.into_iter().try_for_each(|stmt| self.statement(&mut builder, kind, stmt))?;
        block[kind].stmts = builder.stmts;
        if kind == SectionKind::F {
            // The backward makes again what F made for its own products: it has what that is made of.
            self.narrow.retain(|(value, ..), _| self.saved.contains(value));
        }
        Ok(())
    }

    /// Appends a statement, or its quantised form.
    fn statement(&mut self, builder: &mut Builder<'_>, kind: SectionKind, stmt: Stmt) -> Result<(), String> {
        let forwards = self.forwards;
        let Some((forward, part)) = part(&stmt, kind, forwards, builder.block) else {
            builder.stmts.push(stmt);
            return Ok(());
        };
        let to = builder.ty(stmt.operands[0]).dtype;
        let product = stmt.op.extras().contraction.ok_or("a product takes scales")?;
        let (equation, op) = (product.equation(), product.with_scales(to));
        let mut operand = |at: usize| {
            let is_cotangent = part != Part::Forward && at == 0;
            let to = if is_cotangent { self.recipe.cotangents } else { DType::F8E4M3 };
            self.quantised(builder, (stmt.operands[at], forward.block(&equation.operands[at], part), to))
        };
        let [a, b] = [operand(0)?, operand(1)?];
        builder.stmts.push(Stmt { op, operands: vec![a[0], b[0], a[1], b[1]], ..stmt });
        if part == Part::Forward && self.saved.contains(&forward.x) {
            self.quantised(builder, (forward.x, forward.block(&forward.x_labels, Part::Weight), DType::F8E4M3))?;
        }
        Ok(())
    }

    /// The 8-bit copy of a tensor, and its scales.
    fn quantised(&mut self, builder: &mut Builder<'_>, key: Key) -> Result<[Value; 2], String> {
        let (value, _, to) = &key;
        let scale = match self.scales.get(&key) {
            Some(&scale) => scale,
            None => {
                let scale = self.scale(builder, &key)?;
                named(builder.block, scale, *value, "scale");
                scale
            }
        };
        let copy = match self.narrow.get(&key) {
            Some(&copy) => copy,
            None => {
                let copy = builder.one(Quantise { to: *to }, &[*value, scale])?;
                named(builder.block, copy, *value, "q");
                copy
            }
        };
        self.scales.insert(key.clone(), scale);
        self.narrow.insert(key, copy);
        Ok([copy, scale])
    }

    /// The scales of a tensor, from its elements or from its record.
    fn scale(&mut self, builder: &mut Builder<'_>, (value, block, to): &Key) -> Result<Value, String> {
        let is_param = builder.block.arg_kind(*value) == Some(ArgKind::Param);
        match self.recipe.scales {
            Scales::Delayed(within) if !is_param => {
                let seen = builder.one(Exponents, &[*value])?;
                let ages = self.records.add(builder.block, *value, seen)?;
                let scale = builder.one(DelayedScale { to: *to, within }, &[ages])?;
                builder.one(Reshape { dims: vec![Dim::sized(1); block.len()] }, &[scale])
            }
            _ => {
                let max = builder.one(AbsMax { block: block.clone() }, &[*value])?;
                builder.one(ScaleFor { to: *to }, &[max])
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
