//! The ops: one file each (or each family), stated once. `ops!` is the one list.
//!
//! They make [`KernelOp`]. The pass `decompose` replaces composite ones by graphs of others, so that each op of level 4 has a
//! kernel. A [`Collective`] moves data between ranks.

mod attention;
mod clip_factor;
mod collective;
mod definition;
mod delayed;
mod dropout;
mod einsum;
mod elementwise;
mod embedding;
mod experts;
mod jitter;
mod movement;
mod quantise;
mod reduce;
mod rope;
mod rows;
mod scan;
mod sparse;
mod update;

pub use attention::{Attention, AttentionGrad, AttentionSettings};
pub use clip_factor::ClipFactor;
pub use collective::Collective;
pub use definition::attr::{Attr, Attrs};
pub use definition::def::{Builder, Cotangents, OpDef, OpResult, Rows, Shapes};
pub use definition::equation::Equation;
pub use definition::extras::{Contraction, Extras, InRounds, Positioned, Random, RoundResult, Rounds};
pub use definition::facts::{Linear, MovedBias, Noted, OpClass, OpFacts, Routed, RoutedRows};
pub use definition::piece::Piece;
pub use definition::work::Work;
pub use delayed::{Ages, DelayedScale, EXPONENTS, Exponents};
pub use dropout::Dropout;
pub use einsum::Einsum;
pub use elementwise::{Binary, BinaryKind, Unary, UnaryKind};
pub use embedding::{Embedding, EmbeddingGrad};
pub use experts::choice_count::ChoiceCount;
pub use experts::dispatch::{Combine, CombineDw, Dispatch};
pub use experts::ragged::Ragged;
pub use experts::top_k::{GroupLimit, TopK, TopKGrad};
pub use jitter::Jitter;
pub use movement::dynamic_slice::{DynamicPad, DynamicSlice};
pub use movement::iota::Iota;
pub use movement::reverse::Reverse;
pub use movement::select::{Compare, CompareKind, Select};
pub use movement::shape::{Permute, Reshape};
pub use movement::slice::{Concat, Pad, Slice};
pub use movement::take::{ScatterAdd, Selected, Take};
pub use movement::windows::{Fold, Frame, Windows};
pub use quantise::{AbsMax, Quantise, ScaleFor};
pub use reduce::{Broadcast, Reduce};
pub use rope::{Beyond, Rope, Scaling};
pub use rows::cross_entropy::{CrossEntropy, CrossEntropyGrad};
pub use rows::layer_norm::{LayerNorm, LayerNormDgamma, LayerNormDx};
pub use rows::rms_norm::{RmsNorm, RmsNormDgamma, RmsNormDx};
pub use rows::softmax::{Softmax, SoftmaxGrad};
pub use rows::vocabulary::{Pick, SumExp, TokenLoss};
pub use scan::{Carry, Scan, ScanDstart, ScanGrad, ScanKind, ScanSettings, ScanState};
pub use scan::{ShortConv, ShortConvDstart, ShortConvDw, ShortConvDx};
pub use sparse::attention::{SparseAttention, SparseAttentionGrad};
pub use sparse::index_loss::{IndexLoss, IndexLossGrad};
pub use sparse::index_scores::{IndexScores, IndexScoresGrad};
pub use sparse::key_mass::KeyMass;
pub use sparse::select_keys::SelectKeys;
pub use update::{AdamW, Sgd, SumSquares};

use crate::types::Type;
use definition::operands;

