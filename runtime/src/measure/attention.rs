//! Causal attention by size of a head and length.

use super::{AttentionTime, seconds};
use kernels::cpu::Par;
use kernels::cpu::attention::{Attention, Gradients, Inputs, Saved};

/// Sizes of a head.
const HEADS: [usize; 3] = [32, 64, 128];

/// Lengths of a sequence, and how many heads keep the kernel busy for about as long.
const LENGTHS: [(usize, usize); 2] = [(128, 4), (512, 1)];

/// All sizes and lengths.
pub(super) fn all(cores: usize) -> Vec<AttentionTime> {
    HEADS
        .iter()
        .flat_map(|&head| LENGTHS.iter().map(move |&(length, heads)| time(cores, heads, length, head)))
        .collect()
}

fn time(cores: usize, heads: usize, length: usize, head: usize) -> AttentionTime {
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
        dropout: None,
    };
    let (elements, rows) = (length * heads * head, length * heads);
    let positions: Vec<i32> = (0..).take(length).collect();
    let segments = vec![0; length];
    let tokens = [&positions[..], &segments];
    let forward = || {
        let (x, mut out, mut lse, mut scratch) =
            (vec![0.1; elements], vec![0.0; elements], vec![0.0; rows], Vec::new());
        move || shape.forward(&inputs(&x, tokens), &mut out, &mut lse, Par(1), &mut scratch)
    };
    let backward = || {
        let (x, lse, mut scratch) = (vec![0.1; elements], vec![1.0; rows], Vec::new());
        let [mut dq, mut dk, mut dv] = [0; 3].map(|_| vec![0.0; elements]);
        move || {
            let saved = Saved { out: &x, lse: &lse, dout: &x };
            let gradients = Gradients { dq: &mut dq, dk: &mut dk, dv: &mut dv };
            shape.backward(&inputs(&x, tokens), &saved, gradients, Par(1), &mut scratch);
        }
    };
    AttentionTime { heads, length, head, seconds: [seconds(cores, forward), seconds(cores, backward)] }
}

/// The same queries, keys and values, of tokens at these positions in these segments.
fn inputs<'a>(x: &'a [f32], [positions, segments]: [&'a [i32]; 2]) -> Inputs<'a> {
    Inputs { q: x, k: x, v: x, qpos: positions, kpos: positions, qseg: segments, kseg: segments }
}
