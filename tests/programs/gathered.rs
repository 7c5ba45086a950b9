//! Parameters of ZeRO-3 that stay gathered in a step: the numbers of gathers at each use to the bit, one gather of each instance, a
//! long life in the arena, and programs with one gather broken.

use crate::meshes::training::{Recipe, SEED, compiled, inputs, models};
use crate::on_gpu;
use crate::sample::sampled;
use codegen::buffers::assign_buffers;
use codegen::lower_forward;
use cost::PROGRAM;
use ir::graph::{Model, SectionKind};
use ir::ids::{Reg, Token, Value};
use ir::models::{Experts, LlamaConfig, ModelConfig};
use ir::optimizer::Optimizer;
use ir::program::{BodyInstr, BodyKind, Class, Instr, Program, Source};
use ir::text::{File, parse, print};
use ir::verify;
use meshwright::runtime::exec::{Executor, Options, Platform, SharedGpu, StepInput, StepOutput, Threads};
use scheduler::schedules::SCHEDULES;
use std::collections::{BTreeMap, BTreeSet};
use transforms::evaluation::evaluation;

/// Layouts with groups, other shardings, recomputed and offloaded activations, and stages on two ranks.
const MESHES: [&str; 8] = [
    "dp=2,schedule=gpipe",
    "dp=4,shard=2",
    "dp=2,tp=2,sp=true,recompute=selective:mlp",
    "dp=2,cp=2,cp_kind=ring",
    "dp=2,pp=2,recompute=full:1,offload=all,schedule=zb-h1",
    "dp=2,pp=2,schedule=interleaved-1f1b,recompute=full",
    "dp=2,pp=2,schedule=dualpipe",
    "dp=3,tp=2",
];

/// A model and how it is trained, for a second step that depends on all parameters of the first.
fn recipe(config: ModelConfig, precision: &'static str, steps: u64) -> Recipe {
    Recipe { config, optimizer: Optimizer::default(), lr: 1e-3, steps, precision }
}

fn dense(family: usize) -> ModelConfig {
    models()[family].clone()
}

fn experts() -> ModelConfig {
    let ModelConfig::Llama(plain) = dense(0) else { panic!("the first is a Llama") };
    let experts = Experts { group: Some(4), ..Experts::softmax(4, 2, 24) };
    ModelConfig::Llama(LlamaConfig { layers: 2, experts: Some(experts), ..plain })
}

fn program(file: &File) -> &Program {
    file.program.as_ref().expect("a program")
}

/// Reports of the steps of a run, and the parameters after them.
type Numbers = (Vec<StepOutput>, BTreeMap<String, Vec<f32>>);

/// Runs a program; what is freed gets poison.
fn run<P: Platform>(platform: P, file: &File, steps: &[StepInput]) -> Numbers {
    let options = Options { seed: SEED, poison: true, ..Options::default() };
    let mut executor = Executor::load_on(platform, &file.model, program(file), &options).expect("it loads");
    let outputs = steps.iter().map(|step| executor.step(step.clone()).expect("it runs")).collect();
    let params = executor.export_params().expect("its parameters");
    (outputs, params.into_iter().map(|(name, whole)| (name, whole.data)).collect())
}

fn threads(file: &File) -> Threads {
    Threads::new(file.model.mesh.devices() as usize, 1, None)
}

/// Compiles with gathers at each use and once a step, compares what they train to the bit, and returns both files.
fn same_numbers(recipe: &Recipe, mesh: &str) -> [File; 2] {
    let files = ["use", "step"].map(|gather| compiled(recipe, &format!("zero=3,gather={gather},{mesh}"), 4));
    let steps = inputs(&files[0].model, recipe, mesh);
    let [want, got] = files.each_ref().map(|file| run(threads(file), file, &steps));
    assert_eq!(got, want, "{mesh}");
    assert!(want.0.iter().all(|step| step.loss.is_some_and(f32::is_finite)), "{mesh}: {:?}", want.0);
    gathers_once(&files[1], mesh);
    files
}

