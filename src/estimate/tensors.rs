//! The single values that are made again so that a layout fits: `recompute=auto`.

use super::blocks::Outline;
use super::estimator::{Job, Staged};
use super::memory::GIB;
use super::report::StageMemory;
use crate::error::Error;
use cost::{Again, frontier};
use ir::goal::Recompute;
use ir::graph::Model;

/// How many runs of each block, layers alone, lie on pipeline ranks whose devices have no `room` for what they hold. One kind
/// alone counts once, since its choices do not depend on how many there are.
pub(super) fn crowded(staged: &Staged, memory: &[StageMemory], outline: &Outline, room: f64) -> Vec<f64> {
    let mut runs = vec![0.0; outline.tensors.len()];
    let ranks = staged.flow.ranks.iter().zip(memory).filter(|(_, memory)| memory.device * GIB > room);
    for (stage, _) in ranks.flat_map(|(rank, _)| &rank.stages) {
        let layers = staged.loads[*stage].runs.clone().filter(|run| outline.layers.contains(run));
        layers.for_each(|run| runs[outline.runs[run]] += 1.0);
    }
    if runs.iter().filter(|runs| **runs > 0.0).count() == 1 {
        runs.iter_mut().for_each(|runs| *runs = f64::min(*runs, 1.0));
    }
    runs
}

/// The best choices of values for so many runs of each block, from none on to the fewest bytes.
pub(super) fn choices(job: &Job<'_>, model: &Model, runs: &[f64]) -> Vec<Again> {
    let mut choices = frontier(model, runs, &job.layout, &job.machine);
    if let Some(first) = choices.first().filter(|first| !first.names.is_empty()) {
        choices.insert(0, Again { names: Vec::new(), ..first.clone() });
    }
    choices
}

/// A layout with a choice of values, and the bytes of its fullest device.
pub(super) struct Tried<T> {
    pub(super) of: T,
    pub(super) bytes: f64,
}

/// The fastest of the choices with which devices have `room`, where so many bytes are held with none; nothing if none fits.
/// What devices hold grows with what layers keep, nearly in proportion: that tells which choice to try next.
///
/// # Errors
/// A choice cannot be priced.
pub(super) fn fitting<T>(
    choices: &[Again],
    none: f64,
    room: f64,
    mut under: impl FnMut(Recompute) -> Result<Tried<T>, Error>,
) -> Result<Option<T>, Error> {
    let mut under = |at: usize| under(Recompute::Selective(choices[at].names.clone()));
    let Some(least) = choices.len().checked_sub(1).filter(|&least| least > 0) else { return Ok(None) };
    let mut best = under(least)?;
    if best.bytes > room {
        return Ok(None);
    }
    let (mut small, mut large, mut held) = (least, 0, none);
    while small - large > 1 {
        let kept = |at: usize| choices[at].bytes;
        let more = (room - best.bytes) / (held - best.bytes) * (kept(large) - kept(small));
        let next = choices.partition_point(|choice| choice.bytes > kept(small) + more).clamp(large + 1, small - 1);
        let tried = under(next)?;
        if tried.bytes <= room { (best, small) = (tried, next) } else { (held, large) = (tried.bytes, next) }
    }
    Ok(Some(best.of))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choices(bytes: &[f64]) -> Vec<Again> {
        let of = |(at, &bytes): (usize, &f64)| Again { names: vec![at.to_string()], bytes, seconds: at as f64 };
        bytes.iter().enumerate().map(of).collect()
    }

    /// Held: 40 and three times what is kept. The first choice that fits is found, in few steps.
    #[test]
    fn the_fastest_that_fits_is_found() {
        let kept: Vec<f64> = (0..100).map(|at| 1000.0 - f64::from(at * at) / 10.0).collect();
        let held = |at: usize| 40.0 + 3.0 * kept[at];
        for room in [held(99), held(98), held(50) + 1.0, held(1), held(0) - 1.0] {
            let mut tries = 0;
            let found = fitting(&choices(&kept), held(0), room, |again| {
                tries += 1;
                let at: usize = again.to_string().trim_start_matches("selective:").parse().unwrap();
                Ok(Tried { of: at, bytes: held(at) })
            });
            let wanted = (1..100).find(|&at| held(at) <= room);
            assert_eq!(found.unwrap(), wanted);
            assert!(tries <= 4, "{tries}");
        }
    }

    #[test]
    fn nothing_may_fit() {
        let tried = |_| Ok(Tried { of: (), bytes: 9.0 });
        assert_eq!(fitting(&choices(&[3.0, 2.0]), 10.0, 8.0, tried).unwrap(), None);
        assert_eq!(fitting(&choices(&[3.0]), 10.0, 9.5, tried).unwrap(), None);
    }
}
