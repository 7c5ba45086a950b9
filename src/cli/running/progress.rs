//! Progress display of a training run: a head, a progress bar (plain lines if there is no terminal) and validations.

use super::signals::Signals;
use crate::train::{ExampleReport, Progress, Routed, RunHeader, SetShare, Signal};
use data::packing::{ExampleCounts, LossOn};
use indicatif::{ProgressBar, ProgressStyle};
use ir::options::Recompute;
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};
use support::one_line::printable;
use support::units::{count, plural, seconds, share};
use trainer::metrics::{EvalRecord, StepRecord};

/// Shortest time between two lines if there is no progress bar.
pub(in crate::cli) const LINE_EVERY: Duration = Duration::from_secs(5);

/// Progress display of a training run.
pub(in crate::cli) struct Watch {
    out: Box<dyn Write>,
    bar: Option<ProgressBar>,
    is_silent: bool,
    steps: u64,
    /// Steps done before the run was resumed.
    done: u64,
    started: Instant,
    last_line: Option<Instant>,
    bigram: Option<f64>,
    /// Time of validations, which is not part of the time of steps.
    evaluation: Duration,
    validation: Option<Validation>,
    /// Signals are watched from the first step on. Before it a signal ends the process, and nothing is lost.
    signals: Option<Signals>,
}

/// State of a running validation.
struct Validation {
    began: Instant,
    batches: u64,
    /// True on a terminal, after the last step.
    bar: Option<ProgressBar>,
}

/// Progress bar on standard error, if that is a terminal.
pub(in crate::cli) fn bar(length: u64, template: &str) -> Option<ProgressBar> {
    let style = ProgressStyle::with_template(template).ok().filter(|_| std::io::stderr().is_terminal());
    style.map(|style| ProgressBar::new(length).with_style(style))
}

impl Watch {
    /// Displays the run on standard output, or with `quiet_stdout` on standard error.
    pub(in crate::cli) fn new(quiet_stdout: bool) -> Watch {
        let out: Box<dyn Write> = if quiet_stdout { Box::new(std::io::stderr()) } else { Box::new(std::io::stdout()) };
        Watch {
            out,
            bar: None,
            is_silent: false,
            steps: 0,
            done: 0,
            started: Instant::now(),
            last_line: None,
            bigram: None,
            evaluation: Duration::ZERO,
            validation: None,
            signals: None,
        }
    }

    /// Displays nothing, but watches for signals.
    pub(in crate::cli) fn silent() -> Watch {
        Watch { out: Box::new(std::io::sink()), is_silent: true, ..Watch::new(true) }
    }

    /// Prints a line above the bar.
    fn line(&mut self, text: &str) {
        let out = &mut self.out;
        // A closed pipe does not stop the run.
        let mut write = || drop(writeln!(out, "{}", printable(text)));
        match &self.bar {
            Some(bar) => bar.suspend(write),
            None => write(),
        }
    }

    fn time_left(&self, step: u64) -> String {
        let trained = self.started.elapsed().saturating_sub(self.evaluation);
        seconds(trained.as_secs_f64() / (step - self.done) as f64 * (self.steps - step) as f64)
    }
}

impl Progress for Watch {
    fn started(&mut self, run: &RunHeader) {
        self.signals =
            Some(Signals::watch("the step is finished and a checkpoint saved; a second signal ends the run at once"));
        for line in head(run) {
            self.line(&line);
        }
        (self.steps, self.done) = (run.steps, run.done);
        (self.bigram, self.started) = (run.bigram_entropy, Instant::now());
        self.bar = bar(run.steps, "{bar:24} step {pos}/{len}  {msg}").filter(|_| !self.is_silent);
    }

    fn step(&mut self, record: &StepRecord) {
        let done = record.step;
        if record.skipped {
            let scale = record.loss_scale.map_or_else(String::new, |scale| format!(", the loss scale {scale}"));
            self.noted(&format!(
                "step {done} was skipped: the loss is {}, the gradient norm {}{scale}",
                record.loss, record.grad_norm
            ));
        }
        let dropped = record.dropped.filter(|dropped| *dropped > 0.0);
        let dropped = dropped.map_or_else(String::new, |dropped| format!("  token drop {}", share(dropped)));
        let (speed, left) = (count(record.tokens_per_s), self.time_left(done));
        let state = format!("loss {:.4}{dropped}  {speed} tokens/s  {left} left", record.loss);
        if let Some(bar) = self.bar.take_if(|_| done == self.steps) {
            bar.finish_and_clear();
        }
        if let Some(bar) = &self.bar {
            bar.set_message(state);
            bar.set_position(done);
        } else if done == self.steps || self.last_line.is_none_or(|last| last.elapsed() >= LINE_EVERY) {
            self.line(&format!("step {done}/{}  {state}", self.steps));
            self.last_line = Some(Instant::now());
        }
    }

    fn evaluating(&mut self, batches: u64) {
        // The bar of the steps is gone after the last step.
        let template = "{bar:24} validation {pos}/{len}  {msg}";
        let bar = if self.bar.is_none() && !self.is_silent { bar(batches, template) } else { None };
        self.validation = Some(Validation { began: Instant::now(), batches, bar });
    }

    fn batch_evaluated(&mut self, done: u64) {
        let Some(Validation { began, batches, bar }) = &self.validation else { return };
        let took = began.elapsed();
        let left = seconds(took.as_secs_f64() / done as f64 * (batches - done) as f64) + " left";
        match (&self.bar, bar) {
            (Some(steps), _) => steps.set_message(format!("validation {done}/{batches}  {left}")),
            (None, Some(bar)) => {
                bar.set_message(left);
                bar.set_position(done);
            }
            (None, None) => {
                let long_ago = self.last_line.is_none_or(|last| last.elapsed() >= LINE_EVERY);
                if done < *batches && took >= LINE_EVERY && long_ago {
                    let line = format!("validation {done}/{batches}  {left}");
                    self.line(&line);
                    self.last_line = Some(Instant::now());
                }
            }
        }
    }

