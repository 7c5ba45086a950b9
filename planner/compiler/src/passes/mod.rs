//! The passes from a model to its program, one per file; those of the planner are rows of `planner::PASSES`.

mod assign_buffers;
mod codegen;
mod differentiate;
mod fuse;
mod gather;
mod partition;
mod planner;
mod quantise;
mod recognise;
mod ring;
mod schedule;
mod simplify;
mod slice;

use crate::pass::Pass;
use crate::pipeline_options::PipelineOptions;
use ir::graph::Model;
use ir::options::ParallelConfig;

/// All passes, in order.
pub(crate) fn all<'a>() -> Vec<Box<dyn Pass + 'a>> {
    let mut passes: Vec<Box<dyn Pass + 'a>> = vec![
        Box::new(recognise::Recognise),
        Box::new(slice::Slice),
        Box::new(differentiate::Differentiate),
        Box::new(simplify::Simplify),
        Box::new(quantise::Quantise),
    ];
    passes.extend(::planner::PASSES.iter().map(|pass| Box::new(planner::PlannerPass(pass)) as Box<dyn Pass + 'a>));
    passes.push(Box::new(ring::Ring));
    passes.push(Box::new(gather::Gather));
    passes.push(Box::new(partition::Partition));
    passes.push(Box::new(schedule::Order));
    passes.push(Box::new(codegen::Codegen));
    passes.push(Box::new(fuse::Fuse));
    passes.push(Box::new(assign_buffers::AssignBuffers));
    passes
}

/// The configuration with as many pipeline ranks as the model's mesh has, which the file may state itself.
fn on_mesh(model: &Model, request: &PipelineOptions) -> ParallelConfig {
    let pp = model.mesh.pipeline().map_or(1, |axis| model.mesh.axes[axis].size);
    ParallelConfig { pp, ..request.options.parallel.clone() }
}
