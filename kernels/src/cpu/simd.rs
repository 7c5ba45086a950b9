//! Compilation of one function for several instruction sets, and folds that vectorise.

#[cfg(target_arch = "x86_64")]
use std::sync::OnceLock;

/// Defines functions that are compiled for AVX-512, for AVX2 and for the target's baseline, and that pick at run time.
///
/// Functions profit only if they are inlined into the body, so it calls `#[inline(always)]` functions and closures. In the body,
/// `FMA` is true where the instruction set has fused multiply-adds.
macro_rules! simd {
    ($($(#[$attr:meta])* $vis:vis fn $name:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block)*) => {$(
        $(#[$attr])*
        $vis fn $name($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn portable<const FMA: bool>($($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma")]
                fn avx512($($arg: $ty),*) $(-> $ret)? {
                    portable::<true>($($arg),*)
                }
                #[target_feature(enable = "avx2,fma")]
                fn avx2($($arg: $ty),*) $(-> $ret)? {
                    portable::<true>($($arg),*)
                }
                match $crate::cpu::simd::Level::detect() {
                    // SAFETY: the processor was found to have the features that the function enables.
                    $crate::cpu::simd::Level::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    $crate::cpu::simd::Level::Avx2 => return unsafe { avx2($($arg),*) },
                    $crate::cpu::simd::Level::Baseline => {}
                }
            }
            portable::<false>($($arg),*)
        }
    )*};
}
pub(crate) use simd;

/// The instruction sets a kernel is compiled for.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(crate) enum Level {
    /// AVX-512 F, BW, DQ and VL.
    Avx512,
    /// AVX2 and FMA.
    Avx2,
    /// The instructions that the target guarantees.
    Baseline,
}

#[cfg(target_arch = "x86_64")]
impl Level {
    /// The best level this processor has. Kernels of a few hundred elements ask for it, so that it is one load.
    #[inline]
    pub(crate) fn detect() -> Level {
        static BEST: OnceLock<Level> = OnceLock::new();
        *BEST.get_or_init(Level::of_processor)
    }

    /// True if this processor has AVX-512 with the instructions of bf16.
    #[inline]
    pub(crate) fn has_bf16() -> bool {
        matches!(Level::detect(), Level::Avx512) && is_x86_feature_detected!("avx512bf16")
    }

    fn of_processor() -> Level {
        let avx2 = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        let avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        match (avx2, avx512) {
            (true, true) => Level::Avx512,
            (true, false) => Level::Avx2,
            (false, _) => Level::Baseline,
        }
    }
}

/// Independent accumulators of a fold: two AVX-512 registers, so that additions overlap.
const LANES: usize = 32;

/// Combines the lanes of a fold pairwise.
#[inline(always)]
fn fold_lanes(mut acc: [f32; LANES], f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            acc[i] = f(acc[i], acc[i + width]);
        }
        width /= 2;
    }
    acc[0]
}

/// The largest element; negative infinity if there is none.
#[inline(always)]
pub(crate) fn max(x: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if a > b { a } else { b };
    let mut acc = [f32::NEG_INFINITY; LANES];
    let (chunks, tail) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for (acc, &v) in acc.iter_mut().zip(chunk) {
            *acc = larger(*acc, v);
        }
    }
    for (acc, &v) in acc.iter_mut().zip(tail) {
        *acc = larger(*acc, v);
    }
    fold_lanes(acc, larger)
}

/// The sum of `f` over the elements.
#[inline(always)]
pub(crate) fn sum(x: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut acc = [0.0; LANES];
    let (chunks, tail) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for (acc, &v) in acc.iter_mut().zip(chunk) {
            *acc += f(v);
        }
    }
    for (acc, &v) in acc.iter_mut().zip(tail) {
        *acc += f(v);
    }
    fold_lanes(acc, |a, b| a + b)
}

/// Writes `f` of each element and returns the sum of what was written.
#[inline(always)]
pub(crate) fn map_sum(x: &[f32], out: &mut [f32], f: impl Fn(f32) -> f32) -> f32 {
    let mut acc = [0.0; LANES];
    let (chunks, tail) = x.as_chunks::<LANES>();
    let (out_chunks, out_tail) = out.as_chunks_mut::<LANES>();
    for (chunk, out) in chunks.iter().zip(out_chunks) {
        for ((acc, &v), out) in acc.iter_mut().zip(chunk).zip(out) {
            *out = f(v);
            *acc += *out;
        }
    }
    for ((acc, &v), out) in acc.iter_mut().zip(tail).zip(out_tail) {
        *out = f(v);
        *acc += *out;
    }
    fold_lanes(acc, |a, b| a + b)
}

/// The sum of `f(x, y)` over pairs of elements.
#[inline(always)]
pub(crate) fn sum2(x: &[f32], y: &[f32], f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut acc = [0.0; LANES];
    let ((xs, x_tail), (ys, y_tail)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
    for (x, y) in xs.iter().zip(ys) {
        for ((acc, &x), &y) in acc.iter_mut().zip(x).zip(y) {
            *acc += f(x, y);
        }
    }
    for ((acc, &x), &y) in acc.iter_mut().zip(x_tail).zip(y_tail) {
        *acc += f(x, y);
    }
    fold_lanes(acc, |a, b| a + b)
}
