//! Floats in files are read back to the bit, from every format that Meshwright writes and reads.

use cost::{Cluster, Stack};
use ir::graph::{Init, SectionKind};
use ir::ops::{KernelOp, Op, Unary, UnaryKind};
use ir::text::File;
use meshwright::compiler::compile::{CompileRequest, compile_source};
use meshwright::compiler::model_source::ModelSource;
use meshwright::estimator::{EstimateReport, EstimateRequest, Estimator};
use meshwright::runtime::checkpoint::{Manifest, Position};
use meshwright::runtime::metrics::{Header, MetricsWriter, StepRecord, losses};
use meshwright::train::TrainRequest;
use proptest::num::f64::{NEGATIVE, NORMAL, POSITIVE, SUBNORMAL, ZERO};
use proptest::prelude::*;
use scheduler::costs::{CostsFile, PerStage};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::sync::LazyLock;
use view::report::{ScheduleRequest, report};

/// Any finite number: subnormal, zero of both signs, of any size, and what an f32 is as an f64.
fn number() -> impl Strategy<Value = f64> {
    let doubles = NORMAL | SUBNORMAL | ZERO | POSITIVE | NEGATIVE;
    let singles = proptest::num::f32::NORMAL | proptest::num::f32::SUBNORMAL | proptest::num::f32::NEGATIVE;
    // Products of short decimals are what configurations state, and what YaRN computes.
    let decimals = (1..10_000u32, -12..12i32).prop_map(|(digits, power)| (f64::from(digits) * 10f64.powi(power)).ln());
    prop_oneof![doubles, singles.prop_map(f64::from), decimals, Just(-0.0), Just(f64::MAX), Just(5e-324)]
}

/// The numbers of a value that are written as floats, in order.
fn floats<'a>(value: &'a mut Value, found: &mut Vec<&'a mut Value>) {
    if value.is_f64() {
        return found.push(value);
    }
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| floats(item, found)),
        Value::Object(fields) => fields.values_mut().for_each(|field| floats(field, found)),
        _ => {}
    }
}

/// The bits of all floats of what can be written.
fn bits(of: &impl Serialize) -> Vec<u64> {
    let (mut value, mut found) = (serde_json::to_value(of).unwrap(), Vec::new());
    floats(&mut value, &mut found);
    found.iter().map(|float| float.as_f64().unwrap().to_bits()).collect()
}

/// The same with its floats replaced by the numbers, over and over.
fn with<T: Serialize + DeserializeOwned>(sample: &T, numbers: &[f64]) -> T {
    let (mut value, mut found) = (serde_json::to_value(sample).unwrap(), Vec::new());
    floats(&mut value, &mut found);
    assert!(!found.is_empty(), "a sample without floats tests nothing");
    found.into_iter().zip(numbers.iter().cycle()).for_each(|(float, &number)| *float = json!(number));
    serde_json::from_value(value).unwrap()
}

fn same_in_json<T: Serialize + DeserializeOwned>(sample: &T, numbers: &[f64]) {
    let written = with(sample, numbers);
    for text in [serde_json::to_string(&written).unwrap(), serde_json::to_string_pretty(&written).unwrap()] {
        assert_eq!(bits(&serde_json::from_str::<T>(&text).unwrap()), bits(&written), "{text}");
        // As requests and plans are read: by way of any value.
        let value: Value = serde_json::from_slice(text.as_bytes()).unwrap();
        assert_eq!(bits(&serde_json::from_value::<T>(value).unwrap()), bits(&written), "{text}");
    }
}

fn same_in_toml<T: Serialize + DeserializeOwned>(sample: &T, numbers: &[f64]) {
    let written = with(sample, numbers);
    let text = toml::to_string(&written).unwrap();
    assert_eq!(bits(&toml::from_str::<T>(&text).unwrap()), bits(&written), "{text}");
    // As run.toml and a stack that begins from another are read.
    let fields: serde_json::Map<String, Value> = toml::from_str(&text).unwrap();
    assert_eq!(bits(&serde_json::from_value::<T>(Value::Object(fields)).unwrap()), bits(&written), "{text}");
    let table: toml::Table = toml::from_str(&text).unwrap();
    assert_eq!(bits(&table.try_into::<T>().unwrap()), bits(&written), "{text}");
}

static PLAN: LazyLock<EstimateReport> = LazyLock::new(|| {
    let request =
        EstimateRequest { model: "tiny-llama".into(), gpus: Some(4), seq: 64, global_batch: 16, ..Default::default() };
    Estimator::new().estimate(&request).unwrap()
});

