//! From the recorded graph to statements.
//!
//! Values that depend on sizes and buffers alone are computed on a sample of the sizes: positions, masks and rotary tables are known by
//! their elements. All others have a form. Some forms are parts of an op that a graph spells in primitives, such as the mean square of a
//! norm or the half turn of rotary positions; the node that completes the op makes the statement.

mod arithmetic;
mod attention;
mod choose;
mod convolution;
mod experts;
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
use crate::eval::{Call, ElementKind, Item, Tensor, evaluate, is_alias, is_check};
use crate::graph::{Arg, RecordedNode, Recording, ValueId};
use crate::in_place::stale_read;
use crate::program::{Action, Argument, LoweredModel, Statement, Use, Var, View, Weight};
use crate::stored::StoredTensor;
use experts::{ExpertRows, Weighted};
use groups::GroupChoice;
pub(crate) use inputs::Length;
use linear::Linear;
use mix::Mix;
use movement::Range;
use norms::Rows;
use parts::Memory;
use rope::Halved;
use routing::{Choice, Slots};
use std::collections::BTreeMap;
use std::rc::Rc;

/// A value of the program as the graph sees it: atoms of each axis. Atoms may be missing where the graph repeats elements.
#[derive(Clone, Debug)]
pub(crate) struct Data {
    pub(crate) var: Var,
    pub(crate) axes: Vec<Axis>,
}

/// The form of a value.
#[derive(Clone, Debug)]
pub(crate) enum Form {
    /// Ids: of the tokens of a text, or of an input.
    Tokens {
        input: Option<Var>,
        axes: Vec<Axis>,
    },
    /// Elements of a parameter.
    Weight(View),
    Data(Data),
    /// A product with a matrix, which views and slices may still part.
    Linear(Linear),
    /// Elements along the last axis of a value.
    Part {
        of: ValueId,
        range: Range,
    },
    Negated(ValueId),
    /// Elements of a value, mixed along its last axes.
    Mix(Mix),
    /// The same as complex numbers, whose parts are neighbours.
    Complex(Mix),
    /// A value whose last axis is in another order in the program.
    Adjacent(Data, Halved),
    Square(ValueId),
    /// A value times a number, which scores of attention take as their factor.
    Scaled {
        data: Data,
        by: f64,
        node: usize,
    },
    /// The sigmoid of a value, which makes a product with the value its SiLU.
    Sigmoid(ValueId),
    /// The mean of rows.
    Mean(ValueId),
    /// Rows without their mean.
    Centred(ValueId),
    /// The mean square of rows, and what is added to it.
    MeanSquare(Rows),
    /// Its root.
    Root(Rows),
    /// The reciprocal of the root.
    Deviation(Rows),
    /// Rows over the root of their mean square.
    Normed(Rows),
    Scores(attention::Scores),
    /// The softmax of scores.
    Shares(attention::Scores),
    /// Truth values: which scores hide their key, or which rows of scores hide all keys. No row of attention hides the token itself.
    Hidden,
    /// Shares that are replaced by one number.
    Filled,
    /// The maximum of the scores of each query.
    RowMaximum(ValueId),
    /// The softmax of the logits of a router, or of other products with a matrix.
    RouterScores(Linear),
    /// Scores and a correction that only chooses.
    Biased {
        scores: ValueId,
        bias: View,
    },
    Groups(GroupChoice),
    /// Memory that is filled part by part: all, or a part by its dim and first element.
    Memory {
        memory: usize,
        part: Option<(usize, u64)>,
    },
    /// A result that has no meaning in the language if it is read.
    Refused(&'static str),
    /// Integers about the experts that tokens chose.
    Slots(Slots),
    /// For each slot of a choice the matrix of its expert.
    Matrices {
        matrices: View,
        choice: usize,
    },
    /// For each slot of a choice the bias of its expert.
    RowBiases {
        biases: View,
        choice: usize,
    },
    /// The weights of the slots of a choice, sorted by expert.
    RowWeights {
        weights: Var,
        choice: usize,
        /// Its axes are the rows and one of one element.
        is_column: bool,
    },
    Weighted(Weighted),
}

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
    fn node(&mut self, node: &'a RecordedNode) -> Result<(), String> {
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

    fn forms_of(&mut self, node: &'a RecordedNode) -> Result<Vec<Form>, String> {
        let one = |form: Result<Form, String>| form.map(|form| vec![form]);
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
            _ => Err(format!("there is no op `{}` in this version", node.op)),
        }
    }

