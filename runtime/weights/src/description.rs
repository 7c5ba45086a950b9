//! The `config.json` of a folder: what it says of the model, and the rest of its keys.

use ir::models::{
    ConfigError, Encoder, Family, HubTensor, ModelConfig, PATCHES, Pairs, Whole, encoder_of, family_of, read_config,
    text_part,
};
use serde_json::{Map, Value};

/// Keys of a serialised configuration that weights do not depend on: first numbers, dropout, jitter, and how tokens are routed in
/// training.
const FREE: [&str; 8] = [
    "deviation",
    "attention_dropout",
    "residual_dropout",
    "embedding_dropout",
    "capacity",
    "group",
    "loss_factor",
    "jitter",
];

/// The names of the number of layers that predict further tokens.
const FURTHER: [&str; 2] = ["num_nextn_predict_layers", "num_mtp_layers"];

/// A `config.json`.
#[derive(Clone, Debug)]
pub struct Description {
    /// Its family.
    pub family: &'static Family,
    /// The encoder of images, and the model that it is a part of, if the model has one.
    pub encoder: Option<(&'static Encoder, &'static Whole)>,
    /// All its keys; those of the text model, if the file's encoder is left out.
    pub raw: Map<String, Value>,
    /// Keys that mean nothing to any family.
    pub unknown: Vec<String>,
    /// The model reads images, too: its text model has a prefix in the names of tensors, and the others are left out.
    pub is_composite: bool,
    /// The tensors of a layer of the text model that such files have in another form than those of the family.
    pub inner: &'static [HubTensor],
    /// The model that they describe.
    pub config: ModelConfig,
}

impl Description {
    /// Reads a `config.json`.
    ///
    /// # Errors
    /// It is none of a known family.
    pub fn read(text: &str) -> Result<Description, ConfigError> {
        let (config, unknown) = read_config(text)?;
        let raw: Map<String, Value> = serde_json::from_str(text).map_err(|why| ConfigError::Json(why.to_string()))?;
        let part = text_part(&raw)?.map(|(part, _)| part);
        let family = family_of(part.as_ref().unwrap_or(&raw))?;
        let (is_composite, encoder) = (part.is_some(), encoder_of(&raw)?);
        let named = raw.get("model_type").and_then(Value::as_str);
        let whole = family.wholes.iter().find(|whole| Some(whole.model_type) == named);
        let inner = whole.map_or(&[][..], |whole| whole.inner);
        let raw = if encoder.is_some() { raw } else { part.unwrap_or(raw) };
        let encoder = encoder.map(|read| (read.encoder, read.whole));
        Ok(Description { family, encoder, raw, unknown, is_composite, inner, config })
    }

    /// The same of keys that have been parsed.
    ///
    /// # Errors
    /// They are none of a known family.
    pub fn of(raw: Map<String, Value>) -> Result<Description, ConfigError> {
        Description::read(&Value::Object(raw).to_string())
    }

    /// The same with an encoder of images, for sequences of as many patches as another model's have; without, if that has none.
    ///
    /// # Errors
    /// The encoder is not known.
    pub(crate) fn with_images_of(text: &str, model: &ModelConfig) -> Result<Description, ConfigError> {
        let Some(vision) = model.vision() else { return Description::read(text) };
        let mut raw: Map<String, Value> =
            serde_json::from_str(text).map_err(|why| ConfigError::Json(why.to_string()))?;
        raw.insert(PATCHES.to_string(), vision.patches.into());
        Description::of(raw)
    }

    /// The head's matrix is the embedding table.
    pub fn is_tied(&self) -> bool {
        match &self.config {
            ModelConfig::Llama(config) => config.tied,
            ModelConfig::Gpt2(config) => config.tied,
        }
    }

    /// The number of layers.
    pub fn layers(&self) -> u32 {
        match &self.config {
            ModelConfig::Llama(config) => config.layers,
            ModelConfig::Gpt2(config) => config.layers,
        }
    }

    /// Layers in files behind those of the model, which predict further tokens. Where the model leaves them out, files may have them.
    pub(crate) fn further_layers(&self) -> u32 {
        let stated = FURTHER.iter().find_map(|key| self.raw.get(*key)?.as_u64());
        stated.map_or(self.family.weights.further, |stated| stated as u32)
    }

    /// Layers of the model that predict further tokens.
    pub(crate) fn predicted_further(&self) -> u32 {
        if let ModelConfig::Llama(config) = &self.config { config.mtp.map_or(0, |mtp| mtp.depth) } else { 0 }
    }

    /// The same without these layers.
    pub(crate) fn without_further(mut self) -> Description {
        if let ModelConfig::Llama(config) = &mut self.config {
            config.mtp = None;
        }
        leave_out_further(&mut self.raw);
        self
    }

