//! A file of an example.

use super::super::DataError;
use super::super::tokens::NO_LABEL;
use super::fault::ExampleFault;
use super::pixels::{PixelForm, ReadPixels, StoredPixels, patches_of, sizes_of};
use device::host;
use ir::models::Vision;
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use std::path::{Path, PathBuf};
use support::positioned::{PositionedFile, ReadError};

/// Bytes of the length of a header.
const LENGTH: u64 = 8;

/// The most bytes of a header.
const MOST_HEADER: u64 = 1 << 20;

/// An example with images, all of which but the pixels is in memory.
#[derive(Debug)]
pub(super) struct ExampleFile {
    pub(super) path: PathBuf,
    /// Its tokens.
    pub(super) ids: Vec<i32>,
    /// A label for each token, as the file has it.
    pub(super) labels: Option<Vec<i32>>,
    /// Height and width of its images, in pixels.
    pub(super) sizes: Vec<[usize; 2]>,
    /// The place of the pixels, if there are any.
    pixels: Option<StoredPixels>,
    /// Checksum of all but the pixels.
    pub(super) crc: u32,
}

/// An open file, and its header.
struct OpenFile<'a> {
    path: &'a Path,
    file: PositionedFile,
    header: Metadata,
    /// The first byte behind the header.
    start: u64,
    /// Checksum of the header.
    crc: u32,
}

impl<'a> OpenFile<'a> {
    fn new(path: &'a Path) -> Result<OpenFile<'a>, DataError> {
        let file = PositionedFile::open(path).map_err(|source| DataError::Unreadable { path: path.into(), source })?;
        let bytes = file.bytes();
        let mut length = [0; LENGTH as usize];
        if bytes < LENGTH {
            return Err(damaged(path, &ExampleFault::Length(bytes)));
        }
        file.read_at(0, &mut length).map_err(|why| unread(path, why))?;
        let start = LENGTH.saturating_add(u64::from_le_bytes(length));
        if start > bytes.min(LENGTH + MOST_HEADER) {
            return Err(damaged(path, &ExampleFault::Header("its header is too long".to_string())));
        }
        let text = file.read(LENGTH..start).map_err(|why| unread(path, why))?;
        let header: Metadata =
            serde_json::from_slice(&text).map_err(|why| damaged(path, &ExampleFault::Header(why.to_string())))?;
        let end = header.tensors().values().map(|info| info.data_offsets.1 as u64).max().unwrap_or(0);
        if start.checked_add(end) != Some(bytes) {
            return Err(damaged(path, &ExampleFault::Length(bytes)));
        }
        Ok(OpenFile { path, file, header, start, crc: crc32fast::hash(&text) })
    }

    /// The bytes of a tensor in the file.
    fn bytes_of(&self, info: &TensorInfo) -> [u64; 2] {
        [info.data_offsets.0, info.data_offsets.1].map(|offset| self.start + offset as u64)
    }

    /// The integers of a tensor, if it is there.
    fn integers(&self, name: &'static str) -> Result<Option<Vec<i32>>, DataError> {
        let tensors = self.header.tensors();
        let Some(info) = tensors.get(name) else { return Ok(None) };
        let [from, to] = self.bytes_of(info);
        let bytes = self.file.read(from..to).map_err(|why| unread(self.path, why))?;
        let integers = integers_of(info, &bytes);
        integers.map(Some).ok_or_else(|| damaged(self.path, &ExampleFault::Integers(name)))
    }

    /// The pixels, if there are any.
    fn pixels(&self) -> Result<Option<StoredPixels>, DataError> {
        let tensors = self.header.tensors();
        let Some(info) = tensors.get("pixel_values") else { return Ok(None) };
        let Some((dtype, form)) = PixelForm::of(info) else {
            return Err(damaged(self.path, &ExampleFault::Pixels { of_patches: info.shape.len() == 2 }));
        };
        Ok(Some(StoredPixels { dtype, form, bytes: self.bytes_of(info) }))
    }
}

impl ExampleFile {
    /// Opens a file, and reads all but its pixels.
    ///
    /// # Errors
    /// It cannot be read, or is no example for the encoder.
    pub(super) fn open(path: &Path, vision: &Vision) -> Result<ExampleFile, DataError> {
        let open = OpenFile::new(path)?;
        let ids = open.integers("input_ids")?.ok_or_else(|| damaged(path, &ExampleFault::Missing("input_ids")))?;
        let (labels, pixels) = (open.integers("labels")?, open.pixels()?);
        let [stated, grid] = [open.integers("image_sizes")?, open.integers("image_grid_thw")?];
        let sizes = match pixels {
            None => Vec::new(),
            Some(StoredPixels { form, .. }) => {
                let sizes = form.check(vision).and_then(|()| sizes_of(stated, grid, form, vision));
                sizes.map_err(|why| damaged(path, &why))?
            }
        };
        let mut hash = crc32fast::Hasher::new_with_initial(open.crc);
        ids.iter().chain(labels.iter().flatten()).for_each(|id| hash.update(&id.to_le_bytes()));
        let example = ExampleFile { path: path.into(), ids, labels, sizes, pixels, crc: hash.finalize() };
        example.check(vision).map_err(|why| damaged(path, &why))?;
        Ok(example)
    }

