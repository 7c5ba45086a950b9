//! Elementwise ops of two operands.

use super::binary_table::BinaryKind;
use super::{Unary, UnaryKind};
use crate::ids::Value;
use crate::ops::{
    Attr, Attrs, Builder, Compare, CompareKind, Cotangents, Equation, Linear, OpClass, OpDef, OpFacts, Reduce, Rows,
    Select, Shapes,
};
use crate::types::Type;

/// An elementwise function of two operands.
#[derive(Clone, PartialEq, Debug)]
pub struct Binary {
    /// The function.
    pub kind: BinaryKind,
    /// The equation that broadcasts an operand with fewer dims; `None`: both have the same dims.
    pub equation: Option<Equation>,
}

/// The class of a function of two operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BinaryClass {
    /// Linear in both operands together.
    Sum,
    /// Linear in each operand alone.
    Product,
    /// Linear in the first operand.
    Quotient,
    /// One of the operands.
    Extremum,
    /// The cotangent of a function of one operand, linear in the second operand.
    Slope,
}

/// The cotangent of an operand; `None` if it is not needed.
pub(super) type Cotangent = Option<Value>;

/// The operands whose cotangents are needed.
#[derive(Clone, Copy)]
struct Needed {
    first: bool,
    second: bool,
}

/// The values from which gradients are built.
pub(super) struct Slopes<'b, 'a> {
    b: &'b mut Builder<'a>,
    op: &'b Binary,
    operands: [Value; 2],
    result: Value,
    /// The cotangent of the result.
    dy: Value,
    needed: Needed,
}

impl Slopes<'_, '_> {
    /// `kind(value, operand)` in the shape of the result, which the value has.
    fn with(&mut self, kind: BinaryKind, value: Value, operand: usize) -> Result<Value, String> {
        let spread = self.op.equation.as_ref().filter(|eq| eq.operands[operand] != eq.result);
        let equation = spread.map(|eq| Equation {
            operands: vec![eq.result.clone(), eq.operands[operand].clone()],
            result: eq.result.clone(),
        });
        self.b.one(Binary { kind, equation }, &[value, self.operands[operand]])
    }

    fn negative(&mut self, value: Value) -> Result<Value, String> {
        self.b.one(Unary(UnaryKind::Neg), &[value])
    }

    pub(super) fn none(&mut self) -> Result<[Cotangent; 2], String> {
        Err(format!("`{}` has no gradient", self.op.name()))
    }

    /// The cotangents of `a + b`, or of `a - b`.
    pub(super) fn sum(&mut self, is_difference: bool) -> Result<[Cotangent; 2], String> {
        let [first, second] = [self.needed.first, self.needed.second].map(|needed| needed.then_some(self.dy));
        let second = second.map(|dy| if is_difference { self.negative(dy) } else { Ok(dy) });
        Ok([first, second.transpose()?])
    }

    pub(super) fn product(&mut self) -> Result<[Cotangent; 2], String> {
        let first = if self.needed.first { Some(self.with(BinaryKind::Mul, self.dy, 1)?) } else { None };
        let second = if self.needed.second { Some(self.with(BinaryKind::Mul, self.dy, 0)?) } else { None };
        Ok([first, second])
    }

    /// The cotangents of `y = a / b`: `dy / b` and `-dy y / b`.
    pub(super) fn quotient(&mut self) -> Result<[Cotangent; 2], String> {
        let first = if self.needed.first { Some(self.with(BinaryKind::Div, self.dy, 1)?) } else { None };
        if !self.needed.second {
            return Ok([first, None]);
        }
        let ratio = self.with(BinaryKind::Div, self.result, 1)?;
        let product = self.b.one(Binary::of(BinaryKind::Mul), &[self.dy, ratio])?;
        Ok([first, Some(self.negative(product)?)])
    }

    /// The cotangent goes to the operand that is the result, the first one if both are.
    pub(super) fn extremum(&mut self, opposite: BinaryKind) -> Result<[Cotangent; 2], String> {
        // An operand of fewer dims in the result's shape: min(max(a, b), a).
        let spread = self.op.equation.is_some();
        let first = if spread { self.with(opposite, self.result, 0)? } else { self.operands[0] };
        let is_first = self.b.one(Compare(CompareKind::Equal), &[first, self.result])?;
        let mut part = |not| self.b.one(Select { not }, &[is_first, self.dy]);
        let first = if self.needed.first { Some(part(false)?) } else { None };
        let second = if self.needed.second { Some(part(true)?) } else { None };
        Ok([first, second])
    }
}

