//! Groups of statements on the processor: each thread takes a range of the rows, and runs all statements on a tile of them before it
//! goes on. Interior values lie in the thread's part of the arena behind the program's, and stay in its cache.

use super::call::Buffers;
use super::{OpKernel, Rng, Shared};
use crate::arena::Arena;
use crate::backend::{GroupSite, GroupStmt, GroupValue, Span};
use crate::comm::local_len;
use ir::arena::ALIGNMENT;
use ir::fused::ROW_BYTES;
use ir::types::{DType, Type};
use kernels::cpu::Par;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of the tensors of a tile: they are in the L2 cache together.
const TILE: usize = ROW_BYTES as usize;
/// Bytes behind the arena for the interior values of a thread's tile: a tile's, and room to align them.
pub(super) const SPACE: usize = 2 * TILE;

/// A group with its shapes.
pub(super) struct Group {
    rows: usize,
    /// Rows of a tile.
    tile: usize,
    /// Elements of a row of all tensors.
    row: usize,
    stmts: Vec<[Vec<Place>; 2]>,
    /// One per thread that may run it.
    lanes: Vec<Mutex<Lane>>,
}

/// A thread's kernels, and where its interior values begin.
struct Lane {
    kernels: Vec<OpKernel>,
    start: usize,
    spans: [Vec<Span>; 2],
    buffers: Buffers,
    scratch: Vec<f32>,
}

/// The place of a tensor of a statement.
#[derive(Clone, Copy)]
enum Place {
    /// In rows of this number of elements: of an operand of the group, or of a result.
    Operand(usize, usize),
    Result(usize, usize),
    /// All of an operand of the group.
    Whole(usize),
    /// In the lane, from this byte on.
    Interior {
        at: usize,
        dtype: DType,
        width: usize,
    },
}

