//! Divisors of a number.

/// All divisors of a number, ascending; none for 0. Trial division removes prime factors as it finds them, in time up
/// to the square root of the remaining cofactor.
pub fn divisors(number: u64) -> Vec<u64> {
    if number == 0 {
        return Vec::new();
    }
    let (mut all, mut left, mut factor) = (vec![1], number, 2u64);
    while left > 1 {
        if factor.checked_mul(factor).is_none_or(|square| square > left) {
            factor = left;
        }
        let (known, mut power) = (all.len(), 1);
        while left.is_multiple_of(factor) {
            (left, power) = (left / factor, power * factor);
            all.extend_from_within(..known);
            let new = all.len() - known;
            all[new..].iter_mut().for_each(|divisor| *divisor *= power);
        }
        factor += 1;
    }
    all.sort_unstable();
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
        for number in 1..500 {
            assert_eq!(divisors(number), (1..=number).filter(|&n| number.is_multiple_of(n)).collect::<Vec<_>>());
        }
        assert_eq!(divisors(720_720).len(), 240);
        assert_eq!(divisors((1 << 32) - 5), [1, (1 << 32) - 5]);
    }
}
