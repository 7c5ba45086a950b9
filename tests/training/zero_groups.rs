//! Groups of ZeRO beside context and expert parallelism: the numbers of one device, and parts of the size that the groups say.

use crate::meshes::compare::differences;
use crate::meshes::record::{Record, sgd};
use crate::meshes::trained::{alone, trained_on};
use crate::meshes::training::{Recipe, compiled, model, models};
use ir::dim_role::DimRole;
use ir::models::{Experts, LlamaConfig, ModelConfig, preset};
use ir::optimizer::{Optimizer, OptimizerKind};
use meshwright::compiler::parallel::parse;
use meshwright::estimator::{EstimateRequest, Estimator};
use std::sync::LazyLock;

/// Sequences of a micro-batch over all ranks: four micro-batches a step, which add up to a gradient.
const SEQUENCES: u64 = 4;

/// A dense model whose updates divide by gradients' roots, and a mixture of experts; both have states. In the first the norm clips
/// gradients, so an element that counts twice in it shows in every parameter.
fn recipes() -> Vec<Recipe> {
    let [ModelConfig::Llama(plain), _] = models() else { panic!("the first is a Llama") };
    let plain = LlamaConfig { layers: 2, ..plain };
    let experts = Experts { group: Some(4), ..Experts::softmax(4, 2, 24) };
    let sparse = LlamaConfig { experts: Some(experts), ..plain.clone() };
    let clipped = Optimizer { clip: Some(0.5), ..Optimizer::default() };
    let momentum =
        Optimizer { kind: OptimizerKind::Sgd { momentum: 0.9, nesterov: false, weight_decay: 0.0 }, ..sgd() };
    let recipe = |config, optimizer, lr| Recipe {
        config: ModelConfig::Llama(config),
        optimizer,
        lr,
        steps: 3,
        precision: "f32",
    };
    vec![recipe(plain, clipped, 5e-3), recipe(sparse, momentum, 0.1)]
}

/// Every recipe on one device.
static ALONE: LazyLock<Vec<(Recipe, Record)>> = LazyLock::new(|| alone(recipes(), SEQUENCES));

fn trains_as_on_one_device(mesh: &str) {
    for (recipe, alone) in ALONE.iter() {
        let has_experts = matches!(&recipe.config, ModelConfig::Llama(LlamaConfig { experts: Some(_), .. }));
        if has_experts || parse(mesh).expect("a configuration").ep == 1 {
            let found = differences(&trained_on(recipe, mesh, SEQUENCES), alone, &recipe.optimizer);
            assert!(found.is_empty(), "{mesh}, experts: {has_experts}: {found:#?}");
        }
    }
}

#[test]
fn the_norm_is_clipped() {
    let (_, alone) = &ALONE[0];
    assert!(alone.norms.iter().all(|norm| *norm > 0.5), "{:?}", alone.norms);
}

/// Every stage, with groups from one rank to all, under both kinds of context parallelism.
fn of_every_size(base: &str, ranks: u64) {
    for zero in 1..=3 {
        for shard in [1, 2, 4, 8].into_iter().filter(|shard| ranks.is_multiple_of(*shard)) {
            trains_as_on_one_device(&format!("{base},zero={zero},shard={shard}"));
        }
    }
}

#[test]
fn among_ranks_of_cp_that_gather() {
    of_every_size("dp=4,cp=2", 8);
}

#[test]
fn among_ranks_of_cp_that_exchange_heads() {
    of_every_size("dp=2,cp=2,cp_kind=ulysses", 4);
}

#[test]
fn within_ranks_of_cp() {
    of_every_size("cp=4", 4);
}

#[test]
fn among_ranks_of_different_experts() {
    of_every_size("dp=4,ep=2", 4);
    of_every_size("dp=4,ep=4", 4);
}

#[test]
fn among_ranks_of_cp_and_different_experts() {
    of_every_size("dp=4,cp=2,ep=2", 8);
}

