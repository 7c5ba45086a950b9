//! Buffer assignment of generated programs, and the errors of its checker.

use super::*;
use crate::{lower, lower_forward};
use cost::PROGRAM;
use ir::arena::{Frame, Place};
use ir::ids::{BodyId, Token};
use ir::mesh::Mesh;
use ir::models::{Batch, preset};
use ir::optimizer::Optimizer;
use ir::program::{BodyKind, Instr};
use ir::schedule::Schedule;
use ir::staged::Staged;
use ir::types::DType;
use ir::verify::program::{check, check_places};
use scheduler::actions::split_backward;
use scheduler::costs::StageCosts;
use scheduler::model_costs;
use scheduler::partition::partition;
use scheduler::placement::{Pipeline, Placement};
use scheduler::schedules;
use transforms::differentiate::differentiate;

/// A small preset in stages.
fn staged(name: &str, ranks: u64) -> (Model, Staged) {
    let batch = Batch { batch: 2, seq: 32, dtype: DType::F32 };
    let built = preset(name).unwrap().config.build(&batch).unwrap();
    let mut model = differentiate(built, &Optimizer { clip: None, ..Optimizer::default() }).unwrap();
    model.mesh = Mesh::new("m", &[("pp", ranks)]);
    let staged =
        partition(&model, &Pipeline::new(Placement::Chain, ranks as u32, 1), &model_costs(&model, &PROGRAM, 1, false))
            .unwrap();
    (model, staged)
}

fn schedule(kind: &str, ranks: u32, microbatches: u32) -> Schedule {
    let costs = StageCosts::uniform(ranks, 1.0, 1.0, 1.0, 0.0);
    let kind = schedules::find(kind).unwrap();
    kind.make(&costs, &kind.pipeline(ranks, None, microbatches).unwrap()).unwrap()
}

