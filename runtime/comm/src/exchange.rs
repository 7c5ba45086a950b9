//! Data movement of a collective: for each rank, the regions of its peers' tensors and their destinations in its own.
//!
//! An exchange is a pure function of types, mesh and rank. Every collective has the same form: the rank's new part is
//! divided into its intersections with each peer's old part. In a reduction, every peer covers the new part; the peers are
//! combined in group order, which is equal on every rank. Of chunks of rows only the filled ones move ([`FilledRows`]): places stay
//! those of the types, lengths are those of the step.

use device::region::{Region, row_major};
use ir::mesh::{Axes, Mesh};
use ir::ops::{Collective, Ragged};
use ir::types::{PartialKind, Type};

/// A block of a peer's tensor that goes into the rank's own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Move {
    /// The peer's place in the group.
    pub peer: usize,
    /// Its start in the peer's tensor, in elements.
    pub from: usize,
    /// The strides there.
    pub from_strides: Vec<usize>,
    /// Its start in the rank's own tensor, in elements.
    pub to: usize,
    /// The strides there.
    pub to_strides: Vec<usize>,
    /// The sizes of the block.
    pub sizes: Vec<usize>,
    /// The peer's tensor has the filled rows of chunks alone, one after the other.
    pub packed: bool,
}

/// Chunks of rows of which only the first ones move, as many as this step fills. Each chunk has its place, whatever is filled; a move's last
/// dim is a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FilledRows {
    /// The rank's own sources with the numbers of filled rows: of each chunk that it gives, and of each chunk that it gets.
    pub counts: [usize; Ragged::COUNTS],
    /// Rows of a chunk.
    pub rows: usize,
    /// Elements of a row.
    pub width: usize,
}

impl Move {
    /// Elements of the block.
    pub fn elements(&self) -> usize {
        self.sizes.iter().product()
    }
}

impl FilledRows {
    /// Elements of a chunk.
    pub fn chunk(&self) -> usize {
        self.rows * self.width
    }

    /// Filled rows of a chunk that some have chosen.
    pub fn filled(&self, chosen: i32) -> usize {
        usize::try_from(chosen).unwrap_or(0).min(self.rows)
    }
}

/// Plan of one tensor in an exchange.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TensorPlan {
    /// Elements of the result.
    pub len: usize,
    /// How blocks that fall on the same place are combined; `None`: no two do.
    pub combine: Option<PartialKind>,
    /// The result is zero where no block falls.
    pub zero: bool,
    /// The result may have the place of the source: a rank reads from the others only its own piece of a sum.
    pub in_place: bool,
    /// The rows that move, of chunks that are not filled; the others become zeros.
    pub filled: Option<FilledRows>,
    /// Blocks of the peers' sources, in the order of the group.
    pub moves: Vec<Move>,
    /// Blocks of the peers' results that are taken over once all peers have made theirs.
    pub gather: Vec<Move>,
}

/// One exchange: several tensors are a bucket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exchange {
    /// The ranks that take part, in the order in which they are combined.
    pub ranks: Vec<usize>,
    /// One per tensor.
    pub tensors: Vec<TensorPlan>,
}

/// Reductions of fewer elements are made whole by every rank: below some tens of kilobytes a second meeting of the
/// threads (a wake-up takes about 10 microseconds) costs more than the additions that it saves.
const SPLIT_FROM: usize = 1 << 13;

impl Exchange {
    /// The part of a rank in a reshard of tensors of these types.
    ///
    /// # Errors
    /// A type does not have what the change takes away.
    pub fn plan(mesh: &Mesh, rank: usize, change: &Collective, operands: &[&Type]) -> Result<Exchange, String> {
        let peers = if change.communicates() { mesh.peers(rank as u64, change.over()) } else { vec![rank as u64] };
        let ranks: Vec<usize> = peers.iter().map(|&peer| peer as usize).collect();
        change.check_counts(operands)?;
        let moved = change.moved(operands);
        let mut tensors = Vec::with_capacity(moved.len());
        for ty in moved {
            let plan = plan_tensor(mesh, rank, &ranks, change, ty)?;
            tensors.push(match change.ragged() {
                Some(ragged) => plan.of_filled_rows(ragged, &region(ty, mesh, rank), moved.len()),
                None => plan,
            });
        }
        Ok(Exchange { ranks, tensors })
    }

    /// The sum of dense tensors of `len` elements over ranks, in place, for the one at place `me` of the list.
    pub fn sum(ranks: Vec<usize>, me: usize, len: usize) -> Exchange {
        let tensors = vec![TensorPlan { in_place: true, ..reduction(ranks.len(), me, len, PartialKind::Sum, 0) }];
        Exchange { ranks, tensors }
    }

    /// A copy of the dense tensor of `len` elements that the rank at place `from` of the list has, over those of the
    /// others, for the one at place `me`.
    pub fn broadcast(ranks: Vec<usize>, me: usize, from: usize, len: usize) -> Exchange {
        let moves = if me == from { Vec::new() } else { vec![contiguous(from, 0, len)] };
        Exchange { ranks, tensors: vec![TensorPlan { len, in_place: true, moves, ..TensorPlan::default() }] }
    }

    /// True if the peers' results are read too; all members agree, since a reduction is split for all or for none.
    pub fn gathers(&self) -> bool {
        self.tensors.iter().any(|tensor| !tensor.gather.is_empty())
    }
}

