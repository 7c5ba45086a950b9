//! `meshwright train`: trains a model on text or on files of tokens.

use super::auto::AutoFlags;
use super::progress::Watch;
use crate::cli::ignored::say_ignored;
use crate::cli::options::parallel::ParallelFlags;
use crate::cli::options::request::{Fields, from_json, from_toml, resolve};
use crate::cli::{TableFormat, prediction};
use crate::error::Error;
use crate::predicting::write_trace;
use crate::train::{SETTINGS, TrainRequest, decline, predict, process_number, ranks, train};
use autotune::explain::read_plan;
use checkpoint::run_of;
use clap::Args;
use compiler::parallel;
use ir::catalogue::Code;
use serde::Serialize;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use support::quantities::{count_of, finite};

/// Train a model on text or tokens, on virtual devices: one thread each, in this process
///
/// Tokens of text are bytes: the vocabulary is the 256 bytes and an end of document. Files of tokens have those of any tokenizer.
/// Part of the data is held out. The validation loss is the mean over the held-out tokens, ends of documents included, in nats.
/// Its baseline is a byte-bigram model on the same text; files of tokens have none.
#[derive(Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Examples:
  meshwright train tiny-llama --data .
  meshwright train tiny-llama --data notes/ --parallel dp=2,tp=2,pp=2 --steps 200 \\
      --global-batch 32
  meshwright train path/to/config.json --data book.txt --parallel tp=2 --sp --seq 256 \\
      --lr 1e-3 --out runs/1
  meshwright train tiny-llama --data . --steps 20 --parallel tp=2 --profile --trace step.json
  meshwright train tiny-llama --parallel dp=2,tp=2,pp=2 --simulate
  meshwright train tiny-llama --data . --parallel dp=2,tp=2 --comm looped:2 --print-ranks
  meshwright train --init-from path/to/model --data book.txt --lr 1e-4 --steps 5
  meshwright train --config runs/1/run.toml --seed 1 --out runs/2
  meshwright train tiny-llama --data book.txt --save-every 50 --out runs/3
  meshwright plan tiny-llama --cluster cpu --stack meshwright-threads --precision f32 --gpus 8 \\
      --seq 128 --global-batch 16 --pin recompute=none --format json -o plan.json \\
      && meshwright train --plan plan.json
  meshwright train tiny-llama --data . --devices 8 --auto
  meshwright train --resume runs/3 --parallel dp=2,tp=2 --steps 800"
)]
pub(in crate::cli) struct Train {
    #[command(flatten)]
    flags: Flags,
    /// Read the options from a run.toml, with `_` for `-`; flags override it
    #[arg(long, value_name = "FILE", conflicts_with = "request")]
    config: Option<PathBuf>,
    /// Read the options from a JSON file (`-`: standard input); flags override it
    #[arg(long, value_name = "FILE")]
    request: Option<PathBuf>,
    /// Run a plan of `meshwright plan --format json`: its model, configuration, sequence length, global batch and precision; flags override it
    #[arg(long, value_name = "FILE", conflicts_with_all = ["config", "request", "resume"])]
    plan: Option<PathBuf>,
    #[command(flatten)]
    auto: AutoFlags,
    /// Predict a step instead of training: simulate the program of every rank on clocks, by the cost model
    #[arg(long)]
    simulate: bool,
    /// Print where the ranks are instead of training: process, host, cores and coordinates of each, and for each axis whether its groups
    /// cross processes or hosts
    #[arg(long, conflicts_with = "simulate")]
    print_ranks: bool,
    /// Output format; with json, progress goes to standard error
    #[arg(long, value_enum, default_value_t)]
    format: TableFormat,
}

