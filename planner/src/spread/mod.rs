//! Sharding propagation through the forwards of a model, before any statement is decided. Axes spread from operands to
//! results, back, among operands and across blocks until nothing changes. Two pinned tensors are therefore enough.
//!
//! Only open dims get axes, and no axis is removed. Rounds set the precedence (as in Shardy): first ops in which every
//! tensor has every factor, then factors of the results of all ops, then contracted factors. If two factors of an op
//! compete for one axis, the parameter's factor wins, then the larger tensor's, then the earlier one. If tensors
//! propose different shardings of one factor, the parameter or the larger tensor wins. Equally weighted tensors get the
//! common prefix of their axis lists.

mod factors;
mod graph;

use crate::fault::Fault;
use crate::ports::{Ports, passed, value_results};
use crate::sections::{Hint, Hints, Site};
use factors::Round;
use graph::Graph;
use ir::graph::{Block, Model, SectionKind};
use ir::ids::{BlockId, Value};
use ir::types::Type;
use std::collections::BTreeSet;

/// Result of propagation over the forwards of a model.
pub(crate) struct Spread {
    graph: Graph,
    tied: Vec<Vec<bool>>,
}

/// Propagates the stated types of a model.
///
/// # Errors
/// An op's rule does not fit its tensors, which is an internal error.
pub(crate) fn spread(site: &Site<'_>, model: &Model, ports: &Ports) -> Result<Spread, Fault> {
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
    /// Hints for the values that a block's forward computes.
    pub(crate) fn hints(&self, id: BlockId, block: &Block) -> Hints {
        let made = block[SectionKind::F].stmts.iter().flat_map(|stmt| &stmt.results);
        made.filter_map(|&value| Some((value, self.hint(self.graph.of_value(id, value)?)))).collect()
    }

    fn hint(&self, tensor: usize) -> Hint {
        let axes = self.graph.tensors[tensor].ty.dims.iter().map(|dim| dim.axes.clone()).collect();
        Hint { axes, found: true, tied: self.tied[tensor].clone() }
    }

    /// Pins the propagated axes at block boundaries. A dim without propagated axes stays open.
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

    /// Closes the model's declared types with the propagated axes.
    pub(crate) fn declare(&self, model: &mut Model, ports: &Ports) {
        for (id, param) in model.params.iter_mut() {
            param.ty = closed(&param.ty, self.graph.of_param(id).map(|tensor| &self.graph.tensors[tensor].ty));
        }
        for input in &mut model.inputs {
            let found = ports.of_value(input.value).and_then(|port| self.of_port(port));
            input.ty = closed(&input.ty, found.as_ref());
        }
    }

    /// Type of an argument that no call passes a tensor for.
    pub(crate) fn argument(&self, id: BlockId, value: Value) -> Option<&Type> {
        self.graph.of_value(id, value).map(|tensor| &self.graph.tensors[tensor].ty)
    }
}

/// Declared type with its open dims closed by the propagated axes.
fn closed(declared: &Type, found: Option<&Type>) -> Type {
    let mut ty = declared.closed();
    for (place, dim) in found.into_iter().flat_map(|found| &found.dims).enumerate() {
        if declared.dims[place].open {
            ty.dims[place].axes = dim.axes.clone();
        }
    }
    ty
}
