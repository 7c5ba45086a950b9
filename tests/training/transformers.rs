//! Models of `transformers` on ten configurations: losses, gradients and updates are those of PyTorch.
//!
//! `tests/transformers/compare.py` makes the cases and runs this test on them. Random ones run in f32 alone, and export nothing.

use codegen::buffers::assign_buffers;
use cost::PROGRAM;
use ir::graph::{Model, is_record};
use ir::models::{self, from_config};
use ir::optimizer::Optimizer;
use ir::options::PlanOptions;
use ir::text::File;
use ir::types::DType;
use meshwright::compiler::parallel;
use meshwright::compiler::pipeline::{PipelineOptions, compile};
use meshwright::pytorch::{Stored, Tensors, off_of_norm, trained};
use meshwright::runtime::checkpoint::{Origin, Position, Save, save};
use meshwright::runtime::data::sampler::Batch;
use meshwright::runtime::exec::{Executor, Input, Options, StepInput};
use meshwright::runtime::state::GlobalTensor;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weights::{Description, Export, Weights, export};

/// Sequences of a micro-batch over all ranks.
const MICRO: u64 = 2;
/// Relative tolerance of losses and norms while weights are compared, and of losses until the end.
const SCALARS: [f64; 2] = [1e-5, 1e-4];
/// The largest distance of a loss in bf16 from that in f32, in the largest distance of PyTorch's runs in bf16 so far.
const FARTHEST: f64 = 3.0;
/// The least of those distances that counts: half of a last place of the logits, relative to the loss.
const LAST_PLACE: f64 = 1.0 / 512.0;
/// Tolerance of tensors, relative to their norm: rounding in f32, in another order.
const TENSOR: f64 = 2e-5;
/// The same for random configurations: the most by which PyTorch's own runs may differ if weights are off by a millionth (train.py).
const TENSOR_RANDOM: f64 = 5e-5;
/// PyTorch's results of a case.
#[derive(Deserialize)]
struct Case {
    sequences: u64,
    seq: u64,
    /// Steps of training; inputs of one more follow.
    steps: usize,
    lr: f32,
    optimizer: Optimizer,
    /// Steps after which weights are compared.
    compared: usize,
    losses: Vec<f64>,
    /// Losses of several runs, whose weights differ by about rounding in bf16; none of a random configuration.
    losses_bf16: Vec<Vec<f64>>,
    norms: Vec<f64>,
    configs: Vec<String>,
}

impl Case {
    fn is_random(&self) -> bool {
        self.losses_bf16.is_empty()
    }

    /// Tolerance of tensors, relative to their norm.
    fn tolerance(&self) -> f64 {
        if self.is_random() { TENSOR_RANDOM } else { TENSOR }
    }
}

/// How far a case in f32 is off on the layouts that agree.
#[derive(Default, Serialize)]
struct Agreement {
    layouts: usize,
    /// The most that a loss is off, relative to it.
    loss: f64,
    /// The most that a gradient is off, relative to its norm.
    gradient: f64,
}

impl Agreement {
    /// Adds what [`run`] has found on a layout.
    fn add(&mut self, off: &[f64; 5]) {
        self.layouts += 1;
        (self.loss, self.gradient) = (self.loss.max(off[0]), self.gradient.max(off[2]));
    }
}

