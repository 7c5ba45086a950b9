//! Training on tokenised data: the same documents in every form of files give the same losses, on every mesh and when resumed.

#[cfg(unix)]
mod cut_short;

use meshwright::runtime::data::tokens::write::TokenWriter;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

const MODEL: &str =
    r#"{"model_type": "gpt2", "n_embd": 16, "n_head": 4, "n_layer": 2, "n_positions": 32, "vocab_size": 60}"#;

const SHORT: &str =
    "train config.json --seq 16 --global-batch 4 --steps 4 --eval-every 0 --final-eval-batches 2 --format json";

/// The token that ends a document.
const END: u32 = 0;

fn run(folder: &Path, args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
    command.args(args.split_whitespace()).current_dir(folder).output().unwrap()
}

fn report(folder: &Path, args: &str) -> Value {
    let output = run(folder, args);
    assert!(output.status.success(), "meshwright {args}\n{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Documents of 5 to 40 tokens below 60.
fn documents() -> Vec<Vec<u32>> {
    let document = |number: u32| {
        let ids = (0..4 + number * 7 % 36).map(|at| 1 + (number + at * at) % 59);
        ids.chain([END]).collect()
    };
    (0..200).map(document).collect()
}

fn write(folder: &Path, name: &str, documents: &[Vec<u32>], vocabulary: u64) {
    let ids = fs::File::create(folder.join(format!("{name}.bin"))).unwrap();
    let mut writer = TokenWriter::new(ids, vocabulary);
    documents.iter().for_each(|document| writer.document(document).unwrap());
    writer.finish(&mut fs::File::create(folder.join(format!("{name}.idx"))).unwrap()).unwrap();
}

fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("config.json"), MODEL).unwrap();
    let documents = documents();
    write(folder.path(), "narrow", &documents, 60);
    write(folder.path(), "wide", &documents, 100_000);
    let all: Vec<u32> = documents.concat();
    let bytes = |ids: &[u32]| ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>();
    let narrow = |ids: &[u32]| ids.iter().flat_map(|&id| (id as u16).to_le_bytes()).collect::<Vec<u8>>();
    let mut head = bytes(&[20_240_520, 1, all.len() as u32]);
    head.resize(1024, 0);
    fs::write(folder.path().join("llm.bin"), [head, narrow(&all)].concat()).unwrap();
    fs::write(folder.path().join("raw"), bytes(&all)).unwrap();
    fs::write(folder.path().join("set.ds"), narrow(&all)).unwrap();
    let ends = documents.iter().scan(0u64, |end, document| {
        *end += document.len() as u64;
        Some(end.to_le_bytes())
    });
    fs::write(folder.path().join("set.ds.index"), ends.collect::<Vec<_>>().concat()).unwrap();
    folder
}

#[test]
fn all_forms_and_meshes_give_the_same_losses() {
    let folder = folder();
    let mut losses = Vec::new();
    let forms = ["narrow", "wide.bin", "set.ds", "llm.bin --eos 0", "raw --data-format raw-u32 --eos 0"];
    for (number, form) in forms.iter().enumerate() {
        let report = report(folder.path(), &format!("{SHORT} --data {form} --out {number}"));
        assert_eq!((&report["documents"], &report["unit"]), (&200.into(), &"tokens".into()));
        assert_eq!(report["bigram_entropy"], Value::Null);
        losses.push([report["train_loss"].as_f64().unwrap(), report["valid_loss"].as_f64().unwrap()]);
    }
    assert!(losses.iter().all(|loss| loss == &losses[0]), "{losses:?}");
    let other = report(folder.path(), &format!("{SHORT} --data narrow --parallel dp=2,tp=2 --out mesh"));
    assert!((other["valid_loss"].as_f64().unwrap() - losses[0][1]).abs() < 1e-4, "{other}");

    // A run that is resumed goes on with the next samples.
    let saved = format!("{SHORT} --data narrow --save-every 2 --out resumed");
    report(folder.path(), &format!("{saved} --valid wide"));
    let whole = report(folder.path(), &format!("{SHORT} --data narrow --valid wide --out whole"));
    fs::remove_dir_all(folder.path().join("resumed/step-00000004")).unwrap();
    let resumed = report(folder.path(), "train --resume resumed --format json");
    assert_eq!((&resumed["done"], &resumed["valid_loss"]), (&2.into(), &whole["valid_loss"]));
    assert_eq!(resumed["valid_tokens"], whole["valid_tokens"]);
}

