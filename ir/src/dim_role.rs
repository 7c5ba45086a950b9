//! The role of a named dim: what it counts, for whatever treats dims differently.
//!
//! A dim has a name for people and a role for passes. A text states the role behind the size, `tokens=8 batch`; a dim without
//! a stated role has that of its conventional name, if its name is one: `b=8` is the batch. `b=8 no_role` has none.

use serde::{Deserialize, Serialize};

/// The role of a dim.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DimRole {
    /// Sequences of a micro-batch.
    Batch,
    /// Tokens of a sequence, or of a slice of one.
    Sequence,
    /// Patches of the images of a sequence, or the rows that they become.
    Patches,
    /// Tokens of a routing group, or of the entire sequence of a model in slices.
    Tokens,
    /// Routing groups of a sequence.
    RoutingGroups,
    /// Key and value heads.
    KvHeads,
    /// Query heads of each key and value head.
    QueryHeads,
    /// Elements of the latent vector that keys and values come from.
    KvLatent,
    /// Elements of the part of a head that rotary positions turn, where it is a part of its own.
    RotaryHead,
    /// Groups of heads of a scan, each with its keys and queries.
    ScanGroups,
    /// Heads of each group of a scan.
    ScanHeads,
    /// Elements between the matrices of a feed-forward net.
    FeedForward,
    /// Elements between the matrices of the shared expert.
    SharedFeedForward,
    /// Elements between the matrices of a routed expert.
    ExpertFeedForward,
    /// Experts, as their parameters and tokens are stored.
    Experts,
    /// Experts, as the router scores them.
    RouterLogits,
    /// Tokens that an expert takes of a routing group.
    Capacity,
    /// Tokens of the vocabulary.
    Vocabulary,
}

/// Each role with its word in the text, and its conventional name.
const ROLES: [(DimRole, &str, &str); 18] = [
    (DimRole::Batch, "batch", "b"),
    (DimRole::Sequence, "sequence", "s"),
    (DimRole::Patches, "patches", "ps"),
    (DimRole::Tokens, "tokens", "t"),
    (DimRole::RoutingGroups, "routing_groups", "q"),
    (DimRole::KvHeads, "kv_heads", "g"),
    (DimRole::QueryHeads, "query_heads", "r"),
    (DimRole::KvLatent, "kv_latent", "lk"),
    (DimRole::RotaryHead, "rotary_head", "dr"),
    (DimRole::ScanGroups, "scan_groups", "gs"),
    (DimRole::ScanHeads, "scan_heads", "rs"),
    (DimRole::FeedForward, "feed_forward", "f"),
    (DimRole::SharedFeedForward, "shared_feed_forward", "u"),
    (DimRole::ExpertFeedForward, "expert_feed_forward", "m"),
    (DimRole::Experts, "experts", "e"),
    (DimRole::RouterLogits, "router_logits", "n"),
    (DimRole::Capacity, "capacity", "c"),
    (DimRole::Vocabulary, "vocabulary", "v"),
];

impl DimRole {
    /// The word for no role, behind a name that would have one.
    pub const NONE: &str = "no_role";

    /// The words of all roles.
    pub fn words() -> impl Iterator<Item = &'static str> {
        ROLES.iter().map(|(_, word, _)| *word)
    }

    /// Its word in the text.
    pub fn word(self) -> &'static str {
        ROLES.iter().find(|(role, ..)| *role == self).map_or("", |(_, word, _)| word)
    }

    /// The role of a word.
    pub fn from_word(word: &str) -> Option<DimRole> {
        ROLES.iter().find(|(_, known, _)| *known == word).map(|(role, ..)| *role)
    }

    /// The role of a dim of this name where none is stated.
    pub fn of_name(name: &str) -> Option<DimRole> {
        ROLES.iter().find(|(.., known)| *known == name).map(|(role, ..)| *role)
    }

    /// True if at most one dim of a model has the role: a micro-batch has one batch of sequences of one length.
    pub fn is_unique(self) -> bool {
        matches!(self, DimRole::Batch | DimRole::Sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_conventional_names_lead_back_to_the_role() {
        for (role, word, name) in ROLES {
            assert_eq!((DimRole::from_word(word), DimRole::of_name(name)), (Some(role), Some(role)));
            assert_eq!((role.word(), serde_json::to_value(role).unwrap()), (word, word.into()));
        }
        assert_eq!((DimRole::from_word(DimRole::NONE), DimRole::of_name("h")), (None, None));
    }
}