#[test]
#[ignore = "needs the cases of tests/transformers/compare.py"]
fn models_are_those_of_transformers() {
    let folder = std::env::var("MESHWRIGHT_TRANSFORMERS").expect("the folder that compare.py has written");
    let mut paths: Vec<PathBuf> = fs::read_dir(folder).expect("a folder").map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no cases");
    let (mut wrong, mut runs) = (Vec::new(), 0);
    let (mut worst, mut worst_bf16) = ([0.0_f64; 5], 0.0_f64);
    for path in &paths {
        let name = path.file_name().unwrap().display().to_string();
        let case: Case = serde_json::from_str(&read(path, "case.json")).expect("a case");
        let stored = stored(path);
        let mut agreement = Agreement::default();
        for (number, parallel) in case.configs.iter().enumerate() {
            runs += 1;
            // Two layouts are exported: one device, and one where tensors are sharded.
            let is_exported = number < 2 && !case.is_random();
            match run(path, &case, &stored, (parallel, is_exported.then_some(number))) {
                Ok(off) => {
                    agreement.add(&off);
                    for (worst, off) in worst.iter_mut().zip(off) {
                        *worst = worst.max(off);
                    }
                }
                Err(why) => wrong.push(format!("{name} on `{parallel}`: {why}")),
            }
            if case.is_random() {
                continue;
            }
            match run_bf16(path, &case, &stored, (parallel, is_exported)) {
                Ok(off) => worst_bf16 = worst_bf16.max(off),
                Err(why) => wrong.push(format!("{name} on `{parallel}` in bf16: {why}")),
            }
        }
        fs::write(path.join("agreement.json"), json!(agreement).to_string()).expect("the case's folder");
    }
    let [losses, norms, gradients, parameters, last] = worst;
    println!("{runs} runs of {} cases; losses are off by at most {losses:.1e}, norms by {norms:.1e},", paths.len());
    println!(
        "gradients by {gradients:.1e} and parameters by {parameters:.1e} of their norms; later losses by {last:.1e};"
    );
    println!("losses in bf16 by {worst_bf16:.2} times what PyTorch's are");
    assert!(wrong.is_empty(), "{} of {runs} runs differ:\n{}", wrong.len(), wrong.join("\n"));
}

fn read(path: &Path, name: &str) -> String {
    fs::read_to_string(path.join(name)).unwrap_or_else(|why| panic!("{}/{name}: {why}", path.display()))
}

/// The tensors of a case, by kind and name.
fn stored(path: &Path) -> Stored {
    let bytes = fs::read(path.join("tensors.safetensors")).expect("tensors");
    Stored::read(&bytes).expect("a safetensors file")
}

/// The parameters of a kind, from tensors under the names of the class: weights, or gradients without those that have none.
fn kind(stored: &Stored, kind: &str, config: &str, seq: u64) -> Tensors {
    let description = Description::read(config).expect("a config.json");
    let is_gradient = kind == "gradient";
    let found = stored.parameters(kind, &description, seq, !is_gradient).expect("names");
    let own = description.config.build(&models::Batch { batch: 1, seq, dtype: DType::F32 }).expect("a model");
    for param in own.params.values() {
        for name in (0..param.instances()).map(|instance| param.instance_name(instance)) {
            // The class keeps these as buffers, which have no gradient, and has no records.
            let is_buffer = ["router_bias", "layer_scale"].iter().any(|end| name.ends_with(end));
            assert!(found.contains_key(&name) || is_gradient && is_buffer || is_record(&name), "{kind} of {name}");
        }
    }
    found
}

/// The executor of a case with its first weights, as the class has saved them in a folder.
fn executor(path: &Path, case: &Case, parallel: &str, (dtype, hub): (DType, &str)) -> Result<(Executor, File), String> {
    let file = compiled(&read(path, "config.json"), case, parallel, dtype)?;
    let mut program = file.program.clone().ok_or("no program")?;
    assign_buffers(&file.model, &mut program, None);
    let mut executor = Executor::load(&file.model, &program, &Options::default()).map_err(|why| why.to_string())?;
    let config = from_config(&read(path, "config.json")).map_err(|why| why.to_string())?;
    let weights = Weights::open(&path.join(hub), &config, case.seq).map_err(|why| why.to_string())?;
    Arc::new(weights).load(&mut executor).map_err(|why| why.to_string())?;
    Ok((executor, file))
}

