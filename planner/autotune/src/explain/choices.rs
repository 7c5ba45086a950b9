//! Costs and savings of each part of the configuration.

use super::brief::{differences, said};
use super::compare::{ALIKE, misfit, pace};
use super::pool::Pool;
use crate::plan::ChoiceNote;
use estimator::{EstimateReport, Predicted};
use ir::options::{Gather, Offload, ParallelConfig};
use support::units::{gib, share, time};

/// Notes on each choice of the configuration, compared with less of it and with more of it if those exist.
pub(super) fn choices(best: &EstimateReport, pool: &Pool) -> Vec<ChoiceNote> {
    let mut notes = vec![rest(best)];
    for key in KEYS {
        let sides = [false, true].map(|more| pool.without(key, more));
        for (more, other) in [false, true].into_iter().zip(sides) {
            match other {
                Some(other) => notes.push(note(key, best, other)),
                None if !more && has(key, &best.parallel) => notes.extend(alone(key, best, pool)),
                None => {}
            }
        }
    }
    for note in notes.iter_mut().filter(|note| pool.is_pinned(note.choice.split('=').next().unwrap_or_default())) {
        note.meaning = format!("pinned: {}", note.meaning);
    }
    notes
}

/// Choices in the order of their notes.
pub(super) const KEYS: [&str; 19] = [
    "tp",
    "sp",
    "cp",
    "cp_kind",
    "pp",
    "vp",
    "schedule",
    "stages",
    "ep",
    "etp",
    "zero",
    "shard",
    "gather",
    "mbs",
    "recompute",
    "offload",
    "offload_optimizer",
    "tp_overlap",
    "dp_overlap",
];

/// Note on dp, which follows from the other degrees.
fn rest(best: &EstimateReport) -> ChoiceNote {
    let ParallelConfig { dp, .. } = best.parallel;
    let each = of(best.inputs.global_batch / dp.max(1), "sequence");
    ChoiceNote {
        choice: said(&best.parallel, "dp"),
        against: String::new(),
        saves_s: None,
        costs_s: costs("zero", &best.predicted),
        saves_gib: None,
        meaning: match dp {
            1 => "no data parallelism: the other degrees use all devices".into(),
            _ => format!("{dp} data-parallel replicas of the model, each with {each} per step"),
        },
        comparison: String::new(),
    }
}

/// Returns whether the configuration makes use of the choice.
fn has(key: &str, parallel: &ParallelConfig) -> bool {
    match key {
        "tp" => parallel.tp > 1,
        "cp" => parallel.cp > 1,
        "pp" => parallel.pp > 1,
        "ep" => parallel.ep > 1,
        "etp" => parallel.etp > 1,
        _ => false,
    }
}

fn note(key: &str, best: &EstimateReport, other: &EstimateReport) -> ChoiceNote {
    let (here, there) = (&best.predicted, &other.predicted);
    let against = differences(&best.parallel, &other.parallel);
    let saves_s = there.step_time_s - here.step_time_s;
    let saves_gib = there.fullest().device - here.fullest().device;
    let verdict = match (here.keeps_headroom, there.keeps_headroom) {
        (_, false) => misfit(here, there),
        (false, true) => format!("would fit, and is {}", pace(here, there)),
        (true, true) => pace(here, there),
    };
    let memory = if there.keeps_headroom { memory_change(here, there) } else { String::new() };
    ChoiceNote {
        choice: said(&best.parallel, key),
        meaning: meaning(key, best),
        comparison: format!("{verdict}{memory}"),
        against,
        saves_s: Some(saves_s),
        costs_s: costs(key, here),
        saves_gib: Some(saves_gib),
    }
}

/// Note on a part without which no configuration is valid.
fn alone(key: &str, best: &EstimateReport, pool: &Pool) -> Option<ChoiceNote> {
    let (parallel, error) = pool.refused(key, false)?;
    let against = differences(&best.parallel, parallel);
    Some(ChoiceNote {
        choice: said(&best.parallel, key),
        meaning: meaning(key, best),
        comparison: format!("impossible: {error}"),
        against,
        saves_s: None,
        costs_s: costs(key, &best.predicted),
        saves_gib: None,
    })
}

/// Difference in memory, if times alone do not decide.
fn memory_change(here: &Predicted, there: &Predicted) -> String {
    let more = there.fullest().device - here.fullest().device;
    // Memory is printed in tenths of a GiB.
    if (there.step_time_s / here.step_time_s - 1.0).abs() >= ALIKE || more.abs() < 0.1 {
        return String::new();
    }
    format!(", using {} {} memory", gib(more.abs()), if more > 0.0 { "more" } else { "less" })
}

