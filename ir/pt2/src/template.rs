//! An imported model before its batch is known, which [`Template::build`] makes a model as the builders of families do.

use crate::atoms::{Atom, Atoms};
use crate::blocks::Segment;
use crate::error::Error;
use crate::lower::stepped;
use crate::making::Making;
use crate::names::{Label, Names};
use crate::program::{Action, Argument, LoweredModel, Use, Var, Weight};
use crate::steps::{NamedBlock, NamedStep};
use ir::dim_role::DimRole;
use ir::graph::{ArgKind, Model, ParamRef, ResultKind};
use ir::models::{self, Alibi, Batch, Body, ConfigError, Draft, DraftError, ImportedModel, TensorSource};
use ir::ops::{Broadcast, CrossEntropy, Dispatch, Equation, Iota, Op};
use ir::types::{DType, DimName, Type};
use ir::verify::verify_sizes;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use transforms::recognise::recognise;

/// The standard deviation of the first numbers of matrices, as in GPT-2. Exports do not state it.
const DEVIATION: f64 = 0.02;

/// An imported model of any batch.
#[derive(Clone, PartialEq, Debug)]
pub struct Template {
    pub(crate) dims: Vec<DimName>,
    pub(crate) vocabulary: u64,
    /// The rows of a table of positions; sequences are no longer.
    pub(crate) positions: Option<u64>,
    /// Parameters of their own: those of the first block, and those of the others.
    pub(crate) singles: [Vec<models::Weight>; 2],
    /// Parameters of layers: the array and the number of its instances.
    pub(crate) arrays: Vec<NamedArray>,
    /// The last one has the logits.
    pub(crate) blocks: Vec<NamedBlock>,
    pub(crate) calls: Vec<NamedCall>,
    pub(crate) layers: usize,
    pub(crate) inputs: Vec<NamedInput>,
    /// Dims that are as long as the sequences of the batch.
    pub(crate) open: Vec<String>,
    /// The dims of labels.
    pub(crate) labels: String,
    pub(crate) is_text: bool,
    /// The ids that all tables have.
    pub(crate) ids: u64,
    pub(crate) sources: BTreeMap<String, TensorSource>,
}

/// An input of a model that reads other things than the tokens of one text.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct NamedInput {
    pub(crate) name: String,
    pub(crate) dims: String,
    pub(crate) is_int: bool,
}

/// Parameters of layers of one kind.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct NamedArray {
    pub(crate) name: String,
    pub(crate) count: u32,
    pub(crate) weights: Vec<models::Weight>,
}

/// Calls of a block, one after the other.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct NamedCall {
    pub(crate) block: usize,
    /// Names that spaces separate.
    pub(crate) results: String,
    pub(crate) args: Vec<String>,
    pub(crate) params: Vec<ParamRef>,
    pub(crate) instances: Option<Range<u32>>,
}

/// The program that a template is made of, with its names.
pub(crate) struct Parts<'a> {
    pub(crate) program: &'a LoweredModel,
    pub(crate) atoms: &'a Atoms,
    pub(crate) names: &'a Names,
    /// The sizes of parameters.
    pub(crate) shapes: &'a BTreeMap<String, Vec<u64>>,
    /// The axes of the stream behind tokens.
    pub(crate) stream: Vec<Atom>,
    /// Values of integers.
    pub(crate) ints: BTreeSet<Var>,
    /// The model reads the tokens of a text.
    pub(crate) is_text: bool,
}

impl Template {
    /// The template of segments, the last of which has the logits.
    ///
    /// # Errors
    /// A statement has other dims than its op.
    pub(crate) fn of(
        parts: &Parts<'_>,
        segments: &[Segment],
        logits: Var,
        refuse: &dyn Fn(usize, &str) -> Error,
    ) -> Result<Template, Error> {
        Making::new(parts, segments).made(logits, refuse)
    }

