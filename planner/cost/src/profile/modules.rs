//! Selective recomputation: modules and values by name, with the collectives around them.

use super::site::Site;
use super::tensors::results_of;
use crate::platform::Format;
use ir::entity::EntitySet;
use ir::graph::SectionKind;
use ir::ids::Value;
use ir::ops::{Collective, KernelOp, Op};
use ir::options::Recompute;
use std::collections::BTreeSet;
use transforms::recompute::{is_layer, is_module, of_module, of_value};

/// Values of F that are not saved.
#[derive(Default)]
pub(super) struct Dropped {
    pub(super) values: EntitySet<Value>,
    /// Indices of statements that are recomputed even if nothing reads their results.
    pub(super) recomputed: BTreeSet<usize>,
}

/// Dropped values of the named modules and values. Without names, the core of attention is dropped (Korthikanti et al. 2022,
/// section 5).
pub(super) fn dropped(site: &Site<'_>, names: &[String]) -> Dropped {
    let mut dropped = Dropped::default();
    let places = named(site, names);
    if !places.is_empty() {
        dropped.values = results_of(site, &places);
    }
    let core = ["core_attn".to_string()];
    for module in if names.is_empty() { &core[..] } else { names } {
        let at = of_module(site.block(), &site.local.model.dims, module);
        match module.as_str() {
            "core_attn" if !site.platform.has_flash() => dropped.recomputed.extend(attention(site)),
            // A checkpoint around a module recomputes all of its statements, whether their results are read or not.
            "mlp" | "moe" | "shared_experts" => {
                let at = with_collectives(site, at);
                dropped.drop(site, &at);
                dropped.recomputed.extend(at);
            }
            "op" => {
                dropped.drop(site, &at);
                dropped.drop(site, &unlisted(site));
            }
            _ => dropped.drop(site, &at),
        }
    }
    dropped
}

/// Indices of the statements of F that compute the named values.
fn named(site: &Site<'_>, names: &[String]) -> BTreeSet<usize> {
    names.iter().filter(|name| !is_module(name)).filter_map(|name| of_value(site.block(), name)).collect()
}

/// Number of separately recomputed parts of a block. A part is a norm, another module, consecutive statements of single values,
/// or the entire layer.
pub(super) fn parts(site: &Site<'_>, recompute: &Recompute) -> f64 {
    match recompute {
        _ if !is_layer(site.block()) => 0.0,
        Recompute::None | Recompute::Auto => 0.0,
        Recompute::Selective(modules) if modules.is_empty() => f64::from(u8::from(site.has_attention)),
        Recompute::Selective(names) => {
            let of_modules = names.iter().map(|module| parts_of_module(site, module)).sum::<usize>();
            (of_modules + runs(site, &named(site, names))) as f64
        }
        Recompute::Full(_) => 1.0,
    }
}

/// Number of parts of a module; 0 for the name of a value.
fn parts_of_module(site: &Site<'_>, module: &str) -> usize {
    match module {
        "core_attn" => usize::from(site.has_attention),
        "layernorm" => of_module(site.block(), &site.local.model.dims, module).len(),
        _ => of_module(site.block(), &site.local.model.dims, module).len().min(1),
    }
}

/// Number of contiguous ranges that the statements with these indices form, views not counted.
fn runs(site: &Site<'_>, places: &BTreeSet<usize>) -> usize {
    let stmts = site.block()[SectionKind::F].stmts.iter().enumerate();
    let kernels = stmts.filter(|(_, stmt)| matches!(&stmt.op, Op::Kernel(op) if !op.def().facts().is_view));
    let recomputed: Vec<bool> = [false].into_iter().chain(kernels.map(|(at, _)| places.contains(&at))).collect();
    recomputed.windows(2).filter(|pair| !pair[0] && pair[1]).count()
}

impl Dropped {
    /// Drops the results of the statements with these indices.
    fn drop(&mut self, site: &Site<'_>, at: &BTreeSet<usize>) {
        let stmts = &site.block()[SectionKind::F].stmts;
        for &value in at.iter().flat_map(|&at| &stmts[at].results) {
            self.values.insert(value);
        }
    }
}

/// Indices of statements that the list of saved ops lacks: products in 4 bits, and the attention kernel of some devices.
fn unlisted(site: &Site<'_>) -> BTreeSet<usize> {
    let stmts = site.block()[SectionKind::F].stmts.iter().enumerate();
    let unlisted = stmts.filter(|(_, stmt)| match &stmt.op {
        Op::Kernel(KernelOp::Einsum(_)) => site.platform.recipe.products == Format::F4,
        Op::Kernel(KernelOp::Attention(_)) => !site.saved().selective_attention,
        _ => false,
    });
    unlisted.map(|(at, _)| at).collect()
}

fn attention(site: &Site<'_>) -> BTreeSet<usize> {
    let stmts = site.block()[SectionKind::F].stmts.iter().enumerate();
    stmts.filter(|(_, stmt)| matches!(stmt.op, Op::Kernel(KernelOp::Attention(_)))).map(|(at, _)| at).collect()
}

/// Adds the gathers of the statements' operands and the reductions of their results.
fn with_collectives(site: &Site<'_>, mut at: BTreeSet<usize>) -> BTreeSet<usize> {
    let stmts = &site.block()[SectionKind::F].stmts;
    let more = stmts.iter().enumerate().filter(|(_, stmt)| {
        let mut members = at.iter().map(|&at| &stmts[at]);
        match &stmt.op {
            Op::Collective(Collective::AllGather { .. }) => {
                members.any(|member| member.operands.iter().any(|value| stmt.results.contains(value)))
            }
            Op::Collective(_) => members.any(|member| member.results.iter().any(|value| stmt.operands.contains(value))),
            _ => false,
        }
    });
    let more: Vec<usize> = more.map(|(at, _)| at).collect();
    at.extend(more);
    at
}
