//! A model in numbers alone, in the place of a name or a file.

use crate::error::Error;
use clap::Args;
use serde_json::{Map, Value};
use support::quantities::count_of;

/// The heading of these flags in the help.
const HEADING: &str = "A model in numbers, instead of MODEL";

/// Sizes of a model of Llama's kind: SwiGLU, RMSNorm, rotary positions, no biases.
#[derive(Args)]
pub(in crate::cli) struct ModelSizes {
    /// Number of layers
    #[arg(long, help_heading = HEADING, value_name = "N", value_parser = count_of)]
    layers: Option<u64>,
    /// Size of the residual stream
    #[arg(long, help_heading = HEADING, value_name = "SIZE", value_parser = count_of)]
    hidden: Option<u64>,
    /// Query heads
    #[arg(long, help_heading = HEADING, value_name = "N", value_parser = count_of)]
    heads: Option<u64>,
    /// Key and value heads [default: the number of query heads]
    #[arg(long, help_heading = HEADING, value_name = "N", value_parser = count_of)]
    kv_heads: Option<u64>,
    /// Size of a head [default: --hidden over --heads]
    #[arg(long, help_heading = HEADING, value_name = "SIZE", value_parser = count_of)]
    head_dim: Option<u64>,
    /// Size between the matrices of the feed-forward net, or of an expert
    #[arg(long, help_heading = HEADING, value_name = "SIZE", value_parser = count_of)]
    ffn: Option<u64>,
    /// Size of the vocabulary
    #[arg(long, help_heading = HEADING, value_name = "SIZE", value_parser = count_of)]
    vocab: Option<u64>,
    /// Experts of each layer [default: none]
    #[arg(long, help_heading = HEADING, value_name = "N", value_parser = count_of)]
    experts: Option<u64>,
    /// Experts that a token takes [default: 2]
    #[arg(long, help_heading = HEADING, value_name = "N", value_parser = count_of)]
    experts_per_token: Option<u64>,
    /// Tokens that attention sees, the last ones [default: all]
    #[arg(long, help_heading = HEADING, value_name = "TOKENS", value_parser = count_of)]
    window: Option<u64>,
}

impl ModelSizes {
    /// Returns whether there is any size.
    pub(in crate::cli) fn is_given(&self) -> bool {
        let sizes = [self.layers, self.hidden, self.heads, self.kv_heads, self.head_dim, self.ffn, self.vocab];
        let others = [self.experts, self.experts_per_token, self.window];
        sizes.iter().chain(&others).any(Option::is_some)
    }

    /// The text of a `config.json` with these sizes; `None` if no size is given.
    ///
    /// # Errors
    /// A size is missing, or there is a MODEL too.
    pub(in crate::cli) fn config(&self, model: Option<&str>) -> Result<Option<String>, Error> {
        let needed = [
            ("layers", "num_hidden_layers", self.layers),
            ("hidden", "hidden_size", self.hidden),
            ("heads", "num_attention_heads", self.heads),
            ("ffn", "intermediate_size", self.ffn),
            ("vocab", "vocab_size", self.vocab),
        ];
        let optional = [
            ("kv-heads", "num_key_value_heads", self.kv_heads),
            ("head-dim", "head_dim", self.head_dim),
            ("experts", "num_local_experts", self.experts),
            ("experts-per-token", "num_experts_per_tok", self.experts_per_token),
            ("window", "sliding_window", self.window),
        ];
        let given = needed.iter().chain(&optional).find(|(.., size)| size.is_some());
        let Some((flag, ..)) = given else { return Ok(None) };
        if let Some(model) = model {
            let why = format!("`--{flag}` is a size of a model in numbers, but there is the MODEL `{model}` too");
            return Err(Error::Usage(why));
        }
        let missing: Vec<String> =
            needed.iter().filter(|(.., size)| size.is_none()).map(|(flag, ..)| format!("--{flag}")).collect();
        if !missing.is_empty() {
            return Err(Error::Usage(format!("a model in numbers also needs {}", missing.join(", "))));
        }
        if self.experts.is_none() && self.experts_per_token.is_some() {
            return Err(Error::Usage("`--experts-per-token` needs `--experts`".into()));
        }
        let family = match (self.experts, self.window) {
            (Some(_), _) => "mixtral",
            (None, Some(_)) => "mistral",
            (None, None) => "llama",
        };
        let mut config = Map::from_iter([("model_type".to_string(), Value::from(family))]);
        // These classes have other numbers of key heads by default.
        config.insert("num_key_value_heads".into(), self.heads.into());
        let sizes =
            needed.iter().chain(&optional).filter_map(|(_, key, size)| Some(((*key).to_string(), (*size)?.into())));
        config.extend(sizes);
        Ok(Some(Value::Object(config).to_string()))
    }
}
