//! Code generation for each rank: bodies of blocks, and instruction streams that call them in schedule order.

mod body;
mod finish;
mod flow;
mod gather;
mod microbatch;
mod offload;
mod p2p;
mod reduce;
mod states;
mod stream;

use body::{Backward, Bodies};
use cost::Platform;
use finish::Members;
use flow::{Flow, Holders};
use gather::Gathered;
use ir::graph::{Model, SectionKind};
use ir::program::{BodyKind, Class, Program};
use ir::schedule::{Action, Item, Kind, Schedule};
use ir::staged::Staged;
use offload::HostCopies;
use p2p::Messages;
use reduce::Reductions;
use stream::StreamBuilder;
use transforms::evaluation::evaluation;

/// Why no program can be made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CodegenError {
    /// The model has only its forward.
    #[error("the model has not been differentiated")]
    NotDifferentiated,
    /// Something is left that no kernel and no collective does.
    #[error("block `@{block}` still has `{op}`, which planning replaces")]
    NotPlanned {
        /// The block.
        block: String,
        /// The op.
        op: &'static str,
    },
    /// Two sides of a boundary between blocks differ.
    #[error("`{run}`: {what} differs from what it is given")]
    Boundary {
        /// The run of a block, or the value.
        run: String,
        /// The part of it.
        what: &'static str,
    },
    /// The stages are not the calls of the model in order, or name a rank that the mesh has not.
    #[error("the stages do not cover the calls of the model in order on the ranks of the mesh's `pp`")]
    Stages,
    /// A stage has more copies than there are micro-batches.
    #[error("a stage on {copies} ranks needs a micro-batch for each of them, but there are {microbatches}")]
    Copies {
        /// Ranks that hold the stage.
        copies: usize,
        /// Micro-batches of a step.
        microbatches: u32,
    },
    /// An action that cannot run at its position.
    #[error("rank {rank}: `{item}` {why}")]
    Item {
        /// The pipeline rank.
        rank: u32,
        /// The item.
        item: Item,
        /// The defect.
        why: &'static str,
    },
    /// A section runs before one that it reads from.
    #[error("a section of `@{block}` runs before its {needs}")]
    Early {
        /// The block.
        block: String,
        /// The letter of the section that must come first.
        needs: char,
    },
    /// Something that a rank needs is never sent to it.
    #[error("rank {to} needs what rank {from} never sends, or has already used up")]
    MissingMessage {
        /// The sending rank.
        from: u32,
        /// The waiting rank.
        to: u32,
    },
    /// A value has no cotangent.
    #[error("`%{value}` is passed on, but no call gives it a gradient")]
    Unused {
        /// The value.
        value: String,
    },
    /// Two runs update one parameter.
    #[error("`%{param}` is updated twice")]
    UpdatedTwice {
        /// Its global name.
        param: String,
    },
    /// `U` returns to the step graph what depends on it.
    #[error("what `U` of `@{block}` returns depends on the step graph")]
    Circular {
        /// The block.
        block: String,
    },
    /// A constant that neither the run nor the step graph gives.
    #[error("`%{name}` of `@{block}` is no scalar of the run")]
    Scalar {
        /// The block.
        block: String,
        /// The constant.
        name: String,
    },
}

/// The program of one training step: the actions of the schedule in their order, with what they pass to each other. Prices on
/// the platform decide what is computed while a reshard goes on.
///
/// # Errors
/// A model that is not planned, stages that do not cover it, a schedule that does not fit them.
pub fn lower(
    model: &Model,
    staged: &Staged,
    schedule: &Schedule,
    microbatches: u32,
    platform: &Platform<'_>,
) -> Result<Program, CodegenError> {
    if !model.is_differentiated() {
        return Err(CodegenError::NotDifferentiated);
    }
    let bodies = Bodies::training(model, platform, Backward::of(&schedule.rows))?;
    program(model, staged, &schedule.rows, microbatches, bodies, &schedule.name)
}

/// The program of an evaluation: forwards of all micro-batches, without dropout, and the sums of their losses.
///
/// # Errors
/// As [`lower`].
pub fn lower_forward(
    model: &Model,
    staged: &Staged,
    microbatches: u32,
    platform: &Platform<'_>,
) -> Result<Program, CodegenError> {
    let model = &evaluation(model);
    let mut rows: Vec<Vec<Action>> = vec![Vec::new(); pipeline_ranks(model) as usize];
    // One after the other as they follow from each other: a micro-batch is a stage behind the one before it.
    for wave in 0..microbatches + staged.stages.len() as u32 {
        for (number, stage) in (0..).zip(&staged.stages) {
            let Some(mb) = wave.checked_sub(number).filter(|&mb| mb < microbatches) else { continue };
            let row = rows.get_mut(stage.rank(mb, microbatches) as usize).ok_or(CodegenError::Stages)?;
            let slices: Vec<Option<u32>> =
                if model.slices() > 1 { (0..model.slices()).map(Some).collect() } else { vec![None] };
            row.extend(slices.into_iter().map(|slice| Action::One(Item { slice, ..Item::new(Kind::F, number, mb) })));
        }
    }
    rows.iter_mut().for_each(|row| row.push(Action::One(Item::step(Kind::N))));
    program(model, staged, &rows, microbatches, Bodies::forward(model, platform)?, "forward")
}

