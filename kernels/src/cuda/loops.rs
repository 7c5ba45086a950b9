//! The loops over a row that a program needs: what each computes, what it reduces, and what later ones read of it.

use super::flat::{left, store};
use super::scope::{ELEMENT, IS_ALIGNED, Nest, ROW, SAVED, Scope, VECTOR};
use super::spell::{Spelling, spelling};
use crate::group::{Node, Program, Reduction};
use std::collections::BTreeSet;

/// The loops, without the number of threads that share them.
pub(super) struct Loops<'a> {
    pub(super) scope: Scope<'a>,
    /// The lines before all rows.
    pub(super) once: Vec<String>,
    pub(super) phases: Vec<Phase>,
    /// The values of which arrays are saved, from one loop to another.
    pub(super) saved: Vec<(usize, [usize; 2])>,
    /// The lines that write numbers of a row.
    pub(super) of_row: Vec<String>,
    /// The sums over rows.
    pub(super) sums: Vec<Sum>,
    /// Elements of a vector.
    pub(super) wide: usize,
    /// The names of the arguments that are read or written as vectors.
    pub(super) aligned: BTreeSet<String>,
}

/// A loop, and what comes before it.
#[derive(Default)]
pub(super) struct Phase {
    pub(super) row: Vec<String>,
    /// The lines before and behind the elements of a vector.
    pub(super) around: [Vec<String>; 2],
    pub(super) element: Vec<String>,
    pub(super) reduced: Vec<Reduced>,
}

/// A value that a loop reduces to, and the variable of its elements.
pub(super) struct Reduced {
    pub(super) value: usize,
    pub(super) kind: Reduction,
    pub(super) of: String,
}

/// A sum over rows.
pub(super) struct Sum {
    /// The out.
    pub(super) out: usize,
    pub(super) width: usize,
    /// Its first column among those of all sums.
    pub(super) column: usize,
    /// The variable that is summed, if it is a number of the row and not of its elements.
    pub(super) of_row: Option<String>,
}

impl<'a> Loops<'a> {
    /// The loops for rows of a number of elements, by vectors; with `saves`, later ones read registers where they can.
    pub(super) fn new(program: &'a Program, space: [usize; 2], wide: usize, saves: bool) -> Result<Loops<'a>, String> {
        let (needed, phase_of) = (needed(program), phases(program));
        let last = program.outs.iter().map(|out| phase_of[out.value]).max().unwrap_or(0);
        let scope = Scope::new(program, Some(space)).by_vectors(wide);
        let (once, phases, saved, of_row, sums) = Default::default();
        let mut loops = Loops { scope, once, phases, saved, of_row, sums, wide, aligned: BTreeSet::new() };
        let mut made: Vec<(usize, usize, String)> = Vec::new();
        for number in 0..=last {
            loops.scope.phase = number;
            let mut phase = Phase::default();
            for &value in needed.iter().filter(|&&value| phase_of[value] == number + 1) {
                if let Node::Reduce(kind, of, _) = program.values[value].node {
                    phase.reduced.push(Reduced { value, kind, of: loops.scope.at(of, ELEMENT)? });
                }
            }
            let stores =
                if number == last { loops.leave(program, space[0], space[1], &mut phase.around)? } else { Vec::new() };
            phase.row = loops.scope.take(Nest::Row);
            phase.element = loops.scope.take(Nest::Element);
            phase.element.extend(stores);
            let (inputs, lines) = loops.scope.take_vectors();
            loops.aligned.extend(inputs.iter().map(|number| format!("in{number}")));
            phase.around[0].extend(lines);
            for (value, name) in std::mem::take(&mut loops.scope.computed) {
                if saves {
                    loops.scope.saved.insert(value, None);
                }
                made.push((value, number, name));
            }
            phase.reduced.iter().for_each(|reduced| loops.scope.reduced(reduced.value));
            loops.scope.leave_loop();
            loops.phases.push(phase);
        }
        loops.once = loops.scope.take(Nest::Once);
        for (value, first, name) in made {
            if let Some(&Some(until)) = loops.scope.saved.get(&value) {
                loops.saved.push((value, [first, until]));
                loops.phases[first].element.push(format!("{SAVED}{value}[k] = {name};"));
            }
        }
        Ok(loops)
    }

    /// Evaluates what the program leaves, and gives the lines that write elements, or that collect them in vectors.
    fn leave(
        &mut self,
        program: &Program,
        rows: usize,
        width: usize,
        around: &mut [Vec<String>; 2],
    ) -> Result<Vec<String>, String> {
        let (mut stores, mut column) = (Vec::new(), 0);
        for (at, out) in program.outs.iter().enumerate() {
            let is_of_row = program.values[out.value].len == rows;
            let index = if is_of_row { ROW } else { ELEMENT };
            match out.columns {
                None => {
                    let value = self.scope.exact(out.value, index)?;
                    if self.wide > 1 && !is_of_row {
                        let (wide, Spelling { number, suffix, .. }) = (self.wide, spelling(out.element));
                        let to = format!("out{at} + {ROW} * {width}ull + {VECTOR}");
                        around[0].push(format!("{number} y{at}[{wide}];"));
                        around[1].push(format!("store_{wide}_{suffix}({to}, y{at}, {IS_ALIGNED});"));
                        self.aligned.insert(format!("out{at}"));
                        stores.push(format!("y{at}[p] = {};", left(program, at, index, &value)));
                        continue;
                    }
                    let lines = if is_of_row { &mut self.of_row } else { &mut stores };
                    lines.push(store(program, at, index, &value));
                }
                Some(width) => {
                    let value = self.scope.at(out.value, index)?;
                    if !is_of_row {
                        stores.push(format!("sum{at}[k] += {value};"));
                    }
                    self.sums.push(Sum { out: at, width, column, of_row: is_of_row.then_some(value) });
                    column += width;
                }
            }
        }
        Ok(stores)
    }

    /// The most arrays that are alive at a time.
    pub(super) fn live(&self) -> usize {
        let live = (0..self.phases.len())
            .map(|phase| self.saved.iter().filter(|(_, [from, to])| (*from..*to).contains(&phase)).count());
        live.max().unwrap_or(0)
    }

    /// True if a loop reduces rows.
    pub(super) fn reduces(&self) -> bool {
        self.phases.iter().any(|phase| !phase.reduced.is_empty())
    }
}

/// The values that outs need, in order.
pub(super) fn needed(program: &Program) -> Vec<usize> {
    let mut is_needed = vec![false; program.values.len()];
    program.outs.iter().for_each(|out| is_needed[out.value] = true);
    for at in (0..program.values.len()).rev() {
        if is_needed[at] {
            program.values[at].node.reads().into_iter().for_each(|read| is_needed[read] = true);
        }
    }
    (0..program.values.len()).filter(|&at| is_needed[at]).collect()
}

/// For each value, the first loop that can compute it: behind those that reduce what it reads.
fn phases(program: &Program) -> Vec<usize> {
    let mut phases: Vec<usize> = Vec::new();
    for value in &program.values {
        let read = value.node.reads().into_iter().map(|read| phases[read]).max().unwrap_or(0);
        phases.push(read + usize::from(matches!(value.node, Node::Reduce(..))));
    }
    phases
}
