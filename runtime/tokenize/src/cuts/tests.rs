//! Pieces of documents have the ids of the whole, for tokenizers of all kinds.

use super::testing::{BLOOM, CLIP, DEEPSEEK, LLAMA3, ModelKind, O200K, QWEN, Recipe, text};
use super::*;
use serde_json::{Value, json};

fn sequence(key: &str, parts: &[Value]) -> Value {
    json!({"type": "Sequence", key: parts})
}

fn split(pattern: &str, behavior: &str) -> Value {
    json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": behavior, "invert": false})
}

fn bytes(add_prefix_space: bool, use_regex: bool) -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": true, "use_regex": use_regex})
}

fn words(pattern: &str) -> Value {
    sequence("pretokenizers", &[split(pattern, "Isolated"), bytes(false, false)])
}

fn metaspace(scheme: &str, split: bool) -> Value {
    json!({"type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": scheme, "split": split})
}

fn replace(pattern: Value, content: &str) -> Value {
    json!({"type": "Replace", "pattern": pattern, "content": content})
}

/// Normalizers of Llama 2.
fn prefixed() -> Value {
    sequence(
        "normalizers",
        &[json!({"type": "Prepend", "prepend": "\u{2581}"}), replace(json!({"String": " "}), "\u{2581}")],
    )
}

fn byte_level() -> Vec<Recipe> {
    let (none, nfc) = (Value::Null, json!({"type": "NFC"}));
    let split_all: Vec<Value> =
        DEEPSEEK.iter().map(|pattern| split(pattern, "Isolated")).chain([bytes(false, false)]).collect();
    let star = sequence("pretokenizers", &[json!({"type": "Digits", "individual_digits": true}), bytes(false, true)]);
    let falcon = [
        json!({"type": "Punctuation", "behavior": "Contiguous"}),
        bytes(false, true),
        json!({"type": "Digits", "individual_digits": false}),
        split("[0-9][0-9][0-9]", "Isolated"),
    ];
    let lower =
        sequence("normalizers", &[nfc.clone(), replace(json!({"Regex": r"\s+"}), " "), json!({"type": "Lowercase"})]);
    let clip = sequence(
        "pretokenizers",
        &[
            json!({"type": "Split", "pattern": {"Regex": CLIP}, "behavior": "Removed", "invert": true}),
            bytes(false, true),
        ],
    );
    vec![
        Recipe::new("gpt2", ModelKind::Bpe, none.clone(), bytes(false, true)).added("<|end|>", &[]),
        Recipe::new("roberta", ModelKind::Bpe, none.clone(), bytes(true, true))
            .added("<mask>", &["lstrip"])
            .added("</s>", &["rstrip"]),
        Recipe::new("neox", ModelKind::Bpe, nfc.clone(), bytes(false, true))
            .added("  ", &["normalized"])
            .added("    ", &["normalized"]),
        Recipe::new("llama3", ModelKind::Bpe, none.clone(), words(LLAMA3)).added("<|end|>", &[]),
        Recipe::new("qwen", ModelKind::Bpe, nfc, words(QWEN)).added("<tool>", &["normalized"]),
        Recipe::new("o200k", ModelKind::Bpe, none.clone(), words(O200K)).added("word", &["single_word"]),
        Recipe::new("deepseek", ModelKind::Bpe, none.clone(), sequence("pretokenizers", &split_all)),
        Recipe::new("bloom", ModelKind::Bpe, none.clone(), words(BLOOM)),
        Recipe::new("starcoder", ModelKind::Bpe, none.clone(), star),
        Recipe::new("falcon", ModelKind::Bpe, none, sequence("pretokenizers", &falcon)),
        Recipe::new("clip", ModelKind::Bpe, lower, clip).added("<|end|>", &["normalized", "rstrip"]),
    ]
}

fn marked() -> Vec<Recipe> {
    let none = Value::Null;
    let trained = || metaspace("never", true);
    let spaces = replace(json!({"String": " "}), "\u{2581}");
    let nfkc = sequence(
        "normalizers",
        &[
            json!({"type": "NFKC"}),
            json!({"type": "Strip", "strip_left": false, "strip_right": true}),
            replace(json!({"Regex": " {2,}"}), "\u{2581}"),
        ],
    );
    let t5 = sequence("pretokenizers", &[json!({"type": "WhitespaceSplit"}), metaspace("always", true)]);
    let strip = sequence(
        "normalizers",
        &[
            json!({"type": "Strip", "strip_left": true, "strip_right": true}),
            json!({"type": "NFKD"}),
            json!({"type": "StripAccents"}),
            json!({"type": "Lowercase"}),
        ],
    );
    vec![
        Recipe::new("llama2", ModelKind::ByteFallback, prefixed(), none.clone())
            .trained_with(trained())
            .added("</s>", &["normalized"]),
        Recipe::new("llama2, joined", ModelKind::ByteFallback, prefixed(), none.clone()),
        Recipe::new("mistral", ModelKind::ByteFallback, none.clone(), metaspace("first", false))
            .trained_with(trained())
            .added("<tool>", &[]),
        Recipe::new("gemma", ModelKind::ByteFallback, spaces, split(" ", "MergedWithPrevious"))
            .trained_with(trained())
            .added("\n\n", &[]),
        Recipe::new("xlm", ModelKind::Unigram, nfkc, metaspace("always", true)).added("<mask>", &["lstrip"]),
        Recipe::new("t5", ModelKind::Unigram, json!({"type": "Nmt"}), t5),
        Recipe::new("albert", ModelKind::Unigram, strip, metaspace("always", true))
            .added("<mask>", &["lstrip", "rstrip", "normalized"]),
    ]
}

