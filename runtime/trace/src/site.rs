//! Program locations, as events name them, with their FLOPs and bytes on one rank.

use ir::fused::Fused;
use ir::graph::{Model, Stmt};
use ir::ids::{BodyId, Reg, Token, Value};
use ir::mesh::{Axes, Mesh};
use ir::ops::{Collective, KernelOp, OpClass};
use ir::program::{Body, BodyInstr, Class, Instr, Program, Transfer};
use ir::types::{Dim, Type};
use serde::{Deserialize, Serialize};

/// A location of the program, as events name it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct TraceSite {
    /// `layer.F %q = einsum`, `layer.F`, `send %y.1:0`.
    pub name: String,
    /// The op, or what else it does: `einsum`, `all_reduce`, `send`, `run`.
    pub op: String,
    /// Its kind.
    pub kind: SiteKind,
    /// Floating-point operations on one rank.
    pub flops: u64,
    /// Bytes that a rank reads and writes, or the larger of what it gives and gets; on average, if only filled rows move.
    pub bytes: u64,
    /// The axes that it moves data over, or waits for: `tp`, `dp+tp`; empty for what moves nothing.
    pub axes: String,
    /// An op's shapes on one rank: `4x128x256, 256x768`.
    pub shapes: String,
}

/// Kind of an event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub enum SiteKind {
    /// A run of a body: holds its steps.
    Run,
    /// Matrix products.
    Matmul,
    /// Attention, forward or backward.
    Attention,
    /// Another kernel, which memory bounds.
    Memory,
    /// Data on its way between ranks.
    Transfer,
    /// Nothing is computed.
    Wait,
}

impl SiteKind {
    /// As tables and traces say it.
    pub fn label(self) -> &'static str {
        match self {
            SiteKind::Run => "run",
            SiteKind::Matmul => "matmul",
            SiteKind::Attention => "attention",
            SiteKind::Memory => "memory-bound",
            SiteKind::Transfer => "communication",
            SiteKind::Wait => "waiting",
        }
    }

    /// True if a kernel computes.
    pub fn computes(self) -> bool {
        matches!(self, SiteKind::Matmul | SiteKind::Attention | SiteKind::Memory)
    }
}

/// The sites of a body: of its run, and of each instruction but the frees, in order.
pub fn body_sites(mesh: &Mesh, body: &Body) -> (TraceSite, Vec<TraceSite>) {
    let run = TraceSite::plain(body.name.clone(), "run", SiteKind::Run);
    let mut sites = Vec::with_capacity(body.instrs.len());
    for (at, instr) in body.instrs.iter().enumerate() {
        match instr {
            BodyInstr::Compute(stmt) => sites.push(kernel_site(mesh, body, stmt)),
            BodyInstr::Fused(fused) => sites.push(group_site(mesh, body, fused)),
            BodyInstr::Start { token, collective, operands } => {
                sites.push(collective_site(mesh, body, collective, operands, results_of(body, at, *token)));
            }
            BodyInstr::Wait { token, results } => {
                let axes = over_of(body, at, *token).map_or_else(String::new, |over| axes_name(mesh, over));
                let name = format!("{} wait {}", body.name, names(body, results));
                sites.push(TraceSite { axes, ..TraceSite::plain(name, "wait", SiteKind::Wait) });
            }
            BodyInstr::Free(_) => {}
        }
    }
    (run, sites)
}

fn collective_site(
    mesh: &Mesh,
    body: &Body,
    collective: &Collective,
    operands: &[Value],
    results: &[Value],
) -> TraceSite {
    let operands = collective.moved(operands);
    let [given, made] = [operands, results].map(|values| {
        let types = values.iter().map(|&value| &body.values[value].ty);
        let bytes = types.map(|ty| {
            let whole = ty.local_bytes(mesh);
            collective.ragged().map_or(whole, |ragged| ragged.mean_bytes(ty, whole))
        });
        bytes.sum::<u64>()
    });
    let name = format!("{} {} = {}", body.name, names(body, results), collective.name());
    TraceSite {
        axes: axes_name(mesh, collective.over()),
        bytes: given.max(made),
        shapes: shapes(mesh, operands.iter().map(|&v| &body.values[v].ty)),
        ..TraceSite::plain(name, collective.name(), SiteKind::Transfer)
    }
}

