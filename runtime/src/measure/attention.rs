//! Measurement of causal attention by head size and sequence length.

use super::{AttentionTime, seconds, turns};
use crate::timed::{TimedOperand, width};
use kernels::cpu::Par;
use kernels::cpu::attention::{Attention, Gradients, Inputs, Saved};
use kernels::cpu::narrow::Narrow;

/// Sizes of a head.
const HEADS: [usize; 3] = [32, 64, 128];

/// Lengths of a sequence, with numbers of heads that take about equal time.
const LENGTHS: [(usize, usize); 2] = [(128, 4), (512, 1)];

/// All sizes and lengths, in a format.
pub(super) fn all(cores: usize, format: Option<Narrow>) -> Vec<AttentionTime> {
    let sizes = HEADS.iter().flat_map(|&head| LENGTHS.iter().map(move |&(length, heads)| (heads, length, head)));
    sizes.map(|size| time(cores, size, format)).collect()
}

fn time(cores: usize, (heads, length, head): (usize, usize, usize), format: Option<Narrow>) -> AttentionTime {
    let shape = Attention {
        b: 1,
        s: length,
        t: length,
        g: heads,
        r: 1,
        d: head,
        c: head,
        scale: 0.1,
        causal: true,
        window: None,
        chunk: None,
        softcap: None,
        dropout: None,
    };
    let (elements, rows) = (length * heads * head, length * heads);
    let positions: Vec<i32> = (0..).take(length).collect();
    let segments = vec![0; length];
    let tokens = [&positions[..], &segments];
    let forward = || {
        let mut all = tensors(elements, format);
        let (mut next, mut lse, mut scratch) = (0, vec![0.0; rows], Vec::new());
        move || {
            next = (next + 1) % all.len();
            let [q, k, v, out, ..] = &mut all[next];
            shape.forward(&inputs([q, k, v], tokens), out.write(), &mut lse, Par(1), &mut scratch);
        }
    };
    let backward = || {
        let mut all = tensors(elements, format);
        let (mut next, lse, mut scratch) = (0, vec![1.0; rows], Vec::new());
        move || {
            next = (next + 1) % all.len();
            let [q, k, v, out, dout, dq, dk, dv] = &mut all[next];
            let saved = Saved { out: out.read(), lse: &lse, dout: dout.read() };
            let gradients = Gradients { dq: dq.write(), dk: dk.write(), dv: dv.write() };
            shape.backward(&inputs([q, k, v], tokens), &saved, gradients, Par(1), &mut scratch);
        }
    };
    let (forward_s, backward_s) = (seconds(cores, forward), seconds(cores, backward));
    AttentionTime { heads, length, head, forward_s, backward_s }
}

/// Sets of queries, keys, values, results and their gradients that calls take in turn.
fn tensors(elements: usize, format: Option<Narrow>) -> Vec<[TimedOperand; 8]> {
    (0..turns(8 * elements * width(format))).map(|_| [0; 8].map(|_| TimedOperand::new(format, 0.1, elements))).collect()
}

/// Inputs for tokens at these positions in these segments.
fn inputs<'a>(operands: [&'a TimedOperand; 3], [positions, segments]: [&'a [i32]; 2]) -> Inputs<'a> {
    let [q, k, v] = operands.map(TimedOperand::read);
    Inputs { q, k, v, qpos: positions, kpos: positions, qseg: segments, kseg: segments, sink: None }
}