#[derive(Args, Serialize)]
struct Flags {
    /// A preset (see `meshwright models`), a config.json or its folder, a .pt2 file of torch.export, or a .ir file. `+lora=16` behind it freezes it and gives the products of its layers adapters of rank 16; `+lora=16,alpha=32,q,v` has another scale, and those of q and v alone. `+balance=sequence=1e-4,bias=1e-3` keeps the routers of experts balanced. `+images=1024x1024:0.3,512x512:0.7` behind the config.json of a model that reads images, or `+images=4096` patches, adds its encoder, for that number of images in a sequence [default: tiny-llama]
    model: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    parallel: ParallelFlags,
    /// Text file, folder of text files, or tokens: a prefix of .bin and .idx (Megatron), a .ds file (datatrove), a .bin file of
    /// llm.c, or what --data-format says [default: .]
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
    /// Several sets of data, each with its share of the sequences: web:0.7,books:0.3. They have the tokens of one tokenizer
    #[arg(long, value_name = "PATH:SHARE,..", conflicts_with = "data")]
    blend: Option<String>,
    /// Form of a file of tokens that does not say it: raw-u16 or raw-u32
    #[arg(long, value_name = "FORM")]
    data_format: Option<String>,
    /// Token that ends a document, in files of tokens without an index of documents [default: one document]
    #[arg(long, value_name = "ID")]
    eos: Option<u32>,
    /// Tokens that count in the loss of data with labels of its own, which `tokenize` writes for examples: completion, what the labels say, or
    /// all. Each example is whole in a sequence; one that is longer is cut, and the run says how many are [default: completion]
    #[arg(long, value_name = "TOKENS")]
    loss_on: Option<String>,
    /// Tokens for validation, instead of a share of the documents of --data
    #[arg(long, value_name = "PATH")]
    valid: Option<PathBuf>,
    /// Share of the text, or of the documents of tokens, to hold out for validation [default: 0.1]
    #[arg(long, value_name = "X", value_parser = finite)]
    valid_fraction: Option<f64>,
    /// Optimizer steps
    #[arg(long, value_name = "N")]
    steps: Option<u64>,
    /// Tokens per sequence, such as 1k for 1024 [default: 128]
    #[arg(long, value_name = "TOKENS", value_parser = count_of)]
    seq: Option<u64>,
    /// Sequences per step, over all ranks [default: 16]
    #[arg(long, value_name = "N", value_parser = count_of)]
    global_batch: Option<u64>,
    /// Learning rate after warm-up
    #[arg(long, value_name = "X", value_parser = finite)]
    lr: Option<f64>,
    /// Learning rate at the end; without effect on a constant one [default: a tenth of --lr]
    #[arg(long, value_name = "X", value_parser = finite)]
    min_lr: Option<f64>,
    /// Steps of linear warm-up
    #[arg(long, value_name = "STEPS")]
    warmup: Option<u64>,
    /// Course of the learning rate after the warm-up: cosine, linear, wsd (--lr until the last --decay-steps, then a line) or constant
    /// [default: cosine]
    #[arg(long, value_name = "NAME")]
    lr_schedule: Option<String>,
    /// Last steps, in which the learning rate of wsd falls [default: a tenth of --steps]
    #[arg(long, value_name = "STEPS")]
    decay_steps: Option<u64>,
    /// Optimizer: adamw, muon (AdamW for all but matrices of layers) or sgd [default: adamw]
    #[arg(long, value_name = "RULE")]
    optimizer: Option<String>,
    /// Decay of the mean of gradients in AdamW, and in what muon leaves to it [default: 0.9]
    #[arg(long, value_name = "X", value_parser = finite)]
    beta1: Option<f64>,
    /// Decay of the mean of squared gradients in the same [default: 0.95]
    #[arg(long, value_name = "X", value_parser = finite)]
    beta2: Option<f64>,
    /// Addend to the root of the second mean in the same [default: 1e-8]
    #[arg(long, value_name = "X", value_parser = finite)]
    eps: Option<f64>,
    /// Decay of the velocity of sgd, which has none at 0, or of the mean of muon [default: 0 for sgd, 0.95 for muon]
    #[arg(long, value_name = "X", value_parser = finite)]
    momentum: Option<f64>,
    /// Nesterov's momentum in sgd or muon: the step looks one more decay ahead [default: false for sgd, true for muon]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    nesterov: Option<bool>,
    /// Matrices that muon makes orthogonal where a model has the parts of one apart: split (each part), or whole (q_b, kv_a and kv_b of
    /// latent attention as one matrix each) [default: split]
    #[arg(long, value_name = "NAME")]
    matrices: Option<String>,
    /// Weight decay [default: 0.1]
    #[arg(long, value_name = "X", value_parser = finite)]
    weight_decay: Option<f64>,
    /// Gradient-norm clipping threshold; 0: no clipping [default: 1]
    #[arg(long, value_name = "NORM", value_parser = finite)]
    clip: Option<f64>,
    /// Steps of the run whose update may be skipped because the norm of the gradient is infinite or not a number; one more ends
    /// the run [default: 0]
    #[arg(long, value_name = "N")]
    skip_nonfinite: Option<u64>,
    /// Random seed of the initial parameters and of the data order [default: 0]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Precision: f32, bf16, f16, or fp8-block, fp8-tensor or fp8-delayed, which are bf16 with 8-bit operands of products; below f32
    /// the optimizer updates an f32 copy of the parameters [default: f32]
    #[arg(long, value_name = "TYPE")]
    precision: Option<String>,
    /// Backend: cpu, or cuda (NVIDIA GPU) [default: cpu]
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
    /// Processes of the devices: threads (this one), tcp (those of `meshwright launch`, torchrun or srun), mpi (those of mpirun), or
    /// looped:N (N in this one, joined by a wire in memory, for tests); the numbers are the same. nccl, with --backend cuda: as tcp, each
    /// process with one device on a GPU of its own, and sums differ by rounding [default: threads]
    #[arg(long, value_name = "KIND")]
    comm: Option<String>,
    /// Join processes on other hosts without a secret: nobody else can reach this network. Else MESHWRIGHT_SECRET has the secret, or
    /// MESHWRIGHT_SECRET_FILE names its file
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    trusted_network: Option<bool>,
    /// Compare all data of several processes at the start, not only its sizes, its index and blocks spread over it
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    compare_data: Option<bool>,
    /// Sums of devices in several processes: exact, by the devices in one order, or engine, by MPI with one message for all devices of a
    /// process. With exact the numbers are those of one process; with engine sums of f32 differ by rounding [default: exact; with nccl: engine]
    #[arg(long, value_name = "KIND")]
    sums: Option<String>,
    /// Seconds after which a process that says nothing has failed, and after which processes that all wait for each other end [default: 8]
    #[arg(long, value_name = "SECONDS", value_parser = finite)]
    silence: Option<f64>,
    /// Seconds after which a rank that stays at one instruction is stuck, and ends the run. A rank that has had a longer one gets 20 times as
    /// long, and each gets 300 seconds in the first step and the first validation [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = finite)]
    timeout: Option<f64>,
    /// Steps between validations; 0: only at the end [default: 100]
    #[arg(long, value_name = "STEPS")]
    eval_every: Option<u64>,
    /// Batches of a validation between steps [default: 4]
    #[arg(long, value_name = "N")]
    eval_batches: Option<u64>,
    /// Batches of the validation at the end, spread over the held-out text; 0: all of it [default: the number of --steps, from 4 to 256]
    #[arg(long, value_name = "N")]
    final_eval_batches: Option<u64>,
    /// Steps between checkpoints, with one after the last step; 0: none [default: 0]
    #[arg(long, value_name = "STEPS")]
    save_every: Option<u64>,
    /// Number of newest checkpoints to retain [default: 3]
    #[arg(long, value_name = "N")]
    keep_last: Option<u64>,
    /// Steps between records of how many tokens each expert of each layer got, in metrics.jsonl; 0: none. The model must note it, as
    /// MODEL+balance=counts does [default: 0; without N: 1]
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    routing_every: Option<u64>,
    /// Steps between comparisons of replicas: ranks that hold the same part of a parameter or of an optimizer state must have the same
    /// bytes in it, or the run ends with their names; 0: none [default: 0; without N: 1]
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    check_replicas: Option<u64>,
    /// Resume from a checkpoint, or from the newest one in a run's folder [default without PATH: --out]
    ///
    /// Other options come from that run (its run.toml, unless --config or --request is given), but for --trace; flags override them. These may
    /// change: the configuration, --precision, --steps, the learning rate and its schedule, --weight-decay, --clip, --skip-nonfinite, --eval-*, --final-eval-batches,
    /// --save-every, --keep-last, --check-replicas and --out. These may not, which is checked: the model, the text, --loss-on, --valid-fraction, --seq,
    /// --global-batch, --optimizer with its betas, --eps, --momentum, --nesterov and --matrices, and --seed. On the same configuration a resumed run is bit-identical to an
    /// uninterrupted one; on another configuration it is equal up to rounding. Later checkpoints in that folder are deleted once the next one is saved
    #[arg(long, value_name = "PATH", num_args = 0..=1, default_missing_value = "")]
    resume: Option<String>,
    /// Begin from the weights of a folder in the form of the Hugging Face hub: config.json and safetensors, one file or several
    /// with an index. A .pt2 file of torch.export has weights too. Without MODEL, the model is that folder's or file's; with a `.ir` file, tensors have the names and sizes of its
    /// parameters. A resumed run takes its weights from the checkpoint instead
    #[arg(long, value_name = "DIR")]
    init_from: Option<PathBuf>,
    /// Output folder of run.toml, metrics.jsonl and checkpoints [default: out]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Run statements one by one, not in groups that share one pass over their rows; the numbers are the same
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    no_fusion: Option<bool>,
    /// Launch the kernels of a step one by one, not as a CUDA graph; the numbers are the same, and without a GPU or with several
    /// devices it changes nothing
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    no_graphs: Option<bool>,
    /// Time up to eight of cuBLASLt's algorithms for each product of a GPU before the first step, and take the fastest; another run
    /// may take others, whose sums round differently
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    time_products: Option<bool>,
    /// Fill memory with poison (bits of no number) as soon as nothing in it is needed any more, to find what is read too late; the
    /// numbers are the same
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    poison: Option<bool>,
    /// Profile the run by op and by wait reason, and print the profile at the end; `mfu` in metrics.jsonl is then relative to
    /// the peak measured at the start
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    profile: Option<bool>,
    /// Write the trace of one step to this file, for ui.perfetto.dev
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Step that --trace records [default: the last]
    #[arg(long, value_name = "STEP")]
    trace_step: Option<u64>,
    /// Faults to test what finds them: nan=STEP:RANK, flip=STEP:RANK, slow=RANK:MILLISECONDS, stuck=STEP:RANK
    #[arg(long, value_name = "FAULTS", hide = true)]
    inject: Option<String>,
}

