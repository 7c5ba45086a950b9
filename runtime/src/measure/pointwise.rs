//! Measurement of memory-bound kernels.

use super::{seconds, turns};
use kernels::cpu::Par;
use kernels::cpu::elementwise::{Binary, Unary, binary, unary};
use kernels::cpu::norm::{rms_norm, rms_norm_dx};

/// Columns of a tensor, and elements: 256 tokens of tiny-llama.
const WIDTH: usize = 256;
const ELEMENTS: usize = 256 * WIDTH;

/// Tensors that the kernels of [`Tensors::layer`] read and write together.
const MOVED: usize = 2 + 2 + 2 + 3 + 3 + 3 + 3;

/// Tensors in turn.
struct Tensors {
    all: Vec<[Vec<f32>; 3]>,
    next: usize,
    gamma: Vec<f32>,
    rstd: Vec<f32>,
}

/// Bytes per second of a core that adds tensors.
pub(super) fn sum_bandwidth(cores: usize) -> f64 {
    let sums = || {
        let mut tensors = Tensors::new();
        move || tensors.pointwise(Binary::Add)
    };
    bytes(3) as f64 / seconds(cores, sums)
}

/// Bytes per second of a core that runs the kernels of a layer.
pub(super) fn layer_bandwidth(cores: usize) -> f64 {
    let layer = || {
        let mut tensors = Tensors::new();
        move || tensors.layer()
    };
    bytes(MOVED) as f64 / seconds(cores, layer)
}

fn bytes(tensors: usize) -> usize {
    4 * ELEMENTS * tensors
}

impl Tensors {
    fn new() -> Tensors {
        let all = (0..turns(bytes(3))).map(|_| [0; 3].map(|_| vec![0.5; ELEMENTS])).collect();
        Tensors { all, next: 0, gamma: vec![1.0; WIDTH], rstd: vec![1.0; ELEMENTS / WIDTH] }
    }

    /// Two to read and one to write, further round each time; weights and statistics of a norm.
    fn turn(&mut self) -> (&mut [Vec<f32>; 3], &[f32], &mut [f32]) {
        self.next = (self.next + 1) % self.all.len();
        (&mut self.all[self.next], &self.gamma, &mut self.rstd)
    }

    fn pointwise(&mut self, op: Binary) {
        let ([a, b, out], ..) = self.turn();
        binary(op, &a[..], &b[..], out, Par(1));
    }

    /// Ops of a Llama layer other than matmuls and attention: norms, the gate, the residual sum, and their gradients.
    fn layer(&mut self) {
        let ([x, _, out], gamma, rstd) = self.turn();
        rms_norm(x, gamma, 1e-5, out, rstd, Par(1));
        for op in [Unary::Silu, Unary::Scale(0.5)] {
            let ([x, _, out], ..) = self.turn();
            unary(op, &x[..], out, Par(1));
        }
        for op in [Binary::Mul, Binary::Add, Binary::SiluGrad] {
            self.pointwise(op);
        }
        let ([x, dy, dx], gamma, rstd) = self.turn();
        rms_norm_dx(x, gamma, rstd, dy, dx, Par(1));
    }
}
