//! The plan among configurations that predictions cannot tell apart: the simplest one, not the nominally fastest.

use super::explore::Explorer;
use crate::search::keys::row;
use crate::search::usual_zero;
use cost::{Cluster, Supports};
use estimator::EstimateReport;
use ir::config_key::ConfigKey;
use ir::options::{ParallelConfig, Recompute};
use support::parallel::each;
use transforms::recompute::is_module;

/// Share of a device's memory below which two configurations count as equally roomy. Predictions of memory err by 2 to 4 % in the
/// median (`docs/accuracy.md`).
const ROOM: f64 = 0.05;

/// Pins of configurations whose devices share nothing but batches and ZeRO's states.
const ALONE: &str = "tp=1,cp=1,pp=1,ep=1";

/// Measures of how hard a configuration is to run, compared field by field. Smaller is simpler.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Complexity {
    /// Techniques whose ranks are on several nodes.
    across_nodes: usize,
    /// Techniques: tp, cp, ep and pp, etp if it is not that of tp, ZeRO-3 where another stage is usual, and recomputation of whole layers.
    /// Sharded matrices of experts count twice in place of ep, with which published runs begin.
    techniques: usize,
    /// True if the ZeRO stage is not the usual one: frameworks may have another engine for it, as Megatron-FSDP.
    unusual_zero: bool,
    /// Kinds of tensors that are offloaded: activations, optimizer states.
    offload: usize,
    /// 0: nothing is recomputed; 1: layers or modules; 2: single values.
    recompute: u8,
    /// Options that most runs leave to the framework: stage boundaries, overlaps, groups of ZeRO, gathers once a step, the order of ranks.
    settings: usize,
    /// Pipeline ranks: published recipes interleave before they lengthen a pipeline.
    ranks: u64,
    /// Pipeline stages of a rank.
    chunks: u32,
    /// Memory of the fullest device, in steps of [`ROOM`].
    memory: u64,
}

impl Complexity {
    /// Complexity of a predicted configuration on a cluster, where most runs use a ZeRO stage.
    pub(super) fn of(report: &EstimateReport, cluster: &Cluster, usual_zero: u8) -> Complexity {
        let parallel = &report.parallel;
        let ParallelConfig { dp, tp, cp, pp, ep, etp, zero, offload, offload_optimizer, .. } = *parallel;
        let node = cluster.links.first().map_or(u64::MAX, |link| link.joins);
        let replicas = dp * cp;
        let shards_parameters = shards_parameters(parallel, usual_zero);
        let recomputes_layers = matches!(parallel.recompute, Recompute::Full(_));
        // Ranks of tp are neighbours, then those of cp; those of etp, then of ep, are neighbours too; stages are far apart.
        let reach = [
            (tp > 1, tp),
            (cp > 1, cp * tp),
            (ep > 1, ep * etp),
            (shards_experts_apart(parallel), etp),
            (shards_experts_apart(parallel) && ep == 1, etp),
            (pp > 1, replicas * tp * pp),
            (shards_parameters, parallel.shard.unwrap_or(replicas) * tp),
            (recomputes_layers, 1),
        ];
        let used = || reach.iter().filter(|(is_used, _)| *is_used);
        Complexity {
            across_nodes: used().filter(|(_, reach)| *reach > node).count(),
            techniques: used().count(),
            unusual_zero: replicas > 1 && zero != usual_zero,
            offload: usize::from(!offload.is_none()) + usize::from(offload_optimizer),
            recompute: match &parallel.recompute {
                Recompute::None => 0,
                Recompute::Full(_) => 1,
                Recompute::Selective(names) if names.iter().all(|name| is_module(name)) => 1,
                Recompute::Selective(_) | Recompute::Auto => 2,
            },
            settings: unset(parallel).len(),
            ranks: pp,
            chunks: parallel.vp.unwrap_or(1),
            memory: (report.predicted.fullest().device / (ROOM * report.predicted.memory_gib.capacity)) as u64,
        }
    }
}

