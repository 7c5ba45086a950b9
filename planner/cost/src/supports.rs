//! What a framework has of what a layout may choose: the table `[supports]` of a stack's file.

use crate::presets::out_of_range;
use ir::goal::{CpKind, Recompute};
use ir::recompute::{MODULES, is_module};
use serde::{Deserialize, Serialize};

/// What a framework has. A key that its file leaves out, where it does not begin from another file, limits nothing.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Supports {
    /// Degrees that may be more than 1 beside dp, of [`Supports::DEGREES`].
    pub degrees: Option<Vec<String>>,
    /// Schedules of pipelines, as `meshwright schedules` names them.
    pub schedules: Option<Vec<String>>,
    /// What may be recomputed: modules by name, or of [`Supports::RECOMPUTE`].
    pub recompute: Option<Vec<String>>,
    /// Stages of ZeRO where there are data-parallel ranks.
    pub zero: Option<Vec<u8>>,
    /// Kinds of context parallelism, by name.
    pub cp_kind: Option<Vec<String>>,
    /// Sequence parallelism beside tensor parallelism.
    pub sp: Option<bool>,
    /// ZeRO within groups of data-parallel ranks.
    pub shard: Option<bool>,
    /// Stages that begin where the layout says.
    pub stages: Option<bool>,
    /// Activations offloaded to the host's memory.
    pub offload: Option<bool>,
}

impl Supports {
    /// The degrees beside dp.
    pub const DEGREES: [&str; 5] = ["tp", "pp", "cp", "ep", "etp"];

    /// What may be recomputed beside modules: all layers, some layers of each stage, single values by name.
    pub const RECOMPUTE: [&str; 3] = ["full", "full:n", "values"];

    /// Whether a degree may be more than 1.
    pub fn degree(&self, key: &str) -> bool {
        has(self.degrees.as_ref(), key)
    }

    /// Whether pipelines may run in a schedule.
    pub fn schedule(&self, name: &str) -> bool {
        has(self.schedules.as_ref(), name)
    }

    /// Whether a module, or what a word of [`Supports::RECOMPUTE`] says, may be recomputed.
    pub fn recomputes(&self, word: &str) -> bool {
        has(self.recompute.as_ref(), word)
    }

    /// The modules that may be recomputed where single values may not; none: values may.
    pub fn modules(&self) -> Option<Vec<&str>> {
        let words = self.recompute.as_ref().filter(|words| !words.iter().any(|word| word == "values"))?;
        Some(words.iter().map(String::as_str).filter(|word| is_module(word)).collect())
    }

    /// Whether parts of layers may be recomputed.
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

    /// Whether a stage of ZeRO may be.
    pub fn zero(&self, stage: u8) -> bool {
        self.zero.as_ref().is_none_or(|stages| stages.contains(&stage))
    }

    /// Whether a kind of context parallelism may be.
    pub fn cp_kind(&self, kind: CpKind) -> bool {
        has(self.cp_kind.as_ref(), kind.name())
    }

    /// Complains of words that mean nothing. Schedules are known elsewhere.
    pub(crate) fn check(&self, complaints: &mut Vec<String>) {
        let mut known = |key: &str, words: Option<&Vec<String>>, known: &[&str]| {
            let unknown = words.into_iter().flatten().filter(|word| !known.contains(&word.as_str()));
            let said =
                unknown.map(|word| format!("`supports.{key}` has `{word}`, which is none of {}", known.join(", ")));
            complaints.extend(said);
        };
        known("degrees", self.degrees.as_ref(), &Supports::DEGREES);
        known("cp_kind", self.cp_kind.as_ref(), &CpKind::ALL.map(|(name, _)| name));
        let modules = MODULES.iter().map(|(module, _)| *module);
        known("recompute", self.recompute.as_ref(), &modules.chain(Supports::RECOMPUTE).collect::<Vec<_>>());
        let stages = self.zero.iter().flatten();
        complaints.extend(
            stages.filter_map(|&stage| out_of_range("supports.zero", f64::from(stage), 0.0, 3.0, "a ZeRO stage")),
        );
    }
}

fn has(list: Option<&Vec<String>>, word: &str) -> bool {
    list.is_none_or(|list| list.iter().any(|item| item == word))
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
        assert!(all.degree("cp") && all.schedule("zb-v") && all.zero(3) && all.cp_kind(CpKind::Ring));
        assert_eq!((all.modules(), all.recomputes_parts()), (None, true));
        assert_eq!(all.lacks(&"selective:q0+mlp".parse().unwrap()), Vec::<String>::new());
    }

    #[test]
    fn what_is_listed_is_all_there_is() {
        let some = Supports { recompute: list(&["full", "mlp"]), zero: Some(vec![0, 1]), ..Supports::default() };
        assert_eq!((some.modules(), some.zero(2)), (Some(vec!["mlp"]), false));
        let lacks = |text: &str| some.lacks(&text.parse().unwrap());
        assert_eq!(lacks("selective:q0+mlp+moe"), ["values", "moe"]);
        assert_eq!(lacks("selective"), ["core_attn"]);
        assert_eq!((lacks("full:2"), lacks("full"), lacks("none")), (vec!["full:n".to_string()], vec![], vec![]));
        let full = Supports { recompute: list(&["full"]), ..Supports::default() };
        assert!(!full.recomputes_parts() && full.modules() == Some(Vec::new()));
    }
}
