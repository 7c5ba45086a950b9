//! Elementwise ops of one operand (`silu`, `exp`, `scale`) and of two (`add`, `mul`, `silu_grad`).
//!
//! There is no implicit broadcasting: two operands have the same dims, or the statement has `eq="b s h, h -> b s h"`.

use super::{Attr, Attrs, Builder, Cotangents, Equation, Linear, OpClass, OpDef, OpFacts, Rows, Shapes};
use crate::ids::Value;
use crate::ops::{Compare, CompareKind, Reduce, Select};
use crate::types::{DType, Type};

/// A function of one operand.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum UnaryKind {
    /// `-x`
    Neg,
    /// `e^x`
    Exp,
    /// `ln x`
    Log,
    /// Square root.
    Sqrt,
    /// `1 / sqrt x`
    Rsqrt,
    /// `1 / x`
    Recip,
    /// `x x`
    Square,
    /// Hyperbolic tangent.
    Tanh,
    /// The error function.
    Erf,
    /// Sine, of radians.
    Sin,
    /// Cosine, of radians.
    Cos,
    /// `1 / (1 + e^-x)`
    Sigmoid,
    /// `x / (1 + e^-x)`
    Silu,
    /// GELU, tanh form (Hendrycks and Gimpel 2016, the form of GPT-2).
    Gelu,
    /// GELU, exact form with the error function.
    GeluErf,
    /// `max(x, 0)^2` (So et al. 2021, Primer; Nemotron-4).
    ReluSquared,
    /// `c x`
    Scale(f64),
    /// `x + c`
    Shift(f64),
    /// `min(x, c)`; what is not a number stays so.
    AtMost(f64),
    /// `max(x, c)`; what is not a number stays so.
    AtLeast(f64),
    /// The largest integer that is not above x.
    Floor,
    /// To another float type, also from integers.
    Cast(DType),
}

/// An elementwise function of one operand.
#[derive(Clone, PartialEq, Debug)]
pub struct Unary(pub UnaryKind);

impl Unary {
    /// The names of the functions.
    pub const NAMES: &'static [&'static str] = &[
        "neg",
        "exp",
        "log",
        "sqrt",
        "rsqrt",
        "recip",
        "square",
        "silu",
        "gelu",
        "gelu_erf",
        "scale",
        "shift",
        "at_most",
        "cast",
        "relu_squared",
        "sigmoid",
        "tanh",
        "erf",
        "sin",
        "cos",
        "at_least",
        "floor",
    ];

    pub(super) fn parse(name: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<Unary, String> {
        Ok(Unary(match name {
            "neg" => UnaryKind::Neg,
            "exp" => UnaryKind::Exp,
            "log" => UnaryKind::Log,
            "sqrt" => UnaryKind::Sqrt,
            "rsqrt" => UnaryKind::Rsqrt,
            "recip" => UnaryKind::Recip,
            "square" => UnaryKind::Square,
            "tanh" => UnaryKind::Tanh,
            "erf" => UnaryKind::Erf,
            "sin" => UnaryKind::Sin,
            "cos" => UnaryKind::Cos,
            "floor" => UnaryKind::Floor,
            "sigmoid" => UnaryKind::Sigmoid,
            "silu" => UnaryKind::Silu,
            "gelu" => UnaryKind::Gelu,
            "gelu_erf" => UnaryKind::GeluErf,
            "relu_squared" => UnaryKind::ReluSquared,
            "scale" => UnaryKind::Scale(attrs.float("by")?),
            "shift" => UnaryKind::Shift(attrs.float("by")?),
            "at_most" => UnaryKind::AtMost(attrs.float("max")?),
            "at_least" => UnaryKind::AtLeast(attrs.float("min")?),
            _ => {
                let word = attrs.word("to")?;
                UnaryKind::Cast(DType::from_name(&word).ok_or_else(|| format!("there is no element type `{word}`"))?)
            }
        }))
    }

    /// True if `f(a + b) = f(a) + f(b)`.
    fn is_linear(&self) -> bool {
        matches!(self.0, UnaryKind::Neg | UnaryKind::Scale(_) | UnaryKind::Cast(_))
    }

    /// True if the function is 0 at 0.
    fn keeps_zeros(&self) -> bool {
        match self.0 {
            UnaryKind::Neg
            | UnaryKind::Sqrt
            | UnaryKind::Square
            | UnaryKind::Tanh
            | UnaryKind::Erf
            | UnaryKind::Sin
            | UnaryKind::Silu
            | UnaryKind::Gelu
            | UnaryKind::GeluErf
            | UnaryKind::ReluSquared
            | UnaryKind::Scale(_)
            | UnaryKind::Floor
            | UnaryKind::Cast(_) => true,
            UnaryKind::AtMost(max) => max >= 0.0,
            UnaryKind::AtLeast(min) => min <= 0.0,
            _ => false,
        }
    }
}

