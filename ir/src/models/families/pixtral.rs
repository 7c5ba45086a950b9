//! Pixtral: an encoder of images of any size, within Mistral Small 3.1 and within Pixtral 12B, whose class is LLaVA's.

use super::prelude::*;
use crate::models::vision::{Encoder, EncoderFields, Frequencies, Projector, Square, Stem, Vision, Whole};

pub(super) const ENCODER: Encoder = Encoder {
    model_type: "pixtral",
    keys: Keys { class: "PixtralVisionConfig", lists: &[KEYS, EVERY] },
    wholes: &[
        Whole {
            model_type: "mistral3",
            class: "Mistral3ForConditionalGeneration",
            keys: Keys { class: "Mistral3Config", lists: &[MISTRAL3, WHOLE, EVERY] },
        },
        Whole {
            model_type: "llava",
            class: "LlavaForConditionalGeneration",
            keys: Keys { class: "LlavaConfig", lists: &[LLAVA, WHOLE, EVERY] },
        },
    ],
    weights: Weights {
        base: "model.vision_tower.",
        layers: "transformer.layers.",
        outer: &[
            HubTensor::linear("model.vision_tower.patch_conv.weight", &["patch_proj"])
                .of_inputs(3)
                .shaped(FileShape::Patches),
            HubTensor::vector("model.vision_tower.ln_pre.weight", &["patch_norm"]),
            HubTensor::vector("model.multi_modal_projector.norm.weight", &["merge_norm"]),
            HubTensor::linear("model.multi_modal_projector.patch_merger.merging_layer.weight", &["merge"]).of_inputs(2),
            HubTensor::linear("model.multi_modal_projector.linear_1.weight", &["project1"]),
            HubTensor::vector("model.multi_modal_projector.linear_1.bias", &["project1_bias"]),
            HubTensor::linear("model.multi_modal_projector.linear_2.weight", &["project2"]),
            HubTensor::vector("model.multi_modal_projector.linear_2.bias", &["project2_bias"]),
        ],
        inner: &[&[
            HubTensor::vector("attention_norm.weight", &["norm1"]),
            HubTensor::linear("attention.q_proj.weight", &["wq"]),
            HubTensor::linear("attention.k_proj.weight", &["wk"]),
            HubTensor::linear("attention.v_proj.weight", &["wv"]),
            HubTensor::linear("attention.o_proj.weight", &["wo"]).of_inputs(3),
            HubTensor::vector("ffn_norm.weight", &["norm2"]),
            HubTensor::linear("feed_forward.gate_proj.weight", &["gate"]),
            HubTensor::linear("feed_forward.up_proj.weight", &["up"]),
            HubTensor::linear("feed_forward.down_proj.weight", &["down"]),
        ]],
        ..USUAL
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["hidden_size"], "1024", HIDDEN),
    Key::read(&["intermediate_size"], "4096", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "24", LAYERS),
    Key::read(&["num_attention_heads"], "16", HEADS),
    Key::read(&["head_dim"], "null", "the size of a head, which must be hidden_size over the number of heads"),
    Key::read(&["num_channels"], "3", "numbers of a pixel"),
    Key::read(&["patch_size"], "16", "pixels of a side of a patch"),
    Key::read(&["hidden_act"], "\"gelu\"", ACTIVATION),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::read(&["rope_parameters"], "null", "rotary positions of rows and columns: `rope_theta`"),
    Key::only(&["attention_dropout"], "0.0", "encoders have no dropout"),
    Key::nothing(&["image_size"], "positions do not depend on the size of images"),
    Key::nothing(&["vocab_size", "tie_word_embeddings", "is_composition"], "an encoder has no vocabulary"),
];

/// The keys of whole files of both classes.
const WHOLE: &[Key] = &[
    Key::alias(&["image_token_id"], "image_token_index"),
    Key::read(&["projector_hidden_act"], "\"gelu\"", ACTIVATION),
    Key::nothing(&["tie_word_embeddings", "image_seq_length", "pad_token_id"], "of the text, or of its preparation"),
];

