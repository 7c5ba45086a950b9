//! Bytes per rank: a buffer lives until the last register, bundle or body that holds it frees it. `memory`.

use super::{Violation, class_of, pipeline_ranks};
use crate::graph::{ArgKind, Block, Model, ParamInstance};
use crate::ids::{BodyId, Reg, Token, Value};
use crate::program::{Body, BodyArg, BodyInstr, Class, Instr, Program, Source, Transfer};
use crate::types::Type;
use std::collections::{HashMap, HashSet};

/// Peak bytes of each pipeline rank: parameters, gradients, states and tensors at their local bounds.
/// Values that share bytes by their frames count once. An arena is at least this large: places are aligned, the result of a
/// transfer has its place from the start on, and there is fragmentation.
pub fn peak_bytes(model: &Model, program: &Program) -> Vec<u64> {
    (0..pipeline_ranks(model)).map(|rank| peak(model, program, rank).0).collect()
}

pub(super) fn check(model: &Model, program: &Program, limit: u64) -> Vec<Violation> {
    let mut found = Vec::new();
    for rank in 0..pipeline_ranks(model) {
        let Some((index, class)) = class_of(program, rank) else { continue };
        let (peak, position) = peak(model, program, rank);
        let bytes = class.arena.as_ref().map_or(peak, |arena| arena.bytes);
        if bytes > limit {
            let text = format!("rank {rank} holds {bytes} bytes, the limit is {limit}");
            found.push(Violation::in_row("memory", index, position, text));
        }
    }
    found
}

/// The peak bytes, and their position in the row.
fn peak(model: &Model, program: &Program, rank: u32) -> (u64, usize) {
    let Some((_, class)) = class_of(program, rank) else { return (0, 0) };
    let now = state_bytes(model, program, class);
    let mut heap = Heap { now, most: now, ..Heap::default() };
    let mut regs = LiveParts::new();
    // Buffers of receives and async runs, until their waits.
    let mut flying: HashMap<Token, Vec<usize>> = HashMap::new();
    let mut copies = Copies::default();
    let mut place = 0;
    for (position, instr) in class.instrs.iter().enumerate() {
        let before = heap.most;
        match instr {
            Instr::Feed { out, .. } | Instr::LossGrad { out, .. } => {
                regs.insert(*out, tensor(heap.allocate(class.ty(*out), model)));
            }
            Instr::Start { token, transfer: Transfer::Recv { ty, .. }, .. } => {
                flying.insert(*token, vec![heap.allocate(Some(ty), model)]);
            }
            Instr::Start { token, transfer: transfer @ (Transfer::Offload | Transfer::Load), operand: Some(reg) } => {
                let maker = copies.makers.get(reg).copied();
                let loads = matches!(transfer, Transfer::Load);
                let loaded = maker.filter(|_| loads).map(|id| heap.bundle(model, &program.bodies[id]));
                copies.flying.insert(*token, (maker, loaded.unwrap_or_default()));
            }
            Instr::Start { token, transfer: Transfer::LoadStates { body, .. }, .. } => {
                copies.flying.insert(*token, (Some(*body), heap.bundle(model, &program.bodies[*body])));
            }
            Instr::Wait { token, result: Some(reg) } if copies.flying.contains_key(token) => {
                if let Some((maker, parts)) = copies.flying.remove(token) {
                    copies.makers.extend(maker.map(|maker| (*reg, maker)));
                    regs.insert(*reg, parts);
                }
            }
            Instr::Wait { token, result } => match (result, flying.remove(token).as_deref()) {
                (Some(reg), Some(&[buffer])) => drop(regs.insert(*reg, tensor(buffer))),
                (_, held) => held.into_iter().flatten().for_each(|&buffer| heap.release(buffer)),
            },
            Instr::Run { token, body, args, bundles, results, keep, .. } => {
                copies.makers.extend(keep.map(|reg| (reg, *body)));
                let body = &program.bodies[*body];
                let env = heap.run(model, body, args, bundles, &regs);
                for (reg, value) in results.iter().zip(&body.results) {
                    regs.insert(*reg, tensor(heap.share(env[value])));
                }
                if let Some(reg) = keep {
                    regs.insert(*reg, body.keeps.iter().map(|v| (Some(*v), heap.share(env[v]))).collect());
                }
                match token {
                    Some(token) => drop(flying.insert(*token, env.into_values().collect())),
                    None => env.into_values().for_each(|buffer| heap.release(buffer)),
                }
            }
            Instr::Add { into, .. } => {
                let old = regs[into][&None];
                if heap.holders[old] > 1 {
                    regs.insert(*into, tensor(heap.allocate(class.ty(*into), model)));
                    heap.release(old);
                }
            }
            Instr::Free(freed) => {
                let buffers = freed.iter().filter_map(|reg| regs.remove(reg)).flatten();
                buffers.for_each(|(_, buffer)| heap.release(buffer));
            }
            Instr::Start { .. } | Instr::Out { .. } => {}
        }
        if heap.most > before {
            place = position;
        }
    }
    (heap.most, place)
}

/// The buffers of a register: that of its tensor, or those of a bundle by block value.
type Buffers = HashMap<Option<Value>, usize>;

/// The buffers of a register that holds a tensor.
fn tensor(buffer: usize) -> Buffers {
    HashMap::from([(None, buffer)])
}