/// Seconds that the step spends on the choice.
fn costs(key: &str, predicted: &Predicted) -> f64 {
    let (comm, time) = (&predicted.exposed_comm_s, &predicted.time_s);
    match key {
        "tp" | "sp" | "tp_overlap" => comm.tp,
        "cp" | "cp_kind" => comm.cp,
        "ep" | "etp" => comm.ep,
        "pp" | "vp" | "schedule" | "stages" => comm.pp,
        "zero" | "shard" | "gather" | "dp_overlap" => comm.dp,
        "recompute" => time.recompute,
        _ => 0.0,
    }
}

/// Meaning and cost of a choice, as text.
fn meaning(key: &str, best: &EstimateReport) -> String {
    let (parallel, predicted) = (&best.parallel, &best.predicted);
    let spent = |seconds: f64, on: &str| {
        let part = share(seconds / predicted.step_time_s);
        if seconds > 0.0 { format!(" ({on} {}, {part} of the step)", time(seconds)) } else { String::new() }
    };
    let comm = &predicted.exposed_comm_s;
    let ParallelConfig { tp, cp, pp, ep, etp, zero, mbs, .. } = *parallel;
    match key {
        "tp" if tp == 1 => "matrices are not sharded".into(),
        "tp" => format!("each matrix is sharded over {tp} devices{}", spent(comm.tp, "exposed communication")),
        "sp" if parallel.sp => "between matmuls, activations are sharded over tp along the sequence".into(),
        "sp" => "between matmuls, activations are replicated over tp".into(),
        "cp" if cp == 1 => "sequences are not sharded".into(),
        "cp" => format!("each sequence is sharded over {cp} devices{}", spent(comm.cp, "exposed communication")),
        "cp_kind" => "how cp ranks exchange keys and values".into(),
        "pp" if pp == 1 => "every rank has all layers".into(),
        "pp" => {
            let bubble = spent(predicted.time_s.bubble + comm.pp, "waiting and pipeline communication");
            format!("the layers are partitioned over {pp} pipeline ranks{bubble}")
        }
        "vp" => match parallel.vp.unwrap_or(1) {
            1 => "each rank has one model chunk".into(),
            vp => format!("each rank has {vp} model chunks, so that the pipeline fills sooner"),
        },
        "schedule" => "the order of forward and backward passes".into(),
        "stages" => "where the model is partitioned into stages".into(),
        "ep" => format!("the experts are distributed over {ep} ranks{}", spent(comm.ep, "exposed communication")),
        "etp" => format!("each expert is sharded over {etp} devices"),
        "zero" => format!("{}{}", sharded(zero), spent(comm.dp, "exposed communication")),
        "shard" => "parameters and states are sharded within groups of data-parallel ranks".into(),
        "gather" if parallel.gather == Gather::Step => "parameters are gathered once a step, and stay gathered".into(),
        "gather" => "parameters are gathered at each use".into(),
        "mbs" => {
            format!("{} per micro-batch, {}", of(mbs, "sequence"), of(predicted.microbatches.into(), "micro-batch"))
        }
        "recompute" => format!("recomputed in the backward{}", spent(predicted.time_s.recompute, "which takes")),
        "offload" => match parallel.offload {
            Offload::All(Some(layers)) => {
                format!("host memory holds the activations of the first {} of each stage", of(layers.into(), "layer"))
            }
            _ => "activations are offloaded to host memory".into(),
        },
        "offload_optimizer" => "host memory holds the optimizer states between updates".into(),
        _ => "whether communication overlaps with compute".into(),
    }
}

/// States that a ZeRO stage shards, as text.
fn sharded(zero: u8) -> &'static str {
    match zero {
        0 => "optimizer states are replicated on every data-parallel rank",
        1 => "optimizer states are sharded over the data-parallel ranks",
        2 => "optimizer states and gradients are sharded over the data-parallel ranks",
        _ => "parameters, gradients and optimizer states are sharded over the data-parallel ranks",
    }
}

/// `1 sequence`, `3 micro-batches`.
fn of(count: u64, what: &str) -> String {
    let end = if what.ends_with("ch") { "es" } else { "s" };
    format!("{count} {what}{}", if count == 1 { "" } else { end })
}
