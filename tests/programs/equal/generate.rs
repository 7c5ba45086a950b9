//! A random case: a model on a mesh with random pins, how it is staged and scheduled, and its data.

use super::graph::{BlockMaker, MadeParam, Sizes};
use crate::random::Random;
use crate::rows;
use ir::graph::{
    ArgKind, Block, Call, Init, Model, ModelInput, Param, ParamIndex, ParamRef, Repeat, ResultKind, SectionKind, Span,
};
use ir::ids::{BlockId, ModelValue, Value};
use ir::mesh::{Axes, Mesh};
use ir::optimizer::{Optimizer, OptimizerKind};
use ir::options::{Quantisation, Recompute};
use ir::schedule::Schedule;
use ir::types::{DType, PartialKind, Type};
use scheduler::costs::StageCosts;
use scheduler::placement::{Pipeline, Placement};
use scheduler::schedules;

pub(crate) struct Case {
    pub(crate) seed: u64,
    pub(crate) model: Model,
    /// The reference model, if the model runs slices.
    pub(crate) whole: Option<Model>,
    pub(crate) sizes: Sizes,
    pub(crate) pipeline: Pipeline,
    /// The schedule of the pipeline.
    pub(crate) schedule: Schedule,
    pub(crate) zero: u8,
    pub(crate) recompute: Recompute,
    pub(crate) optimizer: Optimizer,
    pub(crate) quantisation: Option<Quantisation>,
}

/// Makes the case of a seed, in f32.
pub(crate) fn generate(seed: u64) -> Case {
    generate_in(DType::F32, seed)
}

/// Makes the case of a seed in a precision.
pub(crate) fn generate_in(dtype: DType, seed: u64) -> Case {
    let mut random = Random::new(seed);
    let r = &mut random;
    let pipeline = pipeline(r);
    let (mut model, sizes) = unpinned(r, &pipeline, |r| r.between(2, 6), (dtype, false));
    pin(r, &mut model);
    let of = |r: &mut Random| if r.chance(25) { known(r, &pipeline) } else { rows::schedule(r, &pipeline) };
    case(r, seed, (model, sizes), pipeline, of)
}

/// A model for a pipeline whose shardings are all open, of sequences as long as `length` says, which may have to run in slices.
pub(crate) fn unpinned(
    r: &mut Random,
    pipeline: &Pipeline,
    length: impl Fn(&mut Random) -> u64,
    (dtype, in_slices): (DType, bool),
) -> (Model, Sizes) {
    let mesh = mesh(r, pipeline.ranks);
    let (batch, seq) = (r.between(2, 6), length(r));
    let sizes = Sizes { batch, seq, hidden: r.between(3, 8), vocab: r.between(5, 11), dtype, in_slices };
    let mut model = Model { name: "case".to_string(), mesh, has_mesh: true, ..Model::default() };
    calls(r, &mut model, sizes, pipeline.stages());
    (model, sizes)
}

/// The case of a model and a pipeline.
pub(crate) fn case(
    r: &mut Random,
    seed: u64,
    (model, sizes): (Model, Sizes),
    pipeline: Pipeline,
    schedule: impl Fn(&mut Random) -> Schedule,
) -> Case {
    let clip = r.chance(50).then_some(0.5);
    let momentum = if r.chance(50) { 0.9 } else { 0.0 };
    let sgd = OptimizerKind::Sgd { momentum, nesterov: momentum > 0.0 && r.chance(50), weight_decay: 0.1 };
    let adamw = OptimizerKind::AdamW { beta1: 0.9, beta2: 0.95, eps: 1e-8, weight_decay: 0.1 };
    let kind = if r.chance(50) { sgd } else { adamw };
    Case {
        seed,
        model,
        whole: None,
        sizes,
        pipeline,
        schedule: schedule(r),
        zero: r.below(4) as u8,
        recompute: recompute(r),
        optimizer: Optimizer { kind, clip },
        quantisation: None,
    }
}