/// Time by which other processes than the first print an error later: if it is that of all, the launcher has ended them by then. Each
/// prints it later than the one before. `mpirun` takes its time.
const SPEAKS_LATER: Duration = Duration::from_secs(1);
const SPEAKS_AFTER_MPI: Duration = Duration::from_secs(5);

/// Times that later by which the last process speaks, however many there are.
const LATEST: usize = 3;

impl Train {
    /// The run that flags and files ask for.
    pub(in crate::cli) fn request(&self) -> Result<TrainRequest, Error> {
        let mut fields = match (&self.config, &self.request) {
            (Some(path), _) => from_toml::<TrainRequest>(path)?,
            (None, Some(path)) => from_json::<TrainRequest>(path)?,
            (None, None) => match (&self.plan, &self.flags.resume) {
                (Some(path), _) => of_plan(path, self.flags.parallel.parallel.is_some())?,
                (None, Some(path)) => of_run(path, &self.flags)?,
                (None, None) if self.auto.auto => self.auto.fields(&self.flags)?,
                (None, None) => Fields::new(),
            },
        };
        let is_model = |path: &&PathBuf| !path.is_file() || path.extension().is_some_and(|end| end == "pt2");
        if let (Some(folder), None) = (self.flags.init_from.as_ref().filter(is_model), &self.flags.model) {
            let own = || weights::snapshot(folder).display().to_string().into();
            fields.entry("model").or_insert_with(own);
        }
        if self.flags.data.is_some() {
            fields.remove("blend");
        }
        if self.flags.optimizer.as_ref().is_some_and(|name| fields.get("optimizer").is_none_or(|own| own != name)) {
            SETTINGS.iter().for_each(|name| drop(fields.remove(*name)));
        }
        resolve(fields, &self.flags)
    }

