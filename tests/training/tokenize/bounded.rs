//! Documents of any length in bounded memory, and the end of a tokenisation at any time.

use super::{documents, folder, gzip, run, write};
use meshwright::tokenize::TextCodec;
use serde_json::json;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Words with what tokenizers treat in ways of their own, about a mebibyte.
fn long_text() -> String {
    let words = ["the", "don't", "naïve", "12345", "日本語", "e\u{301}", "—", "x=1;", "\u{a0}", "<|end|>"];
    let spaces = [" ", "  ", "\n", ", ", "\r\n\r\n", "", ". ", "\t"];
    (0..150_000usize).map(|n| [words[n * n % 97 % 10], spaces[n * 7 % 61 % 8]].concat()).collect()
}

#[test]
fn a_long_document_has_the_ids_of_the_whole() {
    let folder = folder();
    let text = long_text();
    write(folder.path(), "a.txt.gz", &gzip(text.as_bytes()));
    let line = json!({"text": text}).to_string();
    write(folder.path(), "b.jsonl", format!("{line}\n{{\"text\": \"short\"}}\n").as_bytes());
    let output = run(folder.path(), "tokenize a.txt.gz b.jsonl --tokenizer . --append-eos 0 --out out");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let codec = TextCodec::open(folder.path()).unwrap();
    let ids = |text: &str| [codec.ids(text).unwrap(), vec![0]].concat();
    assert!(text.len() > 1 << 19 && documents(&folder.path().join("out")) == [ids(&text), ids(&text), ids("short")]);
}

/// Nothing but what a test has made is in a folder.
fn is_as_before(folder: &Path, made: &[&str]) -> bool {
    let mut names: Vec<String> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names == made
}

#[test]
fn what_would_take_more_memory_is_refused_by_its_place() {
    let folder = folder();
    let word = "a".repeat(5 << 20);
    write(folder.path(), "word.txt.gz", &gzip(format!("some\nlines\n\n{word}").as_bytes()));
    write(folder.path(), "word.jsonl", format!("{{\"text\": \"a\"}}\n{{\"text\": \"{word}\"}}\n").as_bytes());
    write(folder.path(), "line.jsonl.gz", &gzip(&vec![b'a'; (128 << 20) + 1]));
    // One of these becomes eighteen characters.
    write(folder.path(), "grown.txt.gz", &gzip("\u{fdfa}".repeat(1 << 20).as_bytes()));
    let tokenizer = fs::read_to_string(folder.path().join("tokenizer.json")).unwrap();
    let mut normalised: serde_json::Value = serde_json::from_str(&tokenizer).unwrap();
    normalised["normalizer"] = json!({"type": "NFKC"});
    write(folder.path(), "tokenizer.json", normalised.to_string().as_bytes());
    for (name, said) in [
        (
            "grown.txt.gz",
            "grown.txt.gz:1: text without a place to cut at becomes 33 MiB when it is normalised, above 8",
        ),
        ("word.txt.gz", "word.txt.gz:4: 4 MiB of text have no place at which a word"),
        ("word.jsonl", "word.jsonl:2: 4 MiB of text have no place at which a word"),
        ("line.jsonl.gz", "line.jsonl.gz:1: the line has more than 128 MiB"),
    ] {
        let output = run(folder.path(), &format!("tokenize {name} --tokenizer . --out out"));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        for said in ["error[MW0713]", said, "split the document"] {
            assert!(stderr.contains(said), "{said}: {stderr}");
        }
    }
    assert!(is_as_before(
        folder.path(),
        &["grown.txt.gz", "line.jsonl.gz", "tokenizer.json", "word.jsonl", "word.txt.gz"]
    ));
}

#[cfg(target_os = "linux")]
#[test]
fn a_document_of_many_words_takes_little_memory() {
    let folder = folder();
    write(folder.path(), "a.txt", "some words of a text, \n".repeat(350_000).as_bytes());
    let limited = format!(
        "ulimit -v 1048576 && exec {} tokenize a.txt --tokenizer . --out out",
        env!("CARGO_BIN_EXE_meshwright")
    );
    let output = Command::new("sh").args(["-c", &limited]).current_dir(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[cfg(unix)]
#[test]
fn a_signal_ends_a_tokenisation_at_once_and_nothing_is_written() {
    let folder = folder();
    // Words of 4 MiB each, which the library reads in seconds, without a word.
    let word = ["ab".repeat(2_000_000), "\n".into()].concat();
    write(folder.path(), "a.txt", word.repeat(10).as_bytes());
    let has_begun = || fs::read_dir(folder.path()).unwrap().count() > 2;
    for (milliseconds, name, status) in [(0, "TERM", 143), (300, "INT", 130), (1200, "TERM", 143)] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
        command.args("tokenize a.txt --tokenizer . --out out".split_whitespace()).current_dir(folder.path());
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let began = Instant::now();
        while !has_begun() {
            assert!(began.elapsed() < Duration::from_secs(60), "no file is begun");
            sleep(Duration::from_millis(5));
        }
        sleep(Duration::from_millis(milliseconds));
        let sent = Instant::now();
        let killed = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status().unwrap();
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(killed.success() && sent.elapsed() < Duration::from_secs(3), "{milliseconds}: {:?}", sent.elapsed());
        assert_eq!(output.status.code(), Some(status), "{milliseconds}: {stderr}");
        assert!(stderr.contains("has written nothing"), "{stderr}");
        assert!(is_as_before(folder.path(), &["a.txt", "tokenizer.json"]), "{milliseconds}");
    }
}
