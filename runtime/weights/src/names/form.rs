//! The place of a parameter's elements in a tensor of files, by the row of its family.

use crate::layout::{Piece, Stride};
use ir::models::{HubTensor, Join, MatrixOrder};

/// One side of a matrix: its length, and where a parameter is on it.
struct Side {
    length: u64,
    first: u64,
    /// The distances of neighbours, by dim of the parameter.
    steps: Vec<u64>,
}

impl Side {
    /// The side has nothing else.
    fn alone(dims: &[u64]) -> Side {
        Side { length: dims.iter().product(), first: 0, steps: suffixes(dims) }
    }

    /// All parameters follow each other.
    fn behind(all: &[&[u64]], at: usize) -> Side {
        let lengths: Vec<u64> = all.iter().map(|dims| dims.iter().product()).collect();
        Side { length: lengths.iter().sum(), first: lengths[..at].iter().sum(), steps: suffixes(all[at]) }
    }

    /// Each head has those of all parameters, which follow each other.
    fn by_head(all: &[&[u64]], at: usize) -> Side {
        let widths: Vec<u64> = all.iter().filter_map(|dims| dims.last()).copied().collect();
        let head: u64 = widths.iter().sum();
        let heads = &all[at][..all[at].len() - 1];
        let mut steps: Vec<u64> = suffixes(heads).into_iter().map(|step| step * head).collect();
        steps.push(1);
        Side { length: heads.iter().product::<u64>() * head, first: widths[..at].iter().sum(), steps }
    }

    /// Each group of heads has those of all parameters, which follow each other.
    fn by_group(all: &[&[u64]], at: usize) -> Side {
        let widths: Vec<u64> = all.iter().map(|dims| dims[1..].iter().product()).collect();
        let group: u64 = widths.iter().sum();
        let mut steps = vec![group];
        steps.extend(suffixes(&all[at][1..]));
        Side { length: all[at][0] * group, first: widths[..at].iter().sum(), steps }
    }

    /// The parameters take turns.
    fn alternating(all: &[&[u64]], at: usize) -> Side {
        let count = all.len() as u64;
        let steps = suffixes(all[at]).into_iter().map(|step| step * count).collect();
        Side { length: all[at].iter().product::<u64>() * count, first: at as u64, steps }
    }
}

/// The place of a parameter in the tensor `name`. `sizes` are those of all parameters that the row has, and `at` is its own
/// number among them.
pub(super) fn piece(row: &HubTensor, name: String, sizes: &[&[u64]], at: usize) -> Piece {
    let inputs: Vec<&[u64]> = sizes.iter().map(|sizes| &sizes[row.leading..row.leading + row.inputs]).collect();
    let outputs: Vec<&[u64]> = sizes.iter().map(|sizes| &sizes[row.leading + row.inputs..]).collect();
    let leading = &sizes[at][..row.leading];
    let input = match row.join {
        Join::Inputs => Side::behind(&inputs, at),
        Join::Outputs | Join::Heads | Join::Groups | Join::Alternating => Side::alone(inputs[at]),
    };
    let output = match row.join {
        Join::Inputs => Side::alone(outputs[at]),
        Join::Outputs => Side::behind(&outputs, at),
        Join::Heads => Side::by_head(&outputs, at),
        Join::Groups => Side::by_group(&outputs, at),
        Join::Alternating => Side::alternating(&outputs, at),
    };
    let (input_step, output_step) = match row.order {
        MatrixOrder::OutputsFirst => (1, input.length),
        MatrixOrder::InputsFirst => (output.length, 1),
    };
    let steps = suffixes(leading)
        .into_iter()
        .map(|step| step * input.length * output.length)
        .chain(input.steps.iter().map(|step| step * input_step))
        .chain(output.steps.iter().map(|step| step * output_step));
    let dims = sizes[at].iter().copied().zip(steps.map(|step| Stride::Even(step as usize))).collect();
    let first = input.first * input_step + output.first * output_step;
    Piece { tensor: name, shape: shape(row, leading, input.length, output.length), first: first as usize, dims }
}

/// The sizes of a tensor.
fn shape(row: &HubTensor, leading: &[u64], inputs: u64, outputs: u64) -> Vec<u64> {
    let mut shape = leading.to_vec();
    match (row.inputs, row.order) {
        (0, _) => shape.push(outputs),
        (_, MatrixOrder::OutputsFirst) => shape.extend([outputs, inputs]),
        (_, MatrixOrder::InputsFirst) => shape.extend([inputs, outputs]),
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
