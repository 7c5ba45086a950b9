//! Norms of rows: as ops, or as the mean square, its root and a product or a quotient.

use super::{Data, Form, Lowering};
use crate::graph::{RecordedNode, ValueId};
use crate::program::{Action, Argument, Use};
use crate::refusal::{Refusal, contradiction};
use ir::ops::{BinaryKind, UnaryKind};
use ir::types::PartialKind;

/// Rows and the statistic of a norm.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Rows {
    pub(super) x: ValueId,
    pub(super) eps: f64,
    /// Without their mean.
    pub(super) is_centred: bool,
}

impl<'a> Lowering<'a> {
    /// `aten.layer_norm`, also with its statistics as `aten.native_layer_norm`, and `aten.rms_norm`
    pub(super) fn norm(&mut self, node: &'a RecordedNode) -> Result<Form, Refusal> {
        let x = self.argument(node, "input")?;
        let is_centred = node.family() != "aten.rms_norm";
        let call = self.call(node);
        let eps = call.number_or("eps", if is_centred { 1e-5 } else { f64::from(f32::EPSILON) })?;
        if call.ints("normalized_shape")?.len() != 1 {
            return Err("a norm of several dims is not supported".into());
        }
        let weight = |name: &str| node.arg(name).map(|_| self.argument(node, name)).transpose();
        let (gain, bias) = (weight("weight")?, weight("bias")?);
        let rows = Rows { x, eps, is_centred };
        match (gain, bias) {
            (None, None) => Ok(Form::Normed(rows)),
            (gain, bias) => self.normed(rows, gain, bias).map(Form::Data),
        }
    }

    /// A parameter along the last axis of a value.
    pub(super) fn along_rows(&mut self, x: &Data, weight: ValueId, usage: Use) -> Result<Argument, Refusal> {
        let Form::Weight(view) = self.form(weight)? else { return Err("a gain or a bias is no parameter".into()) };
        let ([(atom, _)], Some(last)) = (view.dims.as_slice(), x.axes.last()) else {
            return Err("a gain or a bias is no vector".into());
        };
        self.atoms.unify(last, &[*atom])?;
        Ok(self.weight(view, usage))
    }

    /// The statement of a norm. What it lacks of gain and bias is ones and zeros.
    pub(super) fn normed(&mut self, rows: Rows, gain: Option<ValueId>, bias: Option<ValueId>) -> Result<Data, Refusal> {
        let Rows { x, eps, is_centred } = rows;
        let x = self.data(x)?;
        let x = self.with_rows(x);
        let row = x.axes.last().map(|axis| self.atoms.leaves(axis)).unwrap_or_default();
        let mut operands = vec![Argument::Var(x.var)];
        let sides = [(gain, Use::Gain, 1.0), (bias, Use::Bias, 0.0)];
        for (weight, usage, number) in sides.into_iter().take(if is_centred { 2 } else { 1 }) {
            operands.push(match weight {
                Some(weight) => self.along_rows(&x, weight, usage)?,
                None => Argument::Var(self.state(Action::Filled(number), vec![Argument::Var(x.var)], row.clone())),
            });
        }
        let action = if is_centred { Action::LayerNorm { eps } } else { Action::RmsNorm { eps } };
        let dims = self.program.vars[x.var.0].clone();
        let var = self.state(action, operands, dims);
        Ok(Data { var, axes: x.axes })
    }

    /// The mean of rows, of their squares, or of anything along an axis.
    pub(super) fn mean(&mut self, node: &'a RecordedNode) -> Result<Form, Refusal> {
        let of = self.argument(node, "self")?;
        let rank = self.axes(of)?.len();
        let call = self.call(node);
        let dims = call.ints("dim").unwrap_or_else(|_| (0..rank as i64).collect());
        let keeps = call.flag("keepdim");
        let is_of_rows = dims.len() == 1 && crate::eval::wrap(dims[0], rank)? + 1 == rank && keeps;
        match self.form(of)? {
            Form::Square(x) if is_of_rows => match self.form(x)? {
                Form::Centred(x) => Ok(Form::MeanSquare(Rows { x, eps: 0.0, is_centred: true })),
                _ => Ok(Form::MeanSquare(Rows { x, eps: 0.0, is_centred: false })),
            },
            _ if is_of_rows => Ok(Form::Mean(of)),
            _ => {
                let axes = dims.into_iter().map(|dim| crate::eval::wrap(dim, rank)).collect::<Result<Vec<_>, _>>()?;
                let x = self.data(of)?;
                self.averaged(&x, &axes, keeps).map(Form::Data)
            }
        }
    }

    /// The variance of rows, over all their elements.
    pub(super) fn variance(&mut self, node: &'a RecordedNode) -> Result<Form, Refusal> {
        let x = self.argument(node, "self")?;
        let rank = self.axes(x)?.len();
        let call = self.call(node);
        let dims = call.ints("dim")?;
        let is_whole = node.arg("unbiased").is_some_and(|_| !call.flag("unbiased"))
            || node.arg("correction").is_some_and(|_| call.number("correction") == Ok(0.0));
        if dims.len() != 1 || crate::eval::wrap(dims[0], rank)? + 1 != rank || !call.flag("keepdim") || !is_whole {
            return Err("a variance that is no mean square of rows".into());
        }
        Ok(Form::MeanSquare(Rows { x, eps: 0.0, is_centred: true }))
    }

