//! Options for the parallel configuration of a model, shared by all subcommands that compile one.

use clap::Args;
use serde::Serialize;

/// The layout, whole or by parts.
#[derive(Args, Serialize)]
pub(super) struct LayoutFlags {
    /// Layout: any of dp, tp, pp, cp, ep, etp, vp, sp, zero, shard, mbs, recompute, cp_kind, schedule, group, slices,
    /// order, stages [default: one device]
    #[arg(long, value_name = "LAYOUT")]
    pub(super) mesh: Option<String>,
    /// Sequences per micro-batch and data-parallel rank [default: 1; `train` takes up to 8]
    #[arg(long, value_name = "N")]
    mbs: Option<u64>,
    /// Sequence parallelism: shard the residual stream over tp
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    sp: Option<bool>,
    /// ZeRO stage: 0, 1 (shard optimizer states over dp), 2 (gradients too) or 3 (parameters too) [default: 0]
    #[arg(long, value_name = "STAGE")]
    zero: Option<u8>,
    /// Pipeline schedule: see `meshwright schedules` [default: 1f1b]
    #[arg(long, value_name = "KIND")]
    schedule: Option<String>,
}
