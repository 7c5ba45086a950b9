//! Random numbers as a pure function of a key and a counter, so that they depend on neither sharding nor order.
//!
//! The generator is Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
//! Number `c` of a key is word `c mod 4` of the block whose 128-bit counter is `c / 4`. A key is the FNV-1a 64-bit hash
//! (offset basis 0xcbf29ce484222325, prime 0x100000001b3) of some bytes, lower half first:
//!
//! | use | bytes of the key | counter |
//! |---|---|---|
//! | first numbers of a parameter | seed, 8 bytes little endian; instance name | linear logical index of the element |
//! | dropout | seed, step, index, 8 bytes each little endian; path | linear logical index within the step's batch |
//!
//! The step counts from 1. The index is the repeat variable of the block's instance (0 outside a repeat), so layers differ.
//! In dropout, dim 0 of the tensor is the batch dim. Row `i` of micro-batch `m` is row `m size(dim 0) + i` of the step's
//! batch, so the counter is `m elements + index within the micro-batch`. Dropout in attention is that of the softmax as a
//! tensor `[b, s, g, r, t]`.

/// The key of a parameter's first numbers.
pub fn parameter_key(seed: u64, name: &str) -> [u32; 2] {
    key(&[&seed.to_le_bytes(), name.as_bytes()])
}

/// The key of a dropout in a step, in the run of a block whose repeat variable is `index`.
pub fn dropout_key(seed: u64, step: u64, index: u64, path: &str) -> [u32; 2] {
    key(&[&seed.to_le_bytes(), &step.to_le_bytes(), &index.to_le_bytes(), path.as_bytes()])
}

/// The halves of the FNV-1a 64-bit hash, the lower first.
fn key(parts: &[&[u8]]) -> [u32; 2] {
    let bytes = parts.iter().flat_map(|part| part.iter());
    let hash = bytes
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    [hash as u32, (hash >> 32) as u32]
}

/// The block at a counter, upper half 0: ten rounds.
fn philox(mut key: [u32; 2], counter: u64) -> [u32; 4] {
    let mut x = [counter as u32, (counter >> 32) as u32, 0, 0];
    for _ in 0..10 {
        let low = 0xD251_1F53 * u64::from(x[0]);
        let high = 0xCD9E_8D57 * u64::from(x[2]);
        x = [(high >> 32) as u32 ^ x[1] ^ key[0], high as u32, (low >> 32) as u32 ^ x[3] ^ key[1], low as u32];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    x
}

/// Uniform in `[0, 1)`: the upper 24 bits of number `counter`, over 2^24.
pub fn uniform(key: [u32; 2], counter: u64) -> f32 {
    let word = philox(key, counter / 4)[(counter % 4) as usize];
    (word >> 8) as f32 / 16_777_216.0
}

/// Standard normal, rounded to f32: Box and Muller's cosine (even counters) or sine (odd) of the pair of words that
/// number `counter` belongs to, each word `w` taken as `(w + 1/2) / 2^32`.
pub fn normal(key: [u32; 2], counter: u64) -> f32 {
    let block = philox(key, counter / 4);
    let first = if counter % 4 < 2 { 0 } else { 2 };
    let [u, v] = [block[first], block[first + 1]].map(|word| (f64::from(word) + 0.5) / 4_294_967_296.0);
    let angle = std::f64::consts::TAU * v;
    let side = if counter.is_multiple_of(2) { angle.cos() } else { angle.sin() };
    ((-2.0 * u.ln()).sqrt() * side) as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generator_and_hash_give_the_published_numbers() {
        // Random123's known answer for philox4x32-10; the FNV authors' test vector for "foobar".
        assert_eq!(philox([0, 0], 0), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(key(&[b"foo", b"bar"]), [0xf739_67e8, 0x8594_4171]);
    }

    #[test]
    fn the_kernels_draw_the_same() {
        let key = parameter_key(7, "layer.3.w1");
        for counter in (0..1000).chain((1 << 40)..(1 << 40) + 9) {
            assert_eq!(uniform(key, counter), kernels::cpu::dropout::uniform(key, counter));
            assert_eq!(normal(key, counter), kernels::cpu::dropout::normal(key, counter));
        }
    }
}