fn others() -> Vec<Recipe> {
    let bert = |lowercase: bool| {
        json!({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
        "strip_accents": null, "lowercase": lowercase})
    };
    let puncts = |behavior: &str| {
        sequence(
            "pretokenizers",
            &[json!({"type": "Whitespace"}), json!({"type": "Punctuation", "behavior": behavior})],
        )
    };
    let next = split(r"[A-Z]\w+", "MergedWithNext");
    vec![
        Recipe::new("bert", ModelKind::WordPiece, bert(true), json!({"type": "BertPreTokenizer"})).added("<mask>", &[]),
        Recipe::new("cased bert", ModelKind::WordPiece, bert(false), json!({"type": "BertPreTokenizer"})),
        Recipe::new("whitespace", ModelKind::WordPiece, json!({"type": "NFD"}), puncts("MergedWithPrevious")),
        Recipe::new(
            "merged",
            ModelKind::WordPiece,
            Value::Null,
            sequence(
                "pretokenizers",
                &[
                    next,
                    split("[,.]", "MergedWithPrevious"),
                    split(r"\d", "Contiguous"),
                    json!({"type": "CharDelimiterSplit", "delimiter": "|"}),
                ],
            ),
        ),
    ]
}

fn ids(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    tokenizer.encode_fast(text, false).unwrap().get_ids().to_vec()
}

/// The ids of a text that is cut at every place, and the number of pieces.
fn cut_everywhere(cuts: &Cuts, tokenizer: &Tokenizer, text: &str) -> (Vec<u32>, usize) {
    let (mut all, mut begin, mut pieces) = (Vec::new(), 0, 0);
    while begin < text.len() {
        let end = cuts.find(tokenizer, text, begin + 1, true).unwrap_or(text.len());
        let before = before(text, begin);
        let skipped = if before.is_empty() { 0 } else { ids(tokenizer, before).len() };
        all.extend(&ids(tokenizer, &text[begin - before.len()..end])[skipped..]);
        (begin, pieces) = (end, pieces + 1);
    }
    (all, pieces)
}

/// Compares pieces with the whole, and the reasons for each cut with the library. Gives the bytes of a piece.
fn compare(recipe: &Recipe, seeds: std::ops::Range<u64>) -> usize {
    let tokenizer = recipe.make();
    let cuts = Cuts::of(&tokenizer).expect("all parts are understood");
    let (mut bytes, mut pieces) = (0, 0);
    for seed in seeds {
        let text = text(seed, 200 + 997 * (seed as usize % 4));
        for (at, y) in text.char_indices().skip(1) {
            let x = text[..at].chars().next_back().unwrap();
            let behind = &text[at..text.ceil_char_boundary((at + AROUND).min(text.len()))];
            let before = before(&text, at);
            if is_known(x) && is_anchor(y) && cuts.are_apart(&tokenizer, before, behind, (x, y)) {
                assert!(is_apart(&tokenizer, before, behind), "{}, seed {seed}: {before:?} | {behind:?}", recipe.name);
            }
        }
        let (found, own) = cut_everywhere(&cuts, &tokenizer, &text);
        assert!(found == ids(&tokenizer, &text), "{}, seed {seed}: other ids of {text:?}", recipe.name);
        (bytes, pieces) = (bytes + text.len(), pieces + own);
    }
    bytes / pieces.max(1)
}

/// The first seed and the number of texts for each tokenizer.
fn seeds() -> std::ops::Range<u64> {
    let number =
        |name: &str, default: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let first = number("MESHWRIGHT_FIRST", 0);
    first..first + number("MESHWRIGHT_CASES", 5)
}

#[test]
fn pieces_of_byte_level_tokenizers_have_the_ids_of_the_whole() {
    for recipe in byte_level() {
        let bytes = compare(&recipe, seeds());
        assert!(bytes < 60, "{}: pieces have {bytes} bytes", recipe.name);
    }
}

#[test]
fn pieces_of_tokenizers_that_mark_spaces_have_the_ids_of_the_whole() {
    for recipe in marked() {
        let bytes = compare(&recipe, seeds());
        let most = if recipe.name == "llama2, joined" { usize::MAX } else { 120 };
        assert!(bytes < most, "{}: pieces have {bytes} bytes", recipe.name);
    }
}

#[test]
fn pieces_of_other_tokenizers_have_the_ids_of_the_whole() {
    for recipe in others() {
        let bytes = compare(&recipe, seeds());
        assert!(bytes < 150, "{}: pieces have {bytes} bytes", recipe.name);
    }
}

#[test]
fn a_tokenizer_with_a_part_that_looks_back_cuts_nothing() {
    let back = Recipe::new("back", ModelKind::Bpe, Value::Null, words(r"(?<=a)b|\w+|\W"));
    let fixed = Recipe::new("fixed", ModelKind::Bpe, Value::Null, json!({"type": "FixedLength", "length": 7}));
    for recipe in [back, fixed] {
        let tokenizer = recipe.make();
        let cuts = Cuts::of(&tokenizer).unwrap();
        assert_eq!(cuts.find(&tokenizer, &"some words ".repeat(20), 1, true), None, "{}", recipe.name);
    }
    let whole = replace(json!({"Regex": r"\s+$"}), "");
    assert!(Cuts::of(&Recipe::new("ends", ModelKind::Bpe, whole, words(LLAMA3)).make()).is_none());
}
