//! The default rules give the shardings of Megatron-LM: tests of the collectives in a Llama layer.

use cost::PROGRAM;
use ir::graph::{ArgKind, Block, Model, SectionKind};
use ir::ids::Value;
use ir::models::{Batch, preset};
use ir::ops::Op;
use ir::optimizer::Optimizer;
use ir::options::{ParallelConfig, PlanOptions, Recompute};
use ir::types::DType;
use std::collections::{BTreeMap, HashMap};
use transforms::differentiate::differentiate;

fn planned(parallel: ParallelConfig) -> Model {
    planned_preset("tiny-llama", parallel)
}

fn planned_preset(name: &str, parallel: ParallelConfig) -> Model {
    let batch = Batch { batch: 4, seq: 64, dtype: DType::F32 };
    let model = preset(name).expect("a preset").config.build(&batch).expect("a model");
    let model = differentiate(model, &Optimizer::default()).expect("a gradient");
    meshwright_planner::plan(model, &PlanOptions::of(parallel), &PROGRAM, None, &mut |_, _| {}).expect("a plan")
}

fn block<'m>(model: &'m Model, name: &str) -> &'m Block {
    model.blocks.values().find(|block| block.name == name).expect("the block")
}

/// Number of collectives per kind and axes in a section: `all_reduce tp` -> 2.
fn collectives(model: &Model, name: &str, kind: SectionKind) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for stmt in &block(model, name)[kind].stmts {
        if let Op::Collective(collective) = &stmt.op
            && collective.communicates()
        {
            let axes: Vec<&str> = collective.over().iter().map(|axis| model.mesh.axes[axis].name.as_str()).collect();
            *counts.entry(format!("{} {}", collective.name(), axes.join(","))).or_insert(0) += 1;
        }
    }
    counts
}

fn counts(expected: &[(&str, usize)]) -> BTreeMap<String, usize> {
    expected.iter().map(|(name, count)| (name.to_string(), *count)).collect()
}

#[test]
fn tensor_parallel_layer_has_two_all_reduces_each_way() {
    let model = planned(ParallelConfig { dp: 2, tp: 2, ..ParallelConfig::default() });
    assert_eq!(collectives(&model, "layer", SectionKind::F), counts(&[("all_reduce tp", 2)]));
    assert_eq!(collectives(&model, "layer", SectionKind::I), counts(&[("all_reduce tp", 2)]));
    assert_eq!(collectives(&model, "layer", SectionKind::W), counts(&[]));
}

#[test]
fn sequence_parallel_layer_gathers_and_scatters() {
    let model = planned(ParallelConfig { dp: 2, tp: 2, sp: true, ..ParallelConfig::default() });
    let both = counts(&[("all_gather tp", 2), ("reduce_scatter tp", 2)]);
    assert_eq!(collectives(&model, "layer", SectionKind::F), both);
    assert_eq!(collectives(&model, "layer", SectionKind::I), both);
    // W gathers the inputs of the column-parallel matmuls again instead of saving them.
    assert_eq!(collectives(&model, "layer", SectionKind::W), counts(&[("all_gather tp", 2)]));
}

#[test]
fn gradients_are_reduced_in_buckets_after_the_last_microbatch() {
    let model = planned(ParallelConfig { dp: 2, tp: 2, ..ParallelConfig::default() });
    assert_eq!(collectives(&model, "layer", SectionKind::U), counts(&[("all_reduce dp", 1)]));
    let model = planned(ParallelConfig { dp: 2, tp: 2, sp: true, ..ParallelConfig::default() });
    // The norms' gradients are partial over tp too.
    let apart = counts(&[("all_reduce dp", 1), ("all_reduce dp,tp", 1)]);
    assert_eq!(collectives(&model, "layer", SectionKind::U), apart);
}

#[test]
fn zero_1_scatters_gradients_and_gathers_parameters() {
    let model = planned(ParallelConfig { dp: 4, zero: 1, ..ParallelConfig::default() });
    let found = collectives(&model, "layer", SectionKind::U);
    assert_eq!(found.get("reduce_scatter dp"), Some(&1), "{found:?}");
    assert_eq!(found.get("all_gather dp"), Some(&1), "{found:?}");
    assert!(!found.contains_key("all_reduce dp"), "{found:?}");
}

