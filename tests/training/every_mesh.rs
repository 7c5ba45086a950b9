//! Small models trained on real text: on every mesh the same numbers as on one device, and there those of the reference
//! evaluator.

use crate::meshes::compare::differences;
use crate::meshes::record::{Record, Tensors, sgd};
use crate::meshes::text::{SEQ, steps};
use crate::meshes::trained::{alone, trained_on};
use crate::meshes::training::{DEVIATION, HIDDEN, Recipe, SEED, model, models};
use crate::sample::sampled;
use ir::graph::is_record;
use ir::models::{
    Activation, Branches, Clamp, EmbeddingScale, Experts, Gpt2Config, LayerSet, LlamaConfig, ModelConfig, Norm, Norms,
    QkNorm, Rotation, Sinks, Window,
};
use ir::optimizer::Optimizer;
use meshwright::runtime::data::VOCAB;
use meshwright::runtime::data::sampler::Batch;
use meshwright::runtime::reference::{MicroBatch, Reference, Rounding, Tensor};
use std::sync::LazyLock;
use transforms::differentiate::differentiate;
use transforms::quantise::quantise;

/// Sequences of a micro-batch on one device: four micro-batches a step.
const SEQUENCES: u64 = 4;
/// Steps after which a model has learned. A sample compares fewer steps between meshes.
const STEPS: u64 = 20;
const COMPARED: u64 = 5;

/// Both models under both update rules, at full learning rate from the first step.
fn recipes() -> Vec<Recipe> {
    let recipe = |config: ModelConfig, optimizer, lr| Recipe {
        config,
        optimizer,
        lr,
        steps: sampled(COMPARED, STEPS),
        precision: "f32",
    };
    models()
        .into_iter()
        .flat_map(|config| [recipe(config.clone(), Optimizer::default(), 5e-3), recipe(config, sgd(), 0.1)])
        .collect()
}

fn title(recipe: &Recipe) -> String {
    format!("{}, {:?}", recipe.config.family(), recipe.optimizer.kind)
}

/// Every recipe on one device.
static ALONE: LazyLock<Vec<(Recipe, Record)>> = LazyLock::new(|| alone(recipes(), SEQUENCES));

/// Trains every recipe on a mesh, with micro-batches of so many sequences, and compares with one device.
fn trains_as_on_one_device(mesh: &str, sequences: u64) {
    for (recipe, alone) in ALONE.iter() {
        let found = differences(&trained_on(recipe, mesh, sequences), alone, &recipe.optimizer);
        assert!(found.is_empty(), "{} on {mesh}: {found:#?}", title(recipe));
    }
}

#[test]
fn one_device_learns() {
    for recipe in recipes() {
        let recipe = Recipe { steps: STEPS, ..recipe };
        let alone = trained_on(&recipe, "", SEQUENCES);
        let (first, last) = (alone.losses[0], alone.losses[STEPS as usize - 1]);
        // All tokens about equally likely, but for normal logits of variance h d^2: their mean exponential is exp(h d^2 / 2).
        let uniform = (VOCAB as f64).ln() + HIDDEN as f64 * DEVIATION * DEVIATION / 2.0;
        assert!((first - uniform).abs() < 0.1, "{}: the first loss is {first}, not {uniform}", title(&recipe));
        assert!(last < first - 0.5, "{}: {first} to {last}", title(&recipe));
        let parameters = alone.params.values().map(Vec::len).sum::<usize>();
        assert!(parameters < 100_000, "{}: {parameters} parameters", title(&recipe));
    }
}

#[test]
fn one_device_is_the_reference() {
    for recipe in recipes() {
        let recipe = Recipe { steps: 3, ..recipe };
        let found = differences(&trained_on(&recipe, "", SEQUENCES), &reference(&recipe), &recipe.optimizer);
        assert!(found.is_empty(), "{}: {found:#?}", title(&recipe));
    }
}

/// The recipe in the reference evaluator, in f64.
pub(crate) fn reference(recipe: &Recipe) -> Record {
    rounded(recipe, Rounding::Nearest)
}

/// The recipe in the reference evaluator under a rounding of narrow results.
fn rounded(recipe: &Recipe, rounding: Rounding) -> Record {
    let mut meaning = differentiate(model(recipe, SEQUENCES), &recipe.optimizer).expect("a gradient");
    if let Some(quantisation) = recipe.formats().quantisation {
        quantise(&mut meaning, &quantisation).expect("products");
    }
    let mut reference = Reference::<f64>::new(&meaning, SEED);
    reference.set_rounding(rounding);
    let mut record = Record::default();
    for micros in steps(recipe.steps, SEQUENCES) {
        let batch: Vec<MicroBatch<f64>> = micros.iter().map(reference_batch).collect();
        let result = reference.step(&batch, recipe.lr).expect("a step");
        record.losses.push(result.loss);
        record.norms.push(result.grad_norm.expect("a norm"));
    }
    let plain = |tensors: &std::collections::BTreeMap<String, Tensor<f64>>| -> Tensors {
        tensors.iter().map(|(name, tensor)| (name.clone(), tensor.data.clone())).collect()
    };
    Record { gradients: plain(reference.gradients()), params: plain(reference.params()), ..record }
}

