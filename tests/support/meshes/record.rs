//! Programs trained for some steps, and what is written down of it.

use super::processes::load;
use super::training::SEED;
use codegen::buffers::assign_buffers;
use ir::graph::Model;
use ir::optimizer::{Optimizer, OptimizerKind};
use ir::program::Program;
use meshwright::runtime::exec::{Options, StepInput};
use std::collections::BTreeMap;

/// Tensors by the instance name of their parameter.
pub(crate) type Tensors = BTreeMap<String, Vec<f64>>;

/// Record of a run of some steps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    /// The loss of every step.
    pub(crate) losses: Vec<f64>,
    /// The gradient norm of every step, before clipping.
    pub(crate) norms: Vec<f64>,
    /// The losses of routers of every step, all together; 0 without any.
    pub(crate) balance: Vec<f64>,
    /// Per step, the share of dropped expert choices; 0 without experts.
    pub(crate) dropped: Vec<f64>,
    /// The gradients of the last step.
    pub(crate) gradients: Tensors,
    /// The parameters after the last step.
    pub(crate) params: Tensors,
}

/// Plain gradient descent, neither decayed nor clipped.
pub(crate) fn sgd() -> Optimizer {
    Optimizer { kind: OptimizerKind::Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.0 }, clip: None }
}

/// Runs a program, whose tensors get their places here, on the virtual devices of the model's mesh, some in several processes.
///
/// # Errors
/// The executor refuses the program, or a rank failed.
pub(crate) fn train(model: &Model, program: &Program, inputs: Vec<StepInput>) -> Result<Record, String> {
    let options = Options { seed: SEED, ..Options::default() };
    let mut program = program.clone();
    assign_buffers(model, &mut program, None);
    let case = program.classes.iter().map(|class| class.instrs.len() as u64).sum();
    let mut executor = load(model, &program, &options, case).map_err(|why| why.to_string())?;
    let mut record = Record::default();
    for input in inputs {
        let output = executor.step(input).map_err(|why| why.to_string())?;
        let balance = [output.balance_loss, output.z_loss].into_iter().flatten().map(f64::from);
        record.balance.push(balance.sum());
        record.dropped.push(output.dropped.unwrap_or(0.0));
        record.losses.push(f64::from(output.loss.ok_or("no loss")?));
        record.norms.push(f64::from(output.grad_norm.ok_or("no norm")?));
    }
    let wide = |tensors: BTreeMap<String, meshwright::runtime::state::GlobalTensor>| {
        let wide = |data: Vec<f32>| data.into_iter().map(f64::from).collect();
        tensors.into_iter().map(|(name, whole)| (name, wide(whole.data))).collect()
    };
    record.gradients = wide(executor.gradients().map_err(|why| why.to_string())?);
    record.params = wide(executor.export_params().map_err(|why| why.to_string())?);
    Ok(record)
}
