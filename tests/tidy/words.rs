//! Words: documents, texts and public names use the terms of `docs/glossary.md`, and no public type name is that of many modules.

use super::{Source, documents, none_of, root, sources};
use std::collections::BTreeMap;
use std::fs;

/// Words that documents, help texts and messages must not have, and the terms in their place.
const RETIRED: &[(&str, &str)] = &[
    ("debt", "partial"),
    ("debts", "partial sums"),
    ("owe", "to be partial over"),
    ("owes", "is partial over"),
    ("owed", "unreduced"),
    ("owing", "partial over"),
    ("paid", "reduced"),
    ("pays", "reduces, or costs"),
    ("made again", "recomputed"),
    ("computed again", "recomputed"),
    ("made anew", "recomputed"),
    ("anew", "again"),
    ("not kept", "recomputed"),
    ("kept", "saved"),
    ("whole on", "replicated on"),
    ("cut over", "sharded over"),
    ("cut into", "split into, or partitioned into"),
    ("stored flat", "a flat shard"),
    ("yardstick", "baseline"),
    ("fault of ours", "internal error"),
    ("plainly", "naive"),
    ("way out", "fix"),
    ("ways out", "fixes"),
    ("clash", "conflict"),
    ("clashes", "conflicts"),
    ("runners-up", "alternatives"),
    ("wish", "what-if"),
    ("wishes", "what-ifs"),
    ("verb", "subcommand"),
    ("verbs", "subcommands"),
    ("so many", "a number with a name"),
    ("as many", "the number of"),
    ("of which", "a sentence of its own"),
    ("told", "stated, reported"),
    ("tells", "states, reports"),
    ("beside", "next to, besides, during, or compared with"),
    ("room for", "capacity for, or a memory budget"),
    ("no room", "over the memory budget"),
    ("hosted", "offloaded"),
    ("fullest", "peak-memory"),
    ("dear", "expensive"),
    ("too dear", "too expensive"),
    ("lies on", "is on"),
    ("lies in", "is in"),
    ("lies over", "is sharded over"),
    ("stands at", "is at"),
    ("stands in", "is in"),
    ("stands on", "is on"),
    ("stands twice", "appears twice"),
    ("emit", "generate"),
    ("emits", "generates"),
    ("emitted", "generated"),
    ("mail", "message"),
    ("berth", "completion slot"),
    ("null backend", "simulator"),
    ("dealt", "distributed"),
    ("the house", "the workspace"),
];

/// Words that the public names of a crate must not have, and the terms in their place.
const RETIRED_NAMES: &[(&str, &str)] = &[
    ("debt", "partial"),
    ("debts", "partial"),
    ("owe", "partial"),
    ("owed", "partial"),
    ("owes", "partial"),
    ("pay", "reduce"),
    ("paid", "reduced"),
    ("letters", "factors of a rule, labels of an equation"),
    ("lies", "has_sharding, supports_placement"),
    ("stands", "position"),
    ("settled", "fully specified"),
    ("way", "path, or the choice by name"),
    ("ways", "paths, or the choices by name"),
    ("plainly", "naive"),
    ("again", "recompute"),
    ("anew", "recompute"),
    ("kept", "saved"),
    ("bundle", "saved"),
    ("crossing", "saved_for_w"),
    ("held", "model states, resident tensors, or memory"),
    ("room", "memory limit, budget"),
    ("hosted", "offloaded"),
    ("waste", "fragmentation"),
    ("wired", "dependency graph"),
    ("wiring", "dependency graph"),
    ("mail", "message"),
    ("post", "send"),
    ("law", "invariant"),
    ("laws", "invariants"),
    ("sheet", "program"),
    ("hands", "thread context"),
    ("tape", "recorder"),
    ("flight", "request"),
    ("flights", "requests"),
    ("berth", "completion slot"),
    ("carried", "pending operation"),
    ("carrier", "progress engine"),
    ("seat", "member"),
    ("moment", "peak, or random context"),
    ("dealt", "assigned"),
    ("talk", "collective"),
    ("desk", "cost database"),
    ("ask", "query"),
    ("dear", "expensive"),
    ("wish", "what-if"),
    ("wishes", "what-ifs"),
    ("clash", "conflict"),
    ("runners", "alternatives"),
    ("cure", "help"),
    ("verb", "subcommand"),
    ("said", "text, reason, message"),
    ("says", "text, reason, message"),
    ("told", "text, reason, message"),
    ("tells", "text, reason, message"),
    ("yardstick", "baseline"),
    ("beside", "other, or during"),
    ("emit", "codegen"),
    ("foreign", "interop"),
    ("coded", "an error code"),
];

/// Public names with a retired word in another sense, and that sense.
const OTHER_SENSE: &[(&str, &str)] = &[
    ("in_flight", "micro-batches or requests between begin and end: the term of pipelines and of networks"),
    ("min_in_flight", "as `in_flight`"),
    ("post_norm", "normalisation after a sublayer: the term of transformers"),
    ("Coded", "an error with a code of the error index"),
];

/// Files that list old names of keywords and passes, to answer them with the new ones.
const OLD_NAMES: [&str; 2] = ["ir/src/text/retired.rs", "planner/compiler/src/pass_manager.rs"];

