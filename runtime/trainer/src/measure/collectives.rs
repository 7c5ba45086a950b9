//! Measurement of communication between threads: sums over ranks and messages.

use super::{MeasureError, Sum, named, quartile};
use comm::HostMemory;
use comm::threads::{Fabric, ThreadCommunicator};
use comm::{Exchange, FittedExchange, Parking, RankFailure, ThreadRole, Transport};
use cpu::Cpu;
use device::at_once::{join_all, panic_message};
use device::backend::{Backend, Span};
use device::cores::pin_thread;
use ir::types::DType;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// How many ranks take part in a sum.
const RANKS: [usize; 3] = [2, 4, 8];

/// Bytes on each rank.
const BYTES: [usize; 4] = [256, 128 << 10, 1 << 20, 8 << 20];

/// Rounds, and the bytes of a rank that go in each.
const ROUNDS: usize = 24;
const ROUND_BYTES: usize = 1 << 20;

/// The most exchanges of a round.
const MOST: usize = 16;

/// Sums over all numbers of ranks, of all sizes.
pub(super) fn sums() -> Result<Vec<Sum>, MeasureError> {
    RANKS.iter().flat_map(|&ranks| BYTES.iter().map(move |&bytes| sum(ranks, bytes))).collect()
}

/// Messages of all sizes there and back: seconds of each.
pub(super) fn messages() -> Result<Vec<(u64, f64)>, MeasureError> {
    BYTES.iter().map(|&bytes| Ok((bytes as u64, message(bytes)?))).collect()
}

fn sum(ranks: usize, bytes: usize) -> Result<Sum, MeasureError> {
    let span = Span::new(DType::F32, 0, bytes / 4);
    let seconds = on_ranks(ranks, bytes, &|rank, end| {
        let all: Vec<usize> = (0..ranks).collect();
        let group = end.join(&all, ThreadRole::Main)?;
        let plan = FittedExchange::from(Exchange::sum(all, rank, span.len));
        Ok(move |end: &ThreadCommunicator| {
            let mut request = end.start(&group, &plan, &[span], &[span]);
            end.wait(&mut || {
                end.advance(&group, &plan, &mut request);
                (!request.is_complete()).then(|| end.wait_reason(&group, &plan, request.number()))
            })
        })
    })?;
    Ok(Sum { ranks: ranks as u64, bytes: bytes as u64, seconds })
}

/// Half of a way there and back.
fn message(bytes: usize) -> Result<f64, MeasureError> {
    let span = Span::new(DType::F32, 0, bytes / 4);
    let seconds = on_ranks(2, bytes, &|rank, end| {
        let peer = 1 - rank;
        let channels = [end.channel_to(peer, 0)?, end.channel_from(peer, 0)?];
        Ok(move |end: &ThreadCommunicator| {
            // One gives first, the other takes first.
            for channel in [&channels[rank], &channels[1 - rank]] {
                let number = end.start_message(channel, span).number;
                end.wait(&mut || end.pending(channel, number))?;
            }
            Ok(())
        })
    })?;
    Ok(seconds / 2.0)
}

/// Seconds of the function that `prepare` makes for each rank, run repeatedly by all ranks at once.
fn on_ranks<W>(
    ranks: usize,
    bytes: usize,
    prepare: &(dyn Fn(usize, &mut ThreadCommunicator) -> Result<W, String> + Sync),
) -> Result<f64, MeasureError>
where
    W: Fn(&ThreadCommunicator) -> Result<(), RankFailure>,
{
    let fabric = Fabric::new(ranks, false);
    let mut ends = Vec::with_capacity(ranks);
    for rank in 0..ranks {
        let mut cpu = Cpu::new(1);
        cpu.reserve(bytes).map_err(|why| MeasureError::TooLittle { why })?;
        let mut end = fabric.endpoint(rank, cpu.arena().clone(), HostMemory::default());
        end.expect(2, 1);
        ends.push(end);
    }
    fabric.enter(ranks);
    let seconds = std::thread::scope(|scope| {
        let threads = ends.into_iter().enumerate().map(|(rank, mut end)| {
            scope.spawn(move || {
                pin_thread(rank, ranks);
                let found = catch_unwind(AssertUnwindSafe(|| timed(rank, &mut end, bytes, prepare)));
                let found = found.unwrap_or_else(|panic| Err(RankFailure::new(rank, panic_message(panic.as_ref()))));
                // The others do not wait for a rank that is not there.
                found.inspect_err(|failure| end.fail(failure.why.clone())).map_err(|failure| failure.to_string())
            })
        });
        join_all(threads.collect())
    });
    let seconds = seconds.and_then(|each| each.into_iter().collect());
    named("communication", seconds).map(quartile)
}

/// Seconds of what a rank does with its end.
fn timed<W>(
    rank: usize,
    end: &mut ThreadCommunicator,
    bytes: usize,
    prepare: &(dyn Fn(usize, &mut ThreadCommunicator) -> Result<W, String> + Sync),
) -> Result<f64, RankFailure>
where
    W: Fn(&ThreadCommunicator) -> Result<(), RankFailure>,
{
    let times = (ROUND_BYTES / bytes).clamp(1, MOST);
    let work = prepare(rank, end).map_err(|why| RankFailure::new(rank, why))?;
    let mut rounds = Vec::with_capacity(ROUNDS);
    // The first round warms up.
    for _ in 0..=ROUNDS {
        let began = Instant::now();
        (0..times).try_for_each(|_| work(end))?;
        rounds.push(began.elapsed().as_secs_f64() / times as f64);
    }
    end.leave();
    Ok(quartile(rounds.split_off(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_that_fails_is_named_and_ends_the_others() {
        let failing = on_ranks(4, 256, &|rank, end| {
            let all: Vec<usize> = (0..4).collect();
            let group = end.join(&all, ThreadRole::Main)?;
            let plan = FittedExchange::from(Exchange::sum(all, rank, 64));
            let span = Span::new(DType::F32, 0, 64);
            Ok(move |end: &ThreadCommunicator| {
                assert!(rank != 2, "no kernel");
                let mut request = end.start(&group, &plan, &[span], &[span]);
                end.wait(&mut || {
                    end.advance(&group, &plan, &mut request);
                    (!request.is_complete()).then(|| end.wait_reason(&group, &plan, request.number()))
                })
            })
        });
        let why = failing.unwrap_err().to_string();
        assert!(why.contains("communication has failed") && why.contains("no kernel"), "{why}");
    }
}
