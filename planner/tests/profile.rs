//! Costs of a block: activation memory by the published formulas, seconds that add up, the trade of recomputation.

use cost::{BlockOptions, Cluster, EnumSet, Format, FusedKernel, Platform, Profile, Recipe, Stack, profile};
use ir::graph::Model;
use ir::models::{Batch, from_config, preset};
use ir::optimizer::Optimizer;
use ir::options::{CpKind, Offload, ParallelConfig, PlanOptions, Recompute};
use ir::types::DType;
use transforms::differentiate::differentiate;

/// GPT-3 175B (Brown et al. 2020) with dropout, as Korthikanti et al. 2022 train it: sequences of 2048, a vocabulary of 51200.
const GPT3: &str = r#"{"model_type": "gpt2", "vocab_size": 51200, "n_positions": 2048, "n_embd": 12288, "n_layer": 96, "n_head": 96,
    "attn_pdrop": 0.1, "resid_pdrop": 0.1, "embd_pdrop": 0.1}"#;

const BATCH: Batch = Batch { batch: 1, seq: 2048, dtype: DType::BF16 };

/// The profile says what is recomputed, so the plan leaves that open.
fn planned(model: Model, parallel: &ParallelConfig) -> Model {
    let model = differentiate(model, &Optimizer::default()).expect("a gradient");
    let options = PlanOptions::of(ParallelConfig { recompute: Recompute::Auto, ..parallel.clone() });
    meshwright_planner::plan(model, &options, &cost::PROGRAM, None, &mut |_, _| {}).expect("a plan")
}

fn gpt3(parallel: &ParallelConfig) -> Model {
    let config = from_config(GPT3).expect("a configuration");
    planned(config.build(&BATCH).expect("a model"), parallel)
}

fn llama(parallel: &ParallelConfig) -> Model {
    planned(preset("llama2-7b").expect("a preset").config.build(&BATCH).expect("a model"), parallel)
}

fn bf16() -> Recipe {
    Recipe::bf16()
}

fn of_block(model: &Model, name: &str, parallel: &ParallelConfig, stack: &Stack) -> Profile {
    in_format(model, name, parallel, stack, &bf16())
}

fn in_format(model: &Model, name: &str, parallel: &ParallelConfig, stack: &Stack, recipe: &Recipe) -> Profile {
    static A100: std::sync::LazyLock<Cluster> =
        std::sync::LazyLock::new(|| Cluster::find("a100-80gb").expect("a preset"));
    let platform = Platform { cluster: &A100, stack, recipe };
    let block = model.blocks.values().find(|block| block.name == name).expect("the block");
    profile(model, block, &BlockOptions::of(parallel, parallel.dp), &platform)
}

fn found(stack: &str) -> Stack {
    Stack::find(stack).expect("a preset")
}

fn layer(model: &Model, parallel: &ParallelConfig, stack: &str) -> Profile {
    of_block(model, "layer", parallel, &found(stack))
}

fn parallel(tp: u64, sp: bool) -> ParallelConfig {
    ParallelConfig { tp, sp, ..ParallelConfig::default() }
}

fn recomputing(parallel: &ParallelConfig, mode: &str) -> ParallelConfig {
    ParallelConfig { recompute: mode.parse().expect("a mode"), ..parallel.clone() }
}

#[track_caller]
fn close(found: f64, wanted: f64, share: f64) {
    assert!((found / wanted - 1.0).abs() <= share, "{found} is not within {share} of {wanted}");
}

/// Korthikanti et al. 2022, table 2: bytes of a layer's activations, with `s b h` as unit.
#[test]
fn activation_memory_is_that_of_the_paper() {
    let (s, h, a) = (2048.0, 12288.0, 96.0);
    let scores = 5.0 * a * s / h;
    let check = |t: f64, sp: bool, mode: &str, wanted: f64| {
        let parallel = recomputing(&parallel(t as u64, sp), mode);
        close(layer(&gpt3(&parallel), &parallel, "megatron-2022").saved / (s * h), wanted, 0.02);
    };
    check(1.0, false, "none", 34.0 + scores);
    check(8.0, false, "none", 10.0 + 24.0 / 8.0 + scores / 8.0);
    check(8.0, true, "none", (34.0 + scores) / 8.0);
    check(8.0, false, "selective", 10.0 + 24.0 / 8.0);
    check(8.0, true, "selective", 34.0 / 8.0);
    check(8.0, false, "full", 2.0);
}

