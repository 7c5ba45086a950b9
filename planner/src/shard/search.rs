//! Which axes are decided when: all at once where that is small enough; else first all of them in two units, then, from the best
//! of these and from the answer of the rules, pairs and triples of axes while the others stay.

use super::sizes::pairs;
use super::turns::{Before, Turn};
use super::{Decided, Found, Task, Watch};
use crate::reshard::Site;
use crate::reshard::layout::Place;
use crate::shard::bound::bound;
use crate::shard::prices::Prices;
use core::time::Duration;
use ir::ids::AxisId;
use ir::mesh::{Axes, Mesh};
use solver::Status;
use solver::assign::{Budget, Deadline};

/// The most pairs of choices in the tables of one problem: some hundred megabytes with what the solver copies.
pub(super) const PAIRS: f64 = 6e6;

/// As many times more may be taken where there are no more than two axes: turns would decide one at a time.
const TWO: f64 = 4.0;

/// Steps of the solver for all axes at once, for each turn, for each group of the bound, and for all turns.
const AT_ONCE: u64 = 1_000_000_000;
const TURN: u64 = 200_000_000;
const GROUP: u64 = 100_000_000;
const ALL: u64 = 2_500_000_000;

/// Steps that count for each pair of choices while a problem is built.
const BUILT: u64 = 30;

/// Less time than this is no use to a turn.
const LAST: Duration = Duration::from_millis(50);

/// Rounds of turns from one start, and the starts from which there are turns.
const ROUNDS: usize = 6;
const STARTS: usize = 2;

/// The relative gain below which a turn counts as none.
const GAIN: f64 = 1e-6;

/// The search for the best choice on a mesh.
pub(super) struct Search<'a, 't> {
    pub(super) task: &'t Task<'a>,
    pub(super) prices: Prices<'a>,
    pub(super) limit: u64,
    /// When it must be over.
    pub(super) end: Deadline,
    /// Told of what is known after each problem.
    pub(super) watch: &'t mut Watch<'t>,
    pub(super) best: Option<Found>,
    /// Steps of the solver so far, in place of time.
    pub(super) spent: u64,
    /// The most pairs of choices of one problem.
    pub(super) most: f64,
}

