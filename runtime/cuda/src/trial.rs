//! Timings of the algorithms of a product.

use super::device::Device;
use super::error::Error;
use super::fused::{Buffers, Fused, LaunchArgs};
use super::matmul::{Addresses, Arithmetic, Formats};
use super::memory::Arena;
use super::stream::{Event, Stream};
use kernels::cuda::gemm::{Gemm, Matrix};
use kernels::group::{Index, Node, Program, Read};
use kernels::scalar::{Element, Unary};
use std::sync::Arc;

/// Launches of a timing, behind one that is not timed.
const LAUNCHES: usize = 4;

/// The number of numbers after which those of operands come again, so that one text makes operands of any size.
const PERIOD: usize = 1 << 20;

/// Matrices of a product for timings.
pub(super) struct Trial {
    arena: Arena,
    starts: [usize; 3],
    /// The place of the scales of operands of 8 bits.
    scales: Option<usize>,
}

impl Trial {
    /// Matrices in memory of their own. The operands' mantissas vary as those of data do: a GPU multiplies zeros faster.
    ///
    /// # Errors
    /// There is no memory for them, or a launch fails.
    pub(super) fn new(device: &Arc<Device>, stream: &Stream, gemm: &Gemm, formats: Formats) -> Result<Trial, Error> {
        let elements = |matrix: &Matrix| {
            (gemm.batch - 1) * matrix.batch_stride + (matrix.columns - 1) * matrix.leading + matrix.rows
        };
        let lens = [&gemm.a, &gemm.b, &gemm.d].map(elements);
        let [a, b] = gemm.ordered(formats.operands());
        let (mut end, elements) = (0, [a, b, formats.result]);
        let starts = [0, 1, 2].map(|at| {
            let start = end;
            end = (start + lens[at] * elements[at].bytes()).next_multiple_of(256);
            start
        });
        let scales = matches!(formats.arithmetic, Arithmetic::F8(_)).then_some(end);
        let arena = Arena::new(device, end + size_of::<[f32; 2]>())?;
        let trial = Trial { arena, starts, scales };
        let matrices = [0, 1].map(|at| (starts[at], elements[at], lens[at]));
        for (start, element, len) in matrices.into_iter().chain(scales.map(|start| (start, Element::F32, 2))) {
            let args = LaunchArgs { elements: len, ..LaunchArgs::default() };
            let buffers = Buffers { inputs: &[], outs: &[trial.arena.address(start, 0)], partials: 0 };
            // SAFETY: the numbers are in the arena, which this stream alone works on.
            unsafe { Fused::new(device, &numbers(element))?.launch(stream, buffers, args)? };
        }
        Ok(trial)
    }

    /// The addresses of the matrices and the scales.
    pub(super) fn addresses(&self) -> Addresses {
        let at = |start| self.arena.address(start, 0);
        let scales = self.scales.map(|start| [at(start), at(start + size_of::<f32>())]);
        Addresses { matrices: self.starts.map(at), scales, added: None }
    }

    /// Seconds of some launches.
    pub(super) fn seconds(
        &self,
        stream: &Stream,
        [start, end]: [&Event; 2],
        launch: impl Fn() -> Result<(), Error>,
    ) -> Result<f64, Error> {
        launch()?;
        stream.record(start)?;
        for _ in 0..LAUNCHES {
            launch()?;
        }
        stream.record(end)?;
        start.seconds_to(end)
    }
}

/// Numbers between -1 and 1.
fn numbers(element: Element) -> Program {
    let mut program = Program::default();
    let index = program.push(Node::Index(Index { origin: 0, size: PERIOD, inner: 1 }), Element::I32, PERIOD);
    let number = program.push(Node::Convert(Read::same(index)), Element::F32, PERIOD);
    let sine = program.push(Node::Unary(Unary::Sin, Read::same(number)), element, PERIOD);
    program.leave(sine);
    program
}

/// The number of the algorithm that takes the fewest seconds; of equal ones the first.
///
/// # Errors
/// One cannot be timed.
pub(super) fn fastest<T>(all: &[T], seconds: impl Fn(&T) -> Result<f64, Error>) -> Result<usize, Error> {
    let mut best = (0, f64::INFINITY);
    for (at, one) in all.iter().enumerate() {
        let taken = seconds(one)?;
        if taken < best.1 {
            best = (at, taken);
        }
    }
    Ok(best.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_is_the_first_of_equal_ones() {
        assert_eq!(fastest(&[3.0, 1.0, 2.0, 1.0], |&seconds| Ok(seconds)).unwrap(), 1);
        assert_eq!(fastest(&[3.0], |&seconds| Ok(seconds)).unwrap(), 0);
        assert!(fastest(&[1.0], |_| Err(Error::Program("no".into()))).is_err());
    }
}
