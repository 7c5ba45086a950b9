//! The choice of statements: from the latest value to the first, another form takes the place of a value's statement where the
//! section then costs less.

use super::encode::Encoded;
use super::forms::{Form, Forms, cost};
use egg::Id;
use ir::graph::Stmt;
use ir::ids::Value;
use std::collections::{HashMap, HashSet};

/// The most times that all choices are looked at.
const SWEEPS: usize = 8;

/// The most moves between a value and the recognised op whose result it is.
const MOVES: usize = 4;

/// A target of the extraction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Slot {
    /// The value that readers of a class read.
    Class(Id),
    /// The results of a statement of its own, by its place.
    Place(usize),
}

/// How a slot is computed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Definition<'a> {
    /// By a statement of the section.
    Stmt(usize),
    /// By a new statement.
    Form(&'a Form),
}

/// The choices for a section.
pub(crate) struct Extraction<'a> {
    pub(crate) stmts: &'a [Stmt],
    pub(crate) encoded: &'a Encoded,
    forms: &'a Forms,
    /// The value that readers of a class read.
    holders: HashMap<Id, Value>,
    /// The targets that the section must compute, by the places of their statements.
    roots: Vec<(usize, Slot)>,
    chosen: HashMap<Slot, Form>,
    /// The recognised ops, and the statements that each made superfluous.
    pub(crate) recognised: Vec<(Form, usize)>,
}

/// The statements of a section after some choices.
struct Live {
    kept: HashSet<usize>,
    cost: usize,
}

