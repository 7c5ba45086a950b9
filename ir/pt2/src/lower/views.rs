//! Views: axes that are split, joined, moved, added or repeated.

use super::{Data, Form, Lowering};
use crate::atoms::Axis;
use crate::eval::order;
use crate::graph::{RecordedNode, ValueId};
use crate::refusal::{Refusal, contradiction};

/// True for ops that only arrange elements.
pub(super) fn is_view(node: &RecordedNode) -> bool {
    const NAMES: [&str; 13] = [
        "aten.view",
        "aten.reshape",
        "aten._unsafe_view",
        "aten.unflatten",
        "aten.flatten",
        "aten.unsqueeze",
        "aten.squeeze",
        "aten.expand",
        "aten.transpose",
        "aten.t",
        "aten.numpy_T",
        "aten.permute",
        "aten.repeat_interleave",
    ];
    NAMES.contains(&node.family())
}

impl<'a> Lowering<'a> {
    pub(super) fn view(&mut self, node: &'a RecordedNode) -> Result<Form, Refusal> {
        let x = self.argument(node, "self")?;
        if let Form::Weight(view) = self.form(x)?
            && let Some(form) = self.viewed_weight(node, view)?
        {
            return Ok(form);
        }
        if let Some(form) = self.kept(node, x)? {
            return Ok(form);
        }
        match self.unparted(x)? {
            Form::Weighted(weighted) => self.arranged_rows(node, weighted),
            Form::RowWeights { weights, choice, is_column: false }
                if node.family() == "aten.unsqueeze" && self.call(node).dim("dim", 0, 2)? == 1 =>
            {
                Ok(Form::RowWeights { weights, choice, is_column: true })
            }
            Form::Scaled { data, by, node: place } => {
                let axes = self.arranged(node, data.axes, false)?;
                Ok(Form::Scaled { data: Data { var: data.var, axes }, by, node: place })
            }
            Form::Tokens { input, axes } => Ok(Form::Tokens { input, axes: self.arranged(node, axes, false)? }),
            Form::Linear(mut linear) => {
                linear.axes = self.arranged(node, linear.axes, true)?;
                Ok(Form::Linear(linear))
            }
            Form::Mix(mix) => match self.mixed_view(node, &mix)? {
                Some(form) => Ok(form),
                None => {
                    self.settled(x)?;
                    self.view(node)
                }
            },
            Form::Adjacent(Data { var, axes }, halved) => {
                let row = axes.last().map(|axis| self.atoms.leaves(axis));
                let arranged = self.arranged(node, axes, false)?;
                if arranged.last().map(|axis| self.atoms.leaves(axis)) == row {
                    return Ok(Form::Adjacent(Data { var, axes: arranged }, halved));
                }
                let Data { var, axes } = self.data(x)?;
                Ok(Form::Data(Data { var, axes: self.arranged(node, axes, false)? }))
            }
            _ => {
                let Data { var, axes } = self.data(x)?;
                let axes = self.arranged(node, axes, false)?;
                // Dims of one element that are repeated now.
                let (own, kept) = (self.dims(var), self.atoms.leaves(&axes.concat()));
                let gone: Vec<_> = own.into_iter().filter(|leaf| !kept.contains(leaf)).collect();
                Ok(Form::Data(Data { var: self.without(var, &gone), axes }))
            }
        }
    }

    /// A parameter with its dims in another order, or without dims of one element.
    fn viewed_weight(
        &mut self,
        node: &'a RecordedNode,
        mut view: crate::program::View,
    ) -> Result<Option<Form>, Refusal> {
        match node.family() {
            "aten.t" | "aten.numpy_T" | "aten.transpose" | "aten.permute" => {
                let order = order(&self.call(node), view.dims.len())?;
                view.dims = order.into_iter().map(|dim| view.dims[dim]).collect();
                Ok(Some(Form::Weight(view)))
            }
            "aten.squeeze" => {
                let atoms = &self.atoms;
                match node.arg("dim") {
                    None => view.dims.retain(|&(atom, _)| atoms.size(atom) != 1),
                    Some(_) => {
                        let dim = crate::eval::only_dim(&self.call(node), view.dims.len())?;
                        if view.dims.get(dim).is_some_and(|&(atom, _)| atoms.size(atom) == 1) {
                            view.dims.remove(dim);
                        }
                    }
                }
                Ok(Some(Form::Weight(view)))
            }
            _ => Ok(None),
        }
    }

    /// The form of what a view leaves as it is: scores, whose batch and heads are joined or parted, and a matrix that is repeated for each
    /// sequence.
    fn kept(&mut self, node: &'a RecordedNode, x: ValueId) -> Result<Option<Form>, Refusal> {
        let name = if node.arg("shape").is_some() { "shape" } else { "size" };
        if !matches!(node.family(), "aten.view" | "aten.reshape" | "aten._unsafe_view" | "aten.expand") {
            return Ok(None);
        }
        let form = self.form(x)?;
        let inner = match &form {
            Form::Scores(_) | Form::Shares(_) | Form::Filled => [self.atoms.size(self.sequence); 2],
            Form::Weight(view) if view.dims.len() == 2 => [0, 1].map(|dim| self.atoms.size(view.dims[dim].0)),
            _ => return Ok(None),
        };
        let sizes = self.call(node).ints(name)?;
        let is_kept = sizes.len() > 2
            && sizes.iter().rev().zip(inner.iter().rev()).all(|(&size, &own)| size == -1 || size == own as i64);
        Ok(is_kept.then_some(form))
    }

