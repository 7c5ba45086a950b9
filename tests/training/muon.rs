//! Muon: updates of matrices are nearly orthogonal, and on every mesh the same as on one device.

use crate::meshes::compare::differences;
use crate::meshes::record::{Record, sgd};
use crate::meshes::trained::{alone, trained_on};
use crate::meshes::training::{Recipe, SEED, compiled, inputs, model, models};
use crate::sample::sampled;
use ir::graph::ArgKind;
use ir::models::{Experts, Latent, LlamaConfig, ModelConfig};
use ir::optimizer::{Matrices, Optimizer, OptimizerKind};
use meshwright::runtime::exec::{Executor, Options};
use std::collections::BTreeMap;
use std::sync::LazyLock;
use transforms::differentiate::differentiate;

/// Sequences of a micro-batch over all ranks: four micro-batches a step.
const SEQUENCES: u64 = 4;

/// Two key heads for 12 query heads, and experts in one of two layers; GPT-2, whose head reads the embedding; and latent attention, whose
/// matrices are whole.
fn recipes() -> Vec<Recipe> {
    let [ModelConfig::Llama(llama), gpt2] = models() else { panic!("the first is a Llama") };
    let latent = latent_attention(llama.clone(), Matrices::Whole);
    let experts = Experts { group: Some(4), ..Experts::softmax(4, 2, 24) };
    let sparse = LlamaConfig { kv_heads: 2, layers: 2, experts: Some(experts), ..llama.clone() };
    let dense = LlamaConfig { kv_heads: 2, layers: 2, ..llama };
    let muon = Optimizer { kind: OptimizerKind::muon(), clip: Some(0.5) };
    let recipe = |config| Recipe { config, optimizer: muon.clone(), lr: 5e-3, steps: 3, precision: "f32" };
    vec![recipe(ModelConfig::Llama(dense)), recipe(ModelConfig::Llama(sparse)), recipe(gpt2), latent]
}

/// Latent attention of two layers, by a momentum without Nesterov's.
fn latent_attention(llama: LlamaConfig, taken: Matrices) -> Recipe {
    let latent =
        Latent { key_rank: 10, query_rank: Some(14), plain: 4, turned: 4, value: 6, score_factor: 1.0, gated: false };
    let config = ModelConfig::Llama(LlamaConfig { latent: Some(latent), layers: 2, ..llama });
    let mut kind = OptimizerKind::muon();
    if let OptimizerKind::Muon { nesterov, matrices, .. } = &mut kind {
        (*nesterov, *matrices) = (false, taken);
    }
    Recipe { config, optimizer: Optimizer { kind, clip: Some(0.5) }, lr: 5e-3, steps: 3, precision: "f32" }
}

/// Every recipe on one device.
static ALONE: LazyLock<Vec<(Recipe, Record)>> = LazyLock::new(|| alone(recipes(), SEQUENCES));

#[test]
fn every_mesh_updates_as_one_device() {
    let meshes = [
        "dp=2",
        "tp=2",
        "tp=4,sp=true",
        "dp=2,tp=2,zero=1",
        "dp=4,zero=2,shard=2",
        "dp=2,tp=2,zero=3,recompute=full",
        "cp=2,dp=2,zero=1",
        "dp=2,pp=2,schedule=zb-h1,zero=1",
        "dp=2,tp=2,ep=2,etp=2,zero=1",
        "dp=4,ep=2,zero=3,gather=step",
    ];
    for (number, mesh) in meshes.into_iter().enumerate() {
        for (which, (recipe, alone)) in ALONE.iter().enumerate() {
            let has_experts = matches!(&recipe.config, ModelConfig::Llama(LlamaConfig { experts: Some(_), .. }));
            let for_experts = mesh.contains("ep=");
            // A sample has every second recipe on each mesh.
            if (for_experts && !has_experts) || sampled(!for_experts && (number + which) % 2 == 1, false) {
                continue;
            }
            let found = differences(&trained_on(recipe, mesh, SEQUENCES), alone, &recipe.optimizer);
            assert!(found.is_empty(), "recipe {which} on {mesh}: {found:#?}");
        }
    }
}

