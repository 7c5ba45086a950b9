//! From the recorded graph to statements.
//!
//! Values that depend on sizes and buffers alone are computed on a sample of the sizes: positions, masks and rotary tables are known by
//! their elements. All others have a form. Some forms are parts of an op that a graph spells in primitives, such as the mean square of a
//! norm or the half turn of rotary positions; the node that completes the op makes the statement.

mod arithmetic;
mod attention;
mod choose;
mod convolution;
mod embedding;
mod experts;
mod forms;
mod functions;
mod groups;
mod inputs;
mod linear;
mod mask;
mod mix;
mod movement;
mod norms;
mod parts;
mod rope;
mod routing;
mod views;

use crate::archive::Archive;
use crate::atoms::{Atom, Atoms, Axis};
use crate::error::Error;
use crate::eval::{Call, Item, Tensor, evaluate, is_alias, is_check};
use crate::graph::{Arg, RecordedNode, Recording, ValueId};
use crate::in_place::stale_read;
use crate::program::{Action, Argument, LoweredModel, Statement, Use, Var, View, Weight};
use crate::refusal::{Refusal, contradiction};
use crate::stored::StoredTensor;
use experts::ExpertRows;
pub(crate) use forms::{Data, Form};
pub(crate) use inputs::Length;
use parts::Memory;
use routing::Choice;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The translation of a graph.
pub(crate) struct Lowering<'a> {
    graph: &'a Recording,
    /// Types of parameters.
    sizes: &'a BTreeMap<ValueId, Vec<u64>>,
    known: Vec<Option<Item>>,
    /// The value that each is an alias of.
    same: Vec<ValueId>,
    forms: BTreeMap<ValueId, Form>,
    pub(crate) atoms: Atoms,
    pub(crate) batch: Atom,
    pub(crate) sequence: Atom,
    /// Other dims of tokens, and those whose size is open.
    pub(crate) lengths: Vec<Length>,
    /// The atoms of parameters.
    tables: BTreeMap<String, Vec<Atom>>,
    pub(crate) program: LoweredModel,
    /// Choices of routers.
    choices: Vec<Choice>,
    /// The rows of experts.
    rows: Vec<ExpertRows>,
    /// Values whose tokens are in routing groups, by the values in sequences.
    groups: BTreeMap<Var, Var>,
    /// Scores in routing groups.
    scores: BTreeMap<ValueId, Var>,
    memories: Vec<Memory>,
    /// The node at hand.
    node: usize,
}

/// Translates a graph, and gives the logits.
///
/// # Errors
/// A node has no meaning in the language.
pub(crate) fn lower<'a>(
    graph: &'a Recording,
    archive: &Archive,
    stored: &BTreeMap<String, StoredTensor>,
    sizes: &'a BTreeMap<ValueId, Vec<u64>>,
) -> Result<(Lowering<'a>, Var), Error> {
    let known = buffers(graph, archive, stored)?;
    let mut atoms = Atoms::default();
    let taken = inputs::taken(graph, &mut atoms);
    let (batch, sequence) = (taken.batch, taken.sequence);
    let same = (0..graph.values).map(|at| ValueId(at as u32)).collect();
    let mut lowering = Lowering {
        graph,
        sizes,
        known,
        same,
        forms: taken.forms,
        atoms,
        batch,
        sequence,
        lengths: taken.lengths,
        tables: BTreeMap::new(),
        program: taken.program,
        choices: Vec::new(),
        rows: Vec::new(),
        groups: BTreeMap::new(),
        scores: BTreeMap::new(),
        memories: Vec::new(),
        node: 0,
    };
    if let Some(node) = stale_read(graph) {
        return Err(node.refuse("a value is read that another node has written over"));
    }
    for (at, node) in graph.nodes.iter().enumerate() {
        lowering.node = at;
        lowering.node(node).map_err(|why| node.refuse(why))?;
    }
    let logits = lowering.logits()?;
    lowering.check_groups()?;
    // Statements are made when their values are read; they go where their nodes are.
    delay_functions(&mut lowering.program.statements);
    lowering.program.statements.sort_by_key(|statement| statement.node);
    Ok((lowering, logits))
}

