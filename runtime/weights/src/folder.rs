//! A folder of safetensors, or an exported archive: which tensors it has, and where.

use crate::error::Error;
use crate::header::Header;
use ir::types::DType;
use safetensors::Dtype;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use support::files;
use support::positioned::{PIECE, PositionedFile, ReadError};

/// The one file of a model that is not split.
pub(crate) const SINGLE: &str = "model.safetensors";

/// The file that names the files of a model that is split.
pub(crate) const INDEX: &str = "model.safetensors.index.json";

/// The file that describes an adapter.
const ADAPTER: &str = "adapter_config.json";

/// The most bytes of an index: that of DeepSeek-V3, with 91,000 tensors, has 9 MB.
const MOST_INDEX: u64 = 1 << 28;

/// A tensor of a folder.
#[derive(Clone, Debug)]
pub(crate) struct FileTensor {
    /// The file, by number.
    pub(crate) file: usize,
    /// Its elements.
    pub(crate) format: Dtype,
    pub(crate) shape: Vec<u64>,
    /// Its bytes in the file.
    pub(crate) bytes: Range<usize>,
}

impl FileTensor {
    /// The number of its bytes.
    pub(crate) fn length(&self) -> usize {
        self.bytes.len()
    }
}

/// The tensors of a folder.
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    pub(crate) files: Vec<(PathBuf, PositionedFile)>,
    pub(crate) tensors: BTreeMap<String, FileTensor>,
}

/// The index of a model that is split.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

/// The folder with the files of a model: the path itself, or the snapshot in a folder of the hub's cache.
pub fn snapshot(path: &Path) -> PathBuf {
    let main = files::read(&path.join("refs/main"), 1 << 10).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let snapshot = main.map(|commit| path.join("snapshots").join(commit.trim()));
    snapshot.filter(|snapshot| snapshot.is_dir() && !path.join("config.json").exists()).unwrap_or(path.to_path_buf())
}

impl Folder {
    /// Opens the files of a folder and reads their headers.
    ///
    /// # Errors
    /// There are none, one is broken, or they contradict the index.
    pub(crate) fn open(path: &Path) -> Result<Folder, Error> {
        let mut folder = Folder { path: path.to_path_buf(), files: Vec::new(), tensors: BTreeMap::new() };
        // Next to a whole model, the class would add an adapter to it.
        if path.join(ADAPTER).exists() {
            return Err(none(path));
        }
        if path.join(SINGLE).exists() {
            folder.add(SINGLE)?;
        } else if path.join(INDEX).exists() {
            folder.add_all()?;
        } else {
            return Err(none(path));
        }
        Ok(folder)
    }

    /// Adds the files that the index names.
    fn add_all(&mut self) -> Result<(), Error> {
        let index = self.path.join(INDEX);
        let text = files::read(&index, MOST_INDEX).map_err(|why| Error::file("read", &index, why))?;
        let Index { weight_map } =
            serde_json::from_slice(&text).map_err(|why| damaged(&index, format!("is no index: {why}")))?;
        let mut names: Vec<&String> = weight_map.values().collect();
        names.sort();
        names.dedup();
        let mut numbers = BTreeMap::new();
        for name in names {
            if !is_plain(name) {
                return Err(damaged(&index, format!("names a file outside of its folder: `{name}`")));
            }
            numbers.insert(name.as_str(), self.files.len());
            self.add(name)?;
        }
        let astray = weight_map.iter().find(|(tensor, file)| {
            self.tensors.get(*tensor).is_none_or(|found| Some(&found.file) != numbers.get(file.as_str()))
        });
        match astray {
            Some((tensor, file)) => {
                Err(damaged(&index, format!("says that `{tensor}` is in {file}, which does not have it")))
            }
            None => Ok(()),
        }
    }

    fn add(&mut self, name: &str) -> Result<(), Error> {
        let path = self.path.join(name);
        let file = PositionedFile::open(&path).map_err(|why| match why.kind() {
            io::ErrorKind::NotFound => damaged(&path, "is missing, but the index names it".to_string()),
            _ => Error::file("read", &path, why),
        })?;
        let Header { start, tensors: header } = Header::read(&file, &path)?;
        let number = self.files.len();
        for (tensor, info) in header.tensors() {
            let (from, to) = info.data_offsets;
            let shape = info.shape.iter().map(|&size| size as u64).collect();
            let place = FileTensor { file: number, format: info.dtype, shape, bytes: start + from..start + to };
            if self.tensors.insert(tensor.clone(), place).is_some() {
                return Err(damaged(&path, format!("has `{tensor}`, and so has another file of the folder")));
            }
        }
        self.files.push((path, file));
        Ok(())
    }

