//! Local shapes of the values of a block on one rank.

use crate::platform::Recipe;
use crate::routing::Routing;
use crate::traits::Capacity;
use ir::dim_role::DimRole;
use ir::entity::EntityRef;
use ir::graph::{Block, Model};
use ir::ids::Value;
use ir::mesh::Mesh;
use ir::types::{DType, Dim};

/// A block's values by what one rank holds of them, in the recipe's formats.
pub(super) struct Local<'a> {
    pub(super) model: &'a Model,
    pub(super) block: &'a Block,
    pub(super) recipe: &'a Recipe,
    elements: Vec<f64>,
    /// The share of experts' places that counts on a rank, and on the whole.
    filled: [f64; 2],
}

impl<'a> Local<'a> {
    /// Empty places of experts are computed and held like any other if they are padded.
    pub(super) fn new(model: &'a Model, block: &'a Block, recipe: &'a Recipe, capacity: Capacity) -> Local<'a> {
        let mut local = Local { model, block, recipe, elements: Vec::new(), filled: [1.0; 2] };
        let filled = Routing::of(block).map_or(1.0, |routing| routing.filled());
        let on_rank = match capacity {
            Capacity::Dropless | Capacity::Drops => filled,
            Capacity::Pads => 1.0,
        };
        local.filled = [on_rank, filled];
        local.elements = block.values.keys().map(|value| local.sizes(value).product()).collect();
        local
    }

    pub(super) fn mesh(&self) -> &'a Mesh {
        &self.model.mesh
    }

    /// The dims of a value.
    pub(super) fn dims(&self, value: Value) -> &'a [Dim] {
        &self.block.ty(value).dims
    }

    /// The size of a dim on one rank. Of the places that experts have for tokens only those count that tokens take, unless
    /// the others are computed too.
    pub(super) fn size(&self, dim: &Dim) -> f64 {
        let bound = self.mesh().bound(dim.size, &dim.axes) as f64;
        if self.has_places(dim) { bound * self.filled[0] } else { bound }
    }

    /// The same of the whole tensor, without empty places: what the model needs.
    pub(super) fn logical_size(&self, dim: &Dim) -> f64 {
        if self.has_places(dim) { dim.size as f64 * self.filled[1] } else { dim.size as f64 }
    }

    fn sizes(&self, value: Value) -> impl Iterator<Item = f64> + '_ {
        self.dims(value).iter().map(|dim| self.size(dim))
    }

    /// Elements on one rank.
    pub(super) fn elements(&self, value: Value) -> f64 {
        self.elements[value.index()]
    }

    /// Bytes on one rank.
    pub(super) fn bytes(&self, value: Value) -> f64 {
        self.elements(value) * self.element_bytes(self.block.ty(value).dtype)
    }

    /// Bytes of an element.
    pub(super) fn element_bytes(&self, dtype: DType) -> f64 {
        match dtype {
            DType::BF16 | DType::F16 => self.recipe.activation,
            DType::F32 | DType::F8E4M3 | DType::F8E5M2 | DType::I32 => dtype.bytes() as f64,
        }
    }

    fn has_places(&self, dim: &Dim) -> bool {
        dim.role(&self.model.dims) == Some(DimRole::Capacity)
    }

    /// Returns whether some dim of a value has a role.
    pub(super) fn has_role(&self, value: Value, role: DimRole) -> bool {
        self.block.ty(value).has_role(role, &self.model.dims)
    }

    /// Returns whether a rank has a part of a value's dim with a role.
    pub(super) fn is_cut(&self, value: Value, role: DimRole) -> bool {
        let mut dims = self.dims(value).iter().filter(|dim| dim.role(&self.model.dims) == Some(role));
        dims.any(|dim| self.size(dim) < self.logical_size(dim))
    }

    /// How many data-parallel ranks the mesh has: those along the axes of ep that lie within dp.
    pub(super) fn data_ranks(&self) -> f64 {
        let axes = self.mesh().axes.values().filter(|axis| base(&axis.name) == "dp");
        axes.map(|axis| axis.size as f64).product()
    }
}

/// The axis of the configuration that an axis of the mesh is part of: `tp` of `tp0`, `dp` of `ep` and `edp`.
pub(super) fn base(name: &str) -> &str {
    match name.trim_end_matches(|c: char| c.is_ascii_digit()) {
        "ep" | "edp" => "dp",
        name => name,
    }
}
