//! Reading: all names and shapes are compared with the model before anything is loaded; then every rank reads the boxes of
//! the tensors that are its own.

#[cfg(feature = "pt2")]
use crate::archive::open_archive;
use crate::check::{check, check_needed, find};
use crate::description::{Description, differences};
use crate::error::Error;
use crate::folder::{FileTensor, Folder, float, none, snapshot};
use crate::layout::PieceBox;
use crate::names::{Conventions, Names};
use checkpoint::Shard;
use exec::state::Role;
use exec::{Executor, Platform, RankState};
use ir::graph::{is_factor, is_record};
use ir::models::{ConfigError, ImportedModel, ModelConfig};
use ir::types::DType;
use kernels::cpu::Par;
use kernels::cpu::narrow::{Narrow, widen};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use support::files;

/// The most bytes of a `config.json`.
const MOST_CONFIG: u64 = 1 << 22;

/// The weights of a folder, compared with a model.
pub struct Weights {
    pub(crate) folder: Folder,
    names: Names,
    /// The element types of the files.
    pub formats: Vec<&'static str>,
    /// Keys of the `config.json` next to them that mean nothing.
    pub unknown: Vec<String>,
}

impl Weights {
    /// Opens the weights of a folder for a model on sequences of `seq` tokens.
    ///
    /// # Errors
    /// The folder is of another model, has no weights that can be read, or its tensors are not those of its `config.json`.
    pub fn open(path: &Path, own: &ModelConfig, seq: u64) -> Result<Weights, Error> {
        let path = snapshot(path);
        let mut description = describe(&path, |text| Description::with_images_of(text, own))?;
        if has_none_further(&path, &description)? {
            description = description.without_further();
        }
        let differences = differences(own, &description.config, seq);
        if !differences.is_empty() {
            return Err(Error::Config { file: path.join("config.json"), differences });
        }
        let folder = Folder::open(&path)?;
        let family = Conventions::of(&description);
        let names = Names::of(&description, seq, &|name, sizes| {
            find(&folder, Some(&family), name).is_some_and(|tensor| sizes.is_empty() || tensor.shape == sizes)
        });
        let names = names.map_err(|source| Error::BadConfig { file: path.join("config.json"), source })?;
        let weights = Weights::checked(folder, names, description.unknown)?;
        match description.raw.get("quantization_config").filter(|stated| !stated.is_null()) {
            Some(stated) => Err(Error::Quantised { file: path.join("config.json"), stated: stated.to_string() }),
            None => Ok(weights),
        }
    }

    /// Opens weights for a model without a class, whose parameters have these names and sizes: tensors have the same. A `config.json`
    /// next to them is not read.
    ///
    /// # Errors
    /// The folder has no weights that can be read, or its tensors are not those of the model.
    pub fn open_named(path: &Path, params: impl IntoIterator<Item = (String, Vec<u64>)>) -> Result<Weights, Error> {
        Weights::checked(Folder::open(&snapshot(path))?, Names::own(params), Vec::new())
    }

    /// Opens weights for an exported model: the archive of an export, or a folder whose tensors have the names that the modules of the
    /// export give them. Other tensors are not read.
    ///
    /// # Errors
    /// The archive or folder cannot be read, or lacks a tensor of the model.
    pub fn open_exported(path: &Path, graph: &dyn ImportedModel) -> Result<Weights, Error> {
        let folder = match path.extension() {
            #[cfg(feature = "pt2")]
            Some(extension) if extension == "pt2" => open_archive(path)?,
            _ => Folder::open(&snapshot(path))?,
        };
        let names = Names::exported(graph.sources());
        check_needed(&folder, &names)?;
        Ok(Weights::compared(folder, names, Vec::new()))
    }

    fn checked(folder: Folder, names: Names, unknown: Vec<String>) -> Result<Weights, Error> {
        check(&folder, &names)?;
        Ok(Weights::compared(folder, names, unknown))
    }

    fn compared(folder: Folder, names: Names, unknown: Vec<String>) -> Weights {
        let formats: BTreeSet<&'static str> = folder.tensors.values().filter_map(format_of).collect();
        Weights { folder, names, formats: formats.into_iter().collect(), unknown }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.folder.path
    }

    /// The number of tensors and of files.
    pub fn counts(&self) -> (usize, usize) {
        (self.folder.tensors.len(), self.folder.files())
    }

    /// Sets all parameters of an executor. Optimizer states stay as they are.
    ///
    /// # Errors
    /// The executor has other parameters, an element is no number, or a rank failed earlier.
    pub fn load<P: Platform>(self: &Arc<Self>, executor: &mut Executor<P>) -> Result<(), Error> {
        let weights = self.clone();
        executor.visit(move |_, state| weights.load_rank(state))?.into_iter().collect()
    }

