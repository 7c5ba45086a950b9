//! The sharding rule of a reshape: the dims of a tensor and of its reshape that have the same elements.

use std::collections::BTreeSet;
use std::ops::Range;

/// A minimal group of adjacent dims of two shapes that have the same elements.
pub(in crate::ops) struct DimGroup {
    /// The dims of the first shape.
    pub(in crate::ops) from: Range<usize>,
    /// The dims of the second shape.
    pub(in crate::ops) to: Range<usize>,
}

impl DimGroup {
    /// True if it is the same dim in both.
    pub(in crate::ops) fn is_one_dim(&self) -> bool {
        (self.from.len(), self.to.len()) == (1, 1)
    }
}

/// The groups of two shapes with equal numbers of elements, in order. A dim of size 1 that the other shape lacks is a group.
pub(in crate::ops) fn groups(from: &[u64], to: &[u64]) -> Vec<DimGroup> {
    let (mut i, mut j, mut groups) = (0, 0, Vec::new());
    while i < from.len() || j < to.len() {
        let start = (i, j);
        match (from.get(i), to.get(j)) {
            (Some(1), other) if other != Some(&1) => i += 1,
            (other, Some(1)) if other != Some(&1) => j += 1,
            (Some(&x), Some(&y)) => (i, j) = ends(from, to, (i, u128::from(x)), (j, u128::from(y))),
            _ => (i, j) = (from.len(), to.len()),
        }
        groups.push(DimGroup { from: start.0..i, to: start.1..j });
    }
    groups
}

/// The ends of the shortest ranges of dims with equal products, from two given dims on.
fn ends(from: &[u64], to: &[u64], (mut i, mut x): (usize, u128), (mut j, mut y): (usize, u128)) -> (usize, usize) {
    while x != y {
        if x < y && i + 1 < from.len() {
            i += 1;
            x *= u128::from(from[i]);
        } else if x > y && j + 1 < to.len() {
            j += 1;
            y *= u128::from(to[j]);
        } else {
            break;
        }
    }
    (i + 1, j + 1)
}

/// The sharding rule of a reshape: `m0 i0 i1 n0 -> m0 (i0 i1) n0`. Unchanged dims are m before the first change and n
/// after it. A group whose sizes have no common factors needs replication.
pub(in crate::ops) fn rule(from: &[u64], to: &[u64]) -> String {
    let mut factors = FactorNames::default();
    let [mut left, mut right] = [Vec::new(), Vec::new()];
    for group in groups(from, to) {
        let [a, b] = factors.of(&from[group.from], &to[group.to]);
        left.extend(a);
        right.extend(b);
    }
    let [left, right] = [left, right].map(|terms| if terms.is_empty() { "()".to_string() } else { terms.join(" ") });
    format!("{left} -> {right}")
}

/// The number of rule factors of each kind.
#[derive(Default)]
struct FactorNames {
    before: usize,
    changed: usize,
    behind: usize,
    whole: usize,
}

impl FactorNames {
    /// The terms of both sides of a group.
    fn of(&mut self, from: &[u64], to: &[u64]) -> [Vec<String>; 2] {
        match (from, to) {
            ([_], [_]) => {
                let name = if self.changed + self.whole == 0 {
                    number("m", &mut self.before)
                } else {
                    number("n", &mut self.behind)
                };
                [vec![name.clone()], vec![name]]
            }
            ([], to) => [Vec::new(), vec!["1".to_string(); to.len()]],
            (from, []) => [vec!["1".to_string(); from.len()], Vec::new()],
            _ => match factors(from, to) {
                Some(factors) => self.changed(from, to, &factors),
                None => [from, to].map(|side| side.iter().map(|_| number("p", &mut self.whole) + "!").collect()),
            },
        }
    }

    /// The dims of both sides as products of rule factors. A factor that is not a dim by itself states its size.
    fn changed(&mut self, from: &[u64], to: &[u64], factors: &[u64]) -> [Vec<String>; 2] {
        let names: Vec<String> = factors.iter().map(|_| number("i", &mut self.changed)).collect();
        let sides = [from, to].map(|side| parts(side, factors));
        let alone = |place: usize| sides.iter().flatten().any(|part| *part == (place..place + 1));
        let factor = |place: usize| match alone(place) {
            true => names[place].clone(),
            false => format!("{}={}", names[place], factors[place]),
        };
        let term = |part: &Range<usize>| match part.len() {
            0 => "1".to_string(),
            1 => names[part.start].clone(),
            _ => format!("({})", part.clone().map(factor).collect::<Vec<_>>().join(" ")),
        };
        [0, 1].map(|side: usize| sides[side].iter().map(term).collect())
    }
}

fn number(factor: &str, count: &mut usize) -> String {
    *count += 1;
    format!("{factor}{}", *count - 1)
}

/// The sizes of the factors whose products are the dims of both sides, if they exist.
fn factors(from: &[u64], to: &[u64]) -> Option<Vec<u64>> {
    let bounds = |sizes: &[u64]| -> Vec<u64> {
        sizes.iter().scan(1u64, |product, size| product.checked_mul(*size).inspect(|next| *product = *next)).collect()
    };
    let ends: BTreeSet<u64> = [bounds(from), bounds(to)].concat().into_iter().filter(|&end| end > 1).collect();
    let mut before = 1;
    let factor = |end: u64| {
        let start = std::mem::replace(&mut before, end);
        end.is_multiple_of(start).then_some(end / start)
    };
    ends.into_iter().map(factor).collect()
}

/// The factors of each dim.
fn parts(sizes: &[u64], factors: &[u64]) -> Vec<Range<usize>> {
    let mut next = 0;
    let part = |&size: &u64| {
        let (start, mut product) = (next, 1);
        while product < size && next < factors.len() {
            product *= factors[next];
            next += 1;
        }
        start..next
    };
    sizes.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::rule;

    #[test]
    fn dims_merge_split_come_and_go() {
        assert_eq!(rule(&[2, 3, 4, 5], &[2, 12, 5]), "m0 i0 i1 n0 -> m0 (i0 i1) n0");
        assert_eq!(rule(&[2, 12], &[2, 3, 4]), "m0 (i0 i1) -> m0 i0 i1");
        assert_eq!(rule(&[3, 4, 30], &[12, 5, 6]), "i0 i1 (i2 i3) -> (i0 i1) i2 i3");
        assert_eq!(rule(&[6, 4], &[3, 8]), "(i0 i1=2) i2 -> i0 (i1=2 i2)");
        assert_eq!(rule(&[4, 1, 8], &[4, 8]), "m0 1 m1 -> m0 m1");
        assert_eq!(rule(&[4, 8], &[1, 4, 8, 1]), "m0 m1 -> 1 m0 m1 1");
        assert_eq!(rule(&[2, 1, 3], &[6]), "i0 1 i1 -> (i0 i1)");
        assert_eq!(rule(&[4, 6], &[2, 3, 4]), "p0! p1! -> p2! p3! p4!");
        assert_eq!(rule(&[1], &[]), "1 -> ()");
    }
}
