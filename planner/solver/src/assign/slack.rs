//! Memory left at every time, in a tree: a change of a range and the least of a range take logarithmic time.

/// Above every value and every sum of changes, so that a place without a time never is the least.
const FAR: i64 = i64::MAX / 4;

/// Values by time. A node of the tree has the least value below it, including the changes of its own and below it.
#[derive(Clone, Debug)]
pub(crate) struct Slack {
    /// Leaves from `leaves` on; the first and the last one are outside of every range.
    least: Vec<i64>,
    /// Change of all values below a node.
    change: Vec<i64>,
    leaves: usize,
}

impl Slack {
    /// A tree over `values`.
    pub(crate) fn new(values: &[i64]) -> Slack {
        let leaves = (values.len() + 2).next_power_of_two();
        let mut least = vec![FAR; 2 * leaves];
        least[leaves + 1..][..values.len()].copy_from_slice(values);
        for at in (1..leaves).rev() {
            least[at] = least[2 * at].min(least[2 * at + 1]);
        }
        Slack { least, change: vec![0; 2 * leaves], leaves }
    }

    /// Adds to the values at `lo..hi`.
    pub(crate) fn add(&mut self, lo: usize, hi: usize, more: i64) {
        let (mut left, mut right) = (self.leaves + lo, self.leaves + hi + 1);
        while left ^ right != 1 {
            if left & 1 == 0 {
                self.raise(left + 1, more);
            }
            if right & 1 == 1 {
                self.raise(right - 1, more);
            }
            left /= 2;
            right /= 2;
            self.update(left);
            self.update(right);
        }
        while left > 1 {
            left /= 2;
            self.update(left);
        }
    }

    /// The least value at `lo..hi`.
    pub(crate) fn least(&self, lo: usize, hi: usize) -> i64 {
        let (mut left, mut right) = (self.leaves + lo, self.leaves + hi + 1);
        let (mut on_left, mut on_right) = (FAR, FAR);
        while left ^ right != 1 {
            if left & 1 == 0 {
                on_left = on_left.min(self.least[left + 1]);
            }
            if right & 1 == 1 {
                on_right = on_right.min(self.least[right - 1]);
            }
            left /= 2;
            right /= 2;
            on_left += self.change[left];
            on_right += self.change[right];
        }
        let mut least = on_left.min(on_right);
        while left > 1 {
            left /= 2;
            least += self.change[left];
        }
        least
    }

    /// The least value of all.
    pub(crate) fn least_of_all(&self) -> i64 {
        self.least[1]
    }

    fn raise(&mut self, at: usize, more: i64) {
        self.least[at] += more;
        self.change[at] += more;
    }

    fn update(&mut self, at: usize) {
        self.least[at] = self.least[2 * at].min(self.least[2 * at + 1]) + self.change[at];
    }
}

#[cfg(test)]
mod tests {
    use super::super::random::Random;
    use super::Slack;

    /// Ranges of every length, against a list.
    #[test]
    fn ranges_agree_with_a_list() {
        for times in 1..40 {
            let mut random = Random::new(times as u64);
            let mut list: Vec<i64> = (0..times).map(|_| random.below(100) as i64).collect();
            let mut slack = Slack::new(&list);
            for _ in 0..200 {
                let lo = random.below(times);
                let hi = lo + 1 + random.below(times - lo);
                let more = random.below(41) as i64 - 20;
                list[lo..hi].iter_mut().for_each(|value| *value += more);
                slack.add(lo, hi, more);
                let lo = random.below(times);
                let hi = lo + 1 + random.below(times - lo);
                assert_eq!(Some(slack.least(lo, hi)), list[lo..hi].iter().copied().min(), "{times} times, {lo}..{hi}");
                assert_eq!(Some(slack.least_of_all()), list.iter().copied().min(), "{times} times");
            }
        }
    }
}
