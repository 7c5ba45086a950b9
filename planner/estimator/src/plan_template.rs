//! A planned model in other sizes.
//!
//! Until reshards are marked, the passes decide by the axes and by the dims these axes divide, not by sizes. Two
//! configurations that agree in axes and divisibility have the same statements up to this point, so one plan serves both. The
//! cheapest reshard path depends on sizes. Sizes whose reshards take the same paths share the whole plan.

use super::blocks::{Outline, Planned};
use super::error::Error;
use super::path_platform::PathPlatform;
use super::shape_class::ShapeClass;
use compiler::model_source::ModelSource;
use compiler::plan_blocks::{lower_blocks, mark_blocks, mark_experts, reshard_paths_of_blocks};
use ir::entity::SecondaryMap;
use ir::graph::Model;
use ir::heads::Heads;
use ir::ids::DimId;
use ir::mesh::Mesh;
use ir::models::Batch;
use ir::ops::Collective;
use ir::options::ParallelConfig;
use ir::types::{DType, DimName, Dims, Type};
use planner::reshard::Site;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use support::query::Memo;

/// Blocks of a model that are planned.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Part {
    /// All blocks.
    All,
    /// Blocks with folded experts.
    Experts,
}

/// Sizes of a configuration: of the mesh, and of the dims that depend on the configuration.
#[derive(Debug)]
pub(super) struct Sizes {
    mesh: Mesh,
    dims: Arc<DimSizes>,
}

/// Named dims: sizes, and roles, which decide the passes that ask for a size.
pub(super) type DimSizes = BTreeMap<String, DimName>;

impl Sizes {
    /// Sizes on the axes below pp, for a model with these dims.
    ///
    /// # Errors
    /// The degrees do not fit together.
    pub(super) fn of(parallel: &ParallelConfig, dims: Arc<DimSizes>) -> Result<Sizes, Error> {
        let mesh = planner::mesh(parallel, &Heads::all(dims.values()))?;
        Ok(Sizes { mesh, dims })
    }

    /// Shape class of a configuration, for a built model or any model.
    pub(super) fn shape(&self, parallel: &ParallelConfig, is_built: bool) -> ShapeClass {
        ShapeClass::of(parallel, &self.mesh, &self.dims, is_built)
    }

    /// Sizes of the dims of a planned model of the same shape.
    fn of_dims(&self, dims: &Dims) -> SecondaryMap<DimId, Option<u64>> {
        let size = |dim: &DimName| self.dims.get(&dim.name).map(|dim| dim.size);
        dims.iter().map(|(id, dim)| (id, size(dim))).collect()
    }

    /// Sets the sizes of a planned model of the same shape.
    fn give(&self, model: &mut Model) {
        let of = self.of_dims(&model.dims);
        for (id, dim) in &mut model.dims {
            dim.size = of[id].unwrap_or(dim.size);
        }
        let values = model.blocks.values_mut().flat_map(|block| block.values.values_mut());
        values.for_each(|value| resize(&mut value.ty, &of));
        model.params.values_mut().for_each(|param| resize(&mut param.ty, &of));
        model.mesh.clone_from(&self.mesh);
    }
}

fn resize(ty: &mut Type, to: &SecondaryMap<DimId, Option<u64>>) {
    for dim in &mut ty.dims {
        dim.size = dim.name.and_then(|name| to[name]).unwrap_or(dim.size);
    }
}

/// A planned model that stands for its whole shape class.
#[derive(Debug)]
pub(super) struct Template {
    /// The model, planned up to its reshards.
    model: Model,
    /// The marked reshards, each once.
    marked: Vec<[Type; 2]>,
    /// Complete plans, by the reshard paths of the marked reshards.
    plans: Memo<Vec<Vec<Collective>>, Plan>,
}

/// A complete plan, for all sizes in which its reshards take the same paths.
#[derive(Debug)]
pub(super) struct Plan {
    planned: Planned,
    /// Copies in any sizes.
    copies: Mutex<Vec<Model>>,
}

