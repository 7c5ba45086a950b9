//! `meshwright compile`: compiles a model, or a dump of any level, to the instructions of each rank.

use super::dump::Dump;
use super::ignored::say_ignored;
use super::memory::memory_table;
use super::options::parallel::ParallelFlags;
use super::options::request::asked;
use super::search_watch::SearchWatch;
use super::{TableFormat, prediction};
use crate::collectives::collectives;
use crate::error::Error;
use crate::groups::traffic_table;
use crate::predicting::{predict, write_trace};
use clap::Args;
use compiler::compile::{CompileRequest, compile_source_with};
use compiler::compile_target::CompileTarget;
use compiler::model_source::ModelSource;
use compiler::pass_manager::PassManager;
use compiler::pipeline::Listeners;
use cost::Cluster;
use ir::text;
use planner::shard::Decided;
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;
use support::quantities::{bytes_of, count_of, finite};
use support::units::short;

/// Compile a model for a mesh and print its IR
///
/// The IR text has the model with its shardings and collectives, its stages, the schedule, and the program of every class of
/// ranks. A printed IR continues from its level. Once buffers are assigned, standard error shows the memory of
/// each rank; and where statements are grouped, the launches and bytes that the groups save, outside products and
/// attention.
#[derive(Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Examples:
  meshwright compile tiny-llama --parallel dp=2,tp=2
  meshwright compile gpt2 --parallel tp=4 --stop-after collectives
  meshwright compile docs/example.ir --parallel dp=2,tp=2 --shard auto --memory 64kB
  meshwright compile llama3-8b --parallel tp=8,pp=4 --seq 8192 --global-batch 64 --dump llama
  meshwright compile llama3.1-405b --parallel tp=8,pp=16,dp=128 --seq 8192 --precision bf16 \\
      --predict
  meshwright compile tiny-llama --parallel dp=2,zero=3 --collectives
  meshwright compile llama/13-collectives.ir --global-batch 64"
)]
pub(super) struct Compile {
    #[command(flatten)]
    flags: Flags,
    /// Stop after this pass: see `meshwright passes`
    #[arg(long, value_name = "PASS")]
    stop_after: Option<String>,
    /// Write one numbered file per pass, and `memory.txt`, into this folder instead of printing the last IR
    #[arg(long, value_name = "DIR")]
    dump: Option<PathBuf>,
    /// Print the predicted step time instead: from the stages' costs, and from a simulation of the per-rank program
    #[arg(long, conflicts_with = "stop_after")]
    predict: bool,
    /// Print the collectives and messages of a step instead: how many a rank does, and their bytes
    #[arg(long, conflicts_with_all = ["stop_after", "predict"])]
    collectives: bool,
    /// With --predict: write the predicted step to this file, for ui.perfetto.dev
    #[arg(long, value_name = "FILE", requires = "predict")]
    trace: Option<PathBuf>,
    /// With --predict or --collectives: output format
    #[arg(long, value_enum, default_value_t)]
    format: TableFormat,
    /// Read the options from a JSON file (`-`: standard input); flags override it
    #[arg(long, value_name = "FILE")]
    request: Option<PathBuf>,
}

#[derive(Args, Serialize)]
struct Flags {
    /// A preset (see `meshwright models`), a config.json or its folder, a .pt2 file of torch.export, or a .ir file of any level. `+lora=16` behind it freezes it and gives the products of its layers adapters of rank 16; `+lora=16,alpha=32,q,v` has another scale, and those of q and v alone. `+balance=sequence=1e-4,bias=1e-3` keeps the routers of experts balanced. `+images=1024x1024:0.3,512x512:0.7` behind the config.json of a model that reads images, or `+images=4096` patches, adds its encoder, for that number of images in a sequence
    model: Option<String>,
    #[command(flatten)]
    #[serde(flatten)]
    parallel: ParallelFlags,
    /// Tokens per sequence, such as 8k for 8192; a .ir file states its own [default: 128]
    #[arg(long, value_name = "TOKENS", value_parser = count_of)]
    seq: Option<u64>,
    /// Sequences per step, over all ranks, such as 1k for 1024 [default: two micro-batches per pipeline stage]
    #[arg(long, value_name = "N", value_parser = count_of)]
    global_batch: Option<u64>,
    /// Precision: f32, bf16, f16, fp8-block, fp8-tensor or fp8-delayed [default: f32]
    #[arg(long, value_name = "TYPE")]
    precision: Option<String>,
    /// Leave the statements of the program ungrouped: skip the pass `fuse`
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    no_fusion: Option<bool>,
    /// How to choose shardings: rules (for transformers), or auto (least time within the memory, for any model)
    /// [default: rules]
    #[arg(long, value_name = "BY")]
    shard: Option<String>,
    /// With --shard auto: memory per device, such as 8GiB or 80GB [default: the cluster's]
    #[arg(long, value_name = "BYTES", value_parser = bytes_of)]
    memory: Option<u64>,
    /// With --shard auto: stop after this many seconds with the best shardings found [default: a fixed amount of work]
    #[arg(long, value_name = "SECONDS", value_parser = finite)]
    deadline: Option<f64>,
    /// Cluster by whose times collectives and shardings are chosen, and that --predict runs on: a name (see `meshwright clusters`) or a TOML file [default: cpu]
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// Stack that runs the program there: a name (see `meshwright stacks`) or a TOML file [default: Meshwright's own]
    #[arg(long, value_name = "NAME")]
    stack: Option<String>,
}

