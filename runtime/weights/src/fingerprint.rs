//! Fingerprints of weights: by them processes compare what they begin from, wherever their files are.

use crate::error::Error;
use crate::folder::FileTensor;
use crate::import::Weights;
use crc32fast::Hasher;
use data::tokens::Extent;

/// The most tensors whose elements are looked at, the blocks of each, spread over it, and the bytes of a block.
const SAMPLED: usize = 4096;
const BLOCKS: usize = 16;
const BLOCK: usize = 256;

/// The most bytes that are read at a time.
const PIECE: usize = 1 << 20;

impl Weights {
    /// The CRC-32 of the names, shapes and formats of all tensors, and of all their elements or of blocks spread over them.
    ///
    /// # Errors
    /// A file has become shorter, or cannot be read.
    pub fn fingerprint(&self, extent: Extent) -> Result<u32, Error> {
        let mut hasher = Hasher::new();
        let tensors = &self.folder.tensors;
        let step = tensors.len().div_ceil(SAMPLED).max(1);
        for (number, (name, tensor)) in tensors.iter().enumerate() {
            hasher.update(name.as_bytes());
            hasher.update(format!(" {:?} {:?}\n", tensor.format, tensor.shape).as_bytes());
            match extent {
                Extent::Whole => self.hash_all(tensor, &mut hasher)?,
                Extent::Sampled if number % step == 0 => self.hash_blocks(tensor, &mut hasher)?,
                Extent::Sampled => {}
            }
        }
        Ok(hasher.finalize())
    }

    fn hash_all(&self, tensor: &FileTensor, hasher: &mut Hasher) -> Result<(), Error> {
        for start in (0..tensor.length()).step_by(PIECE) {
            let end = tensor.length().min(start + PIECE);
            hasher.update(&self.folder.bytes(tensor, start..end)?);
        }
        Ok(())
    }

    fn hash_blocks(&self, tensor: &FileTensor, hasher: &mut Hasher) -> Result<(), Error> {
        let bytes = tensor.length();
        if bytes <= BLOCKS * BLOCK {
            return self.hash_all(tensor, hasher);
        }
        for block in 0..BLOCKS {
            let start = block * (bytes - BLOCK) / (BLOCKS - 1);
            hasher.update(&self.folder.bytes(tensor, start..start + BLOCK)?);
        }
        Ok(())
    }
}
