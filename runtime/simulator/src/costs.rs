//! Seconds and trace sites of every instruction in a program, each computed once.

use cost::{Platform, Scope};
use ir::entity::SecondaryMap;
use ir::graph::Model;
use ir::ids::{BodyId, Token, Value};
use ir::program::{Body, BodyInstr, Class, Instr, Program};
use trace::{TraceSite, body_sites, instr_site, moved_by};

/// A body with costs.
#[derive(Clone, Default)]
pub(super) struct CostedBody {
    /// The site of its run.
    pub(super) run: u32,
    pub(super) steps: Vec<CostedStep>,
}

/// A step of a body; `site` is an index of the trace's sites.
#[derive(Clone)]
pub(super) enum CostedStep {
    Compute {
        site: u32,
        seconds: f64,
    },
    /// Starts a collective; without seconds it moves no data.
    Start {
        token: Token,
        site: u32,
        seconds: Option<f64>,
    },
    Wait {
        token: Token,
        site: u32,
    },
}

/// All bodies with costs. Their sites are added to those of the trace.
pub(super) fn bodies(
    model: &Model,
    program: &Program,
    platform: &Platform<'_>,
    sites: &mut Vec<TraceSite>,
) -> SecondaryMap<BodyId, CostedBody> {
    let mut costed = SecondaryMap::new();
    for (id, body) in &program.bodies {
        let (run, of_steps) = body_sites(&model.mesh, body);
        let mut site = sites.len() as u32;
        sites.push(run);
        sites.extend(of_steps);
        let mut of_body = CostedBody { run: site, steps: Vec::new() };
        for (at, instr) in body.instrs.iter().enumerate() {
            site += u32::from(!matches!(instr, BodyInstr::Free(_)));
            of_body.steps.extend(step(model, platform, body, at, site));
        }
        costed[id] = of_body;
    }
    costed
}

fn step(model: &Model, platform: &Platform<'_>, body: &Body, at: usize, site: u32) -> Option<CostedStep> {
    let scope = Scope::of(model, &body.values);
    match &body.instrs[at] {
        BodyInstr::Compute(stmt) => Some(CostedStep::Compute { site, seconds: platform.stmt(scope, stmt) }),
        BodyInstr::Fused(fused) => Some(CostedStep::Compute { site, seconds: platform.group(scope, fused) }),
        BodyInstr::Start { token, collective, operands } => {
            let moves = collective.communicates() && model.mesh.size(collective.over()) > 1;
            let types = |values: &[Value]| values.iter().map(|&v| &body.values[v].ty).collect::<Vec<_>>();
            let results = body.instrs[at..].iter().find_map(|instr| match instr {
                BodyInstr::Wait { token: wait_reason, results } if wait_reason == token => Some(types(results)),
                _ => None,
            });
            let (operands, results) = (types(operands), results.unwrap_or_default());
            let seconds = || platform.change(&model.mesh, collective, &operands, &results);
            Some(CostedStep::Start { token: *token, site, seconds: moves.then(seconds) })
        }
        BodyInstr::Wait { token, .. } => Some(CostedStep::Wait { token: *token, site }),
        BodyInstr::Free(_) => None,
    }
}

/// Cost of an instruction: its site, and its seconds.
#[derive(Clone, Copy)]
pub(super) struct Cost {
    pub(super) site: u32,
    pub(super) seconds: f64,
}

/// Costs of the instructions of a class; none for body invocations and for instructions without duration.
pub(super) fn row(
    model: &Model,
    program: &Program,
    class: &Class,
    platform: &Platform<'_>,
    sites: &mut Vec<TraceSite>,
) -> Vec<Option<Cost>> {
    let cost = |at: usize| {
        let site = instr_site(model, program, class, at)?;
        let seconds = match &class.instrs[at] {
            Instr::Start { transfer, .. } if transfer.is_host_copy() => platform.cluster.host_copy(site.bytes),
            Instr::Start { transfer, operand, .. } => {
                platform.transfer(&model.mesh, transfer, moved_by(model, class, transfer, *operand))
            }
            Instr::Feed { .. } | Instr::Add { .. } => platform.copy(site.bytes as f64),
            _ => 0.0,
        };
        sites.push(site);
        Some(Cost { site: sites.len() as u32 - 1, seconds })
    };
    (0..class.instrs.len()).map(cost).collect()
}
