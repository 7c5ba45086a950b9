//! The row of a class in its arena: the owner of each byte at each instruction. `arena`, `overlap`.

use super::Bytes;
use super::lives::{self, RunPlaces};
use super::places::Places;
use super::residents::{self, Sizes};
use super::tensors::{Owner, Tensors};
use crate::arena::{Arena, SavedLayout};
use crate::graph::Model;
use crate::ids::{BodyId, Reg, Token, Value};
use crate::program::{Class, Instr, Program, Source, Transfer};
use crate::types::Type;
use crate::verify::program::{Reporter, Violation};
use cranelift_entity::{PrimaryMap, SecondaryMap};
use std::collections::{HashMap, HashSet};

/// The tensors of a register: one, or those of a bundle by value. Model states are not included.
type Holding = Vec<(Option<Value>, usize)>;

/// The operations in flight.
#[derive(Default)]
struct InFlight {
    holds: Vec<usize>,
    result: Option<usize>,
    summed: Option<Reg>,
    copy: Option<BundleCopy>,
}

/// A copy of a bundle on its way.
struct BundleCopy {
    maker: BodyId,
    to: CopyTo,
}

/// The destination of a bundle: the tensor of host memory, or those of the device.
enum CopyTo {
    Host(usize),
    Device(Holding),
}

struct Walk<'a> {
    model: &'a Model,
    class: &'a Class,
    bodies: &'a PrimaryMap<BodyId, Places<'a>>,
    sizes: &'a Sizes,
    tensors: Tensors<'a>,
    /// The tensors of host memory.
    host: Tensors<'a>,
    /// The body that made each bundle, and the tensor of host memory that holds it.
    makers: SecondaryMap<Reg, Option<BodyId>>,
    offloaded: HashMap<Reg, usize>,
    registers: SecondaryMap<Reg, Option<Holding>>,
    requests: HashMap<Token, InFlight>,
    /// Runs that have been checked instruction by instruction, with places relative to the lowest one.
    known: HashSet<(BodyId, RunPlaces)>,
}

pub(super) fn check(
    model: &Model,
    program: &Program,
    bodies: &PrimaryMap<BodyId, Places<'_>>,
    sizes: &Sizes,
    index: usize,
    found: &mut Vec<Violation>,
) {
    let class = &program.classes[index];
    let Some(arena) = &class.arena else { return };
    residents::check(model, program, index, arena, found);
    let mut walk = Walk {
        model,
        class,
        bodies,
        sizes,
        tensors: Tensors::new(model, class, arena, arena.bytes, bodies),
        host: Tensors::new(model, class, arena, arena.host, bodies),
        makers: SecondaryMap::new(),
        offloaded: HashMap::new(),
        registers: SecondaryMap::new(),
        requests: HashMap::new(),
        known: HashSet::new(),
    };
    walk.hold(arena);
    walk.report(&mut Reporter::of_row(found, index));
    if arena.at.len() != class.instrs.len() {
        let text = format!("{} instructions state places, the row has {}", arena.at.len(), class.instrs.len());
        return Reporter::of_row(found, index).report("arena", text);
    }
    for (at, instr) in class.instrs.iter().enumerate() {
        let wanted = walk.wanted(instr);
        if arena.at[at].len() == wanted {
            walk.step(instr, &arena.at[at]);
        } else {
            let text = format!("states {} places, but needs {wanted}", arena.at[at].len());
            walk.tensors.faults.push(("arena", text));
        }
        walk.report(&mut Reporter::in_row(found, index, at));
    }
}

/// The tensors of a run by the values of its body: those that it is given, and those that it makes.
#[derive(Default)]
struct RunTensors {
    given: HashMap<Value, usize>,
    made: HashMap<Value, usize>,
}

impl RunTensors {
    fn get(&self, places: &Places<'_>, value: Value) -> Option<usize> {
        let root = places.root(value);
        self.made.get(&root).or_else(|| self.given.get(&root)).copied()
    }
}

