//! Muon: updates of matrices are nearly orthogonal, and on every mesh the same as on one device.

#[path = "meshes/mod.rs"]
mod meshes;

use ir::graph::ArgKind;
use ir::models::{Experts, LlamaConfig, ModelConfig};
use ir::optimizer::{Optimizer, OptimizerKind};
use meshes::compare::differences;
use meshes::record::{Record, sgd};
use meshes::trained::{alone, trained_on};
use meshes::training::{Recipe, SEED, compiled, inputs, model, models};
use runtime::exec::{Executor, Options};
use std::collections::BTreeMap;
use std::sync::LazyLock;
use transforms::differentiate::differentiate;

/// Sequences of a micro-batch over all ranks: four micro-batches a step.
const SEQUENCES: u64 = 4;

/// Two key heads for 12 query heads, and experts in one of two layers; and GPT-2, whose head reads the embedding.
fn recipes() -> Vec<Recipe> {
    let [ModelConfig::Llama(llama), gpt2] = models() else { panic!("the first is a Llama") };
    let experts = Experts { group: Some(4), ..Experts::softmax(4, 2, 24) };
    let sparse = LlamaConfig { kv_heads: 2, layers: 2, experts: Some(experts), ..llama.clone() };
    let dense = LlamaConfig { kv_heads: 2, layers: 2, ..llama };
    let muon = Optimizer { kind: OptimizerKind::muon(), clip: Some(0.5) };
    let recipe = |config| Recipe { config, optimizer: muon.clone(), lr: 5e-3, steps: 3, precision: "f32" };
    vec![recipe(ModelConfig::Llama(dense)), recipe(ModelConfig::Llama(sparse)), recipe(gpt2)]
}

/// Every recipe on one device.
static ALONE: LazyLock<Vec<(Recipe, Record)>> = LazyLock::new(|| alone(recipes(), SEQUENCES));

#[test]
fn every_mesh_updates_as_one_device() {
    for mesh in [
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
    ] {
        for (which, (recipe, alone)) in ALONE.iter().enumerate() {
            let has_experts = matches!(&recipe.config, ModelConfig::Llama(LlamaConfig { experts: Some(_), .. }));
            if !has_experts && mesh.contains("ep=") {
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
    let [dense, _, _] = &recipes()[..] else { panic!("three recipes") };
    let kind = OptimizerKind::Muon { momentum: 0.95, weight_decay: 0.0 };
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
