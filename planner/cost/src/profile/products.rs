//! Matrix products: the shape of an einsum on one rank, and the products that a stack joins into one.

use super::fusion::{Role, role};
use super::local::Local;
use super::site::Site;
use crate::platform::Format;
use crate::traits::FusedKernel;
use ir::dim_role::DimRole;
use ir::entity::{EntitySet, SecondaryMap};
use ir::graph::{SectionKind, Stmt};
use ir::ids::Value;
use ir::ops::{KernelOp, Op};
use ir::types::{DType, Dim, Type};

/// `batch` products of m x k and k x n matrices.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct ProductShape {
    pub(crate) batch: f64,
    pub(crate) m: f64,
    pub(crate) n: f64,
    pub(crate) k: f64,
}

impl ProductShape {
    /// Shape of an op on tensors of these types, if it is a product of two. Of rows of which only some are filled, these count.
    pub(crate) fn of(op: &KernelOp, operands: &[Type]) -> Option<ProductShape> {
        let (KernelOp::Einsum(einsum), [a, b, ..]) = (op, operands) else { return None };
        let mut first = a.dims.clone();
        if let Some(ragged) = einsum.ragged
            && let Some(rows) = first.get_mut(ragged.rows)
        {
            rows.size = ragged.mean.min(rows.size);
        }
        shape(op, [&first, &b.dims], |dim| dim.size as f64)
    }
}

/// One product, or several joined ones.
pub(super) struct Product {
    shape: ProductShape,
    role: Option<Joint>,
    operands: [Value; 2],
    format: Format,
    accumulate: bool,
    is_grouped: bool,
    pub(super) seconds: f64,
}

/// Kind of products of a layer that a stack joins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Joint {
    Qkv,
    Latent,
    GateUp,
}

/// The products of a section.
#[derive(Default)]
pub(super) struct Products {
    pub(super) list: Vec<Product>,
    /// Index of the product that computes a value: as its result, as the sum of joined products, or with a bias as epilogue.
    pub(super) of: SecondaryMap<Value, Option<usize>>,
    /// Values of pointwise statements that are part of a product's kernel.
    pub(super) swallowed: EntitySet<Value>,
}

/// Shape of a statement on one rank, if it is a product of two tensors.
pub(super) fn local(local: &Local<'_>, stmt: &Stmt) -> Option<ProductShape> {
    of_stmt(local, stmt, |dim| local.size(dim))
}

/// The same on unsharded tensors.
pub(super) fn logical(local: &Local<'_>, stmt: &Stmt) -> Option<ProductShape> {
    of_stmt(local, stmt, |dim| local.logical_size(dim))
}

fn of_stmt(local: &Local<'_>, stmt: &Stmt, size: impl Fn(&Dim) -> f64) -> Option<ProductShape> {
    let (Op::Kernel(op), &[a, b, ..]) = (&stmt.op, stmt.operands.as_slice()) else { return None };
    shape(op, [local.dims(a), local.dims(b)], size)
}

/// A factor of both operands is a batch factor, or k if the result lacks it. A factor of one operand is m or n.
fn shape(op: &KernelOp, dims: [&[Dim]; 2], size: impl Fn(&Dim) -> f64) -> Option<ProductShape> {
    let KernelOp::Einsum(einsum) = op else { return None };
    let [a, b] = einsum.equation.operands.as_slice() else { return None };
    let mut shape = ProductShape { batch: 1.0, m: 1.0, n: 1.0, k: 1.0 };
    for (letter, dim) in a.iter().zip(dims[0]) {
        let place = match (b.contains(letter), einsum.equation.result.contains(letter)) {
            (true, true) => &mut shape.batch,
            (true, false) => &mut shape.k,
            (false, _) => &mut shape.m,
        };
        *place *= size(dim);
    }
    let own = b.iter().zip(dims[1]).filter(|(letter, _)| !a.contains(letter));
    shape.n = own.map(|(_, dim)| size(dim)).product();
    Some(shape)
}

impl Products {
    pub(super) fn of(site: &Site<'_>, section: SectionKind, stmts: &[&Stmt]) -> Products {
        let mut products = Products::default();
        for stmt in stmts {
            match local(&site.local, stmt) {
                Some(shape) => products.add(site, section, stmt, shape),
                None => products.swallow(site, stmt),
            }
        }
        for product in &mut products.list {
            product.seconds = product.seconds(site);
        }
        products
    }

    fn add(&mut self, site: &Site<'_>, section: SectionKind, stmt: &Stmt, shape: ProductShape) {
        let (operands, result) = ([stmt.operands[0], stmt.operands[1]], stmt.results[0]);
        let role = joint(site, &operands);
        let found = role.and_then(|_| self.list.iter().position(|other| other.takes(role, &operands, &shape)));
        let at = found.unwrap_or(self.list.len());
        match found {
            Some(at) if self.list[at].operands[0] == operands[0] => self.list[at].shape.n += shape.n,
            Some(at) => self.list[at].shape.m += shape.m,
            None => {
                let format = format(site, stmt);
                let accumulate = section == SectionKind::W && stmt.accumulate;
                let is_grouped = operands.iter().all(|&value| site.local.has_role(value, DimRole::Experts));
                self.list.push(Product { shape, role, operands, format, accumulate, is_grouped, seconds: 0.0 });
            }
        }
        self.of[result] = Some(at);
    }

