//! Live ranges of a body's values, in positions of its instructions.

use ir::ids::{Token, Value};
use ir::program::{Body, BodyInstr, Source};
use std::collections::{BTreeMap, HashMap};

/// The end of what a body gives away.
pub(super) const FOREVER: usize = usize::MAX;

/// The life of a value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Life {
    /// The instruction that begins to write it: of a reshard its start, since results may come in from then on.
    pub(super) from: usize,
    /// The last instruction that reads it: of a reshard its wait.
    pub(super) read: usize,
    /// The first instruction at which it is gone.
    pub(super) to: usize,
}

/// The lives of the values of a body.
pub(super) struct Lives {
    /// Lifetimes of arguments and of all values that the body computes.
    pub(super) of: BTreeMap<Value, Life>,
    /// Lifetimes of the addends that waits add to gradient sums.
    pub(super) staged: Vec<(Value, Life)>,
}

impl Lives {
    pub(super) fn new(body: &Body) -> Lives {
        let given = Life { from: 0, read: 0, to: FOREVER };
        let mut of: BTreeMap<Value, Life> = body.args.iter().map(|arg| (arg.value, given)).collect();

        let mut staged = Vec::new();
        let mut started: HashMap<Token, (usize, &[Value])> = HashMap::new();
        let end = body.instrs.len();
        for (at, instr) in body.instrs.iter().enumerate() {
            match instr {
                BodyInstr::Compute(_) | BodyInstr::Fused(_) => {
                    instr.stmts().iter().for_each(|stmt| read(&mut of, &stmt.operands, at));
                    for &value in instr.defines() {
                        of.entry(value).or_insert(Life { from: at, read: at, to: end });
                    }
                }
                BodyInstr::Start { token, operands, .. } => {
                    read(&mut of, operands, at);
                    started.insert(*token, (at, operands));
                }
                BodyInstr::Wait { token, results } => {
                    let (from, operands) = started.remove(token).unwrap_or((at, &[]));
                    read(&mut of, operands, at);
                    for &value in results {
                        let life = Life { from, read: at, to: end };
                        if body.args.iter().any(|arg| arg.value == value && arg.source == Source::Gradient) {
                            staged.push((value, Life { to: at + 1, ..life }));
                        }
                        of.entry(value).or_insert(life);
                    }
                }
                BodyInstr::Free(values) => {
                    for value in values {
                        of.entry(*value).and_modify(|life| life.to = at);
                    }
                }
            }
        }
        for value in body.results.iter().chain(&body.keeps) {
            of.entry(*value).and_modify(|life| (life.read, life.to) = (FOREVER, FOREVER));
        }
        Lives { of, staged }
    }
}

fn read(of: &mut BTreeMap<Value, Life>, values: &[Value], at: usize) {
    for value in values {
        of.entry(*value).and_modify(|life| life.read = life.read.max(at));
    }
}