    /// The tokens of the vocabulary.
    pub fn vocabulary(&self) -> u64 {
        self.vocabulary
    }

    /// The ids that all tables of embeddings have.
    pub fn ids(&self) -> u64 {
        self.ids
    }

    /// The number of layers.
    pub fn layers(&self) -> usize {
        self.layers
    }

    /// The longest sequence, where a table of positions bounds it.
    pub fn longest(&self) -> Option<u64> {
        self.positions
    }

    /// The dims of a model with sequences of `seq` tokens. A sequence is one routing group, and no expert drops a token of it: the builders'
    /// names of such dims are those of [`Label::Grouped`] and [`Label::Rows`].
    fn dims(&self, seq: u64) -> Vec<DimName> {
        let mut dims = self.dims.clone();
        dims.iter_mut().filter(|dim| self.open.contains(&dim.name)).for_each(|dim| dim.size = seq);
        if let Some(experts) = dims.iter().position(|dim| dim.role == Some(DimRole::Experts)) {
            dims.insert(experts + 1, DimName::new("c", seq, Some(DimRole::Capacity)));
            dims.insert(experts, DimName::new("t", seq, Some(DimRole::Tokens)));
            dims.insert(experts, DimName::new("q", 1, Some(DimRole::RoutingGroups)));
        }
        dims
    }

    /// A model without blocks.
    fn draft(&self, batch: &Batch) -> Draft {
        let dims = self.dims(batch.seq);
        if self.is_text {
            return Draft::new("exported", batch, dims);
        }
        let mut draft = Draft::bare("exported", batch, dims);
        for input in &self.inputs {
            let ty = draft.ty(&input.dims);
            let dtype = if input.is_int { DType::I32 } else { ty.dtype };
            draft.take(&input.name, Type { dtype, ..ty });
        }
        let labels = Type { dtype: DType::I32, ..draft.ty(&self.labels) };
        draft.take("lab", labels);
        draft
    }

    fn model(&self, mut draft: Draft) -> Result<Model, DraftError> {
        draft.declare(&self.singles[0]);
        for array in &self.arrays {
            draft.declare_array(&array.name, array.count, &array.weights);
        }
        draft.declare(&self.singles[1]);
        let mut blocks = Vec::new();
        for block in &self.blocks {
            let mut args: Vec<(&str, ArgKind, Type)> = block.args.iter().map(|arg| arg.ty(&draft)).collect();
            if block.is_head {
                args.push(("lab", ArgKind::Input, Type { dtype: DType::I32, ..draft.ty(&self.labels) }));
            }
            let kind = if block.is_head { ResultKind::Loss } else { ResultKind::Value };
            let kinds = vec![kind; block.results.len()];
            blocks.push(draft.block(&block.name, &args, &block.weights, &kinds, |b| {
                run(b, block)?;
                if block.is_head {
                    b.op(&["loss", "lse"], CrossEntropy, &[&block.results[0], "lab"])?;
                    return Ok(vec![b.value("loss")?]);
                }
                block.results.iter().map(|result| b.value(result)).collect()
            })?);
        }
        for call in &self.calls {
            let mut args: Vec<&str> = call.args.iter().map(String::as_str).collect();
            args.extend(self.blocks[call.block].is_head.then_some("lab"));
            draft.call_with(&call.results, blocks[call.block], call.instances.clone(), &args, call.params.clone());
        }
        Ok(draft.finish())
    }
}

impl ImportedModel for Template {
    /// The model for a batch. Its loss is the cross-entropy of the logits and the labels `%lab`.
    fn build(&self, batch: &Batch) -> Result<Model, ConfigError> {
        for (size, count) in [("batch", batch.batch), ("seq", batch.seq)] {
            if count == 0 {
                return Err(ConfigError::NoBatch { size });
            }
        }
        if let Some(positions) = self.positions.filter(|&positions| batch.seq > positions) {
            return Err(ConfigError::TooLong { seq: batch.seq, positions });
        }
        let mut model = self.model(self.draft(batch)).map_err(|error| ConfigError::Contradiction(error.to_string()))?;
        recognise(&mut model);
        match verify_sizes(&model) {
            Ok(()) => Ok(model),
            Err(found) => Err(ConfigError::TooLarge(found.0.first().map_or_else(String::new, |d| d.message.clone()))),
        }
    }

