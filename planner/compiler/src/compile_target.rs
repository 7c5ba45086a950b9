//! The cluster and the stack that a program is compiled for, and predicted on.

use crate::compile::CompileRequest;
use crate::error::Error;
use crate::machine_source;
use cost::{CPU, Cluster, Platform, Stack};

/// A cluster, and a stack if it is another than Meshwright's own there.
#[derive(Clone, Debug)]
pub struct CompileTarget {
    cluster: Cluster,
    stack: Option<Stack>,
}

impl CompileTarget {
    /// The target of a request; without one the preset `cpu`, so that the text of a program does not depend on the machine.
    ///
    /// # Errors
    /// A name is unknown, or a file cannot be read or used.
    pub fn of(request: &CompileRequest) -> Result<CompileTarget, Error> {
        let cluster = request.cluster.as_deref().map(machine_source::cluster).transpose()?;
        let stack = request.stack.as_deref().map(machine_source::stack).transpose()?;
        Ok(CompileTarget { cluster: cluster.unwrap_or_else(|| CPU.clone()), stack })
    }

    /// The platform whose times decide.
    pub fn platform(&self) -> Platform<'_> {
        let own = Platform::of_program(&self.cluster);
        Platform { stack: self.stack.as_ref().unwrap_or(own.stack), ..own }
    }
}
