//! A file of an example, and the files of a folder.

use super::super::tokens::NO_LABEL;
use super::super::{DataError, Role};
use device::host;
use ir::models::Vision;
use ir::types::DType;
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use support::positioned::{PositionedFile, ReadError};

/// Bytes of the length of a header.
const LENGTH: u64 = 8;

/// The most bytes of a header.
const MOST_HEADER: u64 = 1 << 20;

/// The examples of a folder, in the order of the names of their files.
#[derive(Debug)]
pub struct ImageExamples {
    path: PathBuf,
    role: Role,
    /// The examples.
    pub(super) files: Vec<ExampleFile>,
}

/// A file of an example.
#[derive(Debug)]
pub struct ExampleFile {
    path: PathBuf,
    /// Its tokens.
    pub(super) ids: Vec<i32>,
    /// A label for each token, as the file has it.
    labels: Option<Vec<i32>>,
    /// Height and width of its images, in pixels.
    pub(super) sizes: Vec<[usize; 2]>,
    /// The element type, the sizes and the place of the pixels.
    pixels: Option<(DType, [usize; 4], [u64; 2])>,
    /// Checksum of all but the pixels.
    crc: u32,
}

/// A fault of a file.
fn damaged(path: &Path, why: impl Into<String>) -> DataError {
    DataError::Damaged { path: path.into(), why: why.into() }
}

fn unread(path: &Path, why: ReadError) -> DataError {
    match why {
        ReadError::CutShort { now, opened } => DataError::CutShort { path: path.into(), now, opened },
        ReadError::System(source) => DataError::Unreadable { path: path.into(), source },
    }
}

impl ImageExamples {
    /// Opens the examples of a folder for an encoder, and holds out the last ones: a share of them, and at least one. Without a share
    /// all are of one side.
    ///
    /// # Errors
    /// There is no folder of such files, or one of them is damaged or no example for the encoder.
    pub fn open(folder: &Path, vision: &Vision, share: Option<f64>) -> Result<[ImageExamples; 2], DataError> {
        let unreadable = |source: std::io::Error| match source.kind() {
            ErrorKind::NotFound => DataError::Missing { path: folder.into() },
            _ => DataError::Unreadable { path: folder.into(), source },
        };
        let mut names = Vec::new();
        for entry in std::fs::read_dir(folder).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            if path.extension().and_then(OsStr::to_str) == Some("safetensors") {
                names.push(path);
            }
        }
        names.sort();
        let mut files = names.iter().map(|path| ExampleFile::open(path, vision)).collect::<Result<Vec<_>, _>>()?;
        let held_out = share.map_or(0, |share| ((files.len() as f64 * share).ceil() as usize).max(1));
        if files.len() <= held_out {
            return Err(DataError::FewExamples { path: folder.into(), files: files.len() });
        }
        let valid = files.split_off(files.len() - held_out);
        let of = |role, files| ImageExamples { path: folder.into(), role, files };
        Ok([of(Role::Training, files), of(Role::HeldOut, valid)])
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The half of the split.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The same examples as the held-out half.
    #[must_use]
    pub fn held_out(self) -> ImageExamples {
        ImageExamples { role: Role::HeldOut, ..self }
    }

    /// The number of examples.
    pub fn examples(&self) -> usize {
        self.files.len()
    }

    /// The number of tokens.
    pub fn tokens(&self) -> usize {
        self.files.iter().map(|file| file.ids.len()).sum()
    }

    /// Checksum of all but the pixels.
    pub fn checksum(&self) -> u32 {
        let mut hash = crc32fast::Hasher::new();
        self.files.iter().for_each(|file| hash.update(&file.crc.to_le_bytes()));
        hash.finalize()
    }

