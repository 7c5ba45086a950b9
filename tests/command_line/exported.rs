//! Models that `torch.export` recorded: what is imported is the model that the builder of the family makes, and computes the logits of
//! the recorded graph. `tests/exported/export.py` makes the archives, and imports more families where there is PyTorch.

mod damage;
mod gradients;
mod normal;

use flate2::read::GzDecoder;
use ir::catalogue::Code;
use ir::diag::Coded;
use ir::models::{Batch, ImportedModel, from_config};
use ir::types::DType;
use meshwright::exported::compare;
use normal::normal;
use pt2::Export;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

const FAMILIES: [&str; 16] = [
    "llama",
    "llama-eager",
    "llama-one-group",
    "llama-decomposed",
    "mistral-long-window",
    "gemma2",
    "olmo2",
    "phi3",
    "gpt_neox",
    "gpt_neox-whole-turn",
    "gpt2",
    "gpt2-decomposed",
    "mixtral",
    "mixtral-decomposed",
    "qwen3_moe-batched",
    "qwen2_moe",
];

/// The bytes of an archive.
fn archive(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/exported/{name}.pt2.gz"));
    let mut bytes = Vec::new();
    GzDecoder::new(fs::File::open(path).unwrap()).read_to_end(&mut bytes).unwrap();
    bytes
}

/// A folder with an archive.
fn unpacked(name: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(format!("{name}.pt2"));
    fs::write(&path, archive(name)).unwrap();
    (folder, path)
}

fn meshwright(folder: &Path, words: &str) -> Output {
    let words = words.split_whitespace();
    Command::new(env!("CARGO_BIN_EXE_meshwright")).args(words).current_dir(folder).output().unwrap()
}

#[test]
fn an_import_is_the_model_of_its_family() {
    for name in FAMILIES {
        let (_folder, path) = unpacked(name);
        let config = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/exported/{name}.json"));
        let config = from_config(&fs::read_to_string(config).unwrap()).unwrap();
        let template = Export::open(&path).unwrap().template().unwrap();
        for batch in [[2, 11], [3, 8]] {
            let batch = Batch { batch: batch[0], seq: batch[1], dtype: DType::F32 };
            let (own, built) = (template.build(&batch).unwrap(), config.build(&batch).unwrap());
            let (own, built) = (normal(&own), normal(&built));
            let only = |these: &[String], those: &[String]| -> Vec<String> {
                these.iter().filter(|line| !those.contains(line)).cloned().collect()
            };
            assert_eq!(only(&own, &built), only(&built, &own), "{name}");
            assert_eq!(own, built, "{name}");
        }
    }
}

#[test]
fn an_import_has_the_logits_of_its_graph() {
    for name in
        FAMILIES.into_iter().chain(["own", "glm", "deepseek_v3", "apertus", "bloom", "gpt_oss", "encoder-decoder"])
    {
        let (_folder, path) = unpacked(name);
        let found = compare(&path).unwrap_or_else(|why| panic!("{name}: {why}"));
        let layers = if name == "encoder-decoder" { 4 } else { 2 };
        assert!(found.difference < 1e-4 && found.largest > 0.5 && found.layers == layers, "{name}: {found:?}");
    }
}

#[test]
fn models_of_plain_modules_have_the_logits_of_their_graphs() {
    for name in ["mlp", "vit", "shared", "outside", "convolutions"] {
        let (_folder, path) = unpacked(name);
        let found = compare(&path).unwrap_or_else(|why| panic!("{name}: {why}"));
        assert!(found.difference < 1e-4 && found.largest > 0.1, "{name}: {found:?}");
    }
}

#[test]
fn layers_outside_of_whose_modules_sums_stand_are_instances_of_one_block() {
    let (_folder, path) = unpacked("outside");
    let model = Export::open(&path).unwrap().template().unwrap();
    let model = model.build(&Batch { batch: 2, seq: 8, dtype: DType::F32 }).unwrap();
    let instances: Vec<u32> = model.calls.iter().map(ir::graph::Call::instances).collect();
    assert_eq!(instances, [1, 3, 1]);
    let (_folder, path) = unpacked("shared");
    let model = Export::open(&path).unwrap().template().unwrap();
    let model = model.build(&Batch { batch: 2, seq: 8, dtype: DType::F32 }).unwrap();
    let parameters = model.params.values().map(|param| param.instances()).sum::<u32>();
    assert_eq!(parameters as usize, model.params.len(), "a block that is called again has the same parameters");
}

#[test]
fn what_is_not_understood_is_named() {
    let cases = [
        (
            "fourier",
            "node `fft_fft` (aten.fft_fft.default), export.py:",
            "there is no op `aten.fft_fft.default` in this version",
        ),
        (
            "recurrent",
            "node `getitem` (aten.gru.input) of module `mixers.0`, families.py:",
            "there is no op `aten.gru.input` in this version",
        ),
    ];
    for (name, place, reason) in cases {
        let (_folder, path) = unpacked(name);
        let why = Export::open(&path).unwrap().template().unwrap_err();
        assert_eq!(why.code(), Some(Code::ExportUnsupported));
        let text = why.to_string();
        assert!(text.starts_with(place) && text.ends_with(reason), "{text}");
    }
}

#[test]
fn an_exported_model_is_planned_and_trained_as_any_other() {
    runs("llama", ["tp=2,pp=2", "tp=2"]);
}

#[test]
fn exported_experts_are_planned_and_trained_on_ranks_of_their_own() {
    runs("mixtral", ["dp=2,ep=2,pp=2", "dp=2,ep=2"]);
}

/// Plans, compiles and trains the model of an archive in these configurations.
fn runs(name: &str, [compiled, trained]: [&str; 2]) {
    let (folder, _) = unpacked(name);
    let text = "The quick brown fox jumps over the lazy dog. ".repeat(40);
    let tokens: Vec<u8> = text.bytes().flat_map(|byte| u16::from(byte % 24).to_le_bytes()).collect();
    fs::write(folder.path().join("tokens.bin"), tokens).unwrap();
    let runs = [
        format!("plan {name}.pt2 --cluster h100 --gpus 2 --seq 16 --global-batch 8"),
        format!("compile {name}.pt2 --parallel {compiled} --seq 16 --global-batch 4"),
        format!(
            "train --init-from {name}.pt2 --data tokens.bin --valid tokens.bin --data-format raw-u16 --seq 16 --global-batch 4 --steps 2 --parallel {trained}"
        ),
    ];
    for words in runs {
        let run = meshwright(folder.path(), &words);
        let errors = String::from_utf8_lossy(&run.stderr).into_owned();
        assert!(run.status.success(), "{words}\n{errors}{}", String::from_utf8_lossy(&run.stdout));
    }
}
