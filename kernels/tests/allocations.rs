//! Once its scratch memory has grown, no kernel takes anything from the allocator, on one thread or on two.
//!
//! All threads of the test count, so that one test must do everything.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use meshwright_kernels::cpu::attention::{Attention, Dropout, Gradients, Inputs, Saved};
use meshwright_kernels::cpu::cross_entropy::{Shard, cross_entropy, cross_entropy_grad, pick, pick_grad, sum_exp};
use meshwright_kernels::cpu::dropout::{TensorPart, dropout};
use meshwright_kernels::cpu::einsum::Einsum;
use meshwright_kernels::cpu::elementwise::{Binary, Strided, Unary, add_assign, binary, broadcast_binary, unary};
use meshwright_kernels::cpu::embedding::{embedding, embedding_grad};
use meshwright_kernels::cpu::experts::{Routing, combine, combine_dw, dispatch};
use meshwright_kernels::cpu::narrow::{Floats, Narrow};
use meshwright_kernels::cpu::norm::{
    layer_norm, layer_norm_dgamma, layer_norm_dx, rms_norm, rms_norm_dgamma, rms_norm_dx,
};
use meshwright_kernels::cpu::optimizer::{AdamW, Sgd, adamw, sgd, sum_squares};
use meshwright_kernels::cpu::quantise::{Blocks, EXPONENTS, absmax, age, dequantise, exponents, quantise, scale_for};
use meshwright_kernels::cpu::reduce::{Reduction, reduce};
use meshwright_kernels::cpu::rope::{Heads, Turn, rope};
use meshwright_kernels::cpu::shape::{View, add_strided, copy_strided};
use meshwright_kernels::cpu::softmax::{softmax, softmax_grad};
use meshwright_kernels::cpu::top_k::{GroupLimit, TopK, top_k, top_k_grad};
use meshwright_kernels::cpu::{Par, Source};

/// The system's allocator, counting requests of the test's thread and those that it starts.
struct Counting;

static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
static COUNT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// True if the thread took memory before the test began: it is the harness's, which writes a line when a test has run for a minute.
    static IS_OLDER: Cell<bool> = const { Cell::new(false) };
}