    /// The bytes of a range of a tensor.
    ///
    /// # Errors
    /// The file has become shorter, or cannot be read.
    pub(crate) fn bytes(&self, tensor: &FileTensor, range: Range<usize>) -> Result<Vec<u8>, Error> {
        let (path, file) = &self.files[tensor.file];
        let [from, to] = [range.start, range.end].map(|at| (tensor.bytes.start + at) as u64);
        file.read(from..to).map_err(|why| unread(path, why))
    }

    /// True if two tensors have the same bytes.
    ///
    /// # Errors
    /// A file has become shorter, or cannot be read.
    pub(crate) fn is_same(&self, one: &FileTensor, other: &FileTensor) -> Result<bool, Error> {
        if one.bytes.len() != other.bytes.len() {
            return Ok(false);
        }
        for at in (0..one.bytes.len()).step_by(PIECE) {
            let range = at..one.bytes.len().min(at + PIECE);
            if self.bytes(one, range.clone())? != self.bytes(other, range)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The file of a tensor.
    pub(crate) fn file(&self, tensor: &FileTensor) -> &Path {
        &self.files[tensor.file].0
    }

    /// The number of files.
    pub(crate) fn files(&self) -> usize {
        self.files.len()
    }
}

/// The error of a file that is not as its format says.
pub(crate) fn damaged(path: &Path, why: String) -> Error {
    Error::Damaged { file: path.to_path_buf(), why }
}

/// The format of elements, if it is read.
pub(crate) fn float(format: Dtype) -> Option<DType> {
    match format {
        Dtype::F32 => Some(DType::F32),
        Dtype::BF16 => Some(DType::BF16),
        Dtype::F16 => Some(DType::F16),
        _ => None,
    }
}

/// The error of a file of weights that cannot be read.
pub(crate) fn unread(path: &Path, why: ReadError) -> Error {
    match why {
        ReadError::CutShort { .. } => damaged(path, why.to_string()),
        ReadError::System(source) => Error::file("read", path, source),
    }
}

/// The error of a folder without safetensors, by what it has instead.
pub(crate) fn none(path: &Path) -> Error {
    let entries = match std::fs::read_dir(path) {
        Ok(entries) => entries,
        Err(_) if path.is_file() => {
            let fix = "give the folder with config.json and model.safetensors";
            return missing(path, "that is a file".into(), fix);
        }
        Err(why) => return Error::file("read", path, why),
    };
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    if let Some(name) = names.iter().find(|name| name.starts_with("adapter_")) {
        let fix = "merge it once in Python: peft's merge_and_unload(), then save_pretrained(..)";
        return missing(path, format!("{name} belongs to an adapter of another model"), fix);
    }
    if let Some(name) = names.iter().find(|name| name.starts_with("shard-") && name.ends_with(".safetensors")) {
        let fix = "join the shards once in Python: consolidate_safetensors_files of torch.distributed.checkpoint";
        return missing(path, format!("{name} is a shard that torch.distributed.checkpoint reads"), fix);
    }
    if let Some(name) = names.iter().find(|name| name.ends_with(".safetensors")) {
        let why = format!("there is {name}, but neither {SINGLE} nor {INDEX}");
        return missing(path, why, "load and save the model with transformers, which gives the files these names");
    }
    if let Some(name) = names.iter().find(|name| is_pickle(name)) {
        return Error::Pickled { file: path.join(name) };
    }
    if let Some(name) = names.iter().find(|name| has_end(name, &[".gguf", ".h5", ".msgpack", ".onnx"])) {
        return missing(path, format!("{name} has another format"), "load the model in transformers and save it");
    }
    let why = format!("there is neither {SINGLE} nor {INDEX}");
    missing(path, why, "give the folder of a model that transformers has saved")
}

fn missing(folder: &Path, why: String, fix: &str) -> Error {
    Error::Missing { folder: folder.to_path_buf(), why, fix: fix.to_string() }
}

/// True if a name is one that older versions gave to pickled weights.
fn is_pickle(name: &str) -> bool {
    ["pytorch_model", "consolidated", "model"].iter().any(|stem| name.starts_with(stem))
        && has_end(name, &[".bin", ".bin.index.json", ".pt", ".pth"])
}

fn has_end(name: &str, ends: &[&str]) -> bool {
    ends.iter().any(|end| name.ends_with(end))
}

/// True if a name is one of a file in the folder itself.
fn is_plain(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    matches!(parts.next(), Some(Component::Normal(_))) && parts.next().is_none() && !name.contains(['\\', '\0', '/'])
}
