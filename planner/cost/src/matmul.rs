//! Seconds of matrix products, by tiles, waves, depth and bytes.

use crate::machine::{Format, Machine};

/// Into how many parts k may be cut, each on tiles of its own.
const SPLITS: [f64; 4] = [1.0, 2.0, 4.0, 8.0];

impl Machine<'_> {
    /// Seconds of `batch` products of m x k and k x n matrices; `accumulate`: the result is added to one of f32.
    ///
    /// The longer of computing and of moving bytes. Compute comes in waves of as many tiles as the device has parts, each as
    /// long as `k + depth` steps; the library takes the best of its tiles and of cutting k. The rate is that which long runs
    /// sustain, times the stack's `matmul`. Formats below 16 bits pay for quantising the m x k operand, once forward and once
    /// for the input gradient; weights are quantised once a step, and a weight gradient (`accumulate`) finds both done.
    pub fn matmul(&self, batch: f64, m: f64, n: f64, k: f64, format: Format, accumulate: bool) -> f64 {
        if batch * m * n * k <= 0.0 {
            return 0.0;
        }
        let device = &self.cluster.device;
        let format = if device.peak(format).is_some() { format } else { Format::Half };
        let bandwidth = device.memory_bandwidth * device.memory_share;
        let result = if accumulate { 8.0 } else { 2.0f64.max(format.bytes().min(4.0)) };
        let bytes = batch * ((m * k + k * n) * format.bytes() + m * n * result);
        let quantised = matches!(format, Format::F8 | Format::F4) && !accumulate;
        let quantise = if quantised { self.copy(batch * m * k * self.stack.facts.quantise) } else { 0.0 };
        let compute = SPLITS.iter().map(|&split| {
            let joined = if split > 1.0 { batch * m * n * 4.0 * split * 2.0 / bandwidth } else { 0.0 };
            self.waves(batch * split, m, n, k / split, format) + joined
        });
        let compute = compute.fold(f64::INFINITY, f64::min);
        device.start + compute.max(bytes / bandwidth) + quantise
    }

    /// Seconds of products of equal shape with different weights, as experts have them, in one kernel: those of a batch, over
    /// the quality of the stack's grouped kernel.
    pub fn grouped_matmul(&self, groups: f64, m: f64, n: f64, k: f64, format: Format, accumulate: bool) -> f64 {
        self.matmul(groups, m, n, k, format, accumulate) / self.stack.facts.grouped
    }

    /// Seconds of the waves of tiles of products of depth k, of the tile that takes least.
    fn waves(&self, batch: f64, m: f64, n: f64, k: f64, format: Format) -> f64 {
        let device = &self.cluster.device;
        let rate = device.sustained(format) * self.stack.fitted.matmul.value / device.sms as f64;
        let of = |rows: f64, columns: f64, share: f64| {
            let tiles = batch * (m / rows).ceil() * (n / columns).ceil();
            let waves = (tiles / device.sms as f64).ceil();
            waves * 2.0 * rows * columns * (k + device.matmul.depth) / (rate * share)
        };
        let tiles = device.matmul.tiles.iter().flat_map(|&[a, b, share]| [of(a, b, share), of(b, a, share)]);
        tiles.fold(f64::INFINITY, f64::min)
    }
}
