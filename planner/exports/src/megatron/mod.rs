//! Megatron-LM: the script that starts a job, and the reading of its flags.

mod assumptions;
mod layout;
mod model;
mod reader;
mod script;
mod sizes;
mod software;
mod stage_split;

pub(crate) use model::mscale;
pub use reader::read;
pub(crate) use reader::{asked, read_flags};

use crate::assumption::Assumption;
use crate::job::Job;
use crate::notes::{Instead, Notes, Written};
use cost::Hidden;
use layout::Flags;

/// Flags of a job, as Megatron-LM takes them.
pub(crate) struct JobFlags {
    /// Flags of the layout.
    pub(crate) layout: Vec<String>,
    /// Assumptions of the prediction.
    pub(crate) assumed: Vec<Assumption>,
    /// Flags of the model; none if it has no configuration.
    pub(crate) model: Vec<String>,
    pub(crate) notes: Notes,
}

impl JobFlags {
    pub(crate) fn of(job: &Job) -> JobFlags {
        let Flags { lines: layout, mut notes } = layout::flags(job);
        let assumed = assumptions::assumptions(job);
        let model = job.config.as_ref().map(|config| model::flags(config, job.seq));
        for part in model.iter().flat_map(|model| &model.unstated) {
            notes.near(
                "model",
                &job.model,
                &format!("Megatron-LM has no flag for {part}: give the model's flags yourself"),
            );
        }
        if job.experts > 0 && job.parallel.ep > 1 && job.hides(Hidden::Ep) && !assumptions::overlaps_experts(job) {
            let why = "the prediction hides the exchanges of experts, which Megatron-LM does in 16 bits, \
                       with one layer at most that predicts a further token";
            notes.does(Instead::Traits(job.hides_all_but(Hidden::Ep)), "ep", job.parallel.ep, why);
        }
        if assumptions::needs_graphs(job) && !assumptions::takes_graphs(job) {
            let why = "the prediction replays CUDA graphs, which Megatron-LM refuses with layers that are recomputed whole or offloaded";
            notes.does(Instead::Traits("launch.graphs=none".into()), "stack", &job.stack, why);
        }
        if job.parallel.tp > 1 && !job.parallel.sp && job.parallel.tp_overlap == Some(true) {
            notes.lost("tp_overlap", true, "Megatron-LM overlaps under sequence parallelism: sp=true is nearest");
        }
        JobFlags { layout, assumed, model: model.map(|model| model.flags).unwrap_or_default(), notes }
    }

    /// A body with what it does not state exactly.
    pub(crate) fn written(self, body: String) -> Written {
        Written { body, notes: self.notes.0, assumed: self.assumed }
    }
}

/// A script with the flags of a job.
pub(crate) fn write(job: &Job) -> Written {
    let flags = JobFlags::of(job);
    let body = script::text(job, &flags);
    flags.written(body)
}
