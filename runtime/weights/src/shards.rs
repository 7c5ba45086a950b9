//! Files of tensors that are written one after the other: each header is known before the first element is made.

use crate::error::Error;
use crate::folder::{INDEX, SINGLE};
use ir::types::DType;
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Bytes of the length of a header, and what a header is aligned to.
const LENGTH: usize = 8;

/// A tensor to be written.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Planned {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<u64>,
}

impl Planned {
    pub(crate) fn elements(&self) -> u64 {
        self.shape.iter().product()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.elements() * self.dtype.bytes()
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

/// The names of `count` files.
pub(crate) fn names(count: usize) -> Vec<String> {
    if count == 1 {
        return vec![SINGLE.to_string()];
    }
    (1..=count).map(|number| format!("model-{number:05}-of-{count:05}.safetensors")).collect()
}

/// Writes one file, whose tensors `make` gives as bytes, and sees that it is on the disk.
///
/// # Errors
/// The system refuses, or `make` fails.
pub(crate) fn write(
    path: &Path,
    tensors: &[Planned],
    mut make: impl FnMut(&Planned) -> Result<Vec<u8>, Error>,
) -> Result<(), Error> {
    let refused = |why: io::Error| Error::file("write", path, why);
    let header = header(tensors).map_err(refused)?;
    let mut out = BufWriter::with_capacity(1 << 20, File::create(path).map_err(refused)?);
    out.write_all(&(header.len() as u64).to_le_bytes()).and_then(|()| out.write_all(&header)).map_err(refused)?;
    for tensor in tensors {
        let bytes = make(tensor)?;
        debug_assert_eq!(bytes.len() as u64, tensor.bytes(), "{}", tensor.name);
        out.write_all(&bytes).map_err(refused)?;
    }
    out.into_inner().map_err(io::IntoInnerError::into_error).and_then(|file| file.sync_all()).map_err(refused)
}

/// The index of files: the file of each tensor.
///
/// # Errors
/// The system refuses.
pub(crate) fn write_index(folder: &Path, files: &[Vec<Planned>]) -> Result<(), Error> {
    let names = names(files.len());
    let all = || files.iter().zip(&names).flat_map(|(file, name)| file.iter().map(move |tensor| (tensor, name)));
    let map: BTreeMap<&str, &str> = all().map(|(tensor, name)| (tensor.name.as_str(), name.as_str())).collect();
    let (bytes, elements) = all().fold((0, 0), |(b, e), (tensor, _)| (b + tensor.bytes(), e + tensor.elements()));
    let index = json!({"metadata": {"total_parameters": elements, "total_size": bytes}, "weight_map": map});
    write_json(&folder.join(INDEX), &index)
}

/// Writes a JSON file as `transformers` does.
///
/// # Errors
/// The system refuses.
pub(crate) fn write_json(path: &Path, value: &serde_json::Value) -> Result<(), Error> {
    let refused = |why: io::Error| Error::file("write", path, why);
    let text = serde_json::to_string_pretty(value).map_err(|why| refused(why.into()))? + "\n";
    let mut file = File::create(path).map_err(refused)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(refused)
}

fn header(tensors: &[Planned]) -> io::Result<Vec<u8>> {
    let mut end = 0;
    let info = |tensor: &Planned| {
        let start = end;
        end += tensor.bytes() as usize;
        let shape = tensor.shape.iter().map(|&size| size as usize).collect();
        (tensor.name.clone(), TensorInfo { dtype: format(tensor.dtype), shape, data_offsets: (start, end) })
    };
    // Without this, `transformers` does not take a file for one of PyTorch's.
    let more = [("format".to_string(), "pt".to_string())].into_iter().collect();
    let header = Metadata::new(Some(more), tensors.iter().map(info).collect());
    let header = header.map_err(|why| io::Error::other(why.to_string()))?;
    let mut text = serde_json::to_vec(&header)?;
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

    #[test]
    fn files_are_filled_in_order() {
        let tensor = |name: &str, size: u64| Planned { name: name.into(), dtype: DType::BF16, shape: vec![size, 2] };
        let sizes = |most: u64| -> Vec<Vec<u64>> {
            let files = split(vec![tensor("a", 2), tensor("b", 9), tensor("c", 1), tensor("d", 1)], most);
            files.iter().map(|file| file.iter().map(Planned::bytes).collect()).collect()
        };
        assert_eq!(sizes(10), [vec![8], vec![36], vec![4, 4]]);
        assert_eq!(sizes(1 << 20), [vec![8, 36, 4, 4]]);
        assert_eq!((names(1), &*names(12)[11]), (vec![SINGLE.to_string()], "model-00012-of-00012.safetensors"));
    }
}
