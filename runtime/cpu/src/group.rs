//! Groups of statements on the processor: each thread takes a range of the rows, and runs all statements on a tile of them before it
//! goes on. Interior values are in the thread's part of the arena behind the program's, and stay in its cache.
//!
//! Sums over rows are made for each chunk of rows ([`CHUNK`]), and those are added in order after the last row. The kernels of single
//! statements add in the same order: groups change no bit. A loss is one number of all rows, which is made tile by tile.

use super::call::Buffers;
use super::{OpKernel, Rng, Shared};
use device::arena::Arena;
use device::backend::{GroupSite, GroupStmt, GroupValue, Span};
use device::region::local_len;
use ir::arena::ALIGNMENT;
use ir::fused::ROW_BYTES;
use ir::types::{DType, Type};
use kernels::cpu::Par;
use kernels::cpu::columns::{CHUNK, add_chunks};
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// Bytes of the tensors of a tile: they are in the L2 cache together.
const TILE: usize = ROW_BYTES as usize;
/// Bytes behind the arena for the interior values of a thread's tile: those of the longest chunk of rows, and room to align them.
pub(super) const SPACE: usize = 2 * CHUNK * TILE;

/// A group with its shapes.
pub(super) struct Group {
    rows: usize,
    /// Rows of a tile.
    tile: usize,
    /// Rows that a thread takes at a time.
    step: usize,
    /// Elements of a row of all tensors.
    row: usize,
    stmts: Vec<[Vec<Place>; 2]>,
    sums: Vec<Sum>,
    /// Elements of all sums.
    columns: usize,
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

/// A sum over rows.
struct Sum {
    /// The result of the group.
    result: usize,
    /// Its first element among those of all sums.
    column: usize,
    /// Its first byte in the lane while a chunk is summed.
    at: usize,
    width: usize,
    kind: SumKind,
}

/// How a sum over rows is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SumKind {
    /// By chunks.
    Columns,
    /// By chunks, and it is a gradient sum.
    Gradient,
    /// By tiles, in f64: the first row of each has the number of the tile.
    Loss,
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
    /// A sum over rows, by its number.
    Sum(usize),
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
        let laws = site.stmts.iter().map(GroupStmt::rows).collect::<Result<Vec<_>, _>>()?;
        let row = || {
            site.stmts.iter().zip(&laws).flat_map(|(stmt, law)| {
                let operands = stmt.site.operands.iter().zip(&law.operands).filter(|(_, has_rows)| **has_rows);
                operands.map(|(ty, _)| ty).chain(stmt.site.results)
            })
        };
        let len = |ty| local_len(ty, site.stmts[0].site.mesh, site.stmts[0].site.coordinates);
        let bytes: usize = row().map(|ty| len(ty) / rows.max(1) * ty.dtype.bytes() as usize).sum();
        let has_sums = laws.iter().any(|law| law.sums);
        let step = if has_sums { CHUNK } else { 1 };
        let tile = (TILE / bytes.max(1) / step * step).clamp(step, rows.next_multiple_of(step).max(step));
        let row = row().map(|ty| len(ty) / rows.max(1)).sum();
        let Places { stmts, sums, .. } = Places::new(site, rows, tile)?;
        let columns = sums.iter().map(|sum| sum.width).sum();
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
        Ok(Group { rows, tile, step, row, stmts, sums, columns, lanes })
    }

    /// The elements that its sums over chunks have.
    pub(super) fn partials(&self) -> usize {
        self.columns * self.rows.div_ceil(self.step)
    }

    /// Runs the group. Its gradient sums, in order, are added to or stored; `partials` is room for sums over chunks.
    pub(super) fn run(
        &self,
        arena: &Arc<Arena>,
        partials: &mut [f32],
        rng: Rng,
        [operands, results]: [&[Span]; 2],
        accumulate: &[bool],
    ) {
        let Group { rows, tile, step, columns, .. } = *self;
        let partials = &mut partials[..self.partials()];
        let par = Par(self.lanes.len());
        par.ranges(rows.div_ceil(step), step * self.row, (&mut *partials, columns), &|steps, partials| {
            let mut lane = self.lane(steps.start, rows.div_ceil(step));
            let range = steps.start * step..rows.min(steps.end * step);
            for start in range.clone().step_by(tile) {
                let partials = &mut partials[(start - range.start) / step * columns..];
                let rows = start..range.end.min(start + tile);
                self.tile(&mut lane, (rows, partials), arena, rng, [operands, results]);
            }
        });
        let mut accumulate = accumulate.iter();
        for sum in &self.sums {
            // SAFETY: nobody else touches it now.
            let out = unsafe { arena.elements_mut(results[sum.result]) };
            let adds = match sum.kind {
                SumKind::Columns => false,
                SumKind::Gradient => *accumulate.next().expect("a flag for each gradient sum"),
                SumKind::Loss => {
                    out[0] = partials.iter().map(|&loss| f64::from(loss)).sum::<f64>() as f32;
                    continue;
                }
            };
            add_chunks((partials, columns), sum.column, out, adds);
        }
    }

    /// A lane that no other thread has, for the thread whose part begins at a step. It is the same one in every run, if the parts are
    /// nearly equal: what a lane allocates, it allocates in the first run.
    fn lane(&self, start: usize, steps: usize) -> MutexGuard<'_, Lane> {
        let lanes = self.lanes.len();
        let own = (start * lanes).div_ceil(steps.max(1));
        let free = |at: usize| match self.lanes[(own + at) % lanes].try_lock() {
            Ok(lane) => Some(lane),
            Err(TryLockError::Poisoned(lane)) => Some(PoisonError::into_inner(lane)),
            Err(TryLockError::WouldBlock) => None,
        };
        (0..lanes).find_map(free).expect("a lane for each thread")
    }

    fn tile(
        &self,
        lane: &mut Lane,
        (rows, partials): (Range<usize>, &mut [f32]),
        arena: &Arena,
        rng: Rng,
        [operands, results]: [&[Span]; 2],
    ) {
        let Lane { kernels, start, spans, buffers, scratch } = lane;
        for (kernel, places) in kernels.iter_mut().zip(&self.stmts) {
            let sum = places[1]
                .iter()
                .find_map(|place| if let Place::Sum(sum) = place { Some(&self.sums[*sum]) } else { None });
            // A sum of columns is made chunk by chunk, all else for the tile.
            let step = if sum.is_some_and(|sum| sum.kind != SumKind::Loss) { CHUNK } else { rows.len() };
            for (chunk, first) in rows.clone().step_by(step).enumerate() {
                let part = first..rows.end.min(first + step);
                let span = |place: &Place| match *place {
                    Place::Operand(at, width) => operands[at].part(part.start * width, part.len() * width),
                    Place::Result(at, width) => results[at].part(part.start * width, part.len() * width),
                    Place::Whole(at) => operands[at],
                    Place::Interior { at, dtype, width } => {
                        let tile = Span::new(dtype, *start + at, rows.len() * width);
                        tile.part((part.start - rows.start) * width, part.len() * width)
                    }
                    Place::Sum(sum) => Span::new(DType::F32, *start + self.sums[sum].at, self.sums[sum].width),
                };
                for (spans, places) in spans.iter_mut().zip(places) {
                    spans.clear();
                    spans.extend(places.iter().map(span));
                }
                let [operands, results] = &*spans;
                let rng = Rng { skipped: part.start * places[0].first().map_or(0, Place::width), ..rng };
                kernel.launch(arena, (buffers, scratch), Par(1), rng, [operands, results], false);
                if let Some(sum) = sum {
                    // SAFETY: the lane's part of the arena is its own.
                    let made = unsafe { arena.elements::<f32>(results[0]) };
                    if sum.kind == SumKind::Loss {
                        partials[..part.len()].fill(0.0);
                    }
                    partials[chunk * self.columns + sum.column..][..sum.width].copy_from_slice(made);
                }
            }
        }
    }
}

