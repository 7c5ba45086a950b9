//! Assignment problem of a model. It has a node for each statement of F, I and W, for each value passed between blocks
//! and its cotangent, for each parameter class, and for each second sharding of a value with several readers.

use super::copies::{Home, Reader};
use super::params::{self, Class, Classes, Kept};
use super::prices::Prices;
use super::problem::{Node, Problem};
use super::strategy::{Strategy, strategies};
use super::turns::{Before, Turn};
use super::weights::Weights;
use super::{Task, candidates, copies};
use crate::fault::Fault;
use crate::ports::{Ports, passed, value_results};
use crate::reshard::sharding::Sharding;
use ir::graph::{ArgKind, Block, Model, SectionKind};
use ir::ids::{BlockId, Value};
use ir::mesh::Axes;
use ir::types::Type;
use std::collections::HashMap;

/// Value whose sharding is a node of its own, rather than part of a statement's strategy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum ShardedValue {
    /// Value passed between blocks.
    Port(usize),
    /// Cotangent of a value passed between blocks.
    Cotangent(usize),
    /// Value that the file pins, or a runtime scalar.
    Stated(BlockId, Value),
}

/// Meaning of each node's choices.
#[derive(Default)]
pub(super) struct Meaning {
    /// Strategies of statements.
    pub(super) stmts: HashMap<(BlockId, SectionKind, usize), (Node, Vec<Strategy>)>,
    /// Shardings of values.
    pub(super) values: HashMap<ShardedValue, (Node, Vec<Sharding>)>,
    /// Storage options of parameter classes.
    pub(super) params: HashMap<usize, (Node, Vec<Kept>)>,
}

/// Sections that are decided together; the once-per-step section follows from them.
pub(super) const DECIDED: [SectionKind; 3] = [SectionKind::F, SectionKind::I, SectionKind::W];

/// Builder of the assignment problem.
pub(super) struct Builder<'a, 'p> {
    pub(super) model: &'a Model,
    pub(super) ports: &'a Ports,
    pub(super) classes: &'a Classes,
    pub(super) weights: Weights,
    pub(super) prices: &'a mut Prices<'p>,
    pub(super) problem: Problem,
    pub(super) meaning: Meaning,
    turn: &'a Turn,
    before: Option<&'a Before>,
    /// Tick of each statement.
    ticks: HashMap<(BlockId, SectionKind, usize), u32>,
    last: u32,
}

impl<'a, 'p> Builder<'a, 'p> {
    pub(super) fn new(
        task: Task<'a>,
        weights: Weights,
        prices: &'a mut Prices<'p>,
        turn: &'a Turn,
        before: Option<&'a Before>,
    ) -> Builder<'a, 'p> {
        let Task { model, ports, classes, .. } = task;
        let (problem, meaning) = (Problem::default(), Meaning::default());
        let mut builder = Builder {
            model,
            ports,
            classes,
            weights,
            prices,
            problem,
            meaning,
            turn,
            before,
            ticks: HashMap::new(),
            last: 0,
        };
        builder.count_ticks();
        builder.stated_ports();
        builder
    }

    /// Applies an argument's stated sharding to all values passed to it.
    fn stated_ports(&mut self) {
        for (id, block) in &self.model.blocks {
            for (place, (value, _)) in passed(block).into_iter().enumerate() {
                if is_pinned(block.ty(value)) {
                    self.value_node(ShardedValue::Port(self.ports.of_argument(id, place)), block.ty(value));
                }
            }
        }
    }

    /// Numbers the statements: the forward block by block, then the backward from the last block to the first.
    fn count_ticks(&mut self) {
        let mut order: Vec<BlockId> = Vec::new();
        for id in self.model.calls.iter().map(|call| call.block).chain(self.model.blocks.keys()) {
            if !order.contains(&id) {
                order.push(id);
            }
        }
        let forward = order.iter().map(|&id| (id, &DECIDED[..1]));
        let backward = order.iter().rev().map(|&id| (id, &DECIDED[1..]));
        for (id, kinds) in forward.chain(backward) {
            for &kind in kinds {
                for place in 0..self.model.blocks[id][kind].stmts.len() {
                    self.ticks.insert((id, kind, place), self.last);
                    self.last += 1;
                }
                // Values that a section returns live until the section ends.
                self.ticks.insert((id, kind, usize::MAX), self.last);
            }
        }
    }

