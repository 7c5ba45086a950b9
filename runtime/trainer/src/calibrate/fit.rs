//! Cost-model constants that reproduce the measured times: each formula of `planner/cost` solved for its constants.

use crate::measure::{AttentionTime, Product, Sum};
use cost::{Device, TablePoint};

/// Constants of matrix products: a product takes `2 m n (k + depth) / rate` seconds.
pub(super) struct Products {
    pub(super) rate: f64,
    pub(super) depth: f64,
}

/// Constants of attention: it runs at `peak x share(head) x l / (l + half)` FLOP/s, where l is the number of keys per
/// query.
pub(super) struct AttentionFit {
    /// Shares of the peak by head size.
    pub(super) shares: Vec<TablePoint>,
    pub(super) half: f64,
}

/// Constants of an all-reduce. One of b bytes over n ranks takes
/// `start + 2 (n - 1) (latency + b/n / (bandwidth x share(b/n)))` seconds on each rank.
pub(super) struct Sums {
    pub(super) start: f64,
    pub(super) latency: f64,
    pub(super) bandwidth: f64,
    /// Shares of the bandwidth by the bytes that a rank passes on.
    pub(super) shares: Vec<TablePoint>,
}

/// The longest half length, and the least share of the peak, that a cluster may state.
const MOST_HALF: f64 = 1e5;
const LEAST_SHARE: f64 = 1e-4;

/// A half length with which shares exceed the peak is tried again as this part of itself.
const SHORTER: f64 = 0.95;

/// The line `at_zero + slope x`, with both constants at least zero.
pub(super) struct LinearFit {
    pub(super) at_zero: f64,
    pub(super) slope: f64,
}

/// Fits a line to points of positive y by least squares of relative errors.
pub(super) fn line(points: impl Iterator<Item = (f64, f64)>) -> LinearFit {
    let (mut a, mut b, mut c, mut d, mut e) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (x, y) in points {
        let (one, x) = (1.0 / y, x / y);
        (a, b, c, d, e) = (a + one * one, b + one * x, c + x * x, d + one, e + x);
    }
    let determinant = a * c - b * b;
    let (at_zero, slope) = ((d * c - e * b) / determinant, (a * e - b * d) / determinant);
    if at_zero >= 0.0 && slope >= 0.0 {
        LinearFit { at_zero, slope }
    } else if slope < 0.0 {
        LinearFit { at_zero: d / a, slope: 0.0 }
    } else {
        LinearFit { at_zero: 0.0, slope: e / c }
    }
}

/// Fits the rate of products, in FLOP/s, and the extra depth that each product costs.
pub(super) fn products(timed: &[Product], start: f64) -> Products {
    let per_element = timed.iter().map(|one| {
        let elements = 2.0 * (one.m * one.n) as f64;
        (one.k as f64, own(one.seconds, start) / elements)
    });
    let LinearFit { at_zero, slope } = line(per_element);
    Products { rate: 1.0 / slope, depth: at_zero / slope }
}

/// Fits the half length, the median over head sizes or less, and then the share of a peak for each head size, at most 1. The device
/// has its number of parts and the start of its kernels.
pub(super) fn attention(times: &[AttentionTime], device: &Device, peak: f64, backward: bool) -> AttentionFit {
    let mut sizes: Vec<usize> = times.iter().map(|time| time.head).collect();
    sizes.dedup();
    let heads: Vec<HeadTimes> =
        sizes.into_iter().map(|head| HeadTimes::new(head, times, device, peak, backward)).collect();
    let mut halves: Vec<f64> = heads.iter().map(HeadTimes::half).collect();
    halves.sort_by(f64::total_cmp);
    // Where times hardly level off with the length, endless sequences would run above the peak.
    let mut half = halves[halves.len() / 2];
    while half > 1.0 && heads.iter().any(|times| times.share(half) > 1.0) {
        half *= SHORTER;
    }
    let shares = heads
        .iter()
        .map(|times| TablePoint { size: times.head as f64, value: times.share(half).clamp(LEAST_SHARE, 1.0) });
    AttentionFit { shares: shares.collect(), half }
}

