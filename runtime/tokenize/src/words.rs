//! Pre-tokenizers, which part a text into the words that a model gets, as far as they treat the two sides of a place apart.

use super::joints::{Joints, has};
use super::normal::Neighbours;
use regex_syntax::hir::{Class, ClassUnicode, HirKind};
use std::sync::LazyLock;
use tokenizers::pre_tokenizers::split::SplitPattern;
use tokenizers::{PreTokenizerWrapper, SplitDelimiterBehavior as Behaviour};

/// The pattern of a byte-level pre-tokenizer, which the library has fixed.
const BYTE_LEVEL: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// The pattern of the pre-tokenizer `Whitespace`, which the library has fixed.
const WHITESPACE: &str = r"\w+|[^\w\s]+";

/// Punctuation beyond ASCII.
static PUNCTUATION: LazyLock<ClassUnicode> =
    LazyLock::new(|| match regex_syntax::parse(r"\p{P}").map(|hir| hir.into_kind()) {
        Ok(HirKind::Class(Class::Unicode(class))) => class,
        _ => ClassUnicode::empty(),
    });

/// A place in a text, as a part of a tokenizer leaves it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WordPlace {
    /// A word ends there, whatever is around it.
    Parted,
    /// Its sides are treated apart, and a word may go on over it. Its neighbours may have become others.
    Open(Neighbours),
    /// A word may depend on both sides.
    Joined,
}

/// A set of characters.
#[derive(Clone, Copy, Debug)]
enum Set {
    Whitespace,
    Numeric,
    Punctuation,
    One(char),
}

impl Set {
    fn has(self, char: char) -> bool {
        match self {
            Set::Whitespace => char.is_whitespace(),
            Set::Numeric => char.is_numeric(),
            Set::Punctuation => char.is_ascii_punctuation() || has(&PUNCTUATION, char),
            Set::One(own) => char == own,
        }
    }
}

/// A pre-tokenizer.
#[derive(Debug)]
enum Rule {
    /// It parts a text at the matches of a pattern.
    Pattern { joints: Joints, behaviour: Behaviour, is_inverted: bool },
    /// It parts a text at single characters.
    Chars { set: Set, behaviour: Behaviour },
    /// It replaces spaces by a mark.
    Marks(char),
    /// It replaces characters by their bytes.
    Bytes,
    /// It counts characters, or looks back.
    Other,
}

impl Rule {
    fn place(&self, (x, y): Neighbours) -> WordPlace {
        let (is_x, is_y, behaviour) = match self {
            Rule::Pattern { joints, .. } if joints.joins(x, y) => return WordPlace::Joined,
            // Matches become what is between them, so that merges go the other way.
            Rule::Pattern { joints, behaviour: Behaviour::Isolated | Behaviour::Removed, .. } => {
                (joints.takes(x), joints.takes(y), Behaviour::Isolated)
            }
            Rule::Pattern { is_inverted: true, .. } => return WordPlace::Open((x, y)),
            // Which of two neighbours is in no match is not known.
            Rule::Pattern { behaviour: Behaviour::Contiguous, .. } => return WordPlace::Open((x, y)),
            Rule::Pattern { joints, behaviour, .. } => (joints.takes(x), joints.takes(y), *behaviour),
            Rule::Chars { set, behaviour } => (set.has(x), set.has(y), *behaviour),
            Rule::Marks(mark) => {
                return WordPlace::Open([x, y].map(|char| if char == ' ' { *mark } else { char }).into());
            }
            Rule::Bytes => return WordPlace::Open((byte_char(last_byte(x)), byte_char(first_byte(y)))),
            Rule::Other => return WordPlace::Joined,
        };
        let is_parted = match behaviour {
            Behaviour::Isolated | Behaviour::Removed => is_x || is_y,
            Behaviour::MergedWithPrevious => is_x,
            Behaviour::MergedWithNext => is_y,
            Behaviour::Contiguous => is_x != is_y,
        };
        if is_parted { WordPlace::Parted } else { WordPlace::Open((x, y)) }
    }
}

/// The pre-tokenizers of a tokenizer, in their order.
#[derive(Debug)]
pub(crate) struct Words(Vec<Rule>);

