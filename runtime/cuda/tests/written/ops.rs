//! Ops whose kernels are written by hand, each on several sizes and on numbers that reach its corners.

use device::backend::{GroupPlace, GroupSite};
use ir::fused::Fused;
use ir::graph::{Model, SectionKind};
use meshwright_cuda::check::groups::Run;

/// An op on numbers.
#[allow(dead_code, reason = "one of the tests that have it compiles the kernels alone")]
pub(crate) struct OpCase {
    pub(crate) name: String,
    pub(crate) run: Run,
    pub(crate) draw: Numbers,
    /// True if all sums are exact, so that results are equal.
    pub(crate) is_exact: bool,
    model: Model,
}

impl OpCase {
    /// Calls with the op as backends see it.
    pub(crate) fn with_site<R>(&self, call: impl FnOnce(&GroupSite<'_>) -> Result<R, String>) -> Result<R, String> {
        let block = self.model.blocks.values().next().expect("a block");
        let section = &block[SectionKind::F];
        let fused = Fused { stmts: section.stmts.clone(), outs: section.ret.clone() };
        let at = GroupPlace { values: &block.values, mesh: &self.model.mesh, coordinates: &[0], forward: true };
        GroupSite::with(&fused, at, call)
    }
}

/// Numbers of the op's tensors: of operand `[0, n]` or result `[1, n]`, by the element.
pub(crate) type Numbers = fn([usize; 2], u64) -> Option<f32>;

/// Op and attributes; types of operands and results, with T for f32 and bf16; numbers.
type Row = (&'static str, &'static [&'static str], &'static [&'static str], Numbers);

fn random(_: [usize; 2], _: u64) -> Option<f32> {
    None
}

/// Numbers that are spread over 0 to 6.
fn few(i: u64) -> f32 {
    (i * 7 + i * i / 3) as f32 % 7.0
}

fn scalars([side, at]: [usize; 2], i: u64, list: &[(usize, f32)]) -> Option<f32> {
    list.iter().find(|(scalar, _)| side == 0 && *scalar == at && i == 0).map(|(_, number)| *number)
}

/// AdamW: factor of the gradient, rate, step; means of squares are positive.
fn adamw(at: [usize; 2], i: u64) -> Option<f32> {
    if at == [1, 2] { Some(0.01 * few(i)) } else { scalars(at, i, &[(4, 0.5), (5, 0.01), (6, 3.0)]) }
}

fn skipped(at: [usize; 2], i: u64) -> Option<f32> {
    scalars(at, i, &[(2, f32::NAN), (3, 0.1), (4, f32::NAN)])
}

fn clipped(at: [usize; 2], i: u64) -> Option<f32> {
    scalars(at, i, &[(2, 0.5), (3, 0.1), (4, 0.1)])
}

fn momentum(at: [usize; 2], i: u64) -> Option<f32> {
    scalars(at, i, &[(3, 0.5), (4, 0.1)])
}

/// Extremes of f32, and none below 0.
fn extremes([side, _]: [usize; 2], i: u64) -> Option<f32> {
    let list =
        [0.0, f32::INFINITY, f32::NAN, 1e-40, f32::MAX, 448.0, 449.0, 57_344.0, 1.0, 1.75, 1.8, f32::MIN_POSITIVE];
    (side == 0).then(|| list.get(i as usize).copied().unwrap_or(3.0))
}

/// Powers of two.
fn scale(i: u64) -> f32 {
    2f32.powi((i % 5) as i32 - 2)
}

/// Extremes of 8 bits over scales: what is rounded to even, what saturates, and what is below the normal numbers.
fn quotients([side, at]: [usize; 2], i: u64) -> Option<f32> {
    let list = [
        0.0,
        -0.0,
        f32::INFINITY,
        f32::NAN,
        448.0,
        464.0,
        -1e9,
        57_344.0,
        61_440.0,
        17.0,
        19.0,
        -1.125,
        0.0146,
        0.001,
        0.002_929_687_5,
        6.1e-5,
        2.3e-5,
        7.7e-6,
        1e-40,
    ];
    match [side, at] {
        [0, 0] => list.get(i as usize).copied(),
        [0, 1] => Some(scale(i)),
        _ => None,
    }
}

/// Integers from -3 to 3, which 8 bits hold, and scales.
fn scaled([side, at]: [usize; 2], i: u64) -> Option<f32> {
    Some(if side == 0 && at > 1 { scale(i) } else { few(i) - 3.0 })
}

/// Ages up to 6, none of them of a large exponent.
fn ages([_, at]: [usize; 2], i: u64) -> Option<f32> {
    Some(if at == 0 && i > 140 { 100.0 } else { few(i) })
}

/// Integers from 0 to 6.
fn places(at: [usize; 2], i: u64) -> Option<f32> {
    (at == [0, 0]).then(|| few(i))
}

/// Integers from -1 to 5.
pub(crate) fn picks(at: [usize; 2], i: u64) -> Option<f32> {
    (at == [0, 1]).then(|| few(i) - 1.0)
}

fn picks_behind(at: [usize; 2], i: u64) -> Option<f32> {
    (at == [0, 2]).then(|| few(i) - 1.0)
}

/// Scores with many that are equal.
fn scores(at: [usize; 2], i: u64) -> Option<f32> {
    (at == [0, 0]).then(|| few(i) * 0.25 - 0.5)
}

/// Integers from -1 to 600.
fn many(at: [usize; 2], i: u64) -> Option<f32> {
    (at == [0, 0]).then(|| (i * 7919 % 602) as f32 - 1.0)
}

/// Numbers of five rows of 37, of which some have squares beyond f32.
fn large([side, at]: [usize; 2], i: u64) -> Option<f32> {
    ([side, at] == [0, 0]).then(|| (few(i) - 3.0 + 0.1 * few(i / 7)) * SIZES[(i / 37) as usize % 5])
}

const SIZES: [f32; 5] = [1.0, 1e16, 1e25, 3e37, 1e-30];

/// Those, and factors of their rows, behind the parameters or behind the means.
fn normed([side, at]: [usize; 2], i: u64) -> Option<f32> {
    let factors = |at| [side, at] == [0, 2];
    if factors(at) { Some(0.5 / SIZES[i as usize % 5].max(1e-5)) } else { large([side, at], i) }
}

fn centred([side, at]: [usize; 2], i: u64) -> Option<f32> {
    match [side, at] {
        [0, 2] => Some(0.1 * SIZES[i as usize % 5]),
        [0, 3] => Some(0.5 / SIZES[i as usize % 5].max(1e-5)),
        _ => large([side, at], i),
    }
}

fn before(at: [usize; 2], _: u64) -> Option<f32> {
    (at == [0, 1]).then_some(-3.0)
}

fn within(at: [usize; 2], _: u64) -> Option<f32> {
    (at == [0, 1]).then_some(2.0)
}

fn behind(at: [usize; 2], _: u64) -> Option<f32> {
    (at == [0, 1]).then_some(100.0)
}

/// Positions in order and two segments; every 11th query is of none.
fn heads([side, at]: [usize; 2], i: u64, first: usize) -> Option<f32> {
    let number = match at.checked_sub(first) {
        Some(0) => (i % 41) as f32,
        Some(1) => (i % 37) as f32,
        Some(2) if i % 11 == 10 => 9.0,
        Some(2 | 3) => (i / 23 % 2) as f32,
        _ => return None,
    };
    (side == 0).then_some(number)
}

fn attention(at: [usize; 2], i: u64) -> Option<f32> {
    heads(at, i, 3)
}

/// Some sums of queries are those of nothing.
fn gradient(at: [usize; 2], i: u64) -> Option<f32> {
    let sum = if i % 9 == 8 { f32::NEG_INFINITY } else { 3.0 };
    if at == [0, 4] { Some(sum) } else { heads(at, i, 6) }
}

/// Positions in order, and one segment.
fn in_order([side, at]: [usize; 2], i: u64, first: usize) -> Option<f32> {
    (side == 0).then(|| at.checked_sub(first)).flatten().map(|at| if at < 2 { i as f32 } else { 0.0 })
}

fn attention_in_order(at: [usize; 2], i: u64) -> Option<f32> {
    in_order(at, i, 3)
}

fn gradient_in_order(at: [usize; 2], i: u64) -> Option<f32> {
    if at == [0, 4] { Some(3.0) } else { in_order(at, i, 6) }
}

const ADAMW: &str = "adamw beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1";
const SCALAR: &str = "f32[]";

/// Updates, and numbers of whole tensors.
const NUMBERS: &[Row] = &[
    (ADAMW, &["f32[1]", "f32[1]", "f32[1]", "f32[1]", SCALAR, SCALAR, SCALAR], &["f32[1]", "f32[1]", "f32[1]"], adamw),
    (
        ADAMW,
        &["f32[1031]", "f32[1031]", "f32[1031]", "f32[1031]", SCALAR, SCALAR, SCALAR],
        &["f32[1031]", "f32[1031]", "f32[1031]"],
        adamw,
    ),
    (
        ADAMW,
        &["f32[7]", "f32[7]", "f32[7]", "f32[7]", SCALAR, SCALAR, SCALAR],
        &["f32[7]", "f32[7]", "f32[7]"],
        skipped,
    ),
    ("sgd momentum=0.0, weight_decay=0.1", &["f32[311]", "f32[311]", SCALAR, SCALAR], &["f32[311]"], clipped),
    ("sgd momentum=0.0, weight_decay=0.1", &["f32[3]", "f32[3]", SCALAR, SCALAR], &["f32[3]"], skipped),
    (
        "sgd momentum=0.9, weight_decay=0.1",
        &["f32[311]", "f32[311]", "f32[311]", SCALAR, SCALAR],
        &["f32[311]", "f32[311]"],
        momentum,
    ),
    (
        "sgd momentum=0.9, weight_decay=0.1, nesterov=true",
        &["f32[311]", "f32[311]", "f32[311]", SCALAR, SCALAR],
        &["f32[311]", "f32[311]"],
        momentum,
    ),
    ("sum_squares", &["T[1]"], &["f32[]"], random),
    ("sum_squares", &["T[37, 1009]"], &["f32[]"], random),
    ("absmax block=\"2 all\"", &["T[6, 5]"], &["f32[3, 1]"], random),
    ("absmax block=\"1 3\"", &["T[4, 9]"], &["f32[4, 3]"], random),
    ("absmax block=\"1 all\"", &["T[2, 40000]"], &["f32[2, 1]"], random),
    ("absmax block=\"all 37\"", &["T[7, 37]"], &["f32[1, 1]"], random),
    ("scale_for to=f8e4m3", &["f32[13]"], &["f32[13]"], extremes),
    ("scale_for to=f8e5m2", &["f32[13]"], &["f32[13]"], extremes),
    ("exponents", &["f32[17]"], &["f32[256]"], extremes),
    ("exponents", &["T[20011]"], &["f32[256]"], random),
    ("ages", &["f32[256]", "f32[256]", SCALAR], &["f32[256]"], clipped),
    ("ages", &["f32[256]", "f32[256]", SCALAR], &["f32[256]"], skipped),
    ("delayed_scale to=f8e4m3, within=3", &["f32[256]"], &["f32[]"], ages),
    ("delayed_scale to=f8e5m2, within=0", &["f32[256]"], &["f32[]"], ages),
];

/// Elements that move, and their sums.
const MOVES: &[Row] = &[
    ("concat dim=1", &["T[2, 3, 5]", "T[2, 1, 5]", "T[2, 4, 5]"], &["T[2, 8, 5]"], random),
    ("concat dim=0", &["T[1]", "T[3]"], &["T[4]"], random),
    ("pad dim=1, before=2, after=1", &["T[3, 5, 7]"], &["T[3, 8, 7]"], random),
    ("pad dim=0, before=0, after=3", &["T[1]"], &["T[4]"], random),
    ("reverse dim=1", &["T[3, 5, 7]"], &["T[3, 5, 7]"], random),
    ("dynamic_slice dim=1, length=3", &["T[2, 7, 5]", "i32[]"], &["T[2, 3, 5]"], before),
    ("dynamic_slice dim=1, length=3", &["T[2, 7, 5]", "i32[]"], &["T[2, 3, 5]"], within),
    ("dynamic_slice dim=1, length=3", &["T[2, 7, 5]", "i32[]"], &["T[2, 3, 5]"], behind),
    ("dynamic_pad dim=1", &["T[2, 3, 5]", "i32[]"], &["T[2, 7, 5]"], within),
    ("dynamic_pad dim=1", &["T[2, 3, 5]", "i32[]"], &["T[2, 7, 5]"], behind),
    ("windows dim=1, size=3, stride=2, dilation=2", &["T[2, 11, 5]"], &["T[2, 4, 3, 5]"], random),
    ("fold dim=1, size=3, stride=2, dilation=2", &["T[2, 4, 3, 5]"], &["T[2, 11, 5]"], random),
    ("fold dim=0, size=5", &["T[7, 5]"], &["T[11]"], random),
    ("einsum eq=\"a b c -> c a\"", &["T[3, 41, 7]"], &["T[7, 3]"], random),
    ("einsum eq=\"a b -> b a\"", &["T[3, 5]"], &["T[5, 3]"], random),
    ("einsum eq=\"a b -> ()\"", &["T[3, 37]"], &["T[]"], random),
    ("reduce_sum eq=\"a b c -> a c\"", &["f32[3, 41, 7]"], &["f32[3, 7]"], random),
    ("reduce_max eq=\"a b c -> b\"", &["f32[3, 41, 7]"], &["f32[41]"], random),
    ("scatter_add dim=1, batch=1", &["T[2, 5, 3]", "i32[2, 5]"], &["T[2, 4, 3]"], picks),
    ("scatter_add dim=1", &["T[2, 11, 3]", "i32[11]"], &["T[2, 5, 3]"], picks),
    ("embedding_grad", &["i32[1]", "T[1, 1]"], &["T[1, 1]"], places),
    ("embedding_grad pad=3", &["i32[2, 307]", "T[2, 307, 11]"], &["T[6, 11]"], places),
    ("embedding_grad", &["i32[8449]", "T[8449, 1]"], &["T[5, 1]"], places),
    ("embedding_grad", &["i32[999]", "T[999, 3]"], &["T[600, 3]"], many),
    ("embedding_grad", &["i32[13]", "T[13, 300]"], &["T[7, 300]"], places),
];

/// Norms, whose kernels are generated, of rows whose squares overflow.
const NORMS: &[Row] = &[
    ("rms_norm eps=1e-5", &["T[5, 37]", "T[37]"], &["T[5, 37]", "f32[5]"], large),
    ("rms_norm_dx", &["T[5, 37]", "T[37]", "f32[5]", "T[5, 37]"], &["T[5, 37]"], normed),
    ("layer_norm eps=1e-5", &["T[5, 37]", "T[37]", "T[37]"], &["T[5, 37]", "f32[5]", "f32[5]"], large),
    ("layer_norm_dx", &["T[5, 37]", "T[37]", "f32[5]", "f32[5]", "T[5, 37]"], &["T[5, 37]"], centred),
];

/// Tensors of 8 bits. Products of 16, 32 or 48 rows, columns and terms with one scale each are those of tensor cores.
const EIGHT_BITS: &[Row] = &[
    ("quantise to=f8e4m3", &["T[20]", "f32[1]"], &["f8e4m3[20]"], quotients),
    ("quantise to=f8e5m2", &["T[20]", "f32[1]"], &["f8e5m2[20]"], quotients),
    ("quantise to=f8e4m3", &["T[]", "f32[]"], &["f8e4m3[]"], scaled),
    ("quantise to=f8e4m3", &["T[37, 11]", "f32[1, 1]"], &["f8e4m3[37, 11]"], quotients),
    ("quantise to=f8e4m3", &["T[6, 40]", "f32[6, 5]"], &["f8e4m3[6, 40]"], quotients),
    ("quantise to=f8e4m3", &["T[6, 15]", "f32[6, 5]"], &["f8e4m3[6, 15]"], quotients),
    ("quantise to=f8e5m2", &["T[24, 5]", "f32[3, 5]"], &["f8e5m2[24, 5]"], quotients),
    ("quantise to=f8e4m3", &["T[3, 8, 6]", "f32[3, 1, 1]"], &["f8e4m3[3, 8, 6]"], quotients),
    ("quantise to=f8e5m2", &["T[32, 48]", "f32[4, 3]"], &["f8e5m2[32, 48]"], quotients),
    (
        "einsum eq=\"m k, k n -> m n\", to=f32",
        &["f8e4m3[16, 32]", "f8e4m3[32, 48]", "f32[1, 1]", "f32[1, 1]"],
        &["f32[16, 48]"],
        scaled,
    ),
    (
        "einsum eq=\"a b n, k n -> a b k\", to=bf16",
        &["f8e5m2[2, 16, 48]", "f8e4m3[32, 48]", "f32[1, 1, 1]", "f32[1, 1]"],
        &["bf16[2, 16, 32]"],
        scaled,
    ),
    (
        "einsum eq=\"m n, m k -> k n\", to=f32",
        &["f8e5m2[48, 16]", "f8e4m3[48, 32]", "f32[1, 1]", "f32[1, 1]"],
        &["f32[32, 16]"],
        scaled,
    ),
    (
        "einsum eq=\"m k, k n -> n m\", to=f16",
        &["f8e4m3[16, 32]", "f8e5m2[32, 48]", "f32[1, 1]", "f32[1, 1]"],
        &["f16[48, 16]"],
        scaled,
    ),
    (
        "einsum eq=\"a b k, k n -> a n b\", to=bf16",
        &["f8e4m3[2, 8, 16]", "f8e4m3[16, 16]", "f32[1, 1, 1]", "f32[1, 1]"],
        &["bf16[2, 16, 8]"],
        scaled,
    ),
    (
        "einsum eq=\"m k, k n -> m n\", to=f32",
        &["f8e5m2[16, 32]", "f8e5m2[32, 48]", "f32[1, 1]", "f32[1, 1]"],
        &["f32[16, 48]"],
        scaled,
    ),
    (
        "einsum eq=\"m k, k n -> m n\", to=bf16",
        &["f8e4m3[5, 7]", "f8e4m3[7, 9]", "f32[1, 1]", "f32[1, 1]"],
        &["bf16[5, 9]"],
        scaled,
    ),
    (
        "einsum eq=\"m k, k n -> m n\", to=f32",
        &["f8e4m3[16, 32]", "f8e4m3[32, 48]", "f32[16, 4]", "f32[4, 6]"],
        &["f32[16, 48]"],
        scaled,
    ),
    (
        "einsum eq=\"e m k, e k n -> m e n\", to=f32",
        &["f8e4m3[2, 16, 32]", "f8e4m3[2, 32, 48]", "f32[2, 1, 1]", "f32[2, 1, 1]"],
        &["f32[16, 2, 48]"],
        scaled,
    ),
    (
        "einsum eq=\"a m b k, b k n -> a m n\", to=f32",
        &["f8e4m3[2, 8, 2, 16]", "f8e4m3[2, 16, 16]", "f32[2, 8, 2, 2]", "f32[2, 2, 1]"],
        &["f32[2, 8, 16]"],
        scaled,
    ),
];

/// Experts and attention.
const MODELS: &[Row] = &[
    ("top_k k=3", &["T[5, 7]"], &["T[5, 3]", "i32[5, 3]"], scores),
    ("top_k k=1", &["T[1, 1]"], &["T[1, 1]", "i32[1, 1]"], scores),
    ("top_k k=2", &["f32[37, 11]", "f32[11]"], &["f32[37, 2]", "i32[37, 2]"], scores),
    ("top_k k=3, groups=4, from=2, by=2", &["f32[13, 12]", "f32[12]"], &["f32[13, 3]", "i32[13, 3]"], scores),
    ("top_k_grad", &["i32[5, 3]", "T[5, 3]"], &["T[5, 7]"], places),
    ("dispatch", &["T[2, 6, 5]", "i32[2, 6, 2]"], &["T[2, 4, 2, 5]", "i32[2, 4]"], picks),
    ("dispatch", &["T[2, 6, 5]", "i32[2, 6, 2]", "T[2, 6, 2]"], &["T[2, 4, 2, 5]", "i32[2, 4]"], picks),
    ("combine", &["T[2, 4, 110, 5]", "i32[2, 307, 2]"], &["T[2, 307, 5]"], picks),
    ("combine", &["T[2, 4, 2, 5]", "i32[2, 6, 2]"], &["T[2, 6, 5]"], picks),
    ("combine", &["T[2, 4, 2, 5]", "i32[2, 6, 2]", "T[2, 6, 2]"], &["T[2, 6, 5]"], picks),
    ("combine_dw", &["T[2, 6, 37]", "T[2, 4, 2, 37]", "i32[2, 6, 2]"], &["T[2, 6, 2]"], picks_behind),
    ("attention scale=0.4, causal=true", HEADS, RESULTS, attention),
    ("attention scale=0.4, causal=false, p=0.2, path=\"a.b\"", HEADS, RESULTS, attention),
    (
        "attention scale=0.4, causal=true",
        &["T[1, 1, 1, 1, 1]", "T[1, 1, 1, 1]", "T[1, 1, 1, 1]", "i32[1, 1]", "i32[1, 1]", "i32[1, 1]", "i32[1, 1]"],
        &["T[1, 1, 1, 1, 1]", "f32[1, 1, 1, 1]"],
        attention,
    ),
    ("attention scale=0.4, causal=true, window=3, softcap=0.9", HEADS, RESULTS, attention),
    ("attention scale=0.4, causal=true, chunk=3", HEADS, RESULTS, attention),
    ("attention scale=0.4, causal=true", WITH_SINK, RESULTS, attention),
    ("attention_grad scale=0.4, causal=true, window=3, softcap=0.9", SAVED, GRADIENTS, gradient),
    ("attention_grad scale=0.4, causal=true, chunk=3", SAVED, GRADIENTS, gradient),
    ("attention_grad scale=0.4, causal=true", SAVED, GRADIENTS, gradient),
    ("attention_grad scale=0.4, causal=false, p=0.2, path=\"a.b\"", SAVED, GRADIENTS, gradient),
];

const HEADS: &[&str] =
    &["T[2, 41, 2, 3, 7]", "T[2, 37, 2, 7]", "T[2, 37, 2, 35]", "i32[2, 41]", "i32[2, 37]", "i32[2, 41]", "i32[2, 37]"];
const WITH_SINK: &[&str] = &[
    "T[2, 41, 2, 3, 7]",
    "T[2, 37, 2, 7]",
    "T[2, 37, 2, 35]",
    "i32[2, 41]",
    "i32[2, 37]",
    "i32[2, 41]",
    "i32[2, 37]",
    "T[2, 3]",
];
const RESULTS: &[&str] = &["T[2, 41, 2, 3, 35]", "f32[2, 41, 2, 3]"];
const SAVED: &[&str] = &[
    "T[2, 41, 2, 3, 7]",
    "T[2, 37, 2, 7]",
    "T[2, 37, 2, 35]",
    "T[2, 41, 2, 3, 35]",
    "f32[2, 41, 2, 3]",
    "T[2, 41, 2, 3, 35]",
    "i32[2, 41]",
    "i32[2, 37]",
    "i32[2, 41]",
    "i32[2, 37]",
];
const GRADIENTS: &[&str] = &["T[2, 41, 2, 3, 7]", "T[2, 37, 2, 7]", "T[2, 37, 2, 35]"];

/// Attentions on tensor cores: settings; b, s, t, g, r, d, c; true if positions are in order. Few heads have tiles of 16 rows, and many
/// have tiles of 128 or 64.
const TILES: &[(&str, [usize; 7], bool)] = &[
    ("scale=0.4, causal=true", [2, 41, 37, 2, 3, 16, 32], false),
    ("scale=0.1, causal=false, p=0.2, path=\"a.b\"", [2, 33, 70, 1, 2, 48, 80], false),
    ("scale=0.1, causal=true", [1, 1, 1, 1, 1, 128, 16], false),
    ("scale=0.1, causal=true", [1, 50, 67, 2, 1, 96, 128], true),
    ("scale=0.1, causal=true", [1, 60, 60, 30, 2, 16, 64], true),
    ("scale=0.3, causal=true, p=0.1, path=\"a\"", [1, 129, 160, 54, 1, 16, 16], false),
    ("scale=0.3, causal=true", [1, 129, 160, 54, 1, 16, 16], true),
    ("scale=0.3, causal=true, window=40", [1, 129, 160, 54, 1, 16, 16], true),
    ("scale=0.3, causal=true, chunk=40", [1, 129, 160, 54, 1, 16, 16], true),
    ("scale=0.3, causal=true, softcap=0.7, window=20", [1, 60, 60, 2, 2, 32, 16], true),
    ("scale=0.4, causal=true, softcap=1.5", [2, 41, 37, 2, 3, 16, 32], false),
];

/// The cases of attention on tensor cores; those of few heads in f16, too.
fn tiles() -> Vec<OpCase> {
    let mut cases = Vec::new();
    for &(settings, sizes, ordered) in TILES {
        for format in ["bf16", "f16"].into_iter().take(if sizes[3] > 10 { 1 } else { 2 }) {
            cases.extend(attentions(settings, format, sizes, ordered));
        }
    }
    cases
}

/// An attention, and its gradient.
pub(crate) fn attentions(
    settings: &str,
    format: &str,
    [b, s, t, g, r, d, c]: [usize; 7],
    ordered: bool,
) -> Vec<OpCase> {
    let tensor = |dims: &[usize]| format!("{format}{dims:?}");
    let heads = [tensor(&[b, s, g, r, d]), tensor(&[b, t, g, d]), tensor(&[b, t, g, c])];
    let (out, sums) = (tensor(&[b, s, g, r, c]), format!("f32{:?}", [b, s, g, r]));
    let places = [s, t, s, t].map(|n| format!("i32{:?}", [b, n]));
    let [forward, backward]: [Numbers; 2] =
        if ordered { [attention_in_order, gradient_in_order] } else { [attention, gradient] };
    let (operands, results) = ([&heads[..], &places].concat(), [out.clone(), sums.clone()]);
    let saved = [&heads[..], &[out.clone(), sums, out], &places].concat();
    vec![
        made(&format!("attention {settings}"), [&operands, &results], forward, false),
        made(&format!("attention_grad {settings}"), [&saved, &heads], backward, false),
    ]
}

/// All cases.
#[allow(dead_code, reason = "one of the tests that have it compiles fewer kernels")]
pub(crate) fn cases() -> Vec<OpCase> {
    rows().into_iter().chain(tiles()).collect()
}

/// All rows in f32, and the last of each op in bf16 too; those of one result that is no update add to it, too.
pub(crate) fn rows() -> Vec<OpCase> {
    let rows: Vec<&Row> = NUMBERS.iter().chain(MOVES).chain(NORMS).chain(EIGHT_BITS).chain(MODELS).collect();
    let mut cases = Vec::new();
    for (at, row) in rows.iter().enumerate() {
        let is_last = rows.get(at + 1).is_none_or(|next| name(next.0) != name(row.0));
        let is_narrow = is_last && row.1.iter().any(|ty| ty.starts_with("T["));
        for format in ["f32", "bf16"].into_iter().take(1 + usize::from(is_narrow)) {
            cases.push(case(row, format, false));
            if row.2.len() == 1 && !["sgd", "ages"].contains(&name(row.0)) {
                cases.push(case(row, format, true));
            }
        }
    }
    cases
}

fn name(op: &str) -> &str {
    op.split(' ').next().unwrap_or(op)
}

fn case(&(op, operands, results, draw): &Row, format: &str, accumulate: bool) -> OpCase {
    let typed = |side: &[&str]| side.iter().map(|ty| ty.replace("T[", &format!("{format}["))).collect::<Vec<_>>();
    made(op, [&typed(operands), &typed(results)], draw, accumulate)
}

fn made(op: &str, [operands, results]: [&[String]; 2], draw: Numbers, accumulate: bool) -> OpCase {
    let named = |types: &[String], name: &str| {
        types.iter().enumerate().map(|(i, ty)| format!("%{name}{i}: {ty}")).collect::<Vec<_>>().join(", ")
    };
    let names = |count: usize, name: &str| (0..count).map(|i| format!("%{name}{i}")).collect::<Vec<_>>().join(", ");
    let (op, attributes) = op.split_once(' ').unwrap_or((op, ""));
    let text = format!(
        "mesh @m = [dp=1]\nblock @b({}) -> {} {{\n  {} = {op}({}{}{attributes})\n  return {}\n}}",
        named(operands, "a"),
        results.join(", "),
        named(results, "r"),
        names(operands.len(), "a"),
        if attributes.is_empty() { "" } else { ", " },
        names(results.len(), "r"),
    );
    let model = ir::text::parse(&text).unwrap_or_else(|why| panic!("{why:?}\n{text}")).model;
    let (name, run) = (format!("{op} {attributes} {operands:?} {accumulate}"), Run::Op(accumulate));
    OpCase { name, run, draw, is_exact: op == "einsum" && attributes.contains("to="), model }
}
