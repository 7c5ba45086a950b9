//! Ops that move elements, and compute nothing with them.

pub(super) mod dynamic_slice;
pub(super) mod iota;
pub(super) mod regroup;
pub(super) mod reverse;
pub(super) mod select;
pub(super) mod shape;
pub(super) mod slice;
pub(super) mod take;
pub(super) mod windows;
