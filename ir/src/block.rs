//! Blocks: their arguments, sections and statements.

use crate::ids::Value;
use crate::ops::Op;
use crate::types::Type;
use cranelift_entity::PrimaryMap;
use std::ops::{Index, IndexMut};

/// A range of the source text, in bytes; empty for graphs built in memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte; equal to `start` if there is no text.
    pub end: u32,
}

/// A value inside a block.
#[derive(Clone, PartialEq, Debug)]
pub struct ValueData {
    /// Its name without `%`.
    pub name: String,
    /// Its type.
    pub ty: Type,
}

/// One statement: results, op, operands.
#[derive(Clone, PartialEq, Debug)]
pub struct Stmt {
    /// The results.
    pub results: Vec<Value>,
    /// `+=`: the first micro-batch stores, the others add.
    pub accumulate: bool,
    /// The operation.
    pub op: Op,
    /// The operands.
    pub operands: Vec<Value>,
    /// Comment lines before it, without `//`.
    pub comments: Vec<String>,
    /// Its location in the text.
    pub span: Span,
}

impl Stmt {
    /// True if each result that the op updates is the operand itself.
    pub fn updates_in_place(&self) -> bool {
        self.results.iter().zip(self.op.facts().updates).all(|(result, &operand)| self.operands[operand] == *result)
    }
}

/// The sections of a block, in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SectionKind {
    /// Once a step, before its first forward: parameters that stay gathered.
    G,
    /// Forward.
    F,
    /// Gradient of the inputs.
    I,
    /// Gradient of the parameters.
    W,
    /// Once a step: reductions, norm and update.
    U,
}

impl SectionKind {
    /// All sections in order.
    pub const ALL: [SectionKind; 5] = [SectionKind::G, SectionKind::F, SectionKind::I, SectionKind::W, SectionKind::U];
}

/// A straight line of statements.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Section {
    /// `I`'s cotangents, in the order of the block's results that have one. Empty for the others (`F` reads the block's).
    pub args: Vec<Value>,
    /// The statements, in order.
    pub stmts: Vec<Stmt>,
    /// The returned values. `F`: the block's results. `I`: the cotangents of its float value arguments, in order. `U`: the
    /// scalars that the step graph sums over all instances. `W`: nothing; its `+=` results are the gradients.
    pub ret: Vec<Value>,
}

/// The kind of an argument: its source.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ArgKind {
    /// A value passed from call to call.
    Value,
    /// Fed per micro-batch on every stage that uses it; never sent between stages.
    Input,
    /// A constant, or an implicit scalar of the run: `lr`, `step`, `seed`, or a result of the step graph, by name.
    Const,
    /// A parameter.
    Param,
    /// Persistent between steps and written to checkpoints. `%w.m` is a state of the parameter `%w`.
    State,
}

impl ArgKind {
    /// True for an argument that a call passes by value, before its constants, parameters and states.
    pub fn is_passed(self) -> bool {
        matches!(self, ArgKind::Value | ArgKind::Input)
    }
}

/// An argument of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arg {
    /// The value inside the block.
    pub value: Value,
    /// Its kind.
    pub kind: ArgKind,
}

/// The use of a block result.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ResultKind {
    /// Passed to later calls.
    Value,
    /// A sum over tokens; its cotangent is a fed scalar.
    Loss,
    /// A further loss, which training lowers too, but which is reported under its own name.
    Auxiliary,
    /// A mean over the tokens of a micro-batch, whether their labels count or not. Training lowers its mean over micro-batches; it is
    /// reported under its own name.
    Regulariser,
    /// Summed over micro-batches.
    Accum,
    /// Reported.
    Metric,
}

/// The things over which training takes the mean of a loss; its cotangent is divided by their number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LossMean {
    /// The labels of a step that count.
    Labels,
    /// The micro-batches of a step.
    Microbatches,
}

impl LossMean {
    /// The instruction that gives the cotangent.
    pub fn instruction(self) -> &'static str {
        match self {
            LossMean::Labels => "loss_grad",
            LossMean::Microbatches => "regulariser_grad",
        }
    }
}

impl ResultKind {
    /// True for losses, whose cotangent is a fed scalar.
    pub fn is_loss(self) -> bool {
        self.mean().is_some()
    }

