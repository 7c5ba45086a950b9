//! Search space of a request: the options its pins leave open.

use super::request::PlanRequest;
use super::stack_rules::supported;
use crate::error::Error;
use crate::search::{Hides, Order, Orders, Overlap, Pin, Recomputable, Schedules, Space};
use compiler::deadline::Deadline;
use compiler::parallel::Pins;
use cost::{Hidden, RuleName, RuleNumbers, Stack, Supports};
use estimator::{Evaluator, OpenOrders, check_pins};
use ir::config_key::ConfigKey;
use ir::dim_role::DimRole;
use ir::graph::Model;
use ir::heads::{self, Heads};
use ir::models::Batch;
use ir::options::ParallelConfig;
use ir::types::DType;
use planner::least_block;
use scheduler::placement::{Pipeline, Placement};
use scheduler::schedules::{self, Chunks, SCHEDULES, ScheduleKind};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use transforms::recompute::check_names;
use transforms::slices::slice;

/// Largest number of stages per rank of the search. More stages make messages smaller, and no published run has more.
const MOST_CHUNKS: u32 = 16;

/// Upper limit on the devices of a node, for clusters whose innermost link joins all devices.
const LARGEST_NODE: u64 = 1 << 32;

/// Part of the space to search, unless pins decide.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Subspace {
    /// True if saved activations are offloaded.
    pub(super) offload: bool,
    /// True if optimizer states are offloaded.
    pub(super) offload_optimizer: bool,
    /// True if degrees and micro-batches may have odd factors.
    pub(super) odd: bool,
}

/// Search space of a request until a deadline.
///
/// # Errors
/// The pins are not a configuration, the stack does not support them, or the model cannot be built.
pub(super) fn space(
    request: &PlanRequest,
    evaluator: &Evaluator,
    until: Deadline,
    Subspace { offload, offload_optimizer, odd }: Subspace,
) -> Result<Space, Error> {
    let pin = pin(&request.pin)?;
    let batch = Batch { batch: 1, seq: request.seq, dtype: DType::F32 };
    let model = evaluator.source().model(&batch)?;
    check_names(&model, &pin.parallel.recompute).map_err(estimator::Error::from)?;
    let job = evaluator.job_numbers();
    check_pins(&request.pin, evaluator.stack(), &job)?;
    let size = |role| model.dim_of(role).map(|dim| dim.size);
    let of_heads = [heads::ATTENTION, heads::SCAN].map(|[keys, _]| keys);
    let is_cut = |role: DimRole| ParallelConfig::TENSOR_ROLES.contains(&role) && !of_heads.contains(&role);
    let cut = model.dims.values().filter(|dim| dim.role.is_some_and(is_cut));
    let runs: u64 = model.calls.iter().map(|call| u64::from(call.instances())).sum();
    let ends = u64::from(runs > 2);
    let platform = evaluator.platform(request.gpus);
    let schedule = pin.has(ConfigKey::Schedule).then(|| vec![pin.parallel.schedule.clone()]);
    let schedule = schedule.or_else(|| pin.limits.set(ConfigKey::Schedule).map(<[String]>::to_vec));
    // One rank has several stages only if pins say so.
    let is_alone = pin.has(ConfigKey::Pp) && pin.parallel.pp == 1 && pin.has(ConfigKey::Vp);
    let schedule = schedule.or_else(|| is_alone.then(|| vec![pin.parallel.schedule.clone()]));
    let slices = slice(&model, 2).is_ok();
    let supports = evaluator.stack().supports.clone();
    Ok(Space {
        tensor: cut.map(|dim| (dim.size, dim.indivisible)).collect(),
        heads: Heads::all(model.dims.values()),
        gathers_keys: planner::gathers_keys(&model),
        tokens: size(DimRole::Sequence).unwrap_or(request.seq),
        least_block: least_block(&model),
        experts: size(DimRole::Experts).map(|number| [number, size(DimRole::ExpertFeedForward).unwrap_or(1)]),
        layers: [runs - 2 * ends, ends],
        node: platform.cluster.links[0].joins.min(LARGEST_NODE),
        offload,
        offload_optimizer,
        hides: hides(evaluator.stack()),
        batch: evaluator.source().is_text().then(|| batch_of(&model)),
        open_orders: {
            let open = all_orders(schedule.as_deref(), slices, &supports);
            OpenOrders { slices: open.slices.max(pin.parallel.slices.unwrap_or(1)), ..open }
        },
        orders: {
            let supports = supports.clone();
            let states_chunks = pin.has(ConfigKey::Vp) || pin.limits.is_limited(ConfigKey::Vp);
            let asked = AskedOrders { schedules: schedule, states_chunks, slices };
            remembered(move |pp, microbatches| orders(pp, microbatches, &asked, &supports))
        },
        common_schedules: SCHEDULES.iter().filter(|kind| kind.is_common).map(|kind| kind.name).collect(),
        odd,
        recomputable: Recomputable::of(&supports),
        supported: supported(&supports, job),
        supports,
        global_batch: request.global_batch,
        devices: request.devices(),
        pin,
        stop: Box::new(move || until.is_over()),
    })
}

