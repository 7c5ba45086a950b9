//! Frame of a body. Results have the places that the instruction stream states, saved activations in slots, all other values in
//! scratch.

use super::bound::LiveBytes;
use super::interval::{Interval, aligned, pack};
use super::liveness::{FOREVER, Life, Lives};
use super::sharing::{Class, classes};
use ir::arena::{Frame, Place};
use ir::graph::Model;
use ir::ids::{BodyId, Value};
use ir::program::{Body, BodyKind, Program, Source};
use std::collections::{BTreeMap, HashSet};

/// Bytes of a frame, and when they are used: from an instruction of the body up to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub(super) offset: u64,
    pub(super) size: u64,
    pub(super) from: usize,
    pub(super) to: usize,
}

/// Place of a result or a saved value of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Given {
    /// It is the argument of this index, or has its place.
    Arg(usize),
    /// It is the result of this index that the body computes, or has its place.
    Row(usize),
    /// It is the piece of this index in the slot of this index.
    Slot(usize, usize),
}

/// A body with its frame.
#[derive(Debug)]
pub(super) struct FrameLayout {
    pub(super) frame: Frame,
    /// Per result.
    pub(super) results: Vec<Given>,
    /// Per saved value.
    pub(super) keeps: Vec<Given>,
    /// The results that the body makes; all at offset 0.
    pub(super) rows: Vec<Piece>,
    pub(super) slots: Vec<Vec<Piece>>,
    pub(super) scratch: Vec<Piece>,
    /// When it needs most of these.
    pub(super) fullest: LiveBytes,
}

impl FrameLayout {
    pub(super) fn new(model: &Model, program: &Program, id: BodyId) -> FrameLayout {
        let body = &program.bodies[id];
        let lives = Lives::new(body);
        let classes = classes(model, body, &lives);

        let mut laid = Laid::default();
        let mut saved: Vec<SavedValue<'_>> = Vec::new();
        let mut inner: Vec<(Value, Interval)> = Vec::new();
        for (&first, class) in &classes {
            let interval = interval(model, body, first, class.life);
            match (class.arg, class.result) {
                (Some(arg), _) => {
                    let place = body.args.iter().position(|given| given.value == arg);
                    laid.together(class, arg, place.map(Given::Arg));
                }
                (None, Some(result)) => laid.give(class, result, interval),
                (None, None) if class.is_given() => {
                    let root = body.keeps.iter().find(|value| class.members.contains(value)).unwrap_or(&first);
                    saved.push(SavedValue { class, root: *root, interval });
                }
                (None, None) => {
                    laid.together(class, first, None);
                    inner.push((first, interval));
                }
            }
        }
        inner.extend(lives.staged.iter().map(|&(value, life)| (value, interval(model, body, value, life))));
        let slots = laid.save(saved, &read_by_w(program, body));
        let scratch = laid.scratch(inner);
        let (results, keeps) = (laid.given_to(&body.results), laid.given_to(&body.keeps));
        let frame = Frame { slots, scratch, places: laid.places };
        let fullest = LiveBytes::within(&laid.rows, &laid.slots.concat(), &laid.inner);
        FrameLayout { frame, results, keeps, rows: laid.rows, slots: laid.slots, scratch: laid.inner, fullest }
    }
}

/// Bytes of a value during its life.
fn interval(model: &Model, body: &Body, value: Value, life: Life) -> Interval {
    let size = aligned(body.values[value].ty.local_bytes(&model.mesh));
    Interval { size, from: life.from, to: life.to }
}

/// The saved values of F or I that W reads, where W is a body of its own. They live longer than those that I reads last.
fn read_by_w(program: &Program, body: &Body) -> HashSet<Value> {
    if !matches!(body.kind, BodyKind::F | BodyKind::I) {
        return HashSet::new();
    }
    let its_w = program.bodies.values().filter(|other| other.block == body.block && other.kind == BodyKind::W);
    let args = its_w.flat_map(|w| &w.args);
    args.filter(|arg| arg.source == Source::Saved).map(|arg| arg.value).collect()
}

