//! OLMo hybrid: gated delta rules in most layers, with norms of what branches read, and OLMo's attention in the others.

use super::olmo2::POST_NORMS;
use super::prelude::*;

pub(super) const FAMILY: Family = Family {
    model_type: "olmo_hybrid",
    class: "OlmoHybridForCausalLM",
    keys: Keys { class: "OlmoHybridConfig", lists: &[KEYS, ROTARY, EVERY] },
    wholes: &[],
    weights: Weights { inner: &[NORMS_OF_LAYERS, DELTA_OF_OLMO, POST_NORMS, QKV, ATTENTION, NET], ..USUAL },
    read,
};

const KEYS: &[Key] = &[
    Key::read(&["vocab_size"], "100352", VOCABULARY),
    Key::read(&["hidden_size"], "3840", HIDDEN),
    Key::read(&["intermediate_size"], "11008", FEED_FORWARD),
    Key::read(&["num_hidden_layers"], "32", LAYERS),
    Key::read(&["num_attention_heads"], "30", HEADS),
    Key::read(&["num_key_value_heads"], "null", KV_HEADS),
    Key::read(&["head_dim"], "", HEAD),
    Key::read(&["hidden_act"], "\"silu\"", ACTIVATION),
    Key::read(&["rms_norm_eps"], "1e-6", NORM_EPS),
    Key::read(&["max_position_embeddings"], "65536", CONTEXT),
    Key::read(&["rope_theta"], "10000.0", "base of the rotary frequencies; without it attention has no positions"),
    Key::read(&["attention_bias"], "false", BIAS),
    Key::read(&["pad_token_id"], "100277", PAD),
    Key::read(
        &["layer_types"],
        "null",
        "linear_attention or full_attention, by layer; null: each fourth has attention",
    ),
    Key::read(&["linear_num_key_heads"], "null", "a delta rule's heads of keys; null: query heads"),
    Key::read(&["linear_num_value_heads"], "null", "its heads of values; null: query heads"),
    Key::read(
        &["linear_key_head_dim"],
        "null",
        "size of its keys; null: three quarters of the stream over their heads",
    ),
    Key::read(&["linear_value_head_dim"], "null", "size of its values; null: twice that of keys"),
    Key::read(&["linear_conv_kernel_dim"], "4", "taps of its convolutions"),
    Key::read(&["linear_allow_neg_eigval"], "true", "its beta is twice as large"),
    Key::nothing(
        &["linear_a_log_min", "linear_a_log_max"],
        "the first decays; ours are those of the other delta rules",
    ),
    Key::read(&["linear_dt_min"], "0.001", "least of the first steps"),
    Key::read(&["linear_dt_max"], "0.1", "largest of the first steps"),
    Key::read(&["linear_dt_init_floor"], "1e-4", "bound of the first steps"),
    WHOLE_HEADS,
];

/// Norms of layers with a state, whose files have other names than the class has in memory, and saves for norms of attention's results.
const NORMS_OF_LAYERS: &[HubTensor] = &[
    HubTensor::vector("input_layernorm.weight", &["norm1"]).when(When::File("input_layernorm.weight")),
    HubTensor::vector("attention_layer_norm.weight", &["norm1"]),
    HubTensor::vector("post_attention_layernorm.weight", &["norm2"])
        .when(When::File("post_attention_layernorm.weight")),
    HubTensor::vector("feedforward_layer_norm.weight", &["norm2"]),
    HubTensor::vector("feedforward_layer_norm.weight", &["post_norm1"])
        .when(When::File("feedforward_layer_norm.weight")),
];

/// In files of whose convolutions a tensor has all.
const IN_ONE: When = When::File("linear_attn.conv1d.weight");

