//! The schedule DualPipe: its timeline, and its rows, which DualPipeV shares.

use super::{ScheduleError, chimera, dualpipe_v};
use crate::actions::with_step_end;
use crate::costs::StageCosts;
use crate::placement::Pipeline;
use ir::schedule::{Action, Item, Kind, Schedule};
use std::collections::VecDeque;

/// DualPipe (DeepSeek-V3, arXiv 2412.19437, section 3.2.1, and its published code): two chains in opposite directions
/// over the same ranks, each with its own copy of the parameters; forwards of one direction overlap backwards of the
/// other, `(a|b)`. Every rank holds p + 1 activations.
///
/// Four ranks, eight micro-batches, f = i = w = 1:
/// ```text
/// time 0 to 10
/// rank 0  0F0------ 0F1------ 0F2------ 3F4------ 3I4------ 3W4------ 3F5------ (0F3|3B5)--------------------
/// rank 1  ......... 1F0------ 2F4------ 1F1------ 2F5------ 1F2------ 2B4---------------- (2F6|1B0)-----------
/// rank 2  ......... 1F4------ 2F0------ 1F5------ 2F1------ 1F6------ 2B0---------------- (2F2|1B4)-----------
/// rank 3  0F4------ 0F5------ 0F6------ 3F0------ 3I0------ 3W0------ 3F1------ (0F7|3B1)--------------------
/// time 10 to 20
/// rank 0  ......... (3F6|0B0)-------------------- 3B6---------------- ......... (3F7|0B1)--------------------
/// rank 1  --------- (1F3|2B5)-------------------- (2F7|1B1)-------------------- 2B6---------------- 1B2-------
/// rank 2  --------- (1F7|2B1)-------------------- (2F3|1B5)-------------------- 2B2---------------- 1B6-------
/// rank 3  ......... (3F2|0B4)-------------------- 3B2---------------- ......... (3F3|0B5)--------------------
/// time 20 to 26
/// rank 0  3B7---------------- 0I2------ 0W2------ 0I3------ 0W3------
/// rank 1  --------- ......... 2I7------ 1I3------ 2W7------ 1W3------
/// rank 2  --------- ......... 2I3------ 1I7------ 2W3------ 1W7------
/// rank 3  3B3---------------- 0I6------ 0W6------ 0I7------ 0W7------
/// ```
pub(super) fn dualpipe(_: &StageCosts, pipeline: &Pipeline) -> Result<Schedule, ScheduleError> {
    let Pipeline { ranks, microbatches, .. } = *pipeline;
    let half = microbatches / 2;
    let rows = (0..ranks)
        .map(|rank| {
            let upper = u32::from(rank >= ranks / 2);
            let steps = Steps::new(ranks / 2, rank.min(ranks - 1 - rank), half, |kind, phase, k| {
                let up = phase != upper;
                Item::new(kind, if up { ranks - 1 - rank } else { rank }, if up { half + k } else { k })
            });
            with_step_end(steps.row())
        })
        .collect();
    Ok(Schedule { name: "dualpipe".into(), rows })
}

/// Checks that both directions have whole ranks and micro-batches, and reach their steady state.
pub(super) fn accepts(pipeline: &Pipeline) -> Result<(), ScheduleError> {
    chimera::accepts(pipeline)?;
    dualpipe_v::accepts(pipeline)
}

/// Checks that there are enough micro-batches for the steady state.
pub(super) fn enough(ranks: u32, least: u32, microbatches: u32) -> Result<(), ScheduleError> {
    if microbatches >= least {
        Ok(())
    } else {
        Err(ScheduleError::Microbatches { ranks, least, microbatches, instead: None })
    }
}

