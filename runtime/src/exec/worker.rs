//! One rank at work: it runs rows, as a straight line of actions over registers.

use super::body::{Code, Step};
use super::machine::{Input, StepInput};
use super::row::{Action, Row};
use super::run::Run;
use crate::backend::{Backend, Moment};
use crate::comm::{Communicator, Exchange, Stopped, cut};
use crate::state::State;
use crate::tensor::Tensor;
use std::collections::BTreeMap;

/// The scalar that holds the learning rate.
pub(super) const LR: &str = "lr";
/// The scalar that holds the number of the step, from 1.
pub(super) const STEP: &str = "step";

/// A register: nothing, one tensor, or a bundle.
type Register = Vec<Tensor>;

/// One rank.
pub(super) struct Worker<B: Backend, C> {
    pub(super) device: Device<B, C>,
    /// The row of a training step, and that of an evaluation.
    pub(super) rows: Vec<Row<B::Kernel>>,
}

/// What a rank works with.
pub(super) struct Device<B, C> {
    pub(super) backend: B,
    pub(super) comm: C,
    pub(super) state: State,
    pub(super) scalar_names: Vec<String>,
    pub(super) seed: u64,
    pub(super) memory: Memory,
}

/// What a rank holds during a step, reused from step to step.
#[derive(Default)]
pub(super) struct Memory {
    registers: Vec<Register>,
    /// The values of the body that runs.
    frame: Vec<Tensor>,
    scalars: Vec<Tensor>,
    /// Operands and results of the step of a body.
    given: Vec<Tensor>,
    made: Vec<Tensor>,
    outs: BTreeMap<String, f32>,
}

impl<B: Backend, C: Communicator> Worker<B, C> {
    /// Runs a row and gives what it reports.
    pub(super) fn run(&mut self, row: usize, input: &StepInput) -> Result<BTreeMap<String, f32>, Stopped> {
        let Row { actions, codes, registers } = &mut self.rows[row];
        self.device.start(*registers, input);
        for action in actions.iter() {
            self.device.act(action, codes, input)?;
        }
        self.device.memory.registers.iter_mut().for_each(Vec::clear);
        Ok(std::mem::take(&mut self.device.memory.outs))
    }
}

impl<B: Backend, C: Communicator> Device<B, C> {
    fn start(&mut self, registers: usize, input: &StepInput) {
        self.memory.registers.resize_with(registers, Register::new);
        self.memory.scalars.resize(self.scalar_names.len(), Tensor::EMPTY);
        for scalar in 0..self.scalar_names.len() {
            match self.scalar_names[scalar].as_str() {
                LR => self.memory.scalars[scalar] = self.scalar(input.lr),
                STEP => self.memory.scalars[scalar] = self.scalar(input.step as f32),
                _ => {}
            }
        }
    }

    fn scalar(&self, value: f32) -> Tensor {
        let mut scalar = self.backend.alloc(1);
        scalar.write()[0] = value;
        scalar
    }

    fn put(&mut self, reg: usize, tensor: Tensor) {
        self.memory.registers[reg].clear();
        self.memory.registers[reg].push(tensor);
    }

    /// Does one action of a row.
    fn act(&mut self, action: &Action, codes: &mut [Code<B::Kernel>], input: &StepInput) -> Result<(), Stopped> {
        match action {
            Action::Feed { out, input: value, microbatch, ty, region } => {
                let mut part = self.backend.alloc(region.len());
                match &input.microbatches[*microbatch as usize][value] {
                    Input::Ints(whole) => cut(whole, ty, region, part.write_ints()),
                    Input::Floats(whole) => cut(whole, ty, region, part.write()),
                }
                self.put(*out, part);
            }
            Action::Seed { out } => {
                let seed = self.scalar(input.loss_cotangent());
                self.put(*out, seed);
            }
            Action::Run(run) => self.run(run, &mut codes[run.code], input.step)?,
            Action::Send { reg, to, tag } => self.comm.send(*to, *tag, self.memory.registers[*reg][0].clone()),
            Action::Recv { reg, from, tag } => {
                let tensor = self.comm.recv(*from, *tag)?;
                self.put(*reg, tensor);
            }
            Action::Sum { reg, group, plan } => {
                let sum = self.exchanged(self.memory.registers[*reg][0].clone(), *group, plan)?;
                self.put(*reg, sum);
            }
            Action::Slot { slot, group, plan } => {
                let result = self.exchanged(self.state.tensor(*slot).clone(), *group, plan)?;
                *self.state.tensor_mut(*slot) = result;
            }
            Action::Add { into, from } => {
                let from = self.memory.registers[*from][0].clone();
                self.backend.add(&mut self.memory.registers[*into][0], &from);
            }
            Action::Out { name, reg } => {
                let value = self.memory.registers[*reg][0].floats()[0];
                self.memory.outs.insert(name.clone(), value);
            }
            Action::Free(regs) => regs.iter().for_each(|&reg| self.memory.registers[reg].clear()),
        }
        Ok(())
    }

