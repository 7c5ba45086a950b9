//! Forms of MODEL on the command line: a preset, a `config.json` or its folder, a `.pt2` archive, or a `.ir` file.

use crate::error::Error;
use crate::exported::open_exported;
use crate::images::Images;
use crate::request_error::RequestError;
use crate::text_files::{read_settings, read_text};
use ir::graph::{Model, Section, SectionKind};
use ir::models::{
    Balance, BalanceLoss, BalanceScope, Batch, ConfigError, ImportedModel, ModelConfig, PATCHES, Vision, preset,
    read_config, read_encoder,
};
use ir::text;
use ir::types::DType;
use ir::verify::verify_stated;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use transforms::adapt::{Lora, adapt};
use transforms::recognise::recognise;

/// A model before its batch is known.
#[derive(Clone)]
pub enum ModelSource {
    /// A configuration, for which blocks are built.
    Config {
        /// Its origin: a preset's name or a path.
        from: String,
        /// The text that it was read from; none of a preset or a value.
        text: Option<Arc<str>>,
        /// The configuration.
        config: Box<ModelConfig>,
        /// Keys of its file that are ignored.
        unknown: Vec<String>,
        /// The longest sequence that it was trained on, in tokens; none if it does not say.
        context: Option<u64>,
    },
    /// An exported graph, whose blocks are built for any batch.
    Exported {
        /// Its path.
        from: String,
        /// Its blocks.
        graph: Arc<dyn ImportedModel>,
    },
    /// A model with low-rank adapters: `NAME+lora=16`.
    Adapted {
        /// Its name, adapters included.
        from: String,
        /// The model without them.
        base: Box<ModelSource>,
        /// The adapters.
        lora: Lora,
    },
    /// A text in the language of the IR, with its own batch, at any level.
    Text {
        /// Its path.
        from: String,
        /// The unchanged text.
        source: String,
        /// The parsed file.
        file: Box<text::File>,
    },
}

impl ModelSource {
    /// Finds the model of a name or path. A text that begins with `{` is a configuration itself.
    ///
    /// # Errors
    /// There is none, or the file is wrong.
    pub fn open(name: &str) -> Result<ModelSource, Error> {
        if let (base, Some(lora)) = ModelSource::split(name) {
            let (from, lora) = (name.to_string(), read_lora(lora)?);
            let adapted = ModelSource::Adapted { from, base: Box::new(ModelSource::open(base)?), lora };
            // A batch of one token shows what cannot be adapted.
            adapted.model(&Batch { batch: 1, seq: 1, dtype: DType::F32 })?;
            return Ok(adapted);
        }
        if let (base, Some(text)) = split_at(name, BALANCE) {
            return ModelSource::open(base)?.balanced(name, text);
        }
        if let (base, Some(text)) = split_at(name, IMAGES) {
            return ModelSource::open(base)?.with_images(name, text);
        }
        if let Some(preset) = preset(name) {
            let (from, config) = (name.to_string(), Box::new(preset.config.clone()));
            let (text, unknown, context) = (None, Vec::new(), Some(preset.context));
            return Ok(ModelSource::Config { from, text, config, unknown, context });
        }
        if name.starts_with('{') {
            return ModelSource::of_config("the configuration".into(), name);
        }
        let path = file_of(name)?;
        let from = path.display().to_string();
        if path.extension().is_some_and(|extension| extension == "ir") {
            return ModelSource::read(&from, &read_text(&path)?);
        }
        if path.extension().is_some_and(|extension| extension == "pt2") {
            return Ok(ModelSource::Exported { from, graph: open_exported(&path)? });
        }
        let text = read_settings(&path)?;
        ModelSource::of_config(from.clone(), &text).map_err(|why| why.within(&from))
    }

    /// The model of a text of `config.json`; `from` is its name in messages.
    fn of_config(from: String, text: &str) -> Result<ModelSource, Error> {
        let (config, unknown) = read_config(text)?;
        let (config, context) = (Box::new(config), context_of(text));
        Ok(ModelSource::Config { from, text: Some(text.into()), config, unknown, context })
    }

    /// A model's name without its adapters, and these if there are any: what is behind `+lora=`.
    pub fn split(name: &str) -> (&str, Option<&str>) {
        split_at(name, ADAPTERS)
    }

    /// The same under a name that asks for the balance of its routers.
    fn balanced(self, name: &str, text: &str) -> Result<ModelSource, Error> {
        let ModelSource::Config { text: file, config, unknown, context, .. } = self else {
            return Err(RequestError::BadBalance { text: text.to_string() }.into());
        };
        let balance = read_balance(text)?;
        let config = config.with_balance(balance).map_err(|why| Error::from(why).within(name))?;
        Ok(ModelSource::Config { from: name.to_string(), text: file, config: Box::new(config), unknown, context })
    }

