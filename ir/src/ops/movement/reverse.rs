//! `reverse(%x, dim=1)`: one dim from its end to its beginning.

use super::slice::{factors, sliced_dim};
use crate::ids::Value;
use crate::ops::{Attr, Attrs, Builder, Cotangents, Linear, OpDef, OpFacts, Shapes, Work, operands};
use crate::types::Type;

/// Element i of the dim is the operand's element `n - 1 - i`.
#[derive(Clone, PartialEq, Debug)]
pub struct Reverse {
    /// The dim.
    pub dim: usize,
}

impl Reverse {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["reverse"];

    pub(in crate::ops) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<Reverse, String> {
        Ok(Reverse { dim: attrs.int("dim")? as usize })
    }
}

impl OpDef for Reverse {
    fn name(&self) -> &'static str {
        "reverse"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        vec![("dim", Attr::int(self.dim as u64))]
    }

    fn facts(&self) -> OpFacts {
        OpFacts { linear: Linear::Each(&[0]), ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [x] = operands::take(operands, "x")?;
        operands::float("x", x)?;
        sliced_dim(x, self.dim)?;
        Ok(vec![x.logical()])
    }

    fn rule(&self, operands: &[&Type], _: &[&Type]) -> String {
        let side = factors(operands[0].rank(), self.dim, "i");
        format!("{side} -> {side}")
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        let (Some(dy), true) = (call.given[0], call.needed[0]) else { return Ok(vec![None]) };
        Ok(vec![Some(b.one(self.clone(), &[dy])?)])
    }

    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(0, operands, results)
    }
}