/// Communication that a stack overlaps with compute, or could.
fn hides(stack: &Stack) -> Hides {
    let tp = match Overlap::of(stack.hides(Hidden::Tp)) {
        Overlap::Never if stack.supports.tp_overlap == Some(true) => Overlap::IfAsked,
        by_default => by_default,
    };
    let dp = match Overlap::of(stack.hides(Hidden::Dp)) {
        Overlap::ByDefault if stack.supports.dp_overlap_off == Some(false) => Overlap::Always,
        by_default => by_default,
    };
    Hides { tp, dp }
}

/// Orders by pipeline ranks and micro-batches.
type Known = HashMap<(u64, u64), Arc<[Order]>>;

/// Caches orders.
fn remembered(orders: impl Fn(u64, u64) -> Vec<Order> + Send + Sync + 'static) -> Orders {
    let known: Mutex<Known> = Mutex::default();
    Box::new(move |pp, microbatches| {
        let mut known = known.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(known.entry((pp, microbatches)).or_insert_with(|| orders(pp, microbatches).into()))
    })
}

/// Micro-batch size that a `.ir` file states.
fn batch_of(model: &Model) -> u64 {
    model.dim_of(DimRole::Batch).map_or(1, |dim| dim.size)
}

/// Pins of a text.
fn pin(text: &str) -> Result<Pin, Error> {
    let limits = Pins::parse(text)?;
    let parallel = limits.fixed.clone();
    let set = limits.set(ConfigKey::Schedule).into_iter().flatten();
    for schedule in set.chain([&parallel.schedule]) {
        schedules::find(schedule).map_err(estimator::Error::from)?;
    }
    Ok(Pin { parallel, keys: limits.keys().collect(), limits })
}

/// Part of the pins, and of the model, that orders depend on.
struct AskedOrders {
    /// Names of pinned schedules.
    schedules: Option<Vec<String>>,
    /// True if the stages per rank are pinned. A configuration then states them for schedules with a number of their own too.
    states_chunks: bool,
    /// True if the model's blocks run slices of a sequence in turn.
    slices: bool,
}

/// Orders of a pipeline. One rank has one order: its micro-batches follow each other. A schedule kind that searches for its
/// order takes seconds per configuration, so it is in the space only if pinned. Slices need a model whose blocks run them in
/// turn.
fn orders(pp: u64, microbatches: u64, asked: &AskedOrders, supports: &Supports) -> Vec<Order> {
    let (Ok(ranks), Ok(microbatches)) = (u32::try_from(pp), u32::try_from(microbatches)) else { return Vec::new() };
    let known = SCHEDULES.iter().filter(|kind| match &asked.schedules {
        Some(names) => names.iter().any(|name| kind.name == name),
        None if ranks == 1 => kind.name == ParallelConfig::default().schedule,
        None => !kind.searches() && supports.schedule(kind.name),
    });
    let mut orders: Vec<Order> = Vec::new();
    let mut alike: Vec<(Option<u32>, Option<u32>, Pipeline, bool)> = Vec::new();
    for kind in known {
        let choices: Vec<Option<u32>> = match kind.chunks {
            _ if kind.placement == Placement::Chain => vec![asked.states_chunks.then_some(1)],
            Chunks::Just(own) => vec![asked.states_chunks.then_some(own)],
            Chunks::From(least) => (least..=MOST_CHUNKS).map(Some).collect(),
        };
        for vp in choices {
            let Ok(pipeline) = kind.pipeline(ranks, vp, microbatches) else { continue };
            if !kind.accepts(&pipeline) || (pipeline.slices > 1 && !asked.slices) {
                continue;
            }
            let Some(MicrobatchGroup(group)) = allowed_group(kind, &pipeline, supports) else { continue };
            let class = (vp, group, pipeline, !kind.splits_backward);
            match alike.iter().position(|other| *other == class) {
                Some(at) => orders[at].schedules = with(&orders[at].schedules, kind, &pipeline),
                None => {
                    alike.push(class);
                    let (schedules, stages) = (Schedules::from([kind.name]), u64::from(pipeline.stages()));
                    orders.push(Order { schedules, vp, group, chunks: pipeline.chunks, stages });
                }
            }
        }
    }
    orders
}

