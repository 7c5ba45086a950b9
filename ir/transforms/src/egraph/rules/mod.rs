//! Rules of algebra, which know no op that a recogniser makes.

mod algebra;
mod moves;

use super::rule::Rule;

/// All of them, in the order in which each round applies them.
pub(crate) fn all() -> Vec<Rule> {
    algebra::RULES.into_iter().chain(moves::RULES).collect()
}