    /// What an exchange makes of one tensor.
    fn exchanged(&mut self, tensor: Tensor, group: usize, plan: &Exchange) -> Result<Tensor, Stopped> {
        let mut result = self.backend.alloc(plan.tensors[0].len);
        self.comm.exchange(group, plan, &[tensor], std::slice::from_mut(&mut result))?;
        Ok(result)
    }

    fn run(&mut self, run: &Run, code: &mut Code<B::Kernel>, step: u64) -> Result<(), Stopped> {
        let moment = Moment { seed: self.seed, step, microbatch: run.microbatch, index: run.index };
        self.begin(run, code);
        for step in &mut code.steps {
            self.perform(step, run, moment)?;
        }
        self.end(run, code);
        Ok(())
    }

    /// Fills the frame with a body's arguments. What the body changes is taken out of the state, so that it is held alone.
    fn begin(&mut self, run: &Run, code: &Code<B::Kernel>) {
        let Memory { registers, frame, scalars, .. } = &mut self.memory;
        frame.clear();
        frame.resize(code.values, Tensor::EMPTY);
        run.row.iter().for_each(|&(value, reg)| frame[value] = registers[reg][0].clone());
        run.kept.iter().for_each(|&(value, reg, place)| frame[value] = registers[reg][place].clone());
        run.reads.iter().for_each(|&(value, slot)| frame[value] = self.state.tensor(slot).clone());
        run.scalars.iter().for_each(|&(value, scalar)| frame[value] = scalars[scalar].clone());
        for &(value, slot) in &run.changes {
            frame[value] = std::mem::replace(self.state.tensor_mut(slot), Tensor::EMPTY);
        }
    }

    /// Gives a body's results to the row, its kept values to a bundle, and what it changed back to the state.
    fn end(&mut self, run: &Run, code: &Code<B::Kernel>) {
        let Memory { registers, frame, scalars, .. } = &mut self.memory;
        for (&value, &reg) in code.results.iter().zip(&run.results) {
            registers[reg].clear();
            registers[reg].push(frame[value].clone());
        }
        if let Some(reg) = run.keep {
            registers[reg].clear();
            registers[reg].extend(code.keeps.iter().map(|&value| frame[value].clone()));
        }
        run.leaves.iter().for_each(|&(value, scalar)| scalars[scalar] = frame[value].clone());
        for &(value, slot) in &run.changes {
            *self.state.tensor_mut(slot) = std::mem::replace(&mut frame[value], Tensor::EMPTY);
        }
        frame.clear();
    }

    /// Does one step of a body.
    fn perform(&mut self, step: &mut Step<B::Kernel>, run: &Run, moment: Moment) -> Result<(), Stopped> {
        let (backend, Memory { frame, given, made, .. }) = (&mut self.backend, &mut self.memory);
        match step {
            Step::Launch { kernel, operands, results, updated } => {
                for (place, &(value, len)) in results.iter().enumerate() {
                    made.push(match updated.get(place) {
                        Some(&operand) => updating(frame, operands[operand], value, backend),
                        None => backend.alloc(len),
                    });
                }
                given.extend(operands.iter().map(|&value| frame[value].clone()));
                backend.launch(kernel, moment, given, made);
                results.iter().zip(made.drain(..)).for_each(|(&(value, _), tensor)| frame[value] = tensor);
            }
            Step::Accumulate { kernel, operands, into } => {
                let mut sum = updating(frame, *into, *into, backend);
                given.extend(operands.iter().map(|&value| frame[value].clone()));
                match run.begins.contains(into) {
                    true => backend.launch(kernel, moment, given, std::slice::from_mut(&mut sum)),
                    false => backend.accumulate(kernel, moment, given, &mut sum),
                }
                frame[*into] = sum;
            }
            Step::Exchange { group, plan, operands, results } => {
                given.extend(operands.iter().map(|&value| frame[value].clone()));
                made.extend(plan.tensors.iter().map(|tensor| backend.alloc(tensor.len)));
                self.comm.exchange(*group, plan, given, made)?;
                for (&value, tensor) in results.iter().zip(made.drain(..)) {
                    match run.adds.contains(&value) {
                        true => backend.add(&mut frame[value], &tensor),
                        false => frame[value] = tensor,
                    }
                }
            }
            Step::Free(values) => values.iter().for_each(|&value| frame[value] = Tensor::EMPTY),
        }
        given.clear();
        Ok(())
    }
}

/// The tensor that an update changes: the operand itself where the result takes its place, else a copy.
fn updating(frame: &mut [Tensor], operand: usize, result: usize, backend: &impl Backend) -> Tensor {
    if operand != result {
        return backend.copy(&frame[operand]);
    }
    let mut tensor = std::mem::replace(&mut frame[operand], Tensor::EMPTY);
    if tensor.is_unique() { tensor } else { backend.copy(&tensor) }
}
