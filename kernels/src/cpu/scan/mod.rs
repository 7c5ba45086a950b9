//! Scans, whose heads carry a matrix along the sequence, and short convolutions.
//!
//! A sequence is computed in chunks of rows: within a chunk by products of matrices, between chunks by the state (Dao and Gu 2024, section
//! 6; Yang et al. 2024, Gated Delta Networks, section 3). The gradient computes the states again, in order, and then goes through the chunks
//! from the last to the first. The state is in f32, and so are all sums.
//!
//! Factors of decay between two rows are products of those of the rows between, each at most 1 in a decaying scan. No factor is a quotient,
//! and none is the exponential of a difference of sums, which cancels where decays are mixed. A row at position 0 has the factor 0, so
//! that nothing passes it.
//!
//! | tensor | shape | |
//! |---|---|---|
//! | q, k | `[b, s, g, k]` | `r` heads of values share one of `g` heads of queries and keys |
//! | v, out | `[b, s, g, r, c]` | |
//! | decay | `[b, s, g, r]` or `[b, s, g, r, k]` | logarithms |
//! | beta, rates | `[b, s, g, r]`, `[g, r, k]` | |
//! | pos | `[b, s]` | |
//! | start, end | `[b, g, r, k, c]` | states before and behind sequences, or blocks of them, each of which counts as a sequence |
//! | through | `[b, g, r]`, `[b, g, r, k]` or, with the delta rule, `[b, g, r, k, k]` | what becomes of a state |

mod backward;
mod carry;
mod chunk;
pub mod conv;
mod forward;
mod lanes;
mod pairs;
mod state;
#[cfg(test)]
mod tests;

pub use carry::Carry;

use super::matrix::Target;
use super::par::{FLOPS, Par, Rows};

/// Recurrences, by what a row adds to the state along its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recurrence {
    /// Its value.
    Linear,
    /// Beta times the difference of its value and what the state has for its key.
    Delta,
    /// Its value; the decay of a row of the state is that of the head times a rate.
    Selective,
}

/// The sizes and settings of a scan.
#[derive(Clone, Copy, Debug)]
pub struct Scan {
    /// The recurrence.
    pub kind: Recurrence,
    /// Each row of the state has a decay of its own.
    pub by_key: bool,
    /// Sequences.
    pub b: usize,
    /// Rows of a sequence.
    pub s: usize,
    /// Heads of queries and keys.
    pub g: usize,
    /// Heads of values for each of them.
    pub r: usize,
    /// Size of a query and of a key.
    pub k: usize,
    /// Size of a value.
    pub c: usize,
    /// Factor of the results.
    pub scale: f32,
    /// Rows of a chunk.
    pub chunk: usize,
}

/// Operands of a scan.
#[derive(Clone, Copy, Debug)]
pub struct Inputs<'a> {
    /// Queries.
    pub q: &'a [f32],
    /// Keys.
    pub k: &'a [f32],
    /// Values.
    pub v: &'a [f32],
    /// Logarithms of decay factors.
    pub decay: &'a [f32],
    /// Beta, or rates; empty if the kind has neither.
    pub further: &'a [f32],
    /// Positions; a row with 0 begins with a zero state.
    pub pos: &'a [i32],
    /// States before sequences; empty: 0.
    pub start: &'a [f32],
}

/// Gradients by what a scan gives.
#[derive(Clone, Copy, Debug)]
pub struct Slopes<'a> {
    /// By the results.
    pub out: &'a [f32],
    /// By the states behind sequences; empty: 0.
    pub end: &'a [f32],
}

/// The gradients of a scan.
#[derive(Debug)]
pub struct Gradients<'a> {
    /// By the queries.
    pub q: &'a mut [f32],
    /// By the keys.
    pub k: &'a mut [f32],
    /// By the values.
    pub v: &'a mut [f32],
    /// By the decays.
    pub decay: &'a mut [f32],
    /// By beta or the rates.
    pub further: &'a mut [f32],
}

/// The gradients, of which several threads write parts.
#[derive(Clone, Copy)]
struct Targets {
    q: Target,
    k: Target,
    v: Target,
    decay: Target,
    further: Target,
}

/// The place of a head: sequence, head of queries, head of values of that.
#[derive(Clone, Copy, Debug)]
struct Head {
    b: usize,
    g: usize,
    r: usize,
}

