//! `meshwright tokenize`: text to files of tokens.

use super::token_watch::TokenWatch;
use crate::cli::TableFormat;
use crate::error::Error;
use clap::Args;
use std::path::PathBuf;
use support::units::{bytes, count, plural};
use tokenize::{Tokenize as Request, Tokenized, tokenize};

/// Write text as files of tokens, which `train --data` reads
///
/// Text files and folders are read, one document a file, and JSON lines (.jsonl, .ndjson), one document a line. Each may be
/// compressed (.gz, .zst); .json.gz and .json.zst have JSON lines too. In folders, hidden, binary and empty files are left out. A
/// tokenizer adds nothing to a document and cuts nothing off; all cores work on it, in memory that no length of a document raises. PREFIX.bin and PREFIX.idx are Megatron's
/// form, and PREFIX.json says what they are of. The files appear when they are complete.
///
/// JSON lines may be examples for fine-tuning instead, with `messages` of a conversation, `prompt` and `completion`, or `input_ids` and
/// `labels` (-100: does not count). PREFIX.labels then has the label of each token: `train` counts completions, and what the assistant says,
/// in the loss alone.
#[derive(Args)]
#[command(after_help = "\
Examples:
  meshwright tokenize notes/ --tokenizer path/to/tokenizer.json --out notes-tokens
  meshwright tokenize a.jsonl book.txt --tokenizer path/to/tokenizer.json --append-eos 0 \\
      --out both-tokens
  meshwright tokenize chats.jsonl --tokenizer path/to/tokenizer.json --out chats")]
pub(in crate::cli) struct Tokenize {
    /// Text files, folders of text files, or files of JSON lines
    #[arg(required = true, value_name = "IN")]
    inputs: Vec<PathBuf>,
    /// A tokenizer.json as the Hugging Face hub has it, or its folder
    #[arg(long, value_name = "FILE")]
    tokenizer: PathBuf,
    /// Prefix of the files to write
    #[arg(long, value_name = "PREFIX")]
    out: PathBuf,
    /// Token to end each document with: an id, or the token's text
    #[arg(long, value_name = "ID|TOKEN")]
    append_eos: Option<String>,
    /// Key of the text in JSON lines; lines are then text, whatever else they have [default: text]
    #[arg(long, value_name = "KEY")]
    text_key: Option<String>,
    /// Chat template of conversations (Jinja) [default: that of the tokenizer's folder, in chat_template.jinja or tokenizer_config.json]
    #[arg(long, value_name = "FILE")]
    chat_template: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: TableFormat,
}

impl Tokenize {
    pub(in crate::cli) fn run(self) -> Result<String, Error> {
        let Tokenize { inputs, tokenizer, out, append_eos, text_key, chat_template, format } = &self;
        let (append_eos, text_key) = (append_eos.as_deref(), text_key.as_deref());
        let request = Request { inputs, tokenizer, out, append_eos, text_key, chat_template: chat_template.as_deref() };
        let mut watch = TokenWatch::new();
        let tokenized = tokenize(&request, &mut |done| watch.shows(done));
        watch.over();
        let tokenized = tokenized.map_err(|error| watch.ended().unwrap_or_else(|| error.into()))?;
        match format {
            TableFormat::Json => crate::cli::json(&tokenized),
            TableFormat::Table => Ok(text(&tokenized)),
        }
    }
}

fn text(tokenized: &Tokenized) -> String {
    let Tokenized { tokenizer, documents, empty, tokens, bytes: size, counted, sources, files, .. } = tokenized;
    let left_out = if *empty > 0 { format!(", {empty} without tokens left out") } else { String::new() };
    let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    let (kind, unit, in_loss) = match counted {
        Some(counted) => ("examples", "example", format!(", {} count in the loss", count(*counted as f64))),
        None => ("text    ", "document", String::new()),
    };
    format!(
        "tokenizer  {}, {}\n{kind}   {} in {}, {}{left_out}\ntokens     {}, {:.2} bytes each{in_loss}\noutputs    {}\n",
        tokenizer.path.display(),
        plural(tokenizer.vocabulary, "token"),
        plural(*documents, unit),
        plural(sources.len() as u64, "file"),
        bytes(*size),
        count(*tokens as f64),
        *size as f64 / (*tokens).max(1) as f64,
        files.join(", ")
    )
}
