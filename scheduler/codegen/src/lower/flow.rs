//! The call list flattened into block instances, and the values that flow between them.

use super::{Bodies, CodegenError};
use ir::graph::{Block, Call, Model, ParamInstance, ResultKind};
use ir::ids::{BlockId, ModelValue, Value};
use ir::saved::forward_args;
use ir::schedule::Item;
use ir::staged::{Stage, Staged};
use ir::types::Type;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Source of an argument of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Origin {
    /// An input of the model.
    Input(ModelValue),
    /// A value that a run makes.
    Made(usize),
}

/// One run of a block.
#[derive(Debug)]
pub(super) struct BlockInstance {
    pub(super) call: usize,
    pub(super) instance: u32,
    pub(super) block: BlockId,
    /// The slice of the sequence that it runs.
    pub(super) slice: Option<u32>,
    /// Unique among runs: `embed`, `layer.3`.
    pub(super) name: String,
    /// Per value or input argument of the block.
    pub(super) args: Vec<Origin>,
    /// Per result of the block; only those passed on.
    pub(super) results: Vec<Option<usize>>,
    /// The ranks that hold it: more than one hold copies of its parameters, and the first updates them.
    pub(super) ranks: Vec<u32>,
    pub(super) params: Vec<ParamInstance>,
}

/// A value that a run makes for others.
#[derive(Debug)]
pub(super) struct Made {
    /// `x`, `x.3` where several runs of one call make it.
    pub(super) name: String,
    pub(super) ty: Type,
    pub(super) maker: usize,
    /// The runs that read it, once per argument, in order.
    pub(super) uses: Vec<usize>,
    /// (run, place among its differentiable arguments): those that give back a cotangent, in order.
    pub(super) cotangents: Vec<(usize, usize)>,
}

/// A differentiable argument of a run.
pub(super) struct DifferentiableArg {
    pub(super) origin: Origin,
    /// The index among the value's cotangents.
    pub(super) index: usize,
}

/// A run and its stage.
struct PlacedRun {
    call: usize,
    instance: u32,
    stage: usize,
}

/// All runs and values of a model, on their ranks.
#[derive(Debug)]
pub(super) struct Flow<'a> {
    pub(super) runs: Vec<BlockInstance>,
    pub(super) made: Vec<Made>,
    /// The runs of each stage.
    pub(super) stages: Vec<std::ops::Range<usize>>,
    staged: &'a Staged,
    microbatches: u32,
}

/// The runs of a model in order: (call, instance).
pub(super) fn runs_of(model: &Model) -> impl Iterator<Item = (usize, u32)> + '_ {
    model.calls.iter().enumerate().flat_map(|(index, call)| (0..call.instances()).map(move |i| (index, i)))
}

/// End of a run's name: the index of its instance, if the call repeats.
fn index_in_name(call: &Call, instance: u32) -> String {
    if call.repeat.is_some() { format!(".{}", call.index(instance)) } else { String::new() }
}

