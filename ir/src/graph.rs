//! Level 1: a model as straight-line SSA of block calls, with shardings after planning.
//!
//! A distinct block is stored once and called as often as it repeats. Differentiation gives it four sections: `F` forward,
//! `I` the gradient of its inputs, `W` the gradient of its parameters, `U` the update, once a step after the
//! last micro-batch. A value of one section that a later one reads must be saved. Planning may add a fifth, `G`, before the others:
//! once a step it makes values of parameters alone, which stay until the last micro-batch has read them.

pub use crate::block::{
    Arg, ArgKind, Block, GRADIENT, LossMean, ResultKind, Section, SectionKind, Span, Stmt, ValueData,
};

use crate::dim_role::DimRole;
use crate::ids::{BlockId, ModelValue, ParamId};
use crate::mesh::{Axes, Mesh};
use crate::types::{DimName, Dims, Type};
use cranelift_entity::PrimaryMap;
use std::ops::Range;

/// The scalars that a step begins with, which constants of blocks read by name: the learning rate, the number of the update
/// from 1, and the reciprocal of the loss scale.
pub const STEP_SCALARS: [&str; 3] = ["lr", "step", "inv_scale"];

/// The suffix of an array of records, parameters of which delayed scaling notes what tensors were in the last steps. A run can begin without
/// them.
pub const RECORDS: &str = "_exponent_ages";

/// The record of an expert layer that notes how many tokens each expert got in the last step: a field of the layer's array.
pub const COUNTS: &str = "router_counts";

/// True if a parameter instance, by its global name, is a record: of delayed scaling, or of the counts of a router.
pub fn is_record(name: &str) -> bool {
    name.split('.').next().is_some_and(|array| array.ends_with(RECORDS)) || layer_of_counts(name).is_some()
}

/// The name of the layer of a record of counts, by that of the record; `None` for other parameters.
pub fn layer_of_counts(name: &str) -> Option<&str> {
    name.strip_suffix(COUNTS)?.strip_suffix('.')
}

/// The suffixes of the factors of a parameter's adapter: `wq_lora_a`, `wq_lora_b`. A run can begin without them.
pub const FACTORS: [&str; 2] = ["_lora_a", "_lora_b"];

/// True if a parameter instance, by its global name, is a factor of an adapter.
pub fn is_factor(name: &str) -> bool {
    FACTORS.iter().any(|suffix| name.ends_with(suffix))
}

/// The initializer of a parameter. Its random numbers are keyed by (seed, name, logical index).
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Init {
    /// Normal with mean 0 and this standard deviation.
    Normal(f64),
    /// All elements equal.
    Constant(f64),
    /// Waves of positions: row `p` has `sin(p w)`, then `cos(p w)` of the frequencies `w = e^(-fall i)` (Vaswani et al. 2017).
    Waves(f64),
    /// The logarithms of 1, 2 and so on up to this number, and then from 1 on again (Gu and Dao 2023, Mamba, section 3.6).
    LogCount(f64),
    /// The logarithm of a number drawn between two (Yang et al. 2024, Gated Delta Networks).
    LogUniform(f64, f64),
    /// The number whose softplus is drawn between two, its logarithm evenly (Gu and Dao 2023, Mamba, section 3.6).
    InverseSoftplus(f64, f64),
}

impl Init {
    /// The element at a place in row-major order, for initializers other than normal ones; `uniform` is a number drawn from 0 to 1 for it.
    pub fn element(self, width: u64, place: u64, uniform: impl Fn() -> f32) -> f64 {
        match self {
            Init::Normal(_) => 0.0,
            Init::Constant(value) => value,
            Init::Waves(fall) => wave(fall, width, place),
            Init::LogCount(count) => ((place % (count as u64).max(1) + 1) as f64).ln(),
            Init::LogUniform(low, high) => (low + (high - low) * f64::from(uniform())).ln(),
            Init::InverseSoftplus(low, high) => {
                let drawn = (low.ln() + (high / low).ln() * f64::from(uniform())).exp();
                drawn + (-(-drawn).exp_m1()).ln()
            }
        }
    }
}

/// An element of a table of waves, by its place in rows of `width` elements.
pub fn wave(fall: f64, width: u64, place: u64) -> f64 {
    let (row, column) = (place / width, place % width);
    let sines = width.div_ceil(2);
    let angle = row as f64 * (-fall * (column % sines) as f64).exp();
    if column < sines { angle.sin() } else { angle.cos() }
}

