//! Tensor types: element type, sizes, sharding, memory space and pending reduction.
//!
//! `bf16[b{dp}, s, f{tp}]+{cp}` is a bf16 tensor whose `b` is sharded over `dp` and `f` over `tp`, replicated elsewhere,
//! and partial over `cp`: a sum is pending. `f32[h, f{tp}]/{dp}` is a flat shard: its local elements, in row-major order,
//! are split into equal ranges over `dp`. Dim names: b batch, s sequence, t key sequence, h hidden, g
//! key-value heads, r query heads per key-value head, d head size, f feed-forward, v vocabulary. Dim names of experts: q
//! routing groups, t tokens of a group, e experts, c tokens that an expert takes, m its feed-forward net.

use crate::dim_role::DimRole;
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

    /// True for element types that gradients flow through.
    pub fn is_float(self) -> bool {
        self != DType::I32
    }
}

/// A named dim: `s=4096`, `c<=64`, `heads indivisible=8 kv_heads`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DimName {
    /// Its name; it has no meaning beyond its role.
    pub name: String,
    /// Its size, or the bound of a dynamic size.
    pub size: u64,
    /// Its role, if some pass treats it differently from other dims.
    pub role: Option<DimRole>,
    /// The product of its axes must divide its size (heads, experts).
    pub indivisible: bool,
    /// Declared with `<=`.
    pub bounded: bool,
}

impl DimName {
    /// A divisible dim of a fixed size.
    pub fn new(name: &str, size: u64, role: Option<DimRole>) -> DimName {
        DimName { name: name.to_string(), size, role, indivisible: false, bounded: false }
    }

    /// The dim, with a size that its axes must divide.
    #[must_use]
    pub fn undivided(self) -> DimName {
        DimName { indivisible: true, ..self }
    }
}

/// The table of named dims.
pub type Dims = PrimaryMap<DimId, DimName>;

/// One dim of a tensor.
#[derive(Clone, Debug)]
pub struct Dim {
    /// The global size, or its bound.
    pub size: u64,
    /// Its name in the `dims` table, which has its role too. Equality ignores it.
    pub name: Option<DimId>,
    /// The axes that shard it, major to minor.
    pub axes: Axes,
    /// Open dim `{dp,?}`: the planner may add axes after `axes`.
    pub open: bool,
    /// The i32 value that holds a dynamic size: `c<=64(%n)`.
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

    /// Its role, if its name has one.
    pub fn role(&self, dims: &Dims) -> Option<DimRole> {
        dims[self.name?].role
    }
}

impl PartialEq for Dim {
    fn eq(&self, other: &Dim) -> bool {
        (self.size, &self.axes, self.open, self.count) == (other.size, &other.axes, other.open, other.count)
    }
}

/// The kind of a pending reduction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PartialKind {
    /// A sum: `+{tp}`.
    Sum,
    /// A maximum: `max{tp}`.
    Max,
}

/// A pending reduction over mesh axes, which are stored in mesh order.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Partial {
    /// Sum or maximum.
    pub kind: PartialKind,
    /// The axes to reduce over; never empty.
    pub axes: Axes,
}

/// The memory space of a tensor.
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
    /// Element type. For a partial tensor, the type sent over the network; partial sums accumulate in f32 and are rounded
    /// once per hop.
    pub dtype: DType,
    /// Its dims, slowest first.
    pub dims: Vec<Dim>,
    /// Flat-shard axes: they split the local elements, row-major, into equal ranges, the last padded.
    pub storage: Axes,
    /// The pending reduction; `None` for a reduced tensor.
    pub partial: Option<Partial>,
    /// The memory that holds it.
    pub space: Space,
}

impl Type {
    /// A reduced tensor of these dims on the device.
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

    /// True if one of its dims has the role.
    pub fn has_role(&self, role: DimRole, dims: &Dims) -> bool {
        self.dims.iter().any(|dim| dim.role(dims) == Some(role))
    }