    fn tick(&self, id: BlockId, kind: SectionKind, place: usize) -> u32 {
        self.ticks.get(&(id, kind, place)).copied().unwrap_or(self.last)
    }

    /// Adds the nodes of parameters and their own costs.
    pub(super) fn params(&mut self, zero: &Axes) {
        let found: Vec<(usize, Class)> = params::classes(self.model, self.classes);
        for (number, class) in &found {
            let before = self.before.and_then(|before| before.params.get(number));
            let ways = params::ways(self.prices, self.model, class, zero, self.turn, before);
            let costs = ways.iter().map(|way| params::seconds(self.prices, self.model, class, &self.weights, way));
            let node = self.problem.node(costs.collect());
            let bytes = ways.iter().map(|way| params::bytes(self.prices, self.model, class, &self.weights, way));
            self.problem.hold(node, 0..self.last + 1, bytes.collect());
            self.meaning.params.insert(*number, (node, ways));
        }
    }

    /// Adds a block: its statements, and the reshards between them.
    ///
    /// # Errors
    /// An op's rule does not fit its tensors, which is an internal error.
    pub(super) fn block(&mut self, id: BlockId) -> Result<(), Fault> {
        let mut homes: HashMap<Value, Home> = HashMap::new();
        let mut readers: Vec<(Value, Reader)> = Vec::new();
        let block = &self.model.blocks[id];
        self.arguments(id, block, &mut homes);
        for kind in DECIDED {
            for place in 0..block[kind].stmts.len() {
                self.statement(id, kind, place, &mut homes, &mut readers)?;
            }
        }
        self.returned(id, block, &homes, &mut readers);
        self.hold_passed(id, block, &homes, &readers);
        copies::connect(self, id, &homes, readers);
        Ok(())
    }

    /// Adds the nodes of a block's arguments.
    fn arguments(&mut self, id: BlockId, block: &Block, homes: &mut HashMap<Value, Home>) {
        for (place, (value, _)) in passed(block).into_iter().enumerate() {
            let home = self.value_node(ShardedValue::Port(self.ports.of_argument(id, place)), block.ty(value));
            homes.insert(value, home);
        }
        for param in block.args_of(ArgKind::Param) {
            let class = self.classes.passed(self.model, id, param).map(|param| self.classes.class(param));
            let home = match class.and_then(|class| self.meaning.params.get(&class)) {
                Some((node, ways)) => {
                    let shardings: Vec<Sharding> = ways.iter().map(|way| way.sharding.clone()).collect();
                    self.home(*node, block.ty(param), &shardings, true)
                }
                None => self.value_node(ShardedValue::Stated(id, param), &block.ty(param).closed()),
            };
            homes.insert(param, home);
        }
        for value in block.args_of(ArgKind::Const).chain(block.args_of(ArgKind::State)) {
            let home = self.value_node(ShardedValue::Stated(id, value), &block.ty(value).closed());
            homes.insert(value, home);
        }
        let places = value_results(&block.results);
        let results: Vec<(usize, Value)> = block.differentiable_results().collect();
        for (&cotangent, (result, _)) in block[SectionKind::I].args.iter().zip(results) {
            let ty = block.ty(cotangent);
            let home = match places.iter().position(|&place| place == result) {
                Some(place) => self.value_node(ShardedValue::Cotangent(self.ports.of_result(id, place)), ty),
                None => self.value_node(ShardedValue::Stated(id, cotangent), &ty.logical()),
            };
            homes.insert(cotangent, home);
        }
    }

    /// Node of a value with its own sharding, and its shardings in this block.
    fn value_node(&mut self, what: ShardedValue, ty: &Type) -> Home {
        let (mesh, dims) = (self.prices.site.mesh, self.prices.site.dims);
        let (problem, turn) = (&mut self.problem, self.turn);
        let before = self.before.and_then(|before| before.values.get(&what));
        let (node, shardings) = self.meaning.values.entry(what).or_insert_with(|| {
            let shardings = candidates::shardings(mesh, dims, ty, turn, before);
            (problem.node(vec![0.0; shardings.len()]), shardings)
        });
        let (node, shardings) = (*node, shardings.clone());
        self.home(node, ty, &shardings, false)
    }

    fn home(&mut self, node: Node, ty: &Type, shardings: &[Sharding], is_param: bool) -> Home {
        let tensor = self.prices.tensor(ty, is_param);
        let table = self.prices.table(tensor);
        Home { node, tensor, shardings: shardings.iter().map(|sharding| table.place(sharding)).collect(), is_param }
    }