/// A saved value that a body makes.
struct SavedValue<'a> {
    class: &'a Class,
    /// The member of the class that has its place.
    root: Value,
    interval: Interval,
}

/// The most slots of saved values with one life span, where W is a body of its own. Bundles of two life spans then mix, and small
/// slots fit into the gaps of others.
const SLOTS: u64 = 4;

/// Splits saved values into at most that many slots of about the same size; none is empty.
fn in_slots(saved: Vec<SavedValue<'_>>, most: u64) -> Vec<Vec<SavedValue<'_>>> {
    let total = saved.iter().map(|value| value.interval.size).sum::<u64>().max(1);
    let (mut slots, mut end): (Vec<(u64, Vec<SavedValue<'_>>)>, u64) = (Vec::new(), 0);
    for value in saved {
        let share = end * most / total;
        end += value.interval.size;
        match slots.last_mut() {
            Some((last, slot)) if *last == share => slot.push(value),
            _ => slots.push((share, vec![value])),
        }
    }
    slots.into_iter().map(|(_, slot)| slot).collect()
}

/// Layout so far.
#[derive(Default)]
struct Laid {
    places: BTreeMap<Value, Place>,
    given: BTreeMap<Value, Given>,
    rows: Vec<Piece>,
    slots: Vec<Vec<Piece>>,
    inner: Vec<Piece>,
}

impl Laid {
    /// All members of a class share one of them.
    fn together(&mut self, class: &Class, root: Value, given: Option<Given>) {
        for &member in &class.members {
            if member != root {
                self.places.insert(member, Place::Same(root));
            }
            self.given.extend(given.map(|given| (member, given)));
        }
    }

    /// Places of results or saved values.
    fn given_to(&self, values: &[Value]) -> Vec<Given> {
        values.iter().map(|value| self.given[value]).collect()
    }

    fn give(&mut self, class: &Class, result: Value, Interval { size, from, .. }: Interval) {
        self.together(class, result, Some(Given::Row(self.rows.len())));
        self.places.insert(result, Place::Row);
        self.rows.push(Piece { offset: 0, size, from, to: FOREVER });
    }

    /// Lays out saved values in the order of their definition, so that the end of a slot is used last: those that I reads last
    /// in slots of their own, those that wait for W in others. Gives the bytes of the slots.
    fn save(&mut self, mut saved: Vec<SavedValue<'_>>, waiting: &HashSet<Value>) -> Vec<u64> {
        saved.sort_by_key(|value| value.interval.from);
        let (late, early): (Vec<_>, Vec<_>) =
            saved.into_iter().partition(|value| value.class.members.iter().any(|member| waiting.contains(member)));
        let most = if waiting.is_empty() { 1 } else { SLOTS };
        [early, late].into_iter().flat_map(|saved| in_slots(saved, most)).map(|slot| self.slot(slot)).collect()
    }

    /// Lays out one slot. Gives its bytes.
    fn slot(&mut self, saved: Vec<SavedValue<'_>>) -> u64 {
        let (slot, mut pieces, mut end) = (self.slots.len(), Vec::new(), 0);
        for SavedValue { class, root, interval: Interval { size, from, .. } } in saved {
            self.together(class, root, Some(Given::Slot(slot, pieces.len())));
            self.places.insert(root, Place::Slot(slot, end));
            pieces.push(Piece { offset: end, size, from, to: FOREVER });
            end += size;
        }
        self.slots.push(pieces);
        end
    }

    /// The scratch is packed from its end, so that its beginning is used when most is needed. Gives its bytes.
    fn scratch(&mut self, inner: Vec<(Value, Interval)>) -> u64 {
        let intervals: Vec<Interval> = inner.iter().map(|(_, interval)| *interval).collect();
        let (bytes, offsets) = pack(&intervals);
        for ((value, Interval { size, from, to }), offset) in inner.into_iter().zip(offsets) {
            let offset = bytes - offset - size;
            self.places.insert(value, Place::Scratch(offset));
            self.inner.push(Piece { offset, size, from, to });
        }
        bytes
    }
}
