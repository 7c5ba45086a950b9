//! Overlapped pairs as pieces, so that results for sequential operations also hold for pairs.
//!
//! A pair that starts at s keeps its rank busy from s to s + fb. It is split into three pieces: of its F from s on, of its B
//! (or I) from s + `offset` on, and of the W right after that of the I. Together the pieces are no longer than fb, and no piece
//! is longer than its operation alone. So pieces never overlap, in a pair or not. Every result proved for operations of the
//! pieces' lengths holds for all orders. Only the results of a pair arrive after its pieces end.

use super::shop::Shop;

/// The pieces of all operations, and the pairs that are possible.
#[derive(Clone, Debug)]
pub(super) struct Pieces {
    /// For each F the B or I with which it may overlap.
    pub(super) partners: Vec<Vec<usize>>,
    /// Length of each operation's piece, in units; the full length if the operation is in no possible pair.
    pub(super) long: Vec<i64>,
    /// Units from the start of a pair to the start of the operation's piece.
    pub(super) offset: Vec<i64>,
    /// True for operations that may be in a pair.
    pub(super) may: Vec<bool>,
    /// The I in no pair whose W [`Pieces::newly_alone`] has returned already.
    told: Vec<bool>,
}

impl Pieces {
    /// Builds the pieces with all pairs of a shop.
    pub(super) fn of(shop: &Shop) -> Pieces {
        let size = shop.len();
        let (long, offset, may, told) = (shop.long.clone(), vec![0; size], vec![false; size], vec![false; size]);
        let mut pieces = Pieces { partners: shop.partners.clone(), long, offset, may, told };
        pieces.cut(shop);
        pieces
    }

    /// Drops the impossible pairs of F and backward, and returns whether there were any.
    pub(super) fn drop(&mut self, shop: &Shop, cannot: impl Fn(usize, usize) -> bool) -> bool {
        let mut partners = self.partners.clone();
        for (forward, partners) in partners.iter_mut().enumerate() {
            partners.retain(|&backward| !cannot(forward, backward));
        }
        let dropped = partners != self.partners;
        if dropped {
            self.partners = partners;
            self.cut(shop);
        }
        dropped
    }

    /// Splits the possible pairs: the full F if it fits, then as much of B or I as is left, then of W.
    fn cut(&mut self, shop: &Shop) {
        let Some(pair) = shop.pair else { return };
        self.long.clone_from(&shop.long);
        self.offset.fill(0);
        self.may.fill(false);
        let mut backwards = Vec::new();
        for (forward, partners) in self.partners.iter().enumerate().filter(|(_, partners)| !partners.is_empty()) {
            self.may[forward] = true;
            self.long[forward] = shop.long[forward].min(pair);
            for &backward in partners {
                self.offset[backward] = self.offset[backward].max(self.long[forward]);
                backwards.extend((!self.may[backward]).then_some(backward));
                self.may[backward] = true;
            }
        }
        for backward in backwards {
            self.long[backward] = shop.long[backward].min(pair - self.offset[backward]);
            if let Some(weights) = shop.weights[backward] {
                self.may[weights] = true;
                self.offset[weights] = self.offset[backward] + self.long[backward];
                self.long[weights] = shop.long[weights].min(pair - self.offset[weights]);
            }
        }
    }

    /// Returns the W of the I that are in no possible pair, each once.
    pub(super) fn newly_alone(&mut self, shop: &Shop) -> Vec<usize> {
        let found: Vec<usize> = (0..shop.len())
            .filter(|&index| shop.weights[index].is_some() && !self.may[index] && !self.told[index])
            .collect();
        found.iter().for_each(|&index| self.told[index] = true);
        found.into_iter().filter_map(|index| shop.weights[index]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Instance;
    use super::*;
    use crate::costs::StageCosts;
    use crate::placement::{Pipeline, Placement};
    use crate::problem::{Backward, Objective, Problem};

    fn shop(fb: f64) -> Shop {
        let costs = StageCosts { fb: Some(fb), ..StageCosts::uniform(1, 2.0, 3.0, 4.0, 0.0) };
        let pipeline = Pipeline::new(Placement::Chain, 1, 2);
        let (objective, backward, deadline) = (Objective::Makespan, Backward::Auto, None);
        let problem = Problem { costs: &costs, pipeline: &pipeline, objective, backward, deadline };
        Shop::new(&problem, &Instance::new(&problem), 100.0)
    }

    /// The operations are F0 I0 W0 F1 I1 W1: only F1 and I0 can be a pair.
    #[test]
    fn a_pair_is_cut_from_its_end() {
        for (fb, long, offset) in [(7.0, [3, 2, 2], [2, 5]), (4.0, [2, 0, 2], [2, 4]), (1.0, [0, 0, 1], [1, 1])] {
            let shop = shop(fb);
            let mut pieces = Pieces::of(&shop);
            assert_eq!(pieces.partners[3], [1]);
            assert_eq!([pieces.long[1], pieces.long[2], pieces.long[3]], long);
            assert_eq!([pieces.offset[1], pieces.offset[2]], offset);
            assert_eq!(pieces.newly_alone(&shop), [5]);
            assert!(pieces.drop(&shop, |_, _| true));
            assert_eq!(pieces.newly_alone(&shop), [2]);
            assert_eq!(pieces.long, shop.long);
        }
    }

    #[test]
    fn what_saves_nothing_is_no_pair() {
        assert_eq!(shop(9.0).pair, None);
    }
}