fn count() {
    if !HAS_BEGUN.load(Ordering::Relaxed) {
        IS_OLDER.set(true);
    } else if !IS_OLDER.get() {
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: all requests go to the system's allocator as they are.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
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

/// Rows and columns of most tensors here: enough work for two threads.
const ROWS: usize = 300;
const COLS: usize = 1000;

/// Runs a kernel once to warm up, then counts. The name is for the report.
fn check(name: &str, mut kernel: impl FnMut(Par)) {
    for threads in [1, 2] {
        kernel(Par(threads));
        let before = COUNT.load(Ordering::Relaxed);
        kernel(Par(threads));
        kernel(Par(threads));
        let requests = COUNT.load(Ordering::Relaxed) - before;
        assert_eq!(requests, 0, "{name} on {threads} threads");
    }
}

#[test]
fn no_kernel_allocates() {
    HAS_BEGUN.store(true, Ordering::SeqCst);
    IS_OLDER.set(false);
    let made = Box::new([0; 10]);
    assert!(COUNT.load(Ordering::Relaxed) > 0 && made.len() == 10, "requests are counted");
    products();
    attentions();
    elementwise();
    rows();
    tokens();
    experts();
    moves();
    quantised();
    updates();
}

fn products() {
    // Layouts of one layer and of its gradients; operands that are summed first, packed, or not contracted at all.
    let equations = [
        "mk,kn>mn",
        "mk,nk>mn",
        "km,kn>mn",
        "mk,kn>nm",
        "bsh,hgrd>bsgrd",
        "bsh,bsgrd>hgrd",
        "bmk,bkn>bmn",
        "mxk,kyn>ymn",
        "mxk,kxn>mn",
        "bsh,h>bs",
        "m,n>mn",
    ];
    for eq in equations {
        let letters: Vec<Vec<char>> = eq.split([',', '>']).map(|s| s.chars().collect()).collect();
        for (large, small) in [(32, 3), (256, 2), (301, 3)] {
            let size = |l: &char| if "bxygrd".contains(*l) { small } else { large };
            let dims = |t: usize| letters[t].iter().map(size).collect::<Vec<_>>();
            let [a, b, mut out] = [0, 1, 2].map(|t| vec![0.5; dims(t).iter().product()]);
            let plan = Einsum::new(&letters[0], &letters[1], &letters[2], &dims(0), &dims(1)).unwrap();
            let mut scratch = vec![];
            check(&format!("{eq} of {large}"), |par| {
                for accumulate in [false, true] {
                    plan.run(&a, &b, &mut out, accumulate, par, &mut scratch);
                }
            });
            let [a, b] = [&a, &b].map(|x| vec![0x3f; 2 * x.len()]);
            check(&format!("narrow {eq} of {large}"), |par| {
                let [a, b] = [&a, &b].map(|bytes| Floats::Narrow(Narrow::Bf16, bytes));
                plan.run(a, b, &mut out, false, par, &mut scratch);
            });
        }
    }
}

fn attentions() {
    let global_dims = [2, 256, 2, 2, 256];
    let weights = Dropout { p: 0.1, key: [1, 2], origin: [0; 5], global_dims };
    for (s, d, causal, dropout) in [(256, 64, true, None), (200, 32, false, None), (200, 32, true, Some(weights))] {
        let a = Attention {
            b: 2,
            s,
            t: 256,
            g: 2,
            r: 2,
            d,
            c: d,
            scale: 0.1,
            causal,
            window: None,
            chunk: None,
            softcap: None,
            dropout,
        };
        let queries = 2 * s * 4;
        let (q, kv) = (vec![0.5; queries * d], vec![0.5; 2 * 256 * 2 * d]);
        let (qpos, kpos): (Vec<i32>, Vec<i32>) = ((0..2 * s as i32).collect(), (0..512).collect());
        let x = Inputs {
            q: (&q).into(),
            k: (&kv).into(),
            v: (&kv).into(),
            qpos: &qpos,
            kpos: &kpos,
            qseg: &vec![0; 2 * s],
            kseg: &[0; 512],
            sink: None,
        };
        let (mut out, mut lse, mut scratch) = (vec![0.0; queries * d], vec![0.0; queries], vec![]);
        check("attention", |par| a.forward(&x, &mut out, &mut lse, par, &mut scratch));
        let (mut dq, mut dk, mut dv) = (q.clone(), kv.clone(), kv.clone());
        let saved = Saved { out: (&out).into(), lse: &lse, dout: (&q).into() };
        check("attention's gradient", |par| {
            let gradients = Gradients { dq: (&mut dq).into(), dk: (&mut dk).into(), dv: (&mut dv).into() };
            a.backward(&x, &saved, gradients, par, &mut scratch);
        });
    }
}

fn elementwise() {
    let (x, y, mut out) = (vec![0.5; ROWS * COLS], vec![0.25; ROWS * COLS], vec![0.5; ROWS * COLS]);
    for op in [Unary::Exp, Unary::Log, Unary::Silu, Unary::Gelu, Unary::GeluErf, Unary::ReluSquared, Unary::Scale(2.0)]
    {
        check(&format!("{op:?}"), |par| {
            unary(op, &x, &mut out, par);
            unary(op, Source::Own, &mut out, par);
        });
    }
    for op in [
        Binary::Add,
        Binary::Div,
        Binary::Max,
        Binary::SiluGrad,
        Binary::GeluGrad,
        Binary::GeluErfGrad,
        Binary::ReluSquaredGrad,
    ] {
        let (dense, repeated) = ([COLS, 1], [0, 1]);
        check(&format!("{op:?}"), |par| {
            binary(op, &x, &y, &mut out, par);
            binary(op, Source::Own, &y, &mut out, par);
            let (a, b) = (Strided((&x).into(), &dense), Strided((&y).into(), &repeated));
            broadcast_binary(op, a, b, &mut out, &[ROWS, COLS], par);
        });
    }
    check("add_assign", |par| add_assign(&mut out, &x, par));
    for dims in [vec![ROWS * COLS], vec![ROWS, COLS], vec![3, 100, 1000]] {
        let global_dims: Vec<u64> = dims.iter().map(|&d| d as u64 + 1).collect();
        let part = TensorPart { dims: &dims, origin: &vec![1; dims.len()], global_dims: &global_dims, skipped: 0 };
        check("dropout", |par| {
            dropout(&x, &mut out, 0.5, [1, 2], part, par);
            dropout(Source::Own, &mut out, 0.5, [1, 2], part, par);
        });
    }
}

fn rows() {
    let (x, y, mut out) = (vec![0.5; ROWS * COLS], vec![0.25; ROWS * COLS], vec![0.5; ROWS * COLS]);
    let (gamma, mut dgamma) = (vec![1.0; COLS], vec![1.0; COLS]);
    let (mut mean, mut rstd) = (vec![0.0; ROWS], vec![1.0; ROWS]);
    check("rms_norm", |par| {
        rms_norm(&x, &gamma, 1e-5, &mut out, &mut rstd, par);
        rms_norm_dx(&x, &gamma, &rstd, &y, &mut out, par);
        rms_norm_dgamma(&x, &rstd, &y, &mut dgamma, true, par);
    });
    check("layer_norm", |par| {
        layer_norm(&x, (&gamma, &gamma), 1e-5, &mut out, (&mut mean, &mut rstd), par);
        layer_norm_dx(&x, &gamma, (&mean, &rstd), &y, &mut out, par);
        layer_norm_dgamma(&x, (&mean, &rstd), &y, &mut dgamma, false, par);
    });
    check("softmax", |par| {
        softmax(&x, COLS, &mut out, par);
        softmax_grad(&x, &y, COLS, &mut out, par);
    });
    let pos: Vec<i32> = (0..ROWS as i32).collect();
    let frequencies = [0.1; 62];
    let heads = Heads { heads: 8, d: COLS / 8 };
    let turn = Turn { frequencies: &frequencies, beyond: None, gain: 1.0, inverse: false };
    check("rope", |par| rope(&x, heads, &pos, turn, &mut out, par));
    let dims = [3, 100, 20, 50];
    for mask in 0..16 {
        let keep = [0, 1, 2, 3].map(|i| mask >> i & 1 == 1);
        let kept = dims.iter().zip(keep).filter(|(_, keep)| *keep).map(|(d, _)| d).product::<usize>();
        for kind in [Reduction::Sum, Reduction::Max] {
            check("reduce", |par| reduce(kind, &x, &dims, &keep, &mut out[..kept], par));
        }
    }
}

fn tokens() {
    let (logits, labels): (_, Vec<i32>) = (vec![0.5; ROWS * COLS], (0..ROWS as i32).collect());
    let (mut loss, mut lse, mut out) = (0.0, vec![0.0; ROWS], vec![0.0; ROWS * COLS]);
    let shard = Shard { values: &logits, v: COLS, origin: 7 };
    check("cross_entropy", |par| {
        cross_entropy(&logits, COLS, &labels, &mut loss, &mut lse, par);
        cross_entropy_grad(shard, &labels, &lse, 0.5, &mut out, par);
    });
    let mut sums = vec![0.0; ROWS];
    check("sum_exp and pick", |par| {
        sum_exp(&logits, COLS, &lse, &mut sums, par);
        pick(shard, &labels, &mut sums);
        pick_grad(&sums, &labels, COLS, 7, &mut out);
    });
    let mut table = vec![0.0; 200 * COLS];
    check("embedding", |par| {
        embedding(&labels, &table, COLS, 0, &mut out, par);
        embedding_grad(&labels, &out, COLS, (0, None), &mut table, true);
    });
}

fn experts() {
    let (tokens, choices, count, capacity, h) = (ROWS / 4, 2, 8, 20, 256);
    let scores = vec![0.5; ROWS * count];
    let (mut weights, mut index, mut grad) = (vec![0.0; ROWS * choices], vec![0; ROWS * choices], scores.clone());
    let choice = TopK { columns: count, k: choices, bias: None, limit: Some(GroupLimit { groups: 4, from: 2, by: 1 }) };
    check("top_k", |par| {
        top_k(&scores, &choice, &mut weights, &mut index, par);
        top_k_grad(&index, &weights, choices, count, &mut grad);
    });
    let (mut x, mut rows, mut dw) = (vec![0.5; ROWS * h], vec![0.0; 4 * count * capacity * h], weights.clone());
    let routing =
        Routing { index: &index, weights: Some(&weights), tokens, choices, experts: count, origin: 0, capacity };
    let mut counts = vec![0; 4 * count];
    check("experts", |par| {
        dispatch(&x, h, &routing, &mut rows, &mut counts, par);
        combine_dw(&x, &rows, h, &routing, &mut dw, &mut counts, par);
        combine(&rows, h, &routing, &mut x, &mut counts, par);
    });
}

fn moves() {
    let (x, mut out) = (vec![0.5; 5 * 6 * 7 * 8], vec![0.0; 5 * 6 * 7 * 8]);
    let (dims, strides) = ([5, 6, 7, 8], [[336, 56, 8, 1], [1, 5, 30, 210]]);
    let view = |i: usize| View { offset: 0, strides: &strides[i] };
    check("copies", |_| {
        copy_strided(&x, view(0), &mut out, view(1), &dims);
        add_strided(&x, view(1), &mut out, view(0), &dims);
    });
}

fn quantised() {
    let n = ROWS * COLS;
    let (x, mut small, mut wide, mut scratch) = (vec![0.5; n], vec![0u8; n], vec![0.0; n], Vec::new());
    for counts in [[ROWS, 1], [1, COLS], [1, 1], [ROWS, COLS]] {
        let blocks = Blocks::new(&[ROWS, COLS], &counts).unwrap();
        let mut scales = vec![0.0; counts[0] * counts[1]];
        check(&format!("quantise by {counts:?}"), |par| {
            absmax(Floats::Wide(&x), &blocks, &mut scales, &mut scratch, par);
            let max = scales[0];
            scale_for(Narrow::F8E4M3, &[max], &mut scales[..1]);
            quantise(Floats::Wide(&x), &scales, &blocks, (Narrow::F8E4M3, &mut small), par);
            dequantise(Floats::Narrow(Narrow::F8E4M3, &small), &scales, &blocks, &mut wide, par);
        });
    }
    let (mut seen, mut ages) = (vec![0.0; EXPONENTS], vec![9.0; EXPONENTS]);
    check("ages", |par| {
        exponents(Floats::Wide(&x), &mut seen, par);
        age(&mut ages, &seen, 1.0);
    });
}

fn updates() {
    let n = ROWS * COLS;
    let (mut w, g, mut m, mut v) = (vec![0.5; n], vec![0.25; n], vec![0.0; n], vec![0.0; n]);
    let (lr, weight_decay, scale) = (1e-3, 0.1, 1.0);
    let decay = AdamW { lr, beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay, scale, bias1: 0.1, bias2: 0.05 };
    check("adamw", |par| adamw(&mut w, &g, &mut m, &mut v, &decay, par));
    let descent = Sgd { lr, momentum: 0.9, nesterov: false, weight_decay, scale };
    check("sgd", |par| {
        sgd(&mut w, &g, Some(&mut m), &descent, par);
        sgd(&mut w, &g, None, &descent, par);
    });
    let mut sum = 0.0;
    check("sum_squares", |_| sum += sum_squares(&g, Par(1)));
    assert!(sum > 0.0);
}
