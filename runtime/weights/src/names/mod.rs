//! The parameters of a model under the names that `transformers` gives them: one mapping for reading, writing and tests.

mod form;

use crate::description::Description;
use crate::layout::Source;
use form::Layer;
use ir::graph::{Param, is_record};
use ir::models::{Batch, ConfigError, ENCODER_ARRAYS, HubTensor, TensorSource, Weights, When};
use ir::types::DType;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The parameters of a model, by instance name, and where files have them.
#[derive(Clone, Debug)]
pub struct Names {
    /// The parameters.
    pub sources: BTreeMap<String, Source>,
    /// Numbers that never change, and that files have as tensors without dims.
    pub(crate) constants: BTreeMap<String, f32>,
    /// Conventions of the family's files; none for a model without a class.
    pub(crate) family: Option<Conventions>,
}

/// Parts that files of a family may have or lack.
#[derive(Clone, Debug)]
pub(crate) struct Conventions {
    /// The name of the model without its head, which files that were saved without the head lack.
    pub(crate) base: &'static str,
    /// The names of the matrix of a tied head, which some files have all the same, and of the embedding.
    pub(crate) tied: Option<[&'static str; 2]>,
    /// Layers behind those of the model, which predict further tokens.
    pub(crate) further: Range<u32>,
    /// Files have a part that reads images, too, and prefixes for the text model.
    pub(crate) is_composite: bool,
}

impl Conventions {
    pub(crate) fn of(description: &Description) -> Conventions {
        let weights = &description.family.weights;
        let layers = description.layers();
        let further = layers..layers + description.further_layers();
        let tied = description.is_tied().then_some([weights.head, weights.embedding]);
        Conventions { base: weights.base, tied, further, is_composite: description.is_composite }
    }
}

/// The sizes of parameters, by their names.
type ModelSizes<'a> = BTreeMap<&'a str, Vec<u64>>;

/// True for the name of a tensor, if there is one of these sizes; of any, if no sizes are given.
pub type Present<'a> = &'a dyn Fn(&str, &[u64]) -> bool;

/// Facts that the name of a parameter depends on.
#[derive(Clone, Copy)]
struct Scope<'a> {
    weights: &'a Weights,
    /// Rows of a layer that count before those of the weights.
    first: &'static [HubTensor],
    /// The parameters of the layer, or those outside of layers.
    params: &'a ModelSizes<'a>,
    /// The number of the layer among all layers.
    layer: Option<u32>,
    /// The number of all layers.
    layers: u32,
    /// Files have rotary pairs next to each other.
    is_interleaved: bool,
    /// The first elements of a head, of which these pairs are; none: all.
    turned: Option<u64>,
    /// The tensors that the files have, of any sizes or of these; none has any where names are chosen freely.
    present: Present<'a>,
}

/// The number of a layer in a name.
const LAYER: &str = "{layer}";

impl Scope<'_> {
    /// The place of a parameter in files; `None` if the family has no such parameter.
    fn source(&self, param: &str) -> Option<Source> {
        let row = self.rows().find(|row| row.params.contains(&param) && self.holds(row))?;
        let at = row.params.iter().position(|name| *name == param)?;
        let sizes: Vec<&[u64]> = row.params.iter().map(|name| self.sizes(name)).collect::<Option<_>>()?;
        let is_split = row.name.contains("{}");
        let layer = self.layer.filter(|_| row.of_layers).map(|number| Layer { number, of: self.layers });
        let name = if row.of_layers { format!("{}{}", self.weights.base, row.name) } else { self.at(row.name) };
        let mut pieces = if is_split {
            let inner: Vec<&[u64]> = sizes.iter().map(|sizes| &sizes[1..]).collect();
            (0..sizes[at][0]).map(|n| form::piece(row, name.replace("{}", &n.to_string()), &inner, at, layer)).collect()
        } else {
            vec![form::piece(row, name, &sizes, at, layer)]
        };
        if self.is_interleaved && self.weights.turned.contains(&param) {
            pieces.iter_mut().for_each(|piece| piece.pair(self.turned));
        }
        Some(Source { sizes: sizes[at].to_vec(), pieces, is_split, shift: row.shift })
    }

    /// The rows of the family, in the order in which they count.
    fn rows(&self) -> impl Iterator<Item = &'static HubTensor> {
        let (outer, inner) = match self.layer {
            None => (self.weights.outer, [].as_slice()),
            Some(_) => ([].as_slice(), self.weights.inner),
        };
        let first = if self.layer.is_some() { self.first } else { &[] };
        outer.iter().chain(first).chain(inner.iter().copied().flatten())
    }

    fn holds(&self, row: &HubTensor) -> bool {
        match row.when {
            When::Always => true,
            When::File(tensor) => (self.present)(&self.at(tensor), &[]),
            When::Param(name) => self.sizes(name).is_some(),
            When::Sizes => {
                let sizes: Option<Vec<&[u64]>> = row.params.iter().map(|name| self.sizes(name)).collect();
                let name = self.at(row.name);
                sizes.is_some_and(|sizes| (self.present)(&name, &form::piece(row, name.clone(), &sizes, 0, None).shape))
            }
        }
    }

    fn sizes(&self, param: &str) -> Option<&[u64]> {
        self.params.get(param).map(Vec::as_slice)
    }

    /// The full name of a tensor.
    fn at(&self, name: &str) -> String {
        match self.layer {
            None => name.to_string(),
            Some(layer) if name.contains(LAYER) => {
                format!("{}{}", self.weights.base, name.replace(LAYER, &layer.to_string()))
            }
            Some(layer) => format!("{}{}{layer}.{name}", self.weights.base, self.weights.layers),
        }
    }
}

