//! Level 4, *for each class of ranks, what to do*: bodies, rows and classes.
//!
//! A body is a straight line of kernels and transfers with local shapes, one per block and section; it is SPMD: what
//! depends on the rank follows from mesh coordinates. A row calls bodies with an instance and a micro-batch. A class is a
//! run of pipeline ranks with equal rows; all ranks below pp of one pipeline rank run the same row.
//!
//! ```text
//! program @train microbatches=1 {
//!   body @layer.F(%x: f32[b<=4{dp}, s, h]; %w1: param f32[h, f<=8{tp}]) -> (%7) save (%x, %3) {
//!     %3: f32[b<=4{dp}, s, h] = rms_norm(%x, ..)
//!     %t0 = start all_reduce(%6, over={tp})
//!     %7: f32[b<=4{dp}, s, h] = wait %t0
//!     free %6
//!   }
//!   class 0..1 {
//!     holds %emb, %layer[0], %layer[1]
//!     %tok:0 = feed %tok microbatch=0
//!     %x.0:0 = run @embed.F call=0 instance=0 microbatch=0 (%tok:0) save %embed.0.F:0
//!     %t0 = start send(%x.0:0, peer=$pp+1, tag=0)
//!     wait %t0
//!     free %tok:0
//!   }
//! }
//! ```
//!
//! ```text
//! program := 'program' @id 'microbatches' '=' int '{' body* class* '}'
//! body    := 'body' @id '(' (%id ':' type),* (';' (%id ':' source type),*)? ')' ('->' '(' %id,* ')')? ('keep' '(' %id,* ')')? '{' step* frame? '}'
//! source  := 'kept' | 'param' | 'state' | 'grad' | 'scalar'
//! step    := stmt | %token '=' 'start' collective '(' %id,* (',' id '=' attr)* ')' | (%id ':' type),* '=' 'wait' %token | 'free' %id,*
//! class   := 'class' int '..' int '{' ('holds' held,*)? memory? (instr at?)* '}'      held := %id ('[' int ']' ('.' id)?)?
//! instr   := %reg '=' 'feed' %id 'microbatch' '=' int | %reg '=' 'seed' | %reg '+=' %reg | 'out' id %reg | 'free' %reg,*
//!          | (%reg,* '=')? 'run' @id 'call' '=' int 'instance' '=' int ('microbatch' '=' int)? 'first'? '(' %reg,* (';' %reg,*)? ')' ('keep' %reg)?
//!          | %token '=' 'start' transfer | (%reg '=')? 'wait' %token
//!          | %token (',' %reg)* '=' 'start' 'run' .. as above
//! transfer := 'send' '(' %reg ',' peer ')' | 'recv' '(' peer ')' ':' type | 'sum' '(' %reg ',' ranks ')'
//!          | 'sum_gradient' '(' held ',' ranks ')' | 'share_param' '(' held ',' 'from' '=' int ',' ranks ')'
//! peer    := 'peer' '=' expr ',' 'tag' '=' int        ranks := 'ranks' '=' '[' int,* ']'        token := '%t' int
//! ```
//!
//! `frame`, `memory` and `at` are those of [`crate::arena`]; a program has them everywhere or nowhere.
//!
//! A body's name ends in `.` and the letter of its part; before it stands its block. In a body a sharded dim shows the bound
//! of a rank's part. A type follows from what makes a register: the model's input, a scalar f32 (`seed`), the body's result,
//! or what a receive states. After `;` stand the bundles that a run reads; behind `keep` the one that it makes. `%layer[3]`
//! among what a class holds is all fields of the array's element.
//!
//! A register of a row holds a tensor, or a bundle: what a section keeps for the later ones of the same instance and
//! micro-batch. `I` reads `F`'s bundle and passes on in its own what `W` reads, so that each bundle has one reader; `B`, which
//! is I and W in one, reads `F`'s and makes none.
//!
//! Registers and bundles share buffers: a result may be an argument, a bundle may hold one, a send leaves its register as
//! it is. A buffer lives until the last holder is freed; who changes a register in place (`Add`, `Sum`) takes a fresh buffer
//! where others hold the old one. A body frees what it computed and does not give away, never its arguments.
//!
//! A run that is started goes on beside the row; its results, its bundle and what it stores are there after its wait, and
//! what it reads is not changed before. Started runs go one after the other and wait for nobody's row: their layout changes
//! meet those of the same started run on the other ranks of the class, whatever the rows do meanwhile.
//!
//! `Start` never blocks. The wait of a receive blocks until the send has started, that of a send until the receive has, that
//! of a sum until all members have.

