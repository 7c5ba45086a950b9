//! Random flags of every subcommand: which there are, and what they take, is read from `--help`.

use crate::cases::{Cases, Failure};
use crate::models;
use crate::process::{Folder, run};
use crate::random::Random;
use crate::seeds::{TEXT, text, words};
use std::fs;
use std::path::Path;

const CASES: u64 = 120;

/// A command that works and ends soon, which random flags are added to, and its last words: they bound the work.
const COMMANDS: [(&str, &str); 18] = [
    ("plan tiny-llama --gpus 8 --seq 64 --global-batch 16", "--deadline 2"),
    ("plan tiny-moe --gpus 4 --seq 64 --global-batch 16", "--deadline 2"),
    ("plan llama3-8b --gpus 64 --seq 4096 --global-batch 128", "--deadline 2"),
    ("estimate tiny-llama --gpus 8 --seq 64 --global-batch 16", ""),
    ("estimate deepseek-v2-lite --gpus 16 --seq 4096 --global-batch 64", ""),
    ("compile tiny-llama --seq 8", ""),
    ("compile tiny-moe --seq 8", ""),
    ("compile config.json --seq 8", ""),
    ("train config.json --data text.txt --seq 8 --global-batch 2", "--steps 2"),
    ("tokenize text.txt --tokenizer tokenizer.json --out tokens", ""),
    ("schedule --stages 4 --microbatches 8 --kind 1f1b", "--deadline 2"),
    ("schedule --stages 2 --microbatches 4 --kind optimal", "--deadline 2"),
    ("reshard --mesh x=2,y=4 --shape 64,64 --from {x},{y} --to {},{x}", ""),
    ("calibrate --from runs.jsonl", ""),
    ("clusters", ""),
    ("stacks", ""),
    ("models", ""),
    ("schema plan", ""),
];

/// A flag, and the values that its help names.
struct Flag {
    name: String,
    takes: Option<String>,
    possible: Vec<String>,
}

#[test]
fn flags() {
    let help = Folder::new("fuzz-flags-help");
    let known: Vec<Vec<Flag>> = COMMANDS.iter().map(|(command, _)| known(help.path(), command)).collect();
    Cases::asked(CASES).run("flags", 2, |case| {
        let mut random = Random::new(case);
        let at = random.below(COMMANDS.len());
        let (command, bound) = COMMANDS[at];
        let mut args = words(command);
        for _ in 0..random.between(1, 4) {
            let flag = random.pick(&known[at]);
            if bound.split(' ').next() != Some(flag.name.as_str()) {
                without(&mut args, &flag.name);
                args.extend(given(&mut random, flag));
            }
        }
        args.extend(words(bound));
        let folder = Folder::new(&format!("fuzz-flags-{case}"));
        files(folder.path());
        let ended = run(folder.path(), &args);
        match ended.judged() {
            Ok(()) => Ok(format!("{}: exit status {}", args[0], ended.code().unwrap_or(-1))),
            Err(why) => {
                Err(Failure { why: format!("meshwright {}\n{why}", quoted(&args)), folder: Some(folder.keep()) })
            }
        }
    });
}

/// Takes a flag that is there out, with its value: a flag that is given twice is refused.
fn without(args: &mut Vec<String>, name: &str) {
    if let Some(at) = args.iter().position(|arg| arg == name) {
        let has_value = args.get(at + 1).is_some_and(|next| !next.starts_with('-'));
        args.drain(at..at + 1 + usize::from(has_value));
    }
    args.retain(|arg| !arg.starts_with(&format!("{name}=")) && arg != name);
}

/// The files that commands and values name.
fn files(folder: &Path) {
    fs::write(folder.join(TEXT), text()).unwrap();
    fs::write(folder.join("config.json"), models::all()[1].to_string()).unwrap();
    fs::write(folder.join("tokenizer.json"), include_str!("../tokenize/tokenizer.json")).unwrap();
    fs::write(folder.join("runs.jsonl"), "").unwrap();
    fs::write(folder.join("order.csv"), "0F0,1F0\n").unwrap();
}

fn quoted(args: &[String]) -> String {
    args.iter().map(|arg| format!("'{arg}' ")).collect()
}

/// The flags of a command's subcommand.
fn known(folder: &Path, command: &str) -> Vec<Flag> {
    let verb = command.split(' ').next().unwrap();
    let help = run(folder, &words(&format!("{verb} --help"))).stdout;
    let mut flags: Vec<Flag> = Vec::new();
    for line in help.lines().skip_while(|line| *line != "Options:") {
        let line = line.trim_start();
        if line.starts_with('-') && line.contains("--") {
            flags.push(flag(line));
        } else if let Some(last) = flags.last_mut() {
            last.possible.extend(possible(line));
        }
    }
    assert!(!flags.is_empty(), "`{verb} --help` names no options");
    flags
}

/// `-o, --output <FILE>`, `--sp[=<BOOL>]`, `--exhaustive`, each perhaps with its help behind it.
fn flag(line: &str) -> Flag {
    let long = &line[line.find("--").unwrap()..];
    let name: String = long.chars().take_while(|c| c.is_alphanumeric() || *c == '-').collect();
    let rest = &long[name.len()..];
    let takes = rest.starts_with([' ', '[', '=']).then(|| rest.split(['<', '>']).nth(1)).flatten();
    let takes = takes.filter(|_| !rest.starts_with("  ")).map(String::from);
    Flag { name, takes, possible: Vec::new() }
}

