//! Costs and savings of each part of the configuration.

use super::brief::differences;
use super::compare::{ALIKE, misfit, pace};
use super::pool::Pool;
use crate::plan::ChoiceNote;
use compiler::parallel::item;
use estimator::{EstimateReport, Predicted};
use ir::config_key::ConfigKey;
use ir::options::{Gather, Offload, ParallelConfig};
use support::units::{gib, share, time};

/// Notes on each choice of the configuration, compared with less of it and with more of it if those exist.
pub(super) fn choices(best: &EstimateReport, pool: &Pool) -> Vec<ChoiceNote> {
    let mut notes = vec![rest(best, pool)];
    for key in CHOICES {
        let sides = [false, true].map(|more| pool.without(key, more));
        for (more, other) in [false, true].into_iter().zip(sides) {
            match other {
                Some(other) => notes.push(note(key, best, other, pool)),
                None if !more && has(key, &best.parallel) => notes.extend(alone(key, best, pool)),
                None => {}
            }
        }
    }
    notes
}

/// The meaning of a choice, and whether the request pins it.
fn stated(key: ConfigKey, best: &EstimateReport, pool: &Pool) -> String {
    let meaning = meaning(key, best);
    if pool.is_pinned(key) { format!("pinned: {meaning}") } else { meaning }
}

/// Choices in the order of their notes.
pub(super) const CHOICES: [ConfigKey; 19] = [
    ConfigKey::Tp,
    ConfigKey::Sp,
    ConfigKey::Cp,
    ConfigKey::CpKind,
    ConfigKey::Pp,
    ConfigKey::Vp,
    ConfigKey::Schedule,
    ConfigKey::Stages,
    ConfigKey::Ep,
    ConfigKey::Etp,
    ConfigKey::Zero,
    ConfigKey::Shard,
    ConfigKey::Gather,
    ConfigKey::Mbs,
    ConfigKey::Recompute,
    ConfigKey::Offload,
    ConfigKey::OffloadOptimizer,
    ConfigKey::TpOverlap,
    ConfigKey::DpOverlap,
];

/// Note on dp, which follows from the other degrees.
fn rest(best: &EstimateReport, pool: &Pool) -> ChoiceNote {
    ChoiceNote {
        choice: item(ConfigKey::Dp, &best.parallel),
        against: String::new(),
        saves_s: None,
        costs_s: costs(ConfigKey::Dp, &best.predicted),
        saves_gib: None,
        meaning: stated(ConfigKey::Dp, best, pool),
        comparison: String::new(),
    }
}

/// Returns whether the configuration makes use of the choice.
fn has(key: ConfigKey, parallel: &ParallelConfig) -> bool {
    match key {
        ConfigKey::Tp => parallel.tp > 1,
        ConfigKey::Cp => parallel.cp > 1,
        ConfigKey::Pp => parallel.pp > 1,
        ConfigKey::Ep => parallel.ep > 1,
        ConfigKey::Etp => parallel.etp > 1,
        ConfigKey::Dp | ConfigKey::Sp | ConfigKey::Zero | ConfigKey::Mbs | ConfigKey::Schedule => false,
        ConfigKey::RankOrder | ConfigKey::Vp | ConfigKey::Group | ConfigKey::Slices | ConfigKey::CpKind => false,
        ConfigKey::Shard | ConfigKey::Gather | ConfigKey::Recompute | ConfigKey::Offload => false,
        ConfigKey::OffloadOptimizer | ConfigKey::TpOverlap | ConfigKey::DpOverlap | ConfigKey::Stages => false,
    }
}

fn note(key: ConfigKey, best: &EstimateReport, other: &EstimateReport, pool: &Pool) -> ChoiceNote {
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
        choice: item(key, &best.parallel),
        meaning: stated(key, best, pool),
        comparison: format!("{verdict}{memory}"),
        against,
        saves_s: Some(saves_s),
        costs_s: costs(key, here),
        saves_gib: Some(saves_gib),
    }
}

