//! The full training step of a differentiated model, one micro-batch after the other.
//!
//! ```text
//! for each micro-batch:  F of every run in order;  I and W of every run in reverse, gradients added per parameter
//! norm part of U of every run -> step graph -> rest of U of every run
//! ```
//!
//! The cotangent of every loss is `1 / valid tokens` of all micro-batches together, that of a regulariser `1 / micro-batches`. A parameter that several calls bind has
//! one gradient, the sum. Parameters and states are identified by the name of their instance: `layer.3.w1`, `layer.3.w1.m`.

use super::block::BlockRun;
use super::ops::Context;
use super::pass::Seeds;
use super::random;
use super::real::Real;
use super::round::{Rounding, Within};
use super::tensor::{Array, Tensor};
use ir::graph::{ArgKind, Block, Call, Init, Model, Param, STEP_SCALARS, SectionKind};
use ir::ids::Value;
use std::collections::BTreeMap;

/// The inputs of a micro-batch.
#[derive(Clone, Debug)]
pub struct MicroBatch<R> {
    /// The model's inputs by name.
    pub inputs: BTreeMap<String, Array<R>>,
    /// How many tokens count in the loss.
    pub valid: usize,
}

impl<R> MicroBatch<R> {
    /// From integer inputs; the valid tokens are the labels that are not negative.
    pub fn of_tokens(inputs: &[(&str, &Tensor<i32>)], labels: &str) -> MicroBatch<R> {
        let counted = inputs.iter().filter(|(name, _)| *name == labels);
        let valid = counted.flat_map(|(_, tensor)| &tensor.data).filter(|&&label| label >= 0).count();
        let inputs = inputs.iter().map(|(name, tensor)| (name.to_string(), Array::Int((*tensor).clone()))).collect();
        MicroBatch { inputs, valid }
    }
}

/// Report of a training step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StepResult<R> {
    /// The mean loss of the valid tokens of all micro-batches, before the update.
    pub loss: R,
    /// The result `norm` of the step graph: the norm of all gradients before clipping.
    pub grad_norm: Option<R>,
}

/// A model in training.
#[derive(Clone, Debug)]
pub struct Reference<'m, R> {
    pub(super) model: &'m Model,
    seed: u64,
    step: u64,
    loss_scale: f64,
    rounding: Rounding,
    params: BTreeMap<String, Tensor<R>>,
    states: BTreeMap<String, Tensor<R>>,
    pub(super) gradients: BTreeMap<String, Tensor<R>>,
}

/// A run with the call and the instance that it is of.
type CallRun<'m, R> = (&'m Call, u32, BlockRun<'m, R>);

