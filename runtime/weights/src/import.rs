//! Reading: all names and shapes are compared with the model before anything is loaded; then every rank reads the boxes of
//! the tensors that are its own, from where the files are mapped.

use crate::description::{Description, differences};
use crate::error::Error;
use crate::folder::{FileTensor, Folder, float, snapshot};
use crate::layout::{Piece, Source};
use crate::names::Names;
use ir::models::ModelConfig;
use ir::types::DType;
use kernels::cpu::Par;
use kernels::cpu::narrow::{Narrow, widen};
use runtime::checkpoint::Shard;
use runtime::exec::{Executor, Platform, RankState};
use runtime::state::Role;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use support::files;

/// The most bytes of a `config.json`.
const MOST_CONFIG: u64 = 1 << 22;

/// Ends of the names of tensors that only quantised models have.
const QUANTISED: [&str; 9] =
    ["weight_scale_inv", "weight_scale", "input_scale", "qweight", "qzeros", "_blocks", "_scales", "absmax", ".SCB"];

/// Ends of the names of tensors that older versions saved and no class reads: masks and rotary frequencies.
const BUFFERS: [&str; 5] =
    ["rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias", ".attention.bias", ".attention.masked_bias"];

/// The weights of a folder, compared with a model.
pub struct Weights {
    folder: Folder,
    /// The `config.json` next to them.
    pub description: Description,
    names: Names,
    /// The element types of the files.
    pub formats: Vec<&'static str>,
}

