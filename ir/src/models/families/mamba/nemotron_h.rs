//! Nemotron-H: layers of one branch each, which is a state space, attention without positions, a net or experts.

use super::IN_MIXER;
use super::prelude::*;

pub(in crate::models::families) const FAMILY: Family = Family {
    model_type: "nemotron_h",
    class: "NemotronHForCausalLM",
    keys: Keys { class: "NemotronHConfig", lists: &[KEYS, ROUTED, EVERY] },
    wholes: &[],
    weights: Weights {
        base: "backbone.",
        embedding: "backbone.embeddings.weight",
        outer: &[
            HubTensor::table("backbone.embeddings.weight", &["emb"]),
            HubTensor::vector("backbone.norm_f.weight", &["final_norm"]),
            HubTensor::linear("lm_head.weight", &["out"]),
        ],
        inner: &[NORM, IN_MIXER, ATTENTION_IN_MIXER, NET_IN_MIXER, EXPERTS_IN_MIXER],
        ..USUAL
    },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "131072", VOCABULARY),
    Key::read(&["hidden_size"], "4096", HIDDEN),
    Key::read(
        &["layers_block_type"],
        "null",
        "linear_attention, full_attention, mlp or moe, by layer; null: one of each, unless `hybrid_override_pattern` is stated",
    ),
    Key::alias(&["layer_types"], "layers_block_type"),
    Key::read(&["hybrid_override_pattern"], "null", "the same, a letter for each layer: M, *, - or E"),
    Key::nothing(&["num_hidden_layers"], "the list of layers says how many there are"),
    Key::read(&["num_attention_heads"], "32", HEADS),
    Key::read(&["num_key_value_heads"], "8", KV_HEADS),
    Key::read(&["head_dim"], "128", HEAD_SIZE),
    Key::alias(&["attention_head_dim"], "head_dim"),
    Key::only(&["attention_bias"], "false", NO_BIAS),
    Key::read(&["attention_dropout"], "0.0", DROPOUT),
    Key::only(&["hidden_dropout"], "0.0", "the class drops nothing else"),
    Key::only(&["sliding_window"], "null", "attention sees all tokens before"),
    Key::nothing(&["max_position_embeddings", "rope_theta", "partial_rotary_factor"], "attention has no positions"),
    Key::read(&["intermediate_size"], "21504", FEED_FORWARD),
    Key::read(&["mlp_hidden_act"], "\"relu2\"", ACTIVATION),
    Key::read(&["mlp_bias"], "false", NET_BIAS),
    Key::read(&["mamba_num_heads"], "128", "heads of a state space"),
    Key::read(&["mamba_head_dim"], "64", "size of its values"),
    Key::read(&["ssm_state_size"], "128", "size of its keys"),
    Key::read(&["n_groups"], "8", "groups of its heads, each with its keys and queries"),
    Key::read(&["conv_kernel"], "4", "taps of its convolutions"),
    Key::read(&["chunk_size"], "128", "rows that are computed together"),
    Key::read(&["use_bias"], "false", "its products have biases"),
    Key::read(&["use_conv_bias"], "true", "its convolutions have biases"),
    Key::read(&["time_step_min"], "0.001", "least step, of the first ones too"),
    Key::read(&["time_step_max"], "0.1", "largest of the first steps"),
    Key::read(&["time_step_floor"], "1e-4", "bound of the first steps"),
    Key::nothing(&["time_step_limit", "expand", "mamba_proj_bias"], UNREAD),
    Key::only(&["mamba_hidden_act"], "\"silu\"", "the state space is built with it"),
    Key::nothing(&["use_mamba_kernels", "mamba_ssm_cache_dtype", "num_logits_to_keep"], "how `transformers` runs it"),
    Key::nothing(&["residual_in_fp32"], "the format of the stream; `--precision` sets it"),
    Key::nothing(&["rescale_prenorm_residual"], "matrices that write to the stream always start smaller"),
    Key::read(&["layer_norm_epsilon"], "1e-5", NORM_EPS),
    Key::read(&["tie_word_embeddings"], "false", TIED),
    Key::nothing(&["pad_token_id"], "the row of the embedding learns as others do"),
    Key::read(&["n_routed_experts"], "8", EXPERTS),
    Key::alias(&["num_local_experts"], "n_routed_experts"),
    Key::read(&["num_experts_per_tok"], "2", CHOSEN),
    Key::read(&["moe_intermediate_size"], "7688", EXPERT_SIZE),
    Key::read(&["moe_shared_expert_intermediate_size"], "7688", "size of the expert that all tokens take"),
    Key::nothing(&["n_shared_experts", "moe_shared_expert_overlap", "output_router_logits"], UNREAD),
    Key::only(&["moe_latent_size"], "null", "experts read the stream itself"),
    Key::read(&["routed_scaling_factor"], "1.0", SCALE),
    Key::read(&["n_group"], "1", GROUPS),
    Key::read(&["topk_group"], "1", OPEN_GROUPS),
    Key::read(&["norm_topk_prob"], "true", RENORMALISE),
    Key::nothing(
        &["num_nextn_predict_layers", "mtp_layers_block_type", "mtp_hybrid_override_pattern"],
        "the class computes no layers that predict further tokens",
    ),
];