    /// The mean along some axes.
    pub(super) fn averaged(&mut self, x: &Data, axes: &[usize], keeps: bool) -> Result<Data, Refusal> {
        let sum = self.reduced(x, axes, PartialKind::Sum, keeps)?;
        let count: u64 = axes.iter().map(|&axis| self.atoms.total(&x.axes[axis])).product();
        Ok(self.unary(UnaryKind::Scale(1.0 / count as f64), &sum))
    }

    /// The sum or the maximum along some axes.
    pub(super) fn reduced(
        &mut self,
        x: &Data,
        axes: &[usize],
        kind: PartialKind,
        keeps: bool,
    ) -> Result<Data, Refusal> {
        if axes.iter().any(|&axis| axis >= x.axes.len()) {
            return Err(contradiction("a scalar is reduced"));
        }
        let gone: Vec<_> = axes.iter().flat_map(|&axis| self.atoms.leaves(&x.axes[axis])).collect();
        let mut x = x.clone();
        if kind == PartialKind::Sum && gone.iter().any(|leaf| !self.dims(x.var).contains(leaf)) {
            x.var = self.laid(&x);
        }
        let kept: Vec<_> = self.dims(x.var).into_iter().filter(|leaf| !gone.contains(leaf)).collect();
        let var = self.state(Action::Reduce(kind), vec![Argument::Var(x.var)], kept);
        let mut left = Vec::new();
        for (place, axis) in x.axes.into_iter().enumerate() {
            match (axes.contains(&place), keeps) {
                (false, _) => left.push(axis),
                (true, true) => left.push(Vec::new()),
                (true, false) => {}
            }
        }
        Ok(Data { var, axes: left })
    }

    /// A root, its reciprocal, or a function of another value.
    pub(super) fn root(&mut self, node: &'a RecordedNode) -> Result<Form, Refusal> {
        let of = self.argument(node, "self")?;
        match (self.form(of)?, node.family()) {
            (Form::MeanSquare(rows), "aten.rsqrt") => Ok(Form::Deviation(rows)),
            (Form::MeanSquare(rows), "aten.sqrt") => Ok(Form::Root(rows)),
            (Form::Root(rows), "aten.reciprocal") => Ok(Form::Deviation(rows)),
            (_, family) => {
                let kind = match family {
                    "aten.rsqrt" => UnaryKind::Rsqrt,
                    "aten.sqrt" => UnaryKind::Sqrt,
                    _ => UnaryKind::Recip,
                };
                let data = self.data(of)?;
                Ok(Form::Data(self.unary(kind, &data)))
            }
        }
    }

    /// The products that are parts of a norm: rows by their deviation, or normed rows by a gain.
    pub(super) fn norm_product(&mut self, a: ValueId, b: ValueId) -> Result<Option<Form>, Refusal> {
        for (x, other) in [(a, b), (b, a)] {
            match self.form(other)? {
                Form::Deviation(rows) if self.is_rows(x, rows)? => return Ok(Some(Form::Normed(rows))),
                Form::Normed(rows) => match self.form(x)? {
                    Form::Weight(view) if view.dims.len() == 1 => {
                        return self.normed(rows, Some(x), None).map(|data| Some(Form::Data(data)));
                    }
                    _ => {}
                },
                _ => {}
            }
        }
        Ok(None)
    }

    /// The quotient of rows and the root of their mean square.
    pub(super) fn norm_quotient(&mut self, x: ValueId, by: ValueId) -> Result<Option<Form>, Refusal> {
        match self.form(by)? {
            Form::Root(rows) if self.is_rows(x, rows)? => Ok(Some(Form::Normed(rows))),
            _ => Ok(None),
        }
    }

    /// True if a value is the rows of a statistic, without their mean where it is.
    fn is_rows(&mut self, x: ValueId, rows: Rows) -> Result<bool, Refusal> {
        Ok(if rows.is_centred { matches!(self.form(x)?, Form::Centred(own) if own == rows.x) } else { x == rows.x })
    }

    /// The difference of rows and their mean.
    pub(super) fn centred(&mut self, x: ValueId, mean: ValueId) -> Result<Option<Form>, Refusal> {
        Ok(matches!(self.form(mean)?, Form::Mean(of) if of == x).then_some(Form::Centred(x)))
    }

    /// A statistic of rows as a value.
    pub(super) fn statistic(&mut self, form: Form) -> Result<Data, Refusal> {
        match form {
            Form::Mean(x) => {
                let x = self.data(x)?;
                self.averaged(&x, &[x.axes.len() - 1], true)
            }
            Form::Centred(x) => {
                let mean = self.statistic(Form::Mean(x))?;
                let x = self.data(x)?;
                self.combined(BinaryKind::Sub, &x, &mean)
            }
            Form::MeanSquare(Rows { x, eps, is_centred }) => {
                let x = if is_centred { self.statistic(Form::Centred(x))? } else { self.data(x)? };
                let square = self.unary(UnaryKind::Square, &x);
                let mean = self.averaged(&square, &[square.axes.len() - 1], true)?;
                Ok(if eps == 0.0 { mean } else { self.unary(UnaryKind::Shift(eps), &mean) })
            }
            Form::Root(rows) => {
                let square = self.statistic(Form::MeanSquare(rows))?;
                Ok(self.unary(UnaryKind::Sqrt, &square))
            }
            Form::Deviation(rows) => {
                let square = self.statistic(Form::MeanSquare(rows))?;
                Ok(self.unary(UnaryKind::Rsqrt, &square))
            }
            _ => Err("a statistic of a norm is unknown".into()),
        }
    }
}
