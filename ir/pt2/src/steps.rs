//! Statements of a block with names in place of numbers. Layers of the same names and ops have equal blocks.

use crate::atoms::Atom;
use crate::blocks::Segment;
use crate::names::Label;
use crate::program::{Action, Argument, Lean, Statement, Var};
use crate::refusal::{Refusal, contradiction};
use crate::template::{Parts, declared, labels};
use ir::graph::ArgKind;
use ir::models::{self, Draft};
use ir::ops::{
    Attention, Binary, Combine, Compare, Concat, Einsum, Embedding, Frame, LayerNorm, Op, Pad, Permute, Reduce,
    RmsNorm, Select, Slice, Softmax, TopK, Unary, Windows,
};
use ir::types::{DType, Type};
use std::collections::{BTreeMap, BTreeSet};

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

/// An argument of a block.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct NamedArg {
    pub(crate) name: String,
    pub(crate) kind: ArgKind,
    pub(crate) dims: String,
    pub(crate) is_int: bool,
}

impl NamedArg {
    /// The argument in a model.
    pub(crate) fn ty(&self, draft: &Draft) -> (&str, ArgKind, Type) {
        let ty = draft.ty(&self.dims);
        let dtype = if self.is_int { DType::I32 } else { ty.dtype };
        (&self.name, self.kind, Type { dtype, ..ty })
    }
}

/// A block.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct NamedBlock {
    pub(crate) name: String,
    pub(crate) args: Vec<NamedArg>,
    pub(crate) weights: Vec<models::Weight>,
    pub(crate) steps: Vec<NamedStep>,
    pub(crate) results: Vec<String>,
    /// Its only result is the logits, whose loss it gives.
    pub(crate) is_head: bool,
}

impl NamedBlock {
    /// True for a block that differs in its name alone.
    pub(crate) fn is_like(&self, other: &NamedBlock) -> bool {
        NamedBlock { name: self.name.clone(), ..other.clone() } == *self
    }

    /// The inputs of the model that it reads.
    pub(crate) fn inputs(&self) -> impl Iterator<Item = &str> {
        self.args.iter().filter(|arg| arg.kind == ArgKind::Input).map(|arg| arg.name.as_str())
    }
}

/// The block of a segment, whose weights in this order have these names. The model has `layers` layers.
///
/// # Errors
/// A statement has other dims than its op. The number is that of its node.
pub(crate) fn steps(
    parts: &Parts<'_>,
    segment: &Segment,
    order: &[usize],
    weights: &BTreeMap<usize, String>,
    layers: usize,
) -> Result<NamedBlock, (usize, Refusal)> {
    let layers = segment.layer.as_ref().map(|_| layers);
    let declared =
        order.iter().map(|&weight| declared(parts, &parts.program.weights[weight], &weights[&weight], layers));
    let mut writer = Writer { parts, weights, vars: BTreeMap::new(), counts: BTreeMap::new(), steps: Vec::new() };
    let mut args = Vec::new();
    for (place, &input) in segment.inputs.iter().enumerate() {
        let name = if place == 0 { "x".to_string() } else { format!("x_{place}") };
        writer.vars.insert(input, name.clone());
        let is_int = parts.ints.contains(&input);
        args.push(NamedArg { name, kind: ArgKind::Value, dims: writer.dims(input), is_int });
    }
    for statement in &segment.statements {
        writer.statement(statement).map_err(|why| (statement.node, why))?;
    }
    args.extend(inputs(parts, segment));
    let results = segment.outputs.iter().map(|output| writer.vars.get(output).cloned().unwrap_or_default());
    let (results, weights) = (results.collect(), declared.collect());
    Ok(NamedBlock { name: String::new(), args, weights, steps: writer.steps, results, is_head: false })
}

