//! Forms of values: what is known of each, and the value of the program that it is when something reads it.

use super::experts::Weighted;
use super::groups::GroupChoice;
use super::linear::Linear;
use super::mix::Mix;
use super::movement::Range;
use super::norms::Rows;
use super::rope::Halved;
use super::routing::Slots;
use super::{Lowering, attention};
use crate::atoms::Axis;
use crate::eval::ElementKind;
use crate::graph::ValueId;
use crate::program::{Var, View};
use crate::refusal::{Refusal, contradiction};

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
    /// Elements as complex numbers, whose parts are neighbours.
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

impl Lowering<'_> {
    /// The form of a value that is not known.
    pub(super) fn form(&mut self, value: ValueId) -> Result<Form, Refusal> {
        let value = self.id(value);
        if let Some(form) = self.forms.get(&value) {
            return Ok(form.clone());
        }
        let Some(name) = self.graph.parameters.get(&value) else {
            return match self.constant(value)? {
                Some(view) => Ok(Form::Weight(view)),
                None => Err("a constant takes the place of activations".into()),
            };
        };
        let sizes =
            self.sizes.get(&value).ok_or_else(|| contradiction(format!("the parameter `{name}` has no sizes")))?;
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
    pub(super) fn constant(&mut self, value: ValueId) -> Result<Option<View>, Refusal> {
        let value = self.id(value);
        let (Some(name), Some(known)) = (self.graph.buffers.get(&value), self.known(value)) else { return Ok(None) };
        let sizes: Vec<u64> = known.sizes.iter().map(|&size| size as u64).collect();
        Ok((known.kind == ElementKind::Float).then(|| self.stored(name, &sizes)))
    }

    /// True for the name of a buffer.
    pub(super) fn is_buffer(&self, name: &str) -> bool {
        self.graph.buffers.values().any(|buffer| buffer == name)
    }

    /// The axes of a value that is not known.
    pub(super) fn axes(&mut self, value: ValueId) -> Result<Vec<Axis>, Refusal> {
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
    pub(super) fn data(&mut self, value: ValueId) -> Result<Data, Refusal> {
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
            Form::Refused(why) => return Err(why.into()),
            Form::Tokens { .. } => return Err("token ids are read as numbers".into()),
            Form::Complex(_) => return Err("complex numbers are read in an unknown way".into()),
            Form::Memory { .. } => return Err("a part of new memory is read".into()),
            Form::Scores(_) | Form::Shares(_) | Form::Hidden | Form::Filled | Form::RowMaximum(_) => {
                return Err("scores of attention are read in an unknown way".into());
            }
            Form::Groups(_) => return Err("groups of experts are chosen in an unknown way".into()),
            Form::Slots(_) => return Err("numbers of experts are read in an unknown way".into()),
            Form::Matrices { .. } | Form::RowBiases { .. } | Form::RowWeights { .. } | Form::Weighted(_) => {
                return Err("rows of experts are read in an unknown way".into());
            }
        };
        self.forms.insert(value, Form::Data(data.clone()));
        Ok(data)
    }

    fn function_of(&mut self, of: ValueId, kind: ir::ops::UnaryKind) -> Result<Data, Refusal> {
        let data = self.data(of)?;
        Ok(self.unary(kind, &data))
    }
}
