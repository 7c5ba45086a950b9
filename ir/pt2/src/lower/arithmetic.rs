//! Sums, products and functions of elements.

use super::mask::Hides;
use super::{Data, Form, Lowering};
use crate::atoms::Atom;
use crate::graph::{Arg, RecordedNode, ValueId};
use crate::program::{Action, Argument, Use};
use ir::ops::{BinaryKind, UnaryKind};

/// True for ops on each element.
pub(super) fn is_arithmetic(node: &RecordedNode) -> bool {
    const NAMES: [&str; 11] = [
        "aten.add",
        "aten.add_",
        "aten.sub",
        "aten.mul",
        "aten.mul_",
        "aten.div",
        "aten.div_",
        "aten.pow",
        "aten.gelu",
        "aten.neg",
        "aten.square",
    ];
    NAMES.contains(&node.family()) || function(node.family()).is_some()
}

/// The function of an op of one operand.
fn function(family: &str) -> Option<UnaryKind> {
    Some(match family {
        "aten.exp" => UnaryKind::Exp,
        "aten.log" => UnaryKind::Log,
        "aten.sqrt" => UnaryKind::Sqrt,
        "aten.reciprocal" => UnaryKind::Recip,
        "aten.tanh" => UnaryKind::Tanh,
        "aten.erf" => UnaryKind::Erf,
        "aten.sigmoid" => UnaryKind::Sigmoid,
        "aten.silu" | "aten.silu_" => UnaryKind::Silu,
        "aten.relu" | "aten.relu_" => UnaryKind::AtLeast(0.0),
        _ => return None,
    })
}

impl<'a> Lowering<'a> {
    pub(super) fn arithmetic(&mut self, node: &'a RecordedNode) -> Result<Form, String> {
        let x = self.argument(node, "self");
        if let Some(kind) = function(node.family()) {
            let x = x?;
            if kind == UnaryKind::Tanh
                && let Form::Scores(scores) = self.form(x)?
            {
                return scores.bounded().map(Form::Scores);
            }
            if kind == UnaryKind::Sigmoid {
                return Ok(Form::Sigmoid(x));
            }
            let x = self.data(x)?;
            return Ok(Form::Data(self.unary(kind, &x)));
        }
        match node.family() {
            "aten.neg" => Ok(Form::Negated(x?)),
            "aten.square" => Ok(Form::Square(x?)),
            "aten.gelu" => {
                let kind = if self.call(node).text("approximate") == Some("tanh") {
                    UnaryKind::Gelu
                } else {
                    UnaryKind::GeluErf
                };
                let x = self.data(x?)?;
                Ok(Form::Data(self.unary(kind, &x)))
            }
            "aten.pow" => self.power(node),
            _ => self.two(node),
        }
    }

    fn power(&mut self, node: &'a RecordedNode) -> Result<Form, String> {
        let x = self.argument(node, "self")?;
        match self.call(node).number("exponent")? {
            2.0 => Ok(Form::Square(x)),
            3.0 => {
                let x = self.data(x)?;
                let square = self.unary(UnaryKind::Square, &x);
                self.combined(BinaryKind::Mul, &square, &x).map(Form::Data)
            }
            exponent => Err(format!("the power {exponent} of activations is not supported")),
        }
    }

    /// A sum, a difference, a product or a quotient.
    fn two(&mut self, node: &'a RecordedNode) -> Result<Form, String> {
        let kind = match node.family() {
            "aten.add" | "aten.add_" => BinaryKind::Add,
            "aten.sub" => BinaryKind::Sub,
            "aten.mul" | "aten.mul_" => BinaryKind::Mul,
            _ => BinaryKind::Div,
        };
        let call = self.call(node);
        if call.number_or("alpha", 1.0)? != 1.0 || call.text("rounding_mode").is_some() {
            return Err("a sum with a factor, or a quotient that is rounded".to_string());
        }
        let mut sides = Vec::new();
        for name in ["self", "other"] {
            sides.push(match node.arg(name) {
                Some(Arg::Value(value)) if self.known(*value).is_none_or(|known| known.number().is_none()) => {
                    Side::Value(self.id(*value))
                }
                Some(Arg::Value(value)) => {
                    Side::Number(self.known(*value).and_then(|known| known.number()).unwrap_or(0.0))
                }
                _ => Side::Number(self.call(node).number(name)?),
            });
        }
        match *sides.as_slice() {
            [Side::Value(a), Side::Value(b)] => self.of_values(kind, a, b),
            [Side::Value(x), Side::Number(number)] => self.with_number(kind, x, number),
            [Side::Number(number), Side::Value(x)] => self.number_with(kind, number, x),
            _ => Err("two numbers are no activations".to_string()),
        }
    }

