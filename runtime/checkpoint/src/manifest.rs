//! `manifest.json`: the contents of a checkpoint. Every entry is logical: tensors by global name, shards by offset and
//! shape, no rank and no mesh. `manifest.crc32` in the same folder has its checksum.

use super::data::checksum;
use super::error::{Difference, Error};
use super::shard::Shard;
use crate::loss_scale::LossScale;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};
use support::files;

/// Name and version of the format.
pub const SCHEMA: &str = "meshwright.checkpoint/1";

/// The file's name.
pub const MANIFEST: &str = "manifest.json";

/// The name of the file with its checksum.
const SUM: &str = "manifest.crc32";

/// The most bytes of a manifest, enough for a million shards. Reading one takes up to about twenty times its size.
const MOST_BYTES: u64 = 1 << 26;

/// The most bytes of a checksum's file, which has nine.
const MOST_SUM: u64 = 1 << 20;

/// Contents of a checkpoint.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of the tool that wrote it.
    pub version: String,
    /// How far the run had come.
    #[serde(flatten)]
    pub position: Position,
    /// Options that a resumed run must share, as an object that may nest.
    pub fixed: Value,
    /// The model in the form of the hub, if a class of `transformers` has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The data files.
    pub files: Vec<DataFile>,
    /// Parameters by instance name.
    pub parameters: BTreeMap<String, Parameter>,
}

/// The form of a model on the Hugging Face hub, with which its weights are exported.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Origin {
    /// The keys of its `config.json`.
    pub config: Map<String, Value>,
    /// The folder that the first weights came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<PathBuf>,
}

/// How far a run has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Position {
    /// Steps done.
    pub step: u64,
    /// Steps among them whose update was skipped.
    #[serde(default)]
    pub skipped: u64,
    /// The loss scale of the next step, in f16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<LossScale>,
    /// Samples taken from the data.
    pub consumed_samples: u64,
    /// Times that the data has been gone through.
    pub epoch: u64,
    /// Seed of the order of the data.
    pub shuffle_seed: u64,
    /// Key of dropout; the step is its second part.
    pub rng_key: u64,
}

/// A data file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DataFile {
    /// Its name in the checkpoint's folder.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    /// The CRC-32 (IEEE 802.3) of all its bytes, in hexadecimal.
    pub crc32: String,
}

/// A parameter with its optimizer states.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Parameter {
    /// The parameter itself.
    #[serde(flatten)]
    pub tensor: Stored,
    /// Its states by name: `m`, `v`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub states: BTreeMap<String, Stored>,
}

/// A tensor and the files of its elements.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Stored {
    /// Its sizes. The data files have the type of its elements.
    pub sizes: Vec<u64>,
    /// Its shards: every element is in one of them.
    pub shards: Vec<StoredShard>,
}

/// A shard and the file that holds it, under [`Shard::key`].
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StoredShard {
    /// The shard.
    #[serde(flatten)]
    pub shard: Shard,
    /// The index of the file in [`Manifest::files`].
    pub file: usize,
}

/// The part of a manifest that all versions share.
#[derive(Deserialize)]
struct Format {
    schema: String,
}

fn read(folder: &Path, name: &str, limit: u64) -> Result<Vec<u8>, Error> {
    let bytes = files::open_in(folder, name).and_then(|file| files::read_all(file, limit));
    bytes.map_err(|why| damaged(folder, name, cannot_be_read(&why)))
}

fn damaged(folder: &Path, file: &str, why: String) -> Error {
    Error::Damaged { checkpoint: folder.to_path_buf(), file: file.to_string(), why }
}

impl Manifest {
    /// Reads the manifest of a checkpoint.
    ///
    /// # Errors
    /// It is missing, broken, or of a version that is not known.
    pub fn read(folder: &Path) -> Result<Manifest, Error> {
        let text = read(folder, MANIFEST, MOST_BYTES)?;
        match serde_json::from_slice::<Format>(&text) {
            Ok(format) if format.schema != SCHEMA => {
                let checkpoint = folder.to_path_buf();
                return Err(Error::Version { checkpoint, found: format.schema, known: SCHEMA });
            }
            Ok(_) => {}
            Err(why) => return Err(damaged(folder, MANIFEST, format!("is no manifest: {why}"))),
        }
        let want = String::from_utf8_lossy(&read(folder, SUM, MOST_SUM)?).trim().to_string();
        let sum = checksum(&text);
        if sum != want {
            return Err(damaged(folder, MANIFEST, format!("has the checksum {sum}, not {want}")));
        }
        match serde_json::from_slice::<Manifest>(&text) {
            Ok(manifest) => match manifest.fault() {
                Some(why) => Err(damaged(folder, MANIFEST, why)),
                None => Ok(manifest),
            },
            Err(why) => Err(damaged(folder, MANIFEST, format!("is no manifest: {why}"))),
        }
    }

