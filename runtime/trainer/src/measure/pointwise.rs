//! Measurement of memory-bound kernels.

use super::{seconds, turns};
use device::timed::{TimedOperand, width};
use kernels::cpu::Par;
use kernels::cpu::elementwise::{Binary, Unary, binary, unary};
use kernels::cpu::narrow::{Floats, FloatsMut, Narrow, round, widen};
use kernels::cpu::norm::{rms_norm, rms_norm_dx};

/// Columns of a tensor, and elements: 256 tokens of tiny-llama.
const WIDTH: usize = 256;
const ELEMENTS: usize = 256 * WIDTH;

/// Elements of narrow tensors that kernels widen, work on and round at a time, as groups of statements do.
const TILE: usize = 32 * WIDTH;

/// Tensors that the kernels of [`Tensors::layer`] read and write together.
const MOVED: usize = 2 + 2 + 2 + 3 + 3 + 3 + 3;

/// Tensors in turn: two to read and one to write.
struct Tensors {
    all: Vec<[TimedOperand; 3]>,
    next: usize,
    gamma: Vec<f32>,
    rstd: Vec<f32>,
    /// A tile of each in f32.
    wide: [Vec<f32>; 3],
}

/// Bytes per second of a core that adds tensors of f32.
pub(super) fn sum_bandwidth(cores: usize) -> Result<f64, String> {
    let seconds = seconds(cores, || {
        let mut tensors = Tensors::new(None);
        move || tensors.pointwise(Binary::Add)
    })?;
    Ok(bytes(3, None) as f64 / seconds)
}

/// Bytes per second of a core that runs the kernels of a layer on tensors of a format.
pub(super) fn layer_bandwidth(cores: usize, format: Option<Narrow>) -> Result<f64, String> {
    let seconds = seconds(cores, || {
        let mut tensors = Tensors::new(format);
        move || tensors.layer()
    })?;
    Ok(bytes(MOVED, format) as f64 / seconds)
}

fn bytes(tensors: usize, format: Option<Narrow>) -> usize {
    width(format) * ELEMENTS * tensors
}

impl Tensors {
    fn new(format: Option<Narrow>) -> Tensors {
        let all =
            (0..turns(bytes(3, format))).map(|_| [0; 3].map(|_| TimedOperand::new(format, 0.5, ELEMENTS))).collect();
        let (gamma, rstd) = (vec![1.0; WIDTH], vec![1.0; ELEMENTS / WIDTH]);
        Tensors { all, next: 0, gamma, rstd, wide: [0; 3].map(|_| vec![0.0; TILE]) }
    }

    /// Runs a kernel of one or two operands on the next tensors. It has the weights of a norm too, and the statistics of its rows.
    fn run(&mut self, operands: usize, kernel: impl Fn([&[f32]; 2], &mut [f32], &[f32], &mut [f32])) {
        self.next = (self.next + 1) % self.all.len();
        let (gamma, rstd, [x, y, out]) = (&self.gamma, &mut self.rstd, &mut self.all[self.next]);
        match (x.read(), y.read(), out.write()) {
            (Floats::Narrow(format, x), Floats::Narrow(_, y), FloatsMut::Narrow(_, out)) => {
                let tile = TILE * format.bytes();
                let tiles = x.chunks(tile).zip(y.chunks(tile)).zip(out.chunks_mut(tile));
                let [a, b, made] = &mut self.wide;
                for (((x, y), out), rstd) in tiles.zip(rstd.chunks_mut(TILE / WIDTH)) {
                    widen(format, x, a, Par(1));
                    if operands == 2 {
                        widen(format, y, b, Par(1));
                    }
                    kernel([a, b], made, gamma, rstd);
                    round(format, made, out, Par(1));
                }
            }
            (Floats::Wide(x), Floats::Wide(y), FloatsMut::Wide(out)) => kernel([x, y], out, gamma, rstd),
            _ => unreachable!("the tensors have one format"),
        }
    }

    fn pointwise(&mut self, op: Binary) {
        self.run(2, |[x, y], out, _, _| binary(op, x, y, out, Par(1)));
    }

    /// Ops of a Llama layer other than matmuls and attention: norms, the gate, the residual sum, and their gradients.
    fn layer(&mut self) {
        self.run(1, |[x, _], out, gamma, rstd| rms_norm(x, gamma, 1e-5, out, rstd, Par(1)));
        for op in [Unary::Silu, Unary::Scale(0.5)] {
            self.run(1, |[x, _], out, _, _| unary(op, x, out, Par(1)));
        }
        for op in [Binary::Mul, Binary::Add, Binary::SiluGrad] {
            self.pointwise(op);
        }
        self.run(2, |[x, dy], dx, gamma, rstd| rms_norm_dx(x, gamma, rstd, dy, dx, Par(1)));
    }
}
