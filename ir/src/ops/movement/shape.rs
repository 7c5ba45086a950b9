//! `permute` and `reshape`: the same elements under other dims.

use super::regroup::{DimGroup, groups};
use crate::ids::Value;
use crate::ops::{Attr, Attrs, Builder, Cotangents, Equation, Linear, OpDef, OpFacts, Shapes, Work, operands};
use crate::types::{Dim, Type};

/// Another order of the dims: `permute(%x, eq="b s h -> s b h")`.
#[derive(Clone, PartialEq, Debug)]
pub struct Permute {
    /// One operand; the result has its factors in another order.
    pub equation: Equation,
}

impl Permute {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["permute"];

    /// From an equation as text.
    ///
    /// # Errors
    /// The text is not an equation of one operand whose factors the result has, all of them.
    pub fn new(text: &str) -> Result<Permute, String> {
        let equation = Equation::parse(text)?;
        let kept = equation.operands[0].iter().all(|label| equation.result.contains(label));
        if equation.operands.len() != 1 || !kept || equation.result.len() != equation.operands[0].len() {
            return Err(format!("`{text}` must have one operand, and its result the same factors"));
        }
        Ok(Permute { equation })
    }

    pub(in crate::ops) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<Permute, String> {
        Permute::new(&attrs.string("eq")?)
    }
}

impl OpDef for Permute {
    fn name(&self) -> &'static str {
        "permute"
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        vec![("eq", Attr::Str(self.equation.print()))]
    }

    fn facts(&self) -> OpFacts {
        OpFacts { linear: Linear::Each(&[0]), ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let dims = self.equation.result_dims(operands, &[])?;
        Ok(vec![Type::new(operands[0].dtype, dims)])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        self.equation.rule("+")
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        let (Some(dy), true) = (call.given[0], call.needed[0]) else { return Ok(vec![None]) };
        let (from, to) = (&self.equation.result, &self.equation.operands[0]);
        let equation = Equation { operands: vec![from.clone()], result: to.clone() };
        Ok(vec![Some(b.one(Permute { equation }, &[dy])?)])
    }

    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(0, operands, results)
    }
}

/// The same elements in the same order under other dims: merges adjacent dims, splits dims, adds and drops dims of one. The
/// stated result type gives the dims.
#[derive(Clone, PartialEq, Debug)]
pub struct Reshape {
    /// The dims of the result, logical.
    pub dims: Vec<Dim>,
}

impl Reshape {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["reshape"];

    pub(in crate::ops) fn parse(_: &str, _: &mut Attrs, shapes: &Shapes<'_>) -> Result<Reshape, String> {
        let result = shapes.results.first().ok_or("has no result")?;
        Ok(Reshape { dims: result.logical().dims })
    }
}

impl OpDef for Reshape {
    fn name(&self) -> &'static str {
        "reshape"
    }

    fn facts(&self) -> OpFacts {
        OpFacts { linear: Linear::Each(&[0]), is_view: true, ..OpFacts::default() }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [x] = operands::take(operands, "x")?;
        let (from, to) = (x.sizes(), Type::new(x.dtype, self.dims.clone()).sizes());
        let elements = |sizes: &[u64]| sizes.iter().try_fold(1u64, |all, &size| all.checked_mul(size));
        if elements(&from).is_none() || elements(&from) != elements(&to) {
            return Err(format!("{from:?} and {to:?} differ in their number of elements"));
        }
        let is_counted = |dims: &[Dim]| dims.iter().any(|dim| dim.count.is_some());
        let changes = |group: &&DimGroup| !group.is_one_dim();
        let groups = groups(&from, &to);
        let mut changed = groups.iter().filter(changes);
        if changed.any(|group| is_counted(&x.dims[group.from.clone()]) || is_counted(&self.dims[group.to.clone()])) {
            return Err("a dynamic dim can be neither merged nor split".to_string());
        }
        Ok(vec![Type::new(x.dtype, self.dims.clone())])
    }

    fn rule(&self, operands: &[&Type], results: &[&Type]) -> String {
        super::regroup::rule(&operands[0].sizes(), &results[0].sizes())
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        let (Some(dy), true) = (call.given[0], call.needed[0]) else { return Ok(vec![None]) };
        let dims = b.ty(call.operands[0]).logical().dims;
        Ok(vec![Some(b.one(Reshape { dims }, &[dy])?)])
    }

    fn work(&self, operands: &[&Type], results: &[&Type]) -> Work {
        Work::of(0, operands, results)
    }
}
