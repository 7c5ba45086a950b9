//! `permute` and `reshape`: the same elements under other dims.

use super::{Attr, Attrs, Builder, Cotangents, Equation, OpDef, Shapes, operands};
use crate::ids::Value;
use crate::types::{Dim, Type};

/// Another order of the dims: `permute(%x, eq="b s h -> s b h")`.
#[derive(Clone, PartialEq, Debug)]
pub struct Permute {
    /// One operand; the result has its letters in another order.
    pub equation: Equation,
}

impl Permute {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["permute"];

    /// From an equation as text.
    ///
    /// # Errors
    /// The text is no equation of one operand whose letters the result has all.
    pub fn new(text: &str) -> Result<Permute, String> {
        let equation = Equation::parse(text)?;
        let kept = equation.operands[0].iter().all(|letter| equation.result.contains(letter));
        if equation.operands.len() != 1 || !kept || equation.result.len() != equation.operands[0].len() {
            return Err(format!("`{text}` must have one operand, and its result the same letters"));
        }
        Ok(Permute { equation })
    }

    pub(super) fn parse(_: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<Permute, String> {
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

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let dims = self.equation.result_dims(operands, &[])?;
        Ok(vec![Type::new(operands[0].dtype, dims)])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        self.equation.rule("+")
    }

    fn linear(&self, _: usize) -> Vec<Vec<usize>> {
        vec![vec![0]]
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        let (Some(dy), true) = (call.given[0], call.needed[0]) else { return Ok(vec![None]) };
        let (from, to) = (&self.equation.result, &self.equation.operands[0]);
        let equation = Equation { operands: vec![from.clone()], result: to.clone() };
        Ok(vec![Some(b.one(Permute { equation }, &[dy])?)])
    }

    fn flops(&self, _: &[&Type], _: &[&Type]) -> u64 {
        0
    }
}

/// Merges adjacent dims into one, or splits one into adjacent dims. The stated result type gives the dims.
#[derive(Clone, PartialEq, Debug)]
pub struct Reshape {
    /// The dims of the result, logical.
    pub dims: Vec<Dim>,
}

impl Reshape {
    /// The name.
    pub const NAMES: &'static [&'static str] = &["reshape"];

    pub(super) fn parse(_: &str, _: &mut Attrs, shapes: &Shapes<'_>) -> Result<Reshape, String> {
        let result = shapes.results.first().ok_or("has no result")?;
        Ok(Reshape { dims: result.logical().dims })
    }
}

/// Where `short` has one dim for several adjacent dims of `long`.
fn merged_at(long: &[Dim], short: &[Dim]) -> Option<usize> {
    let parts = (long.len() + 1).checked_sub(short.len()).filter(|&parts| parts > 1)?;
    let same = |a: &[Dim], b: &[Dim]| a.iter().map(|dim| dim.size).eq(b.iter().map(|dim| dim.size));
    (0..short.len()).find(|&at| {
        let product = long[at..at + parts].iter().try_fold(1u64, |product, dim| product.checked_mul(dim.size));
        same(&long[..at], &short[..at])
            && product == Some(short[at].size)
            && same(&long[at + parts..], &short[at + 1..])
    })
}

/// The letters of both sides, the several first: `m0 i0 i1 n0` and `m0 (i0 i1) n0`.
fn grouped_letters(long: &[Dim], short: &[Dim]) -> Option<(String, String)> {
    let at = merged_at(long, short)?;
    let parts = long.len() + 1 - short.len();
    let numbered = |letter: &str, count: usize| (0..count).map(|i| format!("{letter}{i}")).collect::<Vec<_>>();
    let (before, group, after) = (numbered("m", at), numbered("i", parts), numbered("n", short.len() - at - 1));
    let compound = vec![format!("({})", group.join(" "))];
    let line = |middle| [before.clone(), middle, after.clone()].concat().join(" ");
    Some((line(group), line(compound)))
}

impl OpDef for Reshape {
    fn name(&self) -> &'static str {
        "reshape"
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [x] = operands::take(operands, "x")?;
        let (long, short) = if x.rank() > self.dims.len() { (&x.dims, &self.dims) } else { (&self.dims, &x.dims) };
        let Some(at) = merged_at(long, short) else {
            let to: Vec<u64> = self.dims.iter().map(|dim| dim.size).collect();
            let from = x.sizes();
            return Err(format!("{from:?} to {to:?} neither merges adjacent dims into one nor splits one"));
        };
        let group = &long[at..long.len() + 1 + at - short.len()];
        if group.iter().chain([&short[at]]).any(|dim| dim.count.is_some()) {
            return Err("a dim whose size only the run knows can be neither merged nor split".to_string());
        }
        Ok(vec![Type::new(x.dtype, self.dims.clone())])
    }

    fn rule(&self, operands: &[&Type], _: &[&Type]) -> String {
        let from = &operands[0].dims;
        let merge = grouped_letters(from, &self.dims).map(|(long, short)| format!("{long} -> {short}"));
        let split = || grouped_letters(&self.dims, from).map(|(long, short)| format!("{short} -> {long}"));
        merge.or_else(split).unwrap_or_else(|| "*m! -> *n!".to_string())
    }

    fn linear(&self, _: usize) -> Vec<Vec<usize>> {
        vec![vec![0]]
    }

    fn is_view(&self) -> bool {
        true
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        let (Some(dy), true) = (call.given[0], call.needed[0]) else { return Ok(vec![None]) };
        let dims = b.ty(call.operands[0]).logical().dims;
        Ok(vec![Some(b.one(Reshape { dims }, &[dy])?)])
    }

    fn flops(&self, _: &[&Type], _: &[&Type]) -> u64 {
        0
    }
}