#[test]
fn emitted_programs_have_right_places_and_waste_little() {
    for name in ["tiny-llama", "tiny-gpt2"] {
        for (kind, ranks, microbatches) in [("gpipe", 1, 1), ("gpipe", 2, 3), ("1f1b", 1, 3), ("1f1b", 4, 6)] {
            let (model, staged) = staged(name, u64::from(ranks));
            let whole = schedule(kind, ranks, microbatches);
            for schedule in [split_backward(whole.clone()), whole] {
                let mut program = lower(&model, &staged, &schedule, microbatches, &PROGRAM).unwrap();
                assign_buffers(&model, &mut program, None);
                assert!(program.has_places());
                assert_eq!(check(&model, &program, None), Ok(()), "{name} {kind} {ranks}");
                for class in report(&model, &program) {
                    assert!(
                        class.arena >= class.bound && class.fragmentation < 0.05,
                        "{name} {kind} {ranks}: {class:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn an_evaluation_finds_what_is_held_where_training_has_it() {
    let (model, staged) = staged("tiny-gpt2", 2);
    let mut training = lower(&model, &staged, &schedule("1f1b", 2, 4), 4, &PROGRAM).unwrap();
    assign_buffers(&model, &mut training, None);
    let mut forward = lower_forward(&model, &staged, 4, &PROGRAM).unwrap();
    assign_buffers(&model, &mut forward, Some(&training));
    assert_eq!(check(&model, &forward, None), Ok(()));
    for (one, other) in training.classes.iter().zip(&forward.classes) {
        let (one, other) = (one.arena.as_ref().unwrap(), other.arena.as_ref().unwrap());
        assert_eq!(one.residents, other.residents);
        assert!(other.bytes < one.bytes);
    }
}

/// Starts the run at a place of a class and waits for it so many instructions later.
fn start_run(program: &mut Program, class: usize, at: usize, later: usize) {
    let started = Token::from_u32(1 << 20);
    let instrs = &mut program.classes[class].instrs;
    if let Instr::Run { token, .. } = &mut instrs[at] {
        *token = Some(started);
    }
    instrs.insert(at + later, Instr::Wait { token: started, result: None });
}

#[test]
fn a_started_run_keeps_its_bytes_until_its_wait() {
    let (model, staged) = staged("tiny-llama", 1);
    let mut program = lower(&model, &staged, &schedule("1f1b", 1, 2), 2, &PROGRAM).unwrap();
    let has_scratch = |instr: &Instr| match instr {
        Instr::Run { body, keep: Some(_), .. } => FrameLayout::new(&model, &program, *body).frame.scratch > 0,
        _ => false,
    };
    let at = program.classes[0].instrs.iter().position(has_scratch).expect("a run with a slot and scratch");
    start_run(&mut program, 0, at, 4);
    assign_buffers(&model, &mut program, None);
    assert_eq!(check_places(&model, &program, None), Ok(()));
    let [class] = &report(&model, &program)[..] else { panic!("one class") };
    assert!(class.arena >= class.bound, "{class:?}");
}

/// Frame of a body, and the places of its values.
fn frame(stmts: &str, gives: &str) -> (Frame, impl Fn(&str) -> Place + use<>) {
    let block: String = stmts.lines().filter(|line| !line.contains("free")).map(|line| format!("{line}\n")).collect();
    let text = format!(
        "dims [b=4, h=8]\nparam %w: f32[h, h]\n\
         model @m(%x: input f32[b, h]) {{\n  %y = call @lin(%x; %w)\n}}\n\
         block @lin(%x: f32[b, h]; %w: param f32[h, h]) -> f32[b, h] {{\n{block}  return %y\n}}\n\
         program @p microbatches=1 {{\n  body @lin.F(%x: f32[b, h]; %w: param f32[h, h]) {gives} {{\n{stmts}\n  }}\n}}\n"
    );
    let file = ir::text::parse(&text).unwrap_or_else(|why| panic!("{}", why.render("body", &text)));
    let program = file.program.unwrap();
    let frame = FrameLayout::new(&file.model, &program, BodyId::from_u32(0)).frame;
    let body = program.bodies[BodyId::from_u32(0)].clone();
    let places = frame.places.clone();
    let place = move |name: &str| {
        let value = body.values.iter().find(|(_, data)| data.name == name).map(|(value, _)| value).unwrap();
        match places[&value] {
            Place::Same(root) if places.contains_key(&root) => places[&root],
            place => place,
        }
    };
    (frame, place)
}

const CHAIN: &str = r#"
  %1: f32[b, h] = einsum(%x, %w, eq="b h, h f -> b f")
  %2: f32[b, h] = silu(%1)
  %3: f32[32] = reshape(%2)
  %4: f32[32] = neg(%3)
  %5: f32[b, h] = reshape(%4)
  %y: f32[b, h] = add(%x, %5)"#;

#[test]
fn views_and_elementwise_results_lie_on_what_dies() {
    let (frame, place) = frame(CHAIN, "-> (%y)");
    assert_eq!((frame.slots.len(), frame.scratch), (0, 0));
    assert!(["1", "2", "3", "4", "5", "y"].iter().all(|name| place(name) == Place::Row), "{frame:?}");
}

#[test]
fn what_is_kept_is_not_written_on() {
    // `%2` is kept, its view `%3` is not: `%4` must go elsewhere.
    let (frame, place) = frame(CHAIN, "-> (%y) save (%2)");
    assert_eq!((&frame.slots[..], frame.scratch), (&[128][..], 0));
    assert!(["1", "2", "3"].iter().all(|name| place(name) == Place::Slot(0, 0)), "{frame:?}");
    assert!(["4", "5", "y"].iter().all(|name| place(name) == Place::Row), "{frame:?}");
}

#[test]
fn a_result_that_is_a_view_of_an_argument_has_its_own_place() {
    let (frame, place) = frame("  %1: f32[32] = reshape(%x)\n  %y: f32[b, h] = reshape(%1)", "-> (%y) save (%1)");
    assert!(matches!(place("1"), Place::Same(_)), "{frame:?}");
    assert_eq!(place("y"), Place::Row);
}

#[test]
fn scratch_is_used_again() {
    let stmts = r#"
  %1: f32[b, h] = einsum(%x, %w, eq="b h, h f -> b f")
  %2: f32[b, h] = einsum(%1, %w, eq="b h, h f -> b f")
  free %1
  %3: f32[b, h] = einsum(%2, %w, eq="b h, h f -> b f")
  free %2
  %y: f32[b, h] = einsum(%3, %w, eq="b h, h f -> b f")
  free %3"#;
    let (frame, place) = frame(stmts, "-> (%y)");
    assert_eq!((frame.slots.len(), frame.scratch), (0, 2 * 128));
    assert!(place("1") == place("3") && place("1") != place("2"), "{frame:?}");
}

/// Values that I frees leave no holes in those that wait for W, and small slots fit into the holes of others.
#[test]
fn split_backwards_leave_little_fragmentation() {
    let (model, staged) = staged("tiny-llama", 4);
    let mut program = lower(&model, &staged, &schedule("zb-h1", 4, 12), 12, &PROGRAM).unwrap();
    assign_buffers(&model, &mut program, None);
    assert_eq!(check_places(&model, &program, None), Ok(()));
    for class in report(&model, &program) {
        assert!(class.fragmentation < 0.02, "{class:?}");
    }
}

/// A layer's F keeps values that I reads last and values for W, its I keeps values for W: each in slots of a quarter or so.
#[test]
fn saved_values_of_split_backwards_are_in_slots() {
    let slots = |kind: &str, body: BodyKind| {
        let (model, staged) = staged("tiny-llama", 2);
        let program = lower(&model, &staged, &schedule(kind, 2, 4), 4, &PROGRAM).unwrap();
        let layers = program.bodies.iter().filter(|(_, it)| it.kind == body && it.name.starts_with("layer"));
        let frames = layers.map(|(id, _)| FrameLayout::new(&model, &program, id).frame);
        frames.map(|frame| frame.slots).next().expect("a layer")
    };
    assert_eq!(slots("1f1b", BodyKind::F).len(), 1);
    let (forward, gradient) = (slots("zb-h1", BodyKind::F), slots("zb-h1", BodyKind::I));
    assert!((4..=8).contains(&forward.len()) && (2..=4).contains(&gradient.len()), "{forward:?} {gradient:?}");
    assert!(forward.iter().chain(&gradient).all(|&bytes| bytes > 0), "{forward:?} {gradient:?}");
}
