//! Archives of `torch.export` as folders of one file, where a build reads them: with the feature `pt2`.

use crate::error::Error;
use crate::folder::{FileTensor, Folder};
use pt2::{Export, StoredTensor};
use safetensors::Dtype;
use std::path::Path;
use support::positioned::PositionedFile;

/// Opens an archive and compares it with its checksums. Tensors that are no floats in row-major order are left out.
///
/// # Errors
/// The archive cannot be read, or is damaged.
pub(crate) fn open_archive(path: &Path) -> Result<Folder, Error> {
    let export = Export::open(path)?;
    export.check_sums()?;
    let file = PositionedFile::open(path).map_err(|why| Error::file("read", path, why))?;
    let tensors = export.tensors().iter().filter_map(|(name, tensor)| Some((name.clone(), place(tensor)?)));
    Ok(Folder { path: path.to_path_buf(), tensors: tensors.collect(), files: vec![(path.to_path_buf(), file)] })
}

/// The place of a tensor of floats in row-major order.
fn place(tensor: &StoredTensor) -> Option<FileTensor> {
    let format = match tensor.dtype {
        6 => Dtype::F16,
        7 => Dtype::F32,
        // Who loads it says that its elements are not read.
        8 => Dtype::F64,
        13 => Dtype::BF16,
        _ => return None,
    };
    let place = FileTensor { file: 0, format, shape: tensor.sizes.clone(), bytes: tensor.bytes.clone() };
    tensor.is_contiguous.then_some(place)
}