/// Moves functions of elements to the only statement that reads their values: one kernel computes both, as in `silu(x) * y`.
fn delay_functions(statements: &mut [Statement]) {
    let mut readers: BTreeMap<Var, Vec<usize>> = BTreeMap::new();
    for statement in statements.iter_mut().rev() {
        if let (Action::Unary(_), Some([reader])) =
            (&statement.action, readers.get(&statement.result).map(Vec::as_slice))
        {
            statement.node = statement.node.max(*reader);
        }
        for operand in &statement.operands {
            if let Argument::Var(var) = operand {
                readers.entry(*var).or_default().push(statement.node);
            }
        }
    }
}

/// The values of buffers and constants.
fn buffers(
    graph: &Recording,
    archive: &Archive,
    stored: &BTreeMap<String, StoredTensor>,
) -> Result<Vec<Option<Item>>, Error> {
    let mut known = vec![None; graph.values];
    for (value, name) in &graph.buffers {
        let tensor = stored
            .get(name)
            .ok_or_else(|| archive.damaged(format!("the buffer `{name}` is missing or has no elements")))?;
        let item = tensor.read(archive).map_err(|why| archive.damaged(format!("the buffer `{name}`: {why}")))?;
        known[value.index()] = Some(item);
    }
    Ok(known)
}

impl<'a> Lowering<'a> {
    fn node(&mut self, node: &'a RecordedNode) -> Result<(), Refusal> {
        if is_check(node.family()) {
            return Ok(());
        }
        if node.family() == "aten.sym_size" {
            return self.sym_size(node);
        }
        if node.operands().all(|operand| self.known[self.id(operand).index()].is_some()) {
            let results = evaluate(&self.call(node))?;
            for (output, item) in node.outputs.iter().zip(results) {
                let operand = node.operands().next().map(|operand| self.id(operand)).filter(|_| is_alias(node));
                if let Some(operand) = operand.filter(|operand| self.known[operand.index()].as_ref() == Some(&item)) {
                    // A buffer stays one in other memory.
                    self.same[output.index()] = operand;
                }
                self.known[output.index()] = Some(item);
            }
            return Ok(());
        }
        if is_alias(node) {
            return self.alias(node);
        }
        let forms = if self.is_of_slots(node) {
            self.about_slots(node)?
        } else if let Some(forms) = self.about_groups(node)? {
            forms
        } else {
            self.forms_of(node)?
        };
        let outputs = node.outputs.iter().copied();
        self.forms.extend(outputs.zip(forms));
        Ok(())
    }

    fn forms_of(&mut self, node: &'a RecordedNode) -> Result<Vec<Form>, Refusal> {
        let one = |form: Result<Form, Refusal>| form.map(|form| vec![form]);
        match node.family() {
            "aten.split" | "aten.split_with_sizes" | "aten.chunk" => self.parts(node),
            "aten.embedding" => one(self.embedding(node)),
            "aten.linear" | "aten.addmm" => one(self.linear(node)),
            "aten.matmul" | "aten.mm" | "aten.bmm" => one(self.matmul(node)),
            "aten.baddbmm" => one(self.biased_scores(node)),
            "aten._grouped_mm" | "transformers.grouped_mm_fallback" => one(self.grouped_product(node)),
            "aten.topk" => self.top_k(node),
            "aten.gather" => one(self.gathered(node)),
            "aten.index" => one(self.indexed(node)),
            "aten.index_put" | "aten.index_put_" => one(self.put(node)),
            "aten.sum" => one(self.sum(node)),
            "aten.scaled_dot_product_attention" => one(self.scaled_attention(node)),
            "aten.softmax" | "aten._softmax" => one(self.softmax(node)),
            "aten.masked_fill" | "aten.masked_fill_" | "aten.where" => one(self.replaced_scores(node)),
            "aten.gt" | "aten.lt" | "aten.ge" | "aten.le" => one(self.compared(node)),
            "aten.eq" | "aten.logical_not" | "aten.any" | "aten.full_like" => one(self.guard(node)),
            "aten.layer_norm" | "aten.native_layer_norm" | "aten.rms_norm" => one(self.norm(node)),
            "aten.mean" => one(self.mean(node)),
            "aten.var" => one(self.variance(node)),
            "aten.max" | "aten.min" | "aten.maximum" | "aten.minimum" if node.arg("other").is_some() => {
                one(self.extremum(node))
            }
            "aten.max" | "aten.amax" => self.maximum(node),
            "aten.rsqrt" | "aten.sqrt" | "aten.reciprocal" => one(self.root(node)),
            "aten.cat" | "aten.concat" | "aten.stack" => one(self.cat(node)),
            "aten.slice" => one(self.slice(node)),
            "aten.select" => one(self.select(node)),
            "aten.unbind" => self.members(node),
            "aten.conv1d" | "aten.conv2d" | "aten.convolution" => one(self.convolution(node)),
            "aten.constant_pad_nd" | "aten.pad" => one(self.padded(node)),
            "aten.view_as_complex" => one(self.complex(node)),
            "aten.view_as_real" => one(self.real(node)),
            "aten.new_empty" => one(self.memory(node)),
            "aten.copy_" => one(self.copied(node)),
            _ if views::is_view(node) => one(self.view(node)),
            _ if arithmetic::is_arithmetic(node) => one(self.arithmetic(node)),
            _ => Err(Refusal::UnknownOp(node.op.clone())),
        }
    }