impl Template {
    /// Plans a part of a model in the sizes of a configuration, up to the passes that depend on sizes.
    ///
    /// # Errors
    /// The model cannot have this batch, or the configuration does not fit it.
    pub(super) fn of(
        source: &ModelSource,
        parallel: &ParallelConfig,
        unplanned: Unplanned,
        part: Part,
    ) -> Result<Template, Error> {
        let model = unplanned.model(source)?;
        let model = match part {
            Part::Experts => mark_experts(model, parallel)?,
            Part::All => mark_blocks(model, parallel)?,
        };
        Ok(Template { marked: planner::marked(&model), model, plans: Memo::default() })
    }

    /// Complete plan in these sizes; it is shared with other sizes of the same reshard paths.
    ///
    /// # Errors
    /// A reshard has no path, which is an internal error of the planner.
    pub(super) fn plan(&self, parallel: &ParallelConfig, sizes: &Sizes, by: &PathPlatform) -> Result<Arc<Plan>, Error> {
        let paths = self.paths(sizes, by)?;
        self.plans.get(&paths, || {
            let mut model = self.model.clone();
            sizes.give(&mut model);
            let model = lower_blocks(model, parallel, &by.platform(), by.known())?;
            Ok(Plan { planned: Planned { outline: Arc::new(Outline::of(&model)), model }, copies: Mutex::default() })
        })
    }

    /// Paths of the marked reshards in these sizes.
    fn paths(&self, sizes: &Sizes, by: &PathPlatform) -> Result<Vec<Vec<Collective>>, Error> {
        let dims = sizes.of_dims(&self.model.dims);
        let in_sizes = |reshard: &[Type; 2]| {
            let mut reshard = reshard.clone();
            reshard.iter_mut().for_each(|ty| resize(ty, &dims));
            reshard
        };
        let marked = self.marked.iter().map(in_sizes);
        let platform = by.platform();
        let site = Site::new(&sizes.mesh, &self.model.dims, &platform);
        Ok(reshard_paths_of_blocks(marked, &site, by.known())?)
    }
}

impl Plan {
    /// Calls `then` with the model in these sizes.
    pub(super) fn in_sizes<T>(&self, sizes: &Sizes, then: impl FnOnce(&Model, &Arc<Outline>) -> T) -> T {
        let copies = || self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        let copy = copies().pop();
        let mut model = copy.unwrap_or_else(|| self.planned.model.clone());
        sizes.give(&mut model);
        // Of the outline, only the elements of shared parameters depend on sizes.
        let outline = match self.planned.outline.tied.is_empty() {
            true => Arc::clone(&self.planned.outline),
            false => Arc::new(Outline::of(&model)),
        };
        let result = then(&model, &outline);
        copies().push(model);
        result
    }
}

fn sizes(dims: &Dims) -> DimSizes {
    dims.values().map(|dim| (dim.name.clone(), dim.clone())).collect()
}

/// The options of a configuration that a model depends on before it is planned.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Unplanned {
    batch: u64,
    seq: u64,
    /// Number of ranks that share a sequence; each routes its own tokens.
    cuts: u64,
    dtype: DType,
}

impl Unplanned {
    pub(super) fn of(together: &ParallelConfig, seq: u64, dtype: DType) -> Unplanned {
        let batch = together.dp.saturating_mul(together.mbs);
        Unplanned { batch, seq, cuts: together.sequence_ranks(), dtype }
    }

    /// Model of one micro-batch of all ranks together.
    ///
    /// # Errors
    /// The model cannot have this batch.
    pub(super) fn model(&self, source: &ModelSource) -> Result<Model, Error> {
        let Unplanned { batch, seq, cuts, dtype } = *self;
        Ok(source.routed_in(cuts, seq).model(&Batch { batch, seq, dtype })?)
    }

    /// Sizes of the model's dims.
    ///
    /// # Errors
    /// As [`Unplanned::model`].
    pub(super) fn dims(&self, source: &ModelSource) -> Result<DimSizes, Error> {
        Ok(sizes(&self.model(source)?.dims))
    }
}