/// The site of an instruction of a row; none for runs, which have that of their body, and for what is at once.
pub fn instr_site(model: &Model, program: &Program, class: &Class, at: usize) -> Option<TraceSite> {
    let pipeline = model.mesh.pipeline().map_or_else(String::new, |pp| model.mesh.axes[pp].name.clone());
    match &class.instrs[at] {
        Instr::Run { .. } | Instr::LossGrad { .. } | Instr::Out { .. } | Instr::Free(_) => None,
        Instr::Feed { out, .. } => Some(TraceSite {
            bytes: 2 * reg_bytes(model, class, *out),
            ..TraceSite::plain(format!("feed {}", reg_name(class, *out)), "feed", SiteKind::Memory)
        }),
        Instr::Add { into, from } => {
            let (bytes, name) = (reg_bytes(model, class, *from), reg_name(class, *into));
            Some(TraceSite {
                flops: bytes / 4,
                bytes: 3 * bytes,
                ..TraceSite::plain(format!("{name} += {}", reg_name(class, *from)), "add", SiteKind::Memory)
            })
        }
        Instr::Start { token, transfer, operand } => {
            let (op, what) = transfer_name(model, class, at, *token, transfer, *operand);
            let is_copy = transfer.is_host_copy();
            let bytes = match transfer {
                Transfer::LoadStates { body, .. } => bundle_bytes(model, &program.bodies[*body]),
                _ if is_copy => copied_by(model, program, class, at, *operand),
                _ => moved_by(model, class, transfer, *operand),
            };
            Some(TraceSite {
                bytes,
                axes: if is_copy { String::new() } else { pipeline },
                ..TraceSite::plain(format!("{op} {what}"), op, SiteKind::Transfer)
            })
        }
        Instr::Wait { token, .. } => {
            let (what, axes) = awaited(model, program, class, at, *token);
            Some(TraceSite {
                axes: if axes { pipeline } else { String::new() },
                ..TraceSite::plain(what, "wait", SiteKind::Wait)
            })
        }
    }
}

fn reg_name(class: &Class, reg: Reg) -> String {
    format!("%{}", class.regs[reg].name)
}

/// Bytes of a register's tensor on one rank.
fn reg_bytes(model: &Model, class: &Class, reg: Reg) -> u64 {
    class.regs[reg].ty.as_ref().map_or(0, |ty| ty.local_bytes(&model.mesh))
}

/// Bytes of one rank that a transfer moves.
pub fn moved_by(model: &Model, class: &Class, transfer: &Transfer, operand: Option<Reg>) -> u64 {
    let ty = match transfer {
        Transfer::Send { .. } | Transfer::Sum { .. } => operand.and_then(|reg| class.regs[reg].ty.as_ref()),
        Transfer::Recv { ty, .. } => Some(ty),
        Transfer::SumGradient { param, .. } | Transfer::ShareParam { param, .. } => Some(&model.params[*param].ty),
        Transfer::Offload | Transfer::Load | Transfer::LoadStates { .. } | Transfer::StoreStates { .. } => None,
    };
    ty.map_or(0, |ty| ty.local_bytes(&model.mesh))
}

/// Bytes of a bundle of one rank that is copied to host memory or back before an instruction of the row.
pub(super) fn copied_by(model: &Model, program: &Program, class: &Class, at: usize, bundle: Option<Reg>) -> u64 {
    let maker = bundle.and_then(|bundle| maker_of(class, at, bundle));
    maker.map_or(0, |body| bundle_bytes(model, &program.bodies[body]))
}

/// Bytes of a copy of the bundle that a body makes.
fn bundle_bytes(model: &Model, body: &Body) -> u64 {
    let layout = body.frame.as_ref().map(|frame| body.saved_layout(frame, &model.mesh));
    layout.map_or(0, |layout| layout.tensors.iter().map(|tensor| tensor.bytes).sum())
}

