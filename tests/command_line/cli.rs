//! The command line as a user meets it: the built binary, run in a folder of its own.
//!
//! A case of `tests/cases/{errors,estimate,reshard,schedule}` is a text file: `# meshwright ARGS`, then files (`# file NAME` and lines) and
//! folders (`# folder NAME`) to make, then `----`, the exit status, and all that is printed. `BLESS=1` rewrites the answers.

use ir::catalogue::CATALOGUE;
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that is gone when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("meshwright-cli-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// Runs the binary here; arguments are parted by blanks.
    fn run(&self, args: &str) -> Output {
        self.command(&args.split_whitespace().collect::<Vec<_>>()).output().unwrap()
    }

    /// The binary, to be run here.
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
        command.args(args).current_dir(&self.0).env_remove("COLUMNS");
        command
    }

    /// Output of a successful command.
    fn answer(&self, args: &str) -> String {
        let output = self.run(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "meshwright {args}: {}\n{stderr}", output.status);
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, args: &str) -> Value {
        serde_json::from_str(&self.answer(args)).unwrap()
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.join(name)).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn errors_say_what_where_and_what_to_do() {
    cases("errors");
}

#[test]
fn schedules_are_drawn() {
    cases("schedule");
}

#[test]
fn ways_between_configurations_are_told() {
    cases("reshard");
}

#[test]
fn configurations_are_predicted() {
    cases("estimate");
}

fn cases(folder: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases").join(folder);
    let mut paths: Vec<_> = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.sort();
    assert!(!paths.is_empty(), "no cases in {}", root.display());
    let mut failed = String::new();
    for path in paths {
        let case = fs::read_to_string(&path).unwrap();
        let (input, want) = case.split_once("----\n").expect("a case has a line ----");
        let got = answer(input);
        if std::env::var_os("BLESS").is_some() {
            fs::write(&path, format!("{input}----\n{got}")).unwrap();
        } else if got != want {
            let _ = writeln!(failed, "{}\n  want:\n{want}\n  got:\n{got}", path.display());
        }
    }
    assert!(failed.is_empty(), "{failed}");
}

/// The exit status, then standard output and standard error.
fn answer(input: &str) -> String {
    let folder = Folder::new();
    let mut lines = input.lines();
    let args = lines.next().and_then(|line| line.strip_prefix("# meshwright ")).expect("# meshwright ARGS");
    let mut file: Option<(&str, String)> = None;
    for line in lines {
        if let Some(name) = line.strip_prefix("# folder ") {
            fs::create_dir_all(folder.0.join(name)).unwrap();
        } else if let Some(name) = line.strip_prefix("# file ") {
            file.take().into_iter().for_each(|(name, text)| folder.write(name, &text));
            file = Some((name, String::new()));
        } else if let Some((_, text)) = &mut file {
            text.push_str(line);
            text.push('\n');
        }
    }
    file.into_iter().for_each(|(name, text)| folder.write(name, &text));
    let output = folder.run(args);
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(text).unwrap().replace(folder.0.to_str().unwrap(), "DIR");
    format!("exit {}\n{text}", output.status.code().unwrap_or(-1))
}

/// Text that a small model learns something from.
fn some_text() -> String {
    (0..400).fold(String::new(), |mut text, n| {
        let _ = writeln!(text, "line {n}: the quick brown fox jumps over {} lazy dogs", n * n % 97);
        text
    })
}

const TINY: &str =
    "train tiny-gpt2 --data text.txt --steps 3 --seq 16 --global-batch 8 --eval-every 2 --eval-batches 1";

