//! Expert capacity and token dropping.

use ir::graph::{Block, SectionKind};
use ir::ops::{KernelOp, Op};

/// Token routing within a routing group.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Routing {
    /// Tokens per group.
    pub tokens: u64,
    /// Experts per token.
    pub chosen: u64,
    /// Number of experts.
    pub experts: u64,
    /// Tokens per expert (capacity).
    pub capacity: u64,
}

impl Routing {
    /// Routing of a block; `None` without experts.
    pub fn of(block: &Block) -> Option<Routing> {
        let mut stmts = block[SectionKind::F].stmts.iter();
        let dispatch = stmts.find(|stmt| matches!(stmt.op, Op::Kernel(KernelOp::Dispatch(_))))?;
        // index [.., t, k], places [.., e, c, h].
        let [index, places] = [dispatch.operands[1], dispatch.results[0]]
            .map(|value| block.ty(value).dims.iter().rev().map(|dim| dim.size).collect::<Vec<u64>>());
        Some(Routing { tokens: *index.get(1)?, chosen: index[0], experts: *places.get(2)?, capacity: places[1] })
    }

    /// Fraction of the capacity that is used under uniform routing; the rest absorbs imbalance.
    pub fn filled(&self) -> f64 {
        let choices = self.tokens as f64 * self.chosen as f64;
        (choices / (self.experts as f64 * self.capacity as f64)).min(1.0)
    }

    /// Routing with the capacity of uniform routing.
    #[must_use]
    pub fn even(self) -> Routing {
        let share = (self.tokens as f64 * self.chosen as f64 / self.experts as f64).ceil();
        Routing { capacity: (share as u64).clamp(1, self.tokens.max(1)), ..self }
    }

    /// Expected fraction of dropped choices, if tokens choose independently and uniformly. X of n tokens choose an
    /// expert, binomial with probability k/E, and the expert drops the excess over its capacity C (Lepikhin et al.
    /// 2020, section 2.2): `E[max(X - C, 0)] / E[X]`.
    pub fn dropped(&self) -> f64 {
        let [n, k, experts, capacity] = [self.tokens, self.chosen, self.experts, self.capacity].map(|it| it as f64);
        if capacity >= n || k >= experts {
            return 1.0 - (capacity / n).min(1.0);
        }
        let odds = (k / (experts - k)).ln();
        let (mut log, mut more) = (n * (1.0 - k / experts).ln(), 0.0);
        for x in 1..=self.tokens {
            let x = x as f64;
            log += ((n - x + 1.0) / x).ln() + odds;
            more += (x - capacity).max(0.0) * log.exp();
        }
        more * experts / (n * k)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two tokens with one of two experts each: of an expert that takes one, both come with probability 1/4.
    #[test]
    fn drops_are_what_exceeds_the_capacity() {
        let of = |tokens, chosen, experts, capacity| Routing { tokens, chosen, experts, capacity }.dropped();
        assert!((of(2, 1, 2, 1) - 0.25).abs() < 1e-12);
        assert_eq!([of(2, 1, 2, 2), of(4, 2, 2, 1), of(4, 2, 2, 4)], [0.0, 0.75, 0.0]);
        // Many tokens: normal, of which the mean excess is sigma over the root of 2 pi.
        let (mean, share) = (256.0_f64, 8.0 / 128.0);
        let normal = (mean * (1.0 - share) / (2.0 * std::f64::consts::PI)).sqrt() / mean;
        assert!((of(4096, 8, 128, 256) / normal - 1.0).abs() < 0.01);
        assert!(of(4096, 8, 128, 320) < 1e-4);
    }

    #[test]
    fn even_experts_have_a_place_for_each_choice() {
        let all = Routing { tokens: 32, chosen: 2, experts: 8, capacity: 32 };
        assert_eq!((all.filled(), all.dropped()), (0.25, 0.0));
        let even = all.even();
        assert_eq!((even.capacity, even.filled()), (8, 1.0));
        assert!(even.dropped() > 0.1);
    }
}
