//! Registers and tokens of a row: `undefined`, `redefined`, `read-after-free`, `double-free`, `leak`, `in-flight`, `token`.

use super::{Reporter, Violation};
use crate::ids::{Reg, Token};
use crate::program::{Class, Instr, Transfer};
use std::collections::{HashMap, HashSet};

/// The effects of an instruction on registers.
#[derive(Default)]
struct Touches {
    reads: Vec<Reg>,
    changes: Vec<Reg>,
    defines: Vec<Reg>,
    frees: Vec<Reg>,
}

fn touches(instr: &Instr) -> Touches {
    let mut touches = Touches::default();
    match instr {
        Instr::Feed { out, .. } | Instr::LossGrad { out, .. } => touches.defines.push(*out),
        Instr::Run { args, bundles, results, keep, .. } => {
            touches.reads.extend(args.iter().chain(bundles));
            touches.defines.extend(results.iter().chain(keep));
        }
        Instr::Start { transfer, operand, .. } => match transfer {
            Transfer::Sum { .. } => touches.changes.extend(operand),
            _ => touches.reads.extend(operand),
        },
        Instr::Wait { result, .. } => touches.defines.extend(result),
        Instr::Add { into, from } => {
            touches.changes.push(*into);
            touches.reads.push(*from);
        }
        Instr::Out { reg, .. } => touches.reads.push(*reg),
        Instr::Free(regs) => touches.frees.extend(regs),
    }
    touches
}

#[derive(Default)]
struct RegisterState {
    defined: HashSet<Reg>,
    freed: HashSet<Reg>,
    in_flight: HashMap<Token, InFlight>,
    started: HashSet<Token>,
}

/// A transfer or run in flight.
struct InFlight {
    reads: Vec<Reg>,
    changes: Vec<Reg>,
    /// The results and the bundle of a run.
    gives: Vec<Reg>,
    is_run: bool,
}

pub(super) fn check(index: usize, class: &Class, found: &mut Vec<Violation>) {
    let mut state = RegisterState::default();
    for (at, instr) in class.instrs.iter().enumerate() {
        let mut reporter = Reporter::in_row(found, index, at);
        let touched = touches(instr);
        for &reg in touched.reads.iter().chain(&touched.changes).chain(&touched.frees) {
            if !state.defined.contains(&reg) {
                reporter.report("undefined", format!("{} is not defined here", class.reg_name(reg)));
            } else if state.freed.contains(&reg) {
                let what = if touched.frees.contains(&reg) { "double-free" } else { "read-after-free" };
                reporter.report(what, format!("{} has been freed", class.reg_name(reg)));
            }
        }
        let written = touched.changes.iter().chain(&touched.frees).filter(|reg| state.is_busy(**reg));
        for &reg in written.chain(touched.reads.iter().filter(|reg| state.is_changing(**reg))) {
            reporter.report("in-flight", format!("{} is used by a transfer or run in flight", class.reg_name(reg)));
        }
        for &reg in &touched.defines {
            if class.regs.get(reg).is_none() {
                reporter.report("undefined", format!("{reg} is not declared"));
            } else if !state.defined.insert(reg) {
                reporter.report("redefined", format!("{} is defined twice", class.reg_name(reg)));
            }
        }
        state.freed.extend(&touched.frees);
        tokens(instr, touched, &mut state, &mut reporter);
    }
    for (reg, _) in class.regs.iter().filter(|(reg, _)| state.defined.contains(reg) && !state.freed.contains(reg)) {
        found.push(Violation::in_row(
            "leak",
            index,
            class.instrs.len(),
            format!("{} is never freed", class.reg_name(reg)),
        ));
    }
    for token in state.in_flight.keys() {
        found.push(Violation::in_row("token", index, class.instrs.len(), format!("{token} has no wait")));
    }
}

fn tokens(instr: &Instr, touched: Touches, state: &mut RegisterState, reporter: &mut Reporter<'_>) {
    match instr {
        Instr::Start { token, transfer, operand } => {
            let receives = matches!(transfer, Transfer::Recv { .. } | Transfer::LoadStates { .. });
            let copies = transfer.is_host_copy() && !receives;
            let needs = copies || matches!(transfer, Transfer::Send { .. } | Transfer::Sum { .. });
            if needs && operand.is_none() || receives && operand.is_some() {
                reporter.report("token", format!("the transfer of {token} has a wrong operand"));
            }
            state.start(*token, touched, false, reporter);
        }
        Instr::Run { token: Some(token), .. } => state.start(*token, touched, true, reporter),
        Instr::Wait { token, result } => match state.in_flight.remove(token) {
            None => reporter.report("token", format!("{token} is not in flight")),
            Some(request) if request.is_run && result.is_some() => {
                reporter.report("token", format!("the wait for the run {token} has no result"));
            }
            Some(_) => {}
        },
        _ => {}
    }
}

impl RegisterState {
    /// True if an operation in flight changes a register or gives it.
    fn is_changing(&self, reg: Reg) -> bool {
        self.in_flight.values().any(|other| other.changes.contains(&reg) || other.gives.contains(&reg))
    }

    /// True if an operation in flight reads, changes or gives a register.
    fn is_busy(&self, reg: Reg) -> bool {
        self.is_changing(reg) || self.in_flight.values().any(|other| other.reads.contains(&reg))
    }
    fn start(&mut self, token: Token, touched: Touches, is_run: bool, reporter: &mut Reporter<'_>) {
        if !self.started.insert(token) {
            reporter.report("token", format!("{token} is started twice"));
        }
        let Touches { reads, changes, defines: gives, .. } = touched;
        self.in_flight.insert(token, InFlight { reads, changes, gives, is_run });
    }
}
