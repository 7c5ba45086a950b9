//! Memory of a rank's states, and what is there while its last backwards and its update run.

use super::blocks::Tied;
use super::memory::ModelStates;
use super::ordered_stages::OrderedStages;
use super::pipeline::Rank;
use super::quantities::BlockPeak;
use super::replicas::Replicas;
use super::stages::StageCost;
use cost::{Elements, Platform, Recipe, SplitByExperts, StackTraits};
use scheduler::placement::Placement;
use scheduler::schedules;

impl OrderedStages<'_> {
    /// True if the schedule has W apart from I.
    pub(super) fn splits(&self) -> bool {
        self.parallel.pp > 1 && schedules::find(&self.parallel.schedule).is_ok_and(|kind| kind.splits_backward)
    }

    /// Stages of a rank whose optimizer states another rank has: of two chains, the one that begins on the first rank owns the states.
    pub(super) fn copies(&self, number: usize, rank: &Rank) -> Vec<&StageCost> {
        let kind = schedules::find(&self.parallel.schedule);
        let has_two = kind.is_ok_and(|kind| kind.placement == Placement::Bidirectional);
        let shares = has_two && self.replicas.platform.stack.traits.zero.shares_states;
        let copies = rank.stages.iter().filter(|it| shares && it.stage != number);
        copies.map(|it| &self.loads[it.stage]).collect()
    }

    /// Bytes in addition to the states while a rank's last backwards and its update run.
    pub(super) fn while_updating(
        &self,
        rank: &Rank,
        (own, copies): (&[&StageCost], &[&StageCost]),
        elements: SplitByExperts,
        states: &ModelStates,
    ) -> f64 {
        let replicas = self.replicas;
        let platform = replicas.platform;
        // The owner of the states sums the gradients of all copies.
        let is_owned = |load: &&&StageCost| copies.iter().all(|copy| copy.runs != load.runs);
        let summed = match copies {
            [] => elements,
            _ => own.iter().filter(is_owned).map(|load| load.elements.trained).sum(),
        };
        let sums = replicas.sums_apart(summed);
        let update = updating(elements, replicas, platform.recipe)
            + summed_and_moved(own, states, elements, (sums, replicas.updated_apart()), platform);
        // Two chains end together, and sum their gradients then.
        let later = if copies.is_empty() { own.get(1..).unwrap_or_default() } else { &[] };
        let later = replicas.sums_apart(later.iter().map(|load| load.elements.trained).sum());
        update.max(last_backward(own, sums, elements)).max(last_stage(own, rank, later, self.splits()))
    }
}

/// Elements of the parameters that a rank with these stages holds, and of those whose optimizer states another rank has: of `copies`, which
/// are some of its stages, and of tied ones. The first block instance that has a parameter owns its states. A rank holds a parameter that
/// several of its stages share once.
pub(super) fn held_elements(
    own: &[&StageCost],
    copies: &[&StageCost],
    tied: &[Tied],
    traits: &StackTraits,
) -> (Elements, Elements) {
    let sum = |loads: &[&StageCost]| loads.iter().map(|load| load.elements).sum::<Elements>();
    let (mut held, mut borrowed) = (sum(own), sum(copies));
    for tied in tied.iter().filter(|_| traits.zero.shares_states) {
        let runs = &tied.runs;
        let stages_of = |loads: &[&StageCost]| {
            loads.iter().filter(|load| runs.iter().any(|run| load.runs.contains(run))).count() as f64
        };
        let has_first = |loads: &[&StageCost]| loads.iter().any(|load| load.runs.contains(&runs[0]));
        let owns = has_first(own) && !has_first(copies);
        held = held + tied.elements(-(stages_of(own) - 1.0).max(0.0));
        let elsewhere = if owns { 0.0 } else { stages_of(own).min(1.0) };
        borrowed = borrowed + tied.elements(elsewhere - stages_of(copies));
    }
    (held, borrowed)
}

/// Blocks whose states are on the device at once if they are in host memory between updates: one is updated while the states of
/// the next come and those of the one before leave.
const MOVING: f64 = 3.0;

