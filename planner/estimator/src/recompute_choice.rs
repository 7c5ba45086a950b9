//! Selection of the single values to recompute so that a configuration fits: `recompute=auto`.

use super::blocks::{BlockFilter, Outline};
use super::candidate::Staged;
use super::error::Error;
use super::memory::GIB;
use super::quantities::StageRuns;
use super::report::StageMemory;
use cost::{BlockOptions, Frontier, Kind, Platform, RecomputeChoice, frontier};
use ir::graph::{Block, Model};
use ir::options::Recompute;

/// Number of instances of each layer block on pipeline ranks that exceed the memory budget `budget`, in bytes. A single kind of
/// layer counts once, since its choices do not depend on the number.
pub(super) fn crowded(
    staged: &Staged,
    memory: &[StageMemory],
    held: impl Fn(&StageMemory) -> f64,
    outline: &Outline,
    budget: f64,
) -> Vec<f64> {
    let mut runs = vec![0.0; outline.tensors.len()];
    let ranks = staged.flow.ranks.iter().zip(memory).filter(|(_, memory)| held(memory) * GIB > budget);
    for StageRuns { stage, .. } in ranks.flat_map(|(rank, _)| &rank.stages) {
        let layers = staged.loads[*stage].runs.clone().filter(|run| outline.layers.contains(run));
        layers.for_each(|run| runs[outline.runs[run]] += 1.0);
    }
    if runs.iter().filter(|runs| **runs > 0.0).count() == 1 {
        runs.iter_mut().for_each(|runs| *runs = f64::min(*runs, 1.0));
    }
    runs
}

/// Choices of values for one instance of each block; empty for blocks that are not layers.
pub(super) type BlockChoices = Vec<Vec<RecomputeChoice>>;

/// Pareto-optimal choices of each of some blocks; `others` has the choices of the others, if they are known.
pub(super) fn choices_of_each(
    model: &Model,
    options: &BlockOptions,
    platform: &Platform<'_>,
    blocks: BlockFilter,
    others: &BlockChoices,
) -> BlockChoices {
    let choices = |(block, which): (usize, &Block)| {
        if !blocks.has(which) {
            return others.get(block).cloned().unwrap_or_default();
        }
        let alone: Vec<f64> = (0..model.blocks.len()).map(|at| f64::from(u8::from(at == block))).collect();
        let mut best = frontier(model, &alone, options, platform).best;
        best.retain(|choice| !choice.choices.is_empty());
        best
    };
    model.blocks.values().enumerate().map(choices).collect()
}

/// Names of recomputed values, with the choice of fewest `seconds` for each kind of layer. `each` has the choices of each block
/// alone.
pub(super) fn fastest(
    all_layers: impl FnOnce(&[f64]) -> Frontier,
    each: &[Vec<RecomputeChoice>],
    seconds: impl Fn(usize, &RecomputeChoice) -> f64,
) -> Vec<String> {
    let runs: Vec<f64> = each.iter().map(|choices| f64::from(u8::from(!choices.is_empty()))).collect();
    let fastest = |(block, choices): (usize, &Vec<RecomputeChoice>)| {
        let least = choices.iter().min_by(|a, b| seconds(block, a).total_cmp(&seconds(block, b)))?;
        Some(least.choices[0])
    };
    let chosen: Vec<usize> = each.iter().enumerate().filter_map(fastest).collect();
    let all = all_layers(&runs);
    // Choices of each kind alone do not combine into a set for all layers.
    if all.is_of_sets() { Vec::new() } else { all.names(&chosen) }
}

/// A tried choice of values, and the bytes of the peak-memory device.
#[derive(Clone)]
pub(super) struct Trial<T> {
    pub(super) of: T,
    pub(super) bytes: f64,
}

/// Index of the kind with most layers.
fn commonest(kinds: &[Kind]) -> usize {
    (0..kinds.len()).max_by(|&a, &b| kinds[a].runs.total_cmp(&kinds[b].runs)).unwrap_or(0)
}

