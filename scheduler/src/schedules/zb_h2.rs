//! The schedule ZB-H2: its timeline and its rows.

use super::ScheduleError;
use super::zb_h1::put_off;
use crate::costs::StageCosts;
use crate::placement::Pipeline;
use ir::schedule::Schedule;

/// ZB-H2 (arXiv 2401.10241, section 2.2): ZB-H1 with twice the forwards ahead and twice the W put off, 2(p-1-r) and 2r
/// on rank r. No rank idles between its first and its last action at f = i = w: the rows are parallelograms. Every rank
/// holds 2p-1 activations.
///
/// Three ranks, five micro-batches, f = i = w = 1:
/// ```text
/// rank 0  F0 F1 F2 F3 F4 I0 W0 I1 W1 I2 W2 I3 W3 I4 W4 .....
/// rank 1  .. F0 F1 F2 I0 F3 I1 F4 I2 W0 I3 W1 I4 W2 W3 W4 ..
/// rank 2  ..... F0 I0 F1 I1 F2 I2 F3 I3 F4 I4 W0 W1 W2 W3 W4
/// ```
pub(super) fn zb_h2(_: &StageCosts, pipeline: &Pipeline) -> Result<Schedule, ScheduleError> {
    let Pipeline { ranks, microbatches, .. } = *pipeline;
    let rows = (0..ranks).map(|rank| put_off(rank, 2 * (ranks - 1 - rank), 2 * rank, microbatches)).collect();
    Ok(Schedule { name: "zb-h2".into(), rows })
}

/// Checks that rows reach their steady state.
pub(super) fn accepts(pipeline: &Pipeline) -> Result<(), ScheduleError> {
    let Pipeline { ranks, microbatches, .. } = *pipeline;
    let least = 2 * ranks - 1;
    if microbatches < least {
        return Err(ScheduleError::Microbatches { ranks, least, microbatches, instead: Some("zb-h1") });
    }
    Ok(())
}
