//! A Python file for `torch.distributed.pipelining`: the stages, the order of their actions, and a function that runs it.

use crate::job::{Job, Stage, TorchOrder};
use crate::notes::{Notes, Written};
use ir::options::{Offload, Recompute};
use std::fmt::Write;

pub(crate) fn write(job: &Job) -> Written {
    let mut notes = Notes::default();
    let parallel = &job.parallel;
    let order = job.order.clone().unwrap_or_default();
    if let Some(why) = &order.instead {
        let key = if parallel.slices.is_some_and(|slices| slices > 1) { "slices" } else { "schedule" };
        let value = parallel.slices.filter(|_| key == "slices").map_or(parallel.schedule.clone(), |n| n.to_string());
        notes.lost(key, value, why);
    }
    outside(job, &mut notes);
    if parallel.recompute != Recompute::None {
        notes.near("recompute", &parallel.recompute, "the module of a stage calls torch.utils.checkpoint itself");
    }
    if parallel.offload != Offload::None {
        notes.near("offload", parallel.offload, "the module of a stage calls save_on_cpu itself");
    }
    Written::plain(python_file(job, &order), notes)
}

/// Notes what the module of a stage has from elsewhere, before it becomes a stage.
fn outside(job: &Job, notes: &mut Notes) {
    let parallel = &job.parallel;
    let degrees = [
        ("dp", parallel.dp, "the module of a stage is wrapped by fully_shard or replicate before it becomes a stage"),
        ("tp", parallel.tp, "the module of a stage is sharded by parallelize_module before it becomes a stage"),
        ("cp", parallel.cp, "the module of a stage runs under context_parallel"),
        ("ep", parallel.ep, "the module of a stage places its experts itself"),
    ];
    for (key, degree, text) in degrees {
        if degree > 1 {
            notes.near(key, degree, text);
        }
    }
    if parallel.zero > 0 {
        notes.near("zero", parallel.zero, "fully_shard around the module of a stage shards, reshards and reduces");
    }
}

fn python_file(job: &Job, order: &TorchOrder) -> String {
    let mut text = String::from(
        "\"\"\"Stages and their order for torch.distributed.pipelining.\n\n\
         `python THIS_FILE schedule.csv` writes the order alone, as `_load_csv` reads it.\n\"\"\"\n\nimport sys\nimport tempfile\n\n",
    );
    let _ = writeln!(text, "MICROBATCHES = {}", job.microbatches());
    text.push_str("# Of each stage: whether it has the embedding, its layers, and whether it has the last norm and the head.\nSTAGES = [\n");
    let mut first = 0;
    for Stage { embedding, layers, further, head } in &job.stages {
        // Layers that predict further tokens have numbers behind those of the others.
        let end = first + layers + further;
        let _ = writeln!(text, "    ({}, range({first}, {end}), {}),", python(*embedding), python(*head));
        first = end;
    }
    let ranks: Vec<String> = order.ranks.iter().map(ToString::to_string).collect();
    let _ = writeln!(text, "]\n# The pipeline rank of each stage.\nRANKS = [{}]", ranks.join(", "));
    let _ = writeln!(text, "# A line for each rank.\nSCHEDULE = \"\"\"\\\n{}\"\"\"", order.csv);
    text + FUNCTIONS
}

fn python(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

const FUNCTIONS: &str = r#"

def stages_of(rank):
    """The stages of a pipeline rank, each to be a PipelineStage."""
    return [stage for stage, owner in enumerate(RANKS) if owner == rank]


def schedule(stages, loss_fn=None, **options):
    """Runs the order on this rank's stages, a list of PipelineStage: `schedule(stages, loss_fn).step(batch, target=target)`."""
    from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

    runtime = _PipelineScheduleRuntime(stages, MICROBATCHES, loss_fn=loss_fn, **options)
    with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
        file.write(SCHEDULE)
        file.flush()
        runtime._load_csv(file.name)
    return runtime


if __name__ == "__main__":
    with open(sys.argv[1], "w") as file:
        file.write(SCHEDULE)
"#;
