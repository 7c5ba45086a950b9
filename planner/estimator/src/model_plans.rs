//! Plans of one model's blocks. Of cluster and stack only what chooses reshard paths matters.

use super::blocks::{Outline, Planned};
use super::error::Error;
use super::path_platform::PathPlatform;
use super::plan_template::{DimSizes, Part, Plan, Sizes, Template, Unplanned};
use super::projection::PlanKey;
use super::shape_class::ShapeClass;
use compiler::model_source::ModelSource;
use compiler::plan_blocks::plan_blocks;
use cost::{LayerKind, Routing, RuleName, RuleNumbers};
use ir::dim_role::DimRole;
use ir::graph::Model;
use ir::heads::Heads;
use ir::options::ParallelConfig;
use ir::types::DType;
use std::sync::Arc;
use support::query::{Memo, Query};

/// Properties of a model that no configuration changes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct ModelTraits {
    /// Number of parameters.
    pub(super) parameters: u64,
    /// Share of the parameters that are trained.
    pub(super) trained: f64,
    /// `true` if some layer has experts.
    pub(super) has_experts: bool,
    /// Layers by which errors of predictions differ.
    pub(super) layers: LayerKind,
    /// The longest sequence that it was trained on, in tokens; `None` if that is unknown.
    pub(super) context: Option<u64>,
    /// Numbers of the model that rules name.
    pub(super) numbers: RuleNumbers,
}

impl ModelTraits {
    fn of(model: &Model, context: Option<u64>) -> ModelTraits {
        let has_experts = model.blocks.values().any(|block| Routing::of(block).is_some());
        let size = |role| model.dim_of(role).map(|dim| dim.size);
        let outline = Outline::of(model);
        let heads = Heads::of(model.dims.values()).map(|heads| heads.keys * heads.queries);
        let numbers = RuleNumbers::of(|name| match name {
            RuleName::Layers => Some((outline.layers.end - outline.front.max(outline.layers.start)) as u64),
            // Frameworks expand latent vectors to keys of each head.
            RuleName::KvHeads if size(DimRole::KvLatent).is_some() => heads,
            RuleName::KvHeads => size(DimRole::KvHeads),
            RuleName::Experts => size(DimRole::Experts).or(Some(0)),
            RuleName::Heads => heads,
            RuleName::Mla => Some(u64::from(size(DimRole::KvLatent).is_some())),
            RuleName::ExpertBias => Some(u64::from(has_expert_bias(model))),
            _ => None,
        });
        let layers = match size(DimRole::KvLatent) {
            Some(_) => LayerKind::Latent,
            None if has_experts => LayerKind::Experts,
            None => LayerKind::Dense,
        };
        let parameters = model.parameter_count();
        let trained = model.trained_count() as f64 / parameters.max(1) as f64;
        ModelTraits { parameters, trained, has_experts, layers, context, numbers }
    }
}

/// True if matrices of experts have biases: parameters of experts and one further dim.
fn has_expert_bias(model: &Model) -> bool {
    model.params.values().any(|param| param.ty.dims.len() == 2 && param.ty.has_role(DimRole::Experts, &model.dims))
}

/// A model with the plans of its blocks.
pub(super) struct ModelPlans {
    /// The model.
    pub(super) source: ModelSource,
    planned: Query<ModelPlans, (PlanKey, PathPlatform), Result<Arc<Planned>, Error>>,
    /// Sizes of the model's dims.
    dims: Query<ModelPlans, Unplanned, Result<Arc<DimSizes>, Error>>,
    /// One template of each shape class.
    templates: Memo<(DType, ShapeClass, Part), Template>,
    /// Plans and sizes of configurations.
    shaped: Query<ModelPlans, ShapedKey, Result<Arc<Shaped>, Error>>,
}

/// A configuration, a part of its plan, and what chooses its reshard paths.
type ShapedKey = (PlanKey, Part, PathPlatform);

/// The plan of a configuration, and its sizes.
pub(super) struct Shaped {
    /// The plan, of any sizes with the same statements.
    pub(super) plan: Arc<Plan>,
    sizes: Sizes,
}

impl ModelPlans {
    /// A model without plans.
    pub(super) fn new(source: ModelSource) -> ModelPlans {
        let dims = |plans: &ModelPlans, unplanned: &Unplanned| unplanned.dims(&plans.source).map(Arc::new);
        let (planned, dims, shaped) = (Query::new(plan), Query::new(dims), Query::new(of_shape));
        ModelPlans { source, planned, dims, templates: Memo::default(), shaped }
    }

    /// The model planned for one micro-batch of the ranks that compute a block together. A `.ir` file has the batch that it
    /// states.
    ///
    /// # Errors
    /// The model cannot have this batch, or the configuration does not fit it.
    pub(super) fn planned(&self, key: &PlanKey, by: &PathPlatform) -> Result<Arc<Planned>, Error> {
        self.planned.get(self, &(key.clone(), by.clone()))
    }

    /// Properties of the model in sequences of `seq` tokens.
    ///
    /// # Errors
    /// The model cannot have these sequences.
    pub(super) fn traits(&self, seq: u64) -> Result<ModelTraits, Error> {
        let model = Unplanned::of(&ParallelConfig::default(), seq, DType::F32).model(&self.source)?;
        Ok(ModelTraits::of(&model, self.source.context()))
    }

    /// Calls `then` with a part of the model in the sizes of `key`, planned for another configuration of the same shape if
    /// there is one.
    ///
    /// # Errors
    /// As [`ModelPlans::planned`].
    pub(super) fn in_shape<T>(
        &self,
        key: &PlanKey,
        part: Part,
        by: &PathPlatform,
        then: impl FnOnce(&Model, &Arc<Outline>) -> T,
    ) -> Result<T, Error> {
        let Shaped { plan, sizes } = &*self.of_shape(key, part, by)?;
        Ok(plan.in_sizes(sizes, then))
    }

    /// Plan and sizes of a configuration. Configurations share the plan if they have the same statements, collectives of
    /// reshards included.
    ///
    /// # Errors
    /// As [`ModelPlans::planned`].
    pub(super) fn of_shape(&self, key: &PlanKey, part: Part, by: &PathPlatform) -> Result<Arc<Shaped>, Error> {
        self.shaped.get(self, &(key.clone(), part, by.clone()))
    }
}

fn of_shape(plans: &ModelPlans, (key, part, by): &ShapedKey) -> Result<Arc<Shaped>, Error> {
    let parallel = key.config.parallel();
    let unplanned = Unplanned::of(&parallel, key.seq, key.dtype);
    let sizes = Sizes::of(&parallel, plans.dims.get(plans, &unplanned)?)?;
    let shape = (key.dtype, sizes.shape(&parallel, plans.source.is_built()), *part);
    let template = plans.templates.get(&shape, || Template::of(&plans.source, &parallel, unplanned, *part))?;
    Ok(Arc::new(Shaped { plan: template.plan(&parallel, &sizes, by)?, sizes }))
}

fn plan(plans: &ModelPlans, (key, by): &(PlanKey, PathPlatform)) -> Result<Arc<Planned>, Error> {
    let parallel = key.config.parallel();
    let model = Unplanned::of(&parallel, key.seq, key.dtype).model(&plans.source)?;
    let model = plan_blocks(model, &parallel, &by.platform())?;
    Ok(Arc::new(Planned { outline: Arc::new(Outline::of(&model)), model }))
}
