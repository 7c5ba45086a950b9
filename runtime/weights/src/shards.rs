//! Files of tensors that are written one after the other: each header is known before the first element is made.

use crate::error::Error;
use crate::folder::{INDEX, SINGLE};
use ir::types::DType;
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::json;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Bytes of the length of a header, and what a header is aligned to.
const LENGTH: usize = 8;

/// The version of the keys by which `torch.distributed.checkpoint` finds the place of a shard in its tensor.
const DCP_VERSION: &str = "1.0";

/// A tensor to be written, or some rows of one.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Planned {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    /// The sizes of what is written.
    pub(crate) shape: Vec<u64>,
    /// The place of its first row in the tensor.
    pub(crate) first: u64,
}

impl Planned {
    pub(crate) fn elements(&self) -> u64 {
        self.shape.iter().product()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.elements() * self.dtype.bytes()
    }

    /// The rows of one of `count` shards: as many in each as in the first, but for the last ones. None if it has no rows.
    pub(crate) fn shard(&self, number: u64, count: u64) -> Option<Planned> {
        let Some(&rows) = self.shape.first() else { return (number == 0).then(|| self.clone()) };
        let most = rows.div_ceil(count);
        let first = number * most;
        let mut own = Planned { first, ..self.clone() };
        own.shape[0] = most.min(rows.saturating_sub(first));
        (own.shape[0] > 0).then_some(own)
    }

    /// Its bytes among those of the tensor.
    fn range(&self) -> Range<usize> {
        let row: u64 = self.shape.iter().skip(1).product::<u64>() * self.dtype.bytes();
        let start = (self.first * row) as usize;
        start..start + self.bytes() as usize
    }

    /// The place of its first element in the tensor.
    fn offsets(&self) -> Vec<u64> {
        (0..self.shape.len()).map(|d| if d == 0 { self.first } else { 0 }).collect()
    }
}

/// Deals tensors out to files in order: a file has at most `most` bytes of elements, or one tensor.
pub(crate) fn split(tensors: Vec<Planned>, most: u64) -> Vec<Vec<Planned>> {
    let (mut files, mut filled): (Vec<Vec<Planned>>, u64) = (Vec::new(), 0);
    for tensor in tensors {
        let bytes = tensor.bytes();
        match files.last_mut() {
            Some(last) if filled.saturating_add(bytes) <= most => last.push(tensor),
            _ => {
                files.push(vec![tensor]);
                filled = 0;
            }
        }
        filled += bytes;
    }
    files
}

/// The names of `count` files of whole tensors, or of a shard by its number from 1.
pub(crate) fn names(count: usize, shard: Option<u64>) -> Vec<String> {
    if count == 1 && shard.is_none() {
        return vec![SINGLE.to_string()];
    }
    let prefix = shard.map_or(String::new(), |shard| format!("shard-{shard:05}-"));
    (1..=count).map(|number| format!("{prefix}model-{number:05}-of-{count:05}.safetensors")).collect()
}

/// Writes the files of one shard, or of all whole tensors, one file after the other.
pub(crate) struct Writer {
    /// Files that are not begun.
    files: VecDeque<(PathBuf, Vec<Planned>)>,
    /// The file that is being written, and what it still lacks.
    open: Option<(PathBuf, File, VecDeque<Planned>)>,
    is_sharded: bool,
}

impl Writer {
    /// A writer of files in a folder.
    pub(crate) fn new(folder: &Path, files: Vec<Vec<Planned>>, shard: Option<u64>) -> Writer {
        let names = names(files.len(), shard);
        let files = names.iter().map(|name| folder.join(name)).zip(files).collect();
        Writer { files, open: None, is_sharded: shard.is_some() }
    }

    /// Writes what the files have of a tensor, whose bytes are given. Tensors come in the order of the files; a file that is complete
    /// is on the disk.
    ///
    /// # Errors
    /// The system refuses.
    pub(crate) fn take(&mut self, name: &str, bytes: &[u8]) -> Result<(), Error> {
        let (path, file, rest) = match &mut self.open {
            Some(open) => open,
            none => match self.files.pop_front() {
                Some((path, tensors)) => {
                    let file =
                        begin(&path, &tensors, self.is_sharded).map_err(|why| Error::file("write", &path, why))?;
                    none.insert((path, file, tensors.into()))
                }
                None => return Ok(()),
            },
        };
        let Some(tensor) = rest.pop_front_if(|tensor| tensor.name == name) else { return Ok(()) };
        let written = file.write_all(&bytes[tensor.range()]);
        let is_complete = rest.is_empty();
        written
            .and_then(|()| if is_complete { file.sync_all() } else { Ok(()) })
            .map_err(|why| Error::file("write", path, why))?;
        if is_complete {
            self.open = None;
        }
        Ok(())
    }
}

/// Creates a file and writes its header.
fn begin(path: &Path, tensors: &[Planned], is_sharded: bool) -> io::Result<File> {
    let header = header(tensors, is_sharded)?;
    let mut file = File::create_new(path)?;
    file.write_all(&(header.len() as u64).to_le_bytes())?;
    file.write_all(&header)?;
    Ok(file)
}

