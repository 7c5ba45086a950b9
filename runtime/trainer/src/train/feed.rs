//! Feeds of the model's inputs: tokens, labels, positions and segments, one micro-batch after another.

use crate::error::Error;
use compiler::parallel::slices;
use compiler::precision::Precision;
use data::images::ImageBatch;
use data::sampler::Batch;
use data::samples::Samples;
use data::{DataError, VOCAB, zig_zag};
use exec::{Input, Inputs, StepInput};
use ir::catalogue::Code;
use ir::dim_role::DimRole;
use ir::graph::{Model, SectionKind};
use ir::ids::ModelValue;
use ir::ops::{KernelOp, Op};
use ir::options::{ParallelConfig, Scales};
use ir::types::DType;
use planner::is_ring;
use std::borrow::Cow;

/// A part of a [`Batch`] that an input of a model gets.
#[derive(Clone, Copy)]
enum Field {
    /// The tokens this number of places further on.
    Tokens(usize),
    /// The labels this number of places further on.
    Labels(usize),
    Positions,
    Segments,
    Lengths,
    /// The row of an image that each token stands for.
    Slots,
    /// The time, the row or the column of each token.
    Grid(usize),
    /// Numbers of each patch of images.
    Numbers(fn(&ImageBatch) -> &Vec<f32>),
    /// Integers of each patch of images.
    Places(fn(&ImageBatch) -> &Vec<i32>),
}

impl Field {
    /// The field of an input's name: `tok`, `lab`, `pos`, `seg`, `len`, or `tok2` for tokens two places further on; for images `slot`,
    /// `patch`, `row`, `col`, `image`, `tap`, `share`, `at_time`, `at_row` and `at_col`.
    fn of(name: &str) -> Option<Field> {
        match (name, name.get(..3)?) {
            ("slot", _) => Some(Field::Slots),
            ("at_time", _) => Some(Field::Grid(0)),
            ("at_row", _) => Some(Field::Grid(1)),
            ("at_col", _) => Some(Field::Grid(2)),
            ("patch", _) => Some(Field::Numbers(|images| &images.patches)),
            ("share", _) => Some(Field::Numbers(|images| &images.shares)),
            ("tap", _) => Some(Field::Places(|images| &images.taps)),
            ("row", _) => Some(Field::Places(|images| &images.rows)),
            ("col", _) => Some(Field::Places(|images| &images.columns)),
            ("image", _) => Some(Field::Places(|images| &images.images)),
            ("pos", _) => Some(Field::Positions),
            ("seg", _) => Some(Field::Segments),
            ("len", _) => Some(Field::Lengths),
            (_, "tok") => places_ahead(&name[3..]).map(Field::Tokens),
            (_, "lab") => places_ahead(&name[3..]).map(Field::Labels),
            _ => None,
        }
    }

    /// True if it has a number for each token.
    fn is_of_tokens(self) -> bool {
        !matches!(self, Field::Numbers(_) | Field::Places(_))
    }

    /// True if images give it.
    fn is_of_images(self) -> bool {
        matches!(self, Field::Slots | Field::Grid(_) | Field::Numbers(_) | Field::Places(_))
    }

    /// The numbers of sequences of `seq` tokens.
    fn of_batch(self, batch: &Batch, seq: usize) -> Cow<'_, [i32]> {
        match self {
            Field::Tokens(0) => Cow::Borrowed(&batch.tokens),
            Field::Labels(0) => Cow::Borrowed(&batch.labels),
            Field::Positions => Cow::Borrowed(&batch.positions),
            Field::Segments => Cow::Borrowed(&batch.segments),
            Field::Lengths => Cow::Owned(batch.lengths(seq)),
            Field::Slots => Cow::Borrowed(&batch.images.slots),
            Field::Grid(side) => Cow::Borrowed(&batch.images.grid[side]),
            Field::Places(of) => Cow::Borrowed(of(&batch.images)),
            Field::Numbers(_) => Cow::Borrowed(&[]),
            // What is read there has no label.
            Field::Tokens(ahead) => Cow::Owned(batch.ahead(&batch.tokens, seq, ahead, 0)),
            Field::Labels(ahead) => Cow::Owned(batch.ahead(&batch.labels, seq, ahead, -1)),
        }
    }
}

/// The number of places further on that the end of a name gives: none is 0.
fn places_ahead(number: &str) -> Option<usize> {
    if number.is_empty() { Some(0) } else { number.parse().ok().filter(|&ahead| ahead > 0) }
}

/// The input of a step.
pub(super) struct FedStep {
    pub(super) input: StepInput,
    /// Tokens that fill windows of examples, and stand there once more.
    pub(super) repeated: u64,
    /// True if there are examples with labels of their own.
    pub(super) has_examples: bool,
}

/// Inputs of a model that reads text, in the order of tokens that a configuration asks for. All that `train` computes goes through it.
pub struct Feed {
    inputs: Vec<(ModelValue, Field)>,
    /// Sequences per micro-batch, over all ranks.
    pub sequences: u64,
    /// Tokens per sequence.
    pub seq: u64,
    /// The place whose token each place of a sequence gets, if the order of the text is not kept.
    order: Option<Vec<usize>>,
    /// The tokens that the model knows.
    pub vocabulary: u64,
}

