//! Low-rank adapters: on every mesh the same as on one device, with frozen parameters as they were, and equal to merged weights.

use crate::meshes::compare::differences;
use crate::meshes::record::{Record, sgd};
use crate::meshes::trained::{alone, trained};
use crate::meshes::training::{Recipe, SEED, compiled, inputs, model, models, request};
use crate::sample::sampled;
use cost::PROGRAM;
use ir::graph::{ArgKind, Model, is_factor};
use ir::models::{Experts, LlamaConfig, ModelConfig};
use ir::optimizer::{Optimizer, OptimizerKind};
use ir::text::{self, File};
use ir::types::DType;
use ir::verify::verify_stated;
use meshwright::ModelSource;
use meshwright::compiler::pipeline::compile;
use meshwright::runtime::exec::{Executor, Options};
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use transforms::adapt::{Lora, adapt};
use transforms::differentiate::differentiate;

/// Sequences of a micro-batch over all ranks: four micro-batches a step.
const SEQUENCES: u64 = 4;

/// A Llama with experts in one of two layers, and GPT-2, whose frozen embedding is the head's weight too.
fn recipes() -> [(Recipe, Lora); 2] {
    let [ModelConfig::Llama(llama), gpt2] = models() else { panic!("the first is a Llama") };
    let experts = Experts { group: Some(4), ..Experts::softmax(4, 2, 24) };
    let sparse = LlamaConfig { kv_heads: 2, layers: 2, experts: Some(experts), ..llama };
    let adamw = Optimizer { kind: OptimizerKind::adamw(0.1), clip: Some(0.5) };
    let recipe = |config| Recipe { config, optimizer: adamw.clone(), lr: 5e-3, steps: 3, precision: "f32" };
    let lora =
        |targets: &[&str]| Lora { rank: 4, scale: 8.0, targets: targets.iter().map(|name| name.to_string()).collect() };
    [(recipe(ModelConfig::Llama(sparse)), lora(&[])), (recipe(gpt2), lora(&["q", "v_proj", "down"]))]
}

fn adapted((recipe, lora): &(Recipe, Lora)) -> Model {
    adapt(model(recipe, SEQUENCES), lora).expect("adapters")
}

fn program(case: &(Recipe, Lora), mesh: &str) -> File {
    let compiled = compile(adapted(case).into(), &request(&case.0, mesh, SEQUENCES), &PROGRAM, &mut |_, _| {});
    compiled.unwrap_or_else(|why| panic!("{mesh}: {why}"))
}

fn record(case: &(Recipe, Lora), mesh: &str) -> Record {
    trained(&program(case, mesh), &case.0, mesh)
}

#[test]
fn every_mesh_trains_adapters_as_one_device() {
    for (which, case) in recipes().iter().enumerate() {
        let alone = record(case, "");
        let meshes = [
            "dp=2",
            "tp=2,sp=true",
            "tp=4",
            "dp=2,tp=2,zero=1",
            "dp=4,zero=2,shard=2",
            "dp=2,tp=2,zero=3,recompute=full",
            "cp=2,cp_kind=ring,dp=2,zero=1",
            "cp=2,cp_kind=ulysses",
            "dp=2,pp=2,schedule=zb-h1,zero=1",
            "dp=2,pp=2,offload=all,zero=1,offload_optimizer=true",
            "dp=2,tp=2,ep=2,etp=2,zero=1",
            "dp=4,ep=2,zero=3,gather=step",
        ];
        for (number, mesh) in meshes.into_iter().enumerate() {
            let for_experts = mesh.contains("ep=");
            // A sample has each mesh with one recipe.
            if (which == 1 && for_experts) || sampled(!for_experts && (number + which) % 2 == 1, false) {
                continue;
            }
            let found = differences(&record(case, mesh), &alone, &case.0.optimizer);
            assert!(found.is_empty(), "recipe {which} on {mesh}: {found:#?}");
        }
    }
}

/// B is 0 before the first step.
#[test]
fn a_run_begins_with_the_model_itself() {
    let cases = recipes();
    for ((_, plain), case) in alone(cases.iter().map(|(recipe, _)| recipe.clone()), SEQUENCES).iter().zip(&cases) {
        assert_eq!(record(case, "").losses[0], plain.losses[0]);
    }
}

/// Nothing but the factors has gradients and states, or changes.
#[test]
fn other_parameters_are_frozen() {
    for case in recipes() {
        let begun = Recipe { steps: 1, lr: 0.0, optimizer: sgd(), ..case.0.clone() };
        let (before, after) = (record(&(begun, case.1.clone()), ""), record(&case, ""));
        assert!(after.gradients.keys().all(|name| is_factor(name)) && !after.gradients.is_empty());
        for (name, values) in &after.params {
            assert_eq!(*values == before.params[name], !is_factor(name), "{name}");
        }
        let differentiated = differentiate(adapted(&case), &case.0.optimizer).expect("a gradient");
        for block in differentiated.blocks.values() {
            for state in block.args_of(ArgKind::State) {
                let (param, _) = block.value_name(state).rsplit_once('.').expect("a suffix");
                assert!(is_factor(param), "{param}");
            }
        }
    }
}