/// Choices with another one for a kind.
fn with(choices: &[usize], kind: usize, at: usize) -> Vec<usize> {
    let mut choices = choices.to_vec();
    choices[kind] = at;
    choices
}

/// A trial, and the choice of each kind of layer.
type Chosen<T> = (Trial<T>, Vec<usize>);

/// Tries a choice of each kind of layer.
type Under<'a, T> = dyn FnMut(&[usize]) -> Result<Trial<T>, Error> + 'a;

/// Search over choices of each kind of layer.
struct ChoiceSearch<'a, T> {
    /// Memory budget in bytes.
    budget: f64,
    under: &'a mut Under<'a, T>,
    /// Returns `true` if a choice, and all choices that recompute no less, exceed the time limit.
    is_too_slow: &'a dyn Fn(&[usize]) -> bool,
}

/// Finds the fastest choice of values that fits in the memory budget `budget`; `none` are the bytes without recomputation. Returns
/// `None` if no choice fits, or every choice that fits is too slow.
///
/// # Errors
/// The cost of a choice cannot be computed.
pub(super) fn fitting<T: Clone>(
    frontier: &Frontier,
    none: f64,
    budget: f64,
    mut under: impl FnMut(Recompute) -> Result<Trial<T>, Error>,
    is_too_slow: impl Fn(&[usize]) -> bool,
) -> Result<Option<T>, Error> {
    let mut under = |choices: &[usize]| under(Recompute::Selective(frontier.names(choices)));
    let mut trial = ChoiceSearch { budget, under: &mut under, is_too_slow: &is_too_slow };
    Ok(trial.fitting(&frontier.kinds, &frontier.best, none)?.map(|best| best.of))
}

