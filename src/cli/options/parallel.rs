//! Options for the parallel configuration of a model, shared by all subcommands that compile one.

use clap::Args;
use compiler::parallel::{key_text, names};
use ir::config_key::ConfigKey;
use serde::Serialize;

/// The configuration, whole or by parts.
#[derive(Args, Serialize)]
pub(in crate::cli) struct ParallelFlags {
    #[arg(long, value_name = "CONFIG", help = help("Parallel configuration", "one device"), long_help = long_help("Parallel configuration", "one device"))]
    pub(in crate::cli) parallel: Option<String>,
    /// Sequences per micro-batch and data-parallel rank [default: 1; `train` takes up to 8]
    #[arg(long, value_name = "N")]
    mbs: Option<u64>,
    /// Sequence parallelism: shard the residual stream over tp
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    sp: Option<bool>,
    /// ZeRO stage: 0, 1 (shard optimizer states over dp), 2 (gradients too) or 3 (parameters too) [default: 0]
    #[arg(long, value_name = "STAGE")]
    zero: Option<u8>,
    /// Pipeline schedule: see `meshwright schedules` [default: 1f1b]
    #[arg(long, value_name = "KIND")]
    schedule: Option<String>,
}

/// One line of help for an option that takes a configuration.
pub(in crate::cli) fn help(what: &str, default: &str) -> String {
    format!("{what}: any of {} [default: {default}]", names())
}

/// The same with a line for each key.
pub(in crate::cli) fn long_help(what: &str, default: &str) -> String {
    let width = ConfigKey::ALL.iter().map(|key| key.name().len()).max().unwrap_or(0) + 2;
    let keys = ConfigKey::ALL.map(|key| entry(key.name(), key_text(key).about, width));
    format!("{what}, such as dp=2,tp=4,zero=1 [default: {default}]. Keys:\n{}", keys.join("\n"))
}

/// Columns of what a help text says about a key: clap prints up to 100, after 10 of its own.
const COLUMNS: usize = 90;

/// Lines of a help text for a key: its name in `width` columns, then what it is.
fn entry(name: &str, about: &str, width: usize) -> String {
    let mut lines = vec![String::new()];
    for word in about.split(' ') {
        let line = lines.last_mut().expect("a line");
        if line.is_empty() {
            line.push_str(word);
        } else if 2 + width + line.len() + 1 + word.len() <= COLUMNS {
            *line = format!("{line} {word}");
        } else {
            lines.push(word.to_string());
        }
    }
    format!("  {name:<width$}{}", lines.join(&format!("\n{}", " ".repeat(2 + width))))
}
