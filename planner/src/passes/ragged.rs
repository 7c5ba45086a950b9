//! `ragged`: lets the all-to-alls between tokens and experts that drop none move only the rows that tokens fill, and lets experts compute
//! with those rows.
//!
//! Such an expert has capacity for all tokens of a group, and few of them choose it. Places are planned; lengths are counted in
//! each step. The counts are exchanged once, before the rows: the way back and the backward use the same counts. Ops state how
//! they route ([`OpFacts::routed`](ir::ops::OpFacts::routed)). Rows go through all-to-alls from the op that fills them to the
//! experts, where unfilled rows stay zeros, or from the experts to ops that read filled rows alone. Products of such rows get
//! the counts as an operand.

use crate::PlanError;
use cost::Platform;
use ir::graph::{Block, Model, SectionKind, Span, Stmt};
use ir::ids::Value;
use ir::ops::{Collective, Op, OpDef, Ragged, RoutedRows};
use ir::options::PlanOptions;
use std::collections::HashMap;

const SECTIONS: [SectionKind; 3] = [SectionKind::F, SectionKind::I, SectionKind::W];

pub(crate) fn run(model: &mut Model, _: &PlanOptions, _: &Platform<'_>) -> Result<(), PlanError> {
    for block in model.blocks.values_mut() {
        let mut routes = Routes::default();
        routes.find_filled(block);
        routes.find_read(block);
        routes.write(block);
    }
    Ok(())
}

/// The position of a statement: its section, and its index there.
type Position = (SectionKind, usize);

/// A routing of tokens to chunks of rows.
struct Routing {
    made: Position,
    choices: Value,
    /// Rows of a chunk.
    rows: u64,
    /// Value that counts the filled rows of each chunk.
    counts: Value,
    mean: u64,
}

/// The readers of a value: all of them read only rows that these choices fill.
#[derive(Clone, Copy, PartialEq)]
struct Readers {
    choices: Value,
    /// Value that counts the filled rows, and their mean, if the rows are on their way.
    counts: Option<(Value, u64)>,
}

/// Facts about the rows of a block, and the statements that become ragged.
#[derive(Default)]
struct Routes {
    routings: Vec<Routing>,
    /// Numbers of filled rows, the all-to-all that they go through, and what they are then.
    exchanged: Vec<(Value, Collective, Value)>,
    /// The numbers before and after of each all-to-all that becomes ragged.
    ragged: HashMap<Position, ([Value; Ragged::COUNTS], Ragged)>,
    /// Each product of filled rows, with their numbers.
    products: HashMap<Position, (Op, Value)>,
}

impl Routes {
    /// The all-to-alls and the products of rows that a routing op fills.
    fn find_filled(&mut self, block: &mut Block) {
        let mut filled: HashMap<Value, (Value, u64)> = HashMap::new();
        for at in positions(block) {
            let stmt = &block[at.0].stmts[at.1].clone();
            if let Some(routing) = routing(block, at, stmt) {
                let (rows, own) = (stmt.results[0], (routing.counts, routing.mean));
                let known = self.routing(block, routing.choices, rows, at).map(|known| (known.counts, known.mean));
                filled.insert(rows, known.unwrap_or(own));
                self.routings.push(routing);
            } else if let Some((change, operand, result)) = exchange(stmt)
                && let Some(&(before, mean)) = filled.get(&operand)
                && is_whole(block, &change, operand)
            {
                let after = self.exchange(block, before, change);
                self.decide(block, at, [before, after], mean);
                filled.insert(result, (after, mean));
            } else if let (Some(def), &[result]) = (stmt.op.def(), stmt.results.as_slice())
                && let Some((counts, mean)) = self.computed(block, at, def, &filled)
                && has_chunks(block, result, counts)
                && !stmt.accumulate
            {
                filled.insert(result, (counts, mean));
            }
        }
    }

