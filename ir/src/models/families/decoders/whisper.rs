//! The decoder of Whisper: norms of what branches read, and keys without biases.

use super::parts::*;
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "whisper",
    class: "WhisperForCausalLM",
    keys: Keys { class: "WhisperConfig", lists: &[KEYS, SHARED_KEYS, EVERY] },
    wholes: &[],
    weights: Weights { head: "proj_out.weight", outer: OUTER, ..DECODER },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "51865", VOCABULARY),
    Key::read(&["d_model"], "384", HIDDEN),
    Key::read(&["decoder_layers"], "4", LAYERS),
    Key::read(&["decoder_attention_heads"], "6", HEADS),
    Key::read(&["decoder_ffn_dim"], "1536", FEED_FORWARD),
    Key::read(&["dropout"], "0.0", DROPOUT),
    Key::read(&["max_target_positions"], "448", POSITIONS),
    Key::read(&["pad_token_id"], "50256", PAD),
    Key::read(&["max_position_embeddings", "num_key_value_heads"], "", UNREAD),
    Key::nothing(
        &[
            "num_mel_bins",
            "max_source_positions",
            "use_weighted_layer_sum",
            "classifier_proj_size",
            "apply_spec_augment",
            "mask_time_prob",
            "mask_time_length",
            "mask_time_min_masks",
            "mask_feature_prob",
            "mask_feature_length",
            "mask_feature_min_masks",
            "median_filter_width",
        ],
        "of sounds, which the encoder reads",
    ),
];

const OUTER: &[HubTensor] = &[
    HubTensor::table("model.decoder.embed_tokens.weight", &["emb"]),
    HubTensor::table("model.decoder.embed_positions.weight", &["wpe"]),
    HubTensor::vector("model.decoder.layer_norm.weight", &["final_norm"]),
    HubTensor::vector("model.decoder.layer_norm.bias", &["final_norm_bias"]),
    HubTensor::linear("proj_out.weight", &["out"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let learned = Learned { positions: fields.get("max_target_positions")?, unread: 0 };
    Ok(LlamaConfig { plain_keys: true, ..normed_before(decoder(fields, learned)?) }.into())
}
