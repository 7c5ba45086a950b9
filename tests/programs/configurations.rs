//! Random configurations of the whole space: on each a small model trains as on one device, or the configuration is refused with a reason
//! before anything runs.
//!
//! `MESHWRIGHT_CASES=10000 cargo test --release --test programs configurations` draws more, `MESHWRIGHT_FIRST` other ones; a failure names
//! its case.

mod draw;

use crate::meshes::compare::differences;
use crate::meshes::record::Record;
use crate::meshes::trained::{self, trained};
use crate::meshes::training::{Recipe, model, request};
use crate::seeds::cases;
use cost::PROGRAM;
use draw::Draw;
use ir::diag::Coded;
use meshwright::compiler::parallel;
use meshwright::compiler::pipeline::compile;
use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock, Mutex, OnceLock};

/// Cases of each of the parts, which run side by side, and how many of them a sample has.
const CASES: u64 = 150;
const SAMPLE: u64 = 20;
const PARTS: u64 = 4;
/// Sequences of a micro-batch on one device.
const SEQUENCES: u64 = 4;
/// How much farther a run in narrow formats may be from its like on one device than rounding takes that one from f32.
const TIMES: f64 = 4.0;
/// The relative difference that is allowed if rounding happens to change less: half the last place of bf16, which chooses experts, too.
const LEAST: f64 = 1.0 / 256.0;

/// Runs on one device, each made once.
static ALONE: LazyLock<Mutex<BTreeMap<String, Arc<OnceLock<Record>>>>> = LazyLock::new(Mutex::default);

fn alone(recipe: &Recipe) -> Record {
    let place = ALONE.lock().expect("no panic holds it").entry(format!("{recipe:?}")).or_default().clone();
    place.get_or_init(|| trained::alone([recipe.clone()], SEQUENCES).remove(0).1).clone()
}

/// The outcome of a case.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Outcome {
    Equal,
    /// The message's code, or the reason why the text is no configuration.
    Refused(String),
}

fn outcome(draw: &Draw) -> Result<Outcome, String> {
    let Draw { recipe, mesh, sequences } = draw;
    if let Err(why) = parallel::parse(mesh) {
        return Ok(Outcome::Refused(why.to_string()));
    }
    let file =
        match compile(model(recipe, *sequences).into(), &request(recipe, mesh, *sequences), &PROGRAM, &mut |_, _| {}) {
            Ok(file) => file,
            Err(why) if why.code().is_some() => return Ok(Outcome::Refused(why.to_string())),
            Err(why) => return Err(format!("an internal error: {why}")),
        };
    let got = trained(&file, recipe, mesh);
    let found = if recipe.precision == "f32" {
        differences(&got, &alone(recipe), &recipe.optimizer)
            .into_iter()
            .map(|(what, why)| format!("{what}: {why}"))
            .collect()
    } else {
        narrow_differences(&got, recipe)
    };
    if found.is_empty() { Ok(Outcome::Equal) } else { Err(found.join("; ")) }
}

/// Losses and norms that are farther apart than rounding makes them.
fn narrow_differences(got: &Record, recipe: &Recipe) -> Vec<String> {
    let (one, exact) = (alone(recipe), alone(&Recipe { precision: "f32", ..recipe.clone() }));
    let mut found = Vec::new();
    for (what, of) in
        [("loss", (|record| &record.losses) as fn(&Record) -> &Vec<f64>), ("norm", |record| &record.norms)]
    {
        // One bound for all steps, since rounding may by chance change little in one.
        let relative =
            |a: &Vec<f64>, b: &Vec<f64>| a.iter().zip(b).map(|(a, b)| (a - b).abs() / b.abs()).fold(0.0, f64::max);
        let (apart, bound) = (relative(of(got), of(&one)), (TIMES * relative(of(&one), of(&exact))).max(LEAST));
        if apart.is_nan() || apart > bound {
            found.push(format!("{what}: {:?}, where one device has {:?}; {bound:e} is allowed", of(got), of(&one)));
        }
    }
    found
}

fn part(part: u64) {
    let Range { start: first, end } = cases(PARTS * SAMPLE, PARTS * CASES);
    let cases = (end - first) / PARTS;
    let (mut failed, mut outcomes) = (Vec::new(), BTreeMap::new());
    for seed in (first + part..).step_by(PARTS as usize).take(cases as usize) {
        let draw = Draw::new(seed);
        let outcome = catch_unwind(AssertUnwindSafe(|| outcome(&draw))).unwrap_or_else(|_| Err("a panic".to_string()));
        match outcome {
            Ok(outcome) => *outcomes.entry(outcome).or_insert(0u64) += 1,
            Err(why) => failed.push(format!("case {seed}, {draw}: {why}")),
        }
    }
    assert!(failed.is_empty(), "{} of {cases} cases failed:\n{}", failed.len(), failed.join("\n"));
    let equal = outcomes.get(&Outcome::Equal).copied().unwrap_or(0);
    assert!(equal * 10 >= cases * 6, "{outcomes:#?} of {cases}");
}

macro_rules! parts {
    ($($name:ident $part:literal;)*) => {$(
        #[test]
        fn $name() {
            part($part);
        }
    )*};
}

parts! {
    layouts_equal_one_device_first 0;
    layouts_equal_one_device_second 1;
    layouts_equal_one_device_third 2;
    layouts_equal_one_device_fourth 3;
}