    /// The things over which training takes the mean of a loss; `None` for what is no loss.
    pub fn mean(self) -> Option<LossMean> {
        match self {
            ResultKind::Loss | ResultKind::Auxiliary => Some(LossMean::Labels),
            ResultKind::Regulariser => Some(LossMean::Microbatches),
            ResultKind::Value | ResultKind::Accum | ResultKind::Metric => None,
        }
    }
}

/// A distinct block.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Block {
    /// Its name without `@`.
    pub name: String,
    /// All values of all sections.
    pub values: PrimaryMap<Value, ValueData>,
    /// Values and inputs, then constants, parameters and states.
    pub args: Vec<Arg>,
    /// The kind of each result; the values are `F`'s `ret`.
    pub results: Vec<ResultKind>,
    /// `G F I W U`.
    pub sections: [Section; 5],
    /// Comment lines before it.
    pub comments: Vec<String>,
    /// The location of its head in the text.
    pub span: Span,
}

impl Index<SectionKind> for Block {
    type Output = Section;
    fn index(&self, kind: SectionKind) -> &Section {
        &self.sections[kind as usize]
    }
}

impl IndexMut<SectionKind> for Block {
    fn index_mut(&mut self, kind: SectionKind) -> &mut Section {
        &mut self.sections[kind as usize]
    }
}

/// The suffix of a parameter's gradient: `%w.grad`.
pub const GRADIENT: &str = ".grad";

impl Block {
    /// The type of a value.
    pub fn ty(&self, value: Value) -> &Type {
        &self.values[value].ty
    }

    /// The types of some values.
    pub fn types(&self, values: &[Value]) -> Vec<&Type> {
        values.iter().map(|&value| self.ty(value)).collect()
    }

    /// The name of a value.
    pub fn value_name(&self, value: Value) -> &str {
        &self.values[value].name
    }

    /// The value of a name.
    pub fn find(&self, name: &str) -> Option<Value> {
        self.values.iter().find(|(_, data)| data.name == name).map(|(value, _)| value)
    }

    /// Adds a value; an empty name takes the next free number.
    pub fn add_value(&mut self, name: &str, ty: Type) -> Value {
        let name = if name.is_empty() { self.free_name() } else { name.to_string() };
        self.values.push(ValueData { name, ty })
    }

    /// Adds an argument.
    pub fn add_arg(&mut self, name: &str, kind: ArgKind, ty: Type) -> Value {
        let value = self.add_value(name, ty);
        self.args.push(Arg { value, kind });
        value
    }

    fn free_name(&self) -> String {
        let used = self.values.values().filter_map(|data| data.name.parse::<u32>().ok());
        used.max().map_or(0, |last| last + 1).to_string()
    }

    /// The arguments of one kind, in order.
    pub fn args_of(&self, kind: ArgKind) -> impl Iterator<Item = Value> + '_ {
        self.args.iter().filter(move |arg| arg.kind == kind).map(|arg| arg.value)
    }

    /// The arguments that a call passes by value, in order.
    pub fn passed_args(&self) -> impl Iterator<Item = Value> + '_ {
        self.args.iter().filter(|arg| arg.kind.is_passed()).map(|arg| arg.value)
    }

    /// The kind of the argument, if the value is one.
    pub fn arg_kind(&self, value: Value) -> Option<ArgKind> {
        self.args.iter().find(|arg| arg.value == value).map(|arg| arg.kind)
    }

    /// The gradient accumulator of a parameter, once differentiated.
    pub fn gradient_of(&self, param: Value) -> Option<Value> {
        self.find(&format!("{}{GRADIENT}", self.value_name(param)))
    }

    /// The parameter that a state or gradient belongs to: `%w` of `%w.m`.
    pub fn owner_of(&self, value: Value) -> Option<Value> {
        let (owner, _) = self.value_name(value).rsplit_once('.')?;
        self.find(owner)
    }

    /// The float value arguments: those that have a cotangent, in the order of `I`'s results.
    pub fn differentiable_args(&self) -> impl Iterator<Item = Value> + '_ {
        self.args_of(ArgKind::Value).filter(|&value| self.ty(value).dtype.is_float())
    }

    /// The results that have a cotangent (float values and losses), in the order of `I`'s arguments.
    pub fn differentiable_results(&self) -> impl Iterator<Item = (usize, Value)> + '_ {
        let forward = &self[SectionKind::F].ret;
        self.results.iter().zip(forward).enumerate().filter_map(|(index, (kind, &value))| {
            let flows = (*kind == ResultKind::Value || kind.is_loss()) && self.ty(value).dtype.is_float();
            flows.then_some((index, value))
        })
    }
}
