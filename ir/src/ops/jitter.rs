//! `jitter(%x, width=0.1, path="layer.router")`: random factors about 1 that do not depend on the sharding.

use super::{
    Attr, Attrs, Builder, Cotangents, Extras, Linear, Op, OpDef, OpFacts, Piece, Positioned, Random, Rows, Shapes,
    operands,
};
use crate::ids::Value;
use crate::types::Type;

/// Multiplies an element by `1 - width + 2 width uniform(seed, step, path, global sample, logical coordinates)` (Fedus et al. 2021, Switch
/// Transformers, section 2.2). The same op on the cotangent is the gradient. Numbers are those of [`Dropout`](super::Dropout).
#[derive(Clone, PartialEq, Debug)]
pub struct Jitter {
    /// The most by which a factor differs from 1, `0 <= width < 1`.
    pub width: f64,
    /// Identifies this random op; stable under changes of the program.
    pub path: String,
    /// The slice of the sequence that the operand is; `None`: the entire sequence. Logical coordinates are those in the entire
    /// sequence.
    pub piece: Option<Piece>,
}

impl Jitter {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["jitter"];

    pub(super) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<Jitter, String> {
        Ok(Jitter { width: attrs.float("width")?, path: attrs.string("path")?, piece: Piece::parse(attrs)? })
    }
}

impl OpDef for Jitter {
    fn name(&self) -> &'static str {
        "jitter"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        let mut attrs = vec![("width", Attr::Float(self.width)), ("path", Attr::Str(self.path.clone()))];
        attrs.extend(Piece::attrs(self.piece));
        attrs
    }

    fn facts(&self) -> OpFacts {
        OpFacts { linear: Linear::Each(&[0]), in_place: &[0], ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [x] = operands::take(operands, "x")?;
        operands::float("x", x)?;
        if x.rank() < 2 {
            return Err("`x` needs the batch as dim 0, and the sequence as dim 1".to_string());
        }
        if !(0.0..1.0).contains(&self.width) {
            return Err(format!("`width` must be at least 0 and below 1, not {}", self.width));
        }
        Piece::fault(self.piece, x.dims[1].size).map_or(Ok(()), Err)?;
        Ok(vec![x.logical()])
    }

    /// Not `* -> *`: random numbers depend on coordinates, which a flat shard does not preserve.
    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        "b *m -> b *m".to_string()
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        let (Some(dy), true) = (call.given[0], call.needed[0]) else { return Ok(vec![None]) };
        Ok(vec![Some(b.one(self.clone(), &[dy])?)])
    }

    /// Rows along the last dim: coordinates give the numbers.
    fn rows(&self, operands: &[&Type]) -> Option<Rows> {
        Some(Rows::last(operands, &[true]))
    }

    fn extras(&self) -> Extras<'_> {
        Extras { positioned: Some(self), random: Some(self), ..Extras::default() }
    }
}

impl Positioned for Jitter {
    fn on_piece(&self, piece: Piece) -> Op {
        Jitter { piece: Some(piece), ..self.clone() }.into()
    }
}

impl Random for Jitter {
    /// Multiplies by 1.
    fn in_evaluation(&self) -> Op {
        Jitter { width: 0.0, ..self.clone() }.into()
    }
}