    /// The global sizes.
    pub fn sizes(&self) -> Vec<u64> {
        self.dims.iter().map(|dim| dim.size).collect()
    }

    /// The number of elements of the unsharded tensor.
    pub fn elements(&self) -> u64 {
        self.dims.iter().map(|dim| dim.size).product()
    }

    /// Bytes of the unsharded tensor.
    pub fn bytes(&self) -> u64 {
        self.elements() * self.dtype.bytes()
    }

    /// The logical type: unsharded, closed and reduced.
    pub fn logical(&self) -> Type {
        let dims = self.dims.iter().map(|dim| Dim { axes: Axes::none(), open: false, ..dim.clone() }).collect();
        Type { storage: Axes::none(), partial: None, dims, ..self.clone() }
    }

    /// The same type with no dim open.
    pub fn closed(&self) -> Type {
        let dims = self.dims.iter().map(|dim| Dim { open: false, ..dim.clone() }).collect();
        Type { dims, ..self.clone() }
    }

    /// The same type with the dim names of another.
    pub fn named_as(&self, other: &Type) -> Type {
        let dims = self.dims.iter().zip(&other.dims).map(|(dim, own)| Dim { name: own.name, ..dim.clone() }).collect();
        Type { dims, ..self.clone() }
    }

    /// True if both types have the same element type and sizes.
    pub fn same_tensor(&self, other: &Type) -> bool {
        self.dtype == other.dtype
            && self.rank() == other.rank()
            && self.dims.iter().zip(&other.dims).all(|(a, b)| a.size == b.size && a.count == b.count)
    }

    /// The axes of the dims and the flat-shard axes, in mesh order.
    pub fn sharded_axes(&self) -> Axes {
        self.dims.iter().fold(self.storage.clone(), |all, dim| all.union(&dim.axes)).sorted()
    }

    /// The sharded axes and the axes that the tensor is partial over, in mesh order.
    pub fn used_axes(&self) -> Axes {
        self.sharded_axes().union(&self.partial_axes()).sorted()
    }

    /// The axes that the tensor is partial over; none for a reduced tensor.
    pub fn partial_axes(&self) -> Axes {
        self.partial.as_ref().map_or_else(Axes::none, |partial| partial.axes.clone())
    }

    /// The same type, partial over `axes`; reduced if `axes` is empty.
    pub fn partial_over(&self, kind: PartialKind, axes: &Axes) -> Type {
        let partial = (!axes.is_empty()).then(|| Partial { kind, axes: axes.sorted() });
        Type { partial, ..self.clone() }
    }

    /// The largest local size of each dim on a mesh, before flat sharding.
    pub fn local_bounds(&self, mesh: &Mesh) -> Vec<u64> {
        self.dims.iter().map(|dim| mesh.bound(dim.size, &dim.axes)).collect()
    }

    /// The largest number of elements on any rank.
    pub fn local_elements(&self, mesh: &Mesh) -> u64 {
        let elements: u64 = self.local_bounds(mesh).iter().product();
        mesh.bound(elements, &self.storage)
    }

    /// The largest number of bytes on any rank.
    pub fn local_bytes(&self, mesh: &Mesh) -> u64 {
        self.local_elements(mesh) * self.dtype.bytes()
    }

    /// The local size of each dim on the rank at the coordinates, before flat sharding.
    pub fn local_sizes(&self, mesh: &Mesh, coordinates: &[u64]) -> Vec<u64> {
        self.dims.iter().map(|dim| mesh.extent(dim.size, &dim.axes, coordinates).count).collect()
    }

    /// The offset of the local shard in each dim for the rank at the coordinates.
    pub fn local_origin(&self, mesh: &Mesh, coordinates: &[u64]) -> Vec<u64> {
        self.dims.iter().map(|dim| mesh.extent(dim.size, &dim.axes, coordinates).origin).collect()
    }
}
