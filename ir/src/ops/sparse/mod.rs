//! Attention to some keys that an index chooses: the lightning indexer and sparse attention of DeepSeek-AI 2025 (DeepSeek-V3.2,
//! section 2.1), and the loss that trains the indexer.
//!
//! A choice is `i32[b, s, j]`: places of keys in the sequence of keys, ascending, then -1 for places that no key has. It names
//! visible keys alone, so the ops that read it know neither positions nor segments. The scores of all pairs never exist as a
//! tensor. Sparse attention is an op of its own, and no operand of `attention`, since its work is linear in the chosen keys, and no
//! round of a ring can have them: they are anywhere in the sequence.

pub(super) mod attention;
pub(super) mod index_loss;
pub(super) mod index_scores;
pub(super) mod key_mass;
pub(super) mod select_keys;

use super::{OpResult, operands};
use crate::types::{DType, Dim, Type};

/// The dims of queries and keys of an indexer.
struct Indexer {
    batch: Dim,
    queries: Dim,
    keys: Dim,
}

/// Checks `q [b, s, n, d]`, `k [b, t, d]` and `w [b, s, n]`, all of one type.
fn indexer(q: &Type, k: &Type, w: &Type) -> OpResult<Indexer> {
    let [q, k] = [q, k].map(Type::logical);
    let dtype = operands::float("q", &q)?;
    let [b, s, n, d] = operands::dims("q", &q, "b, s, n, d")?;
    let [_, t, _] = operands::dims("k", &k, "b, t, d")?;
    operands::expect("k", &k, dtype, &[b.clone(), t.clone(), d.clone()])?;
    operands::expect("w", w, dtype, &[b.clone(), s.clone(), n.clone()])?;
    Ok(Indexer { batch: b.clone(), queries: s.clone(), keys: t.clone() })
}

/// The number of choices of a row of `index i32[b, s, j]`.
fn choices(index: &Type, batch: &Dim, queries: &Dim) -> OpResult<Dim> {
    let index = index.logical();
    let [_, _, j] = operands::dims("index", &index, "b, s, j")?;
    operands::expect("index", &index, DType::I32, &[batch.clone(), queries.clone(), j.clone()])?;
    Ok(j.clone())
}
