//! Parts of values: slices, splits, members, and values that are joined.

use super::movement::Range;
use super::{Data, Form, Lowering};
use crate::atoms::Axis;
use crate::eval::{bounds, lengths};
use crate::graph::{Arg, RecordedNode, ValueId};
use crate::program::View;
use crate::refusal::{Refusal, contradiction};

/// Memory that a graph fills part by part.
#[derive(Clone, Debug)]
pub(super) struct Memory {
    sizes: Vec<u64>,
    /// The dim that the parts are along, with the first element of each.
    dim: usize,
    parts: Vec<(u64, ValueId)>,
}

impl<'a> Lowering<'a> {
    /// A slice: all of an axis, or a part.
    pub(super) fn slice(&mut self, node: &'a RecordedNode) -> Result<Form, Refusal> {
        let x = self.argument(node, "self")?;
        let form = self.form(x)?;
        let call = self.call(node);
        match form {
            // The softmax of a sink, which is the last score.
            Form::Shares(_) if call.int_or("start", 0)? == 0 && call.int_or("end", 0)? == -1 => return Ok(form),
            Form::Memory { memory, .. } => return self.slice_of_memory(node, memory),
            _ => {}
        }
        let axes = self.axes(x)?;
        let dim = self.call(node).dim("dim", 0, axes.len())?;
        let size = self.atoms.total(axes.get(dim).ok_or(contradiction("a slice of a scalar"))?);
        let (start, length, step) = bounds(&self.call(node), size as usize)?;
        if length as u64 == size {
            let output = *node.outputs.first().ok_or(contradiction("it has no result"))?;
            self.same[output.index()] = x;
            return self.form(x);
        }
        let range = Range { start: start as u64, length: length as u64, step: step as u64 };
        self.part_along(x, dim, range)
    }

    /// A part along an axis. Parts of the last axis are decided when they are read.
    fn part_along(&mut self, x: ValueId, dim: usize, range: Range) -> Result<Form, Refusal> {
        if let Form::Weight(mut view) = self.form(x)? {
            let (_, step) = view.dims[dim];
            view.first += range.start * step;
            view.dims[dim] = (self.atoms.add(range.length), step * range.step);
            return Ok(Form::Weight(view));
        }
        if dim + 1 == self.axes(x)?.len() {
            return Ok(Form::Part { of: x, range });
        }
        match self.unparted(x)? {
            Form::Linear(linear) if self.is_output(&linear, dim) => {
                self.part_of_product(&linear, dim, range).map(Form::Linear)
            }
            _ => {
                let data = self.data(x)?;
                self.part_of_data(&data, dim, range).map(Form::Data)
            }
        }
    }

    /// One element of an axis.
    pub(super) fn select(&mut self, node: &'a RecordedNode) -> Result<Form, Refusal> {
        let x = self.argument(node, "self")?;
        let axes = self.axes(x)?;
        let dim = self.call(node).dim("dim", 0, axes.len())?;
        let size = self.atoms.total(axes.get(dim).ok_or(contradiction("an element of a scalar"))?);
        let at = crate::eval::wrap(self.call(node).int("index")?, size as usize)?;
        self.member(x, dim, at as u64)
    }

    /// All elements of an axis.
    pub(super) fn members(&mut self, node: &'a RecordedNode) -> Result<Vec<Form>, Refusal> {
        let x = self.argument(node, "self")?;
        let axes = self.axes(x)?;
        let dim = self.call(node).dim("dim", 0, axes.len())?;
        let size = self.atoms.total(axes.get(dim).ok_or(contradiction("a scalar has no members"))?);
        (0..size).map(|at| self.member(x, dim, at)).collect()
    }