use crate::arena::{Arena, Frame};
use crate::expr::Expr;
use crate::graph::{SectionKind, Stmt, ValueData};
use crate::ids::{BlockId, BodyId, ModelValue, ParamId, Reg, Token, Value};
use crate::ops::{Collective, KernelOp};
use crate::types::Type;
use cranelift_entity::PrimaryMap;
use std::ops::Range;

/// Which part of the step a body is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub enum BodyKind {
    /// Forward of a block.
    F,
    /// Input gradient of a block.
    I,
    /// Weight gradient of a block.
    W,
    /// I and W in one: what W computes hides the layout changes of I.
    B,
    /// The part of `U` that does not wait for the step graph: reductions and the block's share of the norm.
    R,
    /// The step graph.
    N,
    /// The part of `U` that does.
    U,
}

impl BodyKind {
    /// The sections of the block that it comes from, in order; none for the step graph.
    pub fn sections(self) -> &'static [SectionKind] {
        match self {
            BodyKind::F => &[SectionKind::F],
            BodyKind::I => &[SectionKind::I],
            BodyKind::W => &[SectionKind::W],
            BodyKind::B => &[SectionKind::I, SectionKind::W],
            BodyKind::R | BodyKind::U => &[SectionKind::U],
            BodyKind::N => &[],
        }
    }

    /// Whether it runs once per micro-batch.
    pub fn per_microbatch(self) -> bool {
        matches!(self, BodyKind::F | BodyKind::I | BodyKind::W | BodyKind::B)
    }

    /// Whether it adds to the gradients of parameters.
    pub fn accumulates(self) -> bool {
        self.sections().contains(&SectionKind::W)
    }

    /// The letter in the body's name.
    pub fn letter(self) -> char {
        match self {
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

/// How a body gets a value that it does not compute.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    /// From the row, in order.
    Row,
    /// From the bundle of an earlier section of the same instance and micro-batch (or, in `U`, of `R`).
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
    /// Where it comes from.
    pub source: Source,
}

/// An instruction of a body.
#[derive(Clone, PartialEq, Debug)]
pub enum BodyInstr {
    /// Runs a kernel (`stmt.op` is a kernel op).
    Compute(Stmt),
    /// Starts a layout change; several operands are a bucket.
    Start {
        /// What the wait names.
        token: Token,
        /// What moves.
        collective: Collective,
        /// The tensors.
        operands: Vec<Value>,
    },
    /// Waits for it; the results are there.
    Wait {
        /// Of which start.
        token: Token,
        /// One per operand. In `W` and `B`, one that is a gradient accumulator is added to.
        results: Vec<Value>,
    },
    /// The values are not read again.
    Free(Vec<Value>),
}

/// What a block's section compiles to.
#[derive(Clone, PartialEq, Debug)]
pub struct Body {
    /// `layer.F`.
    pub name: String,
    /// The block; `None` for the step graph.
    pub block: Option<BlockId>,
    /// Which part.
    pub kind: BodyKind,
    /// Values with their sharded types; local shapes follow from the mesh. Ids are those of the block.
    pub values: PrimaryMap<Value, ValueData>,
    /// What it is given.
    pub args: Vec<BodyArg>,
    /// What it does.
    pub instrs: Vec<BodyInstr>,
    /// What it gives to the row.
    pub results: Vec<Value>,
    /// What it puts in a bundle for later sections.
    pub keeps: Vec<Value>,
    /// Where its values lie, once memory is planned.
    pub frame: Option<Frame>,
}

/// What moves between ranks at the row level.
#[derive(Clone, PartialEq, Debug)]
pub enum Transfer {
    /// To the same place of another pipeline rank.
    Send {
        /// The pipeline coordinate of the receiver.
        peer: Expr,
        /// Matches the receiver's.
        tag: u32,
    },
    /// From the same place of another pipeline rank.
    Recv {
        /// The pipeline coordinate of the sender.
        peer: Expr,
        /// Matches the sender's.
        tag: u32,
        /// What comes.
        ty: Type,
    },
    /// Sums a register over the pipeline ranks listed, in place.
    Sum {
        /// Pipeline coordinates, ascending.
        ranks: Vec<u32>,
    },
    /// Sums the gradient of a parameter over the ranks that hold it, in place, before it is reduced over the tensor axes.
    SumGradient {
        /// The parameter.
        param: ParamId,
        /// Its instance.
        instance: u32,
        /// The pipeline coordinates of the holders, ascending.
        ranks: Vec<u32>,
    },
    /// Copies a parameter from the rank that updates it to the others that hold it, after its update.
    ShareParam {
        /// The parameter.
        param: ParamId,
        /// Its instance.
        instance: u32,
        /// The pipeline coordinate of the rank whose `U` updates it.
        from: u32,
        /// The pipeline coordinates of all holders, ascending.
        ranks: Vec<u32>,
    },
}

/// An instruction of a row.
#[derive(Clone, PartialEq, Debug)]
pub enum Instr {
    /// Puts a model input of a micro-batch in a register.
    Feed {
        /// Where.
        out: Reg,
        /// Which input.
        input: ModelValue,
        /// Of which micro-batch.
        microbatch: u32,
    },
    /// The cotangent of the losses: loss_scale / valid tokens, the same for all.
    LossGrad {
        /// Where.
        out: Reg,
    },
    /// Calls a body.
    Run {
        /// The run is started and goes on beside the row; what its wait names.
        token: Option<Token>,
        /// Which.
        body: BodyId,
        /// For which call of the model.
        call: usize,
        /// For which of its instances, from 0.
        instance: u32,
        /// For which micro-batch; none in R, N and U.
        microbatch: Option<u32>,
        /// The first `W` or `B` of this call and instance in the step: it stores instead of adding, except into an accumulator that
        /// an earlier run of the row has stored (a parameter bound twice).
        first: bool,
        /// The body's row arguments.
        args: Vec<Reg>,
        /// The bundles of earlier sections.
        bundles: Vec<Reg>,
        /// The body's results.
        results: Vec<Reg>,
        /// The bundle that it makes, if it keeps anything.
        keep: Option<Reg>,
    },
    /// Starts a transfer.
    Start {
        /// What the wait names.
        token: Token,
        /// What moves.
        transfer: Transfer,
        /// The register that is sent or summed.
        operand: Option<Reg>,
    },
    /// Waits for a transfer.
    Wait {
        /// Of which start.
        token: Token,
        /// Where a receive puts it.
        result: Option<Reg>,
    },
    /// `into += from`: cotangents at their producer, sums over instances and micro-batches.
    Add {
        /// The sum.
        into: Reg,
        /// What is added.
        from: Reg,
    },
    /// Gives a value to the caller of the run: `loss`, or what the step graph returns, by name.
    Out {
        /// Its name.
        name: String,
        /// Where it lies.
        reg: Reg,
    },
    /// The registers are not read again.
    Free(Vec<Reg>),
}

/// A register.
#[derive(Clone, PartialEq, Debug)]
pub struct RegData {
    /// Its name: `x.3:0`, `layer.3.F:0`.
    pub name: String,
    /// Its type; `None` is a bundle.
    pub ty: Option<Type>,
}

/// Pipeline ranks with equal rows.
#[derive(Clone, PartialEq, Debug)]
pub struct Class {
    /// Which.
    pub ranks: Range<u32>,
    /// The registers of its row.
    pub regs: PrimaryMap<Reg, RegData>,
    /// The row.
    pub instrs: Vec<Instr>,
    /// The parameter instances that its ranks hold.
    pub params: Vec<(ParamId, u32)>,
    /// Where its tensors lie, once memory is planned.
    pub arena: Option<Arena>,
}

/// What all ranks do in one step.
#[derive(Clone, PartialEq, Debug)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// Micro-batches per step.
    pub microbatches: u32,
    /// The bodies.
    pub bodies: PrimaryMap<BodyId, Body>,
    /// The classes, in rank order.
    pub classes: Vec<Class>,
}

impl Program {
    /// Whether it says where its tensors lie.
    pub fn has_places(&self) -> bool {
        self.classes.iter().all(|class| class.arena.is_some()) && self.bodies.values().all(|body| body.frame.is_some())
    }
}

impl Body {
    /// The kernel of a compute statement.
    pub fn kernel(stmt: &Stmt) -> Option<&KernelOp> {
        match &stmt.op {
            crate::ops::Op::Kernel(op) => Some(op),
            _ => None,
        }
    }
}
