//! Hostile names of models, clusters, stacks and files, through everything that is written: no name becomes code, a key, a tag or a command
//! of the terminal.

use crate::cases::{Cases, Failure};
use crate::models;
use crate::process::{Ended, Folder, run};
use crate::random::Random;
use crate::seeds::{TEXT, answer, text, words};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

const CASES: u64 = 48;

/// Parts of names. What any language would run or read makes a file, a key, a call or a tag that is called `pwned`.
const PARTS: [&str; 30] = [
    "\n: > pwned\n",
    "\r\n: > pwned\r\n",
    "$(: > pwned)",
    "`: > pwned`",
    "; : > pwned #",
    "'; : > pwned; '",
    "\"; : > pwned; \"",
    "\npwned()\n",
    "\"\"\"\npwned()\n\"\"\"",
    "'''\npwned()\n'''",
    "\"+pwned()+\"",
    "\npwned: 1\n",
    "\n- pwned: 1\n",
    "\", \"pwned\": \"1",
    "\n[pwned]\npwned = 1\n",
    "<pwned>",
    "</title><pwned>",
    "</script><pwned>",
    "\"><pwned a=\"",
    "'><pwned a='",
    "]]><pwned>",
    "--><pwned>",
    "\u{1b}[31mred",
    "\u{1b}]0;title\u{7}",
    "\u{9b}31m",
    "\u{202e}desrever",
    "\u{2028}pwned()\u{2029}",
    "\u{85}pwned: 1",
    "%s{0}{tp}",
    "| a | b |",
];

/// Targets of `export`, each with the language that its files are in.
const TARGETS: [(&str, Language); 6] = [
    ("megatron", Language::Shell),
    ("torchtitan", Language::Python),
    ("torch-pipelining", Language::Python),
    ("nanotron", Language::Yaml),
    ("maxtext", Language::Yaml),
    ("deepspeed", Language::Json),
];

/// The language of what a command writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Language {
    Shell,
    Python,
    Yaml,
    Json,
    Page,
    /// Text for a terminal, or Markdown.
    Text,
}

/// A command with a hostile name in it, and the language of its answer.
struct Attempt {
    args: Vec<String>,
    language: Language,
}

#[test]
fn names() {
    let home = Folder::new("fuzz-names-seeds");
    let ask = "plan tiny-llama --gpus 8 --seq 64 --global-batch 16 --format json";
    let plan: Value = serde_json::from_str(&answer(home.path(), ask)).unwrap();
    let machines = ["clusters h100", "stacks megatron-core-2025"].map(|command| answer(home.path(), command));
    Cases::asked(CASES).run("names", 2, |case| {
        let mut random = Random::new(case);
        let folder = Folder::new(&format!("fuzz-names-{case}"));
        let name = name(&mut random);
        prepare(folder.path(), &name, &plan, &machines);
        let Attempt { args, language } = attempt(&mut random, &name);
        let ended = run(folder.path(), &args);
        match judged(folder.path(), &ended, language) {
            Ok(()) => Ok(format!("{} as {language:?}: exit status {}", args[0], ended.code().unwrap_or(-1))),
            Err(why) => Err(Failure { why: format!("meshwright {args:?}\n{why}"), folder: Some(folder.keep()) }),
        }
    });
}

/// A name that a file may have.
fn name(random: &mut Random) -> String {
    let parts: Vec<&str> = (0..random.between(1, 3)).map(|_| *random.pick(&PARTS)).collect();
    format!("x{}", parts.join("y").replace('/', "|"))
}

/// Everything with the name in it: a plan, a cluster, a stack, runs, a model, an order.
fn prepare(folder: &Path, name: &str, plan: &Value, machines: &[String; 2]) {
    let mut plan = plan.clone();
    rename(&mut plan, name);
    fs::write(folder.join("plan.json"), plan.to_string()).unwrap();
    let quoted = toml::Value::String(name.to_string()).to_string();
    for (file, machine) in ["cluster.toml", "stack.toml"].iter().zip(machines) {
        let named = machine
            .lines()
            .map(|line| if line.starts_with("name = ") { format!("name = {quoted}") } else { line.into() });
        fs::write(folder.join(file), named.collect::<Vec<String>>().join("\n")).unwrap();
    }
    let record = json!({"model": "tiny-llama", "cluster": "h100", "stack": "megatron-core-2025", "gpus": 8, "seq": 64,
        "global_batch": 16, "precision": "bf16", "parallel": "tp=2", "step_time_s": 1.1, "source": name});
    fs::write(folder.join("runs.jsonl"), format!("{record}\n")).unwrap();
    fs::write(folder.join(TEXT), text()).unwrap();
    fs::create_dir(folder.join(name)).unwrap();
    fs::write(folder.join(name).join("config.json"), models::all()[1].to_string()).unwrap();
    fs::write(folder.join(format!("{name}.csv")), "0F0,0B0,,\n,1F0,1B0,\n").unwrap();
}