    /// Checks that a model has the tokens.
    ///
    /// # Errors
    /// It does not.
    pub fn check_vocabulary(&self, vocabulary: u64) -> Result<(), DataError> {
        for (document, file) in self.files.iter().enumerate() {
            let ids = file.ids.iter().chain(file.labels.iter().flatten().filter(|label| **label >= 0));
            if let Some(&id) = ids.into_iter().find(|id| u64::try_from(**id).map_or(true, |id| id >= vocabulary)) {
                let (path, document, id) = (file.path.clone(), document as u64, id as u32);
                return Err(DataError::OutOfRange { path, document, id, vocabulary });
            }
        }
        Ok(())
    }
}

impl ExampleFile {
    /// Opens a file, and reads all but its pixels.
    fn open(path: &Path, vision: &Vision) -> Result<ExampleFile, DataError> {
        let file = PositionedFile::open(path).map_err(|source| DataError::Unreadable { path: path.into(), source })?;
        let head = file.read(0..file.bytes().min(LENGTH)).map_err(|why| unread(path, why))?;
        let length = head.try_into().map(u64::from_le_bytes).ok();
        let length = length.filter(|length| *length <= MOST_HEADER && LENGTH + length <= file.bytes());
        let start = LENGTH + length.ok_or_else(|| damaged(path, "is no safetensors file of an example"))?;
        let text = file.read(LENGTH..start).map_err(|why| unread(path, why))?;
        let header: Metadata =
            serde_json::from_slice(&text).map_err(|why| damaged(path, format!("is no safetensors file: {why}")))?;
        let tensors = header.tensors();
        let integers = |name: &str| -> Result<Option<Vec<i32>>, DataError> {
            let Some(info) = tensors.get(name) else { return Ok(None) };
            let (from, to) = (start + info.data_offsets.0 as u64, start + info.data_offsets.1 as u64);
            let bytes = file.read(from..to).map_err(|why| unread(path, why))?;
            integers_of(info, &bytes)
                .map(Some)
                .ok_or_else(|| damaged(path, format!("has a `{name}` that is not of integers")))
        };
        let ids = integers("input_ids")?.ok_or_else(|| damaged(path, "has no `input_ids`"))?;
        let (labels, sizes) = (integers("labels")?, integers("image_sizes")?);
        let pixels = match tensors.get("pixel_values") {
            Some(info) => Some(pixels_of(info, start).ok_or_else(|| damaged(path, PIXELS))?),
            None => None,
        };
        let mut hash = crc32fast::Hasher::new_with_initial(crc32fast::hash(&text));
        ids.iter().chain(labels.iter().flatten()).for_each(|id| hash.update(&id.to_le_bytes()));
        let sizes = sizes_of(sizes, pixels.map(|(_, dims, _)| dims)).map_err(|why| damaged(path, why))?;
        let example = ExampleFile { path: path.into(), ids, labels, sizes, pixels, crc: hash.finalize() };
        example.check(vision).map_err(|why| damaged(path, why))?;
        Ok(example)
    }

    /// Checks that an encoder can read the example.
    fn check(&self, vision: &Vision) -> Result<(), String> {
        if self.ids.is_empty() {
            return Err("has no tokens".to_string());
        }
        if let Some(labels) = self.labels.as_ref().filter(|labels| labels.len() != self.ids.len()) {
            return Err(format!("has {} tokens, but {} labels", self.ids.len(), labels.len()));
        }
        let channels = self.pixels.map_or(vision.channels, |(_, dims, _)| dims[1] as u64);
        if channels != vision.channels {
            return Err(format!("has pixels of {channels} numbers, but the encoder reads {}", vision.channels));
        }
        let row = (vision.side * vision.projector.merge.unwrap_or(1)) as usize;
        if let Some([height, width]) =
            self.sizes.iter().find(|size| size.iter().any(|side| side % row != 0 || *side == 0))
        {
            return Err(format!(
                "has an image of {height} x {width} pixels, which are no whole rows of {row} x {row} pixels"
            ));
        }
        let (rows, tokens) = (self.rows(vision), self.ids.iter().filter(|id| **id as u64 == vision.token).count());
        if rows != tokens {
            return Err(format!("has {tokens} tokens {} for {rows} rows of images", vision.token));
        }
        Ok(())
    }

