//! Whole models of both families, tiny.

use super::{assert_gradients, ints, reals};
use half::bf16;
use ir::graph::Model;
use ir::models::{Batch, from_config};
use ir::optimizer::{Optimizer, OptimizerKind};
use ir::types::DType;
use meshwright_reference::{MicroBatch, Reference, Rounding, Tensor};
use transforms::differentiate::differentiate;

const LLAMA: &str = r#"{"model_type": "llama", "vocab_size": 11, "hidden_size": 12, "intermediate_size": 20,
    "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 3, "max_position_embeddings": 16,
    "rms_norm_eps": 1e-5, "rope_theta": 100.0, "hidden_act": "silu", "tie_word_embeddings": false}"#;

/// Latent attention and experts with all that DeepSeek-V3 has, behind a layer without.
const DEEPSEEK: &str = r#"{"model_type": "deepseek_v3", "vocab_size": 11, "hidden_size": 12, "intermediate_size": 20,
    "num_hidden_layers": 3, "num_attention_heads": 3, "q_lora_rank": 5, "kv_lora_rank": 4, "qk_nope_head_dim": 3,
    "qk_rope_head_dim": 2, "v_head_dim": 4, "first_k_dense_replace": 1, "n_routed_experts": 6, "n_shared_experts": 2,
    "num_experts_per_tok": 2, "moe_intermediate_size": 7, "n_group": 3, "topk_group": 2, "routed_scaling_factor": 2.5,
    "capacity_factor": 2.0}"#;

/// Latent attention to the keys that an indexer chooses, in the second of three layers to those of the first one.
const GLM: &str = r#"{"model_type": "glm_moe_dsa", "vocab_size": 11, "hidden_size": 12, "intermediate_size": 20,
    "num_hidden_layers": 3, "num_attention_heads": 3, "q_lora_rank": 5, "kv_lora_rank": 4, "qk_nope_head_dim": 3,
    "qk_rope_head_dim": 2, "v_head_dim": 4, "first_k_dense_replace": 3, "index_topk": 2, "index_n_heads": 3,
    "index_head_dim": 4, "indexer_types": ["full", "shared", "full"]}"#;

/// Experts with a shared one behind a gate.
const QWEN: &str = r#"{"model_type": "qwen2_moe", "vocab_size": 11, "hidden_size": 12, "intermediate_size": 20,
    "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 3, "num_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 7, "shared_expert_intermediate_size": 5, "capacity_factor": 1.0}"#;

const GPT2: &str = r#"{"model_type": "gpt2", "vocab_size": 11, "n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 16,
    "n_ctx": 16, "layer_norm_epsilon": 1e-5, "activation_function": "gelu_new", "resid_pdrop": 0.0, "embd_pdrop": 0.0,
    "attn_pdrop": 0.0}"#;

/// Norms of sums, queries that see later tokens, kinds of tokens, and layers at both ends.
const ELECTRA: &str = r#"{"model_type": "electra", "vocab_size": 11, "embedding_size": 6, "hidden_size": 12, "intermediate_size": 20,
    "num_hidden_layers": 2, "num_attention_heads": 3, "max_position_embeddings": 16, "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0, "layer_norm_eps": 1e-5, "pad_token_id": null}"#;

/// Biases of scores by distance, of a number of heads that is no power of two.
const BLOOM: &str = r#"{"model_type": "bloom", "vocab_size": 11, "hidden_size": 12, "n_layer": 2, "n_head": 3}"#;

/// Gates of heads by softplus, and experts.
const LAGUNA: &str = r#"{"model_type": "laguna", "vocab_size": 11, "hidden_size": 12, "intermediate_size": 20,
    "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 4, "num_experts": 4,
    "num_experts_per_tok": 2, "moe_intermediate_size": 7, "shared_expert_intermediate_size": 5}"#;

/// A training model with sequences of 5 tokens.
pub(super) fn model_of(config: &str, batch: u64, optimizer: &Optimizer) -> Model {
    model_in(DType::F32, config, batch, optimizer)
}

fn model_in(dtype: DType, config: &str, batch: u64, optimizer: &Optimizer) -> Model {
    let batch = Batch { batch, seq: 5, dtype };
    differentiate(from_config(config).unwrap().build(&batch).unwrap(), optimizer).unwrap()
}

/// Rows `rows` of a batch of sequences of two documents each; the label that would cross from one to the other is ignored.
pub(super) fn tokens<R>(rows: std::ops::Range<usize>) -> MicroBatch<R> {
    let part = |whole: Tensor<i32>| Tensor {
        dims: vec![rows.len(), 5],
        data: whole.data[5 * rows.start..5 * rows.end].to_vec(),
    };
    let all = [8, 5];
    let tok = part(ints("tok", &all, 0, 11));
    let lab = part(Tensor::from_fn(&[8, 5], |i| if i % 5 == 2 { -1 } else { ints("lab", &all, 0, 11).data[i] }));
    let pos = part(Tensor::from_fn(&[8, 5], |i| (i % 5 % 3) as i32));
    let seg = part(Tensor::from_fn(&[8, 5], |i| (i % 5 / 3) as i32));
    MicroBatch::of_tokens(&[("tok", &tok), ("lab", &lab), ("pos", &pos), ("seg", &seg)], "lab")
}

/// GPT-2 with dropout everywhere.
fn dropped() -> String {
    let dropped = GPT2.replace("0.0, \"embd", "0.2, \"embd").replace("\"embd_pdrop\": 0.0", "\"embd_pdrop\": 0.3");
    dropped.replace("\"attn_pdrop\": 0.0", "\"attn_pdrop\": 0.25")
}

