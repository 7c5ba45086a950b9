//! Meshes of three and more axes are decided in turns, two axes at a time: what the others do stays as it was chosen last.

use super::graph::{Lying, Meaning};
use super::params::Kept;
use crate::reshard::layout::{Layout, Place};
use ir::graph::SectionKind;
use ir::ids::{AxisId, BlockId};
use ir::mesh::Axes;
use std::rc::Rc;

/// The most axes that are decided at once.
pub(super) const AT_ONCE: usize = 2;

/// What was chosen last.
pub(super) type Before = (Rc<Meaning>, Vec<usize>);

/// The axes that stay as they were; without a choice before, they do nothing.
#[derive(Clone, Default)]
pub(super) struct Fixed {
    /// Which.
    pub(super) axes: Axes,
    /// As they were where.
    pub(super) before: Option<Before>,
}

impl Fixed {
    /// Whether a strategy of a statement, by the layouts of its tensors, leaves the axes as they were.
    pub(super) fn keeps_stmt(
        &self,
        stmt: (BlockId, SectionKind, usize),
        operands: &[Layout],
        results: &[Layout],
    ) -> bool {
        let last = self.before.as_ref().map(|(meaning, choice)| {
            let (node, strategies) = &meaning.stmts[&stmt];
            &strategies[choice[*node]]
        });
        let last = |at: usize| {
            last.map(|last| if at < operands.len() { &last.operands[at] } else { &last.results[at - operands.len()] })
        };
        operands.iter().chain(results).enumerate().all(|(at, layout)| self.agrees(last(at), layout))
    }

    /// The layouts that leave the axes as they were; all, if a file states something else.
    pub(super) fn keep_lying(&self, what: Lying, layouts: Vec<Layout>) -> Vec<Layout> {
        let last = self.before.as_ref().and_then(|(meaning, choice)| {
            let (node, layouts) = meaning.lying.get(&what)?;
            Some(&layouts[choice[*node]])
        });
        let kept: Vec<Layout> = layouts.iter().filter(|layout| self.agrees(last, layout)).cloned().collect();
        if kept.is_empty() { layouts } else { kept }
    }

    /// The same of the ways to keep a class of parameters.
    pub(super) fn keep_params(&self, class: usize, ways: Vec<Kept>) -> Vec<Kept> {
        let last = self.before.as_ref().and_then(|(meaning, choice)| {
            let (node, ways) = meaning.params.get(&class)?;
            Some(&ways[choice[*node]])
        });
        let agrees = |way: &&Kept| {
            let states = self
                .axes
                .iter()
                .all(|axis| way.states.contains(axis) == last.is_some_and(|last| last.states.contains(axis)));
            states && self.agrees(last.map(|last| &last.layout), &way.layout)
        };
        let kept: Vec<Kept> = ways.iter().filter(agrees).cloned().collect();
        if kept.is_empty() { ways } else { kept }
    }

    fn agrees(&self, last: Option<&Layout>, layout: &Layout) -> bool {
        let was = |axis: AxisId| last.map_or(Place::Whole, |last| last.place(axis));
        self.axes.iter().all(|axis| layout.place(axis) == was(axis))
    }
}

/// The axes that stay fixed in each turn, so that every two are decided together once; none where all are decided at once.
pub(super) fn turns(axes: &Axes) -> Vec<Axes> {
    if axes.len() <= AT_ONCE {
        return vec![Axes::none()];
    }
    let all = axes.as_slice();
    let pairs = (0..all.len()).flat_map(|a| (a + 1..all.len()).map(move |b| (a, b)));
    pairs.map(|(a, b)| axes.iter().filter(|&axis| axis != all[a] && axis != all[b]).collect()).collect()
}
