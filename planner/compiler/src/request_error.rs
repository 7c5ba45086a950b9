//! Errors of requests: conflicting options, unknown names, batches that do not split.

use crate::parallel::ParallelError;
use ir::catalogue::Code;
use ir::diag::{Coded, nearest};
use ir::models::presets;

/// Error of a request, before any pass runs.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum RequestError {
    /// The text or the keys of a parallel configuration are wrong.
    #[error(transparent)]
    Parallel(#[from] ParallelError),
    /// A step has more micro-batches than can be counted.
    #[error(
        "a global batch of {global_batch} sequences is {} micro-batches of {sequences}",
        global_batch / sequences
    )]
    TooManyMicrobatches {
        /// Sequences per step.
        global_batch: u64,
        /// Sequences per micro-batch, over all data-parallel ranks.
        sequences: u64,
    },
    /// The micro-batches do not divide the global batch.
    #[error("a global batch of {global_batch} sequences does not split into micro-batches of {sequences}: dp x mbs")]
    UnevenBatch {
        /// Sequences per step.
        global_batch: u64,
        /// Sequences per micro-batch, over all data-parallel ranks.
        sequences: u64,
    },
    /// The deadline of a search is not a positive number of seconds.
    #[error("`--deadline {seconds}` is not a number of seconds")]
    Deadline {
        /// Its value.
        seconds: f64,
    },
    /// The deadline of a compilation is not a positive number of seconds.
    #[error("`--deadline {seconds}`: it must be a number of seconds above 0")]
    CompileDeadline {
        /// Its value.
        seconds: f64,
    },
    /// A deadline without the search that it would end.
    #[error("`--deadline` requires --shard auto")]
    DeadlineWithoutSearch,
    /// Sequence parallelism together with a search that decides all shardings.
    #[error("`sp` conflicts with `--shard auto`, which chooses all shardings itself")]
    SequenceParallelWithSearch,
    /// An unknown value of `--shard`.
    #[error("`--shard {shard}`: it must be rules or auto")]
    UnknownShard {
        /// Its name.
        shard: String,
    },
    /// A text states other types than the precision.
    #[error("the file has parameters of {stated}, and precision `{precision}` means {wanted}")]
    OwnTypes {
        /// The type of the file's parameters.
        stated: &'static str,
        /// The name of the precision.
        precision: String,
        /// Its type.
        wanted: &'static str,
    },
    /// A precision that the compiler does not support.
    #[error("precision `{precision}` is not in this version")]
    UnknownPrecision {
        /// Its name.
        precision: String,
    },
    /// A prediction of a text that defines its own mesh.
    #[error("{from} defines its own mesh `@{mesh}`, but a prediction chooses the mesh")]
    OwnMesh {
        /// Path of the text.
        from: String,
        /// Name of the mesh.
        mesh: String,
    },
    /// A prediction of a text that defines its own gradients.
    #[error("{from} defines its own gradients, but a prediction derives them")]
    OwnGradients {
        /// Path of the text.
        from: String,
    },
    /// A folder without a `config.json`.
    #[error("the folder {folder} has no config.json")]
    NoConfig {
        /// Its path.
        folder: String,
    },
    /// A path that does not exist.
    #[error("there is no file {path}")]
    NoFile {
        /// The path.
        path: String,
    },
    /// A name that is not a preset.
    #[error("there is no model `{name}`")]
    UnknownModel {
        /// The name.
        name: String,
    },
    /// A balance of routers behind a model's name that is not a list of losses and rates, or that the model cannot have.
    #[error("`+balance={text}` states no balance of routers")]
    BadBalance {
        /// The text behind the sign.
        text: String,
    },
    /// Images behind a model's name that are neither a number of patches nor sizes.
    #[error("`+images={text}` states no images of a sequence")]
    BadImages {
        /// The text behind the sign.
        text: String,
    },
    /// Adapters behind a model's name that are not a rank, a scale and names.
    #[error("`+lora={text}` states no adapters")]
    BadAdapters {
        /// The text behind the sign.
        text: String,
    },
}

