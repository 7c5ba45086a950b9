//! Turn order of the cost-based sharding. All axes are decided at once if the problem is small enough. Otherwise the
//! search first decides all axes as two units. It then improves the best of these, and the result of the rules, by
//! pairs and triples of axes with the others fixed.

use super::sizes::pairs;
use super::turns::{Before, Turn};
use super::{Decided, Found, Task, Watch};
use crate::fault::Fault;
use crate::passes::shard::bound::bound;
use crate::passes::shard::prices::Prices;
use crate::reshard::Site;
use crate::reshard::sharding::Place;
use core::time::Duration;
use ir::ids::AxisId;
use ir::mesh::{Axes, Mesh};
use solver::Status;
use solver::assign::{Budget, Deadline};

/// Largest number of pairs of choices in the tables of one problem: a few hundred megabytes, including the solver's
/// copies.
pub(super) const PAIRS: f64 = 6e6;

/// Factor on [`PAIRS`] for meshes with at most two axes, where turns could only decide one axis at a time.
const TWO: f64 = 4.0;

/// Solver steps for all axes at once, for each turn, for each group of the bound, and for all turns.
const AT_ONCE: u64 = 1_000_000_000;
const TURN: u64 = 200_000_000;
const GROUP: u64 = 100_000_000;
const ALL: u64 = 2_500_000_000;

/// Steps charged per pair of choices while a problem is built.
const BUILT: u64 = 30;

/// Shortest remaining time in which a turn is started.
const LAST: Duration = Duration::from_millis(50);

/// Rounds of turns from one start, and the number of starts with turns.
const ROUNDS: usize = 6;
const STARTS: usize = 2;

/// Relative gain below which a turn counts as no improvement.
const GAIN: f64 = 1e-6;

/// Search for the best choice on a mesh.
pub(super) struct Search<'a, 't> {
    pub(super) task: &'t Task<'a>,
    pub(super) prices: Prices<'a>,
    pub(super) limit: u64,
    /// Deadline of the search.
    pub(super) end: Deadline,
    /// Callback that receives the state after each problem.
    pub(super) watch: &'t mut Watch<'t>,
    pub(super) best: Option<Found>,
    /// Solver steps so far; replaces wall time.
    pub(super) spent: u64,
    /// Largest number of pairs of choices per problem.
    pub(super) most: f64,
}

