//! One pass, one file.

pub(crate) mod collectives;
pub(crate) mod expand;
pub(crate) mod propagate;
pub(crate) mod recompute;
pub(crate) mod refine;
pub(crate) mod reshard;
pub(crate) mod seed;
pub(crate) mod shard;
