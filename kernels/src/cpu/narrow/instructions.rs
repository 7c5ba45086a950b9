//! Rounding to bf16 by the instruction of AVX512-BF16.
//!
//! It takes numbers below the least normal one as zero (Intel, "Instruction Set Extensions Programming Reference", VCVTNE2PS2BF16). Runs
//! with such a number are rounded without it.

/// Elements that an instruction rounds.
#[cfg(target_arch = "x86_64")]
const RUN: usize = 32;

/// Rounds the first runs of numbers, and returns how many these are: none where the processor lacks the instruction.
pub(super) fn round_bf16(from: &[f32], to: &mut [[u8; 2]]) -> usize {
    #[cfg(target_arch = "x86_64")]
    if crate::cpu::simd::Level::has_bf16() {
        let (from, _) = from.as_chunks();
        // SAFETY: the processor has the instructions.
        unsafe { round_runs(from, to.as_chunks_mut().0) };
        return RUN * from.len();
    }
    let _ = (from, to);
    0
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512bf16")]
fn round_runs(from: &[[f32; RUN]], to: &mut [[[u8; 2]; RUN]]) {
    use std::arch::x86_64::*;

    /// The class of numbers below the least normal one, zero excepted.
    const SUBNORMAL: i32 = 0x20;

    for (from, to) in from.iter().zip(to) {
        // SAFETY: a run has two vectors of numbers, and one of rounded ones.
        unsafe {
            let [first, second] = [0, RUN / 2].map(|at| _mm512_loadu_ps(from.as_ptr().add(at)));
            let small = [first, second].map(|x| _mm512_fpclass_ps_mask::<SUBNORMAL>(x));
            if small == [0; 2] {
                let rounded: __m512i = std::mem::transmute(_mm512_cvtne2ps_pbh(second, first));
                _mm512_storeu_si512(to.as_mut_ptr().cast(), rounded);
                continue;
            }
        }
        super::round_bf16(from, to);
    }
}
