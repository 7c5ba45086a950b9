//! The naive buffer assignment: no two tensors share bytes.

use ir::arena::{ALIGNMENT, Arena, Frame, Place, Resident, Role};
use ir::graph::Model;
use ir::program::{Body, BodyInstr, Class, Instr, Program, Transfer};
use ir::types::Type;
use std::collections::BTreeMap;

/// Bytes that go on and on.
struct Allocator(u64);

impl Allocator {
    fn take(&mut self, bytes: u64) -> u64 {
        let at = self.0;
        self.0 += bytes.next_multiple_of(ALIGNMENT);
        at
    }

    fn tensor(&mut self, ty: &Type, model: &Model) -> u64 {
        self.take(ty.local_bytes(&model.mesh))
    }
}

/// Fills the frames and arenas of a program.
pub(super) fn place(model: &Model, program: &mut Program) {
    let frames: Vec<Frame> = program.bodies.values().map(|body| frame(model, body)).collect();
    for (body, frame) in program.bodies.values_mut().zip(frames) {
        body.frame = Some(frame);
    }
    let arenas: Vec<Arena> = program.classes.iter().map(|class| arena(model, program, class)).collect();
    for (class, arena) in program.classes.iter_mut().zip(arenas) {
        class.arena = Some(arena);
    }
}

fn frame(model: &Model, body: &Body) -> Frame {
    let (mut slot, mut scratch, mut places) = (Allocator(0), Allocator(0), BTreeMap::new());
    let made = body.instrs.iter().flat_map(BodyInstr::defines);
    for &value in made {
        let ty = &body.values[value].ty;
        let place = match () {
            () if body.results.contains(&value) => Place::Row,
            () if body.keeps.contains(&value) => Place::Slot(0, slot.tensor(ty, model)),
            () => Place::Scratch(scratch.tensor(ty, model)),
        };
        places.insert(value, place);
    }
    Frame { slots: vec![slot.0], scratch: scratch.0, places }
}

fn arena(model: &Model, program: &Program, class: &Class) -> Arena {
    let mut allocator = Allocator(0);
    let mut residents = Vec::new();
    for &(param, instance) in &class.params {
        for role in [Role::Param, Role::Gradient, Role::State("m".to_string())] {
            residents.push(Resident {
                param,
                instance,
                role,
                host: false,
                at: allocator.tensor(&model.params[param].ty, model),
            });
        }
    }
    let scalars = ["lr", "step", "clip"].map(|name| (name.to_string(), allocator.take(4))).into();
    let at = class.instrs.iter().map(|instr| states(model, program, class, instr, &mut allocator)).collect();
    Arena { bytes: allocator.0, host: 0, residents, scalars, at }
}

/// Offsets that an instruction states.
fn states(model: &Model, program: &Program, class: &Class, instr: &Instr, allocator: &mut Allocator) -> Vec<u64> {
    let mut register = |reg| class.regs[reg].ty.as_ref().map_or(0, |ty| allocator.tensor(ty, model));
    match instr {
        Instr::Feed { out, .. } | Instr::LossGrad { out, .. } | Instr::Add { into: out, .. } => vec![register(*out)],
        Instr::Start { transfer: Transfer::Recv { ty, .. }, .. } => vec![allocator.tensor(ty, model)],
        Instr::Start { transfer: Transfer::Sum { .. }, operand: Some(reg), .. } => vec![register(*reg)],
        Instr::Run { body, results, keep, .. } => {
            let frame = program.bodies[*body].frame.clone().unwrap_or_default();
            let mut at: Vec<u64> = results.iter().map(|&reg| register(reg)).collect();
            at.extend(frame.slots.iter().filter(|_| keep.is_some()).map(|&bytes| allocator.take(bytes)));
            at.extend((frame.scratch > 0).then(|| allocator.take(frame.scratch)));
            at
        }
        _ => Vec::new(),
    }
}
