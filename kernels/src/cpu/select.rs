//! Elementwise comparisons and selections.

/// 1 where `holds`, else 0.
///
/// # Panics
/// If the operands have fewer elements than `out`.
pub fn compare<T: Copy>(a: &[T], b: &[T], out: &mut [i32], holds: impl Fn(T, T) -> bool) {
    let pairs = a[..out.len()].iter().zip(&b[..out.len()]);
    out.iter_mut().zip(pairs).for_each(|(out, (&a, &b))| *out = i32::from(holds(a, b)));
}

/// `a` where the mask is not 0 (is 0, with `not`), else `b`, or 0 where there is none.
///
/// # Panics
/// If an operand has fewer elements than `out`.
pub fn select(mask: &[i32], not: bool, a: &[f32], b: Option<&[f32]>, out: &mut [f32]) {
    let mask = &mask[..out.len()];
    for (place, (out, &mask)) in out.iter_mut().zip(mask).enumerate() {
        *out = if (mask != 0) != not { a[place] } else { b.map_or(0.0, |b| b[place]) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chooses_by_what_holds() {
        let (a, b) = ([1.0, f32::NAN, 3.0], [2.0, 2.0, 3.0]);
        let mut mask = [7; 3];
        compare(&a, &b, &mut mask, |a, b| a < b);
        assert_eq!(mask, [1, 0, 0]);
        compare(&[3, 4, 5], &[3, 5, 4], &mut mask, |a, b| a <= b);
        assert_eq!(mask, [1, 1, 0]);
        let mut out = [0.5; 3];
        select(&mask, false, &[1.0, 2.0, 3.0], Some(&b), &mut out);
        assert_eq!(out, [1.0, 2.0, 3.0]);
        select(&mask, true, &[1.0, 2.0, 3.0], None, &mut out);
        assert_eq!(out, [0.0, 0.0, 3.0]);
    }
}
