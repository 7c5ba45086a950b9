//! Quantisation: the products with parameters take 8-bit operands, in the forward and in both of its gradients.
//!
//! The products are `y = einsum(x, w)`, `dx = einsum(dy, w)` and `dw = einsum(dy, x)`. Each operand is measured (`absmax`), divided by scales
//! (`quantise`), and multiplied by them again in the product. Recipes differ in the blocks that share a scale:
//!
//! - blocks (DeepSeek-V3, section 3.3.2): 128 x 128 elements of a parameter, and 128 elements of activations and cotangents along
//!   the dim that the product sums. `x` is thus quantised twice: along the dim that `w` shares for `y`, along tokens for `dw`.
//! - tensors: one scale for each tensor, from its elements as they are (current scaling); an expert has its own.
//! - delayed: one scale for each tensor, from the exponents of its elements in the last steps; parameters have theirs as they are.
//!
//! Heads and routers stay as they are: their products have a dim of the vocabulary or of the router's experts.
//!
//! Where the backward reads `x` for `dw` alone, F quantises it, and its 8-bit copy is saved in its place.
//!
//! Scales are tensors and operands of `einsum`, so that 8-bit tensors are gathered, saved and costed as 8-bit tensors. A
//! rule states blocks as compound dims, `(k k'=128)`: a mesh shards whole blocks, or one block, whose ranks then take the
//! maximum. Powers of two make products with scales exact, so the kernel and the reference round at the same points.
//!
//! Delayed scaling counts exponents, which sum over shards and micro-batches like gradients: no rank waits for a maximum.
//! Its records are parameters, which U updates by their ages (`ir::ops::delayed`). ZeRO, pipelines and checkpoints know
//! nothing of them.

mod ages;
mod product;
mod rewriter;

use self::product::{Forward, Part, part};
use self::rewriter::Rewriter;
use crate::build_error::BuildError;
use crate::renumber::renumber;
use ir::entity::EntitySet;
use ir::graph::{Block, Model, SectionKind};
use ir::ids::{BlockId, Value};
use ir::options::Quantisation;
use ir::types::Dims;

/// Quantises the products with parameters of a differentiated model, and returns their number, a forward and its gradients counted as one.
///
/// # Errors
/// A product is none: its statement does not hold in the block.
pub fn quantise(model: &mut Model, recipe: &Quantisation) -> Result<usize, BuildError> {
    let blocks: Vec<BlockId> = model.blocks.keys().collect();
    let mut count = 0;
    for id in blocks {
        let block = &mut model.blocks[id];
        let first_new = block.values.len();
        let (products, records) = quantise_block(block, &model.dims, recipe)?;
        if model.has_mesh {
            // The planner decides the shardings of new values.
            let new = block.values.values_mut().skip(first_new);
            new.for_each(|value| value.ty.dims.iter_mut().for_each(|dim| dim.open = true));
        }
        renumber(block);
        if !records.is_empty() {
            ages::declare(model, id, records);
        }
        count += products;
    }
    Ok(count)
}

/// Rewrites a block. Gives the number of its products, and the names of its records.
fn quantise_block(block: &mut Block, dims: &Dims, recipe: &Quantisation) -> Result<(usize, Vec<String>), BuildError> {
    let stmts = &block[SectionKind::F].stmts;
    let forwards: Vec<Forward> = stmts.iter().filter_map(|stmt| Forward::of(stmt, block, dims, recipe)).collect();
    let mut rewriter = Rewriter::new(recipe, &forwards, saved_narrow(block, &forwards));
    for kind in [SectionKind::F, SectionKind::I, SectionKind::W] {
        rewriter.section(block, kind)?;
    }
    let records = rewriter.records.write(block);
    Ok((forwards.len(), records))
}

/// The values of F that the backward reads for gradients of parameters alone: their 8-bit copies are saved.
fn saved_narrow(block: &Block, forwards: &[Forward]) -> Vec<Value> {
    let (mut by_products, mut by_others) = (EntitySet::new(), EntitySet::new());
    for kind in [SectionKind::I, SectionKind::W] {
        for stmt in &block[kind].stmts {
            let readers = match part(stmt, kind, forwards, block) {
                Some((_, Part::Weight)) => &mut by_products,
                _ => &mut by_others,
            };
            readers.extend(stmt.operands.iter().copied());
        }
    }
    let operands = forwards.iter().map(|forward| forward.x);
    operands.filter(|&x| by_products.contains(x) && !by_others.contains(x)).collect()
}
