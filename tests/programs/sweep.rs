//! Plans run: the model is compiled under the plan's configuration and verified, and a small model of its kind trains
//! under a small configuration of its kind as it does on one device.

use crate::meshes::compare::differences;
use crate::meshes::record::{Record, sgd};
use crate::meshes::trained::{alone, trained_on};
use crate::meshes::training::{Recipe, models};
use ir::models::{Batch, Experts, LlamaConfig, ModelConfig, preset};
use ir::options::{ParallelConfig, Recompute};
use ir::types::DType;
use meshwright::autotune::plan::{PlanRequest, find};
use meshwright::compiler::compile::{CompileRequest, compile_source};
use meshwright::compiler::model_source::ModelSource;
use meshwright::compiler::parallel::{missing, print};
use meshwright::estimator::Estimator;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;
use transforms::recompute::check_names;

/// Sequences of a micro-batch over all ranks: four micro-batches a step.
const SEQUENCES: u64 = 4;
const STEPS: u64 = 2;
/// Tokens of a sequence: as many as GPT-2 has positions.
const SEQ: u64 = 1024;

/// Models of all kinds, from small to large, with the devices that they are planned on.
const MODELS: [(&str, [u64; 3]); 20] = [
    ("gpt2", [1, 8, 64]),
    ("gpt2-xl", [1, 8, 64]),
    ("llama3.2-1b", [1, 8, 64]),
    ("qwen3-1.7b", [1, 8, 64]),
    ("llama3.2-3b", [8, 64, 512]),
    ("qwen3-4b", [8, 64, 512]),
    ("llama2-7b", [8, 64, 512]),
    ("qwen2.5-7b", [8, 64, 512]),
    ("llama3-8b", [8, 64, 512]),
    ("qwen3-8b", [8, 64, 512]),
    ("llama2-13b", [8, 64, 512]),
    ("qwen2.5-32b", [32, 128, 1024]),
    ("qwen3-30b-a3b", [32, 128, 1024]),
    ("mixtral-8x7b", [32, 128, 1024]),
    ("llama2-70b", [64, 256, 2048]),
    ("llama3-70b", [64, 256, 2048]),
    ("mixtral-8x22b", [64, 256, 2048]),
    ("gpt3-175b", [256, 1024, 4096]),
    ("llama3.1-405b", [512, 2048, 8192]),
    ("deepseek-v3", [256, 1024, 2048]),
];
const CLUSTERS: [&str; 4] = ["a100-80gb", "h100", "h800", "b200"];

/// The configuration without the borders of its stages, which are those of a larger model.
fn runnable(parallel: &ParallelConfig) -> ParallelConfig {
    let parallel = ParallelConfig { stages: Vec::new(), ..parallel.clone() };
    assert_eq!(missing(&parallel), [], "{parallel:?}");
    parallel
}

/// The same kind of configuration on at most 16 devices.
fn small(parallel: &ParallelConfig) -> ParallelConfig {
    let two = |degree: u64| degree.min(2);
    let ParallelConfig { dp, tp, pp, cp, .. } = *parallel;
    let (dp, tp, pp, cp) = (two(dp), two(tp), two(pp), two(cp));
    let ep = two(parallel.ep).min(dp * cp * tp);
    let recompute = match &parallel.recompute {
        Recompute::Full(Some(_)) => Recompute::Full(Some(1)),
        other => other.clone(),
    };
    ParallelConfig {
        dp,
        tp,
        pp,
        cp,
        ep,
        etp: two(parallel.etp).min(dp * cp * tp / ep),
        sp: parallel.sp && tp > 1,
        shard: None,
        recompute,
        mbs: SEQUENCES / dp,
        vp: parallel.vp.map(|vp| vp.min(2)),
        group: None,
        slices: parallel.slices.map(|slices| slices.min(2)),
        ..parallel.clone()
    }
}

/// Recomputed values of a configuration that a small model has.
fn known(config: &ModelConfig, recompute: &Recompute) -> Recompute {
    let Recompute::Selective(names) = recompute else { return recompute.clone() };
    let model = config.build(&Batch { batch: SEQUENCES, seq: 16, dtype: DType::F32 }).expect("a model");
    let alone = |name: &String| Recompute::Selective(vec![name.clone()]);
    let names: Vec<String> = names.iter().filter(|name| check_names(&model, &alone(name)).is_ok()).cloned().collect();
    if names.is_empty() { Recompute::None } else { Recompute::Selective(names) }
}

/// A small model of a preset's kind.
fn kind(name: &str) -> Recipe {
    let [ModelConfig::Llama(llama), gpt2] = models() else { panic!("a Llama and a GPT-2") };
    let config = match &preset(name).expect("a preset").config {
        ModelConfig::Gpt2(_) => gpt2,
        ModelConfig::Llama(LlamaConfig { experts: Some(_), .. }) => ModelConfig::Llama(LlamaConfig {
            experts: Some(Experts { group: Some(4), ..Experts::softmax(6, 2, 20) }),
            ..llama
        }),
        ModelConfig::Llama(_) => ModelConfig::Llama(llama),
    };
    Recipe { config, optimizer: sgd(), lr: 0.05, steps: STEPS, precision: "f32" }
}

