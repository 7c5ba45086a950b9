//! Device memory other than that of tensors.

use super::MIB;
use super::figure::{Figure, Range};
use serde::{Deserialize, Serialize};

/// Device memory other than that of tensors.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Memory {
    /// Ratio of the bytes that the allocator reserves to the allocated ones.
    pub reserve: f64,
    /// Bytes of a process on the device before any tensor: the CUDA context and the libraries' code.
    pub context: f64,
    /// Workspace of the matrix product libraries in bytes.
    pub workspace: f64,
    /// Device buffers of a communicator in bytes.
    pub communicator: f64,
    /// Number of communicators in addition to one per axis.
    pub communicators: f64,
    /// Bytes of the gradient reduction buffers; an upper limit if all gradients are smaller.
    pub buffers: f64,
    /// Largest number of tensors held after tensor-parallel reductions have read them, one per layer. The CPU is ahead
    /// of the device, and a communicated buffer is freed only when the device is done.
    pub waiting: f64,
}

impl Default for Memory {
    fn default() -> Memory {
        Memory {
            reserve: 1.1,
            context: 512.0 * MIB,
            workspace: 32.0 * MIB,
            communicator: 64.0 * MIB,
            communicators: 0.0,
            buffers: 0.0,
            waiting: 0.0,
        }
    }
}

impl Memory {
    pub(super) fn figures(&self) -> Vec<Figure> {
        let Memory { reserve, context, workspace, communicator, communicators, buffers, waiting } = *self;
        vec![
            Range::new(1.0, 3.0, "bytes reserved over bytes allocated").of("memory.reserve", reserve),
            Range::BYTES.of("memory.context", context),
            Range::BYTES.of("memory.workspace", workspace),
            Range::BYTES.of("memory.communicator", communicator),
            Range::new(0.0, 64.0, "a number of communicators").of("memory.communicators", communicators),
            Range::BYTES.of("memory.buffers", buffers),
            Range::new(0.0, 1024.0, "a number of tensors").of("memory.waiting", waiting),
        ]
    }
}
