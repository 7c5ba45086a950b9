//! Ops that send tokens to experts and back.

pub(super) mod choice_count;
pub(super) mod dispatch;
pub(super) mod ragged;
pub(super) mod top_k;
