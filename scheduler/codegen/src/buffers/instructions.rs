//! Walk of an instruction stream from first to last: the values that each instruction creates, and their holders.

use super::frame::{FrameLayout, Given};
use super::interval::{Interval, aligned};
use super::needs::{At, BufferUse, Needs};
use ir::arena::SavedLayout;
use ir::entity::{PrimaryMap, SecondaryMap};
use ir::graph::Model;
use ir::ids::{BodyId, Reg, Token};
use ir::program::{BodyArg, BodyKind, Class, Instr, Program, Source, Transfer};
use ir::types::Type;
use std::collections::HashMap;
use std::ops::Range;

/// The frames of all bodies.
pub(super) type FrameLayouts = PrimaryMap<BodyId, FrameLayout>;

/// Contents of a register; a part that is `None` is a model state.
#[derive(Clone)]
enum Holding {
    Tensor(Option<usize>),
    Bundle(BodyId, Vec<Option<usize>>),
    /// A bundle in host memory: the body that made it, and its interval there.
    Host(BodyId, usize),
}

/// Operation in flight.
#[derive(Default)]
struct Request {
    /// Held until it has landed.
    holds: Vec<usize>,
    /// The register that is summed.
    sum: Option<Reg>,
    /// Part that a receive or a sum defines.
    result: Option<usize>,
    /// The copy of a bundle.
    copy: Option<Holding>,
}

/// Source of an argument that a bundle has.
#[derive(Clone, Copy)]
struct BundleIndex {
    /// Index of a bundle of the run.
    bundle: usize,
    /// Index of a value of the bundle.
    value: usize,
}

/// Parts of a run: those of its arguments, and those that it makes.
struct RunParts {
    given: Vec<Option<usize>>,
    rows: Vec<usize>,
    slots: Vec<Range<usize>>,
}

impl RunParts {
    fn part(&self, by: Given) -> Option<usize> {
        match by {
            Given::Row(place) => Some(self.rows[place]),
            Given::Arg(arg) => self.given[arg],
            Given::Slot(slot, place) => Some(self.slots[slot].start + place),
        }
    }
}

struct Walk<'a> {
    model: &'a Model,
    program: &'a Program,
    layouts: &'a FrameLayouts,
    class: &'a Class,
    registers: SecondaryMap<Reg, Option<Holding>>,
    requests: HashMap<Token, Request>,
    /// Sources of the arguments of a body in the bundles of other bodies.
    kept: HashMap<(BodyId, Vec<BodyId>), Vec<Option<BundleIndex>>>,
    needs: Needs,
    now: usize,
}

/// Walks the row of a class.
pub(super) fn needs(model: &Model, program: &Program, layouts: &FrameLayouts, class: &Class) -> Needs {
    let mut walk = Walk {
        model,
        program,
        layouts,
        class,
        registers: SecondaryMap::new(),
        requests: HashMap::new(),
        kept: HashMap::new(),
        needs: Needs::default(),
        now: 0,
    };
    for (now, instr) in class.instrs.iter().enumerate() {
        walk.now = now;
        let at = walk.step(instr);
        walk.needs.at.push(at);
    }
    let all = class.instrs.len();
    let update = class.instrs.iter().position(|instr| match instr {
        Instr::Run { body, .. } => program.bodies[*body].kind == BodyKind::U,
        _ => false,
    });
    walk.needs.update = update.unwrap_or(all);
    walk.needs.parts.iter_mut().for_each(|part| part.end = part.end.min(all));
    walk.needs
}

