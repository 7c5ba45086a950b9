//! The families of models that are read: one file each, and its row in [`FAMILIES`].

mod afmoe;
mod apertus;
mod apertus1p5_text;
mod arcee;
mod aria_text;
mod axk1;
mod axk2;
mod bailing_hybrid;
mod beam;
mod bert;
mod biogpt;
mod bitnet;
mod bloom;
mod codegen;
mod cohere;
mod cohere2;
mod cohere2_moe;
mod cohere_compass_text;
mod ctrl;
mod cwm;
mod dbrx;
mod decoders;
mod deepseek;
mod diffllama;
mod dots1;
mod emu3_text;
mod ernie4_5;
mod ernie4_5_moe;
mod exaone;
mod exaone4;
mod exaone_moe;
mod falcon;
mod flex_olmo;
mod flint;
mod gemma;
mod gemma1;
mod glm;
mod glm4;
mod glm4_moe;
mod glm4_moe_lite;
mod glm_moe_dsa;
mod gpt2;
mod gpt_bigcode;
mod gpt_neo;
mod gpt_neox;
mod gpt_neox_japanese;
mod gpt_oss;
mod gptj;
mod granite;
mod granite_swa;
mod granitemoe;
mod granitemoe_swa;
mod granitemoeshared;
mod helium;
mod hunyuan_v1_dense;
mod hunyuan_v1_moe;
mod hy_v3;
mod hyperclovax;
mod internlm3;
mod iquestcoder;
mod jais2;
mod kimi_linear;
mod kolibri1;
mod laguna;
mod lara_mini;
mod lfm;
mod llama;
mod llama4_text;
mod mamba;
mod mellum;
mod mimo_v2_flash;
mod minicpm3;
mod minimax;
mod minimax_m2;
mod minimax_m3_vl_text;
mod ministral;
mod ministral3;
mod missing;
mod mistral;
mod mixtral;
mod moshi;
mod mpt;
mod nanochat;
mod nemotron;
mod olmo;
mod olmo2;
mod olmo3;
mod olmo_hybrid;
mod olmoe;
mod openai_gpt;
mod opt;
mod persimmon;
mod phi;
mod phi3;
mod pixtral;
mod prelude;
mod presets;
mod qwen;
mod sarvam_mla;
mod sarvam_moe;
mod seed_oss;
mod smollm3;
mod solar_open;
mod stablelm;
mod starcoder2;
mod tiny;
mod vaultgemma;
mod xglm;
mod xlm;
mod youtu;

use bert::{
    bert_generation, bert_lm, big_bird, camembert, data2vec_text, electra, ernie, megatron_bert, modernbert_decoder,
    rembert, roberta, roberta_prelayernorm, roformer, xlm_roberta, xlm_roberta_xl,
};
use decoders::{
    bart, bigbird_pegasus, blenderbot, blenderbot_small, marian, mbart, mvp, pegasus, plbart, trocr, whisper,
};
use deepseek::{deepseek_v2, deepseek_v3, deepseek_v32};
use gemma::{gemma2, gemma3_text, gemma4_text, gemma4_unified_text, recurrent_gemma};
use lfm::{lfm2, lfm2_moe, lfm3};
use mamba::{bamba, falcon_h1, falcon_mamba, granitemoehybrid, jamba, mamba1, mamba2, nemotron_h};
use qwen::{qwen2, qwen2_moe, qwen3, qwen3_5, qwen3_5_moe, qwen3_moe, qwen3_next};

pub use prelude::{Composite, Family, Preset, Tied};
pub use presets::{preset, presets};

use super::error::ConfigError;
use super::keys::{Keys, ROPE};
use super::vision::Encoder;

