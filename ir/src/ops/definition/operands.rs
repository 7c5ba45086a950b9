//! Checks of operands that ops share. Each error names the operand as the op's signature does.

use crate::types::{DType, Dim, Type};

/// The operands as an array, if their number is that of `names`.
pub(in crate::ops) fn take<'a, const N: usize>(operands: &[&'a Type], names: &str) -> Result<[&'a Type; N], String> {
    operands.try_into().map_err(|_| format!("takes {N} operands ({names}), not {}", operands.len()))
}

/// The element type of an operand that must be a float.
pub(in crate::ops) fn float(name: &str, ty: &Type) -> Result<DType, String> {
    if ty.dtype.is_float() { Ok(ty.dtype) } else { Err(format!("`{name}` must be a float, not {}", ty.dtype.name())) }
}

/// Refuses an operand of another element type or other sizes.
pub(in crate::ops) fn expect(name: &str, ty: &Type, dtype: DType, dims: &[Dim]) -> Result<(), String> {
    let wanted: Vec<u64> = dims.iter().map(|dim| dim.size).collect();
    if ty.dtype == dtype && ty.sizes() == wanted {
        return Ok(());
    }
    Err(format!("`{name}` must be {}{wanted:?}, not {}{:?}", dtype.name(), ty.dtype.name(), ty.sizes()))
}

/// The last dim and those before it.
pub(in crate::ops) fn rows_and_last<'a>(name: &str, ty: &'a Type) -> Result<(&'a [Dim], &'a Dim), String> {
    ty.dims.split_last().map(|(last, rows)| (rows, last)).ok_or_else(|| format!("`{name}` is a scalar; it needs a dim"))
}

/// Checks what the gradients of a norm read: x, gamma if it is read, the statistics of the rows, dy. The element type
/// and the last dim of x.
pub(in crate::ops) fn norm_gradient(
    x: &Type,
    gamma: Option<&Type>,
    statistics: &[(&str, &Type)],
    dy: &Type,
) -> Result<(DType, Dim), String> {
    let x = x.logical();
    let dtype = float("x", &x)?;
    let (rows, last) = rows_and_last("x", &x)?;
    gamma.map_or(Ok(()), |gamma| expect("gamma", gamma, dtype, std::slice::from_ref(last)))?;
    statistics.iter().try_for_each(|(name, ty)| expect(name, ty, DType::F32, rows))?;
    expect("dy", dy, dtype, &x.dims)?;
    Ok((dtype, last.clone()))
}

/// The dims of an operand that must have `N` of them.
pub(in crate::ops) fn dims<'a, const N: usize>(name: &str, ty: &'a Type, labels: &str) -> Result<&'a [Dim; N], String> {
    let dims: Result<&[Dim; N], _> = ty.dims.as_slice().try_into();
    dims.map_err(|_| format!("`{name}` must be [{labels}], its rank is {}", ty.rank()))
}

/// Refuses the cotangent of a result that only the op's own gradient should read.
pub(in crate::ops) fn no_cotangent(name: &str, given: Option<crate::ids::Value>) -> Result<(), String> {
    given.map_or(Ok(()), |_| Err(format!("the gradient through `{name}` is not defined")))
}
