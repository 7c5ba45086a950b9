//! Text about a rank that is stuck: where each thread of a rank is, as messages say it.

use super::executor::EVALUATION;
use super::load::RankView;
use super::progress::{Site, Stuck};
use super::row::class_of;
use comm::{Communicator, ThreadRole};
use ir::graph::Model;
use ir::program::{Body, Instr, Program};
use trace::{body_sites, instr_site};

/// The text about a rank that is stuck, which runs a program.
pub(super) fn stuck_text<C: Communicator>(
    model: &Model,
    program: &Program,
    view: &RankView<C>,
    stuck: &Stuck,
) -> String {
    let Stuck { role, site, row, since, .. } = *stuck;
    let who = if role == ThreadRole::Async { "its async worker" } else { "it" };
    let is_evaluation = row == EVALUATION && !matches!(site, Site::State(_));
    let run = if is_evaluation { "an evaluation, " } else { "" };
    let site = site_name(model, program, view, row, site);
    format!("{who} has been stuck for {:.0} s in {run}{site}", since.as_secs_f64())
}

/// The body that an instruction runs, and the words for its instance and micro-batch.
fn invocation<'a>(program: &'a Program, instr: &Instr) -> Option<(&'a Body, String)> {
    let Instr::Run { body, instance, microbatch, .. } = instr else { return None };
    let microbatch = microbatch.map_or(String::new(), |number| format!(", micro-batch {number}"));
    Some((&program.bodies[*body], format!("instance {instance}{microbatch}")))
}

/// The name of a site: `layer.F %q = einsum (instance 3, micro-batch 1)`, `send %y.1:0`. The rank has the program as a numbered row.
fn site_name<C: Communicator>(model: &Model, program: &Program, view: &RankView<C>, row: usize, site: Site) -> String {
    let rank_program = &view.rank_programs[row];
    let Ok(class) = class_of(program, model, &model.mesh.coordinates(view.rank as u64)) else { return String::new() };
    match site {
        Site::Idle => "a wait".to_string(),
        Site::Begin => "the beginning of the step".to_string(),
        Site::End => "the end of the step".to_string(),
        Site::State(slot) => format!("a copy of {}", view.state[slot as usize]),
        Site::Action(action) => {
            let at = rank_program.origins[action as usize] as usize;
            match (instr_site(model, program, class, at), invocation(program, &class.instrs[at])) {
                (Some(site), _) => site.name,
                (None, Some((body, which))) => format!("{} ({which})", body.name),
                (None, None) => format!("instruction {at}"),
            }
        }
        Site::Step(run, step) => {
            let instr = &class.instrs[rank_program.runs[run as usize].instr as usize];
            let named = invocation(program, instr).and_then(|(body, which)| {
                let site = body_sites(&model.mesh, body).1.into_iter().nth(step as usize)?;
                Some(format!("{} ({which})", site.name))
            });
            named.unwrap_or_else(|| format!("step {step} of a body"))
        }
    }
}
