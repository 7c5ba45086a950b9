//! A cluster as a framework uses it: seconds of kernels and collectives. Everything that prices goes through here.

use crate::cluster::Cluster;
use crate::stack::Stack;

/// A cluster, a stack on it, and the number formats of the run.
#[derive(Clone, Copy, Debug)]
pub struct Machine<'a> {
    /// The hardware.
    pub cluster: &'a Cluster,
    /// The software.
    pub stack: &'a Stack,
    /// What each tensor is made of.
    pub recipe: &'a Recipe,
}

/// The format of the operands of matrix products.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// 32 bits.
    F32,
    /// bf16 or fp16.
    Half,
    /// 8 bits, one scale for a tensor, a row, or a block.
    F8,
    /// 4 bits.
    F4,
}

/// Number formats of a run, by the bytes of an element. TECHNIQUES: Micikevicius et al. 2018; DeepSeek-V3 section 3.3.
#[derive(Clone, PartialEq, Debug)]
pub struct Recipe {
    /// As `--precision` says it: bf16, fp16, fp8-tensor, fp8-block, mxfp8, nvfp4, f32.
    pub name: String,
    /// Of the products of the layers' matrices; attention, head and norms stay in half precision.
    pub products: Format,
    /// Bytes of a parameter as kernels read it.
    pub parameter: f64,
    /// Bytes of an accumulated gradient.
    pub gradient: f64,
    /// Bytes of a gradient on the wire.
    pub wire: f64,
    /// Bytes of the master copy of a parameter; 0: none.
    pub master: f64,
    /// Bytes of the optimizer's states of a parameter: 8 for two f32 moments.
    pub states: f64,
    /// Bytes of an element of an activation.
    pub activation: f64,
}

/// The heads and lengths of one attention on one rank.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AttentionShape {
    /// Sequences.
    pub batch: f64,
    /// Query heads.
    pub heads: f64,
    /// Key and value heads.
    pub kv_heads: f64,
    /// Queries of a sequence that this rank has.
    pub queries: f64,
    /// Keys that they look at, before any mask.
    pub keys: f64,
    /// Size of a head of queries and keys.
    pub d: f64,
    /// Size of a head of values.
    pub c: f64,
    /// The share of the pairs of query and key that is looked at: `(1 + 1/s)/2` for a causal mask.
    pub share: f64,
}

/// Which ranks talk: `ranks` of them, each `stride` ranks after the one before, innermost rank order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Group {
    /// How many.
    pub ranks: u64,
    /// The distance between neighbours.
    pub stride: u64,
}

/// What they do. Bytes are those of the whole tensor on one rank: the input of a reduce-scatter, the output of an all-gather.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Talk {
    /// Sum, to all.
    AllReduce,
    /// Parts to all.
    AllGather,
    /// Sum, a part to each.
    ReduceScatter,
    /// Each to each; bytes are those that a rank has, its own part among them.
    AllToAll,
    /// One to the next.
    Send,
}

impl Machine<'_> {
    /// Seconds of `batch` products of m x k and k x n matrices; `accumulate`: the result is added to one of f32.
    pub fn matmul(&self, _batch: f64, _m: f64, _n: f64, _k: f64, _format: Format, _accumulate: bool) -> f64 {
        todo!()
    }

    /// Seconds of an attention, or of its gradient.
    pub fn attention(&self, _shape: &AttentionShape, _backward: bool) -> f64 {
        todo!()
    }

    /// Seconds of a kernel that reads and writes so many bytes and computes little.
    pub fn memory_bound(&self, _bytes: f64) -> f64 {
        todo!()
    }

    /// Seconds that the CPU needs to launch a kernel; 0 where graphs are replayed.
    pub fn launch(&self) -> f64 {
        todo!()
    }

    /// Seconds of a collective of so many bytes on a group, when nothing else uses its links.
    pub fn talk(&self, _talk: Talk, _bytes: f64, _group: Group) -> f64 {
        todo!()
    }
}
