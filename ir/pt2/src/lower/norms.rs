//! Norms of rows: as ops, or as the mean square, its root and a product.

use super::{Data, Form, Lowering};
use crate::graph::{RecordedNode, ValueId};
use crate::program::{Action, Argument, Use, View};

impl<'a> Lowering<'a> {
    /// `aten.layer_norm`, also with its statistics as `aten.native_layer_norm`, and `aten.rms_norm`
    pub(super) fn norm(&mut self, node: &'a RecordedNode) -> Result<Form, String> {
        let x = self.argument(node, "input")?;
        let is_centred = node.family() != "aten.rms_norm";
        let call = self.call(node);
        let eps = call.number_or("eps", if is_centred { 1e-5 } else { f64::from(f32::EPSILON) })?;
        if call.ints("normalized_shape")?.len() != 1 {
            return Err("a norm of several dims is not supported".to_string());
        }
        let weight = |name: &str| node.arg(name).map(|_| self.argument(node, name)).transpose();
        let (gain, bias) = (weight("weight")?, weight("bias")?);
        if !is_centred {
            return match gain {
                Some(gain) => self.rms_norm(x, gain, eps).map(Form::Data),
                None => Ok(Form::Normed { x, eps }),
            };
        }
        let (Some(gain), Some(bias)) = (gain, bias) else {
            return Err("a layer norm without gain or bias".to_string());
        };
        let x = self.data(x)?;
        let operands =
            vec![Argument::Var(x.var), self.along_rows(&x, gain, Use::Gain)?, self.along_rows(&x, bias, Use::Bias)?];
        let dims = self.program.vars[x.var.0].clone();
        let var = self.state(Action::LayerNorm { eps }, operands, dims);
        Ok(Form::Data(Data { var, axes: x.axes }))
    }

    /// A parameter along the last axis of a value.
    pub(super) fn along_rows(&mut self, x: &Data, weight: ValueId, usage: Use) -> Result<Argument, String> {
        let Form::Weight(view) = self.form(weight)? else { return Err("a gain or a bias is no parameter".to_string()) };
        let ([(atom, _)], Some(last)) = (view.dims.as_slice(), x.axes.last()) else {
            return Err("a gain or a bias is no vector".to_string());
        };
        self.atoms.unify(last, &[*atom])?;
        let View { tensor, first, dims, shift } = view;
        Ok(self.weight(View { tensor, first, dims, shift }, usage))
    }

    fn rms_norm(&mut self, x: ValueId, gain: ValueId, eps: f64) -> Result<Data, String> {
        let x = self.data(x)?;
        let gain = self.along_rows(&x, gain, Use::Gain)?;
        let dims = self.program.vars[x.var.0].clone();
        let var = self.state(Action::RmsNorm { eps }, vec![Argument::Var(x.var), gain], dims);
        Ok(Data { var, axes: x.axes })
    }

    /// The mean of squares of rows.
    pub(super) fn mean(&mut self, node: &'a RecordedNode) -> Result<Form, String> {
        let of = self.argument(node, "self")?;
        let Form::Square(x) = self.form(of)? else { return Err("a mean that is no part of a norm".to_string()) };
        let rank = self.axes(x)?.len();
        let call = self.call(node);
        let dims = call.ints("dim")?;
        if dims.len() != 1 || crate::eval::wrap(dims[0], rank)? + 1 != rank || !call.flag("keepdim") {
            return Err("a mean square of other dims than the last".to_string());
        }
        Ok(Form::MeanSquare { x, eps: 0.0 })
    }

    pub(super) fn rsqrt(&mut self, node: &'a RecordedNode) -> Result<Form, String> {
        let of = self.argument(node, "self")?;
        match self.form(of)? {
            Form::MeanSquare { x, eps } => Ok(Form::Deviation { x, eps }),
            _ => {
                let data = self.data(of)?;
                Ok(Form::Data(self.unary(ir::ops::UnaryKind::Rsqrt, &data)))
            }
        }
    }

    /// The products that are parts of a norm: rows by their deviation, or normed rows by a gain.
    pub(super) fn norm_product(&mut self, a: ValueId, b: ValueId) -> Result<Option<Form>, String> {
        for (x, other) in [(a, b), (b, a)] {
            match self.form(other)? {
                Form::Deviation { x: own, eps } if own == x => return Ok(Some(Form::Normed { x, eps })),
                Form::Normed { x: rows, eps } if matches!(self.form(x)?, Form::Weight(_)) => {
                    return Ok(Some(Form::Data(self.rms_norm(rows, x, eps)?)));
                }
                _ => {}
            }
        }
        Ok(None)
    }
}
