//! Reader of a stack's file. The file may begin from another (`from = "fsdp-compile"`) and state only the differences.

use crate::presets::{PresetError, STACKS, none_or, told};
use crate::profile::SAVED;
use crate::stack::Stack;
use ir::catalogue::Code;
use toml::{Table, Value};

/// A stack's file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StackFile {
    /// Its canonical path, for any spelling in `from`.
    pub place: String,
    /// Its text.
    pub text: String,
}

impl StackFile {
    /// The file of a preset.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn preset(name: &str) -> Result<StackFile, PresetError> {
        let known = || STACKS.iter().map(|preset| preset.name);
        let preset = STACKS.iter().find(|preset| preset.name == name);
        let file = preset.map(|preset| StackFile { place: name.into(), text: preset.text.into() });
        file.ok_or_else(|| PresetError::unknown(Code::UnknownStack, "stack", name, &known().collect::<Vec<_>>()))
    }
}

impl Stack {
    /// The preset of a name.
    ///
    /// # Errors
    /// There is none.
    pub fn find(name: &str) -> Result<Stack, PresetError> {
        Stack::parse(&StackFile::preset(name)?.text)
    }

    /// The stack that a file's text describes, which may begin from a preset.
    ///
    /// # Errors
    /// As [`Stack::read`].
    pub fn parse(text: &str) -> Result<Stack, PresetError> {
        Stack::read(text, &mut |name| StackFile::preset(name))
    }

    /// The stack that a file's text describes; `open` gives the file that is named beside `from`, if the text or that file has
    /// it. Tables are joined key by key, and the rest is as the later file has it; a name and a description are its own.
    ///
    /// # Errors
    /// A text is no TOML, lacks a constant, has an unknown key, or a figure out of its range; files begin from each other; what
    /// `open` says.
    pub fn read<E: From<PresetError>>(
        text: &str,
        open: &mut dyn FnMut(&str) -> Result<StackFile, E>,
    ) -> Result<Stack, E> {
        let mut whole: Table = toml::from_str(text).map_err(|why| told(Code::BadStack, &why))?;
        if !whole.contains_key("from") {
            // The text itself, so that what is wrong is told with its line.
            return Ok(checked(toml::from_str(text).map_err(|why| told(Code::BadStack, &why))?)?);
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
            let under = toml::from_str(&text).map_err(|why| told(Code::BadStack, &why));
            let mut under: Table = under.map_err(|why| why.within(&names[names.len() - 1]))?;
            ["name", "about"].into_iter().for_each(|key| drop(under.remove(key)));
            whole = joined(under, whole);
        }
        let stack = whole.try_into().map_err(|why| told(Code::BadStack, &why))?;
        Ok(checked(stack)?)
    }
}

/// The first table with what the second states.
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