    /// True if files have the two elements that a rotary position turns next to each other, and not half of the part apart.
    pub(crate) fn is_interleaved(&self) -> bool {
        match self.family.weights.pairs {
            Pairs::Apart => false,
            Pairs::Adjacent => true,
            Pairs::Stated(key) => self.raw.get(key).and_then(Value::as_bool).unwrap_or(true),
        }
    }

    /// The first elements of a head, which positions turn; none: all. Indexers turn as many as their latent attention does.
    pub(crate) fn turned(&self) -> Option<u64> {
        let ModelConfig::Llama(config) = &self.config else { return None };
        let latent = config.latent.as_ref().filter(|_| config.indexer.is_some());
        latent.map(|latent| latent.turned).or(config.rotation.turned)
    }

    /// The class of `transformers` that computes the model.
    pub fn class(&self) -> &'static str {
        self.encoder.map_or(self.family.class, |(_, whole)| whole.class)
    }

    /// An option that only this program has, so that no class computes the same.
    pub fn addition(&self) -> Option<&'static str> {
        match &self.config {
            ModelConfig::Llama(config) if !config.gated && self.family.keys.row("mlp_gate").is_some() => {
                Some("mlp_gate")
            }
            ModelConfig::Gpt2(config) if config.post_norm => Some("post_norm"),
            _ => None,
        }
    }
}

/// Makes the keys of a `config.json` say that no layers predict further tokens.
pub fn leave_out_further(keys: &mut Map<String, Value>) {
    for key in FURTHER.iter().filter(|key| keys.contains_key(**key)).collect::<Vec<_>>() {
        keys.insert((*key).to_string(), 0.into());
    }
}

/// Writes defaults out, and takes sizes that nothing has from others: two configurations of the same model become equal.
pub(crate) fn normalise(model: &mut Value, seq: u64) {
    if let Some(positions) = model.get_mut("positions").filter(|positions| positions.is_null()) {
        *positions = seq.into();
    }
    let head = model.get("head").and_then(Value::as_u64);
    if let (Some(size), Some(head)) = (model.get_mut("score_size"), head)
        && size.is_null()
    {
        *size = (head as f64).into();
    }
    let experts = model.get("experts").filter(|experts| experts.get("dense") == Some(&"None".into()));
    let size = experts.and_then(|experts| experts.get("feed_forward")).cloned();
    if let (Some(own), Some(size)) = (model.get_mut("feed_forward"), size) {
        *own = size;
    }
}

/// Keys of two configurations of sequences of `seq` tokens that differ, apart from those that weights do not depend on: key,
/// ours, theirs.
pub fn differences(own: &ModelConfig, theirs: &ModelConfig, seq: u64) -> Vec<(String, String, String)> {
    if own.family() != theirs.family() {
        return vec![("family".into(), own.family().into(), theirs.family().into())];
    }
    let [own, theirs] = [own, theirs].map(|config| {
        let mut value = serde_json::to_value(config).unwrap_or_default();
        normalise(&mut value, seq);
        value
    });
    let mut found = Vec::new();
    compare("", &own, &theirs, &mut found);
    found
}

fn compare(key: &str, own: &Value, theirs: &Value, found: &mut Vec<(String, String, String)>) {
    if own == theirs || FREE.iter().any(|free| key == *free || key.ends_with(&format!(".{free}"))) {
        return;
    }
    if let (Value::Object(own), Value::Object(theirs)) = (own, theirs)
        && own.keys().eq(theirs.keys())
    {
        for (name, value) in own {
            let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
            compare(&key, value, &theirs[name], found);
        }
        return;
    }
    found.extend([(key.to_string(), plain(own), plain(theirs))]);
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => "none".to_string(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_leave_out_what_weights_do_not_depend_on() {
        let read = |more: &str| {
            let text = r#"{"model_type": "mixtral", "vocab_size": 32, "hidden_size": 8, "intermediate_size": 8,
                "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "num_local_experts": 4"#;
            Description::read(&format!("{text}{more}}}")).unwrap().config
        };
        let own = read("");
        assert_eq!(differences(&own, &read(r#", "initializer_range": 0.5, "capacity_factor": 1.5"#), 8), []);
        let key = |key: &str, own: &str, theirs: &str| (key.to_string(), own.to_string(), theirs.to_string());
        let theirs = read(r#", "rope_theta": 500.0, "num_experts_per_tok": 1"#);
        let found = differences(&own, &theirs, 8);
        assert_eq!(found, [key("experts.chosen", "2", "1"), key("rotation.theta", "1000000.0", "500.0")]);
        let gpt2 = Description::read(r#"{"model_type": "gpt2", "n_embd": 8, "n_head": 2}"#).unwrap();
        assert!(differences(&own, &gpt2.config, 8)[0].2.contains("gpt2"));
        assert_eq!((gpt2.class(), gpt2.is_tied(), gpt2.layers()), ("GPT2LMHeadModel", true, 12));
    }
}
