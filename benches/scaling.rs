//! How training speed goes with the number of virtual devices: the same model, data and global batch on 1 to 8 of them.
//!
//! `cargo bench --bench scaling` prints the tables of docs/benchmarks.md. Meshes take turns, so that what else the machine
//! does falls on all of them; of a mesh's rounds the median counts.

use meshwright::train::{ProfileReport, Quiet, TrainRequest, train};
use std::path::Path;

/// Models, and their configurations: one device first, with which the others are compared.
const MODELS: [(&str, &[&str]); 2] = [
    (
        "tiny-llama",
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
            "dp=2,cp=4,cp_kind=ring",
            "dp=2,cp=4,cp_kind=ulysses",
            "dp=2,cp=4,cp_kind=allgather",
            "dp=4,pp=2,schedule=interleaved-1f1b",
            "dp=2,pp=4,schedule=zb-h1",
            "dp=4,pp=2,offload=all",
        ],
    ),
    ("tiny-moe", &["dp=1", "dp=8,ep=8", "dp=2,tp=4,ep=4,etp=2,sp=true", "dp=4,pp=2,ep=4"]),
];

/// How often each mesh has its turn.
const ROUNDS: usize = 5;

/// Steps of a turn; the first is not measured.
const STEPS: u64 = 11;

fn main() {
    // `-- WORD` takes the configurations that have it, and those they are compared with.
    let word = std::env::args().nth(1).filter(|arg| !arg.starts_with("--")).unwrap_or_default();
    for (model, meshes) in MODELS {
        let meshes: Vec<&str> = meshes.iter().copied().filter(|mesh| *mesh == "dp=1" || mesh.contains(&word)).collect();
        let mut profiles: Vec<Vec<ProfileReport>> = vec![Vec::new(); meshes.len()];
        for round in 1..=ROUNDS {
            for (mesh, of_mesh) in meshes.iter().zip(&mut profiles) {
                eprintln!("round {round}/{ROUNDS}  {model}  {mesh}");
                of_mesh.push(measured(model, mesh));
            }
        }
        report(model, &meshes, &profiles);
    }
}

/// Prints the table of a model.
fn report(model: &str, meshes: &[&str], profiles: &[Vec<ProfileReport>]) {
    let defaults = TrainRequest::default();
    let tokens = (defaults.global_batch * defaults.seq) as f64;
    let peak = median(profiles.iter().flatten().map(|profile| profile.peak.flops));
    let times = ROUNDS * meshes.len();
    println!("\n{model}. Peak of all cores: {:.0} GFLOP/s, measured {times} times.\n", peak / 1e9);
    println!("| mesh | devices | tokens/s | to one device | matmul share | GFLOP/s | of the peak |");
    println!("|---|---|---|---|---|---|---|");
    let speed = |of_mesh: &[ProfileReport]| tokens / median(of_mesh.iter().map(|profile| profile.step_s));
    for (mesh, of_mesh) in meshes.iter().zip(profiles) {
        let matmul = median(of_mesh.iter().map(|profile| profile.shares.get("matmul").copied().unwrap_or(0.0)));
        let flops = median(of_mesh.iter().map(|profile| profile.model_flops_per_s));
        println!(
            "| `{mesh}` | {} | {:.0} | {:.2} | {:.0} % | {:.0} | {:.0} % |",
            of_mesh[0].ranks,
            speed(of_mesh),
            speed(of_mesh) / speed(&profiles[0]),
            100.0 * matmul,
            flops / 1e9,
            100.0 * flops / peak
        );
    }
}

/// A turn of a mesh.
fn measured(model: &str, mesh: &str) -> ProfileReport {
    let request = TrainRequest {
        model: model.into(),
        parallel: mesh.into(),
        data: env!("CARGO_MANIFEST_DIR").into(),
        valid_fraction: 0.002,
        steps: STEPS,
        eval_every: 0,
        profile: true,
        out: Path::new(env!("CARGO_TARGET_TMPDIR")).join("scaling"),
        ..TrainRequest::default()
    };
    let report = train(&request, &mut Quiet).unwrap_or_else(|why| panic!("{mesh}: {why}"));
    report.profile.unwrap_or_else(|| panic!("{mesh}: the run was not measured"))
}

fn median(of: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = of.collect();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