impl Words {
    /// Reads pre-tokenizers.
    pub(crate) fn of(pre_tokenizer: Option<&PreTokenizerWrapper>) -> Words {
        let mut rules = Vec::new();
        pre_tokenizer.into_iter().for_each(|pre_tokenizer| add(pre_tokenizer, &mut rules));
        Words(rules)
    }

    /// The place between two characters, as it becomes.
    pub(crate) fn place(&self, neighbours: Neighbours) -> WordPlace {
        self.0.iter().fold(WordPlace::Open(neighbours), |place, rule| match place {
            WordPlace::Open(neighbours) => rule.place(neighbours),
            // What comes later gets both sides as words of their own.
            WordPlace::Parted | WordPlace::Joined => place,
        })
    }
}

fn add(pre_tokenizer: &PreTokenizerWrapper, rules: &mut Vec<Rule>) {
    let fixed = |pattern: &str, is_inverted: bool, behaviour: Behaviour| match Joints::of(pattern) {
        Some(joints) => Rule::Pattern { joints, behaviour, is_inverted },
        None => Rule::Other,
    };
    match pre_tokenizer {
        PreTokenizerWrapper::Sequence(all) => all.as_ref().iter().for_each(|one| add(one, rules)),
        PreTokenizerWrapper::BertPreTokenizer(_) => rules.extend([
            Rule::Chars { set: Set::Whitespace, behaviour: Behaviour::Removed },
            Rule::Chars { set: Set::Punctuation, behaviour: Behaviour::Isolated },
        ]),
        PreTokenizerWrapper::ByteLevel(bytes) => {
            rules.extend(bytes.use_regex.then(|| fixed(BYTE_LEVEL, false, Behaviour::Isolated)));
            rules.push(Rule::Bytes);
        }
        PreTokenizerWrapper::Delimiter(split) => {
            rules.push(Rule::Chars { set: Set::One(split.delimiter), behaviour: Behaviour::Removed });
        }
        PreTokenizerWrapper::Metaspace(marks) => {
            let mark = marks.get_replacement();
            rules.push(Rule::Marks(mark));
            let split = Rule::Chars { set: Set::One(mark), behaviour: Behaviour::MergedWithNext };
            rules.extend(marks.get_split().then_some(split));
        }
        PreTokenizerWrapper::Whitespace(_) => rules.push(fixed(WHITESPACE, true, Behaviour::Removed)),
        PreTokenizerWrapper::WhitespaceSplit(_) => {
            rules.push(Rule::Chars { set: Set::Whitespace, behaviour: Behaviour::Removed });
        }
        PreTokenizerWrapper::Split(split) => {
            let joints = match &split.pattern {
                SplitPattern::String(text) => Joints::literal(text),
                SplitPattern::Regex(pattern) => Joints::of(pattern),
            };
            let (behaviour, is_inverted) = (split.behavior, split.invert);
            rules.push(joints.map_or(Rule::Other, |joints| Rule::Pattern { joints, behaviour, is_inverted }));
        }
        PreTokenizerWrapper::Punctuation(split) => {
            rules.push(Rule::Chars { set: Set::Punctuation, behaviour: split.behavior });
        }
        PreTokenizerWrapper::Digits(digits) => {
            let behaviour = if digits.individual_digits { Behaviour::Isolated } else { Behaviour::Contiguous };
            rules.push(Rule::Chars { set: Set::Numeric, behaviour });
        }
        PreTokenizerWrapper::UnicodeScripts(_) | PreTokenizerWrapper::FixedLength(_) => rules.push(Rule::Other),
    }
}

fn last_byte(char: char) -> u8 {
    char.encode_utf8(&mut [0; 4]).bytes().next_back().unwrap_or(0)
}

fn first_byte(char: char) -> u8 {
    char.encode_utf8(&mut [0; 4]).bytes().next().unwrap_or(0)
}

/// The character that stands for a byte: itself if it is printed, or the next one from 256 on (`bytes_to_unicode` of GPT-2).
fn byte_char(byte: u8) -> char {
    let is_printed = |byte: &u8| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let before = (0..byte).filter(|byte| !is_printed(byte)).count() as u32;
    let code = if is_printed(&byte) { u32::from(byte) } else { 256 + before };
    char::from_u32(code).unwrap_or('\0')
}