impl Coded for RequestError {
    fn code(&self) -> Option<Code> {
        Some(match self {
            RequestError::Parallel(error) => return error.code(),
            RequestError::TooManyMicrobatches { .. } => Code::TooManyActions,
            RequestError::UnevenBatch { .. } => Code::BatchDoesNotDivide,
            RequestError::Deadline { .. }
            | RequestError::CompileDeadline { .. }
            | RequestError::UnknownShard { .. } => Code::BadOption,
            RequestError::DeadlineWithoutSearch
            | RequestError::SequenceParallelWithSearch
            | RequestError::OwnMesh { .. }
            | RequestError::OwnGradients { .. } => Code::ConflictingOptions,
            RequestError::UnknownPrecision { .. } | RequestError::OwnTypes { .. } => Code::PrecisionRefused,
            RequestError::NoConfig { .. }
            | RequestError::NoFile { .. }
            | RequestError::UnknownModel { .. }
            | RequestError::BadBalance { .. }
            | RequestError::BadImages { .. }
            | RequestError::BadAdapters { .. } => Code::UnknownModel,
        })
    }

    fn help(&self) -> Option<String> {
        let help = match self {
            RequestError::Parallel(error) => return error.help(),
            RequestError::TooManyMicrobatches { .. } => "a smaller --global-batch, or a larger --mbs",
            RequestError::UnevenBatch { global_batch, sequences } => {
                return Some(nearest_batch(*global_batch, *sequences));
            }
            RequestError::Deadline { .. } => "--deadline must be above 0",
            RequestError::CompileDeadline { .. } => "--deadline 60",
            RequestError::DeadlineWithoutSearch => "add --shard auto, or leave out --deadline",
            RequestError::SequenceParallelWithSearch => "leave out one of the two",
            RequestError::UnknownShard { .. } => "--shard auto",
            RequestError::UnknownPrecision { .. } => {
                "--precision f32, or bf16, f16, fp8-block, fp8-tensor or fp8-delayed, which keep an f32 copy of the parameters"
            }
            RequestError::OwnTypes { .. } => "leave out --precision, or change the types of the file",
            RequestError::OwnMesh { .. } => {
                "leave out the `mesh` line and the axes of the types; `compile` takes the file as it is"
            }
            RequestError::OwnGradients { .. } => {
                "leave out the sections I, W and U and the `step`; `compile` takes the file as it is"
            }
            RequestError::NoConfig { .. } => {
                "name a folder as `transformers` saves it, a config.json, a .ir file or a preset"
            }
            RequestError::NoFile { path: name } | RequestError::UnknownModel { name } => {
                return Some(match nearest(name, presets().map(|preset| preset.name)) {
                    Some(near) => format!("did you mean `{near}`? meshwright models lists the presets"),
                    None => "meshwright models lists the presets".to_string(),
                });
            }
            RequestError::BadBalance { .. } => {
                "state a loss (sequence, micro_batch, global_batch or layers), z or bias with a number above 0, or counts, behind a preset or a \
                 config.json with experts, as in mixtral-8x7b+balance=micro_batch=0.01,z=0.001"
            }
            RequestError::BadImages { .. } => {
                "state the patches of a sequence's images, or sizes in pixels, each with the mean number of such images in a sequence, as in \
                 config.json+images=1024x1024:0.3,512x512:0.7"
            }
            RequestError::BadAdapters { .. } => {
                "state a rank of 1 to 65536, then alpha and parameters if wanted, as in llama3-8b+lora=16,alpha=32,q,v"
            }
        };
        Some(help.to_string())
    }
}

/// The next global batch that splits.
fn nearest_batch(global_batch: u64, sequences: u64) -> String {
    match global_batch.max(1).checked_next_multiple_of(sequences.max(1)) {
        Some(next) => format!("--global-batch {next}, or another --mbs"),
        None => "a smaller --global-batch".to_string(),
    }
}
