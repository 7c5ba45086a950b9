//! Random numbers of tests and examples.

/// Random numbers (splitmix64).
pub(crate) struct Draw {
    state: u64,
}

impl Draw {
    /// The sequence of a seed.
    pub(crate) fn new(seed: u64) -> Draw {
        Draw { state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A whole number below `end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True in a share of all draws.
    pub(crate) fn chance(&mut self, share: f64) -> bool {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64 <= share && share > 0.0
    }
}