/// Llama 2 7B: a gate of 11,008 elements saves `gate`, `up` and their product in 16 bits; its inputs alone in 16 and in 8 bits.
#[test]
fn a_gated_unit_saves_its_inputs_alone_where_a_stack_says_so() {
    let plain = parallel(1, false);
    let (model, elements) = (llama(&plain), 2048.0 * 11008.0);
    let mut stack = found("megatron-core-2025");
    let whole = of_block(&model, "layer", &plain, &stack).saved;
    for (bytes, less) in [(2.0, 2.0), (1.0, 4.0)] {
        stack.traits.saved.gated = Some(bytes);
        close(whole - of_block(&model, "layer", &plain, &stack).saved, less * elements, 1e-9);
    }
}

/// Frozen parameters need no gradient: the backward has half of the FLOPs, and no section W.
#[test]
fn a_frozen_layer_has_one_product_in_the_backward() {
    let plain = parallel(1, false);
    let trained = preset("llama2-7b").expect("a preset").config.build(&BATCH).expect("a model");
    let mut frozen = trained.clone();
    frozen.params.values_mut().for_each(|param| param.frozen = true);
    assert_eq!((trained.trained_count(), frozen.trained_count()), (trained.parameter_count(), 0));
    let less = cost::model_flops(&trained) - cost::model_flops(&frozen);
    let stack = found("megatron-core-2025");
    let of = |model: Model| of_block(&planned(model, &plain), "layer", &plain, &stack);
    let [trained, frozen] = [of(trained), of(frozen)];
    assert_eq!((frozen.w.total(), trained.frozen_flops), (0.0, 0.0));
    close(trained.executed.products - frozen.executed.products, frozen.frozen_flops, 1e-9);
    close(3.0 * frozen.frozen_flops, trained.executed.products, 1e-9);
    assert!(less > 32.0 * frozen.frozen_flops, "{less}");
}

/// Pieces score the same pairs, and a ring adds its results.
#[test]
fn attention_over_keys_of_other_ranks_takes_longer_in_pieces() {
    let of = |kind, pieces: f64| {
        let parallel = ParallelConfig { cp: 4, cp_kind: kind, ..ParallelConfig::default() };
        let mut stack = found("fsdp-compile");
        stack.traits.kernels.pieces = pieces;
        of_block(&llama(&parallel), "layer", &parallel, &stack).f.attention
    };
    close(of(CpKind::AllGather, 1.5), 1.5 * of(CpKind::AllGather, 1.0), 1e-9);
    let ring = [1.0, 1.5].map(|pieces| of(CpKind::Ring, pieces));
    assert!(ring[0] > of(CpKind::AllGather, 1.0) && ring[1] < 1.5 * ring[0], "{ring:?}");
}

/// Qi et al. 2023, table 1: inputs of products and the gradients of their results, `32 s b h` bytes.
#[test]
fn what_waits_for_the_weight_gradient_is_that_of_the_paper() {
    let (s, h) = (2048.0, 12288.0);
    let plain = parallel(1, false);
    close(layer(&gpt3(&plain), &plain, "megatron-2022").saved_for_w / (s * h), 32.0, 0.02);
}

