//! Chunks, documents and threads change no result.

use super::*;
use crate::cpu::testing::{assert_close, doubles, normals};

/// A scan with its operands: unit keys, betas from 0 to 1, and decays of which some are heavy.
struct Case {
    scan: Scan,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    decay: Vec<f32>,
    further: Vec<f32>,
    pos: Vec<i32>,
}

impl Case {
    fn new(kind: Recurrence, by_key: bool, s: usize, chunk: usize) -> Case {
        let (b, g, r, k, c) = (2, 2, 3, 8, 5);
        let scan = Scan { kind, by_key, b, s, g, r, k, c, scale: 0.4, chunk };
        let heads = b * s * g * r;
        let keys = |seed| -> Vec<f32> {
            let all = normals(b * s * g * k, seed);
            let unit = |row: &[f32]| {
                let norm = row.iter().map(|x| x * x).sum::<f32>().sqrt();
                row.iter().map(|x| x / norm).collect::<Vec<f32>>()
            };
            all.chunks_exact(k).flat_map(unit).collect()
        };
        let decay =
            normals(heads * scan.decays(), 4).iter().map(|x| -x * x * if *x > 1.0 { 9.0 } else { 0.1 }).collect();
        let further = match kind {
            Recurrence::Linear => Vec::new(),
            Recurrence::Delta => normals(heads, 5).iter().map(|x| 1.0 / (1.0 + x.exp())).collect(),
            Recurrence::Selective => normals(g * r * k, 5).iter().map(|x| x.abs()).collect(),
        };
        let pos = (0..(b * s) as i32).map(|row| row % s as i32).collect();
        Case { scan, q: keys(1), k: keys(2), v: normals(heads * c, 3), decay, further, pos }
    }

    fn inputs(&self) -> Inputs<'_> {
        let Case { q, k, v, decay, further, pos, .. } = self;
        Inputs { q, k, v, decay, further, pos, start: &[] }
    }

    fn forward(&self, par: Par) -> Vec<f32> {
        let mut out = vec![f32::NAN; self.v.len()];
        self.scan.forward(&self.inputs(), &mut out, par, &mut Vec::new());
        out
    }

    /// All gradients, one behind the other.
    fn backward(&self, par: Par) -> Vec<f32> {
        let dout = normals(self.v.len(), 6);
        let empty = |x: &Vec<f32>| vec![f32::NAN; x.len()];
        let [mut q, mut k, mut v] = [&self.q, &self.k, &self.v].map(empty);
        let [mut decay, mut further] = [&self.decay, &self.further].map(empty);
        let gradients = Gradients { q: &mut q, k: &mut k, v: &mut v, decay: &mut decay, further: &mut further };
        let by = Slopes { out: &dout, end: &[] };
        self.scan.backward(&self.inputs(), &by, gradients, par, &mut Vec::new());
        [q, k, v, decay, further].concat()
    }
}

const KINDS: [(Recurrence, bool); 5] = [
    (Recurrence::Linear, false),
    (Recurrence::Linear, true),
    (Recurrence::Delta, false),
    (Recurrence::Delta, true),
    (Recurrence::Selective, false),
];

/// With chunks of one row a scan goes token by token.
#[test]
fn chunks_change_no_result() {
    for (kind, by_key) in KINDS {
        for s in [1, 5, 33, 100] {
            let single = Case::new(kind, by_key, s, 1);
            let (out, gradients) = (doubles(&single.forward(Par(1))), doubles(&single.backward(Par(1))));
            for chunk in [7, 16, 64] {
                let case = Case::new(kind, by_key, s, chunk);
                assert_close(&case.forward(Par(1)), &out, 5e-6);
                assert_close(&case.backward(Par(1)), &gradients, 5e-6);
            }
        }
    }
}

#[test]
fn threads_change_no_bit() {
    for (kind, by_key) in KINDS {
        let case = Case::new(kind, by_key, 700, 16);
        assert_eq!(case.forward(Par(1)), case.forward(Par(3)), "{kind:?}");
        assert_eq!(case.backward(Par(1)), case.backward(Par(3)), "{kind:?}");
    }
}

