//! A right program with its results, and all findings on a broken one.

use crate::meshes::compare::differences;
use crate::meshes::record::{Record, sgd, train};
use crate::meshes::training::{Recipe, compiled, inputs, models};
use codegen::{CodegenError, lower};
use cost::PROGRAM;
use ir::catalogue::Code;
use ir::graph::Model;
use ir::program::Program;
use ir::text::File;
use ir::verify;
use meshwright::runtime::exec::StepInput;
use scheduler::actions::split_backward;
use std::collections::BTreeSet;

/// The small GPT-2 compiled for a mesh, and two steps of it.
pub(crate) struct Right {
    pub(crate) file: File,
    pub(crate) inputs: Vec<StepInput>,
    recipe: Recipe,
    record: Record,
}

impl Right {
    /// Compiles for a mesh, with four micro-batches of four sequences, and runs.
    pub(crate) fn on(mesh: &str) -> Right {
        let [_, config] = models();
        let recipe = Recipe { config, optimizer: sgd(), lr: 0.1, steps: 2, precision: "f32" };
        let file = compiled(&recipe, mesh, 4);
        let inputs = inputs(&file.model, &recipe, mesh);
        let program = file.program.as_ref().expect("a program");
        let record = train(&file.model, program, inputs.clone()).expect("it runs");
        Right { file, inputs, recipe, record }
    }

    /// A copy of its program.
    pub(crate) fn program(&self) -> Program {
        self.file.program.clone().expect("a program")
    }

    /// The program of a changed model, or of another schedule.
    pub(crate) fn emitted(&self, model: &Model) -> Result<Program, CodegenError> {
        let (Some(staged), Some(schedule)) = (&self.file.staged, &self.file.schedule) else { panic!("no schedule") };
        lower(model, staged, schedule, self.program().microbatches, &PROGRAM)
    }

    /// Runs I and W apart from here on.
    pub(crate) fn split(&mut self) {
        self.file.schedule = self.file.schedule.take().map(split_backward);
    }

    /// In what a run differs: `loss`, `norm`, `gradient`, `parameter`; or `load` where the executor refuses the program.
    pub(crate) fn run(&self, model: &Model, program: &Program, inputs: &[StepInput]) -> Vec<&'static str> {
        match train(model, program, inputs.to_vec()) {
            Err(why) if why.contains("does not load") => vec!["load"],
            Err(why) => panic!("{why}"),
            Ok(record) => {
                let found = differences(&record, &self.record, &self.recipe.optimizer);
                sorted(found.into_iter().map(|(check, _)| check))
            }
        }
    }

    /// True if a run ends with the report that all ranks wait for each other.
    pub(crate) fn is_stuck(&self, program: &Program) -> bool {
        let outcome = train(&self.file.model, program, self.inputs.clone());
        outcome.is_err_and(|why| why.contains("all wait for each other"))
    }
}

/// The codes of what the verifier of planned models finds.
pub(crate) fn planned(model: &Model) -> Vec<Code> {
    let found = verify::verify_planned(model).err().unwrap_or_default();
    sorted(found.0.iter().map(|diagnostic| diagnostic.code))
}

/// The names of what the checker of programs finds.
pub(crate) fn checked(model: &Model, program: &Program) -> Vec<&'static str> {
    let found = verify::program::check(model, program, None).err().unwrap_or_default();
    sorted(found.iter().map(|violation| violation.name))
}

/// Each once, in order.
fn sorted<T: Ord>(found: impl Iterator<Item = T>) -> Vec<T> {
    found.collect::<BTreeSet<T>>().into_iter().collect()
}
