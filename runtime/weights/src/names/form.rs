//! The place of a parameter's elements in a tensor of files, by the row of its family.

use crate::layout::{Piece, Stride};
use ir::models::{FileShape, HubTensor, Join, MatrixOrder};

/// One side of a matrix: its length, and where a parameter is on it.
struct Side {
    length: u64,
    first: u64,
    /// The distances of neighbours, by dim of the parameter.
    steps: Vec<u64>,
    /// The parts of the first of these dims, where these are apart.
    parts: Option<Parts>,
}

/// Equal parts of a dim.
struct Parts {
    /// The indices of a part.
    size: u64,
    /// The distance from one part to the next.
    distance: u64,
}

impl Side {
    /// The side has nothing else.
    fn alone(dims: &[u64]) -> Side {
        Side { length: dims.iter().product(), first: 0, steps: suffixes(dims), parts: None }
    }

    /// All parameters follow each other.
    fn behind(all: &[&[u64]], at: usize) -> Side {
        let lengths: Vec<u64> = all.iter().map(|dims| dims.iter().product()).collect();
        Side { length: lengths.iter().sum(), first: lengths[..at].iter().sum(), steps: suffixes(all[at]), parts: None }
    }

    /// Each head has those of all parameters, which follow each other.
    fn by_head(all: &[&[u64]], at: usize) -> Side {
        let widths: Vec<u64> = all.iter().filter_map(|dims| dims.last()).copied().collect();
        let head: u64 = widths.iter().sum();
        let heads = &all[at][..all[at].len() - 1];
        let mut steps: Vec<u64> = suffixes(heads).into_iter().map(|step| step * head).collect();
        steps.push(1);
        Side { length: heads.iter().product::<u64>() * head, first: widths[..at].iter().sum(), steps, parts: None }
    }

    /// Each group of heads has those of all parameters, which follow each other.
    fn by_group(all: &[&[u64]], at: usize) -> Side {
        let widths: Vec<u64> = all.iter().map(|dims| dims[1..].iter().product()).collect();
        let group: u64 = widths.iter().sum();
        let mut steps = vec![group];
        steps.extend(suffixes(&all[at][1..]));
        Side { length: all[at][0] * group, first: widths[..at].iter().sum(), steps, parts: None }
    }

    /// The place of a layer, where the side has those of all layers.
    fn within(self, layer: Option<Layer>) -> Side {
        let Some(Layer { number, of }) = layer else { return self };
        let own = self.length;
        Side { length: own * u64::from(of), first: self.first + own * u64::from(number), ..self }
    }

    /// Each of some equal parts of the first dim has those of all parameters, which follow each other.
    fn by_part(all: &[&[u64]], at: usize, count: u64) -> Side {
        let widths: Vec<u64> = all.iter().map(|dims| dims.iter().product::<u64>() / count).collect();
        let distance: u64 = widths.iter().sum();
        let parts = Some(Parts { size: all[at][0] / count, distance });
        Side { length: distance * count, first: widths[..at].iter().sum(), steps: suffixes(all[at]), parts }
    }

    /// The walk along a tensor, one of whose steps on this side has `step` elements.
    fn strides(&self, step: u64) -> Vec<Stride> {
        let mut strides: Vec<Stride> = self.steps.iter().map(|own| Stride::Even((own * step) as usize)).collect();
        if let (Some(parts), Some(first)) = (&self.parts, strides.first_mut())
            && let Stride::Even(step_of_first) = *first
        {
            let distance = (parts.distance * step) as usize;
            *first = Stride::Parted { step: step_of_first, size: parts.size as usize, distance };
        }
        strides
    }

    /// The parameters take turns.
    fn alternating(all: &[&[u64]], at: usize) -> Side {
        let count = all.len() as u64;
        let steps = suffixes(all[at]).into_iter().map(|step| step * count).collect();
        Side { length: all[at].iter().product::<u64>() * count, first: at as u64, steps, parts: None }
    }
}

/// A layer among all layers of a tensor.
#[derive(Clone, Copy)]
pub(super) struct Layer {
    pub(super) number: u32,
    pub(super) of: u32,
}

/// The place of a parameter in the tensor `name`. `sizes` are those of all parameters that the row has, and `at` is its own
/// number among them; `layer` is its layer, where the tensor has all.
pub(super) fn piece(row: &HubTensor, name: String, sizes: &[&[u64]], at: usize, layer: Option<Layer>) -> Piece {
    let inputs: Vec<&[u64]> = sizes.iter().map(|sizes| &sizes[row.leading..row.leading + row.inputs]).collect();
    let outputs: Vec<&[u64]> = sizes.iter().map(|sizes| &sizes[row.leading + row.inputs..]).collect();
    let leading = &sizes[at][..row.leading];
    let input = match row.join {
        Join::Inputs => Side::behind(&inputs, at),
        Join::Outputs | Join::Heads | Join::Groups | Join::Parts(_) | Join::Alternating => Side::alone(inputs[at]),
    };
    let output = match row.join {
        Join::Inputs => Side::alone(outputs[at]),
        Join::Outputs => Side::behind(&outputs, at),
        Join::Heads => Side::by_head(&outputs, at),
        Join::Groups => Side::by_group(&outputs, at),
        Join::Parts(count) => Side::by_part(&outputs, at, count),
        Join::Alternating => Side::alternating(&outputs, at),
    };
    let output = output.within(layer);
    let (input_step, output_step) = match row.order {
        MatrixOrder::OutputsFirst => (1, input.length),
        MatrixOrder::InputsFirst => (output.length, 1),
    };
    let steps = suffixes(leading)
        .into_iter()
        .map(|step| Stride::Even((step * input.length * output.length) as usize))
        .chain(input.strides(input_step))
        .chain(output.strides(output_step));
    let dims = sizes[at].iter().copied().zip(steps).collect();
    let first = input.first * input_step + output.first * output_step;
    Piece {
        tensor: name,
        shape: shape(row, leading, input.length, output.length, sizes[at]),
        first: first as usize,
        dims,
    }
}

/// The sizes of a tensor.
fn shape(row: &HubTensor, leading: &[u64], inputs: u64, outputs: u64, sizes: &[u64]) -> Vec<u64> {
    match (row.form, sizes.last()) {
        (FileShape::Taps, Some(&taps)) => return vec![outputs / taps.max(1), 1, taps],
        (FileShape::Patches, _) => return [&[outputs], &sizes[..row.inputs]].concat(),
        (FileShape::OfHeads, _) => return vec![1, 1, outputs, 1],
        (FileShape::Taps | FileShape::Usual, _) => {}
    }
    let mut shape = leading.to_vec();
    match (row.inputs, row.order) {
        (0, _) => shape.push(outputs),
        (_, MatrixOrder::OutputsFirst) => shape.extend([outputs, inputs]),
        (_, MatrixOrder::InputsFirst) => shape.extend([inputs, outputs]),
    }
    if row.stacked {
        let rows = shape[..=row.leading].iter().product();
        shape.splice(..=row.leading, [rows]);
    }
    shape
}

/// A tensor of the sizes of its parameter.
pub(super) fn same(tensor: String, sizes: &[u64]) -> Piece {
    let steps = suffixes(sizes).into_iter().map(|step| Stride::Even(step as usize));
    Piece { tensor, shape: sizes.to_vec(), first: 0, dims: sizes.iter().copied().zip(steps).collect() }
}

/// The products of the sizes behind each.
fn suffixes(sizes: &[u64]) -> Vec<u64> {
    (0..sizes.len()).map(|at| sizes[at + 1..].iter().product()).collect()
}
