//! Slips of the hand and malice: what becomes of a file before a command reads it.

use crate::random::Random;

/// Bytes that a spoiled file has at most, so that repeated doubling ends.
const LONGEST: usize = 1 << 20;

/// Words that replace others.
const NASTY: [&str; 34] = [
    "0",
    "1",
    "2",
    "3",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "-1",
    "-0.0",
    "0.1",
    "1e400",
    "1e308",
    "5e-324",
    "nan",
    "NaN",
    "inf",
    "null",
    "true",
    "[]",
    "{}",
    "\"\"",
    "{tp}",
    "{pp}",
    "é",
    "\u{feff}",
    "\0",
    "\"",
    "%x",
    "//",
    "../",
    "\n",
];

/// The bytes with one thing wrong; `others` are texts of the same kind to take from.
pub(crate) fn spoil(random: &mut Random, bytes: &[u8], others: &[String]) -> Vec<u8> {
    let mut spoiled = match random.below(10) {
        0 => spoil_bytes(random, bytes),
        1 => spoil_lines(random, bytes),
        2..5 => spoil_number(random, &String::from_utf8_lossy(bytes)).into_bytes(),
        5 if !others.is_empty() => spliced(random, bytes, others),
        6 if random.chance(20) => hostile(random),
        _ => spoil_tokens(random, &String::from_utf8_lossy(bytes)).into_bytes(),
    };
    spoiled.truncate(LONGEST);
    spoiled
}

/// A stretch of bytes is left out, doubled, written over, or all after it is.
fn spoil_bytes(random: &mut Random, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    if bytes.is_empty() {
        return vec![random.below(256) as u8];
    }
    let (from, to) = (random.below(bytes.len()), random.below(bytes.len()));
    let end = (from + random.below(12)).min(bytes.len());
    let piece = bytes[from..end].to_vec();
    match random.below(5) {
        0 => drop(bytes.drain(from..end)),
        1 => drop(bytes.splice(to..to, piece)),
        2 => bytes.truncate(from),
        3 => bytes[from] ^= 1 << random.below(8),
        _ => bytes[from] = random.below(256) as u8,
    }
    bytes
}

/// A line is left out, doubled, moved, or becomes the only one.
fn spoil_lines(random: &mut Random, bytes: &[u8]) -> Vec<u8> {
    let mut lines: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
    if lines.is_empty() {
        return Vec::new();
    }
    let (at, other) = (random.below(lines.len()), random.below(lines.len()));
    match random.below(4) {
        0 => drop(lines.remove(at)),
        1 => lines.insert(other, lines[at]),
        2 => lines.swap(at, other),
        _ => lines = vec![lines[at]],
    }
    lines.concat()
}

/// The beginning of the text and the end of another.
fn spliced(random: &mut Random, bytes: &[u8], others: &[String]) -> Vec<u8> {
    let other = random.pick(others);
    let (cut, from) = (random.below(bytes.len() + 1), random.below(other.len() + 1));
    [&bytes[..cut], &other.as_bytes()[from..]].concat()
}

/// A text that is nothing but deep, long or empty.
fn hostile(random: &mut Random) -> Vec<u8> {
    let length = 1 << random.between(0, 20);
    match random.below(6) {
        0 => Vec::new(),
        1 => vec![0; length],
        2 => (0..length).map(|_| random.below(256) as u8).collect(),
        _ => random
            .pick(&["[", "{", "(", "{\"a\":", "\n", "x\n", "9", "- ", "a.b.", "\"a\": 1, "])
            .repeat(length)
            .into_bytes(),
    }
}

/// A whole number becomes another one that could be there.
fn spoil_number(random: &mut Random, text: &str) -> String {
    let mut tokens: Vec<String> = tokens(text).into_iter().map(String::from).collect();
    let is_number = |token: &String| token.starts_with(|c: char| c.is_ascii_digit());
    let numbers: Vec<usize> = (0..tokens.len()).filter(|&at| is_number(&tokens[at])).collect();
    if numbers.is_empty() {
        return text.into();
    }
    let at = *random.pick(&numbers);
    let number: u128 = tokens[at].parse().unwrap_or(0);
    tokens[at] = match random.below(8) {
        0 => number + 1,
        1 => number.saturating_sub(1),
        2 => number * 2,
        3 => number / 2,
        4 => number.saturating_mul(1000),
        _ => u128::from(random.between(0, 9)),
    }
    .to_string();
    tokens.concat()
}

/// A token is left out, doubled, exchanged with another of the text (mostly one of its kind), or becomes something nasty.
fn spoil_tokens(random: &mut Random, text: &str) -> String {
    let mut tokens = tokens(text);
    if tokens.is_empty() {
        return (*random.pick(&NASTY)).into();
    }
    let at = random.below(tokens.len());
    let kind = tokens[at].chars().next().map(kind);
    let alike = |token: &str| token.chars().next().map(self::kind) == kind;
    let kin: Vec<usize> = (0..tokens.len()).filter(|&other| alike(tokens[other])).collect();
    let other = if random.chance(70) { *random.pick(&kin) } else { random.below(tokens.len()) };
    match random.below(4) {
        0 => drop(tokens.remove(at)),
        1 => tokens.insert(at, tokens[other]),
        2 => tokens.swap(at, other),
        _ => tokens[at] = *random.pick(&NASTY),
    }
    tokens.concat()
}

/// Letters, digits and blanks form runs; other characters are single.
fn kind(c: char) -> u8 {
    match c {
        '0'..='9' => 1,
        _ if c.is_alphabetic() || c == '_' => 2,
        ' ' => 3,
        _ => 0,
    }
}

/// Runs of characters of a kind, and single ones.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let same = |c: char| kind(first) > 0 && kind(c) == kind(first);
        let end = rest.find(|c| !same(c)).unwrap_or(rest.len()).max(first.len_utf8());
        let (token, after) = rest.split_at(end);
        tokens.push(token);
        rest = after;
    }
    tokens
}