const NORM: &[HubTensor] =
    &[HubTensor::vector("norm.weight", &["norm1"]), HubTensor::vector("norm.weight", &["norm2"])];

const ATTENTION_IN_MIXER: &[HubTensor] = &[
    HubTensor::linear("mixer.q_proj.weight", &["wq"]),
    HubTensor::linear("mixer.k_proj.weight", &["wk"]),
    HubTensor::linear("mixer.v_proj.weight", &["wv"]),
    HubTensor::linear("mixer.o_proj.weight", &["wo"]).of_inputs(3),
];

const NET_IN_MIXER: &[HubTensor] = &[
    HubTensor::linear("mixer.up_proj.weight", &["up"]),
    HubTensor::linear("mixer.down_proj.weight", &["down"]),
    HubTensor::vector("mixer.up_proj.bias", &["up_bias"]),
    HubTensor::vector("mixer.down_proj.bias", &["down_bias"]),
];

/// In files of whose experts a tensor has all matrices of one kind.
const IN_ONE: When = When::File("mixer.experts.down_proj");

const EXPERTS_IN_MIXER: &[HubTensor] = &[
    HubTensor::linear("mixer.gate.weight", &["router"]),
    HubTensor::vector("mixer.gate.e_score_correction_bias", &["router_bias"]),
    HubTensor::linear("mixer.experts.up_proj", &["expert_up"]).of_experts().when(IN_ONE),
    HubTensor::linear("mixer.experts.down_proj", &["expert_down"]).of_experts().when(IN_ONE),
    HubTensor::linear("mixer.experts.{}.up_proj.weight", &["expert_up"]),
    HubTensor::linear("mixer.experts.{}.down_proj.weight", &["expert_down"]),
    HubTensor::linear("mixer.shared_experts.up_proj.weight", &["shared_up"]),
    HubTensor::linear("mixer.shared_experts.down_proj.weight", &["shared_down"]),
];

/// The keys of the state space.
const SSD: SsdKeys = SsdKeys {
    heads: "mamba_num_heads",
    value: "mamba_head_dim",
    state: "ssm_state_size",
    groups: "n_groups",
    taps: "conv_kernel",
    chunk: "chunk_size",
    bias: "use_bias",
    conv_bias: "use_conv_bias",
};

/// The branch of a layer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Branch {
    State,
    Attention,
    Net,
    Experts,
}

impl Branch {
    fn of_type(kind: &str) -> Result<Branch, ConfigError> {
        match kind {
            "linear_attention" | "mamba" => Ok(Branch::State),
            "full_attention" | "attention" => Ok(Branch::Attention),
            "mlp" => Ok(Branch::Net),
            "moe" => Ok(Branch::Experts),
            _ => {
                let why = format!("{kind} is not supported, only linear_attention, full_attention, mlp and moe");
                Err(unsupported("layers_block_type", why))
            }
        }
    }