impl<'a> Search<'a, '_> {
    /// The best choice that is found, and a bound on all.
    ///
    /// # Errors
    /// An op's rule does not fit its tensors: a fault.
    pub(super) fn run(mut self, rules: Option<Before>) -> Result<(Option<Found>, f64), String> {
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
    fn turns(&mut self, rules: Option<Before>, all: &Axes, singles: &[Axes]) -> Result<(), String> {
        let stay = Turn::of(Vec::new(), all);
        let mut starts: Vec<Found> = self.best.iter().cloned().collect();
        for before in [rules, Some(Before::default())].into_iter().flatten() {
            // The rules may lead to what no strategy does.
            if let Ok(Some(found)) = self.solve(&stay, Some(&before), u64::MAX, TURN) {
                starts.push(found);
            }
        }
        // Turns of fewer axes do not better what all have been searched for.
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

    /// Betters a choice by turns until none does.
    fn refine(&mut self, mut at: Found, all: &Axes, singles: &[Axes], two: bool) -> Result<(), String> {
        let three = pairs(self.task.model, 3) <= self.most;
        for _ in 0..ROUNDS {
            let first = self.rank(&at);
            let most = if three { 3 } else { 1 + usize::from(two) };
            for units in moves(self.mesh(), &at.before(), singles, most) {
                if self.is_over() {
                    return Ok(());
                }
                // Where it is still too much, every turn is to take a part away.
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

    fn solve(&mut self, turn: &Turn, before: Option<&Before>, limit: u64, work: u64) -> Result<Option<Found>, String> {
        // Where nothing is to be decided there is an answer however late it is.
        let budget =
            if turn.units.is_empty() { Budget { work: Some(work), ..Budget::default() } } else { self.budget(work) };
        let found = self.task.solve(&mut self.prices, turn, before, limit, &budget)?;
        if let Some(found) = &found {
            self.spent += BUILT * found.pairs as u64 + if found.pairs > 0 { work / 4 } else { 0 };
        }
        Ok(found)
    }

    /// What a problem may take of what is left.
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

    /// The bytes beyond the limit, then the seconds.
    fn rank(&self, found: &Found) -> (u64, f64) {
        (found.peak.max(self.limit), found.solution.cost)
    }

    fn is_better(&self, found: &Found, than: &Found) -> bool {
        let ((bytes, seconds), (most, least)) = (self.rank(found), self.rank(than));
        !found.solution.choice.is_empty() && (bytes < most || (bytes == most && seconds < least - GAIN * least.abs()))
    }

    /// Keeps what is better than the best.
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

/// All axes as one unit, and as two at each place in mesh order.
fn coarse(all: &Axes) -> Vec<Vec<Axes>> {
    let part = |axes: &[AxisId]| -> Axes { axes.iter().copied().collect() };
    let two = |place: usize| vec![part(&all.as_slice()[..place]), part(&all.as_slice()[place..])];
    std::iter::once(vec![all.clone()]).chain((1..all.len()).map(two)).collect()
}

/// The units of each turn from a choice. Axes of one size that do the same everywhere are a class, of which one stands for
/// all: turns of single axes, of classes as units, and of halves of a class.
fn moves(mesh: &Mesh, before: &Before, singles: &[Axes], most: usize) -> Vec<Vec<Axes>> {
    let classes = classes(mesh, before, singles);
    let mut found: Vec<Vec<Axes>> = Vec::new();
    let mut add = |units: Vec<Axes>| {
        if !found.contains(&units) {
            found.push(units);
        }
    };
    let one = |class: &[AxisId], place: usize| class.get(place).copied().map(Axes::one);
    let part = |class: &[AxisId]| -> Axes { class.iter().copied().collect() };
    if most == 1 {
        return singles.iter().map(|single| vec![single.clone()]).collect();
    }
    for (number, class) in classes.iter().enumerate() {
        for other in &classes[number + 1..] {
            add(vec![one(class, 0), one(other, 0)].into_iter().flatten().collect());
            add(vec![part(class), part(other)]);
        }
        if class.len() > 1 {
            add(vec![one(class, 0), one(class, 1)].into_iter().flatten().collect());
            let (outer, inner) = class.split_at(class.len() / 2);
            add(vec![part(outer), part(inner)]);
        }
    }
    if most >= 3 {
        // Up to three of a class, and of three classes one each.
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
                        add([a.1, b.1, c.1].map(Axes::one).to_vec());
                    }
                }
            }
        }
    }
    found
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

/// What an axis does everywhere, as numbers in a fixed order.
fn does(before: &Before, axis: AxisId) -> Vec<usize> {
    let at = |place: Place| match place {
        Place::Whole => 0,
        Place::Stored => 1,
        Place::Partial => 2,
        Place::Dim(dim) => 3 + dim,
    };
    let mut stmts: Vec<_> = before.stmts.iter().collect();
    stmts.sort_by_key(|(key, _)| **key);
    let of_stmts = stmts.into_iter().map(|(_, assignment)| {
        let passes = assignment.passing.as_ref().is_some_and(|passing| passing.partial.axes.contains(axis));
        let letter = assignment.letters.iter().position(|axes| axes.contains(axis));
        if passes { 1 } else { letter.map_or(0, |letter| 2 + letter) }
    });
    let mut lying: Vec<_> = before.lying.iter().collect();
    lying.sort_by_key(|(key, _)| **key);
    let of_lying = lying.into_iter().map(|(_, layout)| at(layout.place(axis)));
    let mut params: Vec<_> = before.params.iter().collect();
    params.sort_by_key(|(key, _)| **key);
    let of_params =
        params.into_iter().map(|(_, kept)| 2 * at(kept.layout.place(axis)) + usize::from(kept.states.contains(axis)));
    of_stmts.chain(of_lying).chain(of_params).collect()
}
