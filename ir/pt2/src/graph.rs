//! The recorded graph: nodes in order, whose arguments are values by number.

use crate::error::{Error, NodePlace};
use crate::fault::Fault;
use crate::schema;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};

/// A value of the graph, by number: a tensor, a list of tensors or a size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct ValueId(pub(crate) u32);

impl ValueId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// An integer of an argument.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Size {
    Known(i64),
    /// A value that holds an integer.
    Of(ValueId),
}

/// An argument of a node.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Arg {
    None,
    Value(ValueId),
    Values(Vec<Option<ValueId>>),
    Int(i64),
    Ints(Vec<Size>),
    Float(f64),
    Bool(bool),
    /// The number of an element type in the schema.
    Dtype(u64),
    Text(String),
    /// A kind that no op of a model reads, such as a device.
    Other,
}

/// A node.
#[derive(Clone, Debug)]
pub(crate) struct RecordedNode {
    /// Its op without the prefix `torch.ops.`: `aten.add.Tensor`.
    pub(crate) op: String,
    pub(crate) args: Vec<(String, Arg)>,
    /// Its results: a tensor, a size, or the members of a list.
    pub(crate) outputs: Vec<ValueId>,
    pub(crate) place: NodePlace,
}

impl RecordedNode {
    /// The op without its overload: `aten.add`.
    pub(crate) fn family(&self) -> &str {
        self.op.rsplit_once('.').map_or(&*self.op, |(family, _)| family)
    }

    /// An argument by name.
    pub(crate) fn arg(&self, name: &str) -> Option<&Arg> {
        self.args.iter().find(|(own, _)| own == name).map(|(_, arg)| arg).filter(|arg| **arg != Arg::None)
    }

    /// The values that it reads.
    pub(crate) fn operands(&self) -> impl Iterator<Item = ValueId> {
        self.args.iter().flat_map(|(_, arg)| match arg {
            Arg::Value(value) => vec![*value],
            Arg::Values(values) => values.iter().flatten().copied().collect(),
            Arg::Ints(sizes) => {
                sizes.iter().filter_map(|size| if let Size::Of(value) = size { Some(*value) } else { None }).collect()
            }
            _ => Vec::new(),
        })
    }

    /// The error of a part that is not supported.
    pub(crate) fn refuse(&self, why: impl ToString) -> Error {
        Error::Unsupported { at: Box::new(self.place.clone()), why: why.to_string() }
    }
}

/// A size of an input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum InputSize {
    Fixed(u64),
    /// Open, by its name in the export.
    Open(String),
}

/// A tensor that a graph takes.
#[derive(Clone, Debug)]
pub(crate) struct GraphInput {
    pub(crate) value: ValueId,
    pub(crate) name: String,
    /// Ids; else numbers.
    pub(crate) is_int: bool,
    pub(crate) sizes: Vec<InputSize>,
}

impl GraphInput {
    /// The sizes for a number of sequences, which are the first dim, and of tokens.
    pub(crate) fn sizes_for(&self, batch: [u64; 2]) -> Vec<u64> {
        self.sizes
            .iter()
            .enumerate()
            .map(|(dim, size): (usize, &InputSize)| match size {
                InputSize::Fixed(size) => *size,
                InputSize::Open(_) => batch[dim.min(1)],
            })
            .collect()
    }
}

/// A graph.
pub(crate) struct Recording {
    /// The number of values.
    pub(crate) values: usize,
    pub(crate) nodes: Vec<RecordedNode>,
    /// The tensors that it takes; the first dim of each is the batch.
    pub(crate) inputs: Vec<GraphInput>,
    /// Parameters by the names that the modules give them.
    pub(crate) parameters: BTreeMap<ValueId, String>,
    /// Buffers and constants.
    pub(crate) buffers: BTreeMap<ValueId, String>,
    /// The results.
    pub(crate) outputs: Vec<ValueId>,
}