impl<'a> Search<'a, '_> {
    /// Returns the best choice found and a lower bound on all choices.
    ///
    /// # Errors
    /// An op's rule does not fit its tensors, which is an internal error.
    pub(super) fn run(mut self, rules: Option<Before>) -> Result<(Option<Found>, f64), Fault> {
        let all = self.mesh().tensor_axes();
        let singles: Vec<Axes> = all.iter().map(Axes::one).collect();
        let mut known = f64::NEG_INFINITY;
        let most = if all.len() <= 2 { TWO * self.most } else { self.most };
        if pairs(self.task.model, all.len()) <= most {
            let found = self.solve(&Turn::of(singles.clone(), &all), None, self.limit, AT_ONCE)?;
            if let Some(found) = found {
                known = found.solution.bound;
                let is_over = matches!(found.solution.status, Status::Optimal | Status::Infeasible);
                self.consider(&found);
                if is_over {
                    return Ok((self.best, known));
                }
            }
        }
        self.turns(rules, &all, &singles)?;
        if all.len() > 2 || known == f64::NEG_INFINITY {
            let at_once = if pairs(self.task.model, 2) <= self.most { 2 } else { 1 };
            let small = pairs(self.task.model, 1) <= self.most;
            let relaxed = if small { bound(self.task, self.prices.site, at_once, &self.budget(GROUP))? } else { None };
            known = known.max(relaxed.unwrap_or(0.0));
        }
        Ok((self.best, known))
    }

    fn mesh(&self) -> &'a Mesh {
        let Site { mesh, .. } = self.prices.site;
        mesh
    }

    /// Decides the axes in turns.
    fn turns(&mut self, rules: Option<Before>, all: &Axes, singles: &[Axes]) -> Result<(), Fault> {
        let stay = Turn::of(Vec::new(), all);
        let mut starts: Vec<Found> = self.best.iter().cloned().collect();
        for before in [rules, Some(Before::default())].into_iter().flatten() {
            // The rules may lead to a sharding that no strategy has.
            if let Ok(Some(found)) = self.solve(&stay, Some(&before), u64::MAX, TURN) {
                starts.push(found);
            }
        }
        // Turns over fewer axes cannot improve a search over all axes.
        let is_searched = all.len() <= 2 && self.best.is_some();
        if is_searched || pairs(self.task.model, 1) > self.most {
            starts.iter().for_each(|start| self.consider(start));
            return Ok(());
        }
        let two = pairs(self.task.model, 2) <= self.most;
        for units in coarse(all).into_iter().filter(|units| two || units.len() == 1) {
            if !self.is_over() {
                starts.extend(self.solve(&Turn::of(units, all), None, self.limit, TURN)?);
            }
        }
        starts.retain(|start| !start.solution.choice.is_empty());
        starts.sort_by(|one, other| self.rank(one).partial_cmp(&self.rank(other)).unwrap_or(std::cmp::Ordering::Equal));
        starts.iter().for_each(|start| self.consider(start));
        for start in starts.into_iter().take(STARTS) {
            self.refine(start, all, singles, two)?;
        }
        Ok(())
    }

    /// Improves a choice by turns until no turn improves it.
    fn refine(&mut self, mut at: Found, all: &Axes, singles: &[Axes], two: bool) -> Result<(), Fault> {
        let three = pairs(self.task.model, 3) <= self.most;
        for _ in 0..ROUNDS {
            let first = self.rank(&at);
            let most = if three { 3 } else { 1 + usize::from(two) };
            for units in moves(self.mesh(), &at.before(), singles, most) {
                if self.is_over() {
                    return Ok(());
                }
                // While memory is above the limit, every turn must remove a tenth.
                let limit = self.limit.max(at.peak - at.peak / 10);
                let found = self.solve(&Turn::of(units, all), Some(&at.before()), limit, TURN)?;
                if let Some(found) = found.filter(|found| self.is_better(found, &at)) {
                    self.consider(&found);
                    at = found;
                }
            }
            if self.rank(&at) == first {
                break;
            }
        }
        Ok(())
    }

    fn solve(&mut self, turn: &Turn, before: Option<&Before>, limit: u64, work: u64) -> Result<Option<Found>, Fault> {
        // A turn without open axes has an answer at any time.
        let budget =
            if turn.units.is_empty() { Budget { work: Some(work), ..Budget::default() } } else { self.budget(work) };
        let found = self.task.solve(&mut self.prices, turn, before, limit, &budget)?;
        if let Some(found) = &found {
            self.spent += BUILT * found.pairs as u64 + if found.pairs > 0 { work / 4 } else { 0 };
        }
        Ok(found)
    }

    /// Budget of a problem within the remaining time.
    fn budget(&self, work: u64) -> Budget {
        match self.end.left() {
            None => Budget { work: Some(work), ..Budget::default() },
            Some(left) => {
                let time = left.mul_f64(0.3).min(Duration::from_nanos(2 * work));
                Budget { work: None, time: Some(time), ..Budget::default() }
            }
        }
    }

    fn is_over(&self) -> bool {
        self.end.left().map_or(self.spent > ALL, |left| left < LAST)
    }

    /// Rank of a solution: bytes above the limit, then seconds.
    fn rank(&self, found: &Found) -> (u64, f64) {
        (found.peak.max(self.limit), found.solution.cost)
    }

    fn is_better(&self, found: &Found, than: &Found) -> bool {
        let ((bytes, seconds), (most, least)) = (self.rank(found), self.rank(than));
        !found.solution.choice.is_empty() && (bytes < most || (bytes == most && seconds < least - GAIN * least.abs()))
    }

    /// Replaces the incumbent if the solution is better.
    fn consider(&mut self, found: &Found) {
        let is_first = self.best.is_none() && !found.solution.choice.is_empty();
        if is_first || self.best.as_ref().is_some_and(|best| self.is_better(found, best)) {
            self.best = Some(found.clone());
        }
        if let Some(best) = &self.best {
            let (seconds, peak, nodes) = (best.solution.cost, best.peak, best.nodes);
            (self.watch)(&Decided { seconds, bound: 0.0, is_proved: false, peak, nodes });
        }
    }
}

/// All axes as one unit, and as two units split at each position in mesh order.
fn coarse(all: &Axes) -> Vec<Vec<Axes>> {
    let mut turns = vec![vec![all.clone()]];
    for place in 1..all.len() {
        let (outer, inner) = all.as_slice().split_at(place);
        turns.push(two_units(outer, inner));
    }
    turns
}

