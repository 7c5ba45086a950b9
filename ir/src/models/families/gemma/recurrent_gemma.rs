//! RecurrentGemma: real-gated linear recurrent units in two of three layers, and attention with a window.

use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "recurrent_gemma",
    class: "RecurrentGemmaForCausalLM",
    keys: Keys { class: "RecurrentGemmaConfig", lists: &[KEYS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights {
        outer: &[
            HubTensor::table("model.embed_tokens.weight", &["emb"]),
            HubTensor::vector("model.final_norm.weight", &["final_norm"]).around_one(),
            HubTensor::linear("lm_head.weight", &["out"]),
        ],
        inner: &[UNITS, ATTENDING, NET_OF_GRIFFIN],
        ..USUAL
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "256000", VOCABULARY),
    Key::read(&["hidden_size"], "2560", HIDDEN),
    Key::read(&["intermediate_size"], "7680", "twice the size between the matrices of the feed-forward net"),
    Key::read(&["num_hidden_layers"], "26", LAYERS),
    Key::read(&["num_attention_heads"], "10", "query heads, and blocks of recurrent units"),
    Key::read(&["num_key_value_heads"], "null", KV_HEADS),
    Key::nothing(&["head_dim"], "the class sets it to `hidden_size` over the heads"),
    Key::read(&["lru_width"], "null", "recurrent units; null: `hidden_size`"),
    Key::read(&["attention_window_size"], "2048", WINDOW),
    Key::alias(&["sliding_window"], "attention_window_size"),
    Key::read(&["conv1d_width"], "4", "taps of the convolutions"),
    Key::read(&["logits_soft_cap"], "30.0", "bound of logits"),
    Key::read(&["rms_norm_eps"], "1e-6", NORM_EPS),
    Key::read(&["hidden_activation"], "\"gelu_pytorch_tanh\"", ACTIVATION),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::read(&["partial_rotary_factor"], "0.5", TURNED),
    Key::read(
        &["block_types"],
        "[\"recurrent\", \"recurrent\", \"attention\"]",
        "recurrent or attention, over and over",
    ),
    Key::nothing(&["layer_types", "layers_block_type"], "`block_types` says it"),
    Key::read(&["attention_bias"], "false", QKV_BIAS),
    Key::nothing(&["w_init_variance_scale", "final_w_init_variance_scale"], "`initializer_range` counts"),
    Key::read(&["tie_word_embeddings"], "true", TIED),
    Key::read(&["pad_token_id"], "0", PAD),
];

/// Norms, whose gains are relative to 1, and recurrent units. Matrices of gates have inputs in rows.
const UNITS: &[HubTensor] = &[
    HubTensor::vector("temporal_pre_norm.weight", &["norm1"]).around_one(),
    HubTensor::vector("channel_pre_norm.weight", &["norm2"]).around_one(),
    HubTensor::linear("temporal_block.linear_y.weight", &["wmy"]),
    HubTensor::vector("temporal_block.linear_y.bias", &["my_bias"]),
    HubTensor::linear("temporal_block.linear_x.weight", &["wmx"]),
    HubTensor::vector("temporal_block.linear_x.bias", &["mx_bias"]),
    HubTensor::vector("temporal_block.conv_1d.weight", &["conv"]).shaped(FileShape::Taps),
    HubTensor::vector("temporal_block.conv_1d.bias", &["conv_bias"]),
    HubTensor::table("temporal_block.rg_lru.input_gate_weight", &["winput"]).of_experts(),
    HubTensor::vector("temporal_block.rg_lru.input_gate_bias", &["input_bias"]).of_experts(),
    HubTensor::table("temporal_block.rg_lru.recurrent_gate_weight", &["wdecay"]).of_experts(),
    HubTensor::vector("temporal_block.rg_lru.recurrent_gate_bias", &["decay_bias"]).of_experts(),
    HubTensor::vector("temporal_block.rg_lru.recurrent_param", &["rate"]),
    HubTensor::linear("temporal_block.linear_out.weight", &["wmo"]).of_inputs(2),
    HubTensor::vector("temporal_block.linear_out.bias", &["out_bias"]),
];

const ATTENDING: &[HubTensor] = &[
    HubTensor::linear("temporal_block.q_proj.weight", &["wq"]),
    HubTensor::linear("temporal_block.k_proj.weight", &["wk"]),
    HubTensor::linear("temporal_block.v_proj.weight", &["wv"]),
    HubTensor::vector("temporal_block.q_proj.bias", &["bq"]),
    HubTensor::vector("temporal_block.k_proj.bias", &["bk"]),
    HubTensor::vector("temporal_block.v_proj.bias", &["bv"]),
    HubTensor::linear("temporal_block.o_proj.weight", &["wo"]).of_inputs(3),
    HubTensor::vector("temporal_block.o_proj.bias", &["bo"]),
];

const NET_OF_GRIFFIN: &[HubTensor] = &[
    HubTensor::linear("mlp_block.gate_proj.weight", &["gate"]),
    HubTensor::vector("mlp_block.gate_proj.bias", &["gate_bias"]),
    HubTensor::linear("mlp_block.up_proj.weight", &["up"]),
    HubTensor::vector("mlp_block.up_proj.bias", &["up_bias"]),
    HubTensor::linear("mlp_block.down_proj.weight", &["down"]),
    HubTensor::vector("mlp_block.down_proj.bias", &["down_bias"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let sizes = ModelSizes::read(fields)?;
    let size = sizes.head()?;
    let rope = Rope { part: Some("partial_rotary_factor"), ..Rope::USUAL };
    let rotary = rope.read(fields, Head { size, is_latent: false })?;
    let kv_heads = fields.optional("num_key_value_heads")?.unwrap_or(sizes.heads);
    let base = Base::USUAL.read_with(fields, sizes, Heads { size, kv_heads, rotary })?;
    let activation = activation(fields, "hidden_activation")?;
    let units: u64 = fields.optional("lru_width")?.unwrap_or(base.hidden);
    if !units.is_multiple_of(base.heads) {
        let why = format!("{units} recurrent units do not divide into {} blocks", base.heads);
        return Err(invalid("lru_width", why));
    }
    let units = RgLru { blocks: base.heads, width: units / base.heads, taps: fields.get("conv1d_width")?, activation };
    let scanned = recurrent(fields, base.layers)?;
    Ok(LlamaConfig {
        activation,
        feed_forward: base.feed_forward / 2,
        net_bias: true,
        qkv_bias: fields.get("attention_bias")?,
        out_bias: true,
        // The class has the factor in bf16.
        embedding_scale: EmbeddingScale::By(in_bf16((base.hidden as f64).sqrt())),
        logit_softcap: Some(fields.get("logits_soft_cap")?),
        window: Some(Window::of_all(fields.get("attention_window_size")?)),
        scanned: scanned.map(|layers| Scanned::of(Mixer::RgLru(units), layers)),
        ..base
    }
    .into())
}

/// The layers with recurrent units.
fn recurrent(fields: &Fields, layers: u32) -> Result<Option<LayerSet>, ConfigError> {
    const KEY: &str = "block_types";
    let types: Vec<String> = fields.get(KEY)?;
    if let Some(kind) = types.iter().find(|kind| !matches!(kind.as_str(), "recurrent" | "attention")) {
        return Err(unsupported(KEY, format!("{kind} is not supported, only recurrent and attention")));
    }
    positive(KEY, types.len() as u64)?;
    mixers::set(layers, KEY, |layer| types[layer as usize % types.len()] == "recurrent")
}

/// A number above 0, rounded to the nearest of bf16.
fn in_bf16(number: f64) -> f64 {
    let bits = (number as f32).to_bits();
    f64::from(f32::from_bits((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF_0000))
}