/// Times of attention with one size of heads: points of the line `1/share + half/share / l` over 1 / l. Its values are measured times
/// over those at the peak.
struct HeadTimes {
    head: usize,
    points: Vec<(f64, f64)>,
}

impl HeadTimes {
    fn new(head: usize, times: &[AttentionTime], device: &Device, peak: f64, backward: bool) -> HeadTimes {
        let mut points = Vec::new();
        for time in times.iter().filter(|time| time.head == head) {
            let looked_at = (time.length as f64 + 1.0) / 2.0;
            let pairs = (time.heads * time.length) as f64 * looked_at;
            let flops = pairs * time.head as f64 * if backward { 10.0 } else { 4.0 };
            // The cost model's efficiency of n waves of blocks of 128 rows.
            let waves = (time.heads * time.length.div_ceil(128)) as f64 / device.sms as f64;
            let busy = if waves < 0.5 { waves } else { waves / (waves + 0.5) };
            points.push((1.0 / looked_at, own(time.seconds(backward), device.start) * peak / flops * busy));
        }
        HeadTimes { head, points }
    }

    /// The half length that fits these times alone.
    fn half(&self) -> f64 {
        let line = line(self.points.iter().copied());
        (line.slope / line.at_zero).min(MOST_HALF)
    }

    /// The share of the peak that fits best with a half length.
    fn share(&self, half: f64) -> f64 {
        let (mut once, mut twice) = (0.0, 0.0);
        for (x, y) in &self.points {
            let part = (1.0 + half * x) / y;
            (once, twice) = (once + part, twice + part * part);
        }
        twice / once
    }
}

/// Seconds of a kernel without its start, at least half of them.
pub(super) fn own(seconds: f64, start: f64) -> f64 {
    (seconds - start).max(seconds / 2.0)
}

/// Fits the constants of an all-reduce to the work of a rank's core. If there are more ranks than cores, the ranks take
/// turns.
pub(super) fn sums(measured: &[Sum], cores: u64) -> Sums {
    let least = measured.iter().map(|sum| sum.bytes).min().unwrap_or(0);
    let small = measured.iter().filter(|sum| sum.bytes == least);
    let meeting = line(small.map(|sum| (hops(sum), core_seconds(sum, cores))));
    let mut sizes: Vec<u64> = measured.iter().map(|sum| sum.bytes).filter(|&bytes| bytes > least).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let rates = sizes.into_iter().map(|bytes| {
        let of_size: Vec<&Sum> = measured.iter().filter(|sum| sum.bytes == bytes).collect();
        mean_rate(&of_size, cores, &meeting)
    });
    let rates: Vec<TablePoint> = rates.collect();
    let bandwidth = rates.iter().map(|rate| rate.value).fold(0.0, f64::max);
    let shares = rates.iter().map(|rate| TablePoint { size: rate.size.round(), value: rate.value / bandwidth });
    Sums { start: meeting.at_zero, latency: meeting.slope, bandwidth, shares: shares.collect() }
}

/// Seconds of a core for a rank's part of a sum.
fn core_seconds(sum: &Sum, cores: u64) -> f64 {
    sum.seconds * (cores.min(sum.ranks)) as f64 / sum.ranks as f64
}

fn hops(sum: &Sum) -> f64 {
    2.0 * (sum.ranks as f64 - 1.0)
}

/// The mean rate of sums of one size, by the bytes that a rank passes on.
fn mean_rate(sums: &[&Sum], cores: u64, meeting: &LinearFit) -> TablePoint {
    let rates = sums.iter().map(|sum| {
        let fixed = meeting.at_zero + hops(sum) * meeting.slope;
        let seconds = core_seconds(sum, cores);
        let part = sum.bytes as f64 / sum.ranks as f64;
        TablePoint { size: part, value: hops(sum) * part / (seconds - fixed).max(seconds / 10.0) }
    });
    let rates: Vec<TablePoint> = rates.collect();
    TablePoint {
        size: geometric_mean(rates.iter().map(|rate| rate.size)),
        value: geometric_mean(rates.iter().map(|rate| rate.value)),
    }
}

fn geometric_mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let number = values.len() as f64;
    (values.map(f64::ln).sum::<f64>() / number).exp()
}
