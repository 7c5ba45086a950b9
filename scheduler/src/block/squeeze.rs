//! End times of the passes of rows. Each pass starts as soon as its rank is free and its inputs have arrived.

use super::{BlockRow, PERIOD, Pass};

/// Returns the end of each pass of each rank, in seconds, in the order of its row. `seconds(rank, pass)` is the length of a
/// pass, `hop(stage)` the time between that stage and the next.
///
/// Returns `None` if ranks wait for each other, or for a pass that is in no row.
pub(crate) fn ends(
    rows: &[BlockRow],
    seconds: impl Fn(usize, Pass) -> f64,
    hop: impl Fn(usize) -> f64,
) -> Option<Vec<Vec<f64>>> {
    let ranks = rows.len();
    let mut ends: Vec<Vec<f64>> = rows.iter().map(|row| Vec::with_capacity(row.len())).collect();
    let mut done: Vec<[Vec<f64>; PERIOD]> = vec![Default::default(); ranks]; // ends by pass and micro-batch
    let mut at = vec![0; ranks];
    let mut ready: Vec<usize> = (0..ranks).rev().collect();
    while let Some(rank) = ready.pop() {
        let stood = ends[rank].len();
        while let Some(&slot) = rows[rank].get(at[rank]) {
            if let Some(pass) = slot {
                let Some(arrival) = arrival(&done, rank, pass, &hop) else { break };
                let free = ends[rank].last().copied().unwrap_or(0.0);
                let end = arrival.max(free) + seconds(rank, pass);
                ends[rank].push(end);
                done[rank][pass as usize].push(end);
            }
            at[rank] += 1;
        }
        if ends[rank].len() > stood {
            let others = [rank.checked_sub(1), Some(rank + 1)].into_iter().flatten();
            ready.extend(others.filter(|&other| other < ranks && at[other] < rows[other].len()));
        }
    }
    (0..ranks).all(|rank| at[rank] == rows[rank].len()).then_some(ends)
}

/// Returns the arrival time of the input of the rank's next such pass, or `None` if the input has not been computed.
fn arrival(done: &[[Vec<f64>; PERIOD]], rank: usize, pass: Pass, hop: impl Fn(usize) -> f64) -> Option<f64> {
    let microbatch = done[rank][pass as usize].len();
    if let Some(before) = pass.before() {
        done[rank][before as usize].get(microbatch)?;
    }
    match pass.from(rank, done.len()) {
        None => Some(0.0),
        Some((other, stage)) => Some(done[other][pass as usize].get(microbatch)? + hop(stage)),
    }
}

/// Moves each pass to the earliest slot that preserves the order of its row. Returns `None` if the rows deadlock.
pub(crate) fn squeeze(rows: &[BlockRow]) -> Option<Vec<BlockRow>> {
    let ends = ends(rows, |_, _| 1.0, |_| 0.0)?;
    let length = ends.iter().filter_map(|row| row.last()).fold(0.0_f64, |length, &end| length.max(end)) as usize;
    let squeezed = rows.iter().zip(ends).map(|(row, ends)| {
        let mut squeezed = vec![None; length];
        row.iter().flatten().zip(ends).for_each(|(&pass, end)| squeezed[end as usize - 1] = Some(pass));
        squeezed
    });
    Some(squeezed.collect())
}
