//! Which rank is to be looked at next.

/// A time for each rank, and the least of them: a tree whose nodes name the earlier of two.
pub(super) struct Wakes {
    times: Vec<f64>,
    /// Node n has the children 2n and 2n + 1; the leaves, not stored, follow as the ranks.
    earliest: Vec<u32>,
}

impl Wakes {
    /// All at time 0.
    pub(super) fn new(ranks: usize) -> Wakes {
        let leaves = ranks.next_power_of_two();
        let mut times = vec![0.0; ranks];
        times.resize(leaves, f64::INFINITY);
        let mut wakes = Wakes { times, earliest: vec![0; leaves.max(2)] };
        for node in (1..leaves).rev() {
            wakes.earliest[node] = wakes.winner(node);
        }
        wakes
    }

    fn child(&self, node: usize) -> u32 {
        if node < self.times.len() { self.earliest[node] } else { (node - self.times.len()) as u32 }
    }

    fn winner(&self, node: usize) -> u32 {
        let (a, b) = (self.child(2 * node), self.child(2 * node + 1));
        if self.times[b as usize] < self.times[a as usize] { b } else { a }
    }

    /// The earliest time that is finite, and the first rank that has it.
    pub(super) fn first(&self) -> Option<(f64, usize)> {
        let rank = if self.times.len() > 1 { self.earliest[1] as usize } else { 0 };
        Some((self.times[rank], rank)).filter(|(time, _)| time.is_finite())
    }

    /// The time of a rank.
    pub(super) fn of(&self, rank: usize) -> f64 {
        self.times[rank]
    }

    /// Sets it.
    pub(super) fn set(&mut self, rank: usize, time: f64) {
        self.times[rank] = time;
        let mut node = (self.times.len() + rank) / 2;
        while node > 0 {
            self.earliest[node] = self.winner(node);
            node /= 2;
        }
    }
}