/// A declared parameter, or an array of them: `param %layer[32].w1: f32[h, f] init=normal(0.02) decay=true`. One that is not
/// trained has `frozen=true`. Parts of one matrix, which are stored apart, have its name: `part_of=kv_b`.
#[derive(Clone, PartialEq, Debug)]
pub struct Param {
    /// Its name, or that of its array.
    pub name: String,
    /// The field within the array's element.
    pub field: Option<String>,
    /// The number of instances of the array.
    pub count: Option<u32>,
    /// The type of one instance.
    pub ty: Type,
    /// Its initializer.
    pub init: Init,
    /// True if weight decay applies.
    pub decay: bool,
    /// True if training leaves it as it is: it has no gradient.
    pub frozen: bool,
    /// The matrix of which it is a part, as published weights have it. Its parts in an array have all dims but the last in common.
    pub part_of: Option<String>,
    /// Comment lines before it.
    pub comments: Vec<String>,
    /// Its location in the text.
    pub span: Span,
}

impl Param {
    /// The global name of an instance: `emb`, `layer.3.w1`. Checkpoints and initializers are keyed by it.
    pub fn instance_name(&self, instance: u32) -> String {
        match (&self.field, self.count) {
            (Some(field), Some(_)) => format!("{}.{instance}.{field}", self.name),
            (Some(field), None) => format!("{}.{field}", self.name),
            (None, Some(_)) => format!("{}.{instance}", self.name),
            (None, None) => self.name.clone(),
        }
    }

    /// The number of instances.
    pub fn instances(&self) -> u32 {
        self.count.unwrap_or(1)
    }
}

/// `unit @layer.0 = [%w1, %w2]`: an FSDP unit, parameters concatenated into one flat parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unit {
    /// Its name.
    pub name: String,
    /// The global names of its members.
    pub members: Vec<String>,
}

/// An argument of the model.
#[derive(Clone, PartialEq, Debug)]
pub struct ModelInput {
    /// The model's value.
    pub value: ModelValue,
    /// `Input` or `Const`.
    pub kind: ArgKind,
    /// Its type per micro-batch.
    pub ty: Type,
}

/// The instance of a parameter array that a call passes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ParamIndex {
    /// Not an array: `%emb`.
    Whole,
    /// A fixed instance: `%layer[3]`.
    At(u32),
    /// The repeat's variable: `%layer[i]`.
    Repeat,
}

/// A parameter (or all fields of an array's element, in declared order) that a call passes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParamRef {
    /// The name of the parameter or of the array.
    pub name: String,
    /// The instance.
    pub index: ParamIndex,
}

/// `repeat i in 0..32`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Repeat {
    /// The name of the variable.
    pub variable: String,
    /// Its values.
    pub range: Range<u32>,
}

/// A call of a block, once or repeated. Repeated, the leading arguments (one per value result) are carried.
#[derive(Clone, PartialEq, Debug)]
pub struct Call {
    /// The value results, in order.
    pub results: Vec<ModelValue>,
    /// The block.
    pub block: BlockId,
    /// The repeat, if any.
    pub repeat: Option<Repeat>,
    /// The value and input arguments.
    pub args: Vec<ModelValue>,
    /// The constants and parameters.
    pub params: Vec<ParamRef>,
    /// The slice of the sequence, if the model runs sequence slices.
    pub slice: Option<u32>,
    /// True if the saved activations of its instances go to host memory until their backward.
    pub offload: bool,
    /// Comment lines before it.
    pub comments: Vec<String>,
    /// Its location in the text.
    pub span: Span,
}

impl Call {
    /// The number of instances of the block.
    pub fn instances(&self) -> u32 {
        self.repeat.as_ref().map_or(1, |repeat| repeat.range.end.saturating_sub(repeat.range.start))
    }

    /// True if it has an instance of this number.
    pub fn has_instance(&self, instance: u32) -> bool {
        instance < self.instances()
    }

    /// The repeat's variable at the n-th instance of the block.
    pub fn index(&self, instance: u32) -> u32 {
        self.repeat.as_ref().map_or(0, |repeat| repeat.range.start + instance)
    }
}

/// The step graph: once a step, from what the blocks' `U` sections return (summed over all instances) to scalars that
/// `U` reads by name: `step(%sq: f32[]) { .. return %norm, %clip }`.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Step {
    /// Values and statements; its `F` is the graph, its `args` the sums.
    pub graph: Block,
}

