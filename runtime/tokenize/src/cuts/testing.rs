//! Tokenizers of all kinds for tests, trained on drawn texts, and the texts.

use serde_json::{Value, json};
use tokenizers::models::TrainerWrapper;
use tokenizers::models::bpe::BpeTrainerBuilder;
use tokenizers::models::unigram::UnigramTrainerBuilder;
use tokenizers::models::wordpiece::WordPieceTrainerBuilder;
use tokenizers::{PreTokenizerWrapper, Tokenizer};

/// Patterns of models that many use: of Llama 3, of Qwen, of GPT-4o, of CLIP, and of BLOOM.
pub(crate) const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
pub(crate) const QWEN: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
pub(crate) const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
pub(crate) const CLIP: &str = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+";
pub(crate) const BLOOM: &str = r" ?[^(\s|[.,!?…。，、।۔،])]+";

/// The three patterns of DeepSeek V3.
pub(crate) const DEEPSEEK: [&str; 3] = [
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##,
];

/// The model that a tokenizer is trained for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ModelKind {
    Bpe,
    /// With bytes for characters that are no tokens.
    ByteFallback,
    Unigram,
    WordPiece,
}

/// A tokenizer to make.
pub(crate) struct Recipe {
    pub(crate) name: &'static str,
    pub(crate) kind: ModelKind,
    pub(crate) normalizer: Value,
    pub(crate) pre_tokenizer: Value,
    /// The pre-tokenizer while it is trained, if it is another one.
    pub(crate) trained_with: Option<Value>,
    pub(crate) added: Vec<Value>,
}

impl Recipe {
    pub(crate) fn new(name: &'static str, kind: ModelKind, normalizer: Value, pre_tokenizer: Value) -> Recipe {
        Recipe { name, kind, normalizer, pre_tokenizer, trained_with: None, added: Vec::new() }
    }

    pub(crate) fn trained_with(self, pre_tokenizer: Value) -> Recipe {
        Recipe { trained_with: Some(pre_tokenizer), ..self }
    }

    /// Adds a token with the flags that are named.
    pub(crate) fn added(mut self, content: &str, flags: &[&str]) -> Recipe {
        let mut token = json!({"id": 0, "content": content, "special": true});
        for flag in ["single_word", "lstrip", "rstrip", "normalized"] {
            token[flag] = flags.contains(&flag).into();
        }
        self.added.push(token);
        self
    }

