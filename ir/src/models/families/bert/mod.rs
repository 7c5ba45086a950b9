//! BERT and its likes: norms of sums or of what branches read, learned positions, kinds of tokens, and a layer in front of the head.

pub(super) mod bert_generation;
pub(super) mod bert_lm;
pub(super) mod big_bird;
pub(super) mod camembert;
pub(super) mod data2vec_text;
pub(super) mod electra;
pub(super) mod ernie;
pub(super) mod megatron_bert;
pub(super) mod modernbert_decoder;
mod parts;
pub(super) mod rembert;
pub(super) mod roberta;
pub(super) mod roberta_prelayernorm;
pub(super) mod roformer;
pub(super) mod xlm_roberta;
pub(super) mod xlm_roberta_xl;

use super::prelude;