/// "70 % of the memory at 2.7 % of the FLOPs" (section 5): of the activations, and of the forward's operations.
#[test]
fn selective_recomputation_saves_most_for_little() {
    let plain = parallel(8, true);
    let model = gpt3(&plain);
    let none = layer(&model, &plain, "megatron-2022");
    let selective = layer(&model, &recomputing(&plain, "selective"), "megatron-2022");
    close(1.0 - selective.saved / none.saved, 0.70, 0.01);
    close(selective.recomputed_flops_noncausal / none.flops_noncausal, 0.027, 0.01);
    // Flash attention keeps no scores: nothing is saved, nothing is paid.
    let selective = layer(&model, &recomputing(&plain, "selective"), "megatron-core-2025");
    let none = layer(&model, &plain, "megatron-core-2025");
    assert_eq!((selective.saved, selective.recomputed.total()), (none.saved, 0.0));
}

#[test]
fn what_is_recomputed_is_paid_in_seconds_and_saved_in_bytes() {
    let plain = parallel(4, true);
    let model = llama(&plain);
    let modes = ["none", "selective:layernorm", "selective:layernorm+mlp", "full"];
    let profiles = modes.map(|mode| layer(&model, &recomputing(&plain, mode), "megatron-core-2025"));
    for pair in profiles.windows(2) {
        assert!(pair[1].saved < pair[0].saved, "{} {}", pair[1].saved, pair[0].saved);
        assert!(pair[1].recomputed.total() > pair[0].recomputed.total());
        assert!(pair[1].transient > pair[0].transient);
    }
    let full = &profiles[3];
    assert_eq!(full.recomputed, full.f, "a layer that keeps its input runs whole again");
    assert_eq!(full.saved, full.boundary);
    assert_eq!(full.recomputed_flops, full.flops);
    // A block outside the layers is not recomputed.
    let head = |mode| of_block(&model, "head", &recomputing(&plain, mode), &Stack::find("megatron-core-2025").unwrap());
    assert_eq!(head("full").saved, head("none").saved);
}

/// Recomputation ends before the matmul from f to h and its reduction: no backward statement reads them.
#[test]
fn a_checkpoint_that_ends_early_leaves_out_the_last_product() {
    let plain = parallel(2, true);
    let (model, parallel) = (llama(&plain), recomputing(&plain, "full"));
    let recomputed = |stops_early: bool| {
        let mut stack = found("fsdp-eager");
        stack.traits.saved.stops_early = stops_early;
        of_block(&model, "layer", &parallel, &stack)
    };
    let (whole, early) = (recomputed(false), recomputed(true));
    let products = 2.0 * 2048.0 * (4.0 * 4096.0 + 3.0 * 11008.0) * 4096.0;
    let last = 2.0 * 2048.0 * 11008.0 * 4096.0;
    assert_eq!(whole.recomputed, whole.f);
    close(whole.recomputed_flops - early.recomputed_flops, last, 1e-9);
    close((whole.recomputed.gemm - early.recomputed.gemm) / whole.recomputed.gemm, last / products, 0.1);
    // Two gathers and one of two sums.
    close(early.recomputed.tp / whole.recomputed.tp, 0.75, 0.02);
    assert_eq!((whole.saved, whole.i, whole.w), (early.saved, early.i, early.w));
}

#[test]
fn tensor_parallelism_divides_products_and_parameters() {
    let of = |tp, sp| {
        let parallel = ParallelConfig { tp_overlap: Some(false), ..parallel(tp, sp) };
        layer(&llama(&parallel), &parallel, "megatron-core-2025")
    };
    let (whole, part) = (of(1, false), of(4, true));
    for (whole, part) in [(whole.f, part.f), (whole.i, part.i), (whole.w, part.w)] {
        assert!(part.gemm > whole.gemm / 4.0 && part.gemm < whole.gemm / 2.5, "{part:?} of {whole:?}");
        assert_eq!(whole.tp, 0.0);
        assert!(part.tp > 0.0);
    }
    close(part.elements.all.dense, whole.elements.all.dense / 4.0, 0.001);
    assert_eq!(part.flops, whole.flops);
    close(part.boundary, whole.boundary / 4.0, 0.0);
    close(part.saved, whole.saved / 4.0, 0.001);
}

