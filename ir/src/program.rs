//! Level 4: the program of each class of ranks, made of bodies and instruction streams (rows).
//!
//! A body is a straight-line list of kernels and collectives with local shapes, one per block and section. A body is SPMD:
//! rank-dependent values are functions of mesh coordinates. A row calls bodies with an instance and a micro-batch. A class is
//! a range of pipeline ranks with equal rows; all ranks below pp of one pipeline rank run the same row.
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
//!     params %emb, %layer[0], %layer[1]
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
//! body    := 'body' @id '(' (%id ':' type),* (';' (%id ':' source type),*)? ')' ('->' '(' %id,* ')')? ('save' '(' %id,* ')')? '{' step* frame? '}'
//! source  := 'saved' | 'param' | 'state' | 'grad' | 'scalar'
//! step    := stmt | 'fused' '->' '(' %id,* ')' '{' stmt* '}' | %token '=' 'start' collective '(' %id,* (',' id '=' attr)* ')' | (%id ':' type),* '=' 'wait' %token | 'free' %id,*
//! class   := 'class' int '..' int '{' ('params' held,*)? memory? (instr at?)* '}'      held := %id ('[' int ']' ('.' id)?)?
//! instr   := %reg '=' 'feed' %id 'microbatch' '=' int | %reg '=' 'loss_grad' | %reg '=' 'regulariser_grad' | %reg '+=' %reg | 'out' id %reg | 'free' %reg,*
//!          | (%reg,* '=')? 'run' @id 'call' '=' int 'instance' '=' int ('microbatch' '=' int)? 'first'? '(' %reg,* (';' %reg,*)? ')' ('save' %reg)?
//!          | %token '=' 'start' transfer | (%reg '=')? 'wait' %token
//!          | %token (',' %reg)* '=' 'start' 'run' .. as above
//! transfer := 'send' '(' %reg ',' peer ')' | 'recv' '(' peer ')' ':' type | 'sum' '(' %reg ',' ranks ')'
//!          | 'offload' '(' %reg ')' | 'load' '(' %reg ')'
//!          | 'load_states' '(' @id ',' run ')' | 'store_states' '(' %reg ',' run ')'      run := 'call' '=' int ',' 'instance' '=' int
//!          | 'sum_gradient' '(' held ',' ranks ')' | 'share_param' '(' held ',' 'from' '=' int ',' ranks ')'
//! peer    := 'peer' '=' expr ',' 'tag' '=' int        ranks := 'ranks' '=' '[' int,* ']'        token := '%t' int
//! ```
//!
//! `frame`, `memory` and `at` are those of [`crate::arena`]; a program has them everywhere or nowhere.
//!
//! A group (`fused`) means its statements in order ([`crate::fused`]).
//!
//! A body's name is its block, `.` and the letter of its part. In a body a sharded dim shows its local bound. The source of a
//! register determines its type: the model's input, a scalar f32 (`loss_grad`), the body's result, or the stated type of a
//! receive. The saved-tensor bundles that a run reads follow `;`; the bundle that it makes follows `save`. In `params`,
//! `%layer[3]` means all fields of the array's element.
//!
//! A register of a row holds a tensor or a *bundle*: the tensors that a section saves for later sections of the same instance
//! and micro-batch. `I` reads `F`'s bundle and saves in its own bundle the tensors that `W` reads, so each bundle has one
//! reader. `B`, which is I and W in one, reads `F`'s bundle and makes none. The bundle of `G` is of an instance alone: all its
//! micro-batches on the rank read it.
//!
//! `offload` copies a bundle to host memory, `load` copies it back; the wait of each gives the copy, a new bundle. Runs read
//! bundles of device memory only. A bundle of host memory is loaded once.
//!
//! A `U` that saves values has these states of its parameters in host memory. `load_states` copies them to the device, as the
//! bundle that the run of `U` reads; the run changes them there, and its own bundle has them. `store_states` copies that back.
//!
//! Registers and bundles share buffers: a result may be an argument, a bundle may hold one, a send leaves its register as
//! it is. A buffer lives until its last holder is freed. An in-place update of a register (`Add`, `Sum`) takes a fresh buffer
//! if others hold the old one. A body frees the values that it computed and does not return or save, never its arguments.
//!
//! An async run executes concurrently with the row. Its results, its bundle and its stores are visible after its wait, and
//! the row does not change its operands before. Started runs execute one after the other, independently of the row. Their
//! collectives match those of the same async run on the other ranks of the class.
//!
//! `Start` never blocks. The wait of a receive blocks until the send has started, that of a send until the receive has, that
//! of a sum until all members have.

mod body;

pub use body::{Body, BodyArg, BodyInstr, BodyKind, Source};

use crate::arena::Arena;
use crate::expr::Expr;
use crate::graph::LossMean;
use crate::ids::{BodyId, ModelValue, ParamId, Reg, Token};
use crate::types::Type;
use cranelift_entity::PrimaryMap;
use std::ops::Range;

