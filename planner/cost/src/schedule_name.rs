//! Names of pipeline schedules, as stacks list those that they support.

use crate::enum_set::named_enum;

named_enum! {
    /// Pipeline schedule of `meshwright schedules`.
    pub enum ScheduleName {
        /// All forwards, then all backwards.
        GPipe = "gpipe",
        /// One forward, one backward.
        OneFOneB = "1f1b",
        /// One forward, one backward, with forwards ahead of their messages.
        EagerOneFOneB = "eager-1f1b",
        /// One forward, one backward, with several stages on a rank.
        InterleavedOneFOneB = "interleaved-1f1b",
        /// All micro-batches through one stage of a rank before its next stage.
        LoopedBfs = "looped-bfs",
        /// Zero bubble with the memory of 1F1B.
        ZbH1 = "zb-h1",
        /// Zero bubble with twice the memory of 1F1B.
        ZbH2 = "zb-h2",
        /// Zero bubble with several stages on a rank.
        InterleavedZb = "interleaved-zb",
        /// Micro-batches from both ends, with two copies of the model.
        DualPipe = "dualpipe",
        /// DualPipe with one copy of the model, folded into a V.
        DualPipeV = "dualpipe-v",
        /// Two pipelines in opposite directions.
        Chimera = "chimera",
        /// One forward, one backward, of slices of sequences.
        SlicedOneFOneB = "seq1f1b",
        /// Interleaved stages in groups of micro-batches.
        GroupedInterleaved = "grouped-interleaved",
        /// Stages of a rank in waves.
        Hanayo = "hanayo",
        /// Zero bubble by search.
        ZbAuto = "zb-auto",
        /// Zero bubble, with two stages on a rank in a V.
        ZbV = "zb-v",
        /// The greedy schedule of zero bubble in a V.
        ZbVGreedy = "zb-v-greedy",
        /// A V with half of the memory.
        VHalf = "v-half",
        /// A V with the least memory.
        VMin = "v-min",
        /// One forward, one backward, in a V.
        OneFOneBV = "1f1b-v",
        /// A V by search, within a memory limit.
        VAuto = "v-auto",
        /// The shortest schedule, by a solver.
        Optimal = "optimal",
    }
}
