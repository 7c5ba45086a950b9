//! Configuration options that a framework supports: the table `[supports]` of a stack's file.

use crate::enum_set::{EnumSet, Named, named_enum};
use crate::preset_error::out_of_range;
use crate::rules::{Rule, RuleNumbers};
use crate::schedule_name::ScheduleName;
use ir::config_key::ConfigKey;
use ir::options::{CpKind, Recompute};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use transforms::recompute::{MODULES, is_module};

/// Options that a framework supports. A missing key limits nothing, unless the file extends another file.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Supports {
    /// Makers of the devices that the stack runs on.
    pub vendors: Option<EnumSet<Vendor>>,
    /// Degrees other than dp that may exceed 1.
    pub degrees: Option<EnumSet<Degree>>,
    /// Pipeline schedules.
    pub schedules: Option<EnumSet<ScheduleName>>,
    /// Supported recomputation: module names, or words of [`Supports::RECOMPUTE`].
    pub recompute: Option<Vec<String>>,
    /// The only recomputations that plans have, where the framework has policies instead of switches.
    pub policies: Option<Vec<Recompute>>,
    /// ZeRO stages with several data-parallel ranks.
    pub zero: Option<Vec<u8>>,
    /// Kinds of context parallelism.
    pub cp_kind: Option<EnumSet<CpKind>>,
    /// Sequence parallelism in combination with tensor parallelism.
    pub sp: Option<bool>,
    /// ZeRO within groups of data-parallel ranks.
    pub shard: Option<bool>,
    /// Overlap of tensor-parallel communication where a configuration asks for it, though not by default.
    pub tp_overlap: Option<bool>,
    /// Data-parallel communication without overlap where a configuration asks for it, although the stack overlaps it.
    pub dp_overlap_off: Option<bool>,
    /// Parameters that ZeRO-3 gathers once a step.
    pub gather: Option<bool>,
    /// Stage boundaries set by the configuration.
    pub stages: Option<bool>,
    /// Activation offload to host memory.
    pub offload: Option<bool>,
    /// Activation offload of some layers of each stage.
    pub offload_layers: Option<bool>,
    /// Optimizer states in host memory between updates.
    pub offload_optimizer: Option<bool>,
    /// Conditions on combinations of options, by name. A file that extends another may restate one.
    pub rules: BTreeMap<String, Rule>,
    /// Source of each key and each rule: the comment before it in the file.
    #[serde(skip)]
    pub sources: BTreeMap<String, String>,
}

named_enum! {
    /// Maker of devices.
    pub enum Vendor {
        /// NVIDIA.
        Nvidia = "nvidia",
        /// AMD.
        Amd = "amd",
        /// Google.
        Google = "google",
        /// Amazon Web Services.
        Aws = "aws",
    }
}

named_enum! {
    /// Degree of parallelism other than dp.
    pub enum Degree {
        /// Tensor parallelism.
        Tp = "tp",
        /// Pipeline parallelism.
        Pp = "pp",
        /// Context parallelism.
        Cp = "cp",
        /// Expert parallelism.
        Ep = "ep",
        /// Tensor parallelism of experts.
        Etp = "etp",
    }
}

impl Degree {
    /// Its key in a configuration.
    pub fn key(self) -> ConfigKey {
        match self {
            Degree::Tp => ConfigKey::Tp,
            Degree::Pp => ConfigKey::Pp,
            Degree::Cp => ConfigKey::Cp,
            Degree::Ep => ConfigKey::Ep,
            Degree::Etp => ConfigKey::Etp,
        }
    }
}

impl Named for ConfigKey {
    const ALL: &'static [ConfigKey] = &ConfigKey::ALL;

    fn name(self) -> &'static str {
        ConfigKey::name(self)
    }

    fn index(self) -> u32 {
        self as u32
    }
}

impl Named for CpKind {
    const ALL: &'static [CpKind] = &[CpKind::Ring, CpKind::AllGather, CpKind::Ulysses];

    fn name(self) -> &'static str {
        CpKind::name(self)
    }

    fn index(self) -> u32 {
        self as u32
    }
}

impl Supports {
    /// Recomputation other than of modules: all layers, some layers of each stage, single values by name.
    pub const RECOMPUTE: [&str; 3] = ["full", "full:n", "values"];

    /// Returns whether the stack runs on devices of a maker; an unknown one counts as supported.
    pub fn vendor(&self, name: Option<&str>) -> bool {
        name.is_none_or(|name| has(self.vendors, Vendor::named(name)))
    }

    /// Returns whether a degree may exceed 1.
    pub fn degree(&self, degree: Degree) -> bool {
        has(self.degrees, Some(degree))
    }

    /// Returns whether a pipeline schedule of a name is supported.
    pub fn schedule(&self, name: &str) -> bool {
        has(self.schedules, ScheduleName::named(name))
    }

