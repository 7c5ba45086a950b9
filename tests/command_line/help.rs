//! The examples of the help texts, run as they stand by a shell, in the order in which the texts have them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The words with which an example begins, in lines that are broken as a shell allows.
const EXAMPLE: &str = "  meshwright ";

/// Measures all of a machine, for a minute: it is not run.
const LONG: &str = "meshwright calibrate -o here.toml";

/// The most columns of an example. A longer line is broken by the help's own layout, and no shell takes it.
const COLUMNS: usize = 98;

/// A folder with the files that examples read; gone when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        let path = std::env::temp_dir().join(format!("meshwright-help-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        let (folder, root) = (Folder(path), Path::new(env!("CARGO_MANIFEST_DIR")));
        let text: String = (0..3000).map(|i| format!("{} plus {i} is {}.\n", i / 2, i / 2 + i)).collect();
        for name in ["book.txt", "notes/a.txt"] {
            folder.write(name, &text);
        }
        let runs = fs::read_to_string(root.join("tests/accuracy/runs.jsonl")).unwrap();
        // The first line has the models of the runs.
        let is_asked = |run: &&str| run.starts_with("{\"models\"") || run.contains("\"stack\":\"zero-bubble-2023\"");
        let few: Vec<&str> = runs.lines().filter(is_asked).collect();
        folder.write("runs.jsonl", &few.join("\n"));
        folder.write("configs.jsonl", "{\"parallel\": \"tp=8,zero=1\"}\n{\"parallel\": \"zero=3\"}\n");
        folder.write("docs/example.ir", &fs::read_to_string(root.join("docs/example.ir")).unwrap());
        let config = "{\"model_type\": \"llama\", \"vocab_size\": 257, \"hidden_size\": 32, \"intermediate_size\": 64, \
                      \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"max_position_embeddings\": 256}";
        folder.write("path/to/config.json", config);
        let registry =
            "def llama3_8b():\n    return Trainer.Config(training=TrainingConfig(local_batch_size=1, seq_len=8192))\n";
        folder.write("config_registry.py", registry);
        let nanotron = "parallelism: {dp: 8, tp: 2, pp: 1}\nmodel: {model_config: {is_llama_config: true}}\n\
                        tokens: {sequence_length: 2048, micro_batch_size: 1, batch_accumulation_per_replica: 4}\n";
        folder.write("config.yaml", nanotron);
        let deepspeed = r#"{"train_batch_size": 64, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}"#;
        folder.write("ds_config.json", deepspeed);
        let maxtext = "model_name: llama3-8b\nper_device_batch_size: 1\nici_fsdp_parallelism: 8\n";
        folder.write("llama3_8b.yml", maxtext);
        let torch = "schedule --stages 4 --microbatches 8 --kind 1f1b --format csv -o torch.csv";
        assert!(folder.shell(&format!("meshwright {torch}")).status.success());
        folder.write("a.jsonl", "{\"text\": \"one\"}\n");
        let tokenizer = fs::read_to_string(root.join("tests/tokenize/tokenizer.json")).unwrap();
        folder.write("path/to/tokenizer.json", &tokenizer);
        let template = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}";
        folder.write("path/to/chat_template.jinja", template);
        folder.write("chats.jsonl", r#"{"messages": [{"role": "assistant", "content": "text"}]}"#);
        let train =
            "train path/to/config.json --data book.txt --steps 1 --final-eval-batches 1 --save-every 1 --out first";
        let both = format!("meshwright {train} && meshwright export-weights first --out path/to/model");
        assert!(folder.shell(&both).status.success());
        folder
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn shell(&self, line: &str) -> Output {
        let binary = Path::new(env!("CARGO_BIN_EXE_meshwright")).parent().unwrap();
        let path = format!("{}:{}", binary.display(), std::env::var("PATH").unwrap_or_default());
        Command::new("sh").args(["-c", line]).env("PATH", path).current_dir(&self.0).output().unwrap()
    }

    fn help(&self, args: &str) -> String {
        let help = self.shell(&format!("meshwright {args} --help"));
        assert!(help.status.success(), "{args}");
        String::from_utf8(help.stdout).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The subcommands that a help text lists.
fn subcommands(help: &str) -> Vec<&str> {
    let list = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    list.filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).filter(|name| !name.is_empty()).collect()
}

/// The examples of a help text, without what is said behind them.
fn examples(help: &str) -> Vec<String> {
    let (_, lines) = help.split_once("Examples:\n").unwrap_or_default();
    let mut examples: Vec<String> = Vec::new();
    let mut is_open = false;
    let is_comment = |line: &&str| line.trim_start().starts_with('#');
    for line in lines.lines().take_while(|line| !line.is_empty()).filter(|line| !is_comment(line)) {
        assert!(line.len() <= COLUMNS, "`{line}` is too long to be copied");
        assert!(is_open || line.starts_with(EXAMPLE), "`{line}` belongs to no example");
        let part = line.trim_start().split("    ").next().unwrap().trim_end();
        let continued = part.strip_suffix('\\');
        let part = continued.unwrap_or(part).trim_end();
        match examples.last_mut().filter(|_| is_open) {
            Some(last) => *last = format!("{last} {part}"),
            None => examples.push(part.to_string()),
        }
        is_open = continued.is_some();
    }
    examples
}

/// An example with a few steps of training, on as few tokens.
fn shortened(example: &str) -> String {
    let parts = ["meshwright train", "-- train"].into_iter().find_map(|start| {
        let at = example.find(start)? + start.len();
        Some(example.split_at(at))
    });
    let Some((before, train)) = parts.filter(|(_, rest)| !rest.contains("--simulate")) else {
        return example.to_string();
    };
    let steps = if train.contains("--resume") { "4" } else { "2" };
    let mut words: Vec<&str> = train.split(' ').collect();
    match words.iter().position(|word| *word == "--steps") {
        Some(place) => words[place + 1] = steps,
        None => words.extend(["--steps", steps]),
    }
    format!("{before}{} --final-eval-batches 1", words.join(" "))
}

#[test]
fn examples_of_help_texts_run() {
    let folder = Folder::new();
    let front = folder.help("");
    let names = subcommands(&front);
    assert!(names.len() > 10, "{names:?}");
    let mut all = examples(&front);
    for name in names.iter().filter(|name| **name != "help") {
        all.extend(examples(&folder.help(name)));
    }
    let mut known = BTreeSet::new();
    all.retain(|example| known.insert(example.clone()));
    assert!(all.len() > 40 && known.contains(LONG), "{all:?}");
    for example in all.iter().filter(|example| *example != LONG) {
        let output = folder.shell(&shortened(example));
        let stderr = String::from_utf8_lossy(&output.stderr);
        // A machine without a GPU says so.
        let lacks_gpu = stderr.contains("MW0730") && (example.contains("cuda") || example.contains("gpu-check"));
        assert!(output.status.success() || lacks_gpu, "{example}\n{}\n{stderr}", output.status);
    }
}
