//! Small models compiled for stages of any placement, whose actions run in a random order.

use crate::meshes::training::{Recipe, model, request};
use crate::random::Random;
use crate::rows::schedule;
use cost::PROGRAM;
use ir::text::File;
use meshwright::compiler::pipeline::{PipelineOptions, compile};
use scheduler::model_costs;
use scheduler::partition::partition;
use scheduler::placement::Pipeline;

/// The model for a configuration, its stages those of the pipeline.
pub(crate) fn placed(recipe: &Recipe, mesh: &str, sequences: u64, pipeline: &Pipeline, seed: u64) -> File {
    let request = request(recipe, mesh, sequences);
    let early = PipelineOptions { stop_after: Some("collectives".to_string()), ..request.clone() };
    let run = |file: File, request: &PipelineOptions| {
        compile(file, request, &PROGRAM, &mut |_, _| {}).unwrap_or_else(|why| panic!("{mesh}, {pipeline:?}: {why}"))
    };
    let planned = run(model(recipe, sequences).into(), &early);
    let staged = partition(&planned.model, pipeline, &model_costs(&planned.model, &PROGRAM, 1, false)).expect("stages");
    let schedule = schedule(&mut Random::new(seed), pipeline);
    run(File { staged: Some(staged), schedule: Some(schedule), ..planned }, &request)
}