/// Trained cases by kind of model and configuration: one case per kind.
#[derive(Default)]
struct Trained {
    alone: BTreeMap<String, Record>,
    done: BTreeSet<String>,
}

impl Trained {
    /// Trains a small model of its kind under a small configuration of its kind, and on one device.
    fn of_kind(&mut self, model: &str, parallel: &ParallelConfig) {
        let recipe = kind(model);
        let small = small(&runnable(parallel));
        let mesh = print(&ParallelConfig { recompute: known(&recipe.config, &small.recompute), ..small });
        let family = format!("{:?}", recipe.config);
        if !self.done.insert(format!("{family} {mesh}")) {
            return;
        }
        let record = || alone([recipe.clone()], SEQUENCES).remove(0).1;
        let alone = self.alone.entry(family).or_insert_with(record);
        let found = differences(&trained_on(&recipe, &mesh, SEQUENCES), alone, &recipe.optimizer);
        assert!(found.is_empty(), "{model} on {mesh}: {found:#?}");
    }
}

/// Compiles the model under the configuration up to its stages, and verifies it.
fn verified(model: &str, parallel: &ParallelConfig, global_batch: u64) {
    let order = CompileRequest {
        model: model.into(),
        parallel: print(&runnable(parallel)),
        seq: SEQ,
        global_batch: Some(global_batch),
        precision: "bf16".into(),
        ..CompileRequest::default()
    };
    let source = ModelSource::open(model).expect("a preset");
    let file = compile_source(&source, &order, Some("ring"), &mut |_, _| {});
    let file = file.unwrap_or_else(|why| panic!("{model} under {}: {why}", order.parallel));
    ir::verify::verify_planned(&file.model).unwrap_or_else(|why| panic!("{model} under {}: {why:?}", order.parallel));
}

/// Plans a model, and tries what was planned; whether anything fits.
fn planned_runs(estimator: &Estimator, model: &str, cluster: &str, gpus: u64, trained: &mut Trained) -> bool {
    let request = PlanRequest { top: 1, ..PlanRequest::new(model, cluster, gpus, SEQ, gpus.max(256)) };
    let found = find(estimator, &request, &|_| {}).unwrap_or_else(|error| panic!("{request:?}: {error}"));
    let Some(best) = found.best.first() else { return false };
    assert!(found.search.complete, "{request:?}");
    verified(model, &best.parallel, request.global_batch);
    trained.of_kind(model, &best.parallel);
    true
}

#[test]
fn plans_of_small_models_run() {
    let (estimator, mut trained) = (Estimator::new(), Trained::default());
    for (model, cluster, gpus) in [("tiny-llama", "h100", 8), ("tiny-moe", "h800", 8), ("gpt2", "a100-80gb", 4)] {
        assert!(planned_runs(&estimator, model, cluster, gpus, &mut trained), "{model}");
    }
}

/// Configurations of published runs, whatever the search thinks of them.
#[test]
fn published_configurations_run() {
    let mut trained = Trained::default();
    for (model, parallel, gpus, global_batch) in [
        ("llama3.1-405b", "tp=8,pp=16,sp=true,zero=1,schedule=interleaved-1f1b,vp=7", 8192, 2048),
        ("llama3-70b", "tp=8,pp=4,sp=true,recompute=full:2", 256, 512),
        ("deepseek-v3", "pp=16,ep=64,zero=1,schedule=1f1b", 2048, 3840),
        ("mixtral-8x7b", "pp=2,ep=8,zero=1", 64, 256),
        ("llama3-8b", "zero=3", 64, 256),
    ] {
        let mut parallel = meshwright::compiler::parallel::parse_any(parallel).expect("a configuration");
        parallel.dp = gpus / (parallel.tp * parallel.pp * parallel.cp);
        verified(model, &parallel, global_batch);
        trained.of_kind(model, &parallel);
    }
}

/// 20 models on 4 clusters of 3 sizes: about a quarter of an hour in the release profile.
#[test]
#[ignore = "long; run it by name in the release profile"]
fn plans_of_a_sweep_run() {
    let mut trained = Trained::default();
    let (mut fit, mut not) = (0, 0);
    for (model, sizes) in MODELS {
        let estimator = Estimator::new();
        for cluster in CLUSTERS {
            for gpus in sizes {
                let began = Instant::now();
                let fits = planned_runs(&estimator, model, cluster, gpus, &mut trained);
                let (what, seconds) = (if fits { "runs" } else { "nothing fits" }, began.elapsed().as_secs_f64());
                eprintln!("{model} on {gpus} of {cluster}: {what}, {seconds:.1} s");
                if fits { fit += 1 } else { not += 1 }
            }
        }
    }
    assert!(fit >= 200, "{fit} plans, {not} where nothing fits");
    assert!(trained.done.len() >= 20, "{} kinds of configurations", trained.done.len());
}
