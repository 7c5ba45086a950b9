//! The model of a tokenizer, where a word goes on over a place.

use std::collections::HashSet;
use std::sync::OnceLock;
use tokenizers::models::bpe::BPE;
use tokenizers::{Model, ModelWrapper, Tokenizer};

/// Neighbours within the tokens of a model that merges: each merge makes a token, so that none goes over a place whose characters are
/// neighbours in no token, and each side is merged as if it were alone.
#[derive(Debug, Default)]
pub(crate) struct Merges(OnceLock<HashSet<(char, char)>>);

impl Merges {
    /// True if a word of the tokenizer's model may have a token with both characters, or depend on both sides of the place between them.
    pub(crate) fn join(&self, tokenizer: &Tokenizer, x: char, y: char) -> bool {
        let ModelWrapper::BPE(model) = tokenizer.get_model() else { return true };
        let is_known = |char: char| model.token_to_id(char.encode_utf8(&mut [0; 4])).is_some();
        // Characters that are no tokens become bytes, or are joined to an unknown token.
        !merges_alone(model) || !is_known(x) || !is_known(y) || self.pairs(model).contains(&(x, y))
    }

    fn pairs(&self, model: &BPE) -> &HashSet<(char, char)> {
        self.0.get_or_init(|| {
            let mut pairs = HashSet::new();
            for token in model.get_vocab().into_keys() {
                pairs.extend(token.chars().zip(token.chars().skip(1)));
            }
            pairs
        })
    }
}

/// True if a model looks at nothing but neighbours: it marks no ends of words, takes no whole word, and draws no merges.
fn merges_alone(model: &BPE) -> bool {
    model.continuing_subword_prefix.is_none()
        && model.end_of_word_suffix.is_none()
        && model.dropout.is_none()
        && !model.ignore_merges
}