#[test]
fn it_learns() {
    for (recipe, _) in ALONE.iter() {
        let recipe = Recipe { steps: 12, lr: 0.02, ..recipe.clone() };
        let losses = trained_on(&recipe, "", SEQUENCES).losses;
        let plain = trained_on(&Recipe { optimizer: sgd(), ..recipe.clone() }, "", SEQUENCES).losses;
        assert!(losses[11] < losses[0] - 0.3 && losses[11] < plain[11], "{losses:?}, {plain:?}");
    }
}

/// Matrices have one state, and all other parameters two: the tables of the vocabulary, norms, and positions.
#[test]
fn matrices_have_a_momentum_alone() {
    for recipe in &recipes()[..2] {
        let model = differentiate(model(recipe, SEQUENCES), &recipe.optimizer).expect("a gradient");
        let mut states: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for block in model.blocks.values() {
            for state in block.args_of(ArgKind::State) {
                let (param, suffix) = block.value_name(state).rsplit_once('.').expect("a suffix");
                states.entry(param.to_string()).or_default().push(suffix.to_string());
            }
        }
        let with_two: Vec<&str> =
            states.iter().filter(|(_, states)| **states == ["m", "v"]).map(|(name, _)| name.as_str()).collect();
        assert_eq!(with_two, ["emb", "final_norm", "norm1", "norm2", "out"]);
        assert!(states.values().all(|states| *states == ["m", "v"] || *states == ["m"]), "{states:?}");
    }
}

/// The update of a matrix `[rows, columns]` divided by its scale is nearly orthogonal: the norm of a matrix of singular values from
/// 0.7 to 1.2, but for gradients of a lower rank.
#[test]
fn updates_are_nearly_orthogonal() {
    let lr = 1e-2;
    let dense = &recipes()[0];
    let mut kind = OptimizerKind::muon();
    *kind.weight_decay_mut() = 0.0;
    let recipe = Recipe { optimizer: Optimizer { kind, clip: None }, lr, steps: 1, ..dense.clone() };
    let file = compiled(&recipe, "", SEQUENCES);
    let program = file.program.as_ref().expect("a program");
    let options = Options { seed: SEED, ..Options::default() };
    let mut executor = Executor::load(&file.model, program, &options).expect("a machine");
    let before = executor.export_params().expect("parameters");
    executor.step(inputs(&file.model, &recipe, "").remove(0)).expect("a step");
    let after = executor.export_params().expect("parameters");
    let mut seen = 0;
    for (name, was) in &before {
        // Rows and columns of what products read as [hidden, ..] or [.., hidden].
        let Some((_, sides)) =
            [("wq", [48, 48]), ("wk", [48, 8]), ("wo", [48, 48]), ("gate", [48, 50]), ("down", [50, 48])]
                .into_iter()
                .find(|(end, _)| name.ends_with(end))
        else {
            continue;
        };
        let [small, large] = [sides[0].min(sides[1]) as f64, sides[0].max(sides[1]) as f64];
        let scale = lr * 0.2 * large.sqrt();
        let moved = after[name].data.iter().zip(&was.data).map(|(a, b)| f64::from(a - b) / scale);
        let norm = moved.map(|x| x * x).sum::<f64>().sqrt() / small.sqrt();
        assert!((0.5..1.25).contains(&norm), "{name}: {norm}");
        seen += 1;
    }
    assert!(seen >= 8, "{seen} matrices");
}

