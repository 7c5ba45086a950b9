//! Writing: the parameters of a checkpoint as a folder that `transformers` loads, or `torch.distributed.checkpoint`. One tensor at a
//! time is in memory.

use crate::description::{Description, normalise};
use crate::error::Error;
use crate::layout::Source;
use crate::merge::{Merge, updated};
use crate::names::Names;
use crate::shards::{self, Planned, Writer};
use checkpoint::{Checkpoint, Origin, Shard, TensorReader};
use device::host;
use ir::graph::{is_factor, is_record};
use ir::models::PATCHES;
use ir::types::DType;
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use support::files;

/// Files of a tokenizer and of generation, which are copied from the folder that a run began from.
const COPIED: [&str; 12] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "spiece.model",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
];

/// The most shards of an export: as many files are open at a time, of which systems allow a thousand.
pub const MOST_SHARDS: u64 = 512;

/// The element type of exported weights.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OutFormat {
    /// bf16
    Bf16,
    /// f16
    F16,
    /// f32
    F32,
}

impl OutFormat {
    fn dtype(self) -> DType {
        match self {
            OutFormat::Bf16 => DType::BF16,
            OutFormat::F16 => DType::F16,
            OutFormat::F32 => DType::F32,
        }
    }

    /// Its name in a `config.json`.
    fn torch(self) -> &'static str {
        match self {
            OutFormat::Bf16 => "bfloat16",
            OutFormat::F16 => "float16",
            OutFormat::F32 => "float32",
        }
    }
}

/// An export.
#[derive(Clone, Debug)]
pub struct Export<'a> {
    /// A checkpoint, or the folder of a run for its newest.
    pub checkpoint: &'a Path,
    /// The folder to be made.
    pub out: &'a Path,
    /// The element type; none: that of the checkpoint's parameters.
    pub format: Option<OutFormat>,
    /// The most bytes of a file.
    pub max_shard: u64,
    /// The number of shards into which the rows of each tensor go, 1 to [`MOST_SHARDS`], with their offsets for
    /// `torch.distributed.checkpoint`. None: whole tensors, which `transformers` loads.
    pub shards: Option<u64>,
    /// The keys of the model's `config.json`, for a checkpoint that does not have them.
    pub model: Option<Map<String, Value>>,
}

/// An export that is done.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Exported {
    /// The checkpoint.
    pub checkpoint: PathBuf,
    /// Its step.
    pub step: u64,
    /// The class of `transformers` that has the model; none for a model in the language of the IR, whose tensors have the names of its
    /// parameters.
    pub class: Option<String>,
    /// The element type.
    pub format: OutFormat,
    /// The number of tensors.
    pub tensors: usize,
    /// The number of shards, if tensors are not whole.
    pub shards: Option<u64>,
    /// The bytes of their elements.
    pub bytes: u64,
    /// The folder.
    pub out: PathBuf,
    /// Its files.
    pub files: Vec<String>,
}

/// Exports a checkpoint. Adapters are merged with the parameters that they adapt. The folder appears when it is complete.
///
/// # Errors
/// The checkpoint is missing or damaged, no class of `transformers` has its model, the folder exists, or the system refuses.
///
/// # Panics
/// If the number of shards is 0.
pub fn export(order: &Export<'_>) -> Result<Exported, Error> {
    let is_free = match fs::read_dir(order.out) {
        Ok(mut entries) => entries.next().is_none(),
        Err(_) => !order.out.exists(),
    };
    if !is_free {
        return Err(Error::Exists { path: order.out.to_path_buf() });
    }
    let checkpoint = Checkpoint::open(order.checkpoint)?;
    checkpoint.verify()?;
    let mut reader = checkpoint.reader();
    let (description, names) = named(&checkpoint, &reader, order.model.clone())?;
    let format = match (order.format, names.sources.keys().next()) {
        (Some(format), _) => format,
        (None, Some(first)) => match reader.format(first)? {
            DType::F16 => OutFormat::F16,
            DType::F32 => OutFormat::F32,
            _ => OutFormat::Bf16,
        },
        (None, None) => OutFormat::F32,
    };
    let parent = order.out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let draft = files::draft(parent).map_err(|why| Error::file("write", order.out, why))?;
    let merge = Merge::of(&checkpoint.manifest.fixed);
    let mut weights = Merged { reader: &mut reader, merge };
    let (tensors, bytes) = write_weights(&mut weights, &names, format, order, draft.path())?;
    if let Some(description) = &description {
        shards::write_json(&draft.path().join("config.json"), &config(description, format))?;
    }
    copy(checkpoint.manifest.origin.as_ref(), draft.path())?;
    // A rename cannot replace a folder everywhere, even if it is empty.
    let _ = fs::remove_dir(order.out);
    let renamed = fs::rename(draft.path(), order.out).and_then(|()| fs::read_dir(order.out));
    let entries = renamed.map_err(|why| Error::file("write", order.out, why))?;
    let _ = draft.keep();
    let mut listed: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    listed.sort();
    Ok(Exported {
        step: checkpoint.manifest.position.step,
        class: description.map(|description| description.class().to_string()),
        checkpoint: checkpoint.path.clone(),
        format,
        tensors,
        shards: order.shards,
        bytes,
        out: order.out.to_path_buf(),
        files: listed,
    })
}