impl Binary {
    /// The names of the functions.
    pub const NAMES: &'static [&'static str] = BinaryKind::NAMES;

    /// On operands of the same dims.
    pub fn of(kind: BinaryKind) -> Binary {
        Binary { kind, equation: None }
    }

    /// On operands that an equation broadcasts.
    ///
    /// # Errors
    /// The text is not an equation of two operands, or the factors of its result are not those of the operands.
    pub fn spread(kind: BinaryKind, text: &str) -> Result<Binary, String> {
        let equation = Equation::parse(text)?;
        let summed = equation.operands.iter().flatten().any(|label| !equation.result.contains(label));
        if equation.operands.len() != 2 || summed || equation.free_labels().next().is_some() {
            return Err(format!("`{text}` must have two operands, and its result exactly their factors"));
        }
        Ok(Binary { kind, equation: Some(equation) })
    }

    pub(in crate::ops) fn parse(name: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<Binary, String> {
        let kind = BinaryKind::parse(name)?;
        match attrs.optional_string("eq")? {
            Some(text) => Binary::spread(kind, &text),
            None => Ok(Binary::of(kind)),
        }
    }

    /// The cotangent of one operand from one of the result's shape: summed over the factors that the operand lacks.
    fn gather(&self, b: &mut Builder<'_>, operand: usize, full: Value) -> Result<Value, String> {
        match &self.equation {
            Some(eq) if eq.operands[operand] != eq.result => {
                let back = Equation { operands: vec![eq.result.clone()], result: eq.operands[operand].clone() };
                b.one(Reduce::sum(back), &[full])
            }
            _ => Ok(full),
        }
    }
}

impl OpDef for Binary {
    fn name(&self) -> &'static str {
        self.kind.name()
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        self.equation.iter().map(|equation| ("eq", Attr::Str(equation.print()))).collect()
    }

    /// A result overwrites an operand only without broadcasting.
    fn facts(&self) -> OpFacts {
        let (class, linear, keeps_zeros): (OpClass, Linear, &[&[usize]]) = match self.kind.class() {
            BinaryClass::Sum => (OpClass::Other, Linear::From(0), &[&[0, 1]]),
            BinaryClass::Extremum => (OpClass::Other, Linear::No, &[&[0, 1]]),
            BinaryClass::Quotient => (OpClass::Other, Linear::Each(&[0]), &[]),
            BinaryClass::Product => (OpClass::Activation, Linear::Each(&[0, 1]), &[&[0], &[1]]),
            BinaryClass::Slope => (OpClass::Activation, Linear::Each(&[1]), &[&[1]]),
        };
        let spreads = self.equation.is_some();
        OpFacts {
            class,
            linear,
            keeps_zeros,
            is_sum: self.kind == BinaryKind::Add && !spreads,
            in_place: if spreads { &[] } else { &[0, 1] },
            ..OpFacts::default()
        }
    }

    fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        let [a, b] = operands else { return Err(format!("takes two operands, not {}", operands.len())) };
        if a.dtype != b.dtype || !a.dtype.is_float() {
            return Err("its operands must be floats of one type".to_string());
        }
        let dims = match &self.equation {
            Some(equation) => equation.result_dims(operands, &[])?,
            None if a.sizes() == b.sizes() => a.logical().dims,
            None => {
                return Err(format!("its operands are {:?} and {:?}; broadcast one with `eq`", a.sizes(), b.sizes()));
            }
        };
        Ok(vec![Type::new(a.dtype, dims)])
    }

    fn rule(&self, _: &[&Type], _: &[&Type]) -> String {
        self.equation.as_ref().map_or_else(|| "*, * -> *".to_string(), |equation| equation.rule("+"))
    }

    fn gradient(&self, b: &mut Builder<'_>, call: &Cotangents<'_>) -> Result<Vec<Option<Value>>, String> {
        let Some(dy) = call.given[0] else { return Ok(vec![None; 2]) };
        let operands = [call.operands[0], call.operands[1]];
        let needed = Needed { first: call.needed[0], second: call.needed[1] };
        let mut slopes = Slopes { b, op: self, operands, result: call.results[0], dy, needed };
        let full = self.kind.gradients(&mut slopes)?;
        let gathered = full.into_iter().enumerate();
        gathered.map(|(operand, full)| full.map(|full| self.gather(b, operand, full)).transpose()).collect()
    }

    /// With broadcasting, rows of the most leading dims of the result that each operand has in front, or lacks.
    fn rows(&self, _: &[&Type]) -> Option<Rows> {
        let Some(Equation { operands, result }) = &self.equation else { return Some(Rows::elements(2)) };
        let has = |operand: &Vec<String>, lead: &[String]| match operand.starts_with(lead) {
            true => Some(true),
            false => (!lead.iter().any(|letter| operand.contains(letter))).then_some(false),
        };
        let law = |dims: usize| {
            let operands = operands.iter().map(|operand| has(operand, &result[..dims])).collect::<Option<_>>()?;
            Some(Rows { dims: Some(dims), operands, sums: false, product: None })
        };
        (1..result.len()).rev().find_map(law)
    }
}
