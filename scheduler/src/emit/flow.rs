//! The call list flattened into runs of blocks, and the values that flow between them.

use super::keep::forward_args;
use super::{Bodies, EmitError};
use ir::graph::{Block, Model, ParamInstance, ResultKind};
use ir::ids::{BlockId, ModelValue, Value};
use ir::staged::Staged;
use ir::types::Type;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Where an argument of a run comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// An input of the model.
    Input(ModelValue),
    /// A value that a run makes.
    Made(usize),
}

/// One run of a block.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) call: usize,
    pub(super) instance: u32,
    pub(super) block: BlockId,
    /// Unique among runs: `embed`, `layer.3`.
    pub(super) name: String,
    /// Per value or input argument of the block.
    pub(super) args: Vec<Origin>,
    /// Per result of the block; only those passed on.
    pub(super) results: Vec<Option<usize>>,
    pub(super) rank: u32,
    pub(super) params: Vec<ParamInstance>,
}

/// A value that a run makes for others.
#[derive(Debug)]
pub(super) struct Made {
    /// `x`, `x.3` where a repeat makes it.
    pub(super) name: String,
    pub(super) ty: Type,
    pub(super) rank: u32,
    /// The runs that read it, once per argument, in order.
    pub(super) uses: Vec<usize>,
    /// (run, place among its differentiable arguments): those that give back a cotangent, in order.
    pub(super) cotangents: Vec<(usize, usize)>,
}

/// A differentiable argument of a run.
pub(super) struct Slot {
    pub(super) origin: Origin,
    /// Which of the value's cotangents it gives.
    pub(super) index: usize,
}

/// A run, as (call, instance), and its rank.
type Placed = ((usize, u32), u32);

/// All runs and values of a model, on their ranks.
#[derive(Debug, Default)]
pub(super) struct Flow {
    pub(super) runs: Vec<Run>,
    pub(super) made: Vec<Made>,
    /// The runs of each stage.
    pub(super) stages: Vec<std::ops::Range<usize>>,
    /// The rank of each stage.
    pub(super) ranks: Vec<u32>,
}

/// The runs of a model in order: (call, instance).
pub(crate) fn runs_of(model: &Model) -> impl Iterator<Item = (usize, u32)> + '_ {
    model.calls.iter().enumerate().flat_map(|(index, call)| (0..call.instances()).map(move |i| (index, i)))
}

impl Flow {
    pub(super) fn new(model: &Model, staged: &Staged) -> Result<Flow, EmitError> {
        let mut flow = Flow::default();
        let placed = flow.place(model, staged)?;
        let mut env: HashMap<ModelValue, Origin> =
            model.inputs.iter().map(|input| (input.value, Origin::Input(input.value))).collect();
        let mut calls_of: HashMap<BlockId, usize> = HashMap::new();
        for call in &model.calls {
            *calls_of.entry(call.block).or_default() += 1;
        }
        for ((call_index, instance), rank) in placed {
            let call = &model.calls[call_index];
            let block = &model.blocks[call.block];
            let mut name = block.name.clone();
            if calls_of[&call.block] > 1 {
                name = format!("{name}.call{call_index}");
            }
            if call.repeat.is_some() {
                name = format!("{name}.{}", call.index(instance));
            }
            let carried: Vec<usize> = match instance {
                0 => Vec::new(),
                _ => flow.runs.last().map(|run| run.results.iter().flatten().copied().collect()).unwrap_or_default(),
            };
            let origin = |place: usize| match carried.get(place) {
                Some(&made) => Some(Origin::Made(made)),
                None => call.args.get(place).and_then(|value| env.get(value)).copied(),
            };
            let args: Option<Vec<Origin>> = (0..forward_args(block).count()).map(origin).collect();
            let args = args.ok_or_else(|| EmitError::Boundary { run: name.clone(), what: "an argument" })?;
            let params = model.call_params(call, instance);
            let run = Run { call: call_index, instance, block: call.block, name, args, results: vec![], rank, params };
            let made = flow.add_run(model, block, run)?;
            env.extend(call.results.iter().copied().zip(made.into_iter().map(Origin::Made)));
        }
        Ok(flow)
    }

    /// The runs in order with their ranks; the stages must be just these.
    fn place(&mut self, model: &Model, staged: &Staged) -> Result<Vec<Placed>, EmitError> {
        let mut placed = Vec::new();
        for stage in &staged.stages {
            let start = placed.len();
            for part in &stage.parts {
                placed.extend(part.instances.clone().map(|instance| ((part.call, instance), stage.rank)));
            }
            self.stages.push(start..placed.len());
            self.ranks.push(stage.rank);
        }
        if !placed.iter().map(|(run, _)| *run).eq(runs_of(model)) {
            return Err(EmitError::Stages);
        }
        Ok(placed)
    }