    /// Writes manifest and checksum, and sees that they are on the disk.
    ///
    /// # Errors
    /// The system refuses.
    pub(super) fn write(&self, folder: &Path) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(self)?;
        if text.len() as u64 >= MOST_BYTES {
            text = serde_json::to_vec(self)?;
        }
        text.push(b'\n');
        if text.len() as u64 > MOST_BYTES {
            let why = format!("{MANIFEST} would have {} bytes, but only {MOST_BYTES} can be read again", text.len());
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
        }
        let sum = checksum(&text) + "\n";
        for (name, bytes) in [(MANIFEST, &text[..]), (SUM, sum.as_bytes())] {
            let mut file = File::create_new(folder.join(name))?;
            file.write_all(bytes)?;
            file.sync_all()?;
        }
        Ok(())
    }

    /// The tensors by global name, states as `<param>.<state>`.
    pub fn tensors(&self) -> BTreeMap<String, &Stored> {
        let mut tensors = BTreeMap::new();
        for (name, parameter) in &self.parameters {
            tensors.insert(name.clone(), &parameter.tensor);
            tensors.extend(parameter.states.iter().map(|(state, stored)| (format!("{name}.{state}"), stored)));
        }
        tensors
    }

    /// Differences from a run with these fixed options and seed, among the options that both have.
    pub fn differences(&self, fixed: &Value, seed: u64) -> Vec<Difference> {
        let mut found = Vec::new();
        compare("", &self.fixed, fixed, &mut found);
        if let Some(saved) = [self.position.shuffle_seed, self.position.rng_key].iter().find(|saved| **saved != seed) {
            found.push(Difference { field: "seed".into(), saved: saved.to_string(), now: seed.to_string() });
        }
        found
    }

    /// Error if a file is outside the checkpoint, or if the shards do not cover the tensors.
    fn fault(&self) -> Option<String> {
        if let Some(file) = self.files.iter().find(|file| !is_plain(&file.name)) {
            return Some(format!("names a file outside of its folder: `{}`", file.name));
        }
        self.tensors().into_iter().find_map(|(name, stored)| {
            let Some(all) = stored.elements() else {
                return Some(format!("has sizes of `{name}` that cannot be: {:?}", stored.sizes));
            };
            let mut shards = stored.shards.iter();
            if let Some(held) = shards.find(|held| !held.shard.fits(&stored.sizes) || held.file >= self.files.len()) {
                return Some(format!("has a shard of `{name}` that cannot be: {:?}", held.shard));
            }
            let held = stored.shards.iter().fold(0u64, |sum, held| sum.saturating_add(held.shard.elements()));
            (held != all).then(|| format!("has {held} of the {all} elements of `{name}`"))
        })
    }
}

impl Position {
    /// Error if no run with this global batch can be at this position: every step takes `global_batch` samples, and an epoch at least one.
    pub fn fault(&self, global_batch: u64) -> Option<String> {
        let Position { step, skipped, loss_scale, consumed_samples, epoch, .. } = *self;
        if skipped > step {
            return Some(format!("has {skipped} skipped steps of {step}"));
        }
        if let Some(scale) = loss_scale.filter(|scale| !scale.is_sound(skipped)) {
            return Some(format!("has a loss scale that cannot be: {scale:?}"));
        }
        if step == 0 || step.checked_mul(global_batch) != Some(consumed_samples) {
            return Some(format!("has {consumed_samples} samples in {step} steps of {global_batch}"));
        }
        (epoch > consumed_samples).then(|| format!("has epoch {epoch} after {consumed_samples} samples"))
    }
}

impl Stored {
    /// How many elements the tensor has; none if that cannot be counted.
    fn elements(&self) -> Option<u64> {
        let elements = self.sizes.iter().try_fold(1u64, |all, &size| all.checked_mul(size));
        elements.filter(|&elements| elements <= ir::limits::ELEMENTS)
    }
}

/// True if a name is one of a file in the folder itself.
fn is_plain(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    let first = matches!(parts.next(), Some(Component::Normal(part)) if part == OsStr::new(name));
    first && parts.next().is_none() && !name.contains(['\\', '\0'])
}

/// Text for a file that cannot be opened: `is missing`, or the reason.
pub(super) fn cannot_be_read(why: &io::Error) -> String {
    match why.kind() {
        io::ErrorKind::NotFound => "is missing".to_string(),
        _ => format!("cannot be read: {why}"),
    }
}

