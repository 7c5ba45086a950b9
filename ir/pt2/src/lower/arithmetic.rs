//! Sums, products and functions of elements.

use super::choose::ValueOrNumber;
use super::functions::{function, is_composed};
use super::norms::Rows;
use super::{Data, Form, Lowering};
use crate::atoms::{Atom, Axis};
use crate::graph::{RecordedNode, ValueId};
use crate::program::{Action, Argument, Use, Var};
use crate::refusal::Refusal;
use ir::ops::{BinaryKind, UnaryKind};

/// True for ops on each element.
pub(super) fn is_arithmetic(node: &RecordedNode) -> bool {
    const NAMES: [&str; 7] = ["aten.add", "aten.sub", "aten.rsub", "aten.mul", "aten.div", "aten.pow", "aten.neg"];
    let family = node.family();
    NAMES.contains(&family.trim_end_matches('_')) || function(family).is_some() || is_composed(family)
}

impl<'a> Lowering<'a> {
    pub(super) fn arithmetic(&mut self, node: &'a RecordedNode) -> Result<Form, Refusal> {
        if is_composed(node.family()) {
            return self.composed(node);
        }
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
        match node.family().trim_end_matches('_') {
            "aten.neg" => Ok(Form::Negated(x?)),
            "aten.pow" => self.power(node),
            _ => self.two(node),
        }
    }

    fn power(&mut self, node: &'a RecordedNode) -> Result<Form, Refusal> {
        let x = self.argument(node, "self")?;
        match (self.call(node).number("exponent")?, self.form(x)?) {
            (2.0, _) => Ok(Form::Square(x)),
            (-0.5, Form::MeanSquare(rows)) => Ok(Form::Deviation(rows)),
            (0.5, Form::MeanSquare(rows)) => Ok(Form::Root(rows)),
            (exponent, _) => {
                let x = self.data(x)?;
                let kinds: &[UnaryKind] = match exponent {
                    1.0 => &[],
                    0.5 => &[UnaryKind::Sqrt],
                    -0.5 => &[UnaryKind::Rsqrt],
                    -1.0 => &[UnaryKind::Recip],
                    3.0 => {
                        let square = self.unary(UnaryKind::Square, &x);
                        return self.combined(BinaryKind::Mul, &square, &x).map(Form::Data);
                    }
                    4.0 => &[UnaryKind::Square, UnaryKind::Square],
                    _ => return Err(format!("the power {exponent} of activations is not supported").into()),
                };
                Ok(Form::Data(self.chain(&x, kinds)))
            }
        }
    }

    /// A sum, a difference, a product or a quotient.
    fn two(&mut self, node: &'a RecordedNode) -> Result<Form, Refusal> {
        let (kind, names) = match node.family().trim_end_matches('_') {
            "aten.add" => (BinaryKind::Add, ["self", "other"]),
            "aten.sub" => (BinaryKind::Sub, ["self", "other"]),
            "aten.rsub" => (BinaryKind::Sub, ["other", "self"]),
            "aten.mul" => (BinaryKind::Mul, ["self", "other"]),
            _ => (BinaryKind::Div, ["self", "other"]),
        };
        let call = self.call(node);
        if call.number_or("alpha", 1.0)? != 1.0 || call.text("rounding_mode").is_some() {
            return Err("a sum with a factor, or a quotient that is rounded".into());
        }
        if kind == BinaryKind::Add
            && let Some(biased) = self.biased(node)?
        {
            return Ok(biased);
        }
        match names.map(|name| self.side(node, name)) {
            [Ok(ValueOrNumber::Value(a)), Ok(ValueOrNumber::Value(b))] => self.of_values(kind, a, b),
            [Ok(ValueOrNumber::Value(x)), Ok(ValueOrNumber::Number(number))] => self.with_number(kind, x, number),
            [Ok(ValueOrNumber::Number(number)), Ok(ValueOrNumber::Value(x))] => self.number_with(kind, number, x),
            [Err(why), _] | [_, Err(why)] => Err(why),
            _ => Err("two numbers are no activations".into()),
        }
    }