#[test]
fn train_writes_metrics_and_a_config_that_gives_the_same_run() {
    let folder = Folder::new();
    folder.write("text.txt", &some_text());
    let report = folder.json(&format!("{TINY} --parallel dp=2,tp=2,pp=2 --zero 1 --sp --out a --format json"));
    assert_eq!((&report["devices"], &report["microbatches"]), (&8.into(), &4.into()));
    assert!(report["valid_loss"].as_f64().unwrap() < 6.0, "{report}");

    let metrics: Vec<Value> =
        folder.read("a/metrics.jsonl").lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(metrics[0]["schema"], "meshwright.metrics/1");
    let steps: Vec<&Value> = metrics.iter().filter(|record| record.get("loss").is_some()).collect();
    assert_eq!(steps.iter().map(|r| r["step"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(metrics.iter().filter(|record| record.get("valid_loss").is_some()).count(), 2);

    folder.answer("train --config a/run.toml --out b");
    let losses = |text: String| -> Vec<Value> {
        text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["loss"].clone()).collect()
    };
    assert_eq!(losses(folder.read("a/metrics.jsonl")), losses(folder.read("b/metrics.jsonl")));
    assert_eq!(folder.read("a/run.toml").replace("out = \"a\"", "out = \"b\""), folder.read("b/run.toml"));
}

/// Its last layer predicts the token after the next one, with a factor of 0.3.
const FURTHER: &str = r#"{"model_type": "deepseek_v3", "first_k_dense_replace": 1, "hidden_size": 16, "intermediate_size": 32,
    "kv_lora_rank": 8, "max_position_embeddings": 64, "moe_intermediate_size": 8, "n_group": 1, "n_routed_experts": 4,
    "n_shared_experts": 1, "num_attention_heads": 2, "num_experts_per_tok": 2, "num_hidden_layers": 2, "num_key_value_heads": 2,
    "num_nextn_predict_layers": 1, "q_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4, "topk_group": 1, "v_head_dim": 4,
    "vocab_size": 260}"#;

#[test]
fn train_reports_the_loss_of_further_tokens() {
    let folder = Folder::new();
    folder.write("text.txt", &some_text());
    folder.write("further.json", FURTHER);
    let step = |model: &str| -> Value {
        folder.answer(&format!("train {model} --data text.txt --steps 1 --seq 16 --global-batch 8 --out {model}.out"));
        let metrics = folder.read(&format!("{model}.out/metrics.jsonl"));
        serde_json::from_str(metrics.lines().nth(1).unwrap()).unwrap()
    };
    let (further, plain) = (step("further.json"), step("tiny-gpt2"));
    // First logits are so small that all tokens have the same loss, and the last of 16 tokens has none further on.
    let [loss, more] = ["loss", "further_loss"].map(|name| further[name].as_f64().unwrap());
    assert!((more / loss - 0.3 * 15.0 / 16.0).abs() < 0.01, "{further}");
    assert!(plain.get("further_loss").is_none(), "{plain}");
}

#[test]
fn the_configuration_changes_the_speed_and_not_the_loss() {
    let folder = Folder::new();
    folder.write("text.txt", &some_text());
    let loss = |mesh: &str| {
        let report = folder.json(&format!("{TINY} --parallel {mesh} --lr 0.01 --warmup 0 --format json"));
        report["valid_loss"].as_f64().unwrap()
    };
    let one = loss("dp=1");
    for mesh in ["dp=2", "tp=2,sp=true", "pp=2,schedule=gpipe", "dp=2,tp=2,pp=2,zero=1"] {
        let many = loss(mesh);
        assert!((one - many).abs() < 1e-3 * one, "{mesh}: {many} is not {one}");
    }
}

#[test]
fn train_prints_its_plan_its_progress_and_its_result() {
    let folder = Folder::new();
    folder.write("text.txt", &some_text());
    let text = folder.answer(&format!("{TINY} --parallel pp=2"));
    for part in ["model     tiny-gpt2", "stage 1: ", "baseline  ", "step 3/3", "validation loss", "baseline   ", "out"]
    {
        assert!(text.contains(part), "no `{part}` in\n{text}");
    }
}

#[test]
fn a_loss_that_is_no_number_ends_the_run_for_good() {
    let folder = Folder::new();
    folder.write("text.txt", &some_text());
    let output = folder.run(&format!("{TINY} --optimizer sgd --clip 0 --lr 1e30 --warmup 0"));
    assert_eq!(output.status.code(), Some(6));
    assert!(String::from_utf8_lossy(&output.stderr).contains("error[MW0706]"));
    let last = folder.read("out/metrics.jsonl");
    assert!(last.lines().last().is_some_and(|line| serde_json::from_str::<Value>(line).is_ok()), "{last}");
}

#[test]
fn a_dump_goes_on_from_where_it_stands() {
    let folder = Folder::new();
    let batch = "--seq 16 --global-batch 8";
    folder.answer(&format!("compile tiny-llama --parallel dp=2,tp=2,pp=2 {batch} --dump all"));
    let mut names: Vec<String> =
        fs::read_dir(folder.0.join("all")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names.pop().as_deref(), Some("memory.txt"));
    assert!(folder.read("all/memory.txt").starts_with("ranks  arena"));
    // Below the heading are all passes. Of these `recognise` and `simplify` run only where a model has simpler statements,
    // `slice` only where a schedule has slices, `quantise` only where a precision asks for it, `ring` only for rings, and `gather`
    // only for gathers once a step.
    assert_eq!(names.len(), folder.answer("passes").lines().count() - 7, "{names:?}");
    let last = names.last().unwrap();
    for name in names.iter().filter(|name| name.as_str() > "08") {
        let again = folder.answer(&format!("compile all/{name} {batch}"));
        assert!(again == folder.read(&format!("all/{last}")), "{name} ends elsewhere");
    }
    let stopped = folder.answer(&format!("compile tiny-llama --parallel dp=2,tp=2,pp=2 {batch} --stop-after annotate"));
    assert_eq!(stopped, folder.read(&format!("all/{}", names[3])));
}

#[test]
fn without_a_gpu_what_needs_one_says_what_is_missing() {
    let folder = Folder::new();
    for args in ["gpu-check", "gpu-check --format json", "train tiny-gpt2 --backend cuda", "calibrate --backend cuda"] {
        // A machine with a GPU hides it.
        let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
        let hidden = command.args(args.split(' ')).current_dir(&folder.0).env("CUDA_VISIBLE_DEVICES", "");
        let output = hidden.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args}: {text}");
        assert!(text.contains("error[MW0730]: no GPU can be used: ") && text.contains("= help: install"), "{text}");
        let named = text.contains("libcuda.so.1") || text.contains("shows none") || text.contains("says CUDA_ERROR");
        assert!(named || text.contains("libnvrtc") || text.contains("libcublasLt"), "{text}");
    }
}

