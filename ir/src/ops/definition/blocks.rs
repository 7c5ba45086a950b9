//! Blocks of a tensor that share a scale. A tensor of scales has the rank of its tensor. Along each dim it has one scale for every index, one
//! for every block of equally many indices, or one for all. Blocks divide a dim evenly, so that no shard's blocks depend on the mesh.

use crate::types::{Dim, Type};

/// How the scales of a tensor lie along one of its dims.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::ops) enum Along {
    /// A scale for every index.
    Each,
    /// A scale for every block of this many indices.
    Blocks(u64),
    /// One scale for all indices.
    Whole,
}

impl Along {
    /// The factors of the tensor's dim in a rule. Factors within a block get the mark `inner`, others `outer`.
    pub(in crate::ops) fn of_tensor(self, label: &str, outer: &str, inner: &str) -> String {
        match self {
            Along::Each => format!("{label}{outer}"),
            Along::Blocks(size) => format!("({label}{outer} {label}'{inner}={size})"),
            Along::Whole => format!("{label}{inner}"),
        }
    }

    /// The factor of the scales' dim in a rule.
    pub(in crate::ops) fn of_scales(self, label: &str) -> String {
        if self == Along::Whole { "1".to_string() } else { label.to_string() }
    }
}

/// The blocks of a tensor that its scales' dims mean, one for each dim.
///
/// # Errors
/// The ranks differ, or the number of scales along a dim does not divide it.
pub(in crate::ops) fn between(name: &str, tensor: &Type, scales: &Type) -> Result<Vec<Along>, String> {
    if tensor.rank() != scales.rank() {
        return Err(format!("`{name}` has rank {}, its scales {}", tensor.rank(), scales.rank()));
    }
    let along = |(of, by): (&Dim, &Dim)| match (of.size, by.size) {
        (size, count) if size == count => Ok(Along::Each),
        (_, 1) => Ok(Along::Whole),
        (size, count) if count > 0 && size.is_multiple_of(count) => Ok(Along::Blocks(size / count)),
        (size, count) => Err(format!("{count} scales do not divide a dim of {size} of `{name}`")),
    };
    tensor.dims.iter().zip(&scales.dims).map(along).collect()
}
