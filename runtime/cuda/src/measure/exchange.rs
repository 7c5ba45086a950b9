//! Measurement of what the communicator does on the device for ranks that share it: a rank's part of a sum, and a message.

use super::Sum;
use super::bench::Bench;
use crate::Error;
use comm::{Buffer, Exchange, Half, Medium, PeerBuffers};
use device::backend::Span;
use ir::types::DType;

/// How many ranks take part in a sum.
const RANKS: [usize; 3] = [2, 4, 8];

/// Bytes on each rank, and small ones. The largest of eight ranks fill the space of results.
const BYTES: [usize; 4] = [256, 1 << 20, 16 << 20, 64 << 20];
const QUICK: [usize; 3] = [256, 64 << 10, 256 << 10];

/// The sizes that are measured.
fn sizes(bench: &Bench) -> &'static [usize] {
    if bench.clock.extent.quick { &QUICK } else { &BYTES }
}

/// Sums over all numbers of ranks, of all sizes. The parts of all ranks take equally long, one after the other.
pub(super) fn sums(bench: &Bench) -> Result<Vec<Sum>, Error> {
    let sum = |ranks: usize, bytes: usize| {
        let seconds = ranks as f64 * part(bench, ranks, bytes)?;
        Ok(Sum { ranks: ranks as u64, bytes: bytes as u64, seconds })
    };
    let all = RANKS.iter().flat_map(|&ranks| sizes(bench).iter().map(move |&bytes| (ranks, bytes)));
    all.map(|(ranks, bytes)| sum(ranks, bytes)).collect()
}

/// The tensor of each rank, in the space of results.
fn spans(bench: &Bench, ranks: usize, bytes: usize) -> Vec<[Span; 1]> {
    let half = bench.clock.extent.half;
    (0..ranks).map(|rank| [Span::new(DType::F32, half + rank * bytes, bytes / 4)]).collect()
}

/// Seconds of one rank's part.
fn part(bench: &Bench, ranks: usize, bytes: usize) -> Result<f64, Error> {
    let spans = spans(bench, ranks, bytes);
    let plan = Exchange::sum((0..ranks).collect(), 0, bytes / 4);
    let (medium, memory) = (bench.cuda.medium(), bench.cuda.arena());
    let peer = |rank: usize| PeerBuffers { memory: &**memory, sources: &spans[rank], results: &spans[rank] };
    bench.clock.seconds(|_| {
        for half in [Half::Pull, Half::Gather] {
            // SAFETY: the tensors are apart, and all is on one stream.
            unsafe { medium.exchange(&bench.clock.stream, &plan, half, 0, peer) };
        }
        Ok(())
    })
}

/// Messages of all sizes.
pub(super) fn messages(bench: &Bench) -> Result<Vec<(u64, f64)>, Error> {
    let (medium, memory) = (bench.cuda.medium(), bench.cuda.arena());
    let message = |&bytes: &usize| {
        let spans = spans(bench, 2, bytes);
        let seconds = bench.clock.seconds(|_| {
            // SAFETY: the tensors are apart, and all is on one stream.
            unsafe {
                let [to, from] = [0, 1].map(|end| Buffer { memory: &**memory, span: spans[end][0] });
                medium.copy(&bench.clock.stream, to, from);
            }
            Ok(())
        })?;
        Ok((bytes as u64, seconds))
    };
    sizes(bench).iter().map(message).collect()
}