/// The number of rows on this rank.
fn rows(site: &GroupSite<'_>) -> Result<usize, String> {
    let (mut dims, mut first) = (None, None);
    for stmt in &site.stmts {
        let law = stmt.rows()?;
        dims = dims.into_iter().chain(law.dims).min();
        let in_rows = stmt.site.operands.iter().zip(&law.operands).find(|(_, has_rows)| **has_rows);
        first = first.or(in_rows.map(|(ty, _)| (*ty, stmt.site)));
    }
    let (ty, at) = first.ok_or("no operand has rows")?;
    at.rows(ty, dims)
}

/// The places of all tensors.
#[derive(Default)]
struct Places {
    /// By statement.
    stmts: Vec<[Vec<Place>; 2]>,
    interior: Vec<Option<Place>>,
    sums: Vec<Sum>,
    /// The bytes of a lane.
    end: usize,
}

impl Places {
    fn new(site: &GroupSite<'_>, rows: usize, tile: usize) -> Result<Places, String> {
        let mut places = Places::default();
        for stmt in &site.stmts {
            let (law, at) = (stmt.rows()?, &stmt.site);
            let width = |ty: &Type| local_len(ty, at.mesh, at.coordinates) / rows.max(1);
            let operand = |(place, (value, ty)): (usize, (&GroupValue, &&Type))| match *value {
                GroupValue::Operand(of) if law.operands[place] => Ok(Place::Operand(of, width(ty))),
                GroupValue::Operand(of) => Ok(Place::Whole(of)),
                GroupValue::Result(of) => Ok(Place::Result(of, width(ty))),
                GroupValue::Interior(of) => {
                    places.interior.get(of).copied().flatten().ok_or("reads what is not computed".to_string())
                }
            };
            let operands = stmt.operands.iter().zip(at.operands).enumerate().map(operand).collect::<Result<_, _>>()?;
            let mut results = Vec::new();
            for (value, ty) in stmt.results.iter().zip(at.results) {
                results.push(match *value {
                    GroupValue::Result(of) if law.sums => {
                        let kind = if stmt.accumulate { SumKind::Gradient } else { SumKind::Columns };
                        places.sum(of, local_len(ty, at.mesh, at.coordinates), kind)
                    }
                    GroupValue::Result(of) if stmt.is_loss() && ty.rank() == 0 => places.sum(of, 1, SumKind::Loss),
                    GroupValue::Result(of) => Place::Result(of, width(ty)),
                    GroupValue::Interior(of) if !law.sums => places.inside(of, ty, width(ty), tile),
                    _ => return Err(format!("`{}` has no place for its result", stmt.op.def().name())),
                });
            }
            places.stmts.push([operands, results]);
        }
        match places.end > SPACE {
            true => Err(format!("the interior values of a tile take {} bytes, more than {SPACE}", places.end)),
            false => Ok(places),
        }
    }

    /// Room for bytes in a lane.
    fn take(&mut self, bytes: usize) -> usize {
        let at = self.end;
        self.end = (at + bytes).next_multiple_of(ALIGNMENT as usize);
        at
    }

    fn inside(&mut self, of: usize, ty: &Type, width: usize, tile: usize) -> Place {
        let at = self.take(tile * width * ty.dtype.bytes() as usize);
        let place = Place::Interior { at, dtype: ty.dtype, width };
        self.interior.resize(self.interior.len().max(of + 1), None);
        self.interior[of] = Some(place);
        place
    }

    fn sum(&mut self, result: usize, width: usize, kind: SumKind) -> Place {
        let column = self.sums.last().map_or(0, |sum| sum.column + sum.width);
        let at = self.take(width * size_of::<f32>());
        self.sums.push(Sum { result, column, at, width, kind });
        Place::Sum(self.sums.len() - 1)
    }
}

impl Place {
    /// Elements of a row; 0 if it has no rows.
    fn width(&self) -> usize {
        match *self {
            Place::Operand(_, width) | Place::Result(_, width) | Place::Interior { width, .. } => width,
            Place::Whole(_) | Place::Sum(_) => 0,
        }
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