    /// Returns whether a module, or a word of [`Supports::RECOMPUTE`], is supported for recomputation.
    pub fn recomputes(&self, word: &str) -> bool {
        self.recompute.as_ref().is_none_or(|words| words.iter().any(|item| item == word))
    }

    /// Modules that may be recomputed if single values may not; `None` if single values may.
    pub fn modules(&self) -> Option<Vec<&str>> {
        let words = self.recompute.as_ref().filter(|words| !words.iter().any(|word| word == "values"))?;
        Some(words.iter().map(String::as_str).filter(|word| is_module(word)).collect())
    }

    /// Returns whether parts of layers may be recomputed.
    pub fn recomputes_parts(&self) -> bool {
        self.modules().is_none_or(|modules| !modules.is_empty())
    }

    /// Words of a recomputation that are not supported.
    pub fn lacks(&self, recompute: &Recompute) -> Vec<String> {
        let words = match recompute {
            Recompute::None | Recompute::Auto => Vec::new(),
            Recompute::Full(None) => vec!["full"],
            Recompute::Full(Some(_)) => vec!["full:n"],
            Recompute::Selective(names) if names.is_empty() => vec!["core_attn"],
            Recompute::Selective(names) => {
                names.iter().map(|name| if is_module(name) { name.as_str() } else { "values" }).collect()
            }
        };
        words.into_iter().filter(|word| !self.recomputes(word)).map(str::to_string).collect()
    }

    /// Returns whether a ZeRO stage is supported.
    pub fn zero(&self, stage: u8) -> bool {
        self.zero.as_ref().is_none_or(|stages| stages.contains(&stage))
    }

    /// Returns whether a kind of context parallelism is supported.
    pub fn cp_kind(&self, kind: CpKind) -> bool {
        has(self.cp_kind, Some(kind))
    }

    /// Rules that forbid these numbers, by name.
    pub fn forbidden_by(&self, numbers: &RuleNumbers) -> impl Iterator<Item = (&str, &Rule)> {
        let all = self.rules.iter().map(|(name, rule)| (name.as_str(), rule));
        let numbers = *numbers;
        all.filter(move |(_, rule)| rule.forbids(&numbers))
    }

    /// Source of a key or a rule; empty if the file states none.
    pub fn source(&self, key: &str) -> &str {
        self.sources.get(key).map_or("", String::as_str)
    }

    /// Reports unknown words of recomputation, and ZeRO stages that do not exist.
    pub(crate) fn check(&self, complaints: &mut Vec<String>) {
        let modules = MODULES.iter().map(|(module, _)| *module);
        let known: Vec<&str> = modules.chain(Supports::RECOMPUTE).collect();
        let unknown = self.recompute.iter().flatten().filter(|word| !known.contains(&word.as_str()));
        complaints.extend(
            unknown.map(|word| format!("`supports.recompute` has `{word}`, which is none of {}", known.join(", "))),
        );
        let stages = self.zero.iter().flatten();
        complaints.extend(
            stages.filter_map(|&stage| out_of_range("supports.zero", f64::from(stage), 0.0, 3.0, "a ZeRO stage")),
        );
    }
}

/// Returns whether a list has a value. A list that is left out has all values, and `None` is in no list.
fn has<E: Named>(list: Option<EnumSet<E>>, value: Option<E>) -> bool {
    list.is_none_or(|list| value.is_some_and(|value| list.contains(value)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(words: &[&str]) -> Option<Vec<String>> {
        Some(words.iter().map(|word| word.to_string()).collect())
    }

    #[test]
    fn what_is_left_out_limits_nothing() {
        let all = Supports::default();
        assert!(all.degree(Degree::Cp) && all.schedule("zb-v") && all.zero(3) && all.cp_kind(CpKind::Ring));
        assert_eq!((all.modules(), all.recomputes_parts()), (None, true));
        assert_eq!(all.lacks(&"selective:q0+mlp".parse().unwrap()), Vec::<String>::new());
    }

    #[test]
    fn what_is_listed_is_all_there_is() {
        let some = Supports { recompute: list(&["full", "mlp"]), zero: Some(vec![0, 1]), ..Supports::default() };
        assert_eq!((some.modules(), some.zero(2)), (Some(vec!["mlp"]), false));
        for (text, lacked) in [
            ("selective:q0+mlp+moe", &["values", "moe"][..]),
            ("selective", &["core_attn"]),
            ("full:2", &["full:n"]),
            ("full", &[]),
            ("none", &[]),
        ] {
            assert_eq!(some.lacks(&text.parse().unwrap()), lacked, "{text}");
        }
        let full = Supports { recompute: list(&["full"]), ..Supports::default() };
        assert!(!full.recomputes_parts() && full.modules() == Some(Vec::new()));
    }
}
