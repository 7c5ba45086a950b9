//! Filled rows of chunks as messages of a collective engine. Their numbers are known on the host before an exchange begins: both ends of a
//! message know its length, as counts are exchanged before rows.
//!
//! A member packs what it gives another into one message, chunk after chunk, and the other unpacks it. A message of one chunk goes from tensor
//! to tensor.

use super::engine::{CallPlace, EngineCall, Half};
use super::exchange::{FilledRows, Move};
use ir::ops::Ragged;
use ir::types::DType;

/// Alignment of a chunk in staging memory: that of the widest run of a kernel.
const ALIGNED: usize = 16;

/// A chunk of a tensor: the tensor, and the first element.
type Chunk = (usize, usize);

/// Message to another member or from one.
#[derive(Clone, Debug)]
struct Parcel {
    half: Half,
    peer: usize,
    /// The start in the staging memory.
    at: usize,
    chunks: Vec<Chunk>,
}

/// The rows of an exchange as one member moves them.
#[derive(Clone, Default, Debug)]
pub struct RowsExchange {
    /// The rank's own sources with the numbers of filled rows, of chunks that it gives and of those that it gets.
    pub counts: [usize; Ragged::COUNTS],
    /// By tensor, its chunks, and the bytes of an element.
    tensors: Vec<(FilledRows, usize)>,
    /// Chunks of the rank's own sources that go into its results: the tensor, and the first element in each.
    own: Vec<(usize, [usize; 2])>,
    parcels: Vec<Parcel>,
    /// Bytes of staging memory.
    pub bytes: usize,
}

/// A copy of bytes within a rank's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RowCopy<P = CallPlace> {
    /// The start of what is read.
    pub from: P,
    /// The start of what is written.
    pub to: P,
    /// Their length.
    pub bytes: usize,
}

/// All that moves in one exchange: copies before the calls, the calls in one order on all members, and copies after them. Results are zeros
/// first.
#[derive(Default, Debug)]
pub struct RowMoves {
    /// Copies before the calls.
    pub packs: Vec<RowCopy>,
    /// The calls.
    pub calls: Vec<EngineCall>,
    /// Copies after the calls.
    pub unpacks: Vec<RowCopy>,
    /// Bytes of the rows that come, the rank's own included.
    pub bytes: u64,
}

impl RowsExchange {
    /// The rows of tensors of these elements.
    pub(super) fn of(tensors: impl Iterator<Item = (FilledRows, DType)>) -> RowsExchange {
        let tensors: Vec<_> = tensors.map(|(filled, dtype)| (filled, dtype.bytes() as usize)).collect();
        let counts = tensors.first().map_or([0; Ragged::COUNTS], |(filled, _)| filled.counts);
        RowsExchange { counts, tensors, ..RowsExchange::default() }
    }

    /// Adds blocks of the rank's own sources.
    pub(super) fn keep<'a>(&mut self, blocks: impl Iterator<Item = (usize, &'a Move)>) {
        self.own.extend(blocks.flat_map(|(tensor, block)| block.chunks().map(move |places| (tensor, places))));
    }

    /// Adds blocks that move to another member or come from it; both name them in one order.
    pub(super) fn add<'a>(&mut self, half: Half, peer: usize, blocks: impl Iterator<Item = (usize, &'a Move)>) {
        let chunks = blocks.flat_map(|(tensor, block)| {
            block.chunks().map(move |[source, target]| match half {
                Half::Send => (tensor, source),
                Half::Receive => (tensor, target),
            })
        });
        let chunks: Vec<Chunk> = chunks.collect();
        if chunks.is_empty() {
            return;
        }
        let at = self.bytes;
        if chunks.len() > 1 {
            self.bytes += chunks.iter().map(|(tensor, _)| self.most(*tensor).next_multiple_of(ALIGNED)).sum::<usize>();
        }
        self.parcels.push(Parcel { half, peer, at, chunks });
    }

    /// Bytes of a full chunk.
    fn most(&self, tensor: usize) -> usize {
        let (filled, size) = self.tensors[tensor];
        filled.chunk() * size
    }

    /// Bytes of a chunk's filled rows.
    fn filled(&self, (tensor, start): Chunk, counts: &[i32]) -> usize {
        let (filled, size) = self.tensors[tensor];
        filled.filled(counts[start / filled.chunk()]) * filled.width * size
    }

    /// The most copies before the calls, and after them.
    pub fn most_copies(&self) -> [usize; 2] {
        let [sent, received] = [Half::Send, Half::Receive].map(|half| {
            let parcels = self.parcels.iter().filter(|parcel| parcel.half == half && parcel.chunks.len() > 1);
            parcels.map(|parcel| parcel.chunks.len()).sum::<usize>()
        });
        [self.own.len() + sent, received]
    }

    /// The bytes of all copies when all rows are filled.
    pub fn most_bytes(&self) -> usize {
        let parcels = self.parcels.iter().flat_map(|parcel| parcel.chunks.iter().map(|(tensor, _)| *tensor));
        parcels.chain(self.own.iter().map(|(tensor, _)| *tensor)).map(|tensor| self.most(tensor)).sum()
    }

    /// The moves, by the numbers of filled rows of the chunks that the rank gives and gets.
    pub fn moves(&self, counts: [&[i32]; Ragged::COUNTS]) -> RowMoves {
        let mut moves = RowMoves::default();
        for &(tensor, [source, target]) in &self.own {
            let bytes = self.filled((tensor, source), counts[0]);
            moves.bytes += bytes as u64;
            if bytes > 0 {
                let (from, to) = (CallPlace::Source(tensor, source), CallPlace::Result(tensor, target));
                moves.packs.push(RowCopy { from, to, bytes });
            }
        }
        self.parcels.iter().for_each(|parcel| self.parcel(parcel, counts, &mut moves));
        moves
    }

    fn parcel(&self, parcel: &Parcel, counts: [&[i32]; Ragged::COUNTS], moves: &mut RowMoves) {
        let Parcel { half, peer, at, chunks } = parcel;
        let (mut end, mut first) = (*at, None);
        for &chunk in chunks {
            let (counts, tensor) = match half {
                Half::Send => (counts[0], CallPlace::Source(chunk.0, chunk.1)),
                Half::Receive => (counts[1], CallPlace::Result(chunk.0, chunk.1)),
            };
            let bytes = self.filled(chunk, counts);
            if *half == Half::Receive {
                moves.bytes += bytes as u64;
            }
            first = first.or(Some((tensor, bytes)));
            if chunks.len() > 1 && bytes > 0 {
                let staged = CallPlace::Staging(end);
                match half {
                    Half::Send => moves.packs.push(RowCopy { from: tensor, to: staged, bytes }),
                    Half::Receive => moves.unpacks.push(RowCopy { from: staged, to: tensor, bytes }),
                }
                end += bytes.next_multiple_of(ALIGNED);
            }
        }
        let (place, bytes) = match (&chunks[..], first) {
            ([_], Some(only)) => only,
            _ => (CallPlace::Staging(*at), end - at),
        };
        if bytes > 0 {
            moves.calls.push(match half {
                Half::Send => EngineCall::Send { to: *peer, from: place, bytes },
                Half::Receive => EngineCall::Receive { from: *peer, to: place, bytes },
            });
        }
    }
}
