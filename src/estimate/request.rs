//! What is asked for.

use super::recipe;
use crate::error::Error;
use cost::{Recipe, Stack};
use ir::catalogue::Code;
use serde::{Deserialize, Serialize};

/// A model under a layout on a cluster. What is left out has its default.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EstimateRequest {
    /// A preset, a `config.json`, or a `.ir` file.
    pub model: String,
    /// The hardware: a preset, or a TOML file.
    pub cluster: String,
    /// The software: a preset, or a TOML file.
    pub stack: String,
    /// Devices; left out: those of the layout.
    pub gpus: Option<u64>,
    /// Tokens per sequence.
    pub seq: u64,
    /// Sequences per step, all ranks together.
    pub global_batch: u64,
    /// Number formats: see [`recipe`](super::recipe()).
    pub precision: String,
    /// Type of accumulated gradients and of those on the wire; left out: as the stack has it.
    pub grad_dtype: Option<String>,
    /// Type of the master copy of parameters, or `none`; left out: f32 where parameters are not.
    pub master: Option<String>,
    /// `adamw`, `adamw-bf16`, `momentum` or `sgd`.
    pub optimizer: String,
    /// The layout in the grammar of [`crate::layout`].
    pub layout: String,
    /// Lengths of the documents of a sequence, in tokens: attention stays within each. Empty: one document.
    pub lengths: Vec<u64>,
}

impl Default for EstimateRequest {
    fn default() -> EstimateRequest {
        EstimateRequest {
            model: String::new(),
            cluster: "h100".into(),
            stack: "megatron-core-2025".into(),
            gpus: None,
            seq: 0,
            global_batch: 0,
            precision: "bf16".into(),
            grad_dtype: None,
            master: None,
            optimizer: "adamw".into(),
            layout: String::new(),
            lengths: Vec::new(),
        }
    }
}

impl EstimateRequest {
    /// Whether sizes that nothing can be said without are there.
    ///
    /// # Errors
    /// One of them is 0.
    pub(super) fn check(&self) -> Result<(), Error> {
        for (name, size) in [("seq", self.seq), ("global-batch", self.global_batch), ("gpus", self.gpus.unwrap_or(1))] {
            if size == 0 {
                return Err(Error::input(Code::BadOption, format!("`--{name}` is 0 or left out"))
                    .help(format!("--{name} takes a whole number of 1 or more")));
            }
        }
        match self.lengths.iter().find(|&&length| length == 0) {
            Some(_) => Err(Error::input(Code::BadOption, "`--lengths` has a document of 0 tokens")
                .help("give the tokens of each document, 1 or more")),
            None => Ok(()),
        }
    }

    /// The number formats on a stack.
    ///
    /// # Errors
    /// A name is not known.
    pub(super) fn recipe(&self, stack: &Stack) -> Result<Recipe, Error> {
        let (grad, master) = (self.grad_dtype.as_deref(), self.master.as_deref());
        recipe::recipe(&self.precision, grad, master, &self.optimizer, stack)
    }

    /// Pairs of query and key that are looked at under the documents' masks, relative to one causal document: a document of
    /// n tokens has n (n + 1) / 2 of them; longer ones are cut at the length of a sequence.
    pub(super) fn attention_share(&self) -> f64 {
        let pairs = |n: u64| n as f64 * (n as f64 + 1.0) / 2.0;
        let of = |&length: &u64| (length / self.seq) as f64 * pairs(self.seq) + pairs(length % self.seq);
        let tokens: u64 = self.lengths.iter().sum();
        if tokens == 0 {
            return 1.0;
        }
        self.lengths.iter().map(of).sum::<f64>() / (tokens as f64 / self.seq as f64 * pairs(self.seq))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_have_fewer_pairs_than_a_sequence() {
        let share = |lengths: &[u64]| {
            EstimateRequest { seq: 100, lengths: lengths.to_vec(), ..EstimateRequest::default() }.attention_share()
        };
        assert_eq!([share(&[]), share(&[100]), share(&[300])], [1.0, 1.0, 1.0]);
        // Two halves: 2 x 50 x 51 of 100 x 101.
        assert!((share(&[50, 50]) - 5100.0 / 10100.0).abs() < 1e-12);
        assert!(share(&[10; 10]) < share(&[50, 50]));
    }
}