/// How far a run in bf16 is off: losses, in distances of PyTorch's.
fn run_bf16(path: &Path, case: &Case, stored: &Stored, (parallel, is_exported): (&str, bool)) -> Result<f64, String> {
    if is_exported && parallel.is_empty() {
        for (dtype, hub) in [(DType::BF16, "hub-bf16"), (DType::F16, "hub-f16")] {
            let (mut executor, _) = executor(path, case, parallel, (dtype, hub))?;
            exported(path, &mut executor, &format!("exported-first{}", &hub[3..]), 0)?;
        }
    }
    let (mut executor, file) = executor(path, case, parallel, (DType::BF16, "hub"))?;
    let (mut distance, mut worst) = (0.0_f64, 0.0_f64);
    for (step, exact) in case.losses.iter().enumerate() {
        let output = executor.step(input(&file.model, case, stored, step)).map_err(|why| why.to_string())?;
        let rounded = case.losses_bf16.iter().map(|losses| losses[step]);
        distance = rounded.map(|loss| (loss - exact).abs()).fold(distance, f64::max).max(LAST_PLACE * exact);
        let got = f64::from(output.loss.ok_or("nothing was reported")?);
        let off = (got - exact).abs() / distance;
        if off.is_nan() || off > FARTHEST {
            let step = step + 1;
            return Err(format!(
                "the loss of step {step} is {got}, in f32 {exact}, in PyTorch's runs within {distance}"
            ));
        }
        worst = worst.max(off);
    }
    Ok(worst)
}

/// How far a run in f32 is off: losses, norms, gradients, parameters, losses after these were compared.
fn run(
    path: &Path,
    case: &Case,
    stored: &Stored,
    (parallel, exports): (&str, Option<usize>),
) -> Result<[f64; 5], String> {
    let (mut executor, file) = executor(path, case, parallel, (DType::F32, "hub"))?;
    if exports == Some(0) {
        exported(path, &mut executor, "exported-first", 0)?;
    }
    let config = read(path, "config.json");
    let mut off = [0.0_f64; 5];
    for (step, (loss, norm)) in case.losses.iter().zip(&case.norms).enumerate() {
        let output = executor.step(input(&file.model, case, stored, step)).map_err(|why| why.to_string())?;
        if step >= case.compared {
            off[4] = off[4].max(scalar("the loss", step, output.loss, *loss, SCALARS[1])?);
            continue;
        }
        off[0] = off[0].max(scalar("the loss", step, output.loss, *loss, SCALARS[0])?);
        off[1] = off[1].max(scalar("the norm", step, output.grad_norm, *norm, SCALARS[0])?);
        if output.dropped.is_some_and(|dropped| dropped > 0.0) {
            return Err("choices of experts were dropped".to_string());
        }
        if step == 0 {
            off[2] = tensors(
                "the gradient",
                &executor.gradients().map_err(|why| why.to_string())?,
                &trained(&file.model, kind(stored, "gradient", &config, case.seq)),
                case.tolerance(),
            )?;
        }
        if step + 1 == case.compared {
            let params = executor.export_params().map_err(|why| why.to_string())?;
            off[3] = tensors("the parameter", &params, &kind(stored, "after", &config, case.seq), case.tolerance())?;
        }
    }
    if let Some(number) = exports {
        let name = format!("exported-trained-{number}");
        exported(path, &mut executor, &name, case.steps as u64)?;
        let output = executor.step(input(&file.model, case, stored, case.steps)).map_err(|why| why.to_string())?;
        let record = json!({"step": case.steps, "loss": output.loss});
        fs::write(path.join(name + ".json"), record.to_string()).map_err(|why| why.to_string())?;
    }
    Ok(off)
}