/// Rows before a document change no bit of its results, wherever in a chunk it begins.
#[test]
fn documents_are_apart() {
    for (kind, by_key) in KINDS {
        for first in [16, 21] {
            let mut packed = Case::new(kind, by_key, 48, 16);
            for row in packed.pos.chunks_exact_mut(48) {
                (0..48 - first).for_each(|at| row[first as usize + at as usize] = at);
            }
            let together = packed.forward(Par(1));
            let mut other = Case::new(kind, by_key, 48, 16);
            other.pos.clone_from(&packed.pos);
            // Whatever comes before the second document, its results stay.
            let width = |x: &[f32]| x.len() / (2 * 48);
            for tensor in [&mut other.v, &mut other.k] {
                let row = width(tensor);
                for b in 0..2 {
                    tensor[b * 48 * row..(b * 48 + first as usize) * row].iter_mut().for_each(|x| *x *= -3.0);
                }
            }
            let changed = other.forward(Par(1));
            let row = width(&together);
            for b in 0..2 {
                let second = (b * 48 + first as usize) * row..(b + 1) * 48 * row;
                assert_eq!(together[second.clone()], changed[second], "{kind:?} from {first} on");
            }
        }
    }
}

/// Blocks whose states go from one to the next give what a whole sequence gives, and so do their gradients.
#[test]
fn blocks_that_hand_on_states_are_the_whole() {
    for (kind, by_key) in KINDS {
        for (s, blocks) in [(24, 2), (24, 8), (60, 4)] {
            let mut whole = Case::new(kind, by_key, s, 7);
            // A second document begins within a block.
            whole.pos.iter_mut().for_each(|pos| *pos = if *pos > 10 { *pos - 11 } else { *pos });
            let scan = Scan { b: whole.scan.b * blocks, s: s / blocks, ..whole.scan };
            let states = scan.b * scan.g * scan.r * scan.k * scan.c;
            let transition = if kind == Recurrence::Linear && !by_key { 1 } else { scan.k };
            let transition = if kind == Recurrence::Delta { scan.k * scan.k } else { transition };
            let Scan { g, r, k, c, .. } = scan;
            let carry = Carry { reverse: false, b: whole.scan.b, n: blocks, heads: g * r, k, c, transition };
            let empty = || vec![f32::NAN; states];
            let (mut end, mut through) = (empty(), vec![f32::NAN; scan.b * g * r * transition]);
            let scratch = &mut Vec::new();
            scan.end(&whole.inputs(), &mut end, &mut through, Par(2), scratch);
            let (mut start, mut dstart, mut dend) = (empty(), empty(), empty());
            carry.run(&end, &through, &mut start, Par(1));
            let inputs = Inputs { start: &start, ..whole.inputs() };
            let mut out = vec![f32::NAN; whole.v.len()];
            scan.forward(&inputs, &mut out, Par(1), scratch);
            assert_close(&out, &doubles(&whole.forward(Par(1))), 5e-6);

            let dout = normals(whole.v.len(), 6);
            scan.by_start(&inputs, &dout, &mut dstart, Par(2), scratch);
            Carry { reverse: true, ..carry }.run(&dstart, &through, &mut dend, Par(2));
            let [mut q, mut k, mut v] = [&whole.q, &whole.k, &whole.v].map(|x| vec![f32::NAN; x.len()]);
            let [mut decay, mut further] = [&whole.decay, &whole.further].map(|x| vec![f32::NAN; x.len()]);
            let gradients = Gradients { q: &mut q, k: &mut k, v: &mut v, decay: &mut decay, further: &mut further };
            scan.backward(&inputs, &Slopes { out: &dout, end: &dend }, gradients, Par(1), scratch);
            assert_close(&[q, k, v, decay, further].concat(), &doubles(&whole.backward(Par(1))), 2e-5);
        }
    }
}

/// Without decay a linear scan is causal attention without a softmax.
#[test]
fn linear_without_decay_is_attention_without_softmax() {
    let mut case = Case::new(Recurrence::Linear, false, 20, 16);
    case.decay.fill(0.0);
    let Scan { b, s, g, r, k, c, scale, .. } = case.scan;
    let mut exact = vec![0.0; case.v.len()];
    for (b, g, r) in (0..b).flat_map(|i| (0..g).flat_map(move |j| (0..r).map(move |l| (i, j, l)))) {
        let head = Head { b, g, r };
        for i in 0..s {
            for j in 0..=i {
                let [q, key] = [(&case.q, i), (&case.k, j)].map(|(of, t)| &of[case.scan.of_keys(head, t)..][..k]);
                let score: f64 = q.iter().zip(key).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
                let (to, from) = (case.scan.of_values(head, i) * c, case.scan.of_values(head, j) * c);
                (0..c).for_each(|at| exact[to + at] += f64::from(scale) * score * f64::from(case.v[from + at]));
            }
        }
    }
    assert_close(&case.forward(Par(1)), &exact, 1e-6);
}
