//! The encoder of Qwen3-VL: patches of images of any size, whose inner layers give rows to the first layers of the text model.

use super::super::pixtral::patch_theta;
use super::prelude::*;
use crate::models::vision::{Encoder, EncoderFields, Frequencies, Projector, Square, Stem, Vision, Whole};
use serde_json::Value;

pub(in crate::models::families) const ENCODER: Encoder = encoder(
    "qwen3_vl_vision",
    &[Whole {
        model_type: "qwen3_vl",
        class: "Qwen3VLForConditionalGeneration",
        keys: Keys { class: "Qwen3VLConfig", lists: &[WHOLE, EVERY] },
    }],
);

/// This encoder within the model with experts.
pub(in crate::models::families) const ENCODER_OF_EXPERTS: Encoder = encoder(
    "qwen3_vl_moe_vision",
    &[Whole {
        model_type: "qwen3_vl_moe",
        class: "Qwen3VLMoeForConditionalGeneration",
        keys: Keys { class: "Qwen3VLMoeConfig", lists: &[WHOLE, EVERY] },
    }],
);

const fn encoder(model_type: &'static str, wholes: &'static [Whole]) -> Encoder {
    let keys = Keys { class: "Qwen3VLVisionConfig", lists: &[KEYS, EVERY] };
    Encoder { model_type, keys, wholes, weights: WEIGHTS, read }
}

const WEIGHTS: Weights = Weights {
    base: "model.visual.",
    layers: "blocks.",
    outer: &[
        HubTensor::linear("model.visual.patch_embed.proj.weight", &["patch_proj"])
            .of_inputs(4)
            .shaped(FileShape::Patches),
        HubTensor::vector("model.visual.patch_embed.proj.bias", &["patch_bias"]),
        HubTensor::table("model.visual.pos_embed.weight", &["positions"]),
        HubTensor::vector("model.visual.merger.norm.weight", &["merge_norm"]),
        HubTensor::vector("model.visual.merger.norm.bias", &["merge_norm_bias"]),
        HubTensor::linear("model.visual.merger.linear_fc1.weight", &["project1"]).of_inputs(2),
        HubTensor::vector("model.visual.merger.linear_fc1.bias", &["project1_bias"]),
        HubTensor::linear("model.visual.merger.linear_fc2.weight", &["project2"]),
        HubTensor::vector("model.visual.merger.linear_fc2.bias", &["project2_bias"]),
    ],
    inner: &[
        &[
            HubTensor::vector("norm1.weight", &["norm1"]),
            HubTensor::vector("norm1.bias", &["norm1_bias"]),
            HubTensor::linear("attn.qkv.weight", &["wq", "wk", "wv"]),
            HubTensor::vector("attn.qkv.bias", &["bq", "bk", "bv"]),
            HubTensor::linear("attn.proj.weight", &["wo"]).of_inputs(3),
            HubTensor::vector("attn.proj.bias", &["bo"]),
            HubTensor::vector("norm2.weight", &["norm2"]),
            HubTensor::vector("norm2.bias", &["norm2_bias"]),
            HubTensor::linear("mlp.linear_fc1.weight", &["up"]),
            HubTensor::vector("mlp.linear_fc1.bias", &["up_bias"]),
            HubTensor::linear("mlp.linear_fc2.weight", &["down"]),
            HubTensor::vector("mlp.linear_fc2.bias", &["down_bias"]),
        ],
        &[
            HubTensor::vector("deepstack_merger_list.{layer}.norm.weight", &["merge_norm"]),
            HubTensor::vector("deepstack_merger_list.{layer}.norm.bias", &["merge_norm_bias"]),
            HubTensor::linear("deepstack_merger_list.{layer}.linear_fc1.weight", &["project1"]),
            HubTensor::vector("deepstack_merger_list.{layer}.linear_fc1.bias", &["project1_bias"]),
            HubTensor::linear("deepstack_merger_list.{layer}.linear_fc2.weight", &["project2"]),
            HubTensor::vector("deepstack_merger_list.{layer}.linear_fc2.bias", &["project2_bias"]),
        ],
    ],
    ..USUAL
};

