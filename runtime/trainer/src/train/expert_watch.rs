//! Loads of experts: what metrics record of them, and notes on experts that get too many tokens or none.

use crate::metrics::Routing;
use std::collections::{BTreeMap, BTreeSet};

/// The most tokens of an expert over the mean, from which on routing is uneven.
const UNEVEN: f64 = 3.0;

/// Steps in a row after which routing that is uneven, or an expert without tokens, is noted.
const LASTING: u32 = 20;

/// The loads of a run's experts.
pub(super) struct ExpertWatch {
    /// Steps between records of all counts; 0 for none.
    every: u64,
    /// Steps in a row in which routing of a layer was uneven.
    uneven: BTreeMap<String, u32>,
    /// Steps in a row in which an expert of a layer got no token.
    idle: BTreeMap<(String, usize), u32>,
    /// The layers that have been noted, as uneven or as without tokens for an expert.
    noted: BTreeSet<(String, Fault)>,
    notes: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Uneven,
    Dead,
}

impl ExpertWatch {
    pub(super) fn new(every: u64) -> ExpertWatch {
        let (uneven, idle, noted) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        ExpertWatch { every, uneven, idle, noted, notes: Vec::new() }
    }

    /// Notes the tokens of each expert by layer, and gives the record of the step; none without layers.
    pub(super) fn routing(&mut self, step: u64, layers: &BTreeMap<String, Vec<f32>>) -> Option<Routing> {
        let ratios = layers.iter().map(|(layer, counts)| (largest_over_mean(counts), layer));
        let (max_over_mean, layer) = ratios.max_by(|a, b| a.0.total_cmp(&b.0))?;
        layers.iter().for_each(|(layer, counts)| self.watch(step, layer, counts));
        let dead = layers.values().flatten().filter(|&&count| count == 0.0).count() as u64;
        let is_due = self.every > 0 && step.is_multiple_of(self.every);
        let counts = is_due.then(|| layers.iter().map(|(layer, counts)| (layer.clone(), whole(counts))).collect());
        Some(Routing { max_over_mean, layer: layer.clone(), dead, counts })
    }

    /// Notes for the user since the last call.
    pub(super) fn notes(&mut self) -> impl Iterator<Item = String> {
        std::mem::take(&mut self.notes).into_iter()
    }

    fn watch(&mut self, step: u64, layer: &str, counts: &[f32]) {
        let ratio = largest_over_mean(counts);
        let steps = self.uneven.entry(layer.to_string()).or_default();
        *steps = if ratio > UNEVEN { *steps + 1 } else { 0 };
        if *steps == LASTING {
            let text = format!(
                "an expert has got more than {UNEVEN} times the mean for {LASTING} steps, {ratio:.1} in step {step}"
            );
            self.note(layer, Fault::Uneven, &text);
        }
        for (expert, &count) in counts.iter().enumerate() {
            let steps = self.idle.entry((layer.to_string(), expert)).or_default();
            *steps = if count == 0.0 { *steps + 1 } else { 0 };
            if *steps == LASTING {
                self.note(layer, Fault::Dead, &format!("expert {expert} has got no token for {LASTING} steps"));
            }
        }
    }

    /// Adds a note, the first time that a layer has the fault.
    fn note(&mut self, layer: &str, fault: Fault, text: &str) {
        if self.noted.insert((layer.to_string(), fault)) {
            self.notes
                .push(format!("routing of {layer} is uneven: {text}; `+balance=` behind the model's name balances it"));
        }
    }
}

/// The largest count over the mean of all; 1 where there are none.
fn largest_over_mean(counts: &[f32]) -> f64 {
    let sum: f64 = counts.iter().map(|&count| f64::from(count)).sum();
    let largest = counts.iter().copied().fold(0.0, f32::max);
    if sum > 0.0 { f64::from(largest) * counts.len() as f64 / sum } else { 1.0 }
}

fn whole(counts: &[f32]) -> Vec<u64> {
    counts.iter().map(|&count| count as u64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers(counts: &[f32]) -> BTreeMap<String, Vec<f32>> {
        BTreeMap::from([("layer.0".to_string(), vec![2.0; counts.len()]), ("layer.1".to_string(), counts.to_vec())])
    }

    #[test]
    fn lasting_faults_are_noted_once() {
        let mut watch = ExpertWatch::new(10);
        for step in 1..=100 {
            let routing = watch.routing(step, &layers(&[13.0, 1.0, 2.0, 0.0])).unwrap();
            assert_eq!((routing.max_over_mean, &*routing.layer, routing.dead), (3.25, "layer.1", 1));
            assert_eq!(routing.counts.is_some(), step % 10 == 0);
            let notes: Vec<String> = watch.notes().collect();
            assert_eq!(notes.len(), if step == 20 { 2 } else { 0 }, "{notes:?}");
        }
        assert_eq!(watch.routing(101, &BTreeMap::new()), None);
    }

    #[test]
    fn faults_that_pass_are_not_noted() {
        let mut watch = ExpertWatch::new(0);
        for step in 1..=100 {
            let counts = if step % 20 == 0 { [2.0; 4] } else { [8.0, 0.0, 0.0, 0.0] };
            assert_eq!(watch.routing(step, &layers(&counts)).unwrap().counts, None);
        }
        assert_eq!(watch.notes().count(), 0);
    }
}
