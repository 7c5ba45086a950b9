//! Flags of a framework by its own parser, with what each does to a prediction.

use crate::flag_error::FlagError;
use crate::yaml::NOTHING;
use ir::diag::nearest;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::LazyLock;

/// Effect on a prediction of a flag that is neither written nor read.
pub(crate) enum Judgement<'t> {
    /// Nothing, for a reason.
    Harmless(#[cfg_attr(not(test), expect(dead_code, reason = "pages list it"))] &'t str),
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

/// The beginning of a value that is known only where a job runs.
const ANYTHING: &str = "${";

/// A key with its value.
pub(crate) struct Setting {
    pub(crate) name: String,
    /// Its value as text; none of a list or a section.
    pub(crate) value: Option<String>,
}

/// A row of the parser.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    /// Spellings, without hyphens in front.
    flags: Vec<String>,
    /// Its group.
    group: String,
    default: String,
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
    /// Names that exports write.
    #[cfg_attr(not(test), expect(dead_code, reason = "pages list them"))]
    written: Vec<String>,
    #[serde(default)]
    groups: BTreeMap<String, String>,
    #[serde(default)]
    harmless: BTreeMap<String, String>,
    #[serde(default)]
    unmodelled: BTreeMap<String, Unmodelled>,
    /// Names that the versions of the table no longer have, with what the same key is called there.
    #[serde(default)]
    renamed: BTreeMap<String, String>,
    /// Names that the versions of the table no longer have, with what took their place.
    #[serde(default)]
    former: BTreeMap<String, String>,
    /// Names, and sections of names, that sources newer than the last release have, with the group of each.
    #[serde(default)]
    later: BTreeMap<String, String>,
}

/// The flags of a framework by what a prediction does with them.
#[cfg(test)]
#[derive(Default)]
pub(crate) struct Lists {
    /// Exports write them.
    pub(crate) written: Vec<String>,
    /// They are read.
    pub(crate) read: Vec<String>,
    /// They change no figure, by the reason.
    pub(crate) harmless: BTreeMap<String, Vec<String>>,
    /// They touch a part of the prediction that does not know them.
    pub(crate) unmodelled: Vec<(String, String)>,
}

/// Notation of the names of a framework.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Notation {
    /// Flags of a command line.
    Flags,
    /// Keys of a file, by the path of their sections.
    Keys,
}

/// Flags or keys of a framework, of one version or several.
pub(crate) struct FlagTable {
    framework: &'static str,
    notation: Notation,
    rows: Vec<Row>,
    by_name: HashMap<String, usize>,
    judged: Judged,
}

/// Flags of Megatron-LM.
pub(crate) static MEGATRON: LazyLock<FlagTable> = LazyLock::new(|| {
    let rows = [include_str!("../engines/megatron/0.19.2.json")];
    FlagTable::read("Megatron-LM", Notation::Flags, &rows, include_str!("../engines/megatron.toml"))
});

/// Fields of the Python configuration of torchtitan.
pub(crate) static TORCHTITAN: LazyLock<FlagTable> = LazyLock::new(|| {
    let rows = [include_str!("../engines/torchtitan/0.3.0.json")];
    FlagTable::read("torchtitan 0.3", Notation::Keys, &rows, include_str!("../engines/torchtitan.toml"))
});

/// Keys of the TOML files of torchtitan.
pub(crate) static TORCHTITAN_TOML: LazyLock<FlagTable> = LazyLock::new(|| {
    let rows = [include_str!("../engines/torchtitan/0.2.2.json"), include_str!("../engines/torchtitan/0.1.0.json")];
    FlagTable::read("torchtitan up to 0.2", Notation::Keys, &rows, include_str!("../engines/torchtitan.toml"))
});

/// Keys of nanotron.
pub(crate) static NANOTRON: LazyLock<FlagTable> = LazyLock::new(|| {
    let rows = [include_str!("../engines/nanotron/0.4.json")];
    FlagTable::read("nanotron", Notation::Keys, &rows, include_str!("../engines/nanotron.toml"))
});

/// Fields of Megatron-Bridge.
pub(crate) static MEGATRON_BRIDGE: LazyLock<FlagTable> = LazyLock::new(|| {
    let rows = [include_str!("../engines/megatron-bridge/0.6.2.json")];
    FlagTable::read("Megatron-Bridge", Notation::Keys, &rows, include_str!("../engines/megatron-bridge.toml"))
});

