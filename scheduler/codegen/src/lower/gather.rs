//! Parameters that stay gathered, in an instruction stream. Every `G` of a rank starts with the row, in the order of its first
//! readers, so that it overlaps with receives and with the first forwards. The row waits for it at its first reader, and frees the
//! bundle after the last one.

use super::Bodies;
use super::flow::Flow;
use super::stream::{Invocation, StreamBuilder};
use ir::ids::{BlockId, BodyId, Reg, Token};
use ir::program::{BodyKind, Instr, Source};
use ir::schedule::{Action, Kind};
use std::collections::HashMap;

/// The bundles of `G` on a rank, by run.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    /// The runs in the order of their first readers, each with the number of bodies that read its bundle.
    readers: Vec<(usize, usize)>,
    held: HashMap<usize, Held>,
}

/// The bundle of a run's `G`.
#[derive(Debug)]
struct Held {
    bundle: Reg,
    /// The start that the row has not waited for.
    started: Option<Token>,
    /// Bodies that are still to read it.
    left: usize,
}

impl Gathered {
    /// The bundles that a row of actions reads.
    pub(super) fn new(flow: &Flow<'_>, bodies: &Bodies, actions: &[Action]) -> Gathered {
        let (mut readers, mut place) = (Vec::new(), HashMap::new());
        for item in actions.iter().flat_map(Action::items).filter(|item| item.microbatch.is_some()) {
            for run in flow.runs_of(&item) {
                let reading = bodies.reading_gathered(flow.runs[run].block, item.kind);
                let at = if reading > 0 { *place.entry(run).or_insert(readers.len()) } else { continue };
                if at == readers.len() {
                    readers.push((run, 0));
                }
                readers[at].1 += reading;
            }
        }
        Gathered { readers, held: HashMap::new() }
    }
}

impl Bodies {
    /// Number of bodies of a block that read a value of its `G` in an action.
    fn reading_gathered(&self, block: BlockId, kind: Kind) -> usize {
        let parts: &[BodyKind] = match kind {
            Kind::F => &[BodyKind::F],
            Kind::I => &[BodyKind::I],
            Kind::W => &[BodyKind::W],
            Kind::B if self.get(block, BodyKind::B).is_some() => &[BodyKind::B],
            _ => &[BodyKind::I, BodyKind::W],
        };
        let bodies = parts.iter().filter_map(|&part| self.get(block, part));
        bodies.filter(|&body| self.reads_gathered(block, body)).count()
    }

    /// True if a body reads a value of its block's `G`.
    fn reads_gathered(&self, block: BlockId, body: BodyId) -> bool {
        let gathered = self.get(block, BodyKind::G).map(|gather| &self.all[gather].keeps);
        let mut saved = self.all[body].args.iter().filter(|arg| arg.source == Source::Saved);
        gathered.is_some_and(|gathered| saved.any(|arg| gathered.contains(&arg.value)))
    }
}

impl StreamBuilder<'_> {
    /// Starts every `G` of the row.
    pub(super) fn gather(&mut self, bodies: &Bodies) {
        for (index, left) in std::mem::take(&mut self.gathered.readers) {
            let run = &self.flow.runs[index];
            let Some(body) = bodies.get(run.block, BodyKind::G) else { continue };
            let bundle = self.reg(format!("{}.G", run.name), None);
            let (call, instance, keep) = (run.call, run.instance, Some(bundle));
            let token = self.start_run(body, Invocation { call, instance, keep, ..Invocation::default() });
            self.gathered.held.insert(index, Held { bundle, started: Some(token), left });
        }
    }

    /// The bundle of a run's `G`, if the body reads it. The row has waited for it.
    pub(super) fn gathered_for(&mut self, bodies: &Bodies, run: usize, body: BodyId) -> Option<Reg> {
        let held = self.gathered.held.get_mut(&run)?;
        if !bodies.reads_gathered(self.flow.runs[run].block, body) {
            return None;
        }
        let started = held.started.take();
        self.instrs.extend(started.map(|token| Instr::Wait { token, result: None }));
        Some(held.bundle)
    }

    /// A body has read what a run has gathered; the last one releases it.
    pub(super) fn gathered_read(&mut self, run: usize, gathered: Option<Reg>) {
        let (Some(bundle), Some(held)) = (gathered, self.gathered.held.get_mut(&run)) else { return };
        held.left -= 1;
        if held.left == 0 {
            self.gathered.held.remove(&run);
            self.release(bundle);
        }
    }
}