/// Micro-batches that go through a chunk before the next one; `None`: the schedule's own number.
struct MicrobatchGroup(Option<u32>);

/// The smallest group of micro-batches that a stack's rules allow, the schedule's own first; `None` if they allow no group.
fn allowed_group(kind: &ScheduleKind, pipeline: &Pipeline, supports: &Supports) -> Option<MicrobatchGroup> {
    // The stages of one rank are one stage to a rule.
    if pipeline.ranks == 1 || allows_group(pipeline, pipeline.ranks, supports) {
        return Some(MicrobatchGroup(None));
    }
    let mut groups =
        (pipeline.ranks + 1..=pipeline.microbatches).filter(|&group| allows_group(pipeline, group, supports));
    groups.find(|&group| kind.choose(*pipeline, Some(group), None).is_ok()).map(|group| MicrobatchGroup(Some(group)))
}

/// Returns whether a stack's rules allow a group of micro-batches.
fn allows_group(pipeline: &Pipeline, group: u32, supports: &Supports) -> bool {
    let numbers = RuleNumbers::of(|name| match name {
        RuleName::Pp => Some(u64::from(pipeline.ranks)),
        RuleName::Vp => Some(u64::from(pipeline.chunks)),
        RuleName::Microbatches => Some(u64::from(pipeline.microbatches)),
        RuleName::Group => Some(u64::from(group)),
        _ => None,
    });
    supports.forbidden_by(&numbers).next().is_none()
}

/// The orders of the given schedules, or of those that the stack supports. Sequences are cut into slices only if the model supports it.
fn all_orders(given: Option<&[String]>, slices: bool, supports: &Supports) -> OpenOrders {
    let is_open = |kind: &&ScheduleKind| {
        given.map_or(supports.schedule(kind.name), |names| names.iter().any(|name| kind.name == name))
    };
    let open = open_orders(SCHEDULES.iter().filter(is_open));
    OpenOrders { slices: if slices { open.slices } else { 1 }, ..open }
}

/// The orders of some schedules.
pub(super) fn open_orders(kinds: impl IntoIterator<Item = &'static ScheduleKind>) -> OpenOrders {
    let mut open = OpenOrders { slices: 1, has_two_chains: false, splits: false };
    for kind in kinds {
        let slices = kind.pipeline(1, None, 1).map_or(1, |pipeline| pipeline.slices);
        open.slices = open.slices.max(slices);
        open.has_two_chains |= kind.placement == Placement::Bidirectional;
        open.splits |= kind.splits_backward;
    }
    open
}

/// Adds a schedule to those of its order, sorted by saved activations. A schedule that saves less does so on every rank.
fn with(schedules: &Schedules, kind: &'static ScheduleKind, pipeline: &Pipeline) -> Schedules {
    let of_all = |kind: &ScheduleKind| {
        (0..pipeline.ranks).map(|rank| u64::from(kind.min_in_flight(rank, pipeline))).sum::<u64>()
    };
    let kept = |name: &str| SCHEDULES.iter().find(|kind| kind.name == name).map(of_all);
    let mut names = [schedules, [kind.name].as_slice()].concat();
    names.sort_by_key(|name| kept(name));
    names.into()
}

/// Error of a request without any valid configuration, and what an estimate of the pins alone says.
pub(super) fn none_serves(request: &PlanRequest, why: Option<String>) -> Error {
    let gpus = match request.max_gpus {
        Some(most) => format!("{} to {most}", request.gpus),
        None => request.gpus.to_string(),
    };
    let PlanRequest { model, pin, global_batch, .. } = request;
    Error::NoneServes { gpus, model: model.clone(), pin: pin.clone(), global_batch: *global_batch, why }
}
