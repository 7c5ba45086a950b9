//! Bundles in device and host memory: `offload`.

use super::{Reporter, Violation};
use crate::ids::{Reg, Token};
use crate::program::{Class, Instr, Transfer};
use std::collections::HashMap;

/// The memory that a bundle is in, and its loads so far.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Home {
    Device,
    Host { loads: usize },
}

/// Runs and offloads read bundles of device memory; loads read bundles of host memory, each once.
pub(super) fn check(index: usize, class: &Class, found: &mut Vec<Violation>) {
    let mut homes: HashMap<Reg, Home> = HashMap::new();
    let mut copies: HashMap<Token, Home> = HashMap::new();
    for (at, instr) in class.instrs.iter().enumerate() {
        let mut reporter = Reporter::in_row(found, index, at);
        match instr {
            Instr::Run { bundles, keep, .. } => {
                let away = bundles.iter().filter(|reg| matches!(homes.get(reg), Some(Home::Host { .. })));
                away.for_each(|&reg| {
                    reporter.report("offload", format!("{} is read, but it is in host memory", class.reg_name(reg)))
                });
                homes.extend(keep.map(|reg| (reg, Home::Device)));
            }
            Instr::Start { token, transfer: Transfer::Offload, operand: Some(reg) } => {
                if homes.get(reg) != Some(&Home::Device) {
                    reporter.report(
                        "offload",
                        format!("{} is offloaded, but it is not in device memory", class.reg_name(*reg)),
                    );
                }
                copies.insert(*token, Home::Host { loads: 0 });
            }
            Instr::Start { token, transfer: Transfer::Load, operand: Some(reg) } => {
                match homes.get_mut(reg) {
                    Some(Home::Host { loads }) => *loads += 1,
                    _ => reporter
                        .report("offload", format!("{} is loaded, but it is not in host memory", class.reg_name(*reg))),
                }
                copies.insert(*token, Home::Device);
            }
            Instr::Start { token, transfer: Transfer::LoadStates { .. }, .. } => {
                copies.insert(*token, Home::Device);
            }
            Instr::Wait { token, result: Some(reg) } => {
                homes.extend(copies.remove(token).map(|home| (*reg, home)));
            }
            Instr::Free(regs) => {
                for &reg in regs {
                    if let Some(Home::Host { loads }) =
                        homes.get(&reg).filter(|home| !matches!(home, Home::Host { loads: 1 }))
                    {
                        reporter.report(
                            "offload",
                            format!("{} is freed after {loads} loads, not one", class.reg_name(reg)),
                        );
                    }
                }
            }
            _ => {}
        }
    }
}
