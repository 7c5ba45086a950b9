//! Collectives of a plan that a framework avoids or merges.

use ir::entity::EntitySet;
use ir::graph::{Block, SectionKind, Stmt};
use ir::ids::Value;
use ir::mesh::{Axes, Mesh};
use ir::ops::{Collective, KernelOp, Op};
use rustc_hash::FxHashMap;

/// Values of a block for which a framework uses other values.
#[derive(Default)]
pub(super) struct Alias {
    /// Values that do not exist, with the value that stands in for each.
    pub(super) there: FxHashMap<Value, Value>,
    /// First operands of consecutive all-to-alls, with the axes of all of them.
    pub(super) exchanges: FxHashMap<Value, Axes>,
    /// Results of collectives that are part of another collective, or not needed.
    pub(super) free: EntitySet<Value>,
    /// Saved values of F in the plan, with the value that a framework saves instead.
    pub(super) instead: FxHashMap<Value, Value>,
}

impl Alias {
    pub(super) fn of(block: &Block, mesh: &Mesh, keeps_gathered: bool) -> Alias {
        let mut alias = Alias::default();
        alias.kept(block, mesh, keeps_gathered);
        for section in [SectionKind::F, SectionKind::I] {
            alias.exchanged(block, mesh, section);
        }
        alias
    }

    /// A value that F has exchanged is saved exchanged, so W does not exchange it. With `keeps_gathered` the same holds for
    /// gathered values.
    fn kept(&mut self, block: &Block, mesh: &Mesh, keeps_gathered: bool) {
        for stmt in &block[SectionKind::W].stmts {
            let Some(&operand) = stmt.operands.first() else { continue };
            let is_kept = match &stmt.op {
                Op::Collective(Collective::AllGather { .. }) => keeps_gathered,
                _ => is_exchange(block, mesh, stmt),
            };
            if !is_kept {
                continue;
            }
            let (done, recomputed) = (chain(block, SectionKind::F, operand), chain(block, SectionKind::W, operand));
            for ((done, _), (recomputed, _)) in done.iter().zip(&recomputed) {
                self.stands_for(recomputed.results[0], done.results[0]);
            }
            let last =
                done.last().map(|&(last, collective)| (last, matches!(collective, Collective::AllGather { .. })));
            if let Some((last, gathers)) = last
                && (gathers || is_exchange(block, mesh, last))
            {
                self.instead.insert(operand, last.results[0]);
            }
        }
    }

    /// Consecutive exchanges are one exchange over all of their axes: the first has the entire cost, the others are free.
    fn exchanged(&mut self, block: &Block, mesh: &Mesh, section: SectionKind) {
        for stmt in block[section].stmts.iter().filter(|stmt| is_exchange(block, mesh, stmt)) {
            if self.free.contains(stmt.results[0]) {
                continue;
            }
            let mut chain = chain(block, section, stmt.operands[0]);
            chain.truncate(chain.iter().take_while(|(stmt, _)| is_exchange(block, mesh, stmt)).count());
            let over = chain.iter().fold(Axes::none(), |over, (_, collective)| over.union(collective.over()));
            self.exchanges.insert(stmt.operands[0], over.sorted());
            for (stmt, _) in chain.iter().skip(1) {
                self.free.insert(stmt.results[0]);
            }
        }
    }

    fn stands_for(&mut self, result: Value, value: Value) {
        self.free.insert(result);
        self.there.insert(result, value);
    }
}

/// Returns whether a statement is a collective that exchanges shards of one dim for shards of another.
pub(super) fn is_exchange(block: &Block, mesh: &Mesh, stmt: &Stmt) -> bool {
    matches!(&stmt.op, Op::Collective(collective) if collective.exchanges(block.ty(stmt.operands[0]), mesh))
}

/// Results of experts that only the gradient of the routing weights reads, in the forward and after each exchange of the
/// backward. If routing weights are applied between an expert's products, that gradient reads none of these results.
pub(super) fn weighed(block: &Block) -> EntitySet<Value> {
    let backward = [SectionKind::I, SectionKind::W].into_iter().flat_map(|section| &block[section].stmts);
    let mut weighed = EntitySet::new();
    for stmt in backward.clone().filter(|stmt| matches!(stmt.op, Op::Kernel(KernelOp::CombineDw(_)))) {
        let mut next = Some(stmt.operands[1]);
        while let Some(value) = next {
            if backward.clone().filter(|stmt| stmt.operands.contains(&value)).count() != 1 {
                break;
            }
            weighed.insert(value);
            let maker = backward.clone().find(|stmt| stmt.results.contains(&value));
            next = maker.filter(|stmt| matches!(stmt.op, Op::Collective(_))).map(|stmt| stmt.operands[0]);
        }
    }
    weighed
}

/// First reshard of a value in a section.
fn change(block: &Block, section: SectionKind, value: Value) -> Option<(&Stmt, &Collective)> {
    block[section].stmts.iter().find_map(|stmt| match &stmt.op {
        Op::Collective(collective) if stmt.operands[0] == value && collective.communicates() => {
            Some((stmt, collective))
        }
        _ => None,
    })
}

/// Consecutive reshards of a value in a section.
fn chain(block: &Block, section: SectionKind, mut value: Value) -> Vec<(&Stmt, &Collective)> {
    let mut chain = Vec::new();
    while let Some((stmt, collective)) = change(block, section, value) {
        chain.push((stmt, collective));
        value = stmt.results[0];
    }
    chain
}
