//! Scans, token by token.

use crate::real::Real;
use crate::tensor::Tensor;
use ir::ops::{ScanKind, ScanSettings};
use std::ops::Range;

/// The operands of a scan.
#[derive(Clone, Copy)]
pub(super) struct ScanInputs<'a, R> {
    pub(super) settings: &'a ScanSettings,
    pub(super) q: &'a Tensor<R>,
    pub(super) k: &'a Tensor<R>,
    pub(super) v: &'a Tensor<R>,
    pub(super) decay: &'a Tensor<R>,
    /// Rates or beta, if the kind has them.
    pub(super) further: Option<&'a Tensor<R>>,
    pub(super) pos: &'a Tensor<i32>,
    /// The states before blocks; none: 0.
    pub(super) start: Option<&'a Tensor<R>>,
}

/// The sizes b, s, g, r, k, c of a scan. Each block counts as a sequence.
#[derive(Clone, Copy)]
struct Sizes {
    b: usize,
    s: usize,
    g: usize,
    r: usize,
    k: usize,
    c: usize,
}

/// A row of a head: of queries and keys, and of values.
#[derive(Clone, Copy)]
struct Place {
    token: usize,
    of_keys: usize,
    of_values: usize,
}

impl Sizes {
    fn heads(self) -> impl Iterator<Item = [usize; 3]> {
        let Sizes { b, g, r, .. } = self;
        (0..b).flat_map(move |i| (0..g).flat_map(move |j| (0..r).map(move |l| [i, j, l])))
    }

    /// The elements of the state of a head among those of all.
    fn of_state(self, head: [usize; 3]) -> Range<usize> {
        let [b, g, r] = head;
        let first = ((b * self.g + g) * self.r + r) * self.k * self.c;
        first..first + self.k * self.c
    }

    fn place(self, head: [usize; 3], t: usize) -> Place {
        let [b, g, r] = head;
        let token = b * self.s + t;
        let of_keys = token * self.g + g;
        Place { token, of_keys, of_values: of_keys * self.r + r }
    }
}

/// A step of a head: what the state becomes by decay, and what is added along the key.
struct Step<R> {
    /// The state after decay.
    decayed: Vec<R>,
    /// `v`, or `v - S^T k`, by column.
    rest: Vec<R>,
    /// The factor of the rest.
    beta: R,
    /// The state after the row.
    state: Vec<R>,
}

/// The gradients of a scan.
pub(super) struct ScanGradients<R> {
    q: Tensor<R>,
    k: Tensor<R>,
    v: Tensor<R>,
    decay: Tensor<R>,
    further: Option<Tensor<R>>,
    start: Tensor<R>,
}

impl<R: Real> ScanGradients<R> {
    /// dq, dk, dv, ddecay, and drates or dbeta.
    pub(super) fn into_list(self) -> Vec<Tensor<R>> {
        [self.q, self.k, self.v, self.decay].into_iter().chain(self.further).collect()
    }
}