/// Gives every field that has the name of the model the other one.
fn rename(value: &mut Value, name: &str) {
    match value {
        Value::String(text) if text == "tiny-llama" => *text = name.to_string(),
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, name)),
        Value::Object(fields) => fields.values_mut().for_each(|field| rename(field, name)),
        _ => {}
    }
}

/// A command before the name, the name, and a command behind it.
fn command(before: &str, named: &str, after: &str, language: Language) -> Attempt {
    let mut args = words(before);
    args.extend((!named.is_empty()).then(|| named.to_string()));
    args.extend(words(after));
    Attempt { args, language }
}

const JOB: &str = "--gpus 8 --seq 64 --global-batch 16";

fn attempt(random: &mut Random, name: &str) -> Attempt {
    let (target, language) = *random.pick(&TARGETS);
    let (model, order) = (format!("{name}/config.json"), format!("{name}.csv"));
    let export = format!("--to {target} -o answer");
    let mut attempt = match random.below(14) {
        0 | 1 => command("export plan.json", "", &export, language),
        2 => command("export", &model, &format!("{JOB} --parallel tp=2 {export}"), language),
        3 => command("explain plan.json --format html -o answer", "", "", Language::Page),
        4 => command("explain plan.json", "", "", Language::Text),
        5 => command("estimate", &model, JOB, Language::Text),
        6 => command("plan", &model, &format!("{JOB} --deadline 2"), Language::Text),
        7 => command("clusters cluster.toml", "", "", Language::Text),
        8 => command("estimate tiny-llama --cluster cluster.toml --stack stack.toml", "", JOB, Language::Text),
        9 => command("calibrate --from runs.jsonl --report answer", "", "", Language::Text),
        10 => command("schedule --from", &order, "--format svg -o answer", Language::Page),
        11 => command("schedule --from", &order, "--format html -o answer", Language::Page),
        12 => command("calibrate --script torch -o answer", "", "", Language::Python),
        _ => {
            let train = "--data text.txt --steps 2 --seq 8 --global-batch 2 --trace answer --out out";
            command("train", &model, train, Language::Json)
        }
    };
    if random.chance(10) {
        // A path that is not there is in the message.
        attempt.args.push(format!("--request={name}/none"));
    }
    attempt
}

fn judged(folder: &Path, ended: &Ended, language: Language) -> Result<(), String> {
    ended.judged()?;
    if folder.join("pwned").exists() {
        return Err("it ran the name".into());
    }
    plain(&ended.stderr).map_err(|why| format!("standard error {why}"))?;
    plain(&ended.stdout).map_err(|why| format!("standard output {why}"))?;
    match fs::read_to_string(folder.join("answer")) {
        Ok(answer) => harmless(folder, &answer, language),
        Err(_) => Ok(()),
    }
}

/// Refuses characters that command a terminal.
fn plain(text: &str) -> Result<(), String> {
    let is_command = |c: &char| c.is_control() && !matches!(c, '\n' | '\t') || ('\u{202a}'..='\u{202e}').contains(c);
    match text.chars().find(is_command) {
        Some(c) => Err(format!("has {c:?}")),
        None => Ok(()),
    }
}

/// Reads the answer as its language does, and looks for what the name would have made.
fn harmless(folder: &Path, answer: &str, language: Language) -> Result<(), String> {
    let found = |what: &str| Err(format!("the answer has {what}"));
    match language {
        Language::Shell if runs(folder) => found("a command"),
        Language::Python if calls(folder) => found("a call, or cannot be parsed"),
        Language::Shell | Language::Python => Ok(()),
        Language::Yaml => {
            let is_key = |line: &str| line.trim_start_matches([' ', '-']).starts_with("pwned");
            let mut lines = answer.split(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']);
            if lines.any(is_key) { found("a key") } else { Ok(()) }
        }
        Language::Json => match serde_json::from_str::<Value>(answer) {
            Ok(value) if has_key(&value) => found("a key"),
            Ok(_) => Ok(()),
            Err(why) => Err(format!("the answer is no JSON: {why}")),
        },
        Language::Page if answer.contains("<pwned") => found("a tag"),
        Language::Page | Language::Text => plain(answer).map_err(|why| format!("the answer {why}")),
    }
}

/// True if the answer as a script makes the file. Without a path, only what the shell itself does can happen.
fn runs(folder: &Path) -> bool {
    let mut shell = Command::new("/bin/bash");
    shell.arg("answer").env_clear().env("PATH", "/nowhere").current_dir(folder);
    // A script ends with an error here: its programs are not there.
    let _ = shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    folder.join("pwned").exists()
}

/// True if the answer is no Python program, or names the call. Where there is no Python, nothing is read.
fn calls(folder: &Path) -> bool {
    let program = "import ast; t = ast.parse(open('answer').read()); \
        assert not any(isinstance(n, ast.Name) and n.id == 'pwned' for n in ast.walk(t))";
    let python = Command::new("python3").args(["-c", program]).current_dir(folder).stderr(Stdio::null()).status();
    python.is_ok_and(|status| !status.success())
}

fn has_key(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(has_key),
        Value::Object(fields) => fields.keys().any(|key| key == "pwned") || fields.values().any(has_key),
        _ => false,
    }
}
