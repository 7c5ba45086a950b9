//! Notes on values of a job and of a configuration that change nothing, or that go beyond what the model has.

use super::request::EstimateRequest;
use ir::options::{CpKind, Gather, Offload, ParallelConfig, Recompute};
use support::quantities::grouped;
use support::units::share;

/// Factor on the largest measured share of the peak above which a prediction is untested ground.
const FASTER: f64 = 1.15;

/// Longest sequence of a model's training, and the most layers of a stage.
pub(super) struct Limits {
    pub(super) context: Option<u64>,
    pub(super) layers: usize,
}

/// All notes, each a sentence without its end.
pub(super) fn notes(request: &EstimateRequest, parallel: &ParallelConfig, limits: &Limits) -> Vec<String> {
    let long = limits.context.filter(|&context| request.seq > context).map(|context| {
        let [seq, context] = [request.seq, context].map(grouped);
        format!("sequences of {seq} tokens are longer than the {context} that {} was trained on", request.model)
    });
    let idle = idle(parallel).into_iter().map(|(item, why)| format!("{item} changes nothing {why}"));
    long.into_iter().chain(idle).chain(whole_stages(parallel, limits.layers)).collect()
}

/// Note on a step that is predicted much faster than every measured one near it, by their shares of the device's peak.
pub(super) fn untested(predicted: f64, best: Option<f64>) -> Option<String> {
    let best = best.filter(|best| predicted > FASTER * best)?;
    let [predicted, best] = [predicted, best].map(share);
    Some(format!(
        "untested ground: {predicted} of the peak is predicted, and no measured run within a doubling of its sizes reached more than {best}"
    ))
}

/// Items that change nothing, each with the reason.
fn idle(parallel: &ParallelConfig) -> Vec<(String, &'static str)> {
    let ParallelConfig { dp, tp, pp, cp, zero, shard, vp, tp_overlap, dp_overlap, .. } = *parallel;
    let mut found = Vec::new();
    let mut add = |is_idle: bool, item: String, why| found.extend(is_idle.then_some((item, why)));
    let chunks = vp.unwrap_or(1);
    add(parallel.sp && tp == 1, "sp=true".into(), "with tp=1");
    add(pp == 1 && chunks > 1, format!("vp={chunks}"), "with pp=1: one rank has all stages");
    add(zero == 0 && shard.is_some(), format!("shard={}", shard.unwrap_or(1)), "with zero=0");
    add(zero < 3 && parallel.gather != Gather::default(), format!("gather={}", parallel.gather.name()), "below zero=3");
    add(cp == 1 && parallel.cp_kind != CpKind::default(), format!("cp_kind={}", parallel.cp_kind.name()), "with cp=1");
    add(tp == 1 && tp_overlap == Some(true), "tp_overlap=true".into(), "with tp=1");
    add(dp * cp == 1 && dp_overlap == Some(true), "dp_overlap=true".into(), "with dp=1 and cp=1");
    found
}

/// Notes on numbers of layers that no stage has.
fn whole_stages(parallel: &ParallelConfig, most: usize) -> Vec<String> {
    let said = |item: String, what: &str| format!("{item} {what} all layers: no stage has more than {most}");
    let mut found = Vec::new();
    if let Recompute::Full(Some(layers)) = parallel.recompute
        && layers as usize > most
    {
        found.push(said(format!("recompute=full:{layers}"), "recomputes"));
    }
    if let Offload::All(Some(layers)) = parallel.offload
        && layers as usize > most
    {
        found.push(said(format!("offload=all:{layers}"), "offloads"));
    }
    found
}
