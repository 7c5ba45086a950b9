//! The border of a step in host memory: what is staged for feeds, and the scalars that were reported.

/// Data of feeds and reported scalars, by their numbers.
#[derive(Default)]
pub(super) struct Border {
    staged: Vec<Vec<u8>>,
    reported: Vec<f32>,
}

impl Border {
    /// Takes the data of a feed.
    pub(super) fn stage(&mut self, feed: usize, data: &[u8]) {
        if self.staged.len() <= feed {
            self.staged.resize(feed + 1, Vec::new());
        }
        self.staged[feed].clear();
        self.staged[feed].extend_from_slice(data);
    }

    /// The data of a feed.
    ///
    /// # Panics
    /// If nothing was staged for it.
    pub(super) fn staged(&self, feed: usize) -> &[u8] {
        &self.staged[feed]
    }

    /// Keeps a scalar.
    pub(super) fn report(&mut self, out: usize, scalar: f32) {
        if self.reported.len() <= out {
            self.reported.resize(out + 1, 0.0);
        }
        self.reported[out] = scalar;
    }

    /// The scalars that were reported.
    ///
    /// # Panics
    /// If there are fewer.
    pub(super) fn reports(&self, outs: &mut [f32]) {
        outs.copy_from_slice(&self.reported[..outs.len()]);
    }
}
