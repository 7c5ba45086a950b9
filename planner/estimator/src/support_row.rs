//! Support of a stack for the values of each key of a configuration.

use cost::{Degree, EnumSet, Named, Supports};
use ir::config_key::ConfigKey;
use ir::options::{Offload, ParallelConfig};

/// Support of a stack for a key.
pub(super) struct SupportRow {
    /// Entry of a stack's file that lacks a configuration's value; `None` if the value is supported, or has no effect.
    lacks: fn(&ParallelConfig, &Supports) -> Option<&'static str>,
    /// Degree without which a stack supports no value, although its file states none.
    pub(super) needs: Option<Degree>,
    /// Values that a stack supports, as text; none if its file states none.
    pub(super) supported: fn(&Supports) -> Vec<String>,
}

/// Row of a key that all stacks support.
const PLAIN: SupportRow = SupportRow { lacks: |_, _| None, needs: None, supported: |_| Vec::new() };

impl SupportRow {
    pub(super) fn of(key: ConfigKey) -> SupportRow {
        match key {
            ConfigKey::Dp | ConfigKey::Mbs | ConfigKey::RankOrder | ConfigKey::Vp => PLAIN,
            ConfigKey::Group | ConfigKey::Slices | ConfigKey::TpOverlap => PLAIN,
            ConfigKey::DpOverlap => SupportRow {
                lacks: |parallel, has| {
                    let is_off = has_replicas(parallel) && parallel.dp_overlap == Some(false);
                    (is_off && has.dp_overlap_off == Some(false)).then_some("dp_overlap_off")
                },
                ..PLAIN
            },
            ConfigKey::Tp => degree(|parallel, has| lacks_degree(parallel.tp, Degree::Tp, has)),
            ConfigKey::Pp => degree(|parallel, has| lacks_degree(parallel.pp, Degree::Pp, has)),
            ConfigKey::Cp => degree(|parallel, has| lacks_degree(parallel.cp, Degree::Cp, has)),
            ConfigKey::Ep => degree(|parallel, has| lacks_degree(parallel.ep, Degree::Ep, has)),
            ConfigKey::Etp => degree(|parallel, has| lacks_degree(parallel.etp, Degree::Etp, has)),
            ConfigKey::Schedule => SupportRow {
                lacks: |parallel, has| {
                    let is_pipeline = parallel.pp > 1 && has.degree(Degree::Pp);
                    (is_pipeline && !has.schedule(&parallel.schedule)).then_some("schedules")
                },
                needs: Some(Degree::Pp),
                supported: |has| has.schedules.map(names).unwrap_or_default(),
            },
            ConfigKey::Sp => SupportRow {
                lacks: |parallel, has| (parallel.tp > 1 && parallel.sp && has.sp == Some(false)).then_some("sp"),
                ..PLAIN
            },
            ConfigKey::Zero => SupportRow {
                lacks: |parallel, has| (has_replicas(parallel) && !has.zero(parallel.zero)).then_some("zero"),
                supported: |has| has.zero.iter().flatten().map(u8::to_string).collect(),
                ..PLAIN
            },
            ConfigKey::CpKind => SupportRow {
                lacks: |parallel, has| {
                    let is_cut = parallel.cp > 1 && has.degree(Degree::Cp);
                    (is_cut && !has.cp_kind(parallel.cp_kind)).then_some("cp_kind")
                },
                needs: Some(Degree::Cp),
                supported: |has| has.cp_kind.map(names).unwrap_or_default(),
            },
            ConfigKey::Shard => SupportRow {
                lacks: |parallel, has| {
                    let is_group = |shard| parallel.zero > 0 && shard < parallel.dp * parallel.cp;
                    (parallel.shard.is_some_and(is_group) && has.shard == Some(false)).then_some("shard")
                },
                ..PLAIN
            },
            ConfigKey::Gather => SupportRow {
                lacks: |parallel, has| {
                    let is_once = parallel.gathers_once() && has_replicas(parallel);
                    (is_once && has.gather == Some(false)).then_some("gather")
                },
                ..PLAIN
            },
            ConfigKey::Stages => SupportRow {
                lacks: |parallel, has| (!parallel.stages.is_empty() && has.stages == Some(false)).then_some("stages"),
                ..PLAIN
            },
            ConfigKey::Offload => SupportRow {
                lacks: |parallel, has| match parallel.offload {
                    Offload::None => None,
                    _ if has.offload == Some(false) => Some("offload"),
                    Offload::All(Some(_)) if has.offload_layers == Some(false) => Some("offload_layers"),
                    Offload::Auto | Offload::All(_) => None,
                },
                ..PLAIN
            },
            ConfigKey::OffloadOptimizer => SupportRow {
                lacks: |parallel, has| {
                    (parallel.offload_optimizer && has.offload_optimizer == Some(false)).then_some("offload_optimizer")
                },
                ..PLAIN
            },
            ConfigKey::Recompute => SupportRow {
                lacks: |parallel, has| (!has.lacks(&parallel.recompute).is_empty()).then_some("recompute"),
                supported: |has| has.recompute.clone().unwrap_or_default(),
                ..PLAIN
            },
        }
    }
}

/// Entry of a stack's file that lacks a configuration's value of a key; `None` if the stack supports the value, or the value has no
/// effect.
pub fn lacks(key: ConfigKey, parallel: &ParallelConfig, supports: &Supports) -> Option<&'static str> {
    (SupportRow::of(key).lacks)(parallel, supports)
}

/// Row of a degree.
const fn degree(lacks: fn(&ParallelConfig, &Supports) -> Option<&'static str>) -> SupportRow {
    SupportRow { lacks, ..PLAIN }
}

fn lacks_degree(value: u64, degree: Degree, has: &Supports) -> Option<&'static str> {
    (value > 1 && !has.degree(degree)).then_some("degrees")
}

fn has_replicas(parallel: &ParallelConfig) -> bool {
    parallel.dp * parallel.cp > 1
}

fn names<E: Named>(values: EnumSet<E>) -> Vec<String> {
    values.names().map(str::to_string).collect()
}