/// Pins that may make a configuration simpler on a stack, in the order of [`Complexity`].
fn simpler(parallel: &ParallelConfig, supports: &Supports) -> Vec<String> {
    let (mut pins, usual_zero) = (Vec::new(), usual_zero(supports, parallel));
    for (key, degree) in [("ep", parallel.ep), ("cp", parallel.cp), ("pp", parallel.pp), ("tp", parallel.tp)] {
        pins.extend((degree > 1).then(|| format!("{key}=1")));
    }
    if parallel.pp >= 4 {
        pins.push(format!("pp<={}", parallel.pp / 2));
    }
    if shards_experts_apart(parallel) {
        pins.push(if parallel.tp > 1 { format!("etp=1|{}", parallel.tp) } else { "etp=1".to_string() });
    }
    if parallel.recompute != Recompute::None && supports.policies.is_none() {
        pins.push("recompute=none".to_string());
    }
    let chunks = parallel.vp.unwrap_or(1);
    if parallel.pp > 1 && chunks > 1 {
        // Uneven stages might be faster with fewer chunks, but not simpler.
        let even = if parallel.stages.is_empty() { ",stages=even" } else { "" };
        pins.push(format!("vp<={}{even}", chunks - 1));
    }
    if parallel.dp * parallel.cp > 1 && parallel.zero != usual_zero {
        pins.push(format!("zero={usual_zero}"));
    }
    pins
}

/// The configuration without each of its settings.
fn unset(parallel: &ParallelConfig) -> Vec<ParallelConfig> {
    let without = |key: ConfigKey| {
        let mut less = parallel.clone();
        (row(key).copy)(&mut less, &ParallelConfig::default());
        less
    };
    let settings = ConfigKey::ALL.into_iter().filter(|key| row(*key).is_setting);
    settings.map(without).filter(|less| less != parallel).collect()
}

/// True if the matrices of an expert are sharded by another degree than those of other layers. With that of tp or none they are sharded
/// as frameworks do unless told otherwise.
fn shards_experts_apart(parallel: &ParallelConfig) -> bool {
    parallel.etp > 1 && parallel.etp != parallel.tp
}

/// True if ZeRO shards parameters although another stage is usual.
fn shards_parameters(parallel: &ParallelConfig, usual_zero: u8) -> bool {
    parallel.dp * parallel.cp > 1 && parallel.zero == 3 && usual_zero != 3
}

/// The simplest configuration that is at most `within` slower than the nominally fastest one, with the known others. Each step
/// takes the simplest of the known ones and of those that a search finds with one choice made simpler.
pub(crate) fn simplest(
    explorer: &Explorer<'_>,
    nominal: &EstimateReport,
    others: &[EstimateReport],
    within: f64,
) -> EstimateReport {
    let (cluster, usual_zero) = (explorer.cluster(), explorer.usual_zero(&nominal.parallel));
    let most = nominal.predicted.step_time_s * (1.0 + within);
    let order = |report: &EstimateReport| Complexity::of(report, cluster, usual_zero);
    // The pins of a search take the place of the request's.
    let search = |pins: &str, around: Option<&ParallelConfig>| {
        let found = explorer.better(pins, most, around.cloned());
        found.filter(|found| explorer.allows(&found.parallel))
    };
    let mut plan = nominal.clone();
    loop {
        let found = each(&simpler(&plan.parallel, explorer.supports()), |pins| search(pins, Some(&plan.parallel)));
        let less = each(&unset(&plan.parallel), |parallel| explorer.predict(parallel));
        let known = less.into_iter().flatten().chain(others.iter().cloned());
        let close = known.filter(|other| {
            other.predicted.keeps_headroom
                && other.predicted.step_time_s <= most
                && (other.beyond_stack.is_empty() || !nominal.beyond_stack.is_empty())
        });
        let simplest = found.into_iter().flatten().chain(close).min_by(|a, b| {
            let time = |report: &EstimateReport| report.predicted.step_time_s;
            order(a).cmp(&order(b)).then(time(a).total_cmp(&time(b)))
        });
        // Without ZeRO-3 all degrees may differ, which is too far for a local search.
        let far = || {
            let is_far = shards_parameters(&plan.parallel, usual_zero);
            is_far.then(|| search(&format!("zero={usual_zero}"), None)).flatten()
        };
        // Without any of the degrees, the micro-batch and ZeRO may both differ, which is too far as well.
        let alone = || search(ALONE, None);
        let is_simpler = |found: &EstimateReport| order(found) < order(&plan);
        let near = simplest.filter(is_simpler);
        match near.or_else(|| far().filter(is_simpler)).or_else(|| alone().filter(is_simpler)) {
            Some(found) => plan = found,
            None => return plan,
        }
    }
}
