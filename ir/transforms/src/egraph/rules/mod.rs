//! Rules of algebra, which know no op that a recogniser makes.

pub(crate) mod algebra;
mod contractions;
pub(crate) mod moves;
mod reductions;
mod slices;
#[cfg(test)]
mod tests;

use super::rule::Rule;

/// All of them, in the order in which each round applies them.
pub(crate) fn all() -> Vec<Rule> {
    let mut rules = Vec::new();
    rules.extend(algebra::RULES);
    rules.extend(moves::RULES);
    rules.extend(contractions::RULES);
    rules.extend(reductions::RULES);
    rules.extend(slices::RULES);
    rules
}
