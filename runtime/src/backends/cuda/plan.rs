//! GPU launch plan of an op on a rank's sizes, as data: built and tested without a GPU.

use crate::backend::KernelSite;
use crate::backends::scalar;
use crate::backends::sizes::{row_major, strides_in};
use ir::ops::{Binary, Broadcast, Einsum, Equation, KernelOp, Permute, Reshape, Slice, Unary};
use ir::types::DType;
use kernels::cuda::gemm::Contraction;
use kernels::scalar::{Access, Element, Program, Strides};

/// The work of an op.
#[derive(Clone, PartialEq, Debug)]
pub enum Plan {
    /// One elementwise kernel, over the operands in order.
    Elementwise(Program),
    /// A matrix product.
    Contract(Box<Contraction>),
    /// The operand's elements in their own order.
    Copy,
}

/// The names of the ops that have a plan.
pub fn ops() -> Vec<&'static str> {
    [Einsum::NAMES, Unary::NAMES, Binary::NAMES, Broadcast::NAMES, Permute::NAMES, Reshape::NAMES, Slice::NAMES]
        .concat()
}

/// True if an op has a plan, whatever its sizes.
pub fn has(op: &KernelOp) -> bool {
    ops().contains(&op.def().name())
}

/// Plans an op.
///
/// # Errors
/// The op has no kernel here, by name; or it has none for these types.
pub fn plan(op: &KernelOp, site: &KernelSite<'_>) -> Result<Plan, String> {
    let mut types = site.operands.iter().chain(site.results);
    if let Some(ty) = types.find(|ty| !matches!(ty.dtype, DType::F32 | DType::I32)) {
        return Err(format!("the cuda backend computes in f32, not in {}", ty.dtype.name()));
    }
    match op {
        KernelOp::Einsum(op) => einsum(op, site),
        KernelOp::Unary(_) if site.operands[0].dtype == DType::I32 => {
            Err("`cast` of integers has no kernel on the cuda backend".to_string())
        }
        KernelOp::Unary(op) => Ok(Plan::Elementwise(unary(op))),
        KernelOp::Binary(op) => binary(op, site),
        KernelOp::Broadcast(op) => by_letters(&op.equation, site),
        KernelOp::Permute(op) => by_letters(&op.equation, site),
        KernelOp::Slice(op) => slice(op, site),
        KernelOp::Reshape(_) => Ok(Plan::Copy),
        other => Err(format!("`{}` has no kernel on the cuda backend", other.def().name())),
    }
}

fn einsum(op: &Einsum, site: &KernelSite<'_>) -> Result<Plan, String> {
    let equation = &op.equation;
    let [a, b] = &equation.operands[..] else {
        return Err("einsum of one operand has no kernel on the cuda backend".to_string());
    };
    let names: Vec<&String> = a.iter().chain(b).collect();
    // The planner of the kernel goes by characters.
    let letter = |name: &String| names.iter().position(|known| *known == name).and_then(|i| char::from_u32(i as u32));
    let letters = |names: &[String]| names.iter().filter_map(letter).collect::<Vec<_>>();
    let plan =
        Contraction::new(&letters(a), &letters(b), &letters(&equation.result), &site.operand(0)?, &site.operand(1)?);
    plan.map(|plan| Plan::Contract(Box::new(plan))).map_err(|why| format!("einsum on the cuda backend: {why}"))
}

fn unary(op: &Unary) -> Program {
    match scalar::unary(op.0) {
        Some(kind) => Program::unary(kind, Element::F32),
        // Every element type that is let in is f32.
        None => Program::copy(Element::F32, Access::Same),
    }
}

fn binary(op: &Binary, site: &KernelSite<'_>) -> Result<Plan, String> {
    let [a, b] = match &op.equation {
        None => [Access::Same, Access::Same],
        Some(equation) => [spread(equation, 0, site)?, spread(equation, 1, site)?],
    };
    Ok(Plan::Elementwise(Program::binary(scalar::binary(op.kind), Element::F32, a, b)))
}

/// Each letter of the result walks along the operand's stride of it.
fn by_letters(equation: &Equation, site: &KernelSite<'_>) -> Result<Plan, String> {
    Ok(Plan::Elementwise(Program::copy(Element::F32, spread(equation, 0, site)?)))
}

fn spread(equation: &Equation, operand: usize, site: &KernelSite<'_>) -> Result<Access, String> {
    let strides = strides_in(&equation.operands[operand], &site.operand(operand)?, &equation.result);
    Ok(access(&site.result(0)?, &strides, 0))
}

fn slice(op: &Slice, site: &KernelSite<'_>) -> Result<Plan, String> {
    let strides = row_major(&site.operand(0)?);
    let access = access(&site.result(0)?, &strides, op.start as usize * strides[op.dim]);
    Ok(Plan::Elementwise(Program::copy(Element::F32, access)))
}

/// The simplest access that walks a result of these sizes by these strides.
fn access(sizes: &[usize], strides: &[usize], offset: usize) -> Access {
    let dims: Vec<(usize, usize)> =
        sizes.iter().copied().zip(strides.iter().copied()).filter(|(size, _)| *size != 1).collect();
    let dense = row_major(&dims.iter().map(|dim| dim.0).collect::<Vec<_>>());
    if offset == 0 && dims.iter().all(|(_, stride)| *stride == 0) {
        Access::One
    } else if offset == 0 && dims.iter().map(|dim| dim.1).eq(dense) {
        Access::Same
    } else {
        Access::Strided(Strides { dims, offset })
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