impl Scan {
    /// The results, of the sizes of the values. `scratch` grows as needed and may be reused for the next call.
    ///
    /// # Panics
    /// If a slice has not its size.
    pub fn forward(&self, x: &Inputs<'_>, out: &mut [f32], par: Par, scratch: &mut Vec<f32>) {
        self.check(x);
        assert_eq!(out.len(), x.v.len(), "results are as values");
        let out = Target(out.as_mut_ptr());
        if self.kind == Recurrence::Selective {
            let units = self.b * self.g;
            return self.share(units, lanes::scratch(self), par, scratch, &|unit, scratch| {
                // SAFETY: the results have been found long enough, and no other unit has these heads.
                unsafe { lanes::forward(self, x, [unit / self.g, unit % self.g], out, scratch) };
            });
        }
        self.share(self.b * self.g * self.r, forward::scratch(self), par, scratch, &|unit, scratch| {
            // SAFETY: as above.
            unsafe { forward::head(self, x, self.head(unit), out, scratch) };
        });
    }

    /// The gradients, given those by the results and by the states behind them. Threads share the heads of queries of all sequences, since a query and a key have a
    /// gradient of each of their heads of values.
    ///
    /// # Panics
    /// If a slice has not its size.
    pub fn backward(
        &self,
        x: &Inputs<'_>,
        by: &Slopes<'_>,
        gradients: Gradients<'_>,
        par: Par,
        scratch: &mut Vec<f32>,
    ) {
        self.check(x);
        assert!(by.end.is_empty() || by.end.len() == self.states(), "a gradient by each state");
        let sizes = [by.out, &*gradients.q, &*gradients.k, &*gradients.v, &*gradients.decay, &*gradients.further];
        let wanted = [x.v, x.q, x.k, x.v, x.decay, x.further];
        assert_eq!(sizes.map(<[f32]>::len), wanted.map(<[f32]>::len), "gradients are as operands");
        let Gradients { q, k, v, decay, further } = gradients;
        [&mut *q, &mut *k, &mut *further].into_iter().for_each(|sums| sums.fill(0.0));
        let [q, k, v, decay, further] = [q, k, v, decay, further].map(|x| Target(x.as_mut_ptr()));
        let targets = Targets { q, k, v, decay, further };
        if self.kind == Recurrence::Selective {
            // A rate has a gradient of each sequence.
            return self.share(self.g, lanes::scratch(self), par, scratch, &|g, scratch| {
                for b in 0..self.b {
                    // SAFETY: the gradients have been found long enough, and no other unit has these heads.
                    unsafe { lanes::backward(self, x, [b, g], by, targets, scratch) };
                }
            });
        }
        self.share(self.b * self.g, backward::scratch(self), par, scratch, &|unit, scratch| {
            for r in 0..self.r {
                // SAFETY: as above.
                unsafe { backward::head(self, x, self.head(unit * self.r + r), by, targets, scratch) };
            }
        });
    }

    /// The states behind sequences from zero states, and the transitions of states; queries are not read.
    ///
    /// # Panics
    /// If a slice has not its size.
    pub fn end(&self, x: &Inputs<'_>, end: &mut [f32], through: &mut [f32], par: Par, scratch: &mut Vec<f32>) {
        self.check(x);
        let wanted = [self.states(), self.b * self.g * self.r * self.transitions()];
        assert_eq!([end.len(), through.len()], wanted, "a state and a transition for each head");
        let to = [end, through].map(|x| Target(x.as_mut_ptr()));
        if self.kind == Recurrence::Selective {
            return self.share(self.b * self.g, lanes::scratch(self), par, scratch, &|unit, scratch| {
                // SAFETY: the results have been found long enough, and no other unit has these heads.
                unsafe { lanes::end(self, x, [unit / self.g, unit % self.g], to, scratch) };
            });
        }
        self.share(self.b * self.g * self.r, state::scratch(self), par, scratch, &|unit, scratch| {
            // SAFETY: as above.
            unsafe { state::head(self, x, self.head(unit), to, scratch) };
        });
    }

