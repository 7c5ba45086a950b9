//! Elementwise ops of one operand.

use super::Binary;
use super::binary_table::BinaryKind;
use super::unary_table::UnaryKind;
use crate::ids::Value;
use crate::ops::{
    Attr, Attrs, Builder, Compare, CompareKind, Cotangents, Linear, OpClass, OpDef, OpFacts, Rows, Select, Shapes,
};
use crate::types::Type;

/// An elementwise function of one operand.
#[derive(Clone, PartialEq, Debug)]
pub struct Unary(pub UnaryKind);

/// The class of a function of one operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum UnaryClass {
    /// Linear: `f(a + b) = f(a) + f(b)`.
    Linear,
    /// A linear function whose result has another element type.
    Cast,
    /// A linear function of a constant.
    Constant,
    /// Not linear, and 0 at 0.
    KeepsZeros,
    /// Any other.
    Other,
}

/// The values from which a gradient is built.
pub(super) struct Slope<'b, 'a> {
    pub(super) b: &'b mut Builder<'a>,
    /// The operand.
    pub(super) x: Value,
    /// The result.
    pub(super) y: Value,
    /// Its cotangent.
    pub(super) dy: Value,
}

impl Slope<'_, '_> {
    pub(super) fn unary(&mut self, kind: UnaryKind, x: Value) -> Result<Value, String> {
        self.b.one(Unary(kind), &[x])
    }

    pub(super) fn binary(&mut self, kind: BinaryKind, x: Value, y: Value) -> Result<Value, String> {
        self.b.one(Binary::of(kind), &[x, y])
    }

    /// `dy` where the function does not change the operand.
    pub(super) fn where_kept(&mut self) -> Result<Value, String> {
        let stays = self.b.one(Compare(CompareKind::Equal), &[self.x, self.y])?;
        self.b.one(Select { not: false }, &[stays, self.dy])
    }
}

impl Unary {
    /// The names of the functions.
    pub const NAMES: &'static [&'static str] = UnaryKind::NAMES;

    pub(in crate::ops) fn parse(name: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<Unary, String> {
        UnaryKind::parse(name, attrs).map(Unary)
    }
}

impl OpDef for Unary {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        self.0.attrs()
    }

    /// A cast has a result of another element type, so it does not overwrite its operand.
    fn facts(&self) -> OpFacts {
        let class = self.0.class();
        OpFacts {
            class: if class == UnaryClass::Cast { OpClass::Other } else { OpClass::Activation },
            constants: if class == UnaryClass::Constant { &[0] } else { &[] },
            linear: if matches!(class, UnaryClass::Linear | UnaryClass::Constant | UnaryClass::Cast) {
                Linear::Each(&[0])
            } else {
                Linear::No
            },
            in_place: if class == UnaryClass::Cast { &[] } else { &[0] },
            keeps_zeros: if class == UnaryClass::Other { &[] } else { &[&[0]] },
            ..OpFacts::default()
        }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [x] = operands else { return Err(format!("takes one operand, not {}", operands.len())) };
        let dtype = match self.0 {
            UnaryKind::Cast(to) if !to.is_float() => return Err(format!("`to` must be a float, not {}", to.name())),
            UnaryKind::Cast(to) => to,
            _ if !x.dtype.is_float() => return Err("its operand must be a float".to_string()),
            _ => x.dtype,
        };
        Ok(vec![Type { dtype, ..x.logical() }])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        "* -> *".to_string()
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        let (Some(dy), true) = (call.given[0], call.needed[0]) else { return Ok(vec![None]) };
        let (x, y) = (call.operands[0], call.results[0]);
        Ok(vec![Some(self.0.gradient(&mut Slope { b, x, y, dy })?)])
    }

    fn rows(&self, _: &[&Type]) -> Option<Rows> {
        Some(Rows::elements(1))
    }
}
