//! OLMoE: experts, and norms of queries and keys as a whole.

use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "olmoe",
    class: "OlmoeForCausalLM",
    keys: Keys { class: "OlmoeConfig", lists: &[KEYS, ONE_TYPE, ROUTED, ROUTER_LOSS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[NORMS, QKV, ATTENTION, ROUTED_WEIGHTS], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["router_aux_loss_coef"], "0.01", "its factor"),
    Key::read(&["vocab_size"], "50304", VOCABULARY),
    Key::read(&["hidden_size"], "2048", HIDDEN),
    Key::read(&["intermediate_size"], "2048", EXPERT_SIZE),
    Key::read(&["num_hidden_layers"], "16", LAYERS),
    Key::read(&["num_attention_heads"], "16", HEADS),
    Key::read(&["num_key_value_heads"], "null", KV_HEADS),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "4096", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-05", NORM_EPS),
    Key::read(&["pad_token_id"], "1", PAD),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["clip_qkv"], "null", CLIP),
    Key::read(&["num_experts_per_tok"], "8", CHOSEN),
    Key::read(&["num_experts"], "64", EXPERTS),
    Key::read(&["norm_topk_prob"], "false", RENORMALISE),
    Key::read(&["head_dim"], "", HEAD),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::alias(&["num_local_experts"], "num_experts"),
    WHOLE_HEADS,
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = biased(fields, Base::USUAL.read(fields)?)?;
    windows::one_type(fields)?;
    Ok(LlamaConfig {
        activation: activation(fields, "hidden_act")?,
        clip: fields.optional("clip_qkv")?,
        qk_norm: QkNorm::Whole,
        experts: Some(experts(fields)?),
        ..base
    }
    .into())
}

/// The experts of OLMoE and FlexOlmo.
pub(super) fn experts(fields: &Fields) -> Result<Experts, ConfigError> {
    let renormalise = fields.get("norm_topk_prob")?;
    Ok(Experts { renormalise, ..softmax(fields, "num_experts", "intermediate_size")? })
}