/// The starts of `G` in a row: position, token and bundle.
fn starts(program: &Program, class: &Class) -> Vec<(usize, Token, Reg)> {
    let start = |(at, instr): (usize, &Instr)| match *instr {
        Instr::Run { token: Some(token), body, keep: Some(keep), .. } if program.bodies[body].kind == BodyKind::G => {
            Some((at, token, keep))
        }
        _ => None,
    };
    class.instrs.iter().enumerate().filter_map(start).collect()
}

/// Collectives of parameters are in `G` alone, and each row runs it once for an instance that has any.
fn gathers_once(file: &File, mesh: &str) {
    let program = program(file);
    for body in program.bodies.values().filter(|body| body.kind.per_microbatch()) {
        let params: BTreeSet<Value> =
            body.args.iter().filter(|arg| arg.source == Source::Param).map(|arg| arg.value).collect();
        let gathers = body.instrs.iter().any(|instr| {
            matches!(instr, BodyInstr::Start { collective, operands, .. }
                if collective.communicates() && operands.iter().all(|value| params.contains(value)))
        });
        assert!(!gathers, "{mesh}: @{} gathers parameters", body.name);
    }
    for class in &program.classes {
        let starts = starts(program, class);
        assert!(!starts.is_empty(), "{mesh}: nothing is gathered");
        let bundles: BTreeSet<Reg> = starts.iter().map(|(_, _, bundle)| *bundle).collect();
        assert_eq!(bundles.len(), starts.len());
    }
}

#[test]
fn every_schedule_gives_the_same_numbers() {
    for kind in SCHEDULES.iter().filter(|kind| kind.slices(None) == 1) {
        same_numbers(&recipe(dense(0), "f32", 2), &format!("dp=2,pp=2,schedule={}", kind.name));
    }
}

#[test]
fn every_layout_gives_the_same_numbers() {
    for (at, mesh) in MESHES.iter().enumerate() {
        same_numbers(&recipe(dense(at % 2), "f32", 2), mesh);
    }
    for mesh in ["dp=4,ep=2,shard=4", "dp=2,tp=2,ep=2"] {
        same_numbers(&recipe(experts(), "f32", 2), mesh);
    }
}

#[test]
fn every_precision_gives_the_same_numbers() {
    for precision in ["bf16", "fp8-delayed", "fp8-block"] {
        same_numbers(&recipe(dense(0), precision, 2), "dp=2,tp=2");
    }
}

/// Bytes of the whole parameters that the sections of a block read of its `G`, for all instances of a class.
fn gathered_bytes(model: &Model, program: &Program, class: &Class) -> u64 {
    let of_run = |instr: &Instr| match instr {
        Instr::Run { body, keep: Some(_), .. } if program.bodies[*body].kind == BodyKind::G => {
            let body = &program.bodies[*body];
            let bytes = |&value: &Value| body.values[value].ty.local_bytes(&model.mesh).next_multiple_of(64);
            body.keeps.iter().map(bytes).sum()
        }
        _ => 0,
    };
    class.instrs.iter().map(of_run).sum()
}

/// The arena grows by what stays gathered, less what a block gathers at a time; a bundle lives until its last reader.
#[test]
fn bundles_live_from_their_first_reader_to_their_last() {
    for mesh in ["dp=2,schedule=gpipe", "dp=2,pp=2"] {
        let [at_use, once] = same_numbers(&recipe(dense(0), "f32", 2), mesh);
        for (before, after) in program(&at_use).classes.iter().zip(&program(&once).classes) {
            let bytes = |class: &Class| class.arena.as_ref().expect("an arena").bytes;
            let held = gathered_bytes(&once.model, program(&once), after);
            assert!(bytes(after) > bytes(before), "{mesh}");
            assert!(bytes(after) - bytes(before) < held, "{mesh}: {} of {held}", bytes(after) - bytes(before));
            for (at, token, bundle) in starts(program(&once), after) {
                let reads = |instr: &Instr| matches!(instr, Instr::Run { bundles, .. } if bundles.contains(&bundle));
                let waits = |instr: &Instr| matches!(instr, Instr::Wait { token: waited, .. } if *waited == token);
                let frees = |instr: &Instr| matches!(instr, Instr::Free(regs) if regs.contains(&bundle));
                let place = |of: &dyn Fn(&Instr) -> bool| after.instrs.iter().position(of).expect("an instruction");
                let last = after.instrs.iter().rposition(reads).expect("a reader");
                assert!(at < place(&waits) && place(&waits) < place(&reads) && last < place(&frees), "{mesh}");
                let next = &after.instrs[last + 1..place(&frees)];
                assert!(
                    !next.iter().any(|instr| matches!(instr, Instr::Run { token: None, .. })),
                    "{mesh}: freed late"
                );
            }
        }
    }
}

