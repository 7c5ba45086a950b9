//! Rewriting of ops: statements of the forward are replaced by graphs of other ops, which a caller builds. This is how a
//! program adds an op of its own: differentiation, sharding rules and kernels then follow from those of the ops in its graph.

use crate::renumber::renumber;
use ir::catalogue::Code;
use ir::diag::Coded;
use ir::graph::{Block, Model, Section, SectionKind, Stmt};
use ir::ids::Value;
use ir::ops::Builder;
use std::fmt;

/// Error: a statement cannot be replaced.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RewriteError {
    /// The name of the block without `@`.
    pub block: String,
    /// The message.
    pub message: String,
}

impl fmt::Display for RewriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block @{}: {}", self.block, self.message)
    }
}

impl std::error::Error for RewriteError {}

impl Coded for RewriteError {
    fn code(&self) -> Option<Code> {
        Some(Code::OperandMismatch)
    }

    fn help(&self) -> Option<String> {
        Some(
            "rewrite a model before it is differentiated, by a graph whose results have the statement's types"
                .to_string(),
        )
    }
}

/// Replaces statements of the forwards of a model, and returns the number of replaced statements.
///
/// `graph` gets each statement and a builder that appends before it. It returns the values that replace the statement's
/// results, or `None` to leave the statement as it is.
///
/// ```
/// use ir::ops::{Binary, BinaryKind, Op, Unary, UnaryKind};
/// use meshwright_transforms::rewrite::rewrite;
///
/// let text = "
///     dims [b=4, h=8]
///     model @m(%x: input f32[b, h]) { call @block(%x) }
///     block @block(%x: input f32[b, h]) -> metric f32[b, h] {
///       %y: f32[b, h] = silu(%x)
///       return %y
///     }";
/// let mut model = ir::text::parse(text).unwrap().model;
/// // x / (1 + e^-1.702x), the sigmoid approximation of GELU.
/// let replaced = rewrite(&mut model, |builder, stmt| {
///     if stmt.op != Op::from(Unary(UnaryKind::Silu)) {
///         return Ok(None);
///     }
///     let x = stmt.operands[0];
///     let scaled = builder.one(Unary(UnaryKind::Scale(1.702)), &[x])?;
///     let gate = builder.one(Unary(UnaryKind::Sigmoid), &[scaled])?;
///     Ok(Some(vec![builder.one(Binary { kind: BinaryKind::Mul, equation: None }, &[x, gate])?]))
/// })?;
/// assert_eq!(replaced, 1);
/// # Ok::<(), meshwright_transforms::rewrite::RewriteError>(())
/// ```
///
/// # Errors
/// A block has gradients already. `graph` fails. Its results are not computed by its own statements, or have other types than
/// those of the statement.
pub fn rewrite(
    model: &mut Model,
    mut graph: impl FnMut(&mut Builder<'_>, &Stmt) -> Result<Option<Vec<Value>>, String>,
) -> Result<usize, RewriteError> {
    let mut replaced = 0;
    for block in model.blocks.values_mut() {
        let count = rewrite_block(block, model.has_mesh, &mut graph);
        replaced += count.map_err(|message| RewriteError { block: block.name.clone(), message })?;
    }
    Ok(replaced)
}

fn rewrite_block(
    block: &mut Block,
    has_mesh: bool,
    graph: &mut impl FnMut(&mut Builder<'_>, &Stmt) -> Result<Option<Vec<Value>>, String>,
) -> Result<usize, String> {
    if [SectionKind::I, SectionKind::W, SectionKind::U].iter().any(|&kind| block[kind] != Section::default()) {
        return Err("it has gradients, which do not follow a rewritten forward".to_string());
    }
    let stmts = std::mem::take(&mut block[SectionKind::F].stmts);
    let (mut rewritten, mut replaced) = (Vec::new(), 0);
    for stmt in stmts {
        let mut builder = Builder::new(block);
        match graph(&mut builder, &stmt)? {
            None => rewritten.push(stmt),
            Some(values) => {
                let mut new = builder.stmts;
                // Where the model states shardings, the planner chooses those of the new values.
                for &value in new.iter().flat_map(|stmt| &stmt.results) {
                    block.values[value].ty.dims.iter_mut().for_each(|dim| dim.open = has_mesh);
                }
                take_place(block, &mut new, &values, &stmt)?;
                rewritten.append(&mut new);
                replaced += 1;
            }
        }
    }
    block[SectionKind::F].stmts = rewritten;
    renumber(block);
    Ok(replaced)
}

/// Makes the new statements define the results of the old one.
fn take_place(block: &Block, new: &mut [Stmt], values: &[Value], old: &Stmt) -> Result<(), String> {
    let name = old.op.name();
    if values.len() != old.results.len() {
        return Err(format!("`{name}` has {} results, the graph {}", old.results.len(), values.len()));
    }
    for (&from, &to) in values.iter().zip(&old.results) {
        if !new.iter().any(|stmt| stmt.results.contains(&from)) {
            return Err(format!("the graph for `{name}` does not compute its result `%{}`", block.value_name(from)));
        }
        if block.ty(from).logical() != block.ty(to).logical() {
            return Err(format!("the graph for `{name}` gives `%{}` another type", block.value_name(to)));
        }
        for value in new.iter_mut().flat_map(|stmt| stmt.results.iter_mut().chain(&mut stmt.operands)) {
            if *value == from {
                *value = to;
            }
        }
    }
    if let Some(first) = new.first_mut() {
        first.comments.clone_from(&old.comments);
    }
    Ok(())
}
