//! Locations of registers, bundles and the values of a body invocation: the program's offsets, traversed along an
//! instruction stream.

use super::body::Operand;
use super::load_error::LoadError;
use ir::arena::{Arena, Place, Resident, Role};
use ir::entity::SecondaryMap;
use ir::graph::ParamInstance;
use ir::ids::{BodyId, Reg, Value};
use ir::program::{Body, Class};
use std::collections::HashMap;

/// Offsets of one row, at the instruction that is being made ready.
pub(super) struct Places<'a> {
    class: &'a Class,
    arena: &'a Arena,
    held: HashMap<(ParamInstance, &'a Role), &'a Resident>,
    registers: SecondaryMap<Reg, Option<u64>>,
    /// Offset of each value in each bundle.
    bundles: SecondaryMap<Reg, Option<HashMap<Value, u64>>>,
    /// The body that made each bundle.
    makers: SecondaryMap<Reg, Option<BodyId>>,
    /// Place of each bundle in host memory.
    hosts: SecondaryMap<Reg, Option<u64>>,
}

impl<'a> Places<'a> {
    /// At the beginning of a row.
    ///
    /// # Errors
    /// The program does not state the places of its tensors.
    pub(super) fn new(class: &'a Class) -> Result<Places<'a>, LoadError> {
        let arena = class.arena.as_ref();
        let arena = arena.ok_or(LoadError::NoArena)?;
        let held = arena.residents.iter().map(|held| (((held.param, held.instance), &held.role), held)).collect();
        Ok(Places {
            class,
            arena,
            held,
            registers: SecondaryMap::new(),
            bundles: SecondaryMap::new(),
            makers: SecondaryMap::new(),
            hosts: SecondaryMap::new(),
        })
    }

    /// The places that an instruction states.
    pub(super) fn stated(&self, instr: usize) -> &'a [u64] {
        self.arena.at.get(instr).map_or(&[], Vec::as_slice)
    }

    /// The one place that an instruction states.
    pub(super) fn one(&self, instr: usize) -> Result<u64, LoadError> {
        self.stated(instr).first().copied().ok_or(LoadError::NotStated { instr })
    }

    pub(super) fn held(&self, owner: ParamInstance, role: &Role) -> Result<&'a Resident, LoadError> {
        self.held.get(&(owner, role)).copied().ok_or(LoadError::NoResident)
    }

    pub(super) fn scalar(&self, name: &str) -> Option<u64> {
        self.arena.scalars.get(name).copied()
    }

    pub(super) fn register(&self, reg: Reg) -> Result<u64, LoadError> {
        self.registers[reg].ok_or_else(|| LoadError::Empty { reg: self.name(reg) })
    }

    pub(super) fn set(&mut self, reg: Reg, at: u64) {
        self.registers[reg] = Some(at);
    }

    /// Place of a value in one of the bundles.
    pub(super) fn kept(&self, bundles: &[Reg], value: Value) -> Option<u64> {
        bundles.iter().find_map(|&reg| self.bundles[reg].as_ref()?.get(&value).copied())
    }

    /// Places of the values of a bundle.
    pub(super) fn bundle(&self, reg: Reg) -> Vec<(Value, u64)> {
        self.bundles[reg].iter().flatten().map(|(&value, &at)| (value, at)).collect()
    }

    pub(super) fn set_bundle(&mut self, reg: Reg, maker: BodyId, values: HashMap<Value, u64>) {
        self.bundles[reg] = Some(values);
        self.makers[reg] = Some(maker);
    }

    /// The body that made a bundle.
    pub(super) fn maker(&self, reg: Reg) -> Result<BodyId, LoadError> {
        self.makers[reg].ok_or_else(|| LoadError::NoBundle { reg: self.name(reg) })
    }

    fn name(&self, reg: Reg) -> String {
        self.class.regs[reg].name.clone()
    }

    /// Place of a bundle in host memory.
    pub(super) fn host(&self, reg: Reg) -> Result<u64, LoadError> {
        self.hosts[reg].ok_or_else(|| LoadError::NoHostBundle { reg: self.name(reg) })
    }

    pub(super) fn set_host(&mut self, reg: Reg, maker: BodyId, at: u64) {
        self.hosts[reg] = Some(at);
        self.makers[reg] = Some(maker);
    }
}

/// Place of the values of one run of a body.
pub(super) struct Frame<'a> {
    pub(super) body: &'a Body,
    /// Offsets of the arguments.
    pub(super) given: HashMap<Value, u64>,
    /// Gradient sums that begin with this run: reshards write them straight.
    pub(super) begins: Vec<Value>,
    /// Offsets that the run states: its results, the slots if it saves values, and the scratch if there is one.
    pub(super) stated: &'a [u64],
    pub(super) keeps: bool,
}

impl Frame<'_> {
    /// Place of an operand of a step.
    ///
    /// # Errors
    /// It has no place.
    pub(super) fn at(&self, operand: Operand) -> Result<u64, LoadError> {
        match operand {
            Operand::Staged(value) if !self.begins.contains(&value) => self.made(value),
            Operand::Value(value) | Operand::Staged(value) => match self.given.get(&value) {
                Some(&at) => Ok(at),
                None => self.made(value),
            },
        }
    }

    fn made(&self, value: Value) -> Result<u64, LoadError> {
        let place = self.body.frame.as_ref().and_then(|frame| frame.places.get(&value));
        if let Some(Place::Same(other)) = place.filter(|place| **place != Place::Same(value)) {
            return self.at(Operand::Value(*other));
        }
        let offset = place.and_then(|place| self.offset(value, place));
        offset.ok_or_else(|| LoadError::Unplaced { value: self.body.values[value].name.clone() })
    }

    /// Offset of a value that has a place of its own; none if the run does not state it.
    fn offset(&self, value: Value, place: &Place) -> Option<u64> {
        let (results, slots) = (self.body.results.len(), self.body.frame.as_ref()?.slots.len());
        let (stated, offset) = match *place {
            Place::Same(_) => return None,
            Place::Row => (self.body.results.iter().position(|&result| result == value)?, 0),
            Place::Slot(slot, offset) if self.keeps => (results + slot, offset),
            Place::Slot(..) => return None,
            Place::Scratch(offset) if self.keeps => (results + slots, offset),
            Place::Scratch(offset) => (results, offset),
        };
        Some(self.stated.get(stated)? + offset)
    }
}