    /// The size of an axis of a value that is not known itself.
    fn sym_size(&mut self, node: &'a RecordedNode) -> Result<(), Refusal> {
        let operand = node.operands().next().ok_or(contradiction("it has no operand"))?;
        let results = if self.known[operand.index()].is_some() {
            evaluate(&self.call(node))?
        } else {
            let axes = self.axes(operand)?;
            let dim = self.call(node).dim("dim", 0, axes.len())?;
            vec![Item::Int(self.atoms.total(axes.get(dim).ok_or(contradiction("a scalar has no sizes"))?) as i64)]
        };
        for (output, item) in node.outputs.iter().zip(results) {
            self.known[output.index()] = Some(item);
        }
        Ok(())
    }

    fn alias(&mut self, node: &'a RecordedNode) -> Result<(), Refusal> {
        if node.family().starts_with("aten.dropout") && self.call(node).flag("train") {
            return Err(Refusal::Dropout);
        }
        let is_choice = self.is_of_slots(node) || self.is_of_groups(node);
        if let Some(Arg::Dtype(1..=5 | 12)) = node.arg("dtype")
            && !is_choice
        {
            return Err("activations are made integers".into());
        }
        let operand = node.operands().next().ok_or(contradiction("it has no operand"))?;
        if let Some(&output) = node.outputs.first() {
            self.same[output.index()] = self.id(operand);
        }
        Ok(())
    }

    fn call<'b>(&'b self, node: &'b RecordedNode) -> Call<'b> {
        Call { node, values: &self.known, replaced: None }
    }

    /// The value that this is an alias of.
    fn id(&self, value: ValueId) -> ValueId {
        self.same[value.index()]
    }

    /// The value of an argument.
    fn argument(&self, node: &RecordedNode, name: &str) -> Result<ValueId, Refusal> {
        match node.arg(name) {
            Some(Arg::Value(value)) => Ok(self.id(*value)),
            _ => Err(Refusal::argument(name, "is no tensor")),
        }
    }