fn pipeline_ranks(model: &Model) -> u32 {
    model.mesh.pipeline().map_or(1, |axis| model.mesh.axes[axis].size as u32)
}

fn program(
    model: &Model,
    staged: &Staged,
    rows: &[Vec<Action>],
    microbatches: u32,
    mut bodies: Bodies,
    name: &str,
) -> Result<Program, CodegenError> {
    if rows.len() != pipeline_ranks(model) as usize {
        return Err(CodegenError::Stages);
    }
    let flow = Flow::new(model, staged, microbatches)?;
    check_items(&flow, rows, microbatches)?;
    let holders = Holders::new(model, &flow, &bodies)?;
    let messages = Messages::new(model, &flow, rows);
    let plan = ProgramContext {
        model,
        flow: &flow,
        holders: &holders,
        members: members(model, &flow, &bodies),
        messages: &messages,
    };
    let mut classes: Vec<Class> = Vec::new();
    for (rank, actions) in rows.iter().enumerate() {
        let class = plan.class(rank as u32, actions, &mut bodies)?;
        match classes.last_mut() {
            Some(last) if (&last.regs, &last.instrs, &last.params) == (&class.regs, &class.instrs, &class.params) => {
                last.ranks.end += 1;
            }
            _ => classes.push(class),
        }
    }
    Ok(Program { name: name.to_string(), microbatches, bodies: bodies.all, classes })
}

/// Actions must be known, and be on the rank of their stage.
fn check_items(flow: &Flow<'_>, rows: &[Vec<Action>], microbatches: u32) -> Result<(), CodegenError> {
    for (rank, row) in rows.iter().enumerate() {
        for item in row.iter().flat_map(Action::items) {
            let rank = rank as u32;
            let stage = item.stage.map(|stage| flow.stage_rank(stage, item.microbatch.unwrap_or(0)));
            let why = match (item.kind, stage, item.microbatch) {
                (Kind::R | Kind::N | Kind::U, None, None) => continue,
                (Kind::R | Kind::N | Kind::U, ..) => "concerns all stages of a rank at once",
                (Kind::F | Kind::I | Kind::W | Kind::B, Some(Some(at)), Some(mb))
                    if at == rank && mb < microbatches =>
                {
                    if !flow.runs_of(&item).is_empty() {
                        continue;
                    }
                    "is of a slice that the model has not"
                }
                (Kind::F | Kind::I | Kind::W | Kind::B, ..) => {
                    "names a stage of another rank, or a micro-batch too many"
                }
                (Kind::G | Kind::D | Kind::O | Kind::L, ..) => "is an action that programs do not have",
            };
            return Err(CodegenError::Item { rank, item, why });
        }
    }
    Ok(())
}

fn members(model: &Model, flow: &Flow<'_>, bodies: &Bodies) -> Members {
    let mut members = Members::default();
    for (index, run) in flow.runs.iter().enumerate() {
        for place in (0..run.results.len()).filter(|&place| run.results[place].is_none()) {
            let ranks = members.totals.entry(microbatch::total_name(model, flow, index, place)).or_default();
            ranks.extend(&run.ranks);
        }
        let returns = !model.blocks[run.block][SectionKind::U].ret.is_empty();
        if returns && bodies.get(run.block, BodyKind::R).is_some() {
            members.squares.push(run.ranks[0]);
        }
    }
    for ranks in members.totals.values_mut().chain([&mut members.squares]) {
        ranks.sort_unstable();
        ranks.dedup();
    }
    members
}

/// All that the rows of a program share.
struct ProgramContext<'a> {
    model: &'a Model,
    flow: &'a Flow<'a>,
    holders: &'a Holders,
    members: Members,
    messages: &'a Messages,
}

impl ProgramContext<'_> {
    fn class(&self, rank: u32, actions: &[Action], bodies: &mut Bodies) -> Result<Class, CodegenError> {
        let reductions = Reductions::new(self.model, self.flow, self.holders, bodies, rank, actions);
        let copies = HostCopies::new(self.model, self.flow, bodies, actions);
        let mut stream = StreamBuilder::new(self.model, self.flow, self.holders, self.messages, rank, reductions);
        stream.copies = copies;
        stream.gathered = Gathered::new(self.flow, bodies, actions);
        stream.gather(bodies);
        for item in actions.iter().flat_map(Action::items) {
            match (item.kind, item.stage, item.microbatch) {
                (Kind::F, Some(_), Some(mb)) => stream.forward(bodies, &self.flow.runs_of(&item), mb)?,
                (kind, Some(_), Some(mb)) => stream.backward(bodies, kind, &self.flow.runs_of(&item), mb)?,
                (Kind::R, ..) => stream.reduce(bodies),
                (Kind::N, ..) => stream.norm(bodies, &self.members)?,
                _ => stream.update(bodies)?,
            }
            stream.end_action();
        }
        let instrs = stream.end();
        let params = self.holders.by_rank.get(&rank).map_or_else(Vec::new, |params| params.iter().copied().collect());
        Ok(Class { ranks: rank..rank + 1, regs: stream.regs, instrs, params, arena: None })
    }
}

#[cfg(test)]
mod tests;