    /// The same under a name that asks for its encoder of images.
    fn with_images(self, name: &str, text: &str) -> Result<ModelSource, Error> {
        let images = Images::parse(text).ok_or_else(|| RequestError::BadImages { text: text.to_string() })?;
        let ModelSource::Config { text: Some(file), .. } = self else {
            return Err(Error::from(ConfigError::NoEncoder).within(name));
        };
        let mut file: Map<String, Value> = serde_json::from_str(&file).unwrap_or_default();
        let encoder = read_encoder(&file).map_err(|why| Error::from(why).within(name))?;
        file.insert(PATCHES.to_string(), images.patches(&encoder.vision).into());
        ModelSource::of_config(name.to_string(), &Value::from(file).to_string()).map_err(|why| why.within(name))
    }

    /// A model in memory; `from` is its name in messages.
    pub fn of_file(from: &str, file: text::File) -> ModelSource {
        ModelSource::Text { from: from.to_string(), source: text::print(&file), file: Box::new(file) }
    }

    /// Reads a text in the language of the IR; `from` is its name in messages.
    ///
    /// # Errors
    /// The text does not parse, or the verifier refuses the model.
    pub fn read(from: &str, source: &str) -> Result<ModelSource, Error> {
        let (from, source) = (from.to_string(), source.to_string());
        // Every subcommand opens a text here, so that none counts, plans or runs a model that the verifier refuses.
        let checked = text::parse(&source).and_then(|file| verify_stated(&file.model).map(|()| file));
        match checked {
            Ok(file) => Ok(ModelSource::Text { from, source, file: Box::new(file) }),
            Err(diagnostics) => Err(Error::Diagnostics { file: from, source, diagnostics }),
        }
    }

    /// The name of the model in messages: a preset's, a path, or what [`of_file`](Self::of_file) was given.
    pub fn name(&self) -> &str {
        match self {
            ModelSource::Config { from, .. }
            | ModelSource::Exported { from, .. }
            | ModelSource::Adapted { from, .. }
            | ModelSource::Text { from, .. } => from,
        }
    }

    /// True if it is a text of the user's.
    pub fn is_text(&self) -> bool {
        matches!(self.base(), ModelSource::Text { .. })
    }

    /// The model without adapters.
    pub fn base(&self) -> &ModelSource {
        if let ModelSource::Adapted { base, .. } = self { base.base() } else { self }
    }

    /// The longest sequence that the model was trained on, in tokens; none if it does not say.
    pub fn context(&self) -> Option<u64> {
        if let ModelSource::Config { context, .. } = self.base() { *context } else { None }
    }

    /// The encoder of images of a built model, if it has one.
    pub fn vision(&self) -> Option<&Vision> {
        if let ModelSource::Config { config, .. } = self.base() { config.vision() } else { None }
    }

    /// True if experts drop no token.
    pub fn is_dropless(&self) -> bool {
        matches!(self.base(), ModelSource::Config { config, .. } if config.is_dropless())
    }

    /// The same with the tokens of a sequence in `groups` routing groups: see [`ModelConfig::routed_in`].
    #[must_use]
    pub fn routed_in(&self, groups: u64, seq: u64) -> ModelSource {
        match self {
            ModelSource::Config { from, text, config, unknown, context } => ModelSource::Config {
                from: from.clone(),
                text: text.clone(),
                config: Box::new(config.routed_in(groups, seq)),
                unknown: unknown.clone(),
                context: *context,
            },
            ModelSource::Adapted { from, base, lora } => {
                let base = Box::new(base.routed_in(groups, seq));
                ModelSource::Adapted { from: from.clone(), base, lora: lora.clone() }
            }
            ModelSource::Exported { .. } | ModelSource::Text { .. } => self.clone(),
        }
    }

    /// The same with the ops that the pass `recognise` puts in the place of primitives.
    #[must_use]
    pub fn recognised(mut self) -> ModelSource {
        match &mut self {
            ModelSource::Text { file, .. } => {
                recognise(&mut file.model);
            }
            ModelSource::Adapted { base, .. } => **base = base.clone().recognised(),
            ModelSource::Config { .. } | ModelSource::Exported { .. } => {}
        }
        self
    }

    /// Checks that the mesh and the gradients are open, for those who decide both for one configuration after another.
    ///
    /// # Errors
    /// The text states its own mesh, or its own gradients.
    pub fn check_open(&self) -> Result<(), RequestError> {
        let ModelSource::Text { from, file, .. } = self.base() else { return Ok(()) };
        let from = from.clone();
        if file.model.has_mesh {
            return Err(RequestError::OwnMesh { from, mesh: file.model.mesh.name.clone() });
        }
        let mut sections = file
            .model
            .blocks
            .values()
            .flat_map(|block| [SectionKind::I, SectionKind::W, SectionKind::U].map(|kind| &block[kind]));
        if file.model.is_differentiated() || sections.any(|section| *section != Section::default()) {
            return Err(RequestError::OwnGradients { from });
        }
        Ok(())
    }

