//! How training speed goes with the number of virtual devices: the same model, data and global batch on 1 to 8 of them.
//!
//! `cargo bench --bench scaling` prints the tables of docs/benchmarks.md. Meshes take turns, so that what else the machine
//! does falls on all of them; of a mesh's steps, at the full speed of the machine, the median counts.

mod speed;

use meshwright::train::{ProfileReport, TrainRequest, train};
use speed::{StepTime, Steps, best_rate, cores, median};
use std::path::Path;

/// Models, the sequences of a step and the tokens of each, and configurations: one device first, with which the others are compared.
/// Context parallelism has sequences that are worth dividing. It and offload have ZeRO-1: else the updates of replicas, which rows of dp
/// measure, would be most of what they lose.
const MODELS: [(&str, [u64; 2], &[&str]); 3] = [
    (
        "tiny-llama",
        [16, 128],
        &[
            "dp=1",
            "dp=2",
            "tp=2",
            "dp=4",
            "dp=2,tp=2",
            "dp=4,pp=2",
            "dp=8",
            "dp=2,tp=2,pp=2",
            "dp=8,zero=1",
            "dp=8,zero=3",
            "dp=8,zero=3,shard=4",
            "dp=2,tp=4,sp=true",
            "dp=4,pp=2,schedule=interleaved-1f1b",
            "dp=2,pp=4,schedule=zb-h1",
            "dp=4,pp=2,zero=1,offload=all",
        ],
    ),
    (
        "tiny-llama",
        [2, 1024],
        &[
            "dp=1",
            "dp=2,cp=4,zero=1,cp_kind=ring",
            "dp=2,cp=4,zero=1,cp_kind=ulysses",
            "dp=2,cp=4,zero=1,cp_kind=allgather",
        ],
    ),
    ("tiny-moe", [16, 128], &["dp=1", "dp=8,ep=8", "dp=2,tp=4,ep=4,etp=2,sp=true", "dp=4,pp=2,ep=4"]),
];

/// How often each mesh has its turn.
const ROUNDS: usize = 5;

/// Steps of a turn; the first is not measured.
const STEPS: u64 = 11;

/// Measurements of the turns of a mesh.
#[derive(Default)]
struct Turns {
    profiles: Vec<ProfileReport>,
    steps: Vec<StepTime>,
}

fn main() {
    // `-- WORD` takes the configurations that have it, and those they are compared with.
    let word = std::env::args().nth(1).filter(|arg| !arg.starts_with("--")).unwrap_or_default();
    for (model, batch, meshes) in MODELS {
        let meshes: Vec<&str> = meshes.iter().copied().filter(|mesh| *mesh == "dp=1" || mesh.contains(&word)).collect();
        let mut turns: Vec<Turns> = meshes.iter().map(|_| Turns::default()).collect();
        for round in 1..=ROUNDS {
            for (mesh, turns) in meshes.iter().zip(&mut turns) {
                eprintln!("round {round}/{ROUNDS}  {model}  {mesh}");
                measure(model, batch, mesh, turns);
            }
        }
        report(model, batch, &meshes, &turns, best_rate());
    }
}

/// Prints the table of a model; `best` is the best rate of products after the turns.
fn report(model: &str, [global_batch, seq]: [u64; 2], meshes: &[&str], of_meshes: &[Turns], best: f64) {
    let tokens = (global_batch * seq) as f64;
    let all = |of: fn(&ProfileReport) -> f64| of_meshes.iter().flat_map(|turns| &turns.profiles).map(of).collect();
    let peak = median(all(|profile| profile.peak.flops));
    let times = ROUNDS * meshes.len();
    println!(
        "\n{model}, {global_batch} sequences of {seq} tokens. Peak of all cores: {:.0} GFLOP/s, measured {times} times.\n",
        peak / 1e9
    );
    println!("| mesh | devices | machine's speed | tokens/s | to one device | matmul share | cores busy |");
    println!("|---|---|---|---|---|---|---|");
    let full = of_meshes.iter().flat_map(|turns| &turns.steps).map(|step| step.rate).fold(best, f64::max);
    let each = |turns: &Turns, of: &dyn Fn(&StepTime) -> f64| median(turns.steps.iter().map(of).collect());
    let speed = |turns| tokens / each(turns, &|step| step.step_s * step.rate / full);
    for (mesh, turns) in meshes.iter().zip(of_meshes) {
        let share = |profile: &ProfileReport| profile.shares.get("matmul").copied().unwrap_or(0.0);
        let busy = turns.steps.iter().map(|step| step.processor_s).sum::<f64>()
            / turns.steps.iter().map(|step| step.step_s).sum::<f64>()
            / cores() as f64;
        println!(
            "| `{mesh}` | {} | {:.2} | {:.0} | {:.2} | {:.0} % | {:.0} % |",
            turns.profiles[0].ranks,
            each(turns, &|step| step.rate / full),
            speed(turns),
            speed(turns) / speed(&of_meshes[0]),
            100.0 * median(turns.profiles.iter().map(share).collect()),
            100.0 * busy
        );
    }
}

/// A turn of a mesh.
fn measure(model: &str, [global_batch, seq]: [u64; 2], mesh: &str, turns: &mut Turns) {
    let request = TrainRequest {
        model: model.into(),
        parallel: mesh.into(),
        global_batch,
        seq,
        data: Path::new(env!("CARGO_MANIFEST_DIR")).join("src"),
        valid_fraction: 0.02,
        steps: STEPS,
        eval_every: 0,
        profile: true,
        out: Path::new(env!("CARGO_TARGET_TMPDIR")).join("scaling"),
        ..TrainRequest::default()
    };
    let mut steps = Steps::default();
    let report = train(&request, &mut steps).unwrap_or_else(|why| panic!("{mesh}: {why}"));
    turns.profiles.extend(report.profile);
    turns.steps.extend(steps.taken.into_iter().skip(1));
}
