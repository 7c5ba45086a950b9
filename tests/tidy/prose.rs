//! Prose: a doc comment begins with a noun phrase or an imperative, and sentences are short.

use super::{documents, none_of, root, sources};
use std::fs;

/// Words that no doc comment may begin with: free relatives and partitives.
const BEGINNINGS: [&str; 6] = ["What", "Whether", "Who", "Which", "Where", "Of"];

/// The most words of a sentence. Writers aim at 25.
const SENTENCE_WORDS: usize = 40;

#[test]
fn doc_comments_begin_with_a_noun_or_an_imperative() {
    let mut complaints = Vec::new();
    for source in sources() {
        let mut before = "";
        for (number, line) in source.text.lines().enumerate() {
            let (mark, text) = doc_line(line).unwrap_or_default();
            let first = text.split_whitespace().next().unwrap_or_default();
            if mark != before && BEGINNINGS.contains(&first) {
                complaints.push(format!(
                    "{}:{}: `{first} ..`: begin with a noun phrase or an imperative",
                    source.path,
                    number + 1
                ));
            }
            before = mark;
        }
    }
    none_of(complaints);
}

#[test]
fn sentences_are_short() {
    let mut complaints = Vec::new();
    for source in sources() {
        let lines = source.text.lines().map(|line| doc_line(line).map_or("", |(_, text)| text));
        complaints.extend(long_sentences(&source.path, lines));
    }
    for path in documents().into_iter().filter(|path| path.ends_with(".md")) {
        let text = fs::read_to_string(root().join(&path)).expect("a document is text");
        complaints.extend(long_sentences(&path, text.lines()));
    }
    none_of(complaints);
}

/// The mark and the text of a line of a doc comment.
fn doc_line(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let mark = ["///", "//!"].into_iter().find(|mark| line.starts_with(mark))?;
    let text = &line[mark.len()..];
    Some((mark, text.strip_prefix(' ').unwrap_or(text)))
}

/// Complaints about the sentences of paragraphs and list items. Code blocks, tables and headings have none.
fn long_sentences<'a>(path: &str, lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut complaints = Vec::new();
    let (mut paragraph, mut start, mut is_code) = (String::new(), 0, false);
    let mut end = |paragraph: &mut String, start: usize| {
        let prose = without_code(paragraph);
        paragraph.clear();
        for sentence in prose.split_inclusive(['.', '?', '!']).fold(Vec::new(), join) {
            let words = sentence.split_whitespace().count();
            if words > SENTENCE_WORDS {
                complaints.push(format!("{path}:{start}: a sentence of {words} words; split it: {}", sentence.trim()));
            }
        }
    };
    for (number, line) in lines.chain([""]).enumerate() {
        let line = line.trim();
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        let is_item = line.starts_with("- ") || line.starts_with("* ") || is_numbered(line);
        let is_prose = !is_code && !is_fence && !line.is_empty() && !line.starts_with(['|', '#']);
        if !is_prose || is_item {
            end(&mut paragraph, start);
        }
        if is_prose {
            if paragraph.is_empty() {
                start = number + 1;
            }
            paragraph += line;
            paragraph.push(' ');
        }
    }
    complaints
}

/// Joins parts that end within a number or an abbreviation: a sentence ends before a space.
fn join(mut sentences: Vec<String>, part: &str) -> Vec<String> {
    match sentences.last_mut() {
        Some(last) if !part.starts_with(' ') => last.push_str(part),
        _ => sentences.push(part.to_string()),
    }
    sentences
}

/// `1. ` begins an item of a list.
fn is_numbered(line: &str) -> bool {
    line.split_once(". ").is_some_and(|(number, _)| !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit()))
}

/// The text with each `code` span as one word.
fn without_code(text: &str) -> String {
    let spans = text.split('`').enumerate();
    spans.map(|(number, span)| if number % 2 == 0 { span } else { "x" }).collect()
}