/// Bytes of the sums of gradients during the update, of the states of blocks in host memory that are on the device, and of the updated
/// shard of a block, `shard` bytes an element. Blocks are updated in the order of the forward, and the sums of a block are freed with
/// its update: the most is there while the first, second or third block is updated, or before the last one is.
fn summed_and_moved(
    own: &[&StageCost],
    states: &ModelStates,
    elements: SplitByExperts,
    (sums, shard): (f64, f64),
    platform: &Platform<'_>,
) -> f64 {
    let most = |of: fn(&StageCost) -> BlockPeak| own.iter().map(|load| of(load).trained).fold(0.0, f64::max);
    let (layer, end) = (most(|load| load.layer), most(|load| load.end));
    // The embedding is the first block, other ends are last ones.
    let first = if own.iter().any(|load| load.runs.start == 0) { end } else { 0.0 };
    let moved = |at_once: f64| moving_with(at_once, states, elements, platform);
    let left = |updated: f64| sums * (1.0 - (updated.max(0.0) / elements.total()).min(1.0));
    let first_or_layer = if first > 0.0 { first } else { layer };
    let begin = moved(first_or_layer + layer) + sums + shard * first_or_layer;
    let second = moved(first.max(layer) + 2.0 * layer) + left(first.max(layer)) + shard * layer;
    let third = moved(MOVING * layer) + left(first + layer) + shard * layer;
    let last = moved(end + (MOVING - 1.0) * layer) + left(elements.total() - end - layer) + shard * end;
    begin.max(second).max(third).max(last)
}

/// Lower bound on these bytes, on a rank with layers of `layer` elements: it has their `states`, and at most `others` further
/// elements.
pub(super) fn moving_layers(
    [layer, others]: [f64; 2],
    states: &ModelStates,
    elements: SplitByExperts,
    platform: &Platform<'_>,
) -> f64 {
    let share = elements.total() / (elements.total() + others.max(0.0));
    share * moving_with(MOVING * layer, states, elements, platform)
}

/// Bytes of states on the device if those of `at_once` elements are there together; none where the host updates.
fn moving_with(at_once: f64, states: &ModelStates, elements: SplitByExperts, platform: &Platform<'_>) -> f64 {
    let moves = states.host > 0.0 && !platform.stack.traits.zero.updates_on_host;
    if moves { states.host * (at_once / elements.total()).min(1.0) } else { 0.0 }
}

/// Bytes in addition to the states while the last layer of a step runs backward, if `sums` of all elements have memory of their own: those
/// of the layers after it are made already.
fn last_backward(own: &[&StageCost], sums: f64, elements: SplitByExperts) -> f64 {
    if sums == 0.0 {
        return 0.0;
    }
    let layer = own.iter().map(|load| load.layer).fold(BlockPeak::default(), BlockPeak::max);
    let copied = own.iter().map(|load| load.copied).fold(0.0, f64::max);
    sums * (1.0 - layer.trained / elements.total()) + layer.transient + copied
}

/// Bytes in addition to the states while the first stage of a rank runs its last backwards: the `sums` of the others are made already.
/// Values that W reads are there from I on.
fn last_stage(own: &[&StageCost], rank: &Rank, sums: f64, splits: bool) -> f64 {
    let (Some(first), true) = (own.first(), sums > 0.0) else { return 0.0 };
    let for_w = if splits { first.saved_for_w } else { first.saved };
    sums + rank.left.iter().map(|open| open.for_i * first.saved + open.for_w * for_w).fold(0.0, f64::max)
}

