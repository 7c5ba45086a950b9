//! The shards of a model's weights under a configuration, by the names and dims that they have in `transformers`.
//!
//! A parameter of the IR has a dim for groups of heads and one for the heads of a group, where a matrix of `transformers` has its
//! rows. Sharding the outermost dim of the rows shards the rows; other dims give no contiguous shards: [`Placement::unstated`] has the
//! reason.

use crate::error::Error;
use crate::hub::config_keys;
use compiler::compile::{CompileRequest, compile_source};
use compiler::model_source::ModelSource;
use compiler::parallel;
use estimator::EstimateReport;
use ir::graph::{Model, Param};
use ir::ids::AxisId;
use ir::options::{CpKind, Gather, Offload, ParallelConfig, Recompute};
use ir::types::Dim;
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use weights::{Description, Names, Piece, Source, Stride};

/// The weights of a model on a mesh.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Placements {
    /// `meshwright.placements/1`.
    pub schema: &'static str,
    /// `model_type` of the model's `config.json`.
    pub family: &'static str,
    /// The axes of the mesh in rank order, outermost first. An axis that is used in parts has an entry for each.
    pub mesh: Vec<MeshAxis>,
    /// True if activations between products are sharded over tp along the sequence.
    pub sequence_parallel: bool,
    /// The weights by name. ZeRO shards them further, over dp and cp.
    pub tensors: BTreeMap<String, Placement>,
}

/// An axis of the mesh.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct MeshAxis {
    /// Its name.
    pub name: String,
    /// Its ranks.
    pub size: u64,
}

/// The shards of a weight.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Placement {
    /// Its shape.
    pub shape: Vec<u64>,
    /// The dim that each axis shards; the other axes have copies.
    pub shards: BTreeMap<String, usize>,
    /// The axes whose ranks each have some of such tensors, as of those of all experts, outermost first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owners: Vec<String>,
    /// Why its shards are no contiguous parts of one dim, if they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unstated: Option<String>,
}

/// The shards of the weights under the configuration of a prediction.
///
/// ```
/// let report = meshwright::estimate("llama3-8b").batch(8, 128).parallel("dp=2,tp=4").run()?;
/// let placements = meshwright::placements::placements(&report)?;
/// assert_eq!(placements.tensors["model.layers.0.self_attn.q_proj.weight"].shards["tp"], 0);
/// assert_eq!(placements.tensors["model.layers.31.mlp.down_proj.weight"].shards["tp"], 1);
/// # Ok::<(), meshwright::Error>(())
/// ```
///
/// # Errors
/// The model is not there any more, or no class of `transformers` has it.
pub fn placements(report: &EstimateReport) -> Result<Placements, Error> {
    let inputs = &report.inputs;
    let raw = config_keys(&inputs.model)?;
    let description = Description::read(&Value::Object(raw).to_string())?;
    let names = Names::of(&description, inputs.seq, &|_, _| false)?;
    let model = sharded(report)?;
    let mut tensors: BTreeMap<String, Placement> = BTreeMap::new();
    for param in model.params.values() {
        for instance in 0..param.instances() {
            let Some(source) = names.sources.get(&param.instance_name(instance)) else { continue };
            for piece in &source.pieces {
                let placed = placed(&model, param, source, piece);
                let known = tensors.entry(piece.tensor.clone()).or_insert_with(|| placed.clone());
                if *known != placed {
                    known.unstated.get_or_insert_with(|| "its parts have different shards".to_string());
                }
            }
        }
    }
    if let Some([head, embedding]) = names.tied()
        && let Some(placement) = tensors.get(embedding).cloned()
    {
        tensors.insert(head.to_string(), placement);
    }
    let mesh = model.mesh.axes.values().map(|axis| MeshAxis { name: axis.name.clone(), size: axis.size }).collect();
    let parallel = &report.parallel;
    Ok(Placements {
        schema: "meshwright.placements/1",
        family: description.family.model_type,
        mesh,
        sequence_parallel: parallel.sp && parallel.tp > 1,
        tensors,
    })
}

