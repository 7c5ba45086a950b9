//! Errors of reading and writing weights: what is wrong with which file, and what to do.

use ir::catalogue::Code;
use ir::diag::Coded;
use ir::models::ConfigError;
use std::io;
use std::path::{Path, PathBuf};
use support::shell::quoted;

/// Names that a message lists; the rest are counted.
const LISTED: usize = 4;

/// Why weights cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The folder has no weights that can be read.
    #[error("no weights in {}: {why}", folder.display())]
    Missing {
        /// The folder.
        folder: PathBuf,
        /// The files that are there instead.
        why: String,
        /// The fix.
        fix: String,
    },
    /// The folder has a pickle and no safetensors.
    #[error("{} is a Python pickle: reading it would run code that is in it", file.display())]
    Pickled {
        /// The file.
        file: PathBuf,
    },
    /// A file is not as it must be.
    #[error("{}: {why}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Its defect.
        why: String,
    },
    /// A tensor has another shape than the model.
    #[error("`{tensor}` in {} has the shape {found:?}, but the model has {wanted:?}", folder.display())]
    Shape {
        /// The folder.
        folder: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its shape.
        found: Vec<u64>,
        /// That of the model.
        wanted: Vec<u64>,
        /// The fix.
        fix: String,
    },
    /// The tensor of a vocabulary has another number of rows than the model has tokens.
    #[error(
        "`{tensor}` in {} has {found} rows, but `vocab_size` is {wanted}: {}",
        folder.display(),
        padding(*found, *wanted)
    )]
    Vocabulary {
        /// The folder.
        folder: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its rows.
        found: u64,
        /// The vocabulary of the model.
        wanted: u64,
    },
    /// Tensors are missing or not needed.
    #[error("the tensors of {} are not those of the model: {}", folder.display(), names(missing, surplus))]
    Names {
        /// The folder.
        folder: PathBuf,
        /// Names that the model needs.
        missing: Vec<String>,
        /// Names that it does not have.
        surplus: Vec<String>,
        /// The fix.
        fix: String,
    },
    /// A tied head has a matrix of its own.
    #[error(
        "`{head}` in {} differs from `{embedding}`, but `tie_word_embeddings` says that they are one",
        folder.display()
    )]
    Untied {
        /// The folder.
        folder: PathBuf,
        /// The matrix of the head.
        head: String,
        /// The embedding.
        embedding: String,
    },
    /// A tensor has elements that cannot be read.
    #[error("`{tensor}` in {} is {what}: only f32, f16 and bf16 are read", folder.display())]
    Format {
        /// The folder.
        folder: PathBuf,
        /// The tensor.
        tensor: String,
        /// Its elements.
        what: String,
    },
    /// The configuration is of a quantised model, but the tensors are plain.
    #[error("{} says that the weights are quantised: `quantization_config` is {stated}", file.display())]
    Quantised {
        /// The file.
        file: PathBuf,
        /// The value of the key.
        stated: String,
    },
    /// A tensor has an element that is no number.
    #[error("`{tensor}` in {} has an element that is {value}", file.display())]
    NotANumber {
        /// The file.
        file: PathBuf,
        /// The tensor.
        tensor: String,
        /// The element: `NaN`, `inf`.
        value: f32,
    },
    /// The configuration is of another model.
    #[error("{} describes another model: {}", file.display(), listed(differences))]
    Config {
        /// The file.
        file: PathBuf,
        /// Key, ours, theirs.
        differences: Vec<(String, String, String)>,
    },
    /// The configuration cannot be read.
    #[error("{}: {source}", file.display())]
    BadConfig {
        /// The file.
        file: PathBuf,
        /// The reason.
        source: ConfigError,
    },
    /// No class of `transformers` computes the model.
    #[error("{} cannot be exported: {why}", what.display())]
    NotExportable {
        /// The checkpoint.
        what: PathBuf,
        /// The reason.
        why: String,
    },
    /// A number is beyond the format that is written.
    #[error("`{tensor}` has {value}, which is beyond {format}")]
    Overflow {
        /// The tensor.
        tensor: String,
        /// The number.
        value: f32,
        /// `f16` or `bf16`.
        format: String,
    },
    /// The folder to be written is there.
    #[error("{} exists", path.display())]
    Exists {
        /// The folder.
        path: PathBuf,
    },
    /// The system refuses.
    #[error("cannot {what} {}: {source}", path.display())]
    File {
        /// `read` or `write`.
        what: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// An exported archive cannot be read.
    #[cfg(feature = "pt2")]
    #[error(transparent)]
    Export(#[from] pt2::Error),
    /// A checkpoint cannot be read.
    #[error(transparent)]
    Checkpoint(#[from] checkpoint::Error),
    /// A rank failed.
    #[error(transparent)]
    Executor(#[from] exec::Error),
}

impl Error {
    pub(crate) fn file(what: &'static str, path: &Path, source: io::Error) -> Error {
        Error::File { what, path: path.to_path_buf(), source }
    }
}

fn padding(found: u64, wanted: u64) -> String {
    match found.checked_sub(wanted) {
        Some(more) => format!("{more} rows are padding that the config.json does not count"),
        None => format!("the model is padded by {} tokens that the weights lack", wanted - found),
    }
}

fn names(missing: &[String], surplus: &[String]) -> String {
    let lists = [("without", missing), ("not needed:", surplus)].into_iter().filter(|(_, names)| !names.is_empty());
    let parts = lists.map(|(what, names)| {
        let first: Vec<String> = names.iter().take(LISTED).map(|name| format!("`{name}`")).collect();
        let more = names.len().saturating_sub(LISTED);
        let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("{what} {}{rest}", first.join(", "))
    });
    parts.collect::<Vec<_>>().join("; ")
}

fn listed(differences: &[(String, String, String)]) -> String {
    let first = differences.iter().take(LISTED);
    let told: Vec<String> = first.map(|(key, own, theirs)| format!("`{key}` is {theirs}, here {own}")).collect();
    match differences.len().saturating_sub(LISTED) {
        0 => told.join("; "),
        more => format!("{}; and {more} more", told.join("; ")),
    }
}

impl Coded for Error {
    fn code(&self) -> Option<Code> {
        Some(match self {
            Error::Missing { .. } => Code::WeightsMissing,
            Error::Pickled { .. } => Code::PickledWeights,
            Error::Damaged { .. } | Error::NotANumber { .. } => Code::WeightsDamaged,
            Error::Shape { .. } | Error::Vocabulary { .. } | Error::Names { .. } | Error::Untied { .. } => {
                Code::WeightsMismatch
            }
            Error::Format { .. } | Error::Quantised { .. } => Code::WeightsFormat,
            Error::Config { .. } => Code::WeightsConfig,
            Error::BadConfig { source, .. } => return source.code(),
            Error::NotExportable { .. } => Code::NotExportable,
            Error::Overflow { .. } | Error::Exists { .. } => Code::BadOption,
            Error::File { .. } => Code::FileUnreadable,
            #[cfg(feature = "pt2")]
            Error::Export(error) => return error.code(),
            Error::Checkpoint(error) => return error.code(),
            Error::Executor(error) => return error.code(),
        })
    }

    fn help(&self) -> Option<String> {
        Some(match self {
            Error::Missing { fix, .. } | Error::Names { fix, .. } | Error::Shape { fix, .. } => fix.clone(),
            Error::Pickled { file } => {
                let folder = quoted(file.parent().unwrap_or(file));
                format!(
                    "convert it once: python3 -c \"from transformers import AutoModelForCausalLM as M; \
                     M.from_pretrained('{folder}', dtype='auto').save_pretrained('{folder}-safetensors')\""
                )
            }
            Error::Damaged { .. } => "copy or download the file again".into(),
            Error::NotANumber { .. } => "the file was saved by a run that had diverged: take an earlier one".into(),
            Error::Vocabulary { found, wanted, .. } if found > wanted => {
                format!("set `vocab_size` to {found} in config.json: padded tokens count in the softmax")
            }
            Error::Vocabulary { wanted, .. } => format!(
                "train the folder's own config.json, or pad the weights once in Python: \
                 model.resize_token_embeddings({wanted}); model.save_pretrained(..)"
            ),
            Error::Untied { .. } => "set `tie_word_embeddings` to false, or take the matrix of the head out".into(),
            Error::Format { .. } => {
                "load the model in transformers with dtype=torch.bfloat16 and save it as a plain one".into()
            }
            Error::Quantised { .. } => {
                "take `quantization_config` out if the tensors are those of the model before it was quantised".into()
            }
            Error::Config { file, .. } => {
                let folder = quoted(file.parent().unwrap_or(file));
                format!("give the folder as the model too: meshwright train {folder} --init-from {folder}")
            }
            Error::BadConfig { source, .. } => return source.help(),
            Error::NotExportable { .. } => {
                "export a checkpoint of a config.json or a preset; --model names that of an older checkpoint".into()
            }
            Error::Overflow { .. } => "export as --dtype bf16 or f32".into(),
            Error::Exists { .. } => "choose another --out, or remove it".into(),
            Error::File { .. } => "check the path and its permissions, and that the disk has space".into(),
            #[cfg(feature = "pt2")]
            Error::Export(error) => return error.help(),
            Error::Checkpoint(error) => return error.help(),
            Error::Executor(error) => return error.help(),
        })
    }
}
