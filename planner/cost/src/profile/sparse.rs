//! Attention to chosen keys and the indexer that chooses them, as attentions: their work is products of queries and keys, whose
//! results no memory holds.

use super::attention::Attention;
use crate::attention::AttentionShape;
use ir::ops::KernelOp;
use ir::types::Dim;

/// The heads of an op, and the operand that names its keys.
struct Heads {
    /// True if key heads are a dim, as those of attention.
    grouped: bool,
    /// The choice; none: all visible keys.
    index: Option<usize>,
    backward: bool,
    /// Values follow keys.
    weighs: bool,
}

impl Heads {
    const INDEX: Heads = Heads { grouped: false, index: Some(3), backward: false, weighs: false };
    const ATTENTION: Heads = Heads { grouped: true, weighs: true, ..Heads::INDEX };

    fn of(op: &KernelOp) -> Option<Heads> {
        match op {
            KernelOp::SelectKeys(_) => Some(Heads { index: None, ..Heads::INDEX }),
            KernelOp::IndexScores(_) => Some(Heads::INDEX),
            KernelOp::IndexScoresGrad(_) => Some(Heads { backward: true, ..Heads::INDEX }),
            KernelOp::KeyMass(_) => Some(Heads { weighs: false, ..Heads::ATTENTION }),
            KernelOp::SparseAttention(_) => Some(Heads::ATTENTION),
            KernelOp::SparseAttentionGrad(_) => Some(Heads { index: Some(6), backward: true, ..Heads::ATTENTION }),
            _ => None,
        }
    }
}

/// The size of a dim of an operand.
fn at(dims: &[&[Dim]], operand: usize, dim: usize, size: &impl Fn(&Dim) -> f64) -> Option<f64> {
    dims.get(operand)?.get(dim).map(size)
}

/// An op as an attention: queries `[b, s, n, d]` or `[b, s, g, r, d]`. A query that sees `i` keys has the smaller one of `i` and its number
/// of choices; one that chooses has all `i`.
pub(super) fn of(op: &KernelOp, dims: &[&[Dim]], size: &impl Fn(&Dim) -> f64) -> Option<Attention> {
    let Heads { grouped, index, backward, weighs } = Heads::of(op)?;
    let all = dims.get(1)?.get(1)?.size as f64;
    let most = match index {
        Some(operand) => at(dims, operand, 2, size)?.min(all),
        None => all,
    };
    let (first, second) = (at(dims, 0, 2, size)?, at(dims, 0, 3, size)?);
    let (heads, d) = if grouped { (first * second, at(dims, 0, 4, size)?) } else { (first, second) };
    // The first queries see fewer keys than they may choose.
    let pairs = most * (most + 1.0) / 2.0 + (all - most) * most;
    let shape = AttentionShape {
        batch: at(dims, 0, 0, size)?,
        heads,
        kv_heads: if grouped { at(dims, 1, 2, size)? } else { 1.0 },
        queries: at(dims, 0, 1, size)?,
        keys: most,
        d,
        c: if weighs { at(dims, 2, 3, size)? } else { 0.0 },
        share: pairs / (all * most),
    };
    Some(Attention { shape, causal: true, reach: None, counted: shape.share, dropout: false, backward })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ir::ops::{SelectKeys, SparseAttention};
    use ir::types::{DType, Type};

    fn flops(op: KernelOp, operands: &[&[u64]]) -> f64 {
        let types: Vec<Type> = operands.iter().map(|sizes| Type::of(DType::BF16, sizes)).collect();
        let dims: Vec<&[Dim]> = types.iter().map(|ty| ty.dims.as_slice()).collect();
        of(&op, &dims, &|dim| dim.size as f64).unwrap().shape.flops(false)
    }

    /// DeepSeek-V3.2 at 131,072 tokens: half of the pairs with 64 heads of 128 elements, and about 2,048 keys of 576 and 512 elements for
    /// 128 heads.
    #[test]
    fn an_index_is_quadratic_and_attention_linear() {
        let t = 131_072;
        let index = flops(KernelOp::SelectKeys(SelectKeys { keys: 2048 }), &[&[1, t, 64, 128], &[1, t, 128]]);
        let attention = flops(
            KernelOp::SparseAttention(SparseAttention { scale: 1.0 }),
            &[&[1, t, 1, 128, 576], &[1, t, 1, 576], &[1, t, 1, 512], &[1, t, 2048]],
        );
        let [index, attention] = [index, attention].map(|flops| flops / t as f64 / 1e9);
        assert!((index - 1.07).abs() < 0.01 && (attention - 0.57).abs() < 0.01, "{index} {attention}");
    }
}
