//! Spreads axes through the forwards of a model before any statement is decided: from operands to results, back, and among
//! operands, block to block, until nothing changes. So two pinned tensors are enough.
//!
//! Only open dims get axes, and an axis that is there stays. Rounds say who speaks first (as in Shardy): ops that keep every
//! factor, then the kept factors of all ops, then contracted ones. Within an op, where two factors want one axis, the
//! parameter's goes first, then that of the larger tensor, then the earlier. Where tensors want one factor sharded in
//! different ways, the parameter or the larger tensor is followed; equals leave what their lists of axes have in common.

mod factors;
mod graph;

use crate::ports::{Ports, passed, value_results};
use crate::sections::{Hint, Hints, Site};
use factors::Round;
use graph::Graph;
use ir::graph::{Block, Model, SectionKind};
use ir::ids::{BlockId, Value};
use ir::types::Type;
use std::collections::BTreeSet;

/// What is known of the tensors of a model's forwards once axes have spread.
pub(crate) struct Spread {
    graph: Graph,
    tied: Vec<Vec<bool>>,
}

/// Spreads what the types of a model state.
///
/// # Errors
/// An op's rule does not fit its tensors: a fault.
pub(crate) fn spread(site: &Site<'_>, model: &Model, ports: &Ports) -> Result<Spread, String> {
    let mut graph = Graph::new(site, model, ports)?;
    for round in Round::ALL {
        let mut waiting: BTreeSet<usize> = (0..graph.steps.len()).collect();
        while let Some(place) = waiting.pop_first() {
            let step = &graph.steps[place];
            for changed in step.run(site.mesh, &mut graph.tensors, round) {
                waiting.extend(graph.read_by[changed].iter().copied().filter(|&other| other != place));
            }
        }
    }
    let mut tied: Vec<Vec<bool>> = graph.tensors.iter().map(|tensor| vec![false; tensor.ty.rank()]).collect();
    for step in &graph.steps {
        step.mark_ties(site.mesh, &graph.tensors, &mut tied);
    }
    Ok(Spread { graph, tied })
}

impl Spread {
    /// What was found for the values that a block's forward makes.
    pub(crate) fn hints(&self, id: BlockId, block: &Block) -> Hints {
        let made = block[SectionKind::F].stmts.iter().flat_map(|stmt| &stmt.results);
        made.filter_map(|&value| Some((value, self.hint(self.graph.of_value(id, value)?)))).collect()
    }

    fn hint(&self, tensor: usize) -> Hint {
        let axes = self.graph.tensors[tensor].ty.dims.iter().map(|dim| dim.axes.clone()).collect();
        Hint { axes, found: true, tied: self.tied[tensor].clone() }
    }

    /// States what was found at the block boundaries. A dim that nothing reached stays open.
    pub(crate) fn state_ports(&self, model: &Model, ports: &mut Ports) {
        for (id, block) in &model.blocks {
            for place in 0..passed(block).len() {
                if let Some(ty) = self.of_port(ports.of_argument(id, place)) {
                    ports.set_argument(id, place, ty);
                }
            }
            for place in 0..value_results(&block.results).len() {
                if let Some(ty) = self.of_port(ports.of_result(id, place)) {
                    ports.set_result(id, place, ty);
                }
            }
        }
    }

    fn of_port(&self, port: usize) -> Option<Type> {
        self.graph.of_port(port).map(|tensor| self.graph.tensors[tensor].ty.clone())
    }

    /// Closes what the model declares: what it leaves open is as found.
    pub(crate) fn declare(&self, model: &mut Model, ports: &Ports) {
        for (id, param) in model.params.iter_mut() {
            param.ty = closed(&param.ty, self.graph.of_param(id).map(|tensor| &self.graph.tensors[tensor].ty));
        }
        for input in &mut model.inputs {
            let found = ports.of_value(input.value).and_then(|port| self.of_port(port));
            input.ty = closed(&input.ty, found.as_ref());
        }
    }

    /// The type of an argument that no call passes a tensor for.
    pub(crate) fn argument(&self, id: BlockId, value: Value) -> Option<&Type> {
        self.graph.of_value(id, value).map(|tensor| &self.graph.tensors[tensor].ty)
    }
}

/// A declared type with its open dims as found.
fn closed(declared: &Type, found: Option<&Type>) -> Type {
    let mut ty = declared.closed();
    for (place, dim) in found.into_iter().flat_map(|found| &found.dims).enumerate() {
        if declared.dims[place].open {
            ty.dims[place].axes = dim.axes.clone();
        }
    }
    ty
}