/// Saves a checkpoint and exports it into a folder of a case.
fn exported(path: &Path, executor: &mut Executor, name: &str, step: u64) -> Result<(), String> {
    let config: Map<String, Value> = serde_json::from_str(&read(path, "config.json")).expect("an object");
    let position =
        Position { step, skipped: 0, loss_scale: None, consumed_samples: 0, epoch: 0, shuffle_seed: 0, rng_key: 0 };
    let run = path.join(format!("run-{name}"));
    fs::create_dir_all(&run).map_err(|why| why.to_string())?;
    let origin = Origin { config, folder: None };
    let order = Save { run: &run, position, fixed: &json!({}), origin: Some(&origin), keep_last: 1 };
    let checkpoint = save(executor, &order).map_err(|why| why.to_string())?;
    let out = path.join(name);
    let order =
        Export { checkpoint: &checkpoint, out: &out, format: None, max_shard: 20_000, shards: None, model: None };
    export(&order).map(drop).map_err(|why| why.to_string())
}

fn compiled(config: &str, case: &Case, parallel: &str, dtype: DType) -> Result<File, String> {
    let config = from_config(config).map_err(|why| why.to_string())?;
    let batch = models::Batch { batch: MICRO, seq: case.seq, dtype };
    let model = config.build(&batch).map_err(|why| why.to_string())?;
    let request = PipelineOptions {
        options: PlanOptions::of(parallel::parse(parallel).map_err(|why| why.to_string())?),
        quantisation: None,
        fusion: true,
        optimizer: case.optimizer.clone(),
        microbatches: (case.sequences / MICRO) as u32,
        stop_after: None,
    };
    compile(model.into(), &request, &PROGRAM, &mut |_, _| {}).map_err(|why| why.to_string())
}

/// Inputs of a step. Each sequence is one document unless the case has others.
fn input(model: &Model, case: &Case, stored: &Stored, step: usize) -> StepInput {
    let tokens = (MICRO * case.seq) as usize;
    let labels = &stored.ints[&format!("lab.{step}")];
    let of = |name: &str, micro: usize| -> Vec<i32> {
        match (stored.ints.get(&format!("{name}.{step}")), name) {
            (Some(numbers), _) => numbers[micro * tokens..(micro + 1) * tokens].to_vec(),
            (None, "seg") => vec![0; tokens],
            (None, "pos") => (0..tokens).map(|at| (at as u64 % case.seq) as i32).collect(),
            (None, _) => panic!("there are no numbers for `%{name}`"),
        }
    };
    let lengths = |micro| {
        let positions = of("pos", micro);
        let batch = Batch { positions, ..Batch::default() };
        batch.lengths(case.seq as usize)
    };
    let of = |name: &str, micro| if name == "len" { lengths(micro) } else { of(name, micro) };
    let micro = |micro: usize| {
        let named = |value| (value, Input::Ints(of(&model.values[value], micro)));
        model.inputs.iter().map(|given| named(given.value)).collect()
    };
    StepInput {
        microbatches: (0..(case.sequences / MICRO) as usize).map(micro).collect(),
        valid_tokens: labels.iter().filter(|&&label| label >= 0).count() as u64,
        loss_scale: 1.0,
        lr: case.lr,
        step: step as u64 + 1,
        update: step as u64 + 1,
    }
}

fn scalar(what: &str, step: usize, got: Option<f32>, want: f64, tolerance: f64) -> Result<f64, String> {
    let got = f64::from(got.ok_or("nothing was reported")?);
    let off = ((got - want) / want).abs();
    if off <= tolerance { Ok(off) } else { Err(format!("{what} of step {} is {got}, not {want}", step + 1)) }
}

/// The most that a tensor is off, relative to its norm.
fn tensors(what: &str, got: &BTreeMap<String, GlobalTensor>, want: &Tensors, tolerance: f64) -> Result<f64, String> {
    let (off, name) = off_of_norm(want, |name| got.get(name).map(|tensor| tensor.data.as_slice()));
    if off <= tolerance { Ok(off) } else { Err(format!("{what} of `{name}` is off by {off:.1e} of its norm")) }
}