#[test]
fn zero_groups_scatter_within_and_sum_shards_between() {
    for zero in 1..=2 {
        let groups = ParallelConfig { zero, shard: Some(4), ..ParallelConfig::default() };
        let model = planned(ParallelConfig { dp: 4, cp: 2, ..groups.clone() });
        let all = [SectionKind::W, SectionKind::U].map(|kind| collectives(&model, "layer", kind));
        let [scattered, updated] = &all;
        assert_eq!(updated.get("all_reduce dp1"), Some(&1), "{zero}: {all:?}");
        assert_eq!(updated.get("all_gather dp0,cp"), Some(&1), "{zero}: {all:?}");
        let scatters = if zero == 1 { updated } else { scattered };
        assert!(scatters.contains_key("reduce_scatter dp0,cp"), "{zero}: {all:?}");
        assert!(!scattered.keys().any(|name| name.contains("dp1")), "{zero}: {all:?}");
        // Of a group the ranks of cp hold different experts.
        let model = planned_preset("tiny-moe", ParallelConfig { dp: 4, cp: 2, ep: 2, ..groups });
        let axes_of = |param: &str| {
            let layer = block(&model, "layer");
            let storage = &layer.ty(layer.find(param).expect("a state")).storage;
            storage.iter().map(|axis| model.mesh.axes[axis].name.as_str()).collect::<Vec<_>>()
        };
        assert_eq!((axes_of("expert_up.m"), axes_of("wq.m")), (vec!["dp0"], vec!["dp0", "cp"]));
    }
}

#[test]
fn the_vocabulary_parallel_loss_never_gathers_logits() {
    let model = planned(ParallelConfig { dp: 2, tp: 2, ..ParallelConfig::default() });
    for kind in [SectionKind::F, SectionKind::I, SectionKind::W] {
        let found = collectives(&model, "head", kind);
        assert!(found.keys().all(|name| !name.starts_with("all_gather")), "{kind:?}: {found:?}");
    }
    let forward = collectives(&model, "head", SectionKind::F);
    assert_eq!(forward, counts(&[("all_reduce tp", 3)]), "maximum, sum of exponentials, label's logit");
}

#[test]
fn context_parallel_layer_gathers_keys_and_values() {
    let model = planned(ParallelConfig { cp: 2, ..ParallelConfig::default() });
    // Keys, values, and the positions and segments that belong to them.
    assert_eq!(collectives(&model, "layer", SectionKind::F), counts(&[("all_gather cp", 4)]));
    let both = counts(&[("all_gather cp", 4), ("reduce_scatter cp", 2)]);
    assert_eq!(collectives(&model, "layer", SectionKind::I), both);
    assert_eq!(collectives(&model, "layer", SectionKind::W), counts(&[]));
    // Every rank has part of the tokens, so gradients are partial sums.
    let layer = block(&model, "layer");
    for param in layer.args_of(ArgKind::Param) {
        let gradient = layer.gradient_of(param).expect("a gradient");
        assert_eq!(layer.ty(gradient).partial_axes(), model.mesh.tensor_axes(), "{}", layer.value_name(gradient));
    }
}

#[test]
fn context_and_sequence_parallelism_cut_the_sequence_together() {
    let model = planned(ParallelConfig { cp: 2, tp: 2, sp: true, ..ParallelConfig::default() });
    let gathered = counts(&[("all_gather cp", 4), ("all_gather tp", 2), ("reduce_scatter tp", 2)]);
    assert_eq!(collectives(&model, "layer", SectionKind::F), gathered);
    let stream = &block(&model, "layer").args[0];
    let axes: Vec<usize> = block(&model, "layer").ty(stream.value).dims.iter().map(|dim| dim.axes.len()).collect();
    assert_eq!(axes, [0, 2, 0]);
}