/// The eight steps of a rank, as in DeepSeek's code. A rank has two phases, each with its own micro-batches: phase 0 is the one
/// whose forwards reach the rank first. P is the number of ranks to the turn or the middle, h the index of this rank among
/// them, and n the number of micro-batches of each phase:
/// 1. 2(P-1-h) times F of phase 0;
/// 2. h+1 times F of phase 0, F of phase 1;
/// 3. P-1-h times I of phase 1, a W, F of phase 1;
/// 4. n-2P+h+1 times F of phase 0 over B of phase 1, F of phase 1 over B of phase 0;
/// 5. P-1-h times B of phase 1, F of phase 1 over B of phase 0;
/// 6. h+1 times a backward of phase 1, then of phase 0: B in the first half of these, I in the second;
/// 7. P-1-h times a W, I of phase 0;
/// 8. h+1 times a W.
pub(super) struct Steps<Make> {
    /// Number P of ranks.
    length: u32,
    /// Index h of this rank.
    place: u32,
    /// Number n of micro-batches of each phase.
    microbatches: u32,
    /// Makes the item of a kind and phase, for the k-th micro-batch of the phase.
    make: Make,
    row: Vec<Action>,
    /// Numbers of F, and of B or I, issued per phase.
    forwards: [u32; 2],
    backwards: [u32; 2],
    /// The delayed W.
    late: VecDeque<Item>,
}

impl<Make: Fn(Kind, u32, u32) -> Item> Steps<Make> {
    pub(super) fn new(length: u32, place: u32, microbatches: u32, make: Make) -> Steps<Make> {
        let (row, late) = (Vec::new(), VecDeque::new());
        Steps { length, place, microbatches, make, row, forwards: [0; 2], backwards: [0; 2], late }
    }

    /// Returns the row, without R, N and U.
    pub(super) fn row(mut self) -> Vec<Action> {
        let (outer, inner) = (self.length - 1 - self.place, self.place + 1);
        for _ in 0..2 * outer {
            self.forward(0);
        }
        for _ in 0..inner {
            self.forward(0);
            self.forward(1);
        }
        for _ in 0..outer {
            self.split(1);
            self.weight();
            self.forward(1);
        }
        for time in 0..self.microbatches + inner - 2 * self.length {
            // The innermost rank gets its first gradient from itself: its F must end before this B can begin.
            if time == 0 && outer == 0 {
                self.forward(0);
                self.whole(1);
            } else {
                self.overlapped(0);
            }
            self.overlapped(1);
        }
        for _ in 0..outer {
            self.whole(1);
            self.overlapped(1);
        }
        self.cool_down(inner);
        for _ in 0..outer {
            self.weight();
            self.split(0);
        }
        for _ in 0..inner {
            self.weight();
        }
        self.row
    }

    /// The second half of these backwards is split, so that the neighbours get their gradients sooner.
    fn cool_down(&mut self, times: u32) {
        for backward in 0..2 * times {
            let phase = 1 - backward % 2;
            if backward < times { self.whole(phase) } else { self.split(phase) }
        }
    }

    fn next_forward(&mut self, phase: u32) -> Item {
        let k = &mut self.forwards[phase as usize];
        *k += 1;
        (self.make)(Kind::F, phase, *k - 1)
    }

    fn next_backward(&mut self, kind: Kind, phase: u32) -> Item {
        let k = &mut self.backwards[phase as usize];
        *k += 1;
        (self.make)(kind, phase, *k - 1)
    }

    fn forward(&mut self, phase: u32) {
        let f = self.next_forward(phase);
        self.row.push(Action::One(f));
    }

    fn whole(&mut self, phase: u32) {
        let b = self.next_backward(Kind::B, phase);
        self.row.push(Action::One(b));
    }

    /// Issues F of this phase with B of the other phase.
    fn overlapped(&mut self, phase: u32) {
        let pair = Action::Pair(self.next_forward(phase), self.next_backward(Kind::B, 1 - phase));
        self.row.push(pair);
    }

    /// Issues I, and delays its W.
    fn split(&mut self, phase: u32) {
        let i = self.next_backward(Kind::I, phase);
        self.row.push(Action::One(i));
        self.late.push_back(Item { kind: Kind::W, ..i });
    }

    /// Issues the W that was delayed first.
    fn weight(&mut self) {
        self.row.extend(self.late.pop_front().map(Action::One));
    }
}
