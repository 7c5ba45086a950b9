//! Errors that no command line can give, or none that gives the same text everywhere.

use cost::PROGRAM;
use flate2::read::GzDecoder;
use ir::catalogue::Code;
use ir::diag::Coded;
use ir::graph::SectionKind;
use ir::models::from_config;
use ir::options::{ParallelConfig, PlanOptions};
use ir::schedule::Schedule;
use ir::staged::Staged;
use ir::text::{File, parse};
use ir::verify::{verify, verify_planned};
use meshwright::CancelToken;
use meshwright::compiler::compile::{CompileRequest, compile_source};
use meshwright::compiler::model_source::ModelSource;
use meshwright::runtime::arena::Arena;
use meshwright::runtime::backends::cuda::device::Device;
use meshwright::runtime::checkpoint::{Position, Save, save};
use meshwright::runtime::comm::threads::Fabric;
use meshwright::runtime::comm::{HostMemory, Parking, WaitReason};
use meshwright::runtime::data::DataError;
use meshwright::runtime::data::sampler::{Batch, Sampler};
use meshwright::runtime::data::tokens::TokenData;
use meshwright::runtime::data::tokens::write::TokenWriter;
use meshwright::runtime::exec::{Executor, Options, StepInput};
use meshwright::runtime::metrics::{EvalRecord, StepRecord};
use meshwright::train::{Progress, Quiet, RunHeader, Signal, TrainRequest, train};
use pt2::Export;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use weights::Weights;

/// A call of the library that is refused.
pub(crate) struct Call {
    /// With this code.
    pub(crate) code: Code,
    /// Makes the call.
    pub(crate) refused: fn() -> Option<Code>,
}

const fn call(code: Code, refused: fn() -> Option<Code>) -> Call {
    Call { code, refused }
}

/// One row a code.
pub(crate) const CALLS: &[Call] = &[
    call(Code::UseBeforeDefinition, use_before_definition),
    call(Code::RuleViolated, rule_violated),
    call(Code::PendingSum, pending_sum),
    call(Code::BadStorage, bad_storage),
    call(Code::ExportUnsupported, export_unsupported),
    call(Code::ImpossibleDegrees, impossible_degrees),
    call(Code::Cancelled, cancelled_plan),
    call(Code::NotPlanned, not_planned),
    call(Code::NotFinite, not_finite),
    call(Code::RankFailed, rank_failed),
    call(Code::ReplicasDiffer, replicas_differ),
    call(Code::ProcessesDiffer, processes_differ),
    call(Code::InputMismatch, input_mismatch),
    call(Code::CheckpointUnwritable, checkpoint_unwritable),
    call(Code::RunInUse, run_in_use),
    call(Code::RunEnded, run_ended),
    call(Code::NoGpu, no_gpu),
    call(Code::TokensDamaged, tokens_damaged),
    call(Code::TokenOutOfRange, token_out_of_range),
    call(Code::WeightsMismatch, weights_mismatch),
    call(Code::WeightsFormat, weights_format),
    #[cfg(target_os = "linux")]
    call(Code::TooLittleMemory, too_little_memory),
];

fn example() -> ModelSource {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/example.ir");
    ModelSource::open(&path.display().to_string()).unwrap()
}

fn example_file() -> File {
    let ModelSource::Text { file, .. } = example() else { panic!("the example is a text") };
    *file
}

fn use_before_definition() -> Option<Code> {
    let mut model = example_file().model;
    let block = model.blocks.values_mut().next()?;
    block[SectionKind::F].stmts.swap(0, 1);
    verify(&model).unwrap_err().code()
}

/// The code that the checker of planned models finds.
fn planned(text: &str) -> Option<Code> {
    verify_planned(&parse(text).unwrap().model).unwrap_err().code()
}

fn rule_violated() -> Option<Code> {
    planned(
        r#"
        mesh @m = [tp=2]
        dims [b=8, h=16, f=64]
        block @up(%x: f32[b, h]; %w: param f32[h, f{tp}]) -> f32[b, f] {
            %y: f32[b, f] = einsum(%x, %w, eq="b h, h f -> b f")
            return %y
        }"#,
    )
}

fn pending_sum() -> Option<Code> {
    planned(
        r#"
        mesh @m = [tp=2]
        dims [b=8, h=16, f=64]
        block @down(%x: f32[b, f{tp}]; %w: param f32[f{tp}, h]) -> f32[b, h] {
            %p: f32[b, h]+{tp} = einsum(%x, %w, eq="b f, f h -> b h")
            %y: f32[b, h] = silu(%p)
            return %y
        }"#,
    )
}

fn bad_storage() -> Option<Code> {
    planned(
        r#"
        mesh @m = [dp=2]
        dims [b=8, h=16, f=64]
        block @up(%x: f32[b, h]; %w: param f32[h, f]/{dp}) -> f32[b, f] {
            %y: f32[b, f] = einsum(%x, %w, eq="b h, h f -> b f")
            return %y
        }"#,
    )
}