    /// `x + number`, and so on.
    fn with_number(&mut self, kind: BinaryKind, x: ValueId, number: f64) -> Result<Form, String> {
        let scale = match kind {
            BinaryKind::Mul => Some(number),
            BinaryKind::Div => Some(1.0 / number),
            _ => None,
        };
        let shift = if kind == BinaryKind::Sub { -number } else { number };
        match (self.form(x)?, scale) {
            (Form::MeanSquare { x, eps }, None) => Ok(Form::MeanSquare { x, eps: eps + shift }),
            (Form::Scores(scores), Some(by)) => Ok(Form::Scores(scores.scaled(by, kind == BinaryKind::Mul, number))),
            (Form::Weight(mut view), None) => {
                view.shift += shift;
                Ok(Form::Weight(view))
            }
            (Form::Scaled { data, by, node }, Some(scale)) => Ok(Form::Scaled { data, by: by * scale, node }),
            (_, Some(by)) => Ok(Form::Scaled { data: self.data(x)?, by, node: self.node }),
            (_, None) => {
                let x = self.data(x)?;
                Ok(Form::Data(self.unary(UnaryKind::Shift(shift), &x)))
            }
        }
    }

    /// `number + x`, and so on.
    fn number_with(&mut self, kind: BinaryKind, number: f64, x: ValueId) -> Result<Form, String> {
        match kind {
            BinaryKind::Add | BinaryKind::Mul => self.with_number(kind, x, number),
            BinaryKind::Sub => {
                let x = self.data(x)?;
                let negative = self.unary(UnaryKind::Neg, &x);
                Ok(Form::Data(self.unary(UnaryKind::Shift(number), &negative)))
            }
            _ => {
                let x = self.data(x)?;
                let inverse = self.unary(UnaryKind::Recip, &x);
                Ok(Form::Data(self.unary(UnaryKind::Scale(number), &inverse)))
            }
        }
    }

    fn of_values(&mut self, kind: BinaryKind, a: ValueId, b: ValueId) -> Result<Form, String> {
        for (x, table) in [(a, b), (b, a)] {
            if self.known(table).is_some() {
                return match (kind, self.form(x)?) {
                    (BinaryKind::Mul, Form::HalfTurn(x)) => Ok(Form::Turning { x, table, is_half: true }),
                    (BinaryKind::Mul, _) => Ok(Form::Turning { x, table, is_half: false }),
                    (BinaryKind::Add, Form::Scores(scores)) => {
                        scores.masked(Hides { value: table, is_set: false }).map(Form::Scores)
                    }
                    _ => Err("a constant tensor meets activations in an unknown way".to_string()),
                };
            }
        }
        let part = match kind {
            BinaryKind::Mul if a == b => Some(Form::Square(a)),
            BinaryKind::Mul => match self.norm_product(a, b)? {
                None => match self.silu(a, b)? {
                    None => self.weighted(a, b)?,
                    product => product,
                },
                product => product,
            },
            BinaryKind::Add => self.turned(a, b)?,
            _ => None,
        };
        if let Some(part) = part {
            return Ok(part);
        }
        for (x, weight) in [(a, b), (b, a)] {
            if matches!(self.form(weight)?, Form::Weight(_))
                && (x == a || kind != BinaryKind::Sub && kind != BinaryKind::Div)
            {
                let usage = if kind == BinaryKind::Mul { Use::Gain } else { Use::Bias };
                let x = self.data(x)?;
                let weight = self.along_rows(&x, weight, usage)?;
                let dims = self.program.vars[x.var.0].clone();
                let var = self.state(Action::Binary(kind), vec![Argument::Var(x.var), weight], dims);
                return Ok(Form::Data(Data { var, axes: x.axes }));
            }
        }
        let (a, b) = (self.data(a)?, self.data(b)?);
        self.combined(kind, &a, &b).map(Form::Data)
    }

    /// The product of a value and its sigmoid.
    fn silu(&mut self, a: ValueId, b: ValueId) -> Result<Option<Form>, String> {
        for (x, other) in [(a, b), (b, a)] {
            if matches!(self.form(other)?, Form::Sigmoid(of) if of == x) {
                let x = self.data(x)?;
                return Ok(Some(Form::Data(self.unary(UnaryKind::Silu, &x))));
            }
        }
        Ok(None)
    }

    /// A function of two values, of which one may lack dims.
    pub(super) fn combined(&mut self, kind: BinaryKind, a: &Data, b: &Data) -> Result<Data, String> {
        let rank = a.axes.len().max(b.axes.len());
        let axis = |data: &Data, d: usize| {
            (d + data.axes.len()).checked_sub(rank).map_or(Vec::new(), |d| data.axes[d].clone())
        };
        let mut axes = Vec::new();
        for d in 0..rank {
            let (left, right) = (axis(a, d), axis(b, d));
            if !left.is_empty() && !right.is_empty() {
                self.atoms.unify(&left, &right)?;
            }
            axes.push(if left.is_empty() { right } else { left });
        }
        let (left, right) = (self.dims(a.var), self.dims(b.var));
        let (mut a, mut b) = (a, b);
        let holds = |all: &[Atom], some: &[Atom]| some.iter().all(|atom| all.contains(atom));
        let dims = if holds(&left, &right) {
            left
        } else if holds(&right, &left) {
            // The value that has all dims is the first, where the order changes nothing.
            if matches!(kind, BinaryKind::Add | BinaryKind::Mul) {
                std::mem::swap(&mut a, &mut b);
            }
            right
        } else {
            return Err("two values each lack dims of the other".to_string());
        };
        let var = self.state(Action::Binary(kind), vec![Argument::Var(a.var), Argument::Var(b.var)], dims);
        Ok(Data { var, axes })
    }
}

/// A side of a sum or a product.
#[derive(Clone, Copy)]
enum Side {
    Value(ValueId),
    Number(f64),
}
