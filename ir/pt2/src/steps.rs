//! Statements of a block with names in place of numbers. Layers of the same names and ops have equal blocks.

use crate::atoms::Atom;
use crate::blocks::Segment;
use crate::names::Label;
use crate::program::{Action, Argument, Lean, Statement, Var};
use crate::template::{Parts, declared, labels, weights_of};
use ir::models;
use ir::ops::{
    Attention, Binary, Combine, Compare, Concat, Einsum, Embedding, Frame, LayerNorm, Op, Pad, Permute, Reduce,
    RmsNorm, Select, Slice, Softmax, TopK, Unary, Windows,
};
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
    /// New dims, which are named behind the equation, as those of [`NamedStep::Reshape`].
    Broadcast {
        result: String,
        equation: String,
        free: String,
        operand: String,
    },
    /// Integers: the index along a dim, by its place.
    Index {
        result: String,
        dim: usize,
        dims: String,
    },
    /// A number everywhere, of the element type of another value.
    Filled {
        result: String,
        dims: String,
        number: f64,
        like: String,
    },
    Lean {
        result: String,
        lean: Lean,
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

/// A dim that several are, in the text of dims.
struct Whole {
    place: usize,
    dims: Option<String>,
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
            Action::Reduce(kind) => {
                let equation = self.equation(statement);
                self.plain(statement, Reduce::new(*kind, &equation)?, &[])
            }
            Action::TopK { k, limit } => self.plain(statement, TopK { k: *k, limit: *limit }, &["chosen"]),
            Action::Compare(kind) => self.plain(statement, Compare(*kind), &[]),
            Action::Select => self.plain(statement, Select { not: false }, &[]),
            Action::Group | Action::Ungroup | Action::Reshape => self.reshape(statement),
            Action::Permute => {
                let equation = self.equation(statement);
                self.plain(statement, Permute::new(&equation)?, &[])
            }
            Action::Slice { .. } | Action::Concat { .. } | Action::Pad { .. } | Action::Windows { .. } => {
                self.moved(statement)
            }
            Action::Broadcast | Action::Index { .. } | Action::Filled(_) | Action::Lean(_) => self.made(statement),
            Action::Dispatch => self.dispatch(statement),
            Action::Combine => self.plain(statement, Combine, &[]),
        }
    }

    /// A statement that takes or joins elements along a dim. The dim is whole in operands and result, whatever views make of it elsewhere.
    fn moved(&mut self, statement: &Statement) -> Result<(), String> {
        let (from, to) = match &statement.action {
            Action::Slice { dim, .. } | Action::Pad { dim, .. } | Action::Windows { dim, .. } => (vec![dim.from], dim.to),
            Action::Concat { parts, whole } => (parts.clone(), *whole),
            _ => return Err("a statement moves no elements".to_string()),
        };
        let mut operands = Vec::new();
        for (&operand, &atom) in statement.operands.iter().zip(&from) {
            let Argument::Var(var) = operand else { return Err("a parameter is moved".to_string()) };
            let name = self.operand(operand)?;
            operands.push(match self.whole(var, atom)? {
                Whole { dims: Some(dims), .. } => {
                    let result = self.name("whole");
                    self.steps.push(NamedStep::Reshape { result: result.clone(), dims, operand: name });
                    result
                }
                _ => name,
            });
        }
        let Some(Argument::Var(first)) = statement.operands.first() else { return Err("nothing is moved".to_string()) };
        let dim = self.whole(*first, from[0])?.place;
        let op: Op = match statement.action {
            Action::Slice { start, length, .. } => Slice { dim, start, length }.into(),
            Action::Pad { before, after, .. } => Pad { dim, before, after }.into(),
            Action::Windows { size, stride, .. } => Windows { frame: Frame { dim, size, stride, dilation: 1 } }.into(),
            _ => Concat { dim }.into(),
        };
        let name = self.name(op.name());
        self.steps.push(NamedStep::Op { results: vec![name.clone()], op, operands });
        let result = match self.whole(statement.result, to)?.dims {
            None => name,
            Some(_) => {
                let dims = labels(self.parts, statement.result);
                let dims = dims.iter().map(Label::to_string).collect::<Vec<_>>().join(" ");
                let result = self.name("parted");
                self.steps.push(NamedStep::Reshape { result: result.clone(), dims, operand: name });
                result
            }
        };
        self.vars.insert(statement.result, result);
        Ok(())
    }

    /// The place of a dim in a value, and the dims with this one whole if it is several.
    fn whole(&self, var: Var, atom: Atom) -> Result<Whole, String> {
        let (atoms, own) = (self.parts.atoms, labels(self.parts, var));
        let leaves = atoms.leaves(&self.parts.program.vars[var.0]);
        let inner = atoms.leaves(&[atom]);
        let first = leaves.iter().position(|leaf| inner.first() == Some(leaf)).ok_or("a dim that is moved is missing")?;
        // A label may stand for several dims.
        let words = |labels: &[Label]| labels.iter().map(Label::to_string).collect::<Vec<_>>().join(" ");
        let place = words(&own[..first]).split_whitespace().count();
        let size = atoms.total(&inner).to_string();
        let dims = [words(&own[..first]), size, words(&own[first + inner.len()..])].join(" ");
        Ok(Whole { place, dims: (inner.len() > 1).then_some(dims) })
    }

    /// A statement whose op has dims of the model.
    fn made(&mut self, statement: &Statement) -> Result<(), String> {
        let own = labels(self.parts, statement.result);
        let dims = own.iter().map(Label::to_string).collect::<Vec<_>>().join(" ");
        let operand = statement.operands.first().map(|&operand| self.operand(operand)).transpose()?;
        let operand = operand.unwrap_or_default();
        let (result, step) = match &statement.action {
            Action::Broadcast => {
                let from = self.labels(statement.operands[0]);
                let new = own.iter().filter(|label| !from.contains(label));
                let free = new.map(Label::to_string).collect::<Vec<_>>().join(" ");
                let (result, equation) = (self.name("broadcast"), self.equation(statement));
                (result.clone(), NamedStep::Broadcast { result, equation, free, operand })
            }
            Action::Index { dim } => {
                let result = self.name("index");
                (result.clone(), NamedStep::Index { result, dim: *dim, dims })
            }
            Action::Filled(number) => {
                let result = self.name("filled");
                (result.clone(), NamedStep::Filled { result, dims, number: *number, like: operand })
            }
            Action::Lean(lean) => {
                let result = self.name("lean");
                (result.clone(), NamedStep::Lean { result, lean: *lean, operand })
            }
            _ => return Err("a statement makes no dims".to_string()),
        };
        self.vars.insert(statement.result, result);
        self.steps.push(step);
        Ok(())
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
        let row = match statement.operands[1] {
            Argument::Weight(gain) => self.leaves(gain),
            Argument::Var(gain) => self.parts.atoms.leaves(&self.parts.program.vars[gain.0]),
            _ => return Err("a norm has no gain".to_string()),
        };
        let (inner, own) = (row.len(), labels(self.parts, statement.result));
        if inner == 1 {
            return self.plain(statement, op, more);
        }
        let outer = own.len().checked_sub(inner).ok_or("a norm of more dims than its operand has")?;
        let size: u64 = row.iter().map(|&leaf| self.parts.atoms.size(leaf)).product();
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