    /// The form of a value; a part of a projection is a projection, and one of another value a value.
    pub(super) fn unparted(&mut self, x: ValueId) -> Result<Form, Refusal> {
        let Form::Part { of, range } = self.form(x)? else { return self.form(x) };
        match self.unparted(of)? {
            Form::Linear(linear) => {
                let last = linear.axes.len() - 1;
                if self.is_output(&linear, last) {
                    return self.part_of_product(&linear, last, range).map(Form::Linear);
                }
            }
            Form::Mix(_) => {
                if let Some(mix) = self.mixed(x)? {
                    return Ok(Form::Mix(mix));
                }
            }
            _ => {}
        }
        let data = self.data(of)?;
        let last = data.axes.len() - 1;
        self.part_of_data(&data, last, range).map(Form::Data)
    }

    /// The axes behind a view, of a product with a matrix or of another value.
    pub(super) fn arranged(
        &mut self,
        node: &'a RecordedNode,
        mut axes: Vec<Axis>,
        is_product: bool,
    ) -> Result<Vec<Axis>, Refusal> {
        let rank = axes.len();
        match node.family() {
            "aten.view" | "aten.reshape" | "aten._unsafe_view" => {
                let name = if node.arg("size").is_some() { "size" } else { "shape" };
                let count = self.atoms.total(&axes.concat());
                let sizes = crate::eval::viewed(&self.call(node).ints(name)?, count as usize)?;
                let sizes: Vec<u64> = sizes.into_iter().map(|size| size as u64).collect();
                return self.atoms.view(&axes, &sizes, is_product);
            }
            "aten.unflatten" => {
                let call = self.call(node);
                let dim = call.dim("dim", 0, rank)?;
                let own = self.atoms.total(axes.get(dim).ok_or(contradiction("a scalar is split"))?);
                let inner = crate::eval::viewed(&call.ints("sizes")?, own as usize)?;
                let mut sizes = self.axis_sizes(&axes);
                sizes.splice(dim..=dim, inner.into_iter().map(|size| size as u64));
                return self.atoms.view(&axes, &sizes, is_product);
            }
            "aten.flatten" => {
                let call = self.call(node);
                let (from, to) = (call.dim("start_dim", 0, rank)?, call.dim("end_dim", -1, rank)?);
                if from < to {
                    let joined = axes[from..=to].concat();
                    axes.splice(from..=to, [joined]);
                }
            }
            "aten.unsqueeze" => axes.insert(self.call(node).dim("dim", 0, rank + 1)?, Vec::new()),
            "aten.squeeze" => {
                let dim = crate::eval::only_dim(&self.call(node), rank)?;
                if axes.get(dim).is_some_and(|axis| self.atoms.total(axis) == 1) {
                    axes.remove(dim);
                }
            }
            "aten.expand" => return self.expanded(node, axes),
            "aten.transpose" | "aten.t" | "aten.numpy_T" | "aten.permute" => {
                let order = order(&self.call(node), rank)?;
                axes = order.into_iter().map(|dim| axes[dim].clone()).collect();
            }
            "aten.repeat_interleave" => {
                let call = self.call(node);
                let (dim, times) = (call.dim("dim", -1, rank)?, call.int("repeats")?);
                let times = u64::try_from(times).map_err(|_| contradiction("a negative number of repeats"))?;
                let spread = self.atoms.add_spread(times);
                axes.get_mut(dim).ok_or(contradiction("a scalar is repeated"))?.push(spread);
            }
            other => return Err(format!("`{other}` of activations is not supported").into()),
        }
        Ok(axes)
    }

    fn expanded(&mut self, node: &'a RecordedNode, axes: Vec<Axis>) -> Result<Vec<Axis>, Refusal> {
        let sizes = self.call(node).ints("size")?;
        let skipped =
            sizes.len().checked_sub(axes.len()).ok_or(contradiction("an expansion has fewer dims than its operand"))?;
        let axes = std::iter::repeat_n(Vec::new(), skipped).chain(axes);
        let mut expanded = Vec::new();
        for (axis, size) in axes.zip(sizes) {
            let own = self.atoms.total(&axis);
            expanded.push(match u64::try_from(size) {
                Err(_) => axis,
                Ok(size) if size == own => axis,
                Ok(size) if own == 1 => vec![self.atoms.add_spread(size)],
                Ok(size) => {
                    return Err(contradiction(format!("a dim of {own} elements is expanded to {size}")));
                }
            });
        }
        Ok(expanded)
    }
}