impl<R: Real> ScanInputs<'_, R> {
    fn sizes(&self) -> Sizes {
        let [b, s, g, r, c] = [0, 1, 2, 3, 4].map(|dim| self.v.dims[dim]);
        let rows = self.settings.block.map_or(s, |block| block as usize);
        Sizes { b: b * s / rows.max(1), s: rows, g, r, k: self.k.columns(), c }
    }

    /// The state before the rows of a head.
    fn first(&self, sizes: Sizes, head: [usize; 3]) -> Vec<R> {
        match self.start {
            None => vec![R::zero(); sizes.k * sizes.c],
            Some(start) => start.data[sizes.of_state(head)].to_vec(),
        }
    }

    /// The states behind all blocks.
    fn last(&self) -> Tensor<R> {
        let sizes = self.sizes();
        let mut states = self.states();
        for head in sizes.heads() {
            let mut state = self.first(sizes, head);
            (0..sizes.s).for_each(|t| state = self.step(sizes, head, t, &state).state);
            states.data[sizes.of_state(head)].copy_from_slice(&state);
        }
        states
    }

    /// Zero states.
    fn states(&self) -> Tensor<R> {
        let Sizes { b, g, r, k, c, .. } = self.sizes();
        let sequences = self.v.dims[0];
        Tensor::zeros(&[sequences, b / sequences.max(1), g, r, k, c])
    }

    /// The states behind blocks from zero states, and what becomes of a state: what the rows make of an identity, without values. `dims` are
    /// those of the transitions.
    pub(super) fn of_blocks(&self, dims: &[usize]) -> [Tensor<R>; 2] {
        let Sizes { k, .. } = self.sizes();
        let no_values = Tensor::zeros(&[&self.v.dims[..4], &[k]].concat());
        let alone = ScanInputs { v: &no_values, ..*self };
        let mut identities = alone.states();
        for state in identities.data.chunks_exact_mut((k * k).max(1)) {
            (0..k).for_each(|i| state[i * k + i] = R::one());
        }
        let matrices = ScanInputs { start: Some(&identities), ..alone }.last();
        let mut through = Tensor::zeros(dims);
        let kept = through.data.len() * k * k / matrices.data.len().max(1);
        for (matrix, through) in
            matrices.data.chunks_exact((k * k).max(1)).zip(through.data.chunks_exact_mut(kept.max(1)))
        {
            // A number stands for all rows, and one for each row for a diagonal.
            let stride = if kept == k * k { 1 } else { k + 1 };
            through.iter_mut().zip(matrix.iter().step_by(stride)).for_each(|(x, &of_state)| *x = of_state);
        }
        [self.last(), through]
    }

    /// The gradients by the states before blocks.
    pub(super) fn by_start(&self, dout: &Tensor<R>) -> Tensor<R> {
        self.backward(dout, None).start
    }

    /// The place of the decay of row i of a state among all decays, and its rate.
    fn decay_of(&self, sizes: Sizes, head: [usize; 3], at: Place, i: usize) -> (usize, R) {
        match (self.settings.kind, self.further) {
            (ScanKind::Selective, Some(rates)) => {
                (at.of_values, rates.data[(head[1] * sizes.r + head[2]) * sizes.k + i])
            }
            _ if self.decay.dims.len() == 5 => (at.of_values * sizes.k + i, R::one()),
            _ => (at.of_values, R::one()),
        }
    }

    /// The step of a row from the state before it.
    fn step(&self, sizes: Sizes, head: [usize; 3], t: usize, before: &[R]) -> Step<R> {
        let (at, c) = (sizes.place(head, t), sizes.c);
        let key = &self.k.data[at.of_keys * sizes.k..][..sizes.k];
        let begins = self.pos.data[at.token] == 0;
        let mut decayed = before.to_vec();
        for (i, row) in decayed.chunks_exact_mut(c).enumerate() {
            let (place, rate) = self.decay_of(sizes, head, at, i);
            let factor = if begins { R::zero() } else { (self.decay.data[place] * rate).exp() };
            row.iter_mut().for_each(|x| *x = factor * *x);
        }
        let mut rest = self.v.data[at.of_values * c..][..c].to_vec();
        let mut beta = R::one();
        if let (ScanKind::Delta, Some(betas)) = (self.settings.kind, self.further) {
            beta = betas.data[at.of_values];
            for (row, &key) in decayed.chunks_exact(c).zip(key) {
                rest.iter_mut().zip(row).for_each(|(rest, &x)| *rest += -(x * key));
            }
        }
        let mut state = decayed.clone();
        for (row, &key) in state.chunks_exact_mut(c).zip(key) {
            row.iter_mut().zip(&rest).for_each(|(x, &rest)| *x += key * beta * rest);
        }
        Step { decayed, rest, beta, state }
    }

    /// The results: of each row the state after it times the query.
    pub(super) fn forward(&self) -> Tensor<R> {
        let (sizes, scale) = (self.sizes(), R::of(self.settings.scale));
        let mut out = Tensor::zeros(&self.v.dims);
        for head in sizes.heads() {
            let mut state = self.first(sizes, head);
            for t in 0..sizes.s {
                state = self.step(sizes, head, t, &state).state;
                let at = sizes.place(head, t);
                let out = &mut out.data[at.of_values * sizes.c..][..sizes.c];
                for (row, &query) in state.chunks_exact(sizes.c).zip(&self.q.data[at.of_keys * sizes.k..]) {
                    out.iter_mut().zip(row).for_each(|(out, &x)| *out += scale * query * x);
                }
            }
        }
        out
    }

    /// The gradients, by the same rows in reverse; `dend` has those by the states behind blocks, if they are not 0.
    pub(super) fn backward(&self, dout: &Tensor<R>, dend: Option<&Tensor<R>>) -> ScanGradients<R> {
        let sizes = self.sizes();
        let mut gradients = ScanGradients {
            q: like(self.q),
            k: like(self.k),
            v: like(self.v),
            decay: like(self.decay),
            further: self.further.map(like),
            start: self.states(),
        };
        for head in sizes.heads() {
            let (first, mut steps): (Vec<R>, Vec<Step<R>>) = (self.first(sizes, head), Vec::new());
            for t in 0..sizes.s {
                let step = self.step(sizes, head, t, steps.last().map_or(&first, |step| &step.state));
                steps.push(step);
            }
            let zeros = vec![R::zero(); sizes.k * sizes.c];
            let mut by_state = dend.map_or(zeros, |dend| dend.data[sizes.of_state(head)].to_vec());
            for (t, step) in steps.iter().enumerate().rev() {
                self.step_back(sizes, head, t, step, dout, &mut by_state, &mut gradients);
            }
            gradients.start.data[sizes.of_state(head)].copy_from_slice(&by_state);
        }
        gradients
    }

    /// Adds the gradients of a row; the gradient by the state after it becomes that by the state before it.
    #[allow(clippy::too_many_arguments, reason = "the row, its values and its gradients")]
    fn step_back(
        &self,
        sizes: Sizes,
        head: [usize; 3],
        t: usize,
        step: &Step<R>,
        dout: &Tensor<R>,
        by_state: &mut [R],
        gradients: &mut ScanGradients<R>,
    ) {
        let (at, Sizes { k, c, .. }, scale) = (sizes.place(head, t), sizes, R::of(self.settings.scale));
        let (q, key) = (&self.q.data[at.of_keys * k..][..k], &self.k.data[at.of_keys * k..][..k]);
        let dout = &dout.data[at.of_values * c..][..c];
        let mut by_rest = vec![R::zero(); c];
        for i in 0..k {
            let row = &mut by_state[i * c..][..c];
            gradients.q.data[at.of_keys * k + i] += scale * dot(dout, &step.state[i * c..][..c]);
            row.iter_mut().zip(dout).for_each(|(x, &dout)| *x += scale * q[i] * dout);
            gradients.k.data[at.of_keys * k + i] += step.beta * dot(row, &step.rest);
            by_rest.iter_mut().zip(&*row).for_each(|(sum, &x)| *sum += step.beta * key[i] * x);
        }
        gradients.v.data[at.of_values * c..][..c].copy_from_slice(&by_rest);
        if self.settings.kind == ScanKind::Delta {
            for i in 0..k {
                let (row, decayed) = (&mut by_state[i * c..][..c], &step.decayed[i * c..][..c]);
                // Of `beta dS^T k`, the part by beta.
                let by_beta = key[i] * dot(row, &step.rest);
                gradients.further.iter_mut().for_each(|betas| betas.data[at.of_values] += by_beta);
                gradients.k.data[at.of_keys * k + i] += -dot(&by_rest, decayed);
                row.iter_mut().zip(&by_rest).for_each(|(x, &by_rest)| *x += -(key[i] * by_rest));
            }
        }
        let begins = self.pos.data[at.token] == 0;
        for i in 0..k {
            let (row, decayed) = (&mut by_state[i * c..][..c], &step.decayed[i * c..][..c]);
            let (place, rate) = self.decay_of(sizes, head, at, i);
            let by_log = dot(row, decayed);
            gradients.decay.data[place] += rate * by_log;
            if self.settings.kind == ScanKind::Selective {
                let rate_place = (head[1] * sizes.r + head[2]) * k + i;
                let by_rate = self.decay.data[place] * by_log;
                gradients.further.iter_mut().for_each(|rates| rates.data[rate_place] += by_rate);
            }
            let factor = if begins { R::zero() } else { (self.decay.data[place] * rate).exp() };
            row.iter_mut().for_each(|x| *x = factor * *x);
        }
    }
}

