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
        let is_known = |name| is_of_job(name) || levels.iter().any(|level| decided(*level).contains(&name));
        supports.forbidden_by(&job.under(parallel).only(is_known)).next().is_none()
    })
}

/// Numbers of rules that a level of the search decides.
fn decided(level: Level) -> &'static [RuleName] {
    match level {
        Level::Degrees => &[RuleName::Dp, RuleName::Tp, RuleName::Pp, RuleName::Cp],
        Level::Axes => &[RuleName::Ep, RuleName::Etp],
        Level::SequenceSharding => &[RuleName::Sp, RuleName::Ring, RuleName::Ulysses],
        Level::Batch => &[RuleName::Mbs, RuleName::Microbatches],
        Level::Pipeline => &[RuleName::Pp, RuleName::Vp],
        Level::Shards => &[RuleName::Boundaries, RuleName::Zero, RuleName::Groups, RuleName::Gather],
        Level::Schedule => &[RuleName::Slices],
        Level::Offload => &[RuleName::Offload],
        Level::Complete => &[RuleName::Recompute],
        Level::Devices | Level::Layers => &[],
    }
}

/// Returns whether a number is that of the job or its model.
fn is_of_job(name: RuleName) -> bool {
    matches!(name, RuleName::Seq | RuleName::Layers | RuleName::KvHeads | RuleName::Experts)
}