#[test]
fn schedule_answers_in_json() {
    let folder = Folder::new();
    let report = folder.json("schedule --stages 4 --microbatches 8 --kind 1f1b --w 0 --format json");
    assert_eq!((report["makespan"].as_f64(), report["optimal"].as_bool()), (Some(22.0), Some(true)));
    folder.write("request.json", r#"{"kind": "1f1b", "stages": 4, "microbatches": 4, "costs": {"w": 0}}"#);
    let mut from_file = folder.json("schedule --request request.json --microbatches 8 --format json");
    from_file["seconds"] = report["seconds"].clone();
    assert_eq!(from_file, report);
}

#[test]
fn a_step_in_a_trace_stands_below_its_schedule() {
    let folder = Folder::new();
    folder.answer("compile tiny-llama --parallel pp=2 --global-batch 4 --predict --trace step.json");
    let asked = "schedule --stages 2 --microbatches 4 --kind 1f1b --f 0.002 --i 0.002 --w 0.002";
    for (format, start) in [("svg", "<svg "), ("html", "<!doctype html>")] {
        let both = folder.answer(&format!("{asked} --compare step.json --format {format}"));
        assert!(both.starts_with(start) && both.contains("1f1b: 2 ranks, 4 micro-batches"), "{both}");
        assert!(both.contains("step.json: 2 ranks, from a trace"), "{both}");
    }
    folder.answer(&format!("{asked} --format trace -o schedule.json"));
    let again = folder.answer(&format!("{asked} --compare schedule.json --format svg"));
    assert_eq!(again.matches("<title>0F3: ").count(), 2, "the schedule and its own trace");
}

#[test]
fn tables_list_what_there_is() {
    let folder = Folder::new();
    let verbs = [
        ("models", "tiny-llama"),
        ("schedules", "1f1b"),
        ("passes", "collectives"),
        ("clusters", "h100-p5-efa"),
        ("stacks", "nemo"),
    ];
    for (verb, name) in verbs {
        assert!(folder.answer(verb).contains(name));
        let rows = folder.json(&format!("{verb} --format json"));
        assert!(rows.as_array().unwrap().iter().any(|row| row["name"] == name), "{rows}");
    }
    assert!(folder.answer("error MW0204").contains("indivisible"));
}

#[test]
fn the_file_of_a_preset_is_a_file_to_start_from() {
    let folder = Folder::new();
    for (verb, name) in [("clusters", "h100"), ("clusters", "cpu"), ("stacks", "nemo")] {
        let text = folder.answer(&format!("{verb} {name}"));
        assert!(text.lines().any(|line| line.starts_with("# ")), "{verb} {name} has no sources");
        folder.write("mine.toml", &text);
        let figures = folder.json(&format!("{verb} {name} --format json"));
        assert_eq!(folder.json(&format!("{verb} mine.toml --format json")), figures);
        folder.write("again.toml", &folder.answer(&format!("{verb} mine.toml")));
        assert_eq!(folder.json(&format!("{verb} again.toml --format json")), figures);
    }
}

#[test]
fn a_stack_may_begin_from_another() {
    let folder = Folder::new();
    let file = |from: &str, rest: &str| format!("name = \"mine\"\nabout = \"ours\"\nfrom = \"{from}\"\n{rest}");
    folder.write("base.toml", &file("nemo", "[traits.zero]\nbucket = 1e6\n"));
    folder.write("inner/mine.toml", &file("../base.toml", "[traits.memory]\nreserve = 1.2\n"));
    let [mine, nemo] = ["inner/mine.toml", "nemo"].map(|name| folder.json(&format!("stacks {name} --format json")));
    assert_eq!(mine["fitted"], nemo["fitted"]);
    assert_eq!([&mine["traits"]["zero"]["bucket"], &mine["traits"]["memory"]["reserve"]], [1e6, 1.2]);
}

#[test]
fn codes_are_listed_and_explained() {
    let folder = Folder::new();
    let list = folder.answer("error");
    assert_eq!(list.lines().count(), 1 + CATALOGUE.len());
    let rows = folder.json("error --format json");
    assert_eq!(rows.as_array().unwrap().len(), CATALOGUE.len());
    for entry in CATALOGUE {
        let code = entry.code.to_string();
        let text = folder.answer(&format!("error {code}"));
        for part in [entry.title, entry.explanation, entry.arises(), entry.example.lines().next().unwrap(), entry.help]
        {
            assert!(text.contains(part), "{code} lacks `{part}`:\n{text}");
        }
    }
    assert_eq!(folder.json("error mw204 --format json")["code"], "MW0204");
}

/// Files that hold no text, as models, requests, configurations and costs.
#[test]
fn files_that_are_no_text_are_named() {
    let folder = Folder::new();
    for name in ["b.ir", "b.json", "b.toml"] {
        fs::write(folder.0.join(name), [0x7f, b'E', b'L', b'F', 0, 0xff, 0xfe, 0x80]).unwrap();
    }
    for args in [
        "compile b.ir",
        "compile b.json",
        "compile --request b.json",
        "train --config b.toml",
        "schedule --stages 1 --microbatches 1 --kind 1f1b --costs b.json",
    ] {
        let output = folder.run(args);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args}: {stderr}");
        assert!(stderr.contains("error[MW0801]: cannot read b.") && stderr.contains("UTF-8"), "{args}: {stderr}");
    }
}

