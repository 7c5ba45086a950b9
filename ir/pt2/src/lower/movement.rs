//! Statements that move elements: other orders of dims, parts, and values one after the other.

use super::{Data, Lowering};
use crate::atoms::{Atom, Axis};
use crate::program::{Action, Argument, Moved, Var};
use crate::refusal::{Refusal, contradiction};

/// Elements along an axis: `length` from `start` on, `step` apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Range {
    pub(super) start: u64,
    pub(super) length: u64,
    pub(super) step: u64,
}

impl Range {
    /// Neighbours.
    pub(super) fn of(start: u64, length: u64) -> Range {
        Range { start, length, step: 1 }
    }
}

impl Lowering<'_> {
    /// A value whose dims are those of its axes, in order: permuted, and repeated where the graph repeats elements.
    pub(super) fn laid(&mut self, data: &Data) -> Var {
        let wanted = self.atoms.leaves(&data.axes.concat());
        self.with_dims(data.var, &wanted)
    }

    /// The dims of a value in the order of its axes, without those along which it is repeated.
    pub(super) fn own_dims(&self, data: &Data) -> Vec<Atom> {
        let own = self.dims(data.var);
        self.atoms.leaves(&data.axes.concat()).into_iter().filter(|leaf| own.contains(leaf)).collect()
    }

    /// A value with these dims, among which are all its own.
    pub(super) fn with_dims(&mut self, var: Var, wanted: &[Atom]) -> Var {
        let own = self.dims(var);
        if own == wanted {
            return var;
        }
        let (missing, in_order): (Vec<Atom>, Vec<Atom>) = wanted.iter().partition(|atom| !own.contains(atom));
        let mut var = var;
        if !missing.is_empty() {
            let dims = if in_order == own { wanted.to_vec() } else { [own.as_slice(), &missing].concat() };
            var = self.state(Action::Broadcast, vec![Argument::Var(var)], dims);
        }
        if self.dims(var) == wanted {
            return var;
        }
        self.state(Action::Permute, vec![Argument::Var(var)], wanted.to_vec())
    }

    /// A value whose last dims are those of its last axis.
    pub(super) fn with_rows(&mut self, data: Data) -> Data {
        let row = data.axes.last().map(|axis| self.atoms.leaves(axis)).unwrap_or_default();
        if self.dims(data.var).ends_with(&row) {
            return data;
        }
        Data { var: self.laid(&data), ..data }
    }

    /// The value under other dims of the same elements.
    pub(super) fn reshaped(&mut self, var: Var, dims: Vec<Atom>) -> Var {
        self.state(Action::Reshape, vec![Argument::Var(var)], dims)
    }

    /// A value one of whose axes is a dim of its own.
    pub(super) fn with_axis(&mut self, data: &Data, axis: usize) -> Data {
        let leaves = self.atoms.leaves(&data.axes[axis]);
        if leaves.len() == 1 && self.dims(data.var).contains(&leaves[0]) {
            return data.clone();
        }
        let mut kept = self.own_dims(&Data { var: data.var, axes: data.axes[..axis].to_vec() });
        let behind = self.own_dims(&Data { var: data.var, axes: data.axes[axis + 1..].to_vec() });
        let var = self.with_dims(data.var, &[&kept[..], &leaves, &behind].concat());
        let total = self.atoms.total(&leaves);
        let joined = self.atoms.add(total);
        let mut axes = data.axes.clone();
        axes[axis] = vec![joined];
        kept.push(joined);
        kept.extend(behind);
        Data { var: self.reshaped(var, kept), axes }
    }

    /// Some elements along an axis.
    pub(super) fn part_of_data(&mut self, data: &Data, axis: usize, range: Range) -> Result<Data, Refusal> {
        let Range { start, length, step } = range;
        let leaves = self.atoms.leaves(&data.axes[axis]);
        let own = self.dims(data.var);
        let mut axes = data.axes.clone();
        if leaves.iter().all(|leaf| !own.contains(leaf)) {
            axes[axis] = vec![self.atoms.add_spread(length)];
            return Ok(Data { var: data.var, axes });
        }
        if step != 1 {
            return self.stepped_part(data, axis, range);
        }
        // Whole rows of the first dim of several.
        let inner = self.atoms.total(leaves.get(1..).unwrap_or_default()).max(1);
        let is_of_first = start.is_multiple_of(inner) && length.is_multiple_of(inner) && own.contains(&leaves[0]);
        if leaves.len() > 1 && !is_of_first {
            let data = self.with_axis(data, axis);
            return self.part_of_data(&data, axis, range);
        }
        let dim = own.iter().position(|leaf| *leaf == leaves[0]).ok_or("a part of a repeated dim is taken")?;
        let part = self.atoms.add(length / inner);
        let mut dims = own;
        dims[dim] = part;
        let moved = Moved { from: leaves[0], to: part };
        let action = Action::Slice { dim: moved, start: start / inner, length: length / inner };
        let var = self.state(action, vec![Argument::Var(data.var)], dims);
        axes[axis] = [&[part], leaves.get(1..).unwrap_or_default()].concat();
        Ok(Data { var, axes })
    }

    /// Every `step`th element of an axis: one of each row of a matrix.
    fn stepped_part(
        &mut self,
        data: &Data,
        axis: usize,
        Range { start, length, step }: Range,
    ) -> Result<Data, Refusal> {
        let mut data = self.with_axis(data, axis);
        let total = self.atoms.total(&data.axes[axis]);
        let (first, rows) = (start % step, total / step);
        if !total.is_multiple_of(step) || start / step + length > rows {
            return Err(format!("every {step} of {total} elements are taken").into());
        }
        let (row, column) = (self.atoms.add(rows), self.atoms.add(step));
        let mut dims = self.dims(data.var);
        let place = dims.iter().position(|dim| [*dim] == *self.atoms.leaves(&data.axes[axis])).unwrap_or_default() + 1;
        dims.splice(place - 1..place, [row, column]);
        let var = data.var;
        let table = self.reshaped(var, dims.clone());
        let mut one = dims;
        one[place] = self.atoms.add(1);
        let moved = Moved { from: column, to: one[place] };
        let action = Action::Slice { dim: moved, start: first, length: 1 };
        let column = self.state(action, vec![Argument::Var(table)], one.clone());
        one.remove(place);
        let var = self.reshaped(column, one);
        data.axes[axis] = vec![row];
        let data = Data { var, axes: data.axes };
        if start / step == 0 && length == rows {
            return Ok(data);
        }
        self.part_of_data(&data, axis, Range::of(start / step, length))
    }

    /// Values one after the other along an axis. Their other axes are the same.
    pub(super) fn concatenated(&mut self, parts: &[Data], axis: usize) -> Result<Data, Refusal> {
        let rank = parts.first().map_or(0, |part| part.axes.len());
        if parts.iter().any(|part| part.axes.len() != rank) || axis >= rank {
            return Err("values of different dims are joined".into());
        }
        let mut parts: Vec<Data> = parts.iter().map(|part| self.with_axis(part, axis)).collect();
        for other in (0..rank).filter(|other| *other != axis) {
            // The axis of a value that has all its dims, if there is one.
            let model = parts
                .iter()
                .find(|part: &&Data| {
                    let own = self.dims(part.var);
                    self.atoms.leaves(&part.axes[other]).iter().all(|leaf| own.contains(leaf))
                })
                .unwrap_or(&parts[0])
                .axes[other]
                .clone();
            for part in &mut parts {
                self.atoms.unify(&model, &part.axes[other])?;
                part.axes[other].clone_from(&model);
            }
        }
        let vars: Vec<Argument> = parts.iter().map(|part| Argument::Var(self.laid(part))).collect();
        let total = parts.iter().map(|part| self.atoms.total(&part.axes[axis])).sum();
        let joined: Vec<Atom> = parts.iter().map(|part| part.axes[axis][0]).collect();
        let mut axes: Vec<Axis> = parts[0].axes.clone();
        let whole = self.atoms.add(total);
        axes[axis] = vec![whole];
        let dims = self.atoms.leaves(&axes.concat());
        let var = self.state(Action::Concat { parts: joined, whole }, vars, dims);
        Ok(Data { var, axes })
    }

    /// Values with the dims of all of them.
    pub(super) fn aligned(&mut self, values: &[Data]) -> Result<(Vec<Var>, Vec<Axis>), Refusal> {
        let mut first = values.first().cloned().ok_or(contradiction("no values are joined"))?;
        let mut values = values.to_vec();
        for value in &mut values[1..] {
            let (left, right, axes) = self.paired(&first, value)?;
            (first.var, *value) = (left, Data { var: right, axes: axes.clone() });
            first.axes = axes;
        }
        values[0].var = first.var;
        let wanted = self.atoms.leaves(&first.axes.concat());
        Ok((values.iter().map(|value| self.with_dims(value.var, &wanted)).collect(), first.axes))
    }
}