macro_rules! ops {
    (kernels { $($op:ident),* $(,)? } composites { $($composite:ident),* $(,)? }) => {
        /// An op that computes. It has a kernel, unless it is composite.
        #[derive(Clone, PartialEq, Debug)]
        pub enum KernelOp {
            $(#[doc = concat!("See [`", stringify!($op), "`].")] $op($op),)*
            /// An op without a kernel.
            Composite(CompositeOp),
        }

        /// An op without a kernel: the pass `decompose` always replaces it by the graph of [`OpDef::expand`].
        #[derive(Clone, PartialEq, Debug)]
        pub enum CompositeOp { $(#[doc = concat!("See [`", stringify!($composite), "`].")] $composite($composite)),* }

        impl KernelOp {
            /// The definition of the op.
            pub fn def(&self) -> &dyn OpDef {
                match self {
                    $(KernelOp::$op(op) => op,)*
                    $(KernelOp::Composite(CompositeOp::$composite(op)) => op),*
                }
            }
        }

        $(impl From<$op> for Op {
            fn from(op: $op) -> Op { Op::Kernel(KernelOp::$op(op)) }
        })*

        $(impl From<$composite> for Op {
            fn from(op: $composite) -> Op { Op::Kernel(KernelOp::Composite(CompositeOp::$composite(op))) }
        })*

        /// The names of all ops that are not collectives, in the order of the list.
        pub fn names() -> Vec<&'static str> {
            [kernel_names(), composite_names()].concat()
        }

        /// The names of the ops that have a kernel, in the order of the list.
        pub fn kernel_names() -> Vec<&'static str> {
            let lists: &[&[&'static str]] = &[$($op::NAMES),*];
            lists.concat()
        }

        /// The names of composite ops, in the order of the list.
        pub fn composite_names() -> Vec<&'static str> {
            let lists: &[&[&'static str]] = &[$($composite::NAMES),*];
            lists.concat()
        }

        fn parse_listed(name: &str, attrs: &mut Attrs, shapes: &Shapes<'_>) -> Option<Result<Op, String>> {
            $(if $op::NAMES.contains(&name) { return Some($op::parse(name, attrs, shapes).map(Op::from)); })*
            $(if $composite::NAMES.contains(&name) { return Some($composite::parse(name, attrs, shapes).map(Op::from)); })*
            None
        }
    };
}

ops! {
    kernels {
        Einsum, Unary, Binary, Reduce, Broadcast,
        Permute, Reshape, Slice, Concat, Pad, Reverse, Windows, Fold,
        Take, ScatterAdd, DynamicSlice, DynamicPad, Compare, Select, Iota,
        RmsNorm, RmsNormDx, RmsNormDgamma, LayerNorm, LayerNormDx, LayerNormDgamma,
        Softmax, SoftmaxGrad, Rope, Attention, AttentionGrad, Dropout, Jitter,
        Embedding, EmbeddingGrad, CrossEntropy, CrossEntropyGrad, SumExp, Pick, TokenLoss,
        Scan, ScanGrad, ScanState, ScanDstart, Carry, ShortConv, ShortConvDx, ShortConvDw, ShortConvDstart,
        TopK, TopKGrad, Dispatch, Combine, CombineDw,
        SelectKeys, IndexScores, IndexScoresGrad, SparseAttention, SparseAttentionGrad, KeyMass, IndexLoss, IndexLossGrad,
        AbsMax, ScaleFor, Quantise, Exponents, Ages, DelayedScale, SumSquares, AdamW, Sgd,
    }
    composites {
        ClipFactor, ChoiceCount,
    }
}

/// The operation of a statement.
#[derive(Clone, PartialEq, Debug)]
pub enum Op {
    /// An op that computes.
    Kernel(KernelOp),
    /// Moves or regroups data between ranks.
    Collective(Collective),
    /// From the operand's sharding to the stated one; the pass `collectives` replaces it by collectives.
    Reshard,
}

impl Op {
    /// Parses an op from its name and attributes; removes from `attrs` those that it uses.
    ///
    /// # Errors
    /// An unknown name, a missing or ill-typed attribute.
    pub fn parse(name: &str, attrs: &mut Attrs, shapes: &Shapes<'_>) -> Result<Op, String> {
        if name == "reshard" {
            return Ok(Op::Reshard);
        }
        if let Some(collective) = Collective::parse(name, attrs) {
            return collective.map(Op::Collective);
        }
        parse_listed(name, attrs, shapes).unwrap_or_else(|| Err(format!("there is no op `{name}`")))
    }

    /// The definition of the op; `None` for reshards, which [`Collective`] defines.
    pub fn def(&self) -> Option<&dyn OpDef> {
        match self {
            Op::Kernel(op) => Some(op.def()),
            Op::Collective(_) | Op::Reshard => None,
        }
    }

    /// The op, if it has a kernel: collectives, reshards and composite ops have none.
    pub fn kernel(&self) -> Option<&KernelOp> {
        match self {
            Op::Kernel(KernelOp::Composite(_)) | Op::Collective(_) | Op::Reshard => None,
            Op::Kernel(op) => Some(op),
        }
    }

    /// True if it has no kernel, and is always replaced by a graph of other ops.
    pub fn is_composite(&self) -> bool {
        matches!(self, Op::Kernel(KernelOp::Composite(_)))
    }

    /// Its facts; those of collectives and reshards are the defaults.
    pub fn facts(&self) -> OpFacts {
        self.def().map_or_else(OpFacts::default, |def| def.facts())
    }

    /// Its abilities that few ops have; collectives and reshards have none.
    pub fn extras(&self) -> Extras<'_> {
        self.def().map_or_else(Extras::default, |def| def.extras())
    }

    /// The name in the text form.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Collective(collective) => collective.name(),
            Op::Reshard => "reshard",
            Op::Kernel(op) => op.def().name(),
        }
    }

    /// The attributes in the text form.
    pub fn attrs(&self) -> Vec<(&'static str, Attr)> {
        match self {
            Op::Collective(collective) => collective.attrs(),
            Op::Reshard => Vec::new(),
            Op::Kernel(op) => op.def().attrs(),
        }
    }

    /// The logical types of the results. A reshard keeps the logical type.
    ///
    /// # Errors
    /// The op does not accept the operands.
    pub fn infer(&self, operands: &[&Type]) -> Result<Vec<Type>, String> {
        match self.def() {
            Some(def) => def.infer(operands),
            None => {
                let moved = if let Op::Collective(collective) = self { collective.moved(operands) } else { operands };
                Ok(moved.iter().map(|ty| ty.logical()).collect())
            }
        }
    }
}
