//! Writing: the parameters of a checkpoint as a folder that `transformers` loads. One tensor at a time is in memory.

use crate::description::{Description, normalise};
use crate::error::Error;
use crate::layout::Source;
use crate::names::Names;
use crate::shards::{self, Planned};
use ir::types::DType;
use runtime::checkpoint::{Checkpoint, Origin, TensorReader};
use runtime::host;
use runtime::state::MASTER;
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
    /// The class of `transformers` that loads it.
    pub class: String,
    /// The element type.
    pub format: OutFormat,
    /// The number of tensors.
    pub tensors: usize,
    /// The bytes of their elements.
    pub bytes: u64,
    /// The folder.
    pub out: PathBuf,
    /// Its files.
    pub files: Vec<String>,
}

/// Exports a checkpoint. The folder appears when it is complete.
///
/// # Errors
/// The checkpoint is missing or damaged, no class of `transformers` has its model, the folder exists, or the system refuses.
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
    let seq = checkpoint.manifest.fixed.get("seq").and_then(Value::as_u64).unwrap_or(1);
    let description = describe(&checkpoint, order.model.clone(), seq)?;
    let refused = |why: String| Error::NotExportable { what: checkpoint.path.clone(), why };
    let names = Names::of(&description, seq, &|_| false).map_err(|why| refused(why.to_string()))?;
    let mut reader = checkpoint.reader();
    for (name, source) in &names.sources {
        if reader.sizes(name) != Some(&source.sizes) {
            return Err(refused(format!("its parameter `{name}` is not {:?}, as its model says", source.sizes)));
        }
    }
    let first = names.sources.keys().next().ok_or_else(|| refused("it has no parameters".to_string()))?;
    let format = match order.format {
        Some(format) => format,
        None => match reader.format(first)? {
            DType::F16 => OutFormat::F16,
            DType::F32 => OutFormat::F32,
            _ => OutFormat::Bf16,
        },
    };
    let parent = order.out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let unwritable = |why| Error::file("write", order.out, why);
    let draft = files::draft(parent).map_err(unwritable)?;
    let files = write_weights(&mut reader, &names, format, order.max_shard, draft.path())?;
    shards::write_json(&draft.path().join("config.json"), &config(&description, format))?;
    let origin = checkpoint.manifest.origin.as_ref();
    copy(origin, draft.path())?;
    // A rename cannot replace a folder everywhere, even if it is empty.
    let _ = fs::remove_dir(order.out);
    fs::rename(draft.path(), order.out).map_err(unwritable)?;
    let _ = draft.keep();
    let mut listed: Vec<String> = fs::read_dir(order.out)
        .map_err(unwritable)?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    listed.sort();
    let (tensors, bytes) = files.iter().flatten().fold((0, 0), |(n, b), tensor| (n + 1, b + tensor.bytes()));
    Ok(Exported {
        step: checkpoint.manifest.position.step,
        class: description.class(),
        checkpoint: checkpoint.path.clone(),
        format,
        tensors,
        bytes,
        out: order.out.to_path_buf(),
        files: listed,
    })
}

/// The model of a checkpoint. What the checkpoint fixes must agree with it.
fn describe(checkpoint: &Checkpoint, given: Option<Map<String, Value>>, seq: u64) -> Result<Description, Error> {
    let refused = |why: String| Error::NotExportable { what: checkpoint.path.clone(), why };
    let saved = checkpoint.manifest.origin.as_ref().map(|origin| origin.config.clone());
    let raw = given.or(saved).ok_or_else(|| refused("it has no config.json of transformers".to_string()))?;
    let description = Description::of(raw).map_err(|why| refused(why.to_string()))?;
    let (mut manifest, mut own) = ((*checkpoint.manifest).clone(), json!({"model": description.config}));
    normalise(&mut own["model"], seq);
    if let Some(saved) = manifest.fixed.get_mut("model") {
        normalise(saved, seq);
    }
    let differences = manifest.differences(&own, manifest.position.shuffle_seed);
    if let Some(difference) = differences.first() {
        let (field, saved, now) = (&difference.field, &difference.saved, &difference.now);
        return Err(refused(format!("`{field}` is {now} in the configuration, but {saved} in the checkpoint")));
    }
    match description.addition() {
        Some(option) => Err(refused(format!("`{option}` is an addition that no class of transformers has"))),
        None => Ok(description),
    }
}

/// A tensor of a file: its shape, and the parameters and pieces that it consists of.
struct Composed<'a> {
    shape: &'a [u64],
    parts: Vec<(&'a str, &'a Source, usize)>,
}

/// Writes the files of weights; gives the tensors of each.
fn write_weights(
    reader: &mut TensorReader<'_>,
    names: &Names,
    format: OutFormat,
    most: u64,
    folder: &Path,
) -> Result<Vec<Vec<Planned>>, Error> {
    let mut composed: BTreeMap<&str, Composed<'_>> = BTreeMap::new();
    for (param, source) in &names.sources {
        for (number, piece) in source.pieces.iter().enumerate() {
            let entry = composed.entry(&piece.tensor);
            let tensor = entry.or_insert_with(|| Composed { shape: &piece.shape, parts: Vec::new() });
            tensor.parts.push((param, source, number));
        }
    }
    // Classes compare scores with this bias in f32, whatever the format of the rest.
    let dtype = |name: &str| if name.ends_with("e_score_correction_bias") { DType::F32 } else { format.dtype() };
    let plan = |(name, tensor): (&&str, &Composed<'_>)| Planned {
        name: name.to_string(),
        dtype: dtype(name),
        shape: tensor.shape.to_vec(),
    };
    let mut planned: Vec<Planned> = composed.iter().map(plan).collect();
    planned.sort_by_cached_key(|tensor| natural(&tensor.name));
    let files = shards::split(planned, most);
    for (file, name) in files.iter().zip(shards::names(files.len())) {
        shards::write(&folder.join(name), file, |tensor| compose(reader, tensor, &composed[tensor.name.as_str()]))?;
    }
    if files.len() > 1 {
        shards::write_index(folder, &files)?;
    }
    Ok(files)
}

/// The bytes of a tensor.
fn compose(reader: &mut TensorReader<'_>, tensor: &Planned, composed: &Composed<'_>) -> Result<Vec<u8>, Error> {
    let mut numbers = vec![0.0; tensor.elements() as usize];
    for &(param, source, number) in &composed.parts {
        // Where a parameter has an f32 copy, that is what the optimizer updates.
        let copy = format!("{param}.{MASTER}");
        let from = if reader.sizes(&copy).is_some() { copy.as_str() } else { param };
        let shard = source.shard_of(number);
        let own = reader.read(from, &shard)?;
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
    if keys.contains_key("num_nextn_predict_layers") {
        keys.insert("num_nextn_predict_layers".into(), 0.into());
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
