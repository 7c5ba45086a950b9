//! The live tensors and their bytes.

use super::Bytes;
use super::places::Places;
use super::residents::ModelState;
use crate::arena::{ALIGNMENT, Arena};
use crate::graph::Model;
use crate::ids::{BodyId, Reg, Token, Value};
use crate::program::Class;
use cranelift_entity::PrimaryMap;
use std::collections::BTreeMap;

/// The owner of some bytes.
#[derive(Clone, Copy)]
pub(super) enum Owner {
    /// A model-state tensor of the class, by index.
    Resident(usize),
    /// A scalar, by index.
    Scalar(usize),
    Register(Reg),
    /// A value of a bundle.
    Saved(Reg, BodyId, Value),
    /// The result of a transfer.
    Arriving(Token),
    /// The scratch of an async run.
    Scratch(BodyId),
}

struct Tensor {
    bytes: Bytes,
    owner: Owner,
    /// The number of registers, bundles and operations in flight that hold it.
    holders: u32,
}

pub(super) struct Tensors<'a> {
    model: &'a Model,
    class: &'a Class,
    arena: &'a Arena,
    /// The size of the memory.
    bytes: u64,
    bodies: &'a PrimaryMap<BodyId, Places<'a>>,
    all: Vec<Tensor>,
    /// The live tensors by offset; they do not overlap.
    living: BTreeMap<u64, usize>,
    pub(super) faults: Vec<(&'static str, String)>,
}

impl<'a> Tensors<'a> {
    pub(super) fn new(
        model: &'a Model,
        class: &'a Class,
        arena: &'a Arena,
        bytes: u64,
        bodies: &'a PrimaryMap<BodyId, Places<'a>>,
    ) -> Tensors<'a> {
        Tensors { model, class, arena, bytes, bodies, all: Vec::new(), living: BTreeMap::new(), faults: Vec::new() }
    }

    /// Adds a tensor without holders.
    pub(super) fn add(&mut self, bytes: Bytes, owner: Owner) -> usize {
        let id = self.all.len();
        self.all.push(Tensor { bytes, owner, holders: 0 });
        if !bytes.at.is_multiple_of(ALIGNMENT) {
            let text = format!("{} begins at {}, which is not a multiple of {ALIGNMENT}", self.name(owner), bytes.at);
            self.faults.push(("arena", text));
        }
        if self.clear(bytes, |tensors| tensors.name(owner)) {
            self.living.insert(bytes.at, id);
        }
        id
    }

    /// Reports bytes outside the arena, and bytes of another live tensor.
    pub(super) fn clear(&mut self, bytes: Bytes, name: impl Fn(&Self) -> String) -> bool {
        if bytes.end() > self.bytes {
            let name = name(self);
            let text = format!("{name} ends at {}, outside the arena of {} bytes", bytes.end(), self.bytes);
            self.faults.push(("arena", text));
        }
        let before = self.living.range(..bytes.end()).next_back().map(|(_, &other)| &self.all[other]);
        if let Some(other) = before.filter(|other| other.bytes.meets(bytes)) {
            let text = format!("{} overwrites {}", name(self), self.name(other.owner));
            self.faults.push(("overlap", text));
            return false;
        }
        true
    }

    pub(super) fn hold(&mut self, tensor: usize) {
        self.all[tensor].holders += 1;
    }

    pub(super) fn release(&mut self, tensor: usize) {
        let Tensor { bytes, holders, .. } = &mut self.all[tensor];
        *holders -= 1;
        if *holders == 0 && self.living.get(&bytes.at) == Some(&tensor) {
            self.living.remove(&bytes.at);
        }
    }

    pub(super) fn is_shared(&self, tensor: usize) -> bool {
        self.all[tensor].holders > 1
    }

    pub(super) fn place(&self, tensor: usize) -> u64 {
        self.all[tensor].bytes.at
    }

    fn name(&self, owner: Owner) -> String {
        match owner {
            Owner::Resident(index) => ModelState::of(&self.arena.residents[index]).describe(self.model),
            Owner::Scalar(index) => {
                let name = self.arena.scalars.keys().nth(index).map_or("", String::as_str);
                format!("the scalar `{name}`")
            }
            Owner::Register(reg) => self.class.reg_name(reg),
            Owner::Saved(reg, body, value) => {
                format!("%{} of {}", self.bodies[body].name(value), self.class.reg_name(reg))
            }
            Owner::Arriving(token) => format!("the result of {token}"),
            Owner::Scratch(body) => format!("the scratch of @{}", self.bodies[body].body.name),
        }
    }
}
