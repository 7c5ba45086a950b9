//! Memory-bound kernels: groups of pointwise ops, norms, rotary embeddings, embedding tables, the loss.

use super::fusion::{Role, role, share_kernel};
use super::products::{self, Products};
use super::row_groups::{Members, row_groups};
use super::site::Site;
use crate::enum_set::EnumSet;
use crate::traits::FusedKernel;
use ir::entity::EntitySet;
use ir::graph::{SectionKind, Stmt};
use ir::ids::Value;
use ir::ops::{Binary, BinaryKind, KernelOp, Op};
use smallvec::{SmallVec, smallvec};

/// Cost of memory-bound kernels.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Moves {
    pub(super) seconds: f64,
    /// Number of kernels.
    pub(super) kernels: f64,
}

impl Moves {
    /// Adds kernels that move these bytes together.
    fn add(&mut self, site: &Site<'_>, bytes: f64, kernels: f64) {
        self.seconds += site.platform.memory_bound(bytes);
        self.kernels += kernels;
    }
}

/// Kernels of one statement.
enum Piece {
    /// A pointwise op, which may share a kernel with its neighbours.
    Pointwise(Role),
    /// Kernels that it shares with no other statement.
    Alone { bytes: f64, kernels: f64 },
    /// No kernel: a view, or part of a product.
    Nothing,
    /// A product, an attention or a collective. No memory-bound kernel spans it.
    Wall,
}

/// Memory-bound kernels of a section.
pub(super) fn moves(site: &Site<'_>, section: SectionKind, stmts: &[&Stmt], products: &Products) -> Moves {
    let mut moves = Moves::default();
    let grouped =
        if site.fuses(FusedKernel::Groups) { in_groups(site, section, stmts, &mut moves) } else { EntitySet::new() };
    let outside = Outside::of(site, section, stmts);
    let mut run: Vec<(usize, Role)> = Vec::new();
    for (at, stmt) in stmts.iter().enumerate() {
        match piece(site, stmt, products) {
            _ if grouped.contains(stmt.results[0]) => {}
            Piece::Pointwise(role) => run.push((at, role)),
            Piece::Alone { bytes, kernels } => moves.add(site, bytes, kernels),
            Piece::Nothing => {}
            Piece::Wall => {
                groups(site, stmts, &run)
                    .iter()
                    .for_each(|group| moves.add(site, outside.bytes(site, stmts, group), 1.0));
                run.clear();
            }
        }
        if site.fuses(FusedKernel::Accumulate) || section != SectionKind::W {
            continue;
        }
        if products.of[stmt.results[0]].is_some() && stmt.accumulate {
            // The product is written, read back, and added to the sum over micro-batches.
            moves.add(site, site.local.elements(stmt.results[0]) * 2.0 * site.platform.recipe.activation, 1.0);
        }
    }
    groups(site, stmts, &run).iter().for_each(|group| moves.add(site, outside.bytes(site, stmts, group), 1.0));
    moves
}

/// Adds the kernels of groups that begin in a section, and returns the first results of all statements in groups. Both gradients are
/// one body. Of a group with a product, that counts which goes beyond the product. If that is a kernel apart, it reads the product's
/// result, or the sum that the product leaves in its place.
fn in_groups(site: &Site<'_>, section: SectionKind, stmts: &[&Stmt], moves: &mut Moves) -> EntitySet<Value> {
    let (body, groups, outside) = match section {
        SectionKind::I | SectionKind::W => (site.backward(), site.backward_groups(), Outside::of_backward(site)),
        SectionKind::G | SectionKind::F | SectionKind::U => {
            (stmts.to_vec(), row_groups(site, stmts), Outside::of(site, section, stmts))
        }
    };
    let own = match section {
        SectionKind::W => site.stmts(SectionKind::I).len()..usize::MAX,
        _ => 0..stmts.len(),
    };
    let mut grouped = EntitySet::new();
    for group in groups {
        for &at in &group {
            grouped.insert(body[at].results[0]);
        }
        if own.contains(&group[0]) {
            let product = group.iter().find(|&&at| products::local(&site.local, body[at]).is_some());
            let operands = product.map_or(0.0, |&at| site.bytes_of(&body[at].operands));
            let behind = product.map_or(Behind { bytes: 0.0, kernels: 1.0 }, |&at| {
                let stmts: Vec<&Stmt> = group.iter().map(|&at| body[at]).collect();
                let (fused, result) = (site.platform.stack.traits.kernels.fused, site.bytes_of(&body[at].results));
                behind_product(fused, &stmts, body[at], result, |value| outside.has(&body, &group, value))
            });
            let bytes = outside.bytes(site, &body, &group) - operands + behind.bytes;
            moves.add(site, bytes.max(0.0), behind.kernels);
        }
    }
    grouped
}

/// Kernel behind a product of a group.
pub(crate) struct Behind {
    /// Bytes that it moves in addition to those of its group.
    pub(crate) bytes: f64,
    /// Number of such kernels: 0 or 1.
    kernels: f64,
}

