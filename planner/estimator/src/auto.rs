//! `recompute=auto`: the fastest recomputation that fits.

use super::desk::Desk;
use super::estimator::{Estimator, Job};
use super::floor::Floor;
use super::report::EstimateReport;
use super::tensors::{Tried, choices, crowded, fitting};
use compiler::error::Error;
use ir::options::{ParallelConfig, Recompute};

impl Estimator {
    /// Under none, or the fastest recomputation that fits: of single values, of so many layers, or of all; if nothing fits,
    /// under all.
    pub(super) fn least(&self, mut job: Job<'_>) -> Result<EstimateReport, Error> {
        if job.parallel.offload {
            return self.least_beside_host(job);
        }
        job.parallel.recompute = Recompute::None;
        let (none, planned) = (self.stepped(&job)?, self.planned(&job, &job.blocks_key()?)?);
        let room = job.machine.cluster.device.memory as f64;
        let held = none.floor().bytes;
        if held <= room {
            return Ok(job.report(&planned, none));
        }
        let runs = crowded(&none.staged, &none.memory, |rank| rank.device, &planned.outline, room);
        let choices = choices(&job, &planned.model, &runs);
        let under = |recompute: Recompute| {
            let floor = self.under(&mut job, &recompute)?.floor();
            Ok(Tried { bytes: floor.bytes, of: (recompute, floor) })
        };
        let values = fitting(&choices, held, room, under, |_| false)?;
        let (whole, layers) = self.layers(&mut job, room)?;
        let is_best = |values: &Floor| layers.bytes > room || values.seconds <= layers.seconds;
        let best = values.filter(|(_, floor)| is_best(floor)).map_or(whole, |(recompute, _)| recompute);
        let stepped = self.under(&mut job, &best)?;
        Ok(job.report(&planned, stepped))
    }

    /// The same of a configuration that offloads: values are recomputed where that takes less time than waiting for their copies, and as
    /// the host's memory asks for.
    fn least_beside_host(&self, mut job: Job<'_>) -> Result<EstimateReport, Error> {
        let desk = Desk::new(self, job.request.clone(), [job.parallel.devices(); 2])?;
        let chosen =
            desk.fitting(&ParallelConfig { recompute: Recompute::Auto, ..job.parallel.clone() }, f64::INFINITY)?;
        let chosen = chosen.map(|(parallel, _)| parallel.recompute);
        let mut best: Option<(f64, Recompute)> = None;
        for recompute in [Some(Recompute::None), chosen, Some(Recompute::Full(None))].into_iter().flatten() {
            let stepped = self.under(&mut job, &recompute)?;
            let Floor { seconds, bytes } = stepped.floor();
            let fits = bytes <= job.machine.cluster.device.memory as f64 && stepped.fits_host(job.machine.cluster);
            if fits && best.as_ref().is_none_or(|(least, _)| seconds < *least) {
                best = Some((seconds, recompute));
            }
        }
        let stepped = self.under(&mut job, &best.map_or(Recompute::Full(None), |(_, recompute)| recompute))?;
        let planned = self.planned(&job, &job.blocks_key()?)?;
        Ok(job.report(&planned, stepped))
    }

    /// With as few layers recomputed as fit, if the stack can choose how many; if none do, with all.
    fn layers(&self, job: &mut Job<'_>, room: f64) -> Result<(Recompute, Floor), Error> {
        let all = self.under(job, &Recompute::Full(None))?;
        let mut best = (Recompute::Full(None), all.floor());
        if best.1.bytes > room || !job.machine.stack.supports.recomputes("full:n") {
            return Ok(best);
        }
        // One layer more frees memory on every stage: the least number that fits lies between none and all.
        let most = all.staged.loads.iter().map(|load| load.whole).max().unwrap_or(0);
        let (mut low, mut high) = (0, most as u32);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let recompute = Recompute::Full(Some(middle));
            let floor = self.under(job, &recompute)?.floor();
            if floor.bytes <= room { (best, high) = ((recompute, floor), middle) } else { low = middle }
        }
        Ok(best)
    }
}