    fn add_run(&mut self, model: &Model, block: &Block, mut run: Run) -> Result<Vec<usize>, EmitError> {
        let index = self.runs.len();
        let differentiable: Vec<Value> = block.differentiable_args().collect();
        for (value, origin) in forward_args(block).zip(&run.args) {
            let given = match *origin {
                Origin::Input(input) => model.inputs.iter().find(|i| i.value == input).map(|i| &i.ty),
                Origin::Made(made) => Some(&self.made[made].ty),
            };
            if given != Some(block.ty(value)) {
                return Err(EmitError::Boundary { run: run.name, what: "the type of an argument" });
            }
            if let Origin::Made(made) = *origin {
                self.made[made].uses.push(index);
                if let Some(place) = differentiable.iter().position(|&v| v == value) {
                    self.made[made].cotangents.push((index, place));
                }
            }
        }
        let call = &model.calls[run.call];
        let mut names = call.results.iter();
        let mut made = Vec::new();
        for (kind, &value) in block.results.iter().zip(&block[ir::graph::SectionKind::F].ret) {
            if *kind != ResultKind::Value {
                run.results.push(None);
                continue;
            }
            let mut name = names.next().map_or(block.value_name(value), |&v| model.values[v].as_str()).to_string();
            if call.repeat.is_some() {
                name = format!("{name}.{}", call.index(run.instance));
            }
            run.results.push(Some(self.made.len()));
            made.push(self.made.len());
            let ty = block.ty(value).clone();
            self.made.push(Made { name, ty, rank: run.rank, uses: Vec::new(), cotangents: Vec::new() });
        }
        self.runs.push(run);
        Ok(made)
    }

    /// The differentiable arguments of a run, in the order of `I`'s results.
    pub(super) fn slots(&self, model: &Model, run: usize) -> Vec<Slot> {
        let block = &model.blocks[self.runs[run].block];
        let args: Vec<Value> = forward_args(block).collect();
        let slot = |(place, value)| {
            let origin = self.runs[run].args[args.iter().position(|&arg| arg == value)?];
            let index = match origin {
                Origin::Input(_) => 0,
                Origin::Made(made) => self.made[made].cotangents.iter().position(|&c| c == (run, place))?,
            };
            Some(Slot { origin, index })
        };
        block.differentiable_args().enumerate().filter_map(slot).collect()
    }

    /// How many arguments of runs on the rank read the value.
    pub(super) fn local_uses(&self, made: usize, rank: u32) -> usize {
        self.made[made].uses.iter().filter(|&&run| self.runs[run].rank == rank).count()
    }

    /// Bytes of the largest message between stages of one rank and those of its peer.
    pub(super) fn largest_message(&self, model: &Model) -> u64 {
        let crosses = |made: &usize| !self.readers(*made).is_empty();
        let bytes = (0..self.made.len()).filter(crosses).map(|made| self.made[made].ty.local_bytes(&model.mesh));
        bytes.max().unwrap_or(0)
    }

    /// The other ranks that read the value, ascending.
    pub(super) fn readers(&self, made: usize) -> BTreeSet<u32> {
        let ranks = self.made[made].uses.iter().map(|&run| self.runs[run].rank);
        ranks.filter(|&rank| rank != self.made[made].rank).collect()
    }
}

/// Parameters that several ranks hold.
#[derive(Debug, Default)]
pub(super) struct Holders {
    /// All that a rank binds.
    pub(super) by_rank: BTreeMap<u32, BTreeSet<ParamInstance>>,
    /// Ranks with a gradient of a parameter.
    pub(super) gradients: BTreeMap<ParamInstance, BTreeSet<u32>>,
    /// The rank that updates it.
    pub(super) owner: BTreeMap<ParamInstance, u32>,
}

impl Holders {
    pub(super) fn new(model: &Model, flow: &Flow, bodies: &Bodies) -> Result<Holders, EmitError> {
        let mut holders = Holders::default();
        for run in &flow.runs {
            let params = model.blocks[run.block].args_of(ir::graph::ArgKind::Param);
            for (value, &param) in params.zip(&run.params) {
                holders.by_rank.entry(run.rank).or_default().insert(param);
                let of_block = &bodies.blocks[&run.block];
                if of_block.gradients.contains(&value) {
                    holders.gradients.entry(param).or_default().insert(run.rank);
                }
                if of_block.stores.contains(&value) && holders.owner.insert(param, run.rank).is_some() {
                    let name = model.params[param.0].instance_name(param.1);
                    return Err(EmitError::UpdatedTwice { param: name });
                }
            }
        }
        Ok(holders)
    }

    /// All ranks that bind the parameter, ascending.
    pub(super) fn of(&self, param: ParamInstance) -> Vec<u32> {
        self.by_rank.iter().filter(|(_, params)| params.contains(&param)).map(|(&rank, _)| rank).collect()
    }
}
