//! `%i: i32[s, t] = iota(dim=1)`: the index along a dim.

use crate::ids::Value;
use crate::ops::{Attr, Attrs, Builder, Cotangents, OpDef, Shapes, Work};
use crate::types::{DType, Dim, Type};

/// `() -> [*m]`: each element is its index along a dim. The stated result type gives sizes and element type.
#[derive(Clone, PartialEq, Debug)]
pub struct Iota {
    /// The dim.
    pub dim: usize,
    /// Dims of the result.
    pub dims: Vec<Dim>,
    /// Element type of the result.
    pub dtype: DType,
}

impl Iota {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["iota"];

    pub(in crate::ops) fn parse(_: &str, attrs: &mut Attrs, shapes: &Shapes<'_>) -> Result<Iota, String> {
        let result = shapes.results.first().ok_or("has no result")?;
        let dim = attrs.int("dim")? as usize;
        if dim >= result.rank() {
            return Err(format!("the result has no dim {dim}"));
        }
        Ok(Iota { dim, dims: result.logical().dims, dtype: result.dtype })
    }
}

impl OpDef for Iota {
    fn name(&self) -> &'static str {
        "iota"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        vec![("dim", Attr::int(self.dim as u64))]
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        if !operands.is_empty() {
            return Err(format!("takes no operands, not {}", operands.len()));
        }
        Ok(vec![Type::new(self.dtype, self.dims.clone())])
    }

    /// A letter for each dim: the index depends on coordinates, which a flat shard does not preserve.
    fn rule(&self, _: &[&Type], results: &[&Type]) -> String {
        let letters: Vec<String> = (0..results[0].rank()).map(|dim| format!("d{dim}")).collect();
        format!("-> {}", letters.join(" "))
    }

    /// There is nothing to flow back to.
    fn gradient(&self, _: &mut Builder<'_>, _: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        Ok(Vec::new())
    }

    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(0, operands, results)
    }
}
