//! Errors of archives and of the graphs in them.

use ir::catalogue::Code;
use ir::diag::Coded;
use std::path::PathBuf;

/// Why an archive is no model of this program.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read.
    #[error("cannot read {}: {why}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The system's reason.
        why: String,
    },
    /// The file is no archive of `torch.export.save`, or is damaged.
    #[error("{}: {why}", path.display())]
    Damaged {
        /// Its path.
        path: PathBuf,
        /// The defect.
        why: String,
    },
    /// The graph has a part that no op of the language means.
    #[error("{at}: {why}")]
    Unsupported {
        /// The node.
        at: Box<NodePlace>,
        /// The reason.
        why: String,
    },
    /// The model's logits are not those of the recorded graph: a fault of the import.
    #[error("the imported model computes other logits than the recorded graph: they differ by {difference:.1e}")]
    Different {
        /// The largest difference of two logits.
        difference: f32,
    },
}

impl Error {
    /// The error of a graph that is not supported as a whole.
    pub(crate) fn of_graph(why: &str) -> Error {
        Error::Unsupported { at: Box::default(), why: why.to_string() }
    }
}

/// A node of the recorded graph, as messages name it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct NodePlace {
    /// Its name; empty for the entire graph.
    pub node: String,
    /// Its op.
    pub op: String,
    /// The path of its module, such as `model.layers.0.mlp`.
    pub module: String,
    /// The file and the line of the source, if the export recorded them.
    pub source: Option<String>,
}

impl std::fmt::Display for NodePlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.node.is_empty() {
            return f.write_str("the exported graph");
        }
        write!(f, "node `{}` ({})", self.node, self.op)?;
        if !self.module.is_empty() {
            write!(f, " of module `{}`", self.module)?;
        }
        self.source.as_ref().map_or(Ok(()), |source| write!(f, ", {source}"))
    }
}

impl Coded for Error {
    fn code(&self) -> Option<Code> {
        Some(match self {
            Error::Different { .. } => return None,
            Error::File { .. } => Code::FileUnreadable,
            Error::Damaged { .. } => Code::ExportDamaged,
            Error::Unsupported { .. } => Code::ExportUnsupported,
        })
    }

    fn help(&self) -> Option<String> {
        let help = match self {
            Error::File { .. } => "check the path and its permissions",
            Error::Damaged { .. } => "export again with torch.export.save of a current PyTorch",
            Error::Unsupported { .. } => {
                "export in evaluation mode and without a cache, as docs/book/src/your-model.md says, or write a .ir file"
            }
            Error::Different { .. } => "please report it with the archive: a part of the graph was misread",
        };
        Some(help.to_string())
    }
}