impl<'m, R: Real> Reference<'m, R> {
    /// A model before its first step, with its initial parameters; states are zero, but `master` is its parameter.
    pub fn new(model: &'m Model, seed: u64) -> Reference<'m, R> {
        let instances = model.params.values().flat_map(|param| (0..param.instances()).map(move |i| (param, i)));
        let params = instances.map(|(param, i)| (param.instance_name(i), initial(param, i, seed))).collect();
        Reference {
            model,
            seed,
            step: 0,
            loss_scale: 1.0,
            rounding: Rounding::Nearest,
            params,
            states: BTreeMap::new(),
            gradients: BTreeMap::new(),
        }
    }

    /// Sets how results go to the numbers of their types.
    pub fn set_rounding(&mut self, rounding: Rounding) {
        self.rounding = rounding;
    }

    /// Sets the factor of the loss before differentiation, of which updates take the reciprocal; it is 1 at first.
    pub fn set_loss_scale(&mut self, loss_scale: f64) {
        self.loss_scale = loss_scale;
    }

    /// The parameters by instance name; before the first update, as they are before they are rounded to their types.
    pub fn params(&self) -> &BTreeMap<String, Tensor<R>> {
        &self.params
    }

    /// Replaces a parameter, and its master copy.
    ///
    /// # Errors
    /// There is none of this name, or it has other sizes.
    pub fn set_param(&mut self, name: &str, tensor: Tensor<R>) -> Result<(), String> {
        let old = self.params.get_mut(name).ok_or_else(|| format!("there is no parameter `{name}`"))?;
        if old.dims != tensor.dims {
            return Err(format!("`{name}` is {:?}, not {:?}", old.dims, tensor.dims));
        }
        *old = tensor;
        self.states.remove(&format!("{name}.master"));
        Ok(())
    }

    /// The optimizer's states by name: `layer.3.w1.m`. Empty before the first update.
    pub fn states(&self) -> &BTreeMap<String, Tensor<R>> {
        &self.states
    }

    /// The gradients of the last [`Reference::backward`] by instance name, before clipping, times the loss scale.
    pub fn gradients(&self) -> &BTreeMap<String, Tensor<R>> {
        &self.gradients
    }

    /// One training step: [`Reference::backward`], then [`Reference::update`].
    ///
    /// # Errors
    /// An input is missing or does not fit, or the model is not differentiated.
    pub fn step(&mut self, batch: &[MicroBatch<R>], lr: f64) -> Result<StepResult<R>, String> {
        let loss = self.backward(batch)?;
        Ok(StepResult { loss, grad_norm: self.update(lr)? })
    }

    /// The mean loss of the valid tokens.
    ///
    /// # Errors
    /// An input is missing or does not fit.
    pub fn loss(&self, batch: &[MicroBatch<R>]) -> Result<R, String> {
        let losses = (0u64..).zip(batch).map(|(index, inputs)| Ok(self.forward(index, inputs)?.loss));
        Ok(losses.sum::<Result<R, String>>()? * seed_cotangent(batch))
    }

    /// Computes and returns the gradients of the mean loss. State of the last call is dropped.
    ///
    /// # Errors
    /// As [`Reference::step`].
    pub fn backward(&mut self, batch: &[MicroBatch<R>]) -> Result<R, String> {
        if !self.model.is_differentiated() {
            return Err(format!("model `{}` is not differentiated", self.model.name));
        }
        self.gradients.clear();
        let (mut loss, seed) = (R::zero(), seed_cotangent(batch));
        let scale = R::of(self.loss_scale);
        let seeds = Seeds { labels: seed * scale, microbatches: scale * R::of(1.0 / batch.len() as f64) };
        for (index, inputs) in (0u64..).zip(batch) {
            let pass = self.forward(index, inputs)?;
            loss += pass.loss;
            self.backward_pass(pass, seeds)?;
        }
        Ok(loss * seed)
    }

    /// The norm, the step graph and the update with the gradients at hand; gives the norm if the step graph does.
    ///
    /// # Errors
    /// As [`Reference::step`].
    pub fn update(&mut self, lr: f64) -> Result<Option<R>, String> {
        let model = self.model;
        let graph = &model.step.as_ref().ok_or_else(|| format!("model `{}` has no step graph", model.name))?.graph;
        let mut runs = self.update_runs()?;
        let begins = [lr, (self.step + 1) as f64, 1.0 / self.loss_scale].map(R::of);
        let mut scalars: BTreeMap<&str, R> = STEP_SCALARS.into_iter().zip(begins).collect();
        let mut sums: Vec<Tensor<R>> = graph.args.iter().map(|_| Tensor::scalar(R::zero())).collect();
        for (_, _, run) in &mut runs {
            set_scalars(run, &scalars)?;
            sums.iter_mut().zip(run.norm()?).for_each(|(sum, share)| sum.add(&share));
        }
        let mut step = BlockRun::new(graph, self.context(0, 0));
        for (arg, sum) in graph.args.iter().zip(sums) {
            step.set(arg.value, sum)?;
        }
        for (&value, array) in graph[SectionKind::F].ret.iter().zip(step.forward()?) {
            scalars.insert(graph.value_name(value), array.real()?.data[0]);
        }
        for (call, instance, mut run) in runs {
            self.update_run(call, instance, &mut run, &scalars)?;
        }
        self.step += 1;
        Ok(scalars.get("norm").copied())
    }

    /// The runs that have an update, with gradients and states bound.
    fn update_runs(&self) -> Result<Vec<CallRun<'m, R>>, String> {
        let calls = self.model.calls.iter().flat_map(|call| (0..call.instances()).map(move |i| (call, i)));
        let updated = calls.filter(|(call, _)| !self.model.blocks[call.block][SectionKind::U].stmts.is_empty());
        let mut runs = Vec::new();
        for (call, instance) in updated {
            let mut run = self.bind(call, instance, 0)?;
            let block = run.block();
            for (param, name) in self.param_names(call, instance) {
                if let (Some(value), Some(sum)) = (block.gradient_of(param), self.gradients.get(&name)) {
                    run.set(value, sum.clone())?;
                }
            }
            runs.push((call, instance, run));
        }
        Ok(runs)
    }