/// The losses of adapters are those of `W + scale / rank A B`.
#[test]
fn adapters_equal_merged_weights() {
    let case = &recipes()[0];
    let params = record(case, "").params;
    let files = [(program(case, ""), None), (compiled(&case.0, "", SEQUENCES), Some(&case.1))];
    let [at, still] = files.map(|(file, merge)| {
        let options = Options { seed: SEED, ..Options::default() };
        let mut executor = Executor::load(&file.model, file.program.as_ref().expect("a program"), &options).unwrap();
        executor.import_params(own(&params, merge)).expect("its parameters");
        executor.step(inputs(&file.model, &case.0, "").remove(0)).expect("a step").loss.expect("a loss")
    });
    assert!((at - still).abs() < 1e-5 && at < 6.0, "{at} and {still}");
}

/// Parameters of the model with adapters, or merged with them.
fn own(params: &BTreeMap<String, Vec<f64>>, merge: Option<&Lora>) -> BTreeMap<String, Vec<f32>> {
    let Some(lora) = merge else {
        return params.iter().map(|(name, all)| (name.clone(), all.iter().map(|&x| x as f32).collect())).collect();
    };
    let rank = lora.rank as usize;
    let mut merged = BTreeMap::new();
    for (name, whole) in params.iter().filter(|(name, _)| !is_factor(name)) {
        let mut whole = whole.clone();
        if let Some((a, b)) = params.get(&format!("{name}_lora_a")).zip(params.get(&format!("{name}_lora_b"))) {
            let (rows, columns) = (a.len() / rank, b.len() / rank);
            for (at, value) in whole.iter_mut().enumerate() {
                let (row, column) = (at / columns, at % columns);
                assert!(row < rows, "{name}");
                let term: f64 = (0..rank).map(|k| a[row * rank + k] * b[k * columns + column]).sum();
                *value += lora.scale / lora.rank as f64 * term;
            }
        }
        merged.insert(name.clone(), whole.into_iter().map(|x| x as f32).collect());
    }
    merged
}

/// The text has what is frozen, and reads as the same model.
#[test]
fn text_keeps_what_is_frozen() {
    for case in recipes() {
        let file: File = adapted(&case).into();
        let printed = text::print(&file);
        let read = text::parse(&printed).expect("it parses");
        verify_stated(&read.model).expect("it is a model");
        let frozen = |model: &Model| model.params.values().map(|param| param.frozen).collect::<Vec<_>>();
        assert_eq!((frozen(&read.model), text::print(&read)), (frozen(&file.model), printed));
        assert!(frozen(&file.model).contains(&false) && frozen(&file.model).contains(&true));
    }
}

/// Names of models with adapters, and what is wrong with them.
#[test]
fn names_state_adapters() {
    let batch = ir::models::Batch { batch: 1, seq: 8, dtype: DType::F32 };
    let factors = |name: &str| {
        let model = ModelSource::open(name).unwrap().model(&batch).unwrap();
        let found = model.params.values().filter(|param| !param.frozen);
        found.filter_map(|param| Some((param.field.clone()?, param.ty.sizes()))).collect::<Vec<_>>()
    };
    let of = |name: &str, sizes: &[u64]| (name.to_string(), sizes.to_vec());
    assert_eq!(
        factors("tiny-llama+lora=4,alpha=2,q,wv"),
        [
            of("wq_lora_a", &[256, 4]),
            of("wq_lora_b", &[4, 4, 2, 32]),
            of("wv_lora_a", &[256, 4]),
            of("wv_lora_b", &[4, 4, 32])
        ]
    );
    assert_eq!(factors("tiny-llama+lora=2").len(), 14);
    // Neither experts nor the router.
    assert_eq!(factors("tiny-moe+lora=2").len(), 8);
    let refused = |name: &str| ModelSource::open(name).map(|_| ()).unwrap_err().to_string();
    for (name, why) in [
        ("tiny-llama+lora=0", "states no adapters"),
        ("tiny-llama+lora=4,alpha=high", "states no adapters"),
        ("tiny-llama+lora=4,", "states no adapters"),
        ("tiny-llama+lora=4,w9", "no layer has a product with a parameter `w9`"),
        ("tiny-lama+lora=4", "there is no model `tiny-lama`"),
    ] {
        assert!(refused(name).contains(why), "{name}: {}", refused(name));
    }
}

/// Exported weights have the terms of the adapters in them: a run that begins from them has the loss of the run that was exported.
#[test]
fn an_export_is_merged() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text.txt");
    fs::write(&text, "Sixteen ranks share a layer, and eight of them a node. ".repeat(400)).unwrap();
    let run = |args: &str| {
        let args = args.split(' ');
        let done = Command::new(env!("CARGO_BIN_EXE_meshwright")).args(args).current_dir(&folder).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    let loss = |out: &str| -> f64 {
        let metrics = fs::read_to_string(folder.path().join(out).join("metrics.jsonl")).unwrap();
        let lines = metrics.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        lines.filter_map(|line| line["valid_loss"].as_f64()).next_back().expect("a validation")
    };
    let job = "--data text.txt --global-batch 4 --seq 32 --final-eval-batches 2";
    run(&format!(
        "train tiny-llama+lora=4,alpha=32 {job} --steps 3 --lr 0.02 --save-every 3 --parallel tp=2,zero=1 --out run"
    ));
    run("export-weights run --out merged");
    run(&format!("train --init-from merged {job} --steps 1 --lr 0 --out again"));
    let (adapted, merged) = (loss("run"), loss("again"));
    assert!((adapted - merged).abs() < 1e-5, "{adapted} and {merged}");
}
