//! Seconds of the sections of a block, whose statements run one by one or in groups.

use cost::{Platform, Scope};
use fusion::{Target, Unit, units};
use ir::costs::SectionSeconds;
use ir::graph::{Block, Model, SectionKind, Stmt};
use ir::ids::Value;
use ir::ops::Op;
use ir::saved::{gathered_values, saved_values};
use std::collections::{HashMap, HashSet};

/// Platform and model, on which the seconds of sections depend.
#[derive(Clone, Copy)]
pub(super) struct SectionTimer<'a> {
    pub(super) platform: &'a Platform<'a>,
    pub(super) model: &'a Model,
    /// True if statements run in groups.
    pub(super) fusion: bool,
}

impl SectionTimer<'_> {
    /// Returns the seconds of a forward.
    pub(super) fn forward(&self, block: &Block) -> SectionSeconds {
        let [seconds] = self.parts(block, [SectionKind::F], saved_values(block).forward);
        seconds
    }

    /// Returns the seconds of the parameters that stay gathered.
    pub(super) fn gather(&self, block: &Block) -> SectionSeconds {
        let [seconds] = self.parts(block, [SectionKind::G], gathered_values(block));
        seconds
    }

    /// Returns the seconds of both gradients, which are one body.
    pub(super) fn backward(&self, block: &Block) -> [SectionSeconds; 2] {
        let sums = block[SectionKind::W].stmts.iter().filter(|stmt| stmt.accumulate);
        let sums = sums.flat_map(|stmt| stmt.results.iter().copied()).collect();
        self.parts(block, [SectionKind::I, SectionKind::W], sums)
    }

    /// Returns the seconds of an update.
    pub(super) fn update(&self, block: &Block) -> SectionSeconds {
        let [seconds] = self.parts(block, [SectionKind::U], Vec::new());
        seconds
    }

    /// Returns the seconds of sections that follow each other in one body, which gives some values away. A group with statements of
    /// several sections takes time in each, in proportion to that of its statements alone.
    fn parts<const N: usize>(
        &self,
        block: &Block,
        sections: [SectionKind; N],
        given_away: Vec<Value>,
    ) -> [SectionSeconds; N] {
        let target = Target { platform: self.platform, scope: Scope::of(self.model, &block.values) };
        let mut section_of: HashMap<Value, usize> = HashMap::new();
        for (place, &kind) in sections.iter().enumerate() {
            section_of.extend(block[kind].stmts.iter().map(|stmt| (stmt.results[0], place)));
        }
        let stmts: Vec<Stmt> = sections.iter().flat_map(|&kind| block[kind].stmts.iter().cloned()).collect();
        let units = if self.fusion {
            let args = block.args.iter().map(|arg| arg.value);
            let returned = sections.iter().flat_map(|&kind| block[kind].args.iter().chain(&block[kind].ret).copied());
            units(target, args.chain(returned).chain(given_away).collect::<HashSet<Value>>(), &stmts)
        } else {
            stmts.into_iter().map(Unit::Stmt).collect()
        };
        let mut seconds = [SectionSeconds::default(); N];
        for unit in &units {
            let alone: Vec<f64> = unit.stmts().iter().map(|stmt| self.platform.stmt(target.scope, stmt)).collect();
            let (own, all) = (unit.seconds(target), alone.iter().sum::<f64>());
            for (stmt, alone) in unit.stmts().iter().zip(alone).filter(|(_, alone)| *alone > 0.0) {
                let of_section = &mut seconds[section_of[&stmt.results[0]]];
                let is_collective = matches!(stmt.op, Op::Collective(_));
                let part = if is_collective { &mut of_section.collectives } else { &mut of_section.compute };
                *part += own * alone / all;
            }
        }
        seconds
    }
}