    /// Merges a statement into a product: a bias is an epilogue, and the sum of two joined products is a product with longer k.
    fn swallow(&mut self, site: &Site<'_>, stmt: &Stmt) {
        let at = match role(site.block(), stmt) {
            Some(Role::Bias) => self.of[stmt.operands[0]],
            Some(Role::Sum) => match (self.of[stmt.operands[0]], self.of[stmt.operands[1]]) {
                (Some(a), Some(b)) if a != b && self.sums(a, b) => {
                    self.list[a].shape.k += self.list[b].shape.k;
                    self.list[b].shape.k = 0.0;
                    Some(a)
                }
                _ => None,
            },
            _ => None,
        };
        if let Some(at) = at {
            self.of[stmt.results[0]] = Some(at);
            self.swallowed.insert(stmt.results[0]);
        }
    }

    fn sums(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.list[a], &self.list[b]);
        let [one, other] = [a, b].map(|product| (product.shape.batch, product.shape.m, product.shape.n));
        a.role.is_some() && a.role == b.role && one == other
    }

    /// Launches per expert: one call for all experts of a rank launches a product for each, and the quantisation of its operand
    /// (Transformer Engine's `GroupedLinear`), which takes `scaling` of them.
    pub(super) fn of_experts(&self, scaling: f64) -> f64 {
        let experts = self.joined().filter(|product| product.is_grouped);
        experts.map(|product| product.shape.batch * (1.0 + scaling * product.quantises())).sum()
    }

    /// Number of kernels.
    pub(super) fn kernels(&self) -> f64 {
        self.joined().map(|product| 1.0 + product.quantises()).sum()
    }

    /// Products without those that others have taken in.
    fn joined(&self) -> impl Iterator<Item = &Product> {
        self.list.iter().filter(|product| product.shape.k > 0.0)
    }
}

impl Product {
    /// Seconds of the product; those of experts are one kernel with different weights.
    fn seconds(&self, site: &Site<'_>) -> f64 {
        let ProductShape { batch, m, n, k } = self.shape;
        if self.is_grouped {
            site.platform.grouped_matmul(batch, m, n, k, self.format, self.accumulate)
        } else {
            site.platform.matmul(batch, m, n, k, self.format, self.accumulate)
        }
    }

    /// Number of kernels that quantise its operands: 1 below 16 bits, except for weight gradients, which reuse them.
    fn quantises(&self) -> f64 {
        f64::from(u8::from(matches!(self.format, Format::F8 | Format::F4) && !self.accumulate))
    }

    /// Returns whether another product with an operand in common can be joined to this one.
    fn takes(&self, role: Option<Joint>, operands: &[Value; 2], shape: &ProductShape) -> bool {
        let Some(common) = (0..2).find(|&at| self.operands[at] == operands[at]) else { return false };
        let [own, other] =
            [&self.shape, shape].map(|shape| (shape.batch, shape.k, if common == 0 { shape.m } else { shape.n }));
        self.role == role && own == other
    }

    /// Returns whether the product reads a value.
    pub(super) fn reads(&self, value: Value) -> bool {
        self.operands.contains(&value)
    }
}

/// Kind of products that the stack joins a product with: of heads, of the latents of keys and values with their rotated part,
/// or of the two halves of a gated MLP.
fn joint(site: &Site<'_>, operands: &[Value; 2]) -> Option<Joint> {
    let joints: [(Joint, FusedKernel, &[DimRole]); 3] = [
        (Joint::Qkv, FusedKernel::Qkv, &[DimRole::KvHeads]),
        (Joint::Latent, FusedKernel::Qkv, &[DimRole::KvLatent, DimRole::RotaryHead]),
        (
            Joint::GateUp,
            FusedKernel::GateUp,
            &[DimRole::FeedForward, DimRole::ExpertFeedForward, DimRole::SharedFeedForward],
        ),
    ];
    let joint = joints.into_iter().find(|(_, kernel, roles)| {
        let mut of_operands = roles.iter().flat_map(|&role| operands.map(|value| (value, role)));
        site.fuses(*kernel) && of_operands.any(|(value, role)| site.local.has_role(value, role))
    });
    joint.map(|(joint, ..)| joint)
}

/// Format of a product's operands: the recipe's in layers, at most half precision in the head, and f32 for f32 operands
/// (routing).
fn format(site: &Site<'_>, stmt: &Stmt) -> Format {
    let products = site.platform.recipe.products;
    let is_f32 = site.block().ty(stmt.operands[0]).dtype == DType::F32;
    match products {
        Format::F32 => Format::F32,
        _ if is_f32 => Format::F32,
        _ if site.is_head() => Format::Half,
        _ => products,
    }
}