#[cfg(unix)]
#[test]
fn arguments_that_are_no_text_are_refused() {
    use std::os::unix::ffi::OsStrExt;
    let wrong = std::ffi::OsStr::from_bytes(b"caf\xe9");
    let folder = Folder::new();
    for (args, code) in [
        (&["compile"][..], "MW0808"),
        (&["train", "tiny-gpt2", "--data"], "MW0805"),
        (&["train", "tiny-gpt2", "--out"], "MW0805"),
        (&["error"], "MW0808"),
    ] {
        let output = folder.command(args).arg(wrong).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(stderr.contains(&format!("error[{code}]")), "{args:?}: {stderr}");
        assert!(matches!(output.status.code(), Some(1 | 2)), "{args:?}: {stderr}");
    }
}

#[test]
fn who_reads_only_the_head_of_an_answer_sees_no_error() {
    let folder = Folder::new();
    let mut child = folder.command(&["compile", "gpt2"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut head = [0; 16];
    child.stdout.take().unwrap().read_exact(&mut head).unwrap();
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !told.contains("error"), "{output:?}");
}

#[cfg(target_os = "linux")]
#[test]
fn an_answer_that_cannot_be_written_is_an_error() {
    let folder = Folder::new();
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = folder.command(&["models"]).stdout(full).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr.contains("error[MW0801]: cannot write standard output"), "{stderr}");
}

