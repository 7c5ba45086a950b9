//! Windows of attention, and the layers that have them.

use crate::models::error::{ConfigError, unsupported};
use crate::models::fields::Fields;
use crate::models::layer_set::{LayerSet, Window};

/// The name of a layer that sees all tokens.
const FULL: &str = "full_attention";

/// How layers that do not see all tokens are limited.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::models) enum Limit {
    /// A window slides with the query.
    Sliding,
    /// Sequences are cut into chunks.
    Chunked,
}

impl Limit {
    /// The type of such layers in `layer_types`.
    fn kind(self) -> &'static str {
        match self {
            Limit::Sliding => "sliding_attention",
            Limit::Chunked => "chunked_attention",
        }
    }

    /// The key of the tokens that such layers see.
    fn key(self) -> &'static str {
        match self {
            Limit::Sliding => "sliding_window",
            Limit::Chunked => "attention_chunk_size",
        }
    }

    fn name(self) -> String {
        let article = if self == Limit::Chunked { "an" } else { "a" };
        format!("{article} `{}`", self.key())
    }
}

/// The layers of a model of which some may be limited.
pub(in crate::models) struct Limited {
    /// The number of all layers.
    pub(in crate::models) layers: u32,
    /// How they are limited.
    pub(in crate::models) limit: Limit,
    /// The tokens that they see; none: all.
    pub(in crate::models) tokens: Option<u64>,
    /// Limited layers differ in more than what they see, so that they need a limit even where no `layer_types` are stated.
    pub(in crate::models) is_needed: bool,
}

impl Limited {
    /// A window that slides.
    pub(in crate::models) fn sliding(fields: &Fields, layers: u32) -> Result<Limited, ConfigError> {
        let tokens = fields.optional("sliding_window")?;
        Ok(Limited { layers, limit: Limit::Sliding, tokens, is_needed: false })
    }

    /// The window, where `is_full` says which layers see all tokens unless `layer_types` does.
    pub(in crate::models) fn read(
        self,
        fields: &Fields,
        is_full: impl Fn(u32) -> bool,
    ) -> Result<Option<Window>, ConfigError> {
        let stated = types(fields, self.layers, self.limit)?;
        match &stated {
            Some(types) => self.window(true, |layer| types[layer as usize] == FULL),
            None => self.window(self.is_needed, is_full),
        }
    }

    fn window(&self, is_needed: bool, is_full: impl Fn(u32) -> bool) -> Result<Option<Window>, ConfigError> {
        let Some(tokens) = self.tokens else {
            if is_needed && (0..self.layers).any(|layer| !is_full(layer)) {
                let why = format!("{} needs {}", self.limit.kind(), self.limit.name());
                return Err(unsupported("layer_types", why));
            }
            return Ok(None);
        };
        match LayerSet::of(self.layers, is_full) {
            Some(full) if full.count(self.layers) == self.layers => Ok(None),
            Some(full) => Ok(Some(Window { tokens, chunked: self.limit == Limit::Chunked, full })),
            None => Err(unsupported("layer_types", "of more than 128 layers they must follow a rule".to_string())),
        }
    }
}

/// The window of all layers of a class that has no types of layers.
pub(in crate::models) fn of_all(fields: &Fields) -> Result<Option<Window>, ConfigError> {
    let tokens: Option<u64> = fields.optional("sliding_window")?;
    one_type(fields)?;
    Ok(tokens.map(Window::of_all))
}

/// Checks that a file states no other type of layers than the one that sees all tokens, which the class ignores.
pub(in crate::models) fn one_type(fields: &Fields) -> Result<(), ConfigError> {
    let types: Option<Vec<String>> = fields.optional("layer_types")?;
    check(&types.unwrap_or_default(), &[FULL])
}

/// The types of the layers' attention, where they are stated.
fn types(fields: &Fields, layers: u32, limit: Limit) -> Result<Option<Vec<String>>, ConfigError> {
    let Some(types): Option<Vec<String>> = fields.optional("layer_types")? else { return Ok(None) };
    if types.len() != layers as usize {
        let why = format!("`layer_types` has {} types, but `num_hidden_layers` is {layers}", types.len());
        return Err(ConfigError::Contradiction(why));
    }
    check(&types, &[FULL, limit.kind()])?;
    Ok(Some(types))
}

/// Checks that types of layers are known ones.
fn check(types: &[String], known: &[&str]) -> Result<(), ConfigError> {
    match types.iter().find(|kind| !known.contains(&kind.as_str())) {
        Some(kind) => {
            let why = format!("{kind} is not supported, only {}", known.join(" and "));
            Err(unsupported("layer_types", why))
        }
        None => Ok(()),
    }
}