#[test]
fn expert_parallel_layer_exchanges_tokens_twice_each_way() {
    for (parallel, axis) in [
        (ParallelConfig { dp: 2, ep: 2, ..ParallelConfig::default() }, "all_to_all dp"),
        (ParallelConfig { dp: 4, ep: 2, ..ParallelConfig::default() }, "all_to_all ep"),
        (ParallelConfig { dp: 2, cp: 2, tp: 2, ep: 2, etp: 2, ..ParallelConfig::default() }, "all_to_all cp"),
    ] {
        let model = planned_preset("tiny-moe", parallel);
        let exchanges = |kind| {
            let all = collectives(&model, "layer", kind);
            all.into_iter().filter(|(name, _)| name.starts_with("all_to_all")).collect::<BTreeMap<_, _>>()
        };
        assert_eq!(exchanges(SectionKind::F), counts(&[(axis, 2)]));
        assert_eq!(exchanges(SectionKind::I), counts(&[(axis, 2)]));
        assert_eq!(exchanges(SectionKind::W), counts(&[]));
    }
}

/// One key serves all heads and is gathered before it is broadcast; equally partial gradients are added and reduced
/// once.
#[test]
fn latent_attention_gathers_what_is_small_and_scatters_each_sum_once() {
    let model = planned_preset("deepseek-v2-lite", ParallelConfig { tp: 2, sp: true, ..ParallelConfig::default() });
    // Tokens, latent keys and values, and the key for the heads; tokens for the feed-forward net.
    assert_eq!(collectives(&model, "dense", SectionKind::F), counts(&[("all_gather tp", 4), ("reduce_scatter tp", 2)]));
    assert_eq!(collectives(&model, "dense", SectionKind::I), counts(&[("all_gather tp", 2), ("reduce_scatter tp", 4)]));
}

/// The inputs of shared experts and of experts on ranks of tp are gathered once, and their outputs are one sum. With the tokens go
/// the choices and their weights.
#[test]
fn tokens_are_gathered_once_for_all_experts() {
    let model =
        planned_preset("deepseek-v2-lite", ParallelConfig { tp: 2, ep: 2, sp: true, ..ParallelConfig::default() });
    assert_eq!(collectives(&model, "layer", SectionKind::F), counts(&[("all_gather tp", 6), ("reduce_scatter tp", 2)]));
}

#[test]
fn gradients_of_experts_are_summed_over_their_copies_only() {
    let model = planned_preset("tiny-moe", ParallelConfig { dp: 4, tp: 2, ep: 2, etp: 2, ..ParallelConfig::default() });
    let layer = block(&model, "layer");
    let unreduced = |name: &str| {
        let gradient = layer.find(name).expect("a gradient");
        let axes = layer.ty(gradient).partial_axes();
        axes.iter().map(|axis| model.mesh.axes[axis].name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(unreduced("expert_up.grad"), ["edp"]);
    assert_eq!(unreduced("wq.grad"), ["edp", "ep"]);
}

#[test]
fn each_sum_is_paid_once() {
    let sequence = ParallelConfig { tp: 2, sp: true, ..ParallelConfig::default() };
    let configs = [
        ParallelConfig { dp: 2, tp: 2, ..ParallelConfig::default() },
        sequence.clone(),
        ParallelConfig { cp: 2, ..sequence.clone() },
        ParallelConfig { dp: 2, zero: 2, ..sequence.clone() },
        ParallelConfig { tp: 4, recompute: Recompute::Full(None), ..sequence },
    ];
    for (name, parallel) in
        ["tiny-gpt2", "tiny-llama", "tiny-moe"].iter().flat_map(|name| configs.iter().map(move |l| (name, l)))
    {
        let model = planned_preset(name, parallel.clone());
        for block in model.blocks.values() {
            let sections = [SectionKind::F, SectionKind::I, SectionKind::W];
            let stmts = sections.iter().flat_map(|&kind| &block[kind].stmts);
            let mut payments: HashMap<Value, usize> = HashMap::new();
            for stmt in stmts.filter(|stmt| matches!(stmt.op, Op::Collective(_))) {
                let (from, to) = (stmt.operands[0], stmt.results[0]);
                if block.ty(to).partial_axes().len() < block.ty(from).partial_axes().len() {
                    *payments.entry(from).or_insert(0) += 1;
                }
            }
            assert!(!payments.is_empty() || block.name == "embed", "{name} {parallel:?}: {}", block.name);
            assert!(payments.values().all(|&count| count == 1), "{name} {parallel:?}: {}: {payments:?}", block.name);
        }
    }
}
