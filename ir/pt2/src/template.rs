//! An imported model before its batch is known, which [`Template::build`] makes a model as the builders of families do.

use crate::atoms::{Atom, Atoms};
use crate::blocks::Segment;
use crate::error::Error;
use crate::lower::stepped;
use crate::names::{Label, Names};
use crate::program::{Action, Argument, LoweredModel, Use, Var, Weight};
use crate::steps::{NamedBlock, NamedStep, steps};
use ir::dim_role::DimRole;
use ir::graph::{ArgKind, Model, ParamIndex, ParamRef, ResultKind};
use ir::ids::BlockId;
use ir::models::{self, Alibi, Batch, Body, ConfigError, Draft, DraftError, ImportedModel, TensorSource};
use ir::ops::{Broadcast, CrossEntropy, Dispatch, Equation, Iota, Op};
use ir::types::{DType, DimName};
use ir::verify::verify_sizes;
use std::collections::{BTreeMap, BTreeSet};
use transforms::recognise::recognise;

/// The standard deviation of the first numbers of matrices, as in GPT-2. Exports do not state it.
const DEVIATION: f64 = 0.02;

/// An imported model of any batch.
#[derive(Clone, PartialEq, Debug)]
pub struct Template {
    dims: Vec<DimName>,
    vocabulary: u64,
    /// The rows of a table of positions; sequences are no longer.
    positions: Option<u64>,
    embed: NamedBlock,
    /// The kinds of layers: the array of their parameters, their number, their block.
    kinds: Vec<(String, u32, NamedBlock)>,
    /// The kind of each layer.
    order: Vec<usize>,
    head: NamedBlock,
    sources: BTreeMap<String, TensorSource>,
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
}

impl Template {
    /// The template of segments: embeddings, layers and the head.
    ///
    /// # Errors
    /// A layer shares parameters with another part, or a statement has other dims than its op.
    pub(crate) fn of(
        parts: &Parts<'_>,
        segments: &[Segment],
        refuse: &dyn Fn(usize, &str) -> Error,
    ) -> Result<Template, Error> {
        let (Some((embed, rest)), Some(_)) = (segments.split_first(), segments.get(2)) else {
            return Err(Error::Unsupported { at: Default::default(), why: "has no layers".to_string() });
        };
        let (head, layers) = rest.split_last().unwrap_or((embed, &[]));
        let mut sources = BTreeMap::new();
        let singles = single_names(parts, [embed, head]);
        let block = |segment: &Segment, names: &BTreeMap<usize, String>| {
            steps(parts, segment, names, layers.len()).map_err(|(node, why)| refuse(node, &why))
        };
        let (embed_block, head_block) = (block(embed, &singles)?, block(head, &singles)?);
        let mut kinds: Vec<(String, u32, NamedBlock)> = Vec::new();
        let mut order = Vec::new();
        let mut used: BTreeSet<usize> = singles.keys().copied().collect();
        for layer in layers {
            let names = layer_names(parts, layer);
            if let Some(shared) = names.keys().find(|weight| !used.insert(**weight)) {
                let tensor = &parts.program.weights[*shared].view.tensor;
                return Err(refuse(layer.statements[0].node, &format!("layers share the parameter `{tensor}`")));
            }
            let own = block(layer, &names)?;
            let kind = kinds.iter().position(|(.., known)| *known == own).unwrap_or_else(|| {
                let name = if kinds.is_empty() { "layer".to_string() } else { format!("layer{}", kinds.len() + 1) };
                kinds.push((name, 0, own));
                kinds.len() - 1
            });
            let (array, count, _) = &mut kinds[kind];
            for (&weight, name) in &names {
                sources.insert(format!("{array}.{count}.{name}"), source(parts, &parts.program.weights[weight]));
            }
            *count += 1;
            order.push(kind);
        }
        for (&weight, name) in &singles {
            sources.insert(name.clone(), source(parts, &parts.program.weights[weight]));
        }
        let (dims, positions) = (parts.names.declared(), positions(parts, embed));
        let vocabulary = parts.program.vars[head.output.0].last().map_or(0, |&atom| parts.atoms.size(atom));
        Ok(Template { dims, vocabulary, positions, embed: embed_block, kinds, order, head: head_block, sources })
    }

    /// The tokens of the vocabulary.
    pub fn vocabulary(&self) -> u64 {
        self.vocabulary
    }

    /// The number of layers.
    pub fn layers(&self) -> usize {
        self.order.len()
    }

    /// The longest sequence, where a table of positions bounds it.
    pub fn longest(&self) -> Option<u64> {
        self.positions
    }

    /// The dims of a model with sequences of `seq` tokens. A sequence is one routing group, and no expert drops a token of it: the builders'
    /// names of such dims are those of [`Label::Grouped`] and [`Label::Rows`].
    fn dims(&self, seq: u64) -> Vec<DimName> {
        let mut dims = self.dims.clone();
        if let Some(experts) = dims.iter().position(|dim| dim.role == Some(DimRole::Experts)) {
            dims.insert(experts + 1, DimName::new("c", seq, Some(DimRole::Capacity)));
            dims.insert(experts, DimName::new("t", seq, Some(DimRole::Tokens)));
            dims.insert(experts, DimName::new("q", 1, Some(DimRole::RoutingGroups)));
        }
        dims
    }