fn reference_batch(batch: &Batch) -> MicroBatch<f64> {
    let dims = vec![SEQUENCES as usize, SEQ as usize];
    let tensor = |data: &[i32]| Tensor { dims: dims.clone(), data: data.to_vec() };
    let [tok, lab, pos, seg] =
        [&batch.tokens, &batch.labels, &batch.positions, &batch.segments].map(|data| tensor(data));
    MicroBatch::of_tokens(&[("tok", &tok), ("lab", &lab), ("pos", &pos), ("seg", &seg)], "lab")
}

/// With 8-bit operands a run is no farther from the reference than a few times as far as rounding at random takes it, and records of
/// delayed scaling have the same exponents on every mesh.
#[test]
fn quantised_steps_follow_the_reference() {
    let layers = sampled(1, 4);
    let ModelConfig::Llama(llama) = models()[0].clone() else { panic!("a Llama comes first") };
    let config = ModelConfig::Llama(LlamaConfig { layers, ..llama });
    for precision in ["fp8-block", "fp8-tensor", "fp8-delayed"] {
        let recipe = Recipe { config: config.clone(), precision, steps: 3, ..recipes().remove(1) };
        let want = reference(&recipe);
        let others: Vec<Record> = (0..2).map(|run| rounded(&recipe, Rounding::Random([run, 5]))).collect();
        for mesh in ["", "dp=2,tp=2,sp=true,zero=3", "cp=2,pp=2,schedule=zb-h1,recompute=full", "cp=2,cp_kind=ring"] {
            let got = trained_on(&recipe, mesh, SEQUENCES);
            for step in 0..3 {
                let off = |record: &Record| (record.losses[step] - want.losses[step]).abs();
                let farthest = others.iter().map(off).fold(0.0, f64::max);
                let is_close = off(&got) <= 4.0 * farthest + 1e-5;
                assert!(is_close, "{precision} on `{mesh}`, step {step}: {} is beyond {farthest}", off(&got));
            }
            let records: Vec<&String> = want.params.keys().filter(|name| is_record(name)).collect();
            assert_eq!(records.len(), if precision == "fp8-delayed" { layers as usize * 11 } else { 0 });
            for name in records {
                let [got, want] = [&got, &want].map(|record| largest_of_late(&record.params[name]));
                assert!(got.abs_diff(want) <= 1 && want > 60, "{name} on `{mesh}`: exponent {got}, not {want}");
            }
        }
    }
}

/// The largest exponent that a record has seen.
fn largest_of_late(ages: &[f64]) -> usize {
    ages.iter().rposition(|&age| age < 16.0).expect("something was seen")
}

/// A small mixture of experts; routing groups of 4 tokens, so that ranks may share a sequence. Few steps: where a token likes
/// two experts equally, rounding chooses between them.
fn experts() -> Recipe {
    let ModelConfig::Llama(preset) = models()[0].clone() else { panic!("a Llama comes first") };
    let experts = Experts { capacity: Some(1.5), group: Some(4), ..Experts::softmax(4, 2, 24) };
    let config = ModelConfig::Llama(LlamaConfig { experts: Some(experts), layers: 2, ..preset });
    Recipe { config, optimizer: sgd(), lr: 0.1, steps: 6, precision: "f32" }
}

#[test]
fn expert_parallel() {
    let recipe = experts();
    let alone = trained_on(&recipe, "", SEQUENCES);
    for mesh in [
        "dp=2",
        "dp=2,ep=2",
        "dp=4,ep=2,zero=1",
        "dp=2,tp=2,ep=4",
        "dp=2,tp=2,ep=2,etp=2",
        "dp=2,tp=2,sp=true,ep=4,zero=1",
        "cp=2,ep=2",
        "cp=4,ep=2,cp_kind=ring",
        "dp=2,tp=2,pp=2,ep=2",
        "dp=4,ep=2,zero=3,recompute=selective:moe",
    ] {
        let found = differences(&trained_on(&recipe, mesh, SEQUENCES), &alone, &recipe.optimizer);
        assert!(found.is_empty(), "{mesh}: {found:#?}");
    }
}

