//! Folders of weights: every family is read element by element, and what is wrong with a folder is named.

#[path = "folder/families.rs"]
mod families;
#[path = "folder/make.rs"]
mod make;

use checkpoint::Shard;
use ir::catalogue::Code;
use ir::diag::Coded;
use ir::models::{FAMILIES, from_config};
use make::{Tensors, folder, number, tensors, write};
use meshwright_weights::{Description, Error, Names, Weights, lacks_further};
use safetensors::tensor::Dtype;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A small configuration whose tensors are spoiled.
const GPT2: &str =
    r#"{"model_type": "gpt2", "vocab_size": 32, "n_embd": 12, "n_head": 4, "n_layer": 1, "n_positions": 16}"#;

fn open(path: &Path, config: &str) -> Result<Weights, Error> {
    Weights::open(path, &from_config(config).unwrap(), 8)
}

fn whole(sizes: &[u64]) -> Shard {
    Shard { offset: vec![0; sizes.len()], shape: sizes.to_vec() }
}

#[test]
fn every_family_has_a_small_configuration() {
    let configs = families::all();
    for family in FAMILIES {
        let stated = format!(r#""model_type": "{}""#, family.model_type);
        assert!(configs.iter().any(|config| config.contains(&stated)), "{}", family.model_type);
    }
}

#[test]
fn every_element_of_a_family_has_one_place() {
    for config in families::all() {
        let names = Names::of(&Description::read(&config).unwrap(), 8, &|_, _| false).unwrap();
        let mut hits: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        for source in names.sources.values() {
            // Each element of a tensor says how often it has been read.
            for piece in &source.pieces {
                hits.entry(&piece.tensor).or_insert_with(|| vec![0; piece.shape.iter().product::<u64>() as usize]);
            }
        }
        let numbered: BTreeMap<&str, Vec<f32>> =
            hits.iter().map(|(name, all)| (*name, (0..all.len()).map(|at| at as f32).collect())).collect();
        for source in names.sources.values() {
            let own = source.collect(|name| numbered[name].as_slice());
            let each = own.len() / source.pieces.len();
            for (piece, own) in source.pieces.iter().zip(own.chunks(each)) {
                let hits = hits.get_mut(piece.tensor.as_str()).unwrap();
                own.iter().for_each(|&at| hits[at as usize] += 1);
            }
        }
        for (name, hits) in hits {
            assert!(hits.iter().all(|&hits| hits == 1), "{name} of {config}: {hits:?}");
        }
    }
}

#[test]
fn boxes_of_every_family_and_format_are_read() {
    for (at, config) in families::all().iter().enumerate() {
        let dtype = [Dtype::F32, Dtype::BF16, Dtype::F16][at % 3];
        let all = tensors(config, dtype);
        let folder = folder(config, &all, 1 + at % 4);
        let weights = open(folder.path(), config).unwrap();
        assert_eq!(weights.counts(), (all.len(), 1 + at % 4));
        let names = Names::of(&Description::read(config).unwrap(), 8, &|_, _| false).unwrap();
        let wide = tensors(config, Dtype::F32);
        let wide: BTreeMap<&str, Vec<f32>> = wide
            .iter()
            .map(|(name, (.., data))| {
                let (words, _) = data.as_chunks::<4>();
                (name.as_str(), words.iter().map(|word| f32::from_le_bytes(*word)).collect())
            })
            .collect();
        for (name, source) in &names.sources {
            let own: Vec<f32> = source.collect(|name| wide[name].as_slice());
            let own: Vec<f32> = own.iter().map(|number| number + source.shift).collect();
            let mut read = vec![f32::NAN; own.len()];
            weights.read(name, &whole(&source.sizes), &mut read).unwrap();
            assert!(read == own, "{name} of {config}");
            // The second half of the last dim, of the first index of the others.
            let mut part = Shard { offset: vec![0; source.sizes.len()], shape: vec![1; source.sizes.len()] };
            let Some((last, &size)) = source.sizes.iter().enumerate().next_back() else { continue };
            (part.offset[last], part.shape[last]) = (size / 2, size - size / 2);
            let mut read = vec![f32::NAN; (size - size / 2) as usize];
            weights.read(name, &part, &mut read).unwrap();
            assert!(read == own[(size / 2) as usize..size as usize], "half of {name} of {config}");
        }
    }
}

#[test]
fn names_without_the_base_and_old_buffers_are_read() {
    let mut all: Tensors = tensors(GPT2, Dtype::F32);
    all = all.into_iter().map(|(name, tensor)| (name.replace("transformer.", ""), tensor)).collect();
    let (embedding, mask) = (all["wte.weight"].clone(), (Dtype::F32, vec![1, 1, 16, 16], vec![0; 1024]));
    all.insert("h.0.attn.bias".into(), mask.clone());
    all.insert("h.0.attn.masked_bias".into(), (Dtype::F32, vec![], vec![0; 4]));
    all.insert("lm_head.weight".into(), embedding);
    let made = folder(GPT2, &all, 1);
    open(made.path(), GPT2).unwrap();
    all.get_mut("lm_head.weight").unwrap().2[0] ^= 1;
    let why = refused(&folder(GPT2, &all, 2), GPT2, Code::WeightsMismatch);
    assert!(why.contains("`lm_head.weight` in ") && why.contains("`tie_word_embeddings`"), "{why}");
}

/// The prefix of the text model is `language_model.` in older files, and `model.language_model.` for `model.` in newer ones.
#[test]
fn the_text_model_of_a_model_that_reads_images_is_read() {
    let text = r#"{"model_type": "gemma3_text", "vocab_size": 32, "hidden_size": 12, "intermediate_size": 20,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6, "sliding_window": 4"#;
    let (text, whole) =
        (format!("{text}}}"), format!(r#"{{"model_type": "gemma3", "vision_config": {{}}, "text_config": {text}}}}}"#));
    let plain = tensors(&text, Dtype::F32);
    for (from, to) in [("model.", "language_model.model."), ("model.", "model.language_model.")] {
        let renamed = |name: &str| name.strip_prefix(from).map_or(name.to_string(), |rest| format!("{to}{rest}"));
        let mut all: Tensors = plain.iter().map(|(name, tensor)| (renamed(name), tensor.clone())).collect();
        all.insert("vision_tower.patch.weight".into(), (Dtype::F32, vec![2], vec![0; 8]));
        let made = folder(&whole, &all, 1);
        let weights = open(made.path(), &whole).unwrap();
        let mut read = vec![0.0; 32 * 12];
        weights.read("emb", &Shard { offset: vec![0, 0], shape: vec![32, 12] }, &mut read).unwrap();
        let (words, _) = plain["model.embed_tokens.weight"].2.as_chunks::<4>();
        assert!(read.iter().zip(words).all(|(number, word)| *number == f32::from_le_bytes(*word)));
        all.insert(format!("{to}more.weight"), (Dtype::F32, vec![2], vec![0; 8]));
        let why = refused(&folder(&whole, &all, 1), &whole, Code::WeightsMismatch);
        assert!(why.contains("more.weight"), "{why}");
    }
}

/// A class writes the number of layers that it computes none of. A folder with a part of such a layer is damaged.
#[test]
fn a_folder_without_the_further_layers_that_it_states_has_none() {
    let with = |count: u64| {
        let config =
            families::all().into_iter().find(|config| config.contains(r#""num_nextn_predict_layers": 1"#)).unwrap();
        config.replace(r#""num_nextn_predict_layers": 1"#, &format!(r#""num_nextn_predict_layers": {count}"#))
    };
    let mut all = tensors(&with(1), Dtype::F32);
    assert!(!lacks_further(folder(&with(1), &all, 1).path()).unwrap());
    let own = tensors(&with(0), Dtype::F32);
    let made = folder(&with(1), &own, 1);
    assert!(lacks_further(made.path()).unwrap() && !lacks_further(folder(&with(0), &own, 1).path()).unwrap());
    open(made.path(), &with(0)).unwrap();
    let why = refused(&made, &with(1), Code::WeightsConfig);
    assert!(why.contains("mtp"), "{why}");
    all.retain(|name, _| !name.ends_with("enorm.weight"));
    let why = refused(&folder(&with(1), &all, 1), &with(1), Code::WeightsMismatch);
    assert!(why.contains("enorm.weight"), "{why}");
}

/// The message of a folder that is refused with a code.
fn refused(folder: &tempfile::TempDir, config: &str, code: Code) -> String {
    let error = open(folder.path(), config).err().expect("is refused");
    assert_eq!(error.code(), Some(code), "{error}");
    assert!(error.help().is_some_and(|help| help.len() > 10), "{error}");
    error.to_string()
}

#[test]
fn what_is_wrong_with_a_tensor_is_named() {
    let all = tensors(GPT2, Dtype::F32);
    let spoiled = |change: &dyn Fn(&mut Tensors)| {
        let mut all = all.clone();
        change(&mut all);
        folder(GPT2, &all, 1)
    };
    let shape = |tensor: &str, shape: &[usize]| {
        let bytes = 4 * shape.iter().product::<usize>();
        spoiled(&|all| drop(all.insert(tensor.into(), (Dtype::F32, shape.to_vec(), vec![0; bytes]))))
    };
    let cases: [(tempfile::TempDir, Code, &[&str]); 9] = [
        (
            shape("transformer.h.0.mlp.c_fc.weight", &[48, 12]),
            Code::WeightsMismatch,
            &["c_fc.weight", "[48, 12]", "[12, 48]"],
        ),
        (
            shape("transformer.wte.weight", &[40, 12]),
            Code::WeightsMismatch,
            &["40 rows", "`vocab_size` is 32", "8 rows are padding"],
        ),
        (shape("transformer.wte.weight", &[30, 12]), Code::WeightsMismatch, &["30 rows", "padded by 2 tokens"]),
        (
            spoiled(&|all| drop(all.remove("transformer.ln_f.bias"))),
            Code::WeightsMismatch,
            &["without `transformer.ln_f.bias`"],
        ),
        (
            shape("transformer.h.1.ln_1.bias", &[12]),
            Code::WeightsMismatch,
            &["not needed: `transformer.h.1.ln_1.bias`"],
        ),
        (
            spoiled(&|all| {
                let tensor = all.get_mut("transformer.ln_f.bias").unwrap();
                *tensor = (Dtype::F8_E4M3, vec![12], vec![0; 12]);
            }),
            Code::WeightsFormat,
            &["`transformer.ln_f.bias`", "F8_E4M3"],
        ),
        (
            spoiled(&|all| {
                drop(all.insert("transformer.ln_f.weight_scale_inv".into(), (Dtype::F32, vec![1], vec![0; 4])))
            }),
            Code::WeightsFormat,
            &["weight_scale_inv", "quantised"],
        ),
        (spoiled(&|all| all.clear()), Code::WeightsMismatch, &["without", "and 12 more"]),
        (
            spoiled(&|all| all.iter_mut().for_each(|(_, tensor)| tensor.0 = Dtype::I32)),
            Code::WeightsFormat,
            &["I32", "only f32, f16 and bf16"],
        ),
    ];
    for (made, code, parts) in &cases {
        let why = refused(made, GPT2, *code);
        assert!(parts.iter().all(|part| why.contains(part)), "{why}");
    }
    let not_a_number =
        spoiled(&|all| all.get_mut("transformer.ln_f.bias").unwrap().2[..4].copy_from_slice(&f32::NAN.to_le_bytes()));
    let weights = open(not_a_number.path(), GPT2).unwrap();
    let error = weights.read("final_bias", &whole(&[12]), &mut [0.0; 12]).unwrap_err();
    assert!(error.to_string().contains("`transformer.ln_f.bias`") && error.to_string().contains("NaN"), "{error}");
    assert_eq!(error.code(), Some(Code::WeightsDamaged));
    let mut read = [0.0; 12];
    weights.read("final_norm", &whole(&[12]), &mut read).unwrap();
    assert!(read.iter().all(|value| (0..251).any(|at| number(at) == *value)), "{read:?}");
}

#[test]
fn what_is_wrong_with_a_file_is_named() {
    let all = tensors(GPT2, Dtype::BF16);
    let one = "model.safetensors";
    let spoiled = |files: usize, change: &dyn Fn(&Path)| {
        let made = folder(GPT2, &all, files);
        change(made.path());
        made
    };
    let bytes = |change: fn(&mut Vec<u8>)| {
        spoiled(1, &|path| {
            let mut bytes = fs::read(path.join(one)).unwrap();
            change(&mut bytes);
            fs::write(path.join(one), bytes).unwrap();
        })
    };
    let index = |from: &str, to: &str| {
        spoiled(3, &|path| {
            let file = path.join("model.safetensors.index.json");
            fs::write(&file, fs::read_to_string(&file).unwrap().replacen(from, to, 1)).unwrap();
        })
    };
    let instead = |names: &[&str]| {
        spoiled(1, &|path| {
            fs::remove_file(path.join(one)).unwrap();
            names.iter().for_each(|name| fs::write(path.join(name), "x").unwrap());
        })
    };
    let cases: [(tempfile::TempDir, Code, &str); 19] = [
        (bytes(|bytes| bytes.truncate(bytes.len() - 1)), Code::WeightsDamaged, "is cut off"),
        (bytes(|bytes| bytes.truncate(100)), Code::WeightsDamaged, "the header reaches beyond"),
        (bytes(|bytes| bytes.truncate(3)), Code::WeightsDamaged, "3 bytes are no safetensors file"),
        (bytes(Vec::clear), Code::WeightsDamaged, "0 bytes"),
        (bytes(|bytes| bytes.push(0)), Code::WeightsDamaged, "too long"),
        (bytes(|bytes| bytes[7] = 1), Code::WeightsDamaged, "no header is that long"),
        (bytes(|bytes| bytes[8] = b'['), Code::WeightsDamaged, "is no safetensors file"),
        (index("model-1.safetensors", "../model-1.safetensors"), Code::WeightsDamaged, "outside of its folder"),
        (index("model-1.safetensors", "model-2.safetensors"), Code::WeightsDamaged, "which does not have it"),
        (index("\"weight_map\"", "\"weights\""), Code::WeightsDamaged, "is no index"),
        (
            spoiled(3, &|path| fs::remove_file(path.join("model-1.safetensors")).unwrap()),
            Code::WeightsDamaged,
            "is missing, but the index names it",
        ),
        (
            spoiled(2, &|path| write(&path.join("model-1.safetensors"), &all)),
            Code::WeightsDamaged,
            "and so has another file",
        ),
        (instead(&["pytorch_model.bin"]), Code::PickledWeights, "pytorch_model.bin is a Python pickle"),
        (instead(&["pytorch_model.bin.index.json"]), Code::PickledWeights, "is a Python pickle"),
        (instead(&["adapter_model.safetensors"]), Code::WeightsMissing, "an adapter of another model"),
        (instead(&["model.fp16.safetensors"]), Code::WeightsMissing, "there is model.fp16.safetensors"),
        (instead(&["shard-00001-model-00001-of-00001.safetensors"]), Code::WeightsMissing, "is a shard that torch"),
        (instead(&["model.gguf"]), Code::WeightsMissing, "another format"),
        (instead(&[]), Code::WeightsMissing, "neither model.safetensors nor"),
    ];
    for (made, code, part) in &cases {
        let why = refused(made, GPT2, *code);
        assert!(why.contains(part), "{why}");
    }
    let made = spoiled(1, &|_| ());
    let error = open(&made.path().join(one), GPT2).err().unwrap();
    assert!(error.code() == Some(Code::WeightsMissing) && error.to_string().contains("that is a file"), "{error}");
    let none = open(Path::new("no/such/folder"), GPT2).err().unwrap();
    assert!(none.code() == Some(Code::WeightsMissing) && none.to_string().contains("no such folder"), "{none}");
}

#[test]
fn parameters_without_a_class_have_tensors_of_their_own_names() {
    let zeros = |shape: &[usize]| (Dtype::F32, shape.to_vec(), vec![0; 4 * shape.iter().product::<usize>()]);
    let given = [("emb", vec![4, 2]), ("layer.0.norm", vec![2]), ("layer.1.norm", vec![2])];
    let open = |change: &dyn Fn(&mut Tensors)| {
        let mut all: Tensors = given.iter().map(|(name, shape)| (name.to_string(), zeros(shape))).collect();
        change(&mut all);
        let made = folder("no configuration", &all, 2);
        let params = given.iter().map(|(name, shape)| (name.to_string(), shape.iter().map(|&n| n as u64).collect()));
        Weights::open_named(made.path(), params)
    };
    assert_eq!(open(&|_| ()).unwrap().counts(), (3, 2));
    let refused = |change: &dyn Fn(&mut Tensors)| {
        let error = open(change).err().expect("is refused");
        assert_eq!(error.code(), Some(Code::WeightsMismatch));
        format!("{error}\n{}", error.help().unwrap())
    };
    let renamed = refused(&|all| {
        let norm = all.remove("layer.1.norm").unwrap();
        all.insert("layers.1.norm".into(), norm.clone());
        // No name is taken for a buffer of some class.
        all.insert("rotary_emb.inv_freq".into(), norm);
    });
    for part in [
        "without `layer.1.norm`",
        "`layers.1.norm`, `rotary_emb.inv_freq`",
        "nearest to `layer.1.norm` is `layers.1.norm`",
    ] {
        assert!(renamed.contains(part), "{renamed}");
    }
    let turned = refused(&|all| drop(all.insert("emb".into(), zeros(&[2, 4]))));
    assert!(turned.contains("`emb` in ") && turned.contains("[2, 4], but the model has [4, 2]"), "{turned}");
}

#[test]
fn a_folder_of_another_model_is_refused() {
    let made = folder(GPT2, &tensors(GPT2, Dtype::F32), 1);
    let why = refused(&made, &GPT2.replace(r#""n_head": 4"#, r#""n_head": 2"#), Code::WeightsConfig);
    assert!(why.contains("config.json describes another model: `heads` is 4, here 2"), "{why}");
    let same = GPT2.replace(r#""n_layer": 1"#, r#""n_layer": 1, "resid_pdrop": 0.3, "initializer_range": 0.5"#);
    open(made.path(), &same).unwrap();
    let quantised = GPT2.replace(r#""n_layer": 1"#, r#""n_layer": 1, "quantization_config": {"quant_method": "fp8"}"#);
    fs::write(made.path().join("config.json"), quantised).unwrap();
    assert!(refused(&made, GPT2, Code::WeightsFormat).contains(r#"`quantization_config` is {"quant_method":"fp8"}"#));
    fs::write(made.path().join("adapter_config.json"), "{}").unwrap();
    assert!(refused(&made, GPT2, Code::WeightsMissing).contains("adapter_config.json belongs to an adapter"));
    fs::write(made.path().join("config.json"), "{").unwrap();
    refused(&made, GPT2, Code::ConfigSyntax);
    fs::remove_file(made.path().join("config.json")).unwrap();
    assert!(refused(&made, GPT2, Code::WeightsMissing).contains("there is no config.json"));
}

#[test]
fn a_folder_of_the_cache_means_its_snapshot() {
    let made = folder(GPT2, &tensors(GPT2, Dtype::F32), 1);
    let cache = tempfile::tempdir().unwrap();
    let snapshot = cache.path().join("snapshots/0a1b");
    fs::create_dir_all(&snapshot).unwrap();
    fs::create_dir_all(cache.path().join("refs")).unwrap();
    fs::write(cache.path().join("refs/main"), "0a1b\n").unwrap();
    for name in ["config.json", "model.safetensors"] {
        fs::copy(made.path().join(name), snapshot.join(name)).unwrap();
    }
    assert_eq!(open(cache.path(), GPT2).unwrap().path(), snapshot);
}
