//! `carry(%end, %through)`: the states before blocks from what each block does to a state.

use crate::ops::{Attr, Attrs, OpDef, OpFacts, Shapes, Work, operands};
use crate::types::{DType, Type};

/// `(end f32[b, n, g, r, k, c], through f32[b, n, g, r], or [.., k], or [.., k, k]) -> f32[b, n, g, r, k, c]`: of each of n blocks the state
/// before it. The first has 0, the next `through S + end`. With `reverse=true` the blocks go from the last to the first, and matrices are
/// transposed: of each block the gradient by the state behind it.
#[derive(Clone, PartialEq, Debug)]
pub struct Carry {
    /// From the last block to the first.
    pub reverse: bool,
}

impl Carry {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["carry"];

    pub(in crate::ops) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<Carry, String> {
        Ok(Carry { reverse: attrs.flag("reverse")? })
    }
}

/// The factors of what is said of a block's transition, behind its heads.
const OF_KEYS: [&str; 3] = ["", " k!", " k! l!"];

impl OpDef for Carry {
    fn name(&self) -> &'static str {
        "carry"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        self.reverse.then(|| ("reverse", Attr::flag(true))).into_iter().collect()
    }

    fn facts(&self) -> OpFacts {
        OpFacts { carries_state: true, ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [end, through] = operands::take(operands, "end, through")?;
        let end = end.logical();
        let [b, n, g, r, k, _] = operands::dims("end", &end, "b, n, g, r, k, c")?;
        let heads = [b, n, g, r].map(Clone::clone).to_vec();
        let of_keys = vec![k.clone(); through.rank().saturating_sub(4).min(2)];
        operands::expect("end", &end, DType::F32, &end.dims)?;
        operands::expect("through", through, DType::F32, &[heads, of_keys].concat())?;
        Ok(vec![end.clone()])
    }

    fn rule(&self, operands: &[&Type], _: &[&Type]) -> String {
        let of_keys = OF_KEYS[operands[1].rank() - 4];
        format!("b n! g r k! c, b n! g r{of_keys} -> b n! g r k! c")
    }

    /// A product and a sum for each element, or for each row of a matrix and element.
    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        let rows = if operands[1].rank() == 6 { operands[1].dims[5].size } else { 1 };
        Work::of(operands[0].elements().saturating_mul(2 * rows), operands, results)
    }
}