impl<'a> Flow<'a> {
    /// All runs of a model for `microbatches` micro-batches.
    ///
    /// # Errors
    /// The stages do not cover the model in order, or name a rank that the mesh does not have.
    pub(super) fn new(model: &Model, staged: &'a Staged, microbatches: u32) -> Result<Flow<'a>, CodegenError> {
        let mut flow = Flow { runs: Vec::new(), made: Vec::new(), stages: Vec::new(), staged, microbatches };
        let placed = flow.place(model)?;
        let mut env: HashMap<ModelValue, Origin> =
            model.inputs.iter().map(|input| (input.value, Origin::Input(input.value))).collect();
        let mut runs_named: HashMap<(BlockId, String), usize> = HashMap::new();
        for run in &placed {
            let call = &model.calls[run.call];
            *runs_named.entry((call.block, index_in_name(call, run.instance))).or_default() += 1;
        }
        for PlacedRun { call: call_index, instance, stage } in placed {
            let call = &model.calls[call_index];
            let block = &model.blocks[call.block];
            let index = index_in_name(call, instance);
            let own = runs_named[&(call.block, index.clone())] == 1;
            let name = if own { String::new() } else { format!(".call{call_index}") };
            let name = format!("{}{name}{index}", block.name);
            let carried: Vec<usize> = match instance {
                0 => Vec::new(),
                _ => flow.runs.last().map(|run| run.results.iter().flatten().copied().collect()).unwrap_or_default(),
            };
            let origins = (0..forward_args(block).count()).map(|place| match carried.get(place) {
                Some(&made) => Some(Origin::Made(made)),
                None => call.args.get(place).and_then(|value| env.get(value)).copied(),
            });
            let args: Option<Vec<Origin>> = origins.collect();
            let args = args.ok_or_else(|| CodegenError::Boundary { run: name.clone(), what: "an argument" })?;
            let params = model.call_params(call, instance);
            let ranks = staged.stages[stage].ranks.clone();
            let run = BlockInstance {
                call: call_index,
                instance,
                block: call.block,
                slice: call.slice,
                name,
                args,
                results: vec![],
                ranks,
                params,
            };
            let made = flow.add_run(model, block, run)?;
            env.extend(call.results.iter().copied().zip(made.into_iter().map(Origin::Made)));
        }
        Ok(flow)
    }

    /// The runs in order with their stages, which must be just these.
    fn place(&mut self, model: &Model) -> Result<Vec<PlacedRun>, CodegenError> {
        let mut placed: Vec<PlacedRun> = Vec::new();
        for (number, stage) in self.staged.stages.iter().enumerate() {
            let start = placed.len();
            for part in &stage.parts {
                let instances = part.instances.clone();
                placed.extend(instances.map(|instance| PlacedRun { call: part.call, instance, stage: number }));
            }
            self.stages.push(start..placed.len());
            check_ranks(stage, super::pipeline_ranks(model), self.microbatches)?;
        }
        if !placed.iter().map(|run| (run.call, run.instance)).eq(runs_of(model)) {
            return Err(CodegenError::Stages);
        }
        Ok(placed)
    }

    fn add_run(&mut self, model: &Model, block: &Block, mut run: BlockInstance) -> Result<Vec<usize>, CodegenError> {
        let index = self.runs.len();
        let differentiable: Vec<Value> = block.differentiable_args().collect();
        for (value, origin) in forward_args(block).zip(&run.args) {
            let given = match *origin {
                Origin::Input(input) => model.inputs.iter().find(|i| i.value == input).map(|i| &i.ty),
                Origin::Made(made) => Some(&self.made[made].ty),
            };
            if given != Some(block.ty(value)) {
                return Err(CodegenError::Boundary { run: run.name, what: "the type of an argument" });
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
            if call.instances() > 1 {
                name = format!("{name}.{}", call.index(run.instance));
            }
            run.results.push(Some(self.made.len()));
            made.push(self.made.len());
            let ty = block.ty(value).clone();
            self.made.push(Made { name, ty, maker: index, uses: Vec::new(), cotangents: Vec::new() });
        }
        self.runs.push(run);
        Ok(made)
    }

    /// The runs of an item in call order: those of its stage and slice.
    pub(super) fn runs_of(&self, item: &Item) -> Vec<usize> {
        let stage = item.stage.and_then(|stage| self.stages.get(stage as usize)).cloned().unwrap_or_default();
        stage.filter(|&run| self.runs[run].slice == item.slice).collect()
    }

    /// The differentiable arguments of a run, in the order of `I`'s results.
    pub(super) fn slots(&self, model: &Model, run: usize) -> Vec<DifferentiableArg> {
        let block = &model.blocks[self.runs[run].block];
        let args: Vec<Value> = forward_args(block).collect();
        let slots = block.differentiable_args().enumerate().filter_map(|(place, value)| {
            let origin = self.runs[run].args[args.iter().position(|&arg| arg == value)?];
            let index = match origin {
                Origin::Input(_) => 0,
                Origin::Made(made) => self.made[made].cotangents.iter().position(|&c| c == (run, place))?,
            };
            Some(DifferentiableArg { origin, index })
        });
        slots.collect()
    }

    /// The rank of a stage for a micro-batch; `None` where there is no such stage.
    pub(super) fn stage_rank(&self, stage: u32, mb: u32) -> Option<u32> {
        self.staged.stages.get(stage as usize).map(|stage| stage.rank(mb, self.microbatches))
    }

    /// The rank of a run for a micro-batch.
    pub(super) fn rank(&self, run: usize, mb: u32) -> u32 {
        let stage = self.stages.partition_point(|stage| stage.end <= run);
        self.staged.stages[stage].rank(mb, self.microbatches)
    }

    /// The rank that makes a value for a micro-batch.
    pub(super) fn maker(&self, made: usize, mb: u32) -> u32 {
        self.rank(self.made[made].maker, mb)
    }

    /// How many arguments of runs on the rank read the value for a micro-batch.
    pub(super) fn local_uses(&self, made: usize, mb: u32, rank: u32) -> usize {
        self.made[made].uses.iter().filter(|&&run| self.rank(run, mb) == rank).count()
    }

    /// The other ranks that read the value for a micro-batch, ascending.
    pub(super) fn readers(&self, made: usize, mb: u32) -> BTreeSet<u32> {
        let ranks = self.made[made].uses.iter().map(|&run| self.rank(run, mb));
        ranks.filter(|&rank| rank != self.maker(made, mb)).collect()
    }
}

/// The ranks of a stage must be there, each once, and each must have a micro-batch.
fn check_ranks(stage: &Stage, ranks: u32, microbatches: u32) -> Result<(), CodegenError> {
    let last = (0..microbatches).next_back().map(|mb| stage.rank(mb, microbatches));
    let inside = stage.ranks.iter().all(|&rank| rank < ranks);
    let once = stage.ranks.iter().collect::<BTreeSet<_>>().len() == stage.ranks.len();
    if !inside || !once {
        return Err(CodegenError::Stages);
    }
    if last != stage.ranks.last().copied() {
        return Err(CodegenError::Copies { copies: stage.ranks.len(), microbatches });
    }
    Ok(())
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
    pub(super) fn new(model: &Model, flow: &Flow<'_>, bodies: &Bodies) -> Result<Holders, CodegenError> {
        let mut holders = Holders::default();
        for run in &flow.runs {
            let params = model.blocks[run.block].args_of(ir::graph::ArgKind::Param);
            for (value, &param) in params.zip(&run.params) {
                let of_block = &bodies.blocks[&run.block];
                for &rank in &run.ranks {
                    holders.by_rank.entry(rank).or_default().insert(param);
                    if of_block.gradients.contains(&value) {
                        holders.gradients.entry(param).or_default().insert(rank);
                    }
                }
                if of_block.stores.contains(&value) && holders.owner.insert(param, run.ranks[0]).is_some() {
                    let name = model.params[param.0].instance_name(param.1);
                    return Err(CodegenError::UpdatedTwice { param: name });
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
