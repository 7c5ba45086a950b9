//! Stack files. A file may begin from another (`from = "fsdp-compile"`) and state only the differences.

use crate::base_file::{BaseFile, linked, merged};
use crate::preset_error::{PresetError, none_or, toml_error};
use crate::presets::STACKS;
use crate::stack::Stack;
use ir::catalogue::Code;
use std::collections::BTreeMap;

impl BaseFile {
    /// File of a preset stack.
    ///
    /// # Errors
    /// No preset has the name.
    pub fn stack(name: &str) -> Result<BaseFile, PresetError> {
        let preset = STACKS.iter().find(|preset| preset.name == name);
        let file = preset.map(|preset| BaseFile { place: name.into(), text: preset.text.into() });
        file.ok_or_else(|| {
            let known: Vec<&str> = STACKS.iter().map(|preset| preset.name).collect();
            PresetError::unknown(Code::UnknownStack, "stack", name, &known)
        })
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
    /// values the later file wins. Name and description are not inherited. The flat form of traits (`[facts]`) is read too.
    ///
    /// # Errors
    /// A text is not TOML, lacks a constant, has an unknown key, or a figure is out of range. Files begin from each other. `open`
    /// fails.
    pub fn read<E: From<PresetError>>(
        text: &str,
        open: &mut dyn FnMut(&str) -> Result<BaseFile, E>,
    ) -> Result<Stack, E> {
        let files = linked(text, Code::BadStack, &["name", "about"], open)?;
        let sources = files.iter().rev().flat_map(|file| comments(&file.text)).collect();
        let stack = if files.len() == 1 && !files[0].has(flat::FACTS) {
            // Parses the text itself, so that an error has a line number.
            toml::from_str(text)
        } else {
            merged(files, flat::nested)?.try_into()
        };
        let stack = stack.map_err(|why| toml_error(Code::BadStack, &why))?;
        Ok(with_sources(stack, sources).checked()?)
    }
}

impl Stack {
    /// The stack, if its figures are within their ranges.
    pub(crate) fn checked(self) -> Result<Stack, PresetError> {
        let mut complaints = ranges::complaints(&self);
        self.supports.check(&mut complaints);
        self.conditions.check(&mut complaints);
        none_or(complaints, self, Code::BadStack)
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

mod flat;
mod ranges;
#[cfg(test)]
mod tests;
