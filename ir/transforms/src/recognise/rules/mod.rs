//! Recognisers: the op that a term spells equals the term.

mod activations;
mod attention;
mod embedding;
mod losses;
mod mask;
pub(super) mod moved;
mod norms;
mod polynomial;
mod rope;

use crate::egraph::rule::Rule;
use crate::egraph::rules;

/// Rules of algebra and recognisers, in the order in which each round applies them.
pub(super) fn all() -> Vec<Rule> {
    let mut rules = rules::all();
    rules.extend(activations::RULES);
    rules.extend(norms::RULES);
    rules.extend(losses::RULES);
    rules.extend(attention::RULES);
    rules.extend(rope::RULES);
    rules.extend(embedding::RULES);
    rules.extend(moved::RULES);
    rules
}
