//! Cost-based sharding, without rules, finds the published shardings.

use cost::{Cluster, PROGRAM, Platform};
use ir::graph::{Block, Model, SectionKind};
use ir::ids::Value;
use ir::models::{Batch, ModelConfig, preset};
use ir::ops::Op;
use ir::optimizer::Optimizer;
use ir::options::{ParallelConfig, PlanOptions};
use ir::types::DType;
use ir::verify;
use meshwright_planner::shard::{Decided, decide};
use std::collections::BTreeMap;
use transforms::differentiate::differentiate;

/// A model on a mesh, with all that is not stated open.
fn opened(name: &str, batch: u64, seq: u64, parallel: &ParallelConfig) -> Model {
    let model = preset(name).expect("a preset").config.build(&Batch { batch, seq, dtype: DType::F32 });
    on_mesh(model.expect("a model"), parallel)
}

fn on_mesh(model: Model, parallel: &ParallelConfig) -> Model {
    let model = differentiate(model, &Optimizer::default()).expect("a gradient");
    let options = PlanOptions::auto(parallel.clone(), None, 1);
    meshwright_planner::plan(model, &options, &PROGRAM, Some("annotate"), &mut |_, _| {}).expect("a mesh")
}

/// The model with its shardings decided within a device's memory, and all collectives. The verifiers accept it.
fn sharded(mut model: Model, platform: &Platform<'_>, memory: u64, microbatches: u32) -> (Model, Decided) {
    let options = PlanOptions::auto(ParallelConfig::default(), Some(memory), microbatches);
    let decided = decide(&mut model, &options, platform, &mut |_| {}).expect("shardings").expect("something to decide");
    assert!(decided.is_proved && decided.bound <= decided.seconds && decided.peak <= memory, "{decided:?}");
    verify::verify(&model).expect("what is done once a step is not laid out yet, all else is");
    let model = meshwright_planner::plan(model, &options, platform, None, &mut |_, _| {}).expect("a plan");
    verify::verify_planned(&model).expect("collectives are right");
    (model, decided)
}

fn block<'m>(model: &'m Model, name: &str) -> &'m Block {
    model.blocks.values().find(|block| block.name == name).expect("the block")
}

/// Number of collectives per kind in a section, without those of integers (positions).
fn collectives(block: &Block, kind: SectionKind) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for stmt in &block[kind].stmts {
        if let Op::Collective(collective) = &stmt.op
            && collective.communicates()
            && block.ty(stmt.operands[0]).dtype.is_float()
        {
            *counts.entry(collective.name()).or_insert(0) += 1;
        }
    }
    counts
}

/// Names of the sharded dims of a value.
fn cut(model: &Model, block: &Block, name: &str) -> String {
    let ty = block.ty(block.find(name).unwrap_or_else(|| panic!("a value `{name}`")));
    let cut = ty.dims.iter().filter(|dim| !dim.axes.is_empty());
    cut.filter_map(|dim| dim.name).map(|name| model.dims[name].name.as_str()).collect()
}

/// Returns whether the weights are sharded as in Shoeybi et al. 2019: the first matrices of attention and of the feed-forward
/// net by columns, the last by rows.
fn is_column_row(model: &Model, layer: &Block) -> bool {
    let wanted = [("wq", "g"), ("wk", "g"), ("wv", "g"), ("wo", "g"), ("gate", "f"), ("up", "f"), ("down", "f")];
    wanted.iter().all(|(name, dim)| cut(model, layer, name) == *dim)
}

fn pin_whole(model: &mut Model, block: &str, value: &str) {
    let block = model.blocks.values_mut().find(|known| known.name == block).expect("the block");
    let value: Value = block.find(value).expect("the value");
    block.values[value].ty.dims.iter_mut().for_each(|dim| dim.open = false);
}

#[test]
fn few_tokens_and_large_matrices_are_split_by_column_and_row() {
    let parallel = ParallelConfig { tp: 8, ..ParallelConfig::default() };
    let opened = || opened("llama3-8b", 1, 512, &parallel);
    let whole = BTreeMap::from([("all_reduce", 2)]);
    // An all-reduce in two halves, norms and sums between them on a part of the sequence (Korthikanti et al. 2022).
    let halves = BTreeMap::from([("all_gather", 2), ("reduce_scatter", 2)]);
    // Switches that sum take less time for the whole than for the halves.
    for (cluster, wanted) in [("a100-80gb", &halves), ("h100-dgx-ndr", &whole)] {
        let cluster = Cluster::find(cluster).unwrap();
        let platform = Platform::of_program(&cluster);
        let (model, free) = sharded(opened(), &platform, u64::MAX, 4);
        let layer = block(&model, "layer");
        assert!(is_column_row(&model, layer));
        assert_eq!(collectives(layer, SectionKind::F), *wanted, "{}", cluster.name);
        assert_eq!(collectives(layer, SectionKind::I), *wanted, "{}", cluster.name);
        // The stream is unsharded between layers, since slices send nothing.
        assert_eq!(cut(&model, layer, "x"), "");

        // Stated shardings are constraints: the stream is unsharded, so each pass has two all-reduces.
        let mut stated = opened();
        pin_whole(&mut stated, "layer", "x");
        let (model, pinned) = sharded(stated, &platform, u64::MAX, 4);
        let layer = block(&model, "layer");
        assert!(is_column_row(&model, layer));
        assert_eq!(cut(&model, layer, "x"), "");
        let forward = collectives(layer, SectionKind::F);
        assert!(forward == whole || forward == halves, "{forward:?}");
        assert!(pinned.seconds >= free.seconds, "{pinned:?} {free:?}");
    }
}