    /// `x + number`, and so on.
    fn with_number(&mut self, kind: BinaryKind, x: ValueId, number: f64) -> Result<Form, Refusal> {
        let scale = match kind {
            BinaryKind::Mul => Some(number),
            BinaryKind::Div => Some(1.0 / number),
            _ => None,
        };
        let shift = if kind == BinaryKind::Sub { -number } else { number };
        if scale == Some(1.0) || scale.is_none() && shift == 0.0 {
            return self.form(x);
        }
        match (self.form(x)?, scale) {
            (Form::MeanSquare(rows), None) => Ok(Form::MeanSquare(Rows { eps: rows.eps + shift, ..rows })),
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
    fn number_with(&mut self, kind: BinaryKind, number: f64, x: ValueId) -> Result<Form, Refusal> {
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

    fn of_values(&mut self, kind: BinaryKind, a: ValueId, b: ValueId) -> Result<Form, Refusal> {
        for (x, table) in [(a, b), (b, a)] {
            if self.known(table).is_none() && self.known[self.id(table).index()].is_none() {
                continue;
            }
            if let (BinaryKind::Add, Form::Scores(scores)) = (kind, self.form(x)?) {
                return self.scores_plus(scores, table).map(Form::Scores);
            }
            if kind == BinaryKind::Mul
                && let Some(mixed) = self.mixed_by_table(x, table)?
            {
                return Ok(mixed);
            }
            let Some(weight) = self.constant(table)? else {
                return Err("a constant tensor meets activations in an unknown way".into());
            };
            let order = if x == a { Order::Behind } else { Order::Before };
            return self.with_weight(kind, x, &Form::Weight(weight), order);
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
            BinaryKind::Div => self.norm_quotient(a, b)?,
            BinaryKind::Add => match self.mixed_sum(a, b, 1.0)? {
                None => self.with_row_biases(a, b)?,
                sum => sum,
            },
            BinaryKind::Sub => match self.mixed_sum(a, b, -1.0)? {
                None => match self.centred(a, b)? {
                    None => self.less_maximum(a, b)?,
                    difference => difference,
                },
                difference => difference,
            },
            _ => None,
        };
        if let Some(part) = part {
            return Ok(part);
        }
        for (x, weight, order) in [(a, b, Order::Behind), (b, a, Order::Before)] {
            let form = self.form(weight)?;
            if matches!(form, Form::Weight(_)) {
                return self.with_weight(kind, x, &form, order);
            }
        }
        let (a, b) = (self.data(a)?, self.data(b)?);
        self.combined(kind, &a, &b).map(Form::Data)
    }

    /// A function of a value and a parameter.
    fn with_weight(&mut self, kind: BinaryKind, x: ValueId, weight: &Form, order: Order) -> Result<Form, Refusal> {
        let Form::Weight(view) = weight else { return Err("a parameter is none".into()) };
        let x = self.data(x)?;
        let width = x.axes.last().map_or(1, |last| self.atoms.total(last));
        let is_row = view.dims.len() == 1 && self.atoms.size(view.dims[0].0) == width && width > 1;
        let commutes = matches!(kind, BinaryKind::Add | BinaryKind::Mul);
        if is_row && (order == Order::Behind || commutes) {
            let x = self.with_rows(x);
            let last = x.axes.last().cloned().unwrap_or_default();
            self.atoms.unify(&last, &[view.dims[0].0])?;
            let usage = if kind == BinaryKind::Mul { Use::Gain } else { Use::Bias };
            let weight = self.weight(view.clone(), usage);
            let dims = self.program.vars[x.var.0].clone();
            let var = self.state(Action::Binary(kind), vec![Argument::Var(x.var), weight], dims);
            return Ok(Form::Data(Data { var, axes: x.axes }));
        }
        let weight = self.parameter(view)?;
        match order {
            Order::Behind => self.combined(kind, &x, &weight).map(Form::Data),
            Order::Before => self.combined(kind, &weight, &x).map(Form::Data),
        }
    }

    /// The product of a value and its sigmoid.
    fn silu(&mut self, a: ValueId, b: ValueId) -> Result<Option<Form>, Refusal> {
        for (x, other) in [(a, b), (b, a)] {
            if matches!(self.form(other)?, Form::Sigmoid(of) if of == x) {
                let x = self.data(x)?;
                return Ok(Some(Form::Data(self.unary(UnaryKind::Silu, &x))));
            }
        }
        Ok(None)
    }

    /// A function of two values, of which one may lack dims.
    pub(super) fn combined(&mut self, kind: BinaryKind, a: &Data, b: &Data) -> Result<Data, Refusal> {
        let (mut a, mut b, axes) = self.paired(a, b)?;
        let (left, right) = (self.dims(a), self.dims(b));
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
            let more = right.iter().filter(|atom| !left.contains(atom));
            let dims: Vec<Atom> = left.iter().chain(more).copied().collect();
            a = self.with_dims(a, &dims);
            dims
        };
        if matches!(kind, BinaryKind::Sub | BinaryKind::Div | BinaryKind::Max) && self.dims(a) != dims {
            a = self.with_dims(a, &dims);
        }
        let var = self.state(Action::Binary(kind), vec![Argument::Var(a), Argument::Var(b)], dims);
        Ok(Data { var, axes })
    }

    /// Two values whose axes are the same, where one may lack dims of the other.
    pub(super) fn paired(&mut self, a: &Data, b: &Data) -> Result<(Var, Var, Vec<Axis>), Refusal> {
        let rank = a.axes.len().max(b.axes.len());
        let axis = |data: &Data, d: usize| {
            (d + data.axes.len()).checked_sub(rank).map_or(Vec::new(), |d| data.axes[d].clone())
        };
        let (mut left_var, mut right_var, mut axes) = (a.var, b.var, Vec::new());
        for d in 0..rank {
            let (left, right) = (axis(a, d), axis(b, d));
            let (m, n) = (self.atoms.total(&left), self.atoms.total(&right));
            axes.push(if m == 1 && n > 1 {
                left_var = self.without(left_var, &left);
                right
            } else if n == 1 && m > 1 {
                right_var = self.without(right_var, &right);
                left
            } else if left.is_empty() {
                right
            } else {
                if !right.is_empty() {
                    self.atoms.unify(&left, &right)?;
                }
                let own = self.dims(left_var);
                let is_repeated = !right.is_empty() && self.atoms.leaves(&left).iter().all(|leaf| !own.contains(leaf));
                if is_repeated { right } else { left }
            });
        }
        Ok((left_var, right_var, axes))
    }

    /// A value without dims of one element.
    pub(super) fn without(&mut self, var: Var, axis: &[Atom]) -> Var {
        let (leaves, own) = (self.atoms.leaves(axis), self.dims(var));
        let rest: Vec<Atom> = own.iter().copied().filter(|leaf| !leaves.contains(leaf)).collect();
        if rest.len() == own.len() { var } else { self.reshaped(var, rest) }
    }
}

/// The place of a parameter in a function of two operands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Before,
    Behind,
}