/// Bytes of f32 copies of 16-bit states during the update of a group of parameters. There are two groups: dense and experts.
fn updating(elements: SplitByExperts, replicas: &Replicas<'_>, recipe: &Recipe) -> f64 {
    let SplitByExperts { dense, experts } = elements / replicas.state_parts();
    recipe.widened * dense.max(experts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cost::{Cluster, Stack};
    use ir::options::ParallelConfig;

    /// Llama 8B with states of 12 bytes an element in host memory and sums of 4: the embedding's states leave while the first layer is
    /// updated and those of the second come, and the embedding's sum is freed. Without sums, as many states are there at the head. The
    /// second half of a pipeline begins with three layers.
    #[test]
    fn sums_are_freed_while_states_come_and_go() {
        let (cluster, stack) = (Cluster::find("h100").unwrap(), Stack::find("meshwright").unwrap());
        let platform = Platform { cluster: &cluster, stack: &stack, recipe: &Recipe::bf16() };
        let bytes = |runs: std::ops::Range<usize>, elements: f64, sums: f64, shard: f64| {
            let peak = |trained| BlockPeak { trained, ..BlockPeak::default() };
            let load = StageCost { runs, layer: peak(218e6), end: peak(525e6), ..StageCost::default() };
            let states = ModelStates { parameters: 0.0, gradients: 0.0, optimizer: 0.0, host: 12.0 * elements };
            let elements = SplitByExperts { dense: elements, experts: 0.0 };
            (summed_and_moved(&[&load], &states, elements, (sums, shard), &platform) / 1e6).round()
        };
        let (end, layer) = (525.0, 218.0);
        assert_eq!(bytes(0..34, 8026e6, 4.0 * 8026e6, 0.0), 12.0 * (end + 2.0 * layer) + 4.0 * (8026.0 - end));
        assert_eq!(bytes(0..34, 8026e6, 0.0, 0.0), 12.0 * (end + 2.0 * layer));
        assert_eq!(bytes(17..34, 4013e6, 4.0 * 4013e6, 0.0), 12.0 * 3.0 * layer + 4.0 * (4013.0 - layer));
        // Without sums the head's shard counts, after the states of the last two layers have left.
        assert_eq!(bytes(0..34, 8026e6, 0.0, 24.0), 24.0 * end + 12.0 * (end + 2.0 * layer));
    }

    /// An embedding of 100 that the first and the last two stages have, and a head of 40 that the last two have: its states are where
    /// the first of them is.
    #[test]
    fn a_tied_parameter_has_its_states_once() {
        let elements = Elements::all_trained(SplitByExperts { dense: 300.0, experts: 0.0 });
        let stage = |start: usize| StageCost { runs: start..start + 2, elements, ..StageCost::default() };
        let [first, middle, further, last] = [0, 4, 6, 8].map(stage);
        let tied = [(vec![0, 6, 9], 100.0), (vec![7, 8], 40.0)].map(|(runs, elements)| Tied {
            runs,
            elements,
            is_trained: true,
        });
        let mut traits = Stack::find("meshwright").unwrap().traits;
        let dense = |own: &[&StageCost], traits: &StackTraits| {
            let (held, borrowed) = held_elements(own, &[], &tied, traits);
            [held.trained.dense, borrowed.trained.dense]
        };
        assert_eq!([&first, &middle].map(|own| dense(&[own], &traits)), [[300.0, 0.0]; 2]);
        assert_eq!(dense(&[&further], &traits), [300.0, 100.0]);
        assert_eq!(dense(&[&last], &traits), [300.0, 140.0]);
        assert_eq!(dense(&[&first, &last], &traits), [500.0, 40.0]);
        assert_eq!(dense(&[&middle, &last], &traits), [600.0, 140.0]);
        assert_eq!(dense(&[&further, &last], &traits), [460.0, 100.0]);
        // Two chains: what a rank has of the second one is another rank's, and of the first one what others do not own.
        let pair = |copy: &StageCost| held_elements(&[&first, &last], &[copy], &tied, &traits).1.trained.dense;
        assert_eq!([pair(&last), pair(&first)], [200.0, 300.0 + 40.0]);
        traits.zero.shares_states = false;
        assert_eq!(dense(&[&first, &last], &traits), [600.0, 0.0]);
    }

    /// 8 ranks with the same dense parameters and different experts.
    #[test]
    fn states_of_a_group_are_widened_at_once() {
        let (cluster, stack) = (Cluster::find("h100").unwrap(), Stack::find("megatron-core-2025").unwrap());
        let recipe = Recipe { widened: 8.0, ..Recipe::bf16() };
        let platform = Platform { cluster: &cluster, stack: &stack, recipe: &recipe };
        let bytes = |zero| {
            let parallel = ParallelConfig { dp: 8, ep: 8, zero, ..ParallelConfig::default() };
            updating(SplitByExperts { dense: 4e9, experts: 1e9 }, &Replicas::new(&parallel, 1, &platform), &recipe)
        };
        assert_eq!([bytes(0), bytes(1)], [32e9, 8e9]);
    }
}