    fn member(&mut self, x: ValueId, dim: usize, at: u64) -> Result<Form, Refusal> {
        let rank = self.axes(x)?.len();
        if let Form::Weight(mut view) = self.form(x)? {
            let (_, step) = view.dims.remove(dim);
            view.first += at * step;
            return Ok(Form::Weight(view));
        }
        if dim + 1 == rank
            && let Form::Mix(_) = self.form(x)?
            && let Some(mut mix) = self.mixed(x)?
            && mix.inner.len() > 1
        {
            mix = mix.part(Range::of(at, 1), self.node);
            mix.inner.pop();
            return Ok(Form::Mix(mix));
        }
        if let Form::Linear(linear) = self.unparted(x)?
            && self.is_output(&linear, dim)
        {
            let mut part = self.part_of_product(&linear, dim, Range::of(at, 1))?;
            let axis = part.axes.remove(dim);
            part.drop_outputs(&axis);
            return Ok(Form::Linear(part));
        }
        let data = self.data(x)?;
        let mut part = self.part_of_data(&data, dim, Range::of(at, 1))?;
        let axis = part.axes.remove(dim);
        part.var = self.without(part.var, &axis);
        Ok(Form::Data(part))
    }

    /// Elements at known neighbouring places of one axis; none if the places are not known.
    pub(super) fn known_places(&mut self, node: &'a RecordedNode) -> Result<Option<Form>, Refusal> {
        let Some(Arg::Values(indices)) = node.arg("indices") else { return Ok(None) };
        let places: Vec<usize> = (0..indices.len()).filter(|&dim| indices[dim].is_some()).collect();
        let (&[dim], Some(index)) = (places.as_slice(), places.first().and_then(|&dim| indices[dim])) else {
            return Ok(None);
        };
        let Some(known) = self.known(index).cloned().filter(|known| known.sizes.len() == 1) else { return Ok(None) };
        let x = self.argument(node, "self")?;
        let axes = self.axes(x)?;
        let size = self.atoms.total(axes.get(dim).ok_or(contradiction("a scalar is indexed"))?);
        let at = |place: f64| if place < 0.0 { place + size as f64 } else { place };
        let first = known.data.first().map_or(0.0, |&first| at(first));
        let is_range = known.data.iter().enumerate().all(|(step, &place)| at(place) == first + step as f64);
        let length = known.data.len() as u64;
        if !is_range || first < 0.0 || first as u64 + length > size {
            return Err("elements are taken in an unknown order".into());
        }
        self.part_along(x, dim, Range::of(first as u64, length)).map(Some)
    }

    /// The parts of an axis.
    pub(super) fn parts(&mut self, node: &'a RecordedNode) -> Result<Vec<Form>, Refusal> {
        let x = self.argument(node, "self")?;
        let axes = self.axes(x)?;
        let dim = self.call(node).dim("dim", 0, axes.len())?;
        let size = self.atoms.total(axes.get(dim).ok_or(contradiction("a part of a scalar"))?);
        let lengths = lengths(&self.call(node), size as usize)?;
        let mut start = 0;
        let mut parts = Vec::new();
        for length in lengths {
            parts.push(self.part_along(x, dim, Range::of(start, length as u64))?);
            start += length as u64;
        }
        Ok(parts)
    }

    /// Values one after the other, or side by side along a new axis.
    pub(super) fn cat(&mut self, node: &'a RecordedNode) -> Result<Form, Refusal> {
        let Some(Arg::Values(parts)) = node.arg("tensors") else {
            return Err(Refusal::argument("tensors", "is no list"));
        };
        let parts: Vec<ValueId> = parts.iter().flatten().map(|&part| self.id(part)).collect();
        let is_stack = node.family() == "aten.stack";
        if let (&[scores, sink], false) = (parts.as_slice(), is_stack)
            && let Some(form) = self.with_sink(scores, sink)?
        {
            return Ok(form);
        }
        if parts.iter().any(|part| self.known[part.index()].is_some()) {
            return Err("constants are joined with activations".into());
        }
        let rank = self.axes(*parts.first().ok_or(contradiction("nothing is joined"))?)?.len();
        let dim = self.call(node).dim("dim", 0, rank + usize::from(is_stack))?;
        let is_behind = if is_stack { dim == rank } else { dim + 1 == rank };
        if is_behind && let Some(form) = self.mixed_join(&parts, is_stack)? {
            return Ok(form);
        }
        let mut values = Vec::new();
        for part in parts {
            let mut data = self.data(part)?;
            if is_stack {
                data.axes.insert(dim, vec![]);
                let one = self.atoms.add(1);
                data.axes[dim] = vec![one];
                let var = self.laid(&Data { var: data.var, axes: without_axis(&data.axes, dim) });
                let dims = self.atoms.leaves(&data.axes.concat());
                data.var = self.reshaped(var, dims);
            }
            values.push(data);
        }
        self.concatenated(&values, dim).map(Form::Data)
    }