/// A model.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Model {
    /// The name without `@`.
    pub name: String,
    /// The mesh; without axes where none is given.
    pub mesh: Mesh,
    /// True if the file has a `mesh` line. Without one all shardings are open.
    pub has_mesh: bool,
    /// Named dims.
    pub dims: Dims,
    /// Parameters in declared order.
    pub params: PrimaryMap<ParamId, Param>,
    /// Storage units.
    pub units: Vec<Unit>,
    /// Names of the model's values.
    pub values: PrimaryMap<ModelValue, String>,
    /// Inputs and constants.
    pub inputs: Vec<ModelInput>,
    /// The calls in order.
    pub calls: Vec<Call>,
    /// The distinct blocks.
    pub blocks: PrimaryMap<BlockId, Block>,
    /// True if the optimizer states that `U` alone reads are in host memory between updates.
    pub offload_states: bool,
    /// The step graph, which differentiation adds; it runs once a step, after all micro-batches.
    pub step: Option<Step>,
    /// Comment lines before the model.
    pub comments: Vec<String>,
    /// Comment lines at the end of the file.
    pub trailing_comments: Vec<String>,
}

/// One instance of a parameter: (declaration, instance).
pub type ParamInstance = (ParamId, u32);

impl Model {
    /// The parameters of a reference at the n-th instance of its call, in declared order.
    pub fn resolve(&self, reference: &ParamRef, call: &Call, instance: u32) -> Vec<ParamInstance> {
        let index = match reference.index {
            ParamIndex::Whole => 0,
            ParamIndex::At(index) => index,
            ParamIndex::Repeat => call.index(instance),
        };
        self.params.iter().filter(|(_, p)| p.name == reference.name).map(|(id, _)| (id, index)).collect()
    }

    /// The parameter instances of a run of a call, in the order of the block's parameter arguments.
    pub fn call_params(&self, call: &Call, instance: u32) -> Vec<ParamInstance> {
        call.params.iter().flat_map(|reference| self.resolve(reference, call, instance)).collect()
    }

    /// The statements of forwards that carry a state along the sequence, with their blocks.
    pub fn carrying(&self) -> impl Iterator<Item = (&Block, &Stmt)> {
        let forwards = self.blocks.values().map(|block| (block, &block[SectionKind::F].stmts));
        let stmts = forwards.flat_map(|(block, stmts)| stmts.iter().map(move |stmt| (block, stmt)));
        stmts.filter(|(_, stmt)| stmt.op.extras().in_blocks.is_some())
    }

    /// The first dim of a role.
    pub fn dim_of(&self, role: DimRole) -> Option<&DimName> {
        self.dims.values().find(|dim| dim.role == Some(role))
    }

    /// The number of elements of all parameters but records.
    pub fn parameter_count(&self) -> u64 {
        self.elements_of(|_| true)
    }

    /// The number of elements of those of them that are trained.
    pub fn trained_count(&self) -> u64 {
        self.elements_of(|param| !param.frozen)
    }

    /// The number of elements of some parameters, in all their instances. Records are no parameters.
    fn elements_of(&self, counts: impl Fn(&Param) -> bool) -> u64 {
        let counted = self.params.values().filter(|param| !is_record(&param.instance_name(0)) && counts(param));
        counted.map(|param| param.ty.elements() * u64::from(param.instances())).sum()
    }

    /// The number of slices of a sequence; 1 if sequences are not sliced.
    pub fn slices(&self) -> u32 {
        self.calls.iter().filter_map(|call| call.slice).max().map_or(1, |last| last.saturating_add(1))
    }

    /// True if the model has been differentiated.
    pub fn is_differentiated(&self) -> bool {
        self.step.is_some()
    }

    /// True if no dim of any value is open: all shardings are fully specified.
    pub fn is_fully_specified(&self) -> bool {
        let blocks = self.blocks.values().chain(self.step.as_ref().map(|step| &step.graph));
        !blocks.flat_map(|block| block.values.values()).flat_map(|data| &data.ty.dims).any(|dim| dim.open)
    }

    /// The mesh axes of a name: an axis or a group; `None` if the mesh has neither.
    pub fn axes(&self, name: &str) -> Option<Axes> {
        self.mesh.lookup(name)
    }
}
