//! Writes the chosen shardings back into the types, with a reshard where a statement reads another sharding.

use super::graph::{DECIDED, Meaning, ShardedValue, boundary};
use super::params::Classes;
use super::strategy::Strategy;
use crate::fault::Fault;
use crate::passes::annotate;
use crate::passes::propagate;
use crate::passes::reshard::{Moved, in_sharding};
use crate::ports::{Ports, passed, value_results};
use crate::reshard::sharding::Sharding;
use crate::sections::{Site, settle};
use ir::graph::{ArgKind, Block, Model, SectionKind};
use ir::ids::{BlockId, Value};
use ir::mesh::{Axes, Mesh};
use ir::types::Type;

/// The chosen alternatives, with their meaning.
pub(super) struct Chosen<'a> {
    pub(super) meaning: &'a Meaning,
    pub(super) ports: &'a Ports,
    pub(super) classes: &'a Classes,
    pub(super) choice: &'a [usize],
}

impl Chosen<'_> {
    fn sharding_of(&self, what: ShardedValue) -> Option<&Sharding> {
        self.meaning.values.get(&what).map(|(node, shardings)| &shardings[self.choice[*node]])
    }

    fn strategy(&self, id: BlockId, kind: SectionKind, place: usize) -> &Strategy {
        let (node, strategies) = &self.meaning.stmts[&(id, kind, place)];
        &strategies[self.choice[*node]]
    }

    /// Writes the shardings of a model.
    ///
    /// # Errors
    /// An op's rule does not fit its tensors, which is an internal error.
    pub(super) fn write(&self, model: &mut Model) -> Result<(), Fault> {
        self.write_params(model);
        let (mesh, dims) = (model.mesh.clone(), model.dims.clone());
        for id in model.blocks.keys().collect::<Vec<_>>() {
            self.write_block(&mesh, &mut model.blocks[id], id);
        }
        propagate::finish(&Site { mesh: &mesh, dims: &dims }, model)
    }

    /// Writes parameters, states, inputs, and the arguments that receive them.
    fn write_params(&self, model: &mut Model) {
        for (id, param) in model.params.iter_mut() {
            let kept = self.meaning.params.get(&self.classes.class(id));
            let sharding = kept.map(|(node, ways)| &ways[self.choice[*node]].sharding);
            param.ty = sharding.map_or_else(|| param.ty.closed(), |sharding| sharding.on(&param.ty));
        }
        for input in &mut model.inputs {
            let sharding = self.ports.of_value(input.value).and_then(|port| self.sharding_of(ShardedValue::Port(port)));
            input.ty = sharding.map_or_else(|| input.ty.closed(), |sharding| sharding.on(&input.ty));
        }
        let states: Vec<(BlockId, Value, Axes)> = model
            .blocks
            .iter()
            .flat_map(|(id, block)| block.args_of(ArgKind::Param).map(move |param| (id, param)))
            .filter_map(|(id, param)| {
                let class = self.classes.class(self.classes.passed(model, id, param)?);
                let (node, ways) = self.meaning.params.get(&class)?;
                Some((id, param, ways[self.choice[*node]].states.clone()))
            })
            .collect();
        annotate::bind(model, |id, param, _| {
            let found = states.iter().find(|(block, value, _)| (*block, *value) == (id, param));
            found.map_or_else(Axes::none, |(_, _, states)| states.clone())
        });
    }

    fn write_block(&self, mesh: &Mesh, block: &mut Block, id: BlockId) {
        for (place, (value, _)) in passed(block).into_iter().enumerate() {
            self.put(block, value, ShardedValue::Port(self.ports.of_argument(id, place)));
        }
        let places = value_results(&block.results);
        let results: Vec<(usize, Value)> = block.differentiable_results().collect();
        for (cotangent, (result, _)) in block[SectionKind::I].args.clone().into_iter().zip(results) {
            match places.iter().position(|&place| place == result) {
                Some(place) => self.put(block, cotangent, ShardedValue::Cotangent(self.ports.of_result(id, place))),
                None => self.put(block, cotangent, ShardedValue::Stated(id, cotangent)),
            }
        }
        for value in block.args.iter().map(|arg| arg.value).collect::<Vec<_>>() {
            block.values[value].ty = block.ty(value).closed();
        }
        let mut moved = Moved::default();
        for kind in DECIDED {
            if kind == SectionKind::I {
                moved.drop_gathered(block, mesh);
            }
            self.write_section(block, id, kind, &mut moved);
            self.write_returned(block, id, kind, &mut moved);
        }
    }

    fn put(&self, block: &mut Block, value: Value, what: ShardedValue) {
        if let Some(sharding) = self.sharding_of(what) {
            block.values[value].ty = sharding.on(block.ty(value));
        }
    }

    fn write_section(&self, block: &mut Block, id: BlockId, kind: SectionKind, moved: &mut Moved) {
        for (place, mut stmt) in std::mem::take(&mut block[kind].stmts).into_iter().enumerate() {
            let strategy = self.strategy(id, kind, place);
            for (operand, sharding) in stmt.operands.iter_mut().zip(&strategy.operands) {
                let wanted = sharding.on(block.ty(*operand));
                *operand = in_sharding(block, kind, *operand, wanted, moved);
            }
            let results = stmt.results.iter().zip(&strategy.results);
            let naturals: Vec<Type> = results.map(|(&value, sharding)| sharding.on(block.ty(value))).collect();
            for (&value, natural) in stmt.results.iter().zip(&naturals) {
                if !stmt.accumulate {
                    let pinned = self.sharding_of(ShardedValue::Stated(id, value));
                    block.values[value].ty = pinned.map_or_else(|| natural.clone(), |sharding| sharding.on(natural));
                }
            }
            moved.forget_stored(&stmt);
            let settled = settle(block, stmt, naturals);
            block[kind].stmts.extend(settled);
        }
    }

    /// Reshards the values that a section returns to their boundary types.
    fn write_returned(&self, block: &mut Block, id: BlockId, kind: SectionKind, moved: &mut Moved) {
        for (at, what) in boundary(self.ports, id, block, kind) {
            let value = block[kind].ret[at];
            if let Some(sharding) = self.sharding_of(what) {
                let wanted = sharding.on(block.ty(value));
                block[kind].ret[at] = in_sharding(block, kind, value, wanted, moved);
            }
        }
    }
}
