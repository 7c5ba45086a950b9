//! A planned model in other sizes. Where the passes decide by which axes there are and what they divide, and by no size, two
//! layouts that agree in these have the same statements, and one plan serves both.

use super::blocks::Planned;
use super::place::impossible;
use crate::error::Error;
use crate::model_source::ModelSource;
use crate::pipeline::CompileError;
use ir::goal::Layout;
use ir::graph::Model;
use ir::mesh::Mesh;
use ir::models::Batch;
use ir::types::{DType, Dims, Type};
use std::collections::BTreeMap;

/// What a model's statements depend on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Shape {
    /// The axes of the mesh.
    axes: Vec<String>,
    groups: Vec<(String, Vec<usize>)>,
    sp: bool,
    /// Of each named dim, which degrees divide it, and whether it is 1.
    divides: Vec<(String, Vec<bool>)>,
    /// Where ranks share an expert, all sizes: what is cheapest between attention's axes and the experts' goes by them.
    shared: Vec<u64>,
}

/// The sizes of a layout: of the mesh, and of the dims that depend on it.
#[derive(Debug)]
pub(super) struct Sizes {
    mesh: Mesh,
    dims: BTreeMap<String, u64>,
}

impl Sizes {
    /// Those of the axes below pp, for a model built for them.
    ///
    /// # Errors
    /// The degrees do not go together.
    pub(super) fn of(layout: &Layout, model: &Model) -> Result<Sizes, Error> {
        let mesh = planner::mesh(layout).map_err(CompileError::from)?;
        Ok(Sizes { mesh, dims: sizes(&model.dims) })
    }

    /// What statements depend on under this layout.
    pub(super) fn shape(&self, layout: &Layout) -> Shape {
        use ir::entity::EntityRef;
        let mut degrees: Vec<u64> = self.mesh.axes.values().map(|axis| axis.size).collect();
        let all: Vec<u64> = (0..degrees.len()).flat_map(|from| suffix_products(&degrees[from..])).collect();
        degrees.extend(all);
        let of = |(name, size): (&String, &u64)| {
            let divided = degrees.iter().map(|degree| size.is_multiple_of(*degree));
            (name.clone(), divided.chain([*size == 1]).collect())
        };
        let axes = self.mesh.axes.values().map(|axis| axis.size);
        let places = |group: &ir::mesh::Group| group.axes.iter().map(|axis| axis.index()).collect();
        Shape {
            axes: self.mesh.axes.values().map(|axis| axis.name.clone()).collect(),
            groups: self.mesh.groups.iter().map(|group| (group.name.clone(), places(group))).collect(),
            sp: layout.sp,
            divides: self.dims.iter().map(of).collect(),
            shared: if layout.etp > 1 { axes.chain(self.dims.values().copied()).collect() } else { Vec::new() },
        }
    }

    /// A planned model of the same shape, in these sizes.
    pub(super) fn give(&self, planned: &Planned) -> Planned {
        let mut model = planned.model.clone();
        let names: Vec<Option<u64>> = model.dims.values().map(|dim| self.dims.get(&dim.name).copied()).collect();
        let resize = |ty: &mut Type| {
            use ir::entity::EntityRef;
            for dim in &mut ty.dims {
                if let Some(size) = dim.name.and_then(|name| names[name.index()]) {
                    dim.size = size;
                }
            }
        };
        for (dim, size) in model.dims.values_mut().zip(&names) {
            dim.size = size.unwrap_or(dim.size);
        }
        model.blocks.values_mut().flat_map(|block| block.values.values_mut()).for_each(|value| resize(&mut value.ty));
        model.params.values_mut().for_each(|param| resize(&mut param.ty));
        model.mesh.clone_from(&self.mesh);
        Planned::of(model)
    }
}

/// Products of the first n, for each n above 1.
fn suffix_products(degrees: &[u64]) -> Vec<u64> {
    let mut product = 1;
    let products = degrees.iter().map(|degree| {
        product *= degree;
        product
    });
    products.skip(1).collect()
}

fn sizes(dims: &Dims) -> BTreeMap<String, u64> {
    dims.values().map(|dim| (dim.name.clone(), dim.size)).collect()
}

/// The model of one micro-batch of the ranks of a layout without pp that work together, before it is planned.
///
/// # Errors
/// The model cannot have this batch.
pub(super) fn unplanned(source: &ModelSource, together: &Layout, seq: u64, dtype: DType) -> Result<Model, Error> {
    let batch = Batch { batch: together.dp.saturating_mul(together.mbs), seq, dtype };
    let cuts = together.cp * if together.sp { together.tp } else { 1 };
    source.routed_in(cuts, seq).model(&batch)
}

/// The axes below pp of a layout.
///
/// # Errors
/// Its experts cannot be shared out.
pub(super) fn together(layout: &Layout) -> Result<Layout, Error> {
    layout.together().map_err(|why| impossible(why.to_string()))
}