/// Six FLOPs a weight and token, of which two are the forward's.
#[test]
fn flops_are_those_of_the_model() {
    let parallel = parallel(2, false);
    let of = layer(&llama(&parallel), &parallel, "megatron-core-2025");
    let (tokens, hidden) = (2048.0, 4096.0);
    let norms = 2.0 * hidden;
    let weights = 2.0 * of.elements.all.dense - norms;
    let attention = 4.0 * tokens * tokens * hidden;
    close(of.flops_noncausal, 2.0 * weights * tokens + attention, 0.001);
    close(of.flops, 2.0 * weights * tokens + attention / 2.0, 0.001);
}

/// With sequence parallelism four collectives forward, four backward and two gathers more: a bias in front of a norm does not
/// sum again what the norm's input has summed.
#[test]
fn a_layer_has_ten_collectives() {
    let parallel = ParallelConfig { tp_overlap: Some(false), ..parallel(8, true) };
    for model in [llama(&parallel), gpt3(&parallel)] {
        let of = layer(&model, &parallel, "megatron-core-2025");
        let gather = of.w.tp / 2.0;
        close(of.f.tp, 4.0 * gather, 0.001);
        close(of.i.tp, 4.0 * gather, 0.001);
    }
}

#[test]
fn hidden_communication_is_not_waited_for() {
    let plain = parallel(8, true);
    let model = llama(&plain);
    let with =
        |overlap| layer(&model, &ParallelConfig { tp_overlap: Some(overlap), ..plain.clone() }, "megatron-core-2025");
    let (shown, hidden) = (with(false), with(true));
    for (shown, hidden) in [(shown.f, hidden.f), (shown.i, hidden.i), (shown.w, hidden.w)] {
        assert!(hidden.tp < shown.tp, "{hidden:?} {shown:?}");
        assert!(hidden.gemm > shown.gemm, "compute makes way for what it hides");
        assert!(hidden.total() < shown.total());
    }
}

#[test]
fn context_parallelism_divides_tokens_and_exchanges_keys() {
    let of = |cp, cp_kind| {
        // However attention works, it is priced beside a plan that gathers.
        let planned = llama(&ParallelConfig { cp, ..ParallelConfig::default() });
        layer(&planned, &ParallelConfig { cp, cp_kind, ..ParallelConfig::default() }, "nanotron-2024")
    };
    let alone = of(1, CpKind::AllGather);
    let [ring, gathered, heads] = [CpKind::Ring, CpKind::AllGather, CpKind::Ulysses].map(|kind| of(4, kind));
    // By heads, attention's result is saved before and after its exchange.
    let result = BATCH.seq as f64 * 4096.0 * 2.0;
    for (part, twice) in [(&ring, 0.0), (&gathered, 0.0), (&heads, result)] {
        close(part.saved, (alone.saved + twice) / 4.0, 0.001);
        close(part.elements.all.dense, alone.elements.all.dense, 0.0);
        close(part.f.gemm, alone.f.gemm / 4.0, 0.2);
        assert!(part.f.attention > alone.f.attention / 4.0);
        assert_eq!((part.f.tp, part.flops), (0.0, alone.flops));
    }
    assert!(alone.f.cp == 0.0 && ring.f.cp < gathered.f.cp, "attention hides the ring");
    assert!(gathered.i.cp > 1.5 * gathered.f.cp, "keys are gathered again, and their gradients summed");
    assert!(heads.f.cp < gathered.f.cp, "a quarter of the tokens' heads, not all of them");
}

