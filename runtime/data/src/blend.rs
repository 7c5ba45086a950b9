//! Several sets of data as one. Sets take turns by their shares, or follow each other. As of one set, sample `i` is a pure function of
//! (data, shares, seed, `i`).

use super::DataError;
use super::sampler::{Batch, Sampler};

/// Samples after which the turns repeat. Shares are rounded to whole samples of these: to a millionth.
const PERIOD: usize = 1 << 20;

/// The most sets that are blended.
pub const MOST_SETS: usize = 256;

/// The samples of a run, of one set or several.
pub struct Blend<'a> {
    sets: Vec<Sampler<'a>>,
    order: Order,
}

enum Order {
    Turns(Turns),
    /// Sets that follow each other: how many samples there are up to the end of each.
    Ends(Vec<u64>),
}

impl<'a> Blend<'a> {
    /// Sets that take turns, so that each has its share of any number of samples; of the shares only the ratios count. Each set has epochs
    /// of its own. Sets beyond [`MOST_SETS`] are left out.
    pub fn by_turns(sets: Vec<Sampler<'a>>, shares: &[f64]) -> Blend<'a> {
        match sets.len() {
            0 | 1 => Blend::in_order(sets),
            _ => Blend { order: Order::Turns(Turns::of(shares)), sets },
        }
    }

    /// Sets that follow each other, for validation.
    pub fn in_order(sets: Vec<Sampler<'a>>) -> Blend<'a> {
        let ends = sets.iter().scan(0, |end, set| {
            *end += set.windows();
            Some(*end)
        });
        Blend { order: Order::Ends(ends.collect()), sets }
    }

    /// Samples of all sets, each of which is one once.
    pub fn windows(&self) -> u64 {
        self.sets.iter().map(Sampler::windows).sum()
    }

    /// Replaces `batch` by the samples `first_sample .. first_sample + count` of the run.
    ///
    /// # Errors
    /// [`DataError::OutOfRange`], and those of a file that cannot be read.
    pub fn fill(&self, first_sample: u64, count: usize, batch: &mut Batch) -> Result<(), DataError> {
        batch.clear();
        (first_sample..first_sample + count as u64).try_for_each(|sample| {
            let (set, own) = self.place(sample);
            self.sets[set].add(own, batch)
        })
    }

    /// The set of a sample, and its number among those of the set.
    pub fn place(&self, sample: u64) -> (usize, u64) {
        match &self.order {
            Order::Turns(turns) => turns.place(sample),
            Order::Ends(_) if self.sets.len() == 1 => (0, sample),
            Order::Ends(ends) => {
                let sample = sample % self.windows();
                let set = ends.partition_point(|&end| end <= sample);
                (set, sample - if set == 0 { 0 } else { ends[set - 1] })
            }
        }
    }
}

/// The turns of a period.
struct Turns {
    /// The set of each sample.
    sets: Vec<u8>,
    /// The number of samples of the same set before it.
    before: Vec<u32>,
    /// Samples of each set in a period.
    counts: Vec<u64>,
}

impl Turns {
    /// Gives each sample to the set that is most behind its share, as Megatron's index of a blend does. No set is ever ahead by a whole
    /// sample. So at the end of the period none is ahead, and then none is behind.
    fn of(shares: &[f64]) -> Turns {
        let counts = apportioned(&shares[..shares.len().min(MOST_SETS)]);
        let mut behind = vec![0i64; counts.len()];
        let mut given = vec![0u32; counts.len()];
        let (mut sets, mut before) = (Vec::with_capacity(PERIOD), Vec::with_capacity(PERIOD));
        for _ in 0..PERIOD {
            behind.iter_mut().zip(&counts).for_each(|(behind, &count)| *behind += count as i64);
            // `max_by_key` takes the last of equals: reversed, that is the first.
            let next = (0..counts.len()).rev().max_by_key(|&set| behind[set]).unwrap_or(0);
            behind[next] -= PERIOD as i64;
            sets.push(next as u8);
            before.push(given[next]);
            given[next] += 1;
        }
        Turns { sets, before, counts }
    }

    fn place(&self, sample: u64) -> (usize, u64) {
        let (period, at) = (sample / PERIOD as u64, (sample % PERIOD as u64) as usize);
        let set = usize::from(self.sets[at]);
        (set, period * self.counts[set] + u64::from(self.before[at]))
    }
}

/// The period in whole samples by shares. Each set has one or more.
fn apportioned(shares: &[f64]) -> Vec<u64> {
    let all: f64 = shares.iter().sum();
    let exact: Vec<f64> = shares.iter().map(|share| share / all * PERIOD as f64).collect();
    let mut counts: Vec<u64> = exact.iter().map(|&exact| (exact as u64).clamp(1, PERIOD as u64)).collect();
    loop {
        let sum: u64 = counts.iter().sum();
        let lacks: Vec<f64> = exact.iter().zip(&counts).map(|(exact, &count)| exact - count as f64).collect();
        let all = 0..counts.len();
        match sum.cmp(&(PERIOD as u64)) {
            std::cmp::Ordering::Equal => return counts,
            std::cmp::Ordering::Less => {
                let most = all.max_by(|&a, &b| lacks[a].total_cmp(&lacks[b]));
                most.into_iter().for_each(|set| counts[set] += 1);
            }
            std::cmp::Ordering::Greater => {
                let least = all.filter(|&set| counts[set] > 1).min_by(|&a, &b| lacks[a].total_cmp(&lacks[b]));
                least.into_iter().for_each(|set| counts[set] -= 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Part;
    use super::*;

    /// Parts of as many windows of one token.
    fn parts(windows: &[usize]) -> Vec<Part> {
        windows.iter().map(|&windows| Part::whole(&[&vec![b'x'; windows]])).collect()
    }

    fn samplers(parts: &[Part]) -> Vec<Sampler<'_>> {
        parts.iter().map(|part| Sampler::in_order(part, 1).unwrap()).collect()
    }

    #[test]
    fn every_number_of_samples_has_the_shares() {
        let shares = [0.5, 0.3, 0.15, 0.05];
        let parts = parts(&[100, 40, 7, 3]);
        let blend = Blend::by_turns(samplers(&parts), &shares);
        let mut given = [0u64; 4];
        for sample in 0..100_000 {
            let (set, own) = blend.place(sample);
            assert_eq!(own, given[set], "sample {sample}");
            given[set] += 1;
            for (&given, share) in given.iter().zip(shares) {
                let ahead = given as f64 - share * (sample + 1) as f64;
                assert!(ahead < 1.0 && ahead > -3.0, "{ahead} at {sample}");
            }
        }
        let is_near = |(&given, share): (&u64, f64)| (given as f64 / 100_000.0 / share - 1.0).abs() < 1e-3;
        assert!(given.iter().zip(shares).all(is_near), "{given:?}");
    }

    #[test]
    fn a_batch_has_sequences_of_all_sets_and_any_start_is_the_same() {
        let parts = [Part::whole(&[&[b'a'; 50]]), Part::whole(&[&[b'b'; 50]])];
        let blend = Blend::by_turns(samplers(&parts), &[3.0, 1.0]);
        let (mut whole, mut piece) = (Batch::default(), Batch::default());
        blend.fill(0, 40, &mut whole).unwrap();
        assert_eq!(whole.tokens.iter().filter(|&&token| token == i32::from(b'b')).count(), 10);
        for first in 0..40 {
            blend.fill(first, 1, &mut piece).unwrap();
            assert_eq!(piece.tokens[..], whole.tokens[first as usize..][..1]);
        }
    }

    #[test]
    fn turns_go_on_after_a_period() {
        let parts = parts(&[10, 10, 10]);
        let blend = Blend::by_turns(samplers(&parts), &[1.0, 1e-9, 3.0]);
        let period = PERIOD as u64;
        let in_a_period = (0..period).filter(|&sample| blend.place(sample).0 == 1).count();
        assert_eq!(in_a_period, 1, "a tiny share is one sample");
        for sample in [0, 1, 17, period - 1] {
            let ((set, own), (later, further)) = (blend.place(sample), blend.place(sample + 5 * period));
            let count = (0..period).filter(|&sample| blend.place(sample).0 == set).count() as u64;
            assert_eq!((later, further), (set, own + 5 * count));
        }
    }

    #[test]
    fn shares_become_whole_samples_of_the_period() {
        for shares in [&[1.0, 1.0, 1.0][..], &[0.7, 0.3], &[1e-12; 256], &[1.0, 1e300, 5e-324], &[f64::NAN, 1.0]] {
            let counts = apportioned(shares);
            assert_eq!(counts.iter().sum::<u64>(), PERIOD as u64);
            assert!(counts.iter().all(|&count| count > 0), "{counts:?}");
        }
    }

    #[test]
    fn sets_in_order_follow_each_other() {
        let parts = parts(&[3, 1, 2]);
        let blend = Blend::in_order(samplers(&parts));
        let places: Vec<_> = (0..8).map(|sample| blend.place(sample)).collect();
        assert_eq!(places, [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0), (2, 1), (0, 0), (0, 1)]);
        assert_eq!(Blend::by_turns(samplers(&parts)[..1].to_vec(), &[1.0]).place(99), (0, 99));
    }
}
