//! Differentiation: adds the sections `I`, `W` and `U` to the forward blocks of a model, and the step graph.
//!
//! Each distinct block is differentiated once, on logical tensors, however often it is called. `reverse` walks `F`
//! backwards and yields one list of statements; `sections` distributes it over `I` and `W`; `update` adds the parameter
//! update, once a step. Gradients are accumulated per (block, parameter): a parameter passed to several calls (a tied
//! embedding) has a gradient in each of their blocks; the program sums them per parameter instance before `U`. Its update
//! is in one block, the owner: that of the first call that binds it and has a gradient for it.

mod counts;
mod muon;
mod reverse;
mod sections;
mod update;

pub(crate) use self::update::add_arg;
use crate::build_error::BuildError;
use crate::renumber::renumber;
use ir::catalogue::Code;
use ir::diag::{Coded, Diagnostic};
use ir::graph::{Block, Model, Section, SectionKind, Span, Stmt};
use ir::ids::Value;
use ir::optimizer::Optimizer;
use std::fmt;

/// Error: a model cannot be differentiated.
#[derive(Clone, PartialEq, Debug)]
pub struct DifferentiateError {
    /// The name of the block without `@`; empty if no block causes the error.
    pub block: String,
    /// The statement that causes the error.
    pub statement: Option<String>,
    /// The location of the statement or block in the text.
    pub span: Span,
    /// The message.
    pub message: String,
}

impl fmt::Display for DifferentiateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.block.is_empty() {
            write!(f, "block @{}: ", self.block)?;
        }
        if let Some(statement) = &self.statement {
            write!(f, "`{statement}`: ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for DifferentiateError {}

impl Coded for DifferentiateError {
    fn code(&self) -> Option<Code> {
        Some(Code::NoGradient)
    }

    fn help(&self) -> Option<String> {
        Diagnostic::from(self.clone()).help
    }
}

impl DifferentiateError {
    fn in_model(why: impl fmt::Display) -> DifferentiateError {
        let message = why.to_string();
        DifferentiateError { block: String::new(), statement: None, span: Span::default(), message }
    }

    fn in_block(block: &Block, why: impl fmt::Display) -> DifferentiateError {
        let message = why.to_string();
        DifferentiateError { block: block.name.clone(), statement: None, span: block.span, message }
    }

    fn in_statement(block: &Block, stmt: &Stmt, why: BuildError) -> DifferentiateError {
        let message = why.to_string();
        let (results, operands) = (names(block, &stmt.results), names(block, &stmt.operands));
        let statement = format!("{results} = {}({operands})", stmt.op.name());
        DifferentiateError { block: block.name.clone(), statement: Some(statement), span: stmt.span, message }
    }
}

impl From<DifferentiateError> for Diagnostic {
    fn from(error: DifferentiateError) -> Diagnostic {
        let diagnostic = Diagnostic::new(Code::NoGradient, error.message.clone()).at(error.span);
        diagnostic.help("correct the block, or write its sections I, W and U out")
    }
}

/// Adds to every block its gradient sections and its update, and to the model the step graph.
///
/// # Errors
/// The model is differentiated already; an op on the way has no gradient; a block's calls do not agree on which parameters
/// they own or decay; a value has a name that the update needs (`%lr`, `%w.grad`).
pub fn differentiate(mut model: Model, optimizer: &Optimizer) -> Result<Model, DifferentiateError> {
    derive(&mut model)?;
    let (bindings, dims) = (update::bindings(&model)?, model.dims.clone());
    for (id, block) in model.blocks.iter_mut() {
        update::update(block, &bindings[id], optimizer, &dims)
            .map_err(|why| DifferentiateError::in_block(block, why))?;
    }
    finish(&mut model);
    model.step = Some(update::step(optimizer).map_err(DifferentiateError::in_model)?);
    Ok(model)
}

/// Adds to every block its gradient sections alone: the work of a micro-batch, without the parameter update.
///
/// # Errors
/// The model is differentiated already, or an op on the way has no gradient.
pub fn gradients(mut model: Model) -> Result<Model, DifferentiateError> {
    derive(&mut model)?;
    finish(&mut model);
    Ok(model)
}

/// The names of values, separated by commas.
fn names(block: &Block, values: &[Value]) -> String {
    values.iter().map(|&value| format!("%{}", block.value_name(value))).collect::<Vec<_>>().join(", ")
}

fn derive(model: &mut Model) -> Result<(), DifferentiateError> {
    let derived = [SectionKind::I, SectionKind::W, SectionKind::U];
    let is_derived = model.blocks.values().any(|block| derived.iter().any(|&kind| block[kind] != Section::default()));
    if model.is_differentiated() || is_derived {
        return Err(DifferentiateError::in_model("the model is already differentiated"));
    }
    let frozen = update::frozen(model)?;
    for (id, block) in model.blocks.iter_mut() {
        let backward = reverse::backward(block, &frozen[id])?;
        sections::split(block, backward).map_err(|why| DifferentiateError::in_block(block, why))?;
    }
    Ok(())
}

fn finish(model: &mut Model) {
    for block in model.blocks.values_mut() {
        renumber(block);
        if model.has_mesh {
            open_made(block);
        }
    }
}

/// On a mesh, opens the dims of all new values: the planner decides their shardings.
fn open_made(block: &mut Block) {
    let given: Vec<Value> = block.args.iter().map(|arg| arg.value).collect();
    for kind in [SectionKind::I, SectionKind::W, SectionKind::U] {
        let results = block[kind].stmts.iter().flat_map(|stmt| stmt.results.clone());
        let made: Vec<Value> = results.chain(block[kind].args.clone()).filter(|value| !given.contains(value)).collect();
        made.into_iter().for_each(|value| block.values[value].ty.dims.iter_mut().for_each(|dim| dim.open = true));
    }
}

/// A reserved name, if no value has it.
fn free(block: &Block, name: String) -> Result<String, BuildError> {
    match block.find(&name) {
        Some(_) => Err(BuildError::ReservedName(name)),
        None => Ok(name),
    }
}