impl Walk<'_> {
    fn step(&mut self, instr: &Instr) -> Vec<At> {
        match instr {
            Instr::Feed { out, .. } | Instr::LossGrad { out, .. } => {
                let part = self.fresh(*out);
                self.put(*out, Some(part));
                vec![At::BufferPart(part)]
            }
            Instr::Run { .. } => self.run(instr),
            Instr::Start { token, transfer, operand } => self.start(*token, transfer, *operand),
            Instr::Wait { token, result } => {
                self.land(*token, *result);
                Vec::new()
            }
            Instr::Add { into, .. } => self.add(*into),
            Instr::Free(regs) => {
                regs.iter().for_each(|&reg| self.free(reg));
                Vec::new()
            }
            Instr::Out { .. } => Vec::new(),
        }
    }

    fn bytes(&self, ty: &Type) -> u64 {
        aligned(ty.local_bytes(&self.model.mesh))
    }

    /// Bytes for a tensor of the register's type.
    fn fresh(&mut self, reg: Reg) -> usize {
        let bytes = self.class.regs[reg].ty.as_ref().map_or(0, |ty| self.bytes(ty));
        self.whole(BufferUse::StageIo, bytes)
    }

    /// A block of one part.
    fn whole(&mut self, usage: BufferUse, bytes: u64) -> usize {
        self.needs.block(usage, self.now, false, &[(0, bytes)]).start
    }

    fn tensor(&self, reg: Reg) -> Option<usize> {
        match self.registers[reg] {
            Some(Holding::Tensor(part)) => part,
            _ => None,
        }
    }

    fn put(&mut self, reg: Reg, part: Option<usize>) {
        part.into_iter().for_each(|part| self.needs.hold(part));
        self.registers[reg] = Some(Holding::Tensor(part));
    }

    fn free(&mut self, reg: Reg) {
        let parts = match self.registers[reg].take() {
            Some(Holding::Tensor(part)) => vec![part],
            Some(Holding::Bundle(_, parts)) => parts,
            Some(Holding::Host(_, interval)) => {
                self.needs.host[interval].to = self.now;
                Vec::new()
            }
            None => Vec::new(),
        };
        parts.into_iter().flatten().for_each(|part| self.needs.release(part, self.now));
    }

    /// A sum has the place of its register, or a new one if others hold the register.
    fn sum(&mut self, into: Reg) -> usize {
        let own = self.tensor(into).filter(|&part| !self.needs.is_shared(part));
        own.unwrap_or_else(|| self.fresh(into))
    }

    fn add(&mut self, into: Reg) -> Vec<At> {
        let part = self.sum(into);
        self.replace(into, part);
        vec![At::BufferPart(part)]
    }

    /// Lets a register hold another part, or the one that it holds.
    fn replace(&mut self, reg: Reg, part: usize) {
        self.needs.hold(part);
        self.free(reg);
        self.registers[reg] = Some(Holding::Tensor(Some(part)));
    }

    fn start(&mut self, token: Token, transfer: &Transfer, operand: Option<Reg>) -> Vec<At> {
        let mut request = Request::default();
        let held = operand.and_then(|reg| self.registers[reg].clone());
        match transfer {
            Transfer::Offload => {
                let Some(Holding::Bundle(maker, parts)) = held else { return Vec::new() };
                request.holds.extend(parts.into_iter().flatten());
                request.copy = Some(Holding::Host(maker, self.needs.host.len()));
                let (size, from) = (self.layout(maker).bytes, self.now);
                self.needs.host.push(Interval { size, from, to: self.class.instrs.len() });
                self.fly(token, request);
                return vec![At::Host(self.needs.host.len() - 1)];
            }
            Transfer::Load => {
                let Some(Holding::Host(maker, _)) = held else { return Vec::new() };
                return self.comes(token, maker, BufferUse::Activations);
            }
            &Transfer::LoadStates { body, .. } => return self.comes(token, body, BufferUse::StageIo),
            Transfer::StoreStates { .. } => {
                let Some(Holding::Bundle(_, parts)) = held else { return Vec::new() };
                request.holds.extend(parts.into_iter().flatten());
            }
            Transfer::Recv { ty, .. } => {
                let bytes = self.bytes(ty);
                request.result = Some(self.whole(BufferUse::StageIo, bytes));
            }
            Transfer::Sum { .. } => {
                request.sum = operand;
                request.result = operand.map(|reg| self.sum(reg));
            }
            Transfer::Send { .. } | Transfer::SumGradient { .. } | Transfer::ShareParam { .. } => {}
        }
        let at = request.result.map(At::BufferPart).into_iter().collect();
        request.holds.extend(operand.and_then(|reg| self.tensor(reg)));
        self.fly(token, request);
        at
    }

    /// A bundle that a body makes comes from host memory.
    fn comes(&mut self, token: Token, maker: BodyId, usage: BufferUse) -> Vec<At> {
        let layout = self.layout(maker);
        let pieces: Vec<(u64, u64)> =
            layout.tensors.iter().map(|tensor| (tensor.offset, aligned(tensor.bytes))).collect();
        let parts = self.needs.block(usage, self.now, false, &pieces);
        let at = At::Buffer(self.needs.blocks.len() - 1);
        let kept = layout.saved.iter().map(|&tensor| Some(parts.start + tensor)).collect();
        let copy = Some(Holding::Bundle(maker, kept));
        self.fly(token, Request { holds: parts.collect(), copy, ..Request::default() });
        vec![at]
    }

    /// The layout of a copy of the bundle that a body makes.
    fn layout(&self, maker: BodyId) -> SavedLayout {
        self.program.bodies[maker].saved_layout(&self.layouts[maker].frame, &self.model.mesh)
    }

    fn fly(&mut self, token: Token, request: Request) {
        request.holds.iter().for_each(|&part| self.needs.hold(part));
        self.requests.insert(token, request);
    }

    fn land(&mut self, token: Token, result: Option<Reg>) {
        let Some(request) = self.requests.remove(&token) else { return };
        if let (Some(reg), Some(part)) = (result.or(request.sum), request.result) {
            self.replace(reg, part);
        }
        if let (Some(reg), Some(copy)) = (result, request.copy) {
            if let Holding::Bundle(_, parts) = &copy {
                parts.iter().flatten().for_each(|&part| self.needs.hold(part));
            }
            self.registers[reg] = Some(copy);
        }
        request.holds.into_iter().for_each(|part| self.needs.release(part, self.now));
    }

    fn run(&mut self, instr: &Instr) -> Vec<At> {
        let Instr::Run { token, body, args, bundles, results, keep, .. } = instr else { return Vec::new() };
        let (layouts, within) = (self.layouts, token.is_none());
        let layout = &layouts[*body];
        let given = self.arguments(*body, args, bundles);
        let parts = self.parts_of_run(layout, given, within);
        let kept: Vec<Option<usize>> = layout.keeps.iter().map(|&by| parts.part(by)).collect();
        let mut at = Vec::new();
        for (&reg, &by) in results.iter().zip(&layout.results) {
            let part = parts.part(by);
            self.put(reg, part);
            at.push(part.map_or(At::Nowhere, At::BufferPart));
        }
        if let Some(reg) = *keep {
            kept.iter().flatten().for_each(|&part| self.needs.hold(part));
            self.registers[reg] = Some(Holding::Bundle(*body, kept));
            at.extend(parts.slots.iter().map(|slot| At::Buffer(self.needs.parts[slot.start].block)));
        }
        let mut request = Request::default();
        if layout.frame.scratch > 0 {
            at.push(At::Scratch);
        }
        if let Some(token) = *token {
            if let Some(place @ At::Scratch) = at.last_mut() {
                let scratch = self.whole(BufferUse::Scratch, layout.frame.scratch);
                *place = At::BufferPart(scratch);
                request.holds.push(scratch);
            }
            let RunParts { given, rows, slots } = parts;
            request.holds.extend(given.into_iter().flatten().chain(rows).chain(slots.into_iter().flatten()));
            self.fly(token, request);
        }
        at
    }

    /// Makes the results and the slots of a run.
    fn parts_of_run(&mut self, layout: &FrameLayout, given: Vec<Option<usize>>, within: bool) -> RunParts {
        let mut parts = RunParts { given, rows: Vec::new(), slots: Vec::new() };
        for row in &layout.rows {
            parts.rows.push(self.needs.block(BufferUse::StageIo, self.now, within, &[(0, row.size)]).start);
        }
        for slot in &layout.slots {
            let pieces: Vec<(u64, u64)> = slot.iter().map(|piece| (piece.offset, piece.size)).collect();
            parts.slots.push(self.needs.block(BufferUse::Activations, self.now, within, &pieces));
        }
        parts
    }

    /// Per argument of a body, the part that contains it.
    fn arguments(&mut self, body: BodyId, args: &[Reg], bundles: &[Reg]) -> Vec<Option<usize>> {
        let args_of = &self.program.bodies[body].args;
        let mut makers = Vec::new();
        let mut kept: Vec<&[Option<usize>]> = Vec::new();
        for &bundle in bundles {
            if let Some(Holding::Bundle(maker, parts)) = &self.registers[bundle] {
                makers.push(*maker);
                kept.push(parts);
            }
        }
        let program = self.program;
        let places = self
            .kept
            .entry((body, makers))
            .or_insert_with_key(|(_, makers)| args_of.iter().map(|arg| in_bundles(program, makers, arg)).collect());
        let mut rows = args.iter();
        let parts = args_of.iter().zip(places.iter()).map(|(arg, place)| match arg.source {
            Source::Row => rows.next().and_then(|&reg| self.registers[reg].as_ref()).and_then(|held| match held {
                Holding::Tensor(part) => *part,
                Holding::Bundle(..) | Holding::Host(..) => None,
            }),
            _ => place.and_then(|at| kept[at.bundle][at.value]),
        });
        parts.collect()
    }
}

/// Source of an argument in the bundles of bodies.
fn in_bundles(program: &Program, makers: &[BodyId], arg: &BodyArg) -> Option<BundleIndex> {
    if !matches!(arg.source, Source::Saved | Source::State) {
        return None;
    }
    makers.iter().enumerate().find_map(|(bundle, &maker)| {
        let value = program.bodies[maker].keeps.iter().position(|&kept| kept == arg.value)?;
        Some(BundleIndex { bundle, value })
    })
}
