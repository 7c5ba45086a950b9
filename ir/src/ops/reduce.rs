//! `reduce_sum(%x, eq="b s h -> h")`, `reduce_max`: over the factors that the result lacks; and `broadcast`, its transpose.

use super::{
    Attr, Attrs, Binary, BinaryKind, Builder, Compare, CompareKind, Cotangents, Equation, Linear, OpDef, OpFacts, Rows,
    Select, Shapes, Unary, UnaryKind, Work,
};
use crate::ids::Value;
use crate::types::{Dim, PartialKind, Type};

/// A sum or a maximum over some dims.
#[derive(Clone, PartialEq, Debug)]
pub struct Reduce {
    /// Sum or maximum.
    pub kind: PartialKind,
    /// One operand; the factors that the result lacks are reduced. The order of the others does not change.
    pub equation: Equation,
}

impl Reduce {
    /// The names.
    pub const NAMES: &'static [&'static str] = &["reduce_sum", "reduce_max"];

    /// A sum.
    pub fn sum(equation: Equation) -> Reduce {
        Reduce { kind: PartialKind::Sum, equation }
    }

    /// From an equation as text.
    ///
    /// # Errors
    /// The text is not an equation of one operand, some of whose factors are the result in the same order.
    pub fn new(kind: PartialKind, text: &str) -> Result<Reduce, String> {
        let equation = Equation::parse(text)?;
        let kept: Vec<_> = equation.operands[0].iter().filter(|l| equation.result.contains(l)).cloned().collect();
        if equation.operands.len() != 1 || kept != equation.result {
            return Err(format!(
                "`{text}` must have one operand, and its result some of the factors in the same order"
            ));
        }
        Ok(Reduce { kind, equation })
    }

    pub(super) fn parse(name: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<Reduce, String> {
        let kind = if name == "reduce_sum" { PartialKind::Sum } else { PartialKind::Max };
        Reduce::new(kind, &attrs.string("eq")?)
    }
}

impl OpDef for Reduce {
    fn name(&self) -> &'static str {
        Reduce::NAMES[usize::from(self.kind == PartialKind::Max)]
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        vec![("eq", Attr::Str(self.equation.print()))]
    }

    fn facts(&self) -> OpFacts {
        let linear = if self.kind == PartialKind::Sum { Linear::Each(&[0]) } else { Linear::No };
        OpFacts { linear, ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let dims = self.equation.result_dims(operands, &[])?;
        if !operands[0].dtype.is_float() {
            return Err("its operand must be a float".to_string());
        }
        Ok(vec![Type::new(operands[0].dtype, dims)])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        self.equation.rule(if self.kind == PartialKind::Sum { "+" } else { "+max" })
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        let (Some(dy), true) = (call.given[0], call.needed[0]) else { return Ok(vec![None]) };
        let equation =
            Equation { operands: vec![self.equation.result.clone()], result: self.equation.operands[0].clone() };
        let free = equation.free_dims(b.ty(call.operands[0]));
        let back = Broadcast { equation, free };
        if self.kind == PartialKind::Sum {
            return Ok(vec![Some(b.one(back, &[dy])?)]);
        }
        // Elements that are the maximum share its cotangent evenly.
        let (x, max) = (call.operands[0], b.one(back.clone(), &[call.results[0]])?);
        let is_max = b.one(Compare(CompareKind::Equal), &[x, max])?;
        let ones = b.one(Unary(UnaryKind::Cast(b.ty(dy).dtype)), &[is_max])?;
        let count = b.one(Reduce::sum(self.equation.clone()), &[ones])?;
        let share = b.one(Binary::of(BinaryKind::Div), &[dy, count])?;
        let share = b.one(back, &[share])?;
        Ok(vec![Some(b.one(Select { not: false }, &[is_max, share])?)])
    }

    /// Sums over leading dims.
    fn rows(&self, operands: &[&Type]) -> Option<Rows> {
        let (from, to) = (&self.equation.operands[0], &self.equation.result);
        let is_sum = self.kind == PartialKind::Sum && !to.is_empty() && to.len() < from.len() && from.ends_with(to);
        is_sum.then(|| Rows::sums(operands[0].rank() - to.len(), 1))
    }

    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(operands[0].elements(), operands, results)
    }
}

/// Repeats a tensor along new dims: `broadcast(%x, eq="b s -> b s h")`. The stated result type gives their sizes.
#[derive(Clone, PartialEq, Debug)]
pub struct Broadcast {
    /// One operand; the result has its factors in the same order, and new ones.
    pub equation: Equation,
    /// The added dims, in order.
    pub free: Vec<Dim>,
}

impl Broadcast {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["broadcast"];

    pub(super) fn parse(_: &str, attrs: &mut Attrs, shapes: &Shapes<'_>) -> Result<Broadcast, String> {
        let text = attrs.string("eq")?;
        let equation = Equation::parse(&text)?;
        let kept: Vec<_> = equation.result.iter().filter(|l| equation.operands[0].contains(l)).cloned().collect();
        if equation.operands.len() != 1 || kept != equation.operands[0] {
            return Err(format!("`{text}` must have one operand, and its result all of the factors in the same order"));
        }
        let result = shapes.results.first().ok_or("has no result")?;
        if result.rank() != equation.result.len() {
            return Err(format!(
                "the result has rank {}, the equation states {}",
                result.rank(),
                equation.result.len()
            ));
        }
        let free = equation.free_dims(result);
        Ok(Broadcast { equation, free })
    }
}

impl OpDef for Broadcast {
    fn name(&self) -> &'static str {
        "broadcast"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        vec![("eq", Attr::Str(self.equation.print()))]
    }

    fn facts(&self) -> OpFacts {
        OpFacts { linear: Linear::Each(&[0]), ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let dims = self.equation.result_dims(operands, &self.free)?;
        Ok(vec![Type::new(operands[0].dtype, dims)])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        self.equation.rule("+")
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        let (Some(dy), true) = (call.given[0], call.needed[0]) else { return Ok(vec![None]) };
        let equation =
            Equation { operands: vec![self.equation.result.clone()], result: self.equation.operands[0].clone() };
        Ok(vec![Some(b.one(Reduce::sum(equation), &[dy])?)])
    }

    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(0, operands, results)
    }
}
