//! Choice of the next token by its logits.

use data::mix;

/// How tokens are chosen. The same seed gives the same tokens.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sampling {
    /// The divisor of logits; 0 for the likeliest token.
    pub temperature: f64,
    /// The likeliest tokens that together have this probability are drawn from; 1 for all.
    pub top_p: f64,
    /// The seed of the draws.
    pub seed: u64,
}

impl Sampling {
    /// The token of draw `number`; none if the logits are not numbers. Of equally likely ones the first comes first.
    pub fn pick(&self, logits: &[f32], number: u64) -> Option<usize> {
        if logits.iter().any(|logit| logit.is_nan()) {
            return None;
        }
        let mut tokens: Vec<usize> = (0..logits.len()).collect();
        tokens.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
        let best = *tokens.first()?;
        let largest = f64::from(logits[best]);
        if self.temperature == 0.0 || !largest.is_finite() {
            return largest.is_finite().then_some(best);
        }
        let weights: Vec<f64> =
            tokens.iter().map(|&token| ((f64::from(logits[token]) - largest) / self.temperature).exp()).collect();
        let all: f64 = weights.iter().sum();
        // The sum up to each token that is drawn from.
        let (mut sums, mut sum): (Vec<f64>, f64) = (Vec::new(), 0.0);
        for weight in weights {
            if sum < self.top_p * all {
                sum += weight;
                sums.push(sum);
            }
        }
        let drawn = uniform(self.seed, number) * sum;
        Some(tokens[sums.partition_point(|&sum| sum <= drawn).min(sums.len().max(1) - 1)])
    }
}

/// A number from 0 up to 1, which it is not.
fn uniform(seed: u64, number: u64) -> f64 {
    (mix(mix(seed).wrapping_add(number)) >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f32; 4] = [1.0, 3.0, f32::NEG_INFINITY, 2.0];

    /// The shares of the tokens in many draws.
    fn shares(temperature: f64, top_p: f64) -> [f64; 4] {
        let sampling = Sampling { temperature, top_p, seed: 7 };
        let mut counts = [0.0; 4];
        (0..20_000).for_each(|number| counts[sampling.pick(&LOGITS, number).unwrap()] += 1.0 / 20_000.0);
        counts
    }

    /// Softmax of some numbers over a temperature.
    fn softmax(logits: &[f64], temperature: f64) -> Vec<f64> {
        let all: f64 = logits.iter().map(|logit| (logit / temperature).exp()).sum();
        logits.iter().map(|logit| (logit / temperature).exp() / all).collect()
    }

    #[test]
    fn draws_have_the_probabilities_of_the_softmax() {
        for temperature in [0.5, 1.0, 3.0] {
            let want = softmax(&[1.0, 3.0, f64::NEG_INFINITY, 2.0], temperature);
            let got = shares(temperature, 1.0);
            // The standard deviation of a share is at most 0.0036.
            assert!(got.iter().zip(&want).all(|(got, want)| (got - want).abs() < 0.015), "{got:?} {want:?}");
        }
    }

    #[test]
    fn only_the_likeliest_are_drawn_from() {
        // The probabilities are 0.67, 0.24 and 0.09.
        assert_eq!(shares(1.0, 0.5), [0.0, shares(1.0, 0.5)[1], 0.0, 0.0]);
        let two = shares(1.0, 0.8);
        let want = softmax(&[3.0, 2.0], 1.0);
        assert!(two[0] == 0.0 && (two[1] - want[0]).abs() < 0.015 && (two[3] - want[1]).abs() < 0.015, "{two:?}");
        for number in 0..100 {
            let greedy = Sampling { temperature: 0.0, top_p: 1.0, seed: number };
            assert_eq!(greedy.pick(&LOGITS, number), Some(1));
        }
    }

    #[test]
    fn what_is_no_number_is_no_token() {
        let sampling = Sampling { temperature: 1.0, top_p: 0.9, seed: 0 };
        for logits in [&[1.0, f32::NAN][..], &[f32::NEG_INFINITY], &[]] {
            assert_eq!(sampling.pick(logits, 0), None);
        }
        assert_eq!(Sampling { top_p: 1e-300, ..sampling }.pick(&LOGITS, 5), Some(1));
    }
}
