//! Stack files. A file may begin from another (`from = "fsdp-compile"`) and state only the differences.

use crate::presets::{PresetError, STACKS, none_or, toml_error};
use crate::profile::SAVED;
use crate::stack::Stack;
use ir::catalogue::Code;
use toml::{Table, Value};

/// File of a stack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StackFile {
    /// Location, in one spelling for all spellings in `from`.
    pub place: String,
    /// Text of the file.
    pub text: String,
}

impl StackFile {
    /// File of a preset.
    ///
    /// # Errors
    /// No preset has the name.
    pub fn preset(name: &str) -> Result<StackFile, PresetError> {
        let known = || STACKS.iter().map(|preset| preset.name);
        let preset = STACKS.iter().find(|preset| preset.name == name);
        let file = preset.map(|preset| StackFile { place: name.into(), text: preset.text.into() });
        file.ok_or_else(|| PresetError::unknown(Code::UnknownStack, "stack", name, &known().collect::<Vec<_>>()))
    }
}

impl Stack {
    /// Preset of a name.
    ///
    /// # Errors
    /// No preset has the name.
    pub fn find(name: &str) -> Result<Stack, PresetError> {
        Stack::parse(&StackFile::preset(name)?.text)
    }

    /// Reads a stack from the text of a file, which may begin from a preset.
    ///
    /// # Errors
    /// As [`Stack::read`].
    pub fn parse(text: &str) -> Result<Stack, PresetError> {
        Stack::read(text, &mut |name| StackFile::preset(name))
    }

    /// Reads a stack from the text of a file; `open` returns the file named by `from`. Tables are merged key by key; for other
    /// values the later file wins. Name and description are not inherited.
    ///
    /// # Errors
    /// A text is not TOML, lacks a constant, has an unknown key, or a figure is out of range. Files begin from each other. `open`
    /// fails.
    pub fn read<E: From<PresetError>>(
        text: &str,
        open: &mut dyn FnMut(&str) -> Result<StackFile, E>,
    ) -> Result<Stack, E> {
        let mut whole: Table = toml::from_str(text).map_err(|why| toml_error(Code::BadStack, &why))?;
        if !whole.contains_key("from") {
            // Parses the text itself, so that an error has a line number.
            return Ok(checked(toml::from_str(text).map_err(|why| toml_error(Code::BadStack, &why))?)?);
        }
        let (mut names, mut places): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        while let Some(from) = whole.remove("from") {
            let Value::String(name) = from else {
                return Err(
                    wrong(format!("`from` is {from}, expected the name of a stack or a path, in quotes")).into()
                );
            };
            let StackFile { place, text } = open(&name)?;
            names.push(name);
            if places.contains(&place) {
                let circle = format!("`from` goes round in a circle: {}", names.join(" begins from "));
                return Err(wrong(circle).into());
            }
            places.push(place);
            let under = toml::from_str(&text).map_err(|why| toml_error(Code::BadStack, &why));
            let mut under: Table = under.map_err(|why| why.within(&names[names.len() - 1]))?;
            ["name", "about"].into_iter().for_each(|key| drop(under.remove(key)));
            whole = joined(under, whole);
        }
        let stack = whole.try_into().map_err(|why| toml_error(Code::BadStack, &why))?;
        Ok(checked(stack)?)
    }
}

/// First table, with the values of the second where it has any.
fn joined(mut under: Table, over: Table) -> Table {
    for (key, value) in over {
        let value = match (under.remove(&key), value) {
            (Some(Value::Table(under)), Value::Table(over)) => Value::Table(joined(under, over)),
            (_, value) => value,
        };
        under.insert(key, value);
    }
    under
}

fn wrong(message: String) -> PresetError {
    PresetError::wrong(Code::BadStack, message)
}

/// A stack whose figures are within their ranges.
fn checked(stack: Stack) -> Result<Stack, PresetError> {
    let mut complaints = ranges::complaints(&stack);
    let facts = &stack.facts;
    let groups = facts.fused.iter().filter(|name| !Stack::GROUPS.contains(&name.as_str()));
    complaints.extend(
        groups.map(|name| format!("`facts.fused` has `{name}`, which is none of {}", Stack::GROUPS.join(", "))),
    );
    let axes = facts.hides.iter().filter(|name| !Stack::AXES.contains(&name.as_str()));
    complaints
        .extend(axes.map(|name| format!("`facts.hides` has `{name}`, which is none of {}", Stack::AXES.join(", "))));
    let unknown = facts.saved.keys().filter(|name| !SAVED.iter().any(|(known, _)| known == name));
    let known: Vec<&str> = SAVED.iter().map(|(known, _)| *known).collect();
    complaints.extend(unknown.map(|name| format!("`facts.saved` has `{name}`, which is none of {}", known.join(", "))));
    stack.supports.check(&mut complaints);
    none_or(complaints, stack, Code::BadStack)
}

mod ranges;
#[cfg(test)]
mod tests;
