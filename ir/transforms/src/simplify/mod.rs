//! Simplification of differentiated sections: moves that cancel or that an equation can state, constants that join, and terms
//! that repeat.
//!
//! Each section of a block becomes an e-graph of its own (`egraph`). Only rules that keep all bits or round less often apply,
//! so the pass changes no order of sums. What the section returns, saves or stores keeps its name. A broadcast that is a
//! statement stays one: estimates of the built-in models count it.

use crate::egraph::rule::{Rounding, Rule};
use crate::egraph::rules;
use crate::egraph::{self, Terms};
use crate::renumber::renumber;
use ir::graph::{Block, Model, SectionKind};
use ir::ids::Value;
use std::collections::HashSet;

/// The most times that a section is simplified: each time from the statements that the last one left.
const ROUNDS: usize = 4;

/// The later sections first, so that what they no longer read falls away in the earlier ones.
const ORDER: [SectionKind; 4] = [SectionKind::U, SectionKind::W, SectionKind::I, SectionKind::F];

/// Simplifies the sections of each block of a model, and says whether any has changed. Blocks with shardings do not change.
///
/// ```
/// use meshwright_transforms::differentiate::differentiate;
/// use meshwright_transforms::simplify::simplify;
///
/// let text = "
///     dims [b=4, s=8, h=8]
///     param %w: f32[h, h]
///     model @m(%x: input f32[b, s, h]) { call @block(%x; %w) }
///     block @block(%x: input f32[b, s, h]; %w: param f32[h, h]) -> loss f32[] {
///       %y: f32[b, s, h] = einsum(%x, %w, eq=\"b s h, h k -> b s k\")
///       %t: f32[s, b, h] = permute(%y, eq=\"b s k -> s b k\")
///       %l: f32[] = reduce_sum(%t, eq=\"s b k -> ()\")
///       return %l
///     }";
/// let model = ir::text::parse(text).unwrap().model;
/// let mut trained = differentiate(model, &ir::optimizer::Optimizer::default())?;
/// assert!(simplify(&mut trained));
/// let print = |model| ir::text::print(&ir::text::File { model, ..ir::text::File::default() });
/// assert!(!print(trained).contains("permute"));
/// # Ok::<(), meshwright_transforms::differentiate::DifferentiateError>(())
/// ```
pub fn simplify(model: &mut Model) -> bool {
    let (dims, has_mesh) = (model.dims.clone(), model.has_mesh);
    let terms = Terms { dims: &dims, rules: &exact(), joins_broadcasts: false };
    let changed: Vec<bool> = model.blocks.values_mut().map(|block| simplify_block(block, &terms, has_mesh)).collect();
    changed.contains(&true)
}

/// The rules that keep all bits or round less often.
fn exact() -> Vec<Rule> {
    rules::all().into_iter().filter(|rule| rule.rounding != Rounding::Reorders).collect()
}

fn simplify_block(block: &mut Block, terms: &Terms<'_>, has_mesh: bool) -> bool {
    if egraph::is_sharded(block) {
        return false;
    }
    let known: HashSet<Value> = block.values.keys().collect();
    let unread = egraph::unread(block);
    let mut has_changed = false;
    for kind in ORDER {
        for _ in 0..ROUNDS {
            let protected = egraph::protected(block, kind, &unread);
            if egraph::rewrite(block, kind, &protected, terms).is_none() {
                break;
            }
            has_changed = true;
        }
    }
    if has_changed {
        if has_mesh {
            egraph::open_new(block, &known);
        }
        renumber(block);
    }
    has_changed
}