/// Two units of these axes.
fn two_units(outer: &[AxisId], inner: &[AxisId]) -> Vec<Axes> {
    [outer, inner].iter().map(|unit| unit.iter().copied().collect()).collect()
}

/// Units of each turn from a choice. Axes of one size with equal use everywhere form a class, and one axis represents
/// the class. Turns use single axes, classes as units, and halves of a class.
fn moves(mesh: &Mesh, before: &Before, singles: &[Axes], most: usize) -> Vec<Vec<Axes>> {
    let classes = classes(mesh, before, singles);
    if most == 1 {
        return singles.iter().map(|single| vec![single.clone()]).collect();
    }
    let mut found: Vec<Vec<Axes>> = Vec::new();
    for (number, class) in classes.iter().enumerate() {
        for other in &classes[number + 1..] {
            add(&mut found, [class[0], other[0]].map(Axes::one).to_vec());
            add(&mut found, two_units(class, other));
        }
        if class.len() > 1 {
            add(&mut found, [class[0], class[1]].map(Axes::one).to_vec());
            let (outer, inner) = class.split_at(class.len() / 2);
            add(&mut found, two_units(outer, inner));
        }
    }
    if most >= 3 {
        // Up to three axes of one class, and one axis each of three classes.
        let firsts: Vec<(usize, AxisId)> = classes
            .iter()
            .enumerate()
            .flat_map(|(at, class)| class.iter().take(3).map(move |&axis| (at, axis)))
            .collect();
        let mut kinds: Vec<[usize; 3]> = Vec::new();
        for (i, a) in firsts.iter().enumerate() {
            for (j, b) in firsts.iter().enumerate().skip(i + 1) {
                for c in &firsts[j + 1..] {
                    let kind = [a.0, b.0, c.0];
                    if !kinds.contains(&kind) {
                        kinds.push(kind);
                        add(&mut found, [a.1, b.1, c.1].map(Axes::one).to_vec());
                    }
                }
            }
        }
    }
    found
}

/// Adds the units of a turn, unless a turn has them.
fn add(turns: &mut Vec<Vec<Axes>>, units: Vec<Axes>) {
    if !turns.contains(&units) {
        turns.push(units);
    }
}

fn classes(mesh: &Mesh, before: &Before, singles: &[Axes]) -> Vec<Vec<AxisId>> {
    let mut found: Vec<(u64, Vec<usize>, Vec<AxisId>)> = Vec::new();
    for axis in singles.iter().flat_map(Axes::iter) {
        let (size, does) = (mesh.axes[axis].size, does(before, axis));
        match found.iter_mut().find(|(known, same, _)| *known == size && *same == does) {
            Some((_, _, class)) => class.push(axis),
            None => found.push((size, does, vec![axis])),
        }
    }
    found.into_iter().map(|(_, _, class)| class).collect()
}

/// Use of an axis at every statement, as numbers in a fixed order.
fn does(before: &Before, axis: AxisId) -> Vec<usize> {
    let mut stmts: Vec<_> = before.stmts.iter().collect();
    stmts.sort_by_key(|(key, _)| **key);
    let of_stmts = stmts.into_iter().map(|(_, assignment)| {
        let passes = assignment.passing.as_ref().is_some_and(|passing| passing.partial.axes.contains(axis));
        let factor = assignment.factors.iter().position(|axes| axes.contains(axis));
        if passes { 1 } else { factor.map_or(0, |factor| 2 + factor) }
    });
    let mut values: Vec<_> = before.values.iter().collect();
    values.sort_by_key(|(key, _)| **key);
    let of_values = values.into_iter().map(|(_, sharding)| number(sharding.place(axis)));
    let mut params: Vec<_> = before.params.iter().collect();
    params.sort_by_key(|(key, _)| **key);
    let of_params = params
        .into_iter()
        .map(|(_, kept)| 2 * number(kept.sharding.place(axis)) + usize::from(kept.states.contains(axis)));
    of_stmts.chain(of_values).chain(of_params).collect()
}

/// Number of a use of an axis by a tensor.
fn number(place: Place) -> usize {
    match place {
        Place::Whole => 0,
        Place::Stored => 1,
        Place::Partial => 2,
        Place::Dim(dim) => 3 + dim,
    }
}
