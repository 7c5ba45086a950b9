//! Comparisons, and values that they choose.

use super::{Data, Form, Lowering};
use crate::graph::{Arg, RecordedNode, ValueId};
use crate::program::{Action, Argument};
use crate::refusal::Refusal;
use ir::ops::{BinaryKind, CompareKind, UnaryKind};

/// The least number of the language's attributes: what a graph writes as minus infinity.
const LEAST: f64 = -1e30;

/// A side of an op: a value, or a number.
#[derive(Clone, Copy)]
pub(super) enum ValueOrNumber {
    Value(ValueId),
    Number(f64),
}

impl<'a> Lowering<'a> {
    /// An argument: a value, or a number if it is one everywhere.
    pub(super) fn side(&self, node: &RecordedNode, name: &str) -> Result<ValueOrNumber, Refusal> {
        Ok(match node.arg(name) {
            Some(Arg::Value(value)) => match self.known(*value).map(|known| known.number()) {
                Some(Some(number)) => ValueOrNumber::Number(number),
                _ => ValueOrNumber::Value(self.id(*value)),
            },
            _ => ValueOrNumber::Number(self.call(node).number(name)?),
        })
    }

    /// A side as a value, of the shape of another if it is a number.
    fn side_data(&mut self, side: ValueOrNumber, like: &Data) -> Result<Data, Refusal> {
        match side {
            ValueOrNumber::Value(value) => self.data(value),
            ValueOrNumber::Number(number) => {
                let zeros = self.unary(UnaryKind::Scale(0.0), like);
                let number = number.max(LEAST);
                Ok(if number == 0.0 { zeros } else { self.unary(UnaryKind::Shift(number), &zeros) })
            }
        }
    }

    /// A comparison of activations: 1 where it holds, else 0.
    pub(super) fn compared(&mut self, node: &'a RecordedNode) -> Result<Form, Refusal> {
        let sides = [self.side(node, "self")?, self.side(node, "other")?];
        let like =
            sides.iter().find_map(|side| if let ValueOrNumber::Value(value) = side { Some(*value) } else { None });
        let like = self.data(like.ok_or("two numbers are compared")?)?;
        let [a, b] = [self.side_data(sides[0], &like)?, self.side_data(sides[1], &like)?];
        let (kind, a, b) = match node.family() {
            "aten.gt" => (CompareKind::Less, b, a),
            "aten.lt" => (CompareKind::Less, a, b),
            "aten.ge" => (CompareKind::LessEqual, b, a),
            "aten.le" => (CompareKind::LessEqual, a, b),
            "aten.eq" => (CompareKind::Equal, a, b),
            other => return Err(format!("`{other}` of activations is not supported").into()),
        };
        let (vars, axes) = self.aligned(&[a, b])?;
        let dims = self.dims(vars[0]);
        let var = self.state(Action::Compare(kind), vars.into_iter().map(Argument::Var).collect(), dims);
        Ok(Form::Data(Data { var, axes }))
    }

    /// Values where a comparison holds, and others elsewhere.
    pub(super) fn selected(&mut self, mask: ValueId, sides: [ValueOrNumber; 2]) -> Result<Form, Refusal> {
        let mask = self.data(mask)?;
        let like =
            sides.iter().find_map(|side| if let ValueOrNumber::Value(value) = side { Some(*value) } else { None });
        let like = self.data(like.ok_or("two numbers are chosen from")?)?;
        let [a, b] = [self.side_data(sides[0], &like)?, self.side_data(sides[1], &like)?];
        let (vars, axes) = self.aligned(&[mask, a, b])?;
        let dims = self.dims(vars[0]);
        let var = self.state(Action::Select, vars.into_iter().map(Argument::Var).collect(), dims);
        Ok(Form::Data(Data { var, axes }))
    }

    /// The larger or the smaller of two values, or of a value and a number.
    pub(super) fn extremum(&mut self, node: &'a RecordedNode) -> Result<Form, Refusal> {
        let is_max = matches!(node.family(), "aten.max" | "aten.maximum");
        let sides = [self.side(node, "self")?, self.side(node, "other")?];
        let (ValueOrNumber::Value(a), b) = (match sides {
            [ValueOrNumber::Number(_), ValueOrNumber::Value(_)] => (sides[1], sides[0]),
            _ => (sides[0], sides[1]),
        }) else {
            return Err("two numbers are compared".into());
        };
        let a = self.data(a)?;
        match b {
            ValueOrNumber::Number(number) if is_max => Ok(Form::Data(self.clamped(&a, number, f64::INFINITY))),
            ValueOrNumber::Number(number) => Ok(Form::Data(self.clamped(&a, f64::NEG_INFINITY, number))),
            ValueOrNumber::Value(b) => {
                let b = self.data(b)?;
                if is_max {
                    return self.combined(BinaryKind::Max, &a, &b).map(Form::Data);
                }
                let [a, b] = [a, b].map(|side| self.unary(UnaryKind::Neg, &side));
                let least = self.combined(BinaryKind::Max, &a, &b)?;
                Ok(Form::Data(self.unary(UnaryKind::Neg, &least)))
            }
        }
    }
}
