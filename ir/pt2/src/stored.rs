//! The tensors of an archive: parameters, buffers and constants by the names that the modules give them.

use crate::archive::Archive;
use crate::error::Error;
use crate::eval::{ElementKind, Item, MOST_ELEMENTS, Tensor};
use crate::fault::Fault;
use crate::schema::{TensorFile, TensorList, TensorMeta};
use half::{bf16, f16};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ops::Range;

/// A tensor of the archive.
#[derive(Clone, Debug)]
pub struct StoredTensor {
    /// Its element type by the number of the schema: 6 is f16, 7 f32 and 13 bf16.
    pub dtype: u64,
    /// Its sizes.
    pub sizes: Vec<u64>,
    /// Its bytes in the archive, in row-major order if `is_contiguous`.
    pub bytes: Range<usize>,
    /// The elements are in row-major order, without gaps.
    pub is_contiguous: bool,
    /// Strides and first element, in elements.
    layout: (Vec<usize>, usize),
}

/// The folders of tensors.
const FOLDERS: [&str; 2] = ["data/weights/", "data/constants/"];

/// All tensors of an archive.
///
/// # Errors
/// A list is wrong, names a file that is missing, or a file is shorter than its tensor.
pub(crate) fn stored(archive: &Archive) -> Result<BTreeMap<String, StoredTensor>, Error> {
    let mut tensors = BTreeMap::new();
    for folder in FOLDERS {
        for name in archive.names(folder).filter(|name| name.ends_with("_config.json")) {
            let text = archive.file(name)?.unwrap_or_default();
            let list: TensorList = serde_json::from_slice(&text)
                .map_err(|why| archive.damaged(format!("`{name}` is no list of tensors: {why}")))?;
            for (tensor, file) in list.config {
                let Some(found) =
                    tensor_of(archive, folder, &file).map_err(|why| archive.damaged(format!("`{tensor}`: {why}")))?
                else {
                    continue;
                };
                tensors.insert(tensor, found);
            }
        }
    }
    Ok(tensors)
}

/// A tensor of a list; none for one without elements, and for an object that is no tensor.
fn tensor_of(archive: &Archive, folder: &str, file: &TensorFile) -> Result<Option<StoredTensor>, Fault> {
    let Some(meta) = &file.tensor_meta else { return Ok(None) };
    if file.use_pickle {
        return Err(Fault::Unsupported(
            "is pickled Python, which is not read; export again with torch.export.save".to_string(),
        ));
    }
    let name = format!("{folder}{}", file.path_name);
    let bytes = archive.range(&name).ok_or_else(|| format!("its file `{name}` is missing"))?;
    let sizes = known(&meta.sizes).ok_or("its sizes are not numbers")?;
    let length = bytes.end - bytes.start;
    if length == 0 && !sizes.contains(&0) {
        // A tensor of the device `meta` has no elements.
        return Ok(None);
    }
    let contiguous = contiguous(&sizes);
    let strides = if meta.strides.is_empty() { Some(contiguous.clone()) } else { known(&meta.strides) };
    let strides = strides.filter(|strides| strides.len() == sizes.len()).ok_or("its strides are not numbers")?;
    let offset = meta.storage_offset.as_ref().map_or(Some(0), int).ok_or("its place is no number")?;
    let width = width(meta.dtype)
        .ok_or_else(|| Fault::Unsupported(format!("elements of type {} are not supported", meta.dtype)))?;
    let last = sizes
        .iter()
        .zip(&strides)
        .try_fold(offset, |last, (&size, &stride)| last.checked_add(size.saturating_sub(1).checked_mul(stride)?));
    let end = last.and_then(|last| last.checked_add(u64::from(!sizes.contains(&0)))?.checked_mul(width));
    if end.is_none_or(|end| end > length) {
        return Err(format!("its file `{name}` is cut off: {length} bytes are too few for sizes {sizes:?}").into());
    }
    let is_contiguous = strides == contiguous && offset == 0;
    let bytes = bytes.start as usize..bytes.end as usize;
    let layout = (strides.iter().map(|&stride| stride as usize).collect(), offset as usize);
    Ok(Some(StoredTensor { dtype: meta.dtype, sizes, bytes, is_contiguous, layout }))
}

fn int(size: &Value) -> Option<u64> {
    size.get("as_int")?.as_u64()
}

fn known(sizes: &[Value]) -> Option<Vec<u64>> {
    sizes.iter().map(int).collect()
}

/// The sizes of a parameter's type, if they are numbers.
pub(crate) fn sizes_of(meta: &TensorMeta) -> Option<Vec<u64>> {
    known(&meta.sizes)
}

fn contiguous(sizes: &[u64]) -> Vec<u64> {
    (0..sizes.len()).map(|d| sizes[d + 1..].iter().fold(1u64, |all, &size| all.saturating_mul(size))).collect()
}

/// Bytes of an element.
fn width(dtype: u64) -> Option<u64> {
    match dtype {
        1 | 2 | 12 => Some(1),
        3 | 6 | 13 => Some(2),
        4 | 7 => Some(4),
        5 | 8 => Some(8),
        _ => None,
    }
}

impl StoredTensor {
    /// The elements.
    ///
    /// # Errors
    /// There are more than the interpreter takes, or the archive cannot be read.
    pub(crate) fn read(&self, archive: &Archive) -> Result<Item, Fault> {
        let kind = ElementKind::of(self.dtype)
            .ok_or_else(|| Fault::Unsupported("its elements have a type that is not supported".to_string()))?;
        let sizes: Vec<usize> = self.sizes.iter().map(|&size| size as usize).collect();
        if self.sizes.iter().fold(1u64, |all, &size| all.saturating_mul(size)) > MOST_ELEMENTS as u64 {
            return Err(Fault::Unsupported("it is too large".to_string()));
        }
        let width = width(self.dtype).unwrap_or(1) as usize;
        let (strides, first) = &self.layout;
        // Elements may be few and far apart in a large file: what is outside of them is not read.
        let reach = sizes.iter().zip(strides).map(|(size, stride)| size.saturating_sub(1) * stride).sum::<usize>();
        let elements = if sizes.contains(&0) { 0 } else { reach + 1 };
        let [from, to] = [*first, first + elements].map(|at| (self.bytes.start + at * width) as u64);
        let bytes = archive.bytes(from..to).map_err(|why| why.to_string())?;
        let tensor = Tensor::from_fn(kind, &sizes, |index| {
            let at = index.iter().zip(strides).fold(0, |at, (i, stride)| at + i * stride) * width;
            element(self.dtype, &bytes[at..at + width])
        })
        .map_err(|why| why.to_string())?;
        Ok(tensor.into())
    }
}

/// An element of a type, from its bytes.
fn element(dtype: u64, bytes: &[u8]) -> f64 {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(wide);
    match dtype {
        1 | 12 => bits as f64,
        2 => f64::from(bits as i8),
        3 => f64::from(bits as i16),
        4 => f64::from(bits as i32),
        5 => bits as i64 as f64,
        6 => f16::from_bits(bits as u16).to_f64(),
        7 => f64::from(f32::from_bits(bits as u32)),
        8 => f64::from_bits(bits),
        _ => bf16::from_bits(bits as u16).to_f64(),
    }
}
