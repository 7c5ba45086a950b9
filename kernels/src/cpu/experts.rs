//! Dispatch of tokens to experts and combination of the results, within routing groups.
//!
//! A group's choices are assigned to the experts in order: by token, and within a token by choice. An expert accepts
//! `capacity` choices and drops later ones. If the rank has a shard of the experts, `origin` is the shard's first expert.

use super::par::{Par, Rows};
use super::simd::{simd, sum2};

/// The choices of tokens, and the sizes of groups and experts.
#[derive(Clone, Copy, Debug)]
pub struct Routing<'a> {
    /// The expert of each choice `[groups, tokens, choices]`.
    pub index: &'a [i32],
    /// The weight of each choice; 1 where there are none.
    pub weights: Option<&'a [f32]>,
    /// Tokens of a group.
    pub tokens: usize,
    /// Choices of a token.
    pub choices: usize,
    /// Experts that are here.
    pub experts: usize,
    /// The first of them.
    pub origin: i64,
    /// Tokens of a group that an expert takes.
    pub capacity: usize,
}

impl<'a> Routing<'a> {
    fn groups(&self) -> usize {
        self.index.len() / (self.tokens * self.choices).max(1)
    }

    /// Elements of a tensor of tokens, and of one of experts' rows, in a group.
    fn sizes(&self, h: usize) -> [usize; 2] {
        [self.tokens * h, self.experts * self.capacity * h]
    }

    /// Calls `visit` with each choice of a group that is taken here and its row among those of the experts; counts all that
    /// chose each expert.
    fn deal(&self, group: usize, count: &mut [i32], mut visit: impl FnMut(usize, usize)) {
        count.fill(0);
        let choices = self.tokens * self.choices;
        for (choice, &expert) in (group * choices..).zip(&self.index[group * choices..(group + 1) * choices]) {
            let here = usize::try_from(i64::from(expert) - self.origin).ok().filter(|&expert| expert < self.experts);
            let Some(expert) = here else { continue };
            let place = count[expert] as usize;
            count[expert] += 1;
            if place < self.capacity {
                visit(choice, expert * self.capacity + place);
            }
        }
    }

    fn weight(&self, choice: usize) -> f32 {
        self.weights.map_or(1.0, |weights| weights[choice])
    }

    /// The row of a choice's token within its group.
    fn token(&self, choice: usize) -> usize {
        choice / self.choices % self.tokens
    }

    /// # Panics
    /// If the numbers of groups of slices and choices differ.
    fn check(&self, h: usize, tokens: usize, rows: usize, count: usize) {
        let (groups, [token, row]) = (self.groups(), self.sizes(h));
        assert_eq!((tokens, rows), (groups * token, groups * row), "rows of h elements for tokens and experts");
        assert_eq!(count, groups * self.experts, "a number for each expert of a group");
    }
}

/// The rows of `x [groups, tokens, h]` that each expert takes, times their weights, then zeros:
/// `out [groups, experts, capacity, h]`. `count [groups, experts]`: how many choices there were.
///
/// # Panics
/// If the sizes do not agree.
pub fn dispatch(x: &[f32], h: usize, routing: &Routing<'_>, out: &mut [f32], count: &mut [i32], par: Par) {
    routing.check(h, x.len(), out.len(), count.len());
    let [token, row] = routing.sizes(h);
    let parts = (Rows(x, token), Rows(out, row), Rows(count, routing.experts));
    par.rows(routing.groups(), row, parts, &|groups, (x, out, count)| {
        out.0.fill(0.0);
        for (i, group) in groups.enumerate() {
            let (x, out) = (&x.0[i * token..], &mut out.0[i * row..]);
            routing.deal(group, &mut count.0[i * count.1..(i + 1) * count.1], |choice, place| {
                let from = routing.token(choice) * h;
                add_scaled(&x[from..from + h], routing.weight(choice), &mut out[place * h..(place + 1) * h]);
            });
        }
    });
}

/// The transpose of [`dispatch`]: of each token the sum of its rows of `y [groups, experts, capacity, h]`, times the weights.
/// `count [groups, experts]` is scratch.
///
/// # Panics
/// If the sizes do not agree.
pub fn combine(y: &[f32], h: usize, routing: &Routing<'_>, out: &mut [f32], count: &mut [i32], par: Par) {
    routing.check(h, out.len(), y.len(), count.len());
    let [token, row] = routing.sizes(h);
    let parts = (Rows(y, row), Rows(out, token), Rows(count, routing.experts));
    par.rows(routing.groups(), row, parts, &|groups, (y, out, count)| {
        out.0.fill(0.0);
        for (i, group) in groups.enumerate() {
            let (y, out) = (&y.0[i * row..], &mut out.0[i * token..]);
            routing.deal(group, &mut count.0[i * count.1..(i + 1) * count.1], |choice, place| {
                let to = routing.token(choice) * h;
                add_scaled(&y[place * h..(place + 1) * h], routing.weight(choice), &mut out[to..to + h]);
            });
        }
    });
}

