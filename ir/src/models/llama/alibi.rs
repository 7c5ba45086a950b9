//! Biases of scores by distance (Press et al. 2022, ALiBi): a query and a key `n` positions before it have the score of their product,
//! less `n` times the slope of the head.
//!
//! A softmax stays as it is if all scores of a query grow alike, so that the slope times the position of the key is the same bias. This is a
//! product of two more elements of queries and keys: slopes, and positions as a quotient and a rest, which are whole numbers in any format.
//! Heads have two more elements for it, so that kernels of tensor cores, which take multiples of 16, do not serve them.

use crate::models::draft::{Body, DraftError};
use crate::ops::{Binary, BinaryKind, Broadcast, Concat, Einsum, Equation, Iota, UnaryKind};
use crate::types::DType;

/// The exponent of the smallest slope of a power of two of heads: slopes are `2^(-8 h / heads)` for h from 1 on.
const LEAST_SLOPE: f64 = 8.0;

/// The divisor of positions; bf16 has all whole numbers up to it.
const DIVISOR: f64 = 256.0;

/// The heads whose scores have biases by distance.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Alibi {
    /// Query heads.
    pub heads: u64,
    /// Heads of keys and values.
    pub kv_heads: u64,
    /// The factor of scores.
    pub scale: f64,
}

impl Alibi {
    /// The slopes of all query heads, the first head's first.
    pub fn slopes(self) -> Vec<f64> {
        let first = 1_u64 << self.heads.max(1).ilog2();
        let slopes = (0..self.heads).map(|head| match head.checked_sub(first) {
            None => -LEAST_SLOPE * (head + 1) as f64 / first as f64,
            Some(behind) => -LEAST_SLOPE * (2 * behind + 1) as f64 / (2 * first) as f64,
        });
        slopes.map(f64::exp2).collect()
    }

    /// `y`, queries with two more elements: their slopes times the divisor, and the slopes.
    ///
    /// # Errors
    /// There are no such queries.
    pub fn queries(self, b: &mut Body<'_>, y: &str, x: &str) -> Result<(), DraftError> {
        queries(self, b, y, x)
    }

    /// `y`, keys with two more elements: their positions over the divisor, rounded down, and the rest.
    ///
    /// # Errors
    /// There are no such keys.
    pub fn keys(self, b: &mut Body<'_>, y: &str, x: &str) -> Result<(), DraftError> {
        keys(b, y, x)
    }
}

fn queries(alibi: Alibi, b: &mut Body<'_>, y: &str, x: &str) -> Result<(), DraftError> {
    let dtype = b.dtype(x)?;
    slopes(alibi, b)?;
    // The elements are the divisor and 1, over the factor of scores.
    let scale = alibi.scale;
    b.op(&["lean_part"], Iota { dim: 2, dims: b.dims("g r 2"), dtype: DType::F32 }, &[])?;
    b.scale("lean_less", (1.0 - DIVISOR) / scale, "lean_part")?;
    b.unary("lean_factor", UnaryKind::Shift(DIVISOR / scale), "lean_less")?;
    b.op(&["lean_wide"], Binary::of(BinaryKind::Mul), &["slope", "lean_factor"])?;
    b.unary("lean", UnaryKind::Cast(dtype), "lean_wide")?;
    let to_all = Broadcast { equation: Equation::parse("g r e -> b s g r e")?, free: b.dims("b s") };
    b.op(&["leans"], to_all, &["lean"])?;
    b.op(&[y], Concat { dim: 4 }, &[x, "leans"])
}

fn keys(b: &mut Body<'_>, y: &str, x: &str) -> Result<(), DraftError> {
    let dtype = b.dtype(x)?;
    b.unary("key_at", UnaryKind::Cast(DType::F32), "pos")?;
    // Half a position more keeps whole quotients whole under rounding.
    b.unary("key_next", UnaryKind::Shift(0.5), "key_at")?;
    b.scale("key_share", 1.0 / DIVISOR, "key_next")?;
    b.unary("key_turns", UnaryKind::Floor, "key_share")?;
    b.scale("key_before", DIVISOR, "key_turns")?;
    b.op(&["key_rest"], Binary::of(BinaryKind::Sub), &["key_at", "key_before"])?;
    b.op(&["key_second"], Iota { dim: 0, dims: b.dims("2"), dtype: DType::F32 }, &[])?;
    b.scale("key_minus", -1.0, "key_second")?;
    b.unary("key_first", UnaryKind::Shift(1.0), "key_minus")?;
    let product = Einsum::new("b s, e -> b s e")?;
    b.op(&["key_turns_two"], product.clone(), &["key_turns", "key_first"])?;
    b.op(&["key_rest_two"], product, &["key_rest", "key_second"])?;
    b.op(&["key_wide"], Binary::of(BinaryKind::Add), &["key_turns_two", "key_rest_two"])?;
    b.unary("key_two", UnaryKind::Cast(dtype), "key_wide")?;
    let to_heads = Broadcast { equation: Equation::parse("b s e -> b s g e")?, free: b.dims("g") };
    b.op(&["keys_two"], to_heads, &["key_two"])?;
    b.op(&[y], Concat { dim: 3 }, &[x, "keys_two"])
}

/// `slope` of each head, for both elements. Of `n` heads the first ones, the largest power of two `p`, have those of `p` heads; the others
/// have every second one of `2 p` heads.
fn slopes(Alibi { heads, kv_heads, .. }: Alibi, b: &mut Body<'_>) -> Result<(), DraftError> {
    let first = 1_u64 << heads.ilog2();
    let of_each = (heads / kv_heads) as f64;
    for (iota, dim) in [("slope_group", 0), ("slope_query", 1)] {
        b.op(&[iota], Iota { dim, dims: b.dims("g r 2"), dtype: DType::F32 }, &[])?;
    }
    b.scale("slope_before", of_each, "slope_group")?;
    b.op(&["slope_head"], Binary::of(BinaryKind::Add), &["slope_before", "slope_query"])?;
    // 1 from the head `p` on, else 0.
    b.unary("slope_behind", UnaryKind::Shift(1.0 - first as f64), "slope_head")?;
    b.unary("slope_above", UnaryKind::AtLeast(0.0), "slope_behind")?;
    b.unary("slope_is_behind", UnaryKind::AtMost(1.0), "slope_above")?;
    // The exponent `(8 (h + 1) - [h >= p] (8 p + 4)) / p` is `8 (h + 1) / p` or `8 (2 (h - p) + 1) / 2 p`.
    let by = LEAST_SLOPE / first as f64;
    b.unary("slope_next", UnaryKind::Shift(1.0), "slope_head")?;
    b.scale("slope_fall", by, "slope_next")?;
    b.scale("slope_less", by * (first as f64 + 0.5), "slope_is_behind")?;
    b.op(&["slope_exponent"], Binary::of(BinaryKind::Sub), &["slope_fall", "slope_less"])?;
    b.scale("slope_log", -std::f64::consts::LN_2, "slope_exponent")?;
    b.unary("slope", UnaryKind::Exp, "slope_log")
}