/// Four exchanges, two each way, of as many bytes: each token's vector to each of its experts and back.
#[test]
fn expert_parallelism_exchanges_tokens_and_divides_experts() {
    let of = |ep| {
        let parallel = ParallelConfig { dp: ep, ep, ..ParallelConfig::default() };
        let batch = Batch { batch: ep, ..BATCH };
        let config = &preset("mixtral-8x7b").expect("a preset").config;
        let mut stack = Stack::find("megatron-core-2025").expect("a preset");
        stack.traits.hides = EnumSet::default();
        of_block(&planned(config.build(&batch).expect("a model"), &parallel), "layer", &parallel, &stack)
    };
    let (alone, four, eight) = (of(1), of(4), of(8));
    assert_eq!((alone.f.ep, alone.i.ep), (0.0, 0.0));
    for (part, ep) in [(&four, 4.0), (&eight, 8.0)] {
        close(part.elements.all.experts, alone.elements.all.experts / ep, 0.0);
        assert_eq!((part.elements.all.dense, part.flops), (alone.elements.all.dense, alone.flops));
        close(part.saved, alone.saved, 0.001);
        close(part.f.gemm, alone.f.gemm, 0.1);
        close(part.f.memory_bound, alone.f.memory_bound, 0.05);
        // The forward also exchanges how many rows come.
        assert!(part.i.ep < part.f.ep);
        close(part.i.ep, part.f.ep, 0.05);
    }
    // 2 of 8 experts of size 14336: of the weights that a token sees three quarters are experts'.
    let seen = alone.elements.all.dense + alone.elements.all.experts * 2.0 / 8.0;
    let attention = 4.0 * 2048.0 * 2048.0 * 4096.0;
    close(alone.flops_noncausal, 2.0 * seen * 2048.0 + attention, 0.001);
    assert!(four.transient < 1.05 * alone.transient);
}

/// The results of a token's two choices, which only the gradient of their weights reads.
#[test]
fn experts_that_weigh_inside_keep_no_results() {
    let config = &preset("mixtral-8x7b").expect("a preset").config;
    for ep in [1, 4] {
        let parallel = ParallelConfig { dp: ep, ep, ..ParallelConfig::default() };
        let model = planned(config.build(&Batch { batch: ep, ..BATCH }).expect("a model"), &parallel);
        let with = |weighs_inside: bool| {
            let mut stack = found("megatron-core-2025");
            stack.traits.experts.weighs_inside = weighs_inside;
            of_block(&model, "layer", &parallel, &stack)
        };
        let (inside, outside) = (with(true), with(false));
        close(outside.saved - inside.saved, 2.0 * 2048.0 * 4096.0 * 2.0, 1e-6);
        assert!(inside.transient <= outside.transient);
        assert_eq!((inside.f, inside.i), (outside.f, outside.i));
    }
}

/// The operands of two products of each expert are quantised in a forward, and as many in a backward: by fourteen calls each where
/// scales are of whole tensors, by two where they are of blocks.
#[test]
fn each_expert_has_calls_of_its_own_where_scales_are_of_tensors() {
    let config = &preset("mixtral-8x7b").expect("a preset").config;
    for (ep, experts) in [(1, 8.0), (4, 2.0)] {
        let parallel = ParallelConfig { dp: ep, ep, ..ParallelConfig::default() };
        let model = planned(config.build(&Batch { batch: ep, ..BATCH }).expect("a model"), &parallel);
        let stack = found("megatron-core-2025");
        let launches = |blocks: bool| {
            let eight = Recipe { name: "fp8".to_string(), products: Format::F8, blocks, ..bf16() };
            in_format(&model, "layer", &parallel, &stack, &eight).launches()
        };
        let more = 2.0 * experts * 12.0 * stack.fitted.launch_us.value * 1e-6;
        let (tensors, blocks) = (launches(false), launches(true));
        close(tensors.forward - blocks.forward, more, 1e-6);
        close(tensors.backward - blocks.backward, more, 1e-6);
    }
}