#[test]
fn a_blend_takes_turns_and_resumes_with_the_next_sample() {
    let folder = folder();
    let other: Vec<Vec<u32>> = documents().iter().map(|document| document.iter().map(|id| 59 - id).collect()).collect();
    write(folder.path(), "other", &other, 60);
    let blend = format!("{SHORT} --blend narrow:3,other:1");
    let whole = report(folder.path(), &format!("{blend} --out whole"));
    let sets = |key: &str| whole["blend"].as_array().unwrap().iter().map(|set| set[key].clone()).collect::<Vec<_>>();
    assert_eq!((sets("data"), sets("share")), (vec!["narrow".into(), "other".into()], vec![0.75.into(), 0.25.into()]));
    assert_eq!(whole["documents"], 400);
    report(folder.path(), &format!("{blend} --save-every 2 --out resumed"));
    fs::remove_dir_all(folder.path().join("resumed/step-00000004")).unwrap();
    let resumed = report(folder.path(), "train --resume resumed --format json");
    assert_eq!((&resumed["done"], &resumed["valid_loss"]), (&2.into(), &whole["valid_loss"]));
    let alone = report(folder.path(), &format!("{SHORT} --data narrow --out alone"));
    assert_ne!(alone["train_loss"], whole["train_loss"]);
    let apart = report(folder.path(), &format!("{blend} --valid narrow --out apart"));
    assert_eq!((&apart["documents"], apart["train_tokens"].as_u64()), (&600.into(), sum(&apart)));
    let changed = run(folder.path(), "train --resume resumed --blend narrow:2,other:1 --steps 6");
    let stderr = String::from_utf8_lossy(&changed.stderr);
    assert!(stderr.contains("error[MW0705]") && stderr.contains("data.shares"), "{stderr}");
}

/// The training tokens of all sets.
fn sum(report: &Value) -> Option<u64> {
    report["blend"].as_array()?.iter().map(|set| set["train_tokens"].as_u64()).sum()
}

#[test]
fn a_token_that_the_model_does_not_know_is_named() {
    let folder = folder();
    let mut documents = documents();
    documents[7][2] = 60;
    write(folder.path(), "beyond", &documents, 100);
    let output =
        run(folder.path(), &format!("{} --data beyond --valid narrow", SHORT.replace("--steps 4", "--steps 60")));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("error[MW0712]: document 7 of beyond.bin has the id 60, but the model has 60 tokens"),
        "{stderr}"
    );
}

#[test]
fn options_that_do_not_fit_the_data_are_refused() {
    let folder = folder();
    fs::write(folder.path().join("text.txt"), "text\n".repeat(100)).unwrap();
    fs::copy(folder.path().join("narrow.idx"), folder.path().join("half.idx")).unwrap();
    for (args, code, said) in [
        ("narrow --eos 0", "MW0805", "0 is to end documents, but the index of narrow has their ends"),
        ("text.txt --eos 0", "MW0805", "0 is to end documents of tokens, but text.txt is text"),
        ("text.txt --valid narrow", "MW0805", "narrow is tokenised data for validation, but text.txt is text"),
        ("narrow --data-format u8", "MW0805", "there is no format `u8` of data"),
        ("narrow --valid text.txt", "MW0711", "text.txt is no tokenised data"),
        ("half", "MW0701", "half.bin: there is no such file"),
        ("raw --data-format raw-u32", "MW0703", "the held-out part has 0 tokens"),
        ("raw --data-format raw-u32", "MW0703", "name others with --valid"),
        ("narrow --valid-fraction 1.5", "MW0805", "1.5 is outside"),
        ("narrow --blend narrow:1", "MW0808", "cannot be used with"),
        ("--blend narrow:0.7,text.txt:0.3", "MW0805", "narrow has tokens, but text.txt is text"),
        ("--blend narrow:0.7,none:0.3", "MW0701", "none: there is no such file"),
        ("--blend narrow:0.7,wide", "MW0805", "`wide` in the blend has no share"),
    ] {
        let data = if args.starts_with("--") { "" } else { "--data " };
        let output = run(folder.path(), &format!("{SHORT} {data}{args}"));
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(1 | 2)), "{args}: {stderr}");
        assert!(stderr.contains(&format!("error[{code}]")) && stderr.contains(said), "{args}: {stderr}");
    }
}
