//! Logits of a forward on one processor against the reference, for a model of every family.

use super::families;
use ir::graph::Model;
use ir::models::{Batch, from_config};
use ir::types::DType;
use meshwright::runtime::exec::Input;
use meshwright::runtime::forward::Forward;
use meshwright::runtime::reference::{MicroBatch, Reference, Tensor};
use std::collections::BTreeMap;
use transforms::evaluation::evaluation;

const BATCH: Batch = Batch { batch: 2, seq: 8, dtype: DType::F32 };

/// Tokens below 32, labels of which some are ignored, and positions and segments of two documents in each sequence.
fn inputs() -> BTreeMap<&'static str, Tensor<i32>> {
    let of = |number: fn(usize) -> usize| Tensor::from_fn(&[2, 8], |at| number(at) as i32);
    BTreeMap::from([
        ("tok", of(|at| (7 * at + at * at) % 32)),
        ("tok1", of(|at| (3 * at) % 32)),
        ("lab1", of(|at| (11 * at) % 32)),
        ("tok2", of(|at| (9 * at + 2) % 32)),
        ("lab2", of(|at| (13 * at) % 32)),
        ("lab", of(|at| (5 * at + 3) % 32).map(|label| if label % 5 == 0 { -1 } else { label })),
        ("pos", of(|at| if at % 8 < 5 { at % 8 } else { at % 8 - 5 })),
        ("seg", of(|at| usize::from(at % 8 >= 5))),
    ])
}

/// The mean loss of the labels by rows of logits, in f64.
fn loss(logits: &[f32], labels: &[i32]) -> f64 {
    let width = logits.len() / labels.len();
    let rows = logits.chunks(width).zip(labels).filter(|(_, label)| **label >= 0);
    let losses = rows.map(|(row, &label)| {
        let most = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        let sum: f64 = row.iter().map(|&logit| (f64::from(logit) - most).exp()).sum();
        most + sum.ln() - f64::from(row[label as usize])
    });
    let losses: Vec<f64> = losses.collect();
    losses.iter().sum::<f64>() / losses.len() as f64
}

fn forward(model: &Model, reference: &Reference<'_, f32>) -> Forward {
    let mut forward = Forward::new(model.clone(), 2, u64::MAX).unwrap();
    let (all, read) = (reference.params(), forward.params());
    // Layers that predict further tokens add to no logits.
    assert_eq!(read.len() < all.len(), all.keys().any(|name| name.starts_with("mtp")));
    read.keys().for_each(|name| forward.set_param(name, &all[name].data).unwrap());
    forward
}

#[test]
fn logits_have_the_loss_of_the_reference() {
    for config in families::all() {
        let model = evaluation(&from_config(&config).unwrap().build(&BATCH).unwrap());
        let mut reference = Reference::<f32>::new(&model, 3);
        // First numbers are so small that all logits are near zero.
        for (name, tensor) in reference.params().clone() {
            reference.set_param(&name, tensor.map(|x| 8.0 * x)).unwrap();
        }
        let inputs = inputs();
        let given: Vec<(&str, &Tensor<i32>)> = inputs.iter().map(|(name, tensor)| (*name, tensor)).collect();
        let want = f64::from(reference.loss(&[MicroBatch::of_tokens(&given, "lab")]).unwrap());
        let named = |input: &ir::graph::ModelInput| {
            (input.value, Input::Ints(inputs[model.values[input.value].as_str()].data.clone()))
        };
        let fed = model.inputs.iter().map(named).collect();
        let mut forward = forward(&model, &reference);
        let logits = forward.logits(&fed, 0..16).unwrap();
        let width = logits.len() / 16;
        let got = loss(&logits, &inputs["lab"].data);
        assert!((got - want).abs() < 1e-4 * want, "{got} is not {want}: {config}");
        assert!((want - 32f64.ln()).abs() > 1e-3, "the model says nothing: {config}");
        assert_eq!(forward.logits(&fed, 5..6).unwrap(), logits[5 * width..6 * width]);
    }
}

#[test]
fn what_cannot_run_forward_is_refused() {
    let config = families::all().remove(0);
    let model = from_config(&config).unwrap().build(&BATCH).unwrap();
    assert!(Forward::new(model.clone(), 1, 1000).err().unwrap().contains("GiB are free"));
    let mut forward = Forward::new(model.clone(), 1, u64::MAX).unwrap();
    assert!(forward.set_param("none", &[]).unwrap_err().contains("no parameter `none`"));
    assert!(forward.set_param("emb", &[0.0]).unwrap_err().contains("elements, not 1"));
    assert!(forward.logits(&BTreeMap::new(), 0..1).unwrap_err().contains("is missing"));
    let mut cut = model;
    cut.calls.pop();
    assert!(Forward::new(cut, 1, u64::MAX).err().unwrap().contains("does not end in a cross-entropy"));
}
