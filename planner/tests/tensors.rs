//! Recomputation of single values: the predicted cost of a choice equals the cost of a block under it, and no choice of
//! modules is better.

use cost::{
    BlockOptions, Cluster, Frontier, Platform, Profile, Recipe, RecomputeChoice, Stack, frontier, profile, recomputed,
};
use ir::graph::Model;
use ir::models::{Batch, preset};
use ir::optimizer::Optimizer;
use ir::options::{ParallelConfig, PlanOptions, Recompute};
use ir::types::DType;
use transforms::differentiate::differentiate;
use transforms::recompute::{MODULES, check_names, is_layer};

/// Tokens of each data-parallel rank: so many that no device waits for its CPU.
const TOKENS: u64 = 16384;

/// The profile says what is recomputed, so the plan leaves that open.
fn planned(name: &str, parallel: &ParallelConfig) -> Model {
    let seq = if name == "gpt2" { 1024 } else { TOKENS };
    let batch = Batch { batch: parallel.together().expect("shares").dp * TOKENS / seq, seq, dtype: DType::BF16 };
    let model = preset(name).expect("a preset").config.build(&batch).expect("a model");
    let model = differentiate(model, &Optimizer::default()).expect("a gradient");
    let together = parallel.together().expect("shares");
    let options = PlanOptions::of(ParallelConfig { recompute: Recompute::Auto, ..together });
    meshwright_planner::plan(model, &options, &cost::PROGRAM, None, &mut |_, _| {}).expect("a plan")
}

/// Models of one kind of layers and of two, configurations with collectives in layers and without, stacks that fuse and that do not.
const JOBS: [(&str, &str, &str); 8] = [
    ("llama3-8b", "", "megatron-core-2025"),
    ("llama3-8b", "tp=4,sp=true", "megatron-core-2025"),
    ("llama3-8b", "tp=2", "fsdp-eager"),
    ("llama3-8b", "tp=2,sp=true,cp=2", "fsdp-compile"),
    ("gpt2", "tp=2", "megatron-2022"),
    ("mixtral-8x7b", "dp=4,ep=4", "megatron-core-2025"),
    ("deepseek-v2-lite", "dp=4,ep=4", "megatron-core-2025"),
    ("deepseek-v2-lite", "tp=2,sp=true", "nanotron-2024"),
];

fn parallel(text: &str) -> ParallelConfig {
    let mut parallel = ParallelConfig::default();
    for (key, value) in text.split(',').filter_map(|item| item.split_once('=')) {
        match key {
            "sp" => parallel.sp = value == "true",
            "dp" => parallel.dp = value.parse().expect("a degree"),
            "ep" => parallel.ep = value.parse().expect("a degree"),
            "cp" => parallel.cp = value.parse().expect("a degree"),
            _ => parallel.tp = value.parse().expect("a degree"),
        }
    }
    parallel
}

/// A stack that recomputes any value.
fn of_values(name: &str) -> Stack {
    let mut stack = Stack::find(name).expect("a preset");
    stack.supports.recompute = None;
    stack
}

/// Saved bytes and seconds of the backward of all layers of a job.
#[derive(Clone, Copy)]
struct Layers {
    saved: f64,
    backward: f64,
}

/// Calls `then` with a job's choices, and with its layers under a mode of recomputation.
fn of_job(
    (model, text, stack): (&str, &str, &str),
    then: impl Fn(&Frontier, &dyn Fn(&Recompute) -> Layers, &str, &Model),
) {
    let (cluster, stack) = (Cluster::find("h100").expect("a preset"), of_values(stack));
    let (recipe, parallel) = (Recipe::bf16(), parallel(text));
    let platform = Platform { cluster: &cluster, stack: &stack, recipe: &recipe };
    let planned = planned(model, &parallel);
    let runs = vec![1.0; planned.blocks.len()];
    let under = |recompute: &Recompute| {
        let parallel = ParallelConfig { recompute: recompute.clone(), ..parallel.clone() };
        let layers = planned.blocks.values().filter(|block| is_layer(block));
        let options = options(&parallel);
        let profiles: Vec<Profile> = layers.map(|block| profile(&planned, block, &options, &platform)).collect();
        let backward = |it: &Profile| it.recomputed.total() + it.i.total() + it.w.total();
        Layers { saved: profiles.iter().map(|it| it.saved).sum(), backward: profiles.iter().map(backward).sum() }
    };
    then(
        &frontier(&planned, &runs, &options(&parallel), &platform),
        &under,
        &format!("{model} {text} {}", stack.name),
        &planned,
    );
}

