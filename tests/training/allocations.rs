//! Memory of running ranks: after the first step they allocate none, and they use all of their arenas.

use crate::meshes::training::{Recipe, SEED, compiled, inputs, models};
use crate::placed::placed;
use crate::random::Random;
use crate::sample::sampled;
use ir::optimizer::Optimizer;
use meshwright::runtime::exec::{Executor, Options, StepInput};
use scheduler::placement::{Pipeline, Placement};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The system's allocator, which can count the allocations of the threads that the test starts.
struct Counting;

static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
static COUNTS: AtomicBool = AtomicBool::new(false);
static TAKEN: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// True if the thread took memory before the test began. Such a thread may take what it wants: it is that of the test, or the harness's,
    /// which writes a line when a test has run for a minute.
    static IS_OLDER: Cell<bool> = const { Cell::new(false) };
}

fn count() {
    if !HAS_BEGUN.load(Ordering::Relaxed) {
        IS_OLDER.set(true);
    } else if COUNTS.load(Ordering::Relaxed) && !IS_OLDER.get() {
        TAKEN.fetch_add(1, Ordering::Relaxed);
    }
}

// SAFETY: all is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: by the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: by the caller's contract.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: by the caller's contract.
        unsafe { System.realloc(block, layout, size) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: by the caller's contract.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs a step of a case; how often its ranks took memory.
fn taken(case: &str, executor: &mut Executor, input: StepInput) -> usize {
    TAKEN.store(0, Ordering::SeqCst);
    COUNTS.store(true, Ordering::SeqCst);
    let outcome = executor.step(input);
    COUNTS.store(false, Ordering::SeqCst);
    outcome.unwrap_or_else(|why| panic!("{case}: {why}"));
    TAKEN.load(Ordering::SeqCst)
}

#[test]
fn after_the_first_step_nothing_is_taken_and_all_of_the_arena_is_used() {
    let mut process = Command::new(std::env::current_exe().unwrap());
    process.args(["--ignored", "--exact", "allocations::in_a_process_of_its_own"]);
    let output = process.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&output.stderr));
}

/// Cases on which a step takes memory. The allocator counts for the whole process.
#[test]
#[ignore = "the test above runs it alone"]
fn in_a_process_of_its_own() {
    IS_OLDER.set(true);
    HAS_BEGUN.store(true, Ordering::SeqCst);
    let [llama, gpt2] = models();
    let cases = [
        (&llama, "f32"),
        (&llama, "bf16"),
        (&llama, "fp8-block"),
        (&llama, "fp8-delayed"),
        (&gpt2, "f32"),
        (&gpt2, "bf16"),
    ];
    for (config, precision) in cases {
        let (config, optimizer) = (config.clone(), Optimizer::default());
        let recipe = Recipe { config, optimizer, lr: 1e-3, steps: 6, precision };
        let meshes = ["", "dp=2", "tp=2", "pp=2", "dp=2,tp=2,pp=2,sp=true,zero=1"];
        let mut files = meshes.map(|mesh| (mesh.to_string(), compiled(&recipe, mesh, 4))).to_vec();
        let mut random = Random::new(1);
        for placement in [Placement::Loop, Placement::V, Placement::Bidirectional] {
            let mesh = *random.pick(&["pp=2", "pp=2,dp=2,zero=1"]);
            let pipeline = Pipeline::new(placement, 2, 4);
            let seed = random.between(0, 9);
            files.push((format!("{mesh}, {placement}"), placed(&recipe, mesh, 4, &pipeline, seed)));
        }
        for (number, (mesh, file)) in files.iter().enumerate() {
            let program = file.program.as_ref().expect("a program");
            let options = [(false, false), (false, true), (true, false), (true, true)];
            // A sample has one of them for each file, and each for two files.
            for (async_threads, record) in options.into_iter().skip(sampled(number % 4, 0)).take(sampled(1, 4)) {
                let options = Options { seed: SEED, async_threads: Some(async_threads), record, ..Options::default() };
                let mut executor = Executor::load(&file.model, program, &options).expect("it loads");
                // No configuration here has a ring, whose tokens have another order.
                let mut steps = inputs(&file.model, &recipe, "").into_iter();
                let family = recipe.config.family();
                let case = format!("{family} in {precision} on `{mesh}`, lanes: {async_threads}, noted: {record}");
                let last = steps.next_back().expect("six steps");
                assert!(
                    taken(&case, &mut executor, steps.next().expect("six steps")) > 0,
                    "{case}: nothing is counted"
                );
                let later: Vec<usize> = steps.map(|input| taken(&case, &mut executor, input)).collect();
                assert_eq!(later, [0; 4], "{case}");
                let (output, used) = executor.step_on_poison(last).expect("a step");
                assert!(output.loss.is_some_and(f32::is_finite), "{case}: it reads what it has not written");
                assert_eq!(used, executor.arena_bytes(), "{case}");
            }
        }
    }
}
