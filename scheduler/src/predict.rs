//! Seconds of a step from the costs of stages alone: no program is needed.
//!
//! A stage's section takes the sum of its statements, layout changes included: nothing is hidden behind anything. A hop
//! takes as long as the largest message between two stages. The update (R, N, U) follows the last backward of the stage
//! for which both together end last.

use crate::cut::stage_costs;
use crate::emit::{EmitError, largest_message};
use crate::simulate::{SimulateError, simulate};
use cost::{Cluster, seconds_of_message, seconds_of_section};
use ir::graph::{Model, SectionKind};
use ir::mesh::Axes;
use ir::schedule::Schedule;
use ir::staged::{Part, Staged};

/// Seconds of a step, as far as stages and a schedule tell.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Prediction {
    /// The whole step.
    pub seconds: f64,
    /// From the first forward to the last backward.
    pub schedule: f64,
    /// The idle share of these of the busiest rank.
    pub bubble: f64,
    /// Seconds of a hop between stages.
    pub hop: f64,
}

/// Why nothing can be said.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PredictError {
    /// The schedule cannot be run.
    #[error(transparent)]
    Simulate(#[from] SimulateError),
    /// The stages do not fit the model.
    #[error(transparent)]
    Emit(#[from] EmitError),
}

/// Predicts a step.
///
/// # Errors
/// The schedule cannot be run, or the stages are not those of the model.
pub fn predict(
    model: &Model,
    staged: &Staged,
    schedule: &Schedule,
    cluster: &Cluster,
) -> Result<Prediction, PredictError> {
    let message = largest_message(model, staged)?;
    let pipeline = model.mesh.pipeline().map_or_else(Axes::none, Axes::one);
    let hop = if message == 0 { 0.0 } else { seconds_of_message(cluster.link(&model.mesh, &pipeline), message) };
    let timeline = simulate(schedule, &stage_costs(staged, hop))?;
    let mut updates = vec![0.0; timeline.rows.len()];
    for stage in &staged.stages {
        updates[stage.ranks[0] as usize] += stage.parts.iter().map(|part| update(model, part, cluster)).sum::<f64>();
    }
    let ends = timeline.rows.iter().map(|row| row.last().map_or(0.0, |slot| slot.end));
    let last = ends.zip(updates).map(|(end, update)| end + update).fold(0.0, f64::max);
    let graph = model.step.as_ref().map(|step| seconds_of_section(cluster, &model.mesh, &step.graph, SectionKind::F));
    let seconds = last + graph.unwrap_or(0.0);
    Ok(Prediction { seconds, schedule: timeline.makespan, bubble: timeline.bubble(), hop })
}

/// Seconds of R and U of a stage's part.
fn update(model: &Model, part: &Part, cluster: &Cluster) -> f64 {
    let block = &model.blocks[model.calls[part.call].block];
    part.instances.len() as f64 * seconds_of_section(cluster, &model.mesh, block, SectionKind::U)
}