/// A stack with one kernel for a clamped gate saves its two inputs and the product. Apart, three of the steps between them are saved
/// too.
#[test]
fn a_clamped_gate_saves_its_inputs_alone_where_it_is_one_kernel() {
    let config = &preset("gpt-oss-20b").expect("a preset").config;
    let parallel = ParallelConfig::default();
    let model = planned(config.build(&BATCH).expect("a model"), &parallel);
    let with = |is_one: bool| {
        let mut stack = found("automodel-2026");
        if !is_one {
            let others = stack.traits.kernels.fused.iter().filter(|kernel| *kernel != FusedKernel::ClampedSwiglu);
            stack.traits.kernels.fused = others.collect();
        }
        of_block(&model, "layer", &parallel, &stack)
    };
    let (one, apart) = (with(true), with(false));
    let element = 2048.0 * 4.0 * 2880.0 * 2.0;
    close(apart.saved - one.saved, 3.0 * element, 1e-6);
    assert!(one.f.memory_bound < apart.f.memory_bound && one.i.memory_bound < apart.i.memory_bound);
}

/// If sequences are sharded and routed in equal numbers of parts, ranks exchange their own tokens: an expert's work and a layer's
/// exchanges are those of ranks with whole sequences, shared out; no rank gathers what all route.
#[test]
fn ranks_that_cut_sequences_route_their_own_tokens() {
    let config = |parts| preset("qwen3-30b-a3b").expect("a preset").config.routed_in(parts, 2048);
    let of = |parallel: ParallelConfig, parts| {
        let mut stack = Stack::find("megatron-core-2025").expect("a preset");
        stack.traits.hides = EnumSet::default();
        let model = planned(config(parts).build(&Batch { batch: parallel.dp, ..BATCH }).expect("a model"), &parallel);
        of_block(&model, "layer", &parallel, &stack)
    };
    let whole = |ep| of(ParallelConfig { dp: ep, ep, ..ParallelConfig::default() }, 1);
    let folded = of(ParallelConfig { dp: 4, tp: 2, sp: true, ep: 8, ..ParallelConfig::default() }, 2);
    let shared = of(ParallelConfig { dp: 4, tp: 2, sp: true, ep: 4, etp: 2, ..ParallelConfig::default() }, 2);
    for (cut, whole) in [(&folded, whole(8)), (&shared, whole(4))] {
        close(cut.saved, whole.saved / 2.0, 0.3);
        close(cut.f.ep, whole.f.ep / 2.0, 0.2);
        close(cut.i.ep, cut.f.ep, 0.1);
        close(cut.f.memory_bound, whole.f.memory_bound / 2.0, 0.35);
        assert_eq!((cut.w.ep, cut.flops), (0.0, whole.flops));
    }
    assert_eq!(folded.f.tp, folded.i.tp, "a gather and a sum for attention");
    assert!(shared.f.tp > folded.f.tp, "ranks that share experts gather their tokens");
}

/// Attention's and the MLP's, of a whole stream of 16 bits.
#[test]
fn a_layer_gives_two_tensors_to_sums() {
    let of = |tp| {
        let parallel = parallel(tp, tp > 1);
        let profile = layer(&llama(&parallel), &parallel, "nanotron-2024");
        (profile.sums, profile.summed)
    };
    assert_eq!([of(1), of(8)], [(0.0, 0.0), (2.0, 2048.0 * 4096.0 * 2.0)]);
}

/// A fused softmax writes its cotangent on the one that it gets: one tensor of scores less.
#[test]
fn a_fused_softmax_is_in_place() {
    let parallel = parallel(8, true);
    let model = gpt3(&parallel);
    let with = |is_fused: bool| {
        let mut stack = found("megatron-2022");
        if !is_fused {
            stack.traits.kernels.fused.remove(FusedKernel::Softmax);
        }
        of_block(&model, "layer", &parallel, &stack).transient
    };
    let scores = 2.0 * 12.0 * 2048.0 * 2048.0;
    let more = with(false) - with(true);
    assert!(more > 0.0 && more <= scores, "{more} of {scores}");
}