    fn evaluated(&mut self, record: &EvalRecord) {
        if let Some(Validation { began, bar, .. }) = self.validation.take() {
            self.evaluation += began.elapsed();
            bar.inspect(ProgressBar::finish_and_clear);
        }
        let against = self.bigram.map_or_else(String::new, |bigram| format!("  (baseline {bigram:.4})"));
        self.line(&format!("step {}/{}  validation loss {:.4}{against}", record.step, self.steps, record.valid_loss));
    }

    fn noted(&mut self, note: &str) {
        self.line(&format!("note      {note}"));
    }

    fn asked_to_end(&self) -> Option<Signal> {
        self.signals.as_ref().and_then(Signals::seen)
    }
}

/// Formats the routing of tokens to experts, and whether tokens can be dropped.
fn routing(routed: &Routed) -> String {
    let Routed { experts, chosen, group, capacity, expected, .. } = *routed;
    let dropped = if capacity >= group {
        "no tokens are dropped".to_string()
    } else {
        format!("expected token drop {} (uniform routing)", share(expected))
    };
    format!(
        "experts   top {chosen} of {experts}, capacity {capacity} of the {group} tokens of a routing group: {dropped}"
    )
}

/// A model's name; a configuration in its place is long.
fn shown(model: &str) -> &str {
    if model.starts_with('{') { "the configuration" } else { model }
}

/// The lines of data with labels of its own.
fn examples(report: &ExampleReport) -> Vec<String> {
    let counts = report.train;
    let per_window = counts.tokens as f64 / counts.windows.max(1) as f64;
    let loss = match report.loss_on {
        LossOn::Completion => "what the labels say",
        LossOn::All => "all tokens",
    };
    let mut lines = vec![format!(
        "examples  {} in {}, {per_window:.0} tokens in each; {} of the tokens count ({loss})",
        plural(counts.examples, "example"),
        plural(counts.windows, "sequence"),
        share(counts.counted as f64 / counts.tokens.max(1) as f64)
    )];
    for (side, ExampleCounts { examples, cut, without_label, .. }) in [("", report.train), (" held-out", report.valid)]
    {
        let all = examples + without_label;
        if cut > 0 {
            lines.push(format!(
                "  {cut} of {all}{side} examples are longer than a sequence, and their ends are cut off (--seq)"
            ));
        }
        if without_label > 0 {
            lines.push(format!(
                "  {without_label} of {all}{side} examples are left out: no label of theirs counts in a sequence"
            ));
        }
    }
    lines
}

fn head(run: &RunHeader) -> Vec<String> {
    let parallel = &run.parallel;
    let devices = if run.devices == 1 { "1 device".to_string() } else { format!("{} devices", run.devices) };
    let mut lines = vec![
        format!("model     {}, {} parameters", shown(&run.model), count(run.parameters as f64)),
        format!("mesh      {}: {devices}, {}", if run.mesh.is_empty() { "none" } else { &run.mesh }, run.place),
        format!(
            "config    {}, micro-batches of {} per rank, sequence parallel {}, ZeRO {}{}",
            run.precision,
            parallel.mbs,
            if parallel.sp { "on" } else { "off" },
            parallel.zero,
            match &parallel.recompute {
                Recompute::None => String::new(),
                again => format!(", recompute {again}"),
            }
        ),
    ];
    if run.stages.len() > 1 {
        lines.push(format!("schedule  {}, {} micro-batches", parallel.schedule, run.microbatches));
        let stages = run.stages.iter().enumerate();
        lines.extend(stages.map(|(stage, blocks)| format!("  stage {stage}: {blocks}")));
    }
    lines.extend(run.routing.as_ref().map(routing));
    if !run.unknown_keys.is_empty() {
        lines.push(format!("unknown   configuration keys that are ignored: {}", run.unknown_keys.join(", ")));
    }
    lines.push(format!(
        "step      {} sequences of {} tokens = {} tokens, in {} micro-batch{}",
        run.global_batch,
        run.seq,
        run.tokens_per_step(),
        run.microbatches,
        if run.microbatches == 1 { "" } else { "es" }
    ));
    if let Some(from) = &run.resumed {
        lines.push(format!("resumed   after step {} of {}, from {}", run.done, run.steps, from.display()));
    }
    if let Some(weights) = &run.weights {
        let (tensors, files) = (plural(weights.tensors as u64, "tensor"), plural(weights.files as u64, "file"));
        let formats = weights.formats.join(" and ");
        lines.push(format!("weights   {}: {tensors} in {files}, {formats}", weights.folder.display()));
    }
    lines.push(format!(
        "data      {}: {} documents, {} {} for training, {} held out",
        if run.blend.is_empty() { run.data.display().to_string() } else { plural(run.blend.len() as u64, "set") },
        run.documents,
        count(run.train_tokens as f64),
        run.unit,
        count(run.valid_tokens as f64)
    ));
    lines.extend(run.examples.iter().flat_map(examples));
    let set = |set: &SetShare| {
        let (tokens, path) = (count(set.train_tokens as f64), set.data.display());
        format!("  {:>6} of the sequences from {path}, {tokens} {}", share(set.share), run.unit)
    };
    lines.extend(run.blend.iter().map(set));
    if let Some(bigram) = run.bigram_entropy {
        lines.push(format!("baseline  {bigram:.4} nats/byte (byte-bigram model on the held-out text)"));
    }
    lines
}
