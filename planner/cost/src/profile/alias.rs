//! Collectives that a framework does without, and what it does instead: the plan states one way of what can be done in several.

use ir::graph::{Block, SectionKind, Stmt};
use ir::ids::Value;
use ir::ops::{Collective, Op};
use std::collections::HashMap;

/// Values of a block by other values.
#[derive(Default)]
pub(super) struct Alias {
    /// What needs no collective or is never there as such, by the value in its place.
    pub(super) there: HashMap<Value, Value>,
    /// Sums over experts' ranks, by the experts' results that go back to their tokens' ranks instead.
    pub(super) returned: HashMap<Value, Value>,
}

impl Alias {
    pub(super) fn of(block: &Block, keeps_gathered: bool) -> Alias {
        let mut alias = Alias::default();
        alias.paid(block, keeps_gathered);
        alias.sent_back(block);
        alias
    }

    /// A sum of W that I has paid, and, where gathered inputs are kept, a gather of W that F has done.
    fn paid(&mut self, block: &Block, keeps_gathered: bool) {
        for stmt in &block[SectionKind::W].stmts {
            let done = match &stmt.op {
                Op::Collective(Collective::AllReduce { .. }) => change(block, SectionKind::I, stmt.operands[0]),
                Op::Collective(Collective::AllGather { .. }) if keeps_gathered => {
                    change(block, SectionKind::F, stmt.operands[0])
                }
                _ => None,
            };
            if let Some(done) = done {
                self.there.extend(stmt.results.iter().copied().zip(done.results.iter().copied()));
            }
        }
    }

    /// Where each rank sums what its experts give for all tokens, frameworks send the results back by an all-to-all and sum
    /// them where the tokens are (Lepikhin et al. 2020, section 3.3). There they stay for the gradient of the weights.
    fn sent_back(&mut self, block: &Block) {
        for section in [SectionKind::F, SectionKind::I] {
            let stmts = &block[section].stmts;
            for combine in stmts.iter().filter(|stmt| stmt.op.name() == "combine") {
                let Some(sum) = change(block, section, combine.results[0]) else { continue };
                self.there.insert(combine.results[0], sum.results[0]);
                self.returned.insert(combine.results[0], combine.operands[0]);
                let gathers =
                    stmts.iter().filter(|stmt| is_gather(stmt) && combine.operands[1..].contains(&stmt.results[0]));
                self.there.extend(gathers.map(|gather| (gather.results[0], gather.operands[0])));
                if section == SectionKind::F {
                    let again = change(block, SectionKind::I, combine.operands[0]);
                    self.there.extend(again.map(|again| (again.results[0], combine.operands[0])));
                }
            }
        }
    }
}

/// The change of layout of a value in a section.
fn change(block: &Block, section: SectionKind, value: Value) -> Option<&Stmt> {
    let mut stmts = block[section].stmts.iter();
    stmts.find(|stmt| matches!(stmt.op, Op::Collective(_)) && stmt.operands[0] == value)
}

fn is_gather(stmt: &Stmt) -> bool {
    matches!(stmt.op, Op::Collective(Collective::AllGather { .. }))
}
