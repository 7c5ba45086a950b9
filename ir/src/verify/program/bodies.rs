//! Values of bodies: `undefined`, `redefined`, `read-after-free`, `double-free`, `leak`, `in-flight`, `token`, and the types
//! of collectives: `collective-type`; groups: `fused`.

use super::{Reporter, Violation, fused, partials};
use crate::fused::Fused;
use crate::graph::{Model, Stmt};
use crate::ids::{BodyId, Token, Value};
use crate::mesh::Mesh;
use crate::ops::Collective;
use crate::program::{Body, BodyInstr, BodyKind, Source};
use std::collections::{HashMap, HashSet};

struct BodyState<'a> {
    body: &'a Body,
    sources: HashMap<Value, Source>,
    defined: HashSet<Value>,
    freed: HashSet<Value>,
    in_flight: HashMap<Token, InFlight<'a>>,
}

/// A collective in flight.
struct InFlight<'a> {
    collective: &'a Collective,
    operands: &'a [Value],
    /// The results of its wait.
    results: &'a [Value],
}

pub(super) fn check(model: &Model, id: BodyId, body: &Body, found: &mut Vec<Violation>) {
    let sources: HashMap<Value, Source> = body.args.iter().map(|arg| (arg.value, arg.source)).collect();
    let defined = sources.keys().copied().collect();
    let mut state = BodyState { body, sources, defined, freed: HashSet::new(), in_flight: HashMap::new() };
    for (at, instr) in body.instrs.iter().enumerate() {
        let mut reporter = Reporter::in_body(found, id, at);
        match instr {
            BodyInstr::Compute(stmt) => state.statement(stmt, &mut reporter),
            BodyInstr::Fused(fused) => {
                fused.stmts.iter().for_each(|stmt| state.statement(stmt, &mut reporter));
                state.leave(fused, &mut reporter);
                fused::check(model, body, fused).into_iter().for_each(|text| reporter.report("fused", text));
            }
            BodyInstr::Start { token, collective, operands } => {
                operands.iter().for_each(|&value| state.read(value, &mut reporter));
                if model.mesh.pipeline().is_some_and(|pp| collective.over().contains(pp)) {
                    reporter.report("collective-type", format!("`{}` is over pp", collective.name()));
                }
                let results = body.results_of(at);
                operands
                    .iter()
                    .chain(results)
                    .for_each(|&value| state.busy(value, results.contains(&value), &mut reporter));
                if state.in_flight.insert(*token, InFlight { collective, operands, results }).is_some() {
                    reporter.report("token", format!("{token} is started twice"));
                }
            }
            BodyInstr::Wait { token, results } => {
                let request = state.in_flight.remove(token);
                results.iter().for_each(|&value| state.define(value, false, &mut reporter));
                match request {
                    None => reporter.report("token", format!("{token} is not in flight")),
                    Some(request) => layout_change(&model.mesh, body, &request, results, &mut reporter),
                }
            }
            BodyInstr::Free(values) => values.iter().for_each(|&value| state.free(value, &mut reporter)),
        }
    }
    let end = body.instrs.len();
    let mut reporter = Reporter::in_body(found, id, end);
    body.results.iter().chain(&body.keeps).for_each(|&value| state.read(value, &mut reporter));
    for &value in &state.defined {
        let kept = state.sources.contains_key(&value) || body.results.contains(&value) || body.keeps.contains(&value);
        if !kept && !state.freed.contains(&value) {
            reporter.report("leak", format!("{} is never freed", state.name(value)));
        }
    }
    if !state.in_flight.is_empty() {
        reporter.report("token", "a collective has no wait".to_string());
    }
}