impl TensorPlan {
    /// Returns the plan that moves filled rows only. The counts follow the tensors that move.
    fn of_filled_rows(mut self, ragged: Ragged, own: &Region, tensors: usize) -> TensorPlan {
        let (rows, width) = (own.sizes[ragged.rows], own.sizes[ragged.rows + 1..].iter().product());
        for block in &mut self.moves {
            for strides in [&mut block.from_strides, &mut block.to_strides] {
                strides.truncate(ragged.rows);
                strides.push(1);
            }
            block.sizes.truncate(ragged.rows);
            block.sizes.push(rows * width);
        }
        self.filled = Some(FilledRows { counts: [tensors, tensors + 1], rows, width });
        self
    }
}

fn region(ty: &Type, mesh: &Mesh, rank: usize) -> Region {
    Region::of(ty, mesh, &mesh.coordinates(rank as u64))
}

fn plan_tensor(
    mesh: &Mesh,
    rank: usize,
    ranks: &[usize],
    change: &Collective,
    ty: &Type,
) -> Result<TensorPlan, String> {
    change.check_sizes(mesh, ty)?;
    let result = change.result_type(ty)?;
    let regions = Regions { mesh, are_runs: !(ty.storage.is_empty() && result.storage.is_empty()) };
    let own = regions.of(&result, rank);
    let kind = ty.partial.as_ref().map(|partial| partial.kind);
    match (change, kind) {
        (Collective::AllReduce { .. }, Some(kind)) => {
            let me = ranks.iter().position(|&peer| peer == rank).unwrap_or(0);
            return Ok(reduction(ranks.len(), me, own.len(), kind, SPLIT_FROM));
        }
        (Collective::ToPartial { dim: None, over }, _)
            if mesh.index_along(over, &mesh.coordinates(rank as u64)) > 0 =>
        {
            return Ok(TensorPlan { len: own.len(), zero: true, ..TensorPlan::default() });
        }
        _ => {}
    }
    if let Collective::Shift { dim, by, over } = change {
        let shards = by / regions.of(ty, rank).sizes[*dim].max(1) as u64;
        let place = mesh.index_along(over, &mesh.coordinates(rank as u64));
        let mut places = ranks.iter().map(|&peer| mesh.index_along(over, &mesh.coordinates(peer as u64)));
        let peer = places.position(|peer| (peer + shards) % ranks.len() as u64 == place);
        let peer = peer.ok_or("a shift beyond the group")?;
        return Ok(TensorPlan { len: own.len(), moves: vec![contiguous(peer, 0, own.len())], ..TensorPlan::default() });
    }
    let peers = ranks.iter().enumerate().filter(|&(_, &peer)| match change {
        // Each block is on as many ranks as before, and the copies are dealt out in order, so that each rank gives as much as it gets.
        Collective::Permute { over, .. } => copy_of(mesh, over, ty, peer) == copy_of(mesh, over, &result, rank),
        _ => true,
    });
    let blocks = peers.filter_map(|(peer, &rank)| block(peer, &regions.of(ty, rank), &own));
    let combine = kind.filter(|_| matches!(change, Collective::ReduceScatter { .. }));
    let zero = matches!(change, Collective::ToPartial { dim: Some(_), .. });
    Ok(TensorPlan { len: own.len(), combine, zero, moves: blocks.collect(), ..TensorPlan::default() })
}

/// The parts of ranks in an exchange.
struct Regions<'a> {
    mesh: &'a Mesh,
    /// True if a part is a run of elements, and no box.
    are_runs: bool,
}

impl Regions<'_> {
    fn of(&self, ty: &Type, rank: usize) -> Region {
        let region = region(ty, self.mesh, rank);
        if self.are_runs { region.as_run() } else { region }
    }
}

/// The number of a rank's copy of its part among the equal ones, which are along the moving axes that do not shard the tensor.
fn copy_of(mesh: &Mesh, over: &Axes, ty: &Type, rank: usize) -> u64 {
    mesh.index_along(&over.without(&ty.sharded_axes()), &mesh.coordinates(rank as u64))
}

/// The move from a peer's region into the rank's own; `None` if the regions are disjoint.
fn block(peer: usize, source: &Region, own: &Region) -> Option<Move> {
    let (start, sizes) = source.meet(own)?;
    Some(Move {
        peer,
        from: source.offset(&start),
        from_strides: row_major(&source.sizes),
        to: own.offset(&start),
        to_strides: row_major(&own.sizes),
        sizes,
        packed: false,
    })
}

/// The same elements of a peer's dense tensor and of the rank's own.
pub(super) fn contiguous(peer: usize, start: usize, end: usize) -> Move {
    let strides = vec![1];
    let (from_strides, to_strides, sizes) = (strides.clone(), strides, vec![end - start]);
    Move { peer, from: start, from_strides, to: start, to_strides, sizes, packed: false }
}

/// A reduction of dense tensors: whole on every rank, or from `split_from` elements on each rank its piece, and then the
/// pieces of the others.
fn reduction(peers: usize, me: usize, len: usize, kind: PartialKind, split_from: usize) -> TensorPlan {
    let splits = peers > 1 && len >= split_from;
    let (start, end) = if splits { (me * len / peers, (me + 1) * len / peers) } else { (0, len) };
    let moves = (0..peers).map(|peer| contiguous(peer, start, end)).collect();
    let others = (0..peers).filter(|&peer| splits && peer != me);
    let gather = others.map(|peer| contiguous(peer, peer * len / peers, (peer + 1) * len / peers)).collect();
    TensorPlan { len, combine: Some(kind), moves, gather, ..TensorPlan::default() }
}
