//! The parameters of a model under the names that `transformers` gives them: one mapping for reading, writing and tests.

mod build;
mod experts;
mod gpt2;
mod llama;

use crate::description::Description;
use crate::layout::{Piece, Source, Stride};
use ir::models::{Batch, ConfigError, LlamaConfig, ModelConfig};
use ir::types::DType;
use pt2::Template;
use std::collections::BTreeMap;
use std::ops::Range;

/// The parameters of a model, by instance name, and where files have them.
#[derive(Clone, Debug)]
pub struct Names {
    /// The parameters.
    pub sources: BTreeMap<String, Source>,
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
        let (base, tied) = match description.family.model_type {
            "gpt2" => ("transformer.", ["lm_head.weight", "transformer.wte.weight"]),
            "gpt_neox" => ("gpt_neox.", ["embed_out.weight", "gpt_neox.embed_in.weight"]),
            _ => ("model.", ["lm_head.weight", "model.embed_tokens.weight"]),
        };
        let layers = description.layers();
        let further = layers..layers + description.further_layers();
        let tied = description.is_tied().then_some(tied);
        Conventions { base, tied, further, is_composite: description.is_composite }
    }
}

/// Pieces of a parameter.
struct Pieces {
    pieces: Vec<Piece>,
    is_split: bool,
}

impl From<Piece> for Pieces {
    fn from(piece: Piece) -> Pieces {
        Pieces { pieces: vec![piece], is_split: false }
    }
}

/// Facts that the name of a parameter depends on.
struct Scope<'a> {
    family: &'a str,
    config: &'a ModelConfig,
    /// The number of its layer among all layers.
    layer: Option<u32>,
    /// Files have rotary pairs next to each other.
    is_interleaved: bool,
    /// The tensors of the files; none has any where names are chosen freely.
    present: &'a dyn Fn(&str) -> bool,
}

impl Scope<'_> {
    fn llama(&self) -> Option<&LlamaConfig> {
        if let ModelConfig::Llama(config) = self.config { Some(config) } else { None }
    }

    /// The full name of a tensor of the layer.
    fn at(&self, name: &str) -> String {
        format!("model.layers.{}.{name}", self.layer.unwrap_or(0))
    }

    fn has(&self, name: &str) -> bool {
        (self.present)(name)
    }

    /// The number that is added to the elements of a parameter: gains of Gemma are relative to 1 in files.
    fn shift(&self, field: &str) -> f32 {
        let is_gain = field.ends_with("norm") || field.ends_with("norm1") || field.ends_with("norm2");
        if self.family.starts_with("gemma") && is_gain { 1.0 } else { 0.0 }
    }
}

impl Names {
    /// The names of a model without a class: each parameter is the tensor of its own name and sizes, `layer.3.w1` for
    /// `%layer[3].w1`.
    pub fn own(params: impl IntoIterator<Item = (String, Vec<u64>)>) -> Names {
        let source = |(name, sizes): (String, Vec<u64>)| {
            let Pieces { pieces, is_split } = build::same(name.clone(), &sizes).into();
            (name, Source { sizes, pieces, is_split, shift: 0.0 })
        };
        Names { sources: params.into_iter().map(source).collect(), family: None }
    }

    /// The names of an exported model: those of its modules.
    pub(crate) fn exported(template: &Template) -> Names {
        let source = |(name, from): (&String, &pt2::TensorSource)| {
            let sizes: Vec<u64> = from.dims.iter().map(|&(size, _)| size).collect();
            let piece = Piece {
                tensor: from.tensor.clone(),
                shape: from.shape.clone(),
                first: from.first as usize,
                dims: from.dims.iter().map(|&(size, step)| (size, Stride::Even(step as usize))).collect(),
            };
            (name.clone(), Source { sizes, pieces: vec![piece], is_split: false, shift: from.shift as f32 })
        };
        Names { sources: template.sources().iter().map(source).collect(), family: None }
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
    pub fn of(description: &Description, seq: u64, present: &dyn Fn(&str) -> bool) -> Result<Names, ConfigError> {
        let Description { config, .. } = description;
        let family = description.family.model_type;
        let model = config.build(&Batch { batch: 1, seq, dtype: DType::F32 })?;
        let mut layers: BTreeMap<(&str, u32), u32> = BTreeMap::new();
        for call in &model.calls {
            let Some(repeat) = &call.repeat else { continue };
            for at in repeat.range.clone() {
                let number = layers.len() as u32;
                layers.insert((call.params[0].name.as_str(), at), number);
            }
        }
        let is_interleaved = description.is_interleaved();
        let mut sources = BTreeMap::new();
        for param in model.params.values() {
            for instance in 0..param.instances() {
                let layer = layers.get(&(param.name.as_str(), instance)).filter(|_| param.field.is_some()).copied();
                // Layers that predict further tokens have their own parameters besides those of a layer.
                let further = param.field.as_ref().filter(|_| param.name.starts_with("mtp"));
                let layer = layer.or_else(|| further.map(|_| description.layers() + instance));
                let scope = Scope { family, config, layer, is_interleaved, present };
                let field = param.field.as_deref().unwrap_or(&param.name);
                let sizes = param.ty.sizes();
                let pieces = match family {
                    "gpt2" => gpt2::gpt2(&scope, field, &sizes),
                    "gpt_neox" => gpt2::neox(&scope, field, &sizes),
                    _ => llama::llama(&scope, field, &sizes),
                };
                let name = param.instance_name(instance);
                let Pieces { pieces, is_split } = pieces.unwrap_or_else(|| panic!("`{name}` of {family} has no name"));
                sources.insert(name, Source { sizes, pieces, is_split, shift: scope.shift(field) });
            }
        }
        Ok(Names { sources, family: Some(Conventions::of(description)) })
    }
}
