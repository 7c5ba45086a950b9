//! Groups of statements: `fused`. All statements treat the same rows alike, and interior values are nobody else's.

use crate::fused::{Fused, ROW_BYTES, follows_product};
use crate::graph::{Model, Stmt};
use crate::ids::Value;
use crate::ops::Rows;
use crate::program::Body;
use crate::types::{DType, Type};

/// The faults of a group.
pub(super) fn check(model: &Model, body: &Body, fused: &Fused) -> Vec<String> {
    let mut faults = Vec::new();
    if fused.stmts.len() < 2 {
        faults.push("a group has at least two statements".to_string());
    }
    let product = fused.product().and_then(|stmt| law(body, stmt)).and_then(|rows| rows.product);
    let mut dims: Option<usize> = None;
    let (mut in_rows, mut whole) = (Vec::new(), Vec::new());
    let mut sums: Vec<(Value, Option<usize>)> = Vec::new();
    for stmt in &fused.stmts {
        let Some(rows) = law(body, stmt).filter(|rows| rows.sums || !stmt.accumulate) else {
            faults.push(format!("`{}` does not treat rows alike", stmt.op.name()));
            continue;
        };
        dims = dims.into_iter().chain(rows.dims).min();
        if !stmt.updates_in_place() {
            faults.push(format!("`{}` updates a value of a group under another name", stmt.op.name()));
        }
        if rows.product.is_some() && fused.product() != Some(stmt) {
            faults.push("a product is not the first statement of a group".to_string());
        }
        for (&operand, &has_rows) in stmt.operands.iter().zip(&rows.operands) {
            if has_rows { in_rows.push(operand) } else { whole.push(operand) }
        }
        match rows.sums {
            false => in_rows.extend(&stmt.results),
            true => sums.extend(stmt.results.iter().map(|&sum| (sum, rows.dims))),
        }
    }
    for &(sum, own) in &sums {
        let name = body.value_name(sum);
        if own != product.or(dims) {
            faults.push(format!("%{name} is a sum over other rows than those of its group"));
        }
        if body.ty(sum).dtype != DType::F32 || !fused.outs.contains(&sum) {
            faults.push(format!("%{name} is a sum over rows, which is f32 and left"));
        }
        if fused.stmts.iter().any(|stmt| stmt.operands.contains(&sum)) {
            faults.push(format!("%{name} is a sum over rows, which is read before its last row"));
        }
    }
    if fused.product().is_some() {
        faults.extend(after_product(body, fused, product));
        dims = None;
    }
    for value in fused.interior().filter(|&value| body.args.iter().any(|arg| arg.value == value)) {
        faults.push(format!("%{} is an argument, which a group leaves if it stores it", body.value_name(value)));
    }
    for value in whole.into_iter().filter(|value| fused.stmts.iter().any(|stmt| stmt.results.contains(value))) {
        faults.push(format!("%{} is read whole where it is computed", body.value_name(value)));
    }
    if let Some(&first) = in_rows.first() {
        let (rows, name) = (body.ty(first), body.value_name(first));
        for value in in_rows.into_iter().filter(|&value| !same_rows(rows, body.ty(value), dims)) {
            faults.push(format!("%{} does not have the rows of %{name}", body.value_name(value)));
        }
        let interior: u64 = dims.map_or(0, |dims| {
            let count = rows.local_bounds(&model.mesh)[..dims].iter().product::<u64>().max(1);
            fused.interior().map(|value| body.ty(value).local_bytes(&model.mesh) / count).sum()
        });
        if interior > ROW_BYTES {
            faults.push(format!("a row of its interior values has {interior} bytes, more than {ROW_BYTES}"));
        }
    }
    faults
}

/// The rows that a statement treats alike.
fn law(body: &Body, stmt: &Stmt) -> Option<Rows> {
    stmt.op.def()?.rows(&body.types(&stmt.operands))
}

/// The faults of what follows a product with a number of leading dims: an op that does not work on single elements, a bias that lacks
/// columns, or a sum over rows of which a rank stores some elements.
fn after_product(body: &Body, fused: &Fused, product: Option<usize>) -> Vec<String> {
    let others = fused.stmts.iter().skip(1).filter(|stmt| !works_on_elements(body, stmt, product));
    others.map(|stmt| format!("`{}` does not work on single elements of a product", stmt.op.name())).collect()
}

/// True if a statement may follow a product with a number of leading dims.
fn works_on_elements(body: &Body, stmt: &Stmt, product: Option<usize>) -> bool {
    let Some(rows) = law(body, stmt) else { return follows_product(&stmt.op) };
    follows_product(&stmt.op)
        && rows.dims.is_none_or(|dims| Some(dims) <= product)
        && (!rows.sums || stmt.operands.iter().all(|&value| body.ty(value).storage.is_empty()))
}

/// True if two tensors have the same rows on every rank: equal leading dims, or equal elements where rows may be any.
fn same_rows(one: &Type, other: &Type, dims: Option<usize>) -> bool {
    let count = dims.unwrap_or(one.rank().max(other.rank()));
    let (lead, others) = (&one.dims[..count.min(one.rank())], &other.dims[..count.min(other.rank())]);
    let whole = one.storage.is_empty() && other.storage.is_empty();
    lead.len() == others.len()
        && lead.iter().zip(others).all(|(one, other)| one.size == other.size && one.axes == other.axes)
        && lead.len() >= dims.unwrap_or(0)
        && (whole || dims.is_none() && one.storage == other.storage)
}