/// A text that never ends is given up.
#[cfg(target_os = "linux")]
#[test]
fn a_file_without_an_end_is_refused() {
    let folder = Folder::new();
    std::os::unix::fs::symlink("/dev/zero", folder.0.join("endless.ir")).unwrap();
    let output = folder.run("compile endless.ir");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("error[MW0801]: cannot read endless.ir: it is a device, not a file"), "{stderr}");
}

/// A Llama whose text has lines of its own: in a comment they would end it.
const NAMED_BY_CODE: &str = r#"{"model_type":"llama","vocab_size":257,"max_position_embeddings":64,"hidden_size":16,
"intermediate_size":32,"num_hidden_layers":4,"num_attention_heads":4,"num_key_value_heads":2,"tie_word_embeddings":false,
"_name_or_path":
"$(touch pwned)"}"#;

/// Exports of a plan whose model is named by code run none of it.
#[test]
fn a_foreign_name_is_no_code() {
    let folder = Folder::new();
    folder.write("model.json", NAMED_BY_CODE);
    let mut plan = folder.json("estimate model.json --cluster h100 --gpus 2 --seq 64 --global-batch 4 --format json");
    plan["inputs"]["model"] = Value::from(NAMED_BY_CODE);
    folder.write("plan.json", &plan.to_string());
    folder.answer("export plan.json --to megatron -o run.sh");
    let script = folder.read("run.sh");
    assert!(script.contains(r#"\n"$(touch pwned)"#), "{script}");
    // No `torchrun` is found; what stands before it has run.
    let _ = Command::new("bash").arg("run.sh").current_dir(&folder.0).env("PATH", "/usr/bin:/bin").output().unwrap();
    assert!(!folder.0.join("pwned").exists());
    for target in ["torchtitan", "nanotron", "maxtext"] {
        let text = folder.answer(&format!("export plan.json --to {target}"));
        assert!(text.lines().all(|line| line.starts_with('#') || !line.contains("pwned")), "{target}: {text}");
    }
}

/// Messages about a file whose name would steer the terminal show its characters as escapes.
#[test]
fn a_foreign_name_steers_no_terminal() {
    let name = "no\u{1b}[2Jsuch\u{202e}\r.json";
    let job = ["--gpus", "2", "--seq", "16", "--global-batch", "2"];
    let output = Folder::new().command(&[&["estimate", name], &job[..]].concat()).output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(
        told.contains(r"no\u{1b}[2Jsuch\u{202e}\r.json") && !told.contains(['\u{1b}', '\u{202e}', '\r']),
        "{told:?}"
    );
}
