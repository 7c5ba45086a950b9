//! Typed ids. Each prints as it is written in the text form's comments: `axis0`, `v3`.

use cranelift_entity::entity_impl;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident $prefix:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u32);
        entity_impl!($name, $prefix);
    )*};
}

ids! {
    /// An atomic axis of the mesh.
    AxisId "axis";
    /// A named dim of the `dims` table.
    DimId "dim";
    /// A declared parameter (an array of them where it is repeated).
    ParamId "param";
    /// A distinct block.
    BlockId "block";
    /// A value inside a block or the step graph.
    Value "v";
    /// A value of the model: an input, or what a call yields.
    ModelValue "x";
    /// A body of a program.
    BodyId "body";
    /// A register of a program's row.
    Reg "r";
    /// A token of a started transfer.
    Token "t";
}
