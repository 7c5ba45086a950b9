//! Words of texts that an older version wrote, for messages: no text with one of them is read.

/// Each with the word that took its place.
const RETIRED: [(&str, &str); 8] = [
    ("keep", "save"),
    ("kept", "saved"),
    ("crossing", "saved_for_w"),
    ("holds", "params"),
    ("seed", "loss_grad"),
    ("exact", "indivisible"),
    ("shard", "all_slice"),
    ("owe", "to_partial"),
];

/// A help that names the word in the place of a retired one.
pub(super) fn renamed(word: &str) -> Option<String> {
    let (_, now) = RETIRED.iter().find(|(retired, _)| *retired == word)?;
    Some(format!("`{word}` is now `{now}`"))
}