    /// Says to the other processes of a run, if it has any, that this one does not take part.
    fn decline(&self, why: &Error) {
        let Flags { comm, trusted_network, .. } = &self.flags;
        let trusted_network = trusted_network.unwrap_or_default();
        if let Some(comm) = comm.clone() {
            decline(&TrainRequest { comm, trusted_network, ..TrainRequest::default() }, &why.message());
        }
    }

    pub(in crate::cli) fn run(self) -> Result<String, Error> {
        let request = self.request().inspect_err(|why| self.decline(why))?;
        if self.simulate {
            let (step, trace) = predict(&request)?;
            request.trace.iter().try_for_each(|path| write_trace(&trace, path))?;
            return prediction::print(&step, self.format);
        }
        let json = self.format == TableFormat::Json;
        // Of several processes the first one speaks for all.
        let number = process_number(&request.comm).unwrap_or(0);
        if number > 0 {
            let done = if self.print_ranks {
                ranks(&request).map(drop).map_err(Error::from)
            } else {
                train_silently(&request)
            };
            return done.map(|()| String::new()).inspect_err(|_| {
                let later = if request.comm == "mpi" { SPEAKS_AFTER_MPI } else { SPEAKS_LATER };
                thread::sleep(later.saturating_mul(number.min(LATEST) as u32));
            });
        }
        if self.print_ranks {
            let report = ranks(&request)?;
            return if json { crate::cli::json(&report) } else { Ok(report.to_string()) };
        }
        if request.model.ends_with(".pt2") {
            say_ignored(&request.model)?;
        }
        let report = train(&request, &mut Watch::new(json))?;
        if json { crate::cli::json(&report) } else { Ok(format!("\n{report}")) }
    }
}

