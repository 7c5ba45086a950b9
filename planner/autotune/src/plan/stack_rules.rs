//! Rules of a stack in the search: a node is left out once its decided options violate one.

use crate::search::Supported;
use cost::{EnumSet, RuleName, Supports};
use estimator::JobNumbers;
use ir::config_key::ConfigKey;

/// Rules of a stack on the decided options of configurations.
pub(super) fn supported(supports: Supports, job: JobNumbers) -> Supported {
    if supports.rules.is_empty() {
        return Box::new(|_, _| true);
    }
    let needed: Vec<EnumSet<ConfigKey>> =
        RuleName::ALL.iter().map(|(_, name)| name.keys().iter().copied().collect()).collect();
    Box::new(move |decided, parallel| {
        let numbers = job.known_under(parallel, |name| decided.contains_all(needed[name as usize]));
        supports.forbidden_by(&numbers).next().is_none()
    })
}
