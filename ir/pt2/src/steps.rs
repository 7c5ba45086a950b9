//! Statements of a block with names in place of numbers. Layers of the same names and ops have equal blocks.

use crate::atoms::Atom;
use crate::blocks::Segment;
use crate::names::Label;
use crate::program::{Action, Argument, Statement, Var};
use crate::template::{Parts, declared, labels, weights_of};
use ir::models;
use ir::ops::{Attention, Binary, Combine, Einsum, Embedding, LayerNorm, Op, Reduce, RmsNorm, Softmax, TopK, Unary};
use ir::types::PartialKind;
use std::collections::BTreeMap;

/// A statement.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum NamedStep {
    Op {
        results: Vec<String>,
        op: Op,
        operands: Vec<String>,
    },
    /// Its dims are names, which mean dims once the model has them.
    Reshape {
        result: String,
        dims: String,
        operand: String,
    },
    /// The rows of each expert and their number, as [`NamedStep::Reshape`] with dims of the model.
    Dispatch {
        results: [String; 2],
        operands: [String; 2],
    },
}

/// A block.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct NamedBlock {
    pub(crate) weights: Vec<models::Weight>,
    pub(crate) steps: Vec<NamedStep>,
    pub(crate) result: String,
}

/// The block of a segment, whose weights have these names. The model has `layers` layers.
///
/// # Errors
/// A statement has other dims than its op. The number is that of its node.
pub(crate) fn steps(
    parts: &Parts<'_>,
    segment: &Segment,
    weights: &BTreeMap<usize, String>,
    layers: usize,
) -> Result<NamedBlock, (usize, String)> {
    let used = weights_of(segment);
    let layers = segment.layer.as_ref().map(|_| layers);
    let declared =
        used.iter().map(|&weight| declared(parts, &parts.program.weights[weight], &weights[&weight], layers));
    let mut writer = Writer { parts, weights, vars: BTreeMap::new(), counts: BTreeMap::new(), steps: Vec::new() };
    writer.vars.extend(segment.input.map(|input| (input, "x".to_string())));
    let mut block = NamedBlock { weights: declared.collect(), steps: Vec::new(), result: String::new() };
    for statement in &segment.statements {
        writer.statement(statement).map_err(|why| (statement.node, why))?;
    }
    block.result = writer.vars.get(&segment.output).cloned().unwrap_or_else(|| "x".to_string());
    block.steps = writer.steps;
    Ok(block)
}

struct Writer<'a> {
    parts: &'a Parts<'a>,
    weights: &'a BTreeMap<usize, String>,
    vars: BTreeMap<Var, String>,
    /// The number of results with each name.
    counts: BTreeMap<String, u32>,
    steps: Vec<NamedStep>,
}

