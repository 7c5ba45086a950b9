//! What selective recomputation computes again, by the names of modules.

use super::fusion::{Role, role};
use super::site::Site;
use ir::entity::EntitySet;
use ir::graph::{SectionKind, Stmt};
use ir::ids::Value;
use ir::ops::{Collective, KernelOp, Op};
use std::collections::BTreeSet;

/// The names that `recompute=selective:..` may have, those of Megatron-Core's `--recompute-modules` among them, and what each
/// does not keep.
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

/// What is not kept, and the statements of F that run again for it.
#[derive(Default)]
pub(super) struct Dropped {
    pub(super) values: EntitySet<Value>,
    pub(super) again: BTreeSet<usize>,
}

/// What the modules do not keep; none named means the core of attention (Korthikanti et al. 2022, section 5).
pub(super) fn dropped(site: &Site<'_>, modules: &[String]) -> Dropped {
    let mut dropped = Dropped::default();
    let core = ["core_attn".to_string()];
    for module in if modules.is_empty() { &core[..] } else { modules } {
        match module.as_str() {
            "core_attn" if !site.machine.has_flash() => {
                dropped.again.extend(positions(site, |stmt| matches!(stmt.op, Op::Kernel(KernelOp::Attention(_)))));
            }
            "op" => dropped.drop(site, between_products(site)),
            "layernorm" => dropped.drop(site, positions(site, |stmt| is_norm(&stmt.op))),
            "mlp" => dropped.checkpoint(site, &["f"]),
            "moe" => dropped.checkpoint(site, &["e", "m", "n"]),
            "shared_experts" => dropped.checkpoint(site, &["u"]),
            "moe_act" => {
                let is_activation = |stmt: &Stmt| {
                    matches!(role(site.block(), stmt), Some(Role::Activation | Role::Gate))
                        && stmt.results.iter().any(|&value| site.local.has_dim(value, "m"))
                };
                dropped.drop(site, positions(site, is_activation));
            }
            "mla_up_proj" => dropped.drop(site, up_projections(site)),
            _ => {}
        }
    }
    dropped
}

impl Dropped {
    /// Results that are made again where they are read.
    fn drop(&mut self, site: &Site<'_>, at: BTreeSet<usize>) {
        let stmts = &site.block()[SectionKind::F].stmts;
        for &value in at.iter().flat_map(|&at| &stmts[at].results) {
            self.values.insert(value);
        }
    }

    /// All that reads or makes a tensor with one of the dims runs again whether or not it is read, as a checkpoint around a
    /// module does it; so do the collectives around it.
    fn checkpoint(&mut self, site: &Site<'_>, dims: &[&str]) {
        let at = with_collectives(site, positions(site, |stmt| touches(site, stmt, dims)));
        self.drop(site, at.clone());
        self.again.extend(at);
    }
}

/// All of F but attention, sums over tp, and every second product, the first one kept.
fn between_products(site: &Site<'_>) -> BTreeSet<usize> {
    let mut products = 0;
    let stmts = site.block()[SectionKind::F].stmts.iter().enumerate();
    let dropped = stmts.filter(|(_, stmt)| match &stmt.op {
        Op::Kernel(KernelOp::Attention(_)) | Op::Collective(Collective::ReduceScatter { .. }) => false,
        Op::Kernel(KernelOp::Einsum(_)) => {
            products += 1;
            products % 2 == 0
        }
        _ => true,
    });
    dropped.map(|(at, _)| at).collect()
}

fn positions(site: &Site<'_>, is: impl Fn(&Stmt) -> bool) -> BTreeSet<usize> {
    let stmts = site.block()[SectionKind::F].stmts.iter().enumerate();
    stmts.filter(|(_, stmt)| is(stmt)).map(|(at, _)| at).collect()
}

fn is_norm(op: &Op) -> bool {
    matches!(op, Op::Kernel(KernelOp::RmsNorm(_) | KernelOp::LayerNorm(_)))
}

/// Whether a statement reads or makes a tensor with one of the dims.
fn touches(site: &Site<'_>, stmt: &Stmt, dims: &[&str]) -> bool {
    let mut values = stmt.operands.iter().chain(&stmt.results);
    values.any(|&value| dims.iter().any(|dim| site.local.has_dim(value, dim)))
}

/// Statements with the gathers that feed them and the sums of what they make.
fn with_collectives(site: &Site<'_>, mut at: BTreeSet<usize>) -> BTreeSet<usize> {
    let stmts = &site.block()[SectionKind::F].stmts;
    let reads = |value: &Value| at.iter().any(|&at| stmts[at].operands.contains(value));
    let makes = |value: &Value| at.iter().any(|&at| stmts[at].results.contains(value));
    let joins = |stmt: &Stmt| match &stmt.op {
        Op::Collective(Collective::AllGather { .. }) => stmt.results.iter().any(reads),
        Op::Collective(_) => stmt.operands.iter().any(makes),
        _ => false,
    };
    let more: Vec<usize> = (0..stmts.len()).filter(|&at| joins(&stmts[at])).collect();
    at.extend(more);
    at
}

/// All between the compressed forms and attention: what makes its queries, keys and values, back to the norms.
fn up_projections(site: &Site<'_>) -> BTreeSet<usize> {
    let stmts = &site.block()[SectionKind::F].stmts;
    let attention = stmts.iter().find(|stmt| matches!(stmt.op, Op::Kernel(KernelOp::Attention(_))));
    let mut wanted: Vec<Value> = attention.map_or(Vec::new(), |stmt| stmt.operands[..3].to_vec());
    let mut found = BTreeSet::new();
    while let Some(value) = wanted.pop() {
        let maker = stmts.iter().position(|stmt| stmt.results.contains(&value) && !is_norm(&stmt.op));
        if let Some(at) = maker.filter(|at| touches(site, &stmts[*at], &["g"]) && found.insert(*at)) {
            wanted.extend(&stmts[at].operands);
        }
    }
    found
}
