//! The schedule ZB-V by a greedy rule with a memory limit: its rule and its timeline.

mod waves;

use super::ScheduleError;
use crate::block::{self, BlockRow, Pass};
use crate::costs::StageCosts;
use crate::list::{self, lists};
use crate::placement::Pipeline;
use Pass::*;
use ir::schedule::{Kind, Schedule};

/// ZB-V with given stage times, under a memory limit (arXiv 2401.10241, section 6, as the authors' `zbv.py` builds it).
/// Forwards run up in waves, then each rank alternates I and F, and W fill gaps or free memory.
///
/// Without a limit each rank may hold the 2p chunk activations of [ZB-V](super::zb_v). If the waves do not fit, list scheduling
/// runs on each rank the work that has arrived and fits. Every limit suffices that lets a rank hold one forward of each of its
/// two stages.
///
/// Two ranks, three micro-batches, f = i = w; stages 0 and 3 on rank 0:
/// ```text
/// rank 0  0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 3F2 3I2 0I1 3W2 0I2 0W1 0W2
/// rank 1  1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 1I1 2I2 1I2 2W1 1W1 2W2 1W2
/// ```
pub(super) fn zb_v_greedy(costs: &StageCosts, pipeline: &Pipeline) -> Result<Schedule, ScheduleError> {
    let v = V::new(costs, pipeline)?;
    let (_, rows) = v.best();
    Ok(block::schedule("zb-v-greedy", &rows, false))
}

/// A V of two chunks: costs of a rank's passes, and memory limits.
pub(super) struct V<'a> {
    pub(super) costs: &'a StageCosts,
    pipeline: Pipeline,
    pub(super) ranks: usize,
    pub(super) microbatches: usize,
    pub(super) limit: Vec<f64>,
    /// Difference of times up to which they count as equal.
    pub(super) epsilon: f64,
}

impl<'a> V<'a> {
    /// Prepares a V.
    ///
    /// # Errors
    ///
    /// Returns an error if a rank cannot hold one forward of each of its stages.
    pub(super) fn new(costs: &'a StageCosts, pipeline: &Pipeline) -> Result<V<'a>, ScheduleError> {
        let ranks = pipeline.ranks as usize;
        let pairs: Vec<f64> = (0..ranks).map(|rank| costs.mem_f[rank] + costs.mem_f[2 * ranks - 1 - rank]).collect();
        let limit: Vec<f64> = match &costs.limit {
            Some(limit) => limit.clone(),
            None => pairs.iter().map(|pair| f64::from(pipeline.ranks) * pair).collect(),
        };
        let slowest = (0..2 * ranks).map(|s| costs.f[s] + costs.i[s] + costs.w[s]).fold(0.0, f64::max);
        let v = V {
            costs,
            pipeline: *pipeline,
            ranks,
            microbatches: pipeline.microbatches as usize,
            limit,
            epsilon: slowest * ROUNDING,
        };
        match (0..ranks).find(|&rank| !v.fits(rank, pairs[rank])) {
            None => Ok(v),
            Some(rank) => Err(ScheduleError::Memory {
                held: " of each of its stages",
                rank,
                limit: v.limit[rank],
                needs: pairs[rank],
            }),
        }
    }

    /// Returns the least span and its rows.
    pub(super) fn best(&self) -> (f64, Vec<BlockRow>) {
        waves::waves(self)
            .map(|waves| (waves.span, waves.rows))
            .or_else(|| {
                let lists = lists(self.costs, &self.pipeline, &self.limit, f64::INFINITY, self.epsilon);
                let (span, rows) = self.least(lists.map(|listed| (listed.span, listed.rows)))?;
                Some((span, rows.into_iter().map(passes).collect()))
            })
            .expect("list scheduling always ends")
    }

    /// Returns the first result of the least span.
    fn least<T>(&self, found: impl Iterator<Item = (f64, T)>) -> Option<(f64, T)> {
        found.reduce(|best, next| if next.0 < best.0 - self.epsilon { next } else { best })
    }

    pub(super) fn seconds(&self, rank: usize, pass: Pass) -> f64 {
        let stage = pass.stage(rank, self.ranks);
        match pass.kind() {
            Kind::F => self.costs.f[stage],
            Kind::I => self.costs.i[stage],
            _ => self.costs.w[stage],
        }
    }

    /// Returns the change in the memory of a rank by a pass.
    pub(super) fn memory(&self, rank: usize, pass: Pass) -> f64 {
        let stage = pass.stage(rank, self.ranks);
        match pass.kind() {
            Kind::F => self.costs.mem_f[stage],
            Kind::I => -self.costs.mem_i[stage],
            _ => -self.costs.mem_w[stage],
        }
    }

    pub(super) fn fits(&self, rank: usize, held: f64) -> bool {
        held <= self.limit[rank] * (1.0 + ROUNDING)
    }
}

/// Converts a row of kinds and chunks to passes.
fn passes(row: list::Row) -> BlockRow {
    let [first, second] = [[F0, I0, W0], [F1, I1, W1]];
    let passes = row.into_iter().map(|(kind, chunk)| {
        let passes = if chunk == 0 { first } else { second };
        passes.into_iter().find(|pass| pass.kind() == kind)
    });
    passes.collect()
}

/// Relative difference up to which numbers count as equal, so that their unit does not matter.
const ROUNDING: f64 = 1e-9;
