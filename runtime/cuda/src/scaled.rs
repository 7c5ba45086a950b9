//! Products of operands of 8 bits, each times the scales of its blocks.
//!
//! Tensor cores multiply numbers of 8 bits as they are, if each operand has one scale: cuBLASLt multiplies the sum by both. All other
//! products are those of bf16, of operands that were multiplied by their scales before. A scale is a power of two, so that a product with it
//! has the few bits of its number, and bf16 has the exponents of f32: from 2^-126 on nothing is rounded.

use kernels::cuda::gemm::Gemm;
use kernels::group::{Node, Program, Read};
use kernels::scalar::{Access, Binary, Element};

/// The compute capability from which on tensor cores multiply numbers of 8 bits: that of Ada (CUDA C++ Programming Guide, "Compute
/// Capabilities").
const FIRST: (u32, u32) = (8, 9);

/// The sizes of matrices are multiples of this (cuBLAS documentation, "cublasLtMatmul", requirements of FP8 kernels: 16 bytes).
const MULTIPLE: usize = 16;

/// True if tensor cores of a compute capability multiply numbers of 8 bits.
pub fn has_eight_bits(capability: (u32, u32)) -> bool {
    capability >= FIRST
}

/// True if the library multiplies these operands as they are. One of the two is e4m3 at least (cuBLAS documentation, "cublasLtMatmul", table of
/// FP8 kernels); both have their terms as neighbours.
pub(super) fn is_direct(capability: (u32, u32), elements: [Element; 2], scales: [usize; 2], gemm: &Gemm) -> bool {
    let is_multiple = |size: usize| size > 0 && size.is_multiple_of(MULTIPLE);
    has_eight_bits(capability)
        && elements.contains(&Element::F8E4M3)
        && scales == [1, 1]
        && gemm.batch == 1
        && [gemm.m, gemm.n, gemm.k].into_iter().all(is_multiple)
}

/// A number of elements times their scales, of which there are some, in bf16; in another order, if one is asked for.
pub(super) fn widened(
    (element, len): (Element, usize),
    (of_scales, scales): (Access, usize),
    pack: Option<Access>,
) -> Program {
    let mut program = Program::default();
    let x = program.push(Node::Input, element, len);
    let by = program.push(Node::Input, Element::F32, scales);
    let by = Read { value: by, access: of_scales };
    let mut made = program.push(Node::Binary(Binary::Mul, Read::same(x), by), Element::Bf16, len);
    if let Some(access) = pack {
        made = program.push(Node::Convert(Read { value: made, access }), Element::Bf16, len);
    }
    program.leave(made);
    program
}

#[cfg(test)]
mod tests {
    use super::*;
    use kernels::cuda::gemm::Contraction;

    fn gemm([m, k, n]: [usize; 3]) -> Gemm {
        Contraction::by_terms(&['m', 'k'], &['k', 'n'], &['m', 'n'], &[m, k], &[k, n]).unwrap().gemm
    }

    #[test]
    fn tensor_cores_take_what_the_library_allows() {
        let (hopper, sizes) = ((9, 0), [16, 48, 32]);
        let [e4m3, e5m2] = [Element::F8E4M3, Element::F8E5M2];
        for elements in [[e4m3, e4m3], [e4m3, e5m2], [e5m2, e4m3]] {
            assert!(is_direct(hopper, elements, [1, 1], &gemm(sizes)));
        }
        assert!(!is_direct(hopper, [e5m2, e5m2], [1, 1], &gemm(sizes)));
        let taken = |capability, scales, sizes| is_direct(capability, [e4m3; 2], scales, &gemm(sizes));
        assert!(taken((8, 9), [1, 1], sizes) && taken((10, 0), [1, 1], sizes));
        assert!(!taken((8, 6), [1, 1], sizes) && !taken((8, 0), [1, 1], sizes));
        assert!(!taken(hopper, [3, 1], sizes) && !taken(hopper, [1, 3], sizes));
        for odd in [[8, 48, 32], [16, 40, 32], [16, 48, 33], [16, 0, 32]] {
            assert!(!taken(hopper, [1, 1], odd), "{odd:?}");
        }
        let batch = Gemm { batch: 2, ..gemm(sizes) };
        assert!(!is_direct(hopper, [e4m3; 2], [1, 1], &batch));
    }

    #[test]
    fn a_product_with_a_scale_is_exact_in_bf16() {
        for element in [Element::F8E4M3, Element::F8E5M2] {
            let format = element.narrow().unwrap();
            let bytes: Vec<u8> = (0..=255).collect();
            let mut all = vec![0.0; 256];
            kernels::cpu::narrow::widen(format, &bytes, &mut all, kernels::cpu::Par(1));
            all.retain(|x| x.is_finite());
            // The least magnitude of a format is 2^-16, and bf16 holds powers from 2^-133 on.
            for exponent in -110..100 {
                let scale = 2f32.powi(exponent);
                assert!(all.iter().all(|x| Element::Bf16.nearest(x * scale) == x * scale), "{element:?} {scale}");
            }
        }
    }
}
