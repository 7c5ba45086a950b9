//! A quick hash for the keys of a search.

use std::hash::{BuildHasherDefault, Hasher};

/// A hash by multiplication, for keys that nobody chooses to our harm.
pub(super) type Multiplying = BuildHasherDefault<Product>;

/// Both halves of the product of what has come so far and an odd number, with each word.
#[derive(Default)]
pub(super) struct Product(u64);

impl Hasher for Product {
    fn write(&mut self, bytes: &[u8]) {
        for word in bytes.chunks(8) {
            let mut whole = [0; 8];
            whole[..word.len()].copy_from_slice(word);
            self.write_u64(u64::from_le_bytes(whole));
        }
    }

    fn write_u64(&mut self, word: u64) {
        // 2^64 over the golden ratio, made odd (Knuth 1998, section 6.4).
        let product = u128::from(self.0 ^ word) * 0x9E37_79B9_7F4A_7C15;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
