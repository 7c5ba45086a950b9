//! Once its scratch memory has grown, a kernel on one thread takes no buffer from the allocator.
//!
//! The `gemm` crate allocates a few flags in each product, so small requests do not count here; and it copies operands
//! whose rows are not contiguous, or not a multiple of 16, into a buffer of its own, so the products here have none.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use meshwright_kernels::cpu::Par;
use meshwright_kernels::cpu::attention::{Attention, Dropout, Gradients, Inputs, Saved};
use meshwright_kernels::cpu::dropout::{Part, dropout};
use meshwright_kernels::cpu::einsum::Einsum;
use meshwright_kernels::cpu::elementwise::{Binary, Strided, broadcast_binary};
use meshwright_kernels::cpu::reduce::{Reduction, reduce};
use meshwright_kernels::cpu::rope::{Heads, rope};
use meshwright_kernels::cpu::shape::{View, copy_strided};

/// The system's allocator, counting this thread's requests for a page or more.
struct Counting;

thread_local! {
    static COUNT: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: all requests go to the system's allocator as they are.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= 4096 {
            COUNT.with(|count| count.set(count.get() + 1));
        }
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of the second call.
fn second(mut kernel: impl FnMut()) -> usize {
    kernel();
    let before = COUNT.with(Cell::get);
    kernel();
    COUNT.with(Cell::get) - before
}

#[test]
fn attention() {
    let global_dims = [2, 256, 2, 2, 256];
    let weights = Dropout { p: 0.1, key: [1, 2], origin: [0; 5], global_dims };
    for (s, d, causal, dropout) in [(256, 64, true, None), (200, 32, false, None), (200, 32, true, Some(weights))] {
        let a = Attention { b: 2, s, t: 256, g: 2, r: 2, d, c: d, scale: 0.1, causal, dropout };
        let queries = 2 * s * 4;
        let (q, kv) = (vec![0.5; queries * d], vec![0.5; 2 * 256 * 2 * d]);
        let (qpos, kpos): (Vec<i32>, Vec<i32>) = ((0..2 * s as i32).collect(), (0..512).collect());
        let x = Inputs { q: &q, k: &kv, v: &kv, qpos: &qpos, kpos: &kpos, qseg: &vec![0; 2 * s], kseg: &[0; 512] };
        let (mut out, mut lse, mut scratch) = (vec![0.0; queries * d], vec![0.0; queries], vec![]);
        assert_eq!(second(|| a.forward(&x, &mut out, &mut lse, Par(1), &mut scratch)), 0);
        let (mut dq, mut dk, mut dv) = (q.clone(), kv.clone(), kv.clone());
        let saved = Saved { out: &out, lse: &lse, dout: &q };
        let backward = || {
            let gradients = Gradients { dq: &mut dq, dk: &mut dk, dv: &mut dv };
            a.backward(&x, &saved, gradients, Par(1), &mut scratch);
        };
        assert_eq!(second(backward), 0);
    }
}

#[test]
fn matrix_products() {
    // In the third an operand is summed first; in the last the small one is packed.
    for eq in ["mk,kn>mn", "bmk,bkn>bmn", "mxk,kyn>ymn", "mxk,kxn>mn"] {
        let letters: Vec<Vec<char>> = eq.split([',', '>']).map(|s| s.chars().collect()).collect();
        for (large, small) in [(32, 3), (256, 2)] {
            let size = |l: &char| if "bxy".contains(*l) { small } else { large };
            let dims = |t: usize| letters[t].iter().map(size).collect::<Vec<_>>();
            let [a, b, mut out] = [0, 1, 2].map(|t| vec![0.5; dims(t).iter().product()]);
            let plan = Einsum::new(&letters[0], &letters[1], &letters[2], &dims(0), &dims(1)).unwrap();
            let mut scratch = vec![];
            assert_eq!(second(|| plan.run(&a, &b, &mut out, false, Par(1), &mut scratch)), 0, "{eq} {large}");
        }
    }
}

#[test]
fn strided_kernels() {
    let (x, mut out) = (vec![0.5; 5 * 6 * 7 * 8], vec![0.0; 5 * 6 * 7 * 8]);
    let dims = [5, 6, 7, 8];
    let strides = [[336, 56, 8, 1], [1, 5, 30, 210], [0, 8, 0, 1]];
    let view = |i: usize| View { offset: 0, strides: &strides[i] };
    assert_eq!(second(|| copy_strided(&x, view(0), &mut out, view(1), &dims)), 0);
    let operands = (Strided(&x, &strides[1]), Strided(&x, &strides[2]));
    let broadcast = || broadcast_binary(Binary::Mul, operands.0, operands.1, &mut out, &dims, Par(1));
    assert_eq!(second(broadcast), 0);
    let sum = || reduce(Reduction::Sum, &x, &dims, &[true, false, true, false], &mut out[..35], Par(1));
    assert_eq!(second(sum), 0);
    let part = Part { dims: &dims, origin: &[1; 4], global_dims: &[6, 7, 8, 9] };
    assert_eq!(second(|| dropout(&x, &mut out, 0.5, [1, 2], part, Par(1))), 0);
    let pos: Vec<i32> = (0..30).collect();
    let turn = || rope(&x, Heads { heads: 7, d: 8 }, &pos, &[1.0, 0.1, 0.01, 0.001], false, &mut out, Par(1));
    assert_eq!(second(turn), 0);
}
