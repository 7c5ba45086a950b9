//! Hunyuan with experts, and one that all tokens take.

use super::hunyuan_v1_dense::{self, HEADS_OF_HUNYUAN};
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "hunyuan_v1_moe",
    class: "HunYuanMoEV1ForCausalLM",
    keys: Keys { class: "HunYuanMoEV1Config", lists: &[KEYS, ONE_TYPE, ROUTED, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[OWN, HEADS_OF_HUNYUAN, NORMS, QKV, ATTENTION, ROUTED_WEIGHTS], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "290943", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "11008", EXPERT_SIZE),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "null", KV_HEADS),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["max_position_embeddings"], "2048", CONTEXT),
    Key::read(&["rms_norm_eps"], "1e-05", NORM_EPS),
    Key::read(&["pad_token_id"], "0", PAD),
    Key::nothing(&["eod_token_id"], "the text determines the tokens"),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["num_experts"], "1", EXPERTS),
    Key::alias(&["moe_topk"], "num_experts_per_tok"),
    Key::read(&["head_dim"], "null", HEAD),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::alias(&["num_local_experts"], "num_experts"),
    WHOLE_HEADS,
    Key::nothing(&["output_router_logits"], NO_ROUTER_LOSS),
    Key::read(&["num_experts_per_tok"], "1", CHOSEN),
];

/// The router, and the expert that all tokens take.
const OWN: &[HubTensor] = &[
    HubTensor::linear("mlp.gate.wg.weight", &["router"]),
    HubTensor::linear("mlp.shared_mlp.gate_proj.weight", &["shared_gate"]),
    HubTensor::linear("mlp.shared_mlp.up_proj.weight", &["shared_up"]),
    HubTensor::linear("mlp.shared_mlp.down_proj.weight", &["shared_down"]),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = hunyuan_v1_dense::hunyuan(fields)?;
    let experts = softmax(fields, "num_experts", "intermediate_size")?;
    Ok(LlamaConfig { experts: Some(Experts { shared: base.feed_forward, ..experts }), ..base }.into())
}
