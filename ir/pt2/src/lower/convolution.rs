//! Convolutions: windows of the dims behind the channels, and a product with the kernel.

use super::{Data, Form, Lowering};
use crate::atoms::Atom;
use crate::eval::Call;
use crate::graph::RecordedNode;
use crate::program::{Action, Argument, Moved, Use, View};
use crate::refusal::{Refusal, contradiction};
use ir::ops::BinaryKind;

impl<'a> Lowering<'a> {
    /// `aten.conv1d`, `aten.conv2d` and `aten.convolution` of `[batch, channels, ..]`.
    pub(super) fn convolution(&mut self, node: &'a RecordedNode) -> Result<Form, Refusal> {
        let [x, kernel] = ["input", "weight"].map(|name| self.argument(node, name));
        let kernel = kernel?;
        let Form::Weight(view) = self.form(kernel)? else { return Err("a kernel is no parameter".into()) };
        let dims =
            view.dims.len().checked_sub(2).filter(|dims| *dims > 0).ok_or(contradiction("a kernel of too few dims"))?;
        let call = self.call(node);
        let (strides, pads, dilations) = (
            each_of(&call, "stride", 1, dims)?,
            each_of(&call, "padding", 0, dims)?,
            each_of(&call, "dilation", 1, dims)?,
        );
        let groups = call.int_or("groups", 1)?.max(1) as u64;
        if call.flag("transposed") || dilations.iter().any(|&by| by != 1) || strides.len() != dims || pads.len() != dims
        {
            return Err("a convolution that is transposed or dilated".into());
        }
        let mut x = self.data(x?)?;
        if x.axes.len() != dims + 2 {
            return Err("a convolution of a value without a batch".into());
        }
        x.var = self.laid(&x);
        for dim in (0..dims).rev() {
            let size = self.atoms.size(view.dims[2 + dim].0);
            let (stride, pad) = (strides[dim].max(1) as u64, pads[dim].max(0) as u64);
            x = self.padded_by(&x, 2 + dim, [pad, pad])?;
            x = self.windows(&x, 2 + dim, [size, stride])?;
        }
        let bias = node.arg("bias").map(|_| self.argument(node, "bias")).transpose()?;
        let data = self.kernel_product(x, view, groups)?;
        match bias {
            Some(bias) => self.channel_bias(data, bias),
            None => Ok(Form::Data(data)),
        }
    }

    /// A value with the windows of an axis: windows, and behind all axes the elements of each. Windows that do not overlap are a view.
    fn windows(&mut self, x: &Data, axis: usize, [size, stride]: [u64; 2]) -> Result<Data, Refusal> {
        let x = self.with_axis(x, axis);
        let total = self.atoms.total(&x.axes[axis]);
        let count = total.checked_sub(size).ok_or(contradiction("a kernel is larger than what it reads"))? / stride + 1;
        let from = x.axes[axis][0];
        let [windows, inner] = [count, size].map(|size| self.atoms.add(size));
        let mut dims = self.dims(x.var);
        let leaf = self.atoms.leaves(&[from])[0];
        let place = dims.iter().position(|dim| *dim == leaf).ok_or("a repeated dim is convolved")?;
        dims.splice(place..=place, [windows, inner]);
        let var = if size == stride && total == count * size {
            self.reshaped(x.var, dims)
        } else {
            let action = Action::Windows { dim: Moved { from, to: windows }, size, stride };
            self.state(action, vec![Argument::Var(x.var)], dims)
        };
        let mut axes = x.axes;
        axes[axis] = vec![windows];
        axes.insert(axis + 1, vec![inner]);
        // The elements of windows go behind all other axes.
        let inner = axes.remove(axis + 1);
        axes.push(inner);
        Ok(Data { var, axes })
    }