    /// The gradients by the states before sequences, of those by their results alone; values are not read.
    ///
    /// # Panics
    /// If a slice has not its size.
    pub fn by_start(&self, x: &Inputs<'_>, dout: &[f32], dstart: &mut [f32], par: Par, scratch: &mut Vec<f32>) {
        self.check(x);
        assert_eq!([dout.len(), dstart.len()], [x.v.len(), self.states()], "gradients are as results and states");
        let to = Target(dstart.as_mut_ptr());
        if self.kind == Recurrence::Selective {
            return self.share(self.b * self.g, lanes::scratch(self), par, scratch, &|unit, scratch| {
                // SAFETY: the results have been found long enough, and no other unit has these heads.
                unsafe { lanes::back(self, x, [unit / self.g, unit % self.g], dout, to, scratch) };
            });
        }
        self.share(self.b * self.g * self.r, state::scratch_back(self), par, scratch, &|unit, scratch| {
            // SAFETY: as above.
            unsafe { state::back(self, x, self.head(unit), dout, to, scratch) };
        });
    }

    /// Calls `work` for each unit, with scratch memory of a size for each thread.
    fn share(
        &self,
        units: usize,
        size: usize,
        par: Par,
        scratch: &mut Vec<f32>,
        work: &(impl Fn(usize, &mut [f32]) + Sync),
    ) {
        let flops = self.b * self.s * self.g * self.r * self.k * self.c * 6;
        let threads = par.threads(flops / FLOPS).min(units).max(1);
        let size = size.max(1);
        if scratch.len() < threads * size {
            scratch.resize(threads * size, 0.0);
        }
        let parts = Rows(&mut scratch[..threads * size], size);
        Par(threads).rows(threads, usize::MAX, parts, &|range, parts| {
            for (thread, scratch) in range.zip(parts.0.chunks_exact_mut(size)) {
                (thread..units).step_by(threads).for_each(|unit| work(unit, scratch));
            }
        });
    }

    fn check(&self, x: &Inputs<'_>) {
        let Scan { b, s, g, r, k, c, .. } = *self;
        let (keys, heads) = (b * s * g * k, b * s * g * r);
        let further = match self.kind {
            Recurrence::Linear => 0,
            Recurrence::Delta => heads,
            Recurrence::Selective => g * r * k,
        };
        let sizes = [keys, keys, heads * c, heads * self.decays(), further];
        assert_eq!([x.q, x.k, x.v, x.decay, x.further].map(<[f32]>::len), sizes, "q, k, v, decay, beta or rates");
        assert_eq!(x.pos.len(), b * s, "a position for each row");
        assert!(x.start.is_empty() || x.start.len() == self.states(), "a state for each head");
        assert!(self.chunk > 0, "a chunk has rows");
    }

    /// Elements of all states.
    fn states(&self) -> usize {
        self.b * self.g * self.r * self.k * self.c
    }

    /// Elements of what becomes of the state of a head.
    fn transitions(&self) -> usize {
        match self.kind {
            Recurrence::Linear => self.decays(),
            Recurrence::Delta => self.k * self.k,
            Recurrence::Selective => self.k,
        }
    }

    /// The number of a head among those of all sequences.
    fn number(&self, Head { b, g, r }: Head) -> usize {
        (b * self.g + g) * self.r + r
    }

    /// The state before the rows of a head.
    fn first(&self, x: &Inputs<'_>, head: Head, state: &mut [f32]) {
        self.state_of(x.start, head, state);
    }

    /// The state of a head among all, which are 0 if there are none.
    fn state_of(&self, states: &[f32], head: Head, state: &mut [f32]) {
        if states.is_empty() {
            return state.fill(0.0);
        }
        let size = self.k * self.c;
        state.copy_from_slice(&states[self.number(head) * size..][..size]);
    }

    /// The decays of a row of a head.
    fn decays(&self) -> usize {
        if self.by_key { self.k } else { 1 }
    }

    /// The rows of the longest chunk.
    fn rows(&self) -> usize {
        self.chunk.min(self.s)
    }

    fn head(&self, unit: usize) -> Head {
        Head { b: unit / (self.g * self.r), g: unit / self.r % self.g, r: unit % self.r }
    }

    /// The first element of a row of queries or keys.
    fn of_keys(&self, Head { b, g, .. }: Head, t: usize) -> usize {
        ((b * self.s + t) * self.g + g) * self.k
    }

    /// The number of a row of values among all rows of all heads.
    fn of_values(&self, Head { b, g, r }: Head, t: usize) -> usize {
        ((b * self.s + t) * self.g + g) * self.r + r
    }
}
