//! Whole inputs of every kind, each with commands that read it: they are what gets spoiled.

use crate::models;
use crate::process::{Folder, run};
use flate2::read::GzDecoder;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;

/// The text that small models are trained on.
pub(crate) const TEXT: &str = "text.txt";

/// Commands, and the files that they read.
pub(crate) struct Seed {
    /// Kind of the input.
    pub(crate) kind: &'static str,
    /// Files by their paths in the folder of the command.
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    /// The names of those that get spoiled.
    pub(crate) spoiled: Vec<String>,
    /// The commands, arguments parted by blanks.
    pub(crate) commands: Vec<String>,
}

impl Seed {
    /// One file and its commands.
    pub(crate) fn one(kind: &'static str, name: &str, text: impl Into<Vec<u8>>, commands: &[&str]) -> Seed {
        let files = BTreeMap::from([(name.to_string(), text.into())]);
        let commands = commands.iter().map(|&command| command.to_string()).collect();
        Seed { kind, files, spoiled: vec![name.into()], commands }
    }
}

/// Text of many lines, of which no two are alike.
pub(crate) fn text() -> String {
    (0..600).map(|n| format!("line {n}: the quick brown fox jumps over {} lazy dogs\n", n * n % 97)).collect()
}

/// A command of the binary as words.
pub(crate) fn words(command: &str) -> Vec<String> {
    command.split_whitespace().map(String::from).collect()
}

/// Output of a command without fault.
pub(crate) fn answer(folder: &Path, command: &str) -> String {
    let ended = run(folder, &words(command));
    assert_eq!(ended.code(), Some(0), "meshwright {command}\n{}", ended.stderr);
    ended.stdout
}

const JOB: &str = "--gpus 8 --seq 64 --global-batch 16";
const TRAIN: &str = "--steps 2 --seq 8 --global-batch 2 --data text.txt";

/// All seeds; what the binary writes itself is made by it.
pub(crate) fn all() -> Vec<Seed> {
    let folder = Folder::new("fuzz-seeds");
    fs::write(folder.path().join(TEXT), text()).unwrap();
    let mut seeds = configs();
    seeds.push(export());
    seeds.extend(levels(folder.path()));
    seeds.extend(machines(folder.path()));
    seeds.extend(plans(folder.path()));
    seeds.extend(requests());
    seeds.extend(schedules(folder.path()));
    seeds.extend(trainings(folder.path()));
    for seed in &mut seeds {
        seed.files.entry(TEXT.into()).or_insert_with(|| text().into_bytes());
    }
    seeds
}

fn configs() -> Vec<Seed> {
    let commands = [
        "compile config.json --seq 8 --parallel dp=2,tp=2,pp=2",
        "compile config.json --seq 8 --parallel dp=2,tp=2 --shard auto --stop-after collectives",
        &format!("estimate config.json {JOB} --parallel tp=2,pp=2"),
        &format!("plan config.json {JOB} --deadline 2"),
        &format!("train config.json {TRAIN} --parallel dp=2"),
    ];
    models::all().iter().map(|model| Seed::one("config", "config.json", model.to_string(), &commands)).collect()
}

/// An exported model.
fn export() -> Seed {
    let mut archive = Vec::new();
    GzDecoder::new(&include_bytes!("../exported/gpt2.pt2.gz")[..]).read_to_end(&mut archive).unwrap();
    let commands = [
        "compile model.pt2 --seq 8 --parallel dp=2,tp=2,pp=2",
        &format!("estimate model.pt2 {JOB} --parallel tp=2,pp=2"),
        &format!("plan model.pt2 {JOB} --deadline 2"),
        "models --check model.pt2",
    ];
    Seed::one("export", "model.pt2", archive, &commands)
}

/// The example after some passes.
fn levels(folder: &Path) -> Vec<Seed> {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/example.ir");
    fs::copy(&example, folder.join("model.ir")).unwrap();
    let whole = [
        "compile model.ir --parallel dp=2,tp=2,pp=2",
        "compile model.ir --parallel dp=2,tp=2 --shard auto",
        &format!("estimate model.ir {JOB}"),
        &format!("plan model.ir {JOB} --deadline 2"),
    ];
    let mut seeds = vec![Seed::one("ir", "model.ir", fs::read(example).unwrap(), &whole)];
    for pass in
        ["differentiate", "annotate", "propagate", "collectives", "partition", "schedule", "codegen", "assign_buffers"]
    {
        let text = answer(folder, &format!("compile model.ir --parallel dp=2,tp=2,pp=2 --stop-after {pass}"));
        seeds.push(Seed::one("ir", "model.ir", text, &["compile model.ir", whole[2], whole[3]]));
    }
    seeds
}

fn machines(folder: &Path) -> Vec<Seed> {
    let cluster = |name| {
        let text = answer(folder, &format!("clusters {name}"));
        let commands = [
            "clusters cluster.toml",
            &format!("estimate tiny-llama --cluster cluster.toml {JOB} --parallel tp=2"),
            &format!("plan tiny-llama --cluster cluster.toml {JOB} --deadline 2"),
        ];
        Seed::one("cluster", "cluster.toml", text, &commands)
    };
    let stack = |name| {
        let text = answer(folder, &format!("stacks {name}"));
        let commands = [
            "stacks stack.toml",
            &format!("estimate tiny-llama --stack stack.toml {JOB} --parallel tp=2"),
            &format!("plan tiny-llama --stack stack.toml {JOB} --deadline 2"),
        ];
        Seed::one("stack", "stack.toml", text, &commands)
    };
    vec![cluster("h100"), cluster("cpu"), stack("megatron-core-2025"), stack("meshwright-threads")]
}

