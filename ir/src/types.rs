//! Types: what a tensor is, how big, where it lives, and what is owed on it.
//!
//! `bf16[b{dp}, s, f{tp}]+{cp}` is a bf16 tensor whose `b` is sharded over `dp` and `f` over `tp`, replicated elsewhere,
//! on which a sum over `cp` is pending. `f32[h, f{tp}]/{dp}` is stored flat: its local elements are cut into equal runs
//! over `dp`. The legend of dim names: b batch, s sequence, t key sequence, h hidden, g key-value heads, r query heads per
//! key-value head, d head size, f feed-forward, v vocabulary; of experts q routing groups, t tokens of a group, e experts,
//! c tokens that an expert takes, m its feed-forward net.

use crate::ids::{DimId, Value};
use crate::mesh::{Axes, Mesh};
use cranelift_entity::PrimaryMap;

/// The type of an element.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum DType {
    /// 32-bit float.
    F32,
    /// 16-bit float with 8 bits of exponent.
    BF16,
    /// IEEE half.
    F16,
    /// 8-bit float, 4 bits of exponent.
    F8E4M3,
    /// 8-bit float, 5 bits of exponent.
    F8E5M2,
    /// 32-bit integer.
    I32,
}

impl DType {
    /// All types with their names.
    pub const ALL: [(DType, &str); 6] = [
        (DType::F32, "f32"),
        (DType::BF16, "bf16"),
        (DType::F16, "f16"),
        (DType::F8E4M3, "f8e4m3"),
        (DType::F8E5M2, "f8e5m2"),
        (DType::I32, "i32"),
    ];

    /// The name in the text form.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(dtype, _)| *dtype == self).map_or("", |(_, name)| name)
    }

    /// The type of a name.
    pub fn from_name(name: &str) -> Option<DType> {
        Self::ALL.iter().find(|(_, n)| *n == name).map(|(dtype, _)| *dtype)
    }

    /// Bytes per element.
    pub fn bytes(self) -> u64 {
        match self {
            DType::F32 | DType::I32 => 4,
            DType::BF16 | DType::F16 => 2,
            DType::F8E4M3 | DType::F8E5M2 => 1,
        }
    }

    /// Whether gradients flow through it.
    pub fn is_float(self) -> bool {
        self != DType::I32
    }
}

/// A named dim: `s=4096`, `c<=64`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DimName {
    /// Its name.
    pub name: String,
    /// Its size, or its bound where the size is known only to the run.
    pub size: u64,
    /// Must be divided evenly by whatever shards it (heads, experts).
    pub indivisible: bool,
    /// Declared with `<=`.
    pub bounded: bool,
}

/// The table of named dims.
pub type Dims = PrimaryMap<DimId, DimName>;

/// One dim of a tensor.
#[derive(Clone, Debug)]
pub struct Dim {
    /// The global size, or its bound.
    pub size: u64,
    /// Its name in the `dims` table. Dims are equal by size; the name is for readers and for seed rules.
    pub name: Option<DimId>,
    /// The axes that shard it, major to minor.
    pub axes: Axes,
    /// At least `axes`; the planner may add more: `{dp,?}`.
    pub open: bool,
    /// The i32 value with the sizes that only the run knows: `c<=64(%n)`.
    pub count: Option<Value>,
}

impl Dim {
    /// An unnamed dim.
    pub fn sized(size: u64) -> Dim {
        Dim { size, name: None, axes: Axes::none(), open: false, count: None }
    }

    /// A named dim.
    pub fn named(dims: &Dims, name: DimId) -> Dim {
        Dim { name: Some(name), ..Dim::sized(dims[name].size) }
    }
}

impl PartialEq for Dim {
    fn eq(&self, other: &Dim) -> bool {
        (self.size, &self.axes, self.open, self.count) == (other.size, &other.axes, other.open, other.count)
    }
}

/// What kind of reduction is pending.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PartialKind {
    /// A sum: `+{tp}`.
    Sum,
    /// A maximum: `max{tp}`.
    Max,
}

/// A reduction that is still owed over some axes (kept in mesh order).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Partial {
    /// Sum or maximum; one kind at a time.
    pub kind: PartialKind,
    /// Over these axes; never empty.
    pub axes: Axes,
}

/// In which memory a tensor lies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Space {
    /// The device's own; not printed.
    #[default]
    Device,
    /// The host's: `@host`.
    Host,
}

/// The type of a tensor.
#[derive(Clone, PartialEq, Debug)]
pub struct Type {
    /// Of its elements. With a debt it is the wire type: partial sums add in f32 and round once per hop.
    pub dtype: DType,
    /// Its dims, slowest first.
    pub dims: Vec<Dim>,
    /// Storage axes: the local elements, row-major, cut into equal runs, the last padded.
    pub storage: Axes,
    /// What is owed.
    pub partial: Option<Partial>,
    /// Where it lies.
    pub space: Space,
}

