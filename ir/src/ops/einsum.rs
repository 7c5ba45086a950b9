//! `einsum(%x, %w, eq="b s h, h g r d -> b s g r d")`: the contraction. Matmul, batched matmul and their gradients are
//! instances. One operand or two; a factor that the result lacks is summed.

use super::{Attr, Attrs, Builder, Cotangents, Equation, OpClass, OpDef, Shapes};
use crate::ids::Value;
use crate::types::Type;

/// A contraction of one or two operands.
#[derive(Clone, PartialEq, Debug)]
pub struct Einsum {
    /// The factors of the dims; those that the result lacks are summed.
    pub equation: Equation,
}

impl Einsum {
    /// Its name.
    pub const NAMES: &'static [&'static str] = &["einsum"];

    /// From an equation as text.
    ///
    /// # Errors
    /// The text is not an equation of one or two operands, or its result has a factor that no operand has.
    pub fn new(text: &str) -> Result<Einsum, String> {
        let equation = Equation::parse(text)?;
        if equation.operands.len() > 2 {
            return Err(format!("`{text}` has more than two operands"));
        }
        if let Some(label) = equation.free_labels().next() {
            return Err(format!("no operand of `{text}` has `{label}`"));
        }
        Ok(Einsum { equation })
    }

    pub(super) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<Einsum, String> {
        Einsum::new(&attrs.string("eq")?)
    }

    /// The equation of the cotangent of an operand: cotangent of the result times the other operand.
    fn transposed(&self, operand: usize) -> Equation {
        let mut operands = vec![self.equation.result.clone()];
        operands
            .extend(self.equation.operands.iter().enumerate().filter(|(i, _)| *i != operand).map(|(_, l)| l.clone()));
        Equation { operands, result: self.equation.operands[operand].clone() }
    }
}

impl OpDef for Einsum {
    fn name(&self) -> &'static str {
        "einsum"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        vec![("eq", Attr::Str(self.equation.print()))]
    }

    fn class(&self) -> OpClass {
        OpClass::Product
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let dims = self.equation.result_dims(operands, &[])?;
        if operands.iter().any(|ty| ty.dtype != operands[0].dtype || !ty.dtype.is_float()) {
            return Err("its operands must be floats of one type".to_string());
        }
        Ok(vec![Type::new(operands[0].dtype, dims)])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        self.equation.rule("+")
    }

    fn linear(&self, operands: usize) -> Vec<Vec<usize>> {
        (0..operands).map(|operand| vec![operand]).collect()
    }

    /// For `y = einsum(a, b)`: `da = einsum(dy, b)` and `db = einsum(a, dy)`, the transposed equations. A summed
    /// factor of one operand alone is restored by broadcast.
    fn gradient(&self, builder: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        let Some(dy) = call.given[0] else { return Ok(vec![None; call.operands.len()]) };
        let mut cotangents = Vec::new();
        for operand in 0..call.operands.len() {
            if !call.needed[operand] {
                cotangents.push(None);
                continue;
            }
            let equation = self.transposed(operand);
            if let Some(label) = equation.free_labels().next() {
                return Err(format!(
                    "`einsum` has no gradient where `{label}` is summed within one operand; use `reduce`"
                ));
            }
            let mut operands = vec![dy];
            operands.extend(call.operands.iter().enumerate().filter(|(i, _)| *i != operand).map(|(_, &v)| v));
            cotangents.push(Some(builder.one(Einsum { equation }, &operands)?));
        }
        Ok(cotangents)
    }

    /// Two per multiply-add, over the product of all factors.
    fn flops(&self, operands: &[&Type], results: &[&Type]) -> u64 {
        let summed = self.equation.operands.iter().flatten().filter(|label| !self.equation.result.contains(label));
        let mut labels: Vec<&String> = summed.collect();
        labels.sort();
        labels.dedup();
        let sizes = labels.iter().filter_map(|l| self.equation.dim(l, operands)).map(|dim| dim.size);
        sizes.fold(results[0].elements().saturating_mul(2), u64::saturating_mul)
    }
}
