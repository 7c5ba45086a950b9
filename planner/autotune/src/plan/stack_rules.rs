//! Rules of a stack in the search: a node is left out once its decided options violate one.

use crate::search::{Decided, Supported};
use cost::{EnumSet, Rule, RuleName, Supports};
use estimator::JobNumbers;
use ir::config_key::ConfigKey;
use ir::options::ParallelConfig;

/// A rule, and the keys of a configuration that it depends on.
struct KeyedRule {
    rule: Rule,
    keys: EnumSet<ConfigKey>,
}

impl KeyedRule {
    fn of(rule: &Rule) -> KeyedRule {
        let keys = rule.names().into_iter().map(keys_of).fold(EnumSet::default(), EnumSet::union);
        KeyedRule { rule: rule.clone(), keys }
    }
}

/// Keys that a number depends on.
fn keys_of(name: RuleName) -> EnumSet<ConfigKey> {
    name.keys().iter().copied().collect()
}

/// Rules of a stack on the decided options of configurations. A rule is looked at where one of its keys is decided.
pub(super) fn supported(supports: &Supports, job: JobNumbers) -> Supported {
    let rules: Vec<KeyedRule> = supports.rules.values().map(KeyedRule::of).collect();
    let fixed = job.known_under(&ParallelConfig::default(), |name| name.keys().is_empty());
    if rules.iter().any(|keyed| keyed.rule.forbids(&fixed)) {
        return Box::new(|_, _| false);
    }
    let needed: Vec<EnumSet<ConfigKey>> = RuleName::ALL.iter().map(|(_, name)| keys_of(*name)).collect();
    Box::new(move |Decided { all, new }, parallel| {
        let mut rules = rules.iter().filter(|keyed| keyed.keys.intersects(new)).peekable();
        if rules.peek().is_none() {
            return true;
        }
        let numbers = job.known_under(parallel, |name| all.contains_all(needed[name as usize]));
        !rules.any(|keyed| keyed.rule.forbids(&numbers))
    })
}