    /// `new_empty`: memory that the next nodes fill.
    pub(super) fn memory(&mut self, node: &'a RecordedNode) -> Result<Form, Refusal> {
        let sizes = self.call(node).sizes("size")?.into_iter().map(|size| size as u64).collect();
        self.memories.push(Memory { sizes, dim: 0, parts: Vec::new() });
        Ok(Form::Memory { memory: self.memories.len() - 1, part: None })
    }

    fn slice_of_memory(&mut self, node: &'a RecordedNode, memory: usize) -> Result<Form, Refusal> {
        let sizes = self.memories[memory].sizes.clone();
        let dim = self.call(node).dim("dim", 0, sizes.len())?;
        let (start, length, step) = bounds(&self.call(node), sizes[dim] as usize)?;
        if step != 1 {
            return Err("memory is filled in steps".into());
        }
        if length as u64 == sizes[dim] {
            return Ok(Form::Memory { memory, part: None });
        }
        Ok(Form::Memory { memory, part: Some((dim, start as u64)) })
    }

    /// `copy_` of a value to a part of memory.
    pub(super) fn copied(&mut self, node: &'a RecordedNode) -> Result<Form, Refusal> {
        let (to, from) = (self.argument(node, "self")?, self.argument(node, "src")?);
        let Form::Memory { memory, part: Some((dim, start)) } = self.form(to)? else {
            return Err("values are copied to what is no part of new memory".into());
        };
        let memory = &mut self.memories[memory];
        if memory.parts.is_empty() {
            memory.dim = dim;
        }
        if memory.dim != dim {
            return Err("memory is filled along several dims".into());
        }
        memory.parts.push((start, from));
        self.form(from)
    }

    /// Memory that is filled: its parts, one after the other.
    pub(super) fn filled(&mut self, memory: usize) -> Result<Data, Refusal> {
        let Memory { sizes, dim, mut parts } = self.memories[memory].clone();
        parts.sort_by_key(|(start, _)| *start);
        let mut values = Vec::new();
        let mut end = 0;
        for (start, value) in parts {
            let data = self.data(value)?;
            if start != end || data.axes.len() != sizes.len() {
                return Err("memory is read that is not filled".into());
            }
            end += self.atoms.total(&data.axes[dim]);
            values.push(data);
        }
        if end != sizes[dim] {
            return Err("memory is read that is not filled".into());
        }
        self.concatenated(&values, dim)
    }

    /// A parameter as a value.
    pub(super) fn parameter(&mut self, view: &View) -> Result<Data, Refusal> {
        let usage = match view.dims.len() {
            _ if self.is_buffer(&view.tensor) => crate::program::Use::Constant,
            0 | 1 => crate::program::Use::Gain,
            _ => crate::program::Use::Matrix,
        };
        let axes: Vec<Axis> = view.dims.iter().map(|&(atom, _)| vec![atom]).collect();
        let dims = self.atoms.leaves(&axes.concat());
        let weight = self.weight(view.clone(), usage);
        let var = self.state(crate::program::Action::Reshape, vec![weight], dims);
        Ok(Data { var, axes })
    }
}

fn without_axis(axes: &[Axis], dim: usize) -> Vec<Axis> {
    axes.iter().enumerate().filter(|(place, _)| *place != dim).map(|(_, axis)| axis.clone()).collect()
}