impl Compile {
    pub(super) fn run(self) -> Result<String, Error> {
        let missing = self.flags.model.is_none().then_some("`compile` needs a MODEL");
        let order: CompileRequest = asked(self.request.as_deref(), missing, &self.flags)?;
        let stop_after = self.stop_after.as_deref().map(known_pass).transpose()?;
        let source = ModelSource::open(&order.model)?;
        say_ignored(&order.model)?;
        let target = CompileTarget::of(&order)?;
        let mut dump = self.dump.as_deref().map(Dump::create).transpose()?;
        let (watch, mut decided) = (SearchWatch::new(), None);
        let mut hear = |so_far: &Decided| {
            watch.line(format!("shardings so far: {}", short(so_far.seconds)));
            decided = Some(*so_far);
        };
        let mut see = |pass: &'static str, file: &text::File| dump.iter_mut().for_each(|dump| dump.write(pass, file));
        let listeners = Listeners { observer: &mut see, watch: &mut hear };
        let compiled = compile_source_with(&mut PassManager::standard(), &source, &order, stop_after, listeners);
        watch.over();
        let memory = compiled.as_ref().ok().and_then(memory_table);
        memory.iter().for_each(|table| dump.iter_mut().for_each(|dump| dump.write_memory(table)));
        // If a pass fails, the dumps of earlier passes are still written.
        let written = dump.map(Dump::finish).transpose();
        let (file, written) = (compiled?, written?);
        if self.predict {
            let (step, trace) = predict(&file, &target.platform())?;
            if let Some(note) = unsupported(target.platform().cluster, &order.precision) {
                let _ = writeln!(std::io::stderr().lock(), "note: {note}");
            }
            self.trace.iter().try_for_each(|path| write_trace(&trace, path))?;
            return prediction::print(&step, self.format);
        }
        if let Some(report) = collectives(&file).filter(|_| self.collectives) {
            return if self.format == TableFormat::Json { super::json(&report) } else { Ok(report.to_string()) };
        }
        if let Some(decided) = decided {
            let _ = writeln!(std::io::stderr().lock(), "{}", sharded(&decided));
        }
        // The tables go to standard error, so that standard output stays IR text.
        for table in memory.into_iter().chain(traffic_table(&file)) {
            let _ = write!(std::io::stderr().lock(), "{table}");
        }
        Ok(written.unwrap_or_else(|| text::print(&file)))
    }
}

/// A note on a precision that the devices do not compute in; the prediction assumes that they do.
fn unsupported(cluster: &Cluster, precision: &str) -> Option<String> {
    let recipe = if precision == "f16" { "fp16" } else { precision };
    let known = cluster.device.precisions.as_ref().filter(|_| !cluster.device.computes_in(recipe))?;
    let (name, known) = (&cluster.name, known.join(", "));
    Some(format!("the devices of {name} compute in {known}; the prediction assumes that they compute in {precision}"))
}

/// Formats the result of the search for shardings.
fn sharded(decided: &Decided) -> String {
    let (least, gap) = (short(decided.bound), 100.0 * decided.gap());
    let proof = if decided.is_proved { "optimal".to_string() } else { format!("gap {gap:.1} %, lower bound {least}") };
    format!("shardings  {} per step (sum of costs), {proof}", short(decided.seconds))
}

/// Resolves the name of a pass.
fn known_pass(name: &str) -> Result<&'static str, Error> {
    Ok(PassManager::standard().find(name)?.name)
}
