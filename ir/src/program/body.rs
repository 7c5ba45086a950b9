//! The bodies of a program: what they compute, and from what.

use crate::arena::{ALIGNMENT, Frame, SavedLayout, SavedTensor};
use crate::fused::Fused;
use crate::graph::{SectionKind, Stmt, ValueData};
use crate::ids::{BlockId, Token, Value};
use crate::mesh::Mesh;
use crate::ops::Collective;
use crate::types::Type;
use cranelift_entity::PrimaryMap;
use std::collections::BTreeMap;

/// The part of the step that a body computes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum BodyKind {
    /// Parameters of a block that stay gathered, once a step.
    G,
    /// Forward of a block.
    F,
    /// Input gradient of a block.
    I,
    /// Weight gradient of a block.
    W,
    /// I and W in one: the computation of W hides the collectives of I.
    B,
    /// The part of `U` before the step graph: reductions and the block's share of the norm.
    R,
    /// The step graph.
    N,
    /// The part of `U` after the step graph.
    U,
}

impl BodyKind {
    /// The sections of the block that it comes from, in order; none for the step graph.
    pub fn sections(self) -> &'static [SectionKind] {
        match self {
            BodyKind::G => &[SectionKind::G],
            BodyKind::F => &[SectionKind::F],
            BodyKind::I => &[SectionKind::I],
            BodyKind::W => &[SectionKind::W],
            BodyKind::B => &[SectionKind::I, SectionKind::W],
            BodyKind::R | BodyKind::U => &[SectionKind::U],
            BodyKind::N => &[],
        }
    }

    /// True if it runs once per micro-batch.
    pub fn per_microbatch(self) -> bool {
        matches!(self, BodyKind::F | BodyKind::I | BodyKind::W | BodyKind::B)
    }

    /// True if it adds to the gradients of parameters.
    pub fn accumulates(self) -> bool {
        self.sections().contains(&SectionKind::W)
    }

    /// The letter in the body's name.
    pub fn letter(self) -> char {
        match self {
            BodyKind::G => 'G',
            BodyKind::F => 'F',
            BodyKind::I => 'I',
            BodyKind::W => 'W',
            BodyKind::B => 'B',
            BodyKind::R => 'R',
            BodyKind::N => 'N',
            BodyKind::U => 'U',
        }
    }
}

/// The source of a body argument.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    /// An argument of the row's call, in order.
    Row,
    /// A saved tensor of an earlier section of the same instance and micro-batch (in `U`, of `R`), or of the instance's `G`.
    Saved,
    /// The parameter that the call binds.
    Param,
    /// A state of such a parameter.
    State,
    /// The gradient accumulator of such a parameter; one per parameter instance and rank, whichever call binds it. `W` and
    /// `B` add to it.
    Gradient,
    /// An implicit scalar of the run: `lr`, `step`, or what the step graph returned, by name (the run of `N` leaves them).
    Scalar,
}

/// An argument of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BodyArg {
    /// The value.
    pub value: Value,
    /// Its source.
    pub source: Source,
}

/// An instruction of a body.
#[derive(Clone, PartialEq, Debug)]
pub enum BodyInstr {
    /// Runs a kernel (`stmt.op` is a kernel op).
    Compute(Stmt),
    /// Runs a group of statements as one kernel.
    Fused(Fused),
    /// Starts a collective; several operands form a bucket.
    Start {
        /// The token of its wait.
        token: Token,
        /// The collective.
        collective: Collective,
        /// The tensors.
        operands: Vec<Value>,
    },
    /// Waits for a collective; its results are ready.
    Wait {
        /// The token of its start.
        token: Token,
        /// One per operand. In `W` and `B`, one that is a gradient accumulator is added to.
        results: Vec<Value>,
    },
    /// Frees values: their last uses.
    Free(Vec<Value>),
}

impl BodyInstr {
    /// The statements that the instruction runs.
    pub fn stmts(&self) -> &[Stmt] {
        match self {
            BodyInstr::Compute(stmt) => std::slice::from_ref(stmt),
            BodyInstr::Fused(fused) => &fused.stmts,
            BodyInstr::Start { .. } | BodyInstr::Wait { .. } | BodyInstr::Free(_) => &[],
        }
    }

    /// The values that the instruction leaves.
    pub fn defines(&self) -> &[Value] {
        match self {
            BodyInstr::Compute(stmt) => &stmt.results,
            BodyInstr::Fused(fused) => &fused.outs,
            BodyInstr::Wait { results, .. } => results,
            BodyInstr::Start { .. } | BodyInstr::Free(_) => &[],
        }
    }
}

/// The code of one section of a block.
#[derive(Clone, PartialEq, Debug)]
pub struct Body {
    /// `layer.F`.
    pub name: String,
    /// The block; `None` for the step graph.
    pub block: Option<BlockId>,
    /// The part of the step.
    pub kind: BodyKind,
    /// Values with their sharded types; local shapes follow from the mesh. Ids are those of the block.
    pub values: PrimaryMap<Value, ValueData>,
    /// Its arguments.
    pub args: Vec<BodyArg>,
    /// Its instructions.
    pub instrs: Vec<BodyInstr>,
    /// The values that it returns to the row.
    pub results: Vec<Value>,
    /// The values that it saves for later sections; of `U`, the states that are in host memory between updates.
    pub keeps: Vec<Value>,
    /// The buffer assignment of its values, after the pass `assign_buffers`.
    pub frame: Option<Frame>,
}

impl Body {
    /// The layout of a copy of the bundle that it makes.
    pub fn saved_layout(&self, frame: &Frame, mesh: &Mesh) -> SavedLayout {
        let mut layout = SavedLayout::default();
        let mut known: BTreeMap<Value, usize> = BTreeMap::new();
        for &value in &self.keeps {
            let next = layout.tensors.len();
            let tensor = *known.entry(frame.root(value)).or_insert(next);
            if tensor == next {
                let (offset, bytes) = (layout.bytes, self.ty(value).local_bytes(mesh));
                layout.tensors.push(SavedTensor { value, offset, bytes });
                layout.bytes = (offset + bytes).next_multiple_of(ALIGNMENT);
            }
            layout.saved.push(tensor);
        }
        layout
    }

    /// The type of a value.
    pub fn ty(&self, value: Value) -> &Type {
        &self.values[value].ty
    }

    /// The types of some values.
    pub fn types(&self, values: &[Value]) -> Vec<&Type> {
        values.iter().map(|&value| self.ty(value)).collect()
    }

    /// The name of a value.
    pub fn value_name(&self, value: Value) -> &str {
        &self.values[value].name
    }

    /// The results of the collective that an instruction starts; none if it starts none, or nothing waits for it.
    pub fn results_of(&self, start: usize) -> &[Value] {
        let BodyInstr::Start { token, .. } = &self.instrs[start] else { return &[] };
        let results = self.instrs[start..].iter().find_map(|instr| match instr {
            BodyInstr::Wait { token: waited, results } if waited == token => Some(results.as_slice()),
            _ => None,
        });
        results.unwrap_or_default()
    }

    /// True for a state of `U` that is in host memory between updates, and in a bundle of the device while it runs.
    pub fn is_on_host(&self, value: Value) -> bool {
        self.kind == BodyKind::U && self.keeps.contains(&value)
    }
}
