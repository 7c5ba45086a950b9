//! The work of an op: what its time on a device follows from.

use crate::types::Type;

/// Floating-point operations of an op, and the bytes that it reads and writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Work {
    /// Floating-point operations.
    pub flops: u64,
    /// Bytes read and written.
    pub bytes: u64,
}

impl Work {
    /// These floating-point operations on tensors that are each read or written once.
    pub fn of(flops: u64, operands: &[&Type], results: &[&Type]) -> Work {
        Work { flops, bytes: bytes(operands, results) }
    }

    /// Bytes of its tensors that the op does not touch: of a table, the rows that no id names.
    pub fn untouched(self, operands: &[&Type], results: &[&Type]) -> u64 {
        bytes(operands, results).saturating_sub(self.bytes)
    }
}

fn bytes(operands: &[&Type], results: &[&Type]) -> u64 {
    operands.iter().chain(results).map(|ty| ty.bytes()).sum()
}
