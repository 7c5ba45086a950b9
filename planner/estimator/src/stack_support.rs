//! Parts of a configuration that a stack does not support.

use super::error::Error;
use super::job_numbers::JobNumbers;
use super::support_row::{SupportRow, lacks};
use compiler::parallel::{self, Pins};
use cost::{Device, RuleName, STACKS, Stack};
use ir::config_key::ConfigKey;
use ir::options::ParallelConfig;
use serde::{Deserialize, Serialize};

/// A part of a configuration that a stack does not support.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Beyond {
    /// An option, as `schedule=zb-v`, or the condition of a rule, as `cp == 1 || seq % (2 * cp) == 0`.
    pub item: String,
    /// Source of the limit, as the stack's file states it.
    pub source: String,
}

/// Parts of a configuration that a stack does not support. Options without effect, such as the schedule of one stage, are left
/// out.
pub fn beyond(parallel: &ParallelConfig, stack: &Stack, job: &JobNumbers) -> Vec<Beyond> {
    let mut found = options_beyond(parallel, stack);
    let supports = &stack.supports;
    let of = |(name, rule): (&str, &cost::Rule)| Beyond {
        item: rule.text().to_string(),
        source: supports.source(name).to_string(),
    };
    found.extend(supports.forbidden_by(&job.under(parallel)).map(of));
    found
}

/// Options that a stack does not support, each by itself.
fn options_beyond(parallel: &ParallelConfig, stack: &Stack) -> Vec<Beyond> {
    let lacks = |key: ConfigKey| {
        let entry = lacks(key, parallel, &stack.supports)?;
        Some(Beyond { item: said(key, parallel), source: stack.supports.source(entry).to_string() })
    };
    ConfigKey::ALL.into_iter().filter_map(lacks).collect()
}

/// An option as text; of boundaries only the key.
fn said(key: ConfigKey, parallel: &ParallelConfig) -> String {
    if key == ConfigKey::Stages { key.to_string() } else { parallel::item(key, parallel) }
}

/// Names of the preset stacks that run on a device.
pub(super) fn stacks_on(device: &Device) -> Vec<String> {
    let presets = STACKS.iter().filter_map(|preset| Stack::find(preset.name).ok());
    presets.filter(|stack| stack.supports.vendor(device.vendor.as_deref())).map(|stack| stack.name).collect()
}

/// Checks that a stack supports all pins.
///
/// # Errors
/// The stack does not support a pin, a rule forbids the pins for the job, or the pins are not a configuration.
pub fn check_pins(pins: &str, stack: &Stack, job: &JobNumbers) -> Result<(), Error> {
    let pins = Pins::parse(pins)?;
    let sets = pins.each_value();
    [pins.fixed_text()].iter().chain(&sets).try_for_each(|pins| check_values(pins, stack, job))
}

/// Checks that a stack supports all pins, each of one value.
fn check_values(pins: &str, stack: &Stack, job: &JobNumbers) -> Result<(), Error> {
    let names = parallel::keys(pins)?;
    let keys: Vec<ConfigKey> = names.iter().filter_map(|name| ConfigKey::of_name(name)).collect();
    check_rules(pins, &keys, stack, job)?;
    // Open degrees may be greater than 1.
    let open = DEGREES.into_iter().filter(|key| !keys.contains(key));
    let open: Vec<String> = open.map(|key| format!("{key}=2")).collect();
    let pinned = parallel::parse_any(&parallel::pinned(&open.join(","), pins))?;
    let lacking = ConfigKey::ALL.into_iter().filter(|key| keys.contains(key)).find_map(|key| {
        let entry = lacks(key, &pinned, &stack.supports)?;
        Some((key, entry))
    });
    let Some((key, entry)) = lacking else { return Ok(()) };
    // A stack without pipelines supports no schedule, but lacks none.
    let SupportRow { needs, supported, .. } = SupportRow::of(key);
    let has = |other: &Stack| {
        lacks(key, &pinned, &other.supports).is_none() && needs.is_none_or(|degree| other.supports.degree(degree))
    };
    let others = STACKS.iter().filter_map(|preset| Stack::find(preset.name).ok());
    Err(Error::BeyondStack {
        item: said(key, &pinned),
        stated: stack.supports.source(entry).to_string(),
        stack: stack.name.clone(),
        supported: supported(&stack.supports),
        others: others.filter(has).map(|other| other.name).collect(),
    })
}

/// Degrees that pins may leave open.
const DEGREES: [ConfigKey; 4] = [ConfigKey::Dp, ConfigKey::Tp, ConfigKey::Pp, ConfigKey::Cp];