/// The body whose run made a bundle, or the one that it is a copy of.
fn maker_of(class: &Class, at: usize, bundle: Reg) -> Option<BodyId> {
    for (place, instr) in class.instrs[..at].iter().enumerate().rev() {
        match instr {
            Instr::Run { keep, body, .. } if *keep == Some(bundle) => return Some(*body),
            Instr::Wait { token, result } if *result == Some(bundle) => return maker_of_copy(class, place, *token),
            _ => {}
        }
    }
    None
}

/// The body whose run made the bundle that the last start of a token copies.
fn maker_of_copy(class: &Class, at: usize, token: Token) -> Option<BodyId> {
    class.instrs[..at].iter().enumerate().rev().find_map(|(start, instr)| match instr {
        Instr::Start { token: started, operand: Some(operand), .. } if *started == token => {
            maker_of(class, start, *operand)
        }
        _ => None,
    })
}

impl TraceSite {
    /// The site of the pauses in which started bodies compute.
    pub fn async_compute() -> TraceSite {
        TraceSite::plain("async runs compute".to_string(), "wait", SiteKind::Wait)
    }

    fn plain(name: String, op: &str, kind: SiteKind) -> TraceSite {
        TraceSite { name, op: op.to_string(), kind, flops: 0, bytes: 0, axes: String::new(), shapes: String::new() }
    }
}

fn kernel_site(mesh: &Mesh, body: &Body, stmt: &Stmt) -> TraceSite {
    let types = local_types(mesh, body, stmt);
    let [given, made] = types.each_ref().map(|types| types.iter().collect::<Vec<_>>());
    let work = stmt.op.def().map(|def| def.work(&given, &made));
    let (flops, bytes) = work.map_or((0, 0), |work| (work.flops, work.bytes));
    let kind = match &stmt.op {
        ir::ops::Op::Kernel(KernelOp::Einsum(_)) => SiteKind::Matmul,
        ir::ops::Op::Kernel(_) if stmt.op.facts().class == OpClass::Attention => SiteKind::Attention,
        _ => SiteKind::Memory,
    };
    let sign = if stmt.accumulate { "+=" } else { "=" };
    let name = format!("{} {} {sign} {}", body.name, names(body, &stmt.results), stmt.op.name());
    let shapes = shapes(mesh, stmt.operands.iter().map(|&v| &body.values[v].ty));
    TraceSite { flops, bytes, shapes, ..TraceSite::plain(name, stmt.op.name(), kind) }
}

/// A group reads what comes from elsewhere once, and writes what it leaves. One that begins with a product counts as the product.
fn group_site(mesh: &Mesh, body: &Body, fused: &Fused) -> TraceSite {
    let reads = fused.reads();
    let bytes: u64 = reads.iter().chain(&fused.outs).map(|&value| body.values[value].ty.local_bytes(mesh)).sum();
    let untouched = fused.stmts.iter().map(|stmt| {
        let types = local_types(mesh, body, stmt);
        let [operands, results] = types.each_ref().map(|types| types.iter().collect::<Vec<_>>());
        stmt.op.def().map_or(0, |def| def.work(&operands, &results).untouched(&operands, &results))
    });
    let bytes = bytes.saturating_sub(untouched.sum());
    let flops = fused.stmts.iter().map(|stmt| kernel_site(mesh, body, stmt).flops).sum();
    let ops = fused.stmts.iter().map(|stmt| stmt.op.name()).collect::<Vec<_>>().join(", ");
    let name = format!("{} {} = fused {ops}", body.name, names(body, &fused.outs));
    let shapes = shapes(mesh, reads.iter().map(|&value| &body.values[value].ty));
    let product = fused.product().map(|product| kernel_site(mesh, body, product));
    let (op, kind) = product.map_or(("fused".to_string(), SiteKind::Memory), |product| (product.op, product.kind));
    TraceSite { flops, bytes, shapes, ..TraceSite::plain(name, &op, kind) }
}

/// Local types of a statement's operands and results.
fn local_types(mesh: &Mesh, body: &Body, stmt: &Stmt) -> [Vec<Type>; 2] {
    [&stmt.operands, &stmt.results]
        .map(|values| values.iter().map(|&value| local_type(&body.values[value].ty, mesh)).collect())
}

