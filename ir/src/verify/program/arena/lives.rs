//! A run of a body in the arena, instruction by instruction: `overlap` of its own values with each other.

use super::Bytes;
use super::places::Places;
use crate::arena::Place;
use crate::ids::Value;
use crate::program::BodyInstr;
use std::collections::HashMap;

/// The places of a run: its results, its slots and its scratch.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct RunPlaces {
    /// Per result of the body.
    pub(super) rows: Vec<u64>,
    /// Per slot of the frame.
    pub(super) slots: Vec<u64>,
    pub(super) scratch: u64,
}

impl RunPlaces {
    /// The places relative to the lowest one; runs with equal relative places need only one check.
    pub(super) fn relative(&self) -> RunPlaces {
        let all = self.rows.iter().chain(&self.slots).chain([&self.scratch]);
        let base = all.min().copied().unwrap_or(0);
        let mut relative = self.clone();
        let RunPlaces { rows, slots, scratch } = &mut relative;
        rows.iter_mut().chain(slots).chain([scratch]).for_each(|at| *at -= base);
        relative
    }

    /// The bytes of a value that the body computes; `None` if it shares those of an argument.
    pub(super) fn bytes(&self, places: &Places<'_>, value: Value) -> Option<Bytes> {
        let root = places.root(value);
        let at = match places.frame.places.get(&root)? {
            Place::Row => self.rows[places.body.results.iter().position(|&result| result == root)?],
            Place::Slot(slot, offset) => self.slots.get(*slot)? + offset,
            Place::Scratch(offset) => self.scratch + offset,
            Place::Same(_) => return None,
        };
        Some(Bytes { at, size: places.size[root] })
    }
}

/// The live roots: their bytes and the number of live values.
struct Living<'a> {
    places: &'a Places<'a>,
    site: &'a RunPlaces,
    roots: HashMap<Value, (Bytes, u32)>,
    faults: Vec<(usize, String)>,
    at: usize,
}

/// All pairs of values that overlap at the same time, with the instruction of the body.
pub(super) fn check(places: &Places<'_>, site: &RunPlaces) -> Vec<(usize, String)> {
    let mut living = Living { places, site, roots: HashMap::new(), faults: Vec::new(), at: 0 };
    for (at, instr) in places.body.instrs.iter().enumerate() {
        living.at = at;
        match instr {
            BodyInstr::Compute(_) | BodyInstr::Fused(_) => {
                instr.defines().iter().for_each(|&value| living.begin(value));
            }
            BodyInstr::Start { .. } => places.body.results_of(at).iter().for_each(|&value| living.begin(value)),
            BodyInstr::Wait { results, .. } => {
                results.iter().filter(|value| places.staged.contains(value)).for_each(|&value| living.end(value));
            }
            BodyInstr::Free(values) => values.iter().for_each(|&value| living.end(value)),
        }
    }
    living.faults
}

impl Living<'_> {
    fn begin(&mut self, value: Value) {
        let is_argument = self.places.source[value].is_some() && !self.places.staged.contains(&value);
        let (false, Some(bytes)) = (is_argument, self.site.bytes(self.places, value)) else { return };
        let root = self.places.root(value);
        if let Some((_, values)) = self.roots.get_mut(&root) {
            *values += 1;
            return;
        }
        for (other, _) in self.roots.iter().filter(|(_, (theirs, _))| theirs.meets(bytes)) {
            let (value, other) = (self.places.name(value), self.places.name(*other));
            self.faults.push((self.at, format!("%{value} overwrites %{other}")));
        }
        self.roots.insert(root, (bytes, 1));
    }

    fn end(&mut self, value: Value) {
        let root = self.places.root(value);
        if let Some((_, values)) = self.roots.get_mut(&root) {
            *values -= 1;
            if *values == 0 {
                self.roots.remove(&root);
            }
        }
    }
}
