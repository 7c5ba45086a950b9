//! Copies of optimizer states that are in host memory: they are loaded before their update and stored after it. While a block
//! updates, the states of the next one come and those of the one before leave. The first come while the step graph waits for the
//! gradients of all ranks.

use super::Bodies;
use super::stream::StreamBuilder;
use ir::ids::{BodyId, Reg, Token};
use ir::program::{Instr, Transfer};
use std::collections::VecDeque;

/// The copies of a row.
#[derive(Debug, Default)]
pub(super) struct HostStates {
    /// The runs whose states are still to be loaded, each with its `U`; none before the first load.
    left: Option<VecDeque<(usize, BodyId)>>,
    /// The load on its way.
    loading: Option<Token>,
    /// The store on its way, and the bundle that it copies.
    storing: Option<(Token, Reg)>,
}

impl StreamBuilder<'_> {
    /// Starts the first load of states.
    pub(super) fn begin_states(&mut self, bodies: &Bodies) {
        if self.states.left.is_none() {
            let updates = self.updates(bodies).into_iter();
            self.states.left = Some(updates.filter(|&(_, body)| !bodies.all[body].keeps.is_empty()).collect());
            self.load_states();
        }
    }

    fn load_states(&mut self) {
        let Some((index, body)) = self.states.left.as_mut().and_then(VecDeque::pop_front) else { return };
        let run = &self.flow.runs[index];
        let transfer = Transfer::LoadStates { body, call: run.call, instance: run.instance };
        self.states.loading = Some(self.start(transfer, None));
    }

    /// The states of a run, which are there; those of the next one are on their way.
    pub(super) fn loaded_states(&mut self, index: usize) -> Option<Reg> {
        let token = self.states.loading.take()?;
        let reg = self.reg(format!("{}.states", self.flow.runs[index].name), None);
        self.instrs.push(Instr::Wait { token, result: Some(reg) });
        self.load_states();
        Some(reg)
    }

    /// Starts to store the states of a run; those of the one before have left.
    pub(super) fn store_states(&mut self, index: usize, states: Reg) {
        self.stored_states();
        let run = &self.flow.runs[index];
        let transfer = Transfer::StoreStates { call: run.call, instance: run.instance };
        let token = self.start(transfer, Some(states));
        self.states.storing = Some((token, states));
    }

    /// Waits until the states of the last update have left.
    pub(super) fn stored_states(&mut self) {
        if let Some((token, states)) = self.states.storing.take() {
            self.instrs.push(Instr::Wait { token, result: None });
            self.release(states);
            self.free();
        }
    }
}