impl Feed {
    /// Reads the inputs of a model that is not compiled; the vocabulary must have `least` tokens or more. On a ring of ranks inputs
    /// go in zig-zag order, if no op depends on the order. Each slice of a sequence is in an order of its own.
    ///
    /// # Errors
    /// The model has inputs that text does not give, or its vocabulary is too small.
    pub fn of(model: &Model, parallel: &ParallelConfig, precision: &Precision, least: u64) -> Result<Feed, Error> {
        let shape = model.inputs.first().map(|input| input.ty.dims.iter().map(|dim| dim.size).collect::<Vec<_>>());
        let Some([sequences, seq]) = shape.as_deref() else {
            return Err(not_text("its first input does not have the shape [sequences, tokens]".into()));
        };
        let (sequences, seq) = (*sequences, *seq);
        let mut inputs = Vec::new();
        for input in &model.inputs {
            let name = &model.values[input.value];
            let field = Field::of(name).ok_or_else(|| not_text(format!("text provides no input for `%{name}`")))?;
            let is_as_tokens = input.ty.dtype == DType::I32 && input.ty.sizes() == [sequences, seq];
            if field.is_of_tokens() && !is_as_tokens {
                return Err(not_text(format!("`%{name}` is not i32[{sequences}, {seq}]")));
            }
            inputs.push((input.value, field));
        }
        let vocabulary = model.dim_of(DimRole::Vocabulary).map_or(u64::MAX, |dim| dim.size);
        match model.dim_of(DimRole::Vocabulary) {
            Some(dim) if dim.size < least => {
                Err(not_text(format!("its vocabulary is {}, but bytes and an end of document are {VOCAB}", dim.size)))
            }
            _ => {
                // Neighbours share the scale of a block.
                let has_blocks = precision.quantisation.is_some_and(|of| matches!(of.scales, Scales::Blocks(_)));
                let may_turn = is_ring(parallel) && !has_blocks && !depends_on_order(model);
                let ranks = if may_turn { parallel.cp } else { 1 };
                let slices = if model.slices() > 1 { model.slices() } else { slices(parallel) };
                let order = zig_zag(seq as usize, slices as usize, ranks as usize);
                Ok(Feed { inputs, sequences, seq, order, vocabulary })
            }
        }
    }

    /// Builds the input of a step: micro-batches from sample `first` on. Samples from `end` on are fed, but their
    /// labels are ignored.
    ///
    /// # Errors
    /// The data has a token that the model does not know.
    pub(super) fn step(
        &self,
        samples: &Samples<'_>,
        first: u64,
        microbatches: u32,
        end: u64,
    ) -> Result<FedStep, DataError> {
        let mut batches = Vec::with_capacity(microbatches as usize);
        for number in 0..microbatches {
            let (first, mut batch) = (first + u64::from(number) * self.sequences, Batch::default());
            samples.fill(first, self.sequences as usize, &mut batch)?;
            let counted = end.saturating_sub(first).min(self.sequences) * self.seq;
            batch.labels[counted as usize..].fill(-1);
            batches.push(batch);
        }
        let repeated = batches.iter().map(|batch| batch.repeated as u64).sum();
        let has_examples = batches.iter().any(|batch| batch.has_examples);
        Ok(FedStep { input: self.of_batches(batches.into_iter()), repeated, has_examples })
    }

    /// The numbers of sequences in the order in which they are fed.
    fn ordered(&self, numbers: &[i32]) -> Vec<i32> {
        let Some(order) = &self.order else { return numbers.to_vec() };
        numbers.chunks_exact(order.len()).flat_map(|sequence| order.iter().map(|&place| sequence[place])).collect()
    }

    /// The input of a step of micro-batches.
    pub fn of_batches(&self, batches: impl Iterator<Item = Batch>) -> StepInput {
        let (mut microbatches, mut valid_tokens) = (Vec::new(), 0);
        for batch in batches {
            valid_tokens += batch.valid_labels() as u64;
            microbatches.push(self.inputs_of(&batch));
        }
        StepInput { microbatches, valid_tokens, loss_scale: 1.0, lr: 0.0, step: 1, update: 1 }
    }

    /// True if the model reads images.
    pub(crate) fn reads_images(&self) -> bool {
        self.inputs.iter().any(|(_, field)| field.is_of_images())
    }

    fn inputs_of(&self, batch: &Batch) -> Inputs {
        self.inputs.iter().map(|&(value, field)| (value, self.input_of(batch, field))).collect()
    }

    fn input_of(&self, batch: &Batch, field: Field) -> Input {
        match field {
            Field::Numbers(of) => Input::Floats(of(&batch.images).clone()),
            Field::Places(of) => Input::Ints(of(&batch.images).clone()),
            _ => Input::Ints(self.ordered(&field.of_batch(batch, self.seq as usize))),
        }
    }
}

/// True if an op draws numbers by the places of tokens, treats the first ones first, or carries a state from one to the next.
fn depends_on_order(model: &Model) -> bool {
    let mut stmts = model.blocks.values().flat_map(|block| &block[SectionKind::F].stmts);
    let carries_state = model.carrying().next().is_some();
    carries_state
        || stmts.any(|stmt| match &stmt.op {
            Op::Kernel(KernelOp::Attention(op)) => op.0.dropout.is_some(),
            Op::Kernel(KernelOp::Dropout(_) | KernelOp::Jitter(_) | KernelOp::Dispatch(_)) => true,
            _ => false,
        })
}

fn not_text(why: String) -> Error {
    Error::input(Code::NotATextModel, format!("the model cannot be trained on text: {why}"))
        .help("a model that reads text has the inputs %tok, %lab, %pos, %seg")
}