/// The index of files: the file of each tensor.
///
/// # Errors
/// The system refuses.
pub(crate) fn write_index(folder: &Path, files: &[Vec<Planned>]) -> Result<(), Error> {
    let names = names(files.len(), None);
    let (mut map, mut bytes, mut elements) = (BTreeMap::new(), 0, 0);
    for (file, name) in files.iter().zip(&names) {
        for tensor in file {
            map.insert(tensor.name.as_str(), name.as_str());
            bytes += tensor.bytes();
            elements += tensor.elements();
        }
    }
    let index = json!({"metadata": {"total_parameters": elements, "total_size": bytes}, "weight_map": map});
    write_json(&folder.join(INDEX), &index)
}

/// Writes a JSON file as `transformers` does.
///
/// # Errors
/// The system refuses.
pub(crate) fn write_json(path: &Path, value: &serde_json::Value) -> Result<(), Error> {
    try_write_json(path, value).map_err(|why| Error::file("write", path, why))
}

fn try_write_json(path: &Path, value: &serde_json::Value) -> io::Result<()> {
    let text = serde_json::to_string_pretty(value)? + "\n";
    let mut file = File::create_new(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// A header in the order of its tensors.
struct Header {
    more: BTreeMap<&'static str, String>,
    tensors: Vec<(String, TensorInfo)>,
}

impl Serialize for Header {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.tensors.len() + 1))?;
        map.serialize_entry("__metadata__", &self.more)?;
        self.tensors.iter().try_for_each(|(name, info)| map.serialize_entry(name, info))?;
        map.end()
    }
}

fn header(tensors: &[Planned], is_sharded: bool) -> io::Result<Vec<u8>> {
    let (mut end, mut infos) = (0, Vec::with_capacity(tensors.len()));
    for tensor in tensors {
        let start = end;
        end += tensor.bytes() as usize;
        let shape = tensor.shape.iter().map(|&size| size as usize).collect();
        let info = TensorInfo { dtype: format(tensor.dtype), shape, data_offsets: (start, end) };
        infos.push((tensor.name.clone(), info));
    }
    Metadata::new(None, infos.clone()).map_err(|why| io::Error::other(why.to_string()))?;
    // Without this, `transformers` does not take a file for one of PyTorch's.
    let mut more = BTreeMap::from([("format", "pt".to_string())]);
    if is_sharded {
        let places = tensors.iter().map(|tensor| (tensor.name.clone(), json!({"saved_offsets": tensor.offsets()})));
        more.insert("DCP_SHARDING_INFO", serde_json::Value::Object(places.collect()).to_string());
        more.insert("DCP_VERSION", DCP_VERSION.to_string());
    }
    let mut text = serde_json::to_vec(&Header { more, tensors: infos })?;
    text.resize(text.len().next_multiple_of(LENGTH), b' ');
    Ok(text)
}

fn format(dtype: DType) -> Dtype {
    match dtype {
        DType::BF16 => Dtype::BF16,
        DType::F16 => Dtype::F16,
        _ => Dtype::F32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(name: &str, size: u64) -> Planned {
        Planned { name: name.into(), dtype: DType::BF16, shape: vec![size, 2], first: 0 }
    }

    #[test]
    fn files_are_filled_in_order() {
        let sizes = |most: u64| -> Vec<Vec<u64>> {
            let files = split(vec![tensor("a", 2), tensor("b", 9), tensor("c", 1), tensor("d", 1)], most);
            files.iter().map(|file| file.iter().map(Planned::bytes).collect()).collect()
        };
        assert_eq!(sizes(10), [vec![8], vec![36], vec![4, 4]]);
        assert_eq!(sizes(1 << 20), [vec![8, 36, 4, 4]]);
        assert_eq!(
            (names(1, None), &*names(12, None)[11]),
            (vec![SINGLE.to_string()], "model-00012-of-00012.safetensors")
        );
        assert_eq!(names(1, Some(3)), ["shard-00003-model-00001-of-00001.safetensors"]);
    }

    #[test]
    fn shards_have_every_row_once() {
        // Rows and shards; rows of each, as `torch.chunk` has them.
        for (rows, count, wanted) in [(8, 2, vec![4, 4]), (5, 4, vec![2, 2, 1]), (3, 4, vec![1, 1, 1]), (7, 1, vec![7])]
        {
            let all = tensor("a", rows);
            let shards: Vec<Planned> = (0..count).filter_map(|number| all.shard(number, count)).collect();
            assert_eq!(shards.iter().map(|shard| shard.shape[0]).collect::<Vec<_>>(), wanted);
            let ends: Vec<usize> = shards.iter().map(|shard| shard.range().end).collect();
            assert!(shards.iter().skip(1).zip(&ends).all(|(shard, &end)| shard.range().start == end));
            assert_eq!(*ends.last().unwrap() as u64, all.bytes());
        }
        let scalar = Planned { shape: Vec::new(), ..tensor("s", 1) };
        assert_eq!((scalar.shard(0, 2), scalar.shard(1, 2)), (Some(scalar.clone()), None));
    }
}
