//! Kernels that move bytes: groups of pointwise ops, norms, rotations, tables, the loss.

use super::fusion::{Role, role};
use super::keep::MASK;
use super::products::Products;
use super::site::Site;
use ir::entity::EntitySet;
use ir::graph::{SectionKind, Stmt};
use ir::ids::Value;
use ir::ops::{KernelOp, Op};
use smallvec::{SmallVec, smallvec};

/// Kernels and the bytes that they move.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Moves {
    pub(super) seconds: f64,
    pub(super) kernels: f64,
}

/// One statement that is no product, no attention and no collective.
enum Piece {
    /// May be one kernel with its neighbours.
    Pointwise(Role),
    /// A kernel or several of its own.
    Alone { bytes: f64, kernels: f64 },
    /// Nothing is done.
    Nothing,
    /// Another kind of statement, across which no kernel reaches.
    Wall,
}

/// The kernels that move bytes in a section.
pub(super) fn moves(site: &Site<'_>, section: SectionKind, stmts: &[&Stmt], products: &Products) -> Moves {
    let mut moves = Moves::default();
    let mut add = |bytes: f64, kernels: f64| {
        moves.seconds += site.platform.memory_bound(bytes);
        moves.kernels += kernels;
    };
    let outside = Outside::of(site, section, stmts);
    let mut run: Vec<(usize, Role)> = Vec::new();
    for (at, stmt) in stmts.iter().enumerate() {
        match piece(site, stmt, products) {
            Piece::Pointwise(role) => run.push((at, role)),
            Piece::Alone { bytes, kernels } => add(bytes, kernels),
            Piece::Nothing => {}
            Piece::Wall => {
                groups(site, stmts, &run).iter().for_each(|group| add(outside.bytes(site, stmts, group), 1.0));
                run.clear();
            }
        }
        if site.fusion.accumulate || section != SectionKind::W {
            continue;
        }
        if products.of[stmt.results[0]].is_some() && stmt.accumulate {
            // The product is written and read back to be added to the sum over micro-batches.
            add(site.local.elements(stmt.results[0]) * 2.0 * site.platform.recipe.activation, 1.0);
        }
    }
    groups(site, stmts, &run).iter().for_each(|group| add(outside.bytes(site, stmts, group), 1.0));
    moves
}

fn piece(site: &Site<'_>, stmt: &Stmt, products: &Products) -> Piece {
    let Op::Kernel(op) = &stmt.op else { return Piece::Wall };
    if products.swallowed.contains(stmt.results[0]) || op.def().is_view() {
        return Piece::Nothing;
    }
    let a = site.platform.recipe.activation;
    let first = site.local.elements(stmt.operands[0]);
    let alone = |per_element: f64, kernels: f64| Piece::Alone { bytes: first * per_element, kernels };
    match op {
        KernelOp::Einsum(_) if products.of[stmt.results[0]].is_some() => Piece::Wall,
        KernelOp::Attention(_) | KernelOp::AttentionGrad(_) => Piece::Wall,
        // As the op's own graph of smaller ones in f32: casts, square, mean, two products and casts back.
        KernelOp::RmsNorm(_) if !site.fusion.norm => alone(32.0 + 2.0 * a, 8.0),
        KernelOp::RmsNormDx(_) if !site.fusion.norm => alone(72.0 + 3.0 * a, 10.0),
        KernelOp::RmsNormDgamma(_) if !site.fusion.norm => alone(4.0 * a, 2.0),
        // Half of it negated, halves joined, two products and their sum.
        KernelOp::Rope(_) if !site.fusion.rope => alone(10.0 * a, 5.0),
        // Passes in f32: cast, maximum, difference, exponential, sum, quotient; backward difference, product, cast back.
        KernelOp::CrossEntropy(_) if !site.fusion.loss => alone(36.0 + a, 8.0),
        KernelOp::SumExp(_) if !site.fusion.loss => alone(32.0 + a, 6.0),
        KernelOp::CrossEntropyGrad(_) if !site.fusion.loss => alone(12.0 + a, 3.0),
        KernelOp::Pick(_) => Piece::Alone { bytes: 3.0 * site.local.bytes(stmt.results[0]), kernels: 1.0 },
        KernelOp::Embedding(_) => Piece::Alone { bytes: 2.0 * site.local.bytes(stmt.results[0]), kernels: 1.0 },
        // A table of zeros to which rows are added, and which is added to the sum over micro-batches.
        KernelOp::EmbeddingGrad(_) => {
            let table = site.local.elements(stmt.results[0]) * (2.0 * a + 2.0 * site.platform.recipe.gradient);
            Piece::Alone { bytes: table + 2.0 * site.local.bytes(stmt.operands[1]), kernels: 3.0 }
        }
        _ => match role(site.block(), stmt) {
            Some(role) => Piece::Pointwise(role),
            None => {
                let moved = stmt.operands.iter().chain(&stmt.results).map(|&value| site.bytes(value)).sum();
                Piece::Alone { bytes: moved, kernels: kernels(site, stmt.op.name()) }
            }
        },
    }
}