/// The model of a checkpoint, if it is one of a class, and the names of its parameters in files.
fn named(
    checkpoint: &Checkpoint,
    reader: &TensorReader<'_>,
    given: Option<Map<String, Value>>,
) -> Result<(Option<Description>, Names), Error> {
    let manifest = &checkpoint.manifest;
    let is_text = manifest.origin.is_none() && manifest.fixed.get("model") == Some(&json!({}));
    let (description, names) = if is_text && given.is_none() {
        let params = manifest.parameters.iter().filter(|(name, _)| !is_record(name) && !is_factor(name));
        (None, Names::own(params.map(|(name, param)| (name.clone(), param.tensor.sizes.clone()))))
    } else {
        let seq = manifest.fixed.get("seq").and_then(Value::as_u64).unwrap_or(1);
        let description = describe(checkpoint, given, seq)?;
        let names = Names::of(&description, seq, &|_, _| false).map_err(|why| refused(checkpoint, &why))?;
        let names = names.of_whole(&description);
        (Some(description), names)
    };
    let mut sources = names.sources.iter();
    if let Some((name, source)) = sources.find(|(name, source)| reader.sizes(name) != Some(&source.sizes)) {
        let why = format!("its parameter `{name}` is not {:?}, as its model says", source.sizes);
        return Err(refused(checkpoint, &why));
    }
    if names.sources.is_empty() {
        return Err(refused(checkpoint, &"it has no parameters"));
    }
    Ok((description, names))
}

fn refused(checkpoint: &Checkpoint, why: &impl ToString) -> Error {
    Error::NotExportable { what: checkpoint.path.clone(), why: why.to_string() }
}

/// The model of a checkpoint. What the checkpoint fixes must agree with it.
fn describe(checkpoint: &Checkpoint, given: Option<Map<String, Value>>, seq: u64) -> Result<Description, Error> {
    let saved = checkpoint.manifest.origin.as_ref().map(|origin| origin.config.clone());
    let raw = given.or(saved).ok_or_else(|| refused(checkpoint, &"it has no config.json of transformers"))?;
    let description = Description::of(raw).map_err(|why| refused(checkpoint, &why))?;
    let (mut manifest, mut own) = ((*checkpoint.manifest).clone(), json!({"model": description.config}));
    normalise(&mut own["model"], seq);
    if let Some(saved) = manifest.fixed.get_mut("model") {
        normalise(saved, seq);
    }
    let differences = manifest.differences(&own, manifest.position.shuffle_seed);
    if let Some(difference) = differences.first() {
        let (field, saved, now) = (&difference.field, &difference.saved, &difference.now);
        let why = format!("`{field}` is {now} in the configuration, but {saved} in the checkpoint");
        return Err(refused(checkpoint, &why));
    }
    match description.addition() {
        Some(option) => {
            Err(refused(checkpoint, &format!("`{option}` is an addition that no class of transformers has")))
        }
        None => Ok(description),
    }
}

/// A tensor of a file: its shape, and the parameters and pieces that it consists of.
#[derive(Clone)]
struct Composed<'a> {
    shape: &'a [u64],
    parts: Vec<(&'a str, &'a Source, usize)>,
}

/// The parameters of a checkpoint, merged with their adapters.
struct Merged<'r, 'c> {
    reader: &'r mut TensorReader<'c>,
    merge: Option<Merge>,
}

impl Merged<'_, '_> {
    /// The numbers of a box of a parameter.
    fn read(&mut self, param: &str, shard: &Shard) -> Result<Vec<f32>, Error> {
        let mut own = self.reader.read(&updated(self.reader, param), shard)?;
        if let Some(merge) = self.merge {
            merge.add(self.reader, param, shard, &mut own)?;
        }
        Ok(own)
    }
}