impl OpDef for Unary {
    fn name(&self) -> &'static str {
        let place = match self.0 {
            UnaryKind::Neg => 0,
            UnaryKind::Exp => 1,
            UnaryKind::Log => 2,
            UnaryKind::Sqrt => 3,
            UnaryKind::Rsqrt => 4,
            UnaryKind::Recip => 5,
            UnaryKind::Square => 6,
            UnaryKind::Silu => 7,
            UnaryKind::Gelu => 8,
            UnaryKind::GeluErf => 9,
            UnaryKind::Scale(_) => 10,
            UnaryKind::Shift(_) => 11,
            UnaryKind::AtMost(_) => 12,
            UnaryKind::Cast(_) => 13,
            UnaryKind::ReluSquared => 14,
            UnaryKind::Sigmoid => 15,
            UnaryKind::Tanh => 16,
            UnaryKind::Erf => 17,
            UnaryKind::Sin => 18,
            UnaryKind::Cos => 19,
            UnaryKind::AtLeast(_) => 20,
            UnaryKind::Floor => 21,
        };
        Unary::NAMES[place]
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        match self.0 {
            UnaryKind::Scale(by) | UnaryKind::Shift(by) => vec![("by", Attr::Float(by))],
            UnaryKind::AtMost(max) => vec![("max", Attr::Float(max))],
            UnaryKind::AtLeast(min) => vec![("min", Attr::Float(min))],
            UnaryKind::Cast(to) => vec![("to", Attr::Word(to.name().to_string()))],
            _ => Vec::new(),
        }
    }

    /// A cast has a result of another element type, so it does not overwrite its operand.
    fn facts(&self) -> OpFacts {
        let is_cast = matches!(self.0, UnaryKind::Cast(_));
        OpFacts {
            class: if is_cast { OpClass::Other } else { OpClass::Activation },
            linear: if self.is_linear() { Linear::Each(&[0]) } else { Linear::No },
            in_place: if is_cast { &[] } else { &[0] },
            keeps_zeros: if self.keeps_zeros() { &[&[0]] } else { &[] },
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
        let mut unary = |kind, v| b.one(Unary(kind), &[v]);
        let dx = match self.0 {
            UnaryKind::Neg => unary(UnaryKind::Neg, dy)?,
            UnaryKind::Scale(by) => unary(UnaryKind::Scale(by), dy)?,
            UnaryKind::Shift(_) => dy,
            UnaryKind::Cast(_) => {
                let from = b.ty(x).dtype;
                b.one(Unary(UnaryKind::Cast(from)), &[dy])?
            }
            UnaryKind::Exp => b.one(Binary::of(BinaryKind::Mul), &[dy, y])?,
            UnaryKind::Log => b.one(Binary::of(BinaryKind::Div), &[dy, x])?,
            // d sqrt(x) = dy / (2 sqrt(x))
            UnaryKind::Sqrt => {
                let half = unary(UnaryKind::Scale(0.5), dy)?;
                b.one(Binary::of(BinaryKind::Div), &[half, y])?
            }
            // d x^(-1/2) = -dy y / (2 x)
            UnaryKind::Rsqrt => {
                let half = unary(UnaryKind::Scale(-0.5), dy)?;
                let ratio = b.one(Binary::of(BinaryKind::Div), &[y, x])?;
                b.one(Binary::of(BinaryKind::Mul), &[half, ratio])?
            }
            // d (1/x) = -dy y y: a square alone may overflow.
            UnaryKind::Recip => {
                let negative = unary(UnaryKind::Neg, dy)?;
                let once = b.one(Binary::of(BinaryKind::Mul), &[negative, y])?;
                b.one(Binary::of(BinaryKind::Mul), &[once, y])?
            }
            UnaryKind::Square => {
                let double = unary(UnaryKind::Scale(2.0), dy)?;
                b.one(Binary::of(BinaryKind::Mul), &[double, x])?
            }
            // dy (1 - y^2), without a difference of 1 and a number near it.
            UnaryKind::Tanh => {
                let once = b.one(Binary::of(BinaryKind::Mul), &[dy, y])?;
                let twice = b.one(Binary::of(BinaryKind::Mul), &[once, y])?;
                b.one(Binary::of(BinaryKind::Sub), &[dy, twice])?
            }
            // dy 2 / sqrt(pi) e^(-x^2)
            UnaryKind::Erf => {
                let square = unary(UnaryKind::Square, x)?;
                let negative = unary(UnaryKind::Neg, square)?;
                let bell = unary(UnaryKind::Exp, negative)?;
                let scaled = unary(UnaryKind::Scale(std::f64::consts::FRAC_2_SQRT_PI), bell)?;
                b.one(Binary::of(BinaryKind::Mul), &[dy, scaled])?
            }
            UnaryKind::Sin => {
                let slope = unary(UnaryKind::Cos, x)?;
                b.one(Binary::of(BinaryKind::Mul), &[dy, slope])?
            }
            UnaryKind::Cos => {
                let sine = unary(UnaryKind::Sin, x)?;
                let slope = unary(UnaryKind::Neg, sine)?;
                b.one(Binary::of(BinaryKind::Mul), &[dy, slope])?
            }
            UnaryKind::Floor => unary(UnaryKind::Scale(0.0), dy)?,
            UnaryKind::Sigmoid => b.one(Binary::of(BinaryKind::SigmoidGrad), &[y, dy])?,
            UnaryKind::Silu => b.one(Binary::of(BinaryKind::SiluGrad), &[x, dy])?,
            UnaryKind::Gelu => b.one(Binary::of(BinaryKind::GeluGrad), &[x, dy])?,
            UnaryKind::GeluErf => b.one(Binary::of(BinaryKind::GeluErfGrad), &[x, dy])?,
            UnaryKind::ReluSquared => b.one(Binary::of(BinaryKind::ReluSquaredGrad), &[x, dy])?,
            // Where the bound does not change x.
            UnaryKind::AtMost(_) | UnaryKind::AtLeast(_) => {
                let stays = b.one(Compare(CompareKind::Equal), &[x, y])?;
                b.one(Select { not: false }, &[stays, dy])?
            }
        };
        Ok(vec![Some(dx)])
    }

    fn rows(&self, _: &[&Type]) -> Option<Rows> {
        Some(Rows::elements(1))
    }
}

