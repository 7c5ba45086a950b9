//! Feeds of a program: the inputs that it takes from the host, as a step must give them.

use super::Error;
use super::executor::{Input, StepInput};
use super::row::{fed, is_integer};
use ir::graph::Model;
use ir::ids::ModelValue;
use ir::program::Program;
use ir::types::Type;

/// Feeds of a program.
pub(super) struct Feeds {
    microbatches: u32,
    inputs: Vec<(ModelValue, String, Type)>,
}

impl Feeds {
    /// The feeds of a program, with the names and types of its inputs.
    ///
    /// # Errors
    /// The program feeds what is no input of the model.
    pub(super) fn of(model: &Model, program: &Program) -> Result<Feeds, Error> {
        let mut inputs = Vec::new();
        for value in fed(program) {
            let input = model.inputs.iter().find(|input| input.value == value);
            let input = input.ok_or_else(|| Error::Load("it feeds what is no input of the model".to_string()))?;
            inputs.push((value, model.values[value].clone(), input.ty.clone()));
        }
        Ok(Feeds { microbatches: program.microbatches, inputs })
    }

    /// Checks the inputs of a step.
    ///
    /// # Errors
    /// They are not those that the program feeds.
    pub(super) fn check(&self, given: &StepInput) -> Result<(), Error> {
        if given.microbatches.len() != self.microbatches as usize {
            let (want, got) = (self.microbatches, given.microbatches.len());
            return Err(Error::Input(format!("the program takes {want} micro-batches, not {got}")));
        }
        for (number, inputs) in given.microbatches.iter().enumerate() {
            for (value, name, ty) in &self.inputs {
                let len = match inputs.get(value) {
                    Some(Input::Ints(data)) if is_integer(ty) => data.len(),
                    Some(Input::Floats(data)) if !is_integer(ty) => data.len(),
                    Some(_) => return Err(Error::Input(format!("`{name}` has another element type"))),
                    None => return Err(Error::Input(format!("micro-batch {number} has no `{name}`"))),
                };
                if len as u64 != ty.elements() {
                    let wanted = ty.elements();
                    return Err(Error::Input(format!("`{name}` has {wanted} elements per micro-batch, not {len}")));
                }
            }
        }
        Ok(())
    }
}