/// The most modules that define a public type of one name.
const SAME_NAME: usize = 4;

#[test]
fn users_read_the_words_of_the_glossary() {
    let documents = documents().into_iter().filter(|path| path.ends_with(".md"));
    let read = |path: String| (fs::read_to_string(root().join(&path)).expect("a document"), path);
    let is_read = |it: &Source| it.is_library() && !is_test(&it.path) && !OLD_NAMES.contains(&it.path.as_str());
    let library = sources().into_iter().filter(is_read);
    let texts = documents.map(read).chain(library.map(|source| (texts_of(&source), source.path)));
    let mut complaints = Vec::new();
    for (text, path) in texts {
        for (number, line) in text.lines().enumerate() {
            let words =
                format!(" {} ", line.replace(|it: char| !it.is_alphanumeric() && it != '-', " ").to_lowercase());
            let found = RETIRED.iter().filter(|(word, _)| words.contains(&format!(" {word} ")));
            complaints.extend(found.map(|(word, now)| format!("{path}:{}: `{word}` is now: {now}", number + 1)));
        }
    }
    none_of(complaints);
}

fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("tests.rs") || path.ends_with("_tests.rs")
}

/// The texts of a source file: its strings up to its tests, and for the command line the comments that become help texts. Other
/// lines are empty.
fn texts_of(source: &Source) -> String {
    let has_help = source.is_under("src/cli");
    let mut inside = false;
    let line = |line: &str| -> String {
        let start = line.trim_start();
        if !inside && start.starts_with("//") {
            return if has_help && start.starts_with("///") { line.to_string() } else { String::new() };
        }
        let mut shown = String::new();
        let mut escaped = false;
        let quoted = line.replace("'\"'", "' '");
        for letter in quoted.chars() {
            if letter == '"' && !escaped {
                inside = !inside;
                shown.push(' ');
            } else if inside {
                shown.push(letter);
            }
            escaped = letter == '\\' && !escaped;
        }
        // A placeholder is an identifier, not a text.
        without_placeholders(&shown)
    };
    source.text.lines().take_while(|line| *line != "#[cfg(test)]").map(line).collect::<Vec<_>>().join("\n")
}

fn without_placeholders(text: &str) -> String {
    let mut depth = 0;
    let outside = |c: &char| {
        depth += i32::from(*c == '{');
        let is_outside = depth == 0;
        depth -= i32::from(*c == '}' && depth > 0);
        is_outside
    };
    text.chars().filter(outside).collect()
}

#[test]
fn public_names_have_the_words_of_the_glossary() {
    let mut complaints = Vec::new();
    for source in sources().iter().filter(|it| it.is_library() && !is_test(&it.path)) {
        for (number, line) in source.text.lines().enumerate() {
            let Some(name) = public_name(line).filter(|name| OTHER_SENSE.iter().all(|(other, _)| other != name)) else {
                continue;
            };
            let words = words_of(name);
            for (word, now) in RETIRED_NAMES.iter().filter(|(word, _)| words.iter().any(|it| it == word)) {
                complaints.push(format!("{}:{}: `{name}` has `{word}`: use {now}", source.path, number + 1));
            }
        }
    }
    none_of(complaints);
}

/// The name of a public function, type, constant, module or field that a line defines.
fn public_name(line: &str) -> Option<&str> {
    const KINDS: [&str; 9] = ["fn", "struct", "enum", "trait", "type", "mod", "const", "static", "union"];
    let rest = line.trim_start().strip_prefix("pub ")?;
    let mut words = rest.split_whitespace();
    let first = words.find(|word| !matches!(*word, "unsafe" | "async"))?;
    let name = match first {
        "const" => words.find(|word| *word != "fn")?,
        _ if KINDS.contains(&first) => words.next()?,
        _ => first.strip_suffix(':')?,
    };
    name.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

/// `parallel` and `config` of `ParallelConfig` and of `parallel_config`.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        if c == '_' || c.is_uppercase() && was_lower {
            words.push(String::new());
        }
        was_lower = c.is_lowercase() || c.is_ascii_digit();
        if c != '_' {
            words.last_mut().expect("one at least").extend(c.to_lowercase());
        }
    }
    words
}

#[test]
fn few_modules_share_the_name_of_a_public_type() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources() {
        for line in source.text.lines() {
            if let Some(name) = public_type(line) {
                places.entry(name.to_string()).or_default().push(source.path.clone());
            }
        }
    }
    // `Error` is the name of a crate's or module's error type in Rust: `io::Error`.
    let shared = places.into_iter().filter(|(name, places)| places.len() > SAME_NAME && name != "Error");
    none_of(
        shared
            .map(|(name, places)| {
                format!(
                    "`{name}` is a type of {} modules; give it a word of its domain in {}",
                    places.len(),
                    places.join(", ")
                )
            })
            .collect(),
    );
}

/// The name of a type that a line defines for other modules.
fn public_type(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let rest = ["pub ", "pub(crate) ", "pub(super) "].iter().find_map(|visible| line.strip_prefix(visible))?;
    let rest = ["struct ", "enum ", "trait ", "type "].iter().find_map(|kind| rest.strip_prefix(kind))?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}
