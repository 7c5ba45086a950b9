//! Mamba: layers of a state space alone, whose rows decay at rates of their own (Gu and Dao 2023).

use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "mamba",
    class: "MambaForCausalLM",
    keys: Keys { class: "MambaConfig", lists: &[KEYS, EVERY] },
    wholes: &[],
    weights: WEIGHTS,
    read,
};

pub(super) const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "50280", VOCABULARY),
    Key::read(&["hidden_size"], "768", HIDDEN),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["state_size"], "16", "size of a state space's keys"),
    Key::read(&["expand"], "2", "its channels, over the size of the stream"),
    Key::read(&["conv_kernel"], "4", "taps of its convolution"),
    Key::read(
        &["time_step_rank"],
        "\"auto\"",
        "size of the vector that steps come from; auto: a sixteenth of the stream's",
    ),
    Key::read(&["use_bias"], "false", "its products have biases"),
    Key::read(&["use_conv_bias"], "true", "its convolution has a bias"),
    Key::read(&["layer_norm_epsilon"], "1e-5", NORM_EPS),
    Key::read(&["initializer_range"], "0.1", DEVIATION),
    Key::read(&["time_step_min"], "0.001", "least of the first steps"),
    Key::read(&["time_step_max"], "0.1", "largest of the first steps"),
    Key::read(&["time_step_floor"], "1e-4", "bound of the first steps"),
    Key::read(&["tie_word_embeddings"], "true", TIED),
    Key::only(&["hidden_act"], "\"silu\"", "the state space is built with it"),
    Key::nothing(&["time_step_scale", "time_step_init_scheme"], "the first matrix of steps is drawn as others are"),
    Key::nothing(&["intermediate_size", "layer_types"], "the class sets it"),
    Key::nothing(&["residual_in_fp32"], "the format of the stream; `--precision` sets it"),
    Key::nothing(&["rescale_prenorm_residual"], "matrices that write to the stream always start smaller"),
    Key::nothing(&["use_mambapy", "use_associative_scan", "use_falcon_mambapy"], "how `transformers` runs it"),
    Key::nothing(&["pad_token_id"], "the row of the embedding learns as others do"),
];

pub(super) const WEIGHTS: Weights = Weights {
    base: "backbone.",
    embedding: "backbone.embeddings.weight",
    outer: &[
        HubTensor::table("backbone.embeddings.weight", &["emb"]),
        HubTensor::vector("backbone.norm_f.weight", &["final_norm"]),
        HubTensor::linear("lm_head.weight", &["out"]),
    ],
    inner: &[&[HubTensor::vector("norm.weight", &["norm1"])], super::SELECTIVE_IN_MIXER],
    ..USUAL
};

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    Ok(model(fields, SelectiveNorms::None)?.into())
}

/// A model of layers with these norms.
pub(super) fn model(fields: &Fields, norms: SelectiveNorms) -> Result<LlamaConfig, ConfigError> {
    let base = mixers::without_attention(fields, "layer_norm_epsilon")?;
    let selective = Selective {
        channels: base.hidden * fields.get::<u64>("expand")?,
        state: fields.get("state_size")?,
        rank: super::rank(fields, "time_step_rank", base.hidden)?,
        taps: fields.get("conv_kernel")?,
        bias: fields.get("use_bias")?,
        conv_bias: fields.get("use_conv_bias")?,
        norms,
        first_steps: mixers::first_steps(fields)?,
    };
    let layers = LayerSet::First(base.layers);
    let scanned = Some(Scanned::of(Mixer::Selective(selective), layers));
    Ok(LlamaConfig { scanned, netless: layers, ..base })
}
