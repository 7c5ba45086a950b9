//! A model as the file of another framework states it.

use ir::models::{Activation, LlamaConfig, ModelConfig, QkNorm, Sinks, presets};
use std::collections::BTreeMap;

/// A model as the file of another framework states it, by Megatron-LM's names of flags.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StatedModel {
    sizes: BTreeMap<&'static str, u64>,
    special: Vec<SpecialFlag>,
    looks: Option<Looks>,
}

/// Properties of a model that tell presets of equal sizes apart. Kinds of norms are not among them: their kernels take as long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Looks {
    /// Size of the vocabulary, padded or not, if it is stated.
    pub(crate) vocabulary: Option<u64>,
    pub(crate) tied: bool,
    pub(crate) gated: bool,
    pub(crate) rotation: bool,
    /// Norms of queries and keys.
    pub(crate) qk_norm: bool,
}

impl Looks {
    fn are_of(self, model: &ModelConfig) -> bool {
        let own = Looks::of(model);
        // Vocabularies are padded to a multiple of 128 times tp.
        let mut sizes = self.vocabulary.into_iter().zip(own.vocabulary);
        sizes.all(|(stated, size)| (size..=size + 1024).contains(&stated))
            && Looks { vocabulary: own.vocabulary, ..self } == own
    }

    fn of(model: &ModelConfig) -> Looks {
        match model {
            ModelConfig::Llama(config) => Looks {
                vocabulary: Some(config.vocabulary),
                tied: config.tied,
                gated: config.gated,
                rotation: config.learned.is_none() && !config.alibi && config.waves.is_none(),
                // Latent attention always norms its latents, which the flag of norms states.
                qk_norm: config.qk_norm != QkNorm::None || config.latent.is_some(),
            },
            ModelConfig::Gpt2(config) => Looks {
                vocabulary: Some(config.vocabulary),
                tied: config.tied,
                gated: false,
                rotation: false,
                qk_norm: false,
            },
        }
    }
}

/// A flag with the part of a model that it states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SpecialFlag {
    pub(crate) flag: &'static str,
    pub(crate) part: Special,
}

/// A part of a model that a flag states, and that no configuration made from flags has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Special {
    /// A window of attention.
    Window,
    /// A gate whose operands are bounded.
    Clamp,
    /// An activation that is the square of a rectified number.
    SquaredRelu,
    /// A sink of each head.
    Sinks,
}

impl Special {
    /// True if a model has the part.
    fn is_in(self, model: &ModelConfig) -> bool {
        let ModelConfig::Llama(config) = model else { return false };
        match self {
            Special::Window => config.window.is_some(),
            Special::Clamp => config.experts.as_ref().is_some_and(|experts| experts.clamp.is_some()),
            Special::SquaredRelu => config.activation == Activation::ReluSquared,
            Special::Sinks => config.sinks != Sinks::None,
        }
    }
}

impl StatedModel {
    pub(crate) fn put(&mut self, flag: &'static str, size: u64) {
        self.sizes.insert(flag, size);
    }

    pub(crate) fn look(&mut self, looks: Looks) {
        self.looks = Some(looks);
    }

    pub(crate) fn state(&mut self, special: SpecialFlag) {
        self.special.push(special);
    }

    /// A size, if it is stated.
    pub(crate) fn of(&self, flag: &str) -> Option<u64> {
        self.sizes.get(flag).copied()
    }

    /// True if a part is stated that no configuration made from flags has.
    pub(crate) fn is_special(&self) -> bool {
        !self.special.is_empty()
    }

    /// True if the file states nothing of a model.
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty() && self.special.is_empty()
    }

    /// The first preset that has all sizes and parts that are stated; `None` if too few are stated.
    pub fn preset(&self) -> Option<&'static str> {
        if ["num-layers", "hidden-size", "num-attention-heads"].iter().any(|size| self.of(size).is_none()) {
            return None;
        }
        presets().find(|preset| self.is_of(&preset.config)).map(|preset| preset.name)
    }

    /// True if a model has all that is stated, and no experts where none are.
    fn is_of(&self, model: &ModelConfig) -> bool {
        let has_experts = of_model(model, "num-experts").unwrap_or(0) > 0;
        self.looks.is_none_or(|looks| looks.are_of(model))
            && (self.of("num-experts").is_some() || !has_experts)
            && self.contradictions(model).is_empty()
            && self.missing_in(model).is_empty()
    }

    /// Sizes that contradict a model, as sentences.
    pub fn contradictions(&self, model: &ModelConfig) -> Vec<String> {
        let wrong = self.sizes.iter().filter_map(|(flag, &stated)| {
            let own = of_model(model, flag)?;
            (own != stated).then(|| format!("--{flag} {stated}: MODEL has {own}"))
        });
        wrong.collect()
    }

    /// Parts that the file states and a model does not have, as warnings.
    pub fn missing_in(&self, model: &ModelConfig) -> Vec<String> {
        let missing = self.special.iter().filter(|special| !special.part.is_in(model));
        missing.map(|special| format!("not modelled: --{} states what MODEL does not have", special.flag)).collect()
    }
}

/// A size of a model by its flag; `None` if the model has no such size.
fn of_model(model: &ModelConfig, flag: &str) -> Option<u64> {
    match model {
        ModelConfig::Llama(config) => of_llama(config, flag),
        ModelConfig::Gpt2(config) => match flag {
            "num-layers" => Some(u64::from(config.layers)),
            "hidden-size" => Some(config.hidden),
            "ffn-hidden-size" => Some(config.feed_forward),
            "num-attention-heads" => Some(config.heads),
            _ => None,
        },
    }
}

fn of_llama(config: &LlamaConfig, flag: &str) -> Option<u64> {
    let (experts, latent) = (config.experts.as_ref(), config.latent.as_ref());
    match flag {
        "num-layers" => Some(u64::from(config.layers)),
        "hidden-size" => Some(config.hidden),
        "num-attention-heads" => Some(config.heads),
        "num-query-groups" if latent.is_none() => Some(config.kv_heads),
        "kv-channels" if latent.is_none() => Some(config.head),
        "ffn-hidden-size" if experts.is_none() => Some(config.feed_forward),
        "num-experts" => Some(experts.map_or(0, |experts| experts.experts)),
        "moe-router-topk" => experts.map(|experts| experts.chosen),
        "moe-ffn-hidden-size" => experts.map(|experts| experts.feed_forward),
        "moe-shared-expert-intermediate-size" => experts.map(|experts| experts.shared),
        "q-lora-rank" => latent.and_then(|latent| latent.query_rank),
        "kv-lora-rank" => latent.map(|latent| latent.key_rank),
        "qk-head-dim" => latent.map(|latent| latent.plain),
        "qk-pos-emb-head-dim" => latent.map(|latent| latent.turned),
        "v-head-dim" => latent.map(|latent| latent.value),
        _ => None,
    }
}
