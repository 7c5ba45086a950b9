//! Forms of MODEL on the command line: a preset, a `config.json` or its folder, a `.pt2` archive, or a `.ir` file.

use crate::error::Error;
use crate::request_error::RequestError;
use crate::text_files::{read_settings, read_text};
use ir::graph::{Block, Model, Section, SectionKind};
use ir::models::{Batch, ModelConfig, preset, read_config};
use ir::text;
use ir::verify::verify_stated;
use pt2::{Export, Template};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use transforms::recognise::recognise;

/// A model before its batch is known.
#[derive(Clone)]
pub enum ModelSource {
    /// A configuration, for which blocks are built.
    Config {
        /// Its origin: a preset's name or a path.
        from: String,
        /// The configuration.
        config: Box<ModelConfig>,
        /// Keys of its file that are ignored.
        unknown: Vec<String>,
    },
    /// An exported graph, whose blocks are built for any batch.
    Exported {
        /// Its path.
        from: String,
        /// Its blocks.
        template: Arc<Template>,
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
        if let Some(preset) = preset(name) {
            let (from, config) = (name.to_string(), Box::new(preset.config.clone()));
            return Ok(ModelSource::Config { from, config, unknown: Vec::new() });
        }
        if name.starts_with('{') {
            let (config, unknown) = read_config(name)?;
            return Ok(ModelSource::Config { from: "the configuration".into(), config: Box::new(config), unknown });
        }
        let path = file_of(name)?;
        let from = path.display().to_string();
        if path.extension().is_some_and(|extension| extension == "ir") {
            return ModelSource::read(&from, &read_text(&path)?);
        }
        if path.extension().is_some_and(|extension| extension == "pt2") {
            let template = Export::open(&path).and_then(|export| export.template()).map_err(Error::of)?;
            return Ok(ModelSource::Exported { from, template: Arc::new(template) });
        }
        let (config, unknown) = read_config(&read_settings(&path)?).map_err(|why| Error::from(why).within(&from))?;
        Ok(ModelSource::Config { from, config: Box::new(config), unknown })
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
            ModelSource::Config { from, .. } | ModelSource::Exported { from, .. } | ModelSource::Text { from, .. } => {
                from
            }
        }
    }

    /// True if it is a text of the user's.
    pub fn is_text(&self) -> bool {
        matches!(self, ModelSource::Text { .. })
    }

    /// The same with the tokens of a sequence in `groups` routing groups: see [`ModelConfig::routed_in`].
    #[must_use]
    pub fn routed_in(&self, groups: u64, seq: u64) -> ModelSource {
        match self {
            ModelSource::Config { from, config, unknown } => ModelSource::Config {
                from: from.clone(),
                config: Box::new(config.routed_in(groups, seq)),
                unknown: unknown.clone(),
            },
            ModelSource::Exported { .. } | ModelSource::Text { .. } => self.clone(),
        }
    }

    /// The same with the ops that the pass `recognise` puts in the place of primitives.
    #[must_use]
    pub fn recognised(mut self) -> ModelSource {
        if let ModelSource::Text { file, .. } = &mut self {
            recognise(&mut file.model);
        }
        self
    }

    /// Checks that the mesh and the gradients are open, for those who decide both for one configuration after another.
    ///
    /// # Errors
    /// The text states its own mesh, or its own gradients.
    pub fn check_open(&self) -> Result<(), RequestError> {
        let ModelSource::Text { from, file, .. } = self else { return Ok(()) };
        let from = from.clone();
        if file.model.has_mesh {
            return Err(RequestError::OwnMesh { from, mesh: file.model.mesh.name.clone() });
        }
        let sections = [SectionKind::I, SectionKind::W, SectionKind::U];
        let states = |block: &Block| sections.iter().any(|&kind| block[kind] != Section::default());
        if file.model.is_differentiated() || file.model.blocks.values().any(states) {
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
            ModelSource::Exported { from, template } => {
                template.build(batch).map_err(|why| Error::from(why).within(from))
            }
            ModelSource::Text { file, .. } => Ok(file.model.clone()),
        }
    }
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