/// Small models of families whose layers differ from Llama's, or from each other: local and global layers with bounded scores,
/// experts in every second layer, norms behind branches, parallel branches on part of a head, and sinks.
fn families() -> [(&'static str, Recipe); 5] {
    let ModelConfig::Llama(llama) = models()[0].clone() else { panic!("a Llama comes first") };
    let recipe = |config| Recipe {
        config: ModelConfig::Llama(config),
        optimizer: sgd(),
        lr: 0.1,
        steps: sampled(2, 4),
        precision: "f32",
    };
    let local = LlamaConfig {
        activation: Activation::GeluTanh,
        norms: Norms::Both,
        embedding_scale: EmbeddingScale::Root,
        softcap: Some(2.0),
        logit_softcap: Some(5.0),
        window: Some(Window { full: LayerSet::Every(3), ..Window::of_all(6) }),
        local_rotation: Some(Rotation::of(100.0)),
        qk_norm: QkNorm::Heads,
        score_size: Some(7.0),
        ..llama.clone()
    };
    let experts = Experts { group: Some(4), dense: LayerSet::AllBut(2), ..Experts::softmax(4, 2, 24) };
    let sparse = LlamaConfig { experts: Some(experts), ..local.clone() };
    let clamp = Some(Clamp { alpha: 1.7, limit: 1.0 });
    let biased = Experts { group: Some(4), biases: true, clamp, ..Experts::softmax(4, 2, 24) };
    let sinks = LlamaConfig {
        qkv_bias: true,
        out_bias: true,
        sinks: Sinks::All,
        window: Some(Window { full: LayerSet::Every(2), ..Window::of_all(5) }),
        experts: Some(biased),
        layers: 2,
        ..llama.clone()
    };
    let after = LlamaConfig { norms: Norms::After, qk_norm: QkNorm::Whole, kv_heads: 6, ..llama.clone() };
    let parallel = LlamaConfig {
        gated: false,
        activation: Activation::GeluErf,
        rotation: Rotation { turned: Some(2), ..llama.rotation.clone() },
        norm: Norm::Layer,
        branches: Branches::Parallel,
        qkv_bias: true,
        out_bias: true,
        net_bias: true,
        ..llama
    };
    [("local", local), ("sparse", sparse), ("sinks", sinks), ("after", after), ("parallel", parallel)]
        .map(|(name, config)| (name, recipe(config)))
}

#[test]
fn other_families_are_the_reference_on_every_mesh() {
    for (number, (name, recipe)) in families().into_iter().enumerate() {
        let alone = trained_on(&recipe, "", SEQUENCES);
        let found = differences(&alone, &reference(&recipe), &recipe.optimizer);
        assert!(found.is_empty(), "{name}: {found:#?}");
        let meshes = [
            "dp=2,tp=2,sp=true,zero=1",
            "cp=2,tp=3,zero=2",
            "cp=2,cp_kind=ulysses,dp=2",
            "cp=4,cp_kind=ring,dp=2,zero=1",
            "pp=2,tp=2,recompute=full:1",
            "pp=2,schedule=seq1f1b,recompute=selective:layernorm+mlp",
            "dp=2,pp=2,zero=3,schedule=zb-h1",
        ];
        // A sample has each mesh with two families at least.
        for mesh in meshes.into_iter().skip(sampled(number % 2, 0)).step_by(sampled(2, 1)) {
            // Experts route the tokens of a sequence together, which slices part.
            if ["sparse", "sinks"].contains(&name) && mesh.contains("seq1f1b") {
                continue;
            }
            let found = differences(&trained_on(&recipe, mesh, SEQUENCES), &alone, &recipe.optimizer);
            assert!(found.is_empty(), "{name} on {mesh}: {found:#?}");
        }
    }
}

/// Dropout drops the same when it is recomputed, and sums are the same sums: not a bit differs.
#[test]
fn what_is_computed_again_is_the_same() {
    for recipe in recipes().into_iter().filter(|recipe| recipe.optimizer != sgd()) {
        let config = match recipe.config.clone() {
            ModelConfig::Gpt2(config) => {
                ModelConfig::Gpt2(Gpt2Config { residual_dropout: 0.1, embedding_dropout: 0.1, ..config })
            }
            llama => llama,
        };
        let recipe = Recipe { config, steps: 3, ..recipe };
        let kept = trained_on(&recipe, "", SEQUENCES);
        for again in ["full", "full:2", "selective:mlp", "selective:op+layernorm", "selective:n+q+x1+p"] {
            let found = trained_on(&recipe, &format!("recompute={again}"), SEQUENCES);
            let same = |of: fn(&Record) -> &Tensors| of(&found) == of(&kept);
            assert_eq!(found.losses, kept.losses, "{} under {again}", title(&recipe));
            assert!(same(|r| &r.gradients) && same(|r| &r.params), "{} under {again}", title(&recipe));
        }
    }
}

/// One test per mesh: its name, the configuration, and the sequences of a micro-batch over all ranks.
macro_rules! meshes {
    ($($name:ident $mesh:literal $sequences:literal;)*) => {$(
        #[test]
        fn $name() {
            trains_as_on_one_device($mesh, $sequences);
        }
    )*};
}

meshes! {
    micro_batches_do_not_matter "" 16;
    data_parallel "dp=8" 8;
    tensor_parallel "tp=2" 4;
    tensor_parallel_by_four "tp=4" 16;
    data_and_tensor_parallel "dp=2,tp=2" 4;
    sequence_parallel "dp=2,tp=2,sp=true" 8;
    context_parallel "cp=2" 4;
    context_parallel_by_four "dp=2,cp=4" 8;
    context_and_sequence_parallel "cp=2,tp=2,sp=true" 4;
    context_parallel_pipeline "cp=2,tp=2,pp=2,zero=1" 4;
    ring "cp=2,cp_kind=ring" 4;
    ring_of_four "dp=2,cp=4,cp_kind=ring,zero=3" 8;
    ring_and_sequence_parallel "cp=2,tp=2,sp=true,cp_kind=ring,recompute=selective:core_attn+op" 4;
    ring_and_pipeline "cp=2,tp=2,pp=2,schedule=zb-h1,zero=1,cp_kind=ring,recompute=full:1" 4;
    // Of 16 tokens in a sequence 6, 6 and 4, which do not go round.
    ring_of_uneven_parts "cp=3,cp_kind=ring" 4;
    ring_and_slices "cp=2,pp=2,schedule=seq1f1b,cp_kind=ring" 4;
    ring_and_slices_without_stages "cp=2,schedule=seq1f1b,slices=4,cp_kind=ring" 4;
    ring_of_four_and_slices "cp=4,pp=2,schedule=seq1f1b,cp_kind=ring" 4;
    pipeline_of_one_slice "pp=2,schedule=seq1f1b,slices=1" 4;
    pipeline_of_one_slice_on_a_ring "cp=2,pp=2,schedule=seq1f1b,slices=1,cp_kind=ring" 4;
    pipeline_by_gpipe "dp=2,tp=2,pp=2,schedule=gpipe" 2;
    pipeline_of_slices "pp=2,schedule=seq1f1b" 4;
    pipeline_of_four_slices "dp=2,tp=2,pp=2,schedule=seq1f1b,slices=4,sp=true,zero=1" 4;
    // Of 8 tokens in a slice 3, 3 and 2.
    pipeline_of_uneven_slices "tp=3,pp=3,schedule=seq1f1b,sp=true" 4;
    pipeline_by_1f1b "dp=2,tp=2,pp=2,schedule=1f1b" 4;
    sharded_optimizer_state "dp=4,zero=1" 16;
    sharded_gradients "dp=2,tp=2,zero=2" 4;
    sharded_parameters "dp=4,zero=3" 8;
    sharded_parameters_of_everything "dp=2,tp=2,pp=2,zero=3,sp=true,recompute=full" 4;
    layers_computed_again "dp=2,tp=2,sp=true,recompute=full" 8;
    first_layers_computed_again "pp=2,recompute=full:1" 4;
    modules_computed_again "tp=2,recompute=selective:mlp+layernorm" 4;
    values_computed_again "dp=2,tp=2,sp=true,recompute=selective:n+q+x1+p" 8;
    values_of_slices_computed_again "tp=2,pp=2,schedule=seq1f1b,recompute=selective:n+layer.q+p" 4;
    sharded_within_groups "dp=4,zero=3,shard=2" 4;
    gathered_once_a_step "dp=2,tp=2,pp=2,zero=3,gather=step,schedule=zb-v" 4;
    context_parallel_by_heads "cp=2,tp=2,sp=true,cp_kind=ulysses" 4;
    slices_computed_again "tp=2,pp=2,schedule=seq1f1b,recompute=full,zero=2" 4;
    everything "dp=2,tp=2,pp=2,zero=1,sp=true" 4;
    // Two sequences, two, and none.
    uneven_batch "dp=3" 4;
    uneven_batch_and_sharded_state "dp=3,pp=2,zero=1" 8;
    // Of 257 tokens in the vocabulary 86, 86 and 85; of 50 in the feed-forward net 17, 17 and 16.
    uneven_vocabulary "tp=3" 4;
    // Of 16 tokens in a sequence 6, 6 and 4.
    uneven_sequence "cp=3" 4;
    uneven_everything "dp=3,tp=3,sp=true" 4;
}
