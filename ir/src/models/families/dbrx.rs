//! DBRX: layer norms without biases, bounds of queries, keys and values, and experts whose matrices are one below the other.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "dbrx",
    class: "DbrxForCausalLM",
    keys: Keys { class: "DbrxConfig", lists: &[KEYS, ROUTED, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights {
        base: "transformer.",
        layers: "blocks.",
        embedding: "transformer.wte.weight",
        outer: &[
            HubTensor::table("transformer.wte.weight", &["emb"]),
            HubTensor::vector("transformer.norm_f.weight", &["final_norm"]),
            HubTensor::linear("lm_head.weight", &["out"]),
        ],
        inner: &[LAYER],
        ..USUAL
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "32000", VOCABULARY),
    Key::alias(&["d_model"], "hidden_size"),
    Key::alias(&["n_layers"], "num_hidden_layers"),
    Key::alias(&["n_heads"], "num_attention_heads"),
    Key::alias(&["max_seq_len"], "max_position_embeddings"),
    Key::read(&["hidden_size"], "2048", HIDDEN),
    Key::read(&["num_hidden_layers"], "24", LAYERS),
    Key::read(&["num_attention_heads"], "16", HEADS),
    Key::read(&["max_position_embeddings"], "2048", CONTEXT),
    Key::read(&["attn_config"], "null", "attention: attn_pdrop, clip_qkv and kv_n_heads"),
    Key::read(
        &["ffn_config"],
        "null",
        "experts: ffn_hidden_size, ffn_act_fn, moe_num_experts, moe_top_k and moe_normalize_expert_weights",
    ),
    Key::read(&["num_key_value_heads"], "", "what `kv_n_heads` of `attn_config` says"),
    Key::read(&["resid_pdrop"], "0.0", DROPOUT),
    Key::only(&["emb_pdrop"], "0.0", UNREAD),
    Key::only(&["output_router_logits"], "false", "there is no loss of uneven routing"),
    Key::only(&["tie_word_embeddings"], "false", "the class ties nothing"),
    Key::only(&["layer_norm_eps"], "1e-5", "the class has no other"),
    Key::read(&["rope_theta"], "10000.0", THETA),
    WHOLE_HEADS,
];

/// The keys of the object of attention.
const ATTENTION: Keys = Keys { class: "DbrxAttentionConfig", lists: &[ATTENTION_KEYS, EVERY] };

const ATTENTION_KEYS: &[Key] = &[
    Key::read(&["attn_pdrop"], "0.0", DROPOUT),
    Key::read(&["clip_qkv"], "null", CLIP),
    Key::read(&["kv_n_heads"], "1", "key and value heads"),
    Key::only(&["rope_theta"], "10000.0", "positions turn by that of `rope_parameters`"),
];

/// The keys of the object of experts.
const EXPERT: Keys = Keys { class: "DbrxFFNConfig", lists: &[EXPERT_KEYS, EVERY] };

const EXPERT_KEYS: &[Key] = &[
    Key::nothing(&["hidden_size"], "it is that of the stream"),
    Key::read(&["ffn_hidden_size"], "3584", EXPERT_SIZE),
    Key::read(&["ffn_act_fn"], "null", "the function of experts, under the key `name`; null: silu"),
    Key::read(&["moe_num_experts"], "4", EXPERTS),
    Key::read(&["moe_top_k"], "1", CHOSEN),
    Key::only(&["moe_jitter_eps"], "null", "the router reads no noise"),
    Key::nothing(&["moe_loss_weight"], "the factor of a loss that is left out"),
    Key::only(&["uniform_expert_assignment"], "false", UNREAD),
    Key::read(
        &["moe_normalize_expert_weights"],
        "1.0",
        "1: a token's weights are made to add up to 1; null: they are not",
    ),
];

const LAYER: &[HubTensor] = &[
    HubTensor::vector("norm_attn_norm.norm_1.weight", &["norm1"]),
    HubTensor::vector("norm_attn_norm.norm_2.weight", &["norm2"]),
    HubTensor::linear("norm_attn_norm.attn.Wqkv.weight", &["wq", "wk", "wv"]),
    HubTensor::linear("norm_attn_norm.attn.out_proj.weight", &["wo"]).of_inputs(3),
    HubTensor::linear("ffn.router.layer.weight", &["router"]),
    HubTensor::linear("ffn.experts.mlp.w1", &["expert_gate"]).stacked(),
    HubTensor::linear("ffn.experts.mlp.v1", &["expert_up"]).stacked(),
    HubTensor::table("ffn.experts.mlp.w2", &["expert_down"]).stacked(),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = Base { feed_forward: "hidden_size", norm_eps: "layer_norm_eps", ..Base::USUAL }.read(fields)?;
    let [attention, experts] = ["attn_config", "ffn_config"].map(|key| fields.object(key));
    let attention = fields.within("attn_config", ATTENTION, &attention?.cloned().unwrap_or_default())?;
    let experts = fields.within("ffn_config", EXPERT, &experts?.cloned().unwrap_or_default())?;
    let size = experts.get("ffn_hidden_size")?;
    let routed = Experts {
        renormalise: is_renormalised(&experts)?,
        capacity: fields.optional("capacity_factor")?,
        group: fields.optional("routing_group")?,
        ..Experts::softmax(experts.get("moe_num_experts")?, experts.get("moe_top_k")?, size)
    };
    Ok(LlamaConfig {
        feed_forward: size,
        activation: function(&experts)?,
        kv_heads: attention.get("kv_n_heads")?,
        norm: Norm::LayerUnbiased,
        clip: attention.optional("clip_qkv")?,
        attention_dropout: attention.get("attn_pdrop")?,
        residual_dropout: fields.get("resid_pdrop")?,
        experts: Some(routed),
        ..base
    }
    .into())
}

/// The function of experts.
fn function(experts: &Fields) -> Result<Activation, ConfigError> {
    const KEY: &str = "ffn_act_fn";
    let Some(stated) = experts.object(KEY)? else { return Ok(Activation::Silu) };
    let rows = Keys { class: "the function of experts", lists: &[FUNCTION_KEYS] };
    activation(&experts.within(KEY, rows, stated)?, "name")
}

const FUNCTION_KEYS: &[Key] = &[Key::read(&["name"], "\"silu\"", ACTIVATION)];

/// True if the weights of a token are divided by their sum.
fn is_renormalised(experts: &Fields) -> Result<bool, ConfigError> {
    const KEY: &str = "moe_normalize_expert_weights";
    match experts.optional::<f64>(KEY)? {
        None => Ok(false),
        Some(1.0) => Ok(true),
        Some(norm) => Err(unsupported(KEY, format!("{norm} is not supported, only null and 1"))),
    }
}