/// Half of all cases compute nothing again.
fn recompute(r: &mut Random) -> Recompute {
    let modules = |names: &[&str]| Recompute::Selective(names.iter().map(|name| name.to_string()).collect());
    match r.below(8) {
        0 | 1 => Recompute::Full(None),
        2 => Recompute::Full(Some(1)),
        3 => modules(&["op", "layernorm"]),
        _ => Recompute::None,
    }
}

/// One to four ranks and stages of any placement.
fn pipeline(r: &mut Random) -> Pipeline {
    let (ranks, most) = *r.pick(&[(1, 3), (1, 1), (2, 2), (2, 2), (3, 1), (4, 1)]);
    let placement = *r.pick(&Placement::ALL);
    let copies = placement == Placement::Bidirectional && ranks > 1;
    let microbatches = r.between(if copies { 2 } else { 1 }, 8) as u32;
    let chunks = r.between(1, most) as u32;
    Pipeline { chunks, ..Pipeline::new(placement, ranks, microbatches) }
}

/// A schedule from the table for a pipeline, if it is a chain.
fn known(r: &mut Random, pipeline: &Pipeline) -> Schedule {
    if pipeline.placement != Placement::Chain {
        return rows::schedule(r, pipeline);
    }
    let kind = schedules::find(if r.chance(50) { "gpipe" } else { "1f1b" }).expect("a schedule");
    kind.make(&StageCosts::uniform(pipeline.stages(), 1.0, 1.0, 1.0, 0.0), pipeline).expect("rows")
}

/// One to three axes below the stages, at most eight devices.
fn mesh(r: &mut Random, stages: u32) -> Mesh {
    let names = ["dp", "tp", "x"];
    let mut axes = if stages > 1 { vec![("pp", u64::from(stages))] } else { Vec::new() };
    let mut left = 8 / u64::from(stages);
    for name in &names[..1 + r.below(3)] {
        let size = if left >= 2 { r.between(2, left.min(4)) } else { 1 };
        if size > 1 {
            axes.push((name, size));
            left /= size;
        }
    }
    Mesh::new("m", &axes)
}

/// Embedding, middle blocks (some repeated), head; now and then a value that skips to the head, or a tied table.
fn calls(r: &mut Random, model: &mut Model, sizes: Sizes, stages: u32) {
    let tokens = Type::of(DType::I32, &[sizes.batch, sizes.seq]);
    let input = |model: &mut Model, name: &str| {
        let value = model.values.push(name.to_string());
        model.inputs.push(ModelInput { value, kind: ArgKind::Input, ty: tokens.clone() });
        value
    };
    let [tok, lab, pos, seg] = ["tok", "lab", "pos", "seg"].map(|name| input(model, name));
    let tied = r.chance(30);
    let table = Type::of(sizes.dtype, &[sizes.vocab, sizes.hidden]);
    declare(model, "emb", None, None, table, 1);

    let mut x = model.values.push("x0".to_string());
    let embed = embed_block(r, model, sizes);
    call(model, embed, vec![x], vec![tok, pos, seg], None, vec![whole("emb"), array("embed", ParamIndex::At(0))]);
    let first = x;
    let mut runs = 2;
    for index in 0..1 + r.below(2) {
        let repeats = if r.chance(50) || runs + 1 < stages { 1 + r.between(1, 2) as u32 } else { 1 };
        let name = format!("mid{index}");
        let block = middle_block(r, model, sizes, &name, repeats);
        let y = model.values.push(format!("x{}", index + 1));
        let (repeat, at) = match repeats {
            1 => (None, ParamIndex::At(0)),
            n => (Some(Repeat { variable: "i".to_string(), range: 0..n }), ParamIndex::Repeat),
        };
        call(model, block, vec![y], vec![x, pos, seg], repeat, vec![array(&name, at)]);
        runs += repeats;
        x = y;
    }
    let skip = r.chance(30).then_some(first);
    let head = head_block(r, model, sizes, skip.is_some(), tied);
    let mut args = vec![x];
    args.extend(skip);
    args.extend([lab, pos, seg]);
    let mut params = vec![array("head", ParamIndex::At(0))];
    if tied {
        params.insert(0, whole("emb"));
    }
    call(model, head, Vec::new(), args, None, params);
}