/// How many kernels an op is. Eager routing: softmax, selection, a mask of the choices, their counts, their sum and quotient;
/// eager permutation: a sort, its places, their inverse and the copy; backward the copy alone.
fn kernels(site: &Site<'_>, op: &str) -> f64 {
    match op {
        "top_k" if !site.fusion.router => 6.0,
        "dispatch" | "combine" if !site.fusion.permute => 4.0,
        _ => 1.0,
    }
}

/// A run of neighbouring pointwise statements as the kernels that the stack makes of them: those that read one another, or
/// read the same, are together where the stack joins their roles.
fn groups(site: &Site<'_>, stmts: &[&Stmt], run: &[(usize, Role)]) -> Vec<Group> {
    let mut groups: Vec<SmallVec<[(usize, Role); 8]>> = Vec::new();
    for &(at, role) in run {
        let near = |&(other, other_role): &(usize, Role)| {
            let theirs = stmts[other].operands.iter().chain(&stmts[other].results);
            site.fusion.joins(role, other_role)
                && theirs.into_iter().any(|value| stmts[at].operands.contains(value) && site.is_large(*value))
        };
        let mut joined = smallvec![(at, role)];
        groups.retain_mut(|group| {
            let meets = group.iter().any(near);
            if meets {
                joined.append(group);
            }
            !meets
        });
        groups.push(joined);
    }
    groups.into_iter().map(|group| group.into_iter().map(|(at, _)| at).collect()).collect()
}

/// The places of the statements of a kernel.
type Group = SmallVec<[usize; 8]>;

/// Values of a section that are read outside a kernel.
struct Outside {
    /// By later sections, or as the section's result.
    later: EntitySet<Value>,
}

impl Outside {
    fn of(site: &Site<'_>, section: SectionKind, stmts: &[&Stmt]) -> Outside {
        let block = site.block();
        let mut later = EntitySet::new();
        let mut add = |values: &mut dyn Iterator<Item = Value>| {
            for value in values.filter(|value| !site.remade.contains_key(value)) {
                later.insert(value);
            }
        };
        add(&mut block[section].ret.iter().copied());
        match section {
            SectionKind::F => add(&mut site.later.iter().copied()),
            SectionKind::I => {
                add(&mut block[SectionKind::W].stmts.iter().flat_map(|stmt| stmt.operands.iter().copied()))
            }
            SectionKind::W | SectionKind::U => add(&mut stmts.iter().flat_map(|stmt| stmt.results.iter().copied())),
        }
        Outside { later }
    }

    /// Bytes that a kernel reads from and writes for other kernels, with masks of dropout.
    fn bytes(&self, site: &Site<'_>, stmts: &[&Stmt], group: &[usize]) -> f64 {
        let made = |value: Value| group.iter().any(|&at| stmts[at].results.contains(&value));
        let mut read: SmallVec<[Value; 8]> = SmallVec::new();
        for &value in group.iter().flat_map(|&at| &stmts[at].operands) {
            let sources = site.remade.get(&value).map_or(std::slice::from_ref(&value), Vec::as_slice);
            for &source in sources.iter().filter(|&&source| !made(source)) {
                if !read.contains(&source) {
                    read.push(source);
                }
            }
        }
        let elsewhere = |value: Value| {
            let others = stmts.iter().enumerate().filter(|(at, _)| !group.contains(at));
            self.later.contains(value) || others.into_iter().any(|(_, stmt)| stmt.operands.contains(&value))
        };
        let results = group.iter().flat_map(|&at| &stmts[at].results);
        let written = results.filter(|&&value| elsewhere(value)).map(|&value| site.bytes(value)).sum::<f64>();
        let dropped = group.iter().filter(|&&at| matches!(stmts[at].op, Op::Kernel(KernelOp::Dropout(_))));
        let masks = dropped.map(|&at| site.local.elements(stmts[at].operands[0]) * site.saved(MASK, 1.0)).sum::<f64>();
        read.into_iter().map(|value| site.bytes(value)).sum::<f64>() + written + masks
    }
}
