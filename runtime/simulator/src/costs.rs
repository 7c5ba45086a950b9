//! Seconds and trace sites of every instruction in a program, each computed once.

use cost::{Cluster, seconds_of_change, seconds_of_group, seconds_of_message, seconds_of_stmt, seconds_of_sum};
use ir::entity::SecondaryMap;
use ir::graph::Model;
use ir::ids::{BodyId, Reg, Token, Value};
use ir::mesh::Axes;
use ir::program::{Body, BodyInstr, Class, Instr, Program, Transfer};
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
    cluster: &Cluster,
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
            of_body.steps.extend(step(model, cluster, body, at, site));
        }
        costed[id] = of_body;
    }
    costed
}

fn step(model: &Model, cluster: &Cluster, body: &Body, at: usize, site: u32) -> Option<CostedStep> {
    match &body.instrs[at] {
        BodyInstr::Compute(stmt) => {
            Some(CostedStep::Compute { site, seconds: seconds_of_stmt(cluster, &model.mesh, &body.values, stmt) })
        }
        BodyInstr::Fused(fused) => {
            Some(CostedStep::Compute { site, seconds: seconds_of_group(cluster, &model.mesh, &body.values, fused) })
        }
        BodyInstr::Start { token, collective, operands } => {
            let moves = collective.communicates() && model.mesh.size(collective.over()) > 1;
            let types = |values: &[Value]| values.iter().map(|&v| &body.values[v].ty).collect::<Vec<_>>();
            let results = body.instrs[at..].iter().find_map(|instr| match instr {
                BodyInstr::Wait { token: wait_reason, results } if wait_reason == token => Some(types(results)),
                _ => None,
            });
            let (operands, results) = (types(operands), results.unwrap_or_default());
            let seconds = || seconds_of_change(cluster, &model.mesh, collective, &operands, &results);
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
    cluster: &Cluster,
    sites: &mut Vec<TraceSite>,
) -> Vec<Option<Cost>> {
    let cost = |at: usize| {
        let site = instr_site(model, program, class, at)?;
        let seconds = match &class.instrs[at] {
            Instr::Start { transfer, .. } if transfer.is_host_copy() => cluster.host_copy(site.bytes),
            Instr::Start { transfer, operand, .. } => seconds_of_transfer(model, class, cluster, transfer, *operand),
            Instr::Feed { .. } | Instr::Add { .. } => site.bytes as f64 / cluster.device.memory_bandwidth,
            _ => 0.0,
        };
        sites.push(site);
        Some(Cost { site: sites.len() as u32 - 1, seconds })
    };
    (0..class.instrs.len()).map(cost).collect()
}

/// A sum is a ring's all-reduce; a copy to others passes along them, piece by piece.
fn seconds_of_transfer(
    model: &Model,
    class: &Class,
    cluster: &Cluster,
    transfer: &Transfer,
    operand: Option<Reg>,
) -> f64 {
    let pipeline = model.mesh.pipeline().map_or_else(Axes::none, Axes::one);
    let (link, bytes) = (cluster.link(&model.mesh, &pipeline), moved_by(model, class, transfer, operand));
    match transfer {
        Transfer::Send { .. } | Transfer::Recv { .. } => seconds_of_message(link, bytes),
        Transfer::Sum { ranks } | Transfer::SumGradient { ranks, .. } => {
            seconds_of_sum(link, bytes, ranks.len() as u64)
        }
        Transfer::ShareParam { ranks, .. } => {
            seconds_of_message(link, bytes) + ranks.len().saturating_sub(2) as f64 * link.latency
        }
        Transfer::Offload | Transfer::Load | Transfer::LoadStates { .. } | Transfer::StoreStates { .. } => 0.0,
    }
}