/// Says to the other processes of a run, if the words are those of one, that they are not understood.
pub(in crate::cli) fn decline_usage(words: &[OsString], why: &Error) {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let comm = words.iter().position(|word| word == "--comm").and_then(|at| words.get(at + 1));
    let comm = comm.map(|word| word.as_ref()).or_else(|| words.iter().find_map(|word| word.strip_prefix("--comm=")));
    if let (Some("train"), Some(comm)) = (words.get(1).map(|word| word.as_ref()), comm) {
        let trusted_network = words.iter().any(|word| word.starts_with("--trusted-network"));
        decline(&TrainRequest { comm: comm.to_string(), trusted_network, ..TrainRequest::default() }, &why.message());
    }
}

fn train_silently(request: &TrainRequest) -> Result<(), Error> {
    Ok(train(request, &mut Watch::silent()).map(drop)?)
}

/// Reads the options of the run to resume, from its current folder. The folder may be of someone else: it decides no file outside of
/// itself that the run writes. A run records no such file in its `run.toml`.
fn of_run(resume: &str, flags: &Flags) -> Result<Fields, Error> {
    let default = TrainRequest::default().out;
    let path = if resume.is_empty() { flags.out.as_deref().unwrap_or(&default) } else { Path::new(resume) };
    let run = run_of(path);
    let config = run.join("run.toml");
    let mut fields = if config.exists() { from_toml::<TrainRequest>(&config)? } else { Fields::new() };
    if let (Some(trace), None) = (fields.get("trace"), &flags.trace) {
        let message = format!(
            "{} names an output, `trace = {trace}`, which a resumed run takes from flags alone",
            config.display()
        );
        return Err(Error::input(Code::BadOption, message).help("give --trace FILE, or take the line out"));
    }
    fields.insert("out".into(), run.display().to_string().into());
    Ok(fields)
}

/// Fields of a run that a plan file states. The configuration must be runnable, unless another one is given.
fn of_plan(path: &Path, has_config: bool) -> Result<Fields, Error> {
    let chosen = read_plan(path)?.chosen;
    let (text, inputs) = (parallel::print(&chosen.with_stages()), chosen.inputs);
    if !has_config {
        let refused = |error| Error::from(error).within(&format!("{} cannot be run as it is", path.display()));
        parallel::parse(&text).map_err(refused)?;
    }
    let mut fields = Fields::new();
    fields.insert("model".into(), inputs.model.into());
    fields.insert("parallel".into(), text.into());
    fields.insert("seq".into(), inputs.seq.into());
    fields.insert("global_batch".into(), inputs.global_batch.into());
    fields.insert("precision".into(), inputs.precision.into());
    Ok(fields)
}
