//! `clip_factor(%norm, max=1)`: the factor that bounds the global gradient norm by `max`:
//! `min(1, max / (norm + 1e-6))`, as in Pascanu et al. 2013 with the epsilon of common trainers.
//! It is 0 for an infinite norm and not a number for one that is none: updates are then skipped.

use super::{Attr, Attrs, Builder, OpDef, Shapes, Unary, UnaryKind};
use crate::ids::Value;
use crate::types::Type;

/// Keeps the division finite for a zero gradient.
const EPSILON: f64 = 1e-6;

/// The clip factor of a norm.
#[derive(Clone, PartialEq, Debug)]
pub struct ClipFactor {
    /// The largest norm that is not clipped.
    pub max: f64,
}

impl ClipFactor {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["clip_factor"];

    pub(super) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<ClipFactor, String> {
        Ok(ClipFactor { max: attrs.float("max")? })
    }
}

impl OpDef for ClipFactor {
    fn name(&self) -> &'static str {
        "clip_factor"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        vec![("max", Attr::Float(self.max))]
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        match operands {
            [norm] if norm.rank() == 0 => Ok(vec![norm.logical()]),
            _ => Err("takes one scalar".to_string()),
        }
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        "() -> ()".to_string()
    }

    fn expand(&self, b: &mut Builder<'_>, operands: &[Value]) -> Option<Result<Vec<Value>, String>> {
        let mut factor = operands[0];
        let chain = [UnaryKind::Shift(EPSILON), UnaryKind::Recip, UnaryKind::Scale(self.max), UnaryKind::AtMost(1.0)];
        for kind in chain {
            match b.one(Unary(kind), &[factor]) {
                Ok(value) => factor = value,
                Err(why) => return Some(Err(why)),
            }
        }
        Some(Ok(vec![factor]))
    }
}
