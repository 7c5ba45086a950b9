//! The part of an exchange that crosses between processes: which bytes each member packs for which process, and where they lie there.
//!
//! All of it is a pure function of the members' exchanges and of the processes that they are in. A member packs each distinct block
//! that the ranks of another process pull from it into one parcel. There the parcel lies in a staging memory, and the exchange of each
//! rank is localised: its moves read a block of a far member from the parcel, dense, as they read that of a near member from its memory.
//! Filled rows alone are packed of chunks that are not filled, one after the other, in a parcel for each rank that pulls them.

use super::ExchangePlan;
use super::exchange::{Exchange, Move};
use super::medium::Half;
use super::sums::WireSum;
use device::backend::Span;
use device::region::row_major;
use ir::types::DType;
use std::sync::{Arc, OnceLock};

/// Alignment of parcels in staging memory, a cache line; and of tensors in a parcel, the largest element.
const LINE: usize = 64;
const TENSOR: usize = 8;

/// An exchange as one member makes it: moves from near members read their memories, moves from far ones the staging memory.
#[derive(Clone, Debug)]
pub struct FittedExchange {
    pub(super) exchange: Exchange,
    /// The number of its name.
    pub(super) op: u32,
    /// The part that crosses between processes; none if all members are in one.
    pub(super) crossing: Option<Crossing>,
}

impl FittedExchange {
    /// True if there is a second half, after all members have reduced.
    pub(super) fn gathers(&self) -> bool {
        self.sum().is_some() || self.exchange.gathers()
    }

    /// The sum that the wire adds, if it is one.
    pub(super) fn sum(&self) -> Option<&WireSum> {
        self.crossing.as_ref()?.sum.as_ref()
    }
}

impl From<Exchange> for FittedExchange {
    /// An exchange whose members are in one process.
    fn from(exchange: Exchange) -> FittedExchange {
        FittedExchange { exchange, op: 0, crossing: None }
    }
}

impl ExchangePlan for FittedExchange {
    fn ranks(&self) -> &[usize] {
        &self.exchange.ranks
    }
}

/// The part of an exchange that crosses between processes, for one member.
#[derive(Clone, Debug)]
pub(super) struct Crossing {
    /// The parcels that this member packs, by half: of sources, and of pieces of results.
    pub(super) sends: [Vec<Parcel>; 2],
    /// The parcels that come to the members of this process.
    pub(super) receives: [Vec<Parcel>; 2],
    /// The number of parcels that all members of this process pack, of both halves.
    pub(super) local_sends: usize,
    /// The tensors of far members, by place, in the staging memory; none of near members.
    pub(super) far: Vec<FarTensors>,
    /// Bytes of staging memory for what comes, and for what this member packs.
    pub(super) bytes: [usize; 2],
    /// The sum that the wire adds; then there are no parcels.
    pub(super) sum: Option<WireSum>,
}

/// Locations of a far member's tensors.
#[derive(Clone, Debug, Default)]
pub(super) struct FarTensors {
    pub(super) sources: Vec<Span>,
    pub(super) results: Vec<Span>,
}

/// Bytes that one member packs for the ranks of another process.
#[derive(Clone, Debug)]
pub(super) struct Parcel {
    pub(super) lane: Lane,
    /// The other process.
    pub(super) process: usize,
    /// Its place in the area of staging memory, and the most bytes that it has.
    pub(super) offset: usize,
    pub(super) bytes: usize,
    /// True if it has the filled rows of chunks alone; then it may have fewer bytes.
    pub(super) filled: bool,
    /// The blocks, in the order in which they are packed.
    pub(super) blocks: Vec<PackedBlock>,
    /// The number of its lane between the two processes, once all lanes are known.
    pub(super) tag: Arc<OnceLock<u32>>,
}

/// Way of parcels within a group: parcels of a lane arrive in the order in which they are sent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Lane {
    pub(super) half: u8,
    /// The place of the member that packs.
    pub(super) from: usize,
    /// The place of the first member of the other process, or of the one that pulls filled rows.
    pub(super) to: usize,
    /// The tensor whose filled rows are packed, else 0.
    pub(super) tensor: usize,
}

