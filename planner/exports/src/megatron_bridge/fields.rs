//! Fields of a YAML file of Megatron-Bridge, by their paths.

use crate::flag_error::FlagError;
use crate::flag_table::Setting;
use crate::yaml::{self, NOTHING};
use std::collections::{BTreeMap, BTreeSet};
use yaml_rust2::Yaml;

/// Fields with their values as text: lists are words, and functions or element types of Python their paths.
pub(super) struct Fields {
    values: BTreeMap<String, String>,
    lists: BTreeSet<String>,
}

impl Fields {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// The text is no YAML, or no configuration.
    pub(super) fn of(text: &str) -> Result<Fields, FlagError> {
        let file = yaml::load(text)?;
        if file["model"].as_hash().is_none() {
            return Err(FlagError::Text("it has no section `model`".to_string()));
        }
        let mut fields = Fields { values: BTreeMap::new(), lists: BTreeSet::new() };
        fields.leaves(&file, String::new());
        Ok(fields)
    }

    /// The value of a field.
    pub(super) fn text(&self, field: &str) -> Option<&str> {
        self.values.get(field).map(String::as_str)
    }

    /// Puts the value of a field in the place of another, if it is stated.
    pub(super) fn replace(&mut self, from: &str, to: &str) {
        if let Some(value) = self.text(from).filter(|value| *value != NOTHING).map(str::to_string) {
            self.values.insert(to.to_string(), value);
        }
    }

    /// True if the value of a field is a list.
    pub(super) fn is_list(&self, field: &str) -> bool {
        self.lists.contains(field)
    }

    /// Puts the fields within a section, by their paths.
    fn leaves(&mut self, value: &Yaml, path: String) {
        if let Some(text) = text_of(value) {
            if value.is_array() {
                self.lists.insert(path.clone());
            }
            self.values.insert(path, text);
            return;
        }
        for (name, value) in value.as_hash().into_iter().flatten() {
            let Some(name) = name.as_str() else { continue };
            self.leaves(value, if path.is_empty() { name.to_string() } else { format!("{path}.{name}") });
        }
    }

    /// Names of all fields.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }

    /// All fields that are no names of classes, as a table of keys takes them.
    pub(super) fn settings(&self) -> Vec<Setting> {
        let fields = self.values.iter().filter(|(name, _)| !name.ends_with("_target_"));
        fields.map(|(name, value)| Setting { name: name.clone(), value: Some(value.clone()) }).collect()
    }
}

/// A value as text; none of a section.
fn text_of(value: &Yaml) -> Option<String> {
    match value {
        Yaml::Array(items) => Some(items.iter().filter_map(text_of).collect::<Vec<_>>().join(" ")),
        // A value of an enum has its name, a function or an element type its path alone.
        Yaml::Hash(section) => match (value["_name_"].as_str(), value["_target_"].as_str()) {
            (Some(name), _) => Some(name.to_string()),
            (None, Some(path)) if value["_call_"].as_bool() == Some(false) => Some(path.to_string()),
            _ => section.is_empty().then(String::new),
        },
        other => yaml::text_of(other),
    }
}
