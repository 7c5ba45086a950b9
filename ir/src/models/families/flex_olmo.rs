//! FlexOlmo: OLMo 2 with experts.

use super::prelude::*;
use super::{olmo2, olmoe};

pub(super) const FAMILY: Family = Family {
    model_type: "flex_olmo",
    class: "FlexOlmoForCausalLM",
    keys: Keys { class: "FlexOlmoConfig", lists: &[KEYS, ROUTED, ROUTER_LOSS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[olmo2::POST_NORMS, QKV, ATTENTION, ROUTED_WEIGHTS], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["router_aux_loss_coef"], "0.01", "its factor"),
    Key::read(&["vocab_size"], "100352", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "11008", EXPERT_SIZE),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "null", KV_HEADS),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "4096", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-06", NORM_EPS),
    Key::read(&["pad_token_id"], "100277", PAD),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["num_experts_per_tok"], "5", CHOSEN),
    Key::read(&["num_experts"], "7", EXPERTS),
    Key::read(&["norm_topk_prob"], "false", RENORMALISE),
    Key::read(&["head_dim"], "", HEAD),
    Key::read(&["rope_theta"], "500000.0", THETA),
    Key::alias(&["num_local_experts"], "num_experts"),
    WHOLE_HEADS,
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let experts = olmoe::experts(fields)?;
    Ok(LlamaConfig { experts: Some(experts), ..olmo2::olmo(fields, Rope::USUAL)? }.into())
}
