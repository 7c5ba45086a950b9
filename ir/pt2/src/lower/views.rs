//! Views: axes that are split, joined, moved, added or repeated.

use super::{Data, Form, Lowering};
use crate::atoms::Axis;
use crate::eval::{bounds, lengths, order};
use crate::graph::{RecordedNode, ValueId};

/// True for ops that only arrange elements.
pub(super) fn is_view(node: &RecordedNode) -> bool {
    const NAMES: [&str; 13] = [
        "aten.view",
        "aten.reshape",
        "aten._unsafe_view",
        "aten.flatten",
        "aten.unsqueeze",
        "aten.squeeze",
        "aten.expand",
        "aten.transpose",
        "aten.t",
        "aten.permute",
        "aten.slice",
        "aten.select",
        "aten.repeat_interleave",
    ];
    NAMES.contains(&node.family())
}

impl<'a> Lowering<'a> {
    pub(super) fn view(&mut self, node: &'a RecordedNode) -> Result<Form, String> {
        let x = self.argument(node, "self")?;
        if node.family() == "aten.slice" {
            return self.slice(node);
        }
        if let Form::Weight(mut view) = self.form(x)?
            && matches!(node.family(), "aten.t" | "aten.transpose" | "aten.permute")
        {
            let order = order(&self.call(node), view.dims.len())?;
            view.dims = order.into_iter().map(|dim| view.dims[dim]).collect();
            return Ok(Form::Weight(view));
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
            Form::Tokens(axes) => Ok(Form::Tokens(self.arranged(node, axes, false)?)),
            Form::Linear(mut linear) => {
                linear.axes = self.arranged(node, linear.axes, true)?;
                Ok(Form::Linear(linear))
            }
            _ => {
                let Data { var, axes } = self.data(x)?;
                Ok(Form::Data(Data { var, axes: self.arranged(node, axes, false)? }))
            }
        }
    }

    /// The form of what a view leaves as it is: scores, whose batch and heads are joined or parted, and a matrix that is repeated for each
    /// sequence.
    fn kept(&mut self, node: &'a RecordedNode, x: ValueId) -> Result<Option<Form>, String> {
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

    /// The form of a value; a part of a projection is a projection.
    pub(super) fn unparted(&mut self, x: ValueId) -> Result<Form, String> {
        match self.form(x)? {
            Form::Part { of, start, length } => match self.unparted(of)? {
                Form::Linear(linear) => Ok(Form::Linear(self.part_of_product(&linear, start, length)?)),
                _ => Err("a part of activations is read, which is no part of a projection".to_string()),
            },
            form => Ok(form),
        }
    }

    /// The axes behind a view, of a product with a matrix or of another value.
    pub(super) fn arranged(
        &mut self,
        node: &'a RecordedNode,
        mut axes: Vec<Axis>,
        is_product: bool,
    ) -> Result<Vec<Axis>, String> {
        let rank = axes.len();
        match node.family() {
            "aten.view" | "aten.reshape" | "aten._unsafe_view" => {
                let name = if node.arg("size").is_some() { "size" } else { "shape" };
                let count = self.atoms.total(&axes.concat());
                let sizes = crate::eval::viewed(&self.call(node).ints(name)?, count as usize)?;
                let sizes: Vec<u64> = sizes.into_iter().map(|size| size as u64).collect();
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
            "aten.transpose" | "aten.t" | "aten.permute" => {
                let order = order(&self.call(node), rank)?;
                axes = order.into_iter().map(|dim| axes[dim].clone()).collect();
            }
            "aten.repeat_interleave" => {
                let call = self.call(node);
                let (dim, times) = (call.dim("dim", -1, rank)?, call.int("repeats")?);
                let times = u64::try_from(times).map_err(|_| "a negative number of repeats".to_string())?;
                let spread = self.atoms.add_spread(times);
                axes.get_mut(dim).ok_or("a scalar is repeated")?.push(spread);
            }
            other => return Err(format!("`{other}` of activations is not supported")),
        }
        Ok(axes)
    }

    fn expanded(&mut self, node: &'a RecordedNode, axes: Vec<Axis>) -> Result<Vec<Axis>, String> {
        let sizes = self.call(node).ints("size")?;
        let skipped = sizes.len().checked_sub(axes.len()).ok_or("an expansion has fewer dims than its operand")?;
        let axes = std::iter::repeat_n(Vec::new(), skipped).chain(axes);
        let mut expanded = Vec::new();
        for (axis, size) in axes.zip(sizes) {
            let own = self.atoms.total(&axis);
            expanded.push(match u64::try_from(size) {
                Err(_) => axis,
                Ok(size) if size == own => axis,
                Ok(size) if own == 1 => vec![self.atoms.add_spread(size)],
                Ok(size) => return Err(format!("a dim of {own} elements is expanded to {size}")),
            });
        }
        Ok(expanded)
    }

    /// A slice: all of an axis, or a part of the last one.
    fn slice(&mut self, node: &'a RecordedNode) -> Result<Form, String> {
        let x = self.argument(node, "self")?;
        let axes = self.axes(x)?;
        let dim = self.call(node).dim("dim", 0, axes.len())?;
        let size = self.atoms.total(axes.get(dim).ok_or("a slice of a scalar")?);
        let (start, length) = bounds(&self.call(node), size as usize)?;
        if length as u64 == size {
            let output = *node.outputs.first().ok_or("it has no result")?;
            self.same[output.index()] = x;
            return self.form(x);
        }
        if dim + 1 != axes.len() {
            return Err("a part of the tokens or heads is taken".to_string());
        }
        Ok(Form::Part { of: x, start: start as u64, length: length as u64 })
    }

    /// The parts of the last axis.
    pub(super) fn parts(&mut self, node: &'a RecordedNode) -> Result<Vec<Form>, String> {
        let x = self.argument(node, "self")?;
        let axes = self.axes(x)?;
        let dim = self.call(node).dim("dim", 0, axes.len())?;
        let size = self.atoms.total(axes.get(dim).ok_or("a part of a scalar")?);
        let lengths = lengths(&self.call(node), size as usize)?;
        if dim + 1 != axes.len() {
            return Err("tokens or heads are parted".to_string());
        }
        let mut start = 0;
        let part = |length: usize| {
            let part = Form::Part { of: x, start, length: length as u64 };
            start += length as u64;
            part
        };
        Ok(lengths.into_iter().map(part).collect())
    }
}
