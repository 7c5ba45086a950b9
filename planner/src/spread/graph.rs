//! The tensors among which axes spread, and the statements that join them.

use super::factors::Step;
use crate::assign::{instantiate, is_expandable};
use crate::choose::indivisible_letters;
use crate::ports::{Ports, passed, value_results};
use crate::sections::Site;
use ir::entity::EntityRef;
use ir::graph::{ArgKind, Block, Model, SectionKind, Stmt};
use ir::ids::{BlockId, ParamId, Value};
use ir::mesh::Axes;
use ir::ops::Op;
use ir::rule::{Instance, Rule};
use ir::types::Type;
use petgraph::unionfind::UnionFind;
use rustc_hash::FxHashMap;

/// A tensor, or several that must be sharded alike.
pub(super) struct Tensor {
    /// Its type so far.
    pub(super) ty: Type,
    /// Whether it is a parameter.
    pub(super) param: bool,
    /// Axes over which what belongs to a parameter is stored: none of its dims gets them.
    pub(super) reserved: Axes,
}

/// Tensors and the steps between them.
#[derive(Default)]
pub(super) struct Graph {
    /// All tensors.
    pub(super) tensors: Vec<Tensor>,
    /// Statements and block boundaries, in the order of the calls.
    pub(super) steps: Vec<Step>,
    /// The steps that touch each tensor.
    pub(super) read_by: Vec<Vec<usize>>,
    values: FxHashMap<(BlockId, Value), usize>,
    ports: FxHashMap<usize, usize>,
    params: Vec<usize>,
}

impl Graph {
    /// Collects the forwards of all blocks.
    ///
    /// # Errors
    /// An op's rule does not fit its tensors.
    pub(super) fn new(site: &Site<'_>, model: &Model, ports: &Ports) -> Result<Graph, String> {
        let mut graph = Graph::default();
        graph.add_params(model);
        for (id, block) in &model.blocks {
            graph.add_arguments(model, ports, id, block);
        }
        let mut order: Vec<BlockId> = model.calls.iter().map(|call| call.block).collect();
        order.extend(model.blocks.keys());
        let mut done = vec![false; model.blocks.len()];
        for id in order {
            if !std::mem::replace(&mut done[id.index()], true) {
                graph.add_block(site, ports, id, &model.blocks[id])?;
            }
        }
        graph.read_by = vec![Vec::new(); graph.tensors.len()];
        for (place, step) in graph.steps.iter().enumerate() {
            step.tensors.iter().for_each(|&tensor| graph.read_by[tensor].push(place));
        }
        Ok(graph)
    }

    /// The tensor of a value of a forward.
    pub(super) fn of_value(&self, id: BlockId, value: Value) -> Option<usize> {
        self.values.get(&(id, value)).copied()
    }

    /// The tensor at a block boundary.
    pub(super) fn of_port(&self, port: usize) -> Option<usize> {
        self.ports.get(&port).copied()
    }

    /// The tensor of a declared parameter.
    pub(super) fn of_param(&self, param: ParamId) -> Option<usize> {
        self.params.get(param.index()).copied()
    }

    fn add(&mut self, ty: Type, param: bool) -> usize {
        self.tensors.push(Tensor { ty, param, reserved: Axes::none() });
        self.tensors.len() - 1
    }

    /// Parameters that calls pass to one argument of a block are sharded alike.
    fn add_params(&mut self, model: &Model) {
        let mut union = UnionFind::<usize>::new(model.params.len());
        let mut passed: FxHashMap<(BlockId, usize), usize> = FxHashMap::default();
        for call in &model.calls {
            for (place, (param, _)) in model.call_params(call, 0).into_iter().enumerate() {
                let first = *passed.entry((call.block, place)).or_insert(param.index());
                union.union(first, param.index());
            }
        }
        let mut tensors: FxHashMap<usize, usize> = FxHashMap::default();
        for (id, param) in &model.params {
            let class = union.find(id.index());
            let tensor = match tensors.get(&class) {
                Some(&tensor) => tensor,
                None => self.add(param.ty.clone(), true),
            };
            tensors.insert(class, tensor);
            state(&mut self.tensors[tensor].ty, &param.ty);
            self.params.push(tensor);
        }
    }