#[test]
fn many_tokens_and_small_matrices_are_split_by_batch() {
    let parallel = ParallelConfig { dp: 4, ..ParallelConfig::default() };
    let (model, _) = sharded(opened("tiny-llama", 32, 256, &parallel), &PROGRAM, u64::MAX, 4);
    let layer = block(&model, "layer");
    assert_eq!(cut(&model, layer, "x"), "b");
    assert!(model.params.values().all(|param| param.ty.sharded_axes().is_empty()), "parameters are whole");
    for kind in [SectionKind::F, SectionKind::I, SectionKind::W] {
        assert_eq!(collectives(layer, kind), BTreeMap::new(), "{kind:?}");
    }
    let gradient = layer.gradient_of(layer.find("gate").unwrap()).unwrap();
    assert_eq!(layer.ty(gradient).partial_axes(), model.mesh.tensor_axes(), "gradients are summed once a step");
}

#[test]
fn in_little_memory_parameters_are_cut_and_gathered() {
    let parallel = ParallelConfig { dp: 4, ..ParallelConfig::default() };
    let opened = || opened("tiny-llama", 16, 256, &parallel);
    let (_, free) = sharded(opened(), &PROGRAM, u64::MAX, 4);
    // 3.2M parameters and gradients of 4 bytes are on every device; three quarters of them need not be.
    let (model, tight) = sharded(opened(), &PROGRAM, free.peak - 14_000_000, 4);
    assert!(tight.seconds > free.seconds && tight.peak < free.peak);
    let layer = block(&model, "layer");
    assert_eq!(cut(&model, layer, "x"), "b");
    let matrices = ["wq", "wo", "gate", "up", "down"];
    let stored = matrices.iter().filter(|name| !cut(&model, layer, name).is_empty()).count();
    assert!(stored >= 3, "only {stored} of the matrices are cut");
    assert!(collectives(layer, SectionKind::F).get("all_gather").is_some_and(|&count| count >= stored));
    assert!(collectives(layer, SectionKind::W).contains_key("reduce_scatter"));
}

#[test]
fn experts_are_shared_out_and_tokens_exchanged() {
    let parallel = ParallelConfig { dp: 8, ..ParallelConfig::default() };
    let h100 = Cluster::find("h100-dgx-ndr").unwrap();
    let ModelConfig::Llama(mut config) = preset("mixtral-8x7b").expect("a preset").config.clone() else {
        panic!("a Llama")
    };
    // With places for all tokens that may come, an exchange would move as much as a gather of the tokens.
    config.experts.as_mut().expect("experts").capacity = Some(1.25);
    let model = ModelConfig::Llama(config).build(&Batch { batch: 8, seq: 1024, dtype: DType::F32 }).expect("a model");
    let (model, _) = sharded(on_mesh(model, &parallel), &Platform::of_program(&h100), u64::MAX, 4);
    let layer = block(&model, "layer");
    assert_eq!(cut(&model, layer, "expert_up"), "e");
    for kind in [SectionKind::F, SectionKind::I] {
        assert_eq!(collectives(layer, kind), BTreeMap::from([("all_to_all", 2)]), "{kind:?}");
    }
}

/// Two branches of different width that meet again: no transformer.
const BRANCHES: &str = r#"
dims [n=4096, i=64, j=48, k=2048]
param %a: f32[i, k]
param %b: f32[i, j]
param %c: f32[j, k]
param %d: f32[k, i]
model @branches(%x: input f32[n, i]) {
  call @net(%x; %a, %b, %c, %d)
}
block @net(
    %x: input f32[n, i]; %a: param f32[i, k], %b: param f32[i, j], %c: param f32[j, k], %d: param f32[k, i]
) -> loss f32[] {
  %u: f32[n, k] = einsum(%x, %a, eq="n i, i k -> n k")
  %v: f32[n, j] = einsum(%x, %b, eq="n i, i j -> n j")
  %w: f32[n, j] = gelu(%v)
  %p: f32[n, k] = einsum(%w, %c, eq="n j, j k -> n k")
  %q: f32[n, k] = mul(%u, %p)
  %r: f32[n, k] = silu(%q)
  %y: f32[n, i] = einsum(%r, %d, eq="n k, k i -> n i")
  %z: f32[n, i] = mul(%y, %y)
  %l: f32[]     = reduce_sum(%z, eq="n i -> ()")
  return %l
}
"#;

#[test]
fn any_model_is_sharded() {
    let model = ir::text::parse(BRANCHES).expect("a model").model;
    let whole = on_mesh(model.clone(), &ParallelConfig { dp: 2, tp: 4, ..ParallelConfig::default() });
    let (model, decided) = sharded(whole, &PROGRAM, u64::MAX, 1);
    let net = block(&model, "net");
    assert!(!cut(&model, net, "u").is_empty() && !cut(&model, net, "q").is_empty(), "{decided:?}");
}
