//! A body with the places of its values, if all have a place: `arena`.

use crate::arena::{ALIGNMENT, Frame, Place};
use crate::graph::Model;
use crate::ids::{BodyId, Value};
use crate::program::{Body, BodyInstr, Source};
use crate::verify::program::{Reporter, Violation};
use cranelift_entity::SecondaryMap;
use std::collections::HashSet;

/// A body whose values all have places.
pub(super) struct Places<'a> {
    pub(super) body: &'a Body,
    pub(super) frame: &'a Frame,
    /// The value whose bytes each value uses: itself, unless its place is that of another.
    pub(super) root: SecondaryMap<Value, Option<Value>>,
    /// Bytes of each value.
    pub(super) size: SecondaryMap<Value, u64>,
    /// The source of each argument.
    pub(super) source: SecondaryMap<Value, Option<Source>>,
    /// Gradient sums that a wait adds to.
    pub(super) staged: HashSet<Value>,
}

impl<'a> Places<'a> {
    /// Checks each place alone.
    pub(super) fn of(model: &Model, id: BodyId, body: &'a Body, found: &mut Vec<Violation>) -> Places<'a> {
        static NONE: Frame = Frame { slots: Vec::new(), scratch: 0, places: std::collections::BTreeMap::new() };
        let frame = body.frame.as_ref().unwrap_or(&NONE);
        let mut source = SecondaryMap::new();
        body.args.iter().for_each(|arg| source[arg.value] = Some(arg.source));
        let size = body.values.values().map(|data| data.ty.local_bytes(&model.mesh)).collect::<Vec<_>>();
        let mut places = Places {
            body,
            frame,
            root: SecondaryMap::new(),
            size: SecondaryMap::new(),
            source,
            staged: HashSet::new(),
        };
        body.values.keys().zip(size).for_each(|(value, size)| places.size[value] = size);
        let mut made: HashSet<Value> = HashSet::new();
        for instr in &body.instrs {
            made.extend(instr.defines());
            if let BodyInstr::Wait { results, .. } = instr {
                let sums = results.iter().filter(|value| places.source[**value] == Some(Source::Gradient));
                places.staged.extend(sums);
            }
        }
        made.retain(|value| places.source[*value].is_none() || places.staged.contains(value));
        let mut reporter = Reporter::in_body(found, id, body.instrs.len());
        for &value in frame.places.keys().filter(|value| !made.contains(value)) {
            let name = body.value_name(value);
            reporter.report("arena", format!("%{name} has a place, but the body does not compute it"));
        }
        for &value in &made {
            if let Some(text) = places.fault(value) {
                reporter.report("arena", format!("%{} {text}", body.value_name(value)));
            }
        }
        for arg in &body.args {
            places.root[arg.value] = Some(arg.value);
        }
        for &value in made.iter().filter(|value| places.source[**value].is_none()) {
            places.root[value] = places.resolve(value);
        }
        for &value in &body.keeps {
            if let (Some(root), None) = (places.root[value], places.source[value])
                && matches!(frame.places.get(&root), Some(Place::Scratch(_)))
            {
                let name = body.value_name(value);
                reporter.report("arena", format!("%{name} is saved, but its place is in the scratch"));
            }
        }
        places
    }

    /// The error of the place of a value that the body computes, if any.
    fn fault(&self, value: Value) -> Option<String> {
        let Some(place) = self.frame.places.get(&value) else { return Some("has no place".to_string()) };
        let is_result = self.body.results.contains(&value);
        if is_result != (*place == Place::Row) {
            return Some(
                if is_result { "is a result, but has a place in the frame" } else { "is not a result" }.to_string(),
            );
        }
        match *place {
            Place::Row => None,
            Place::Slot(slot, at) => match self.frame.slots.get(slot) {
                Some(&bytes) => within(at, self.size[value], bytes, "slot"),
                None => Some(format!("is in slot {slot}, of {}", self.frame.slots.len())),
            },
            Place::Scratch(at) => within(at, self.size[value], self.frame.scratch, "scratch"),
            Place::Same(_) => match self.resolve(value) {
                None => Some("has the place of a value without a place".to_string()),
                Some(root) if self.size[root] != self.size[value] => {
                    Some("has the place of a tensor of another size".to_string())
                }
                Some(_) => None,
            },
        }
    }

    /// The value at the end of a chain of `=`; `None` if the chain has no end.
    fn resolve(&self, value: Value) -> Option<Value> {
        let mut at = value;
        for _ in 0..=self.frame.places.len() {
            if self.source[at].is_some() {
                return Some(at);
            }
            match self.frame.places.get(&at)? {
                Place::Same(other) => at = *other,
                _ => return Some(at),
            }
        }
        None
    }

    /// The value whose bytes a value uses.
    pub(super) fn root(&self, value: Value) -> Value {
        self.root[value].unwrap_or(value)
    }

    pub(super) fn name(&self, value: Value) -> &'a str {
        self.body.value_name(value)
    }
}

/// The error of a place of `size` bytes in a slot or scratch of `whole` bytes, if any.
fn within(at: u64, size: u64, whole: u64, what: &str) -> Option<String> {
    if at.checked_add(size).is_none_or(|end| end > whole) {
        return Some(format!("ends outside the {what} of {whole} bytes"));
    }
    (!at.is_multiple_of(ALIGNMENT)).then(|| format!("begins at {at}, which is not a multiple of {ALIGNMENT}"))
}
