//! The names after `selective:`: modules, and single values of a layer's forward.

use super::{MODULES, is_layer};
use ir::catalogue::Code;
use ir::diag::{Coded, nearest};
use ir::graph::{Block, Model, SectionKind};
use ir::options::Recompute;
use std::fmt;

/// Error: a name after `selective:` is neither a module nor a value of the forward of a layer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownName {
    name: String,
    /// The valid names, by group.
    known: Vec<(String, Vec<String>)>,
}

/// True if a name is that of a module.
pub fn is_module(name: &str) -> bool {
    MODULES.iter().any(|(module, _)| *module == name)
}

/// The index of the statement of `F` that computes a named value: `n` of any block, `layer.n` of the block `layer` or of its
/// slices. Reshards have no stable names.
pub fn of_value(block: &Block, name: &str) -> Option<usize> {
    let mut prefixes = name.match_indices('.').filter(|(at, _)| is_of(block, &name[..*at]));
    kernel_of(block, name).or_else(|| prefixes.find_map(|(at, _)| kernel_of(block, &name[at + 1..])))
}

/// The statement of a kernel that computes the value of a name.
fn kernel_of(block: &Block, name: &str) -> Option<usize> {
    block[SectionKind::F].stmts.iter().position(|stmt| {
        stmt.op.kernel().is_some() && stmt.results.iter().any(|&value| block.value_name(value) == name)
    })
}

/// True if a block has this name, or is a slice of the block with this name.
fn is_of(block: &Block, name: &str) -> bool {
    let Some(rest) = block.name.strip_prefix(name) else { return false };
    let slice = rest.strip_prefix('.').and_then(|number| number.parse::<u32>().ok());
    rest.is_empty() || slice.is_some()
}

/// Checks that every name is that of a module, or of a value of the forward of some layer.
///
/// # Errors
/// A name is that of neither.
pub fn check_names(model: &Model, recompute: &Recompute) -> Result<(), UnknownName> {
    let Recompute::Selective(names) = recompute else { return Ok(()) };
    let layers: Vec<&Block> = model.blocks.values().filter(|block| is_layer(block)).collect();
    let mut others = names.iter().filter(|name| !is_module(name));
    let unknown = others.find(|name| layers.iter().all(|block| of_value(block, name).is_none()));
    let Some(name) = unknown else { return Ok(()) };
    let modules = MODULES.iter().map(|(module, _)| module.to_string()).collect();
    let values = layers.iter().map(|block| (format!("values of @{}", block.name), values(block)));
    Err(UnknownName {
        name: name.clone(),
        known: [("modules".to_string(), modules)].into_iter().chain(values).collect(),
    })
}

/// The first value of each statement that can be named.
fn values(block: &Block) -> Vec<String> {
    let kernels = block[SectionKind::F].stmts.iter().filter(|stmt| stmt.op.kernel().is_some());
    kernels.filter_map(|stmt| stmt.results.first()).map(|&value| block.value_name(value).to_string()).collect()
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        write!(f, "recompute=selective:{name}: no module is named so, and no value of the forward of a layer")
    }
}

impl std::error::Error for UnknownName {}

impl Coded for UnknownName {
    fn code(&self) -> Option<Code> {
        Some(Code::BadOption)
    }

    fn help(&self) -> Option<String> {
        let names = self.known.iter().flat_map(|(_, names)| names).map(String::as_str);
        let near = nearest(&self.name, names).map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
        let lists = self.known.iter().map(|(of, names)| format!("{of}: {}", names.join(", ")));
        Some(format!("{near}{}", lists.collect::<Vec<_>>().join("; ")))
    }
}
