//! `meshwright generate`: text that the model of a checkpoint continues.

use super::progress::bar;
use crate::cli::TableFormat;
use crate::error::Error;
use crate::generate::{GenerateRequest, generate};
use clap::Args;
use indicatif::ProgressBar;
use ir::catalogue::Code;
use std::path::PathBuf;
use support::quantities::finite;
use trainer::sampling::Sampling;

/// Continue a text with the model of a checkpoint, on the processor
///
/// Every checkpoint works, whatever mesh and precision it was trained with; the model computes in f32. Tokens are bytes, or those of
/// --tokenizer. Each token takes a forward of all that is before it, and text beyond the sequence length of the training is left out
/// at its begin: this shows what was trained, and is no fast server.
#[derive(Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "\
Examples:
  meshwright train tiny-llama --data notes/ --steps 2 --save-every 2 --out runs/generated
  meshwright generate runs/generated --prompt 'one plus ' --tokens 16
  meshwright generate runs/generated --prompt 'one plus ' --tokens 16 --temperature 0"
)]
pub(in crate::cli) struct Generate {
    /// A checkpoint, or the folder of a run for its newest one
    checkpoint: PathBuf,
    /// Text to continue
    #[arg(long, value_name = "TEXT")]
    prompt: String,
    /// A tokenizer.json or its folder, of a model that was trained on tokens
    #[arg(long, value_name = "FILE")]
    tokenizer: Option<PathBuf>,
    /// Token of the tokenizer that ends the text: an id, or the token's text
    #[arg(long, value_name = "ID|TOKEN")]
    eos: Option<String>,
    /// Most tokens to add
    #[arg(long, value_name = "N", default_value_t = 64)]
    tokens: u64,
    /// Divisor of the logits; 0: the likeliest token each time
    #[arg(long, value_name = "X", default_value_t = 1.0, value_parser = finite)]
    temperature: f64,
    /// Draw from the likeliest tokens that together have this probability
    #[arg(long, value_name = "P", default_value_t = 1.0, value_parser = finite)]
    top_p: f64,
    /// Seed of the draws
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// The model, of a checkpoint that does not name it: a preset, a config.json or its folder, a .pt2 file of torch.export, or a .ir file
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: TableFormat,
}

impl Generate {
    pub(in crate::cli) fn run(self) -> Result<String, Error> {
        let Generate { checkpoint, prompt, tokenizer, eos, tokens, temperature, top_p, seed, model, format } = self;
        let refused = |what: String| {
            Err(Error::input(Code::BadOption, what).help("--temperature 1 --top-p 1 draws from all tokens"))
        };
        if temperature < 0.0 {
            return refused(format!("`temperature` is {temperature}, but must not be negative"));
        }
        if !(top_p > 0.0 && top_p <= 1.0) {
            return refused(format!("`top_p` is {top_p}, but must be above 0 and at most 1"));
        }
        let sampling = Sampling { temperature, top_p, seed };
        let request = GenerateRequest { checkpoint, model, prompt, tokenizer, eos, tokens, sampling };
        let bar = bar(tokens, "{bar:24} token {pos}/{len}");
        let generated = generate(&request, &mut |done| bar.iter().for_each(|bar| bar.set_position(done)));
        bar.iter().for_each(ProgressBar::finish_and_clear);
        let generated = generated?;
        match format {
            TableFormat::Json => crate::cli::json(&generated),
            TableFormat::Table => Ok(format!("{}{}\n", generated.prompt, generated.text)),
        }
    }
}