static STAGED: LazyLock<File> = LazyLock::new(|| {
    let order =
        CompileRequest { model: "tiny-llama".into(), parallel: "pp=2".into(), seq: 16, ..CompileRequest::default() };
    compile_source(&ModelSource::open("tiny-llama").unwrap(), &order, Some("partition"), &mut |_, _| {}).unwrap()
});

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_manifest_keeps_the_options_of_a_run(numbers in prop::collection::vec(number(), 1..20)) {
        let position = Position { step: 1, skipped: 0, loss_scale: None, consumed_samples: 8, epoch: 0, shuffle_seed: 7, rng_key: 7 };
        let fixed = json!({ "model": { "rope_scaling": { "Yarn": { "factor": 0.5 } } }, "all": numbers });
        let (schema, version) = (meshwright::runtime::checkpoint::SCHEMA.to_string(), "0".to_string());
        let (origin, files, parameters) = (None, Vec::new(), Default::default());
        same_in_json(&Manifest { schema, version, position, fixed, origin, files, parameters }, &numbers);
    }

    #[test]
    fn plans_clusters_and_stacks_keep_theirs(numbers in prop::collection::vec(number(), 1..200)) {
        same_in_json(&*PLAN, &numbers);
        for name in ["cpu", "h100"] {
            same_in_toml(&Cluster::find(name).unwrap(), &numbers);
            same_in_json(&Cluster::find(name).unwrap(), &numbers);
        }
        same_in_toml(&Stack::find("megatron-core-2025").unwrap(), &numbers);
        same_in_json(&Stack::find("megatron-core-2025").unwrap(), &numbers);
    }

    #[test]
    fn a_run_keeps_its_options(numbers in prop::collection::vec(number(), 8)) {
        let request = TrainRequest { min_lr: Some(0.5), ..TrainRequest::default() };
        same_in_toml(&request, &numbers);
        same_in_json(&request, &numbers);
    }

    #[test]
    fn schedules_and_their_costs_keep_theirs(numbers in prop::collection::vec(number(), 1..20)) {
        let each = PerStage::Each(numbers.clone());
        let costs = CostsFile { f: each.clone(), mem_f: Some(each.clone()), fb: Some(0.5), limit: Some(each), ..CostsFile::default() };
        same_in_json(&costs, &numbers);
        let request = ScheduleRequest { stages: 3, microbatches: 4, deadline: Some(0.5), ..ScheduleRequest::default() };
        same_in_json(&ScheduleRequest { costs, ..request.clone() }, &numbers);
        same_in_json(&report(&request).unwrap().0, &numbers);
    }

    #[test]
    fn programs_keep_theirs(by in number(), deviation in number(), f in number(), w in number()) {
        let mut file = STAGED.clone();
        let param = file.model.params.keys().next().unwrap();
        file.model.params[param].init = Init::Normal(deviation);
        let (block, body) = file.model.blocks.iter_mut().find(|(_, block)| block.name == "layer").unwrap();
        let stmts = &mut body[SectionKind::F].stmts;
        let at = stmts.iter().position(|stmt| matches!(stmt.op, Op::Kernel(KernelOp::Unary(_)))).unwrap();
        stmts[at].op = Unary(UnaryKind::Scale(by)).into();
        let cost = &mut file.staged.as_mut().unwrap().stages[1].cost;
        (cost.f, cost.w) = (f, w);
        let text = ir::text::print(&file);
        let read = ir::text::parse(&text).unwrap();
        let Init::Normal(read_deviation) = read.model.params[param].init else { panic!("{text}") };
        let read_op = &read.model.blocks[block][SectionKind::F].stmts[at].op;
        let Op::Kernel(KernelOp::Unary(Unary(UnaryKind::Scale(read_by)))) = read_op else { panic!("{text}") };
        let cost = read.staged.unwrap().stages[1].cost;
        let all = [*read_by, read_deviation, cost.f, cost.w].map(f64::to_bits);
        prop_assert_eq!(all, [by, deviation, f, w].map(f64::to_bits));
    }

    #[test]
    fn metrics_keep_losses(numbers in prop::collection::vec(number(), 1..8)) {
        let path = std::env::temp_dir().join(format!("meshwright-floats-{}.jsonl", std::process::id()));
        let header = Header { config_hash: "c0ffee".into(), version: "0".into(), params: 1 };
        let mut writer = MetricsWriter::create(&path, &header).unwrap();
        for (step, &loss) in (1..).zip(&numbers) {
            let record = StepRecord {
                step, loss, further_loss: None, balance_loss: None, z_loss: None, routing: None, grad_norm: loss, dropped: None, lr: loss, examples: None,
                tokens_seen: 1, tokens_per_s: 1.0,
                tokens_per_s_per_device: 1.0,
                step_time_s: 1.0, data_wait_s: 0.0, mfu: None, mem_peak_bytes: None, skipped: false, loss_scale: None, slowest: None,
            };
            writer.step(&record).unwrap();
        }
        let read = losses(&path, 0, numbers.len() as u64).unwrap();
        std::fs::remove_file(&path).unwrap();
        prop_assert_eq!(read.iter().map(|x| x.to_bits()).collect::<Vec<_>>(), numbers.iter().map(|x| x.to_bits()).collect::<Vec<_>>());
    }
}