/// The values of `[possible values: a, b]` or of `- a: its help`.
fn possible(line: &str) -> Vec<String> {
    if let Some(list) = line.strip_prefix("[possible values: ") {
        return list.trim_end_matches(']').split(", ").map(String::from).collect();
    }
    let named = line.strip_prefix("- ").and_then(|item| item.split_once(':'));
    named.map(|(name, _)| name.to_string()).into_iter().collect()
}

/// The flag as words of the command line.
fn given(random: &mut Random, flag: &Flag) -> Vec<String> {
    let Some(takes) = &flag.takes else { return vec![flag.name.clone()] };
    if random.chance(3) {
        return vec![flag.name.clone()];
    }
    vec![format!("{}={}", flag.name, value(random, flag, takes))]
}

fn value(random: &mut Random, flag: &Flag, takes: &str) -> String {
    if random.chance(6) {
        return (*random.pick(&ABSURD)).into();
    }
    if !flag.possible.is_empty() {
        return random.pick(&flag.possible).clone();
    }
    match (flag.name.as_str(), takes) {
        (_, "CONFIG") if flag.name == "--from" || flag.name == "--to" => sharding(random),
        (_, "CONFIG") => parallel(random),
        ("--cluster", _) => (*random.pick(&["h100", "cpu", "a100-80gb", "b200", "text.txt"])).into(),
        ("--stack", _) => {
            (*random.pick(&["megatron-core-2025", "meshwright-threads", "fsdp-eager", "text.txt"])).into()
        }
        ("--schedule" | "--kind" | "--compare", _) => (*random.pick(&SCHEDULES)).into(),
        ("--precision" | "--dtype" | "--grad-dtype" | "--master", _) => (*random.pick(&TYPES)).into(),
        ("--optimizer", _) => (*random.pick(&["adamw", "muon", "sgd", "momentum", "adamw-bf16"])).into(),
        ("--stop-after", _) => (*random.pick(&PASSES)).into(),
        ("--shard", _) => (*random.pick(&["auto", "rules"])).into(),
        ("--backend", _) => (*random.pick(&["cpu", "cuda"])).into(),
        ("--parallel", _) => (*random.pick(&["x=2,y=4", "a=2,b=2,c=2", "x=3", "x=1", "x=8,y=8"])).into(),
        ("--lengths" | "--shape" | "--memory-limit", _) => {
            (0..random.between(1, 3)).map(|_| number(random)).collect::<Vec<_>>().join(",")
        }
        (_, "FILE" | "PATH" | "DIR" | "FILE.toml" | "FILE.jsonl" | "FILE.md" | "KIND|FILE" | "NAME") => {
            (*random.pick(&FILES)).into()
        }
        ("--memory", _) => (*random.pick(&["80GB", "1GiB", "64kB", "1", "0", "1e30GB"])).into(),
        _ => number(random),
    }
}

const ABSURD: [&str; 16] = [
    "",
    " ",
    "x",
    "-1",
    "0",
    "nan",
    "inf",
    "1e308",
    "5e-324",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "99999999999999999999999",
    "é",
    "--",
    ",,=",
];
/// Keys of a configuration whose values are numbers.
const LAYOUT_KEYS: [&str; 12] = ["dp", "tp", "pp", "cp", "ep", "etp", "vp", "mbs", "zero", "shard", "group", "slices"];
const SCHEDULES: [&str; 10] =
    ["gpipe", "1f1b", "interleaved-1f1b", "zb-h1", "zb-auto", "zb-v", "v-auto", "chimera", "dualpipe", "optimal"];
const TYPES: [&str; 8] = ["f32", "bf16", "fp16", "fp8-tensor", "fp8-block", "mxfp8", "none", "i32"];
const PASSES: [&str; 8] =
    ["differentiate", "annotate", "shard", "propagate", "collectives", "partition", "schedule", "codegen"];
const FILES: [&str; 8] = ["text.txt", "config.json", "runs.jsonl", "order.csv", "missing/file", ".", "out.txt", "new"];

/// Mostly small, now and then a size of real models, rarely much.
fn number(random: &mut Random) -> String {
    match random.below(12) {
        0..8 => random.between(0, 16).to_string(),
        8 | 9 => (1 << random.between(4, 13)).to_string(),
        10 => (random.between(0, 100) as f64 / 16.0).to_string(),
        _ => (1u64 << random.between(13, 63)).to_string(),
    }
}

fn parallel(random: &mut Random) -> String {
    let item = |random: &mut Random| match random.below(9) {
        0 => format!("schedule={}", random.pick(&SCHEDULES)),
        1 => format!(
            "recompute={}",
            random.pick(&["none", "full", "full:1", "auto", "selective:core_attn", "selective:n"])
        ),
        2 => format!(
            "{}={}",
            random.pick(&["sp", "offload", "offload_optimizer", "tp_overlap", "dp_overlap"]),
            random.chance(50)
        ),
        3 => format!("gather={}", random.pick(&["use", "step"])),
        4 => format!("cp_kind={}", random.pick(&["allgather", "ulysses", "ring"])),
        _ => format!(
            "{}={}",
            random.pick(&LAYOUT_KEYS),
            if random.chance(90) { random.between(1, 8).to_string() } else { number(random) }
        ),
    };
    (0..random.between(1, 4)).map(|_| item(random)).collect::<Vec<_>>().join(",")
}

fn sharding(random: &mut Random) -> String {
    (*random.pick(&[
        "{x},{y}",
        "{},{x}",
        "{y,x},{}",
        "{x}",
        "{},{}+{x}",
        "{},{}/{x,y}",
        "{x},{x}",
        "{a},{b}",
        "{}max{y}",
        "{z},{}",
    ]))
    .into()
}