/// The buffers of all registers.
type LiveParts = HashMap<Reg, Buffers>;

/// Copies of bundles to host memory and back.
#[derive(Default)]
struct Copies {
    /// The body that made each bundle.
    makers: HashMap<Reg, BodyId>,
    /// Per copy in flight, the body that made the bundle, and the buffers of the copy on the device.
    flying: HashMap<Token, (Option<BodyId>, Buffers)>,
}

#[derive(Default)]
struct Heap {
    bytes: Vec<u64>,
    holders: Vec<u32>,
    now: u64,
    most: u64,
}

impl Heap {
    fn allocate(&mut self, ty: Option<&Type>, model: &Model) -> usize {
        let bytes = ty.map_or(0, |ty| ty.local_bytes(&model.mesh));
        self.bytes.push(bytes);
        self.holders.push(1);
        self.now += bytes;
        self.most = self.most.max(self.now);
        self.bytes.len() - 1
    }

    fn share(&mut self, buffer: usize) -> usize {
        self.holders[buffer] += 1;
        buffer
    }

    fn release(&mut self, buffer: usize) {
        self.holders[buffer] -= 1;
        if self.holders[buffer] == 0 {
            self.now -= self.bytes[buffer];
        }
    }

    /// Buffers for the bundle that a body makes, by value.
    fn bundle(&mut self, model: &Model, body: &Body) -> Buffers {
        let mut known: HashMap<Value, usize> = HashMap::new();
        let mut buffers = Buffers::new();
        for &value in &body.keeps {
            let root = root(body, value);
            let buffer = match known.get(&root) {
                Some(&buffer) => self.share(buffer),
                None => self.allocate(Some(body.ty(value)), model),
            };
            known.insert(root, buffer);
            buffers.insert(Some(value), buffer);
        }
        buffers
    }

    /// Runs a body; returns the buffers that are live at its end.
    fn run(
        &mut self,
        model: &Model,
        body: &Body,
        args: &[Reg],
        bundles: &[Reg],
        regs: &LiveParts,
    ) -> HashMap<Value, usize> {
        let rows = body.args.iter().filter(|arg| arg.source == Source::Row).zip(args);
        let mut env: HashMap<Value, usize> = rows.map(|(arg, reg)| (arg.value, regs[reg][&None])).collect();
        for arg in body.args.iter().filter(|arg| is_in_bundle(body, arg)) {
            env.extend(
                bundles.iter().find_map(|reg| regs[reg].get(&Some(arg.value))).map(|&buffer| (arg.value, buffer)),
            );
        }
        env.values().for_each(|&buffer| self.holders[buffer] += 1);
        let stored: HashSet<Value> = body.args.iter().map(|arg| arg.value).collect();
        for instr in &body.instrs {
            if let BodyInstr::Free(values) = instr {
                values.iter().filter_map(|v| env.remove(v)).for_each(|buffer| self.release(buffer));
            }
            for &value in instr.defines().iter().filter(|value| !stored.contains(value)) {
                let root = root(body, value);
                let there = env.iter().find(|(other, _)| self::root(body, **other) == root).map(|(_, &buffer)| buffer);
                let buffer = match there {
                    Some(buffer) => self.share(buffer),
                    None => self.allocate(Some(&body.values[value].ty), model),
                };
                env.insert(value, buffer);
            }
        }
        env
    }
}

/// The value whose bytes a value uses: itself, unless the frame states another.
fn root(body: &Body, value: Value) -> Value {
    body.frame.as_ref().map_or(value, |frame| frame.root(value))
}

/// Parameters, gradients and states of a row's runs, each instance once.
fn state_bytes(model: &Model, program: &Program, class: &Class) -> u64 {
    let mut seen: HashSet<(ParamInstance, &str)> = HashSet::new();
    let mut bytes = 0;
    for instr in &class.instrs {
        let Instr::Run { body, call, instance, .. } = instr else { continue };
        let body = &program.bodies[*body];
        let Some(block) = body.block.map(|id| &model.blocks[id]) else { continue };
        let params: Vec<Value> = block.args_of(ArgKind::Param).collect();
        let bound = model.call_params(&model.calls[*call], *instance);
        for arg in body.args.iter().filter(|arg| !is_in_bundle(body, arg)) {
            let Some(param) = owner(block, arg.value, arg.source) else { continue };
            let Some(id) = params.iter().position(|&p| p == param).and_then(|p| bound.get(p)) else { continue };
            let suffix = block.value_name(arg.value).strip_prefix(block.value_name(param)).unwrap_or_default();
            if seen.insert((*id, suffix)) {
                bytes += block.ty(arg.value).local_bytes(&model.mesh);
            }
        }
    }
    bytes
}

/// True for what a run reads in a bundle: saved values, and the states of a `U` that are in host memory.
fn is_in_bundle(body: &Body, arg: &BodyArg) -> bool {
    arg.source == Source::Saved || body.is_on_host(arg.value)
}

fn owner(block: &Block, value: Value, source: Source) -> Option<Value> {
    match source {
        Source::Param => Some(value),
        Source::State | Source::Gradient => block.owner_of(value),
        Source::Row | Source::Saved | Source::Scalar => None,
    }
}