    fn sources(&self) -> &BTreeMap<String, TensorSource> {
        &self.sources
    }
}

/// The statements of a block.
fn run(b: &mut Body<'_>, block: &NamedBlock) -> Result<(), DraftError> {
    for step in &block.steps {
        match step {
            NamedStep::Op { results, op, operands } => {
                let (results, operands): (Vec<&str>, Vec<&str>) =
                    (results.iter().map(String::as_str).collect(), operands.iter().map(String::as_str).collect());
                b.op(&results, op.clone(), &operands)?;
            }
            NamedStep::Reshape { result, dims, operand } => {
                let op: Op = ir::ops::Reshape { dims: b.dims(dims) }.into();
                b.op(&[result], op, &[operand])?;
            }
            NamedStep::Broadcast { result, equation, free, operand } => {
                let op = Broadcast { equation: Equation::parse(equation)?, free: b.dims(free) };
                b.op(&[result], op, &[operand])?;
            }
            NamedStep::Index { result, dim, dims } => {
                b.op(&[result], Iota { dim: *dim, dims: b.dims(dims), dtype: DType::I32 }, &[])?;
            }
            NamedStep::Filled { result, dims, number, like } => b.filled(result, *number, like, dims)?,
            NamedStep::Lean { result, lean, operand } => {
                let alibi = Alibi { heads: lean.heads[0], kv_heads: lean.heads[1], scale: lean.scale };
                if lean.is_query { alibi.queries(b, result, operand)? } else { alibi.keys(b, result, operand)? }
            }
            NamedStep::Dispatch { results, operands } => {
                let [experts, capacity] = ["e", "c"].map(|letter| b.dims(letter).remove(0));
                b.op(
                    &results.each_ref().map(String::as_str),
                    Dispatch { experts, capacity },
                    &operands.each_ref().map(String::as_str),
                )?;
            }
        }
    }
    Ok(())
}

/// The rows of the table of positions.
pub(crate) fn positions(parts: &Parts<'_>, segments: &[Segment]) -> Option<u64> {
    let statements = segments.iter().flat_map(|segment| &segment.statements);
    let rows = statements.filter_map(|statement| match (&statement.action, statement.operands.as_slice()) {
        (Action::Embedding { .. }, &[Argument::Positions, Argument::Weight(table)]) => {
            Some(parts.atoms.size(parts.program.weights[table].view.dims[0].0))
        }
        _ => None,
    });
    rows.min()
}

pub(crate) fn source(parts: &Parts<'_>, weight: &Weight) -> TensorSource {
    let view = &weight.view;
    let dims = view.dims.iter().flat_map(|&dim| stepped(parts.atoms, dim));
    let dims = dims.map(|(atom, step)| (parts.atoms.size(atom), step)).collect();
    let shape = parts.shapes.get(&view.tensor).cloned().unwrap_or_default();
    TensorSource { tensor: view.tensor.clone(), shape, first: view.first, dims, shift: view.shift }
}