#[cfg(test)]
mod tests {
    use crate::{EstimateRequest, Estimator, Evaluator};
    use compiler::parallel;
    use ir::options::{CpKind, ParallelConfig, Recompute};

    /// Costs by a plan of another size equal those by the configuration's own plan, for all degrees of experts and all options that
    /// blocks depend on.
    #[test]
    fn a_plan_in_other_sizes_costs_what_its_own_plan_does() {
        for (model, gpus) in [("deepseek-v2-lite", 64), ("tiny-moe", 24), ("mixtral-8x7b", 32)] {
            let estimator = Estimator::new();
            let (name, cluster) = (model.to_string(), "h800".to_string());
            let job =
                EstimateRequest { model: name, cluster, seq: 512, global_batch: 192, ..EstimateRequest::default() };
            let request = |parallel: String| EstimateRequest { gpus: Some(gpus), parallel, ..job.clone() };
            let evaluator = Evaluator::new(&estimator, request(String::new()), [gpus; 2]).unwrap();
            let mut costed = 0;
            for at in 0..600_u64 {
                let pick = |from: &[u64], step: u64| from[(at * 7919 / step % from.len() as u64) as usize];
                // Of mixtral-8x7b's 8 key heads 16 ranks share each with a neighbour.
                let (tp, cp) = (pick(&[1, 2, 4, 16], 1), pick(&[1, 2, 3, 4], 3));
                let (ep, etp) = (pick(&[1, 2, 4, 8], 5), pick(&[1, 2, 3, 4, 8], 7));
                let (mbs, sp) = (pick(&[1, 2, 3], 11), pick(&[0, 1], 13) == 1 && tp > 1);
                let (offload, cp_kind) = (pick(&[0, 1], 17) == 1, pick(&[0, 1], 19));
                let recompute = match pick(&[0, 1, 2], 23) {
                    0 => Recompute::None,
                    1 => Recompute::Full(None),
                    _ => Recompute::Selective(["mlp", "layernorm"].map(str::to_string).to_vec()),
                };
                if !gpus.is_multiple_of(tp * cp) {
                    continue;
                }
                let cp_kind = [CpKind::AllGather, CpKind::Ring][cp_kind as usize];
                let offload = if offload { ir::options::Offload::All(None) } else { ir::options::Offload::None };
                let options = ParallelConfig { sp, offload, cp_kind, recompute, ..ParallelConfig::default() };
                let parallel = ParallelConfig { dp: gpus / tp / cp, tp, cp, ep, etp, mbs, ..options };
                let text = parallel::print(&parallel);
                let Ok(expected) = estimator.estimate(&request(text.clone())) else { continue };
                let (ours, own) = (evaluator.cost(&parallel).unwrap().seconds, expected.predicted.step_time_s);
                assert!((ours / own - 1.0).abs() < 1e-9, "{model} {text}: {ours}, {own}");
                costed += 1;
            }
            assert!(costed > 60, "{model} {costed}");
        }
    }

    /// A dense layer that exchanges parts of its sequences over tp may take another reshard path on the finer axes of experts.
    #[test]
    fn blocks_that_exchange_parts_are_planned_with_the_axes_of_experts() {
        let estimator = Estimator::new();
        let parallel = "dp=1,tp=128,pp=2,cp=2,ep=8,sp=true,mbs=15,cp_kind=ring";
        let request = EstimateRequest {
            model: "deepseek-v3".to_string(),
            cluster: "h800".to_string(),
            gpus: Some(512),
            seq: 4096,
            global_batch: 3840,
            parallel: parallel.to_string(),
            ..EstimateRequest::default()
        };
        let expected = estimator.estimate(&request).unwrap().predicted.step_time_s;
        let evaluator = Evaluator::new(&estimator, request, [512; 2]).unwrap();
        let ours = evaluator.cost(&parallel::parse_any(parallel).unwrap()).unwrap().seconds;
        assert!((ours / expected - 1.0).abs() < 1e-9, "{ours}, {expected}");
    }
}