impl Weights {
    /// Opens the weights of a folder for a model on sequences of `seq` tokens.
    ///
    /// # Errors
    /// The folder is of another model, has no weights that can be read, or its tensors are not those of its `config.json`.
    pub fn open(path: &Path, own: &ModelConfig, seq: u64) -> Result<Weights, Error> {
        let path = snapshot(path);
        let description = describe(&path)?;
        let differences = differences(own, &description.config, seq);
        if !differences.is_empty() {
            return Err(Error::Config { file: path.join("config.json"), differences });
        }
        let folder = Folder::open(&path)?;
        let present = |name: &str| find(&folder, name).is_some();
        let names = Names::of(&description, seq, &present);
        let names = names.map_err(|source| Error::BadConfig { file: path.join("config.json"), source })?;
        let formats: BTreeSet<&'static str> = folder.tensors.values().filter_map(format_of).collect();
        let weights = Weights { folder, description, names, formats: formats.into_iter().collect() };
        weights.check()?;
        Ok(weights)
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
            if slot.role != Role::Param && !slot.is_master() {
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
    /// An element is no number.
    ///
    /// # Panics
    /// If there is no such parameter, or the box is not one of it.
    pub fn read(&self, param: &str, shard: &Shard, into: &mut [f32]) -> Result<(), Error> {
        let source = &self.names.sources[param];
        for part in source.parts(shard) {
            let tensor = find(&self.folder, &part.piece.tensor).expect("was found when the folder was opened");
            let own = &mut into[part.at..part.at + part.shard.elements() as usize];
            gather(self.folder.bytes(tensor), tensor, part.piece, &part.shard, own);
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

    /// Compares the tensors with those that the model needs.
    fn check(&self) -> Result<(), Error> {
        let folder = || self.folder.path.clone();
        let quantised = |name: &&String| QUANTISED.iter().any(|end| name.ends_with(end));
        if let Some(name) = self.folder.tensors.keys().find(quantised) {
            let what = "a part of a quantised model".to_string();
            return Err(Error::Format { folder: folder(), tensor: name.clone(), what });
        }
        let mut needed: BTreeMap<&str, &Source> = BTreeMap::new();
        for source in self.names.sources.values() {
            needed.extend(source.pieces.iter().map(|piece| (piece.tensor.as_str(), source)));
        }
        for (name, tensor) in needed.keys().filter_map(|name| Some((name, find(&self.folder, name)?))) {
            if float(tensor.format).is_none() {
                let what = format!("{:?}", tensor.format);
                return Err(Error::Format { folder: folder(), tensor: (*name).to_string(), what });
            }
        }
        let missing: Vec<String> =
            needed.keys().filter(|name| find(&self.folder, name).is_none()).map(|name| (*name).to_string()).collect();
        let surplus = self.surplus(&needed)?;
        if !missing.is_empty() || !surplus.is_empty() {
            let fix = self.fix(&missing);
            return Err(Error::Names { folder: folder(), missing, surplus, fix });
        }
        for piece in self.names.sources.values().flat_map(|source| &source.pieces) {
            let tensor = find(&self.folder, &piece.tensor).expect("none is missing");
            if tensor.shape != piece.shape {
                return Err(self.shape(piece, tensor));
            }
        }
        Ok(())
    }

    /// Names that the model does not need. The matrix of a tied head may be there if it is the embedding.
    fn surplus(&self, needed: &BTreeMap<&str, &Source>) -> Result<Vec<String>, Error> {
        let prefix = base(&self.description);
        let further = self.description.layers()..self.description.layers() + self.description.further_layers();
        let mut surplus = Vec::new();
        for (name, tensor) in &self.folder.tensors {
            let full = format!("{prefix}{name}");
            if needed.contains_key(name.as_str()) || needed.contains_key(full.as_str()) {
                continue;
            }
            if let Some([_, embedding]) = self.names.tied.filter(|[head, _]| name == head || name == "lm_head.weight") {
                let same = |found: &FileTensor| {
                    (found.format, &found.shape) == (tensor.format, &tensor.shape)
                        && self.folder.bytes(found) == self.folder.bytes(tensor)
                };
                if find(&self.folder, embedding).is_none_or(same) {
                    continue;
                }
                let (folder, head) = (self.folder.path.clone(), name.clone());
                return Err(Error::Untied { folder, head, embedding: embedding.to_string() });
            }
            let layer = full.rsplit_once("layers.").and_then(|(_, rest)| rest.split('.').next()?.parse().ok());
            let is_further = layer.is_some_and(|layer: u32| further.contains(&layer));
            if !is_further && !BUFFERS.iter().any(|end| name.ends_with(end)) {
                surplus.push(name.clone());
            }
        }
        Ok(surplus)
    }

    fn shape(&self, piece: &Piece, tensor: &FileTensor) -> Error {
        let (folder, name) = (self.folder.path.clone(), piece.tensor.clone());
        let (found, wanted) = (tensor.shape.clone(), piece.shape.clone());
        let is_vocabulary =
            ["wte.weight", "embed_tokens.weight", "embed_in.weight", "lm_head.weight", "embed_out.weight"]
                .iter()
                .any(|end| name.ends_with(end));
        if is_vocabulary && found.len() == 2 && found[1..] == wanted[1..] {
            return Error::Vocabulary { folder, tensor: name, found: found[0], wanted: wanted[0] };
        }
        Error::Shape { folder, tensor: name, found, wanted }
    }

    /// The fix for tensors that are missing or not needed.
    fn fix(&self, missing: &[String]) -> String {
        let is_head = |name: &String| matches!(name.as_str(), "lm_head.weight" | "embed_out.weight");
        if missing.len() == 1 && missing.iter().all(is_head) {
            return "if the head's matrix is the embedding, set `tie_word_embeddings` to true in config.json".into();
        }
        "use the config.json that belongs to the weights, and all files of the model".into()
    }
}

/// Reads the `config.json` of a folder.
fn describe(path: &Path) -> Result<Description, Error> {
    let file: PathBuf = path.join("config.json");
    let text = files::read(&file, MOST_CONFIG).map_err(|why| match why.kind() {
        std::io::ErrorKind::NotFound if path.is_dir() => Error::Missing {
            folder: path.to_path_buf(),
            why: "there is no config.json".into(),
            fix: "give the folder of a model that transformers has saved".into(),
        },
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => Error::Missing {
            folder: path.to_path_buf(),
            why: "there is no such folder".into(),
            fix: "give the folder of a model that transformers has saved".into(),
        },
        _ => Error::file("read", &file, why),
    })?;
    Description::read(&String::from_utf8_lossy(&text)).map_err(|source| Error::BadConfig { file, source })
}

/// The name of the model without its head in the names of tensors. Files that were saved without the head lack it.
fn base(description: &Description) -> &'static str {
    match description.family {
        "gpt2" => "transformer.",
        "gpt_neox" => "gpt_neox.",
        _ => "model.",
    }
}

/// The tensor of a full name.
fn find<'a>(folder: &'a Folder, name: &str) -> Option<&'a FileTensor> {
    let short = || ["transformer.", "gpt_neox.", "model."].iter().find_map(|base| name.strip_prefix(base));
    folder.tensors.get(name).or_else(|| folder.tensors.get(short()?))
}

fn format_of(tensor: &FileTensor) -> Option<&'static str> {
    float(tensor.format).map(|dtype| match dtype {
        DType::BF16 => "bf16",
        DType::F16 => "f16",
        _ => "f32",
    })
}

/// Copies the elements of a box out of the bytes of a tensor.
fn gather(bytes: &[u8], tensor: &FileTensor, piece: &Piece, shard: &Shard, own: &mut [f32]) {
    match float(tensor.format) {
        Some(DType::BF16) => {
            let (elements, _) = bytes.as_chunks::<2>();
            piece.walk(shard, |file, at| own[at] = f32::from_bits(u32::from(u16::from_le_bytes(elements[file])) << 16));
        }
        Some(DType::F16) => {
            // Elements are copied to their places first, and widened together.
            let (elements, _) = bytes.as_chunks::<2>();
            let mut narrow = vec![[0; 2]; own.len()];
            piece.walk(shard, |file, at| narrow[at] = elements[file]);
            widen(Narrow::F16, narrow.as_flattened(), own, Par(1));
        }
        _ => {
            let (elements, _) = bytes.as_chunks::<4>();
            piece.walk(shard, |file, at| own[at] = f32::from_le_bytes(elements[file]));
        }
    }
}
