//! Routers kept balanced: on every mesh losses, gradients and moved biases are those of one device and of the reference.

use crate::every_mesh::reference;
use crate::meshes::compare::differences;
use crate::meshes::record::{Record, sgd};
use crate::meshes::trained::trained_on;
use crate::meshes::training::{Recipe, SEED, compiled, inputs, models};
use ir::graph::{COUNTS, SectionKind};
use ir::models::{Balance, BalanceLoss, BalanceScope, Experts, LlamaConfig, ModelConfig};
use ir::ops::{GroupLimit, KernelOp, Op};
use meshwright::runtime::exec::{Executor, Input, Options};
use meshwright::train::{Quiet, TrainRequest, train};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;
use transforms::evaluation::evaluation;

/// Sequences of a micro-batch.
const SEQUENCES: u64 = 4;
const STEPS: u64 = 3;
const RATE: f64 = 0.01;

fn recipe(experts: Experts) -> Recipe {
    let [ModelConfig::Llama(plain), _] = models() else { panic!("the first is a Llama") };
    let config = ModelConfig::Llama(LlamaConfig { experts: Some(experts), layers: 2, ..plain });
    Recipe { config, optimizer: sgd(), lr: 0.05, steps: STEPS, precision: "f32" }
}

fn balance(scope: BalanceScope) -> Balance {
    Balance { loss: Some(BalanceLoss { scope, factor: 0.5 }), ..Balance::NONE }
}

/// Each scope with another router: of Mixtral's kind, without and with jitter, of DeepSeek-V3's kind with a bias, and one of DeepSeek-V2's kind.
fn recipes() -> Vec<Recipe> {
    let softmax = Experts { group: Some(4), ..Experts::softmax(4, 2, 20) };
    let limit = Some(GroupLimit { groups: 2, from: 1, by: 2 });
    let sigmoid = Experts { sigmoid: true, bias: true, limit, scale: 1.5, ..softmax.clone() };
    let micro = Balance { z_loss: Some(0.1), ..balance(BalanceScope::MicroBatch) };
    let moved = Balance { bias_rate: Some(RATE), ..balance(BalanceScope::Sequence) };
    let layers = Experts { balance: balance(BalanceScope::Layers), ..softmax.clone() };
    let experts = [
        layers,
        Experts { balance: micro, jitter: 0.3, ..softmax.clone() },
        Experts { balance: moved, ..sigmoid },
        Experts { balance: balance(BalanceScope::GlobalBatch), renormalise: false, ..softmax },
    ];
    experts.map(recipe).to_vec()
}

/// Each recipe on one device.
static ALONE: LazyLock<Vec<(Recipe, Record)>> = LazyLock::new(|| {
    let on_one = |recipe: Recipe| (recipe.clone(), trained_on(&recipe, "", SEQUENCES));
    recipes().into_iter().map(on_one).collect()
});

fn trains_as_on_one_device(mesh: &str) {
    for (which, (recipe, alone)) in ALONE.iter().enumerate() {
        let got = trained_on(recipe, mesh, SEQUENCES);
        let found = differences(&got, alone, &recipe.optimizer);
        assert!(found.is_empty(), "recipe {which} on {mesh}: {found:#?}");
        // Counts are whole numbers, and steps of biases depend on their signs alone.
        for name in alone.params.keys().filter(|name| name.ends_with(COUNTS) || name.ends_with("router_bias")) {
            assert_eq!(got.params[name], alone.params[name], "recipe {which} on {mesh}: {name}");
        }
    }
}

macro_rules! meshes {
    ($($name:ident $mesh:literal;)*) => {$(
        #[test]
        fn $name() {
            trains_as_on_one_device($mesh);
        }
    )*};
}

meshes! {
    data_parallel "dp=4";
    expert_parallel "dp=4,ep=4,zero=2";
    sharded_experts "dp=2,tp=2,ep=2,etp=2,sp=true,recompute=full";
    sequence_parallel "dp=2,tp=2,ep=4,sp=true";
    tensor_parallel "tp=2,recompute=selective:moe";
    shared_sequences "dp=2,cp=2,cp_kind=ring,ep=4";
    pipeline "dp=2,pp=2,ep=2";
    zero_bubbles "dp=2,pp=2,ep=2,schedule=zb-h1,offload=true";
    virtual_stages "pp=2,schedule=interleaved-1f1b";
    sharded_parameters "dp=4,ep=2,zero=3";
    sharded_states "dp=2,tp=2,zero=1,recompute=full:1";
    uneven_batch "dp=3";
}