/// The kernel behind a product whose result has `bytes` bytes. A stack's products may write what follows them (`epilogue`). If a product
/// leaves a sum, it has written that in place of its result, and alone with the product the sum needs no kernel.
pub(crate) fn behind_product(
    fused: EnumSet<FusedKernel>,
    group: &[&Stmt],
    product: &Stmt,
    bytes: f64,
    is_read_outside: impl Fn(Value) -> bool,
) -> Behind {
    if fused.contains(FusedKernel::Epilogue) {
        return Behind { bytes: -bytes, kernels: 0.0 };
    }
    let sum = product_sum(group, product, &is_read_outside).filter(|_| fused.contains(FusedKernel::ProductSum));
    match sum.map(|sum| is_read_outside(sum.results[0])) {
        Some(_) if group.len() == 2 => Behind { bytes: -bytes, kernels: 0.0 },
        Some(true) => Behind { bytes: 0.0, kernels: 1.0 },
        _ => Behind { bytes, kernels: 1.0 },
    }
}

/// The sum that alone reads the result of a product in a group, and no operand of it.
fn product_sum<'s>(group: &[&'s Stmt], product: &Stmt, is_read_outside: impl Fn(Value) -> bool) -> Option<&'s Stmt> {
    let (value, operands) = (product.results[0], &product.operands);
    let mut readers = group.iter().filter(|stmt| stmt.operands.contains(&value));
    let (Some(sum), None, false) = (readers.next(), readers.next(), is_read_outside(value)) else { return None };
    let Op::Kernel(KernelOp::Binary(Binary { kind: BinaryKind::Add, .. })) = sum.op else { return None };
    let others: Vec<Value> = sum.operands.iter().copied().filter(|&other| other != value).collect();
    (others.len() == 1 && !operands.contains(&others[0])).then_some(*sum)
}