/// Keys of DeepSpeed.
pub(crate) static DEEPSPEED: LazyLock<FlagTable> = LazyLock::new(|| {
    let rows = [include_str!("../engines/deepspeed/0.19.8.json")];
    FlagTable::read("DeepSpeed", Notation::Keys, &rows, include_str!("../engines/deepspeed.toml"))
});

/// Keys of MaxText.
pub(crate) static MAXTEXT: LazyLock<FlagTable> = LazyLock::new(|| {
    let rows = [include_str!("../engines/maxtext/0.2.5.json")];
    FlagTable::read("MaxText", Notation::Keys, &rows, include_str!("../engines/maxtext.toml"))
});

impl FlagTable {
    /// Reads embedded files, which a test reads too. Names that several versions have are of the first.
    fn read(framework: &'static str, notation: Notation, versions: &[&str], judged: &str) -> FlagTable {
        let versions = versions.iter().map(|rows| serde_json::from_str::<Vec<Row>>(rows).expect("rows of a parser"));
        let rows: Vec<Row> = versions.flatten().collect();
        let judged = toml::from_str(judged).expect("judgement of flags");
        let mut by_name = HashMap::new();
        for (at, row) in rows.iter().enumerate() {
            for flag in &row.flags {
                by_name.entry(flag.clone()).or_insert(at);
            }
        }
        FlagTable { framework, notation, rows, by_name, judged }
    }

    /// The row of a name; of a key within one that takes any keys, the row of that.
    fn row(&self, flag: &str) -> Option<&Row> {
        self.sections(flag).find_map(|name| self.by_name.get(name)).map(|&at| &self.rows[at])
    }

    /// The group of a name that only newer sources have.
    fn later(&self, flag: &str) -> Option<&str> {
        self.sections(flag).find_map(|name| self.judged.later.get(name)).map(String::as_str)
    }