/// Adds the values that differ, of objects field by field. A field that one side lacks is no difference, since versions differ
/// in what they write. Two objects without a common field are two variants of an enum, tagged by their fields.
fn compare(path: &str, saved: &Value, now: &Value, found: &mut Vec<Difference>) {
    match (saved, now) {
        (Value::Object(saved), Value::Object(now))
            if saved.is_empty() || now.is_empty() || now.keys().any(|field| saved.contains_key(field)) =>
        {
            for (field, now) in now {
                let path = if path.is_empty() { field.clone() } else { format!("{path}.{field}") };
                saved.get(field).into_iter().for_each(|saved| compare(&path, saved, now, found));
            }
        }
        _ if saved == now => {}
        _ => found.push(Difference { field: path.to_string(), saved: plain(saved), now: plain(now) }),
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn differences_are_named_to_the_leaf() {
        let position = Position {
            step: 1,
            skipped: 0,
            loss_scale: None,
            consumed_samples: 8,
            epoch: 0,
            shuffle_seed: 7,
            rng_key: 7,
        };
        let fixed = json!({"seq": 16, "model": {"layers": 4, "tied": true}, "old": 1});
        let manifest = Manifest {
            schema: SCHEMA.into(),
            version: "0".into(),
            position,
            fixed,
            origin: None,
            files: Vec::new(),
            parameters: BTreeMap::new(),
        };
        let now = json!({"seq": 16, "model": {"layers": 6, "tied": true}, "optimizer": "adamw"});
        let difference = |field: &str, saved: &str, now: &str| Difference {
            field: field.into(),
            saved: saved.into(),
            now: now.into(),
        };
        assert_eq!(manifest.differences(&now, 7), [difference("model.layers", "4", "6")]);
        assert_eq!(manifest.differences(&json!({"seq": "x"}), 8)[1], difference("seed", "7", "8"));
        let variant = |name: &str| json!({ "model": { "scaling": { name: { "factor": 2.0 } } } });
        let scaled = Manifest { fixed: variant("Linear"), ..manifest.clone() };
        assert_eq!(scaled.differences(&variant("Linear"), 7), []);
        let [linear, yarn] = [r#"{"Linear":{"factor":2.0}}"#, r#"{"Yarn":{"factor":2.0}}"#];
        assert_eq!(scaled.differences(&variant("Yarn"), 7), [difference("model.scaling", linear, yarn)]);
        let text = serde_json::to_string(&manifest).unwrap();
        assert_eq!(serde_json::from_str::<Manifest>(&text).unwrap(), manifest);
    }

    #[test]
    fn a_tensor_with_a_gap_is_a_fault() {
        let held = |offset: u64| StoredShard { shard: Shard { offset: vec![offset], shape: vec![2] }, file: 0 };
        let mut stored = Stored { sizes: vec![4], shards: vec![held(0)] };
        let position = Position {
            step: 0,
            skipped: 0,
            loss_scale: None,
            consumed_samples: 0,
            epoch: 0,
            shuffle_seed: 0,
            rng_key: 0,
        };
        let files = vec![DataFile { name: "a".into(), bytes: 0, crc32: String::new() }];
        let manifest = |stored: &Stored| Manifest {
            schema: SCHEMA.into(),
            version: "0".into(),
            position,
            fixed: Value::Null,
            origin: None,
            files: files.clone(),
            parameters: [("w".to_string(), Parameter { tensor: stored.clone(), states: BTreeMap::new() })].into(),
        };
        assert_eq!(manifest(&stored).fault().unwrap(), "has 2 of the 4 elements of `w`");
        stored.shards.push(held(3));
        assert!(manifest(&stored).fault().unwrap().contains("cannot be"));
        stored.shards[1] = held(2);
        assert_eq!(manifest(&stored).fault(), None);
        for sizes in [vec![u64::MAX, 2], vec![1 << 32, 1 << 32]] {
            let why = manifest(&Stored { sizes, shards: Vec::new() }).fault().unwrap();
            assert!(why.contains("sizes of `w` that cannot be"), "{why}");
        }
        for name in ["", ".", "..", "../a", "/etc/hostname", "b/a", "a/", "b\\a", "a\0"] {
            let files = vec![DataFile { name: name.into(), ..files[0].clone() }];
            let why = Manifest { files, ..manifest(&stored) }.fault().unwrap();
            assert!(why.contains("outside of its folder"), "{name}: {why}");
        }
    }

    #[test]
    fn counters_that_no_run_has_are_a_fault() {
        let position = |step, consumed_samples, epoch| {
            Position { step, skipped: 0, loss_scale: None, consumed_samples, epoch, shuffle_seed: 0, rng_key: 0 }
                .fault(16)
        };
        assert_eq!(position(5, 80, 2), None);
        for (step, samples, epoch) in
            [(0, 0, 0), (2, u64::MAX, 0), (2, 1 << 63, 0), (u64::MAX, 16, 0), (5, 81, 2), (5, 80, u64::MAX)]
        {
            assert!(position(step, samples, epoch).is_some(), "{step} {samples} {epoch}");
        }
    }
}
