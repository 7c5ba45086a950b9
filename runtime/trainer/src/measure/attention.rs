//! Measurement of causal attention by head size and sequence length.

use super::{AttentionTime, seconds, turns};
use device::timed::{TimedOperand, width};
use kernels::cpu::Par;
use kernels::cpu::attention::{Attention, Gradients, Inputs, Saved};
use kernels::cpu::narrow::{FloatsMut, Narrow, round};

/// Sizes of a head.
const HEADS: [usize; 3] = [32, 64, 128];

/// Lengths of a sequence, with numbers of heads that take about equal time.
const LENGTHS: [(usize, usize); 2] = [(128, 4), (512, 1)];

/// All sizes and lengths, in a format.
pub(super) fn all(cores: usize, format: Option<Narrow>) -> Result<Vec<AttentionTime>, String> {
    let sizes = HEADS.iter().flat_map(|&head| LENGTHS.iter().map(move |&(length, heads)| Size { heads, length, head }));
    sizes.map(|size| time(cores, size, format)).collect()
}

/// Heads, their length and their size.
pub(super) struct Size {
    pub(super) heads: usize,
    pub(super) length: usize,
    pub(super) head: usize,
}

/// Attention of a number of heads, of a length and a size. Results are written as in a step: in f32 and rounded where the kernel does
/// not write the format.
pub(super) fn time(cores: usize, size: Size, format: Option<Narrow>) -> Result<AttentionTime, String> {
    let Size { heads, length, head } = size;
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
    let positions = &(0..).take(length).collect::<Vec<i32>>();
    let segments = &vec![0; length];
    let written = format.filter(|format| shape.writes(*format));
    let forward_s = seconds(cores, || {
        let mut all = tensors(elements, format);
        let (mut next, mut lse, mut scratch) = (0, vec![0.0; rows], Vec::new());
        let mut wide = Wide::new(elements, written != format);
        move || {
            next = (next + 1) % all.len();
            let [q, k, v, out, ..] = &mut all[next];
            let x = inputs([q, k, v], positions, segments);
            wide.write([out], |[out]| shape.forward(&x, out, &mut lse, Par(1), &mut scratch));
        }
    })?;
    let backward_s = seconds(cores, || {
        let mut all = tensors(elements, format);
        let (mut next, lse, mut scratch) = (0, vec![1.0; rows], Vec::new());
        let mut wide = Wide::new(elements, written != format);
        move || {
            next = (next + 1) % all.len();
            let [q, k, v, out, dout, dq, dk, dv] = &mut all[next];
            let saved = Saved { out: out.read(), lse: &lse, dout: dout.read() };
            let x = inputs([q, k, v], positions, segments);
            wide.write([dq, dk, dv], |[dq, dk, dv]| {
                shape.backward(&x, &saved, Gradients { dq, dk, dv }, Par(1), &mut scratch);
            });
        }
    })?;
    Ok(AttentionTime { heads, length, head, forward_s, backward_s })
}

/// Results in f32 that are rounded to narrow operands; none if the kernel writes their format.
struct Wide(Option<[Vec<f32>; 3]>);

impl Wide {
    fn new(elements: usize, rounds: bool) -> Wide {
        Wide(rounds.then(|| [0; 3].map(|_| vec![0.0; elements])))
    }

    /// Calls a kernel that writes to operands.
    fn write<const N: usize>(&mut self, to: [&mut TimedOperand; N], kernel: impl FnOnce([FloatsMut<'_>; N])) {
        let Some(wide) = self.0.as_mut().and_then(|wide| wide.first_chunk_mut::<N>()) else {
            return kernel(to.map(TimedOperand::write));
        };
        kernel(wide.each_mut().map(|wide| FloatsMut::Wide(wide)));
        for (to, wide) in to.into_iter().zip(wide) {
            if let FloatsMut::Narrow(format, to) = to.write() {
                round(format, wide, to, Par(1));
            }
        }
    }
}

/// Sets of queries, keys, values, results and their gradients that calls take in turn.
fn tensors(elements: usize, format: Option<Narrow>) -> Vec<[TimedOperand; 8]> {
    (0..turns(8 * elements * width(format))).map(|_| [0; 8].map(|_| TimedOperand::new(format, 0.1, elements))).collect()
}

/// Inputs for tokens at these positions in these segments.
fn inputs<'a>(operands: [&'a TimedOperand; 3], positions: &'a [i32], segments: &'a [i32]) -> Inputs<'a> {
    let [q, k, v] = operands.map(TimedOperand::read);
    Inputs { q, k, v, qpos: positions, kpos: positions, qseg: segments, kseg: segments, sink: None }
}
