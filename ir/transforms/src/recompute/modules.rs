//! The modules of selective recomputation.

use ir::dim_role::DimRole;
use ir::graph::{Block, SectionKind, Stmt};
use ir::ids::Value;
use ir::ops::{Collective, Op, OpClass};
use ir::types::Dims;
use std::collections::BTreeSet;

/// The names that `recompute=selective:..` may have, those of Megatron-Core's `--recompute-modules` among them, and the
/// values that each recomputes.
pub const MODULES: [(&str, &str); 8] = [
    ("core_attn", "scores and softmax of attention; flash attention keeps none anyway"),
    ("op", "all but the results of attention, of sums over tp and of every second product, as torchtitan has it"),
    ("layernorm", "the results of norms"),
    ("mlp", "all of a dense feed-forward net but its input"),
    ("moe", "all of routing and experts but their input"),
    ("shared_experts", "all of the expert that all tokens take but its input"),
    ("moe_act", "the results of the experts' activations"),
    ("mla_up_proj", "queries, keys and values made from their compressed forms"),
];

/// The statements of `F`, by index, whose results a module recomputes. Those of `core_attn` are inside one op.
pub fn of_module(block: &Block, dims: &Dims, module: &str) -> BTreeSet<usize> {
    let site = Site { block, dims };
    match module {
        "op" => site.between_products(),
        "layernorm" => site.places(|stmt| stmt.op.facts().class == OpClass::Norm),
        "mlp" => site.places(|stmt| site.touches(stmt, &[DimRole::FeedForward])),
        "moe" => {
            let of_experts = [DimRole::Experts, DimRole::ExpertFeedForward, DimRole::RouterLogits];
            site.places(|stmt| site.touches(stmt, &of_experts))
        }
        "shared_experts" => site.places(|stmt| site.touches(stmt, &[DimRole::SharedFeedForward])),
        "moe_act" => site.places(|stmt| {
            let mut results = stmt.results.iter();
            stmt.op.facts().class == OpClass::Activation
                && results.any(|&value| site.has_role(value, DimRole::ExpertFeedForward))
        }),
        "mla_up_proj" => site.up_projections(),
        _ => BTreeSet::new(),
    }
}

struct Site<'a> {
    block: &'a Block,
    dims: &'a Dims,
}

impl Site<'_> {
    fn stmts(&self) -> &[Stmt] {
        &self.block[SectionKind::F].stmts
    }

    fn places(&self, is: impl Fn(&Stmt) -> bool) -> BTreeSet<usize> {
        self.stmts().iter().enumerate().filter(|(_, stmt)| is(stmt)).map(|(at, _)| at).collect()
    }

    fn has_role(&self, value: Value, role: DimRole) -> bool {
        self.block.ty(value).has_role(role, self.dims)
    }

    /// True if a statement reads or computes a tensor with a dim of one of the roles.
    fn touches(&self, stmt: &Stmt, roles: &[DimRole]) -> bool {
        let mut values = stmt.operands.iter().chain(&stmt.results);
        values.any(|&value| roles.iter().any(|&role| self.has_role(value, role)))
    }

    /// All of F except attention, sums over tp, and every second product; the first product is saved.
    fn between_products(&self) -> BTreeSet<usize> {
        let mut products = 0;
        let stmts = self.stmts().iter().enumerate();
        let dropped = stmts.filter(|(_, stmt)| match stmt.op.facts().class {
            OpClass::Attention => false,
            OpClass::Product => {
                products += 1;
                products % 2 == 0
            }
            _ => !matches!(stmt.op, Op::Collective(Collective::ReduceScatter { .. })),
        });
        dropped.map(|(at, _)| at).collect()
    }

    /// All statements between the compressed forms and attention: those that compute its queries, keys and values, back to the
    /// norms. Empty if no product computes their inputs.
    fn up_projections(&self) -> BTreeSet<usize> {
        let attention = self.stmts().iter().find(|stmt| stmt.op.facts().class == OpClass::Attention);
        let mut wanted: Vec<Value> = attention.map_or(Vec::new(), |stmt| stmt.operands[..3].to_vec());
        let (mut found, mut is_compressed) = (BTreeSet::new(), false);
        while let Some(value) = wanted.pop() {
            let Some(at) = self.stmts().iter().position(|stmt| stmt.results.contains(&value)) else { continue };
            let stmt = &self.stmts()[at];
            let has_heads = self.touches(stmt, &[DimRole::KvHeads]);
            is_compressed |= !has_heads && self.is_of_product(value);
            // What a norm of each head reads is no compressed form.
            if has_heads && stmt.op.facts().class != OpClass::Norm && found.insert(at) {
                wanted.extend(&stmt.operands);
            }
        }
        if is_compressed { found } else { BTreeSet::new() }
    }

    /// True if a product computes a value, possibly followed by moves, slices and norms.
    fn is_of_product(&self, value: Value) -> bool {
        let maker = self.stmts().iter().find(|stmt| stmt.results.contains(&value));
        maker.is_some_and(|stmt| match (stmt.op.facts().class, stmt.operands.first()) {
            (OpClass::Product, _) => true,
            (_, source) => source.is_some_and(|&source| self.is_of_product(source)),
        })
    }
}
