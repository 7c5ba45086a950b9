//! Measurement of communication between threads: sums over ranks and messages.

use super::{Sum, quartile};
use crate::backend::{Backend, Span};
use crate::backends::cpu::Cpu;
use crate::comm::HostMemory;
use crate::comm::threads::{Fabric, ThreadCommunicator};
use crate::comm::{Exchange, FittedExchange, Parking, RankFailure, ThreadRole, Transport};
use crate::cores::pin_thread;
use ir::types::DType;
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
pub(super) fn sums() -> Result<Vec<Sum>, String> {
    let measure = |ranks, bytes| Ok(Sum { ranks: ranks as u64, bytes: bytes as u64, seconds: sum(ranks, bytes)? });
    RANKS.iter().flat_map(|&ranks| BYTES.iter().map(move |&bytes| measure(ranks, bytes))).collect()
}

/// Messages of all sizes there and back: seconds of each.
pub(super) fn messages() -> Result<Vec<(u64, f64)>, String> {
    BYTES.iter().map(|&bytes| Ok((bytes as u64, message(bytes)?))).collect()
}

fn sum(ranks: usize, bytes: usize) -> Result<f64, String> {
    let span = Span::new(DType::F32, 0, bytes / 4);
    on_ranks(ranks, bytes, &|rank, end| {
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
    })
}

/// Half of a way there and back.
fn message(bytes: usize) -> Result<f64, String> {
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
) -> Result<f64, String>
where
    W: Fn(&ThreadCommunicator) -> Result<(), RankFailure>,
{
    let fabric = Fabric::new(ranks, false);
    let end = |rank| -> Result<ThreadCommunicator, String> {
        let mut cpu = Cpu::new(1);
        cpu.reserve(bytes)?;
        let mut end = fabric.endpoint(rank, cpu.arena().clone(), HostMemory::default());
        end.expect(2, 1);
        Ok(end)
    };
    let ends = (0..ranks).map(end).collect::<Result<Vec<ThreadCommunicator>, String>>()?;
    let times = (ROUND_BYTES / bytes).clamp(1, MOST);
    fabric.enter(ranks);
    let timed = |rank: usize, mut end: ThreadCommunicator| -> Result<f64, RankFailure> {
        let work = prepare(rank, &mut end).map_err(|why| RankFailure::new(rank, why))?;
        let mut rounds = Vec::with_capacity(ROUNDS);
        // The first round warms up.
        for _ in 0..=ROUNDS {
            let began = Instant::now();
            (0..times).try_for_each(|_| work(&end))?;
            rounds.push(began.elapsed().as_secs_f64() / times as f64);
        }
        end.leave();
        Ok(quartile(rounds.split_off(1)))
    };
    let timed = &timed;
    let seconds = std::thread::scope(|scope| {
        let spawn = |(rank, end)| {
            scope.spawn(move || {
                pin_thread(rank, ranks);
                timed(rank, end)
            })
        };
        let threads: Vec<_> = ends.into_iter().enumerate().map(spawn).collect();
        let joined = threads.into_iter().map(|thread| thread.join().map_err(|_| "a rank broke".to_string()));
        joined.map(|given| given?.map_err(|why| why.to_string())).collect::<Result<Vec<f64>, String>>()
    })?;
    Ok(quartile(seconds))
}