    fn add_arguments(&mut self, model: &Model, ports: &Ports, id: BlockId, block: &Block) {
        for (place, (value, _)) in passed(block).into_iter().enumerate() {
            let tensor = self.at_port(ports.of_argument(id, place), block.ty(value));
            state(&mut self.tensors[tensor].ty, block.ty(value));
            self.values.insert((id, value), tensor);
        }
        let call = model.calls.iter().find(|call| call.block == id);
        let params = call.map(|call| model.call_params(call, 0)).unwrap_or_default();
        for (place, value) in block.args_of(ArgKind::Param).enumerate() {
            let declared = params.get(place).map(|(param, _)| self.params[param.index()]);
            let tensor = declared.unwrap_or_else(|| self.add(block.ty(value).clone(), true));
            self.values.insert((id, value), tensor);
            let states = block.args_of(ArgKind::State).filter(|&state| block.owner_of(state) == Some(value));
            for own in states.chain(block.gradient_of(value)) {
                let reserved = &mut self.tensors[tensor].reserved;
                *reserved = reserved.union(&block.ty(own).storage);
            }
        }
        for value in block.args_of(ArgKind::Const) {
            let tensor = self.add(block.ty(value).clone(), false);
            self.values.insert((id, value), tensor);
        }
    }

    /// The tensor at a boundary; nothing is stated of it at first.
    fn at_port(&mut self, port: usize, like: &Type) -> usize {
        if let Some(&tensor) = self.ports.get(&port) {
            return tensor;
        }
        let mut ty = like.logical();
        ty.dims.iter_mut().for_each(|dim| dim.open = true);
        let tensor = self.add(ty, false);
        self.ports.insert(port, tensor);
        tensor
    }

    fn add_block(&mut self, site: &Site<'_>, ports: &Ports, id: BlockId, block: &Block) -> Result<(), String> {
        let forward = &block[SectionKind::F];
        for stmt in &forward.stmts {
            for &value in &stmt.results {
                let tensor = self.add(block.ty(value).clone(), false);
                self.values.insert((id, value), tensor);
            }
        }
        for (place, result) in value_results(&block.results).into_iter().enumerate() {
            let value = forward.ret[result];
            let (inner, ty) = (self.values[&(id, value)], block.ty(value));
            let outer = self.at_port(ports.of_result(id, place), ty);
            self.join(inner, outer, ty)?;
        }
        for stmt in &forward.stmts {
            self.add_stmt(site, id, block, stmt)?;
        }
        Ok(())
    }

    /// A boundary or a reshard: both sides are the same tensor.
    fn join(&mut self, from: usize, to: usize, ty: &Type) -> Result<(), String> {
        let instance = Rule::parse("* -> *").and_then(|rule| rule.instantiate(&[ty], &[ty]))?;
        let indivisible = vec![false; instance.letters.len()];
        self.steps.push(Step::new(instance, vec![from, to], indivisible, [false, true]));
        Ok(())
    }

    fn add_stmt(&mut self, site: &Site<'_>, id: BlockId, block: &Block, stmt: &Stmt) -> Result<(), String> {
        let tensors: Vec<usize> =
            stmt.operands.iter().chain(&stmt.results).filter_map(|&value| self.of_value(id, value)).collect();
        if stmt.op == Op::Reshard {
            return self.join(tensors[0], tensors[1], block.ty(stmt.results[0]));
        }
        let Some(def) = stmt.op.def() else { return Ok(()) };
        let types = |values: &[Value]| values.iter().map(|&value| block.ty(value)).collect::<Vec<&Type>>();
        let (operands, results) = (types(&stmt.operands), types(&stmt.results));
        let instance: Instance = instantiate(def, &operands, &results)?;
        let indivisible = indivisible_letters(&instance, site.dims, &operands, &results);
        self.steps.push(Step::new(instance, tensors, indivisible, [is_expandable(&stmt.op), stmt.op.is_view()]));
        Ok(())
    }
}

/// Takes over what another mention of a tensor states: the first word on a dim counts.
fn state(ty: &mut Type, stated: &Type) {
    if ty.storage.is_empty() {
        ty.storage = stated.storage.without(&ty.sharded_axes());
    }
    for place in 0..ty.dims.len().min(stated.dims.len()) {
        let used = ty.sharded_axes();
        let (dim, word) = (&mut ty.dims[place], &stated.dims[place]);
        let is_silent = dim.open && dim.axes.is_empty();
        if is_silent && (!word.open || !word.axes.is_empty()) {
            dim.axes = word.axes.iter().take_while(|&axis| !used.contains(axis)).collect::<Axes>();
            dim.open = word.open;
        }
    }
}
