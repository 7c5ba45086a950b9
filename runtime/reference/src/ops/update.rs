//! Dropout and jitter, the share of the gradient norm, and the optimizers.

use super::Context;
use crate::random;
use crate::real::Real;
use crate::tensor::Tensor;
use ir::ops::{AdamW, Dropout, Jitter, Piece, Sgd};

/// Each element is divided by `1 - p` if its number (see [`random`]) is at least `p`, else 0. Number and `p`
/// are compared in f32.
pub(super) fn dropout<R: Real>(x: &Tensor<R>, op: &Dropout, context: Context) -> Tensor<R> {
    let scale = R::of(1.0 / (1.0 - op.p));
    drawn(x, &op.path, op.piece, context, |x, number| if number >= op.p as f32 { x * scale } else { R::zero() })
}

/// Each element times `1 - width` plus twice the width times its number.
pub(super) fn jitter<R: Real>(x: &Tensor<R>, op: &Jitter, context: Context) -> Tensor<R> {
    let (least, range) = (1.0 - op.width, 2.0 * op.width);
    drawn(x, &op.path, op.piece, context, |x, number| x * R::of(least + range * f64::from(number)))
}

/// A function of each element and of its uniform number.
fn drawn<R: Real>(
    x: &Tensor<R>,
    path: &str,
    piece: Option<Piece>,
    context: Context,
    of: impl Fn(R, f32) -> R,
) -> Tensor<R> {
    let key = random::dropout_key(context.seed, context.step, context.index, path);
    // Elements of a sample here; in the whole sequence, and before the first of them there.
    let sample: usize = x.dims[1..].iter().product();
    let (run, before) = match piece {
        None => (sample, 0),
        Some(piece) => {
            let row: usize = x.dims[2..].iter().product();
            (piece.whole as usize * row, piece.origin as usize * row)
        }
    };
    let first = context.microbatch as usize * x.dims[0] * run;
    Tensor::from_fn(&x.dims, |i| {
        let number = first + i / sample * run + before + i % sample;
        of(x.data[i], random::uniform(key, number as u64))
    })
}

/// The sum of the squares of all elements.
pub(super) fn sum_squares<R: Real>(x: &Tensor<R>) -> Tensor<R> {
    Tensor::scalar(x.data.iter().map(|&x| x * x).sum())
}

/// True if the norm that gave the clip factor was finite.
pub(super) fn is_finite_step<R: Real>(clip: R) -> bool {
    clip > R::zero()
}

/// AdamW as PyTorch defines it (Loshchilov and Hutter 2019). Operands w, g, m, v, clip, lr and step, which counts from 1;
/// gives w, m, v, which stay
/// as they are unless clip is above 0.
pub(super) fn adamw<R: Real>(op: &AdamW, operands: &[&Tensor<R>]) -> Vec<Tensor<R>> {
    let [beta1, beta2, eps, decay] = [op.beta1, op.beta2, op.eps, op.weight_decay].map(R::of);
    let [mut w, mut m, mut v] = [0, 2, 3].map(|i| operands[i].clone());
    let [clip, lr, step] = [4, 5, 6].map(|i| operands[i].data[0]);
    if !is_finite_step(clip) {
        return vec![w, m, v];
    }
    let [bias1, bias2] = [op.beta1, op.beta2].map(|beta| R::of(1.0 - beta.powf(step.to_f64())));
    for (i, &g) in operands[1].data.iter().enumerate() {
        let g = g * clip;
        let (w, m, v) = (&mut w.data[i], &mut m.data[i], &mut v.data[i]);
        *m = beta1 * *m + (R::one() - beta1) * g;
        *v = beta2 * *v + (R::one() - beta2) * g * g;
        let shrunk = *w - lr * decay * *w;
        *w = shrunk - lr * (*m / bias1) / ((*v / bias2).sqrt() + eps);
    }
    vec![w, m, v]
}

/// Stochastic gradient descent as PyTorch defines it. Operands w, g, clip, lr, or with momentum w, g, m, clip, lr; gives w,
/// or w and m, which stay as they are unless clip is above 0.
pub(super) fn sgd<R: Real>(op: &Sgd, operands: &[&Tensor<R>]) -> Vec<Tensor<R>> {
    let [momentum, decay] = [op.momentum, op.weight_decay].map(R::of);
    let (tensors, scalars) = operands.split_at(operands.len() - 2);
    let (clip, lr) = (scalars[0].data[0], scalars[1].data[0]);
    let (w, g) = (tensors[0], tensors[1]);
    if !is_finite_step(clip) {
        return [Some(&w), tensors.get(2)].into_iter().flatten().map(|&tensor| tensor.clone()).collect();
    }
    let slope = Tensor::from_fn(&w.dims, |i| g.data[i] * clip + decay * w.data[i]);
    let Some(last) = tensors.get(2) else { return vec![stepped(w, lr, &slope)] };
    let velocity = Tensor::from_fn(&w.dims, |i| momentum * last.data[i] + slope.data[i]);
    let step = match op.nesterov {
        true => Tensor::from_fn(&w.dims, |i| slope.data[i] + momentum * velocity.data[i]),
        false => velocity.clone(),
    };
    vec![stepped(w, lr, &step), velocity]
}

fn stepped<R: Real>(w: &Tensor<R>, lr: R, step: &Tensor<R>) -> Tensor<R> {
    Tensor::from_fn(&w.dims, |i| w.data[i] - lr * step.data[i])
}
