//! LFM3: LFM2 with windows, gates of attention's heads, and norms of what branches give.

use super::lfm2::{NET_OF_LFM, OUTER, PARTS};
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "lfm3",
    class: "Lfm3ForCausalLM",
    keys: Keys { class: "Lfm3Config", lists: &[KEYS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { outer: OUTER, inner: &[GATED, PARTS, QKV, ATTENTION, NET_OF_LFM], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "128000", VOCABULARY),
    Key::read(&["hidden_size"], "2048", HIDDEN),
    Key::read(&["intermediate_size"], "7680", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "24", LAYERS),
    Key::read(&["num_attention_heads"], "16", HEADS),
    Key::read(&["num_key_value_heads"], "4", KV_HEADS),
    Key::read(&["head_dim"], "128", HEAD_SIZE),
    Key::read(&["norm_eps"], "1e-5", NORM_EPS),
    Key::alias(&["rms_norm_eps"], "norm_eps"),
    Key::read(&["max_position_embeddings"], "128000", CONTEXT),
    Key::read(
        &["rope_theta"],
        "1000000.0",
        "base of rotary frequencies, where an object of `rope_parameters` has none",
    ),
    Key::read(&["layer_types"], "null", "conv, sliding_attention or full_attention, by layer"),
    Key::read(&["sliding_window"], "256", WINDOW),
    Key::read(&["conv_L_cache"], "7", "taps of a convolution"),
    Key::read(&["conv_bias"], "false", "convolutions, and the products around them, have biases"),
    Key::read(&["use_sandwich_norm"], "true", "there are norms of what branches give, too"),
    Key::read(&["use_attention_gate"], "true", "what a head gives is multiplied by a sigmoid of its own"),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["tie_word_embeddings"], "true", TIED),
    Key::read(&["pad_token_id"], "124893", PAD),
    WHOLE_HEADS,
];

/// Gates, in memory and in files, and norms of what branches give.
const GATED: &[HubTensor] = &[
    HubTensor::linear("self_attn.g_proj.weight", &["wg"]).when(When::File("self_attn.g_proj.weight")),
    HubTensor::linear("self_attn.gate_proj.weight", &["wg"]),
    HubTensor::vector("self_attn.q_norm.weight", &["q_norm"]),
    HubTensor::vector("self_attn.k_norm.weight", &["k_norm"]),
    HubTensor::linear("self_attn.o_proj.weight", &["wo"]).of_inputs(3),
    HubTensor::vector("post_operator_norm.weight", &["post_norm1"]),
    HubTensor::vector("post_ffn_norm.weight", &["post_norm2"]),
];

/// The rotations that the class has by default.
const ROTATIONS: &str = r#"{"sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.5, "rope_theta": 1000000.0}}"#;

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let rope = Rope { local_theta: Some("rope_theta"), default: Some(ROTATIONS), ..Rope::USUAL };
    let base = biased(fields, Base { norm_eps: "norm_eps", rope, ..Base::USUAL }.read(fields)?)?;
    let typed = mixers::typed(fields, base.layers, "conv", |layer| match layer % 4 {
        2 => "full_attention",
        0 if layer > 0 => "sliding_attention",
        _ => "conv",
    })?;
    positions::all_turn(fields, base.layers, &typed)?;
    let (taps, bias) = (fields.get("conv_L_cache")?, fields.get("conv_bias")?);
    let mixer = Mixer::Conv(GatedConv { channels: base.hidden, taps, bias });
    Ok(LlamaConfig {
        scanned: typed.state.map(|layers| Scanned::of(mixer, layers)),
        local_rotation: base.local_rotation.clone().filter(|_| typed.window.is_some()),
        window: typed.window,
        qk_norm: QkNorm::Heads,
        norms: if fields.get("use_sandwich_norm")? { Norms::Both } else { Norms::Before },
        head_gate: if fields.get("use_attention_gate")? { HeadGate::SigmoidOfHead } else { HeadGate::None },
        ..base
    }
    .into())
}
