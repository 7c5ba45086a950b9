//! Graph of tensors and of the statements that join them, for propagation.

use super::factors::{FactorStep, StepOp};
use crate::assign::{instantiate, is_expandable};
use crate::choose::indivisible_factors;
use crate::fault::Fault;
use crate::ports::{Ports, passed, value_results};
use crate::sections::{Site, types_of};
use ir::entity::EntityRef;
use ir::graph::{ArgKind, Block, Model, SectionKind, Stmt};
use ir::ids::{BlockId, ParamId, Value};
use ir::mesh::Axes;
use ir::ops::Op;
use ir::rule::{Instance, Rule};
use ir::types::Type;
use petgraph::unionfind::UnionFind;
use rustc_hash::FxHashMap;

/// Tensor, or several tensors that must have equal shardings.
pub(super) struct Tensor {
    /// Current type.
    pub(super) ty: Type,
    /// True if the tensor is a parameter.
    pub(super) param: bool,
    /// Storage axes of the parameter's gradient and states; no dim of the tensor gets these axes.
    pub(super) reserved: Axes,
}

/// Tensors and the steps between them.
#[derive(Default)]
pub(super) struct Graph {
    /// All tensors.
    pub(super) tensors: Vec<Tensor>,
    /// Statements and block boundaries, in call order.
    pub(super) steps: Vec<FactorStep>,
    /// Steps that touch each tensor.
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
    pub(super) fn new(site: &Site<'_>, model: &Model, ports: &Ports) -> Result<Graph, Fault> {
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

    /// Tensor of a forward value.
    pub(super) fn of_value(&self, id: BlockId, value: Value) -> Option<usize> {
        self.values.get(&(id, value)).copied()
    }

    /// Tensor at a block boundary.
    pub(super) fn of_port(&self, port: usize) -> Option<usize> {
        self.ports.get(&port).copied()
    }

    /// Tensor of a declared parameter.
    pub(super) fn of_param(&self, param: ParamId) -> Option<usize> {
        self.params.get(param.index()).copied()
    }

    fn add(&mut self, ty: Type, param: bool) -> usize {
        self.tensors.push(Tensor { ty, param, reserved: Axes::none() });
        self.tensors.len() - 1
    }

    /// Joins parameters that calls pass to one argument of a block.
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

    /// Tensor at a boundary, initially without any stated axes.
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

    fn add_block(&mut self, site: &Site<'_>, ports: &Ports, id: BlockId, block: &Block) -> Result<(), Fault> {
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

    /// Adds a boundary or a reshard, whose two sides get equal axes.
    fn join(&mut self, from: usize, to: usize, ty: &Type) -> Result<(), Fault> {
        let instance = Rule::parse("* -> *").and_then(|rule| rule.instantiate(&[ty], &[ty]));
        let instance = instance.map_err(|why| Fault::Op(why.to_string()))?;
        let indivisible = vec![false; instance.factors.len()];
        self.steps.push(FactorStep::new(instance, vec![from, to], indivisible, StepOp::BOUNDARY));
        Ok(())
    }

    fn add_stmt(&mut self, site: &Site<'_>, id: BlockId, block: &Block, stmt: &Stmt) -> Result<(), Fault> {
        let tensors: Vec<usize> =
            stmt.operands.iter().chain(&stmt.results).filter_map(|&value| self.of_value(id, value)).collect();
        if stmt.op == Op::Reshard {
            return self.join(tensors[0], tensors[1], block.ty(stmt.results[0]));
        }
        let Some(def) = stmt.op.def() else { return Ok(()) };
        let (operands, results) = (types_of(block, &stmt.operands), types_of(block, &stmt.results));
        let instance: Instance = instantiate(def, &operands, &results)?;
        let indivisible = indivisible_factors(&instance, site.dims, &operands, &results);
        let op = StepOp { expandable: is_expandable(&stmt.op), is_view: stmt.op.facts().is_view };
        self.steps.push(FactorStep::new(instance, tensors, indivisible, op));
        Ok(())
    }
}

/// Adopts the axes stated by another occurrence of a tensor; the first statement on a dim wins.
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
