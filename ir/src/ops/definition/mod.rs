//! Parts of the definitions of ops: traits, facts, attributes and equations.

pub(super) mod attr;
pub(super) mod blocks;
pub(super) mod def;
pub(super) mod equation;
pub(super) mod extras;
pub(super) mod facts;
pub(super) mod operands;
pub(super) mod piece;
pub(super) mod work;