fn export_unsupported() -> Option<Code> {
    let folder = tempfile::tempdir().ok()?;
    let mut archive = Vec::new();
    GzDecoder::new(&include_bytes!("../../exported/fourier.pt2.gz")[..]).read_to_end(&mut archive).ok()?;
    std::fs::write(folder.path().join("fourier.pt2"), archive).ok()?;
    let export = Export::open(&folder.path().join("fourier.pt2"));
    export.and_then(|export| export.template()).err()?.code()
}

fn impossible_degrees() -> Option<Code> {
    let parallel = ParallelConfig { dp: 2, tp: 6, ..ParallelConfig::default() };
    let options = PlanOptions { levels: vec![4], ..PlanOptions::of(parallel) };
    planner::plan(example_file().model, &options, &PROGRAM, None, &mut |_, _| {}).unwrap_err().code()
}

fn cancelled() -> CancelToken {
    let token = CancelToken::new();
    token.cancel();
    token
}

fn cancelled_plan() -> Option<Code> {
    let request = meshwright::plan("tiny-llama").on("h100", 8).batch(8, 128).cancel(&cancelled());
    request.run().err()?.code()
}

fn not_planned() -> Option<Code> {
    let staged = Staged { name: "m".into(), stages: Vec::new() };
    let schedule = Schedule { name: "1f1b".into(), rows: Vec::new() };
    let model = example_file().model;
    codegen::lower(&model, &staged, &schedule, 1, &PROGRAM).unwrap_err().code()
}

/// Trains on this folder of tests.
fn training() -> TrainRequest {
    let folder = std::env::temp_dir().join(format!("meshwright-catalogue-{}", std::process::id()));
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let small =
        TrainRequest { model: "tiny-gpt2".into(), seq: 16, global_batch: 4, steps: 3, ..TrainRequest::default() };
    TrainRequest { data, out: folder, ..small }
}

fn not_finite() -> Option<Code> {
    let request = training();
    let request = TrainRequest { lr: 1e30, optimizer: "sgd".into(), clip: 0.0, warmup: 0, ..request };
    let refused = train(&request, &mut Quiet).unwrap_err().code();
    std::fs::remove_dir_all(&request.out).unwrap();
    refused
}

fn replicas_differ() -> Option<Code> {
    let out = training().out.with_extension("replicas");
    let two = TrainRequest { parallel: "dp=2".into(), out, ..training() };
    let request = TrainRequest { check_replicas: 1, inject: Some("flip=1:1".into()), ..two };
    let refused = train(&request, &mut Quiet).unwrap_err().code();
    std::fs::remove_dir_all(&request.out).unwrap();
    refused
}

/// Two processes, of which one has another learning rate.
fn processes_differ() -> Option<Code> {
    let (folder, port) = (tempfile::tempdir().ok()?, tcp::free_port().ok()?);
    let one = "
RANK=1 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 meshwright train tiny-llama --parallel dp=2 --comm tcp --lr 1e-3
";
    let zero = one.replace("RANK=1", "RANK=0").replace("1e-3", "2e-3");
    let start = |line: &str| {
        let (variables, words) = line.trim().split_once(" meshwright ")?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
        command.envs(variables.split(' ').filter_map(|variable| variable.split_once('=')));
        command.args(words.split(' ')).arg("--data").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs"));
        command.env("MASTER_PORT", port.to_string()).current_dir(folder.path());
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().ok()
    };
    let (zero, one) = (start(&zero)?, start(one)?);
    let [zero, _one] = [zero, one].map(|child| child.wait_with_output().unwrap());
    let told = String::from_utf8(zero.stderr).ok()?;
    Code::from_text(told.split_once("error[")?.1.split_once(']')?.0)
}

#[cfg(target_os = "linux")]
fn too_little_memory() -> Option<Code> {
    let request =
        TrainRequest { model: "llama2-7b".into(), parallel: "dp=512".into(), global_batch: 512, ..training() };
    train(&request, &mut Quiet).unwrap_err().code()
}

fn rank_failed() -> Option<Code> {
    let fabric = Fabric::new(2, false);
    let ranks = [0, 1].map(|rank| fabric.endpoint(rank, Arc::new(Arena::new(64).unwrap()), HostMemory::default()));
    fabric.enter(2);
    ranks[1].fail("out of memory".into());
    ranks[0].wait(&mut || Some(WaitReason::Peers { group: 0, number: 0, op: 0 })).err()?.code()
}

fn compiled(source: &ModelSource) -> File {
    compile_source(source, &CompileRequest::default(), None, &mut |_, _| {}).unwrap()
}

fn executor() -> Executor {
    let file = compiled(&example());
    Executor::load(&file.model, file.program.as_ref().unwrap(), &Options::default()).unwrap()
}

fn input_mismatch() -> Option<Code> {
    let mut executor = executor();
    let input = StepInput { microbatches: Vec::new(), valid_tokens: 1, loss_scale: 1.0, lr: 0.1, step: 1, update: 1 };
    executor.step(input).unwrap_err().code()
}

