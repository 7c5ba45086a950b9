//! FLOPs that a model needs, wherever it runs.

use ir::graph::{Block, Model, SectionKind};
use ir::ops::{KernelOp, Op};
use ir::types::Type;

/// FLOPs of all matrix products and attentions of one micro-batch, forward and backward, all ranks together.
///
/// Each product of the forward has two in the backward, one per operand: three times the forward (Chowdhery et al. 2022,
/// PaLM, appendix B). Causal attention counts the half of the pairs that it looks at. What is computed again counts once.
pub fn model_flops(model: &Model) -> f64 {
    let of_call =
        |call: &ir::graph::Call| f64::from(call.instances()) * forward_flops(&model.blocks[call.block]) as f64;
    3.0 * model.calls.iter().map(of_call).sum::<f64>()
}

fn forward_flops(block: &Block) -> u64 {
    let flops = |stmt: &ir::graph::Stmt| match &stmt.op {
        Op::Kernel(op @ (KernelOp::Einsum(_) | KernelOp::Attention(_))) => {
            let logical = |values: &[_]| values.iter().map(|&v| block.ty(v).logical()).collect::<Vec<Type>>();
            let (operands, results) = (logical(&stmt.operands), logical(&stmt.results));
            op.def().flops(&operands.iter().collect::<Vec<_>>(), &results.iter().collect::<Vec<_>>())
        }
        _ => 0,
    };
    block[SectionKind::F].stmts.iter().map(flops).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ir::models::{Batch, preset};
    use ir::types::DType;

    /// Six FLOPs per token and weight that multiplies, and 12 layers x heads x head size x pairs, of which half are seen.
    #[test]
    fn a_llama_needs_six_flops_per_weight_and_token() {
        let batch = Batch { batch: 2, seq: 128, dtype: DType::F32 };
        let model = preset("tiny-llama").unwrap().config.build(&batch).unwrap();
        let norms = model.params.values().filter(|param| param.ty.dims.len() == 1);
        let norms: u64 = norms.map(|param| param.ty.elements() * u64::from(param.instances())).sum();
        // The embedding is the head's weight too.
        let weights = (model.parameter_count() - norms) as f64;
        let (tokens, width) = (256.0, 256.0);
        let attention = 4.0 * 12.0 * width * 2.0 * 128.0 * 128.0 / 2.0;
        assert_eq!(model_flops(&model), 6.0 * weights * tokens + attention);
    }
}