impl Recording {
    /// True if the graph reads tokens alone: then positions and segments of the batch are those of its documents.
    pub(crate) fn is_text(&self) -> bool {
        matches!(self.inputs.as_slice(), [input] if input.is_int && input.sizes.len() == 2)
    }

    /// The sizes of the batch and of the tokens where the export fixed them.
    pub(crate) fn fixed(&self) -> [Option<u64>; 2] {
        [0, 1].map(|dim| match self.inputs.first()?.sizes.get(dim)? {
            InputSize::Fixed(size) => Some(*size),
            InputSize::Open(_) => None,
        })
    }

    /// Reads a program.
    ///
    /// # Errors
    /// It contradicts the schema, takes more than tokens, or changes its buffers. The first string is a defect.
    pub(crate) fn read(program: schema::ProgramJson) -> Result<Recording, Fault> {
        let schema::GraphModule { graph, signature } = program.graph_module;
        let mut reader = Reader::default();
        let (mut parameters, mut buffers, mut user) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        for spec in &signature.input_specs {
            let (kind, spec) = only(spec).ok_or("an input has no kind")?;
            let arg = spec.get("arg").and_then(Value::as_object);
            let name =
                |key: &str| text(spec, key).map(str::to_string).ok_or_else(|| format!("an input has no `{key}`"));
            let mut value = || {
                let name = spec.get("arg").and_then(|arg| text(arg, "name")).ok_or("an input has no name")?;
                Ok::<_, Fault>(reader.define(name))
            };
            match kind {
                "parameter" => drop(parameters.insert(value()?, name("parameter_name")?)),
                "buffer" => drop(buffers.insert(value()?, name("buffer_name")?)),
                "tensor_constant" => drop(buffers.insert(value()?, name("tensor_constant_name")?)),
                "user_input" => user.extend(arg.and_then(only).map(|(kind, arg)| (kind.to_string(), arg.clone()))),
                "constant_input" => {}
                other => return Err(Fault::Unsupported(format!("the graph takes an input of kind `{other}`"))),
            }
        }
        let inputs = inputs(&mut reader, &user, &graph.tensor_values)?;
        changes_nothing(&signature)?;
        let mut nodes = Vec::new();
        reader.nodes(graph.nodes, &mut nodes)?;
        let outputs = graph.outputs.iter().filter_map(|output| reader.output(output)).collect::<Result<_, _>>()?;
        Ok(Recording { values: reader.count, nodes, inputs, parameters, buffers, outputs })
    }
}

/// The tensors that a graph takes.
fn inputs(
    reader: &mut Reader,
    user: &[(String, Value)],
    types: &BTreeMap<String, schema::TensorMeta>,
) -> Result<Vec<GraphInput>, Fault> {
    let tensors = user.iter().filter(|(kind, _)| kind == "as_tensor").filter_map(|(_, arg)| arg.get("name")?.as_str());
    let mut inputs = Vec::new();
    for name in tensors {
        let meta = types.get(name).ok_or_else(|| format!("the input `{name}` has no type"))?;
        let sizes: Vec<InputSize> = meta
            .sizes
            .iter()
            .map(|size: &Value| match size.get("as_int").and_then(Value::as_u64) {
                Some(size) => InputSize::Fixed(size),
                None => InputSize::Open(size["as_expr"]["expr_str"].as_str().unwrap_or_default().to_string()),
            })
            .collect();
        let is_int = matches!(meta.dtype, 4 | 5);
        if sizes.is_empty() || !is_int && !matches!(meta.dtype, 6..=8 | 13) {
            let why = format!("the input `{name}` must be integers or numbers, with the batch as its first dim");
            return Err(Fault::Unsupported(why));
        }
        inputs.push(GraphInput { value: reader.define(name), name: name.to_string(), is_int, sizes });
    }
    if inputs.is_empty() {
        return Err(Fault::Unsupported("the graph takes no tensor".to_string()));
    }
    Ok(inputs)
}