/// An evaluation gathers for itself, at the places that training leaves free.
#[test]
fn an_evaluation_gives_the_same_loss() {
    let recipe = recipe(dense(0), "f32", 1);
    let losses = ["use", "step"].map(|gather| {
        let file = compiled(&recipe, &format!("dp=2,pp=2,zero=3,gather={gather}"), 4);
        let (staged, training) = (file.staged.as_ref().expect("stages"), program(&file));
        let mut forward = lower_forward(&file.model, staged, training.microbatches, &PROGRAM).expect("an evaluation");
        assign_buffers(&file.model, &mut forward, Some(training));
        verify::program::check(&evaluation(&file.model), &forward, None).expect("it is right");
        let options = Options { seed: SEED, evaluation: Some(&forward), poison: true, ..Options::default() };
        let mut executor = Executor::load_on(threads(&file), &file.model, training, &options).expect("it loads");
        let step = &inputs(&file.model, &recipe, "")[0];
        executor.step(step.clone()).expect("it runs");
        executor.eval(step.clone()).expect("it runs").loss
    });
    assert!(losses[0].is_some() && losses[0] == losses[1], "{losses:?}");
}

#[test]
fn the_text_of_a_program_that_gathers_once_comes_back() {
    let file = compiled(&recipe(dense(0), "f32", 1), "dp=2,pp=2,zero=3,gather=step", 4);
    let text = print(&file);
    for part in [
        "\nG:\n",
        "body @layer.G(",
        " = start run @layer.G call=1 instance=0 () save %layer.0.G at ",
        "; %layer.0.F:0, %layer.0.G) ",
    ] {
        assert!(text.contains(part), "{part}");
    }
    let parsed = parse(&text).unwrap_or_else(|why| panic!("{}", why.render("the program", &text)));
    assert_eq!(print(&parsed), text);
    verify::program::check(&parsed.model, program(&parsed), None).expect("it is right");
    assert!(file.model.blocks.values().any(|block| !block[SectionKind::G].stmts.is_empty()));
}