/// A function of two operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BinaryKind {
    /// `a + b`
    Add,
    /// `a - b`
    Sub,
    /// `a b`
    Mul,
    /// `a / b`
    Div,
    /// `max(a, b)`
    Max,
    /// `min(a, b)`
    Min,
    /// Cotangent of `sigmoid` from its result and dy.
    SigmoidGrad,
    /// Cotangent of `silu` from (x, dy).
    SiluGrad,
    /// Cotangent of `gelu` from (x, dy).
    GeluGrad,
    /// Cotangent of `gelu_erf` from (x, dy).
    GeluErfGrad,
    /// Cotangent of `relu_squared` from (x, dy).
    ReluSquaredGrad,
}

/// An elementwise function of two operands.
#[derive(Clone, PartialEq, Debug)]
pub struct Binary {
    /// The function.
    pub kind: BinaryKind,
    /// The equation that broadcasts an operand with fewer dims; `None`: both have the same dims.
    pub equation: Option<Equation>,
}

impl Binary {
    /// The names of the functions.
    pub const NAMES: &'static [&'static str] = &[
        "add",
        "sub",
        "mul",
        "div",
        "max",
        "silu_grad",
        "gelu_grad",
        "gelu_erf_grad",
        "relu_squared_grad",
        "sigmoid_grad",
        "min",
    ];

    const KINDS: [BinaryKind; 11] = [
        BinaryKind::Add,
        BinaryKind::Sub,
        BinaryKind::Mul,
        BinaryKind::Div,
        BinaryKind::Max,
        BinaryKind::SiluGrad,
        BinaryKind::GeluGrad,
        BinaryKind::GeluErfGrad,
        BinaryKind::ReluSquaredGrad,
        BinaryKind::SigmoidGrad,
        BinaryKind::Min,
    ];

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

    pub(super) fn parse(name: &str, attrs: &mut Attrs, _: &Shapes<'_>) -> Result<Binary, String> {
        let kind = Binary::KINDS[Binary::NAMES.iter().position(|n| *n == name).unwrap_or(0)];
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

    /// `kind(dy, other)` in the result's shape.
    fn with_other(
        &self,
        b: &mut Builder<'_>,
        kind: BinaryKind,
        dy: Value,
        other: usize,
        value: Value,
    ) -> Result<Value, String> {
        let spread = self.equation.as_ref().filter(|eq| eq.operands[other] != eq.result);
        let equation = spread.map(|eq| Equation {
            operands: vec![eq.result.clone(), eq.operands[other].clone()],
            result: eq.result.clone(),
        });
        b.one(Binary { kind, equation }, &[dy, value])
    }
}

