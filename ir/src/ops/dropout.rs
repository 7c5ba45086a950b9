//! `dropout(%x, p=0.1, path="layer.attn")`: random zeros that do not depend on the sharding.

use super::{
    Attr, Attrs, Builder, Cotangents, Extras, Linear, Op, OpDef, OpFacts, Piece, Positioned, Random, Rows, Shapes,
    operands,
};
use crate::ids::Value;
use crate::types::Type;

/// Retains an element iff `uniform(seed, step, path, global sample, logical coordinates) >= p`, scaled by `1 / (1 - p)`
/// (Srivastava et al. 2014). Dim 0 is the batch: the global sample of row i is `micro-batch * size(dim 0) + i`. The same op
/// on the cotangent is the gradient.
#[derive(Clone, PartialEq, Debug)]
pub struct Dropout {
    /// The probability of a zero, `0 <= p < 1`.
    pub p: f64,
    /// Identifies this random op; stable under changes of the program.
    pub path: String,
    /// The slice of the sequence that the operand is; `None`: the entire sequence. Logical coordinates are those in the entire
    /// sequence.
    pub piece: Option<Piece>,
}

impl Dropout {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["dropout"];

    pub(super) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<Dropout, String> {
        Ok(Dropout { p: attrs.float("p")?, path: attrs.string("path")?, piece: Piece::parse(attrs)? })
    }

    /// The fault of a `p` that is no probability below 1.
    pub(super) fn fault(&self) -> Option<String> {
        let fits = (0.0..1.0).contains(&self.p);
        (!fits).then(|| format!("`p` must be at least 0 and below 1, not {}", self.p))
    }
}

impl OpDef for Dropout {
    fn name(&self) -> &'static str {
        "dropout"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        let mut attrs = vec![("p", Attr::Float(self.p)), ("path", Attr::Str(self.path.clone()))];
        attrs.extend(Piece::attrs(self.piece));
        attrs
    }

    fn facts(&self) -> OpFacts {
        OpFacts { linear: Linear::Each(&[0]), in_place: &[0], ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [x] = operands::take(operands, "x")?;
        operands::float("x", x)?;
        if x.rank() == 0 {
            return Err("`x` is a scalar; its dim 0 must be the batch".to_string());
        }
        self.fault().map_or(Ok(()), Err)?;
        match x.dims.get(1) {
            Some(rows) => Piece::fault(self.piece, rows.size).map_or(Ok(()), Err)?,
            None if self.piece.is_some() => return Err("`x` has no dim 1, which must be the sequence".to_string()),
            None => {}
        }
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
        (operands[0].rank() > 1).then(|| Rows::last(operands, &[true]))
    }

    fn extras(&self) -> Extras<'_> {
        Extras { positioned: Some(self), random: Some(self), ..Extras::default() }
    }
}

impl Positioned for Dropout {
    fn on_piece(&self, piece: Piece) -> Op {
        Dropout { piece: Some(piece), ..self.clone() }.into()
    }
}

impl Random for Dropout {
    /// Retains every element.
    fn in_evaluation(&self) -> Op {
        Dropout { p: 0.0, ..self.clone() }.into()
    }
}