/// A block of a tensor that is packed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct PackedBlock {
    pub(super) tensor: usize,
    /// Its place in the parcel, in bytes; of filled rows that of the first, if all are filled.
    pub(super) at: usize,
    /// Its place in the tensor.
    pub(super) from: usize,
    pub(super) strides: Vec<usize>,
    pub(super) sizes: Vec<usize>,
}

/// The members of a group and their processes.
pub(super) struct Members<'a> {
    /// The exchange of each member.
    pub(super) exchanges: &'a [Exchange],
    /// The process of each member.
    pub(super) homes: &'a [usize],
    /// The elements of each tensor.
    pub(super) dtypes: &'a [DType],
}

/// The processes in which members are, in the order of their numbers.
pub(super) fn processes_of(homes: &[usize]) -> Vec<usize> {
    let mut processes = homes.to_vec();
    processes.sort_unstable();
    processes.dedup();
    processes
}

impl Members<'_> {
    /// The exchange of the member at a place, localised.
    pub(super) fn fit(&self, me: usize) -> FittedExchange {
        let (home, exchange) = (self.homes[me], &self.exchanges[me]);
        let (near, others): (Vec<usize>, Vec<usize>) =
            (0..self.homes.len()).partition(|place| self.homes[*place] == home);
        let halves = [Half::Pull, Half::Gather];
        let mut sends = halves.map(|half| self.sent(half, me));
        let mut receives =
            halves.map(|half| others.iter().flat_map(|&from| self.parcels(half, from, home)).collect::<Vec<_>>());
        sends.iter_mut().flatten().for_each(|parcel| parcel.process = self.homes[parcel.lane.to]);
        receives.iter_mut().flatten().for_each(|parcel| parcel.process = self.homes[parcel.lane.from]);
        let bytes = [place_all(&mut receives), place_all(&mut sends)];
        let local = near.iter().flat_map(|&from| halves.map(|half| self.sent(half, from).len()));
        let local_sends = local.sum();
        let mut localised = exchange.clone();
        let mut far = vec![FarTensors::default(); self.homes.len()];
        for place in others {
            let [sources, results] = receives.each_ref().map(|parcels| {
                (0..exchange.tensors.len()).map(|tensor| self.span(parcels, tensor, place, me)).collect()
            });
            far[place] = FarTensors { sources, results };
        }
        for (tensor, plan) in localised.tensors.iter_mut().enumerate() {
            let is_packed = plan.filled.is_some();
            for (half, moves) in [(Half::Pull, &mut plan.moves), (Half::Gather, &mut plan.gather)] {
                for block in moves.iter_mut().filter(|block| self.homes[block.peer] != home) {
                    let from = self.find(&receives[half as usize], tensor, me, block).unwrap_or(0);
                    let from_strides = if is_packed { block.from_strides.clone() } else { row_major(&block.sizes) };
                    *block = Move { from, from_strides, packed: is_packed, ..block.clone() };
                }
            }
        }
        let crossing = Crossing { sends, receives, local_sends, far, bytes, sum: None };
        FittedExchange { exchange: localised, op: 0, crossing: Some(crossing) }
    }

    /// The parcels that the member at a place packs for the members of all other processes.
    fn sent(&self, half: Half, from: usize) -> Vec<Parcel> {
        let others = processes_of(self.homes).into_iter().filter(|process| *process != self.homes[from]);
        others.flat_map(|to| self.parcels(half, from, to)).collect()
    }

    /// The parcels that the member at a place packs for the members of a process. Both ends compute the same ones.
    fn parcels(&self, half: Half, from: usize, to: usize) -> Vec<Parcel> {
        let pulls = (0..self.homes.len()).filter(|place| self.homes[*place] == to);
        let pulls: Vec<usize> = pulls.collect();
        let Some(&first) = pulls.first() else { return Vec::new() };
        let tensors = &self.exchanges[from].tensors;
        let half_number = half as u8;
        let mut whole = Parcel::empty(Lane { half: half_number, from, to: first, tensor: 0 }, false);
        let mut filled = Vec::new();
        for (tensor, plan) in tensors.iter().enumerate() {
            if plan.filled.is_none() {
                self.add_pulled(&mut whole, half, tensor, &pulls);
                continue;
            }
            for &to in &pulls {
                let mut parcel = Parcel::empty(Lane { half: half_number, from, to, tensor }, true);
                self.add_pulled(&mut parcel, half, tensor, &[to]);
                filled.push(parcel);
            }
        }
        let all = std::iter::once(whole).chain(filled);
        all.filter(|parcel| !parcel.blocks.is_empty()).collect()
    }

    /// Adds the blocks of a tensor that some members pull of the one that packs a parcel.
    fn add_pulled(&self, parcel: &mut Parcel, half: Half, tensor: usize, pulls: &[usize]) {
        let from = parcel.lane.from;
        let moves = pulls.iter().flat_map(|&place| self.moves(half, place, tensor));
        for block in moves.filter(|block| block.peer == from) {
            parcel.add(tensor, block, self.dtypes[tensor]);
        }
    }

    fn moves(&self, half: Half, place: usize, tensor: usize) -> &[Move] {
        let plan = &self.exchanges[place].tensors[tensor];
        match half {
            Half::Pull => &plan.moves,
            Half::Gather => &plan.gather,
        }
    }

    /// The parcel of a far member that has a tensor for a member of this process.
    fn parcel_of<'a>(&self, receives: &'a [Parcel], tensor: usize, from: usize, me: usize) -> Option<&'a Parcel> {
        let mut parcels = receives.iter().filter(|parcel| parcel.lane.from == from);
        parcels.find(|parcel| {
            (!parcel.filled || (parcel.lane.to, parcel.lane.tensor) == (me, tensor))
                && parcel.blocks.iter().any(|block| block.tensor == tensor)
        })
    }

    /// The place of a far member's tensor in the staging memory: all its blocks for this process, one after the other.
    fn span(&self, receives: &[Parcel], tensor: usize, from: usize, me: usize) -> Span {
        let (dtype, size) = (self.dtypes[tensor], self.dtypes[tensor].bytes() as usize);
        let Some(parcel) = self.parcel_of(receives, tensor, from, me) else { return Span::new(dtype, 0, 0) };
        let blocks = parcel.blocks.iter().filter(|block| block.tensor == tensor);
        let (start, end) = blocks.fold((usize::MAX, 0), |(start, end), block| {
            (start.min(block.at), end.max(block.at + block.elements() * size))
        });
        Span::new(dtype, parcel.offset + start, (end - start) / size)
    }

    /// The place of a move's block in a far member's tensor, in elements.
    fn find(&self, receives: &[Parcel], tensor: usize, me: usize, of: &Move) -> Option<usize> {
        let parcel = self.parcel_of(receives, tensor, of.peer, me)?;
        let mut blocks = parcel.blocks.iter().filter(|block| block.tensor == tensor);
        let start = blocks.clone().map(|block| block.at).min()?;
        let block = blocks.find(|block| block.is(tensor, of))?;
        Some((block.at - start) / self.dtypes[tensor].bytes() as usize)
    }
}

