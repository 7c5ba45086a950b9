//! nanochat: norms without gains, also of the embedding and of turned heads; positions turn the other way.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "nanochat",
    class: "NanoChatForCausalLM",
    keys: Keys { class: "NanoChatConfig", lists: &[KEYS, ONE_TYPE, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights {
        outer: &[
            HubTensor::table("model.embed_tokens.weight", &["emb"]),
            HubTensor::linear("lm_head.weight", &["out"]),
        ],
        inner: &[NET_OF_TWO, QKV, ATTENTION],
        ..USUAL
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "50304", VOCABULARY),
    Key::read(&["hidden_size"], "768", HIDDEN),
    Key::read(&["intermediate_size"], "8192", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "12", LAYERS),
    Key::read(&["num_attention_heads"], "6", HEADS),
    Key::read(&["num_key_value_heads"], "null", KV_HEADS),
    Key::read(&["max_position_embeddings"], "2048", CONTEXT),
    Key::read(&["hidden_act"], "\"relu2\"", ACTIVATION),
    Key::read(&["rms_norm_eps"], "1e-06", NORM_EPS),
    Key::read(&["final_logit_softcapping"], "15.0", LOGIT_BOUND),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["pad_token_id"], "1", PAD),
    Key::read(&["head_dim"], "", HEAD),
    Key::read(&["rope_theta"], "10000.0", THETA),
    WHOLE_HEADS,
];

const NET_OF_TWO: &[HubTensor] =
    &[HubTensor::linear("mlp.fc1.weight", &["up"]), HubTensor::linear("mlp.fc2.weight", &["down"])];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = biased(fields, Base::USUAL.read(fields)?)?;
    windows::one_type(fields)?;
    Ok(LlamaConfig {
        gated: false,
        activation: activation(fields, "hidden_act")?,
        norm: Norm::RmsPlain,
        embedding_norm: EmbeddingNorm::Sum,
        rotation: Rotation { backwards: true, ..base.rotation },
        logit_softcap: fields.optional("final_logit_softcapping")?,
        qk_norm: QkNorm::Turned,
        ..base
    }
    .into())
}
