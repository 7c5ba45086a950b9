//! Communication that overlaps with compute.

use crate::enum_set::named_enum;

named_enum! {
    /// Communication that a stack may hide behind compute.
    pub enum Hidden {
        /// Collectives of tensor parallelism, behind the products next to them.
        Tp = "tp",
        /// Collectives of tensor parallelism in the backward, behind the product of the other gradient.
        TpBackward = "tp_backward",
        /// Collectives of data parallelism.
        Dp = "dp",
        /// Gathers of context parallelism, behind attention.
        Cp = "cp",
        /// Exchanges of expert parallelism.
        Ep = "ep",
        /// Messages between pipeline stages.
        PointToPoint = "p2p",
        /// The gather of updated parameters, behind the next forward.
        Update = "update",
    }
}