fn piece(site: &Site<'_>, stmt: &Stmt, products: &Products) -> Piece {
    let Op::Kernel(op) = &stmt.op else { return Piece::Wall };
    if products.swallowed.contains(stmt.results[0]) || op.def().facts().is_view {
        return Piece::Nothing;
    }
    let a = site.platform.recipe.activation;
    let first = stmt.operands.first().map_or(0.0, |&operand| site.local.elements(operand));
    match op {
        KernelOp::Einsum(_) if products.of[stmt.results[0]].is_some() => Piece::Wall,
        KernelOp::Attention(_)
        | KernelOp::AttentionGrad(_)
        | KernelOp::Scan(_)
        | KernelOp::ScanGrad(_)
        | KernelOp::ScanState(_)
        | KernelOp::ScanDstart(_)
        | KernelOp::Carry(_)
        | KernelOp::SelectKeys(_)
        | KernelOp::IndexScores(_)
        | KernelOp::IndexScoresGrad(_)
        | KernelOp::KeyMass(_)
        | KernelOp::SparseAttention(_)
        | KernelOp::SparseAttentionGrad(_) => Piece::Wall,
        // Constants are made once.
        KernelOp::Iota(_) => Piece::Nothing,
        // Eager ops in f32: casts, square, mean, two products and casts back.
        KernelOp::RmsNorm(_) if !site.fuses(FusedKernel::Norm) => {
            Piece::Alone { bytes: first * (32.0 + 2.0 * a), kernels: 8.0 }
        }
        KernelOp::RmsNormDx(_) if !site.fuses(FusedKernel::Norm) => {
            Piece::Alone { bytes: first * (72.0 + 3.0 * a), kernels: 10.0 }
        }
        KernelOp::RmsNormDgamma(_) if !site.fuses(FusedKernel::Norm) => {
            Piece::Alone { bytes: first * (4.0 * a), kernels: 2.0 }
        }
        // Eager ops: negation of one half, concatenation, two products and their sum.
        KernelOp::Rope(_) if !site.fuses(FusedKernel::Rope) => Piece::Alone { bytes: first * (10.0 * a), kernels: 5.0 },
        // Passes in f32: cast, maximum, difference, exponential, sum, quotient; backward difference, product, cast back.
        KernelOp::CrossEntropy(_) if !site.fuses(FusedKernel::Loss) => {
            Piece::Alone { bytes: first * (36.0 + a), kernels: 8.0 }
        }
        KernelOp::SumExp(_) if !site.fuses(FusedKernel::Loss) => {
            Piece::Alone { bytes: first * (32.0 + a), kernels: 6.0 }
        }
        KernelOp::CrossEntropyGrad(_) if !site.fuses(FusedKernel::Loss) => {
            Piece::Alone { bytes: first * (12.0 + a), kernels: 3.0 }
        }
        KernelOp::Pick(_) => Piece::Alone { bytes: 3.0 * site.local.bytes(stmt.results[0]), kernels: 1.0 },
        KernelOp::Embedding(_) => Piece::Alone { bytes: 2.0 * site.local.bytes(stmt.results[0]), kernels: 1.0 },
        // Rows are added to a table of zeros, which is added to the sum over micro-batches.
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

/// Number of kernels of an op. Eager routing has a softmax, the selection, a mask of the choices, their counts, their sum and the
/// quotient. An eager permutation has a sort, its indices, their inverse and the copy; its backward has only the copy.
fn kernels(site: &Site<'_>, op: &str) -> f64 {
    match op {
        "top_k" if !site.fuses(FusedKernel::Router) => 6.0,
        "dispatch" | "combine" if !site.fuses(FusedKernel::Permute) => 4.0,
        _ => 1.0,
    }
}

/// Groups neighbouring pointwise statements into the stack's kernels. Two statements share a kernel if one reads the other's
/// result, or both read the same value, and the stack fuses their roles.
fn groups(site: &Site<'_>, stmts: &[&Stmt], run: &[(usize, Role)]) -> Vec<Members> {
    let mut groups: Vec<SmallVec<[(usize, Role); 8]>> = Vec::new();
    for &(at, role) in run {
        let mut joined = smallvec![(at, role)];
        groups.retain_mut(|group| {
            let meets = group.iter().any(|&(other, other_role)| {
                let mut theirs = stmts[other].operands.iter().chain(&stmts[other].results);
                share_kernel(site.platform.stack.traits.kernels.fused, role, other_role)
                    && theirs.any(|value| stmts[at].operands.contains(value) && site.is_large(*value))
            });
            if meets {
                joined.append(group);
            }
            !meets
        });
        groups.push(joined);
    }
    groups.into_iter().map(|group| group.into_iter().map(|(at, _)| at).collect()).collect()
}

/// Uses of a section's values outside of one kernel.
struct Outside {
    /// Values that later sections read, or that the section returns.
    later: EntitySet<Value>,
}

impl Outside {
    fn of(site: &Site<'_>, section: SectionKind, stmts: &[&Stmt]) -> Outside {
        let block = site.block();
        let mut outside = Outside { later: EntitySet::new() };
        outside.add(site, &block[section].ret);
        match section {
            SectionKind::F => outside.add(site, &site.later),
            SectionKind::I => block[SectionKind::W].stmts.iter().for_each(|stmt| outside.add(site, &stmt.operands)),
            SectionKind::G | SectionKind::W | SectionKind::U => {
                stmts.iter().for_each(|stmt| outside.add(site, &stmt.results))
            }
        }
        outside
    }

    /// Adds values that later sections read, except those that a kernel of the backward recomputes.
    fn add(&mut self, site: &Site<'_>, values: &[Value]) {
        for &value in values.iter().filter(|value| !site.remade.contains_key(value)) {
            self.later.insert(value);
        }
    }

    /// Both gradients as one body.
    fn of_backward(site: &Site<'_>) -> Outside {
        let sums = site.block()[SectionKind::W].stmts.iter().flat_map(|stmt| &stmt.results);
        let mut later = EntitySet::new();
        for &value in site.block()[SectionKind::I].ret.iter().chain(sums) {
            later.insert(value);
        }
        Outside { later }
    }

    /// True if a value is read outside of a group.
    fn has(&self, stmts: &[&Stmt], group: &[usize], value: Value) -> bool {
        let mut others = stmts.iter().enumerate().filter(|(at, _)| !group.contains(at));
        self.later.contains(value) || others.any(|(_, stmt)| stmt.operands.contains(&value))
    }

    /// Bytes that a kernel moves: operands computed elsewhere, results read elsewhere, and masks of dropout.
    fn bytes(&self, site: &Site<'_>, stmts: &[&Stmt], group: &[usize]) -> f64 {
        let mut read: SmallVec<[Value; 8]> = SmallVec::new();
        let mut untouched = 0.0;
        for (stmt, &value) in
            group.iter().flat_map(|&at| stmts[at].operands.iter().map(move |value| (stmts[at], value)))
        {
            untouched += untouched_bytes(site, stmt, value);
            let sources = site.remade.get(&value).map_or(std::slice::from_ref(&value), Vec::as_slice);
            for source in sources {
                let is_made = group.iter().any(|&at| stmts[at].results.contains(source));
                if !is_made && !read.contains(source) {
                    read.push(*source);
                }
            }
        }
        let results = group.iter().flat_map(|&at| &stmts[at].results);
        let left = results.filter(|&&value| self.has(stmts, group, value));
        let written = left.map(|&value| site.bytes(value)).sum::<f64>();
        let dropped = group.iter().filter(|&&at| matches!(stmts[at].op, Op::Kernel(KernelOp::Dropout(_))));
        let masks = dropped.map(|&at| site.local.elements(stmts[at].operands[0]) * site.saved().dropout).sum::<f64>();
        read.into_iter().map(|value| site.bytes(value)).sum::<f64>() - untouched + written + masks
    }
}

/// Bytes of an operand that an op does not read: of a table or of logits, those of other ids.
fn untouched_bytes(site: &Site<'_>, stmt: &Stmt, value: Value) -> f64 {
    let is_indexed = match &stmt.op {
        Op::Kernel(KernelOp::Embedding(_)) => value == stmt.operands[1],
        Op::Kernel(KernelOp::Pick(_)) => value == stmt.operands[0],
        _ => false,
    };
    if is_indexed { (site.bytes(value) - site.bytes(stmt.results[0])).max(0.0) } else { 0.0 }
}
