//! Damaged archives are refused, with a reason and without a panic.

use super::archive;
use ir::catalogue::Code;
use ir::diag::Coded;
use pt2::{Error, Export};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Cursor, Read, Write};
use zip::write::{SimpleFileOptions, ZipWriter};
use zip::{CompressionMethod, ZipArchive};

type Files = BTreeMap<String, Vec<u8>>;

fn files(bytes: &[u8]) -> Files {
    let mut zip = ZipArchive::new(Cursor::new(bytes)).unwrap();
    let mut files = Files::new();
    for at in 0..zip.len() {
        let mut file = zip.by_index(at).unwrap();
        let mut data = Vec::new();
        file.read_to_end(&mut data).unwrap();
        files.insert(file.name().unwrap().into_owned(), data);
    }
    files
}

fn zipped(files: &Files) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, data) in files {
        zip.start_file(name, SimpleFileOptions::default().compression_method(CompressionMethod::Stored)).unwrap();
        zip.write_all(data).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// The error of an archive of these bytes; none if it is imported.
fn refused(bytes: &[u8]) -> Option<Error> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.pt2");
    fs::write(&path, bytes).unwrap();
    Export::open(&path).and_then(|export| export.template()).err()
}

#[test]
fn archives_that_are_cut_off_are_refused() {
    let whole = archive("fourier");
    for length in (0..whole.len()).step_by(whole.len() / 40) {
        let why = refused(&whole[..length]).expect("it is cut off");
        assert_eq!(why.code(), Some(Code::ExportDamaged), "{length}: {why}");
    }
}

/// One bit of a weight: the directory and the graph are whole, so that only a checksum tells.
#[test]
fn a_flipped_bit_of_a_weight_is_found() {
    let mut bytes = archive("gpt2");
    let (name, data) = files(&bytes).into_iter().find(|(name, _)| name.ends_with("weights/weight_0")).unwrap();
    let at = bytes.windows(data.len()).position(|window| window == data).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.pt2");
    let checked = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        Export::open(&path).and_then(|export| export.check_sums())
    };
    checked(&bytes).unwrap();
    bytes[at + data.len() / 2] ^= 1;
    let why = checked(&bytes).unwrap_err();
    assert_eq!(why.code(), Some(Code::ExportDamaged));
    let inner = name.split_once('/').unwrap().1;
    assert!(why.to_string().contains(&format!("`{inner}` has other bytes than its checksum says")), "{why}");
}

#[test]
fn defects_of_an_archive_are_named() {
    let whole = files(&archive("gpt2"));
    let text = |name: &str| String::from_utf8(whole[name].clone()).unwrap();
    let (graph, weights) = ("gpt2/models/model.json", "gpt2/data/weights/model_weights_config.json");
    let with = |name: &str, data: &str| Files::from([(name.to_string(), data.as_bytes().to_vec())]);
    let replaced = |name: &str, from: &str, to: &str| {
        let old = text(name);
        assert!(old.contains(from), "{name} has no {from}");
        with(name, &old.replacen(from, to, 1))
    };
    let without = |name: &str| {
        let mut files = whole.clone();
        files.remove(name).unwrap();
        files
    };
    let changed = |more: Files| {
        let mut files = whole.clone();
        files.extend(more);
        files
    };
    let cases: [(Files, &str); 9] = [
        (without(graph), "has no graph"),
        (changed(with(graph, "{")), "is no JSON"),
        (changed(with(graph, "[]")), "version none"),
        (changed(replaced(graph, "\"major\":8", "\"major\":9")), "version 9; this version reads 8"),
        (changed(replaced(graph, "\"nodes\"", "\"knots\"")), "missing field `nodes`"),
        (
            changed(replaced(graph, "{\"name\":\"arange\"}", "{\"name\":\"wrong\"}")),
            "`arange` is read before it is defined",
        ),
        (without("gpt2/data/weights/weight_1"), "its file `data/weights/weight_1` is missing"),
        (changed(with("gpt2/data/weights/weight_1", "few")), "is cut off: 3 bytes"),
        (changed(replaced(weights, "\"use_pickle\":false", "\"use_pickle\":true")), "is pickled Python"),
    ];
    for (files, wanted) in cases {
        let why = refused(&zipped(&files)).unwrap_or_else(|| panic!("{wanted}: it is imported")).to_string();
        assert!(why.contains(wanted), "{wanted}: {why}");
    }
    assert!(refused(&zipped(&whole)).is_none());
    assert!(refused(b"no archive").unwrap().to_string().contains("is no zip archive"));
}

/// Operands of other sizes than the rest of a rotation has.
#[test]
fn operands_of_other_sizes_are_named() {
    let whole = files(&archive("llama-eager"));
    let graph = "llama-eager/models/model.json";
    let text = String::from_utf8(whole[graph].clone()).unwrap();
    let reads = |value: &str| {
        format!(r#""torch.ops.aten.neg.default","inputs":[{{"name":"self","arg":{{"as_tensor":{{"name":"{value}"}}"#)
    };
    let cases = [
        ("slice_7", "transpose", "a constant tensor meets activations in an unknown way"),
        ("slice_17", "slice_13", "values of different dims are joined"),
    ];
    for (from, to, wanted) in cases {
        assert!(text.contains(&reads(from)), "no node negates `{from}`");
        let mut files = whole.clone();
        files.insert(graph.to_string(), text.replacen(&reads(from), &reads(to), 1).into_bytes());
        let why = refused(&zipped(&files)).unwrap_or_else(|| panic!("{wanted}: it is imported")).to_string();
        assert!(why.contains(wanted), "{wanted}: {why}");
    }
}

/// Numbers, names and ops that a graph has elsewhere, or nowhere.
const WORDS: [&str; 12] = [
    "0",
    "-1",
    "1",
    "7",
    "24",
    "9223372036854775807",
    "-9223372036854775808",
    "18446744073709551615",
    "[]",
    "null",
    "{}",
    "1e300",
];

/// A text with a number or a quoted word in another one's place.
fn spoiled(text: &str, mut state: u64) -> String {
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below.max(1)
    };
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "_.-".contains(letter);
    let mut text = text.to_string();
    for _ in 0..=random(3) {
        let places: Vec<usize> = text.match_indices([':', ',', '"', '[']).map(|(at, _)| at + 1).collect();
        let word = |at: usize| text[at..].find(|letter| !is_part(letter)).map_or("", |length| &text[at..at + length]);
        let at = places[random(places.len())];
        let (old, other) = (word(at), word(places[random(places.len())]));
        let new = if random(2) == 0 { other } else { WORDS[random(WORDS.len())] };
        text = format!("{}{new}{}", &text[..at], &text[at + old.len()..]);
    }
    text
}

#[test]
fn spoiled_graphs_are_refused_without_a_panic() {
    let cases = std::env::var("MESHWRIGHT_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(150);
    for name in ["llama-eager", "gpt_neox"] {
        let whole = files(&archive(name));
        let graph = format!("{name}/models/model.json");
        let text = String::from_utf8(whole[&graph].clone()).unwrap();
        for case in 0..cases {
            let mut files = whole.clone();
            files.insert(graph.clone(), spoiled(&text, case).into_bytes());
            // Some changes mean nothing, or another model.
            let found = std::panic::catch_unwind(|| refused(&zipped(&files)));
            assert!(found.is_ok(), "{name}, case {case}");
        }
    }
}
