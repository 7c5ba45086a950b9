//! Megatron-LM: the script that starts a job, and the reading of its flags.

mod assumptions;
mod layout;
mod model;
mod reader;
mod script;
mod sizes;
mod software;
mod stage_split;

#[cfg(test)]
pub(crate) use reader::asked;
pub use reader::read;

use crate::job::Job;
use crate::notes::Written;
use cost::Hidden;

/// A script with the flags of a job, what it does not state exactly, and what it writes of the prediction's assumptions.
pub(crate) fn write(job: &Job) -> Written {
    let mut layout = layout::flags(job);
    let assumed = assumptions::assumptions(job);
    let model = job.config.as_ref().map(|config| model::flags(config, job.seq));
    for part in model.iter().flat_map(|model| &model.unstated) {
        layout.notes.near(
            "model",
            &job.model,
            &format!("Megatron-LM has no flag for {part}: give the model's flags yourself"),
        );
    }
    if job.experts > 0 && job.parallel.ep > 1 && job.hides(Hidden::Ep) && !assumptions::overlaps_experts(job) {
        let why = "the prediction hides the exchanges of experts, which Megatron-LM does with vp above 1 under pp, \
                   without full recomputation, without that of moe";
        layout.notes.near("ep", job.parallel.ep, why);
    }
    if job.parallel.tp > 1 && !job.parallel.sp && job.parallel.tp_overlap == Some(true) {
        layout.notes.lost("tp_overlap", true, "Megatron-LM overlaps under sequence parallelism: sp=true is nearest");
    }
    let model = model.map(|model| model.flags).unwrap_or_default();
    Written { body: script::text(job, &layout.lines, &assumed, &model), notes: layout.notes.0, assumed }
}