fn options(parallel: &ParallelConfig) -> BlockOptions {
    BlockOptions::of(parallel, parallel.together().expect("shares").dp)
}

fn selective(names: &[String]) -> Recompute {
    if names.is_empty() { Recompute::None } else { Recompute::Selective(names.to_vec()) }
}

#[test]
fn choices_take_what_they_say() {
    for job in JOBS {
        of_job(job, |frontier, under, title, planned| {
            let best = &frontier.best;
            assert!(best.len() > 5 && frontier.names(&best[0].choices).is_empty(), "{title}: {best:?}");
            let none = under(&Recompute::None).backward;
            for RecomputeChoice { choices, bytes, seconds, least } in best {
                let names = frontier.names(choices);
                let recompute = selective(&names);
                check_names(planned, &recompute).expect("names that there are");
                let Layers { saved, backward } = under(&recompute);
                assert!((saved / bytes - 1.0).abs() < 1e-9, "{title} {names:?}: {saved} {bytes}");
                let recomputed = backward - none;
                assert!((recomputed - seconds).abs() <= 1e-6 * backward, "{title} {names:?}: {recomputed} {seconds}");
                assert!((least - seconds).abs() <= 1e-6 * backward, "{title} {names:?}: {least} {seconds}");
            }
            for pair in best.windows(2) {
                assert!(pair[0].bytes > pair[1].bytes && pair[0].seconds < pair[1].seconds, "{title}");
            }
        });
    }
}

/// For any recomputed modules, or an entirely recomputed layer, some choice of values saves no more and takes no
/// longer.
#[test]
fn no_modules_are_better_than_values() {
    for job in JOBS {
        of_job(job, |frontier, under, title, _| {
            let choices = &frontier.best;
            let some = (0..1 << MODULES.len()).map(|set: u32| {
                let named = MODULES.iter().enumerate().filter(|(bit, _)| set >> bit & 1 == 1);
                Recompute::Selective(named.map(|(_, (name, _))| name.to_string()).collect())
            });
            for recompute in some.chain([Recompute::None, Recompute::Full(None)]) {
                let (Layers { saved, backward }, none) = (under(&recompute), under(&Recompute::None).backward);
                // Choices are listed by steps of 1/256 of what is kept without any.
                let is_no_worse = |it: &RecomputeChoice| {
                    it.bytes <= saved + choices[0].bytes / 256.0 && none + it.seconds <= backward * (1.0 + 1e-9)
                };
                assert!(
                    choices.iter().any(is_no_worse),
                    "{title} {recompute}: {saved} {backward} {:?}",
                    choices.last()
                );
            }
        });
    }
}

/// Llama's layer keeps what matrices and attention give longest: the cheapest bytes are those of the activation's product.
#[test]
fn cheap_values_are_made_again_first() {
    of_job(JOBS[0], |frontier, _, title, planned| {
        let first: Vec<String> = frontier.best.iter().take(4).flat_map(|it| frontier.names(&it.choices)).collect();
        assert!(first.iter().all(|name| ["a", "n", "fp", "q", "k"].contains(&name.as_str())), "{title}: {first:?}");
        let parallel = ParallelConfig { recompute: selective(&["n".into(), "fp".into()]), ..ParallelConfig::default() };
        let (cluster, stack) = (Cluster::find("h100").expect("a preset"), of_values(JOBS[0].2));
        let platform = Platform { cluster: &cluster, stack: &stack, recipe: &Recipe::bf16() };
        let block = planned.blocks.values().find(|block| block.name == "layer").expect("a layer");
        let made = recomputed(planned, block, &options(&parallel), &platform);
        let figures: Vec<(&str, f64)> = made.iter().map(|it| (it.name.as_str(), it.bytes)).collect();
        // 4096 and 14336 numbers of a token in 2 bytes; the norm's reciprocal deviation in 4.
        let tokens = TOKENS as f64;
        assert_eq!(figures, [("n", tokens * (4096.0 * 2.0 + 4.0)), ("fp", tokens * 14336.0 * 2.0)]);
        assert!(made.iter().all(|it| it.seconds > 0.0));
    });
}