impl Group {
    /// Makes a group ready for a number of threads, whose spaces begin at a byte of the arena. `prepare` makes each kernel ready.
    ///
    /// # Errors
    /// A statement cannot run on its types, or does not treat rows alike.
    pub(super) fn new(
        site: &GroupSite<'_>,
        threads: usize,
        space: usize,
        prepare: &mut dyn FnMut(&GroupStmt<'_>) -> Result<OpKernel, String>,
    ) -> Result<Group, String> {
        let rows = rows(site)?;
        let row = site.stmts.iter().flat_map(|stmt| stmt.site.operands.iter().chain(stmt.site.results));
        let len = |ty| local_len(ty, site.stmts[0].site.mesh, site.stmts[0].site.coordinates);
        let bytes: usize = row.clone().map(|ty| len(ty) / rows.max(1) * ty.dtype.bytes() as usize).sum();
        let tile = (TILE / bytes.max(1)).clamp(1, rows.max(1));
        let row = row.map(|ty| len(ty) / rows.max(1)).sum();
        let stmts = places(site, rows, tile)?;
        let lane = |lane: usize| {
            let kernels = site.stmts.iter().map(&mut *prepare).collect::<Result<_, _>>()?;
            let start = space + lane * SPACE;
            Ok(Mutex::new(Lane {
                kernels,
                start,
                spans: Default::default(),
                buffers: Buffers::default(),
                scratch: vec![],
            }))
        };
        let lanes = (0..threads).map(lane).collect::<Result<_, String>>()?;
        Ok(Group { rows, tile, row, stmts, lanes })
    }

    /// Runs the group.
    pub(super) fn run(&self, arena: &Arc<Arena>, rng: Rng, operands: &[Span], results: &[Span]) {
        Par(self.lanes.len()).ranges(self.rows, self.row, &|range| {
            // There is a lane for each thread.
            let Some(mut lane) = self.lanes.iter().find_map(|lane| match lane.try_lock() {
                Ok(lane) => Some(lane),
                Err(std::sync::TryLockError::Poisoned(lane)) => Some(PoisonError::into_inner(lane)),
                Err(std::sync::TryLockError::WouldBlock) => None,
            }) else {
                unreachable!("a lane for each thread")
            };
            for start in range.clone().step_by(self.tile) {
                self.tile(&mut lane, start..range.end.min(start + self.tile), arena, rng, [operands, results]);
            }
        });
    }

    fn tile(&self, lane: &mut Lane, rows: Range<usize>, arena: &Arena, rng: Rng, [operands, results]: [&[Span]; 2]) {
        let Lane { kernels, start, spans, buffers, scratch } = lane;
        let span = |place: &Place| match *place {
            Place::Operand(at, width) => operands[at].part(rows.start * width, rows.len() * width),
            Place::Result(at, width) => results[at].part(rows.start * width, rows.len() * width),
            Place::Whole(at) => operands[at],
            Place::Interior { at, dtype, width } => Span::new(dtype, *start + at, rows.len() * width),
        };
        for (kernel, places) in kernels.iter_mut().zip(&self.stmts) {
            for (spans, places) in spans.iter_mut().zip(places) {
                spans.clear();
                spans.extend(places.iter().map(span));
            }
            let [operands, results] = &*spans;
            kernel.launch(arena, (buffers, scratch), Par(1), rng, [operands, results], false);
        }
    }
}

/// The number of rows on this rank.
fn rows(site: &GroupSite<'_>) -> Result<usize, String> {
    let (mut dims, mut first) = (None, None);
    for stmt in &site.stmts {
        let law = stmt.law()?;
        dims = dims.into_iter().chain(law.dims).min();
        let in_rows = stmt.site.operands.iter().zip(&law.operands).find(|(_, has_rows)| **has_rows);
        first = first.or(in_rows.map(|(ty, _)| (*ty, stmt.site)));
    }
    let (ty, at) = first.ok_or("no operand has rows")?;
    at.rows(ty, dims)
}

/// The places of all tensors, by statement.
fn places(site: &GroupSite<'_>, rows: usize, tile: usize) -> Result<Vec<[Vec<Place>; 2]>, String> {
    let mut end = 0;
    let mut interior: Vec<Option<Place>> = Vec::new();
    let mut stmts = Vec::new();
    for stmt in &site.stmts {
        let (law, at) = (stmt.law()?, &stmt.site);
        let width = |ty: &Type| local_len(ty, at.mesh, at.coordinates) / rows.max(1);
        let operand = |(place, (value, ty)): (usize, (&GroupValue, &&Type))| match *value {
            GroupValue::Operand(of) if law.operands[place] => Ok(Place::Operand(of, width(ty))),
            GroupValue::Operand(of) => Ok(Place::Whole(of)),
            GroupValue::Result(of) => Ok(Place::Result(of, width(ty))),
            GroupValue::Interior(of) => {
                interior.get(of).copied().flatten().ok_or("reads what is not computed".to_string())
            }
        };
        let operands = stmt.operands.iter().zip(at.operands).enumerate().map(operand).collect::<Result<_, String>>()?;
        let mut results = Vec::new();
        for (value, ty) in stmt.results.iter().zip(at.results) {
            results.push(match *value {
                GroupValue::Result(of) => Place::Result(of, width(ty)),
                GroupValue::Operand(_) => return Err("writes an operand".to_string()),
                GroupValue::Interior(of) => {
                    let place = Place::Interior { at: end, dtype: ty.dtype, width: width(ty) };
                    end = (end + tile * width(ty) * ty.dtype.bytes() as usize).next_multiple_of(ALIGNMENT as usize);
                    interior.resize(interior.len().max(of + 1), None);
                    interior[of] = Some(place);
                    place
                }
            });
        }
        stmts.push([operands, results]);
    }
    if end > SPACE {
        return Err(format!("the interior values of a tile take {end} bytes, more than {SPACE}"));
    }
    Ok(stmts)
}

impl GroupStmt<'_> {
    fn law(&self) -> Result<ir::ops::Rows, String> {
        let law = self.op.def().rows(self.site.operands);
        law.ok_or_else(|| format!("`{}` does not treat rows alike", self.op.def().name()))
    }
}

/// The number of a thread of a rank, of those that have a space.
pub(super) fn next_fork(shared: &Shared) -> Result<usize, String> {
    let fork = shared.forks.fetch_add(1, Ordering::Relaxed) + 1;
    if fork < super::FORKS { Ok(fork) } else { Err(format!("a rank has at most {} threads", super::FORKS)) }
}

#[cfg(test)]
#[path = "group_tests.rs"]
mod tests;