impl Type {
    /// A tensor of these dims, nothing owed, on the device.
    pub fn new(dtype: DType, dims: Vec<Dim>) -> Type {
        Type { dtype, dims, storage: Axes::none(), partial: None, space: Space::Device }
    }

    /// A tensor of unnamed, unsharded dims.
    pub fn of(dtype: DType, sizes: &[u64]) -> Type {
        Type::new(dtype, sizes.iter().map(|&size| Dim::sized(size)).collect())
    }

    /// A scalar.
    pub fn scalar(dtype: DType) -> Type {
        Type::new(dtype, Vec::new())
    }

    /// The number of dims.
    pub fn rank(&self) -> usize {
        self.dims.len()
    }

    /// The global sizes.
    pub fn sizes(&self) -> Vec<u64> {
        self.dims.iter().map(|dim| dim.size).collect()
    }

    /// The number of elements of the whole tensor.
    pub fn elements(&self) -> u64 {
        self.dims.iter().map(|dim| dim.size).product()
    }

    /// Bytes of the whole tensor.
    pub fn bytes(&self) -> u64 {
        self.elements() * self.dtype.bytes()
    }

    /// The same tensor unsharded, closed and with nothing owed: what it means.
    pub fn logical(&self) -> Type {
        let dims = self.dims.iter().map(|dim| Dim { axes: Axes::none(), open: false, ..dim.clone() }).collect();
        Type { storage: Axes::none(), partial: None, dims, ..self.clone() }
    }

    /// The same type with no dim open.
    pub fn closed(&self) -> Type {
        let dims = self.dims.iter().map(|dim| Dim { open: false, ..dim.clone() }).collect();
        Type { dims, ..self.clone() }
    }

    /// The same type under the dim names of another.
    pub fn named_as(&self, other: &Type) -> Type {
        let dims = self.dims.iter().zip(&other.dims).map(|(dim, own)| Dim { name: own.name, ..dim.clone() }).collect();
        Type { dims, ..self.clone() }
    }

    /// Whether both mean the same tensor: element type and sizes.
    pub fn same_tensor(&self, other: &Type) -> bool {
        self.dtype == other.dtype
            && self.rank() == other.rank()
            && self.dims.iter().zip(&other.dims).all(|(a, b)| a.size == b.size && a.count == b.count)
    }

    /// The axes on dims and storage, in mesh order.
    pub fn sharded_axes(&self) -> Axes {
        self.dims.iter().fold(self.storage.clone(), |all, dim| all.union(&dim.axes)).sorted()
    }

    /// The axes on dims and storage and of the debt, in mesh order.
    pub fn used_axes(&self) -> Axes {
        self.sharded_axes().union(&self.partial_axes()).sorted()
    }

    /// The axes of the debt; none where nothing is owed.
    pub fn partial_axes(&self) -> Axes {
        self.partial.as_ref().map_or_else(Axes::none, |partial| partial.axes.clone())
    }

    /// The same type with another debt; an empty list of axes means none.
    pub fn partial_over(&self, kind: PartialKind, axes: &Axes) -> Type {
        let partial = (!axes.is_empty()).then(|| Partial { kind, axes: axes.sorted() });
        Type { partial, ..self.clone() }
    }

    /// The local bounds of the dims on a mesh (before storage cuts them).
    pub fn local_bounds(&self, mesh: &Mesh) -> Vec<u64> {
        self.dims.iter().map(|dim| mesh.bound(dim.size, &dim.axes)).collect()
    }

    /// The most elements that a rank holds.
    pub fn local_elements(&self, mesh: &Mesh) -> u64 {
        let elements: u64 = self.local_bounds(mesh).iter().product();
        mesh.bound(elements, &self.storage)
    }

    /// The most bytes that a rank holds.
    pub fn local_bytes(&self, mesh: &Mesh) -> u64 {
        self.local_elements(mesh) * self.dtype.bytes()
    }

    /// The elements per dim that the rank at the coordinates holds (before storage cuts them).
    pub fn local_sizes(&self, mesh: &Mesh, coordinates: &[u64]) -> Vec<u64> {
        self.dims.iter().map(|dim| mesh.extent(dim.size, &dim.axes, coordinates).count).collect()
    }

    /// Where the local part begins in each dim for the rank at the coordinates.
    pub fn local_origin(&self, mesh: &Mesh, coordinates: &[u64]) -> Vec<u64> {
        self.dims.iter().map(|dim| mesh.extent(dim.size, &dim.axes, coordinates).origin).collect()
    }
}