    fn statement(
        &mut self,
        id: BlockId,
        kind: SectionKind,
        place: usize,
        homes: &mut HashMap<Value, Home>,
        readers: &mut Vec<(Value, Reader)>,
    ) -> Result<(), Fault> {
        let block = &self.model.blocks[id];
        let stmt = &block[kind].stmts[place];
        let before = self.before.and_then(|before| before.stmts.get(&(id, kind, place)));
        let found = strategies(self.prices, block, stmt, self.turn, before)?;
        let runs = self.weights.step(id);
        let node = self.problem.node(found.iter().map(|strategy| runs * strategy.seconds).collect());
        let tick = self.tick(id, kind, place);
        for (at, &value) in stmt.operands.iter().enumerate() {
            let home = homes.get(&value).ok_or(Fault::Undefined)?;
            let table = self.prices.table(home.tensor);
            let wants = found.iter().map(|strategy| table.place(&strategy.operands[at])).collect();
            readers.push((value, Reader { node, wants, kind, tick }));
        }
        for (at, &value) in stmt.results.iter().enumerate() {
            let natural: Vec<Sharding> = found.iter().map(|strategy| strategy.results[at].clone()).collect();
            if stmt.accumulate {
                self.gradient(id, value, node, &natural);
                continue;
            }
            let own = self.home(node, block.ty(value), &natural, false);
            let home = if is_pinned(block.ty(value)) { self.pinned(id, value, own) } else { own };
            homes.insert(value, home);
        }
        self.hold_results(id, kind, place, node, &found);
        self.meaning.stmts.insert((id, kind, place), (node, found));
        Ok(())
    }

    /// Reshards a pinned result right after it is computed.
    fn pinned(&mut self, id: BlockId, value: Value, own: Home) -> Home {
        let ty = self.model.blocks[id].ty(value);
        let home = match ty.dims.iter().any(|dim| dim.open) {
            true => self.value_node(ShardedValue::Stated(id, value), ty),
            false => {
                let shardings = vec![Sharding::of(ty)];
                let node = self.problem.node(vec![0.0]);
                self.meaning.values.insert(ShardedValue::Stated(id, value), (node, shardings.clone()));
                self.home(node, ty, &shardings, false)
            }
        };
        copies::join(self, self.weights.step(id), &own, home.node, &home.shardings);
        home
    }

    /// Reshards a gradient of W to its parameter's sharding; the once-per-step reduction is added.
    fn gradient(&mut self, id: BlockId, value: Value, node: Node, natural: &[Sharding]) {
        let block = &self.model.blocks[id];
        let owner = block.owner_of(value).and_then(|param| self.classes.passed(self.model, id, param));
        let Some((param, ways)) = owner.and_then(|param| self.meaning.params.get(&self.classes.class(param))) else {
            return;
        };
        let (step, once) = (self.weights.step(id), self.weights.runs(id));
        let (ty, prices) = (block.ty(value), &mut *self.prices);
        let (kinds, of_strategy) = distinct(natural);
        let mut table = Vec::with_capacity(kinds.len() * ways.len());
        for natural in kinds {
            for kept in ways {
                let unreduced = natural.unreduced.without(&kept.sharding.used());
                let added = Sharding { unreduced, ..kept.sharding.clone() };
                let each_step = prices.path_seconds(ty, natural, &added);
                table.push(step * each_step + once * prices.path_seconds(ty, &added, &kept.updated()));
            }
        }
        self.problem.join(node, *param, |strategy, way| table[of_strategy[strategy] * ways.len() + way]);
    }

    /// Reshards a returned value to its boundary's sharding.
    fn returned(
        &mut self,
        id: BlockId,
        block: &Block,
        homes: &HashMap<Value, Home>,
        readers: &mut Vec<(Value, Reader)>,
    ) {
        for kind in DECIDED {
            for (at, what) in boundary(self.ports, id, block, kind) {
                let value = block[kind].ret[at];
                let Some(home) = homes.get(&value) else { continue };
                self.value_node(what, block.ty(value));
                let (node, shardings) = &self.meaning.values[&what];
                let table = self.prices.table(home.tensor);
                let wants = shardings.iter().map(|sharding| table.place(sharding)).collect();
                readers.push((value, Reader { node: *node, wants, kind, tick: self.tick(id, kind, usize::MAX) }));
            }
        }
    }