#[test]
fn modules_of_experts_are_recomputed_by_name() {
    let plain = ParallelConfig { dp: 8, ep: 8, ..ParallelConfig::default() };
    let config = &preset("deepseek-v3").expect("a preset").config;
    let model = planned(config.build(&Batch { batch: 8, ..BATCH }).expect("a model"), &plain);
    let with = |mode: &str| layer(&model, &recomputing(&plain, mode), "megatron-core-2025");
    let none = with("none");
    for mode in ["moe_act", "mla_up_proj", "shared_experts", "layernorm", "moe"] {
        let some = with(&format!("selective:{mode}"));
        assert!(some.saved < none.saved && some.recomputed.total() > 0.0, "{mode}");
    }
    assert!(with("selective:moe").recomputed.ep > 0.0 && with("selective:moe_act").recomputed.ep == 0.0);
    assert_eq!(with("selective:mlp").saved, none.saved, "its layers have experts");
    assert!(with("selective:moe+mla_up_proj").saved < with("selective:moe").saved);
}

#[test]
fn stacks_that_fuse_move_less_and_keep_less() {
    let parallel = parallel(1, false);
    let model = llama(&parallel);
    let [eager, fused] = ["fsdp-eager", "fsdp-compile"].map(|stack| {
        let stack = Stack::find(stack).expect("a preset");
        let fitted = Stack::find("fsdp-eager").expect("a preset").fitted;
        of_block(&model, "layer", &parallel, &Stack { fitted, ..stack })
    });
    assert!(fused.f.memory_bound < 0.7 * eager.f.memory_bound);
    assert!(fused.i.memory_bound < eager.i.memory_bound);
    assert!(fused.saved < eager.saved, "SwiGLU's inner value is made again");
}

/// One product for queries, keys and values, and one for gate and up, in all three sections: as many operations in larger
/// pieces.
#[test]
fn joined_products_do_the_same_in_less_time() {
    use FusedKernel::{GateUp, Norm, Qkv, Rope};
    let parallel = parallel(8, true);
    let model = llama(&parallel);
    let with = |fused: &[FusedKernel]| {
        let mut stack = Stack::find("nanotron-2024").expect("a preset");
        stack.traits.kernels.fused = fused.iter().copied().collect();
        of_block(&model, "layer", &parallel, &stack)
    };
    let (apart, joined) = (with(&[Norm, Rope]), with(&[Norm, Rope, Qkv, GateUp]));
    for (apart, joined) in [(apart.f, joined.f), (apart.i, joined.i), (apart.w, joined.w)] {
        assert!(joined.gemm < apart.gemm && joined.gemm > 0.8 * apart.gemm, "{joined:?} {apart:?}");
    }
    assert!(joined.i.memory_bound < apart.i.memory_bound, "the parts of the input's gradient are summed within");
}

/// Norms' results and the product of SwiGLU are kept in 8 bits; what attention, norms and SwiGLU read again stays in 16. Some
/// stacks keep all in 16.
#[test]
fn what_only_products_read_is_kept_quantised() {
    let parallel = parallel(1, false);
    let model = llama(&parallel);
    let eight = Recipe { name: "fp8-block".to_string(), products: Format::F8, ..bf16() };
    let saves = |stack: &str| {
        let saved = |recipe: &Recipe| in_format(&model, "layer", &parallel, &found(stack), recipe).saved;
        saved(&bf16()) - saved(&eight)
    };
    close(saves("megatron-core-2025"), 2048.0 * (2.0 * 4096.0 + 11008.0), 0.001);
    assert_eq!(saves("fsdp-compile"), 0.0);
}

/// The saved values are the input and the results of query, value, gate and attention, with row sums in f32. Matmuls in 4 bits
/// save nothing; attention saves nothing if the list does not name its kernel. The last matmul's result is saved if the stack
/// saves each result when it is computed.
#[test]
fn per_op_recomputation_keeps_what_its_list_names() {
    let parallel = recomputing(&parallel(1, false), "selective:op");
    let model = llama(&parallel);
    let four = Recipe { name: "nvfp4".to_string(), products: Format::F4, ..bf16() };
    let saved = |stack: &str, recipe: &Recipe| in_format(&model, "layer", &parallel, &found(stack), recipe).saved;
    let (tokens, h, f) = (2048.0, 4096.0, 11008.0);
    let (stream, sums) = (2.0 * tokens * h, 4.0 * tokens * 32.0);
    close(saved("fsdp-compile", &bf16()), 4.0 * stream + 2.0 * tokens * f + sums, 0.001);
    close(saved("fsdp-compile", &four), 2.0 * stream + sums, 0.001);
    close(saved("fsdp-compile-2025", &bf16()), 3.0 * stream + 2.0 * tokens * f, 0.001);
    close(saved("fsdp-eager", &bf16()), 5.0 * stream + 2.0 * tokens * f + sums, 0.001);
}

