//! A checkpoint of one configuration loads under any other: parameters and optimizer states, to the bit.

use super::runs::Folder;
use cost::PROGRAM;
use half::{bf16, f16};
use ir::graph::is_record;
use ir::models::{Batch, Gpt2Config, LlamaConfig, ModelConfig, preset};
use ir::optimizer::Optimizer;
use ir::options::PlanOptions;
use ir::types::DType;
use meshwright::compiler::parallel;
use meshwright::compiler::pipeline::{PipelineOptions, compile};
use meshwright::compiler::precision::{Precision, precision};
use meshwright::runtime::checkpoint::{Checkpoint, Position, Save, save};
use meshwright::runtime::exec::{Executor, Input, Options, StepInput};
use safetensors::SafeTensors;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;

const SEQ: u64 = 4;
/// Sequences of a micro-batch; 3 and 4 ranks share them unevenly or not.
const SEQUENCES: u64 = 4;

/// Parameters and states by global name, as bits.
pub(super) type Bits = BTreeMap<String, Vec<u32>>;

/// The two families, small; 3 divides the heads, but neither 3 nor 4 the vocabulary or the feed-forward net.
pub(super) fn models() -> [ModelConfig; 2] {
    let (vocabulary, hidden, feed_forward, layers, heads) = (19, 24, 50, 4, 12);
    let small = |name| preset(name).expect("a preset").config.clone();
    ["tiny-llama", "tiny-gpt2"].map(|name| match small(name) {
        ModelConfig::Llama(preset) => {
            let (kv_heads, head) = (12, 2);
            let sizes = LlamaConfig { vocabulary, hidden, feed_forward, layers, heads, kv_heads, head, ..preset };
            ModelConfig::Llama(sizes)
        }
        ModelConfig::Gpt2(preset) => {
            let (positions, tied) = (Some(SEQ), true);
            ModelConfig::Gpt2(Gpt2Config { vocabulary, positions, hidden, feed_forward, layers, heads, tied, ..preset })
        }
    })
}

/// An executor for a configuration, whose parameters come from the seed.
fn executor(config: &ModelConfig, mesh: &str, seed: u64) -> (Executor, StepInput) {
    executor_of(config, mesh, seed, Optimizer::default())
}

/// An executor in a precision.
fn executor_in(precision: &str, config: &ModelConfig, mesh: &str, seed: u64) -> (Executor, StepInput) {
    executor_with(config, mesh, seed, (Optimizer::default(), precision))
}

/// An executor for a configuration and an optimizer, whose parameters come from the seed.
pub(super) fn executor_of(config: &ModelConfig, mesh: &str, seed: u64, optimizer: Optimizer) -> (Executor, StepInput) {
    executor_with(config, mesh, seed, (optimizer, "f32"))
}

fn executor_with(
    config: &ModelConfig,
    mesh: &str,
    seed: u64,
    (optimizer, name): (Optimizer, &str),
) -> (Executor, StepInput) {
    let Precision { dtype, quantisation } = precision(name).expect("a precision");
    let batch = Batch { batch: SEQUENCES, seq: SEQ, dtype };
    let request = PipelineOptions {
        options: PlanOptions::of(parallel::parse(mesh).expect("a configuration")),
        quantisation,
        fusion: true,
        optimizer,
        microbatches: 4,
        stop_after: None,
    };
    let model = config.build(&batch).expect("a model");
    let file = compile(model.into(), &request, &PROGRAM, &mut |_, _| {}).unwrap_or_else(|why| panic!("{mesh}: {why}"));
    let program = file.program.as_ref().expect("a program");
    let executor = Executor::load(&file.model, program, &Options { seed, ..Options::default() }).expect("it loads");
    let tokens = |name: &str| -> Vec<i32> {
        let number = |at: i32| if name == "pos" { at % SEQ as i32 } else { i32::from(name != "seg") * (7 * at % 19) };
        (0..(SEQUENCES * SEQ) as i32).map(number).collect()
    };
    let input = |value| (value, Input::Ints(tokens(&file.model.values[value])));
    let inputs: meshwright::runtime::exec::Inputs = file.model.inputs.iter().map(|given| input(given.value)).collect();
    let valid_tokens = 4 * SEQUENCES * SEQ;
    let step = StepInput { microbatches: vec![inputs; 4], valid_tokens, loss_scale: 1.0, lr: 0.01, step: 1, update: 1 };
    (executor, step)
}