/// The gradient of both by the weights: of each choice the product of its token's row of `x` and its row of `y`; 0 where it
/// is dropped. `count [groups, experts]` is scratch.
///
/// # Panics
/// If the sizes do not agree.
pub fn combine_dw(x: &[f32], y: &[f32], h: usize, routing: &Routing<'_>, out: &mut [f32], count: &mut [i32], par: Par) {
    routing.check(h, x.len(), y.len(), count.len());
    assert_eq!(out.len(), routing.index.len(), "a number for each choice");
    let ([token, row], choices) = (routing.sizes(h), routing.tokens * routing.choices);
    let parts = (Rows(x, token), Rows(y, row), Rows(out, choices), Rows(count, routing.experts));
    par.rows(routing.groups(), row, parts, &|groups, (x, y, out, count)| {
        out.0.fill(0.0);
        let first = groups.start;
        for (i, group) in groups.enumerate() {
            let (x, y) = (&x.0[i * token..], &y.0[i * row..]);
            routing.deal(group, &mut count.0[i * count.1..(i + 1) * count.1], |choice, place| {
                let from = routing.token(choice) * h;
                out.0[choice - first * choices] = dot(&x[from..from + h], &y[place * h..(place + 1) * h]);
            });
        }
    });
}

simd! {
    fn add_scaled(x: &[f32], by: f32, out: &mut [f32]) {
        for (out, &x) in out.iter_mut().zip(x) {
            *out += by * x;
        }
    }

    fn dot(x: &[f32], y: &[f32]) -> f32 {
        sum2(x, y, #[inline(always)] |x, y| x * y)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{integers, normals};
    use super::*;

    /// `sum of out . dispatch(x)` is `sum of x . combine(out)`: they are transposes, and threads change nothing.
    #[test]
    fn combine_is_the_transpose_of_dispatch() {
        let (groups, tokens, choices, experts, capacity, h) = (600, 6, 2, 4, 3, 40);
        let index = integers(groups * tokens * choices, 1, 0, experts as i32 + 2);
        let weights = normals(index.len(), 2);
        let routing = Routing { index: &index, weights: Some(&weights), tokens, choices, experts, origin: 1, capacity };
        let (x, y) = (normals(groups * tokens * h, 3), normals(groups * experts * capacity * h, 4));
        let (mut sent, mut back, mut dw) = (y.clone(), x.clone(), weights.clone());
        let mut count = vec![7; groups * experts];
        dispatch(&x, h, &routing, &mut sent, &mut count, Par(2));
        let taken = count.clone();
        combine(&y, h, &routing, &mut back, &mut count, Par(2));
        combine_dw(&x, &y, h, &routing, &mut dw, &mut count, Par(2));
        assert_eq!(taken, count);
        assert!(count.iter().any(|&n| n as usize > capacity), "nothing is dropped");
        let product = |a: &[f32], b: &[f32]| -> f64 { a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum() };
        let (there, home, by_weight) = (product(&sent, &y), product(&x, &back), product(&weights, &dw));
        assert!((there - home).abs() < 1e-2 && (there - by_weight).abs() < 1e-2, "{there} {home} {by_weight}");
        let (mut alone, mut count) = (sent.clone(), count);
        dispatch(&x, h, &routing, &mut alone, &mut count, Par(1));
        assert_eq!(alone, sent);
    }

    #[test]
    fn a_full_expert_drops_the_later_tokens() {
        let routing =
            Routing { index: &[5, 5, 5], weights: None, tokens: 3, choices: 1, experts: 1, origin: 5, capacity: 2 };
        let (mut out, mut count) = ([0.0; 2], [0]);
        dispatch(&[1.0, 2.0, 3.0], 1, &routing, &mut out, &mut count, Par(1));
        assert_eq!((out, count), ([1.0, 2.0], [3]));
        let mut back = [0.0; 3];
        combine(&out, 1, &routing, &mut back, &mut count, Par(1));
        assert_eq!(back, [1.0, 2.0, 0.0]);
    }
}