/// Note on a part without which no configuration is valid.
fn alone(key: ConfigKey, best: &EstimateReport, pool: &Pool) -> Option<ChoiceNote> {
    let (parallel, error) = pool.refused(key, false)?;
    let against = differences(&best.parallel, parallel);
    Some(ChoiceNote {
        choice: item(key, &best.parallel),
        meaning: stated(key, best, pool),
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
fn costs(key: ConfigKey, predicted: &Predicted) -> f64 {
    let (comm, time) = (&predicted.exposed_comm_s, &predicted.time_s);
    match key {
        ConfigKey::Tp | ConfigKey::Sp | ConfigKey::TpOverlap => comm.tp,
        ConfigKey::Cp | ConfigKey::CpKind => comm.cp,
        ConfigKey::Ep | ConfigKey::Etp => comm.ep,
        ConfigKey::Pp | ConfigKey::Vp | ConfigKey::Schedule | ConfigKey::Stages => comm.pp,
        ConfigKey::Dp | ConfigKey::Zero | ConfigKey::Shard | ConfigKey::Gather | ConfigKey::DpOverlap => comm.dp,
        ConfigKey::Group | ConfigKey::Slices => comm.pp,
        ConfigKey::Recompute => time.recompute,
        ConfigKey::Mbs | ConfigKey::RankOrder | ConfigKey::Offload | ConfigKey::OffloadOptimizer => 0.0,
    }
}

/// Meaning and cost of a choice, as text.
fn meaning(key: ConfigKey, best: &EstimateReport) -> String {
    let (parallel, predicted) = (&best.parallel, &best.predicted);
    let spent = |seconds: f64, on: &str| {
        let part = share(seconds / predicted.step_time_s);
        if seconds > 0.0 { format!(" ({on} {}, {part} of the step)", time(seconds)) } else { String::new() }
    };
    let comm = &predicted.exposed_comm_s;
    let ParallelConfig { dp, tp, cp, pp, ep, etp, zero, mbs, .. } = *parallel;
    match key {
        ConfigKey::Dp if dp == 1 => "no data parallelism: the other degrees use all devices".into(),
        ConfigKey::Dp => {
            let each = of(best.inputs.global_batch / dp.max(1), "sequence");
            format!("{dp} data-parallel replicas of the model, each with {each} per step")
        }
        ConfigKey::Tp if tp == 1 => "matrices are not sharded".into(),
        ConfigKey::Tp => format!("each matrix is sharded over {tp} devices{}", spent(comm.tp, "exposed communication")),
        ConfigKey::Sp if parallel.sp => "between matmuls, activations are sharded over tp along the sequence".into(),
        ConfigKey::Sp => "between matmuls, activations are replicated over tp".into(),
        ConfigKey::Cp if cp == 1 => "sequences are not sharded".into(),
        ConfigKey::Cp => {
            format!("each sequence is sharded over {cp} devices{}", spent(comm.cp, "exposed communication"))
        }
        ConfigKey::CpKind => "how cp ranks exchange keys and values".into(),
        ConfigKey::Pp if pp == 1 => "every rank has all layers".into(),
        ConfigKey::Pp => {
            let bubble = spent(predicted.time_s.bubble + comm.pp, "waiting and pipeline communication");
            format!("the layers are partitioned over {pp} pipeline ranks{bubble}")
        }
        ConfigKey::Vp => match parallel.vp.unwrap_or(1) {
            1 => "each rank has one model chunk".into(),
            vp => format!("each rank has {vp} model chunks, so that the pipeline fills sooner"),
        },
        ConfigKey::Schedule => "the order of forward and backward passes".into(),
        ConfigKey::Stages => "where the model is partitioned into stages".into(),
        ConfigKey::Ep => {
            format!("the experts are distributed over {ep} ranks{}", spent(comm.ep, "exposed communication"))
        }
        ConfigKey::Etp => format!("each expert is sharded over {etp} devices"),
        ConfigKey::Zero => format!("{}{}", sharded(zero), spent(comm.dp, "exposed communication")),
        ConfigKey::Shard => "parameters and states are sharded within groups of data-parallel ranks".into(),
        ConfigKey::Gather if parallel.gather == Gather::Step => {
            "parameters are gathered once a step, and stay gathered".into()
        }
        ConfigKey::Gather => "parameters are gathered at each use".into(),
        ConfigKey::Mbs => {
            format!("{} per micro-batch, {}", of(mbs, "sequence"), of(predicted.microbatches.into(), "micro-batch"))
        }
        ConfigKey::Recompute => {
            format!("recomputed in the backward{}", spent(predicted.time_s.recompute, "which takes"))
        }
        ConfigKey::Offload => match parallel.offload {
            Offload::All(Some(layers)) => {
                format!("host memory holds the activations of the first {} of each stage", of(layers.into(), "layer"))
            }
            _ => "activations are offloaded to host memory".into(),
        },
        ConfigKey::OffloadOptimizer => "host memory holds the optimizer states between updates".into(),
        ConfigKey::TpOverlap | ConfigKey::DpOverlap => "whether communication overlaps with compute".into(),
        ConfigKey::RankOrder => "which ranks are next to each other".into(),
        ConfigKey::Group => "micro-batches that go through one chunk of a rank before its next chunk".into(),
        ConfigKey::Slices => "slices of each sequence, which pass through the pipeline one by one".into(),
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
