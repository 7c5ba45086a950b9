//! Weights in the form of the hub, as a user has them: trained, exported, trained on, exported again. No file changes a bit.

use safetensors::SafeTensors;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

/// A configuration of a family, and the layout of its second run.
const MODELS: [(&str, &str); 4] = [
    (
        r#"{"model_type": "gpt2", "n_embd": 16, "n_head": 4, "n_layer": 2, "n_positions": 32, "vocab_size": 260}"#,
        "tp=2",
    ),
    (
        r#"{"model_type": "phi3", "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2,
            "intermediate_size": 24, "vocab_size": 260, "pad_token_id": 0}"#,
        "dp=2,zero=3",
    ),
    (
        r#"{"model_type": "mixtral", "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2,
            "intermediate_size": 24, "num_local_experts": 4, "vocab_size": 260}"#,
        "dp=2,ep=2",
    ),
    (
        r#"{"model_type": "deepseek_v3", "hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 3,
            "intermediate_size": 24, "moe_intermediate_size": 8, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2,
            "topk_group": 1, "first_k_dense_replace": 1, "q_lora_rank": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 6,
            "qk_rope_head_dim": 4, "v_head_dim": 6, "vocab_size": 260, "num_nextn_predict_layers": 1}"#,
        "pp=2,dp=2",
    ),
];

fn run(folder: &Path, args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
    command.args(args.split_whitespace()).current_dir(folder).output().unwrap()
}

/// Standard output of a command that succeeds.
fn answer(folder: &Path, args: &str) -> String {
    let output = run(folder, args);
    assert!(output.status.success(), "meshwright {args}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The files of a folder.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    entries.map(|path| (path.file_name().unwrap().display().to_string(), fs::read(&path).unwrap())).collect()
}

fn folder(config: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("model")).unwrap();
    fs::write(folder.path().join("model/config.json"), config).unwrap();
    fs::write(folder.path().join("text.txt"), "Pack my box with five dozen liquor jugs. ".repeat(400)).unwrap();
    folder
}

const SHORT: &str = "--data text.txt --seq 16 --global-batch 4 --eval-every 0 --final-eval-batches 1";

