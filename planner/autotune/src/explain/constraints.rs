//! Binding limits of a configuration.

use super::brief::differences;
use super::compare::{device_gib, parts};
use super::difference::TIE;
use super::pool::Pool;
use crate::plan::{BindingConstraint, WhatIf, saved};
use cost::Cluster;
use estimator::EstimateReport;
use ir::catalogue::Code;
use ir::config_key::ConfigKey;
use ir::diag::Coded;
use ir::options::ParallelConfig;
use support::units::{gib, share, time};

/// Number of micro-batches per stage above which a pipeline's bubble is small (Huang et al. 2019, section 2.3).
const MICROBATCHES_PER_STAGE: u64 = 4;

/// Constraints that bind, or nearly bind.
pub(super) fn constraints(
    best: &EstimateReport,
    pool: &Pool,
    cluster: &Cluster,
    what_ifs: &[WhatIf],
) -> Vec<BindingConstraint> {
    let mut constraints = vec![memory(best, cluster, what_ifs)];
    constraints.extend(network(best, cluster));
    constraints.extend(batch(best));
    constraints.extend(idle(best, what_ifs));
    for key in [ConfigKey::Tp, ConfigKey::Cp, ConfigKey::Pp, ConfigKey::Ep] {
        let Some((parallel, error)) = pool.refused(key, true) else { continue };
        // Nothing is legal whatever is recomputed.
        let parallel = ParallelConfig { recompute: best.parallel.recompute.clone(), ..parallel.clone() };
        let limit = match error.code() {
            Some(Code::UnevenIndivisible) => "heads",
            Some(Code::BatchDoesNotDivide) => "batch",
            _ => key.name(),
        };
        constraints.push(BindingConstraint {
            limit: limit.into(),
            message: format!("{} is impossible: {error}", differences(&best.parallel, &parallel)),
        });
    }
    constraints
}

/// Note on the memory of the peak-memory device.
fn memory(best: &EstimateReport, cluster: &Cluster, what_ifs: &[WhatIf]) -> BindingConstraint {
    let memory = best.predicted.fullest();
    let mut held = parts(memory);
    held.sort_by(|a, b| b.1.total_cmp(&a.1));
    let held: Vec<String> = held.iter().take(3).map(|(what, size)| format!("{what} {}", gib(*size))).collect();
    let gain = what_ifs
        .iter()
        .filter(|what_if| what_if.condition.starts_with("memory"))
        .map(|what_if| what_if.gain)
        .fold(0.0, f64::max);
    let more = saved(gain).map_or_else(
        || "more memory would not help".to_string(),
        |saved| format!("more memory would save up to {saved}"),
    );
    let more = if best.predicted.fits { more } else { "it does not fit".to_string() };
    let rank = best.predicted.memory_gib.worst_rank;
    let all = device_gib(cluster, best.mesh.devices);
    let full = share(memory.device / all);
    let (left, chance) = (gib((all - memory.device).max(0.0)), share(best.predicted.chance_to_fit));
    BindingConstraint {
        limit: "memory".into(),
        message: format!(
            "pipeline rank {rank} uses {} of {} ({full}), mostly {}; {left} is left, chance to fit {chance}; {more}",
            gib(memory.device),
            gib(all),
            held.join(", ")
        ),
    }
}

/// Note on fewer devices that take less time than all of them.
fn idle(best: &EstimateReport, what_ifs: &[WhatIf]) -> Option<BindingConstraint> {
    let faster = what_ifs.iter().filter(|what_if| what_if.idle > 0 && what_if.step_time_s < best.predicted.step_time_s);
    let then = faster.min_by(|a, b| a.step_time_s.total_cmp(&b.step_time_s))?;
    let (all, idle) = (best.mesh.devices, then.idle);
    Some(BindingConstraint {
        limit: "gpus".into(),
        message: format!(
            "few degrees divide {all} devices: {} of them, {idle} idle, take {} instead of {} as {} (--gpus {})",
            all - idle,
            time(then.step_time_s),
            time(best.predicted.step_time_s),
            then.parallel,
            all - idle
        ),
    })
}

/// Note on tensor parallelism that fills the innermost level of the network.
fn network(best: &EstimateReport, cluster: &Cluster) -> Option<BindingConstraint> {
    let [inner, outer, ..] = &cluster.links[..] else { return None };
    let tp = best.parallel.tp;
    (tp == inner.joins).then(|| BindingConstraint {
        limit: "network".into(),
        message: format!(
            "tp={tp} uses all {} devices connected by {}; a larger tp would communicate over {}",
            inner.joins, inner.name, outer.name
        ),
    })
}

/// Note on the number of micro-batches, too small for the stages or for more data parallelism.
fn batch(best: &EstimateReport) -> Option<BindingConstraint> {
    let (parallel, predicted) = (&best.parallel, &best.predicted);
    let (microbatches, stages) = (u64::from(predicted.microbatches), parallel.pp);
    let batch = best.inputs.global_batch;
    // Waiting below the prediction error is not a constraint.
    let waits = predicted.time_s.bubble / predicted.step_time_s > TIE;
    let message = if stages > 1 && microbatches < MICROBATCHES_PER_STAGE * stages && waits {
        format!(
            "{batch} sequences make {microbatches} micro-batches for {stages} pipeline ranks: the busiest rank waits {}, {} of the step; \
             a larger global batch would reduce it",
            time(predicted.time_s.bubble),
            share(predicted.time_s.bubble / predicted.step_time_s)
        )
    } else if microbatches == 1 && parallel.mbs == 1 && parallel.dp > 1 {
        format!("each of {} data-parallel ranks has one of the {batch} sequences: dp cannot grow", parallel.dp)
    } else {
        return None;
    };
    Some(BindingConstraint { limit: "batch".into(), message })
}
