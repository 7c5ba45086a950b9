//! Checks the sizes of a model against [`crate::limits`], before any other pass computes with them. Invariants:
//!
//! 1. The mesh has at most [`crate::limits::DEVICES`] devices.
//! 2. A tensor has at most [`crate::limits::ELEMENTS`] elements.
//! 3. A parameter array has at most [`crate::limits::RUNS`] elements, and a model at most that number of block instances.

use crate::catalogue::Code;
use crate::diag::{Diagnostic, Diagnostics};
use crate::graph::{Model, Span};
use crate::limits;
use crate::types::Type;

/// Checks the mesh, all types, and the number of block instances.
pub(super) fn check(model: &Model, found: &mut Diagnostics) {
    let sizes = model.mesh.axes.values().map(|axis| axis.size);
    if product(sizes).is_none_or(|devices| devices > limits::DEVICES) {
        let message = format!("the mesh has more than {} devices", limits::DEVICES);
        found.push(too_large(Span::default(), format!("mesh @{}", model.mesh.name), message));
    }
    let params = model.params.values().map(|param| (param.span, &param.name, &param.ty));
    let inputs = model.inputs.iter().map(|input| (Span::default(), &model.values[input.value], &input.ty));
    let blocks = model.blocks.values().chain(model.step.iter().map(|step| &step.graph));
    let values = blocks.flat_map(|block| block.values.values().map(|data| (block.span, &data.name, &data.ty)));
    for (span, name, ty) in params.chain(inputs).chain(values).filter(|(_, _, ty)| !is_countable(ty)) {
        let sizes = ty.sizes().iter().map(u64::to_string).collect::<Vec<_>>().join(" x ");
        let message = format!("`%{name}` has {sizes} elements, more than {}", limits::ELEMENTS);
        found.push(too_large(span, format!("%{name}"), message));
    }
    for param in model.params.values().filter(|param| param.instances() > limits::RUNS) {
        let message = format!("`%{}` is an array of {}, more than {}", param.name, param.instances(), limits::RUNS);
        found.push(too_large(param.span, format!("%{}", param.name), message));
    }
    let runs: u64 = model.calls.iter().map(|call| u64::from(call.instances())).sum();
    let longest = model.calls.iter().max_by_key(|call| call.instances());
    if let Some(call) = longest.filter(|_| runs > u64::from(limits::RUNS)) {
        let message = format!("the model runs {runs} blocks, more than {}", limits::RUNS);
        found.push(too_large(call.span, format!("@{}", model.blocks[call.block].name), message));
    }
}

fn too_large(span: Span, subject: String, message: String) -> Diagnostic {
    Diagnostic::new(Code::TooLarge, message).at(span).focus(subject.clone()).subject(subject)
}

fn is_countable(ty: &Type) -> bool {
    product(ty.dims.iter().map(|dim| dim.size)).is_some_and(|elements| elements <= limits::ELEMENTS)
}

fn product(mut sizes: impl Iterator<Item = u64>) -> Option<u64> {
    sizes.try_fold(1u64, u64::checked_mul)
}
