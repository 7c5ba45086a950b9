//! Conditions of a framework's properties: the table `[conditions]` of a stack's file.

use crate::rules::{Rule, RuleName, RuleNumbers};
use serde::{Deserialize, Serialize};

/// Conditions on configurations under which a property of `[traits]` holds. A property without a condition always does.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Conditions {
    /// Exchanges of experts are hidden: `hides` with `ep`.
    pub exchanges: Option<Rule>,
    /// Kernels are replayed: `launch.graphs`.
    pub graphs: Option<Rule>,
}

/// Properties of a stack that do not hold in a configuration.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Refused {
    /// True if exchanges of experts are not hidden.
    pub exchanges: bool,
    /// True if kernels are launched one by one.
    pub graphs: bool,
}

impl Conditions {
    /// Properties that these numbers exclude, whatever the unknown numbers are.
    pub fn refused(&self, numbers: &RuleNumbers) -> Refused {
        Refused { exchanges: forbids(&self.exchanges, numbers), graphs: forbids(&self.graphs, numbers) }
    }

    /// Reports numbers that no configuration alone has.
    pub(crate) fn check(&self, complaints: &mut Vec<String>) {
        let names = [&self.exchanges, &self.graphs].into_iter().flatten().flat_map(Rule::names);
        let of_jobs = names.filter(|name| name.keys().is_empty() || *name == RuleName::Microbatches);
        complaints.extend(of_jobs.map(|name| {
            format!(
                "`conditions` names `{}`, which is a number of the job: conditions are on configurations",
                name.text()
            )
        }));
    }
}

/// True if a rule is there, and excludes the numbers.
fn forbids(rule: &Option<Rule>, numbers: &RuleNumbers) -> bool {
    rule.as_ref().is_some_and(|rule| rule.forbids(numbers))
}