/// The inputs of tokens that a segment reads. Layers have positions and segments, as those of the builders.
fn inputs(parts: &Parts<'_>, segment: &Segment) -> Vec<NamedArg> {
    let kinds = [("tok", Argument::Tokens), ("pos", Argument::Positions), ("seg", Argument::Segments)];
    let reads = |input: &Argument| segment.statements.iter().any(|statement| statement.operands.contains(input));
    let is_usual = |input: &Argument| parts.is_text && segment.layer.is_some() && *input != Argument::Tokens;
    let used = kinds.into_iter().filter(|(_, input)| reads(input) || is_usual(input));
    used.map(|(name, _)| NamedArg {
        name: name.to_string(),
        kind: ArgKind::Input,
        dims: "b s".to_string(),
        is_int: true,
    })
    .collect()
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
    fn statement(&mut self, statement: &Statement) -> Result<(), Refusal> {
        match &statement.action {
            Action::Embedding { pad } => self.plain(statement, Embedding { pad: *pad }, &[]),
            Action::Product => {
                let equation = self.product(statement);
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
    fn moved(&mut self, statement: &Statement) -> Result<(), Refusal> {
        let (from, to) = match &statement.action {
            Action::Slice { dim, .. } | Action::Pad { dim, .. } | Action::Windows { dim, .. } => {
                (vec![dim.from], dim.to)
            }
            Action::Concat { parts, whole } => (parts.clone(), *whole),
            _ => return Err(contradiction("a statement moves no elements")),
        };
        let mut operands = Vec::new();
        for (&operand, &atom) in statement.operands.iter().zip(&from) {
            let Argument::Var(var) = operand else { return Err("a parameter is moved".into()) };
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
        let Some(Argument::Var(first)) = statement.operands.first() else {
            return Err(contradiction("nothing is moved"));
        };
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
    fn whole(&self, var: Var, atom: Atom) -> Result<Whole, Refusal> {
        let (atoms, own) = (self.parts.atoms, labels(self.parts, var));
        let leaves = atoms.leaves(&self.parts.program.vars[var.0]);
        let inner = atoms.leaves(&[atom]);
        let first = leaves
            .iter()
            .position(|leaf| inner.first() == Some(leaf))
            .ok_or(contradiction("a dim that is moved is missing"))?;
        // A label may stand for several dims.
        let place = words(&own[..first]).split_whitespace().count();
        let size = atoms.total(&inner).to_string();
        let dims = [words(&own[..first]), size, words(&own[first + inner.len()..])].join(" ");
        Ok(Whole { place, dims: (inner.len() > 1).then_some(dims) })
    }

    /// A statement whose op has dims of the model.
    fn made(&mut self, statement: &Statement) -> Result<(), Refusal> {
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
            _ => return Err(contradiction("a statement makes no dims")),
        };
        self.vars.insert(statement.result, result);
        self.steps.push(step);
        Ok(())
    }

    /// The dims of operands and result: `b s h, h f -> b s f`.
    fn equation(&self, statement: &Statement) -> String {
        let text = |labels: Vec<Label>| {
            // A factor needs a name, and a dim that only a parameter has is a number.
            labels
                .iter()
                .map(|label: &Label| match label {
                    Label::Sized(size) => format!("n{size}"),
                    Label::Chosen(_) => "k".to_string(),
                    label => label.to_string(),
                })
                .collect::<Vec<_>>()
                .join(" ")
        };
        let operands: Vec<String> = statement.operands.iter().map(|operand| text(self.labels(*operand))).collect();
        format!("{} -> {}", operands.join(", "), text(labels(self.parts, statement.result)))
    }

    /// The dims of a value as text.
    fn dims(&self, var: Var) -> String {
        labels(self.parts, var).iter().map(Label::to_string).collect::<Vec<_>>().join(" ")
    }

    /// The equation of a product. A dim that a matrix has as its input and as its output is another one in the operands.
    fn product(&self, statement: &Statement) -> String {
        let equation = self.equation(statement);
        let [Argument::Var(_), Argument::Weight(weight)] = statement.operands.as_slice() else { return equation };
        let Some((operands, result)) = equation.split_once(" -> ") else { return equation };
        let Some((x, matrix)) = operands.split_once(", ") else { return equation };
        let mut seen = BTreeSet::new();
        let twice: Vec<Atom> = self.leaves(*weight).into_iter().filter(|leaf| !seen.insert(*leaf)).collect();
        let (mut x, mut matrix) = (format!(" {x} "), format!(" {matrix} "));
        for leaf in twice {
            let name = self.parts.names.label(self.parts.atoms, leaf);
            let (own, input) = (format!(" {name} "), format!(" in_{name} "));
            (x, matrix) = (x.replacen(&own, &input, 1), matrix.replacen(&own, &input, 1));
        }
        format!("{}, {} -> {result}", x.trim(), matrix.trim())
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

    fn operand(&self, operand: Argument) -> Result<String, Refusal> {
        match operand {
            Argument::Var(var) => self.vars.get(&var).cloned().ok_or_else(|| "a value of another block is read".into()),
            Argument::Weight(weight) => Ok(self.weights[&weight].clone()),
            Argument::Tokens => Ok("tok".to_string()),
            Argument::Positions => Ok("pos".to_string()),
            Argument::Segments => Ok("seg".to_string()),
        }
    }

    /// A statement of one op, whose first result is the statement's. The names of others have these endings.
    fn plain(&mut self, statement: &Statement, op: impl Into<Op>, more: &[&str]) -> Result<(), Refusal> {
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
    fn reshape(&mut self, statement: &Statement) -> Result<(), Refusal> {
        let dims = labels(self.parts, statement.result).iter().map(Label::to_string).collect::<Vec<_>>().join(" ");
        let (operand, result) = (self.operand(statement.operands[0])?, self.name("reshape"));
        self.vars.insert(statement.result, result.clone());
        self.steps.push(NamedStep::Reshape { result, dims, operand });
        Ok(())
    }

    fn dispatch(&mut self, statement: &Statement) -> Result<(), Refusal> {
        let operands = [self.operand(statement.operands[0])?, self.operand(statement.operands[1])?];
        let name = self.name("dispatch");
        self.vars.insert(statement.result, name.clone());
        self.steps.push(NamedStep::Dispatch { results: [name.clone(), format!("{name}_count")], operands });
        Ok(())
    }

    /// A norm of rows. Rows of several dims are joined before it.
    fn norm(&mut self, statement: &Statement, op: Op, more: &[&str]) -> Result<(), Refusal> {
        let row = match statement.operands[1] {
            Argument::Weight(gain) => self.leaves(gain),
            Argument::Var(gain) => self.parts.atoms.leaves(&self.parts.program.vars[gain.0]),
            _ => return Err("a norm has no gain".into()),
        };
        let (inner, own) = (row.len(), labels(self.parts, statement.result));
        if inner == 1 {
            return self.plain(statement, op, more);
        }
        let outer = own.len().checked_sub(inner).ok_or(contradiction("a norm of more dims than its operand has"))?;
        let size: u64 = row.iter().map(|&leaf| self.parts.atoms.size(leaf)).product();
        let name = self.name(op.name());
        let mut operands = Vec::new();
        for (at, &operand) in statement.operands.iter().enumerate() {
            let (result, operand) = (format!("{name}_flat{at}"), self.operand(operand)?);
            let dims = if at == 0 { format!("{} {size}", words(&own[..outer])) } else { size.to_string() };
            self.steps.push(NamedStep::Reshape { result: result.clone(), dims, operand });
            operands.push(result);
        }
        let results: Vec<String> = ["flat"].iter().chain(more).map(|ending| format!("{name}_{ending}")).collect();
        let flat = results[0].clone();
        self.steps.push(NamedStep::Op { results, op, operands });
        self.steps.push(NamedStep::Reshape { result: name.clone(), dims: words(&own), operand: flat });
        self.vars.insert(statement.result, name);
        Ok(())
    }
}

/// Labels as the text of dims.
fn words(labels: &[Label]) -> String {
    labels.iter().map(Label::to_string).collect::<Vec<_>>().join(" ")
}
