//! `key_mass(%q, %k, %lse, %index, scale=0.125)`: how much all heads of a query attend to each chosen key.

use super::attention::{QueryHeads, heads};
use crate::ops::{Attr, Attrs, OpDef, OpFacts, OpResult, Shapes, Work, operands};
use crate::types::{DType, Type};

/// `(q [b, s, g, r, d], k [b, t, g, d], lse f32[b, s, g, r], index i32[b, s, j]) -> f32[b, s, j]`: the weights `e^(scale q k - lse)` of
/// [`SparseAttention`](super::attention::SparseAttention), summed over heads; 0 where no key is chosen. It is what an indexer shall
/// learn, so nothing flows back.
#[derive(Clone, PartialEq, Debug)]
pub struct KeyMass {
    /// The factor that multiplies the products of queries and keys.
    pub scale: f64,
}

impl KeyMass {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["key_mass"];

    pub(in crate::ops) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> OpResult<KeyMass> {
        Ok(KeyMass { scale: attrs.float("scale")? })
    }
}

impl OpDef for KeyMass {
    fn name(&self) -> &'static str {
        "key_mass"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        vec![("scale", Attr::Float(self.scale))]
    }

    fn facts(&self) -> OpFacts {
        OpFacts { constants: &[0, 1, 2], causal_operands: &[1], ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> OpResult<Vec<Type>> {
        let [q, k, lse, index] = operands::take(operands, "q, k, lse, index")?;
        let QueryHeads { queries, .. } = heads(q, k, index)?;
        operands::expect("lse", lse, DType::F32, &queries)?;
        Ok(vec![Type { dtype: DType::F32, ..index.logical() }])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        "b s g+ r+ d!, b t! g+ d!, b s g+ r+, b s j! -> b s j!".to_string()
    }

    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        let chosen = operands[3].dims.last().map_or(1, |dim| dim.size);
        Work::of(operands[0].elements().saturating_mul(2 * chosen), operands, results)
    }
}