fn whole(name: &str) -> ParamRef {
    ParamRef { name: name.to_string(), index: ParamIndex::Whole }
}

fn array(name: &str, index: ParamIndex) -> ParamRef {
    ParamRef { name: name.to_string(), index }
}

fn call(
    model: &mut Model,
    block: BlockId,
    results: Vec<ModelValue>,
    args: Vec<ModelValue>,
    repeat: Option<Repeat>,
    params: Vec<ParamRef>,
) {
    // A block without parameters of its own has no array to pass.
    let declared = |p: &ParamRef| model.params.values().any(|param| param.name == p.name);
    let params = params.into_iter().filter(declared).collect();
    model.calls.push(Call {
        results,
        block,
        repeat,
        args,
        params,
        slice: None,
        offload: false,
        comments: Vec::new(),
        span: Span::default(),
    });
}

fn declare(model: &mut Model, name: &str, field: Option<&str>, count: Option<u32>, ty: Type, fan_in: u64) {
    model.params.push(Param {
        name: name.to_string(),
        field: field.map(str::to_string),
        count,
        // Results stay of the size of the operands.
        init: Init::Normal(1.0 / (fan_in as f64).sqrt()),
        decay: ty.rank() > 1,
        frozen: false,
        part_of: None,
        ty,
        comments: Vec::new(),
        span: Span::default(),
    });
}

fn embed_block(r: &mut Random, model: &mut Model, sizes: Sizes) -> BlockId {
    let mut block = Block::default();
    let count = r.below(3);
    let mut maker = BlockMaker::new(r, sizes, &mut block, "embed");
    let [tok, pos, seg] = ["tok", "pos", "seg"].map(|name| maker.input(name));
    let table = maker.param(Some("emb"), &[sizes.vocab, sizes.hidden], 1);
    let x = maker.embed(tok, table).expect("an embedding");
    let x = maker.mix(x, pos, seg, count).expect("legal ops");
    let params = maker.finish(vec![(x, ResultKind::Value)]);
    add_block(model, block, "embed", 1, &params)
}

fn middle_block(r: &mut Random, model: &mut Model, sizes: Sizes, name: &str, repeats: u32) -> BlockId {
    let mut block = Block::default();
    let count = 1 + r.below(7);
    let mut maker = BlockMaker::new(r, sizes, &mut block, name);
    let x = maker.residual("x");
    let [pos, seg] = ["pos", "seg"].map(|name| maker.input(name));
    let y = maker.mix(x, pos, seg, count).expect("legal ops");
    // Always through something, so that the block is no mere renaming.
    let y = maker.join(x, y).expect("equal shapes");
    let params = maker.finish(vec![(y, ResultKind::Value)]);
    add_block(model, block, name, repeats, &params)
}

fn head_block(r: &mut Random, model: &mut Model, sizes: Sizes, skip: bool, tied: bool) -> BlockId {
    let mut block = Block::default();
    let count = r.below(3);
    let mut maker = BlockMaker::new(r, sizes, &mut block, "head");
    let mut x = maker.residual("x");
    let first = skip.then(|| maker.residual("first"));
    let [lab, pos, seg] = ["lab", "pos", "seg"].map(|name| maker.input(name));
    let table = tied.then(|| maker.param(Some("emb"), &[sizes.vocab, sizes.hidden], 1));
    if let Some(first) = first {
        x = maker.join(x, first).expect("equal shapes");
    }
    let x = maker.mix(x, pos, seg, count).expect("legal ops");
    let loss = maker.loss(x, lab, table).expect("legal ops");
    let params = maker.finish(vec![(loss, ResultKind::Loss)]);
    add_block(model, block, "head", 1, &params)
}