    fn of_letter(letter: char) -> Result<Branch, ConfigError> {
        match letter {
            'M' => Ok(Branch::State),
            '*' => Ok(Branch::Attention),
            '-' => Ok(Branch::Net),
            'E' => Ok(Branch::Experts),
            _ => {
                let why = format!("`{letter}` stands for no layer, only M, *, - and E do");
                Err(unsupported("hybrid_override_pattern", why))
            }
        }
    }
}

/// The branches of all layers.
fn branches(fields: &Fields) -> Result<Vec<Branch>, ConfigError> {
    let types: Option<Vec<String>> = fields.optional("layers_block_type")?;
    let pattern: Option<String> = fields.optional("hybrid_override_pattern")?;
    match (types, pattern) {
        (Some(types), _) => types.iter().map(|kind| Branch::of_type(kind)).collect(),
        (None, Some(pattern)) => pattern.chars().map(Branch::of_letter).collect(),
        (None, None) => Ok(vec![Branch::State, Branch::Experts, Branch::Attention, Branch::Net]),
    }
}

/// The layers that have one of some branches.
fn layers_of(branches: &[Branch], wanted: &[Branch]) -> Result<LayerSet, ConfigError> {
    let set =
        mixers::set(branches.len() as u32, "layers_block_type", |layer| wanted.contains(&branches[layer as usize]))?;
    Ok(set.unwrap_or(LayerSet::None))
}

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let branches = branches(fields)?;
    let layers = u32::try_from(branches.len()).unwrap_or(u32::MAX);
    let sizes = ModelSizes { hidden: fields.get("hidden_size")?, heads: fields.get("num_attention_heads")?, layers };
    let kv_heads = fields.optional("num_key_value_heads")?.unwrap_or(sizes.heads);
    let heads = Heads { size: fields.get("head_dim")?, kv_heads, rotary: mixers::no_positions() };
    let base = Base { norm_eps: "layer_norm_epsilon", ..Base::USUAL }.read_with(fields, sizes, heads)?;
    let ssd =
        SSD.read(fields, fields.get::<u64>("mamba_num_heads")? * fields.get::<u64>("mamba_head_dim")?, base.norm_eps)?;
    let least: f64 = fields.get("time_step_min")?;
    let first_steps = Some(mixers::first_steps(fields)?);
    let mixer = Mixer::Ssd(Ssd { steps: [Some(least), None], first_steps, ..ssd });
    Ok(LlamaConfig {
        gated: false,
        activation: activation(fields, "mlp_hidden_act")?,
        net_bias: fields.get("mlp_bias")?,
        nope: LayerSet::First(layers),
        scanned: Some(Scanned::of(mixer, layers_of(&branches, &[Branch::State])?)),
        still: layers_of(&branches, &[Branch::Net, Branch::Experts])?,
        netless: layers_of(&branches, &[Branch::State, Branch::Attention])?,
        experts: experts(fields, &branches, layers_of(&branches, &[Branch::State, Branch::Attention, Branch::Net])?)?,
        pad: None,
        ..base
    }
    .into())
}

fn experts(fields: &Fields, branches: &[Branch], dense: LayerSet) -> Result<Option<Experts>, ConfigError> {
    if !branches.contains(&Branch::Experts) {
        return Ok(None);
    }
    let (groups, from): (u64, u64) = (fields.get("n_group")?, fields.get("topk_group")?);
    Ok(Some(Experts {
        dense,
        ungated: true,
        shared: fields.get("moe_shared_expert_intermediate_size")?,
        renormalise: fields.get("norm_topk_prob")?,
        scale: fields.get("routed_scaling_factor")?,
        limit: (groups > 1).then_some(GroupLimit { groups, from, by: 2 }),
        ..sigmoid(fields, "n_routed_experts", "moe_intermediate_size")?
    }))
}