/// The declaration of a parameter. Matrices that write to the stream start smaller by `sqrt(2 layers)`, as in the builders.
pub(crate) fn declared(parts: &Parts<'_>, weight: &Weight, name: &str, layers: Option<usize>) -> models::Weight {
    let leaves: Vec<Atom> = weight.view.dims.iter().flat_map(|&(atom, _)| parts.atoms.leaves(&[atom])).collect();
    // A dim that is there twice is a number the first time.
    let dims: Vec<String> = leaves
        .iter()
        .enumerate()
        .map(|(at, leaf): (usize, &Atom)| match leaves[at + 1..].contains(leaf) {
            true => parts.atoms.size(*leaf).to_string(),
            false => parts.names.label(parts.atoms, *leaf).to_string(),
        })
        .collect();
    let writes = !parts.stream.is_empty() && leaves.ends_with(&parts.stream) && leaves.len() > parts.stream.len();
    match (weight.usage, layers) {
        (Use::Constant, _) => models::Weight::constant(name.to_string(), &dims.join(" "), 0.0).frozen(),
        (Use::Gain, _) => models::Weight::constant(name.to_string(), &dims.join(" "), 1.0),
        (Use::Bias, _) => models::Weight::constant(name.to_string(), &dims.join(" "), 0.0),
        (Use::Matrix, Some(layers)) if writes => {
            models::Weight::normal(name.to_string(), &dims.join(" "), DEVIATION / (2.0 * layers as f64).sqrt())
        }
        (Use::Matrix, _) => models::Weight::normal(name.to_string(), &dims.join(" "), DEVIATION),
    }
}

/// The weights of a segment, in the order of their first use.
pub(crate) fn weights_of(segment: &Segment) -> Vec<usize> {
    let mut weights = Vec::new();
    for statement in &segment.statements {
        for operand in &statement.operands {
            if let Argument::Weight(weight) = operand
                && !weights.contains(weight)
            {
                weights.push(*weight);
            }
        }
    }
    weights
}

/// Names for weights: of the path of a tensor the fewest last parts that tell it apart. Parts of one tensor are numbered.
pub(crate) fn named(parts: &Parts<'_>, weights: &[usize], prefix: &str) -> BTreeMap<usize, String> {
    let path = |&weight: &usize| {
        let name = &parts.program.weights[weight].view.tensor;
        // Parameters of another list have the number of the layer, too.
        let name = name.strip_prefix(prefix).map_or_else(
            || match name
                .split('.')
                .find(|part: &&str| part.bytes().all(|byte| byte.is_ascii_digit()))
                .filter(|_| !prefix.is_empty())
            {
                Some(number) => name.replacen(&format!(".{number}."), ".", 1),
                None => name.clone(),
            },
            str::to_string,
        );
        let name = name.trim_start_matches('.');
        let name = name.strip_suffix(".weight").map_or_else(|| name.replace(".bias", "_bias"), str::to_string);
        name.split('.').map(str::to_string).collect::<Vec<_>>()
    };
    let paths: Vec<Vec<String>> = weights.iter().map(path).collect();
    let short = |path: &[String], parts: usize| path[path.len().saturating_sub(parts)..].join("_");
    let mut names = BTreeMap::new();
    for (at, &weight) in weights.iter().enumerate() {
        let own = &paths[at];
        let is_unique =
            |parts: &usize| paths.iter().all(|other| other == own || short(other, *parts) != short(own, *parts));
        let length = (1..=own.len()).find(is_unique).unwrap_or(own.len());
        let name = short(own, length);
        let same: Vec<usize> = (0..paths.len()).filter(|&other| paths[other] == *own).collect();
        let number = same.iter().position(|&other| other == at).unwrap_or(0);
        let name = if same.len() > 1 { format!("{name}_{number}") } else { name };
        let is_word = name.starts_with(|letter: char| letter.is_ascii_alphabetic());
        let name: String =
            name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect();
        names.insert(weight, if is_word { name } else { format!("w{name}") });
    }
    names
}

/// The label of each dim of a value.
pub(crate) fn labels(parts: &Parts<'_>, var: Var) -> Vec<Label> {
    let leaves = parts.atoms.leaves(&parts.program.vars[var.0]);
    let is_grouped = parts.program.grouped.contains(&var);
    leaves
        .into_iter()
        .map(|leaf| match parts.names.label(parts.atoms, leaf) {
            Label::Named("s", 1) if is_grouped => Label::Grouped,
            label => label,
        })
        .collect()
}