/// The first update of latent attention, by plain matrices in f64: of each part, or of what its parts are published as.
#[test]
fn parts_of_a_matrix_are_updated_apart_or_whole() {
    let [ModelConfig::Llama(llama), _] = models() else { panic!("the first is a Llama") };
    let whole: [(&[&str], usize); 3] = [(&["wqn", "wqr"], 14), (&["wdkv", "wkr"], 48), (&["wkn", "wv"], 10)];
    for taken in [Matrices::Split, Matrices::Whole] {
        let mut recipe = Recipe { steps: 1, ..latent_attention(llama.clone(), taken) };
        *recipe.optimizer.kind.weight_decay_mut() = 0.0;
        let file = compiled(&recipe, "", SEQUENCES);
        let options = Options { seed: SEED, ..Options::default() };
        let mut executor = Executor::load(&file.model, file.program.as_ref().unwrap(), &options).expect("a machine");
        let before = executor.export_params().expect("parameters");
        executor.step(inputs(&file.model, &recipe, "").remove(0)).expect("a step");
        let (gradients, after) = (executor.gradients().unwrap(), executor.export_params().unwrap());
        for (names, rows) in whole {
            let joined: Vec<&[&str]> = if taken == Matrices::Whole { vec![names] } else { names.chunks(1).collect() };
            for names in joined {
                let names: Vec<String> = names.iter().map(|name| format!("layer.0.{name}")).collect();
                let parts = names.iter().map(|name| matrix(&gradients[name].data, rows));
                let update = orthogonal(&parts.reduce(beside).unwrap());
                let moved = names.iter().map(|name| {
                    let was = matrix(&before[name].data, rows);
                    let is = matrix(&after[name].data, rows);
                    is.iter()
                        .zip(&was)
                        .map(|(is, was)| is.iter().zip(was).map(|(is, was)| was - is).collect())
                        .collect()
                });
                let moved: Vec<Vec<f64>> = moved.reduce(beside).unwrap();
                for (expected, found) in update.iter().flatten().zip(moved.iter().flatten()) {
                    assert!(
                        (expected * recipe.lr - found).abs() < 1e-5,
                        "{names:?}, {taken:?}: {found} is not {expected}"
                    );
                }
            }
        }
    }
}

/// The rows of a matrix.
fn matrix(data: &[f32], rows: usize) -> Vec<Vec<f64>> {
    data.chunks(data.len() / rows).map(|row| row.iter().map(|&number| f64::from(number)).collect()).collect()
}

/// Two matrices beside each other.
fn beside(left: Vec<Vec<f64>>, right: Vec<Vec<f64>>) -> Vec<Vec<f64>> {
    left.into_iter().zip(right).map(|(left, right)| [left, right].concat()).collect()
}

/// The update of a gradient by the published iteration, `x = a x + (b x x^T + c (x x^T)^2) x`, whose root mean square is 0.2 for an
/// orthogonal matrix.
fn orthogonal(gradient: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let product = |a: &[Vec<f64>], b: &[Vec<f64>]| -> Vec<Vec<f64>> {
        let sum = |row: &Vec<f64>, column: usize| row.iter().zip(b).map(|(x, other)| x * other[column]).sum();
        a.iter().map(|row| (0..b[0].len()).map(|column| sum(row, column)).collect()).collect()
    };
    let scaled = |a: &[Vec<f64>], by: f64| -> Vec<Vec<f64>> {
        a.iter().map(|row| row.iter().map(|x| x * by).collect()).collect()
    };
    let sum = |a: &[Vec<f64>], b: &[Vec<f64>]| -> Vec<Vec<f64>> {
        a.iter().zip(b).map(|(a, b)| a.iter().zip(b).map(|(a, b)| a + b).collect()).collect()
    };
    let norm = gradient.iter().flatten().map(|x| x * x).sum::<f64>().sqrt();
    let mut x = scaled(gradient, 1.0 / norm);
    for _ in 0..5 {
        let transposed: Vec<Vec<f64>> =
            (0..x[0].len()).map(|column| x.iter().map(|row| row[column]).collect()).collect();
        let gram = product(&x, &transposed);
        let polynomial = sum(&scaled(&gram, -4.7750), &scaled(&product(&gram, &gram), 2.0315));
        x = sum(&scaled(&x, 3.4445), &product(&polynomial, &x));
    }
    scaled(&x, 0.2 * (x.len().max(x[0].len()) as f64).sqrt())
}
