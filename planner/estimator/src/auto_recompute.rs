//! `recompute=auto`: the fastest recomputation that fits.

use super::error::Error;
use super::estimator::Estimator;
use super::evaluator::Evaluator;
use super::prediction::Prediction;
use super::recompute_choice::{Trial, crowded, fitting};
use super::relaxation::StepCost;
use super::report::EstimateReport;
use ir::options::{Offload, ParallelConfig, Recompute};

impl Estimator {
    /// Report without recomputation, or with the fastest recomputation that fits: of single values, of some layers, or of all
    /// layers. If nothing fits, all layers are recomputed.
    pub(super) fn least(&self, mut prediction: Prediction<'_>) -> Result<EstimateReport, Error> {
        if !prediction.candidate.parallel.offload.is_none() {
            return self.least_with_host(prediction);
        }
        prediction.candidate.parallel.recompute = Recompute::None;
        let none = prediction.stepped()?;
        let budget = prediction.candidate.budget;
        let held = none.floor().bytes;
        if held <= budget {
            return prediction.report(none);
        }
        let runs = crowded(&none.staged, &none.memory, |rank| rank.device, &none.blocks.outline, budget);
        let config = prediction.candidate.block_config()?;
        let choices = prediction.database.frontier(&config, &runs)?;
        let under = |recompute: Recompute| {
            let floor = prediction.under(&recompute)?.floor();
            Ok(Trial { bytes: floor.bytes, of: (recompute, floor) })
        };
        let values = fitting(&choices, held, budget, under, |_| false)?;
        let (whole, layers) = self.layers(&mut prediction, budget)?;
        let is_best = |values: &StepCost| layers.bytes > budget || values.seconds <= layers.seconds;
        let best = values.filter(|(_, floor)| is_best(floor)).map_or(whole, |(recompute, _)| recompute);
        let stepped = prediction.under(&best)?;
        prediction.report(stepped)
    }

    /// The same for a configuration that offloads. Values are recomputed if that is faster than waiting for their copies, or if
    /// host memory is too small; with `offload=auto`, as few layers are offloaded as must be.
    fn least_with_host(&self, mut prediction: Prediction<'_>) -> Result<EstimateReport, Error> {
        let given = prediction.candidate.parallel.offload;
        let under = |prediction: &mut Prediction<'_>, recompute: &Recompute| {
            prediction.candidate.parallel.recompute.clone_from(recompute);
            if given == Offload::Auto { prediction.least_offload() } else { prediction.stepped() }
        };
        let parallel = &prediction.candidate.parallel;
        let evaluator = Evaluator::new(self, prediction.request.clone(), [parallel.devices(); 2])?;
        let chosen =
            evaluator.fitting(&ParallelConfig { recompute: Recompute::Auto, ..parallel.clone() }, f64::INFINITY)?;
        let chosen = chosen.map(|(parallel, _)| parallel.recompute);
        let mut best: Option<(f64, Recompute)> = None;
        for recompute in [Some(Recompute::None), chosen, Some(Recompute::Full(None))].into_iter().flatten() {
            let stepped = under(&mut prediction, &recompute)?;
            let StepCost { seconds, bytes } = stepped.floor();
            let fits = bytes <= prediction.candidate.budget && stepped.fits_host(prediction.candidate.platform.cluster);
            if fits && best.as_ref().is_none_or(|(least, _)| seconds < *least) {
                best = Some((seconds, recompute));
            }
        }
        let stepped = under(&mut prediction, &best.map_or(Recompute::Full(None), |(_, recompute)| recompute))?;
        prediction.report(stepped)
    }

    /// With as few layers recomputed as fit, if the stack can choose how many; if none do, with all.
    fn layers(&self, prediction: &mut Prediction<'_>, budget: f64) -> Result<(Recompute, StepCost), Error> {
        let all = prediction.under(&Recompute::Full(None))?;
        let mut best = (Recompute::Full(None), all.floor());
        if best.1.bytes > budget || !prediction.candidate.platform.stack.supports.recomputes("full:n") {
            return Ok(best);
        }
        // One layer more frees memory on every stage: the least number that fits lies between none and all.
        let most = all.staged.loads.iter().map(|load| load.whole).max().unwrap_or(0);
        let (mut low, mut high) = (0, most as u32);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            let recompute = Recompute::Full(Some(middle));
            let floor = prediction.under(&recompute)?.floor();
            if floor.bytes <= budget { (best, high) = ((recompute, floor), middle) } else { low = middle }
        }
        Ok(best)
    }
}
