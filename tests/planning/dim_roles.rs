//! Names of dims mean nothing beyond their roles: a model whose dims have other names, with the roles stated, gives the same
//! programs and the same estimates.

use ir::graph::Model;
use ir::models::Batch;
use ir::text::{self, File};
use ir::types::DType;
use meshwright::compiler::compile::{CompileRequest, compile_source};
use meshwright::compiler::model_source::ModelSource;
use meshwright::estimator::{EstimateRequest, Estimator};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

const BATCH: Batch = Batch { batch: 4, seq: 64, dtype: DType::F32 };

/// A DeepSeek-V3 with latent attention, a dense layer, routed and shared experts.
const DEEPSEEK: &str = r#"{"model_type": "deepseek_v3", "vocab_size": 260, "max_position_embeddings": 64,
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 4, "rms_norm_eps": 1e-5, "kv_lora_rank": 8, "q_lora_rank": 8, "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4, "v_head_dim": 8, "n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2,
    "moe_intermediate_size": 16, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1, "norm_topk_prob": true,
    "routed_scaling_factor": 1.5}"#;

const MODELS: [(&str, &str); 4] =
    [("dense", "tiny-llama"), ("moe", "tiny-moe"), ("deepseek", DEEPSEEK), ("gpt2", "tiny-gpt2")];

/// Configurations in which some role decides.
const CONFIGS: [&str; 13] = [
    "dp=2,tp=2,mbs=2",
    "tp=2,sp=true,zero=1,dp=2,mbs=2",
    "dp=2,cp=2,mbs=2",
    "tp=2,cp=2,cp_kind=ulysses,mbs=4",
    "tp=2,cp=2,cp_kind=ring,mbs=4",
    "pp=2,tp=2,schedule=seq1f1b,mbs=4",
    "dp=2,tp=2,ep=2,mbs=2",
    "tp=4,ep=2,etp=2,sp=true,mbs=4",
    "tp=2,sp=true,mbs=4,recompute=selective:op",
    "tp=2,pp=2,mbs=4,recompute=selective:mlp+layernorm",
    "dp=2,mbs=2,recompute=selective:moe",
    "dp=2,mbs=2,recompute=selective:moe_act+shared_experts+mla_up_proj",
    "dp=4,zero=3,mbs=1,recompute=full:1",
];

/// The model of a name, with the batch and the length of sequences that it states.
fn built(model: &str) -> Model {
    ModelSource::open(model).unwrap().model(&BATCH).unwrap()
}

fn names(model: &Model) -> Vec<String> {
    model.dims.values().map(|dim| dim.name.clone()).collect()
}

/// Gives the dims other names; the roles stay.
fn rename(model: &mut Model, names: &[String]) {
    model.dims.values_mut().zip(names).for_each(|(dim, name)| dim.name.clone_from(name));
}

/// The text of the model with other names, each time without regard to what names mean by convention: names without a
/// meaning, and those of other dims of the model.
fn renamed(model: &Model) -> [String; 2] {
    let mut rotated = names(model);
    let fresh: Vec<String> = (0..rotated.len()).map(|number| format!("tokens{number}")).collect();
    rotated.rotate_left(1);
    [fresh, rotated].map(|names| {
        let mut model = model.clone();
        rename(&mut model, &names);
        text::print(&File { model, ..File::default() })
    })
}

fn printed(model: &Model) -> String {
    text::print(&File { model: model.clone(), ..File::default() })
}

/// The program of a text for a configuration, its stages with their costs included, printed with these names of dims.
fn compiled(source: &str, parallel: &str, names: &[String]) -> Option<String> {
    let source = ModelSource::read("model.ir", source).unwrap();
    let request = CompileRequest { parallel: parallel.into(), ..CompileRequest::default() };
    let mut file = compile_source(&source, &request, None, &mut |_, _| {}).ok()?;
    rename(&mut file.model, names);
    Some(text::print(&file))
}

#[test]
fn models_with_renamed_dims_have_the_same_programs() {
    for (name, model) in MODELS {
        let model = built(model);
        let (names, renamed) = (names(&model), renamed(&model));
        let mut found = 0;
        for parallel in CONFIGS {
            let want = compiled(&printed(&model), parallel, &names);
            for text in &renamed {
                assert!(compiled(text, parallel, &names) == want, "{name} {parallel}");
            }
            found += usize::from(want.is_some());
        }
        assert!(found >= 8, "{name}: {found} programs");
    }
}

/// An estimate of the model in a file, without the file's name.
fn estimated(estimator: &Estimator, path: &Path, parallel: &str) -> Option<Value> {
    let request = EstimateRequest {
        model: path.display().to_string(),
        cluster: "h100".to_string(),
        seq: BATCH.seq,
        global_batch: 16,
        parallel: parallel.to_string(),
        ..EstimateRequest::default()
    };
    let mut report = serde_json::to_value(estimator.estimate(&request).ok()?).unwrap();
    report["inputs"] = json!(null);
    Some(report)
}

#[test]
fn models_with_renamed_dims_have_the_same_estimates() {
    let folder = std::env::temp_dir().join(format!("meshwright-dim-roles-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let estimator = Estimator::new();
    for (name, model) in MODELS {
        let model = built(model);
        let texts = [vec![printed(&model)], renamed(&model).to_vec()].concat();
        let paths: Vec<PathBuf> = (0..texts.len()).map(|number| folder.join(format!("{name}{number}.ir"))).collect();
        paths.iter().zip(&texts).for_each(|(path, text)| fs::write(path, text).unwrap());
        let mut found = 0;
        for parallel in CONFIGS.into_iter().chain(["dp=2,tp=2,mbs=2,recompute=auto"]) {
            let reports: Vec<Option<Value>> = paths.iter().map(|path| estimated(&estimator, path, parallel)).collect();
            assert!(reports.iter().all(|report| *report == reports[0]), "{name} {parallel}: {reports:#?}");
            found += usize::from(reports[0].is_some());
        }
        assert!(found >= 8, "{name}: {found} estimates");
    }
    fs::remove_dir_all(&folder).unwrap();
}
