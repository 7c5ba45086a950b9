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
    fn of(op: &KernelOp) -> Option<Heads> {
        let heads = |grouped, index, backward, weighs| Some(Heads { grouped, index, backward, weighs });
        match op {
            KernelOp::SelectKeys(_) => heads(false, None, false, false),
            KernelOp::IndexScores(_) => heads(false, Some(3), false, false),
            KernelOp::IndexScoresGrad(_) => heads(false, Some(3), true, false),
            KernelOp::KeyMass(_) => heads(true, Some(3), false, false),
            KernelOp::SparseAttention(_) => heads(true, Some(3), false, true),
            KernelOp::SparseAttentionGrad(_) => heads(true, Some(6), true, true),
            _ => None,
        }
    }
}

/// An op as an attention: queries `[b, s, n, d]` or `[b, s, g, r, d]`. A query that sees `i` keys has the smaller one of `i` and its number
/// of choices; one that chooses has all `i`.
pub(super) fn of(op: &KernelOp, dims: &[&[Dim]], size: impl Fn(&Dim) -> f64) -> Option<Attention> {
    let Heads { grouped, index, backward, weighs } = Heads::of(op)?;
    let at = |operand: usize, dim: usize| dims.get(operand)?.get(dim).map(&size);
    let all = dims.get(1)?.get(1)?.size as f64;
    let most = match index {
        Some(operand) => at(operand, 2)?.min(all),
        None => all,
    };
    let (heads, d) = if grouped { (at(0, 2)? * at(0, 3)?, at(0, 4)?) } else { (at(0, 2)?, at(0, 3)?) };
    // The first queries see fewer keys than they may choose.
    let pairs = most * (most + 1.0) / 2.0 + (all - most) * most;
    let shape = AttentionShape {
        batch: at(0, 0)?,
        heads,
        kv_heads: if grouped { at(1, 2)? } else { 1.0 },
        queries: at(0, 1)?,
        keys: most,
        d,
        c: if weighs { at(2, 3)? } else { 0.0 },
        share: pairs / (all * most),
    };
    Some(Attention { shape, causal: true, counted: shape.share, dropout: false, backward })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ir::ops::{SelectKeys, SparseAttention};
    use ir::types::{DType, Type};

    /// DeepSeek-V3.2 at 131,072 tokens: half of the pairs with 64 heads of 128 elements, and about 2,048 keys of 576 and 512 elements for
    /// 128 heads.
    #[test]
    fn an_index_is_quadratic_and_attention_linear() {
        let flops = |op: KernelOp, operands: &[&[u64]]| {
            let types: Vec<Type> = operands.iter().map(|sizes| Type::of(DType::BF16, sizes)).collect();
            let dims: Vec<&[Dim]> = types.iter().map(|ty| ty.dims.as_slice()).collect();
            of(&op, &dims, |dim| dim.size as f64).unwrap().shape.flops(false)
        };
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
