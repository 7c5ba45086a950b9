//! Values of bodies: `undefined`, `redefined`, `read-after-free`, `double-free`, `leak`, `in-flight`, `token`, and the types
//! of collectives: `collective-type`; groups: `fused`.

use super::{Violation, fused, partials};
use crate::fused::Fused;
use crate::graph::{Model, Stmt};
use crate::ids::{BodyId, Token, Value};
use crate::mesh::Mesh;
use crate::ops::Collective;
use crate::program::{Body, BodyInstr, BodyKind, Source};
use crate::types::Type;
use std::collections::{HashMap, HashSet};

struct BodyState<'a> {
    body: &'a Body,
    sources: HashMap<Value, Source>,
    defined: HashSet<Value>,
    freed: HashSet<Value>,
    in_flight: HashMap<Token, InFlight<'a>>,
}

/// A collective in flight: the collective, its operands, and the results of its wait.
type InFlight<'a> = (&'a Collective, &'a [Value], &'a [Value]);

pub(super) fn check(model: &Model, id: BodyId, body: &Body, found: &mut Vec<Violation>) {
    let sources: HashMap<Value, Source> = body.args.iter().map(|arg| (arg.value, arg.source)).collect();
    let defined = sources.keys().copied().collect();
    let mut state = BodyState { body, sources, defined, freed: HashSet::new(), in_flight: HashMap::new() };
    for (at, instr) in body.instrs.iter().enumerate() {
        let mut say = |what, text| found.push(Violation::in_body(what, id, at, text));
        match instr {
            BodyInstr::Compute(stmt) => state.statement(stmt, &mut say),
            BodyInstr::Fused(fused) => {
                fused.stmts.iter().for_each(|stmt| state.statement(stmt, &mut say));
                state.leave(fused, &mut say);
                fused::check(model, body, fused).into_iter().for_each(|text| say("fused", text));
            }
            BodyInstr::Start { token, collective, operands } => {
                operands.iter().for_each(|&value| state.read(value, &mut say));
                if model.mesh.pipeline().is_some_and(|pp| collective.over().contains(pp)) {
                    say("collective-type", format!("`{}` is over pp", collective.name()));
                }
                let results = results_of(body, *token);
                operands.iter().chain(results).for_each(|&value| state.busy(value, results.contains(&value), &mut say));
                if state.in_flight.insert(*token, (collective, operands, results)).is_some() {
                    say("token", format!("{token} is started twice"));
                }
            }
            BodyInstr::Wait { token, results } => {
                let request = state.in_flight.remove(token);
                results.iter().for_each(|&value| state.define(value, false, &mut say));
                match request {
                    None => say("token", format!("{token} is not in flight")),
                    Some((collective, operands, _)) => {
                        layout_change(&model.mesh, body, (collective, operands), results, &mut say);
                    }
                }
            }
            BodyInstr::Free(values) => values.iter().for_each(|&value| state.free(value, &mut say)),
        }
    }
    let end = body.instrs.len();
    let mut say = |what, text| found.push(Violation::in_body(what, id, end, text));
    body.results.iter().chain(&body.keeps).for_each(|&value| state.read(value, &mut say));
    for &value in &state.defined {
        let kept = state.sources.contains_key(&value) || body.results.contains(&value) || body.keeps.contains(&value);
        if !kept && !state.freed.contains(&value) {
            say("leak", format!("{} is never freed", state.name(value)));
        }
    }
    if !state.in_flight.is_empty() {
        say("token", "a collective has no wait".to_string());
    }
}