    /// A result lives until its last read; results that the backward reads are saved by each block instance.
    fn hold_results(&mut self, id: BlockId, kind: SectionKind, place: usize, node: Node, found: &[Strategy]) {
        let (block, mesh) = (&self.model.blocks[id], self.prices.site.mesh);
        let stmt = &block[kind].stmts[place];
        if stmt.accumulate || stmt.op.facts().is_view {
            return;
        }
        for (at, &value) in stmt.results.iter().enumerate() {
            let Some((last, is_kept)) = self.last_read(id, value, kind) else { continue };
            let held = if is_kept { self.weights.kept(id) } else { 1 };
            let bytes = found.iter().map(|strategy| held * strategy.results[at].bytes(block.ty(value), mesh)).collect();
            self.problem.hold(node, self.tick(id, kind, place)..last + 1, bytes);
        }
    }

    /// Tick of a value's last read, and whether the backward reads a value of the forward.
    fn last_read(&self, id: BlockId, value: Value, made: SectionKind) -> Option<(u32, bool)> {
        let block = &self.model.blocks[id];
        DECIDED.iter().rev().find_map(|&kind| {
            let returned = block[kind].ret.contains(&value).then_some(usize::MAX);
            let stmts = &block[kind].stmts;
            let place = returned.or_else(|| stmts.iter().rposition(|stmt| stmt.operands.contains(&value)))?;
            Some((self.tick(id, kind, place), made == SectionKind::F && kind != SectionKind::F))
        })
    }

    /// Adds the lifetimes of a block's arguments, by the same rule.
    fn hold_passed(&mut self, id: BlockId, block: &Block, homes: &HashMap<Value, Home>, readers: &[(Value, Reader)]) {
        let cotangents = block[SectionKind::I].args.iter().map(|&value| (value, SectionKind::I));
        for (value, made) in passed(block).into_iter().map(|(value, _)| (value, SectionKind::F)).chain(cotangents) {
            let Some((last, is_kept)) = self.last_read(id, value, made) else { continue };
            let first = readers.iter().filter(|(read, _)| *read == value).map(|(_, reader)| reader.tick).min();
            let held = if is_kept { self.weights.kept(id) } else { 1 };
            let home = &homes[&value];
            let table = self.prices.table(home.tensor);
            let bytes = home.shardings.iter().map(|&sharding| held * table.bytes(sharding)).collect();
            self.problem.hold(home.node, first.unwrap_or(last)..last + 1, bytes);
        }
    }
}

/// Deduplicates shardings: returns the distinct ones, and the index of each input among them.
fn distinct(shardings: &[Sharding]) -> (Vec<&Sharding>, Vec<usize>) {
    let mut known: HashMap<&Sharding, usize> = HashMap::new();
    let (mut kinds, mut of_each) = (Vec::new(), Vec::with_capacity(shardings.len()));
    for sharding in shardings {
        let kind = known.entry(sharding).or_insert_with(|| {
            kinds.push(sharding);
            kinds.len() - 1
        });
        of_each.push(*kind);
    }
    (kinds, of_each)
}

/// Returns whether the file states any part of a value's sharding.
fn is_pinned(ty: &Type) -> bool {
    ty.dims.iter().any(|dim| !dim.open)
}

/// Values that a section returns to other blocks: their positions and sharding nodes.
pub(super) fn boundary(ports: &Ports, id: BlockId, block: &Block, kind: SectionKind) -> Vec<(usize, ShardedValue)> {
    match kind {
        SectionKind::F => {
            let results = value_results(&block.results).into_iter().enumerate();
            results.map(|(place, result)| (result, ShardedValue::Port(ports.of_result(id, place)))).collect()
        }
        SectionKind::I => {
            let passed: Vec<Value> = passed(block).into_iter().map(|(value, _)| value).collect();
            let args = block.differentiable_args().enumerate();
            // If no loss depends on the block, `I` returns nothing.
            let returned = args.take(block[kind].ret.len());
            let places = returned.filter_map(|(at, arg)| Some((at, passed.iter().position(|&value| value == arg)?)));
            places.map(|(at, place)| (at, ShardedValue::Cotangent(ports.of_argument(id, place)))).collect()
        }
        SectionKind::G | SectionKind::W | SectionKind::U => Vec::new(),
    }
}