/// A transfer between pipeline ranks, or between a device and its host.
#[derive(Clone, PartialEq, Debug)]
pub enum Transfer {
    /// Sends to the rank with the same coordinates below pp of another pipeline rank.
    Send {
        /// The pipeline coordinate of the receiver.
        peer: Expr,
        /// Matches the receiver's.
        tag: u32,
    },
    /// Receives from the rank with the same coordinates below pp of another pipeline rank.
    Recv {
        /// The pipeline coordinate of the sender.
        peer: Expr,
        /// Matches the sender's.
        tag: u32,
        /// The type of the received tensor.
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
    /// Copies a bundle to host memory.
    Offload,
    /// Copies a bundle of host memory back to the device.
    Load,
    /// Copies the states of a run of `U` from host memory to the device.
    LoadStates {
        /// The `U`.
        body: BodyId,
        /// The call of the model.
        call: usize,
        /// The instance of the call, from 0.
        instance: u32,
    },
    /// Copies the states that a run of `U` has changed to host memory.
    StoreStates {
        /// The call of the model.
        call: usize,
        /// The instance of the call, from 0.
        instance: u32,
    },
}

impl Transfer {
    /// True if it is between a device and its host.
    pub fn is_host_copy(&self) -> bool {
        use Transfer::{Load, LoadStates, Offload, StoreStates};
        matches!(self, Offload | Load | LoadStates { .. } | StoreStates { .. })
    }
}

/// An instruction of a row.
#[derive(Clone, PartialEq, Debug)]
pub enum Instr {
    /// Puts a model input of a micro-batch in a register.
    Feed {
        /// The defined register.
        out: Reg,
        /// The input.
        input: ModelValue,
        /// The micro-batch.
        microbatch: u32,
    },
    /// The cotangent of every loss of a kind: loss_scale / valid tokens, or loss_scale / micro-batches.
    LossGrad {
        /// The defined register.
        out: Reg,
        /// The things over which the mean of the losses is taken.
        mean: LossMean,
    },
    /// Calls a body.
    Run {
        /// For an asynchronous run, the token of its wait.
        token: Option<Token>,
        /// The body.
        body: BodyId,
        /// The call of the model.
        call: usize,
        /// The instance of the call, from 0.
        instance: u32,
        /// The micro-batch; none in G, R, N and U.
        microbatch: Option<u32>,
        /// The first `W` or `B` of this call and instance in the step: it stores instead of adding, except into an
        /// accumulator that an earlier run of the row has stored (a parameter bound twice).
        first: bool,
        /// The body's row arguments.
        args: Vec<Reg>,
        /// The bundles of earlier sections.
        bundles: Vec<Reg>,
        /// The body's results.
        results: Vec<Reg>,
        /// The bundle that it makes, if it saves anything.
        keep: Option<Reg>,
    },
    /// Starts a transfer.
    Start {
        /// The token of its wait.
        token: Token,
        /// The transfer.
        transfer: Transfer,
        /// The register that is sent or summed, or the bundle that is copied.
        operand: Option<Reg>,
    },
    /// Waits for a transfer.
    Wait {
        /// The token of its start.
        token: Token,
        /// The register of a received tensor, or of a copied bundle.
        result: Option<Reg>,
    },
    /// `into += from`: cotangents at their producer, sums over instances and micro-batches.
    Add {
        /// The sum.
        into: Reg,
        /// The addend.
        from: Reg,
    },
    /// Gives a value to the caller of the run: `loss`, or what the step graph returns, by name.
    Out {
        /// Its name.
        name: String,
        /// The register that holds it.
        reg: Reg,
    },
    /// Frees registers: their last uses.
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
    /// The pipeline ranks.
    pub ranks: Range<u32>,
    /// The registers of its row.
    pub regs: PrimaryMap<Reg, RegData>,
    /// The row.
    pub instrs: Vec<Instr>,
    /// The parameter instances on its ranks.
    pub params: Vec<(ParamId, u32)>,
    /// The buffer assignment of its tensors, after the pass `assign_buffers`.
    pub arena: Option<Arena>,
}

/// The programs of all ranks for one step.
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
    /// True if it has a buffer assignment.
    pub fn has_places(&self) -> bool {
        self.classes.iter().all(|class| class.arena.is_some()) && self.bodies.values().all(|body| body.frame.is_some())
    }

    /// True if some of its statements run in groups.
    pub fn has_groups(&self) -> bool {
        let mut instrs = self.bodies.values().flat_map(|body| &body.instrs);
        instrs.any(|instr| matches!(instr, BodyInstr::Fused(_)))
    }
}

impl Class {
    /// The type of a register; `None` for a bundle, and for one that is not declared.
    pub fn ty(&self, reg: Reg) -> Option<&Type> {
        self.regs.get(reg).and_then(|data| data.ty.as_ref())
    }

    /// True if a register is declared and holds saved values: a bundle.
    pub fn holds_saved(&self, reg: Reg) -> bool {
        self.regs.get(reg).is_some_and(|data| data.ty.is_none())
    }

    /// The name of a register as it is printed: `%x.3:0`, or its id if it is not declared.
    pub fn reg_name(&self, reg: Reg) -> String {
        self.regs.get(reg).map_or_else(|| reg.to_string(), |data| format!("%{}", data.name))
    }

    /// The register that the wait for a transfer gives.
    pub fn result_of(&self, token: Token) -> Option<Reg> {
        self.instrs.iter().find_map(|instr| match instr {
            Instr::Wait { token: waited, result } if *waited == token => *result,
            _ => None,
        })
    }
}
