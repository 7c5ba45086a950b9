//! Keys of MaxText in a file, or behind its command in a script.

use crate::flag_error::FlagError;
use crate::flag_table::{MAXTEXT, Setting};
use crate::{shell, yaml};
use std::collections::BTreeMap;
use yaml_rust2::Yaml;

/// Keys with their values.
pub(super) struct FileKeys {
    keys: BTreeMap<String, Yaml>,
    /// True if they are words of a script, which has words of its own too.
    pub(super) is_script: bool,
}

impl FileKeys {
    /// Reads a YAML file, or a script whose command has keys with their values as words.
    ///
    /// # Errors
    /// The text is neither, or has no keys.
    pub(super) fn of(text: &str) -> Result<FileKeys, FlagError> {
        let is_script = text.lines().any(is_command);
        let keys = if is_script { of_script(text)? } else { of_file(text)? };
        match keys.is_empty() {
            true => Err(FlagError::Text("it has no keys of MaxText".to_string())),
            false => Ok(FileKeys { keys, is_script }),
        }
    }

    /// Reads lines of YAML, which an export writes.
    pub(super) fn of_lines(lines: &[String]) -> Option<FileKeys> {
        of_file(&lines.join("\n")).ok().map(|keys| FileKeys { keys, is_script: false })
    }

    /// True if a file states a key.
    pub(super) fn has(&self, key: &str) -> bool {
        self.keys.contains_key(key)
    }

    /// All of them, as a table of keys takes them.
    pub(super) fn settings(&self) -> Vec<Setting> {
        let settings =
            self.keys.iter().map(|(name, value)| Setting { name: name.clone(), value: yaml::text_of(value) });
        settings.collect()
    }

    /// The value of a key as it is written; none of a list.
    pub(super) fn text(&self, key: &str) -> Option<String> {
        self.keys.get(key).and_then(yaml::text_of)
    }

    /// The items of a list of lists, by the first of each.
    pub(super) fn rules(&self, key: &str) -> Option<Vec<&str>> {
        self.keys.get(key)?.as_vec()?.iter().map(|rule| rule[0].as_str()).collect()
    }

    /// True if a list has these items, or is not stated.
    pub(super) fn has_items(&self, key: &str, items: &[&str]) -> bool {
        let Some(list) = self.keys.get(key) else { return true };
        list.as_vec().is_some_and(|list| list.iter().map(Yaml::as_str).eq(items.iter().map(|item| Some(*item))))
    }

    /// A whole number; `-1` where MaxText finds it itself.
    ///
    /// # Errors
    /// The value is none.
    pub(super) fn whole(&self, key: &str) -> Result<Option<i64>, FlagError> {
        let Some(text) = self.text(key) else { return Ok(None) };
        // Python reads 4096.0 as a whole number, too.
        let digits = text.replace('_', "");
        let number = digits.strip_suffix(".0").unwrap_or(&digits).parse();
        number.map(Some).map_err(|_| format!("{key} is `{text}`: it takes a whole number").into())
    }

    /// A size; none if the key has another value.
    pub(super) fn size(&self, key: &str) -> Option<u64> {
        self.whole(key).ok().flatten()?.try_into().ok()
    }

    /// A number; none if the key has another value.
    pub(super) fn number(&self, key: &str) -> Option<f64> {
        self.text(key)?.replace('_', "").parse().ok()
    }

    /// A truth value; none if the key has another value.
    pub(super) fn truth(&self, key: &str) -> Option<bool> {
        yaml::truth(&self.text(key)?)
    }

    /// True if a key is true.
    pub(super) fn is_set(&self, key: &str) -> bool {
        self.truth(key) == Some(true)
    }
}

/// True if a line of a script starts Python.
fn is_command(line: &str) -> bool {
    let mut words = line.split_whitespace();
    let is_python = words.next().is_some_and(|word| matches!(word.rsplit('/').next(), Some("python" | "python3")));
    is_python && words.next().is_some_and(|word| word == "-m" || word.ends_with(".py"))
}

fn of_file(text: &str) -> Result<BTreeMap<String, Yaml>, FlagError> {
    let file = yaml::load(text)?;
    let keys = file.into_hash().ok_or_else(|| FlagError::Text("it has no keys".to_string()))?;
    let keys = keys.into_iter().filter_map(|(key, value)| Some((key.into_string()?, value)));
    Ok(keys.collect())
}

/// Keys behind the command of a script. A shell's own variables have names in capitals.
fn of_script(text: &str) -> Result<BTreeMap<String, Yaml>, FlagError> {
    let variables = shell::variables(text)?;
    let keys = variables.into_iter().filter(|(name, _)| MAXTEXT.has(name) || !name.contains(char::is_uppercase));
    Ok(keys.map(|(name, value)| (name, Yaml::from_str(&value))).collect())
}