impl BodyState<'_> {
    fn name(&self, value: Value) -> String {
        self.body.values.get(value).map_or_else(|| value.to_string(), |data| format!("%{}", data.name))
    }

    fn statement(&mut self, stmt: &Stmt, reporter: &mut Reporter<'_>) {
        stmt.operands.iter().for_each(|&value| self.read(value, reporter));
        stmt.operands.iter().for_each(|&value| self.busy(value, false, reporter));
        stmt.results.iter().for_each(|&value| self.busy(value, true, reporter));
        stmt.results.iter().for_each(|&value| self.define(value, stmt.accumulate, reporter));
        if stmt.op.kernel().is_none() {
            reporter.report("signature", format!("`{}` has no kernel", stmt.op.name()));
        } else if let Some((what, text)) = partials::check(self.body, stmt) {
            reporter.report(what, text);
        }
    }

    /// The end of a group, after which its interior values are gone.
    fn leave(&mut self, fused: &Fused, reporter: &mut Reporter<'_>) {
        for &out in fused.outs.iter().filter(|&out| !fused.stmts.iter().any(|stmt| stmt.results.contains(out))) {
            reporter.report("fused", format!("{} is left by a group that does not compute it", self.name(out)));
        }
        self.freed.extend(fused.interior());
    }

    fn read(&self, value: Value, reporter: &mut Reporter<'_>) {
        if !self.defined.contains(&value) {
            reporter.report("undefined", format!("{} is not defined here", self.name(value)));
        } else if self.freed.contains(&value) {
            reporter.report("read-after-free", format!("{} has been freed", self.name(value)));
        }
    }

    fn define(&mut self, value: Value, accumulate: bool, reporter: &mut Reporter<'_>) {
        let right = match self.sources.get(&value) {
            Some(Source::Gradient) => accumulate && self.body.kind.accumulates(),
            Some(Source::Param | Source::State) => !accumulate && self.body.kind == BodyKind::U,
            Some(Source::Row | Source::Saved | Source::Scalar) => false,
            None => !accumulate && !self.defined.contains(&value) && self.body.values.get(value).is_some(),
        };
        if !right {
            reporter.report("redefined", format!("{} may not be defined here", self.name(value)));
        }
        self.defined.insert(value);
    }

    fn free(&mut self, value: Value, reporter: &mut Reporter<'_>) {
        if self.sources.contains_key(&value) || !self.defined.contains(&value) {
            reporter
                .report("undefined", format!("{} does not belong to the body, which cannot free it", self.name(value)));
        } else if !self.freed.insert(value) {
            reporter.report("double-free", format!("{} has been freed", self.name(value)));
        }
        self.busy(value, true, reporter);
    }

    /// True if a collective in flight forbids reading or changing the value.
    fn busy(&self, value: Value, changed: bool, reporter: &mut Reporter<'_>) {
        let mut requests = self.in_flight.values();
        if requests.any(|other| other.results.contains(&value) || changed && other.operands.contains(&value)) {
            reporter.report("in-flight", format!("{} is used by a collective in flight", self.name(value)));
        }
    }
}

fn layout_change(mesh: &Mesh, body: &Body, request: &InFlight<'_>, results: &[Value], reporter: &mut Reporter<'_>) {
    let InFlight { collective, operands, .. } = *request;
    let moved = collective.moved(operands);
    if moved.len() != results.len() {
        reporter.report("collective-type", format!("{} tensors go in, {} come out", moved.len(), results.len()));
    }
    if let Err(why) = collective.check_counts(&body.types(operands)) {
        reporter.report("collective-type", format!("`{}`: {why}", collective.name()));
    }
    for (&operand, &result) in moved.iter().zip(results) {
        let operand = body.ty(operand);
        match collective.check_sizes(mesh, operand).and_then(|()| collective.result_type(operand)) {
            Err(why) => reporter.report("collective-type", format!("`{}`: {why}", collective.name())),
            Ok(ty) if ty != *body.ty(result) => {
                let name = body.value_name(result);
                reporter
                    .report("collective-type", format!("`{}` does not give the type of %{name}", collective.name()));
            }
            Ok(_) => {}
        }
    }
}