impl Names {
    /// The names of a model without a class: each parameter is the tensor of its own name and sizes, `layer.3.w1` for
    /// `%layer[3].w1`.
    pub fn own(params: impl IntoIterator<Item = (String, Vec<u64>)>) -> Names {
        let sources = params.into_iter().map(|(name, sizes)| {
            let pieces = vec![form::same(name.clone(), &sizes)];
            (name, Source { sizes, pieces, is_split: false, shift: 0.0 })
        });
        Names { sources: sources.collect(), constants: BTreeMap::new(), family: None }
    }

    /// The names of an exported model: those of its modules.
    pub(crate) fn exported(sources: &BTreeMap<String, TensorSource>) -> Names {
        let sources = sources.iter().map(|(name, from)| (name.clone(), Source::exported(from)));
        Names { sources: sources.collect(), constants: BTreeMap::new(), family: None }
    }

    /// The same under the names of the class that has the encoder, too: the tensors of its text model have a prefix of their own.
    #[must_use]
    pub(crate) fn of_whole(mut self, description: &Description) -> Names {
        let Some((encoder, _)) = description.encoder else { return self };
        let outer: Vec<&str> = encoder.weights.outer.iter().map(|row| row.name).collect();
        for piece in self.sources.values_mut().flat_map(|source| &mut source.pieces) {
            let is_of_encoder = piece.tensor.starts_with(encoder.weights.base) || outer.contains(&&*piece.tensor);
            if let (false, Some(rest)) = (is_of_encoder, piece.tensor.strip_prefix("model.")) {
                piece.tensor = format!("model.language_model.{rest}");
            }
        }
        self
    }

    /// The names of the matrix of a tied head, which files may lack, and of the embedding that it is.
    pub fn tied(&self) -> Option<[&'static str; 2]> {
        self.family.as_ref()?.tied
    }

    /// The names of a model on sequences of `seq` tokens. `present` says which tensors there are, since some have two forms;
    /// where there are none, the form is that of the hub.
    ///
    /// # Errors
    /// The configuration cannot have such sequences.
    ///
    /// # Panics
    /// If the model has a parameter that no family has.
    pub fn of(description: &Description, seq: u64, present: Present<'_>) -> Result<Names, ConfigError> {
        let Description { family, config, encoder, .. } = description;
        let model = config.build(&Batch { batch: 1, seq, dtype: DType::F32 })?;
        let mut layers: BTreeMap<(&str, u32), u32> = BTreeMap::new();
        for call in &model.calls {
            let Some(repeat) = &call.repeat else { continue };
            // Layers of an encoder have numbers of their own.
            if is_of_encoder(&call.params[0].name) {
                continue;
            }
            for at in repeat.range.clone() {
                let number = layers.len() as u32;
                layers.insert((call.params[0].name.as_str(), at), number);
            }
        }
        let mut arrays: BTreeMap<&str, ModelSizes<'_>> = BTreeMap::new();
        for param in model.params.values() {
            arrays.entry(array(param)).or_default().insert(member(param), param.ty.sizes());
        }
        let (is_interleaved, turned) = (description.is_interleaved(), description.turned());
        let mut sources = BTreeMap::new();
        // Records are no weights.
        for param in model.params.values().filter(|param| !is_record(&param.instance_name(0))) {
            for instance in 0..param.instances() {
                let layer = layers.get(&(param.name.as_str(), instance)).filter(|_| param.field.is_some()).copied();
                // Layers that predict further tokens have their own parameters besides those of a layer.
                let further = param.field.as_ref().filter(|_| param.name.starts_with("mtp"));
                let layer = layer.or_else(|| further.map(|_| description.layers() + instance));
                let params = &arrays[array(param)];
                let layers = description.layers();
                let (weights, first) = (&family.weights, description.inner);
                let scope = Scope { weights, first, params, layer, layers, is_interleaved, turned, present };
                let name = param.instance_name(instance);
                let source = match encoder {
                    Some((encoder, _)) if is_of_encoder(&param.name) => {
                        let layer = Some(instance);
                        Scope { weights: &encoder.weights, first: &[], layer, ..scope }.source(member(param))
                    }
                    Some((encoder, _)) => scope
                        .source(member(param))
                        .or_else(|| Scope { weights: &encoder.weights, ..scope }.source(member(param))),
                    None => scope.source(member(param)),
                };
                let source = source.unwrap_or_else(|| panic!("`{name}` of {} has no name", family.model_type));
                sources.insert(name, source);
            }
        }
        let Weights { base, layers: within, constants, .. } = family.weights;
        let constants = (0..description.layers()).flat_map(|layer| {
            constants.iter().map(move |(name, value)| (format!("{base}{within}{layer}.{name}"), *value))
        });
        // Modules without a parameter are not there: a net with another function has no numbers of this one.
        let tensors = sources.values().flat_map(|source: &Source| &source.pieces).map(|piece| piece.tensor.as_str());
        let modules: BTreeSet<&str> = tensors.map(module).collect();
        let constants = constants.filter(|(name, _)| modules.contains(module(name))).collect();
        let conventions = Conventions::of(description);
        Ok(Names { sources, constants, family: Some(conventions) })
    }
}

/// True for an array of an encoder's parameters.
fn is_of_encoder(array: &str) -> bool {
    ENCODER_ARRAYS.contains(&array)
}

/// The module of a tensor: its name without the last part.
fn module(tensor: &str) -> &str {
    tensor.rsplit_once('.').map_or(tensor, |(module, _)| module)
}

/// The array of layers that a parameter is in; empty if it is in none.
fn array(param: &Param) -> &str {
    if param.field.is_some() { &param.name } else { "" }
}

/// The name of a parameter in its array.
fn member(param: &Param) -> &str {
    param.field.as_deref().unwrap_or(&param.name)
}