    fn known(&self, value: ValueId) -> Option<&Rc<Tensor>> {
        match self.known[self.id(value).index()].as_ref()? {
            Item::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// A new value of these dims, which a statement computes.
    fn state(&mut self, action: Action, mut operands: Vec<Argument>, dims: Vec<Atom>) -> Var {
        let is_grouped = match action {
            Action::Group => true,
            Action::Ungroup | Action::Dispatch => false,
            _ => operands
                .iter()
                .any(|operand| matches!(operand, Argument::Var(var) if self.program.grouped.contains(var))),
        };
        let has_tokens = |var: Var| self.dims(var).contains(&self.sequence) && !self.program.grouped.contains(&var);
        if is_grouped
            && !matches!(action, Action::Group | Action::Combine)
            && operands.iter().any(|operand: &Argument| matches!(operand, Argument::Var(var) if has_tokens(*var)))
        {
            // Values of a router leave their groups where they meet others.
            for operand in &mut operands {
                if let Argument::Var(var) = operand
                    && self.program.grouped.contains(var)
                {
                    *operand = Argument::Var(self.ungrouped(*var));
                }
            }
            return self.state(action, operands, dims);
        }
        let result = Var(self.program.vars.len());
        self.program.vars.push(dims);
        if is_grouped {
            self.program.grouped.insert(result);
        }
        self.program.statements.push(Statement { action, operands, result, second: None, node: self.node });
        result
    }

    /// A statement of two results.
    fn state_two(&mut self, action: Action, operands: Vec<Argument>, [first, second]: [Vec<Atom>; 2]) -> [Var; 2] {
        let result = self.state(action, operands, first);
        let more = Var(self.program.vars.len());
        self.program.vars.push(second);
        if self.program.grouped.contains(&result) {
            self.program.grouped.insert(more);
        }
        if let Some(statement) = self.program.statements.last_mut() {
            statement.second = Some(more);
        }
        [result, more]
    }

    /// The dims of a value.
    fn dims(&self, var: Var) -> Vec<Atom> {
        self.atoms.leaves(&self.program.vars[var.0])
    }

    fn unary(&mut self, kind: ir::ops::UnaryKind, data: &Data) -> Data {
        let dims = self.program.vars[data.var.0].clone();
        let var = self.state(Action::Unary(kind), vec![Argument::Var(data.var)], dims);
        Data { var, axes: data.axes.clone() }
    }

    /// The number of a parameter. The same elements are one parameter, whatever the order of the dims.
    fn weight(&mut self, view: View, usage: Use) -> Argument {
        let places = |atoms: &Atoms, view: &View| {
            let mut places: Vec<(Atom, u64)> = view.dims.iter().flat_map(|&dim| stepped(atoms, dim)).collect();
            places.sort();
            places
        };
        let own = places(&self.atoms, &view);
        let known = self.program.weights.iter().position(|weight| {
            let other = &weight.view;
            other.tensor == view.tensor
                && other.first == view.first
                && other.shift == view.shift
                && places(&self.atoms, other) == own
        });
        Argument::Weight(known.unwrap_or_else(|| {
            self.program.weights.push(Weight { view, usage });
            self.program.weights.len() - 1
        }))
    }

    /// Checks that values in routing groups meet no others.
    fn check_groups(&self) -> Result<(), Error> {
        let grouped = &self.program.grouped;
        match self.program.statements.iter().find(|statement: &&Statement| {
            let mut reads = statement
                .reads()
                .filter(|var: &Var| self.dims(*var).contains(&self.sequence))
                .map(|var| grouped.contains(&var));
            statement.action != Action::Combine && reads.next().is_some_and(|first| reads.any(|other| other != first))
        }) {
            Some(statement) => {
                Err(self.graph.nodes[statement.node].refuse("values of a router meet other activations"))
            }
            None => Ok(()),
        }
    }

    /// The result with a row for each token, or for each sample.
    fn logits(&mut self) -> Result<Var, Error> {
        self.node = self.graph.nodes.len().saturating_sub(1);
        let place = self.graph.nodes.last().map(|node| node.place.clone()).unwrap_or_default();
        for &output in &self.graph.outputs {
            if self.known(output).is_some() {
                continue;
            }
            let data = self
                .data(output)
                .map_err(|why| Error::Unsupported { at: Box::new(place.clone()), why: why.to_string() })?;
            let axes: Vec<Axis> = data.axes.iter().map(|axis| self.atoms.leaves(axis)).collect();
            let is_text = self.graph.is_text();
            let fits = match axes.as_slice() {
                [b, s, v] if is_text => *b == [self.batch] && *s == [self.sequence] && !v.is_empty(),
                [b, .., v] if !is_text => *b == [self.batch] && !v.is_empty(),
                _ => false,
            };
            if fits {
                let data = self.with_axis(&data, axes.len() - 1);
                let var = self.laid(&data);
                return Ok(if self.program.grouped.contains(&var) { self.ungrouped(var) } else { var });
            }
        }
        let wanted = if self.graph.is_text() { "batch, sequence and vocabulary" } else { "batch and classes" };
        Err(Error::Unsupported { at: Box::new(place), why: format!("no result has the dims of logits: {wanted}") })
    }
}

/// The leaves of a dim of a parameter, with the distances of neighbours.
pub(crate) fn stepped(atoms: &Atoms, (atom, step): (Atom, u64)) -> Vec<(Atom, u64)> {
    let leaves = atoms.leaves(&[atom]);
    let inner = |at: usize| atoms.total(&leaves[at + 1..]);
    leaves.iter().enumerate().map(|(at, &leaf)| (leaf, step.saturating_mul(inner(at)))).collect()
}