    /// The numbers of filled rows of what an op computes of them. A product gets them.
    fn computed(
        &mut self,
        block: &Block,
        at: Position,
        def: &dyn OpDef,
        filled: &HashMap<Value, (Value, u64)>,
    ) -> Option<(Value, u64)> {
        let operands = &block[at.0].stmts[at.1].operands;
        let rows: Vec<Option<(Value, u64)>> = operands.iter().map(|operand| filled.get(operand).copied()).collect();
        for group in def.facts().keeps_zeros {
            let of_group = group.iter().map(|&operand| rows.get(operand).copied().flatten());
            if let Some(known) = of_group.collect::<Option<Vec<(Value, u64)>>>() {
                let first = *known.first()?;
                return known.iter().all(|rows| *rows == first).then_some(first);
            }
        }
        let (counts, mean) = rows.first().copied().flatten()?;
        if !has_chunks(block, operands[0], counts) {
            return None;
        }
        let op = def.extras().contraction?.with_counts(Ragged { rows: block.ty(counts).rank(), mean })?;
        self.products.insert(at, (op, counts));
        Some((counts, mean))
    }

    /// The all-to-alls of rows that only ops read which read filled rows.
    fn find_read(&mut self, block: &mut Block) {
        // None if other ops read the value too.
        let mut readers: HashMap<Value, Option<Readers>> = HashMap::new();
        let returned = block.sections.iter().flat_map(|section| &section.ret);
        readers.extend(returned.map(|&value| (value, None)));
        for at in positions(block).into_iter().rev() {
            let stmt = block[at.0].stmts[at.1].clone();
            let routed = stmt.op.facts().routed;
            let passed = self.passed(block, at, &stmt, &readers);
            for (place, &operand) in stmt.operands.iter().enumerate() {
                let read = match routed {
                    Some(routed) if routed.rows == RoutedRows::Read(place) => {
                        Some(Readers { choices: stmt.operands[routed.choices], counts: None })
                    }
                    _ => passed,
                };
                let known = readers.entry(operand).or_insert(read);
                if *known != read {
                    *known = None;
                }
            }
        }
    }

    /// The readers of the operand of an all-to-all, which becomes ragged, if its result's readers read only filled rows.
    fn passed(
        &mut self,
        block: &mut Block,
        at: Position,
        stmt: &Stmt,
        readers: &HashMap<Value, Option<Readers>>,
    ) -> Option<Readers> {
        let (change, operand, result) = exchange(stmt)?;
        let Readers { choices, counts } = (*readers.get(&result)?)?;
        let known = counts.or_else(|| self.routing(block, choices, result, at).map(|known| (known.counts, known.mean)));
        let (after, mean) = known.filter(|_| is_whole(block, &change, operand))?;
        let before = self.exchange(block, after, backwards(change));
        self.decide(block, at, [before, after], mean);
        Some(Readers { choices, counts: Some((before, mean)) })
    }

    /// The first routing by some choices into rows that are sharded like these, if it is before a position.
    fn routing(&self, block: &Block, choices: Value, rows: Value, before: Position) -> Option<&Routing> {
        let dims = &block.ty(rows).dims;
        let chunks = dims.len().checked_sub(2)?;
        self.routings.iter().find(|routing| {
            let is_alike = routing.choices == choices && routing.rows == dims[chunks].size;
            is_alike && routing.made < before && block.ty(routing.counts).dims == dims[..chunks]
        })
    }

    /// The numbers of filled rows after an all-to-all.
    fn exchange(&mut self, block: &mut Block, counts: Value, change: Collective) -> Value {
        let back = backwards(change.clone());
        let known = self.exchanged.iter().find_map(|(before, known, after)| match () {
            () if (*before, known) == (counts, &change) => Some(*after),
            () if (*after, known) == (counts, &back) => Some(*before),
            () => None,
        });
        known.unwrap_or_else(|| {
            let ty = change.result_type(block.ty(counts)).unwrap_or_else(|_| block.ty(counts).clone());
            let after = block.add_value("", ty);
            self.exchanged.push((counts, change, after));
            after
        })
    }

