//! Slow ranks: each is compared with the others of its pipeline stage, which have the same work.

use crate::metrics::SlowestRank;
use comm::wire::Process;
use ir::entity::EntityRef;
use ir::mesh::Mesh;
use std::collections::BTreeMap;

/// The ratio from which on a rank is a straggler, and the number of steps in a row for which it must be.
const LARGE: f64 = 1.5;
const LASTING: u32 = 8;

/// The slow ranks of a run.
pub(super) struct Stragglers {
    /// The pipeline stage of each rank.
    stages: Vec<u64>,
    /// The process of each rank and its host; empty if all ranks are in one process.
    places: Vec<(usize, String)>,
    /// A rank that has been large for some steps in a row.
    current: Option<(usize, u32)>,
}

impl Stragglers {
    /// For the ranks of a mesh in processes, if there are several.
    pub(super) fn new(mesh: &Mesh, processes: &[Process]) -> Stragglers {
        let ranks = 0..mesh.devices();
        let stages = ranks.map(|rank| mesh.pipeline().map_or(0, |pp| mesh.coordinates(rank)[pp.index()]));
        let mut places = vec![(0, String::new()); processes.iter().map(|process| process.ranks.len()).sum()];
        for (number, process) in processes.iter().enumerate() {
            process.ranks.iter().for_each(|&rank| places[rank] = (number, process.host.clone()));
        }
        Stragglers { stages: stages.collect(), places, current: None }
    }

    /// The slowest rank of a step, from the seconds in which each did not wait for others; none of one rank.
    pub(super) fn slowest(&self, seconds: &[(usize, f64)]) -> Option<SlowestRank> {
        let mut stages: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
        for &(rank, own) in seconds {
            stages.entry(self.stages[rank]).or_default().push(own);
        }
        stages.values_mut().for_each(|stage| stage.sort_by(f64::total_cmp));
        let ratios = seconds.iter().filter_map(|&(rank, own)| {
            let median = median_of_others(&stages[&self.stages[rank]], own)?;
            Some((rank, own / median.max(1e-9)))
        });
        let (rank, ratio) = ratios.max_by(|a, b| a.1.total_cmp(&b.1))?;
        let place = self.places.get(rank);
        let (process, host) = (place.map(|(process, _)| *process), place.map(|(_, host)| host.clone()));
        Some(SlowestRank { rank, process, host, ratio })
    }

    /// Notes the slowest rank of a step. Gives a note for the user when it has been a straggler for some steps.
    pub(super) fn note(&mut self, slowest: &SlowestRank) -> Option<String> {
        if slowest.ratio < LARGE {
            self.current = None;
            return None;
        }
        let before = self.current.filter(|(rank, _)| *rank == slowest.rank).map_or(0, |(_, steps)| steps);
        self.current = Some((slowest.rank, before + 1));
        let SlowestRank { rank, ratio, .. } = slowest;
        let place = self.places.get(*rank);
        let place = place.map_or_else(String::new, |(process, host)| format!(" (process {process} on {host})"));
        (before + 1 == LASTING).then(|| {
            format!("rank {rank}{place} is a straggler: it takes {ratio:.1} times as long as others of its stage, for {LASTING} steps now")
        })
    }
}

/// The median of the ascending seconds of a stage but a rank's own; none if that is alone. Of two ranks the other one is it.
fn median_of_others(stage: &[f64], own: f64) -> Option<f64> {
    let others = stage.len().checked_sub(1).filter(|others| *others > 0)?;
    let own_place = stage.partition_point(|other| *other < own);
    let middle = others / 2;
    Some(stage[if middle < own_place { middle } else { middle + 1 }])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_compared_with_others_of_its_stage() {
        let mesh = Mesh::new("m", &[("pp", 2), ("dp", 3)]);
        let process = |number: usize| Process {
            host: format!("host-{number}"),
            ranks: vec![3 * number, 3 * number + 1, 3 * number + 2],
        };
        let mut stragglers = Stragglers::new(&mesh, &[0, 1].map(process));
        // The second stage has more work, and rank 4 is slow.
        let seconds = [1.0, 1.1, 1.2, 4.0, 8.0, 4.2].into_iter().enumerate().collect::<Vec<_>>();
        let slowest = stragglers.slowest(&seconds).unwrap();
        assert_eq!((slowest.rank, slowest.process, slowest.host.as_deref()), (4, Some(1), Some("host-1")));
        assert!((slowest.ratio - 8.0 / 4.2).abs() < 1e-9, "{slowest:?}");
        let notes: Vec<String> = (0..2 * LASTING).filter_map(|_| stragglers.note(&slowest)).collect();
        assert!(notes.len() == 1 && notes[0].starts_with("rank 4 (process 1 on host-1) is a straggler: it takes 1.9"));
        assert!(stragglers.note(&SlowestRank { ratio: 1.1, ..slowest }).is_none() && stragglers.current.is_none());
        let alone = Stragglers::new(&Mesh::new("m", &[("pp", 2)]), &[]);
        assert_eq!(alone.slowest(&[(0, 1.0), (1, 2.0)]), None);
    }

    #[test]
    fn of_two_ranks_each_is_the_measure_of_the_other() {
        let stragglers = Stragglers::new(&Mesh::new("m", &[("dp", 2)]), &[]);
        for seconds in [[1.0, 3.0], [3.0, 1.0]] {
            let seconds: Vec<_> = seconds.into_iter().enumerate().collect();
            let slowest = stragglers.slowest(&seconds).unwrap();
            assert_eq!((seconds[slowest.rank].1, slowest.ratio, slowest.host), (3.0, 3.0, None));
        }
    }
}