#[test]
fn with_tensor_and_pipeline_parallelism() {
    for mesh in [
        "dp=2,cp=2,tp=2,sp=true,ep=2,etp=2,zero=1,shard=2",
        "dp=2,cp=2,tp=2,ep=4,zero=2,shard=2",
        "dp=4,tp=2,sp=true,ep=2,zero=3,shard=2",
        "dp=2,cp=2,pp=2,ep=2,zero=3,shard=2,recompute=full",
        "dp=4,cp=2,pp=2,zero=1,shard=4,schedule=zb-h1",
        "dp=2,cp=2,tp=2,zero=2,shard=2,rank_order=pp,cp,dp,tp",
        // Experts are copied over ranks of tp, which share their states out.
        "dp=2,tp=2,zero=1,shard=1",
        "dp=2,tp=2,sp=true,zero=3,shard=2",
        // A group of 6 is all ranks of cp, and 2 neighbours of dp.
        "dp=4,cp=3,zero=2,shard=6",
    ] {
        trains_as_on_one_device(mesh);
    }
}

/// Bytes per parameter of AdamW in f32 (itself, its gradient, two states), by ZeRO stage: those that stay whole, and those that are
/// shared out.
const BYTES: [[u64; 2]; 4] = [[16, 0], [8, 8], [4, 12], [0, 16]];

/// Checks the bytes that the first stage holds from step to step, with dense parameters and experts in parts of these numbers.
fn is_held_in_parts(mesh: &str, [dense_parts, expert_parts]: [u64; 2]) {
    let config = preset("tiny-moe").expect("a preset").config.clone();
    let recipe = Recipe { config, optimizer: Optimizer::default(), lr: 1e-3, steps: 1, precision: "f32" };
    let parallel = parse(mesh).expect("a configuration");
    let file = compiled(&recipe, mesh, SEQUENCES);
    let whole = model(&recipe, SEQUENCES);
    let is_expert = |ty: &ir::types::Type| ty.dims.iter().any(|dim| dim.role(&whole.dims) == Some(DimRole::Experts));
    let count = |of_experts| -> u64 {
        let params = whole.params.values().filter(|param| is_expert(&param.ty) == of_experts);
        params.map(|param| u64::from(param.instances()) * param.ty.sizes().iter().product::<u64>()).sum()
    };
    let (dense, experts) = (count(false), count(true) / (parallel.ep * parallel.etp));
    let [own, shared] = BYTES[usize::from(parallel.zero)];
    let held = |elements: u64, parts: u64| (own * elements) as f64 + (shared * elements) as f64 / parts as f64;
    let wanted = held(dense, dense_parts) + held(experts, expert_parts);
    let state = file.staged.expect("stages").stages[0].cost.state as f64;
    assert!((state / wanted - 1.0).abs() < 0.01, "{mesh}: {state} bytes instead of {wanted}");
    let request = EstimateRequest {
        model: "tiny-moe".into(),
        cluster: "cpu".into(),
        stack: "meshwright-threads".into(),
        seq: 16,
        global_batch: 16,
        precision: "f32".into(),
        parallel: mesh.into(),
        ..EstimateRequest::default()
    };
    let report = Estimator::new().estimate(&request).unwrap_or_else(|error| panic!("{mesh}: {error}"));
    let stage = &report.predicted.memory_gib.per_stage[0];
    let predicted = (stage.parameters + stage.gradients + stage.optimizer) * f64::from(1 << 30);
    assert!((predicted / wanted - 1.0).abs() < 0.01, "{mesh}: {predicted} bytes are predicted, {wanted} held");
}

#[test]
fn groups_hold_each_parameter_once() {
    for zero in 1..=3 {
        for (mesh, parts) in [
            ("dp=4,cp=2,shard=4", [4, 4]),
            ("dp=2,cp=2,shard=2", [2, 2]),
            ("dp=4,ep=2", [4, 2]),
            ("dp=4,ep=2,shard=2", [2, 1]),
            ("dp=4,cp=2,ep=2,shard=4", [4, 2]),
            ("dp=4,ep=4,shard=2", [2, 1]),
            ("dp=4,cp=2,ep=4,shard=8", [8, 2]),
        ] {
            is_held_in_parts(&format!("{mesh},zero={zero}"), parts);
        }
    }
}