/// The transition of a head's state: a number, one for each row, or a matrix, which is transposed in reverse.
struct Transition<'a, R> {
    of: &'a [R],
    k: usize,
    reverse: bool,
}

impl<R: Real> Transition<'_, R> {
    fn factor(&self, row: usize, column: usize) -> R {
        let [row, column] = if self.reverse { [column, row] } else { [row, column] };
        match self.of {
            [number] if row == column => *number,
            rows if rows.len() == self.k && row == column => rows[row],
            rows if rows.len() <= self.k => R::zero(),
            matrix => matrix[row * self.k + column],
        }
    }
}

/// The states before blocks, one after the other; in reverse from the last one on, by transposed matrices.
pub(super) fn carry<R: Real>(end: &Tensor<R>, through: &Tensor<R>, reverse: bool) -> Tensor<R> {
    let [b, n, g, r, k, c] = [0, 1, 2, 3, 4, 5].map(|dim| end.dims[dim]);
    let kept = through.data.len() / (b * n * g * r).max(1);
    let mut states = like(end);
    for (sequence, head) in (0..b).flat_map(|b| (0..g * r).map(move |head| (b, head))) {
        let mut state = vec![R::zero(); k * c];
        for step in 0..n {
            let block = if reverse { n - 1 - step } else { step };
            let at = (sequence * n + block) * g * r + head;
            states.data[at * k * c..][..k * c].copy_from_slice(&state);
            let transition = Transition { of: &through.data[at * kept..][..kept], k, reverse };
            let mut next = end.data[at * k * c..][..k * c].to_vec();
            for (row, next) in next.chunks_exact_mut(c).enumerate() {
                for (column, before) in state.chunks_exact(c).enumerate() {
                    next.iter_mut().zip(before).for_each(|(next, &x)| *next += transition.factor(row, column) * x);
                }
            }
            state = next;
        }
    }
    states
}

/// Zeros of the dims of a tensor.
fn like<R: Real>(tensor: &Tensor<R>) -> Tensor<R> {
    Tensor::zeros(&tensor.dims)
}

/// The sum of products of elements.
fn dot<R: Real>(a: &[R], b: &[R]) -> R {
    a.iter().zip(b).map(|(&a, &b)| a * b).sum()
}
