//! Scans and short convolutions, token by token.

use crate::real::Real;
use crate::tensor::Tensor;
use ir::ops::{ScanKind, ScanSettings};

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
}

/// The sizes b, s, g, r, k, c of a scan.
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
        Sizes { b, s, g, r, k: self.k.columns(), c }
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
            let mut state = vec![R::zero(); sizes.k * sizes.c];
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

    /// The gradients, by the same rows in reverse.
    pub(super) fn backward(&self, dout: &Tensor<R>) -> ScanGradients<R> {
        let sizes = self.sizes();
        let mut gradients = ScanGradients {
            q: like(self.q),
            k: like(self.k),
            v: like(self.v),
            decay: like(self.decay),
            further: self.further.map(like),
        };
        for head in sizes.heads() {
            let mut steps: Vec<Step<R>> = Vec::new();
            for t in 0..sizes.s {
                let zeros = vec![R::zero(); sizes.k * sizes.c];
                let step = self.step(sizes, head, t, steps.last().map_or(&zeros, |step| &step.state));
                steps.push(step);
            }
            let mut by_state = vec![R::zero(); sizes.k * sizes.c];
            for (t, step) in steps.iter().enumerate().rev() {
                self.step_back(sizes, head, t, step, dout, &mut by_state, &mut gradients);
            }
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

/// The rows and taps of a convolution: calls `visit` with the places in x, in w and in y of each product.
fn taps(dims: &[usize], n: usize, pos: &Tensor<i32>, mut visit: impl FnMut(usize, usize, usize)) {
    let (s, channels) = (dims[1], dims[2..].iter().product::<usize>());
    for (row, &pos) in pos.data.iter().enumerate() {
        for back in (0..n).filter(|&back| back <= row % s && (back == 0 || pos >= back as i32)) {
            for h in 0..channels {
                visit((row - back) * channels + h, h * n + n - 1 - back, row * channels + h);
            }
        }
    }
}

/// `y[t] = sum of w[n - 1 - i] x[t - i]` within documents.
pub(super) fn short_conv<R: Real>(x: &Tensor<R>, w: &Tensor<R>, pos: &Tensor<i32>) -> Tensor<R> {
    let mut y = Tensor::zeros(&x.dims);
    taps(&x.dims, w.columns(), pos, |i, j, o| y.data[o] += x.data[i] * w.data[j]);
    y
}

pub(super) fn short_conv_dx<R: Real>(dy: &Tensor<R>, w: &Tensor<R>, pos: &Tensor<i32>) -> Tensor<R> {
    let mut dx = Tensor::zeros(&dy.dims);
    taps(&dy.dims, w.columns(), pos, |i, j, o| dx.data[i] += dy.data[o] * w.data[j]);
    dx
}

pub(super) fn short_conv_dw<R: Real>(x: &Tensor<R>, dy: &Tensor<R>, pos: &Tensor<i32>, dims: &[usize]) -> Tensor<R> {
    let mut dw = Tensor::zeros(dims);
    taps(&x.dims, dw.columns(), pos, |i, j, o| dw.data[j] += x.data[i] * dy.data[o]);
    dw
}

/// Zeros of the dims of a tensor.
fn like<R: Real>(tensor: &Tensor<R>) -> Tensor<R> {
    Tensor::zeros(&tensor.dims)
}

/// The sum of products of elements.
fn dot<R: Real>(a: &[R], b: &[R]) -> R {
    a.iter().zip(b).map(|(&a, &b)| a * b).sum()
}