#[test]
fn one_device_is_the_reference() {
    for (which, (recipe, alone)) in ALONE.iter().enumerate() {
        // The reference reports no losses of routers.
        let want = Record { balance: alone.balance.clone(), dropped: alone.dropped.clone(), ..reference(recipe) };
        let found = differences(alone, &want, &recipe.optimizer);
        assert!(found.is_empty(), "recipe {which}: {found:#?}");
    }
}

/// Random factors multiply what router and experts read in training alone.
#[test]
fn jitter_is_of_training_alone() {
    let text = r#"{"model_type": "mixtral", "vocab_size": 64, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 2, "sliding_window": null, "router_jitter_noise": 0.25}"#;
    let widths = |model: &ir::graph::Model| -> Vec<f64> {
        let stmts = model.blocks.values().flat_map(|block| &block[SectionKind::F].stmts);
        let widths = stmts
            .filter_map(|stmt| if let Op::Kernel(KernelOp::Jitter(op)) = &stmt.op { Some(op.width) } else { None });
        widths.collect()
    };
    let batch = ir::models::Batch { batch: 1, seq: 4, dtype: ir::types::DType::F32 };
    let model = ir::models::from_config(text).unwrap().build(&batch).unwrap();
    assert_eq!((widths(&model), widths(&evaluation(&model))), (vec![0.25], vec![0.0]));
    let wide = ir::models::from_config(&text.replace("0.25", "1.5")).unwrap_err().to_string();
    assert!(wide.contains("router_jitter_noise") && wide.contains("below 1"), "{wide}");
}

/// The executor of a recipe on a mesh.
fn executor(recipe: &Recipe, mesh: &str) -> (Executor, ir::text::File) {
    let mut file = compiled(recipe, mesh, SEQUENCES);
    let mut program = file.program.take().expect("a program");
    codegen::buffers::assign_buffers(&file.model, &mut program, None);
    let options = Options { seed: SEED, ..Options::default() };
    (Executor::load(&file.model, &program, &options).expect("a machine"), file)
}

#[test]
fn biases_follow_the_counts_that_are_reported() {
    let mut recipe = recipes().remove(2);
    recipe.steps = 12;
    for (mesh, precision) in
        [("", "f32"), ("dp=2,pp=2,ep=2,zero=1", "f32"), ("dp=2,tp=2,sp=true,zero=3", "bf16"), ("dp=4", "f16")]
    {
        let recipe = Recipe { precision, ..recipe.clone() };
        let (mut executor, file) = executor(&recipe, mesh);
        let mut wanted = [vec![0.0_f32; 4], vec![0.0_f32; 4]];
        for mut input in inputs(&file.model, &recipe, mesh) {
            input.loss_scale = if precision == "f16" { 1024.0 } else { 1.0 };
            let tokens = input.microbatches.len() as f32 * SEQUENCES as f32 * crate::meshes::text::SEQ as f32;
            executor.step(input).expect("a step");
            let counts = executor.expert_counts().expect("counts");
            for (layer, bias) in wanted.iter_mut().enumerate() {
                let counts = &counts[&format!("layer.{layer}")];
                assert_eq!(counts.iter().sum::<f32>(), 2.0 * tokens, "{mesh} in {precision}: {counts:?}");
                let mean = counts.iter().sum::<f32>() / 4.0;
                for (bias, &count) in bias.iter_mut().zip(counts) {
                    *bias += if count < mean {
                        RATE as f32
                    } else if count > mean {
                        -RATE as f32
                    } else {
                        0.0
                    };
                }
            }
        }
        let params = executor.export_state().expect("parameters");
        for (layer, bias) in wanted.iter().enumerate() {
            let name = format!("layer.{layer}.router_bias");
            let got = params.get(&format!("{name}.master")).or_else(|| params.get(&name)).expect("a bias");
            assert_eq!(&got.data, bias, "{mesh} in {precision}: {name}");
            assert!(bias.iter().any(|bias| *bias != 0.0));
        }
    }
}