const MISTRAL3: &[Key] = &[
    Key::read(&["image_token_index"], "10", IMAGE_TOKEN),
    Key::read(&["multimodal_projector_bias"], "false", PROJECTOR_BIAS),
    Key::read(&["spatial_merge_size"], "2", "patches of a side of the square that becomes one row"),
    Key::only(&["vision_feature_layer"], "-1", LAST_LAYER),
];

const LLAVA: &[Key] = &[
    Key::read(&["image_token_index"], "32000", IMAGE_TOKEN),
    Key::read(&["multimodal_projector_bias"], "true", PROJECTOR_BIAS),
    Key::read(&["vision_feature_layer"], "-2", LAST_LAYER),
    Key::read(&["vision_feature_select_strategy"], "\"default\"", "full: all rows of the encoder are read"),
];

const IMAGE_TOKEN: &str = "the token that stands for a row of an image";
const PROJECTOR_BIAS: &str = "the products behind the encoder have biases";
const LAST_LAYER: &str = "-1: the last layer gives the rows of images";

fn read(EncoderFields { own, whole, .. }: &EncoderFields) -> Result<Vision, ConfigError> {
    let (hidden, heads): (u64, u64) = (own.get("hidden_size")?, own.get("num_attention_heads")?);
    if let Some(head) = own.optional::<u64>("head_dim")?.filter(|head| head.saturating_mul(heads) != hidden) {
        let why = format!("{head} times {heads} heads is not `hidden_size` {hidden}");
        return Err(invalid("vision_config.head_dim", why));
    }
    if whole.has("vision_feature_select_strategy") {
        last_layer_of_all_rows(whole)?;
    }
    let merge: Option<u64> =
        if whole.has("spatial_merge_size") { Some(whole.get("spatial_merge_size")?) } else { None };
    Ok(Vision {
        patches: 0,
        side: own.get("patch_size")?,
        channels: own.get("num_channels")?,
        frames: None,
        hidden,
        feed_forward: own.get("intermediate_size")?,
        activation: activation(own, "hidden_act")?,
        gated: true,
        biased: false,
        layers: own.layers("num_hidden_layers")?,
        heads,
        stem: Stem::Norm,
        theta: patch_theta(own)?,
        frequencies: Frequencies::ByParity,
        norm: Norm::Rms,
        norm_eps: 1e-5,
        deviation: own.get("initializer_range")?,
        projector: Projector {
            merge,
            square: Square::Matrix,
            activation: activation(whole, "projector_hidden_act")?,
            bias: whole.get("multimodal_projector_bias")?,
        },
        deep: Vec::new(),
        sections: None,
        token: whole.get("image_token_index")?,
    })
}

/// Checks that LLaVA's class reads what this encoder gives.
fn last_layer_of_all_rows(whole: &Fields) -> Result<(), ConfigError> {
    let (layer, rows): (i64, String) =
        (whole.get("vision_feature_layer")?, whole.get("vision_feature_select_strategy")?);
    if layer != -1 {
        return Err(unsupported("vision_feature_layer", format!("{layer} is not supported, only -1")));
    }
    if rows != "full" {
        return Err(unsupported("vision_feature_select_strategy", format!("{rows} is not supported, only full")));
    }
    Ok(())
}

/// The base of the frequencies of rows and columns, at the top or in the object of rotary positions.
pub(super) fn patch_theta(own: &Fields) -> Result<f64, ConfigError> {
    let Some(rope) = own.object("rope_parameters")? else { return own.get("rope_theta") };
    match rope.get("rope_theta") {
        None => own.get("rope_theta"),
        Some(theta) => theta.as_f64().ok_or_else(|| invalid("rope_theta", format!("{theta} is no number"))),
    }
}
