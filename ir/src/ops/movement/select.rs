//! `less(%a, %b)` and its like, which give 1 or 0, and `select(%mask, %a, %b)`, which chooses element by element.

use crate::ids::Value;
use crate::ops::{Attr, Attrs, Builder, Cotangents, Linear, OpDef, OpFacts, Rows, Shapes, Work, operands};
use crate::types::{DType, Type};

/// A comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompareKind {
    /// `a < b`
    Less,
    /// `a <= b`
    LessEqual,
    /// `a = b`
    Equal,
}

/// An elementwise comparison of two operands: 1 where it holds, else 0, in i32. With a NaN none holds.
#[derive(Clone, PartialEq, Debug)]
pub struct Compare(pub CompareKind);

impl Compare {
    /// The names of the comparisons.
    pub const NAMES: &'static [&'static str] = &["less", "less_equal", "equal"];

    const KINDS: [CompareKind; 3] = [CompareKind::Less, CompareKind::LessEqual, CompareKind::Equal];

    pub(in crate::ops) fn parse(name: &str, _: &mut Attrs, _: &Shapes<'_>) -> Result<Compare, String> {
        Ok(Compare(Compare::KINDS[Compare::NAMES.iter().position(|known| *known == name).unwrap_or(0)]))
    }
}

impl OpDef for Compare {
    fn name(&self) -> &'static str {
        Compare::NAMES[Compare::KINDS.iter().position(|kind| *kind == self.0).unwrap_or(0)]
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [a, b] = operands::take(operands, "a, b")?;
        operands::expect("b", b, a.dtype, &a.dims)?;
        Ok(vec![Type { dtype: DType::I32, ..a.logical() }])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        "*, * -> *".to_string()
    }

    fn rows(&self, _: &[&Type]) -> Option<Rows> {
        Some(Rows::elements(2))
    }
}

/// `(mask i32[*m], a [*m], b [*m]) -> [*m]`: a where the mask is not 0, else b, and 0 where there is no b. With `not` it is
/// a where the mask is 0.
#[derive(Clone, PartialEq, Debug)]
pub struct Select {
    /// True: select a where the mask is 0.
    pub not: bool,
}

impl Select {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["select"];

    pub(in crate::ops) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<Select, String> {
        Ok(Select { not: attrs.flag("not")? })
    }
}

impl OpDef for Select {
    fn name(&self) -> &'static str {
        "select"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        self.not.then(|| ("not", Attr::flag(true))).into_iter().collect()
    }

    fn facts(&self) -> OpFacts {
        OpFacts { linear: Linear::From(1), ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let (mask, a, b) = match *operands {
            [mask, a] => (mask, a, None),
            [mask, a, b] => (mask, a, Some(b)),
            _ => return Err(format!("takes mask, a and optionally b, not {} operands", operands.len())),
        };
        let dtype = operands::float("a", a)?;
        operands::expect("mask", mask, DType::I32, &a.dims)?;
        b.map_or(Ok(()), |b| operands::expect("b", b, dtype, &a.dims))?;
        Ok(vec![a.logical()])
    }

    fn rule(&self, operands: &[&Type], _: &[&Type]) -> String {
        if operands.len() == 3 { "*, *, * -> *" } else { "*, * -> *" }.to_string()
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        let mut cotangents = vec![None; call.operands.len()];
        let Some(dy) = call.given[0] else { return Ok(cotangents) };
        for (place, not) in (1..call.operands.len()).zip([self.not, !self.not]) {
            if call.needed[place] {
                cotangents[place] = Some(b.one(Select { not }, &[call.operands[0], dy])?);
            }
        }
        Ok(cotangents)
    }

    fn rows(&self, operands: &[&Type]) -> Option<Rows> {
        Some(Rows::elements(operands.len()))
    }

    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(0, operands, results)
    }
}
