//! Numbers on the host and the bytes that store them.
//!
//! Every format is part of f32, so that numbers of a tensor of any format are f32 here, and only memory and files have bytes.

use crate::backend::{Memory, Span};
use ir::types::DType;
use kernels::cpu::Par;
use kernels::cpu::narrow::{Narrow, round, widen};
use std::borrow::Cow;

/// The format, if it is narrower than f32.
pub fn narrow(dtype: DType) -> Option<Narrow> {
    match dtype {
        DType::F32 | DType::I32 => None,
        DType::BF16 => Some(Narrow::Bf16),
        DType::F16 => Some(Narrow::F16),
        DType::F8E4M3 => Some(Narrow::F8E4M3),
        DType::F8E5M2 => Some(Narrow::F8E5M2),
    }
}

/// The bytes that store numbers; they are rounded to a narrow format.
pub fn stored(dtype: DType, numbers: &[f32]) -> Cow<'_, [u8]> {
    let Some(format) = narrow(dtype) else { return Cow::Borrowed(bytes_of(numbers)) };
    let mut bytes = vec![0; numbers.len() * format.bytes()];
    round(format, numbers, &mut bytes, Par(1));
    Cow::Owned(bytes)
}

/// The numbers that bytes store.
///
/// # Panics
/// If the bytes are not whole elements.
pub fn numbers(dtype: DType, stored: &[u8]) -> Vec<f32> {
    let mut numbers = vec![0.0; stored.len() / dtype.bytes() as usize];
    match narrow(dtype) {
        Some(format) => widen(format, stored, &mut numbers, Par(1)),
        None => bytes_of_mut(&mut numbers).copy_from_slice(stored),
    }
    numbers
}

/// Writes numbers to a place.
///
/// # Panics
/// If the place has not as many elements.
pub fn put(memory: &mut (impl Memory + ?Sized), to: Span, numbers: &[f32]) {
    memory.write(to, &stored(to.dtype, numbers));
}

/// The numbers at a place.
pub fn get(memory: &mut (impl Memory + ?Sized), from: Span) -> Vec<f32> {
    let mut bytes = vec![0; from.bytes()];
    memory.read(from, &mut bytes);
    numbers(from.dtype, &bytes)
}

/// Element types of four bytes, all of whose bit patterns are values.
pub trait Word: Copy {}

impl Word for f32 {}
impl Word for i32 {}

/// The bytes of elements.
pub fn bytes_of<T: Word>(elements: &[T]) -> &[u8] {
    // SAFETY: a word has no padding, and bytes no alignment.
    unsafe { std::slice::from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}

/// The bytes of elements, to be written.
pub fn bytes_of_mut<T: Word>(elements: &mut [T]) -> &mut [u8] {
    // SAFETY: as in `bytes_of`; every bit pattern is a value.
    unsafe { std::slice::from_raw_parts_mut(elements.as_mut_ptr().cast(), size_of_val(elements)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_stored_in_every_format() {
        let given = [1.0, -0.5, 96.0, 0.0];
        for (dtype, _) in DType::ALL.iter().filter(|(dtype, _)| dtype.is_float()) {
            let bytes = stored(*dtype, &given);
            assert_eq!(bytes.len() as u64, 4 * dtype.bytes());
            assert_eq!(numbers(*dtype, &bytes), given, "{dtype:?}");
        }
        assert_eq!(*stored(DType::BF16, &[1.0 + 1.0 / 512.0]), [0x80, 0x3f]);
    }
}