impl OpDef for Binary {
    fn name(&self) -> &'static str {
        Binary::NAMES[Binary::KINDS.iter().position(|kind| *kind == self.kind).unwrap_or(0)]
    }

    fn attrs(&self) -> Vec<(&'static str, Attr)> {
        self.equation.iter().map(|equation| ("eq", Attr::Str(equation.print()))).collect()
    }

    /// A result overwrites an operand only without broadcasting.
    fn facts(&self) -> OpFacts {
        let (class, linear, keeps_zeros): (OpClass, Linear, &[&[usize]]) = match self.kind {
            BinaryKind::Add | BinaryKind::Sub => (OpClass::Other, Linear::From(0), &[&[0, 1]]),
            BinaryKind::Max | BinaryKind::Min => (OpClass::Other, Linear::No, &[&[0, 1]]),
            BinaryKind::Div => (OpClass::Other, Linear::Each(&[0]), &[]),
            BinaryKind::Mul => (OpClass::Activation, Linear::Each(&[0, 1]), &[&[0], &[1]]),
            BinaryKind::SigmoidGrad
            | BinaryKind::SiluGrad
            | BinaryKind::GeluGrad
            | BinaryKind::GeluErfGrad
            | BinaryKind::ReluSquaredGrad => (OpClass::Activation, Linear::Each(&[1]), &[&[1]]),
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
        let (x, z) = (call.operands[0], call.operands[1]);
        let (mut dx, mut dz) = (None, None);
        match self.kind {
            BinaryKind::Add | BinaryKind::Sub => {
                dx = call.needed[0].then_some(dy);
                if call.needed[1] {
                    let negative = self.kind == BinaryKind::Sub;
                    dz = Some(if negative { b.one(Unary(UnaryKind::Neg), &[dy])? } else { dy });
                }
            }
            BinaryKind::Mul => {
                if call.needed[0] {
                    dx = Some(self.with_other(b, BinaryKind::Mul, dy, 1, z)?);
                }
                if call.needed[1] {
                    dz = Some(self.with_other(b, BinaryKind::Mul, dy, 0, x)?);
                }
            }
            // y = x / z: dx = dy / z, dz = -dy y / z
            BinaryKind::Div => {
                if call.needed[0] {
                    dx = Some(self.with_other(b, BinaryKind::Div, dy, 1, z)?);
                }
                if call.needed[1] {
                    let ratio = self.with_other(b, BinaryKind::Div, call.results[0], 1, z)?;
                    let product = b.one(Binary::of(BinaryKind::Mul), &[dy, ratio])?;
                    dz = Some(b.one(Unary(UnaryKind::Neg), &[product])?);
                }
            }
            // To the operand that is the result, the first one if both are.
            BinaryKind::Max | BinaryKind::Min => {
                let opposite = if self.kind == BinaryKind::Max { BinaryKind::Min } else { BinaryKind::Max };
                // An x of fewer dims in the result's shape: min(max(x, z), x).
                let spread = self.equation.is_some();
                let x = if spread { self.with_other(b, opposite, call.results[0], 0, x)? } else { x };
                let first = b.one(Compare(CompareKind::Equal), &[x, call.results[0]])?;
                let mut part = |not| b.one(Select { not }, &[first, dy]);
                dx = call.needed[0].then(|| part(false)).transpose()?;
                dz = call.needed[1].then(|| part(true)).transpose()?;
            }
            _ => return Err(format!("`{}` has no gradient", self.name())),
        }
        let gathered = |b: &mut Builder<'_>, operand, full: Option<Value>| -> Result<Option<Value>, String> {
            full.map(|full| self.gather(b, operand, full)).transpose()
        };
        Ok(vec![gathered(b, 0, dx)?, gathered(b, 1, dz)?])
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