/// Writes the files of weights; gives the number of tensors and the bytes of their elements. A tensor is made once, and each
/// shard gets its rows.
fn write_weights(
    weights: &mut Merged<'_, '_>,
    names: &Names,
    format: OutFormat,
    order: &Export<'_>,
    folder: &Path,
) -> Result<(usize, u64), Error> {
    let mut composed: BTreeMap<&str, Composed<'_>> = BTreeMap::new();
    for (param, source) in &names.sources {
        for (number, piece) in source.pieces.iter().enumerate() {
            let entry = composed.entry(&piece.tensor);
            let tensor = entry.or_insert_with(|| Composed { shape: &piece.shape, parts: Vec::new() });
            tensor.parts.push((param, source, number));
        }
    }
    // `torch.distributed.checkpoint` looks for all names of a state dict, which has a tied matrix twice.
    if let (Some(_), Some([head, embedding])) = (order.shards, names.tied())
        && let Some(tensor) = composed.get(embedding).cloned()
    {
        composed.entry(head).or_insert(tensor);
    }
    let mut planned = Vec::with_capacity(composed.len());
    for (name, tensor) in &composed {
        // Classes compare scores with this bias in f32, whatever the format of the rest.
        let dtype = if name.ends_with("e_score_correction_bias") { DType::F32 } else { format.dtype() };
        planned.push(Planned { name: name.to_string(), dtype, shape: tensor.shape.to_vec(), first: 0 });
    }
    for name in names.constants.keys() {
        planned.push(Planned { name: name.clone(), dtype: format.dtype(), shape: Vec::new(), first: 0 });
    }
    planned.sort_by_cached_key(|tensor| natural(&tensor.name));
    let mut writers = match order.shards {
        None => {
            let files = shards::split(planned.clone(), order.max_shard);
            if files.len() > 1 {
                shards::write_index(folder, &files)?;
            }
            vec![Writer::new(folder, files, None)]
        }
        Some(count) => {
            let writers = (0..count).map(|number| {
                let rows = planned.iter().filter_map(|tensor| tensor.shard(number, count)).collect();
                Writer::new(folder, shards::split(rows, order.max_shard), Some(number + 1))
            });
            writers.collect()
        }
    };
    for tensor in &planned {
        let bytes = match names.constants.get(&tensor.name) {
            Some(constant) => host::stored(tensor.dtype, &[*constant]).into_owned(),
            None => compose(weights, tensor, &composed[tensor.name.as_str()])?,
        };
        writers.iter_mut().try_for_each(|writer| writer.take(&tensor.name, &bytes))?;
    }
    Ok((planned.len(), planned.iter().map(Planned::bytes).sum()))
}

/// The bytes of a tensor.
fn compose(weights: &mut Merged<'_, '_>, tensor: &Planned, composed: &Composed<'_>) -> Result<Vec<u8>, Error> {
    let mut numbers = vec![0.0; tensor.elements() as usize];
    for &(param, source, number) in &composed.parts {
        let shard = source.shard_of(number);
        let own = weights.read(param, &shard)?;
        for part in source.parts(&shard) {
            let own = &own[part.at..];
            part.piece.walk(&part.shard, |file, at| numbers[file] = own[at] - source.shift);
        }
    }
    let bytes = host::stored(tensor.dtype, &numbers).into_owned();
    if tensor.dtype != DType::F32 {
        let rounded = host::numbers(tensor.dtype, &bytes);
        let beyond = numbers.iter().zip(&rounded).find(|(number, rounded)| number.is_finite() && rounded.is_infinite());
        if let Some((&value, _)) = beyond {
            let format = if tensor.dtype == DType::F16 { "f16" } else { "bf16" }.to_string();
            return Err(Error::Overflow { tensor: tensor.name.clone(), value, format });
        }
    }
    Ok(bytes)
}

/// The order of names in which layer 2 comes before layer 10.
fn natural(name: &str) -> Vec<(u64, String)> {
    name.split('.').map(|part| (part.parse().unwrap_or(u64::MAX), part.to_string())).collect()
}

/// The `config.json`: that of the model, with the class and the format of the weights.
fn config(description: &Description, format: OutFormat) -> Value {
    let mut keys = description.raw.clone();
    for key in ["quantization_config", "auto_map", "_name_or_path", "_commit_hash", "dtype"] {
        keys.remove(key);
    }
    keys.insert("architectures".into(), json!([description.class()]));
    keys.insert("torch_dtype".into(), format.torch().into());
    keys.insert("tie_word_embeddings".into(), description.is_tied().into());
    // No class has this key; the text model of a whole may be tied by its own.
    keys.remove(PATCHES);
    if let Some(text) = keys.get_mut("text_config").and_then(Value::as_object_mut) {
        text.insert("tie_word_embeddings".into(), description.is_tied().into());
    }
    // Layers that predict further tokens are written only if the model has them.
    if let Some(stated) = keys.get_mut("num_nextn_predict_layers") {
        *stated = description.predicted_further().into();
    }
    Value::Object(keys)
}

/// Copies the files of the tokenizer from the folder that the run began from, if it is still there.
fn copy(origin: Option<&Origin>, to: &Path) -> Result<(), Error> {
    let Some(from) = origin.and_then(|origin| origin.folder.as_ref()) else { return Ok(()) };
    for name in COPIED {
        let (source, target) = (from.join(name), to.join(name));
        if source.is_file() {
            fs::copy(&source, &target).map_err(|why| Error::file("write", &target, why))?;
        }
    }
    Ok(())
}