impl Walk<'_> {
    /// Reports the faults found so far.
    fn report(&mut self, reporter: &mut Reporter<'_>) {
        let faults = self.tensors.faults.drain(..).chain(self.host.faults.drain(..));
        faults.for_each(|(name, text)| reporter.report(name, text));
    }
    /// Model states are live from the beginning.
    fn hold(&mut self, arena: &Arena) {
        for (index, held) in arena.residents.iter().enumerate() {
            let size = self.sizes.get(held.param, &held.role).unwrap_or(0);
            let memory = if held.host { &mut self.host } else { &mut self.tensors };
            memory.add(Bytes { at: held.at, size }, Owner::Resident(index));
        }
        for (index, &at) in arena.scalars.values().enumerate() {
            self.tensors.add(Bytes { at, size: 4 }, Owner::Scalar(index));
        }
    }

    /// The number of places that an instruction states.
    fn wanted(&self, instr: &Instr) -> usize {
        match instr {
            Instr::Feed { .. } | Instr::LossGrad { .. } | Instr::Add { .. } => 1,
            Instr::Start { transfer: Transfer::Recv { .. } | Transfer::Sum { .. }, .. } => 1,
            Instr::Start { transfer: Transfer::Offload | Transfer::Load | Transfer::LoadStates { .. }, .. } => 1,
            Instr::Run { body, results, keep, .. } => {
                let frame = self.bodies[*body].frame;
                results.len() + keep.map_or(0, |_| frame.slots.len()) + usize::from(frame.scratch > 0)
            }
            Instr::Start { .. } | Instr::Wait { .. } | Instr::Out { .. } | Instr::Free(_) => 0,
        }
    }

    fn bytes(&self, at: u64, ty: Option<&Type>) -> Bytes {
        Bytes { at, size: ty.map_or(0, |ty| ty.local_bytes(&self.model.mesh)) }
    }

    fn register(&mut self, at: u64, reg: Reg) -> usize {
        let bytes = self.bytes(at, self.class.regs[reg].ty.as_ref());
        self.tensors.add(bytes, Owner::Register(reg))
    }

    fn put(&mut self, reg: Reg, holding: Holding) {
        holding.iter().for_each(|&(_, tensor)| self.tensors.hold(tensor));
        self.registers[reg] = Some(holding);
    }

    fn free(&mut self, reg: Reg) {
        self.offloaded.remove(&reg).into_iter().for_each(|tensor| self.host.release(tensor));
        let held = self.registers[reg].take().unwrap_or_default();
        held.into_iter().for_each(|(_, tensor)| self.tensors.release(tensor));
    }

    fn tensor(&self, reg: Reg) -> Option<usize> {
        self.registers[reg].as_ref()?.iter().find(|(value, _)| value.is_none()).map(|&(_, tensor)| tensor)
    }

    fn step(&mut self, instr: &Instr, at: &[u64]) {
        match instr {
            Instr::Feed { out, .. } | Instr::LossGrad { out, .. } => {
                let tensor = self.register(at[0], *out);
                self.put(*out, vec![(None, tensor)]);
            }
            Instr::Run { .. } => self.run(instr, at),
            Instr::Start { token, transfer, operand } => self.start(*token, transfer, *operand, at),
            Instr::Wait { token, result } => self.land(*token, *result),
            Instr::Add { into, .. } => {
                let tensor = self.sum(*into, at[0]);
                self.replace(*into, tensor);
            }
            Instr::Free(regs) => regs.iter().for_each(|&reg| self.free(reg)),
            Instr::Out { .. } => {}
        }
    }

    /// The place of a sum: that of its register, if no other register holds it, or a fresh one.
    fn sum(&mut self, into: Reg, at: u64) -> usize {
        match self.tensor(into).filter(|&old| self.tensors.place(old) == at) {
            Some(old) => {
                if self.tensors.is_shared(old) {
                    let text =
                        format!("%{} is updated in place, but other registers hold it", self.class.regs[into].name);
                    self.tensors.faults.push(("overlap", text));
                }
                old
            }
            None => self.register(at, into),
        }
    }

    /// Assigns a tensor to a register, which may already hold it.
    fn replace(&mut self, reg: Reg, tensor: usize) {
        self.tensors.hold(tensor);
        self.free(reg);
        self.registers[reg] = Some(vec![(None, tensor)]);
    }

    fn start(&mut self, token: Token, transfer: &Transfer, operand: Option<Reg>, at: &[u64]) {
        let mut request = InFlight::default();
        match transfer {
            Transfer::Recv { ty, .. } => {
                let bytes = self.bytes(at[0], Some(ty));
                request.result = Some(self.tensors.add(bytes, Owner::Arriving(token)));
            }
            Transfer::Sum { .. } => {
                request.summed = operand;
                request.result = operand.map(|reg| self.sum(reg, at[0]));
            }
            Transfer::Offload | Transfer::StoreStates { .. } => {
                // Stored states have a place of their own.
                let maker = operand.filter(|_| *transfer == Transfer::Offload).and_then(|reg| self.makers[reg]);
                request.copy = maker.map(|maker| BundleCopy { maker, to: self.leaves(token, maker, at[0]) });
                let held = operand.and_then(|reg| self.registers[reg].as_ref());
                request.holds.extend(held.into_iter().flatten().map(|(_, tensor)| tensor));
            }
            Transfer::Load | Transfer::LoadStates { .. } => {
                let maker = match transfer {
                    Transfer::LoadStates { body, .. } => Some(*body),
                    _ => operand.and_then(|reg| self.makers[reg]),
                };
                request.copy = maker.map(|maker| BundleCopy { maker, to: self.comes_back(token, maker, at[0]) });
                if let Some(BundleCopy { to: CopyTo::Device(holding), .. }) = &request.copy {
                    request.holds.extend(holding.iter().map(|(_, tensor)| tensor));
                }
            }
            Transfer::Send { .. } | Transfer::SumGradient { .. } | Transfer::ShareParam { .. } => {}
        }
        request.holds.extend(operand.and_then(|reg| self.tensor(reg)));
        self.fly(token, request);
    }

    /// The place of a bundle's copy in host memory.
    fn leaves(&mut self, token: Token, maker: BodyId, at: u64) -> CopyTo {
        let size = self.layout(maker).bytes;
        let tensor = self.host.add(Bytes { at, size }, Owner::Arriving(token));
        self.host.hold(tensor);
        CopyTo::Host(tensor)
    }

    /// The places of a bundle's tensors on the device.
    fn comes_back(&mut self, token: Token, maker: BodyId, at: u64) -> CopyTo {
        let layout = self.layout(maker);
        let mut tensors = Vec::new();
        for tensor in &layout.tensors {
            let bytes = Bytes { at: at.saturating_add(tensor.offset), size: tensor.bytes };
            tensors.push(self.tensors.add(bytes, Owner::Arriving(token)));
        }
        let saved = self.bodies[maker].body.keeps.iter().zip(&layout.saved);
        CopyTo::Device(saved.map(|(&value, &tensor)| (Some(value), tensors[tensor])).collect())
    }

    fn layout(&self, maker: BodyId) -> SavedLayout {
        let places = &self.bodies[maker];
        places.body.saved_layout(places.frame, &self.model.mesh)
    }

    fn fly(&mut self, token: Token, request: InFlight) {
        request.holds.iter().for_each(|&tensor| self.tensors.hold(tensor));
        self.requests.insert(token, request);
    }

    fn land(&mut self, token: Token, result: Option<Reg>) {
        let Some(request) = self.requests.remove(&token) else { return };
        if let (Some(reg), Some(tensor)) = (result.or(request.summed), request.result) {
            self.replace(reg, tensor);
        }
        if let (Some(reg), Some(BundleCopy { maker, to })) = (result, request.copy) {
            self.makers[reg] = Some(maker);
            match to {
                CopyTo::Host(tensor) => drop(self.offloaded.insert(reg, tensor)),
                CopyTo::Device(holding) => self.put(reg, holding),
            }
        }
        request.holds.into_iter().for_each(|tensor| self.tensors.release(tensor));
    }

    fn run(&mut self, instr: &Instr, at: &[u64]) {
        let Instr::Run { token, body, args, bundles, results, keep, .. } = instr else { return };
        let places = &self.bodies[*body];
        let (rows, rest) = at.split_at(results.len());
        let slots = keep.map_or(0, |_| places.frame.slots.len());
        let (slots, scratch) = rest.split_at(slots.min(rest.len()));
        let scratch = scratch.first().copied().unwrap_or(0);
        let site = RunPlaces { rows: rows.to_vec(), slots: slots.to_vec(), scratch };
        let mut tensors = RunTensors { given: self.given(places, args, bundles), made: HashMap::new() };
        self.clear(*body, &site);
        for (nth, &value) in places.body.results.iter().enumerate() {
            let owner = Owner::Register(results[nth]);
            match (places.source[value].is_some(), tensors.given.get(&value)) {
                (true, None) => {}
                (true, Some(&tensor)) if self.tensors.place(tensor) == site.rows[nth] => {}
                (true, Some(_)) => {
                    let text = format!("%{} is an argument, but has another place", places.name(value));
                    self.tensors.faults.push(("arena", text));
                }
                (false, _) => {
                    let size = places.size[value];
                    let bytes = Bytes { at: site.rows[nth], size };
                    tensors.made.entry(value).or_insert_with(|| self.tensors.add(bytes, owner));
                }
            }
        }
        for &value in &places.body.keeps {
            let root = places.root(value);
            let is_made = tensors.made.contains_key(&root);
            if let (Some(reg), Some(bytes), false) = (*keep, site.bytes(places, root), is_made) {
                tensors.made.insert(root, self.tensors.add(bytes, Owner::Saved(reg, *body, root)));
            }
        }
        for (&reg, &value) in results.iter().zip(&places.body.results) {
            self.put(reg, tensors.get(places, value).map(|tensor| (None, tensor)).into_iter().collect());
        }
        if let Some(reg) = *keep {
            self.makers[reg] = Some(*body);
            let saved = places.body.keeps.iter();
            self.put(reg, saved.filter_map(|&value| Some((Some(value), tensors.get(places, value)?))).collect());
        }
        if let Some(token) = *token {
            let holds = tensors.given.into_values().chain(tensors.made.into_values()).collect();
            let mut request = InFlight { holds, ..InFlight::default() };
            let scratch = Bytes { at: site.scratch, size: places.frame.scratch };
            if scratch.size > 0 {
                request.holds.push(self.tensors.add(scratch, Owner::Scratch(*body)));
            }
            self.fly(token, request);
        }
    }

    /// The tensors of a body's arguments, without model states.
    fn given(&self, places: &Places<'_>, args: &[Reg], bundles: &[Reg]) -> HashMap<Value, usize> {
        let mut rows = args.iter();
        let mut found = HashMap::new();
        for arg in &places.body.args {
            let tensor = match arg.source {
                Source::Row => rows.next().and_then(|&reg| self.tensor(reg)),
                Source::Saved | Source::State => self.saved(bundles, arg.value),
                _ => None,
            };
            found.extend(tensor.map(|tensor| (arg.value, tensor)));
        }
        found
    }

    /// The tensor of a value in the bundles of a run.
    fn saved(&self, bundles: &[Reg], value: Value) -> Option<usize> {
        let mut saved = bundles.iter().filter_map(|&reg| self.registers[reg].as_ref()).flatten();
        saved.find(|(other, _)| *other == Some(value)).map(|&(_, tensor)| tensor)
    }

    /// Checks that the places of a run overlap no other tensor, and that its values do not overlap at any instruction.
    fn clear(&mut self, body: BodyId, site: &RunPlaces) {
        let places = &self.bodies[body];
        let frame = places.frame;
        let slots = site.slots.iter().zip(&frame.slots).map(|(&at, &size)| (at, size, "slot"));
        let blocks = slots.chain([(site.scratch, frame.scratch, "scratch")]);
        for (at, size, what) in blocks.filter(|(_, size, _)| *size > 0) {
            self.tensors.clear(Bytes { at, size }, |_| format!("the {what} of @{}", places.body.name));
        }
        let key = (body, site.relative());
        if !self.known.contains(&key) {
            let found = lives::check(places, site);
            if found.is_empty() {
                self.known.insert(key);
            }
            for (at, text) in found {
                self.tensors.faults.push(("overlap", format!("@{} at {at}: {text}", places.body.name)));
            }
        }
    }
}