pub(super) fn bits(executor: &mut Executor) -> Bits {
    let bits = |data: Vec<f32>| data.into_iter().map(f32::to_bits).collect();
    executor.export_state().expect("no rank failed").into_iter().map(|(name, whole)| (name, bits(whole.data))).collect()
}

/// Trains two steps under a configuration and saves.
fn saved(config: &ModelConfig, mesh: &str, folder: &Folder) -> (Checkpoint, Bits) {
    saved_in("f32", config, mesh, folder)
}

/// Trains two steps in a precision and saves.
fn saved_in(precision: &str, config: &ModelConfig, mesh: &str, folder: &Folder) -> (Checkpoint, Bits) {
    let (mut executor, step) = executor_in(precision, config, mesh, 1);
    for number in 1..=2 {
        executor.step(StepInput { step: number, update: number, ..step.clone() }).expect("no rank failed");
    }
    let position =
        Position { step: 2, skipped: 0, loss_scale: None, consumed_samples: 32, epoch: 0, shuffle_seed: 1, rng_key: 1 };
    let order = Save { run: &folder.path(""), position, fixed: &json!({}), origin: None, keep_last: 1 };
    let path = save(&mut executor, &order).expect("it is written");
    let checkpoint = Checkpoint::open(&path).expect("it is whole");
    checkpoint.verify().expect("it is whole");
    assert_eq!(checkpoint.manifest.position, position);
    (checkpoint, bits(&mut executor))
}

/// Saves under one configuration and loads under others, into machines that began from another seed.
fn loads_under(mesh: &str, others: &[&str]) {
    for config in models() {
        let folder = Folder::new();
        let (checkpoint, want) = saved(&config, mesh, &folder);
        assert_eq!(want.len(), 3 * checkpoint.manifest.parameters.len(), "each parameter has two states");
        assert!(want.iter().any(|(name, bits)| name.ends_with(".v") && bits.iter().any(|bits| *bits != 0)));
        for other in others {
            let (mut executor, _) = executor(&config, other, 2);
            assert_ne!(bits(&mut executor), want);
            checkpoint.load(&mut executor).unwrap_or_else(|why| panic!("{mesh} to {other}: {why}"));
            let got = bits(&mut executor);
            let differs: Vec<&String> = want.keys().filter(|name| got.get(*name) != want.get(*name)).collect();
            assert!(differs.is_empty(), "{} from {mesh} to {other}: {differs:?}", config.family());
        }
    }
}

#[test]
fn three_axes_to_any() {
    let others = [
        "dp=4",
        "tp=4",
        "pp=4",
        "",
        "dp=4,zero=1",
        "dp=4,zero=3,shard=2,recompute=full",
        "dp=2,tp=2,pp=2,schedule=gpipe",
    ];
    loads_under("dp=2,tp=2,pp=2", &others);
}

#[test]
fn sharded_states_to_any() {
    loads_under(
        "dp=2,tp=2,pp=2,zero=1",
        &["", "dp=4", "tp=4", "pp=4", "dp=3,zero=1", "dp=2,tp=3,zero=1,rank_order=tp,pp,dp"],
    );
}

#[test]
fn zero_groups_to_any() {
    loads_under(
        "dp=2,cp=2,zero=2,shard=2",
        &["", "dp=4,zero=1", "tp=4", "dp=2,cp=2,tp=2,zero=3,shard=2,gather=step", "cp=4,zero=1,shard=2"],
    );
}

#[test]
fn uneven_shards_to_any() {
    loads_under("dp=3,tp=3,zero=3", &["", "tp=4", "dp=4,zero=1", "pp=4", "dp=2,tp=2,pp=2,zero=1"]);
}

#[test]
fn one_device_to_any() {
    loads_under("", &["dp=3,tp=3,zero=1", "dp=2,tp=2,pp=2,zero=1", "tp=4", "pp=4"]);
}

/// The numbers of `name` in what was saved and in what was loaded.
fn both<'a>(saved: &'a Bits, loaded: &'a Bits, names: [&str; 2]) -> [&'a [u32]; 2] {
    [&saved[names[0]], &loaded[names[1]]]
}