    /// The file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Patches of its images.
    pub(super) fn patches(&self, vision: &Vision) -> usize {
        let side = vision.side as usize;
        self.sizes.iter().map(|[height, width]| height / side * (width / side)).sum()
    }

    /// Rows of its images.
    pub(super) fn rows(&self, vision: &Vision) -> usize {
        self.patches(vision) / vision.merged() as usize
    }

    /// True if it has labels of its own.
    pub(super) fn has_labels(&self) -> bool {
        self.labels.is_some()
    }

    /// The labels of its first `inputs` tokens: each is that of the token behind. Without labels of its own all tokens but those of
    /// images count.
    pub(super) fn targets(&self, inputs: usize, vision: &Vision) -> impl Iterator<Item = i32> {
        let label = move |at: usize| match &self.labels {
            Some(labels) => labels.get(at).copied().filter(|&label| label >= 0),
            None => self.ids.get(at).copied().filter(|&id| id as u64 != vision.token),
        };
        (1..=inputs).map(move |at| label(at).unwrap_or(NO_LABEL))
    }

    /// Reads the pixels of all images, each `[channels, height, width]` of the size to which all are padded, which comes with them.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn pixels(&self) -> Result<(Vec<f32>, [usize; 4]), DataError> {
        let Some((dtype, dims, [from, to])) = self.pixels else { return Ok((Vec::new(), [0; 4])) };
        let file = PositionedFile::open(&self.path);
        let file = file.map_err(|source| DataError::Unreadable { path: self.path.clone(), source })?;
        let bytes = file.read(from..to).map_err(|why| unread(&self.path, why))?;
        Ok((host::numbers(dtype, &bytes), dims))
    }
}

/// The fault of pixels.
const PIXELS: &str = "has `pixel_values` that are not [images, channels, height, width] of f32, bf16 or f16";

/// The integers of a tensor.
fn integers_of(info: &TensorInfo, bytes: &[u8]) -> Option<Vec<i32>> {
    match info.dtype {
        Dtype::I32 => bytes.chunks_exact(4).map(|id| Some(i32::from_le_bytes(id.try_into().ok()?))).collect(),
        Dtype::I64 => {
            bytes.chunks_exact(8).map(|id| i32::try_from(i64::from_le_bytes(id.try_into().ok()?)).ok()).collect()
        }
        _ => None,
    }
}

/// The element type, sizes and place of pixels in a file whose first element is at the byte `start`.
fn pixels_of(info: &TensorInfo, start: u64) -> Option<(DType, [usize; 4], [u64; 2])> {
    let dtype = match info.dtype {
        Dtype::F32 => DType::F32,
        Dtype::BF16 => DType::BF16,
        Dtype::F16 => DType::F16,
        _ => return None,
    };
    let place = [start + info.data_offsets.0 as u64, start + info.data_offsets.1 as u64];
    Some((dtype, info.shape.as_slice().try_into().ok()?, place))
}

/// The sizes of images: stated, or those of the pixels.
fn sizes_of(stated: Option<Vec<i32>>, pixels: Option<[usize; 4]>) -> Result<Vec<[usize; 2]>, String> {
    let Some([images, _, height, width]) = pixels else { return Ok(Vec::new()) };
    let Some(stated) = stated else { return Ok(vec![[height, width]; images]) };
    let sizes: Vec<[usize; 2]> =
        stated.chunks_exact(2).map(|size| [size[0], size[1]].map(|side| usize::try_from(side).unwrap_or(0))).collect();
    match sizes.len() == images && sizes.iter().all(|size| size[0] <= height && size[1] <= width) {
        true => Ok(sizes),
        false => {
            Err(format!("has `image_sizes` that are not those of {images} images of at most {height} x {width} pixels"))
        }
    }
}