    /// The product with a kernel `[output, channels, elements..]`.
    fn kernel_product(&mut self, mut x: Data, mut view: View, groups: u64) -> Result<Data, Refusal> {
        let dims = view.dims.len() - 2;
        let outer: Vec<Atom> = x.axes[2..2 + dims].iter().map(|axis| axis[0]).collect();
        // Windows were made from the last dim on.
        let inner: Vec<Atom> = x.axes[2 + dims..].iter().rev().map(|axis| axis[0]).collect();
        for (&(kernel, _), &own) in view.dims[2..].iter().zip(&inner) {
            self.atoms.unify(&[own], &[kernel])?;
        }
        let (output, step) = view.dims[0];
        let mut result = vec![self.batch];
        let mut channels = x.axes[1].clone();
        let mut columns = vec![output];
        if groups > 1 {
            x = self.with_axis(&x, 1);
            let (group, each) = (self.atoms.add(groups), self.atoms.size(view.dims[1].0));
            let each = self.atoms.add(each);
            let leaf = self.atoms.leaves(&x.axes[1])[0];
            let mut dims = self.dims(x.var);
            let place = dims.iter().position(|dim| *dim == leaf).ok_or("repeated channels are convolved")?;
            dims.splice(place..=place, [group, each]);
            x.var = self.reshaped(x.var, dims);
            channels = vec![each];
            let size = self.atoms.size(output) / groups;
            let parts = self.atoms.split(output, &[groups, size])?;
            self.atoms.unify(&[group], &parts[..1])?;
            columns = parts.clone();
            view.dims.splice(0..1, [(parts[0], step * size), (parts[1], step)]);
        }
        let place = if groups > 1 { 2 } else { 1 };
        self.atoms.unify(&channels, &[view.dims[place].0])?;
        result.extend(&outer);
        result.extend(&columns);
        // The dim that is read comes before the one that is given, as in other matrices.
        let last = view.dims.remove(place - 1);
        view.dims.push(last);
        let weight = self.weight(view, Use::Matrix);
        let var = self.state(Action::Product, vec![Argument::Var(x.var), weight], result);
        let axes = [vec![self.batch], columns].into_iter().chain(outer.into_iter().map(|atom| vec![atom])).collect();
        Ok(Data { var, axes })
    }

    fn channel_bias(&mut self, data: Data, bias: crate::graph::ValueId) -> Result<Form, Refusal> {
        let Form::Weight(view) = self.form(bias)? else { return Err("the bias is no parameter".into()) };
        let [(atom, _)] = *view.dims.as_slice() else {
            return Err(contradiction("the bias is no vector"));
        };
        self.atoms.unify(&data.axes[1], &[atom])?;
        let weight = self.weight(view, Use::Bias);
        let dims = self.dims(data.var);
        let var = self.state(Action::Binary(BinaryKind::Add), vec![Argument::Var(data.var), weight], dims);
        Ok(Form::Data(Data { var, axes: data.axes }))
    }

    /// Zeros before and behind the last axes.
    pub(super) fn padded(&mut self, node: &'a RecordedNode) -> Result<Form, Refusal> {
        let x = self.argument(node, "self")?;
        let call = self.call(node);
        let pads = call.ints("pad")?;
        let is_zero = call.number_or("value", 0.0)? == 0.0 && call.text("mode").is_none_or(|mode| mode == "constant");
        if !is_zero || pads.len() % 2 == 1 || pads.iter().any(|&pad| pad < 0) {
            return Err("a value is padded with others than zeros".into());
        }
        let mut data = self.data(x)?;
        for (at, pair) in pads.chunks(2).enumerate() {
            let axis =
                data.axes.len().checked_sub(at + 1).ok_or(contradiction("more dims are padded than there are"))?;
            data = self.padded_by(&data, axis, [pair[0] as u64, pair[1] as u64])?;
        }
        Ok(Form::Data(data))
    }

    fn padded_by(&mut self, x: &Data, axis: usize, [before, after]: [u64; 2]) -> Result<Data, Refusal> {
        if before == 0 && after == 0 {
            return Ok(x.clone());
        }
        let x = self.with_axis(x, axis);
        let from = x.axes[axis][0];
        let to = self.atoms.add(self.atoms.size(from).saturating_add(before).saturating_add(after));
        let leaf = self.atoms.leaves(&[from])[0];
        let dims = self.dims(x.var).into_iter().map(|dim| if dim == leaf { to } else { dim }).collect();
        let action = Action::Pad { dim: Moved { from, to }, before, after };
        let var = self.state(action, vec![Argument::Var(x.var)], dims);
        let mut axes = x.axes;
        axes[axis] = vec![to];
        Ok(Data { var, axes })
    }
}

/// A number for each of some dims: a list, or one for all.
fn each_of(call: &Call<'_>, name: &str, default: i64, dims: usize) -> Result<Vec<i64>, Refusal> {
    let given = if call.node.arg(name).is_some() { call.ints(name)? } else { vec![default] };
    Ok(if given.len() == 1 { vec![given[0]; dims] } else { given })
}