impl BodyState<'_> {
    fn name(&self, value: Value) -> String {
        self.body.values.get(value).map_or_else(|| value.to_string(), |data| format!("%{}", data.name))
    }

    fn statement(&mut self, stmt: &Stmt, say: &mut impl FnMut(&'static str, String)) {
        stmt.operands.iter().for_each(|&value| self.read(value, say));
        stmt.operands.iter().for_each(|&value| self.busy(value, false, say));
        stmt.results.iter().for_each(|&value| self.busy(value, true, say));
        stmt.results.iter().for_each(|&value| self.define(value, stmt.accumulate, say));
        if stmt.op.kernel().is_none() {
            say("signature", format!("`{}` has no kernel", stmt.op.name()));
        } else if let Some((what, text)) = partials::check(self.body, stmt) {
            say(what, text);
        }
    }

    /// The end of a group, after which its interior values are gone.
    fn leave(&mut self, fused: &Fused, say: &mut impl FnMut(&'static str, String)) {
        for &out in fused.outs.iter().filter(|&out| !fused.stmts.iter().any(|stmt| stmt.results.contains(out))) {
            say("fused", format!("{} is left by a group that does not compute it", self.name(out)));
        }
        self.freed.extend(fused.interior());
    }

    fn read(&self, value: Value, say: &mut impl FnMut(&'static str, String)) {
        if !self.defined.contains(&value) {
            say("undefined", format!("{} is not defined here", self.name(value)));
        } else if self.freed.contains(&value) {
            say("read-after-free", format!("{} has been freed", self.name(value)));
        }
    }

    fn define(&mut self, value: Value, accumulate: bool, say: &mut impl FnMut(&'static str, String)) {
        let right = match self.sources.get(&value) {
            Some(Source::Gradient) => accumulate && self.body.kind.accumulates(),
            Some(Source::Param | Source::State) => !accumulate && self.body.kind == BodyKind::U,
            Some(Source::Row | Source::Saved | Source::Scalar) => false,
            None => !accumulate && !self.defined.contains(&value) && self.body.values.get(value).is_some(),
        };
        if !right {
            say("redefined", format!("{} may not be defined here", self.name(value)));
        }
        self.defined.insert(value);
    }

    fn free(&mut self, value: Value, say: &mut impl FnMut(&'static str, String)) {
        if self.sources.contains_key(&value) || !self.defined.contains(&value) {
            say("undefined", format!("{} does not belong to the body, which cannot free it", self.name(value)));
        } else if !self.freed.insert(value) {
            say("double-free", format!("{} has been freed", self.name(value)));
        }
        self.busy(value, true, say);
    }

    /// True if a collective in flight forbids reading or changing the value.
    fn busy(&self, value: Value, changed: bool, say: &mut impl FnMut(&'static str, String)) {
        let busy =
            |(_, operands, results): &InFlight<'_>| results.contains(&value) || changed && operands.contains(&value);
        if self.in_flight.values().any(busy) {
            say("in-flight", format!("{} is used by a collective in flight", self.name(value)));
        }
    }
}

/// The results of the wait of a token.
fn results_of(body: &Body, wanted: Token) -> &[Value] {
    let waited = |instr: &&BodyInstr| matches!(instr, BodyInstr::Wait { token, .. } if *token == wanted);
    match body.instrs.iter().find(waited) {
        Some(BodyInstr::Wait { results, .. }) => results,
        _ => &[],
    }
}

fn layout_change(
    mesh: &Mesh,
    body: &Body,
    (collective, operands): (&Collective, &[Value]),
    results: &[Value],
    say: &mut impl FnMut(&'static str, String),
) {
    let moved = collective.moved(operands);
    if moved.len() != results.len() {
        say("collective-type", format!("{} tensors go in, {} come out", moved.len(), results.len()));
    }
    let types: Vec<&Type> = operands.iter().map(|&value| &body.values[value].ty).collect();
    if let Err(why) = collective.check_counts(&types) {
        say("collective-type", format!("`{}`: {why}", collective.name()));
    }
    for (&operand, &result) in moved.iter().zip(results) {
        let operand = &body.values[operand].ty;
        match collective.check_sizes(mesh, operand).and_then(|()| collective.result_type(operand)) {
            Err(why) => say("collective-type", format!("`{}`: {why}", collective.name())),
            Ok(ty) if ty != body.values[result].ty => {
                let name = &body.values[result].name;
                say("collective-type", format!("`{}` does not give the type of %{name}", collective.name()));
            }
            Ok(_) => {}
        }
    }
}
