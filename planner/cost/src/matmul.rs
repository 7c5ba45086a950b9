//! Time of matrix products, from tiles, waves, depth and bytes.

use crate::cluster::Tile;
use crate::platform::{Format, Platform};

/// Split-k factors; each part of k has tiles of its own.
const SPLITS: [f64; 4] = [1.0, 2.0, 4.0, 8.0];

/// Bytes of an element that is read twice more in half precision: for its scale along the other dimension, and for its
/// cast.
const TRANSPOSED: f64 = 4.0;

impl Platform<'_> {
    /// Seconds of `batch` products of m x k and k x n matrices. With `accumulate` the result is added to an f32 result.
    ///
    /// The time is the maximum of compute time and memory time. Compute runs in waves of one tile per multiprocessor,
    /// each of `k + depth` steps; the library uses the best of its tiles and split-k factors. The rate is the sustained
    /// rate times the stack's `matmul`. Formats below 16 bits also quantise the m x k operand, once forward and once
    /// for the input gradient. Weights are quantised once a step, and a weight gradient (`accumulate`) reuses both.
    pub fn matmul(&self, batch: f64, m: f64, n: f64, k: f64, format: Format, accumulate: bool) -> f64 {
        if batch * m * n * k <= 0.0 {
            return 0.0;
        }
        let format = self.computed(format);
        let quantised = matches!(format, Format::F8 | Format::F4) && !accumulate;
        let moved = self.stack.traits.kernels.quantise + if self.recipe.blocks { TRANSPOSED } else { 0.0 };
        let quantise = if quantised { self.copy(batch * m * k * moved) } else { 0.0 };
        self.read_matmul(batch, m, n, k, format, accumulate) + quantise
    }

    /// Seconds of such products of operands that are there in this format.
    pub(crate) fn read_matmul(&self, batch: f64, m: f64, n: f64, k: f64, format: Format, accumulate: bool) -> f64 {
        if batch * m * n * k <= 0.0 {
            return 0.0;
        }
        let device = &self.cluster.device;
        let format = self.computed(format);
        let bandwidth = device.memory_bandwidth * device.memory_share;
        let result = if accumulate { 8.0 } else { 2.0f64.max(format.bytes().min(4.0)) };
        let bytes = batch * ((m * k + k * n) * format.bytes() + m * n * result);
        let compute = SPLITS.iter().map(|&split| {
            let joined = if split > 1.0 { batch * m * n * 4.0 * split * 2.0 / bandwidth } else { 0.0 };
            self.waves(batch * split, m, n, k / split, format) + joined
        });
        let compute = compute.fold(f64::INFINITY, f64::min);
        device.start + compute.max(bytes / bandwidth)
    }

    /// Seconds of a grouped product of equal shapes with different weights, as for experts: the time of a batch over
    /// the efficiency of the stack's grouped kernel.
    pub fn grouped_matmul(&self, groups: f64, m: f64, n: f64, k: f64, format: Format, accumulate: bool) -> f64 {
        self.matmul(groups, m, n, k, format, accumulate) / self.grouped_share(format)
    }

    /// Fraction of the rate of equal products that the stack's grouped kernel reaches.
    pub(crate) fn grouped_share(&self, format: Format) -> f64 {
        let traits = &self.stack.traits;
        let is_transposed = format == Format::F8 && self.cluster.device.matmul.transposes_f8;
        traits.kernels.grouped * if is_transposed { traits.kernels.grouped_transposed } else { 1.0 }
    }

    /// The format in which the device computes: half precision in place of one that it lacks.
    fn computed(&self, format: Format) -> Format {
        if self.cluster.device.peak(format).is_some() { format } else { Format::Half }
    }

    /// Seconds of the waves of products of depth k, for the fastest tile.
    fn waves(&self, batch: f64, m: f64, n: f64, k: f64, format: Format) -> f64 {
        let device = &self.cluster.device;
        let rate = device.sustained(format) * self.stack.fitted.matmul.value / device.sms as f64;
        let mut least = f64::INFINITY;
        for Tile { rows, columns, share } in device.matmul.tiles.iter().flat_map(|&tile| [tile, tile.transposed()]) {
            let tiles = batch * (m / rows).ceil() * (n / columns).ceil();
            let waves = (tiles / device.sms as f64).ceil();
            least = least.min(waves * 2.0 * rows * columns * (k + device.depth(format)) / (rate * share));
        }
        least
    }
}

#[cfg(test)]
mod tests {
    use crate::cluster::Cluster;
    use crate::platform::{Format, Platform, Recipe};
    use crate::stack::Stack;

    fn tflops(cluster: &str, m: f64, n: f64, k: f64, format: Format) -> f64 {
        let mut cluster = Cluster::find(cluster).unwrap();
        // The benchmarks below are short: the clock has not sunk yet.
        cluster.device.matmul.power = 1.0;
        let mut stack = Stack::find("meshwright").unwrap();
        stack.fitted.matmul.value = 1.0;
        stack.traits.kernels.quantise = 0.0;
        let platform = Platform { cluster: &cluster, stack: &stack, recipe: &Recipe::bf16() };
        2.0 * m * n * k / platform.matmul(1.0, m, n, k, format, false) / 1e12
    }