#[test]
fn any_precision_to_any() {
    let meshes = ["dp=2,tp=2,pp=2,zero=1", "tp=4", "", "dp=2,zero=3"];
    let precisions = ["f32", "bf16", "f16", "fp8-delayed"];
    for (from, from_mesh) in precisions.into_iter().zip(meshes) {
        let (config, folder) = (&models()[0], Folder::new());
        let (checkpoint, saved) = saved_in(from, config, from_mesh, &folder);
        for (to, to_mesh) in precisions.into_iter().flat_map(|to| meshes.map(|mesh| (to, mesh))) {
            let (mut executor, _) = executor_in(to, config, to_mesh, 2);
            let case = format!("{from} on `{from_mesh}` to {to} on `{to_mesh}`");
            checkpoint.load(&mut executor).unwrap_or_else(|why| panic!("{case}: {why}"));
            let loaded = bits(&mut executor);
            for name in checkpoint.manifest.parameters.keys() {
                match (is_record(name), from == to) {
                    (true, true) => assert_eq!(saved[name], loaded[name], "{case}: {name}"),
                    (true, false) => assert!(!loaded.contains_key(name), "{case}: {name}"),
                    (false, _) => is_loaded(name, &saved, &loaded, [from, to]),
                }
            }
            let records = loaded.keys().filter(|name| is_record(name)).count();
            assert_eq!(records > 0, to == "fp8-delayed", "{case}: {records} records");
        }
    }
}

/// Checks a parameter and its states of a checkpoint of one precision, loaded under another.
fn is_loaded(name: &str, saved: &Bits, loaded: &Bits, [from, to]: [&str; 2]) {
    let copy = |precision| if precision == "f32" { name.to_string() } else { format!("{name}.master") };
    // The optimizer goes on from the same bits, and the parameter is those, rounded.
    let [want, got] = both(saved, loaded, [&copy(from), &copy(to)]);
    assert_eq!(want, got, "{from} to {to}: {name}");
    for state in ["m", "v"].map(|state| format!("{name}.{state}")) {
        let [want, got] = both(saved, loaded, [&state, &state]);
        assert_eq!(want, got, "{from} to {to}: {state}");
    }
    let round = |&bits: &u32| match precision(to).expect("a precision").dtype {
        DType::BF16 => bf16::from_f32(f32::from_bits(bits)).to_f32().to_bits(),
        DType::F16 => f16::from_f32(f32::from_bits(bits)).to_f32().to_bits(),
        _ => bits,
    };
    assert_eq!(loaded[name], want.iter().map(round).collect::<Vec<_>>(), "{from} to {to}: {name}");
}

/// Without a cut, a file is one that others can use: whole tensors by name.
#[test]
fn one_device_writes_whole_tensors() {
    let folder = Folder::new();
    let (checkpoint, want) = saved(&models()[0], "", &folder);
    let bytes = fs::read(checkpoint.path.join("data-0000.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let got: Bits = file.tensors().into_iter().map(|(name, view)| (name, words(view.data()))).collect();
    assert_eq!(got, want);
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

/// Replicas are written once: the files have the bytes of the tensors, spread evenly over the ranks.
#[test]
fn every_element_is_written_once_and_evenly() {
    let folder = Folder::new();
    for mesh in ["dp=4", "dp=2,tp=2", "dp=4,zero=1"] {
        let (checkpoint, want) = saved(&models()[0], mesh, &folder);
        let files = &checkpoint.manifest.files;
        let sizes: Vec<usize> = files.iter().map(|file| elements(&checkpoint, &file.name)).collect();
        assert_eq!((sizes.len(), sizes.iter().sum::<usize>()), (4, want.values().map(Vec::len).sum()), "{mesh}");
        let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
        assert!(most - least <= most / 10, "{mesh}: {sizes:?}");
        fs::remove_dir_all(checkpoint.path).unwrap();
    }
}

/// Elements that a data file holds.
fn elements(checkpoint: &Checkpoint, name: &str) -> usize {
    let bytes = fs::read(checkpoint.path.join(name)).unwrap();
    SafeTensors::deserialize(&bytes).unwrap().iter().map(|(_, view)| view.data().len() / 4).sum()
}