/// All families that are read.
pub const FAMILIES: &[Family] = &[
    llama::FAMILY,
    mistral::FAMILY,
    qwen2::FAMILY,
    qwen3::FAMILY,
    mixtral::FAMILY,
    qwen2_moe::FAMILY,
    qwen3_moe::FAMILY,
    qwen3_next::FAMILY,
    qwen3_5::FAMILY,
    qwen3_5_moe::FAMILY,
    deepseek_v2::FAMILY,
    deepseek_v3::FAMILY,
    deepseek_v32::FAMILY,
    gemma2::FAMILY,
    gemma3_text::FAMILY,
    gemma4_unified_text::FAMILY,
    gemma4_text::FAMILY,
    olmo2::FAMILY,
    olmo3::FAMILY,
    phi3::FAMILY,
    gpt_neox::FAMILY,
    glm4_moe::FAMILY,
    gpt_oss::FAMILY,
    smollm3::FAMILY,
    arcee::FAMILY,
    llama4_text::FAMILY,
    granite::FAMILY,
    granitemoe::FAMILY,
    granitemoeshared::FAMILY,
    granite_swa::FAMILY,
    granitemoe_swa::FAMILY,
    hyperclovax::FAMILY,
    minimax_m2::FAMILY,
    dots1::FAMILY,
    cohere::FAMILY,
    cohere2::FAMILY,
    olmo::FAMILY,
    olmoe::FAMILY,
    flex_olmo::FAMILY,
    exaone::FAMILY,
    exaone4::FAMILY,
    exaone_moe::FAMILY,
    glm::FAMILY,
    glm4::FAMILY,
    glm4_moe_lite::FAMILY,
    glm_moe_dsa::FAMILY,
    ernie4_5::FAMILY,
    ernie4_5_moe::FAMILY,
    internlm3::FAMILY,
    iquestcoder::FAMILY,
    seed_oss::FAMILY,
    helium::FAMILY,
    ministral::FAMILY,
    cwm::FAMILY,
    jais2::FAMILY,
    nemotron::FAMILY,
    gemma1::FAMILY,
    vaultgemma::FAMILY,
    starcoder2::FAMILY,
    phi::FAMILY,
    stablelm::FAMILY,
    apertus::FAMILY,
    afmoe::FAMILY,
    solar_open::FAMILY,
    hy_v3::FAMILY,
    hunyuan_v1_dense::FAMILY,
    hunyuan_v1_moe::FAMILY,
    youtu::FAMILY,
    persimmon::FAMILY,
    gptj::FAMILY,
    gpt_bigcode::FAMILY,
    gpt_neo::FAMILY,
    opt::FAMILY,
    biogpt::FAMILY,
    apertus1p5_text::FAMILY,
    aria_text::FAMILY,
    minicpm3::FAMILY,
    flint::FAMILY,
    kolibri1::FAMILY,
    mellum::FAMILY,
    nanochat::FAMILY,
    bitnet::FAMILY,
    ministral3::FAMILY,
    falcon::FAMILY,
    bert_lm::FAMILY,
    big_bird::FAMILY,
    bert_generation::FAMILY,
    roberta::FAMILY,
    camembert::FAMILY,
    data2vec_text::FAMILY,
    xlm_roberta::FAMILY,
    electra::FAMILY,
    ernie::FAMILY,
    megatron_bert::FAMILY,
    rembert::FAMILY,
    roberta_prelayernorm::FAMILY,
    xlm_roberta_xl::FAMILY,
    bart::FAMILY,
    plbart::FAMILY,
    mbart::FAMILY,
    mvp::FAMILY,
    blenderbot::FAMILY,
    blenderbot_small::FAMILY,
    bigbird_pegasus::FAMILY,
    trocr::FAMILY,
    whisper::FAMILY,
    sarvam_mla::FAMILY,
    sarvam_moe::FAMILY,
    axk1::FAMILY,
    axk2::FAMILY,
    cohere2_moe::FAMILY,
    codegen::FAMILY,
    openai_gpt::FAMILY,
    ctrl::FAMILY,
    xglm::FAMILY,
    emu3_text::FAMILY,
    bloom::FAMILY,
    mpt::FAMILY,
    gpt_neox_japanese::FAMILY,
    laguna::FAMILY,
    modernbert_decoder::FAMILY,
    pegasus::FAMILY,
    marian::FAMILY,
    roformer::FAMILY,
    dbrx::FAMILY,
    moshi::FAMILY,
    mimo_v2_flash::FAMILY,
    xlm::FAMILY,
    cohere_compass_text::FAMILY,
    bamba::FAMILY,
    granitemoehybrid::FAMILY,
    mamba2::FAMILY,
    mamba1::FAMILY,
    falcon_mamba::FAMILY,
    jamba::FAMILY,
    nemotron_h::FAMILY,
    olmo_hybrid::FAMILY,
    kimi_linear::FAMILY,
    falcon_h1::FAMILY,
    lfm2::FAMILY,
    lfm2_moe::FAMILY,
    lfm3::FAMILY,
    lara_mini::FAMILY,
    bailing_hybrid::FAMILY,
    beam::FAMILY,
    minimax::FAMILY,
    minimax_m3_vl_text::FAMILY,
    recurrent_gemma::FAMILY,
    diffllama::FAMILY,
    gpt2::FAMILY,
];

/// All encoders of images that are read.
pub const ENCODERS: &[Encoder] = &[pixtral::ENCODER, qwen::qwen3_vl::ENCODER, qwen::qwen3_vl::ENCODER_OF_EXPERTS];

/// The family of a `model_type`.
///
/// # Errors
/// There is none.
pub fn family(model_type: &str) -> Result<&'static Family, ConfigError> {
    let found = FAMILIES.iter().find(|family| family.model_type == model_type);
    found.ok_or_else(|| {
        let mut wholes: Vec<&str> =
            FAMILIES.iter().flat_map(|family| family.wholes).map(|whole| whole.model_type).collect();
        wholes.sort_unstable();
        wholes.dedup();
        let known = FAMILIES.iter().map(|family| family.model_type).chain(wholes).collect();
        ConfigError::UnknownFamily { found: model_type.to_string(), missing: missing::part(model_type), known }
    })
}

/// The family whose models a class of `transformers` computes.
pub(super) fn family_of_class(class: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|family| family.class == class)
}

/// The keys of all families, and those of an object of rotary positions.
pub(super) fn all_keys() -> Vec<Keys> {
    FAMILIES.iter().map(|family| family.keys).chain([ROPE]).collect()
}
