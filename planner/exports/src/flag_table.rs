//! Flags of a framework by its own parser, with what each does to a prediction.

use crate::flag_error::FlagError;
use ir::diag::nearest;
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

/// Effect on a prediction of a flag that is neither written nor read.
pub(crate) enum Judgement<'t> {
    /// Nothing.
    Harmless,
    /// It touches a part of the prediction that does not know it.
    Unmodelled(&'t Unmodelled),
    /// The table does not say: the importer reads it.
    Unsaid,
}

/// A flag that a prediction does not know.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Unmodelled {
    /// The part of the prediction that it touches.
    pub(crate) touches: String,
    /// How, if that is known.
    effect: Option<String>,
    /// Values with which it changes nothing.
    #[serde(default)]
    neutral: Vec<String>,
}

impl Unmodelled {
    /// True if a value changes nothing.
    pub(crate) fn is_neutral(&self, value: Option<&str>) -> bool {
        value.is_some_and(|value| self.neutral.iter().any(|neutral| neutral == value))
    }

    /// The part that it touches, and how.
    pub(crate) fn told(&self) -> String {
        let effect = self.effect.as_ref().map_or_else(String::new, |effect| format!(": {effect}"));
        format!("{}{effect}", self.touches)
    }
}

/// A row of the parser.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// Spellings, without hyphens in front.
    flags: Vec<String>,
    /// Its group.
    group: String,
    #[serde(rename = "default")]
    _default: String,
    /// Values that it takes, if not all.
    choices: Vec<String>,
    takes: Takes,
}

/// Words behind a flag.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Takes {
    Nothing,
    One,
    Many,
}

/// Judgement of the flags that are neither written nor read.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Judged {
    groups: BTreeMap<String, String>,
    harmless: BTreeMap<String, String>,
    unmodelled: BTreeMap<String, Unmodelled>,
    former: BTreeMap<String, String>,
}

/// Flags of a framework.
pub(crate) struct FlagTable {
    rows: Vec<Row>,
    by_name: HashMap<String, usize>,
    judged: Judged,
}

/// Flags of Megatron-LM.
pub(crate) static MEGATRON: LazyLock<FlagTable> = LazyLock::new(|| {
    FlagTable::read(include_str!("../engines/megatron/0.19.2.json"), include_str!("../engines/megatron.toml"))
});

impl FlagTable {
    /// Reads embedded files, which a test reads too.
    fn read(rows: &str, judged: &str) -> FlagTable {
        let rows: Vec<Row> = serde_json::from_str(rows).expect("rows of a parser");
        let judged = toml::from_str(judged).expect("judgement of flags");
        let names = rows.iter().enumerate().flat_map(|(at, row)| row.flags.iter().map(move |flag| (flag.clone(), at)));
        let by_name = names.collect();
        FlagTable { rows, by_name, judged }
    }

    fn row(&self, flag: &str) -> Option<&Row> {
        self.by_name.get(flag).map(|&at| &self.rows[at])
    }

    /// Effect of a flag, by its first spelling or its group.
    pub(crate) fn judgement(&self, flag: &str) -> Judgement<'_> {
        let Some(row) = self.row(flag) else { return Judgement::Unsaid };
        let Judged { groups, harmless, unmodelled, .. } = &self.judged;
        match row.flags.iter().find_map(|name| unmodelled.get(name)) {
            Some(unmodelled) => Judgement::Unmodelled(unmodelled),
            None if row.flags.iter().any(|flag| harmless.contains_key(flag)) => Judgement::Harmless,
            None if groups.contains_key(row.group.trim()) => Judgement::Harmless,
            None => Judgement::Unsaid,
        }
    }

    /// True if the framework has, or had, a flag, or one that is spelt much like it.
    pub(crate) fn resembles(&self, flag: &str) -> bool {
        let names = self.by_name.keys().chain(self.judged.former.keys()).map(String::as_str);
        nearest(flag, names).is_some()
    }

    /// Checks that the framework has a flag, and takes its values.
    ///
    /// # Errors
    /// It has no such flag, or another number of values, or none of the values that it lists.
    pub(crate) fn check(&self, flag: &str, values: &[String]) -> Result<(), FlagError> {
        if let Some(instead) = self.judged.former.get(flag) {
            return Err(FlagError::Unknown(format!("--{flag} is of former versions of Megatron-LM: {instead}")));
        }
        let Some(row) = self.row(flag) else {
            let near = nearest(flag, self.by_name.keys().map(String::as_str));
            let near = near.map_or_else(String::new, |near| format!(" (did you mean `--{near}`?)"));
            return Err(FlagError::Unknown(format!("Megatron-LM has no flag --{flag}{near}")));
        };
        if row.takes != Takes::Nothing && values.is_empty() {
            return Err(FlagError::Value(format!("--{flag} has no value")));
        }
        let choices = &row.choices;
        let mut stated = values.iter().filter(|value| !value.contains("${"));
        match stated.find(|value| !choices.is_empty() && !choices.contains(value)) {
            Some(value) => {
                let choices = choices.join(", ");
                Err(FlagError::Value(format!("--{flag} {value}: Megatron-LM takes one of {choices}")))
            }
            None => Ok(()),
        }
    }

    /// Flags without a judgement, by their first spelling.
    #[cfg(test)]
    pub(crate) fn unsaid(&self) -> impl Iterator<Item = &str> {
        self.rows
            .iter()
            .filter(|row| !row.flags.is_empty() && matches!(self.judgement(&row.flags[0]), Judgement::Unsaid))
            .map(|row| row.flags[0].as_str())
    }

    /// Judgements of flags and groups that the framework does not have.
    #[cfg(test)]
    pub(crate) fn of_nothing(&self) -> Vec<&str> {
        let Judged { groups, harmless, unmodelled, former } = &self.judged;
        let flags = harmless.keys().chain(unmodelled.keys()).filter(|flag| self.row(flag).is_none());
        let known = former.keys().filter(|flag| self.row(flag).is_some());
        let groups = groups.keys().filter(|group| !self.rows.iter().any(|row| row.group.trim() == *group));
        flags.chain(known).chain(groups).map(String::as_str).collect()
    }
}