/// A change of the first class of a program that gathers once, and the invariants that it breaks.
type Mutation = (&'static str, fn(&mut Class, usize, Token, Reg), &'static [&'static str]);

const MUTATIONS: [Mutation; 5] = [
    ("a bundle is read before its wait", read_before_wait, &["in-flight"]),
    ("a bundle is freed before its last reader", freed_early, &["read-after-free"]),
    ("an instance gathers twice", gathered_twice, &["duplicate-run"]),
    ("a forward reads no bundle", not_read, &["wrong-bundle"]),
    ("parameters are gathered after the update", gathered_late, &["duplicate-run", "step-order"]),
];

#[test]
fn broken_gathers_are_found() {
    let file = compiled(&recipe(dense(0), "f32", 1), "dp=2,pp=2,zero=3,gather=step", 4);
    for (what, change, wanted) in MUTATIONS {
        let mut broken = program(&file).clone();
        let (at, token, bundle) = starts(program(&file), &broken.classes[0])[0];
        change(&mut broken.classes[0], at, token, bundle);
        let found = verify::program::check(&file.model, &broken, None).expect_err(what);
        let names: BTreeSet<&str> = found.iter().map(|violation| violation.name).collect();
        assert_eq!(names.into_iter().collect::<Vec<_>>(), wanted, "{what}: {found:?}");
    }
}

fn position(class: &Class, of: impl Fn(&Instr) -> bool) -> usize {
    class.instrs.iter().position(of).expect("an instruction")
}

fn moved(class: &mut Class, from: usize, to: usize) {
    let instr = class.instrs.remove(from);
    class.instrs.insert(to, instr);
    let arena = class.arena.as_mut().expect("an arena");
    let stated = arena.at.remove(from);
    arena.at.insert(to, stated);
}

fn read_before_wait(class: &mut Class, _: usize, token: Token, _: Reg) {
    let wait = position(class, |instr| matches!(instr, Instr::Wait { token: waited, .. } if *waited == token));
    moved(class, wait, wait + 1);
}

fn freed_early(class: &mut Class, _: usize, _: Token, bundle: Reg) {
    let reads = |instr: &Instr| matches!(instr, Instr::Run { bundles, .. } if bundles.contains(&bundle));
    let free = position(class, |instr| matches!(instr, Instr::Free(regs) if regs.contains(&bundle)));
    let last = class.instrs.iter().rposition(reads).expect("a reader");
    moved(class, free, last);
}

fn gathered_twice(class: &mut Class, at: usize, token: Token, bundle: Reg) {
    let wait = position(class, |instr| matches!(instr, Instr::Wait { token: waited, .. } if *waited == token));
    let (again, other) = (class.regs.push(class.regs[bundle].clone()), Token::from_u32(1000));
    let mut start = class.instrs[at].clone();
    if let Instr::Run { token, keep, .. } = &mut start {
        (*token, *keep) = (Some(other), Some(again));
    }
    let stated = class.arena.as_ref().expect("an arena").at[at].clone();
    for (instr, stated) in [
        (Instr::Free(vec![again]), Vec::new()),
        (Instr::Wait { token: other, result: None }, Vec::new()),
        (start, stated),
    ] {
        class.instrs.insert(wait + 1, instr);
        class.arena.as_mut().expect("an arena").at.insert(wait + 1, stated);
    }
}

fn not_read(class: &mut Class, _: usize, _: Token, bundle: Reg) {
    let reads = |instr: &Instr| matches!(instr, Instr::Run { bundles, .. } if bundles.contains(&bundle));
    let at = position(class, reads);
    if let Instr::Run { bundles, .. } = &mut class.instrs[at] {
        bundles.retain(|reg| *reg != bundle);
    }
}

fn gathered_late(class: &mut Class, at: usize, token: Token, bundle: Reg) {
    gathered_twice(class, at, token, bundle);
    let again =
        position(class, |instr| matches!(instr, Instr::Run { token: Some(token), .. } if token.as_u32() == 1000));
    let end = class.instrs.len() - 1;
    (0..3).for_each(|_| moved(class, again, end));
}

/// Runs a test that is ignored in a process of its own, which finds the stand-in in place of CUDA.
#[cfg(target_os = "linux")]
#[test]
fn gathers_on_a_gpu_change_nothing() {
    crate::process::passes_on_stand_in("gathered::on_a_gpu", "gathered");
}

#[test]
#[ignore = "the test above runs it where CUDA is"]
fn on_a_gpu() {
    let recipe = recipe(on_gpu::llama(), "f32", sampled(2, 3));
    for mesh in ["dp=2,schedule=gpipe", "dp=2,pp=2,schedule=zb-h1"] {
        let files = ["use", "step"].map(|gather| compiled(&recipe, &format!("{mesh},zero=3,gather={gather}"), 8));
        let steps = inputs(&files[0].model, &recipe, mesh);
        let gpu = |file: &File| SharedGpu::open(0, file.model.mesh.devices() as usize).unwrap();
        let [want, got] = files.each_ref().map(|file| run(gpu(file), file, &steps));
        assert_eq!(got, want, "{mesh}");
    }
}
