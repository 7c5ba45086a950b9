//! Every op that has a gradient, and whole models, against central differences in f64; and that training trains.

mod cases;
mod hybrids;
mod models;
mod ops;

use meshwright_reference::{MicroBatch, Reference, Tensor, random};

/// Half the distance of a central difference: its error is about the square of it.
const STEP: f64 = 1e-5;
/// Tolerance, relative to the largest element of a gradient or a thousandth of the largest of all gradients (a key's bias has none: softmax
/// does not see it).
const TOLERANCE: f64 = 1e-6;

/// Numbers about 1 in size, by name.
fn reals(name: &str, sizes: &[u64]) -> Tensor<f64> {
    let dims: Vec<usize> = sizes.iter().map(|&size| size as usize).collect();
    let key = random::parameter_key(1, name);
    Tensor::from_fn(&dims, |i| f64::from(random::normal(key, i as u64)))
}

/// Integers by name.
fn ints(name: &str, sizes: &[u64], from: i32, to: i32) -> Tensor<i32> {
    let dims: Vec<usize> = sizes.iter().map(|&size| size as usize).collect();
    let key = random::parameter_key(2, name);
    Tensor::from_fn(&dims, |i| from + (random::uniform(key, i as u64) * (to - from) as f32) as i32)
}

/// Compares the gradients of some elements of every parameter with central differences.
fn assert_gradients(what: &str, reference: &mut Reference<'_, f64>, batch: &[MicroBatch<f64>], elements: usize) {
    reference.backward(batch).unwrap_or_else(|why| panic!("{what}: {why}"));
    let largest = |gradient: &Tensor<f64>| gradient.data.iter().fold(0.0f64, |max, g| max.max(g.abs()));
    let overall = reference.gradients().values().map(largest).fold(0.0, f64::max);
    assert!(overall > 0.0, "{what}: all gradients are zero");
    for (name, gradient) in reference.gradients().clone() {
        let param = reference.params()[&name].clone();
        let scale = largest(&gradient).max(1e-3 * overall);
        let stride = param.data.len().div_ceil(elements);
        for i in (0..param.data.len()).step_by(stride) {
            let mut loss_at = |shift: f64| {
                let mut moved = param.clone();
                moved.data[i] += shift;
                reference.set_param(&name, moved).unwrap();
                reference.loss(batch).unwrap()
            };
            let slope = (loss_at(STEP) - loss_at(-STEP)) / (2.0 * STEP);
            let error = (slope - gradient.data[i]).abs() / scale;
            assert!(error < TOLERANCE, "{what}, `{name}`[{i}]: {} but the slope is {slope}", gradient.data[i]);
        }
        reference.set_param(&name, param).unwrap();
    }
}
