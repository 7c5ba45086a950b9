//! FLOPs of a model, independent of hardware and sharding.

use crate::profile::scan_flops;
use crate::routing::Routing;
use ir::dim_role::DimRole;
use ir::graph::{ArgKind, Block, Call, Model, SectionKind, Stmt};
use ir::ids::Value;
use ir::ops::{KernelOp, Op};
use ir::types::Type;

/// FLOPs of all matrix products and attentions of one micro-batch, forward and backward, all ranks together.
///
/// Each product of the forward has two in the backward, one per operand: three times the forward (Chowdhery et al.
/// 2022, PaLM, appendix B). A frozen parameter has no gradient, so that its products have one. Causal attention counts only unmasked
/// pairs. Recomputation is not counted.
pub fn model_flops(model: &Model) -> f64 {
    model.calls.iter().map(|call| f64::from(call.instances()) * call_flops(model, call)).sum()
}

/// FLOPs of one instance of a call, forward and backward.
fn call_flops(model: &Model, call: &Call) -> f64 {
    let block = &model.blocks[call.block];
    let bound = block.args_of(ArgKind::Param).zip(model.call_params(call, 0));
    let frozen: Vec<Value> = bound.filter(|(_, it)| model.params[it.0].frozen).map(|(param, _)| param).collect();
    flops(model, block, |stmt| if stmt.operands.iter().any(|value| frozen.contains(value)) { 2.0 } else { 3.0 })
}

/// FLOPs of the forward times the number of its `passes`, without padding of experts.
fn flops(model: &Model, block: &Block, passes: impl Fn(&Stmt) -> f64) -> f64 {
    let filled = Routing::of(block).map_or(1.0, |routing| routing.filled());
    let flops = block[SectionKind::F].stmts.iter().map(|stmt| {
        let Op::Kernel(op) = &stmt.op else { return 0.0 };
        let [operands, results] = [&stmt.operands, &stmt.results]
            .map(|values| values.iter().map(|&value| block.ty(value).logical()).collect::<Vec<Type>>());
        if let Some(flops) = scan_flops(op, &operands) {
            return passes(stmt) * flops;
        }
        let passes = match op {
            KernelOp::Einsum(_) | KernelOp::Attention(_) | KernelOp::SparseAttention(_) => passes(stmt),
            // A choice has no gradient.
            KernelOp::SelectKeys(_) => 1.0,
            _ => return 0.0,
        };
        let work = op.def().work(&operands.iter().collect::<Vec<_>>(), &results.iter().collect::<Vec<_>>());
        let has_places = stmt.operands.iter().any(|&value| takes_places(model, block.ty(value)));
        passes * work.flops as f64 * if has_places { filled } else { 1.0 }
    });
    flops.sum()
}

/// Returns whether a tensor has the capacity dim of experts.
fn takes_places(model: &Model, ty: &Type) -> bool {
    ty.has_role(DimRole::Capacity, &model.dims)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ir::models::{Batch, Experts, LlamaConfig, ModelConfig, preset};
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

    /// However many places experts have.
    #[test]
    fn empty_places_of_experts_are_no_work() {
        let batch = Batch { batch: 2, seq: 128, dtype: DType::F32 };
        let Some(ModelConfig::Llama(tiny)) = preset("tiny-moe").map(|preset| preset.config.clone()) else { panic!() };
        let flops = |capacity| {
            let experts = tiny.experts.clone().map(|experts| Experts { capacity, ..experts });
            model_flops(&ModelConfig::Llama(LlamaConfig { experts, ..tiny.clone() }).build(&batch).unwrap())
        };
        assert_eq!([Some(2.0), None].map(flops), [flops(Some(1.0)); 2]);
    }
}