    fn blocks(&self, mut draft: Draft) -> Result<Model, DraftError> {
        let (stream, ids) = (draft.ty("b s h"), draft.ids());
        let name = |weight: &models::Weight| weight.name.to_string();
        let embeds: Vec<String> = self.embed.weights.iter().map(name).collect();
        let ends: Vec<String> = self.head.weights.iter().map(name).collect();
        draft.declare(&self.embed.weights);
        for (array, count, block) in &self.kinds {
            draft.declare_array(array, *count, &block.weights);
        }
        let own: Vec<models::Weight> =
            self.head.weights.iter().filter(|weight| !embeds.contains(&name(weight))).cloned().collect();
        draft.declare(&own);
        let inputs: &[&str] = if self.positions.is_some() { &["tok", "pos"] } else { &["tok"] };
        let args: Vec<_> = inputs.iter().map(|input| (*input, ArgKind::Input, ids.clone())).collect();
        let embed = draft.block("embed", &args, &self.embed.weights, &[ResultKind::Value], |b| {
            run(b, &self.embed)?;
            Ok(vec![b.value(&self.embed.result)?])
        })?;
        let args = [
            ("x", ArgKind::Value, stream.clone()),
            ("pos", ArgKind::Input, ids.clone()),
            ("seg", ArgKind::Input, ids.clone()),
        ];
        let mut kinds = Vec::new();
        for (array, _, block) in &self.kinds {
            kinds.push(draft.block(array, &args, &block.weights, &[ResultKind::Value], |b| {
                run(b, block)?;
                Ok(vec![b.value(&block.result)?])
            })?);
        }
        let args = [("x", ArgKind::Value, stream), ("lab", ArgKind::Input, ids)];
        let head = draft.block("head", &args, &self.head.weights, &[ResultKind::Loss], |b| {
            run(b, &self.head)?;
            b.op(&["loss", "lse"], CrossEntropy, &[&self.head.result, "lab"])?;
            Ok(vec![b.value("loss")?])
        })?;
        draft.call("x0", embed, None, inputs, &embeds.iter().map(String::as_str).collect::<Vec<_>>());
        let last = self.calls(&mut draft, &kinds);
        draft.call("", head, None, &[&last, "lab"], &ends.iter().map(String::as_str).collect::<Vec<_>>());
        Ok(draft.finish())
    }

    /// Calls the layers in order, those of one kind together; gives the name of the last result.
    fn calls(&self, draft: &mut Draft, kinds: &[BlockId]) -> String {
        let (mut at, mut number) = (0, 0);
        let mut next = vec![0; kinds.len()];
        while at < self.order.len() {
            let kind = self.order[at];
            let count = self.order[at..].iter().take_while(|&&other| other == kind).count();
            let (first, array) = (next[kind], &self.kinds[kind].0);
            let params = vec![ParamRef { name: array.clone(), index: ParamIndex::Repeat }];
            next[kind] += count as u32;
            let (from, to) = (format!("x{number}"), format!("x{}", number + 1));
            draft.call_with(&to, kinds[kind], Some(first..next[kind]), &[&from, "pos", "seg"], params);
            (at, number) = (at + count, number + 1);
        }
        format!("x{number}")
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
        let mut model = self
            .blocks(Draft::new("exported", batch, self.dims(batch.seq)))
            .map_err(|error| ConfigError::Contradiction(error.to_string()))?;
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
fn positions(parts: &Parts<'_>, embed: &Segment) -> Option<u64> {
    embed.statements.iter().find_map(|statement| match (&statement.action, statement.operands.as_slice()) {
        (Action::Embedding { .. }, &[Argument::Positions, Argument::Weight(table)]) => {
            Some(parts.atoms.size(parts.program.weights[table].view.dims[0].0))
        }
        _ => None,
    })
}

fn source(parts: &Parts<'_>, weight: &Weight) -> TensorSource {
    let view = &weight.view;
    let dims = view.dims.iter().flat_map(|&dim| stepped(parts.atoms, dim));
    let dims = dims.map(|(atom, step)| (parts.atoms.size(atom), step)).collect();
    let shape = parts.shapes.get(&view.tensor).cloned().unwrap_or_default();
    TensorSource { tensor: view.tensor.clone(), shape, first: view.first, dims, shift: view.shift }
}

/// The declaration of a parameter. Matrices that write to the stream start smaller by `sqrt(2 layers)`, as in the builders.
pub(crate) fn declared(parts: &Parts<'_>, weight: &Weight, name: &str, layers: Option<usize>) -> models::Weight {
    let leaves: Vec<Atom> = weight.view.dims.iter().flat_map(|&(atom, _)| parts.atoms.leaves(&[atom])).collect();
    let dims: Vec<String> = leaves.iter().map(|&leaf| parts.names.label(parts.atoms, leaf).to_string()).collect();
    let writes = leaves.ends_with(&parts.stream) && leaves.len() > parts.stream.len();
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

/// Names of the parameters of embeddings and head.
fn single_names(parts: &Parts<'_>, segments: [&Segment; 2]) -> BTreeMap<usize, String> {
    let mut weights = weights_of(segments[0]);
    let more: Vec<usize> = weights_of(segments[1]).into_iter().filter(|weight| !weights.contains(weight)).collect();
    weights.extend(more);
    named(parts, &weights, "")
}

/// Names of the parameters of a layer.
fn layer_names(parts: &Parts<'_>, layer: &Segment) -> BTreeMap<usize, String> {
    named(parts, &weights_of(layer), layer.layer.as_deref().unwrap_or_default())
}

/// Names for weights: of the path of a tensor the fewest last parts that tell it apart. Parts of one tensor are numbered.
fn named(parts: &Parts<'_>, weights: &[usize], prefix: &str) -> BTreeMap<usize, String> {
    let path = |&weight: &usize| {
        let name = &parts.program.weights[weight].view.tensor;
        let name = name.strip_prefix(prefix).unwrap_or(name).trim_start_matches('.');
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
    let label = |leaf| match parts.names.label(parts.atoms, leaf) {
        Label::Named("s", 1) if is_grouped => Label::Grouped,
        label => label,
    };
    leaves.into_iter().map(label).collect()
}