/// Local type of a tensor on one rank: each dim has the size of its largest shard, and a flat-sharded tensor is one range.
fn local_type(ty: &Type, mesh: &Mesh) -> Type {
    if !ty.storage.is_empty() {
        return Type::of(ty.dtype, &[ty.local_elements(mesh)]);
    }
    let mut local = ty.logical();
    for (dim, bound) in local.dims.iter_mut().zip(ty.local_bounds(mesh)) {
        *dim = Dim { size: bound, ..dim.clone() };
    }
    local
}

fn names(body: &Body, values: &[Value]) -> String {
    values.iter().map(|&v| format!("%{}", body.values[v].name)).collect::<Vec<_>>().join(", ")
}

fn shapes<'a>(mesh: &Mesh, types: impl Iterator<Item = &'a Type>) -> String {
    let sizes = types.map(|ty| local_type(ty, mesh).sizes());
    let shapes = sizes.map(|sizes| sizes.iter().map(u64::to_string).collect::<Vec<_>>().join("x"));
    shapes.collect::<Vec<_>>().join(", ")
}

fn axes_name(mesh: &Mesh, axes: &Axes) -> String {
    axes.iter().map(|axis| mesh.axes[axis].name.as_str()).collect::<Vec<_>>().join("+")
}

/// Results of the next wait for a token.
fn results_of(body: &Body, at: usize, token: Token) -> &[Value] {
    let results = body.instrs[at..].iter().find_map(|instr| match instr {
        BodyInstr::Wait { token: awaited, results } if *awaited == token => Some(results.as_slice()),
        _ => None,
    });
    results.unwrap_or_default()
}

/// Axes of the last start of a token.
fn over_of(body: &Body, at: usize, token: Token) -> Option<&Axes> {
    body.instrs[..at].iter().rev().find_map(|instr| match instr {
        BodyInstr::Start { token: started, collective, .. } if *started == token => Some(collective.over()),
        _ => None,
    })
}

/// The word of a transfer, and the tensor.
fn transfer_name(
    model: &Model,
    class: &Class,
    at: usize,
    token: Token,
    transfer: &Transfer,
    operand: Option<Reg>,
) -> (&'static str, String) {
    let (word, moved) = match transfer {
        Transfer::SumGradient { param, instance, .. } => {
            return ("sum_gradient", format!("%{}", model.params[*param].instance_name(*instance)));
        }
        Transfer::ShareParam { param, instance, .. } => {
            return ("share_param", format!("%{}", model.params[*param].instance_name(*instance)));
        }
        Transfer::Send { .. } => ("send", operand),
        Transfer::Recv { .. } => ("recv", received(class, at, token)),
        Transfer::Sum { .. } => ("sum", operand),
        Transfer::Offload => ("offload", operand),
        Transfer::Load => ("load", operand),
        Transfer::LoadStates { .. } => ("load", received(class, at, token)),
        Transfer::StoreStates { .. } => ("store", operand),
    };
    (word, moved.map_or_else(String::new, |reg| reg_name(class, reg)))
}

/// Result of the next wait for a token.
fn received(class: &Class, at: usize, token: Token) -> Option<Reg> {
    class.instrs[at..].iter().find_map(|instr| match instr {
        Instr::Wait { token: awaited, result } if *awaited == token => *result,
        _ => None,
    })
}

/// How a wait of a row is named, and whether it is for other stages.
fn awaited(model: &Model, program: &Program, class: &Class, at: usize, token: Token) -> (String, bool) {
    for (start, instr) in class.instrs[..at].iter().enumerate().rev() {
        match instr {
            Instr::Start { token: started, transfer, operand } if *started == token => {
                let (op, what) = transfer_name(model, class, start, token, transfer, *operand);
                return (format!("wait {op} {what}"), !transfer.is_host_copy());
            }
            Instr::Run { token: Some(started), body, .. } if *started == token => {
                return (format!("wait {}", program.bodies[*body].name), false);
            }
            _ => {}
        }
    }
    ("wait".to_string(), false)
}