    /// The size of an axis of a value that is not known itself.
    fn sym_size(&mut self, node: &'a RecordedNode) -> Result<(), String> {
        let operand = node.operands().next().ok_or("it has no operand")?;
        let results = if self.known[operand.index()].is_some() {
            evaluate(&self.call(node))?
        } else {
            let axes = self.axes(operand)?;
            let dim = self.call(node).dim("dim", 0, axes.len())?;
            vec![Item::Int(self.atoms.total(axes.get(dim).ok_or("a scalar has no sizes")?) as i64)]
        };
        for (output, item) in node.outputs.iter().zip(results) {
            self.known[output.index()] = Some(item);
        }
        Ok(())
    }

    fn alias(&mut self, node: &'a RecordedNode) -> Result<(), String> {
        if node.family().starts_with("aten.dropout") && self.call(node).flag("train") {
            return Err("dropout is active; export the model in evaluation mode: model.eval()".to_string());
        }
        let is_choice = self.is_of_slots(node) || self.is_of_groups(node);
        if let Some(Arg::Dtype(1..=5 | 12)) = node.arg("dtype")
            && !is_choice
        {
            return Err("activations are made integers".to_string());
        }
        let operand = node.operands().next().ok_or("it has no operand")?;
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
    fn argument(&self, node: &RecordedNode, name: &str) -> Result<ValueId, String> {
        match node.arg(name) {
            Some(Arg::Value(value)) => Ok(self.id(*value)),
            _ => Err(format!("`{name}` is no tensor")),
        }
    }

    fn known(&self, value: ValueId) -> Option<&Rc<Tensor>> {
        match self.known[self.id(value).index()].as_ref()? {
            Item::Tensor(tensor) => Some(tensor),
            _ => None,
        }
    }

    /// The form of a value that is not known.
    fn form(&mut self, value: ValueId) -> Result<Form, String> {
        let value = self.id(value);
        if let Some(form) = self.forms.get(&value) {
            return Ok(form.clone());
        }
        let Some(name) = self.graph.parameters.get(&value) else {
            return match self.constant(value)? {
                Some(view) => Ok(Form::Weight(view)),
                None => Err("a constant takes the place of activations".to_string()),
            };
        };
        let sizes = self.sizes.get(&value).ok_or_else(|| format!("the parameter `{name}` has no sizes"))?;
        Ok(Form::Weight(self.stored(name, sizes)))
    }

    /// All elements of a stored tensor.
    fn stored(&mut self, name: &str, sizes: &[u64]) -> View {
        let atoms = &mut self.atoms;
        let table = self.tables.entry(name.to_string());
        let table = table.or_insert_with(|| sizes.iter().map(|&size| atoms.add(size)).collect());
        let product = |sizes: &[u64]| sizes.iter().fold(1, |all: u64, &size| all.saturating_mul(size));
        let steps = (0..sizes.len()).map(|d| product(&sizes[d + 1..]));
        View { tensor: name.to_string(), first: 0, dims: table.iter().copied().zip(steps).collect(), shift: 0.0 }
    }

    /// A buffer as a parameter that training leaves as it is; none for other known values.
    fn constant(&mut self, value: ValueId) -> Result<Option<View>, String> {
        let value = self.id(value);
        let (Some(name), Some(known)) = (self.graph.buffers.get(&value), self.known(value)) else { return Ok(None) };
        let sizes: Vec<u64> = known.sizes.iter().map(|&size| size as u64).collect();
        Ok((known.kind == ElementKind::Float).then(|| self.stored(name, &sizes)))
    }

    /// True for the name of a buffer.
    fn is_buffer(&self, name: &str) -> bool {
        self.graph.buffers.values().any(|buffer| buffer == name)
    }

    /// The axes of a value that is not known.
    fn axes(&mut self, value: ValueId) -> Result<Vec<Axis>, String> {
        match self.form(value)? {
            Form::Tokens { axes, .. } | Form::Data(Data { axes, .. }) | Form::Adjacent(Data { axes, .. }, _) => {
                Ok(axes)
            }
            Form::Linear(linear) | Form::RouterScores(linear) => Ok(linear.axes),
            Form::Weight(view) => Ok(view.dims.iter().map(|&(atom, _)| vec![atom]).collect()),
            Form::Part { of, range } => {
                let mut axes = self.axes(of)?;
                axes.pop();
                axes.push(vec![self.atoms.add(range.length)]);
                Ok(axes)
            }
            Form::Mix(mix) | Form::Complex(mix) => self.mixed_axes(&mix),
            Form::Scaled { data, .. } => Ok(data.axes),
            Form::Negated(x) | Form::Square(x) | Form::Sigmoid(x) | Form::Centred(x) => self.axes(x),
            Form::Normed(Rows { x, .. }) | Form::Biased { scores: x, .. } => self.axes(x),
            Form::Mean(x)
            | Form::MeanSquare(Rows { x, .. })
            | Form::Root(Rows { x, .. })
            | Form::Deviation(Rows { x, .. }) => {
                let mut axes = self.axes(x)?;
                axes.pop();
                axes.push(Vec::new());
                Ok(axes)
            }
            _ => self.data(value).map(|data| data.axes),
        }
    }

    /// The value as one of the program.
    fn data(&mut self, value: ValueId) -> Result<Data, String> {
        let value = self.id(value);
        let data = match self.form(value)? {
            Form::Data(data) => return Ok(data),
            Form::Linear(linear) => self.product(&linear)?,
            Form::Part { .. } => {
                let part = self.unparted(value)?;
                self.forms.insert(value, part);
                return self.data(value);
            }
            Form::Mix(_) => {
                self.settled(value)?;
                return self.data(value);
            }
            Form::Adjacent(data, halved) => self.neighbours(&data, halved)?,
            Form::Negated(of) => self.function_of(of, ir::ops::UnaryKind::Neg)?,
            Form::Square(of) => self.function_of(of, ir::ops::UnaryKind::Square)?,
            Form::Sigmoid(of) => self.function_of(of, ir::ops::UnaryKind::Sigmoid)?,
            Form::Scaled { data, by, node } => {
                let node = std::mem::replace(&mut self.node, node);
                let scaled = self.unary(ir::ops::UnaryKind::Scale(by), &data);
                self.node = node;
                scaled
            }
            form @ (Form::Mean(_) | Form::Centred(_) | Form::MeanSquare(_) | Form::Root(_) | Form::Deviation(_)) => {
                self.statistic(form)?
            }
            Form::Normed(rows) => self.normed(rows, None, None)?,
            Form::Weight(view) => self.parameter(&view)?,
            Form::RouterScores(logits) => {
                let logits = self.product(&logits)?;
                self.softmax_of(logits)?
            }
            Form::Biased { scores, bias } => {
                let (scores, bias) = (self.data(scores)?, self.parameter(&bias)?);
                self.combined(ir::ops::BinaryKind::Add, &scores, &bias)?
            }
            Form::Memory { memory, part: None } => self.filled(memory)?,
            Form::Refused(why) => return Err(why.to_string()),
            Form::Tokens { .. } => return Err("token ids are read as numbers".to_string()),
            Form::Complex(_) => return Err("complex numbers are read in an unknown way".to_string()),
            Form::Memory { .. } => return Err("a part of new memory is read".to_string()),
            Form::Scores(_) | Form::Shares(_) | Form::Hidden | Form::Filled | Form::RowMaximum(_) => {
                return Err("scores of attention are read in an unknown way".to_string());
            }
            Form::Groups(_) => return Err("groups of experts are chosen in an unknown way".to_string()),
            Form::Slots(_) => return Err("numbers of experts are read in an unknown way".to_string()),
            Form::Matrices { .. } | Form::RowBiases { .. } | Form::RowWeights { .. } | Form::Weighted(_) => {
                return Err("rows of experts are read in an unknown way".to_string());
            }
        };
        self.forms.insert(value, Form::Data(data.clone()));
        Ok(data)
    }

    fn function_of(&mut self, of: ValueId, kind: ir::ops::UnaryKind) -> Result<Data, String> {
        let data = self.data(of)?;
        Ok(self.unary(kind, &data))
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
        let meets = |operand: &Argument| matches!(operand, Argument::Var(var) if has_tokens(*var));
        if is_grouped && !matches!(action, Action::Group | Action::Combine) && operands.iter().any(meets) {
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

    /// Rows of a table, of tokens or of positions.
    fn embedding(&mut self, node: &'a RecordedNode) -> Result<Form, String> {
        let table = self.argument(node, "weight")?;
        let Form::Weight(mut view) = self.form(table)? else {
            return Err("a table of embeddings is no parameter".to_string());
        };
        let [(_, _), (width, _)] = *view.dims.as_slice() else {
            return Err("a table of embeddings is no matrix".to_string());
        };
        let ids = self.argument(node, "indices")?;
        let (operand, pad) = match self.known(ids).cloned() {
            Some(positions) => {
                let first = self.first_position(&positions)?;
                let (rows, step) = view.dims[0];
                let Some(left) = self.atoms.size(rows).checked_sub(first) else {
                    return Err("positions are beyond the rows of their table".to_string());
                };
                if first > 0 {
                    view.first += first * step;
                    view.dims[0] = (self.atoms.add(left), step);
                }
                (Argument::Positions, None)
            }
            None => {
                let Form::Tokens { input, axes } = self.form(ids)? else {
                    return Err("ids are neither tokens nor positions".to_string());
                };
                let pad = self.call(node).int_or("padding_idx", -1)?;
                let table = self.weight(view, Use::Matrix);
                return Ok(Form::Data(self.rows_of_table(input, axes, (table, width), u64::try_from(pad).ok())));
            }
        };
        let table = self.weight(view, Use::Matrix);
        let axes = vec![vec![self.batch], vec![self.sequence], vec![width]];
        let var = self.state(Action::Embedding { pad }, vec![operand, table], axes.concat());
        Ok(Form::Data(Data { var, axes }))
    }

    /// The rows of a table for ids.
    fn rows_of_table(
        &mut self,
        input: Option<Var>,
        mut axes: Vec<Axis>,
        (table, width): (Argument, Atom),
        pad: Option<u64>,
    ) -> Data {
        let ids = input.map_or(Argument::Tokens, Argument::Var);
        let own = input.map_or(vec![self.batch, self.sequence], |input| self.dims(input));
        let var = self.state(Action::Embedding { pad }, vec![ids, table], [own.as_slice(), &[width]].concat());
        axes.push(vec![width]);
        Data { var, axes }
    }

    /// The position of the first token. Positions count the tokens of each sequence.
    fn first_position(&self, positions: &Tensor) -> Result<u64, String> {
        let (width, _) = positions.rows();
        let first = positions.data.first().copied().unwrap_or(0.0);
        let place = |at: usize| first + (at % width.max(1)) as f64;
        let counts = positions.data.iter().enumerate().all(|(at, &position)| position == place(at));
        if counts && width as u64 == self.atoms.size(self.sequence) && first >= 0.0 {
            return Ok(first as u64);
        }
        Err("positions do not count the tokens of each sequence".to_string())
    }

    /// Checks that values in routing groups meet no others.
    fn check_groups(&self) -> Result<(), Error> {
        let grouped = &self.program.grouped;
        let is_mixed = |statement: &&Statement| {
            let tokens = |var: &Var| self.dims(*var).contains(&self.sequence);
            let mut reads = statement.reads().filter(tokens).map(|var| grouped.contains(&var));
            statement.action != Action::Combine && reads.next().is_some_and(|first| reads.any(|other| other != first))
        };
        match self.program.statements.iter().find(is_mixed) {
            Some(statement) => {
                Err(self.graph.nodes[statement.node].refuse("values of a router meet other activations"))
            }
            None => Ok(()),
        }
    }

    /// The result with a row for each token, or for each sample.
    fn logits(&mut self) -> Result<Var, Error> {
        self.node = self.graph.nodes.len().saturating_sub(1);
        let place = || self.graph.nodes.last().map(|node| node.place.clone()).unwrap_or_default();
        let refuse = |why: String| Error::Unsupported { at: Box::new(place()), why };
        for &output in &self.graph.outputs {
            if self.known(output).is_some() {
                continue;
            }
            let data = self.data(output).map_err(refuse)?;
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
        Err(refuse(format!("no result has the dims of logits: {wanted}")))
    }
}

/// The leaves of a dim of a parameter, with the distances of neighbours.
pub(crate) fn stepped(atoms: &Atoms, (atom, step): (Atom, u64)) -> Vec<(Atom, u64)> {
    let leaves = atoms.leaves(&[atom]);
    let inner = |at: usize| atoms.total(&leaves[at + 1..]);
    leaves.iter().enumerate().map(|(at, &leaf)| (leaf, step.saturating_mul(inner(at)))).collect()
}
