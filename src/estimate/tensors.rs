//! The single values that are made again so that a layout fits: `recompute=auto`.

use super::blocks::Outline;
use super::estimator::{Job, Staged};
use super::memory::GIB;
use super::report::StageMemory;
use crate::error::Error;
use cost::{Again, Frontier, frontier};
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

/// The best choices of values for so many runs of each block.
pub(super) fn choices(job: &Job<'_>, model: &Model, runs: &[f64]) -> Frontier {
    frontier(model, runs, &job.layout, &job.machine)
}

/// The best choices of values for a run of each block alone; none for those that are no layers.
pub(super) fn choices_of_each(job: &Job<'_>, model: &Model) -> Vec<Vec<Again>> {
    let of = |block: usize| {
        let alone: Vec<f64> = (0..model.blocks.len()).map(|at| f64::from(u8::from(at == block))).collect();
        let mut best = choices(job, model, &alone).best;
        best.retain(|again| !again.choices.is_empty());
        best
    };
    (0..model.blocks.len()).map(of).collect()
}

/// The names of the values of a choice for each kind of layers, of which each takes least by what `seconds` says of a block's
/// choice; `each` are the choices of the blocks alone.
pub(super) fn fastest(
    job: &Job<'_>,
    model: &Model,
    each: &[Vec<Again>],
    seconds: impl Fn(usize, &Again) -> f64,
) -> Vec<String> {
    let runs: Vec<f64> = each.iter().map(|choices| f64::from(u8::from(!choices.is_empty()))).collect();
    let of = |(block, choices): (usize, &Vec<Again>)| {
        let least = choices.iter().min_by(|a, b| seconds(block, a).total_cmp(&seconds(block, b)))?;
        Some(least.choices[0])
    };
    let chosen: Vec<usize> = each.iter().enumerate().filter_map(of).collect();
    choices(job, model, &runs).names(&chosen)
}

/// A layout with a choice of values, and the bytes of its fullest device.
pub(super) struct Tried<T> {
    pub(super) of: T,
    pub(super) bytes: f64,
}

/// What was tried, and the choice of each kind of layers.
type Chosen<T> = (Tried<T>, Vec<usize>);

/// The fastest choice of values with which devices have `room`, where so many bytes are held with none; nothing if none fits.
///
/// # Errors
/// A choice cannot be priced.
pub(super) fn fitting<T>(
    frontier: &Frontier,
    none: f64,
    room: f64,
    mut under: impl FnMut(Recompute) -> Result<Tried<T>, Error>,
) -> Result<Option<T>, Error> {
    let mut under = |choices: &[usize]| under(Recompute::Selective(frontier.names(choices)));
    let Some((mut best, choices)) = together(&frontier.best, none, room, &mut under)? else { return Ok(None) };
    if choices.len() > 1 {
        each(choices, &mut best, room, &mut under)?;
    }
    Ok(Some(best.of))
}

/// The first of the best choices for all kinds of layers that fits. What devices hold grows with what layers keep, nearly in
/// proportion: that tells which one to try next.
fn together<T>(
    best: &[Again],
    none: f64,
    room: f64,
    under: &mut impl FnMut(&[usize]) -> Result<Tried<T>, Error>,
) -> Result<Option<Chosen<T>>, Error> {
    let Some(least) = best.len().checked_sub(1).filter(|&least| least > 0) else { return Ok(None) };
    let mut found = under(&best[least].choices)?;
    if found.bytes > room {
        return Ok(None);
    }
    let (mut small, mut large, mut held) = (least, 0, none);
    while small - large > 1 {
        let kept = |at: usize| best[at].bytes;
        let more = (room - found.bytes) / (held - found.bytes) * (kept(large) - kept(small));
        let next = best.partition_point(|again| again.bytes > kept(small) + more).clamp(large + 1, small - 1);
        let tried = under(&best[next].choices)?;
        if tried.bytes <= room { (found, small) = (tried, next) } else { (held, large) = (tried.bytes, next) }
    }
    Ok(Some((found, best[small].choices.clone())))
}

/// Kinds of layers that lie on other ranks may have room left: of each the fastest choice with which all still fits.
fn each<T>(
    mut choices: Vec<usize>,
    best: &mut Tried<T>,
    room: f64,
    under: &mut impl FnMut(&[usize]) -> Result<Tried<T>, Error>,
) -> Result<(), Error> {
    for kind in 0..choices.len() {
        let (mut low, mut high) = (0, choices[kind]);
        while low < high {
            choices[kind] = (low + high) / 2;
            let tried = under(&choices)?;
            if tried.bytes <= room { (*best, high) = (tried, choices[kind]) } else { low = choices[kind] + 1 }
        }
        choices[kind] = high;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn choices(bytes: &[f64]) -> Vec<Again> {
        let of = |(at, &bytes): (usize, &f64)| Again { choices: vec![at], bytes, seconds: at as f64 };
        bytes.iter().enumerate().map(of).collect()
    }

    /// Held: 40 and three times what is kept. The first choice that fits is found, in few steps.
    #[test]
    fn the_fastest_that_fits_is_found() {
        let kept: Vec<f64> = (0..100).map(|at| 1000.0 - f64::from(at * at) / 10.0).collect();
        let held = |at: usize| 40.0 + 3.0 * kept[at];
        for room in [held(99), held(98), held(50) + 1.0, held(1), held(0) - 1.0] {
            let mut tries = 0;
            let found = together(&choices(&kept), held(0), room, &mut |choices: &[usize]| {
                tries += 1;
                Ok(Tried { of: (), bytes: held(choices[0]) })
            });
            let wanted = (1..100).find(|&at| held(at) <= room).map(|at| vec![at]);
            assert_eq!(found.unwrap().map(|(_, choices)| choices), wanted);
            assert!(tries <= 4, "{tries}");
        }
    }

    #[test]
    fn nothing_may_fit() {
        let mut tried = |_: &[usize]| Ok(Tried { of: (), bytes: 9.0 });
        assert!(together(&choices(&[3.0, 2.0]), 10.0, 8.0, &mut tried).unwrap().is_none());
        assert!(together(&choices(&[3.0]), 10.0, 9.5, &mut tried).unwrap().is_none());
    }

    /// Two kinds on two ranks, each with what it keeps: both come as far as their own rank has room.
    #[test]
    fn each_kind_takes_the_room_of_its_rank() {
        let held = |choices: &[usize]| f64::max(100.0 - choices[0] as f64, 60.0 - 2.0 * choices[1] as f64);
        let mut best = Tried { of: vec![20, 20], bytes: held(&[20, 20]) };
        each(vec![20, 20], &mut best, 85.0, &mut |choices: &[usize]| {
            Ok(Tried { of: choices.to_vec(), bytes: held(choices) })
        })
        .unwrap();
        assert_eq!(best.of, [15, 0]);
    }
}