/// Declares the block's own parameters as fields of an array of its name.
fn add_block(model: &mut Model, block: Block, name: &str, repeats: u32, params: &[MadeParam]) -> BlockId {
    for param in params.iter().filter(|param| param.name != "emb") {
        declare(model, name, Some(&param.name), Some(repeats), param.ty.clone(), param.fan_in);
    }
    model.blocks.push(block)
}

/// Random shardings: parameters, inputs, block arguments (some partial) and values inside.
pub(crate) fn pin(r: &mut Random, model: &mut Model) {
    let mesh = model.mesh.clone();
    for param in model.params.values_mut() {
        if r.chance(60) {
            shard(r, &mesh, &mut param.ty);
        }
    }
    for input in &mut model.inputs {
        if r.chance(60) {
            shard(r, &mesh, &mut input.ty);
        }
    }
    bind(model);
    for block in model.blocks.values_mut() {
        // A value that passes between blocks is pinned in one place: where it is taken first.
        let (args, others): (Vec<Value>, Vec<Value>) = {
            let mut values = block.args_of(ArgKind::Value);
            (values.by_ref().take(1).collect(), values.collect())
        };
        others.iter().for_each(|&value| block.values[value].ty.dims.iter_mut().for_each(|dim| dim.open = true));
        let returned = block[SectionKind::F].ret.clone();
        let made: Vec<Value> = block[SectionKind::F].stmts.iter().flat_map(|stmt| stmt.results.clone()).collect();
        for value in args.iter().chain(&made) {
            let (closed, unreduced) = (r.chance(50), r.chance(20));
            let ty = &mut block.values[*value].ty;
            ty.dims.iter_mut().for_each(|dim| dim.open = true);
            if ty.rank() == 0 || returned.contains(value) || !r.chance(40) {
                continue;
            }
            shard(r, &mesh, ty);
            ty.dims.iter_mut().for_each(|dim| dim.open = !closed && dim.axes.is_empty());
            if closed && unreduced {
                owe(r, &mesh, ty);
            }
        }
    }
}

/// Parameters and inputs of blocks are as they are declared.
fn bind(model: &mut Model) {
    let declared = |model: &Model, call: &Call| {
        let params = model.call_params(call, 0).into_iter().map(|(param, _)| model.params[param].ty.clone());
        let input = |value: &ModelValue| model.inputs.iter().find(|input| input.value == *value);
        let inputs = call.args.iter().filter_map(input).map(|input| input.ty.clone());
        (inputs.collect::<Vec<_>>(), params.collect::<Vec<_>>())
    };
    for call in model.calls.clone() {
        let (inputs, params) = declared(model, &call);
        let block = &mut model.blocks[call.block];
        for (kind, types) in [(ArgKind::Input, inputs), (ArgKind::Param, params)] {
            let values: Vec<Value> = block.args_of(kind).collect();
            values.into_iter().zip(types).for_each(|(value, ty)| block.values[value].ty = ty);
        }
    }
}

/// Puts random axes on random dims, as far as they are legal.
fn shard(r: &mut Random, mesh: &Mesh, ty: &mut Type) {
    let mut axes: Vec<_> = mesh.tensor_axes().iter().collect();
    for place in (1..axes.len()).rev() {
        let other = r.below(place + 1);
        axes.swap(place, other);
    }
    // Now and then all on one dim: an inner letter of a merged dim is cut only where the outer one is used up.
    let (stacked, rank) = (r.chance(35), ty.rank());
    let mut place = r.below(rank);
    for axis in axes {
        if !stacked {
            place = r.below(rank);
        }
        let dim = &mut ty.dims[place];
        let longer = dim.axes.union(&Axes::one(axis));
        if r.chance(70) && mesh.size(&longer) <= dim.size {
            dim.axes = longer;
        }
    }
}

/// Leaves a sum pending over an axis that no dim uses.
fn owe(r: &mut Random, mesh: &Mesh, ty: &mut Type) {
    let free = mesh.tensor_axes().without(&ty.sharded_axes());
    if !free.is_empty() {
        let axis = *r.pick(free.as_slice());
        *ty = ty.partial_over(PartialKind::Sum, &Axes::one(axis));
    }
}