    /// A name, and the sections that it is in, from the inside.
    fn sections<'n>(&self, flag: &'n str) -> impl Iterator<Item = &'n str> + use<'n> {
        let is_path = self.notation == Notation::Keys;
        std::iter::successors(Some(flag), move |name| {
            name.rsplit_once('.').map(|(section, _)| section).filter(|_| is_path)
        })
    }

    /// True if names are within a section of a name, which a file may state as none.
    fn has_section(&self, name: &str) -> bool {
        let mut names = self.by_name.keys().chain(self.judged.later.keys());
        self.notation == Notation::Keys
            && names.any(|other| other.strip_prefix(name).is_some_and(|rest| rest.starts_with('.')))
    }

    /// True if the framework has a key, or a section, of a name.
    pub(crate) fn asks(&self, name: &str) -> bool {
        self.has(name) || self.has_section(name)
    }

    /// True if a name that the tables lack is in a section whose keys change no figure: versions differ most there.
    fn is_idle(&self, name: &str) -> bool {
        let group = name.split_once('.').and_then(|(group, _)| self.judged.groups.get(group));
        group.is_some() && self.row(name).is_none() && self.later(name).is_none() && !self.has_section(name)
    }

    /// A name as a user writes it.
    fn shown(&self, name: &str) -> String {
        match self.notation {
            Notation::Flags => format!("--{name}"),
            Notation::Keys => name.to_string(),
        }
    }

    /// Effect of a flag, by one of its spellings or its group.
    pub(crate) fn judgement(&self, flag: &str) -> Judgement<'_> {
        let Judged { groups, harmless, unmodelled, .. } = &self.judged;
        let row = self.row(flag);
        let Some(group) = row.map(|row| row.group.trim()).or_else(|| self.later(flag)) else {
            return Judgement::Unsaid;
        };
        let flags = row.into_iter().flat_map(|row| row.flags.iter().map(String::as_str));
        let spellings: Vec<&str> = flags.chain(self.sections(flag)).collect();
        if let Some(unmodelled) = spellings.iter().find_map(|name| unmodelled.get(*name)) {
            return Judgement::Unmodelled(unmodelled);
        }
        let reason = spellings.iter().find_map(|name| harmless.get(*name)).or_else(|| groups.get(group));
        reason.map_or(Judgement::Unsaid, |reason| Judgement::Harmless(reason))
    }

    /// The name of a key today.
    pub(crate) fn current(&self, name: String) -> String {
        self.judged.renamed.get(&name).cloned().unwrap_or(name)
    }

    /// The spelling of a flag, or of the flag that negates it.
    pub(crate) fn named(&self, flag: &str) -> Option<&str> {
        let negated = format!("no-{flag}");
        let found = self.by_name.get_key_value(flag).or_else(|| self.by_name.get_key_value(&negated));
        found.map(|(name, _)| name.as_str())
    }

    /// True if a flag takes values.
    pub(crate) fn takes_values(&self, flag: &str) -> bool {
        self.row(flag).is_some_and(|row| row.takes != Takes::Nothing)
    }

    /// True if a flag takes one value.
    pub(crate) fn takes_one(&self, flag: &str) -> bool {
        self.row(flag).is_some_and(|row| row.takes == Takes::One)
    }

    /// True if a value is the default of a key.
    pub(crate) fn is_default(&self, name: &str, value: Option<&str>) -> bool {
        let (Some(row), Some(value)) = (self.by_name.get(name).map(|&at| &self.rows[at]), value) else { return false };
        let default = if row.default == "None" { NOTHING } else { &row.default };
        let numbers: [Option<f64>; 2] = [default, value].map(|text| text.parse().ok());
        default.eq_ignore_ascii_case(value) || numbers[0].is_some() && numbers[0] == numbers[1]
    }

    /// True if the framework has a flag.
    pub(crate) fn has(&self, flag: &str) -> bool {
        self.row(flag).is_some()
    }

    /// True if the framework has, or had, a flag, or one that is spelt much like it.
    pub(crate) fn resembles(&self, flag: &str) -> bool {
        let names = self.by_name.keys().chain(self.judged.former.keys()).map(String::as_str);
        nearest(flag, names).is_some()
    }

    /// The row of a name; `None` if only newer sources have it.
    ///
    /// # Errors
    /// There is no such name.
    fn known(&self, flag: &str) -> Result<Option<&Row>, FlagError> {
        if let Some(instead) = self.judged.former.get(flag) {
            let (shown, framework) = (self.shown(flag), self.framework);
            return Err(FlagError::Unknown(format!("{shown} is of former versions of {framework}: {instead}")));
        }
        match self.row(flag) {
            None if self.later(flag).is_none() && !self.has_section(flag) && !self.is_idle(flag) => {
                Err(self.unknown(flag))
            }
            row => Ok(row),
        }
    }

    /// Checks that the framework has a flag, and takes its values.
    ///
    /// # Errors
    /// It has no such flag, or another number of values, or none of the values that it lists.
    pub(crate) fn check(&self, flag: &str, values: &[String]) -> Result<(), FlagError> {
        let Some(row) = self.known(flag)? else { return Ok(()) };
        let (framework, shown) = (self.framework, self.shown(flag));
        if row.takes != Takes::Nothing && values.is_empty() {
            return Err(FlagError::Value(format!("{shown} has no value")));
        }
        let choices = &row.choices;
        let mut stated = values.iter().filter(|value| !value.contains(ANYTHING) && *value != NOTHING);
        match stated.find(|value| !choices.is_empty() && !choices.contains(value)) {
            Some(value) => {
                let choices = choices.join(", ");
                Err(FlagError::Value(format!("{shown} {value}: {framework} takes one of {choices}")))
            }
            None => Ok(()),
        }
    }

    /// Checks a setting as [`FlagTable::check`] does; a value that is no text is any.
    pub(crate) fn check_setting(&self, Setting { name, value }: &Setting) -> Result<(), FlagError> {
        match value {
            Some(value) => self.check(name, std::slice::from_ref(value)),
            None => self.known(name).map(drop),
        }
    }

    /// The warning about a flag that a prediction does not know, with the part of it that the flag touches.
    pub(crate) fn warning(&self, name: &str, values: &[String]) -> Option<String> {
        if self.is_idle(name) {
            let near = self.suggestion(name);
            return Some(format!(
                "not known: {} has no key {name}{near}; its section changes no figure",
                self.framework
            ));
        }
        let Judgement::Unmodelled(unmodelled) = self.judgement(name) else { return None };
        if unmodelled.is_neutral(values.first().map(String::as_str)) {
            return None;
        }
        let before = match self.notation {
            Notation::Flags => ' ',
            Notation::Keys => '=',
        };
        let values: String = values.iter().map(|value| format!("{before}{value}")).collect();
        Some(format!("not modelled: {}{values} touches {}", self.shown(name), unmodelled.told()))
    }

    /// The fault of a name that no version has.
    fn unknown(&self, flag: &str) -> FlagError {
        let kind = match self.notation {
            Notation::Flags => "flag",
            Notation::Keys => "key",
        };
        let (shown, near) = (self.shown(flag), self.suggestion(flag));
        FlagError::Unknown(format!("{} has no {kind} {shown}{near}", self.framework))
    }

    /// The nearest name that there is, as a question. Keys are compared by the parts of their section.
    pub(crate) fn suggestion(&self, flag: &str) -> String {
        let near = match (self.notation, flag.rsplit_once('.')) {
            (Notation::Flags, _) => nearest(flag, self.names()).map(|near| self.shown(near)),
            (Notation::Keys, None) => nearest(flag, self.parts_in("")).map(str::to_string),
            (Notation::Keys, Some((section, last))) => {
                let path = format!("{section}.");
                nearest(last, self.parts_in(&path)).map(|near| format!("{path}{near}"))
            }
        };
        near.map_or_else(String::new, |near| format!(" (did you mean `{near}`?)"))
    }

    /// All names, in order.
    fn names(&self) -> BTreeSet<&str> {
        self.by_name.keys().chain(self.judged.later.keys()).map(String::as_str).collect()
    }

    /// Names of keys and sections within a section, whose path ends with a dot.
    fn parts_in<'t>(&'t self, path: &str) -> BTreeSet<&'t str> {
        let within = self.names().into_iter().filter_map(|name| name.strip_prefix(path));
        within.map(|rest| rest.split_once('.').map_or(rest, |(part, _)| part)).collect()
    }

    /// All flags by what a prediction does with them; `asked` are those that are read. Keys that `flag_of` knows are those of flags
    /// of Megatron-LM.
    #[cfg(test)]
    pub(crate) fn lists(&self, asked: &[&str], flag_of: fn(&str) -> Option<&str>) -> Lists {
        let mut lists = Lists::default();
        let first = self.rows.iter().filter_map(|row| row.flags.first()).chain(self.judged.later.keys());
        let mut names: Vec<&str> = first.map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let spellings = || self.row(name).into_iter().flat_map(|row| &row.flags).map(String::as_str).chain([name]);
            let shown = format!("`{}`", self.shown(name));
            let own = matches!(self.judgement(name), Judgement::Unsaid);
            let flag = flag_of(name).filter(|_| own);
            let is_read = spellings().chain(flag).any(|name| asked.contains(&name));
            let is_written = flag.is_some_and(|flag| MEGATRON.writes(flag));
            if is_written || spellings().any(|name| self.judged.written.iter().any(|written| written == name)) {
                lists.written.push(shown);
            } else if is_read {
                lists.read.push(shown);
            } else {
                match flag.map_or_else(|| self.judgement(name), |flag| MEGATRON.judgement(flag)) {
                    Judgement::Unmodelled(unmodelled) => lists.unmodelled.push((shown, unmodelled.told())),
                    Judgement::Harmless(why) => lists.harmless.entry(why.to_string()).or_default().push(shown),
                    Judgement::Unsaid => panic!("{name} is not judged"),
                }
            }
        }
        lists
    }

    /// Names that exports write and no version has.
    #[cfg(test)]
    pub(crate) fn written_of_nothing(&self) -> Vec<&str> {
        self.judged.written.iter().map(String::as_str).filter(|name| self.row(name).is_none()).collect()
    }

    /// True if exports write a flag, by the table.
    #[cfg(test)]
    pub(crate) fn writes(&self, name: &str) -> bool {
        self.judged.written.iter().any(|written| written == name)
    }

    /// Flags without a judgement, by their first spelling.
    #[cfg(test)]
    pub(crate) fn unsaid(&self) -> impl Iterator<Item = &str> {
        let first = self.rows.iter().filter_map(|row| row.flags.first()).chain(self.judged.later.keys());
        first.map(String::as_str).filter(|name| matches!(self.judgement(name), Judgement::Unsaid))
    }

    /// Judgements of flags and groups that none of some tables has, which share their judgements.
    #[cfg(test)]
    pub(crate) fn of_nothing<'t>(tables: &[&'t FlagTable]) -> Vec<&'t str> {
        let Judged { groups, harmless, unmodelled, renamed, former, later, written: _ } = &tables[0].judged;
        let judged = harmless.keys().chain(unmodelled.keys());
        let flags = judged.filter(|flag| !tables.iter().any(|table| table.asks(flag) || later.contains_key(*flag)));
        let unnamed = renamed.values().filter(|name| !tables.iter().any(|table| table.has(name)));
        let known = former
            .keys()
            .chain(renamed.keys())
            .chain(later.keys())
            .filter(|flag| tables.iter().any(|table| table.by_name.contains_key(*flag)));
        let used: Vec<&str> = tables.iter().flat_map(|table| table.rows.iter().map(|row| row.group.trim())).collect();
        let groups =
            groups.keys().filter(|group| !used.contains(&group.as_str()) && !later.values().any(|of| of == *group));
        flags.chain(known).chain(unnamed).chain(groups).map(String::as_str).collect()
    }
}
