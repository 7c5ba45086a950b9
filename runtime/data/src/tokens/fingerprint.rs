//! Fingerprints of tokenised data: by them processes compare what they train on, wherever their files are.

use super::super::DataError;
use super::part::{TokenData, TokenPart};
use crc32fast::Hasher;
use std::ops::Range;

/// The part of all ids, or of all elements of weights, that a fingerprint covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Extent {
    /// Blocks spread over them, so that a large file is not read.
    Sampled,
    /// All.
    Whole,
}

/// Blocks of a part, and the ids of each.
const BLOCKS: usize = 1024;
const BLOCK: usize = 64;

/// The most ids that are read at a time.
const PIECE: usize = 1 << 16;

impl TokenData {
    /// The CRC-32 of the sizes, of the places of all documents, and of ids and labels.
    ///
    /// # Errors
    /// A file has become shorter, or cannot be read.
    pub fn fingerprint(&self, extent: Extent) -> Result<u32, DataError> {
        let mut hasher = Hasher::new();
        [&self.train, &self.valid].into_iter().try_for_each(|part| part.hash(extent, &mut hasher))?;
        Ok(hasher.finalize())
    }
}

impl TokenPart {
    fn hash(&self, extent: Extent, hasher: &mut Hasher) -> Result<(), DataError> {
        let tokens = self.tokens();
        hasher.update(&(tokens as u64).to_le_bytes());
        self.ends().iter().for_each(|end| hasher.update(&end.to_le_bytes()));
        let (count, length) = match extent {
            Extent::Sampled if tokens > BLOCKS * BLOCK => (BLOCKS, BLOCK),
            _ => (1, tokens),
        };
        for block in 0..count {
            let start = block * (tokens - length) / (count - 1).max(1);
            self.hash_ids(start..start + length, hasher)?;
        }
        Ok(())
    }

    /// Hashes ids and their labels by their places in the stream.
    fn hash_ids(&self, range: Range<usize>, hasher: &mut Hasher) -> Result<(), DataError> {
        let (mut at, mut ids, mut labels) = (range.start, Vec::new(), Vec::new());
        while at < range.end {
            let number = self.segment_of(at);
            let (start, length) = self.segment(number);
            let end = range.end.min(start + length).min(at + PIECE);
            ids.clear();
            self.read(number, at - start..end - start, &mut ids)?;
            ids.iter().for_each(|id| hasher.update(&id.to_le_bytes()));
            labels.clear();
            self.read_labels(number, at - start..end - start, &mut labels)?;
            labels.iter().for_each(|label| hasher.update(&label.to_le_bytes()));
            at = end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// The fingerprints of a file of 16-bit ids, sampled and whole.
    fn fingerprints(ids: &[u16]) -> [u32; 2] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ids.bin");
        fs::write(&path, ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>()).unwrap();
        let data = TokenData::open(&path, Some(&path), Some(super::super::Layout::Raw16), Some(0), 0.0);
        let data = data.unwrap().unwrap();
        [Extent::Sampled, Extent::Whole].map(|extent| data.fingerprint(extent).unwrap())
    }

    #[test]
    fn small_data_is_compared_whole_and_large_data_by_blocks() {
        let mut ids: Vec<u16> = (0..200_000u32).map(|at| (at * 7919 % 500) as u16).collect();
        let before = fingerprints(&ids);
        assert_eq!(before, fingerprints(&ids));
        // The first and the last block begin and end with the stream.
        for at in [0, 63, 199_999] {
            let was = std::mem::replace(&mut ids[at], 501);
            assert!(fingerprints(&ids)[0] != before[0], "{at}");
            ids[at] = was;
        }
        // The id after the first block is in no other.
        ids[64] = 501;
        let after = fingerprints(&ids);
        assert!(after[0] == before[0] && after[1] != before[1]);
        let [sampled, whole] = fingerprints(&ids[..1000]);
        assert_eq!(sampled, whole);
    }
}
