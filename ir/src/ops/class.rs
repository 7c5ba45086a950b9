//! The class of an op: what passes that treat some ops differently ask for, in place of names.

/// The class of an op.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpClass {
    /// A contraction of tensors.
    Product,
    /// Attention or its gradient. Dims 1 and 2 of its large results are the sequence and the heads, which are independent.
    Attention,
    /// A norm of rows.
    Norm,
    /// A nonlinear function of one value, or a product with one, as feed-forward nets have between their matrices.
    Activation,
    /// All else.
    Other,
}