fn checkpoint_unwritable() -> Option<Code> {
    let run = Path::new("/dev/null/run");
    let position =
        Position { step: 1, skipped: 0, loss_scale: None, consumed_samples: 1, epoch: 0, shuffle_seed: 0, rng_key: 0 };
    let what = Save { run, position, fixed: &serde_json::Value::Null, origin: None, keep_last: 1 };
    save(&mut executor(), &what).unwrap_err().code()
}

fn run_in_use() -> Option<Code> {
    let out = std::env::temp_dir().join(format!("meshwright-in-use-{}", std::process::id()));
    std::fs::create_dir_all(&out).unwrap();
    let file = std::fs::File::create(out.join("run.lock")).unwrap();
    file.lock().unwrap();
    let request = TrainRequest { out: out.clone(), ..training() };
    let code = train(&request, &mut Quiet).unwrap_err().code(); // the file is locked
    std::fs::remove_dir_all(&out).unwrap();
    code
}

/// Asks a run to end at once.
struct Ending;

impl Progress for Ending {
    fn started(&mut self, _: &RunHeader) {}
    fn step(&mut self, _: &StepRecord) {}
    fn evaluating(&mut self, _: u64) {}
    fn evaluated(&mut self, _: &EvalRecord) {}
    fn asked_to_end(&self) -> Option<Signal> {
        Some(Signal::Terminate)
    }
}

fn run_ended() -> Option<Code> {
    let out = std::env::temp_dir().join(format!("meshwright-ended-{}", std::process::id()));
    let request = TrainRequest { out: out.clone(), ..training() };
    let code = train(&request, &mut Ending).unwrap_err().code(); // asked to end behind the first step
    let checkpoints = meshwright::runtime::checkpoint::list(&out).unwrap();
    std::fs::remove_dir_all(&out).unwrap();
    code.filter(|_| checkpoints.len() == 1 && checkpoints[0].0 == 1)
}

/// The folder of a data set of one document, whose index is changed.
fn token_data(name: &str, ids: &[u32], change: fn(&[u8]) -> &[u8]) -> std::path::PathBuf {
    let folder = std::env::temp_dir().join(format!("meshwright-tokens-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut writer = TokenWriter::new(std::fs::File::create(folder.join("data.bin")).unwrap(), 65_000);
    writer.document(ids).unwrap();
    let mut index = Vec::new();
    writer.finish(&mut index).unwrap();
    std::fs::write(folder.join("data.idx"), change(&index)).unwrap();
    folder
}

/// The code with which the first sequence of a data set is refused, for a vocabulary of 512.
fn refused_tokens(folder: &Path) -> Option<Code> {
    let prefix = folder.join("data");
    let open = || {
        let data = TokenData::open(&prefix, Some(&prefix), None, None, 0.1)?.unwrap();
        Sampler::new(&data.train, 2, 0)?.within(512).fill(0, 1, &mut Batch::default())
    };
    let refused: Option<DataError> = open().err();
    std::fs::remove_dir_all(folder).unwrap();
    refused?.code()
}

fn tokens_damaged() -> Option<Code> {
    refused_tokens(&token_data("cut", &[1, 2, 3], |index| {
        let cut = &index[..index.len() - 8]; // an index that ends early
        cut
    }))
}

fn token_out_of_range() -> Option<Code> {
    let ids = [1, 2, 60_000]; // of a vocabulary of 512
    refused_tokens(&token_data("range", &ids, |index| index))
}

/// The code with which a folder of weights is refused that has one tensor.
fn refused_weights((name, format, shape): (&str, &str, Vec<u64>)) -> Option<Code> {
    let folder = std::env::temp_dir().join(format!("meshwright-weights-{}-{format}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let config = r#"{"model_type": "gpt2", "vocab_size": 300, "n_embd": 16, "n_head": 2, "n_layer": 1}"#;
    std::fs::write(folder.join("config.json"), config).unwrap();
    let bytes = shape.iter().product::<u64>() * if format == "F32" { 4 } else { 1 };
    let header = serde_json::json!({name: {"dtype": format, "shape": shape, "data_offsets": [0, bytes]}}).to_string();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.into_bytes());
    file.resize(file.len() + bytes as usize, 0);
    std::fs::write(folder.join("model.safetensors"), file).unwrap();
    let refused = Weights::open(&folder, &from_config(config).unwrap(), 8).err();
    std::fs::remove_dir_all(&folder).unwrap();
    refused?.code()
}

fn weights_mismatch() -> Option<Code> {
    let tensors = [("transformer.wte.weight", "F32", vec![300, 16])]; // and no others
    tensors.into_iter().find_map(refused_weights)
}

fn weights_format() -> Option<Code> {
    let quantised = ("transformer.wte.weight", "F8_E4M3", vec![300, 16]);
    refused_weights(quantised)
}

fn no_gpu() -> Option<Code> {
    Device::open(usize::MAX).map(drop).unwrap_err().code()
}
