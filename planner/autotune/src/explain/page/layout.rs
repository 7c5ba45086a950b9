//! Places of a plan: layers on pipeline ranks, ranks on nodes, recomputed values; and the commands that give the plan again.

use super::tables::table;
use crate::error::Error;
use crate::explain::brief::brief;
use crate::explain::plan_file::request_of;
use crate::plan::{PlanReport, PlanRequest};
use cost::Cluster;
use estimator::{EstimateReport, Mesh, Recomputed, StageReport};
use scheduler::predict::pipeline_of;
use std::iter;
use support::shell::quoted;
use support::units::{bytes, gib, short};
use view::draw::escaped;

/// Table of the layers of each pipeline rank. Neighbours with the same numbers of layers are in one row.
pub(super) fn stages(plan: &EstimateReport) -> Result<String, Error> {
    let parallel = &plan.parallel;
    let (_, pipeline) = pipeline_of(parallel, plan.predicted.microbatches).map_err(estimator::Error::from)?;
    let owners = pipeline.owners();
    let ranks = parallel.pp as usize;
    let of_rank = |rank: usize| -> Vec<String> {
        let owned = plan.stages.iter().zip(&owners).filter(|(_, ranks)| ranks.contains(&(rank as u32)));
        owned.map(|(stage, _)| blocks(stage)).collect()
    };
    let rows = (0..ranks).map(|rank| {
        let held = plan.predicted.memory_gib.per_stage.get(rank).map_or(0.0, |stage| stage.device);
        vec![rank.to_string(), of_rank(rank).join(", "), gib(held)]
    });
    Ok(table(&["rank", "blocks of its stages", "memory"], &rows.collect::<Vec<_>>()))
}

/// Text of the blocks of a stage: `layer[4] to layer[7], 2 recomputed`.
fn blocks(stage: &StageReport) -> String {
    let blocks =
        if stage.first == stage.last { stage.first.clone() } else { format!("{} to {}", stage.first, stage.last) };
    let whole = if stage.whole > 0 { format!(" ({} recomputed)", stage.whole) } else { String::new() };
    blocks + &whole
}

/// Table of the axes of the mesh: ranks, distance, and the nodes that they join.
pub(super) fn axes(mesh: &Mesh, cluster: &Cluster) -> String {
    let node = cluster.links.first().map_or(u64::MAX, |link| link.joins);
    let mut inner = 1;
    let mut rows = Vec::new();
    for axis in mesh.rank_order.iter().rev() {
        let Some(ranks) = extent(mesh, axis) else { continue };
        if ranks > 1 {
            let apart = if inner == 1 { "neighbours".to_string() } else { format!("every {inner} devices one") };
            rows.push(vec![axis.clone(), ranks.to_string(), apart, span(ranks, inner, node)]);
        }
        inner *= ranks;
    }
    table(&["axis", "ranks", "devices", "nodes"], &rows)
}

/// The ranks of an axis of the mesh.
fn extent(mesh: &Mesh, axis: &str) -> Option<u64> {
    let all = [("pp", mesh.pp), ("dp", mesh.dp), ("cp", mesh.cp), ("tp", mesh.tp), ("ep", mesh.ep), ("etp", mesh.etp)];
    all.into_iter().find(|(name, _)| *name == axis).map(|(_, ranks)| ranks)
}

/// Text on the nodes of an axis whose ranks are `apart` devices from each other.
fn span(ranks: u64, apart: u64, node: u64) -> String {
    let inside = (node / apart).min(ranks);
    match inside {
        _ if ranks.saturating_mul(apart) <= node => "within a node".to_string(),
        0 | 1 => format!("across {ranks} nodes"),
        inside => format!("{inside} within a node, across {} nodes", ranks.div_ceil(inside)),
    }
}

/// Table of the recomputed values.
pub(super) fn recomputed(plan: &EstimateReport) -> String {
    let row = |it: &Recomputed| {
        let saved = if it.bytes_saved > 0.0 { bytes(it.bytes_saved as u64) } else { "nothing by itself".to_string() };
        vec![it.value.clone(), it.op.clone(), it.layer.clone(), saved, short(it.time_s)]
    };
    match plan.recomputed.is_empty() {
        true => format!("<p>By name none: recompute={}.</p>\n", escaped(&plan.parallel.recompute.to_string())),
        false => table(
            &["value", "op", "layer", "saved, per micro-batch", "costs"],
            &plan.recomputed.iter().map(row).collect::<Vec<_>>(),
        ),
    }
}

/// The commands that search again, and that predict this configuration.
pub(super) fn commands(report: &PlanReport) -> String {
    let (request, plain) = (request_of(report), PlanRequest::default());
    let mut job = vec![quoted(&request.model)];
    job.push(format!("--cluster {} --stack {}", quoted(&request.cluster), quoted(&request.stack)));
    job.push(format!("--gpus {} --seq {} --global-batch {}", request.gpus, request.seq, request.global_batch));
    let options = [
        ("precision", Some(&request.precision), Some(&plain.precision)),
        ("grad-dtype", request.grad_dtype.as_ref(), None),
        ("master", request.master.as_ref(), None),
        ("optimizer", Some(&request.optimizer), Some(&plain.optimizer)),
    ];
    let changed = options.into_iter().filter(|(_, value, plain)| value != plain);
    job.extend(changed.filter_map(|(name, value, _)| Some(format!("--{name} {}", quoted(value?)))));
    if !request.lengths.is_empty() {
        let lengths: Vec<String> = request.lengths.iter().map(u64::to_string).collect();
        job.push(format!("--lengths {}", lengths.join(",")));
    }
    if request.headroom != plain.headroom {
        job.push(format!("--headroom {}", request.headroom));
    }
    job.extend(request.memory_margin.map(|margin| format!("--memory-margin {margin}")));
    job.extend(request.beyond_stack.then(|| "--beyond-stack".to_string()));
    let pin = (!request.pin.is_empty()).then(|| format!("--pin {}", quoted(&request.pin)));
    let parallel = format!("--parallel {}", quoted(brief(&report.chosen.parallel)));
    let command = |verb: &str, last: Option<String>| {
        let words: Vec<String> = iter::once(format!("meshwright {verb}")).chain(job.clone()).chain(last).collect();
        format!("<pre>{}</pre>\n", escaped(&words.join(" ")))
    };
    command("plan", pin) + &command("estimate", Some(parallel))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_span_the_nodes_that_they_reach() {
        assert_eq!(span(8, 1, 8), "within a node");
        assert_eq!(span(2, 4, 8), "within a node");
        assert_eq!(span(16, 8, 8), "across 16 nodes");
        assert_eq!(span(16, 2, 8), "4 within a node, across 4 nodes");
        assert_eq!(span(3, 16, 8), "across 3 nodes");
    }
}
