//! Optimizer states in host memory: `states`.

use super::{Reporter, Violation};
use crate::ids::{Reg, Token};
use crate::program::{BodyKind, Instr, Program, Transfer};
use std::collections::{HashMap, HashSet};

/// A call and an instance.
type RunId = (usize, u32);

/// The states of a run on the device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StatesCopy {
    /// As they were in host memory.
    Loaded(RunId),
    /// As the run has changed them.
    Changed(RunId),
}

/// The states of each run of `U` that has some in host memory are loaded once, changed by the run alone, and stored once.
pub(super) fn check(program: &Program, index: usize, found: &mut Vec<Violation>) {
    let class = &program.classes[index];
    let mut copies: HashMap<Reg, StatesCopy> = HashMap::new();
    let mut loading: HashMap<Token, RunId> = HashMap::new();
    let (mut loaded, mut stored) = (HashSet::new(), HashSet::new());
    for (at, instr) in class.instrs.iter().enumerate() {
        let mut reporter = Reporter::in_row(found, index, at);
        match instr {
            Instr::Start { token, transfer: Transfer::LoadStates { call, instance, .. }, .. } => {
                if !loaded.insert((*call, *instance)) {
                    reporter
                        .report("states", format!("the states of call {call}, instance {instance} are loaded twice"));
                }
                loading.insert(*token, (*call, *instance));
            }
            Instr::Wait { token, result: Some(reg) } => {
                copies.extend(loading.remove(token).map(|run| (*reg, StatesCopy::Loaded(run))));
            }
            Instr::Run { body, call, instance, bundles, keep, .. } => {
                let run = (*call, *instance);
                let is_update = program.bodies[*body].kind == BodyKind::U;
                let mut given = bundles.iter().filter_map(|reg| Some((*reg, copies.get(reg)?)));
                if let Some((reg, _)) = given.find(|(_, copy)| !is_update || **copy != StatesCopy::Loaded(run)) {
                    reporter
                        .report("states", format!("{} has states, which are not for this run", class.reg_name(reg)));
                }
                if is_update && let Some(reg) = *keep {
                    if !bundles.iter().any(|reg| copies.get(reg) == Some(&StatesCopy::Loaded(run))) {
                        reporter.report("states", format!("`@{}` runs without its states", program.bodies[*body].name));
                    }
                    copies.insert(reg, StatesCopy::Changed(run));
                }
            }
            Instr::Start { transfer: Transfer::StoreStates { call, instance }, operand: Some(reg), .. } => {
                let run = (*call, *instance);
                if copies.get(reg) != Some(&StatesCopy::Changed(run)) {
                    reporter.report(
                        "states",
                        format!(
                            "{} has not the changed states of call {call}, instance {instance}",
                            class.reg_name(*reg)
                        ),
                    );
                }
                if !stored.insert(run) {
                    reporter
                        .report("states", format!("the states of call {call}, instance {instance} are stored twice"));
                }
            }
            Instr::Free(regs) => {
                for &reg in regs {
                    if let Some(StatesCopy::Changed(run)) = copies.remove(&reg)
                        && !stored.contains(&run)
                    {
                        reporter.report("states", format!("{} is freed before it is stored", class.reg_name(reg)));
                    }
                }
            }
            _ => {}
        }
    }
}