    /// The tokenizer.
    pub(crate) fn make(&self) -> Tokenizer {
        let (unknown, first) = ("<unk>", json!({"<unk>": 0}));
        let model = match self.kind {
            ModelKind::Bpe | ModelKind::ByteFallback => {
                json!({"type": "BPE", "vocab": first, "merges": [], "unk_token": unknown})
            }
            ModelKind::Unigram => json!({"type": "Unigram", "vocab": [[unknown, 0.0]], "unk_id": 0}),
            ModelKind::WordPiece => json!({"type": "WordPiece", "vocab": first, "unk_token": unknown,
                "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}),
        };
        let file = json!({"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": self.normalizer,
            "pre_tokenizer": self.pre_tokenizer, "post_processor": null, "decoder": null, "model": model});
        let mut tokenizer = Tokenizer::from_bytes(file.to_string()).unwrap();
        if let Some(other) = &self.trained_with {
            let other: PreTokenizerWrapper = serde_json::from_value(other.clone()).unwrap();
            tokenizer.with_pre_tokenizer(Some(other));
        }
        let texts: Vec<String> = (0..6).map(|seed| text(1000 + seed, 2500)).collect();
        tokenizer.train(&mut self.trainer(), texts.iter()).unwrap();
        self.finish(&tokenizer)
    }

    fn trainer(&self) -> TrainerWrapper {
        let unknown = || vec![tokenizers::AddedToken::from("<unk>", true)];
        match self.kind {
            ModelKind::Bpe | ModelKind::ByteFallback => {
                let trainer =
                    BpeTrainerBuilder::default().show_progress(false).vocab_size(900).special_tokens(unknown());
                // Long texts of one word would join nearly all.
                trainer.limit_alphabet(300).max_token_length(Some(8)).build().into()
            }
            ModelKind::Unigram => UnigramTrainerBuilder::default()
                .show_progress(false)
                .vocab_size(500)
                .special_tokens(unknown())
                .unk_token(Some("<unk>".into()))
                .build()
                .unwrap()
                .into(),
            ModelKind::WordPiece => WordPieceTrainerBuilder::default()
                .show_progress(false)
                .vocab_size(600)
                .special_tokens(unknown())
                .continuing_subword_prefix("##".into())
                .build()
                .into(),
        }
    }

    /// The trained tokenizer with the parts of the recipe.
    fn finish(&self, trained: &Tokenizer) -> Tokenizer {
        let mut file: Value = serde_json::from_str(&trained.to_string(false).unwrap()).unwrap();
        file["pre_tokenizer"] = self.pre_tokenizer.clone();
        if self.kind == ModelKind::ByteFallback {
            let model = &mut file["model"];
            (model["byte_fallback"], model["fuse_unk"]) = (true.into(), true.into());
            let vocabulary = model["vocab"].as_object_mut().unwrap();
            for byte in 0..=255 {
                let id = vocabulary.len();
                vocabulary.insert(format!("<0x{byte:02X}>"), id.into());
            }
        }
        for (id, token) in (5000..).zip(&self.added) {
            let (mut token, list) = (token.clone(), file["added_tokens"].as_array_mut().unwrap());
            token["id"] = id.into();
            list.push(token);
        }
        Tokenizer::from_bytes(file.to_string()).unwrap()
    }
}

/// Parts of drawn texts: words, digits, spaces, what normalizers change, and added tokens.
const PARTS: &[&str] = &[
    "the",
    "The",
    "quick",
    "brown",
    "fox's",
    "don't",
    "WE'LL",
    "it'd",
    "Straße",
    "ſ",
    "naïve",
    "cafe\u{301}",
    "ﬁre",
    "e\u{301}\u{302}",
    "\u{301}",
    "Ωμέγα",
    "привет",
    "мир",
    "שלום",
    "العربية",
    "हिन्दी",
    "ไทย",
    "日本語",
    "中文字符",
    "カタカナ",
    "か\u{3099}",
    "한국어",
    "\u{1112}\u{1161}\u{11ab}",
    "각",
    "1",
    "12",
    "1234567",
    "3.14",
    "٣٤",
    "²",
    "½",
    "Ⅷ",
    "…",
    "—",
    "“x”",
    "。",
    "，",
    "、",
    "！",
    "!",
    "?!",
    "...",
    ",",
    ";",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    "\"",
    "'",
    "`",
    "#",
    "##",
    "//",
    "/",
    "\\",
    "<",
    ">",
    "=",
    "==",
    "->",
    "_",
    "__",
    "@",
    "$",
    "%",
    "&",
    "|",
    "~",
    "+",
    "-",
    "*",
    "😀",
    "👩\u{200d}👩\u{200d}👧",
    "🇩🇪🇫🇷",
    "e\u{300}",
    "\u{200b}",
    "\u{feff}",
    "\u{ad}",
    "\0",
    "\u{7f}",
    "\u{85}",
    "\u{a0}",
    "\u{3000}",
    "\u{2028}",
    "\u{2581}",
    "▁▁a",
    "\u{600}",
    "ậ",
    "İ",
    "ŉ",
    "Ǆ",
    "<unk>",
    "<mask>",
    "</s>",
    "<|end|>",
    "<tool>",
    "word",
    "Word",
    "aaaa",
    "abababab",
    "f(x)",
    "http://a.b/c?d=e&f",
    "foo_bar",
    "x1y2",
    "end",
    "mask",
];

const SPACES: &[&str] = &[
    " ",
    " ",
    " ",
    " ",
    " ",
    "",
    "",
    "  ",
    "   ",
    "\n",
    "\n\n",
    "\r\n",
    "\t",
    " \n ",
    "\u{a0}",
    "      ",
    "\n\n\n   ",
    " \t ",
];

/// Numbers that look drawn: SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end as u64) as usize
    }
}

/// A text of about this many bytes.
pub(crate) fn text(seed: u64, bytes: usize) -> String {
    let (mut draw, mut text) = (Draw(seed), String::new());
    while text.len() < bytes {
        match draw.below(60) {
            0 => text.push_str(&" ".repeat(1 + draw.below(100))),
            1 => text.push_str(&"1234567890".repeat(1 + draw.below(10))),
            2 => text.push_str(&"\n".repeat(1 + draw.below(20))),
            3 => text.extend(char::from_u32(draw.below(0x3100) as u32)),
            4 => text.extend((0..draw.below(30)).filter_map(|_| char::from_u32(0x20 + draw.below(0x5f) as u32))),
            _ => text.push_str(PARTS[draw.below(PARTS.len())]),
        }
        text.push_str(SPACES[draw.below(SPACES.len())]);
    }
    text
}