/// The parameters away from their first numbers, where gradients of attention are tiny.
pub(super) fn spread(reference: &mut Reference<'_, f64>) {
    for (name, tensor) in reference.params().clone() {
        let noise = reals(&name, &tensor.dims.iter().map(|&size| size as u64).collect::<Vec<_>>());
        let mut moved = noise.map(|x| 0.3 * x);
        moved.add(&tensor);
        reference.set_param(&name, moved).unwrap();
    }
}

#[test]
fn whole_models_follow_central_differences() {
    let tied = LLAMA.replace("false", "true");
    let dropped = dropped();
    let qwen3 = LLAMA.replace("\"llama\"", "\"qwen3\", \"head_dim\": 2");
    let squared = LLAMA.replace("\"silu\"", "\"relu2\", \"mlp_gate\": false");
    for (what, config) in [
        ("llama", LLAMA),
        ("tied llama", &tied),
        ("qwen3", &qwen3),
        ("squared relu", &squared),
        ("deepseek", DEEPSEEK),
        ("glm", GLM),
        ("qwen with experts", QWEN),
        ("gpt2", GPT2),
        ("electra", ELECTRA),
        ("bloom", BLOOM),
        ("laguna", LAGUNA),
        ("gpt2, dropout", &dropped),
    ] {
        let model = model_of(config, 2, &Optimizer::default());
        let mut reference = Reference::new(&model, 3);
        spread(&mut reference);
        assert_gradients(what, &mut reference, &[tokens(0..2), tokens(2..4)], 7);
        // What only chooses experts or keys has none.
        let chooses = |name: &str| {
            ["router_bias", ".wiq", ".wik", ".wiw", "ik_norm", "ik_norm_bias"].iter().any(|end| name.ends_with(end))
        };
        let params = reference.params().keys().filter(|name| !chooses(name));
        assert!(reference.gradients().keys().eq(params), "{what}");
    }
}

/// Micro-batches add up to the batch: also in what dropout draws.
#[test]
fn micro_batches_do_not_change_the_step() {
    let dropped = dropped();
    let [whole, halves] = [4, 2].map(|batch| model_of(&dropped, batch, &Optimizer::default()));
    let [mut a, mut b] = [&whole, &halves].map(|model| Reference::<f64>::new(model, 5));
    for _ in 0..3 {
        let left = a.step(&[tokens(0..4)], 1e-2).unwrap();
        let right = b.step(&[tokens(0..2), tokens(2..4)], 1e-2).unwrap();
        assert!((left.loss - right.loss).abs() < 1e-12, "{left:?} {right:?}");
        assert!((left.grad_norm.unwrap() - right.grad_norm.unwrap()).abs() < 1e-12);
    }
    let apart = |name: &String| {
        let pairs = a.params()[name].data.iter().zip(&b.params()[name].data);
        pairs.fold(0.0f64, |max, (a, b)| max.max((a - b).abs()))
    };
    assert!(a.params().keys().all(|name| apart(name) < 1e-9));
}

#[test]
fn training_lowers_the_loss() {
    let sgd = |momentum| Optimizer {
        kind: OptimizerKind::Sgd { momentum, nesterov: false, weight_decay: 0.0 },
        clip: Some(1.0),
    };
    for (optimizer, lr) in [(Optimizer::default(), 0.02), (sgd(0.0), 0.5), (sgd(0.9), 0.1)] {
        let model = model_of(LLAMA, 2, &optimizer);
        let mut reference = Reference::<f32>::new(&model, 3);
        let batch = [tokens(0..2), tokens(2..4)];
        let losses: Vec<f32> = (0..60).map(|_| reference.step(&batch, lr).unwrap().loss).collect();
        let uniform = 11f32.ln();
        assert!((losses[0] - uniform).abs() < 0.1, "{} before training", losses[0]);
        assert!(losses[59] < 0.6 * uniform, "{:?}: {losses:?}", optimizer.kind);
    }
}

/// Without rounding, a model in bf16, updated through its f32 master copies, is the one in f32. With rounding, a parameter is its
/// copy, rounded.
#[test]
fn narrow_parameters_are_updated_through_their_masters() {
    let models = [DType::F32, DType::BF16].map(|dtype| model_in(dtype, LLAMA, 2, &Optimizer::default()));
    let trained = |model, rounding| {
        let mut reference = Reference::<f64>::new(model, 3);
        reference.set_rounding(rounding);
        for _ in 0..3 {
            reference.step(&[tokens(0..2)], 0.02).unwrap();
        }
        reference
    };
    let [wide, narrow] = models.each_ref().map(|model| trained(model, Rounding::None));
    assert!(wide.params() == narrow.params());
    let rounded = trained(&models[1], Rounding::Nearest);
    assert!(wide.params() != rounded.params());
    for (name, param) in rounded.params() {
        let copy = &rounded.states()[&format!("{name}.master")];
        assert!(param.data != copy.data && param.data == copy.map(|x| bf16::from_f64(x).to_f64()).data, "{name}");
    }
}

#[test]
fn what_does_not_fit_is_said() {
    let model = model_of(LLAMA, 2, &Optimizer::default());
    let mut reference = Reference::<f32>::new(&model, 3);
    let why = reference.step(&[tokens(0..3)], 0.02).unwrap_err();
    assert!(why.contains("[2, 5]") && why.contains("[3, 5]"), "{why}");
    let mut missing = tokens(0..2);
    missing.inputs.remove("lab");
    let why = reference.step(&[missing], 0.02).unwrap_err();
    assert!(why.contains("%lab"), "{why}");
    assert!(reference.set_param("nothing", Tensor::scalar(0.0)).is_err());
}