const DELTA_OF_OLMO: &[HubTensor] = &[
    HubTensor::linear("linear_attn.q_proj.weight", &["wmq"]),
    HubTensor::linear("linear_attn.k_proj.weight", &["wmk"]),
    HubTensor::linear("linear_attn.v_proj.weight", &["wmv"]),
    HubTensor::linear("linear_attn.a_proj.weight", &["wdecay"]),
    HubTensor::linear("linear_attn.b_proj.weight", &["wbeta"]),
    HubTensor::linear("linear_attn.g_proj.weight", &["wgate"]),
    HubTensor::vector("linear_attn.conv1d.weight", &["conv_mq", "conv_mk", "conv_mv"])
        .shaped(FileShape::Taps)
        .when(IN_ONE),
    HubTensor::vector("linear_attn.q_conv1d.weight", &["conv_mq"]).shaped(FileShape::Taps),
    HubTensor::vector("linear_attn.k_conv1d.weight", &["conv_mk"]).shaped(FileShape::Taps),
    HubTensor::vector("linear_attn.v_conv1d.weight", &["conv_mv"]).shaped(FileShape::Taps),
    HubTensor::vector("linear_attn.A_log", &["a_log"]),
    HubTensor::vector("linear_attn.dt_bias", &["dt_bias"]),
    HubTensor::vector("linear_attn.o_norm.weight", &["scan_norm"]),
    HubTensor::linear("linear_attn.o_proj.weight", &["wmo"]).of_inputs(3),
];

fn read(fields: &Fields) -> Result<ModelConfig, ConfigError> {
    let sizes = ModelSizes::read(fields)?;
    let size = fields.optional("head_dim")?.map_or_else(|| sizes.head(), Ok)?;
    let turns = fields.states("rope_theta")
        || fields.object("rope_parameters")?.is_some_and(|rope| rope.get("rope_theta").is_some_and(|it| !it.is_null()));
    let rotary =
        if turns { Rope::USUAL.read(fields, Head { size, is_latent: false })? } else { mixers::no_positions() };
    let kv_heads = fields.optional("num_key_value_heads")?.unwrap_or(sizes.heads);
    let base = Base::USUAL.read_with(fields, sizes, Heads { size, kv_heads, rotary })?;
    let base = biased(fields, base)?;
    let (layers, heads) = (base.layers, base.heads);
    let scanned = LayerTypes::USUAL
        .scanned(fields, layers, "layer_types", |layer| layer % 4 != 3 && !(layers < 4 && layer + 1 == layers))?;
    let mixer = Mixer::Delta(delta(fields, base.hidden, heads)?);
    Ok(LlamaConfig {
        activation: activation(fields, "hidden_act")?,
        norms: Norms::After,
        qk_norm: QkNorm::Whole,
        nope: if turns { LayerSet::None } else { LayerSet::First(layers) },
        scanned: scanned.map(|layers| Scanned { norms: Some(Norms::Before), ..Scanned::of(mixer, layers) }),
        ..base
    }
    .into())
}

fn delta(fields: &Fields, hidden: u64, heads: u64) -> Result<DeltaNet, ConfigError> {
    let keys = fields.optional("linear_num_key_heads")?.unwrap_or(heads);
    positive("linear_num_key_heads", keys)?;
    let values = fields.optional("linear_num_value_heads")?.unwrap_or(heads);
    let key = fields.optional("linear_key_head_dim")?.unwrap_or(3 * hidden / (4 * keys));
    let value = fields.optional("linear_value_head_dim")?.unwrap_or(2 * key);
    let [least, most, floor]: [f64; 3] =
        [fields.get("linear_dt_min")?, fields.get("linear_dt_max")?, fields.get("linear_dt_init_floor")?];
    Ok(DeltaNet {
        beta_scale: if fields.get("linear_allow_neg_eigval")? { 2.0 } else { 1.0 },
        first_steps: Some([least.max(floor), most]),
        // The class has this number for it, whatever other norms add.
        eps: Some(1e-5),
        ..DeltaNet::of_heads([keys, values], [key, value], fields.get("linear_conv_kernel_dim")?)?
    })
}
