//! Filled rows through NCCL: the host reads how many there are, then gives the stream the messages that have them and no others.
//!
//! The host waits only for what the rank's thread has waited for before, so that it holds up nobody who waits for it.

use super::super::device::Device;
use super::super::error::Error;
use super::super::medium::{DeviceMemory, at};
use super::super::memory::{Arena, Pinned};
use super::super::staging::Staging;
use super::super::stream::Stream;
use super::communicator::Communicator;
use super::exchange::Buffers;
use comm::{RowCopy, RowMoves, RowsExchange};
use device::backend::Span;
use ir::ops::Ragged;
use kernels::cuda::exchange::WIDEST;
use std::sync::Arc;

/// The most bytes that a block of threads copies at a time: few enough that all multiprocessors share large chunks.
const PIECE: usize = 1 << 16;

/// A piece in a table: the addresses of source and target, and its runs.
type Piece = [u64; 3];

/// The places of the tables of pieces in the staging memory, before the calls and after them, and the end of both.
fn tables(rows: &RowsExchange) -> [usize; 3] {
    let all = rows.most_bytes().div_ceil(PIECE);
    let bytes = rows.most_copies().map(|copies| (copies + all) * size_of::<Piece>());
    let start = rows.bytes.next_multiple_of(WIDEST);
    [start, start + bytes[0], start + bytes[0] + bytes[1]]
}

/// Bytes of staging memory that an exchange of rows needs.
pub(super) fn staging_bytes(rows: &RowsExchange) -> usize {
    let [.., end] = tables(rows);
    end
}

/// Makes pinned memory long enough for the tables of an exchange.
///
/// # Errors
/// The host cannot pin as much.
pub(super) fn pinned<'a>(
    device: &Arc<Device>,
    rows: &RowsExchange,
    known: &'a mut Option<Pinned>,
) -> Result<&'a mut Pinned, Error> {
    let [start, _, end] = tables(rows);
    let fitting = known.take().filter(|pinned| pinned.bytes().len() >= end - start);
    let fitting = fitting.map_or_else(|| Pinned::new(device, end - start), Ok)?;
    Ok(known.insert(fitting))
}

/// Reads the numbers of rows when what the thread's stream was given so far is done, and tells what moves.
///
/// # Errors
/// The driver failed.
///
/// # Safety
/// The sources are in the live arena, and no other stream works on the counts.
pub(super) unsafe fn moves(
    staging: &mut Staging,
    own: &Stream,
    (arena, sources): (&Arena, &[Span]),
    rows: &RowsExchange,
) -> Result<RowMoves, Error> {
    let mut counts: [Vec<i32>; Ragged::COUNTS] = Default::default();
    for (numbers, &source) in counts.iter_mut().zip(&rows.counts) {
        let span = sources[source];
        let mut bytes = vec![0; span.bytes()];
        // SAFETY: as the caller promises.
        unsafe { staging.read(own, &mut bytes, at(arena, span))? };
        let (each, _) = bytes.as_chunks();
        numbers.extend(each.iter().map(|number| i32::from_le_bytes(*number)));
    }
    Ok(rows.moves([&counts[0], &counts[1]]))
}

/// Copies in pieces, and the bytes of a run, by which all addresses and lengths can be divided.
fn pieces(copies: &[RowCopy], at: impl Fn(&RowCopy) -> [u64; 2]) -> (usize, Vec<Piece>) {
    let numbers = copies.iter().flat_map(|copy| at(copy).into_iter().chain([copy.bytes as u64]));
    // The greatest power of two that divides all numbers is the lowest bit that any of them has.
    let width = 1 << numbers.fold(WIDEST as u64, |bits, number| bits | number).trailing_zeros();
    let parts = copies.iter().flat_map(|copy| {
        let [from, to] = at(copy);
        (0..copy.bytes).step_by(PIECE).map(move |start| {
            let bytes = PIECE.min(copy.bytes - start);
            [from + start as u64, to + start as u64, (bytes / width) as u64]
        })
    });
    (width, parts.collect())
}

impl DeviceMemory {
    /// Gives a stream an exchange of rows.
    ///
    /// # Errors
    /// The driver or NCCL failed, or the communicator has ended.
    ///
    /// # Safety
    /// While the stream works on it, nobody writes the sources or touches the results, and nothing else uses the staging memory or the
    /// pinned memory, which has [`pinned`]'s bytes.
    pub(super) unsafe fn give_rows(
        &self,
        stream: &Stream,
        communicator: &Communicator,
        buffers: Buffers<'_>,
        (rows, moves): (&RowsExchange, &RowMoves),
        pinned: &mut Pinned,
    ) -> Result<(), Error> {
        let [before, after, _] = tables(rows);
        let mut copy = |copies: &[RowCopy], table: usize| {
            let (width, pieces) = pieces(copies, |copy| [copy.from, copy.to].map(|place| buffers.address(place)));
            let bytes = size_of_val(&pieces[..]);
            let own = &mut pinned.bytes_mut()[table - before..][..bytes];
            let numbers = pieces.as_flattened().iter().map(|number| number.to_le_bytes());
            own.as_chunks_mut().0.iter_mut().zip(numbers).for_each(|(to, number)| *to = number);
            let table = buffers.staging.address(table, bytes);
            // SAFETY: as the caller promises.
            unsafe {
                if bytes > 0 {
                    stream.upload(table, own)?;
                }
                self.move_pieces(stream, (table, pieces.len()), width)
            }
        };
        // SAFETY: as the caller promises.
        unsafe {
            for (tensor, span) in buffers.results.iter().enumerate().filter(|(_, span)| span.len > 0) {
                stream.fill(buffers.result(tensor), 0, span.bytes())?;
            }
            copy(&moves.packs, before)?;
            if !moves.calls.is_empty() {
                let calls = moves.calls.iter().map(|call| call.addressed(|place| buffers.address(place)));
                communicator.give(stream, calls)?;
            }
        }
        copy(&moves.unpacks, after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use comm::CallPlace;

    #[test]
    fn pieces_are_as_wide_as_addresses_and_lengths_allow() {
        let copy = |from, to, bytes| RowCopy { from: CallPlace::Staging(from), to: CallPlace::Staging(to), bytes };
        let place = |place: CallPlace| match place {
            CallPlace::Staging(byte) => byte as u64,
            place => panic!("{place:?}"),
        };
        let of = |copies: &[RowCopy]| pieces(copies, |copy| [copy.from, copy.to].map(place));
        assert_eq!(of(&[]).1, [[0; 3]; 0]);
        assert_eq!(of(&[copy(32, 64, 48)]), (16, vec![[32, 64, 3]]));
        assert_eq!(of(&[copy(32, 64, 48), copy(6, 128, 4)]), (2, vec![[32, 64, 24], [6, 128, 2]]));
        let long = [copy(0, 1 << 20, PIECE + 8)];
        let end = PIECE as u64;
        assert_eq!(of(&long), (8, vec![[0, 1 << 20, end / 8], [end, (1 << 20) + end, 1]]));
    }
}
