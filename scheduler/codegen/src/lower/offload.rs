//! Copies of saved activations to host memory and back: which bundles are copied, and when each copy starts and ends.
//!
//! Bundles are copied block by block, so that a rank without a pipeline gains too. The copy to the host starts after the run
//! that saves, and the row waits for it after the next run; the copy back starts one run before the one that reads. Thus one
//! copy each way goes on while a block computes. A bundle that would be on the device all the time stays there.

use super::Bodies;
use super::flow::Flow;
use super::stream::{StreamBuilder, ValueKey};
use ir::graph::Model;
use ir::ids::{Reg, Token};
use ir::program::{BodyKind, Instr, Transfer};
use ir::schedule::{Action, Kind};
use std::collections::HashMap;

/// The fewest runs from one that saves to the one that reads for which a copy saves memory: during the first the bundle leaves,
/// during the last it comes back, and in between it is away for one at least.
const LEAST: usize = 4;

/// The copies of a row, by the position of a run among all runs of its micro-batches.
#[derive(Debug, Default)]
pub(super) struct HostCopies {
    /// The bundle whose offload starts after the run.
    offloads: HashMap<usize, ValueKey>,
    /// The bundle whose load starts before the run.
    loads: HashMap<usize, ValueKey>,
    /// The run that is next.
    next: usize,
    /// The copy on its way in each direction.
    offloading: Option<(ValueKey, Token)>,
    loading: Option<(ValueKey, Token)>,
}

impl HostCopies {
    /// The copies of a row of actions.
    pub(super) fn new(model: &Model, flow: &Flow<'_>, bodies: &Bodies, actions: &[Action]) -> HostCopies {
        let mut copies = HostCopies::default();
        let (mut saved, mut position) = (HashMap::new(), 0);
        for item in actions.iter().flat_map(Action::items) {
            let Some(mb) = item.microbatch else { continue };
            let mut runs = flow.runs_of(&item);
            if item.kind != Kind::F {
                runs.reverse();
            }
            for index in runs {
                let run = &flow.runs[index];
                let body = bodies.get(run.block, BodyKind::F).filter(|_| model.calls[run.call].offload);
                let key = ValueKey::Forward(index, mb);
                match item.kind {
                    Kind::F if body.is_some_and(|body| !bodies.all[body].keeps.is_empty()) => {
                        saved.insert(key, position);
                    }
                    Kind::I | Kind::B => {
                        if let Some(made) = saved.remove(&key).filter(|made| position - made >= LEAST) {
                            copies.offloads.insert(made, key);
                            copies.loads.insert(position - 1, key);
                        }
                    }
                    _ => {}
                }
                position += 1;
            }
        }
        copies
    }
}

impl StreamBuilder<'_> {
    /// Before a run of a micro-batch: what it reads is there, and what the next one reads is on its way.
    pub(super) fn before_run(&mut self) {
        if let Some((key, token)) = self.copies.loading.take() {
            let host = self.held[&key];
            let name = self.regs[host].name.replace(HOST, LOADED);
            self.copied(key, token, host, name);
        }
        if let Some(key) = self.copies.loads.get(&self.copies.next).copied() {
            let token = self.start(Transfer::Load, Some(self.held[&key]));
            self.copies.loading = Some((key, token));
        }
    }

    /// After a run of a micro-batch: what the one before it saved has left, and what it saved itself is leaving.
    pub(super) fn after_run(&mut self) {
        if let Some((key, token)) = self.copies.offloading.take() {
            let device = self.held[&key];
            let name = format!("{}{HOST}", self.regs[device].name);
            self.copied(key, token, device, name);
        }
        if let Some(key) = self.copies.offloads.get(&self.copies.next).copied() {
            let token = self.start(Transfer::Offload, Some(self.held[&key]));
            self.copies.offloading = Some((key, token));
        }
        self.copies.next += 1;
    }

    /// The copy takes the place of what was copied.
    fn copied(&mut self, key: ValueKey, token: Token, from: Reg, name: String) {
        let copy = self.reg(name, None);
        self.instrs.push(Instr::Wait { token, result: Some(copy) });
        self.held.insert(key, copy);
        self.release(from);
        self.free();
    }
}

/// The ends of the names of a bundle's copies.
const HOST: &str = ".host";
const LOADED: &str = ".loaded";
