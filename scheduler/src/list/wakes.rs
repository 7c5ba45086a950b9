//! Priority queue of ranks by wake-up time.

/// A time for each rank, in a binary tree whose nodes hold the earlier of their two children.
pub(super) struct Wakes {
    /// Node n has the children 2n and 2n + 1; the second half are the ranks. The upper bits hold a nonnegative time and the
    /// lower bits a rank, so that nodes sort by time, then rank.
    nodes: Vec<u128>,
}

impl Wakes {
    /// Sets all ranks to time 0.
    pub(super) fn new(ranks: usize) -> Wakes {
        let leaves = ranks.next_power_of_two();
        let mut wakes = Wakes { nodes: vec![u128::MAX; 2 * leaves] };
        (0..ranks).for_each(|rank| wakes.set(rank, 0.0));
        wakes
    }

    /// Returns the earliest finite time and the first rank with this time.
    pub(super) fn first(&self) -> Option<(f64, usize)> {
        let time = f64::from_bits((self.nodes[1] >> 64) as u64);
        time.is_finite().then_some((time, self.nodes[1] as u64 as usize))
    }

    /// Sets the time of a rank.
    pub(super) fn set(&mut self, rank: usize, time: f64) {
        let mut node = self.nodes.len() / 2 + rank;
        let mut earliest = (u128::from(time.to_bits()) << 64) | rank as u128;
        self.nodes[node] = earliest;
        while node > 1 {
            earliest = earliest.min(self.nodes[node ^ 1]);
            node /= 2;
            self.nodes[node] = earliest;
        }
    }

    /// Lowers the time of a rank to `time`, if its time is later.
    pub(super) fn hasten(&mut self, rank: usize, time: f64) {
        if (self.nodes[self.nodes.len() / 2 + rank] >> 64) as u64 > time.to_bits() {
            self.set(rank, time);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rank_of_the_earliest_time_is_found() {
        for ranks in 1..=9 {
            let (mut wakes, mut times) = (Wakes::new(ranks), vec![0.0; ranks]);
            for step in 0..200_usize {
                let (rank, time) = (step * step % 31 % ranks, (step * 7 % 13) as f64 / 2.0);
                let time = if step % 11 == 0 { f64::INFINITY } else { time };
                if step % 3 == 0 {
                    wakes.hasten(rank, time);
                    times[rank] = time.min(times[rank]);
                } else {
                    wakes.set(rank, time);
                    times[rank] = time;
                }
                let earliest = times.iter().copied().fold(f64::INFINITY, f64::min);
                let first = times.iter().position(|time| *time == earliest && time.is_finite());
                assert_eq!(wakes.first(), first.map(|rank| (earliest, rank)), "{ranks} ranks, step {step}");
            }
        }
    }
}