    fn update_run(
        &mut self,
        call: &Call,
        instance: u32,
        run: &mut BlockRun<'m, R>,
        scalars: &BTreeMap<&str, R>,
    ) -> Result<(), String> {
        set_scalars(run, scalars)?;
        let block = run.block();
        let names = self.param_names(call, instance);
        for (value, tensor) in run.update()? {
            match names.get(&value) {
                Some(name) => drop(self.params.insert(name.clone(), tensor)),
                None => drop(self.states.insert(state_name(block, value, &names)?, tensor)),
            }
        }
        Ok(())
    }

    /// A run of a call with its parameters and states bound.
    pub(super) fn bind(&self, call: &Call, instance: u32, microbatch: u64) -> Result<BlockRun<'m, R>, String> {
        let block = &self.model.blocks[call.block];
        let context = self.context(call.index(instance), microbatch);
        let rounding = match self.rounding {
            // Every run has random numbers of its own.
            Rounding::Random([low, high]) => {
                Rounding::Random([low ^ context.index as u32, high ^ (microbatch as u32 + 1) << 16])
            }
            other => other,
        };
        let mut run = BlockRun::new(block, context).rounding(rounding);
        let names = self.param_names(call, instance);
        for value in block.args_of(ArgKind::Param) {
            let tensor = names.get(&value).and_then(|name| self.params.get(name));
            run.set(value, tensor.ok_or_else(|| not_bound(block, value))?.clone())?;
        }
        for value in block.args_of(ArgKind::State) {
            let name = state_name(block, value, &names)?;
            let state = match (self.states.get(&name), name.strip_suffix(".master")) {
                (Some(state), _) => state.clone(),
                (None, Some(param)) => self.params[param].clone(),
                (None, None) => {
                    Tensor::zeros(&block.ty(value).sizes().iter().map(|&size| size as usize).collect::<Vec<_>>())
                }
            };
            run.set(value, state)?;
        }
        Ok(run)
    }

    /// The instance name of each parameter that a run binds.
    pub(super) fn param_names(&self, call: &Call, instance: u32) -> BTreeMap<Value, String> {
        let values = self.model.blocks[call.block].args_of(ArgKind::Param);
        let bound = self.model.call_params(call, instance);
        values.zip(bound).map(|(value, (param, i))| (value, self.model.params[param].instance_name(i))).collect()
    }

    /// Position of a run in the next step to be completed.
    fn context(&self, index: u32, microbatch: u64) -> Context {
        Context { seed: self.seed, step: self.step + 1, index: u64::from(index), microbatch, within: Within::default() }
    }
}

/// The first numbers of an instance: element `i` is `std normal(key, i)`, in f32, or the constant.
fn initial<R: Real>(param: &Param, instance: u32, seed: u64) -> Tensor<R> {
    let dims: Vec<usize> = param.ty.sizes().iter().map(|&size| size as usize).collect();
    let key = random::parameter_key(seed, &param.instance_name(instance));
    match param.init {
        Init::Normal(std) => Tensor::from_fn(&dims, |i| R::of(f64::from(std as f32 * random::normal(key, i as u64)))),
        init => {
            let width = dims.last().map_or(1, |&width| width as u64);
            Tensor::from_fn(&dims, |i| R::of(init.element(width, i as u64, || random::uniform(key, i as u64))))
        }
    }
}

/// Gives a run the scalars that it reads.
fn set_scalars<R: Real>(run: &mut BlockRun<'_, R>, scalars: &BTreeMap<&str, R>) -> Result<(), String> {
    let block = run.block();
    for value in block.args_of(ArgKind::Const) {
        if let Some(&scalar) = scalars.get(block.value_name(value)) {
            run.set(value, Tensor::scalar(scalar))?;
        }
    }
    Ok(())
}

/// `1 / valid tokens`, and 0 where there are none.
fn seed_cotangent<R: Real>(batch: &[MicroBatch<R>]) -> R {
    let valid: usize = batch.iter().map(|inputs| inputs.valid).sum();
    if valid == 0 { R::zero() } else { R::of(1.0 / valid as f64) }
}

/// The name of a state of a run: that of its parameter's instance and its own suffix.
fn state_name(block: &Block, value: Value, names: &BTreeMap<Value, String>) -> Result<String, String> {
    let name = block.owner_of(value).and_then(|owner| names.get(&owner));
    let suffix = block.value_name(value).rsplit_once('.').map_or("", |(_, suffix)| suffix);
    name.map(|name| format!("{name}.{suffix}")).ok_or_else(|| not_bound(block, value))
}

pub(super) fn not_bound(block: &Block, value: Value) -> String {
    format!("no call binds `%{}` of block `{}` to a parameter", block.value_name(value), block.name)
}
