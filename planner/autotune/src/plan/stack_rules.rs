//! Rules of a stack in the search: a node is left out once its decided options violate one.

use crate::search::{Level, Supported};
use cost::{RuleName, Supports};
use estimator::JobNumbers;

/// Rules of a stack on the decided options of configurations.
pub(super) fn supported(supports: Supports, job: JobNumbers) -> Supported {
    if supports.rules.is_empty() {
        return Box::new(|_, _| true);
    }
    Box::new(move |levels, parallel| {
        let known = levels.iter().fold(bits(&OF_JOB), |known, level| known | bits(decided(*level)));
        let numbers = job.known_under(parallel, |name| known & 1 << name as u32 != 0);
        supports.forbidden_by(&numbers).next().is_none()
    })
}

/// A set of names, with a bit for each.
fn bits(names: &[RuleName]) -> u32 {
    names.iter().fold(0, |bits, &name| bits | 1 << name as u32)
}

/// Numbers of rules that a level of the search decides.
fn decided(level: Level) -> &'static [RuleName] {
    match level {
        Level::Degrees => &[RuleName::Dp, RuleName::Tp, RuleName::Pp, RuleName::Cp, RuleName::OffloadOptimizer],
        Level::Axes => &[RuleName::Ep, RuleName::Etp],
        Level::SequenceSharding => &[RuleName::Sp, RuleName::Ring, RuleName::Ulysses],
        Level::Batch => &[RuleName::Mbs, RuleName::Microbatches],
        Level::Pipeline => &[RuleName::Pp, RuleName::Vp],
        Level::Stages => &[RuleName::Boundaries],
        Level::Shards => &[RuleName::Zero, RuleName::Groups, RuleName::Gather],
        Level::Schedule => &[RuleName::Slices],
        Level::Offload => &[RuleName::Offload],
        Level::Complete => &[RuleName::Recompute],
        Level::Devices | Level::Layers => &[],
    }
}

/// Numbers of the job and of its model.
const OF_JOB: [RuleName; 4] = [RuleName::Seq, RuleName::Layers, RuleName::KvHeads, RuleName::Experts];