/// Beside its softmax: PyTorch's loss makes the gradient from two more tensors in f32, and two more where the vocabulary is
/// cut; Megatron-LM's computes in place, so that logits in 16 bits are most.
#[test]
fn a_loss_has_copies_of_its_logits() {
    let inner = |tp: u64, stack: &str| {
        let parallel = parallel(tp, tp > 1);
        let logits = 2048.0 * 32000.0 / tp as f64;
        of_block(&llama(&parallel), "head", &parallel, &found(stack)).transient / logits
    };
    close(inner(1, "fsdp-compile-2024"), 2.0 + 6.0, 0.05);
    close(inner(2, "fsdp-compile-2024"), 2.0 + 6.0 + 4.0, 0.1);
    close(inner(1, "megatron-deepspeed-2021"), 2.0, 0.2);
}

#[test]
fn logits_are_kept_by_the_head_alone() {
    let parallel = parallel(2, true);
    let model = llama(&parallel);
    let stack = |name| Stack::find(name).expect("a preset");
    let half = |stack: &Stack| of_block(&model, "head", &parallel, stack);
    let (tokens, vocabulary) = (2048.0, 32000.0);
    close(half(&stack("megatron-core-2025")).logits, 2.0 * tokens * vocabulary / 2.0, 0.001);
    close(half(&stack("nanotron-2024")).logits, 4.0 * tokens * vocabulary / 2.0, 0.001);
    assert_eq!(layer(&model, &parallel, "nanotron-2024").logits, 0.0);
}

#[test]
fn launches_count_where_kernels_are_short() {
    let parallel = ParallelConfig::default();
    let small = Batch { seq: 128, ..BATCH };
    let model = planned(preset("gpt2").expect("a preset").config.build(&small).expect("a model"), &parallel);
    let eager = layer(&model, &parallel, "fsdp-eager").f;
    assert!(eager.launch > eager.total() / 2.0, "{eager:?}");
    assert_eq!(layer(&model, &parallel, "megatron-core-2025").f.launch, 0.0, "graphs are replayed");
}

/// A checkpoint around each of two norms, one around all of the layer, none around a module that it lacks.
#[test]
fn what_is_computed_again_takes_time_of_the_cpu() {
    let parallel = ParallelConfig::default();
    let model = llama(&parallel);
    let spare = |mode: &str, checkpoint: f64| {
        let mut stack = Stack::find("fsdp-eager").expect("a preset");
        stack.traits.launch.checkpoint = checkpoint;
        of_block(&model, "layer", &recomputing(&parallel, mode), &stack).spare.backward
    };
    let launch = Stack::find("fsdp-eager").expect("a preset").fitted.launch_us.value * 1e-6;
    for (mode, checkpoints) in [("none", 0.0), ("full", 1.0), ("selective:layernorm", 2.0), ("selective:mlp+moe", 1.0)]
    {
        let lost = (spare(mode, 0.0) - spare(mode, 10.0)) / launch;
        assert!((lost - 10.0 * checkpoints).abs() < 1e-6, "{mode}: {lost} calls");
    }
}

#[test]
fn what_is_kept_may_wait_in_the_host() {
    let parallel =
        ParallelConfig { offload: Offload::All(None), recompute: Recompute::Full(None), ..parallel(1, false) };
    let away = layer(&llama(&parallel), &parallel, "megatron-core-2025");
    assert_eq!((away.saved, away.offloaded), (0.0, away.boundary));
}
