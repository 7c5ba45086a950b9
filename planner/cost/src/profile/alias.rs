//! Collectives that a framework does without, and what it does instead: the plan states one way of what can be done in several.

use ir::entity::EntitySet;
use ir::graph::{Block, SectionKind, Stmt};
use ir::ids::Value;
use ir::mesh::Axes;
use ir::ops::{Collective, Op};
use std::collections::HashMap;

/// Values of a block by other values.
#[derive(Default)]
pub(super) struct Alias {
    /// What is never there as such, by the value in its place.
    pub(super) there: HashMap<Value, Value>,
    /// The collectives of these operands are all-to-alls.
    pub(super) exchanges: HashMap<Value, Exchange>,
    /// The collectives with these results are part of another, or not needed.
    pub(super) free: EntitySet<Value>,
    /// Of what the plan keeps of F, what frameworks keep instead.
    pub(super) instead: HashMap<Value, Value>,
}

/// An all-to-all of what a rank has of a value.
pub(super) struct Exchange {
    pub(super) value: Value,
    pub(super) over: Axes,
}

impl Alias {
    pub(super) fn of(block: &Block, keeps_gathered: bool) -> Alias {
        let mut alias = Alias::default();
        alias.paid(block, keeps_gathered);
        for section in [SectionKind::F, SectionKind::I] {
            alias.sent(block, section);
            alias.sent_back(block, section);
        }
        alias
    }

    /// A sum of W that I has paid; what F has exchanged, and, where gathered inputs are kept, gathered: that is kept.
    fn paid(&mut self, block: &Block, keeps_gathered: bool) {
        for stmt in &block[SectionKind::W].stmts {
            let operand = stmt.operands[0];
            let done = match &stmt.op {
                Op::Collective(Collective::AllReduce { .. }) => SectionKind::I,
                Op::Collective(Collective::AllToAll { .. }) => SectionKind::F,
                Op::Collective(Collective::AllGather { .. }) if keeps_gathered => SectionKind::F,
                _ => continue,
            };
            let (done, again) = (chain(block, done, operand), chain(block, SectionKind::W, operand));
            for ((done, _), (again, _)) in done.iter().zip(&again) {
                self.stands_for(again.results[0], done.results[0]);
            }
            if let Some((last, Collective::AllToAll { .. } | Collective::AllGather { .. })) = done.last() {
                self.instead.insert(operand, last.results[0]);
            }
        }
    }

    /// Exchanges over one axis after the other are one over all of them.
    fn sent(&mut self, block: &Block, section: SectionKind) {
        let is_exchange = |stmt: &Stmt| matches!(stmt.op, Op::Collective(Collective::AllToAll { .. }));
        for stmt in block[section].stmts.iter().filter(|stmt| is_exchange(stmt)) {
            let chain = chain(block, section, stmt.operands[0]);
            if !self.free.contains(stmt.results[0]) && chain.iter().all(|(stmt, _)| is_exchange(stmt)) {
                self.exchange(stmt.operands[0], stmt.operands[0], &chain);
            }
        }
    }

    /// Where each rank sums what its experts give for all tokens, frameworks send the results back and sum them where the
    /// tokens are (Lepikhin et al. 2020, section 3.3). There they stay for the gradient of the weights.
    fn sent_back(&mut self, block: &Block, section: SectionKind) {
        let combines = block[section].stmts.iter().filter(|stmt| stmt.op.name() == "combine");
        for combine in combines {
            let (given, results) = (combine.results[0], combine.operands[0]);
            let sums = chain(block, section, given);
            let Some((last, _)) = sums.last() else { continue };
            self.exchange(given, results, &sums);
            self.there.insert(given, last.results[0]);
            for &choice in &combine.operands[1..] {
                self.ungathered(block, section, choice);
            }
            if section == SectionKind::F {
                let summed = block[section].stmts.iter().find(|stmt| is_change(stmt) && stmt.results[0] == results);
                let given = summed.map_or(results, |stmt| stmt.operands[0]);
                for (again, _) in chain(block, SectionKind::I, given) {
                    self.stands_for(again.results[0], results);
                    self.instead.insert(given, results);
                }
            }
        }
    }

    /// What a chain of changes of `operand` moves is an exchange of `value`: the first of them is priced, the others are not.
    fn exchange(&mut self, operand: Value, value: Value, chain: &[(&Stmt, &Collective)]) {
        let over = chain.iter().fold(Axes::none(), |over, (_, collective)| over.union(collective.over())).sorted();
        self.exchanges.insert(operand, Exchange { value, over });
        for (stmt, _) in &chain[1..] {
            self.free.insert(stmt.results[0]);
        }
    }

    /// Choices that are gathered for a sum over all tokens stay where they are.
    fn ungathered(&mut self, block: &Block, section: SectionKind, value: Value) {
        let mut source = value;
        while let Some(gather) = block[section].stmts.iter().find(|stmt| is_gather(stmt) && stmt.results[0] == source) {
            self.free.insert(source);
            source = gather.operands[0];
        }
        if source != value {
            self.there.insert(value, source);
        }
    }

    fn stands_for(&mut self, result: Value, value: Value) {
        self.free.insert(result);
        self.there.insert(result, value);
    }
}

/// The change of layout of a value in a section.
fn change(block: &Block, section: SectionKind, value: Value) -> Option<(&Stmt, &Collective)> {
    block[section].stmts.iter().find_map(|stmt| match &stmt.op {
        Op::Collective(collective) if stmt.operands[0] == value && collective.communicates() => {
            Some((stmt, collective))
        }
        _ => None,
    })
}

/// The changes of layout of a value, one after the other.
fn chain(block: &Block, section: SectionKind, mut value: Value) -> Vec<(&Stmt, &Collective)> {
    let mut chain = Vec::new();
    while let Some((stmt, collective)) = change(block, section, value) {
        chain.push((stmt, collective));
        value = stmt.results[0];
    }
    chain
}

fn is_change(stmt: &Stmt) -> bool {
    matches!(stmt.op, Op::Collective(_))
}

fn is_gather(stmt: &Stmt) -> bool {
    matches!(stmt.op, Op::Collective(Collective::AllGather { .. }))
}
