//! Stack files. A file may begin from another (`from = "fsdp-compile"`) and state only the differences.

use crate::base_file::{BaseFile, Joined, joined};
use crate::preset_error::{PresetError, none_or, toml_error};
use crate::presets::STACKS;
use crate::profile::SAVED;
use crate::stack::Stack;
use ir::catalogue::Code;
use std::collections::BTreeMap;

impl BaseFile {
    /// File of a preset stack.
    ///
    /// # Errors
    /// No preset has the name.
    pub fn stack(name: &str) -> Result<BaseFile, PresetError> {
        let known = || STACKS.iter().map(|preset| preset.name);
        let preset = STACKS.iter().find(|preset| preset.name == name);
        let file = preset.map(|preset| BaseFile { place: name.into(), text: preset.text.into() });
        file.ok_or_else(|| PresetError::unknown(Code::UnknownStack, "stack", name, &known().collect::<Vec<_>>()))
    }
}

impl Stack {
    /// Preset of a name.
    ///
    /// # Errors
    /// No preset has the name.
    pub fn find(name: &str) -> Result<Stack, PresetError> {
        Stack::parse(&BaseFile::stack(name)?.text)
    }

    /// Reads a stack from the text of a file, which may begin from a preset.
    ///
    /// # Errors
    /// As [`Stack::read`].
    pub fn parse(text: &str) -> Result<Stack, PresetError> {
        Stack::read(text, &mut |name| BaseFile::stack(name))
    }

    /// Reads a stack from the text of a file; `open` returns the file named by `from`. Tables are merged key by key; for other
    /// values the later file wins. Name and description are not inherited.
    ///
    /// # Errors
    /// A text is not TOML, lacks a constant, has an unknown key, or a figure is out of range. Files begin from each other. `open`
    /// fails.
    pub fn read<E: From<PresetError>>(
        text: &str,
        open: &mut dyn FnMut(&str) -> Result<BaseFile, E>,
    ) -> Result<Stack, E> {
        let Some(Joined { table, texts }) = joined(text, (Code::BadStack, &["name", "about"]), open)? else {
            // Parses the text itself, so that an error has a line number.
            let stack = toml::from_str(text).map_err(|why| toml_error(Code::BadStack, &why))?;
            return Ok(checked(with_sources(stack, comments(text)))?);
        };
        let stack = table.try_into().map_err(|why| toml_error(Code::BadStack, &why))?;
        let mut sources = BTreeMap::new();
        texts.iter().rev().for_each(|text| sources.extend(comments(text)));
        Ok(checked(with_sources(stack, sources))?)
    }
}

fn with_sources(mut stack: Stack, sources: BTreeMap<String, String>) -> Stack {
    stack.supports.sources = sources;
    stack
}

/// Comments directly before the keys of `[supports]` and `[supports.rules]`, by key.
fn comments(text: &str) -> BTreeMap<String, String> {
    let (mut found, mut is_inside, mut comment) = (BTreeMap::new(), false, Vec::new());
    for line in text.lines().map(str::trim) {
        if let Some(said) = line.strip_prefix('#') {
            comment.push(said.trim());
            continue;
        }
        if line.starts_with('[') {
            is_inside = matches!(line, "[supports]" | "[supports.rules]");
        } else if let Some((key, _)) = line.split_once('=').filter(|_| is_inside && !comment.is_empty()) {
            found.insert(key.trim().to_string(), comment.join(" ").trim_end_matches('.').to_string());
        }
        comment.clear();
    }
    found
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