/// Checks that the graph gives results and changes nothing else.
fn changes_nothing(signature: &schema::Signature) -> Result<(), Fault> {
    for spec in &signature.output_specs {
        let (kind, spec) = only(spec).ok_or("an output has no kind")?;
        if !matches!(kind, "user_output" | "loss_output") {
            let name = text(spec, "buffer_name").unwrap_or("an input");
            return Err(Fault::Unsupported(format!("the graph changes `{name}` ({kind})")));
        }
    }
    Ok(())
}

/// The one entry of a union.
fn only(union: &Map<String, Value>) -> Option<(&str, &Value)> {
    let (kind, value) = union.iter().next()?;
    Some((kind, value))
}

fn text<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get(key)?.as_str()
}

/// Names of values that are known so far.
#[derive(Default)]
struct Reader {
    names: HashMap<String, ValueId>,
    count: usize,
}

impl Reader {
    fn define(&mut self, name: &str) -> ValueId {
        let id = ValueId(self.count as u32);
        self.count += 1;
        self.names.insert(name.to_string(), id);
        id
    }

    fn find(&self, name: &str) -> Result<ValueId, Fault> {
        self.names.get(name).copied().ok_or_else(|| format!("the value `{name}` is read before it is defined").into())
    }

    /// Appends nodes; the graphs of regions, such as those without gradients, are inlined.
    fn nodes(&mut self, nodes: Vec<schema::NodeJson>, into: &mut Vec<RecordedNode>) -> Result<(), Fault> {
        for node in nodes {
            if let Some(at) = node.inputs.iter().position(|input| input.arg.get("as_graph").is_some())
                && node.target.contains("wrap_with")
            {
                self.region(node, at, into)?;
                continue;
            }
            let op = node.target.strip_prefix("torch.ops.").unwrap_or(&node.target).to_string();
            let args = node.inputs.iter().map(|input| Ok((input.name.clone(), self.arg(&input.arg)?)));
            let args = args.collect::<Result<Vec<_>, Fault>>()?;
            let mut outputs = Vec::new();
            let mut name = String::new();
            for output in node.outputs.iter().flat_map(names_of) {
                name = if name.is_empty() { output.to_string() } else { name };
                outputs.push(self.define(output));
            }
            let place = NodePlace { node: name, op: op.clone(), ..place(&node.metadata) };
            into.push(RecordedNode { op, args, outputs, place });
        }
        Ok(())
    }

    /// Inlines a region. Its values have names of their own; those behind the graph are its operands.
    fn region(&mut self, mut node: schema::NodeJson, at: usize, into: &mut Vec<RecordedNode>) -> Result<(), Fault> {
        let operands = node.inputs[at + 1..].iter().map(|input| self.arg(&input.arg)).collect::<Result<Vec<_>, _>>()?;
        let graph = node.inputs[at].arg["as_graph"]["graph"].take();
        let graph: schema::GraphJson =
            serde_json::from_value(graph).map_err(|why| format!("a region is wrong: {why}"))?;
        let outer = self.names.clone();
        for (input, operand) in graph.inputs.iter().zip(operands) {
            if let (Some(name), Arg::Value(value)) = (names_of(input).first(), operand) {
                self.names.insert((*name).to_string(), value);
            }
        }
        self.nodes(graph.nodes, into)?;
        let results = graph.outputs.iter().filter_map(|output| self.output(output)).collect::<Result<Vec<_>, _>>()?;
        self.names = outer;
        for (name, value) in node.outputs.iter().flat_map(names_of).zip(results) {
            self.names.insert(name.to_string(), value);
        }
        Ok(())
    }

    /// The value of an output; nothing for one that is no tensor.
    fn output(&self, output: &Value) -> Option<Result<ValueId, Fault>> {
        names_of(output).first().map(|name| self.find(name))
    }