/// Checks that no rule forbids the pins for the job, whatever the other options are.
fn check_rules(pins: &str, keys: &[ConfigKey], stack: &Stack, job: &JobNumbers) -> Result<(), Error> {
    if keys.is_empty() {
        return Ok(());
    }
    let is_known = |name: RuleName| name.keys().iter().all(|key| keys.contains(key));
    let numbers = job.known_under(&parallel::parse_any(pins)?, is_known);
    match stack.supports.forbidden_by(&numbers).next() {
        None => Ok(()),
        Some((name, rule)) => Err(Error::BeyondRule {
            pins: pins.to_string(),
            rule: rule.text().to_string(),
            stated: stack.supports.source(name).to_string(),
            stack: stack.name.clone(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use compiler::parallel::{missing, parse_any};
    use cost::{Cluster, Named, ScheduleName};
    use ir::diag::Coded;
    use scheduler::schedules::SCHEDULES;
    use transforms::recompute::MODULES;

    fn lacks(stack: &str, parallel: &str) -> Vec<String> {
        let found = beyond(&parse_any(parallel).unwrap(), &Stack::find(stack).unwrap(), &JobNumbers::default());
        found.into_iter().map(|beyond| beyond.item).collect()
    }

    #[test]
    fn stacks_run_on_devices_of_some_makers() {
        let on = |cluster: &str| stacks_on(&Cluster::find(cluster).unwrap().device);
        let has = |cluster: &str, stack: &str| on(cluster).iter().any(|other| other == stack);
        assert!(has("h100", "megatron-core-2025") && has("h100", "zero-bubble-2023") && has("h100", "jax-2024"));
        assert!(!has("mi300x", "megatron-core-2025") && has("mi300x", "fsdp-compile-2025"));
        assert!(!has("tpu-v5p", "fsdp-compile") && has("tpu-v5p", "jax-2024"));
        // Nothing is known of the makers of processors.
        assert!(has("cpu", "meshwright") && !has("trn2", "meshwright"));
    }

    #[test]
    fn what_a_stack_lacks_is_told_item_by_item() {
        let text = "dp=2,tp=2,pp=2,schedule=zb-v,recompute=selective:q0,zero=1";
        assert_eq!(lacks("megatron-core-2025", text), ["schedule=zb-v", "recompute=selective:q0"]);
        assert_eq!(lacks("megatron-core-2025", "dp=8,schedule=zb-v,zero=3"), Vec::<String>::new());
        assert_eq!(lacks("foundry-2023", "tp=2,zero=3,dp=2"), ["tp=2"]);
        assert_eq!(lacks("nanotron-2024", "dp=2,zero=2"), ["zero=2"]);
        assert_eq!(lacks("nanotron-2024", "pp=2,offload=all"), ["offload=all"]);
        assert_eq!(lacks("megatron-core-2025", "pp=2,offload=all:2"), ["offload == 0 || pp == 1 && recompute == 0"]);
    }

    #[test]
    fn a_pin_is_refused_with_where_it_is_supported() {
        let stack = Stack::find("megatron-core-2025").unwrap();
        let check = |pins: &str| {
            check_pins(pins, &stack, &JobNumbers::default())
                .map_err(|error| format!("{error}; {}", error.help().unwrap()))
        };
        let message = check("schedule=zb-v").unwrap_err();
        assert!(message.contains("1f1b, interleaved-1f1b") && message.contains("meshwright-threads"), "{message}");
        assert!(message.contains("--beyond-stack") && !message.contains("foundry-2023"), "{message}");
        assert_eq!(check("pp=1,schedule=zb-v,zero=2,recompute=selective:mlp"), Ok(()));
        assert!(check_pins("zero=1", &Stack::find("foundry-2023").unwrap(), &JobNumbers::default()).is_err());
    }

    /// Each schedule has a name that stacks may list.
    #[test]
    fn stacks_name_the_schedules_that_exist() {
        let names: Vec<&str> = ScheduleName::ALL.iter().map(|name| name.name()).collect();
        assert_eq!(names, SCHEDULES.iter().map(|kind| kind.name).collect::<Vec<_>>());
    }

    /// The stacks of `train` have what it runs, and nothing else.
    #[test]
    fn the_stacks_of_train_are_what_train_runs() {
        for stack in ["meshwright-threads", "meshwright-cuda"].map(|name| Stack::find(name).unwrap()) {
            for text in [
                "cp=2,cp_kind=ring",
                "offload=all",
                "offload=all:1",
                "cp=2,cp_kind=ulysses",
                "dp=2,zero=3,recompute=full:2",
                "dp=2,zero=3,gather=step",
                "dp=2,pp=2,zero=3,gather=step,schedule=seq1f1b",
                "dp=4,zero=2,shard=2,recompute=selective:q0+mlp",
                "tp=2,pp=2,stages=3",
            ] {
                let parallel = parse_any(text).unwrap();
                assert_eq!(lacks(&stack.name, text).is_empty(), missing(&parallel).is_empty(), "{text}");
            }
            assert!(SCHEDULES.iter().all(|kind| stack.supports.schedule(kind.name)));
            assert!(MODULES.iter().all(|(module, _)| stack.supports.recomputes(module)));
        }
    }
}