    /// Checks that an encoder can read the example.
    fn check(&self, vision: &Vision) -> Result<(), ExampleFault> {
        let tokens = self.ids.len();
        if tokens == 0 {
            return Err(ExampleFault::Empty);
        }
        if let Some(labels) = self.labels.as_ref().map(Vec::len).filter(|labels| *labels != tokens) {
            return Err(ExampleFault::Labels { tokens, labels });
        }
        let row = (vision.side * vision.projector.merge.unwrap_or(1)) as usize;
        let mut sizes = self.sizes.iter();
        if let Some(&size) = sizes.find(|size| size.iter().any(|side| *side == 0 || !side.is_multiple_of(row))) {
            return Err(ExampleFault::Rows { size, row });
        }
        let token = vision.token;
        let (rows, tokens) = (self.rows(vision), self.ids.iter().filter(|id| is_token(**id, token)).count());
        if rows == tokens { Ok(()) } else { Err(ExampleFault::Tokens { token, tokens, rows }) }
    }

    /// Patches of its images.
    pub(super) fn patches(&self, vision: &Vision) -> usize {
        self.sizes.iter().map(|&size| patches_of(size, vision)).sum()
    }

    /// Rows of its images.
    pub(super) fn rows(&self, vision: &Vision) -> usize {
        self.patches(vision) / vision.merged() as usize
    }

    /// The labels of its first `inputs` tokens: each is that of the token behind.
    pub(super) fn targets(&self, inputs: usize, vision: &Vision) -> impl Iterator<Item = i32> {
        (1..=inputs).map(|at| self.label(at, vision.token).unwrap_or(NO_LABEL))
    }

    /// The label of the token at a place, if there is one that counts. Without labels of its own all tokens but those of images count.
    fn label(&self, at: usize, image: u64) -> Option<i32> {
        match &self.labels {
            Some(labels) => labels.get(at).copied().filter(|&label| label >= 0),
            None => self.ids.get(at).copied().filter(|&id| !is_token(id, image)),
        }
    }

    /// Reads the pixels of all images.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn pixels(&self) -> Result<Option<ReadPixels>, DataError> {
        let Some(StoredPixels { dtype, form, bytes: [from, to] }) = self.pixels else { return Ok(None) };
        let file = PositionedFile::open(&self.path);
        let file = file.map_err(|source| DataError::Unreadable { path: self.path.clone(), source })?;
        let bytes = file.read(from..to).map_err(|why| unread(&self.path, why))?;
        Ok(Some(ReadPixels { numbers: host::numbers(dtype, &bytes), form }))
    }
}

/// True if an id is that of a token.
pub(super) fn is_token(id: i32, token: u64) -> bool {
    u64::try_from(id) == Ok(token)
}

/// A fault of a file.
pub(super) fn damaged(path: &Path, why: &ExampleFault) -> DataError {
    DataError::Damaged { path: path.into(), why: why.to_string() }
}

fn unread(path: &Path, why: ReadError) -> DataError {
    match why {
        ReadError::CutShort { now, opened } => DataError::CutShort { path: path.into(), now, opened },
        ReadError::System(source) => DataError::Unreadable { path: path.into(), source },
    }
}

/// The integers of a tensor; `None` if it is not of integers that fit in 32 bits.
fn integers_of(info: &TensorInfo, bytes: &[u8]) -> Option<Vec<i32>> {
    match info.dtype {
        Dtype::I32 => bytes.chunks_exact(4).map(|id| Some(i32::from_le_bytes(id.try_into().ok()?))).collect(),
        Dtype::I64 => {
            bytes.chunks_exact(8).map(|id| i32::try_from(i64::from_le_bytes(id.try_into().ok()?)).ok()).collect()
        }
        _ => None,
    }
}
