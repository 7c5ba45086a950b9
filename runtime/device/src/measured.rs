//! Measured times of kernels and of exchanges.

/// A product of m x k and k x n matrices.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Product {
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// Products that are added for an element.
    pub k: usize,
    /// Seconds.
    pub seconds: f64,
}

/// A causal attention of one key head per query head.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AttentionTime {
    /// Sequences times heads.
    pub heads: usize,
    /// Tokens of a sequence.
    pub length: usize,
    /// Size of a head.
    pub head: usize,
    /// Seconds of the forward.
    pub forward_s: f64,
    /// Seconds of the backward.
    pub backward_s: f64,
}

impl AttentionTime {
    /// Seconds of the backward, or of the forward.
    pub fn seconds(&self, backward: bool) -> f64 {
        if backward { self.backward_s } else { self.forward_s }
    }
}

/// A sum of equal tensors over ranks, to all of them.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sum {
    /// Threads, which may be more than there are cores.
    pub ranks: u64,
    /// Bytes on each.
    pub bytes: u64,
    /// Seconds from one such sum to the next.
    pub seconds: f64,
}