impl Parcel {
    fn empty(lane: Lane, filled: bool) -> Parcel {
        let (process, offset, bytes, blocks, tag) = Default::default();
        Parcel { lane, process, offset, bytes, filled, blocks, tag }
    }

    /// Adds a block that a rank pulls, unless another one pulls the same.
    fn add(&mut self, tensor: usize, of: &Move, dtype: DType) {
        let is_known = !self.filled && self.blocks.iter().any(|block| block.is(tensor, of));
        if of.elements() == 0 || is_known {
            return;
        }
        if self.blocks.last().is_some_and(|last| last.tensor != tensor) {
            self.bytes = self.bytes.next_multiple_of(TENSOR);
        }
        let (strides, sizes) = (of.from_strides.clone(), of.sizes.clone());
        self.blocks.push(PackedBlock { tensor, at: self.bytes, from: of.from, strides, sizes });
        self.bytes += of.elements() * dtype.bytes() as usize;
    }
}

impl PackedBlock {
    pub(super) fn elements(&self) -> usize {
        self.sizes.iter().product()
    }

    fn is(&self, tensor: usize, of: &Move) -> bool {
        (self.tensor, self.from) == (tensor, of.from) && self.strides == of.from_strides && self.sizes == of.sizes
    }
}

/// Gives parcels their places in an area, and returns its size in bytes.
fn place_all(parcels: &mut [Vec<Parcel>; 2]) -> usize {
    let mut end = 0;
    for parcel in parcels.iter_mut().flatten() {
        parcel.offset = end;
        end += parcel.bytes.next_multiple_of(LINE);
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::backend::Span;

    fn fit(exchange: &dyn Fn(usize) -> Exchange, homes: &[usize], me: usize) -> (Exchange, Crossing) {
        let exchanges: Vec<Exchange> = (0..homes.len()).map(exchange).collect();
        let members = Members { exchanges: &exchanges, homes, dtypes: &[DType::F32, DType::BF16] };
        let FittedExchange { exchange, crossing, .. } = members.fit(me);
        (exchange, crossing.unwrap())
    }

    /// All parts of two ranks to all, of a long tensor and a short one.
    fn gather(_: usize) -> Exchange {
        let tensor = |len: usize| {
            let block = |peer| Move {
                peer,
                from: 0,
                from_strides: vec![1],
                to: peer * len,
                to_strides: vec![1],
                sizes: vec![len],
                packed: false,
            };
            crate::TensorPlan { len: 4 * len, moves: (0..4).map(block).collect(), ..Default::default() }
        };
        Exchange { ranks: vec![4, 5, 6, 7], tensors: vec![tensor(5), tensor(3)] }
    }

    #[test]
    fn what_several_ranks_pull_goes_once() {
        let (localised, crossing) = fit(&gather, &[0, 0, 1, 1], 0);
        // 20 bytes, 4 of padding, and 6.
        let [[sent], []] = &crossing.sends.each_ref().map(Vec::as_slice) else { panic!("{crossing:?}") };
        assert_eq!((sent.process, sent.bytes, sent.blocks.len()), (1, 30, 2));
        assert_eq!(
            crossing.receives[0].iter().map(|parcel| (parcel.lane.from, parcel.offset)).collect::<Vec<_>>(),
            [(2, 0), (3, 64)]
        );
        assert_eq!((crossing.local_sends, crossing.bytes), (2, [128, 64]));
        assert_eq!(crossing.far[3].sources, [Span::new(DType::F32, 64, 5), Span::new(DType::BF16, 64 + 24, 3)]);
        assert!(crossing.far[1].sources.is_empty());
        assert_eq!(localised, gather(0));
    }

    #[test]
    fn both_ends_name_the_same_lanes() {
        let sum = |rank| Exchange::sum(vec![0, 1, 2, 3, 4], rank, 11);
        let homes = [2, 0, 2, 1, 0];
        let all: Vec<Crossing> = (0..5).map(|me| fit(&sum, &homes, me).1).collect();
        for (me, crossing) in all.iter().enumerate() {
            for parcel in crossing.sends.iter().flatten() {
                let there = homes.iter().position(|home| *home == parcel.process).unwrap();
                let found: Vec<&Parcel> =
                    all[there].receives.iter().flatten().filter(|other| other.lane == parcel.lane).collect();
                assert!(found.len() == 1 && found[0].process == homes[me] && found[0].bytes == parcel.bytes);
            }
            let near = (0..5).filter(|other| homes[*other] == homes[me]);
            let sent: usize = near.map(|other| all[other].sends.iter().flatten().count()).sum();
            assert_eq!(crossing.local_sends, sent);
        }
    }
}
