//! Lower bound on the seconds of the steps of a reshard that communicate.

use super::Site;
use cost::Pattern;
use ir::mesh::Axes;

/// The most axes whose groups are all looked at.
const MOST_AXES: usize = 10;

/// Seconds that steps over some axes take at least: some for each step, and some for each byte that a rank receives.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct StepBound {
    of_step: f64,
    of_byte: f64,
}

impl StepBound {
    /// The bound of steps over any of these axes whose ranks have at most `most` bytes each before and after, as types say.
    ///
    /// Beyond the least wait a byte takes the least time where all `most` bytes move: the platform's times have that property.
    pub(super) fn of(site: &Site<'_>, axes: &Axes, most: f64) -> StepBound {
        let of_step = site.platform.least_wait();
        let mut of_byte = f64::INFINITY;
        let cutting: Vec<_> = axes.iter().filter(|&axis| site.mesh.axes[axis].size > 1).collect();
        if cutting.len() > MOST_AXES {
            return StepBound { of_step, of_byte: 0.0 };
        }
        for chosen in 1_u32..1 << cutting.len() {
            let over: Axes =
                cutting.iter().enumerate().filter(|(at, _)| chosen >> at & 1 == 1).map(|(_, axis)| *axis).collect();
            let (shape, ranks) = (site.group(&over), site.mesh.size(&over));
            for pattern in Pattern::COMMUNICATING {
                let beyond = site.seconds(pattern, most, most, &shape) - of_step;
                of_byte = f64::min(of_byte, beyond / pattern.received(ranks, most, most));
            }
        }
        StepBound { of_step, of_byte: if of_byte.is_finite() { of_byte.max(0.0) } else { 0.0 } }
    }

    /// Seconds of some steps in which a rank receives some bytes.
    pub(super) fn seconds(&self, steps: f64, bytes: f64) -> f64 {
        steps * self.of_step + bytes * self.of_byte
    }
}
