//! Small models of every family, as `config.json` texts.

use crate::random::Random;
use meshwright::ir::models::{FAMILIES, small};
use serde_json::{Map, Value, json};

/// Elements of the heads of families that are drawn at the defaults of their classes.
const HEAD: u64 = 8;

/// Families with fields that are drawn, each with those that only it has.
fn families() -> Vec<Value> {
    let experts = json!({"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16});
    let latent = json!({"kv_lora_rank": 8, "q_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8,
        "num_key_value_heads": 4, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2,
        "moe_intermediate_size": 16, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1, "routed_scaling_factor": 1.5});
    let with = |family: &str, fields: &Value| merged(&json!({"model_type": family}), fields);
    vec![
        json!({"model_type": "gpt2", "vocab_size": 257, "n_positions": 64, "n_embd": 16, "n_layer": 2, "n_head": 4,
            "embd_pdrop": 0.0, "attn_pdrop": 0.0, "resid_pdrop": 0.0}),
        with("llama", &json!({"rope_theta": 10000.0})),
        with("mistral", &json!({"sliding_window": null})),
        with(
            "qwen2",
            &json!({"rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 32}}),
        ),
        with("qwen3", &json!({"head_dim": 8, "tie_word_embeddings": true})),
        with("mixtral", &json!({"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": null})),
        with("qwen2_moe", &merged(&experts, &json!({"shared_expert_intermediate_size": 16}))),
        with("qwen3_moe", &merged(&experts, &json!({"head_dim": 8, "norm_topk_prob": true}))),
        with("deepseek_v2", &merged(&latent, &json!({"topk_method": "group_limited_greedy", "norm_topk_prob": false}))),
        with("deepseek_v3", &merged(&latent, &json!({"norm_topk_prob": true}))),
    ]
}

/// The fields of every family but GPT-2.
fn shared() -> Value {
    json!({"vocab_size": 257, "max_position_embeddings": 64, "hidden_size": 16, "intermediate_size": 32,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
        "tie_word_embeddings": false})
}

/// A model of each family.
pub(crate) fn all() -> Vec<Value> {
    let whole = |fields: Value| if fields["model_type"] == "gpt2" { fields } else { merged(&shared(), &fields) };
    families().into_iter().map(whole).collect()
}

/// Small models of the families that are not listed, at the defaults of their classes.
pub(crate) fn others() -> Vec<Value> {
    let listed: Vec<Value> = families().iter().map(|model| model["model_type"].clone()).collect();
    let others = FAMILIES.iter().map(|family| family.model_type).filter(|name| !listed.contains(&Value::from(*name)));
    others.map(at_defaults).collect()
}

/// A small model of a family at the defaults of its class, with a vocabulary of bytes.
fn at_defaults(family: &str) -> Value {
    let needed = match family {
        "dots1" => json!({"num_experts_per_tok": 6, "n_routed_experts": 64, "n_shared_experts": 1}),
        "minicpm3" => json!({"v_head_dim": 64}),
        "cohere_compass_text" => json!({"rope_parameters": {"full_attention": null}}),
        _ => json!({}),
    };
    let file: Map<String, Value> = merged(&json!({"model_type": family}), &needed).as_object().unwrap().clone();
    let small = small(&file, HEAD).unwrap_or_else(|why| panic!("{family}: {why}"));
    merged(&Value::Object(small), &json!({"vocab_size": 257}))
}

/// A model of some listed family and size, without dropout.
pub(crate) fn random(random: &mut Random) -> Value {
    let mut model = random.pick(&all()).clone();
    let heads = *random.pick(&[2, 4, 6]);
    let head = 4 * random.between(1, 3);
    let layers = random.between(1, 4);
    if model["model_type"] == "gpt2" {
        return merged(&model, &json!({"n_layer": layers, "n_head": heads, "n_embd": heads * head}));
    }
    let groups = if model["kv_lora_rank"].is_null() { *random.pick(&[1, 2, heads]) } else { heads };
    model = merged(
        &model,
        &json!({"num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": groups,
        "hidden_size": heads * head, "intermediate_size": random.between(5, 40),
        "tie_word_embeddings": random.chance(50)}),
    );
    if !model["first_k_dense_replace"].is_null() {
        model["first_k_dense_replace"] = json!(random.between(0, layers - 1));
    }
    if !model["head_dim"].is_null() {
        model["head_dim"] = json!(head);
    }
    model
}

/// The fields of both; those of the second hold.
pub(crate) fn merged(base: &Value, over: &Value) -> Value {
    let mut fields = base.clone();
    for (name, value) in over.as_object().unwrap() {
        fields[name] = value.clone();
    }
    fields
}
