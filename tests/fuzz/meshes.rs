//! Models of many kinds on random configurations: `train` gives the losses and gradient norms of one device, or refuses with a reason.
//!
//! Cases go through the call that the command makes, so that the order of tokens, the data and the validation are those of a run.
//! Case `n` has the `n`-th pair of two keys' values; the other keys are drawn.

use crate::cases::{Cases, Failure};
use crate::mesh_models::{self, Recipe};
use crate::mesh_values::{Drawn, GLOBAL_BATCH, Item, all_pairs};
use crate::process::Folder;
use crate::random::Random;
use meshwright::compiler::error::Error as RequestError;
use meshwright::train::{Error, EvalRecord, Progress, RunHeader, StepRecord, TrainRequest, train};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

const CASES: u64 = 16;
/// Tokens of a sequence: three and four slices of it may be halved by two ranks.
const SEQ: u64 = 48;
/// Documents of the text, each a file: sequences have several.
const DOCUMENTS: u64 = 60;
/// The most that two meshes differ in a loss, relative: sums of f32 in another order (empirical: 2e-7 at most in 173 cases).
const LOSS: f64 = 5e-6;
/// The same of a gradient norm (empirical: 2e-7 at most in these cases).
const NORM: f64 = 5e-5;

/// Losses and norms of a run, by name and step.
type Figures = Vec<(String, f64)>;
/// The figures of a run, once they are known.
type Known = Arc<OnceLock<Result<Figures, String>>>;

#[test]
fn meshes() {
    let fuzzer = Fuzzer::new();
    Cases::asked(CASES).run("meshes", 2, |case| fuzzer.case(case));
    println!("{}", fuzzer.summary());
}

/// The data of a case.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Set {
    /// Text, of which all tokens count.
    Text,
    /// Examples with labels of their own.
    Examples,
}

/// The data, the models, their figures on one device, and the outcomes so far.
struct Fuzzer {
    data: Folder,
    examples: Folder,
    recipes: Vec<Recipe>,
    alone: Mutex<BTreeMap<(usize, Set), Known>>,
    pairs: Vec<[Item; 2]>,
    tally: Mutex<Tally>,
}

/// The cases so far.
#[derive(Default)]
struct Tally {
    equal: u64,
    refused: u64,
    /// The largest differences of a loss and of a norm.
    apart: [f64; 2],
    /// The pairs of values of the equal ones.
    pairs: BTreeSet<[Item; 2]>,
}

/// How a run ended.
enum Ended {
    Trained(Figures),
    /// The code of the message.
    Refused(String),
}

impl Fuzzer {
    fn new() -> Fuzzer {
        let data = Folder::new("fuzz-meshes-data");
        for number in 0..DOCUMENTS {
            let words = (0..=number * 7 % 13).map(|word| format!("{} ", (number + 2) * (word + 3) % 101));
            fs::write(data.path().join(format!("{number}.txt")), words.collect::<String>()).unwrap();
        }
        let (recipes, pairs, examples) = (mesh_models::all(), all_pairs(), Folder::new("fuzz-meshes-examples"));
        crate::examples::write(examples.path(), 90, SEQ + 8, 257);
        Fuzzer { data, examples, recipes, alone: Mutex::default(), pairs, tally: Mutex::default() }
    }

    fn case(&self, case: u64) -> Result<String, Failure> {
        let mut random = Random::new(case);
        // Neighbours in the list of pairs share a key, which few cases would not vary.
        let pair = self.pairs[(case.wrapping_mul(STRIDE) % self.pairs.len() as u64) as usize];
        let drawn = Drawn::with(pair, &mut random);
        let fits = |&number: &usize| !drawn.shards_experts() || self.recipes[number].has_experts();
        let fitting: Vec<usize> = (0..self.recipes.len()).filter(fits).collect();
        let recipe = *random.pick(&fitting);
        let set = if random.chance(40) { Set::Examples } else { Set::Text };
        let folder = Folder::new(&format!("fuzz-meshes-{case}"));
        let (model, mesh) = (&self.recipes[recipe], drawn.text());
        let failed = |why| format!("{model} of {set:?}\n--parallel {mesh}: {why}");
        match self.run(model, set, &mesh, folder.path()).map_err(failed)? {
            Ended::Refused(code) => {
                self.tally.lock().unwrap().refused += 1;
                Ok(format!("refused: {code}"))
            }
            Ended::Trained(found) => {
                let apart = differences(&found, &self.alone(recipe, set)?).map_err(failed)?;
                let mut tally = self.tally.lock().unwrap();
                tally.equal += 1;
                tally.apart.iter_mut().zip(apart).for_each(|(most, apart)| *most = most.max(apart));
                tally.pairs.extend(drawn.pairs());
                Ok("equal".to_string())
            }
        }
    }

