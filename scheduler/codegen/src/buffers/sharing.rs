//! Values of a body that share bytes: views, updates, and results of elementwise ops on an operand that dies.
//!
//! No op is known by name: each op declares its permissions (`OpFacts::is_view`, `updates`, `in_place`). Bytes never change
//! under a value that still has readers. A body writes to its inputs only where it stores them.

use super::liveness::{FOREVER, Life, Lives};
use ir::entity::SecondaryMap;
use ir::graph::{Model, Stmt};
use ir::ids::Value;
use ir::program::{Body, BodyInstr, Source};
use ir::types::Type;
use std::collections::{BTreeMap, HashSet};

/// Values that share their bytes.
#[derive(Clone, Debug)]
pub(super) struct Class {
    /// All of them, in order of their definition.
    pub(super) members: Vec<Value>,
    /// From the first definition to the end of the last member.
    pub(super) life: Life,
    /// The argument among them.
    pub(super) arg: Option<Value>,
    /// The result among them.
    pub(super) result: Option<Value>,
}

/// The classes of the values that a body makes, each under its first member.
pub(super) fn classes(model: &Model, body: &Body, lives: &Lives) -> BTreeMap<Value, Class> {
    let mut sharing = Sharing::new(model, body, lives);
    for (at, instr) in body.instrs.iter().enumerate() {
        let stmts = instr.stmts();
        for (place, stmt) in stmts.iter().enumerate() {
            sharing.needed = sharing.needed_rows(stmts, place);
            sharing.statement(stmt, at);
        }
    }
    sharing.classes
}

struct Sharing<'a> {
    model: &'a Model,
    body: &'a Body,
    classes: BTreeMap<Value, Class>,
    /// The class of each value, by its first member.
    of: SecondaryMap<Value, Option<Value>>,
    sources: SecondaryMap<Value, Option<Source>>,
    /// Arguments that the body writes.
    stored: HashSet<Value>,
    /// Values that other statements of a group read, beyond the rows of this one.
    needed: HashSet<Value>,
}

impl Sharing<'_> {
    fn new<'a>(model: &'a Model, body: &'a Body, lives: &Lives) -> Sharing<'a> {
        let mut sources = SecondaryMap::new();
        body.args.iter().for_each(|arg| sources[arg.value] = Some(arg.source));
        let mut sharing = Sharing {
            model,
            body,
            classes: BTreeMap::new(),
            of: SecondaryMap::new(),
            sources,
            stored: HashSet::new(),
            needed: HashSet::new(),
        };
        for (&value, &life) in &lives.of {
            let arg = sharing.sources[value].map(|_| value);
            let result = (arg.is_none() && body.results.contains(&value)).then_some(value);
            sharing.classes.insert(value, Class { members: vec![value], life, arg, result });
            sharing.of[value] = Some(value);
        }
        let made = body.instrs.iter().flat_map(BodyInstr::defines);
        sharing.stored = made.copied().filter(|&value| sharing.sources[value].is_some()).collect();
        sharing
    }

    /// Values that a group reads after one of its statements, or whole: their rows must not be overwritten.
    fn needed_rows(&self, stmts: &[Stmt], place: usize) -> HashSet<Value> {
        let later = stmts[place + 1..].iter().flat_map(|stmt| &stmt.operands).copied();
        let whole = stmts.iter().filter(|_| stmts.len() > 1).flat_map(|stmt| {
            let types: Vec<&Type> = stmt.operands.iter().map(|&value| &self.body.values[value].ty).collect();
            let rows = stmt.op.def().and_then(|def| def.rows(&types));
            let operands = stmt.operands.iter().enumerate();
            let whole = operands.filter(move |(place, _)| rows.as_ref().is_none_or(|rows| !rows.operands[*place]));
            whole.map(|(_, &value)| value)
        });
        later.chain(whole).filter_map(|value| self.of[value]).collect()
    }

    fn statement(&mut self, stmt: &Stmt, at: usize) {
        let Some(facts) = stmt.op.kernel().map(|op| op.def().facts()).filter(|_| !stmt.accumulate) else { return };
        if facts.is_view && self.may_view(stmt.results[0], stmt.operands[0]) {
            return self.join(stmt.results[0], stmt.operands[0]);
        }
        for (&result, &operand) in stmt.results.iter().zip(facts.updates) {
            if self.may_overwrite(result, stmt, operand, at) {
                self.join(result, stmt.operands[operand]);
            }
        }
        if let [result] = *stmt.results
            && let Some(&operand) = facts.in_place.iter().find(|&&place| self.may_overwrite(result, stmt, place, at))
        {
            self.join(result, stmt.operands[operand]);
        }
    }

    fn class(&self, value: Value) -> Option<&Class> {
        self.classes.get(&self.of[value]?)
    }

    fn fits(&self, result: Value, operand: Value) -> bool {
        self.sources[result].is_none() && result != operand && self.bytes(result) == self.bytes(operand)
    }

    fn bytes(&self, value: Value) -> u64 {
        self.body.values[value].ty.local_bytes(&self.model.mesh)
    }

    /// A view of an argument may be saved. A result needs a place of its own, and so does each of two results.
    fn may_view(&self, result: Value, operand: Value) -> bool {
        let Some(class) = self.class(operand) else { return false };
        let is_result = self.body.results.contains(&result);
        self.fits(result, operand)
            && !(is_result && class.result.is_some())
            && class.arg.is_none_or(|arg| {
                let lasts = matches!(self.sources[arg], Some(Source::Row | Source::Saved | Source::Param));
                lasts && !is_result && !self.stored.contains(&arg)
            })
    }

    /// Nobody reads the operand's bytes after this statement, nor at another place of it.
    fn may_overwrite(&self, result: Value, stmt: &Stmt, place: usize, at: usize) -> bool {
        let operand = stmt.operands[place];
        let Some(class) = self.class(operand) else { return false };
        let times = stmt.operands.iter().filter(|&&other| self.of[other] == self.of[operand]).count();
        let is_needed = self.of[operand].is_some_and(|class| self.needed.contains(&class));
        self.fits(result, operand) && class.arg.is_none() && class.life.read <= at && times == 1 && !is_needed
    }

    fn join(&mut self, result: Value, operand: Value) {
        let (Some(own), Some(root)) = (self.of[result], self.of[operand]) else { return };
        let Some(class) = self.classes.remove(&own) else { return };
        for &member in &class.members {
            self.of[member] = Some(root);
        }
        let Some(joined) = self.classes.get_mut(&root) else { return };
        joined.life.from = joined.life.from.min(class.life.from);
        joined.life.read = joined.life.read.max(class.life.read);
        joined.life.to = joined.life.to.max(class.life.to);
        joined.members.extend(class.members);
        joined.result = joined.result.or(class.result);
    }
}

impl Class {
    /// True if it outlives the body.
    pub(super) fn is_given(&self) -> bool {
        self.life.to == FOREVER
    }
}
