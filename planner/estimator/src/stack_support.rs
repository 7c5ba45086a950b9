//! Parts of a configuration that a stack does not support.

use super::error::Error;
use super::job_numbers::JobNumbers;
use compiler::parallel::{self, Pins};
use cost::{Degree, Device, EnumSet, Named, RuleName, STACKS, Stack};
use ir::options::{Offload, ParallelConfig};
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
    let supports = &stack.supports;
    let ParallelConfig {
        dp,
        tp,
        pp,
        cp,
        ep,
        etp,
        ref schedule,
        ref recompute,
        zero,
        cp_kind,
        sp,
        shard,
        gather,
        ref stages,
        offload,
        offload_optimizer,
        ..
    } = *parallel;
    let mut items = Vec::new();
    let mut lacks = |key: &str, item: String, is_there: bool, has: bool| {
        let beyond = || Beyond { item, source: supports.source(key).to_string() };
        items.extend((is_there && !has).then(beyond));
    };
    for (kind, degree) in [(Degree::Tp, tp), (Degree::Pp, pp), (Degree::Cp, cp), (Degree::Ep, ep), (Degree::Etp, etp)] {
        lacks("degrees", format!("{}={degree}", kind.name()), degree > 1, supports.degree(kind));
    }
    let replicas = dp * cp;
    let is_pipeline = pp > 1 && supports.degree(Degree::Pp);
    lacks("schedules", format!("schedule={schedule}"), is_pipeline, supports.schedule(schedule));
    lacks("sp", "sp=true".to_string(), tp > 1 && sp, supports.sp != Some(false));
    lacks("zero", format!("zero={zero}"), replicas > 1, supports.zero(zero));
    let is_cut = cp > 1 && supports.degree(Degree::Cp);
    lacks("cp_kind", format!("cp_kind={}", cp_kind.name()), is_cut, supports.cp_kind(cp_kind));
    let groups = shard.filter(|&shard| zero > 0 && shard < replicas);
    lacks("shard", format!("shard={}", shard.unwrap_or(0)), groups.is_some(), supports.shard != Some(false));
    let once = parallel.gathers_once() && replicas > 1;
    lacks("gather", format!("gather={}", gather.name()), once, supports.gather != Some(false));
    lacks("stages", "stages".to_string(), !stages.is_empty(), supports.stages != Some(false));
    let has = |kind: Option<bool>| kind != Some(false);
    lacks("offload", format!("offload={offload}"), !offload.is_none(), has(supports.offload));
    let some = matches!(offload, Offload::All(Some(_))) && has(supports.offload);
    lacks("offload_layers", format!("offload={offload}"), some, has(supports.offload_layers));
    let states = has(supports.offload_optimizer);
    lacks("offload_optimizer", format!("offload_optimizer={offload_optimizer}"), offload_optimizer, states);
    lacks("recompute", format!("recompute={recompute}"), true, supports.lacks(recompute).is_empty());
    items
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
    let keys = parallel::keys(pins)?;
    check_rules(pins, &keys, stack, job)?;
    // Open degrees may be greater than 1.
    let open = ["dp", "tp", "pp", "cp"].into_iter().filter(|key| !keys.contains(key));
    let open: Vec<String> = open.map(|key| format!("{key}=2")).collect();
    let pinned = parallel::parse_any(&parallel::pinned(&open.join(","), pins))?;
    let items = options_beyond(&pinned, stack);
    let of_key = |beyond: &&Beyond| keys.iter().any(|key| beyond.item.split('=').next() == Some(key));
    let Some(Beyond { item, source }) = items.iter().find(of_key) else { return Ok(()) };
    let key = item.split('=').next().unwrap_or_default();
    // A stack without pipelines supports no schedule, but lacks none.
    let needs = match key {
        "schedule" => Some(Degree::Pp),
        "cp_kind" => Some(Degree::Cp),
        _ => None,
    };
    let has = |other: &Stack| {
        let lacks = options_beyond(&pinned, other).iter().any(|beyond| beyond.item == *item);
        !lacks && needs.is_none_or(|degree| other.supports.degree(degree))
    };
    let others = STACKS.iter().filter_map(|preset| Stack::find(preset.name).ok());
    let others: Vec<String> = others.filter(has).map(|other| other.name).collect();
    let (item, stated, stack_name) = (item.clone(), source.clone(), stack.name.clone());
    Err(Error::BeyondStack { item, stated, stack: stack_name, supported: supported(key, stack), others })
}

/// Checks that no rule forbids the pins for the job, whatever the other options are.
fn check_rules(pins: &str, keys: &[&str], stack: &Stack, job: &JobNumbers) -> Result<(), Error> {
    if keys.is_empty() {
        return Ok(());
    }
    let numbers = job.known_under(&parallel::parse_any(pins)?, |name| is_known(name, keys));
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

/// Returns whether options with these keys decide a number.
fn is_known(name: RuleName, keys: &[&str]) -> bool {
    let needed: &[&str] = match name {
        RuleName::Dp => &["dp"],
        RuleName::Tp => &["tp"],
        RuleName::Pp => &["pp"],
        RuleName::Cp => &["cp"],
        RuleName::Ep => &["ep"],
        RuleName::Etp => &["etp"],
        RuleName::Sp => &["sp"],
        RuleName::Ring | RuleName::Ulysses => &["cp", "cp_kind"],
        RuleName::Mbs => &["mbs"],
        RuleName::Microbatches => &["dp", "mbs"],
        RuleName::Vp => &["pp", "schedule", "vp"],
        RuleName::Slices => &["schedule", "slices"],
        RuleName::Boundaries => &["stages"],
        RuleName::Zero => &["zero"],
        RuleName::Groups => &["zero", "shard", "dp", "cp"],
        RuleName::Gather => &["zero", "gather"],
        RuleName::Offload => &["offload"],
        RuleName::OffloadOptimizer => &["offload_optimizer"],
        RuleName::Recompute => &["recompute"],
        RuleName::Seq | RuleName::Layers | RuleName::KvHeads | RuleName::Experts => &[],
    };
    needed.iter().all(|key| keys.contains(key))
}

/// Text on what the stack supports instead.
fn supported(key: &str, stack: &Stack) -> Vec<String> {
    let supports = &stack.supports;
    match key {
        "schedule" => supports.schedules.map(names),
        "recompute" => supports.recompute.clone(),
        "cp_kind" => supports.cp_kind.map(names),
        "zero" => supports.zero.as_ref().map(|stages| stages.iter().map(u8::to_string).collect()),
        _ => None,
    }
    .unwrap_or_default()
}

fn names<E: Named>(values: EnumSet<E>) -> Vec<String> {
    values.names().map(str::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use compiler::parallel::{missing, parse_any};
    use cost::{Cluster, ScheduleName};
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
