//! Falcon-H1: a state space and attention side by side in each layer, with factors of their products.

use super::bamba::{NET_OF_BAMBA, NORMS_OF_NETS, OUTER};
use super::prelude::*;
use super::{IN_MAMBA, MAMBA};

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "falcon_h1",
    class: "FalconH1ForCausalLM",
    keys: Keys { class: "FalconH1Config", lists: &[KEYS, MAMBA, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { outer: OUTER, inner: &[NORMS_OF_NETS, IN_MAMBA, QKV, ATTENTION, NET_OF_BAMBA], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "128000", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["intermediate_size"], "14336", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "8", KV_HEADS),
    Key::read(&["head_dim"], "", HEAD),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["rms_norm_eps"], "1e-5", NORM_EPS),
    Key::read(&["max_position_embeddings"], "8192", CONTEXT),
    Key::read(&["rope_theta"], "10000.0", THETA),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["mlp_bias"], "false", NET_BIAS),
    Key::read(&["projectors_bias"], "false", "the last product of a state space has a bias"),
    Key::read(&["mamba_d_ssm"], "1024", "values of a state space; null: `mamba_expand` says how many"),
    Key::read(&["mamba_rms_norm"], "false", "results of a state space are normed"),
    Key::read(&["mamba_norm_before_gate"], "true", "and then meet their gates"),
    Key::read(&["embedding_multiplier"], "1.0", "factor of embeddings"),
    Key::read(&["lm_head_multiplier"], "1.0", "factor of logits"),
    Key::read(&["attention_in_multiplier"], "1.0", "factor of what attention reads"),
    Key::read(&["attention_out_multiplier"], "1.0", "factor of what it gives"),
    Key::read(&["key_multiplier"], "1.0", "factor of keys"),
    Key::read(&["mlp_multipliers"], "null", "factors of the net's gate, and of what it gives"),
    Key::read(&["ssm_in_multiplier"], "1.0", "factor of what a state space reads"),
    Key::read(&["ssm_out_multiplier"], "1.0", "factor of what it gives"),
    Key::read(&["ssm_multipliers"], "null", "factors of its gates, values, keys, queries and steps"),
    Key::nothing(&["layer_types", "layers_block_type"], "all layers are alike"),
    Key::nothing(&["num_logits_to_keep", "mamba_use_mlp"], "how text is generated"),
    Key::read(&["pad_token_id"], "0", PAD),
    WHOLE_HEADS,
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = biased(fields, Base::USUAL.read(fields)?)?;
    let inner = match fields.optional("mamba_d_ssm")? {
        Some(inner) => inner,
        None => base.hidden * fields.get::<u64>("mamba_expand")?,
    };
    let ssd = SsdKeys::BAMBA.read(fields, inner, base.norm_eps)?;
    let factors: [f64; 5] = fields.optional("ssm_multipliers")?.unwrap_or([1.0; 5]);
    let mixer = Mixer::Ssd(Ssd {
        steps: steps(fields, "time_step_limit")?,
        norm: norm(fields)?,
        out_bias: fields.get("projectors_bias")?,
        scales: SsdScales { read: fields.get("ssm_in_multiplier")?, products: factors },
        ..ssd
    });
    let with_attention = Some(WithAttention {
        read: fields.get("attention_in_multiplier")?,
        attention: fields.get("attention_out_multiplier")?,
        state: fields.get("ssm_out_multiplier")?,
    });
    Ok(LlamaConfig {
        activation: activation(fields, "hidden_act")?,
        net_bias: fields.get("mlp_bias")?,
        net_scales: fields.optional("mlp_multipliers")?.unwrap_or([1.0; 2]),
        key_scale: fields.get("key_multiplier")?,
        embedding_scale: EmbeddingScale::By(fields.get("embedding_multiplier")?),
        logit_scale: fields.get("lm_head_multiplier")?,
        scanned: Some(Scanned { with_attention, ..Scanned::of(mixer, LayerSet::First(base.layers)) }),
        ..base
    }
    .into())
}

fn norm(fields: &Fields) -> Result<SsdNorm, ConfigError> {
    match (fields.get("mamba_rms_norm")?, fields.get("mamba_norm_before_gate")?) {
        (false, _) => Ok(SsdNorm::None),
        (true, true) => Ok(SsdNorm::BeforeGate),
        (true, false) => Ok(SsdNorm::Gated),
    }
}
