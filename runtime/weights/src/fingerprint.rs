//! Fingerprints of weights: by them processes compare what they begin from, wherever their files are.

use crate::error::Error;
use crate::folder::FileTensor;
use crate::import::Weights;
use crc32fast::Hasher;

/// The most tensors of which elements are looked at, and the bytes of each at its start, in its middle and at its end.
const SAMPLED: usize = 4096;
const BLOCK: usize = 256;

impl Weights {
    /// The CRC-32 of the names, shapes and formats of all tensors, and of some elements of tensors spread over them.
    ///
    /// # Errors
    /// A file has become shorter, or cannot be read.
    pub fn fingerprint(&self) -> Result<u32, Error> {
        let mut hasher = Hasher::new();
        let tensors = &self.folder.tensors;
        let step = tensors.len().div_ceil(SAMPLED).max(1);
        for (number, (name, tensor)) in tensors.iter().enumerate() {
            hasher.update(name.as_bytes());
            hasher.update(format!(" {:?} {:?}\n", tensor.format, tensor.shape).as_bytes());
            if number % step == 0 {
                self.hash_elements(tensor, &mut hasher)?;
            }
        }
        Ok(hasher.finalize())
    }

    fn hash_elements(&self, tensor: &FileTensor, hasher: &mut Hasher) -> Result<(), Error> {
        let bytes = tensor.length();
        let length = bytes.min(BLOCK);
        for start in [0, (bytes - length) / 2, bytes - length] {
            hasher.update(&self.folder.bytes(tensor, start..start + length)?);
        }
        Ok(())
    }
}