/// The scale of a regulariser depends neither on labels nor on the number of micro-batches.
#[test]
fn labels_do_not_scale_the_losses_of_routers() {
    let recipe = recipes().remove(2);
    let router = |masked: usize, mesh: &str| {
        let (mut executor, file) = executor(&recipe, mesh);
        let mut input = inputs(&file.model, &recipe, mesh).remove(0);
        let label =
            file.model.inputs.iter().find(|input| file.model.values[input.value] == "lab").expect("labels").value;
        for micro in &mut input.microbatches {
            let Some(Input::Ints(labels)) = micro.get_mut(&label) else { panic!("labels are integers") };
            labels.iter_mut().take(masked).for_each(|label| *label = -1);
        }
        // Nothing of the loss of tokens is left.
        input.valid_tokens = 0;
        executor.step(input).expect("a step");
        executor.gradients().expect("gradients").remove("layer.1.router").expect("a router").data
    };
    let (all, none, other) = (router(0, ""), router(usize::MAX, ""), router(5, "dp=2,ep=2"));
    assert!(all.iter().any(|number| number.abs() > 1e-6));
    assert_eq!(all, none);
    let close = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-6;
    assert!(all.iter().zip(&other).all(close), "{all:?} and {other:?}");
}

/// The lines of steps of a run of some text.
fn metrics(folder: &Path, model: &str, mesh: &str) -> Vec<Value> {
    fs::create_dir_all(folder).unwrap();
    let text: String = (0..300).map(|n| format!("line {n}: {} quick brown foxes\n", n * n % 97)).collect();
    fs::write(folder.join("text.txt"), text).unwrap();
    let request = TrainRequest {
        model: model.into(),
        parallel: mesh.into(),
        data: folder.join("text.txt"),
        out: folder.join("out"),
        seq: 32,
        global_batch: 8,
        steps: 3,
        eval_every: 0,
        final_eval_batches: Some(1),
        routing_every: u64::from(model.contains("balance")),
        ..TrainRequest::default()
    };
    train(&request, &mut Quiet).unwrap_or_else(|why| panic!("{model} on {mesh}: {why}"));
    let lines = fs::read_to_string(folder.join("out/metrics.jsonl")).unwrap();
    lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|line: &Value| line["loss"].is_number())
        .collect()
}

#[test]
fn metrics_have_losses_and_counts() {
    let folder = std::env::temp_dir().join(format!("meshwright-balance-{}", std::process::id()));
    let plain = metrics(&folder, "tiny-moe", "dp=1,mbs=2");
    assert!(plain.iter().all(|line| line.get("routing").is_none() && line.get("balance_loss").is_none()));
    let counted = metrics(&folder, "tiny-moe+balance=counts", "dp=1,mbs=2");
    let losses = |lines: &[Value]| lines.iter().map(|line| line["loss"].as_f64().unwrap()).collect::<Vec<_>>();
    assert_eq!(losses(&plain), losses(&counted), "counts change nothing");
    let model = "tiny-moe+balance=sequence=0.05,z=0.001";
    let (alone, many) = (metrics(&folder, model, "dp=1,mbs=2"), metrics(&folder, model, "dp=2,pp=2,ep=2,mbs=1"));
    for (one, other) in alone.iter().zip(&many) {
        for key in ["loss", "balance_loss", "z_loss"] {
            let [one, other] = [one, other].map(|line| line[key].as_f64().unwrap());
            assert!((one - other).abs() < 1e-4 * one, "{key}: {one} and {other}");
        }
        let counts = one["routing"]["counts"]["layer.0"].as_array().unwrap();
        assert_eq!(counts.iter().map(|count| count.as_u64().unwrap()).sum::<u64>() % (8 * 32), 0);
    }
    assert_eq!(alone[0]["routing"]["counts"], many[0]["routing"]["counts"]);
    fs::remove_dir_all(&folder).unwrap();
}
