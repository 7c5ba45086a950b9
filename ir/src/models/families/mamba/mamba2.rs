//! Mamba-2: layers of a state space alone (Dao and Gu 2024).

use super::IN_MIXER;
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "mamba2",
    class: "Mamba2ForCausalLM",
    keys: Keys { class: "Mamba2Config", lists: &[KEYS, EVERY] },
    wholes: &[],
    weights: Weights {
        base: "backbone.",
        embedding: "backbone.embeddings.weight",
        outer: &[
            HubTensor::table("backbone.embeddings.weight", &["emb"]),
            HubTensor::vector("backbone.norm_f.weight", &["final_norm"]),
            HubTensor::linear("lm_head.weight", &["out"]),
        ],
        inner: &[&[HubTensor::vector("norm.weight", &["norm1"])], IN_MIXER],
        ..USUAL
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "32768", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(&["num_hidden_layers"], "64", LAYERS),
    Key::read(&["num_heads"], "128", "heads of a state space"),
    Key::read(&["head_dim"], "64", "size of its values"),
    Key::read(&["state_size"], "128", "size of its keys"),
    Key::read(&["n_groups"], "8", "groups of its heads, each with its keys and queries"),
    Key::read(&["expand"], "2", "its values, over the size of the stream"),
    Key::read(&["conv_kernel"], "4", "taps of its convolutions"),
    Key::read(&["chunk_size"], "256", "rows that are computed together"),
    Key::read(&["use_bias"], "false", "its products have biases"),
    Key::read(&["use_conv_bias"], "true", "its convolutions have biases"),
    Key::read(&["layer_norm_epsilon"], "1e-5", NORM_EPS),
    Key::read(&["initializer_range"], "0.1", DEVIATION),
    Key::read(&["time_step_limit"], "[0.0, null]", "bounds of its steps"),
    Key::read(&["time_step_min"], "0.001", "least of the first steps"),
    Key::read(&["time_step_max"], "0.1", "largest of the first steps"),
    Key::read(&["time_step_floor"], "1e-4", "bound of the first steps"),
    Key::read(&["tie_word_embeddings"], "false", TIED),
    Key::only(&["hidden_act"], "\"silu\"", "the state space is built with it"),
    Key::nothing(&["residual_in_fp32"], "the format of the stream; `--precision` sets it"),
    Key::nothing(&["rescale_prenorm_residual"], "matrices that write to the stream always start smaller"),
    Key::nothing(&["time_step_rank", "layer_types"], UNREAD),
    Key::nothing(&["pad_token_id"], "the row of the embedding learns as others do"),
];

/// The keys of the state space.
const SSD: SsdKeys = SsdKeys {
    heads: "num_heads",
    value: "head_dim",
    state: "state_size",
    groups: "n_groups",
    taps: "conv_kernel",
    chunk: "chunk_size",
    bias: "use_bias",
    conv_bias: "use_conv_bias",
};

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let base = mixers::without_attention(fields, "layer_norm_epsilon")?;
    let inner = base.hidden * fields.get::<u64>("expand")?;
    let ssd = SSD.read(fields, inner, base.norm_eps)?;
    let first_steps = Some(mixers::first_steps(fields)?);
    let mixer = Mixer::Ssd(Ssd { steps: steps(fields, "time_step_limit")?, first_steps, ..ssd });
    let layers = LayerSet::First(base.layers);
    Ok(LlamaConfig { scanned: Some(Scanned::of(mixer, layers)), netless: layers, ..base }.into())
}
