//! Keys of random numbers.

/// A key of random numbers: the halves of the FNV-1a 64-bit hash of the parts laid end to end, the lower first
/// (Fowler, Noll, Vo; offset basis 0xcbf29ce484222325, prime 0x100000001b3).
pub fn key(parts: &[&[u8]]) -> [u32; 2] {
    let hash = parts
        .iter()
        .flat_map(|part| part.iter())
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    [hash as u32, (hash >> 32) as u32]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv_1a() {
        // The authors' test vector for "foobar".
        assert_eq!(key(&[b"foo", b"bar"]), [0xf739_67e8, 0x8594_4171]);
    }
}