impl<'a> Extraction<'a> {
    /// Chooses. The protected values keep a statement each.
    pub(crate) fn new(
        stmts: &'a [Stmt],
        encoded: &'a Encoded,
        forms: &'a Forms,
        protected: &HashSet<Value>,
    ) -> Extraction<'a> {
        let mut extraction = Extraction {
            stmts,
            encoded,
            forms,
            holders: HashMap::new(),
            roots: Vec::new(),
            chosen: HashMap::new(),
            recognised: Vec::new(),
        };
        extraction.find_holders(protected);
        extraction.find_roots(protected);
        extraction.choose();
        extraction
    }

    /// The first protected value of a class is its holder, or else the first value.
    fn find_holders(&mut self, protected: &HashSet<Value>) {
        for is_protected in [true, false] {
            for (place, stmt) in self.stmts.iter().enumerate() {
                for &value in stmt.results.iter().filter(|&&value| protected.contains(&value) == is_protected) {
                    let class = self.encoded.of(value).filter(|&class| self.encoded.outside(class).is_none());
                    if let Some(class) = class.filter(|_| self.encoded.statement.get(&value) == Some(&place)) {
                        self.holders.entry(class).or_insert(value);
                    }
                }
            }
        }
    }

    fn find_roots(&mut self, protected: &HashSet<Value>) {
        for (place, stmt) in self.stmts.iter().enumerate() {
            let held = |value: &Value| {
                self.encoded.of(*value).filter(|class| self.holders.get(class) == Some(value)).map(Slot::Class)
            };
            let is_fixed = self.encoded.fixed.contains(&place) || stmt.accumulate;
            let results = stmt.results.iter().filter(|value| protected.contains(value));
            let own = is_fixed.then_some(Slot::Place(place));
            let slots = results.map(|value| held(value).unwrap_or(Slot::Place(place)));
            let roots: Vec<Slot> = own.into_iter().chain(slots).collect();
            self.roots.extend(roots.into_iter().map(|slot| (place, slot)));
        }
    }

    /// The targets that the section computes under the name of a value, in no particular order of places.
    pub(crate) fn slots(&self) -> Vec<Slot> {
        self.reached().unwrap_or_default().into_iter().filter(|&slot| self.home(slot).is_some()).collect()
    }

    /// The place of a slot among the statements of the section; none for one that no value holds.
    pub(crate) fn home(&self, slot: Slot) -> Option<usize> {
        match (slot, self.definition(slot)?) {
            (Slot::Place(place), _) | (_, Definition::Stmt(place)) => Some(place),
            (Slot::Class(class), Definition::Form(_)) => self.encoded.statement.get(self.holders.get(&class)?).copied(),
        }
    }

    /// The result of a statement that stays, in place of its own: the value that readers of its class read.
    pub(crate) fn result(&self, place: usize, own: Value) -> Value {
        let class = self.encoded.of(own).filter(|&class| self.encoded.first(class) == Some((place, own)));
        class.and_then(|class| self.holders.get(&class).copied()).unwrap_or(own)
    }

    /// The value that readers of a class read.
    pub(crate) fn holder(&self, class: Id) -> Option<Value> {
        self.encoded.outside(class).or_else(|| self.holders.get(&class).copied())
    }

    /// How a slot is computed.
    pub(crate) fn definition(&self, slot: Slot) -> Option<Definition<'_>> {
        if let Some(form) = self.chosen.get(&slot) {
            return Some(Definition::Form(form));
        }
        match slot {
            Slot::Place(place) => Some(Definition::Stmt(place)),
            Slot::Class(class) => match self.encoded.first(class) {
                Some((place, _)) => Some(Definition::Stmt(place)),
                None => self.forms.cheapest(class).map(Definition::Form),
            },
        }
    }

    /// True if nothing changes.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.chosen.is_empty() && self.live().is_none_or(|live| live.kept.len() == self.stmts.len())
    }

    /// Recognised ops come first: once other forms have taken the place of the values around them, each of which is a small
    /// gain, no single step leads there. Steps of several slots come last.
    fn choose(&mut self) {
        let Some(mut live) = self.live() else { return };
        self.descend(true, &mut live);
        for _ in 0..SWEEPS {
            self.descend(false, &mut live);
            let before = live.cost;
            let mut readers = self.readers();
            for slot in self.reached().unwrap_or_default() {
                if self.avoid(slot, &readers, &mut live) {
                    readers = self.readers();
                }
            }
            if live.cost == before {
                break;
            }
        }
    }

    /// Takes cheaper forms, slot by slot, until none is left.
    fn descend(&mut self, only_recognised: bool, live: &mut Live) {
        for _ in 0..SWEEPS {
            let before = live.cost;
            for slot in self.reached().unwrap_or_default() {
                self.improve(slot, only_recognised, live);
            }
            if live.cost == before {
                break;
            }
        }
    }

    /// The slots that read each class.
    fn readers(&self) -> HashMap<Id, Vec<Slot>> {
        let mut readers: HashMap<Id, Vec<Slot>> = HashMap::new();
        for slot in self.reached().unwrap_or_default() {
            let reads = match self.definition(slot) {
                Some(Definition::Form(form)) => form.operands.as_slice(),
                Some(Definition::Stmt(place)) => &self.encoded.operands[place],
                None => &[],
            };
            for class in reads.iter().collect::<HashSet<_>>() {
                readers.entry(*class).or_default().push(slot);
            }
        }
        readers
    }

    /// Takes other forms for all readers of a slot together, if the section then costs less.
    fn avoid(&mut self, slot: Slot, readers: &HashMap<Id, Vec<Slot>>, live: &mut Live) -> bool {
        let Slot::Class(class) = slot else { return false };
        let Some(readers) = readers.get(&class).filter(|readers| readers.len() > 1) else { return false };
        let before = self.chosen.clone();
        let all_avoid = readers.iter().all(|&reader| self.take_without(reader, class).is_some());
        let next = if all_avoid { self.live().filter(|next| next.cost < live.cost) } else { None };
        let is_better = next.is_some();
        match next {
            Some(next) => *live = next,
            None => self.chosen = before,
        }
        is_better
    }

    /// Takes the best form of a slot that does not read a class; `None` if there is none.
    fn take_without(&mut self, slot: Slot, class: Id) -> Option<()> {
        let Slot::Class(own) = slot else { return None };
        let forms: &'a Forms = self.forms;
        for form in forms.of(own) {
            if !self.needs(form, class, MOVES) {
                self.chosen.insert(slot, form.clone());
                if self.reached().is_some() {
                    return Some(());
                }
            }
        }
        None
    }

    /// True if a form reads a class, perhaps through others that no value holds.
    fn needs(&self, form: &Form, class: Id, depth: usize) -> bool {
        form.operands.iter().any(|&operand| {
            let inner = self.forms.cheapest(operand).filter(|_| depth > 0 && !self.encoded.has_value(operand));
            operand == class || inner.is_some_and(|inner| self.needs(inner, class, depth - 1))
        })
    }

    /// Takes the form of a slot with which the section costs least, if that is less than now.
    fn improve(&mut self, slot: Slot, only_recognised: bool, live: &mut Live) {
        let Some((form, next)) = self.best(slot, only_recognised, live.cost) else { return };
        let dropped = live.kept.difference(&next.kept).count();
        let op = self.recognised_in(&form).cloned();
        self.recognised.extend(op.map(|op| (op, dropped)));
        self.chosen.insert(slot, form);
        *live = next;
    }

    fn best(&mut self, slot: Slot, only_recognised: bool, now: usize) -> Option<(Form, Live)> {
        let class = match slot {
            Slot::Class(class) => class,
            Slot::Place(place) => *self.encoded.term.get(&place)?,
        };
        let known = self.chosen.get(&slot).cloned();
        let mut best: Option<(Form, Live)> = None;
        for form in self.forms.of(class) {
            if only_recognised && self.recognised_in(form).is_none() {
                continue;
            }
            self.chosen.insert(slot, form.clone());
            let live = self.live().filter(|live| live.cost < best.as_ref().map_or(now, |(_, best)| best.cost));
            best = live.map(|live| (form.clone(), live)).or(best);
        }
        match known {
            Some(known) => self.chosen.insert(slot, known),
            None => self.chosen.remove(&slot),
        };
        best
    }

    /// The recognised op of a form, or of what it moves.
    fn recognised_in<'f>(&'f self, form: &'f Form) -> Option<&'f Form> {
        let mut form = form;
        for _ in 0..MOVES {
            if form.is_recognised() {
                return Some(form);
            }
            let &[operand] = form.operands.as_slice() else { return None };
            if self.holder(operand).is_some() {
                return None;
            }
            let Definition::Form(inner) = self.definition(Slot::Class(operand))? else { return None };
            form = inner;
        }
        None
    }

    /// The targets that the section computes, the last first; `None` if one would need itself.
    fn reached(&self) -> Option<Vec<Slot>> {
        let (mut order, mut seen, mut path) = (Vec::new(), HashSet::new(), HashSet::new());
        let mut roots = self.roots.clone();
        roots.sort_by_key(|(place, _)| std::cmp::Reverse(*place));
        roots.into_iter().try_for_each(|(_, slot)| self.reach(slot, &mut order, &mut seen, &mut path))?;
        Some(order)
    }

    fn reach(
        &self,
        slot: Slot,
        order: &mut Vec<Slot>,
        seen: &mut HashSet<Slot>,
        path: &mut HashSet<Slot>,
    ) -> Option<()> {
        if path.contains(&slot) {
            return None;
        }
        if !seen.insert(slot) {
            return Some(());
        }
        order.push(slot);
        path.insert(slot);
        let needs = match self.definition(slot)? {
            Definition::Form(form) => &form.operands,
            Definition::Stmt(place) => &self.encoded.operands[place],
        };
        for &class in needs.iter().filter(|class| self.encoded.outside(**class).is_none()) {
            self.reach(Slot::Class(class), order, seen, path)?;
        }
        path.remove(&slot);
        Some(())
    }

    /// The statements that stay, and the cost of these and of the new ones.
    fn live(&self) -> Option<Live> {
        let (mut kept, mut new) = (HashSet::new(), HashSet::new());
        for slot in self.reached()? {
            match self.definition(slot)? {
                Definition::Stmt(place) => drop(kept.insert(place)),
                Definition::Form(form) => drop(new.insert(form)),
            }
        }
        let stays: usize = kept.iter().map(|&place| cost(&self.stmts[place])).sum();
        let comes: usize = new.iter().map(|form| form.cost()).sum();
        Some(Live { kept, cost: stays + comes })
    }
}
