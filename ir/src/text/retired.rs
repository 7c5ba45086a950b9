//! Keywords of older versions of the text form, for messages. The parser rejects them.

/// Each keyword with its replacement.
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

/// A help that names the replacement of a retired keyword.
pub(super) fn renamed(word: &str) -> Option<String> {
    let (_, now) = RETIRED.iter().find(|(retired, _)| *retired == word)?;
    Some(format!("`{word}` is now `{now}`"))
}
