//! The error index against actual errors. Each code has a case (`tests/cases/errors`) or, if only a library call can give the
//! error, a row of [`library::CALLS`]. Its explanation is complete, and the case has its example.

mod library;

use ir::catalogue::{CATALOGUE, Code};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Texts of the cases of each code: command and files; for a library call, the source of the calls.
fn inputs() -> BTreeMap<Code, Vec<String>> {
    let mut inputs: BTreeMap<Code, Vec<String>> = BTreeMap::new();
    for (name, text) in cases() {
        let (input, answer) = text.split_once("----\n").unwrap_or_else(|| panic!("{name} has no line ----"));
        for code in codes(&name, answer) {
            inputs.entry(code).or_default().push(input.replace("# meshwright", "meshwright"));
        }
    }
    for call in library::CALLS {
        inputs.entry(call.code).or_default().push(include_str!("catalogue/library.rs").to_string());
    }
    inputs
}

fn cases() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases/errors");
    let paths = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    paths.map(|path| (path.display().to_string(), std::fs::read_to_string(&path).unwrap())).collect()
}

/// The codes in an answer.
fn codes(name: &str, answer: &str) -> BTreeSet<Code> {
    let found = answer.match_indices("error[").map(|(at, mark)| &answer[at + mark.len()..]);
    let texts = found.filter_map(|rest| rest.split(']').next());
    texts.map(|text| Code::from_text(text).unwrap_or_else(|| panic!("{name} has `{text}`, which is no code"))).collect()
}

#[test]
fn every_code_can_arise() {
    let inputs = inputs();
    let missing: Vec<String> = CATALOGUE
        .iter()
        .filter(|entry| !inputs.contains_key(&entry.code))
        .map(|e| format!("{} {}", e.code, e.title))
        .collect();
    assert!(missing.is_empty(), "codes without a case:\n{}", missing.join("\n"));
}

#[test]
fn every_explanation_is_whole() {
    for entry in CATALOGUE {
        let sentences = [entry.explanation, entry.help];
        assert!(sentences.iter().all(|text| text.len() > 10 && text.ends_with(['.', '?'])), "{}", entry.code);
        assert!(!entry.title.is_empty() && !entry.title.ends_with('.'), "{}", entry.code);
    }
}

#[test]
fn every_example_is_what_someone_wrote() {
    let inputs = inputs();
    for entry in CATALOGUE {
        let holds = |input: &String| {
            let lines: Vec<String> = input.lines().map(spaced).collect();
            entry.example.lines().all(|line| lines.contains(&spaced(line)))
        };
        let found = inputs.get(&entry.code).is_some_and(|inputs| inputs.iter().any(holds));
        assert!(found && !entry.example.is_empty(), "no case of {} has its example\n{}", entry.code, entry.example);
    }
}

/// A line with single blanks: printed text aligns.
fn spaced(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn library_calls_give_the_codes_that_they_should() {
    for call in library::CALLS {
        assert_eq!((call.refused)(), Some(call.code), "{}", call.code);
    }
}