const KEYS: &[Key] = &[
    Key::read(&["hidden_size"], "1152", HIDDEN),
    Key::read(&["intermediate_size"], "4304", FEED_FORWARD),
    Key::read(&["depth"], "27", LAYERS),
    Key::alias(&["num_hidden_layers"], "depth"),
    Key::read(&["num_heads"], "16", HEADS),
    Key::alias(&["num_attention_heads"], "num_heads"),
    Key::read(&["in_channels"], "3", "numbers of a pixel"),
    Key::read(&["patch_size"], "16", "pixels of a side of a patch"),
    Key::read(&["spatial_merge_size"], "2", "patches of a side of the square that becomes one row"),
    Key::read(&["temporal_patch_size"], "2", "frames of a patch; an image is in each one"),
    Key::read(&["out_hidden_size"], "3584", "the size of a row, which must be that of the text model"),
    Key::read(&["num_position_embeddings"], "2304", "positions of the learned table, a square number"),
    Key::read(&["deepstack_visual_indexes"], "[8, 16, 24]", "the layers that give rows to layers of the text model"),
    Key::read(&["hidden_act"], "\"gelu_pytorch_tanh\"", ACTIVATION),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::read(&["rope_parameters"], "null", "rotary positions of rows and columns: `rope_theta`"),
];

/// The keys of whole files.
const WHOLE: &[Key] = &[
    Key::read(&["image_token_id"], "151655", "the token that stands for a row of an image"),
    Key::nothing(
        &["video_token_id", "vision_start_token_id", "vision_end_token_id", "tie_word_embeddings"],
        "of the text, or of its preparation",
    ),
];

/// Pairs of a head of the text model that turn by time, rows and columns, where a file states none.
const SECTIONS: [u64; 3] = [24, 20, 20];

fn read(EncoderFields { own, whole, text }: &EncoderFields) -> Result<Vision, ConfigError> {
    let positions: u64 = own.get("num_position_embeddings")?;
    let side = positions.isqrt();
    if side * side != positions {
        let why = format!("{positions} is no square number, but the table of positions is a square");
        return Err(invalid("vision_config.num_position_embeddings", why));
    }
    let (rows, hidden) = (own.get::<u64>("out_hidden_size")?, text.get("hidden_size").and_then(Value::as_u64));
    if let Some(hidden) = hidden.filter(|hidden| *hidden != rows) {
        let why = format!("{rows} is not the `hidden_size` {hidden} of the text model");
        return Err(invalid("vision_config.out_hidden_size", why));
    }
    Ok(Vision {
        patches: 0,
        side: own.get("patch_size")?,
        channels: own.get("in_channels")?,
        frames: Some(own.get("temporal_patch_size")?),
        hidden: own.get("hidden_size")?,
        feed_forward: own.get("intermediate_size")?,
        activation: activation(own, "hidden_act")?,
        gated: false,
        biased: true,
        layers: own.layers("depth")?,
        heads: own.get("num_heads")?,
        stem: Stem::Positions { side },
        theta: patch_theta(own)?,
        frequencies: Frequencies::Alike,
        norm: Norm::Layer,
        norm_eps: 1e-6,
        deviation: own.get("initializer_range")?,
        projector: Projector {
            merge: Some(own.get("spatial_merge_size")?),
            square: Square::Joined,
            activation: Activation::GeluErf,
            bias: true,
        },
        deep: own.get("deepstack_visual_indexes")?,
        sections: Some(sections(text)?),
        token: whole.get("image_token_id")?,
    })
}

/// The sections of the text model's rotary positions.
fn sections(text: &serde_json::Map<String, Value>) -> Result<[u64; 3], ConfigError> {
    let rope = ["rope_parameters", "rope_scaling"].into_iter().find_map(|key| text.get(key)?.as_object());
    let Some(stated) = rope.and_then(|rope| rope.get("mrope_section")) else { return Ok(SECTIONS) };
    serde_json::from_value(stated.clone())
        .map_err(|_| invalid("mrope_section", format!("{stated} must be three numbers of pairs")))
}