    fn arg(&self, arg: &Value) -> Result<Arg, Fault> {
        let (kind, value) = arg.as_object().and_then(only).ok_or("an argument has no kind")?;
        let named = |value: &Value| self.find(text(value, "name").ok_or("a tensor has no name")?);
        let list = || value.as_array().ok_or_else(|| format!("`{kind}` is no list"));
        Ok(match kind {
            "as_none" => Arg::None,
            "as_tensor" => Arg::Value(named(value)?),
            "as_tensors" | "as_nested_tensors" => {
                Arg::Values(list()?.iter().map(|tensor| named(tensor).map(Some)).collect::<Result<_, _>>()?)
            }
            "as_optional_tensors" => Arg::Values(
                list()?
                    .iter()
                    .map(|tensor| tensor.get("as_tensor").map(named).transpose())
                    .collect::<Result<_, _>>()?,
            ),
            "as_int" => Arg::Int(value.as_i64().ok_or("an integer is none")?),
            "as_ints" => Arg::Ints(
                list()?.iter().map(|int| Ok(Size::Known(int.as_i64().ok_or("an integer is none")?))).collect::<Result<
                    _,
                    String,
                >>(
                )?,
            ),
            "as_sym_int" | "as_sym_float" | "as_sym_bool" => match self.size(value)? {
                Size::Known(int) => Arg::Int(int),
                Size::Of(value) => Arg::Value(value),
            },
            "as_sym_ints" => Arg::Ints(list()?.iter().map(|int| self.size(int)).collect::<Result<_, _>>()?),
            "as_float" => Arg::Float(number(value).ok_or("a number is none")?),
            "as_bool" => Arg::Bool(value.as_bool().ok_or("a truth value is none")?),
            "as_scalar_type" => Arg::Dtype(value.as_u64().ok_or("an element type is none")?),
            "as_string" => Arg::Text(value.as_str().unwrap_or_default().to_string()),
            _ => Arg::Other,
        })
    }

    fn size(&self, value: &Value) -> Result<Size, Fault> {
        match (value.get("as_int").and_then(Value::as_i64), text(value, "as_name")) {
            (Some(int), _) => Ok(Size::Known(int)),
            (None, Some(name)) => self.find(name).map(Size::Of),
            (None, None) => Err("a size is neither a number nor a name".into()),
        }
    }
}

/// A number; JSON has no infinities, so exports write them as text.
fn number(value: &Value) -> Option<f64> {
    match value.as_str() {
        Some("Infinity") => Some(f64::INFINITY),
        Some("-Infinity") => Some(f64::NEG_INFINITY),
        Some("NaN") => Some(f64::NAN),
        _ => value.as_f64(),
    }
}

/// The names of an output: one, or those of a list.
fn names_of(output: &Value) -> Vec<&str> {
    let Some((_, value)) = output.as_object().and_then(only) else { return Vec::new() };
    match value.as_array() {
        Some(list) => list.iter().filter_map(|value| text(value, "name")).collect(),
        None => text(value, "name").or_else(|| text(value, "as_name")).into_iter().collect(),
    }
}

/// The module and the source line that the export recorded.
fn place(metadata: &Map<String, Value>) -> NodePlace {
    let text = |key: &str| metadata.get(key).and_then(Value::as_str).unwrap_or_default();
    // Each entry is a key, a path and a class; the last one is the innermost module.
    let module = text("nn_module_stack").rsplit(';').next().and_then(|entry| entry.split(',').nth(1));
    let module = module.filter(|module| !module.starts_with('_')).unwrap_or_default();
    let frames: Vec<&str> =
        text("stack_trace").lines().filter_map(|line| line.trim().strip_prefix("File \"")).collect();
    let own = frames.iter().rev().find(|frame| !frame.contains("/torch/")).or(frames.last());
    NodePlace { module: module.to_string(), source: own.and_then(|frame| source(frame)), ..NodePlace::default() }
}

/// `model.py:12` of the line of a stack trace.
fn source(frame: &str) -> Option<String> {
    let (file, rest) = frame.split_once('"')?;
    let line = rest.split("line ").nth(1)?.split(',').next()?;
    Some(format!("{}:{line}", file.rsplit(['/', '\\']).next()?))
}
