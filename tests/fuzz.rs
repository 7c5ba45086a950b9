//! Texts that someone spoiled, by bytes and by tokens, at every level: each is compiled or answered with a message of its
//! own. None panics, and none is taken for a fault of ours.
//!
//! A case is its number: `MESHWRIGHT_FIRST` and `MESHWRIGHT_CASES` choose which are run.

#[path = "equal/random.rs"]
mod random;

use ir::text::{File, parse, print};
use ir::verify::verify_planned;
use meshwright::compiling::{Compiling, compile_source};
use meshwright::error::Error;
use meshwright::model_source::ModelSource;
use random::Random;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

const CASES: u64 = 600;
const MESHES: [&str; 4] = ["", "dp=2", "tp=2", "dp=2,tp=2,pp=2,zero=1"];
/// What a slip of the hand, or malice, puts in the place of a token.
const NASTY: [&str; 16] = [
    "0",
    "1",
    "2",
    "3",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "-1",
    "1e400",
    "{tp}",
    "{pp}",
    "é",
    "\"",
    "%x",
    "//",
];

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn spoiled_texts_are_answered() {
    let texts = texts();
    let first = number("MESHWRIGHT_FIRST", 0);
    for case in first..first + number("MESHWRIGHT_CASES", CASES) {
        let mut random = Random::new(case);
        let mut text = random.pick(&texts).clone();
        for _ in 0..random.between(1, 3) {
            text = if random.chance(30) { spoil_bytes(&mut random, &text) } else { spoil_tokens(&mut random, &text) };
        }
        let mesh = *random.pick(&MESHES);
        match catch_unwind(AssertUnwindSafe(|| answered(&text, mesh))) {
            Ok(Ok(())) => {}
            Ok(Err(why)) => panic!("case {case} on `{mesh}`: {why}\n{text}"),
            Err(_) => panic!("case {case} on `{mesh}` panics\n{text}"),
        }
    }
}

/// The example, and what every pass makes of it on the largest mesh.
fn texts() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/example.ir");
    let source = ModelSource::open(&path.display().to_string()).unwrap();
    let order = Compiling { mesh: MESHES[3].into(), ..Compiling::default() };
    let mut texts = vec![std::fs::read_to_string(&path).unwrap()];
    compile_source(&source, &order, None, &mut |_, file| texts.push(print(file))).unwrap();
    texts
}

/// Everything that is done with a text ends with an answer or a message.
fn answered(text: &str, mesh: &str) -> Result<(), String> {
    let file = match parse(text) {
        Ok(file) => file,
        Err(found) => return message(&found.render("spoiled.ir", text)),
    };
    if let Err(found) = verify_planned(&file.model) {
        message(&found.render("spoiled.ir", text))?;
    }
    let source = ModelSource::Text { from: "spoiled.ir".into(), source: text.into(), file: Box::new(file) };
    let order = Compiling { mesh: mesh.into(), ..Compiling::default() };
    match compile_source(&source, &order, None, &mut |_, _| {}) {
        Ok(file) => reads_back(&file),
        Err(fault @ Error::Fault { .. }) => Err(fault.to_string()),
        Err(error) => message(&error.to_string()),
    }
}

fn reads_back(file: &File) -> Result<(), String> {
    let printed = print(file);
    let again = parse(&printed).map_err(|found| format!("its program does not read back: {found}"))?;
    if print(&again) == printed { Ok(()) } else { Err("its program reads back otherwise".into()) }
}

/// A message has a code and says what to do.
fn message(text: &str) -> Result<(), String> {
    if text.starts_with("error[MW") && text.contains("= help: ") { Ok(()) } else { Err(text.to_string()) }
}

/// A stretch of bytes is cut out, doubled, put elsewhere or written over.
fn spoil_bytes(random: &mut Random, text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    let (from, to) = (random.below(bytes.len()), random.below(bytes.len()));
    let end = (from + random.below(12)).min(bytes.len());
    let piece = bytes[from..end].to_vec();
    match random.below(3) {
        0 => drop(bytes.drain(from..end)),
        1 => drop(bytes.splice(to..to, piece)),
        _ => bytes[from] = random.below(256) as u8,
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A token is left out, doubled, exchanged with another of the text (mostly one of its kind), or becomes something nasty.
fn spoil_tokens(random: &mut Random, text: &str) -> String {
    let mut tokens = tokens(text);
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

/// Letters, digits and blanks stand in runs; all else by itself.
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
