//! The best pattern as a mixed-integer program whose size does not depend on the number of micro-batches.

use super::pattern::Pattern;
use super::shape::Shape;

use solver::{Limits, Program, Relation, Status, Var};
use std::collections::HashMap;

/// Result of the program.
#[derive(Clone, Debug)]
pub(super) struct Solved {
    pub(super) pattern: Pattern,
    /// True if no pattern of this shape has a shorter period.
    pub(super) proved: bool,
}

/// Returns the number of integer variables in the program of a shape.
pub(super) fn size(shape: &Shape) -> usize {
    shape.of_rank.iter().map(|classes| classes.len() * classes.len().saturating_sub(1) / 2).sum()
}

/// Finds the pattern of the shortest period, starting from a known pattern.
///
/// Time is counted in periods, x = start / period, and the objective is the rate ρ = 1 / period, so that all is linear:
///
/// - a class after another on the path: `x' >= x + (d + hop) ρ`;
/// - two classes of a rank, with an integer k: `d ρ <= x' - x + k <= 1 - d' ρ`: no overlap modulo the period, and -k whole
///   periods between the starts;
/// - memory at each F, a sum over the k of its rank (see [`Pattern::memory`]).
///
/// (Eichenberger and Davidson 1997, "Efficient formulation for optimal modulo schedulers", has the same unknowns with time
/// divided into slots.)
pub(super) fn solve(shape: &Shape, known: &Pattern, limits: &Limits) -> Solved {
    let mut model = Model::new(shape, known);
    for rank in 0..shape.ranks {
        model.no_overlap(rank);
        if shape.limit[rank].is_finite() {
            model.memory(rank);
        }
    }
    let answer = model.program.solve(limits, Some(&model.values));
    let Some(rate) = answer.values.get(model.rate.index()).copied().filter(|&rate| rate > 0.0) else {
        return Solved { pattern: known.clone(), proved: false };
    };
    let start = model.starts.iter().map(|var| answer.values[var.index()] / rate).collect();
    let pattern = Pattern { period: 1.0 / rate, start };
    let proved = answer.status == Status::Optimal;
    if pattern.period < known.period && pattern.fits(shape) {
        Solved { pattern, proved }
    } else {
        Solved { pattern: known.clone(), proved: proved && answer.objective >= -1.0 / known.period * (1.0 + 1e-6) }
    }
}

struct Model<'a> {
    shape: &'a Shape,
    known: &'a Pattern,
    program: Program,
    rate: Var,
    starts: Vec<Var>,
    /// Integer k of two classes of a rank, the smaller index first.
    between: HashMap<(usize, usize), Var>,
    /// The known pattern as an assignment.
    values: Vec<f64>,
}

impl<'a> Model<'a> {
    fn new(shape: &'a Shape, known: &'a Pattern) -> Model<'a> {
        let mut program = Program::new();
        let rate = program.real(0.0, 1.0 / shape.load(), -1.0);
        let least = known.start.iter().copied().fold(f64::INFINITY, f64::min);
        let latest = known.start.iter().copied().fold(0.0, f64::max) - least;
        let horizon = 2.0 * latest / known.period + 2.0;
        let starts: Vec<Var> = known.start.iter().map(|_| program.real(0.0, horizon, 0.0)).collect();
        let mut values = vec![1.0 / known.period];
        values.extend(known.start.iter().map(|start| (start - least) / known.period));
        for (class, of) in shape.classes.iter().enumerate() {
            let before = if !shape.on_path(class) {
                class - shape.stages
            } else if class % shape.per_stream > 0 {
                class - 1
            } else {
                continue;
            };
            let seconds = shape.classes[before].seconds + if shape.on_path(class) { of.hop } else { 0.0 };
            program.constrain([(starts[class], 1.0), (starts[before], -1.0), (rate, -seconds)], Relation::Ge, 0.0);
        }
        Model { shape, known, program, rate, starts, between: HashMap::new(), values }
    }

    fn no_overlap(&mut self, rank: usize) {
        let classes = &self.shape.of_rank[rank];
        for (at, &a) in classes.iter().enumerate() {
            for &b in &classes[at + 1..] {
                let whole = -self.known.periods(a, self.known.start[b]);
                let most = (2.0 * whole.abs() + 2.0) as i32;
                let k = self.program.integer(-most, most, 0.0);
                self.values.push(whole);
                let apart = [(self.starts[b], 1.0), (self.starts[a], -1.0), (k, 1.0)];
                let (one, other) = (self.shape.classes[a].seconds, self.shape.classes[b].seconds);
                self.program.constrain(apart.into_iter().chain([(self.rate, -one)]), Relation::Ge, 0.0);
                self.program.constrain(apart.into_iter().chain([(self.rate, other)]), Relation::Le, 1.0);
                self.between.insert((a, b), k);
            }
        }
    }

    /// Constrains the memory at each F. Each stage and stream contributes its started F times the memory taken, less its ended
    /// I and W times the memory freed.
    fn memory(&mut self, rank: usize) {
        let classes = &self.shape.of_rank[rank];
        let mut rows = Vec::new();
        for at in self.shape.forwards(rank) {
            let (mut terms, mut constant) = (Vec::new(), 0.0);
            for &class in classes.iter().filter(|&&class| class != at) {
                let stated = &self.shape.classes[class];
                let each = stated.takes - stated.frees; // the number of starts up to `at` is -k(class, at) = k(at, class) - 1
                match self.between.get(&(class, at)) {
                    Some(&k) => terms.push((k, -each)),
                    None => {
                        terms.push((self.between[&(at, class)], each));
                        constant -= each;
                    }
                }
            }
            rows.push((terms, self.shape.limit[rank] - constant));
        }
        for (terms, right) in rows {
            self.program.constrain(terms, Relation::Le, right);
        }
    }
}
