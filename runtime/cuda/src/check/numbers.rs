//! Tensors of a check as numbers in f32, integers too, and the bytes that hold them.

use device::host::{bytes_of, numbers, stored};
use ir::types::DType;
use kernels::scalar::Element;

/// The type of tensors of these elements.
pub(super) fn dtype(element: Element) -> DType {
    match element {
        Element::F32 => DType::F32,
        Element::Bf16 => DType::BF16,
        Element::F16 => DType::F16,
        Element::I32 => DType::I32,
        Element::F8E4M3 => DType::F8E4M3,
        Element::F8E5M2 => DType::F8E5M2,
    }
}

/// The numbers of a tensor.
pub(super) fn floats(dtype: DType, bytes: &[u8]) -> Vec<f32> {
    match dtype {
        DType::I32 => bytes.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]) as f32).collect(),
        dtype => numbers(dtype, bytes),
    }
}

/// The bytes of a tensor of numbers.
pub(super) fn encoded(dtype: DType, numbers: &[f32]) -> Vec<u8> {
    match dtype {
        DType::I32 => bytes_of(&numbers.iter().map(|&number| number as i32).collect::<Vec<_>>()).to_vec(),
        dtype => stored(dtype, numbers).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_hold_what_was_rounded() {
        let x = [0.125f32, -3.7, 1e3];
        for element in [Element::F32, Element::Bf16, Element::F16, Element::F8E4M3, Element::F8E5M2] {
            assert_eq!(floats(dtype(element), &encoded(dtype(element), &x)), x.map(|x| element.nearest(x)));
        }
        assert_eq!(floats(DType::I32, &encoded(DType::I32, &[-3.0, 7.0])), [-3.0, 7.0]);
    }
}
