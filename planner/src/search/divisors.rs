//! Divisors.

/// All divisors of a number, ascending; of 0 there are none.
pub fn divisors(number: u64) -> Vec<u64> {
    let small = (1..).take_while(|n| n * n <= number).filter(|&n| number.is_multiple_of(n));
    let mut all: Vec<u64> = small.flat_map(|n| [n, number / n]).collect();
    all.sort_unstable();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::divisors;

    #[test]
    fn divisors_are_all_of_them() {
        assert_eq!(divisors(12), [1, 2, 3, 4, 6, 12]);
        assert_eq!(divisors(49), [1, 7, 49]);
        assert_eq!(divisors(1), [1]);
        assert!(divisors(0).is_empty());
    }
}