    /// The figures of a recipe on one device, each computed once.
    fn alone(&self, number: usize, set: Set) -> Result<Figures, String> {
        let place = self.alone.lock().unwrap().entry((number, set)).or_default().clone();
        let recipe = &self.recipes[number];
        let run = || {
            let folder = Folder::new(&format!("fuzz-meshes-alone-{number}-{set:?}"));
            match self.run(recipe, set, "mbs=4", folder.path())? {
                Ended::Trained(figures) => Ok(figures),
                Ended::Refused(code) => Err(format!("{recipe}: one device is refused with {code}")),
            }
        };
        place.get_or_init(run).clone()
    }

    /// Trains as the command does; an internal error, a rank that fails or a panic is a failure.
    fn run(&self, recipe: &Recipe, set: Set, mesh: &str, out: &Path) -> Result<Ended, String> {
        let request = TrainRequest {
            model: recipe.model.clone(),
            parallel: mesh.to_string(),
            data: match set {
                Set::Text => self.data.path().into(),
                Set::Examples => self.examples.path().join("examples"),
            },
            steps: 2,
            seq: SEQ,
            global_batch: GLOBAL_BATCH,
            lr: recipe.lr,
            warmup: 0,
            optimizer: recipe.optimizer.to_string(),
            final_eval_batches: Some(1),
            out: out.into(),
            ..TrainRequest::default()
        };
        let mut figures = Collected::default();
        let ended = catch_unwind(AssertUnwindSafe(|| train(&request, &mut figures)));
        match ended.map_err(|_| "it panics".to_string())? {
            Ok(_) => Ok(Ended::Trained(figures.0)),
            Err(Error::Request(RequestError::Input { code, .. })) => Ok(Ended::Refused(code.to_string())),
            Err(Error::Request(RequestError::Diagnostics { .. })) => Ok(Ended::Refused("diagnostics".to_string())),
            Err(why) => Err(why.to_string()),
        }
    }

    fn summary(&self) -> String {
        let tally = self.tally.lock().unwrap();
        let Tally { equal, refused, apart: [loss, norm], pairs } = &*tally;
        let (had, all) = (pairs.len(), self.pairs.len());
        let apart = format!("at most {loss:.0e} apart in losses and {norm:.0e} in norms");
        format!("meshes: {equal} equal, {apart}; {refused} refused; {had} of {all} pairs of values in equal cases")
    }
}

/// Odd and not near a divisor of the number of pairs, so that cases in a row have pairs far apart.
const STRIDE: u64 = 0x9e37_79b9_7f4a_7c15;

/// Collects the figures of a run.
#[derive(Default)]
struct Collected(Figures);

impl Collected {
    fn add(&mut self, step: u64, name: &str, figure: f64) {
        self.0.push((format!("{name} of step {step}"), figure));
    }
}

impl Progress for Collected {
    fn started(&mut self, _: &RunHeader) {}

    fn step(&mut self, record: &StepRecord) {
        self.add(record.step, "loss", record.loss);
        self.add(record.step, "norm", record.grad_norm);
        record.further_loss.iter().for_each(|&loss| self.add(record.step, "further loss", loss));
        record.dropped.iter().for_each(|&share| self.add(record.step, "dropped share", share));
    }

    fn evaluating(&mut self, _: u64) {}

    fn evaluated(&mut self, record: &EvalRecord) {
        self.add(record.step, "validation loss", record.valid_loss);
    }
}

/// How far apart two figures are, relative.
fn apart(found: f64, expected: f64) -> f64 {
    if found == expected { 0.0 } else { (found - expected).abs() / expected.abs().max(f64::MIN_POSITIVE) }
}

/// True if a figure is a norm, not a loss.
fn is_norm(name: &str) -> bool {
    name.starts_with("norm")
}

/// The largest differences of a loss and of a norm.
///
/// # Errors
/// Some figures are farther apart than another order of sums makes them.
fn differences(found: &Figures, expected: &Figures) -> Result<[f64; 2], String> {
    let names = |figures: &Figures| figures.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    if names(found) != names(expected) {
        return Err(format!("it has the figures {:?}, one device {:?}", names(found), names(expected)));
    }
    let (mut largest, mut wrong) = ([0.0f64; 2], Vec::new());
    for ((name, found), (_, expected)) in found.iter().zip(expected) {
        let (place, apart) = (usize::from(is_norm(name)), apart(*found, *expected));
        largest[place] = largest[place].max(apart);
        if apart.is_nan() || apart > [LOSS, NORM][place] {
            wrong.push(format!("{name} is {found}, where one device has {expected} ({apart:.1e} apart)"));
        }
    }
    if wrong.is_empty() { Ok(largest) } else { Err(wrong.join("; ")) }
}