    #[test]
    fn products_on_h100_take_what_was_measured() {
        // Hugging Face, Smol training playbook (2025): TFLOP/s on bf16 and on fp8 (scaled_mm, e4m3).
        let rows = [
            (16384.0, 8192.0, 1280.0, 714.5, 1209.7),
            (16384.0, 1024.0, 8192.0, 757.7, 1329.7),
            (16384.0, 8192.0, 7168.0, 752.9, 1456.6),
            (16384.0, 3584.0, 8192.0, 733.0, 1370.3),
            (8192.0, 8192.0, 8192.0, 729.4, 1397.5),
        ];
        for (m, n, k, half, f8) in rows {
            for (format, measured, within) in [(Format::Half, half, 0.06), (Format::F8, f8, 0.07)] {
                let predicted = tflops("h100", m, n, k, format);
                assert!((predicted / measured - 1.0).abs() < within, "{m} {n} {k} {format:?} {predicted} {measured}");
            }
        }
    }

    /// In 8 bits experts gain less where operands are copied transposed first, on Hopper and not on Blackwell.
    #[test]
    fn experts_gain_less_where_operands_are_transposed() {
        let stack = Stack::find("megatron-core-2025").unwrap();
        let (grouped, transposed) = (stack.traits.kernels.grouped, stack.traits.kernels.grouped_transposed);
        for (name, format, wanted) in
            [("h100", Format::F8, grouped * transposed), ("h100", Format::Half, grouped), ("b200", Format::F8, grouped)]
        {
            let cluster = Cluster::find(name).unwrap();
            let platform = Platform { cluster: &cluster, stack: &stack, recipe: &Recipe::bf16() };
            let [m, n, k] = [4096.0, 8192.0, 6144.0];
            let share =
                platform.matmul(4.0, m, n, k, format, false) / platform.grouped_matmul(4.0, m, n, k, format, false);
            assert!((share - wanted).abs() < 1e-9, "{name} {format:?}");
        }
    }

    #[test]
    fn the_best_shapes_reach_the_achievable_rates() {
        // ml-engineering (2026), maximum achievable matmul FLOPS: cluster, shape, TFLOP/s.
        let rows = [
            ("a100", [1024.0, 10240.0, 5120.0], Format::Half, 271.2),
            ("h100", [2048.0, 2048.0, 13312.0], Format::Half, 794.5),
            ("b200", [1792.0, 16128.0, 3072.0], Format::Half, 1745.0),
            ("gb200", [4096.0, 9728.0, 2048.0], Format::Half, 1822.0),
            ("b300", [12288.0, 18432.0, 1024.0], Format::Half, 1769.0),
            ("mi300x", [10240.0, 15360.0, 8192.0], Format::Half, 668.4),
            ("mi355x", [12288.0, 8192.0, 8192.0], Format::Half, 1565.0),
            ("h100", [1024.0, 9216.0, 14336.0], Format::F8, 1402.6),
            ("b200", [15360.0, 4096.0, 3072.0], Format::F8, 3432.5),
            ("gb200", [19456.0, 5120.0, 1536.0], Format::F8, 3615.6),
        ];
        for (cluster, [m, n, k], format, measured) in rows {
            let predicted = tflops(cluster, m, n, k, format);
            assert!((predicted / measured - 1.0).abs() < 0.09, "{cluster} {format:?} {predicted} {measured}");
        }
    }

    #[test]
    fn no_product_beats_the_device_and_more_work_takes_longer() {
        let cluster = Cluster::find("h100").unwrap();
        let stack = Stack::find("megatron-core-2025").unwrap();
        let platform = Platform { cluster: &cluster, stack: &stack, recipe: &Recipe::bf16() };
        let time = |m: f64, format| platform.matmul(1.0, m, 4096.0, 4096.0, format, false);
        for power in 0..14 {
            let m = f64::from(1 << power);
            for format in [Format::Half, Format::F8] {
                assert!(2.0 * m * 4096.0 * 4096.0 / time(m, format) < cluster.device.sustained(format));
                assert!(time(m, format) <= time(2.0 * m, format), "{m}");
            }
        }
        // One row reads the entire matrix for very few operations.
        assert!(time(1.0, Format::Half) > 2.0 * 4096.0 * 4096.0 / cluster.device.memory_bandwidth);
        // An accumulated f32 result is read and written.
        let [added, stored] =
            [true, false].map(|accumulate| platform.matmul(1.0, 8192.0, 8192.0, 64.0, Format::Half, accumulate));
        assert!(added > 1.5 * stored);
    }

    #[test]
    fn tiles_of_f32_have_a_depth_of_their_own() {
        let seconds = |depth_f32, format| {
            let mut cluster = Cluster::find("a100").unwrap();
            (cluster.device.start, cluster.device.matmul.depth_f32) = (0.0, depth_f32);
            let stack = Stack::find("meshwright-cuda").unwrap();
            let platform = Platform { cluster: &cluster, stack: &stack, recipe: &Recipe::bf16() };
            platform.matmul(1.0, 8192.0, 8192.0, 8192.0, format, false)
        };
        let depth = Cluster::find("a100").unwrap().device.matmul.depth;
        let [equal, deeper] = [None, Some(depth + 8192.0)].map(|depth| seconds(depth, Format::F32));
        assert!((deeper / equal - (1.0 + 8192.0 / (8192.0 + depth))).abs() < 1e-9);
        assert_eq!(seconds(None, Format::Half), seconds(Some(depth + 8192.0), Format::Half));
    }

    #[test]
    fn formats_that_a_device_lacks_are_widened() {
        let wide = tflops("a100", 8192.0, 8192.0, 8192.0, Format::Half);
        assert_eq!(tflops("a100", 8192.0, 8192.0, 8192.0, Format::F8), wide);
    }
}
