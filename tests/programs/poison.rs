//! Poison in what a program frees: it changes nothing, and a free that comes too early makes numbers that are none, on the processor and
//! on a GPU, which the stand-in replaces.

use crate::meshes::training::{Recipe, SEED, compiled, inputs, models};
use crate::on_gpu;
use ir::optimizer::Optimizer;
use ir::program::{BodyInstr, Instr, Program};
use ir::text::File;
use meshwright::runtime::exec::{Executor, Options, Platform, SharedGpu, StepInput, StepOutput, Threads};

/// Layouts with exchanges, messages, bodies beside the row, and several micro-batches.
const MESHES: [&str; 7] = [
    "",
    "dp=2,zero=3",
    "tp=2,sp=true",
    "cp=2",
    "cp=4,cp_kind=ring",
    "pp=2,schedule=zb-h1",
    "dp=2,tp=2,pp=2,sp=true,zero=1",
];

/// A model of a family and how it is trained.
fn recipe(family: usize, steps: u64) -> Recipe {
    let config = models()[family].clone();
    Recipe { config, optimizer: Optimizer::default(), lr: 1e-3, steps, precision: "f32" }
}

/// Reports of a program on some steps.
fn run<P: Platform>(
    platform: P,
    file: &File,
    program: &Program,
    steps: &[StepInput],
    poison: bool,
) -> Result<Vec<StepOutput>, meshwright::runtime::exec::Error> {
    let options = Options { seed: SEED, poison, ..Options::default() };
    let mut executor = Executor::load_on(platform, &file.model, program, &options)?;
    steps.iter().map(|step| executor.step(step.clone())).collect()
}

fn program(file: &File) -> &Program {
    file.program.as_ref().expect("a program")
}

#[test]
fn poison_in_what_is_freed_changes_nothing() {
    for family in 0..2 {
        let recipe = recipe(family, 3);
        for mesh in MESHES {
            let file = compiled(&recipe, mesh, 4);
            let devices = file.model.mesh.devices() as usize;
            let steps = inputs(&file.model, &recipe, mesh);
            for async_threads in [false, true] {
                let [plain, poisoned] = [false, true].map(|poison| {
                    run(Threads::new(devices, 1, Some(async_threads)), &file, program(&file), &steps, poison).unwrap()
                });
                assert_eq!(plain, poisoned, "{mesh}, threads: {async_threads}");
                assert!(plain.iter().all(|step| step.loss.is_some_and(f32::is_finite)), "{mesh}: {plain:?}");
            }
        }
    }
}

/// The program with one free before the last instruction that reads what it frees, for each free of a body or of a row.
fn early(program: &Program) -> Vec<Program> {
    let mut all = Vec::new();
    for (id, body) in &program.bodies {
        for (at, pair) in body.instrs.windows(2).enumerate() {
            if let [first, BodyInstr::Free(_)] = pair
                && !matches!(first, BodyInstr::Free(_))
            {
                let mut mutated = program.clone();
                mutated.bodies[id].instrs.swap(at, at + 1);
                all.push(mutated);
            }
        }
    }
    for (class, row) in program.classes.iter().enumerate() {
        for (at, pair) in row.instrs.windows(2).enumerate() {
            if let [Instr::Run { token: None, .. }, Instr::Free(_)] = pair {
                let mut mutated = program.clone();
                let row = &mut mutated.classes[class];
                row.instrs.swap(at, at + 1);
                if let Some(arena) = &mut row.arena {
                    arena.at.swap(at, at + 1);
                }
                all.push(mutated);
            }
        }
    }
    all
}

/// True if the loss of a step or the norm of its gradient is no number.
fn is_none(step: &StepOutput) -> bool {
    step.loss.is_some_and(f32::is_nan) || step.grad_norm.is_some_and(f32::is_nan)
}

#[test]
fn what_is_freed_too_early_gives_no_numbers() {
    let recipe = recipe(0, 1);
    let file = compiled(&recipe, "", 8);
    let steps = inputs(&file.model, &recipe, "");
    let run = |program: &Program, poison| run(Threads::new(1, 1, None), &file, program, &steps, poison);
    let right = run(program(&file), false).unwrap();
    let (mut none, mut other, mut unnoticed) = (0, 0, 0);
    for mutated in early(program(&file)) {
        // A register that is freed before it is read is refused at load.
        let (Ok(plain), Ok(poisoned)) = (run(&mutated, false), run(&mutated, true)) else { continue };
        assert_eq!(plain, right, "nothing else is in the place yet");
        match is_none(&poisoned[0]) {
            true => none += 1,
            // Poisoned labels are not counted.
            false if poisoned != right => other += 1,
            false => unnoticed += 1,
        }
    }
    assert!(none > 20 && other < none && unnoticed == 0, "{none} none, {other} others, {unnoticed} unnoticed");
}

/// Runs a test that is ignored in a process of its own, which finds the stand-in in place of CUDA.
#[cfg(target_os = "linux")]
#[test]
fn poison_on_a_gpu_changes_nothing_and_finds_what_is_freed_too_early() {
    crate::process::passes_on_stand_in("poison::on_a_gpu", "poison");
}

#[test]
#[ignore = "the test above runs it where CUDA is"]
fn on_a_gpu() {
    let gpu = |ranks| SharedGpu::open(0, ranks).unwrap();
    let recipe = Recipe { config: on_gpu::llama(), ..recipe(0, 2) };
    let file = compiled(&recipe, "dp=2,pp=2,zero=1", 8);
    let steps = inputs(&file.model, &recipe, "");
    let [plain, poisoned] = [false, true].map(|poison| run(gpu(4), &file, program(&file), &steps, poison).unwrap());
    assert_eq!(plain, poisoned);

    let file = compiled(&recipe, "", 16);
    let steps = &inputs(&file.model, &recipe, "")[..1];
    let mutations = early(program(&file));
    let few = mutations.iter().step_by(mutations.len().div_ceil(6));
    let found = few.filter_map(|mutated| run(gpu(1), &file, mutated, steps, true).ok());
    let found = found.filter(|poisoned| is_none(&poisoned[0])).count();
    assert!(found > 2, "{found} are found");
}
