//! Locations of registers, bundles and the values of a body invocation: the program's offsets, traversed along an
//! instruction stream.

use super::body::Operand;
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
    pub(super) fn new(class: &'a Class) -> Result<Places<'a>, String> {
        let arena = class.arena.as_ref();
        let arena = arena.ok_or("the program does not say where its tensors lie: the pass `memory` has not run")?;
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
    pub(super) fn one(&self, instr: usize) -> Result<u64, String> {
        self.stated(instr).first().copied().ok_or_else(|| format!("instruction {instr} does not say where"))
    }

    pub(super) fn held(&self, owner: ParamInstance, role: &Role) -> Result<&'a Resident, String> {
        self.held.get(&(owner, role)).copied().ok_or_else(|| "a model-state tensor has no place".to_string())
    }

    pub(super) fn scalar(&self, name: &str) -> Option<u64> {
        self.arena.scalars.get(name).copied()
    }

    pub(super) fn register(&self, reg: Reg) -> Result<u64, String> {
        self.registers[reg].ok_or_else(|| format!("%{} holds nothing", self.class.regs[reg].name))
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
    pub(super) fn maker(&self, reg: Reg) -> Result<BodyId, String> {
        self.makers[reg].ok_or_else(|| format!("%{} holds no bundle", self.class.regs[reg].name))
    }

    /// Place of a bundle in host memory.
    pub(super) fn host(&self, reg: Reg) -> Result<u64, String> {
        self.hosts[reg].ok_or_else(|| format!("%{} holds no bundle of host memory", self.class.regs[reg].name))
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
    pub(super) fn at(&self, operand: Operand) -> Result<u64, String> {
        match operand {
            Operand::Staged(value) if !self.begins.contains(&value) => self.made(value),
            Operand::Value(value) | Operand::Staged(value) => match self.given.get(&value) {
                Some(&at) => Ok(at),
                None => self.made(value),
            },
        }
    }

    fn made(&self, value: Value) -> Result<u64, String> {
        let missing = || format!("%{} has no place", self.body.values[value].name);
        let frame = self.body.frame.as_ref().ok_or_else(missing)?;
        let place = frame.places.get(&value).ok_or_else(missing)?;
        let results = self.body.results.len();
        let (stated, offset) = match *place {
            Place::Same(other) if other == value => return Err(missing()),
            Place::Same(other) => return self.at(Operand::Value(other)),
            Place::Row => (self.body.results.iter().position(|&result| result == value), 0),
            Place::Slot(slot, offset) => (self.keeps.then_some(results + slot), offset),
            Place::Scratch(offset) if self.keeps => (Some(results + frame.slots.len()), offset),
            Place::Scratch(offset) => (Some(results), offset),
        };
        let base = stated.and_then(|stated| self.stated.get(stated)).ok_or_else(missing)?;
        Ok(base + offset)
    }
}
