//! Checks that a reader finds the bytes of its operand: `overlap`. A write makes all other values on the same bytes stale,
//! except views, which have the same content.

use super::places::Places;
use crate::graph::Stmt;
use crate::ids::{BodyId, Token, Value};
use crate::program::BodyInstr;
use crate::verify::program::Violation;
use cranelift_entity::SecondaryMap;
use std::collections::HashMap;

struct Contents<'a> {
    places: &'a Places<'a>,
    /// The content of the bytes of a root: each write assigns a new number. 0 is the content of an argument.
    now: SecondaryMap<Value, u32>,
    /// The content number of each value.
    of: SecondaryMap<Value, u32>,
    last: u32,
    /// Roots that collectives in flight read.
    flying: HashMap<Token, Vec<Value>>,
    faults: Vec<String>,
}

pub(super) fn check(id: BodyId, places: &Places<'_>, found: &mut Vec<Violation>) {
    let mut contents = Contents {
        places,
        now: SecondaryMap::new(),
        of: SecondaryMap::new(),
        last: 0,
        flying: HashMap::new(),
        faults: Vec::new(),
    };
    for (at, instr) in places.body.instrs.iter().enumerate() {
        match instr {
            BodyInstr::Compute(_) | BodyInstr::Fused(_) => {
                instr.stmts().iter().for_each(|stmt| contents.statement(stmt));
                contents.read_whole(instr);
            }
            BodyInstr::Start { token, operands, .. } => contents.start(*token, operands, places.body.results_of(at)),
            BodyInstr::Wait { token, .. } => drop(contents.flying.remove(token)),
            BodyInstr::Free(_) => {}
        }
        found.extend(contents.faults.drain(..).map(|text| Violation::in_body("overlap", id, at, text)));
    }
    places.body.results.iter().chain(&places.body.keeps).for_each(|&value| contents.read(value));
    let end = places.body.instrs.len();
    found.extend(contents.faults.into_iter().map(|text| Violation::in_body("overlap", id, end, text)));
}

impl Contents<'_> {
    fn root(&self, value: Value) -> Value {
        self.places.root(value)
    }

    fn read(&mut self, value: Value) {
        if self.of[value] != self.now[self.root(value)] {
            self.faults.push(format!("%{} is read, but its bytes have been overwritten", self.places.name(value)));
        }
    }

    fn write(&mut self, value: Value) {
        let root = self.root(value);
        if self.flying.values().flatten().any(|&other| other == root) {
            self.faults.push(format!("%{} overwrites an operand of a collective in flight", self.places.name(value)));
        }
        if self.places.source[root].is_some() && root != value {
            self.faults.push(format!("%{} overwrites an argument", self.places.name(value)));
        }
        self.last += 1;
        self.now[root] = self.last;
        self.of[value] = self.last;
    }

    fn statement(&mut self, stmt: &Stmt) {
        stmt.operands.iter().for_each(|&value| self.read(value));
        let Some(op) = stmt.op.kernel().map(|op| op.def()) else { return };
        let facts = op.facts();
        for (nth, &result) in stmt.results.iter().enumerate() {
            let root = self.root(result);
            if facts.is_view && self.root(stmt.operands[0]) == root {
                self.of[result] = self.of[stmt.operands[0]];
                continue;
            }
            let in_place = if stmt.results.len() == 1 { facts.in_place } else { &[] };
            let mut operands = stmt.operands.iter().enumerate().filter(|(_, operand)| self.root(**operand) == root);
            let lost = operands.find(|(place, _)| facts.updates.get(nth) != Some(place) && !in_place.contains(place));
            if let Some((_, &operand)) = lost {
                let (result, operand) = (self.places.name(result), self.places.name(operand));
                self.faults.push(format!("%{result} overwrites %{operand}, which `{}` still reads", op.name()));
            }
            self.write(result);
        }
    }

    /// A group overwrites some rows of an operand while others are still to come: a statement must not read it whole.
    fn read_whole(&mut self, instr: &BodyInstr) {
        let BodyInstr::Fused(fused) = instr else { return };
        let roots: Vec<Value> = fused.outs.iter().map(|&out| self.root(out)).collect();
        for stmt in &fused.stmts {
            let types = self.places.body.types(&stmt.operands);
            let by_rows = stmt.op.def().and_then(|def| def.rows(&types)).map(|rows| rows.operands).unwrap_or_default();
            for (place, &operand) in stmt.operands.iter().enumerate() {
                if by_rows.get(place) != Some(&true) && roots.contains(&self.root(operand)) {
                    let name = self.places.name(operand);
                    self.faults.push(format!("%{name} is overwritten by a group that reads it whole"));
                }
            }
        }
    }

    /// Results are written from the start on, while the operands are still read.
    fn start(&mut self, token: Token, operands: &[Value], results: &[Value]) {
        operands.iter().for_each(|&value| self.read(value));
        self.flying.insert(token, operands.iter().map(|&value| self.root(value)).collect());
        results.iter().for_each(|&value| {
            // The addend of a gradient sum has its own place until the wait.
            if !self.places.staged.contains(&value) {
                self.write(value);
            }
        });
    }
}