impl<T: Clone> ChoiceSearch<'_, T> {
    /// Finds the fastest choice; `best` are the Pareto-optimal choices of all kinds together.
    fn fitting(&mut self, kinds: &[Kind], best: &[RecomputeChoice], none: f64) -> Result<Option<Trial<T>>, Error> {
        let Some(least) = best.last().filter(|_| best.len() > 1) else { return Ok(None) };
        let (kind, zero) = (commonest(kinds), vec![0; kinds.len()]);
        // If the first choice of the commonest kind is too slow, that kind recomputes nothing.
        let makes_none = kinds.len() > 1 && least.choices[kind] > 0 && (self.is_too_slow)(&with(&zero, kind, 1));
        if makes_none && (self.under)(&with(&least.choices, kind, 0))?.bytes > self.budget {
            return Ok(None);
        }
        let last = (self.under)(&least.choices)?;
        if last.bytes > self.budget {
            return Ok(None);
        }
        let mut from = zero;
        if kinds.len() > 1 && !makes_none {
            let Some(at) = self.commonest(kinds, &least.choices, none, &last)? else { return Ok(None) };
            from[kind] = at;
        }
        let Some((found, choices)) = self.together(best, none, last, &from)? else { return Ok(None) };
        if kinds.len() > 1 { self.each(kinds, found, choices, &from) } else { Ok(Some(found)) }
    }

    /// First choice of the commonest kind that fits if all other kinds save least: a lower limit on that kind's choice.
    fn commonest(
        &mut self,
        kinds: &[Kind],
        least: &[usize],
        none: f64,
        last: &Trial<T>,
    ) -> Result<Option<usize>, Error> {
        let kind = commonest(kinds);
        if least[kind] == 0 {
            return Ok(Some(0));
        }
        let saved = &kinds[kind].bytes[..=least[kind]];
        // All other kinds save least already.
        let frees = |kind: usize| kinds[kind].runs * (kinds[kind].bytes[0] - kinds[kind].bytes[least[kind]]);
        let share = frees(kind) / (0..kinds.len()).map(frees).sum::<f64>();
        let held = last.bytes + (none - last.bytes) * share;
        let under = |trial: &mut Self, at: usize| (trial.under)(&with(least, kind, at));
        let is_too_slow = |trial: &Self, at: usize| (trial.is_too_slow)(&with(&vec![0; kinds.len()], kind, at));
        let Some((_, at)) = self.first(saved, held, last.clone(), under, is_too_slow)? else { return Ok(None) };
        // This kind may also fit without recomputation.
        let is_free = at == 1 && (self.under)(&with(least, kind, 0))?.bytes <= self.budget;
        Ok(Some(if is_free { 0 } else { at }))
    }

    /// First of the choices for all kinds that fits, among those with at least the choices `from` of each kind.
    fn together(
        &mut self,
        best: &[RecomputeChoice],
        none: f64,
        last: Trial<T>,
        from: &[usize],
    ) -> Result<Option<Chosen<T>>, Error> {
        let is_before = |choice: &RecomputeChoice| choice.choices.iter().zip(from).any(|(own, from)| own < from);
        let begin = best.iter().rposition(is_before).unwrap_or(0);
        let saved: Vec<f64> = best.iter().map(|choice| choice.bytes).collect();
        let share = (saved[begin] - saved[saved.len() - 1]) / (saved[0] - saved[saved.len() - 1]);
        let held = last.bytes + (none - last.bytes) * share;
        let under = |trial: &mut Self, at: usize| (trial.under)(&best[begin + at].choices);
        // With several kinds, each kind may end with a smaller choice than here.
        let is_too_slow = |trial: &Self, at: usize| match best[begin + at].choices.as_slice() {
            alone @ [_] => (trial.is_too_slow)(alone),
            _ => false,
        };
        let found = self.first(&saved[begin..], held, last, under, is_too_slow)?;
        Ok(found.map(|(found, at)| (found, best[begin + at].choices.clone())))
    }

    /// Reduces the choice of each kind to the fastest one that still fits: kinds on other ranks may have free memory.
    fn each(
        &mut self,
        kinds: &[Kind],
        mut best: Trial<T>,
        mut choices: Vec<usize>,
        from: &[usize],
    ) -> Result<Option<Trial<T>>, Error> {
        for (kind, &begin) in from.iter().enumerate() {
            if choices[kind] <= begin {
                continue;
            }
            let first = (self.under)(&with(&choices, kind, begin))?;
            let found = if first.bytes <= self.budget {
                Some((first, begin))
            } else {
                // Later kinds may still be reduced.
                let least = [&choices[..kind], &from[kind..]].concat();
                let under = |trial: &mut Self, at: usize| (trial.under)(&with(&choices, kind, begin + at));
                let is_too_slow = |trial: &Self, at: usize| (trial.is_too_slow)(&with(&least, kind, begin + at));
                let found =
                    self.first(&kinds[kind].bytes[begin..=choices[kind]], first.bytes, best, under, is_too_slow)?;
                found.map(|(tried, at)| (tried, begin + at))
            };
            let Some((tried, at)) = found else { return Ok(None) };
            (best, choices[kind]) = (tried, at);
        }
        Ok(Some(best))
    }

    /// First choice that fits, among choices that save ever fewer bytes. The first one has `held` device bytes and does not fit;
    /// the last one fits.
    ///
    /// Device bytes are nearly affine in the saved bytes, so interpolation gives the next trial. After several errors to one
    /// side, the step away from that side doubles each time.
    fn first(
        &mut self,
        saved: &[f64],
        mut held: f64,
        last: Trial<T>,
        under: impl Fn(&mut Self, usize) -> Result<Trial<T>, Error>,
        is_too_slow: impl Fn(&Self, usize) -> bool,
    ) -> Result<Option<(Trial<T>, usize)>, Error> {
        let (mut found, mut small, mut large, mut side) = (last, saved.len() - 1, 0, 0_i32);
        loop {
            if is_too_slow(self, large + 1) {
                return Ok(None);
            }
            if small - large < 2 {
                return Ok(Some((found, small)));
            }
            let more = (self.budget - found.bytes) / (held - found.bytes) * (saved[large] - saved[small]);
            let interpolated = saved.partition_point(|&bytes| bytes > saved[small] + more);
            let far = 1 << side.unsigned_abs().saturating_sub(1);
            let next =
                if side > 0 { interpolated.min(small.saturating_sub(far)) } else { interpolated.max(large + far) };
            let next = next.clamp(large + 1, small - 1);
            let tried = under(self, next)?;
            if tried.bytes <= self.budget {
                (found, small, side) = (tried, next, side.max(0) + 1);
            } else {
                (held, large, side) = (tried.bytes, next, side.min(0) - 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ir::entity::EntityRef;
    use ir::ids::BlockId;

    /// A choice that takes these seconds.
    fn choice(choices: Vec<usize>, bytes: f64, seconds: usize) -> RecomputeChoice {
        RecomputeChoice { choices, bytes, seconds: seconds as f64, least: seconds as f64 }
    }

    fn choices(bytes: &[f64]) -> Vec<RecomputeChoice> {
        let at_index = |(at, &bytes): (usize, &f64)| choice(vec![at], bytes, at);
        bytes.iter().enumerate().map(at_index).collect()
    }

    /// Calls `then` with a search whose choices have `held` bytes, and returns the result and the number of trials.
    fn trial<T>(
        budget: f64,
        held: impl Fn(&[usize]) -> f64,
        is_too_slow: impl Fn(&[usize]) -> bool,
        then: impl FnOnce(&mut ChoiceSearch<'_, Vec<usize>>) -> Result<T, Error>,
    ) -> (T, usize) {
        let mut tries = 0;
        let mut under = |choices: &[usize]| {
            tries += 1;
            Ok(Trial { of: choices.to_vec(), bytes: held(choices) })
        };
        let found = then(&mut ChoiceSearch { budget, under: &mut under, is_too_slow: &is_too_slow }).unwrap();
        (found, tries)
    }

    /// A kind of layers.
    fn kind(at: usize, runs: f64, bytes: Vec<f64>) -> Kind {
        let seconds: Vec<f64> = (0..bytes.len()).map(|at| at as f64).collect();
        Kind { block: BlockId::new(at), runs, bytes, least: seconds.clone(), seconds }
    }

    /// Device bytes are 40 plus three times the saved bytes. The first choice that fits is found in few steps, unless it is too slow.
    #[test]
    fn the_fastest_that_fits_is_found() {
        let saved: Vec<f64> = (0..100).map(|at| 1000.0 - f64::from(at * at) / 10.0).collect();
        let held = |at: usize| 40.0 + 3.0 * saved[at];
        let kinds = [kind(0, 1.0, saved.clone())];
        for budget in [held(99), held(98), held(50) + 1.0, held(1), held(0) - 1.0] {
            let wanted = (1..100).find(|&at| held(at) <= budget);
            for enough in [99, wanted.unwrap(), wanted.unwrap() - 1] {
                let of = |choices: &[usize]| held(choices[0]);
                let is_too_slow = |choices: &[usize]| choices[0] > enough;
                let find = |trial: &mut ChoiceSearch<'_, Vec<usize>>| trial.fitting(&kinds, &choices(&saved), held(0));
                let (found, tries) = trial(budget, of, is_too_slow, find);
                let found = found.map(|tried| tried.of[0]);
                assert_eq!(found, wanted.filter(|&wanted| wanted <= enough));
                assert!(tries <= 4, "{tries}");
            }
        }
    }

    #[test]
    fn nothing_may_fit() {
        let none = |saved: &[f64], held: f64, budget: f64| {
            let kinds = [kind(0, 1.0, saved.to_vec())];
            trial(budget, |_| 9.0, |_| false, |trial| trial.fitting(&kinds, &choices(saved), held)).0.is_none()
        };
        assert!(none(&[3.0, 2.0], 10.0, 8.0));
        assert!(none(&[3.0], 10.0, 9.5));
    }

    /// Two kinds on two ranks: each recomputes what its own rank needs.
    #[test]
    fn each_kind_uses_the_budget_of_its_rank() {
        let held = |choices: &[usize]| f64::max(100.0 - choices[0] as f64, 60.0 - 2.0 * choices[1] as f64);
        let kinds = [1.0, 2.0].map(|each| kind(0, each, (0..21).map(|at| 100.0 - each * f64::from(at)).collect()));
        let both: Vec<RecomputeChoice> = (0..21).map(|at| choice(vec![at; 2], 300.0 - 3.0 * at as f64, at)).collect();
        let each = |is_too_slow: &dyn Fn(&[usize]) -> bool| {
            let find = |trial: &mut ChoiceSearch<'_, Vec<usize>>| trial.fitting(&kinds, &both, held(&[0, 0]));
            trial(85.0, held, is_too_slow, find).0.map(|best| best.of)
        };
        assert_eq!(each(&|_| false), Some(vec![15, 0]));
        assert_eq!(each(&|choices| choices[0] > 15), Some(vec![15, 0]));
        assert_eq!(each(&|choices| choices[0] > 10), None);
    }

    /// The commonest kind may have no choice: it recomputes nothing.
    #[test]
    fn a_kind_may_have_no_choice() {
        let kinds = [kind(0, 9.0, vec![5.0]), kind(1, 1.0, vec![40.0, 30.0, 20.0])];
        let both: Vec<RecomputeChoice> = (0..3).map(|at| choice(vec![0, at], 45.0 - 10.0 * at as f64, at)).collect();
        let held = |choices: &[usize]| 50.0 - 10.0 * choices[1] as f64;
        let is_too_slow = |choices: &[usize]| choices.iter().zip(&kinds).any(|(&at, kind)| kind.seconds[at] > 2.0);
        let (found, _) = trial(40.0, held, is_too_slow, |trial| trial.fitting(&kinds, &both, 50.0));
        assert_eq!(found.map(|found| found.of), Some(vec![0, 1]));
    }

    /// The commonest kind may be too slow to recompute: then the other kind does.
    #[test]
    fn the_commonest_kind_may_recompute_nothing() {
        let kinds = [kind(0, 1.0, vec![40.0, 30.0, 20.0]), kind(1, 9.0, vec![5.0, 4.0, 3.0])];
        let held = |choices: &[usize]| 50.0 - 10.0 * choices[0] as f64 - choices[1] as f64;
        let both: Vec<RecomputeChoice> = (0..3).map(|at| choice(vec![at; 2], held(&[at; 2]), at)).collect();
        let is_too_slow = |choices: &[usize]| choices[1] > 0;
        let find = |budget: f64| trial(budget, held, is_too_slow, |trial| trial.fitting(&kinds, &both, 50.0)).0;
        assert_eq!(find(40.0).map(|found| found.of), Some(vec![1, 0]));
        assert!(find(29.0).is_none());
    }

    /// The commoner of two kinds on the same ranks has a lower limit on its choice, and the search ends if that is too slow.
    #[test]
    fn the_commonest_kind_is_given_up_first() {
        let kinds = [
            kind(0, 2.0, (0..11).map(|at| 20.0 - f64::from(at)).collect()),
            kind(1, 9.0, (0..21).map(|at| 200.0 - f64::from(at)).collect()),
        ];
        let held = |choices: &[usize]| 220.0 - 2.0 * choices[0] as f64 - 9.0 * choices[1] as f64;
        let both: Vec<RecomputeChoice> = (0..21).map(|at| choice(vec![at / 2, at], held(&[at / 2, at]), at)).collect();
        let find = |enough: usize| {
            let is_too_slow = |choices: &[usize]| choices[1] > enough;
            trial(100.0, held, is_too_slow, |trial| trial.fitting(&kinds, &both, held(&[0, 0])))
        };
        let (found, tries) = find(20);
        let found = found.unwrap().of;
        assert!(held(&found) <= 100.0 && held(&with(&found, 0, found[0] - 1)) > 100.0, "{found:?}");
        assert!(tries <= 12, "{tries}");
        let (found, tries) = find(10);
        assert!(found.is_none() && tries <= 3, "{tries}");
    }
}