    fn load_rank(&self, state: &mut RankState<'_>) -> Result<(), Error> {
        for number in 0..state.slots().len() {
            let slot = &state.slots()[number];
            // Records of delayed scaling are no weights, and factors of adapters keep their initial numbers.
            if slot.role != Role::Param && !slot.is_master() || is_record(&slot.param) || is_factor(&slot.param) {
                continue;
            }
            let shards = Shard::of(&slot.region);
            let mut data = vec![0.0; shards.iter().map(|shard| shard.elements() as usize).sum()];
            let (mut rest, param) = (data.as_mut_slice(), slot.param.clone());
            for shard in &shards {
                let (own, after) = rest.split_at_mut(shard.elements() as usize);
                self.read(&param, shard, own)?;
                rest = after;
            }
            state.write(number, &data);
        }
        Ok(())
    }

    /// Reads a box of a parameter.
    ///
    /// # Errors
    /// An element is no number, or the file cannot be read.
    ///
    /// # Panics
    /// If there is no such parameter, or the box is not one of it.
    pub fn read(&self, param: &str, shard: &Shard, into: &mut [f32]) -> Result<(), Error> {
        let source = &self.names.sources[param];
        for part in source.parts(shard) {
            let tensor = find(&self.folder, self.names.family.as_ref(), &part.piece.tensor)
                .expect("was found when the folder was opened");
            let own = &mut into[part.at..part.at + part.shard.elements() as usize];
            gather(&self.folder, tensor, &part, own)?;
            if let Some(&value) = own.iter().find(|value| !value.is_finite()) {
                let file = self.folder.file(tensor).to_path_buf();
                return Err(Error::NotANumber { file, tensor: part.piece.tensor.clone(), value });
            }
            if source.shift != 0.0 {
                own.iter_mut().for_each(|value| *value += source.shift);
            }
        }
        Ok(())
    }
}

/// True if the `config.json` of a folder states layers that predict further tokens, of which its files have no tensor. Classes of
/// `transformers` save such folders: they write the number of these layers, and compute none of them.
///
/// # Errors
/// The folder has no `config.json` of a known family, or no weights that can be read.
pub fn lacks_further(path: &Path) -> Result<bool, Error> {
    let path = snapshot(path);
    has_none_further(&path, &describe(&path, Description::read)?)
}

fn has_none_further(path: &Path, description: &Description) -> Result<bool, Error> {
    if description.predicted_further() == 0 {
        return Ok(false);
    }
    let first = format!("layers.{}.", description.layers());
    Ok(!Folder::open(path)?.tensors.keys().any(|name| name.starts_with(&first) || name.contains(&format!(".{first}"))))
}

/// Reads the `config.json` of a folder.
fn describe(path: &Path, read: impl FnOnce(&str) -> Result<Description, ConfigError>) -> Result<Description, Error> {
    let file: PathBuf = path.join("config.json");
    let text = files::read(&file, MOST_CONFIG).map_err(|why| match why.kind() {
        std::io::ErrorKind::NotFound if path.is_dir() => Error::Missing {
            folder: path.to_path_buf(),
            why: "there is no config.json".into(),
            fix: "give the folder of a model that transformers has saved".into(),
        },
        _ if path.is_file() => none(path),
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => Error::Missing {
            folder: path.to_path_buf(),
            why: "there is no such folder".into(),
            fix: "give the folder of a model that transformers has saved".into(),
        },
        _ => Error::file("read", &file, why),
    })?;
    read(&String::from_utf8_lossy(&text)).map_err(|source| Error::BadConfig { file, source })
}

fn format_of(tensor: &FileTensor) -> Option<&'static str> {
    float(tensor.format).map(|dtype| match dtype {
        DType::BF16 => "bf16",
        DType::F16 => "f16",
        _ => "f32",
    })
}

/// The most bytes of a tensor that a rank has in memory while it reads, if its rows are not longer.
const MOST_NEAR: usize = 1 << 24;

/// Copies the elements of a box out of the file of a tensor.
fn gather(folder: &Folder, tensor: &FileTensor, part: &PieceBox<'_>, own: &mut [f32]) -> Result<(), Error> {
    let format = float(tensor.format).unwrap_or(DType::F32);
    let width = format.bytes() as usize;
    // Elements of f16 are copied to their places first, and widened together.
    let mut narrow = vec![[0; 2]; if format == DType::F16 { own.len() } else { 0 }];
    for near in part.piece.near(&part.shard, MOST_NEAR / width) {
        let span = near.span();
        let bytes = folder.bytes(tensor, span.start * width..span.end * width)?;
        let (halves, words) = (bytes.as_chunks::<2>().0, bytes.as_chunks::<4>().0);
        let first = span.start;
        match format {
            DType::BF16 => near.walk(&mut |file, at| {
                own[at] = f32::from_bits(u32::from(u16::from_le_bytes(halves[file - first])) << 16);
            }),
            DType::F16 => near.walk(&mut |file, at| narrow[at] = halves[file - first]),
            _ => near.walk(&mut |file, at| own[at] = f32::from_le_bytes(words[file - first])),
        }
    }
    if format == DType::F16 {
        widen(Narrow::F16, narrow.as_flattened(), own, Par(1));
    }
    Ok(())
}
