//! In which parts: the runs of blocks cut into consecutive stages, each stage with its costs.

use crate::costs::StageCosts;
use crate::emit::keep::kept;
use crate::emit::runs_of;
use crate::placement::Pipeline;
use cost::{Cluster, seconds_of_section};
use ir::graph::{ArgKind, Block, Model, ParamInstance, SectionKind};
use ir::ids::{BlockId, Value};
use ir::staged::{Part, Stage, StageCost, Staged};
use std::collections::{HashMap, HashSet};

mod balance;

/// Why a model cannot be cut so.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CutError {
    /// There is nothing to cut.
    #[error("the model runs no block")]
    Empty,
    /// Every stage needs at least one run of a block.
    #[error("{stages} stages need as many blocks, but the model runs {runs}")]
    TooMany {
        /// How many stages are asked for.
        stages: u32,
        /// How many runs there are.
        runs: usize,
    },
    /// Given stages must start at 0 and ascend.
    #[error("{stages} stages must start with run 0 and ascend within the {runs} runs of the model, not at {starts:?}")]
    Starts {
        /// How many stages there are.
        stages: u32,
        /// What was given.
        starts: Vec<usize>,
        /// How many runs there are.
        runs: usize,
    },
}

/// Cuts the runs of blocks into the stages of a pipeline: the slowest rank (by F + I + W of its stages) is as fast as can be,
/// then the slowest stage. Exact where a rank holds one stage; else as [`balance`] says.
///
/// # Errors
/// More stages than runs, or none of either.
pub fn cut(model: &Model, pipeline: &Pipeline, cluster: &Cluster) -> Result<Staged, CutError> {
    let stages = pipeline.stages();
    let prices = prices(model, cluster);
    let weights: Vec<u128> = runs_of(model).map(|(call, _)| picoseconds(&prices[&model.calls[call].block])).collect();
    if weights.is_empty() {
        return Err(CutError::Empty);
    }
    if stages == 0 || stages as usize > weights.len() {
        return Err(CutError::TooMany { stages, runs: weights.len() });
    }
    let owners = pipeline.owners();
    Ok(staged(model, &balance::starts(&weights, &owners, pipeline.ranks), owners, &prices))
}

/// Cuts at the given places: `starts[s]` is the first run of stage s, counted over all calls and their instances.
///
/// # Errors
/// Not one start for each stage; starts that do not begin with 0, do not ascend, or exceed the runs.
pub fn cut_at(model: &Model, starts: &[usize], pipeline: &Pipeline, cluster: &Cluster) -> Result<Staged, CutError> {
    let runs = runs_of(model).count();
    if runs == 0 {
        return Err(CutError::Empty);
    }
    let ascending = starts.windows(2).all(|pair| pair[0] < pair[1]);
    let fits = starts.len() == pipeline.stages() as usize && starts.first() == Some(&0);
    if !fits || !ascending || starts.last().is_some_and(|&last| last >= runs) {
        return Err(CutError::Starts { starts: starts.to_vec(), stages: pipeline.stages(), runs });
    }
    Ok(staged(model, starts, pipeline.owners(), &prices(model, cluster)))
}

/// The costs of stages for schedules, in seconds and bytes, with a hop of `comm` seconds.
pub fn stage_costs(staged: &Staged, comm: f64) -> StageCosts {
    let each = |of: fn(&StageCost) -> f64| staged.stages.iter().map(|stage| of(&stage.cost)).collect::<Vec<f64>>();
    let mem_w = each(|cost| cost.crossing as f64);
    let mem_i = each(|cost| cost.kept.saturating_sub(cost.crossing) as f64);
    StageCosts {
        f: each(|cost| cost.f),
        i: each(|cost| cost.i),
        w: each(|cost| cost.w),
        mem_f: mem_i.iter().zip(&mem_w).map(|(i, w)| i + w).collect(),
        mem_i,
        mem_w,
        ..StageCosts::uniform(staged.stages.len() as u32, 0.0, 0.0, 0.0, comm)
    }
}

/// Rounded, so that sums of floats print short.
fn to_picosecond(seconds: f64) -> f64 {
    (seconds * 1e12).round() / 1e12
}

/// Whole numbers, so that equal blocks weigh the same and ties are ties.
fn picoseconds(cost: &StageCost) -> u128 {
    ((cost.f + cost.i + cost.w) * 1e12).round() as u128
}

fn staged(model: &Model, starts: &[usize], owners: Vec<Vec<u32>>, prices: &HashMap<BlockId, StageCost>) -> Staged {
    let runs: Vec<(usize, u32)> = runs_of(model).collect();
    let ends = starts.iter().skip(1).copied().chain([runs.len()]);
    let stage = |(ranks, (&start, end)): (Vec<u32>, (&usize, usize))| {
        let mut parts: Vec<Part> = Vec::new();
        for &(call, instance) in &runs[start..end] {
            match parts.last_mut() {
                Some(part) if part.call == call => part.instances.end += 1,
                _ => parts.push(Part { call, instances: instance..instance + 1 }),
            }
        }
        let mut cost = StageCost { state: state_bytes(model, &runs[start..end]), ..StageCost::default() };
        for (call, _) in &runs[start..end] {
            let price = &prices[&model.calls[*call].block];
            cost.f += price.f;
            cost.i += price.i;
            cost.w += price.w;
            cost.kept += price.kept;
            cost.crossing += price.crossing;
        }
        (cost.f, cost.i, cost.w) = (to_picosecond(cost.f), to_picosecond(cost.i), to_picosecond(cost.w));
        Stage { ranks, parts, cost }
    };
    Staged { name: model.name.clone(), stages: owners.into_iter().zip(starts.iter().zip(ends)).map(stage).collect() }
}

/// What one run of each block costs and keeps; its state is counted with its instance.
fn prices(model: &Model, cluster: &Cluster) -> HashMap<BlockId, StageCost> {
    let price = |(id, block): (BlockId, &Block)| {
        let seconds = |section| seconds_of_section(cluster, &model.mesh, block, section);
        let bytes = |values: &[Value]| values.iter().map(|&v| block.ty(v).local_bytes(&model.mesh)).sum();
        let kept = kept(block);
        let cost = StageCost {
            f: seconds(SectionKind::F),
            i: seconds(SectionKind::I),
            w: seconds(SectionKind::W),
            kept: bytes(&kept.forward),
            crossing: bytes(&kept.input),
            state: 0,
        };
        (id, cost)
    };
    model.blocks.iter().map(price).collect()
}

/// Bytes on one rank of the parameters that the runs bind, their gradients and their states, each instance once.
fn state_bytes(model: &Model, runs: &[(usize, u32)]) -> u64 {
    let mut seen: HashSet<(ParamInstance, String)> = HashSet::new();
    let mut bytes = 0;
    for &(call, instance) in runs {
        let call = &model.calls[call];
        let block = &model.blocks[call.block];
        let params: Vec<Value> = block.args_of(ArgKind::Param).collect();
        for (&param, id) in params.iter().zip(model.call_params(call, instance)) {
            let name = block.value_name(param);
            let states = block.args_of(ArgKind::State).filter(|&state| block.owner_of(state) == Some(param));
            for value in states.chain(block.gradient_of(param)).chain([param]) {
                let suffix = block.value_name(value).strip_prefix(name).unwrap_or_default().to_string();
                if seen.insert((id, suffix)) {
                    bytes += block.ty(value).local_bytes(&model.mesh);
                }
            }
        }
    }
    bytes
}
