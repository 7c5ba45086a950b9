//! Grouped queries on more ranks than there are key heads: the numbers of one device, and each rank computes only the key heads of its
//! queries.

use crate::as_alone::trains_as_alone;
use crate::meshes::record::{Record, sgd};
use crate::meshes::trained::alone;
use crate::meshes::training::{Recipe, compiled, models};
use cost::local_type;
use ir::dim_role::DimRole;
use ir::graph::SectionKind;
use ir::models::{LlamaConfig, ModelConfig, QkNorm};
use ir::optimizer::Optimizer;
use ir::types::Type;
use meshwright::estimator::{EstimateRequest, Estimator};
use std::sync::LazyLock;

/// Sequences of a micro-batch over all ranks: four micro-batches a step.
const SEQUENCES: u64 = 4;

/// Two layers of 12 query heads: 2 key heads with norms of queries and keys and with biases, and a single key head.
fn recipes() -> Vec<Recipe> {
    let [ModelConfig::Llama(plain), _] = models() else { panic!("the first is a Llama") };
    let grouped =
        LlamaConfig { kv_heads: 2, layers: 2, qk_norm: QkNorm::Heads, qkv_bias: true, out_bias: true, ..plain.clone() };
    let single = LlamaConfig { kv_heads: 1, layers: 2, ..plain };
    let clipped = Optimizer { clip: Some(0.5), ..Optimizer::default() };
    let recipe = |config, optimizer, lr| Recipe {
        config: ModelConfig::Llama(config),
        optimizer,
        lr,
        steps: 3,
        precision: "f32",
    };
    vec![recipe(grouped, sgd(), 0.1), recipe(single, clipped, 5e-3)]
}

/// Every recipe on one device.
static ALONE: LazyLock<Vec<(Recipe, Record)>> = LazyLock::new(|| alone(recipes(), SEQUENCES));

fn trains_as_on_one_device(meshes: &[&str]) {
    trains_as_alone(&ALONE, meshes, SEQUENCES);
}

#[test]
fn ranks_share_key_heads() {
    trains_as_on_one_device(&["tp=2", "tp=4", "tp=4,sp=true", "tp=6", "dp=2,tp=12", "tp=12,sp=true", "tp=3"]);
}

#[test]
fn with_data_and_pipeline_parallelism() {
    trains_as_on_one_device(&[
        "dp=2,tp=4,sp=true,zero=1",
        "dp=2,tp=4,zero=2",
        "dp=2,tp=4,sp=true,zero=3,recompute=full",
        "dp=4,tp=4,zero=3,shard=2",
        "tp=4,pp=2,sp=true,schedule=zb-h1",
        "dp=2,tp=4,pp=2,schedule=seq1f1b,zero=1",
        "tp=4,recompute=selective:core_attn+mlp",
    ]);
}

#[test]
fn with_context_parallelism() {
    trains_as_on_one_device(&["cp=2,tp=4", "cp=2,tp=4,sp=true,zero=1", "dp=2,cp=2,tp=4,zero=3"]);
}

/// With fewer key heads than ranks, each rank of cp has all key heads, and some of their queries.
#[test]
fn with_sequences_whole_in_attention() {
    trains_as_on_one_device(&[
        "cp=2,cp_kind=ulysses",
        "cp=3,cp_kind=ulysses",
        "cp=2,tp=2,cp_kind=ulysses,sp=true",
        "cp=3,tp=4,cp_kind=ulysses",
        "dp=2,cp=6,cp_kind=ulysses,zero=2",
    ]);
}

#[test]
fn a_rank_computes_the_key_heads_of_its_queries() {
    for (mesh, sizes) in
        [("tp=2", [6, 1, 1]), ("tp=4,sp=true", [3, 1, 1]), ("dp=2,tp=12", [1, 1, 1]), ("tp=3", [4, 2, 2])]
    {
        let file = compiled(&recipes()[0], mesh, SEQUENCES);
        let model = &file.model;
        let layer = model.blocks.values().find(|block| block.name == "layer").expect("a layer");
        let heads = |ty: &Type, dims: &[usize]| -> u64 {
            let local = local_type(ty, &model.mesh);
            dims.iter().map(|&dim| local.dims[dim].size).product()
        };
        let attention = layer[SectionKind::F].stmts.iter().find(|stmt| stmt.op.name() == "attention");
        let [q, k, v] = [0, 1, 2].map(|at| layer.ty(attention.expect("attention").operands[at]));
        assert_eq!([heads(q, &[2, 3]), heads(k, &[2]), heads(v, &[2])], sizes, "{mesh}");
        let param = |name: &str| layer.ty(layer.find(name).expect("a parameter"));
        let stored = [heads(param("wq"), &[1, 2]), heads(param("wk"), &[1]), heads(param("wo"), &[0, 1])];
        assert_eq!(stored, [sizes[0], sizes[1], sizes[0]], "{mesh}");
        // No rank computes keys or values that another one gets, nor any that it does not use.
        let products = layer[SectionKind::F].stmts.iter().filter(|stmt| stmt.op.name() == "einsum");
        let has = |ty: &Type, role| ty.has_role(role, &model.dims);
        let results = products.map(|stmt| layer.ty(stmt.results[0]));
        let keys = results.filter(|ty| has(ty, DimRole::KvHeads) && !has(ty, DimRole::QueryHeads));
        assert_eq!(keys.map(|ty| heads(ty, &[2])).collect::<Vec<_>>(), [sizes[1]; 2], "{mesh}");
    }
}

/// Matrices of keys and values do not shrink where ranks share a head, and an estimate says so.
#[test]
fn an_estimate_counts_copies_of_key_heads() {
    let of = |parallel: &str| {
        let request = EstimateRequest {
            model: "llama3-8b".into(),
            cluster: "h100".into(),
            stack: "meshwright-threads".into(),
            seq: 4096,
            global_batch: 8,
            parallel: parallel.into(),
            ..EstimateRequest::default()
        };
        let report = Estimator::new().estimate(&request).unwrap_or_else(|error| panic!("{parallel}: {error}"));
        report.predicted.memory_gib.per_stage[0].parameters * f64::from(1 << 30)
    };
    // Parameters in bf16: of 32 layers wk and wv, 4096 x 1024 each, stay in 8 parts; norms are whole, and the rest is in `tp` parts.
    let norms = 65.0 * 4096.0;
    let keys = 32.0 * 2.0 * 4096.0 * 1024.0;
    let rest = 8_030_261_248.0 - norms - keys;
    for (tp, key_parts) in [(8.0, 8.0), (16.0, 8.0), (32.0, 8.0)] {
        let wanted = 2.0 * (norms + keys / key_parts + rest / tp);
        let found = of(&format!("tp={tp}"));
        assert!((found / wanted - 1.0).abs() < 1e-6, "tp={tp}: {found} instead of {wanted}");
    }
}