fn plans(folder: &Path) -> Vec<Seed> {
    let configs =
        "tp=2,pp=2\n{\"parallel\": \"dp=8\", \"model\": \"tiny-gpt2\", \"gpus\": 8}\ndp=4,tp=2,zero=1,sp=true\n";
    let runs: String = [("tp=2,zero=1", 1.1), ("tp=4,pp=2", 1.3)].map(run_line).concat();
    let ask =
        "plan tiny-llama --cluster cpu --stack meshwright-threads --precision f32 --gpus 4 --seq 8 --global-batch 2";
    let plan = answer(folder, &format!("{ask} --pin recompute=none,offload=none --format json"));
    vec![
        Seed::one("configs", "configs", configs, &[&format!("estimate tiny-llama {JOB} --configs configurations")]),
        Seed::one(
            "runs",
            "runs.jsonl",
            runs,
            &["calibrate --from runs.jsonl", "calibrate --from runs.jsonl -o fitted.toml"],
        ),
        Seed::one(
            "plan",
            "plan.json",
            plan,
            &[
                "explain plan.json",
                "explain plan.json --why-not tp=4",
                "explain plan.json --format html",
                &format!("train --plan plan.json {TRAIN}"),
            ],
        ),
    ]
}

/// A measured run as `calibrate --from` reads it.
fn run_line((parallel, seconds): (&str, f64)) -> String {
    let run = json!({"model": "tiny-llama", "cluster": "h100", "stack": "megatron-core-2025", "gpus": 8, "seq": 64,
        "global_batch": 16, "precision": "bf16", "parallel": parallel, "step_time_s": seconds});
    format!("{run}\n")
}

fn requests() -> Vec<Seed> {
    let job = json!({"model": "tiny-llama", "cluster": "h100", "gpus": 8, "seq": 64, "global_batch": 16});
    let mut plan = job.clone();
    plan["deadline"] = json!(2.0);
    plan["pin"] = json!("tp=2");
    let mut estimate = job;
    estimate["parallel"] = json!("tp=2,pp=2");
    let compile = json!({"model": "tiny-llama", "mesh": "dp=2,tp=2", "seq": 8, "shard": "rules"});
    let schedule = json!({"stages": 4, "microbatches": 8, "kind": "1f1b"});
    let train =
        json!({"model": "tiny-llama", "data": "text.txt", "steps": 1, "seq": 8, "global_batch": 2, "mesh": "dp=2"});
    let request = |verb: &str, request: &serde_json::Value| {
        Seed::one("request", "request.json", request.to_string(), &[&format!("{verb} --request request.json")])
    };
    vec![
        request("plan", &plan),
        request("estimate", &estimate),
        request("compile", &compile),
        request("schedule", &schedule),
        request("train", &train),
    ]
}

fn schedules(folder: &Path) -> Vec<Seed> {
    let ask = "schedule --stages 4 --microbatches 6 --kind 1f1b --backward split --format";
    let (csv, order) = (answer(folder, &format!("{ask} csv")), answer(folder, &format!("{ask} json")));
    let (ones, limits) = ([1.0; 4], [6.0; 4]);
    let costs = json!({"f": [1.0, 2.0, 1.5, 1.0], "i": ones, "w": ones, "comm": 0.1, "mem_f": ones, "limit": limits});
    let trace = answer(folder, &format!("{ask} trace"));
    vec![
        Seed::one("csv", "order.csv", csv, &["schedule --from order.csv", "schedule --from order.csv --format svg"]),
        Seed::one("order", "order.json", order, &["schedule --from order.json --format html"]),
        Seed::one(
            "costs",
            "costs.json",
            costs.to_string(),
            &[
                "schedule --stages 4 --microbatches 6 --kind 1f1b --costs costs.json",
                "schedule --stages 4 --microbatches 6 --kind zb-auto --costs costs.json --format json",
                "schedule --stages 4 --microbatches 4 --kind optimal --deadline 2 --costs costs.json",
            ],
        ),
        Seed::one(
            "trace",
            "trace.json",
            trace,
            &["schedule --stages 4 --microbatches 6 --kind 1f1b --compare trace.json --format svg"],
        ),
    ]
}

/// Options of a run, its data, and what it left.
fn trainings(folder: &Path) -> Vec<Seed> {
    fs::write(folder.join("config.json"), models::all()[0].to_string()).unwrap();
    answer(folder, &format!("train config.json {TRAIN} --parallel dp=2,zero=1 --save-every 1 --keep-last 2 --out run"));
    let options = fs::read(folder.join("run/run.toml")).unwrap();
    let mut files = BTreeMap::from([("config.json".to_string(), fs::read(folder.join("config.json")).unwrap())]);
    read_below(folder, "run", &mut files);
    let spoiled: Vec<String> = files.keys().filter(|name| name.starts_with("run/")).cloned().collect();
    let resume = "train --resume run --steps 3 --global-batch 2";
    let mut toml = Seed::one("options", "again.toml", options, &["train --config again.toml --steps 1 --out again"]);
    toml.files.insert("config.json".into(), files["config.json"].clone());
    let data = Seed::one("data", TEXT, text(), &[&format!("train tiny-gpt2 {TRAIN}")]);
    vec![toml, data, Seed { kind: "checkpoint", files, spoiled, commands: vec![resume.into()] }]
}

/// The files below a folder by their paths from `root`.
pub(crate) fn read_below(root: &Path, below: &str, files: &mut BTreeMap<String, Vec<u8>>) {
    for entry in fs::read_dir(root.join(below)).unwrap().flatten() {
        let name = format!("{below}/{}", entry.file_name().to_str().unwrap());
        if entry.path().is_dir() {
            read_below(root, &name, files);
        } else {
            files.insert(name, fs::read(entry.path()).unwrap());
        }
    }
}