    fn decide(&mut self, block: &Block, at: Position, counts: [Value; Ragged::COUNTS], mean: u64) {
        let rows = block.ty(counts[0]).rank();
        self.ragged.entry(at).or_insert((counts, Ragged { rows, mean }));
    }

    /// Writes the ragged all-to-alls and products, and behind each number of filled rows how it is exchanged.
    fn write(mut self, block: &mut Block) {
        for kind in SECTIONS {
            for (at, mut stmt) in std::mem::take(&mut block[kind].stmts).into_iter().enumerate() {
                if let (Some((counts, rows)), Op::Collective(Collective::AllToAll { ragged, .. })) =
                    (self.ragged.remove(&(kind, at)), &mut stmt.op)
                {
                    *ragged = Some(rows);
                    stmt.operands.extend(counts);
                }
                if let Some((op, counts)) = self.products.remove(&(kind, at)) {
                    stmt.op = op;
                    stmt.operands.push(counts);
                }
                let mut made = stmt.results.clone();
                block[kind].stmts.push(stmt);
                while let Some(counts) = made.pop() {
                    for (before, change, after) in self.exchanged.extract_if(.., |(before, ..)| *before == counts) {
                        let (results, operands) = (vec![after], vec![before]);
                        let (op, comments, span) = (Op::Collective(change), Vec::new(), Span::default());
                        block[kind].stmts.push(Stmt { results, accumulate: false, op, operands, comments, span });
                        made.push(after);
                    }
                }
            }
        }
    }
}

/// The statements of a micro-batch, in order.
fn positions(block: &Block) -> Vec<Position> {
    SECTIONS.into_iter().flat_map(|kind| (0..block[kind].stmts.len()).map(move |at| (kind, at))).collect()
}

/// The routing of a statement that fills rows and drops no token: each chunk has a row for every token.
fn routing(block: &Block, made: Position, stmt: &Stmt) -> Option<Routing> {
    let routed = stmt.op.facts().routed.filter(|routed| routed.rows == RoutedRows::Filled)?;
    let (&[filled, counts], choices) = (stmt.results.as_slice(), stmt.operands[routed.choices]) else { return None };
    let (filled, index) = (&block.ty(filled).dims, &block.ty(choices).dims);
    let ([.., experts, rows, _], [.., tokens, chosen]) = (filled.as_slice(), index.as_slice()) else { return None };
    let mean = (tokens.size * chosen.size).div_ceil(experts.size);
    (rows.size >= tokens.size).then_some(Routing { made, choices, rows: rows.size, counts, mean: mean.min(rows.size) })
}

/// The all-to-all of one tensor, with its operand and its result.
fn exchange(stmt: &Stmt) -> Option<(Collective, Value, Value)> {
    match (&stmt.op, stmt.operands.as_slice(), stmt.results.as_slice()) {
        (Op::Collective(change @ Collective::AllToAll { ragged: None, .. }), &[operand], &[result]) => {
            Some((change.clone(), operand, result))
        }
        _ => None,
    }
}

/// True if the dims of a tensor begin with those of numbers of filled rows, which a dim of rows follows that is whole on a rank.
fn has_chunks(block: &Block, rows: Value, counts: Value) -> bool {
    let (ty, dims) = (block.ty(rows), &block.ty(counts).dims);
    let whole = ty.dims.get(dims.len()).is_some_and(|dim| dim.axes.is_empty());
    whole && ty.storage.is_empty() && ty.dims.starts_with(dims)
}

/// True if an all-to-all leaves the chunks of a tensor's rows whole.
fn is_whole(block: &Block, change: &Collective, rows: Value) -> bool {
    let (ty, &Collective::AllToAll { from, to, .. }) = (block.ty(rows), change) else { return false };
    let chunks = ty.rank().saturating_sub(2);
    from.max(to) < chunks && ty.dims[chunks].axes.is_empty() && ty.storage.is_empty()
}

/// The all-to-all that undoes another.
fn backwards(change: Collective) -> Collective {
    match change {
        Collective::AllToAll { from, to, over, ragged } => Collective::AllToAll { from: to, to: from, over, ragged },
        other => other,
    }
}