/// The model with its mesh and its shardings. What moves no weight is left out, since not all that can be predicted compiles.
fn sharded(report: &EstimateReport) -> Result<Model, Error> {
    let inputs = &report.inputs;
    let plain = ParallelConfig::default();
    let parallel = ParallelConfig {
        recompute: Recompute::None,
        offload: Offload::None,
        offload_optimizer: false,
        cp_kind: CpKind::AllGather,
        gather: Gather::default(),
        schedule: plain.schedule,
        stages: plain.stages,
        vp: None,
        slices: None,
        group: None,
        ..report.parallel.clone()
    };
    let request = CompileRequest {
        parallel: parallel::print(&parallel),
        seq: inputs.seq,
        global_batch: Some(inputs.global_batch),
        ..CompileRequest::default()
    };
    let source = ModelSource::open(&inputs.model)?;
    Ok(compile_source(&source, &request, Some("propagate"), &mut |_, _| ())?.model)
}

/// The shards of the tensor that has a piece of a parameter.
fn placed(model: &Model, param: &Param, source: &Source, piece: &Piece) -> Placement {
    let name = |axis: AxisId| model.mesh.axes[axis].name.clone();
    let (stored, dims) = param.ty.dims.split_at(usize::from(source.is_split));
    let shared = stored.iter().find(|dim| !dim.axes.is_empty());
    let owners = shared.into_iter().flat_map(|dim| dim.axes.iter()).map(name).collect();
    let whole = Placement { shape: piece.shape.clone(), owners, ..Placement::default() };
    match shards(model, dims, piece) {
        Ok(dims) => {
            let shards = dims.into_iter().map(|(axis, dim)| (name(axis), dim)).collect();
            let unstated = shared.map(|of| format!("{} ranks share {} such tensors", ranks(model, of), of.size));
            Placement { shards, unstated, ..whole }
        }
        Err(why) => Placement { unstated: Some(why), ..whole },
    }
}

/// The dim of the tensor that each axis shards.
fn shards(model: &Model, dims: &[Dim], piece: &Piece) -> Result<BTreeMap<AxisId, usize>, String> {
    if dims.iter().all(|dim| dim.axes.is_empty()) {
        return Ok(BTreeMap::new());
    }
    if piece.dims.iter().any(|(_, stride)| matches!(stride, Stride::Parted { .. })) {
        return Err("it has its matrices in parts".to_string());
    }
    let elements = |sizes: &mut dyn Iterator<Item = u64>| sizes.product::<u64>();
    if elements(&mut piece.dims.iter().map(|(size, _)| *size)) != elements(&mut piece.shape.iter().copied()) {
        return Err("it joins several matrices, and each is sharded".to_string());
    }
    let mut found = BTreeMap::new();
    for (at, _) in piece.shape.iter().enumerate() {
        let mut last = None;
        for axis in axes_of(model, dims, piece, at)? {
            if last.replace(axis).is_some_and(|last| last > axis) {
                return Err("its axes shard it in another order than that of the mesh".to_string());
            }
            found.insert(axis, at);
        }
    }
    Ok(found)
}

/// The axes that shard a dim of the tensor, major to minor.
///
/// # Errors
/// Their shards are not contiguous, or differ in size.
fn axes_of(model: &Model, dims: &[Dim], piece: &Piece, at: usize) -> Result<Vec<AxisId>, String> {
    let inner: u64 = piece.shape[at + 1..].iter().product();
    let mut parts: Vec<(u64, &Dim)> = Vec::new();
    for (dim, &(_, stride)) in dims.iter().zip(&piece.dims) {
        let (Stride::Even(step) | Stride::Paired { step, .. } | Stride::Parted { step, .. }) = stride;
        if (inner..inner * piece.shape[at]).contains(&(step as u64)) {
            parts.push((step as u64, dim));
        }
    }
    parts.sort_by_key(|(step, _)| std::cmp::Reverse(*step));
    let (mut axes, mut is_whole) = (Vec::new(), false);
    for (step, dim) in parts {
        if dim.axes.is_empty() {
            is_whole |= dim.size > 1;
            continue;
        }
        if is_whole {
            return Err(format!("dim {at} is sharded within blocks, and all ranks have each block"));
        }
        let ranks = ranks(model, dim);
        // Shards of single rows are as even as they can be in both programs.
        let is_of_rows = step == inner && dim.axes.len() == 1;
        if !dim.size.is_multiple_of(ranks) && !is_of_rows {
            return Err(format!("{ranks} ranks do not divide the {} units of dim {at}", dim.size));
        }
        axes.extend(dim.axes.iter());
        is_whole = dim.size > ranks;
    }
    Ok(axes)
}

/// The ranks that a dim is sharded over.
fn ranks(model: &Model, dim: &Dim) -> u64 {
    dim.axes.iter().map(|axis| model.mesh.axes[axis].size).product()
}