impl Writer<'_> {
    fn statement(&mut self, statement: &Statement) -> Result<(), String> {
        match &statement.action {
            Action::Embedding { pad } => self.plain(statement, Embedding { pad: *pad }, &[]),
            Action::Product => {
                let equation = self.equation(statement);
                self.plain(statement, Einsum::new(&equation)?, &[])
            }
            Action::Unary(kind) => self.plain(statement, Unary(*kind), &[]),
            Action::Binary(kind) => {
                let dims: Vec<Vec<Label>> = statement.operands.iter().map(|operand| self.labels(*operand)).collect();
                let op = if dims[0] == dims[1] {
                    Binary::of(*kind)
                } else {
                    Binary::spread(*kind, &self.equation(statement))?
                };
                self.plain(statement, op, &[])
            }
            Action::RmsNorm { eps } => self.norm(statement, RmsNorm { eps: *eps }.into(), &["rstd"]),
            Action::LayerNorm { eps } => self.norm(statement, LayerNorm { eps: *eps }.into(), &["mean", "rstd"]),
            Action::Rope(rope) => self.plain(statement, rope.clone(), &[]),
            Action::Attention(settings) => self.plain(statement, Attention(settings.clone()), &["lse"]),
            Action::Softmax => self.plain(statement, Softmax, &[]),
            Action::Sum => {
                let equation = self.equation(statement);
                self.plain(statement, Reduce::new(PartialKind::Sum, &equation)?, &[])
            }
            Action::TopK { k } => self.plain(statement, TopK { k: *k, limit: None }, &["chosen"]),
            Action::Group | Action::Ungroup => self.reshape(statement),
            Action::Dispatch => self.dispatch(statement),
            Action::Combine => self.plain(statement, Combine, &[]),
        }
    }

    /// The dims of operands and result: `b s h, h f -> b s f`.
    fn equation(&self, statement: &Statement) -> String {
        let text = |labels: Vec<Label>| {
            // A factor needs a name, and a dim that only a parameter has is a number.
            let name = |label: &Label| match label {
                Label::Sized(size) => format!("n{size}"),
                Label::Chosen(_) => "k".to_string(),
                label => label.to_string(),
            };
            labels.iter().map(name).collect::<Vec<_>>().join(" ")
        };
        let operands: Vec<String> = statement.operands.iter().map(|operand| text(self.labels(*operand))).collect();
        format!("{} -> {}", operands.join(", "), text(labels(self.parts, statement.result)))
    }

    fn labels(&self, operand: Argument) -> Vec<Label> {
        match operand {
            Argument::Var(var) => labels(self.parts, var),
            Argument::Weight(weight) => {
                let leaves = self.leaves(weight);
                leaves.into_iter().map(|leaf| self.parts.names.label(self.parts.atoms, leaf)).collect()
            }
            Argument::Tokens | Argument::Positions | Argument::Segments => {
                vec![Label::Named("b", 1), Label::Named("s", 1)]
            }
        }
    }

    fn leaves(&self, weight: usize) -> Vec<Atom> {
        let dims = &self.parts.program.weights[weight].view.dims;
        dims.iter().flat_map(|&(atom, _)| self.parts.atoms.leaves(&[atom])).collect()
    }

    fn operand(&self, operand: Argument) -> Result<String, String> {
        match operand {
            Argument::Var(var) => {
                self.vars.get(&var).cloned().ok_or_else(|| "a value of another block is read".to_string())
            }
            Argument::Weight(weight) => Ok(self.weights[&weight].clone()),
            Argument::Tokens => Ok("tok".to_string()),
            Argument::Positions => Ok("pos".to_string()),
            Argument::Segments => Ok("seg".to_string()),
        }
    }

    /// A statement of one op, whose first result is the statement's. The names of others have these endings.
    fn plain(&mut self, statement: &Statement, op: impl Into<Op>, more: &[&str]) -> Result<(), String> {
        let op = op.into();
        let operands =
            statement.operands.iter().map(|&operand| self.operand(operand)).collect::<Result<Vec<_>, _>>()?;
        let name = self.name(op.name());
        let results: Vec<String> =
            [name.clone()].into_iter().chain(more.iter().map(|more| format!("{name}_{more}"))).collect();
        self.vars.extend(statement.results().zip(results.iter().cloned()));
        self.steps.push(NamedStep::Op { results, op, operands });
        Ok(())
    }

    /// A new name for the result of an op.
    fn name(&mut self, name: &str) -> String {
        let count = self.counts.entry(name.to_string()).or_insert(0);
        *count += 1;
        format!("{name}{count}")
    }

    /// The value in its dims.
    fn reshape(&mut self, statement: &Statement) -> Result<(), String> {
        let dims = labels(self.parts, statement.result).iter().map(Label::to_string).collect::<Vec<_>>().join(" ");
        let (operand, result) = (self.operand(statement.operands[0])?, self.name("reshape"));
        self.vars.insert(statement.result, result.clone());
        self.steps.push(NamedStep::Reshape { result, dims, operand });
        Ok(())
    }

    fn dispatch(&mut self, statement: &Statement) -> Result<(), String> {
        let operands = [self.operand(statement.operands[0])?, self.operand(statement.operands[1])?];
        let name = self.name("dispatch");
        self.vars.insert(statement.result, name.clone());
        self.steps.push(NamedStep::Dispatch { results: [name.clone(), format!("{name}_count")], operands });
        Ok(())
    }

    /// A norm of rows. Rows of several dims are joined before it.
    fn norm(&mut self, statement: &Statement, op: Op, more: &[&str]) -> Result<(), String> {
        let Argument::Weight(gain) = statement.operands[1] else { return Err("a norm has no gain".to_string()) };
        let (inner, own) = (self.leaves(gain).len(), labels(self.parts, statement.result));
        if inner == 1 {
            return self.plain(statement, op, more);
        }
        let outer = own.len().checked_sub(inner).ok_or("a norm of more dims than its operand has")?;
        let size: u64 = self.leaves(gain).iter().map(|&leaf| self.parts.atoms.size(leaf)).product();
        let text = |labels: &[Label]| labels.iter().map(Label::to_string).collect::<Vec<_>>().join(" ");
        let name = self.name(op.name());
        let mut operands = Vec::new();
        for (at, &operand) in statement.operands.iter().enumerate() {
            let (result, operand) = (format!("{name}_flat{at}"), self.operand(operand)?);
            let dims = if at == 0 { format!("{} {size}", text(&own[..outer])) } else { size.to_string() };
            self.steps.push(NamedStep::Reshape { result: result.clone(), dims, operand });
            operands.push(result);
        }
        let results: Vec<String> = ["flat"].iter().chain(more).map(|ending| format!("{name}_{ending}")).collect();
        let flat = results[0].clone();
        self.steps.push(NamedStep::Op { results, op, operands });
        self.steps.push(NamedStep::Reshape { result: name.clone(), dims: text(&own), operand: flat });
        self.vars.insert(statement.result, name);
        Ok(())
    }
}