    /// True if its blocks are built, for any batch.
    pub fn is_built(&self) -> bool {
        !self.is_text()
    }

    /// The model at level 1. A text has the batch that it states.
    ///
    /// # Errors
    /// The configuration cannot have this batch.
    pub fn model(&self, batch: &Batch) -> Result<Model, Error> {
        match self {
            ModelSource::Config { from, config, .. } => {
                config.build(batch).map_err(|why| Error::from(why).within(from))
            }
            ModelSource::Exported { from, graph } => graph.build(batch).map_err(|why| Error::from(why).within(from)),
            ModelSource::Adapted { from, base, lora } => {
                adapt(base.model(batch)?, lora).map_err(|why| Error::of(why).within(from))
            }
            ModelSource::Text { file, .. } => Ok(file.model.clone()),
        }
    }
}

/// The sign of adapters behind a model's name.
pub const ADAPTERS: &str = "+lora=";

/// The sign of the balance of routers behind a model's name.
pub const BALANCE: &str = "+balance=";

/// The sign of the images of a sequence behind a model's name: its encoder is a part of the model.
pub const IMAGES: &str = "+images=";

/// A model's name without what is behind a sign, and that if the sign is there.
fn split_at<'a>(name: &'a str, sign: &str) -> (&'a str, Option<&'a str>) {
    // A configuration may have the sign within itself.
    let split = name.rsplit_once(sign).filter(|(_, rest)| !rest.contains('}'));
    split.map_or((name, None), |(base, rest)| (base, Some(rest)))
}

/// The balance of routers as text: a scope of a loss, `z` and `bias`, each with its number, and `counts`: `sequence=1e-4,bias=1e-3`.
fn read_balance(text: &str) -> Result<Balance, RequestError> {
    parse_balance(text).ok_or_else(|| RequestError::BadBalance { text: text.to_string() })
}

fn parse_balance(text: &str) -> Option<Balance> {
    let mut balance = Balance { counts: true, ..Balance::NONE };
    for part in text.split(',').map(str::trim) {
        let Some((name, number)) = part.split_once('=') else {
            (part == "counts").then_some(())?;
            continue;
        };
        let number: f64 = number.parse().ok().filter(|number: &f64| number.is_finite() && *number > 0.0)?;
        match (name, BalanceScope::named(name)) {
            ("z", _) => balance.z_loss = Some(number),
            ("bias", _) => balance.bias_rate = Some(number),
            (_, Some(scope)) if balance.loss.is_none() => balance.loss = Some(BalanceLoss { scope, factor: number }),
            _ => return None,
        }
    }
    Some(balance)
}

/// Adapters as text: the rank, then `alpha=` and names of parameters, separated by commas: `16,alpha=32,q,v`.
fn read_lora(text: &str) -> Result<Lora, RequestError> {
    parse_lora(text).ok_or_else(|| RequestError::BadAdapters { text: text.to_string() })
}

fn parse_lora(text: &str) -> Option<Lora> {
    let mut parts = text.split(',').map(str::trim);
    let rank: u64 = parts.next()?.parse().ok().filter(|rank| (1..=MOST_RANK).contains(rank))?;
    // PEFT's tutorials have alpha at twice the rank.
    let mut lora = Lora { rank, scale: 2.0 * rank as f64, targets: Vec::new() };
    for part in parts {
        match part.split_once('=') {
            Some(("alpha", alpha)) => lora.scale = alpha.parse().ok().filter(|alpha: &f64| alpha.is_finite())?,
            None if !part.is_empty() => lora.targets.push(part.to_string()),
            _ => return None,
        }
    }
    Some(lora)
}

/// Largest rank of adapters.
const MOST_RANK: u64 = 1 << 16;

/// The positions that the text of a `config.json` states, at its top or in the part on text.
fn context_of(text: &str) -> Option<u64> {
    let file: serde_json::Value = serde_json::from_str(text).ok()?;
    let mut parts = [Some(&file), file.get("text_config")].into_iter().flatten();
    parts.find_map(|part| part.get("max_position_embeddings")?.as_u64())
}

/// The file that a path means: itself, or the `config.json` in it.
fn file_of(name: &str) -> Result<PathBuf, RequestError> {
    let path = Path::new(name);
    if path.is_dir() {
        let inside = path.join("config.json");
        return if inside.is_file() { Ok(inside) } else { Err(RequestError::NoConfig { folder: name.to_string() }) };
    }
    if path.exists() { Ok(path.to_path_buf()) } else { Err(unknown(name)) }
}

fn unknown(name: &str) -> RequestError {
    let is_path = name.contains(['/', '\\']) || [".ir", ".json", ".pt2"].iter().any(|end| name.ends_with(end));
    let name = name.to_string();
    if is_path { RequestError::NoFile { path: name } } else { RequestError::UnknownModel { name } }
}