/// Classes write the number of layers that predict further tokens, and save none: a run goes on without them, also when it is resumed.
#[test]
fn layers_that_a_folder_lacks_are_left_out() {
    let with_one = MODELS[3].0;
    let folder = folder(&with_one.replace(r#""num_nextn_predict_layers": 1"#, r#""num_nextn_predict_layers": 0"#));
    answer(folder.path(), &format!("train model {SHORT} --steps 1 --save-every 1 --out first"));
    answer(folder.path(), "export-weights first --out exported");
    fs::write(folder.path().join("exported/config.json"), with_one).unwrap();
    let args = format!("train --init-from exported {SHORT} --steps 2 --save-every 1 --out second");
    let said = answer(folder.path(), &args);
    let note = "states 1 layer behind the others that predict further tokens (`num_nextn_predict_layers`), but exported has no tensor";
    assert!(said.contains(note), "{said}");
    fs::remove_dir_all(folder.path().join("exported")).unwrap();
    answer(folder.path(), "train --resume second --steps 3");
    answer(folder.path(), "export-weights second --out again");
    let config = fs::read_to_string(folder.path().join("again/config.json")).unwrap();
    let config: Value = serde_json::from_str(&config).unwrap();
    assert_eq!(config["num_nextn_predict_layers"], 0);
}

#[test]
fn exported_weights_come_back_to_the_bit() {
    for (config, layout) in MODELS {
        let folder = folder(config);
        let at = |name: &str| folder.path().join(name);
        answer(folder.path(), &format!("train model {SHORT} --steps 2 --save-every 2 --out first"));
        answer(folder.path(), "export-weights first --out exported --max-shard 3kB");
        fs::write(at("exported/tokenizer.json"), "{}").unwrap();
        // Another layout begins from the same weights, which a rate of 0 leaves as they are.
        let args =
            format!("--init-from exported {SHORT} --steps 1 --save-every 1 --lr 0 --min-lr 0 --parallel {layout}");
        let text = answer(folder.path(), &format!("train {args} --out second"));
        assert!(text.contains("weights   exported: ") && text.contains(" f32\n"), "{text}");
        answer(folder.path(), "export-weights second/step-00000001 --out back --max-shard 3kB");
        let (there, back) = (files(&at("exported")), files(&at("back")));
        assert!(there.len() > 4 && there.keys().eq(back.keys()), "{:?} {:?}", there.keys(), back.keys());
        for (name, bytes) in there {
            assert!(back[&name] == bytes, "{name} of {config}");
        }
        let written: Value = serde_json::from_slice(&files(&at("back"))["config.json"]).unwrap();
        assert_eq!(written["torch_dtype"], "float32");
        let class = written["architectures"][0].as_str().unwrap();
        assert!(class.ends_with("ForCausalLM") || class == "GPT2LMHeadModel", "{class}");

        // What was rounded to bf16 comes back in bf16.
        answer(folder.path(), "export-weights first --out narrow --dtype bf16");
        let bf16 = args.replace("exported", "narrow") + " --precision bf16 --out third";
        answer(folder.path(), &format!("train {bf16}"));
        answer(folder.path(), "export-weights third --out narrow-back");
        let (there, back) = (files(&at("narrow")), files(&at("narrow-back")));
        assert!(there["model.safetensors"] == back["model.safetensors"], "{config}");
        let header = &there["model.safetensors"];
        assert!(header.windows(13).any(|part| part == br#""format":"pt""#), "{config}");
    }
}

/// A shape, and the bytes of its elements.
type Rows = (Vec<usize>, Vec<u8>);

/// The tensors of all files of a folder: shape of the first rows, and the bytes of all rows in the order of their offsets.
fn joined(folder: &Path) -> BTreeMap<String, Rows> {
    let mut rows: BTreeMap<String, BTreeMap<u64, Rows>> = BTreeMap::new();
    for (name, bytes) in files(folder).iter().filter(|(name, _)| name.ends_with(".safetensors")) {
        let (_, header) = SafeTensors::read_metadata(bytes).unwrap();
        let more = header.metadata().as_ref().unwrap();
        assert_eq!(more["format"], "pt");
        let places: Option<Value> = more.get("DCP_SHARDING_INFO").map(|text| serde_json::from_str(text).unwrap());
        assert_eq!(places.is_some(), name.starts_with("shard-"), "{name}");
        for (tensor, view) in SafeTensors::deserialize(bytes).unwrap().tensors() {
            let first = places.as_ref().map_or(0, |places| {
                let offsets = places[&tensor]["saved_offsets"].as_array().unwrap();
                assert!(offsets.len() == view.shape().len() && offsets[1..].iter().all(|offset| offset == 0));
                offsets[0].as_u64().unwrap()
            });
            let part = (view.shape().to_vec(), view.data().to_vec());
            assert!(rows.entry(tensor).or_default().insert(first, part).is_none(), "{name}");
        }
    }
    let join = |parts: BTreeMap<u64, (Vec<usize>, Vec<u8>)>| {
        let mut all = (Vec::new(), Vec::new());
        for (first, (shape, bytes)) in parts {
            assert_eq!(first, all.0.first().map_or(0, |&rows: &usize| rows as u64), "rows follow each other");
            let before = first as usize;
            all.0 = shape;
            all.0[0] += before;
            all.1.extend(bytes);
        }
        all
    };
    rows.into_iter().map(|(name, parts)| (name, join(parts))).collect()
}

#[test]
fn shards_have_the_rows_of_whole_tensors() {
    let folder = folder(MODELS[2].0);
    let at = |name: &str| folder.path().join(name);
    answer(folder.path(), &format!("train model {SHORT} --steps 1 --save-every 1 --parallel dp=2,ep=2 --out first"));
    answer(folder.path(), "export-weights first --out whole");
    let whole = joined(&at("whole"));
    for (shards, more, count) in [(1, "", 1), (3, "", 3), (7, "--max-shard 2kB", 0)] {
        let out = format!("shards-{shards}");
        let args = format!("export-weights first --out {out} --shards {shards} {more} --format json");
        let told: Value = serde_json::from_str(&answer(folder.path(), &args)).unwrap();
        assert_eq!((&told["shards"], &told["tensors"]), (&shards.into(), &whole.len().into()));
        let names = files(&at(&out));
        assert!(names.contains_key("config.json") && !names.contains_key("model.safetensors.index.json"));
        assert!(if count > 0 { names.len() == count + 1 } else { names.len() > 20 }, "{:?}", names.keys());
        assert!(joined(&at(&out)) == whole, "{shards} shards");
    }
    // Records of delayed scaling are no weights, and the optimizer updates f32 copies.
    let still = "--steps 1 --save-every 1 --lr 0 --min-lr 0 --precision fp8-delayed --out delayed";
    answer(folder.path(), &format!("train --init-from whole {SHORT} {still}"));
    answer(folder.path(), "export-weights delayed --out back --dtype f32");
    assert!(joined(&at("back")) == whole);
    let output = run(folder.path(), "train model --data text.txt --init-from shards-3");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("error[MW0740]") && stderr.contains("join the shards"), "{stderr}");
}

/// A state dict of PyTorch has the matrix of a tied head under both names.
#[test]
fn shards_have_a_tied_matrix_twice() {
    let folder = folder(MODELS[0].0);
    let at = |name: &str| folder.path().join(name);
    answer(folder.path(), &format!("train model {SHORT} --steps 1 --save-every 1 --out first"));
    answer(folder.path(), "export-weights first --out whole");
    answer(folder.path(), "export-weights first --out shards --shards 2");
    let mut whole = joined(&at("whole"));
    let embedding = whole["transformer.wte.weight"].clone();
    assert!(whole.insert("lm_head.weight".to_string(), embedding).is_none());
    assert!(joined(&at("shards")) == whole);
}

#[test]
fn a_model_of_the_ir_has_tensors_of_its_own_names() {
    let folder = folder(MODELS[0].0);
    let at = |name: &str| folder.path().join(name);
    let ir = answer(folder.path(), "compile model --seq 16 --parallel mbs=4 --stop-after recognise");
    fs::write(at("model.ir"), ir).unwrap();
    let train = format!("train model.ir {SHORT} --mbs 4");
    answer(folder.path(), &format!("{train} --steps 2 --save-every 2 --out first"));
    let text = answer(folder.path(), "export-weights first --out exported");
    assert!(text.contains("of no class: tensors are named as parameters") && !text.contains("config.json"), "{text}");
    let there = joined(&at("exported"));
    assert!(there.contains_key("wte") && there.contains_key("layer.1.wq"), "{:?}", there.keys());
    let still = "--steps 1 --save-every 1 --lr 0 --min-lr 0";
    answer(folder.path(), &format!("{train} {still} --init-from exported --parallel tp=2 --out second"));
    answer(folder.path(), "export-weights second --out back");
    assert!(joined(&at("back")) == there);
    let output = run(folder.path(), &format!("train tiny-gpt2 {SHORT} --init-from exported --out fourth"));
    assert!(String::from_utf8_lossy(&output.stderr).contains("error[MW0740]"));
    assert!(!at("fourth").exists(), "nothing is written");
}

#[test]
fn a_failed_export_leaves_nothing() {
    let folder = folder(MODELS[0].0);
    let at = |name: &str| folder.path().join(name);
    answer(folder.path(), &format!("train model {SHORT} --steps 1 --save-every 1 --out first"));
    fs::create_dir(at("empty")).unwrap();
    answer(folder.path(), "export-weights first --out empty --format json");
    let count = || fs::read_dir(folder.path()).unwrap().count();
    let before = count();
    let data = at("first/step-00000001/data-0000.safetensors");
    let mut bytes = fs::read(&data).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&data, bytes).unwrap();
    let output = run(folder.path(), "export-weights first --out spoiled");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("error[MW0721]"), "{stderr}");
    assert_eq!(count(), before, "nothing is left behind");
}
