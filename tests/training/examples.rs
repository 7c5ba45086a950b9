//! Fine-tuning: the loss of examples with labels of their own is the same on every layout, goes on after a stop, and its data is checked.

#[path = "../support/examples.rs"]
mod written;

use meshwright::train::{EvalRecord, Progress, RunHeader, StepRecord, TrainRequest, train};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

const SEQ: u64 = 48;
/// The most that two layouts differ in a loss or a norm, relative: sums of f32 in another order.
const APART: f64 = 2e-5;

/// The losses, the norms, and the tokens that count, of a run.
#[derive(Default)]
struct Collected {
    figures: Vec<f64>,
    counted: Vec<u64>,
    real: Vec<u64>,
}

impl Progress for Collected {
    fn started(&mut self, _: &RunHeader) {}
    fn step(&mut self, step: &StepRecord) {
        self.figures.extend([step.loss, step.grad_norm]);
        self.figures.extend(step.balance_loss);
        self.counted.extend(step.examples.map(|tokens| tokens.counted));
        self.real.extend(step.examples.map(|tokens| tokens.real));
    }
    fn evaluating(&mut self, _: u64) {}
    fn evaluated(&mut self, eval: &EvalRecord) {
        self.figures.push(eval.valid_loss);
    }
}

fn model(family: &str, fields: &Value) -> String {
    let mut model = json!({"model_type": family, "vocab_size": 340, "max_position_embeddings": 64, "hidden_size": 24,
        "intermediate_size": 26, "num_hidden_layers": 4, "num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": 4,
        "rms_norm_eps": 1e-5, "tie_word_embeddings": false, "initializer_range": 0.1});
    let (all, fields) = (model.as_object_mut().unwrap(), fields.as_object().unwrap());
    all.extend(fields.clone());
    model.to_string()
}

fn request(folder: &Path, model: &str, mesh: &str, out: &str) -> TrainRequest {
    TrainRequest {
        model: model.into(),
        parallel: mesh.into(),
        data: folder.join("examples"),
        steps: 3,
        seq: SEQ,
        global_batch: 24,
        lr: 0.1,
        warmup: 0,
        lr_schedule: "constant".into(),
        optimizer: "sgd".into(),
        valid_fraction: 0.3,
        out: folder.join(out),
        ..TrainRequest::default()
    }
}

fn trained(request: &TrainRequest) -> Collected {
    let mut found = Collected::default();
    train(request, &mut found).unwrap_or_else(|why| panic!("{}: {why}", request.parallel));
    found
}

fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    written::write(folder.path(), 150, 60, 340);
    folder
}

fn are_equal(model: &str, meshes: &[&str]) {
    let folder = folder();
    let alone = trained(&request(folder.path(), model, "mbs=4", "alone"));
    assert!(alone.counted.iter().all(|&counted| counted > 100 && counted < 24 * SEQ / 2), "{:?}", alone.counted);
    assert!(alone.real.iter().all(|&real| real < 24 * SEQ && real > 22 * SEQ), "{:?}", alone.real);
    for (number, mesh) in meshes.iter().enumerate() {
        let found = trained(&request(folder.path(), model, mesh, &number.to_string()));
        assert_eq!((&found.counted, &found.real), (&alone.counted, &alone.real), "{mesh}");
        assert_eq!(found.figures.len(), alone.figures.len());
        for (found, alone) in found.figures.iter().zip(&alone.figures) {
            assert!((found - alone).abs() <= APART * alone.abs(), "{mesh}: {found} and {alone}");
        }
    }
}

#[test]
fn the_loss_is_that_of_one_device_on_every_layout() {
    let meshes = [
        "dp=4,mbs=1",
        "dp=2,zero=3,mbs=3",
        "cp=2,cp_kind=ring",
        "cp=4,cp_kind=ring,dp=2",
        "cp=2,pp=2,schedule=seq1f1b,cp_kind=ring",
        "cp=2,cp_kind=ulysses",
        "pp=2,mbs=2",
        "pp=2,schedule=seq1f1b,slices=3",
        "tp=2,sp=true,dp=2",
        "cp=2,tp=2,pp=2,schedule=zb-h1",
    ];
    are_equal(&model("llama", &json!({})), &meshes);
}

#[test]
fn experts_see_tokens_that_do_not_count() {
    let experts = json!({"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": null,
        "output_router_logits": true, "router_aux_loss_coef": 0.1, "num_hidden_layers": 2});
    let meshes = ["dp=4,ep=4,mbs=1", "dp=2,tp=2,ep=2,mbs=2", "cp=2,ep=2,cp_kind=ring,mbs=4", "dp=2,pp=2,ep=2,mbs=2"];
    // A loss of micro-batches depends on these: all have four sequences.
    are_equal(&model("mixtral", &experts), &meshes);
}

#[test]
fn a_resumed_run_goes_on_with_the_next_examples() {
    let folder = folder();
    let model = model("llama", &json!({}));
    let saved = TrainRequest { save_every: 2, steps: 6, ..request(folder.path(), &model, "dp=2", "whole") };
    let whole = trained(&saved);
    let cut = TrainRequest { steps: 4, out: folder.path().join("cut"), ..saved.clone() };
    trained(&cut);
    let resumed = TrainRequest { resume: Some("".into()), steps: 6, out: cut.out.clone(), ..saved.clone() };
    let found = trained(&resumed);
    assert_eq!(found.figures[found.figures.len() - 5..], whole.figures[whole.figures.len() - 5..]);
    let other = TrainRequest { loss_on: Some("all".into()), ..resumed };
    let why = train(&other, &mut Collected::default()).unwrap_err().message();
    assert!(why.contains("loss_on"), "{why}");
}

#[test]
fn all_tokens_count_if_asked() {
    let folder = folder();
    let model = model("llama", &json!({}));
    let all = TrainRequest { loss_on: Some("all".into()), ..request(folder.path(), &model, "", "all") };
    let found = trained(&all);
    assert!(found.counted.iter().all(|&counted| counted > 22 * SEQ), "{:?}", found.counted);
    fs::write(folder.path().join("text.txt"), "some text ".repeat(100)).unwrap();
    for (loss_on, data, why) in [
        (Some("prompt"), "examples", "`loss_on` is prompt, but must be completion or all"),
        (Some("all"), "text.txt", "`loss_on` is for data with labels of its own"),
        (None, "lines.jsonl", "lines.jsonl has examples as lines of JSON"),
    ] {
        let loss_on = loss_on.map(str::to_string);
        let refused =
            TrainRequest { loss_on, data: folder.path().join(data), ..request(folder.path(), &model, "", "refused") };
        let error = train(&refused, &mut Collected::default()).unwrap_err().message();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn examples_that_do_not_fit_are_told() {
    let folder = folder();
    let model = model("llama", &json!({}));
    let short = TrainRequest { seq: 16, ..request(folder.path(), &model, "", "short") };
    let report = train(&short, &mut Collected::default()).unwrap();
    let counts = report.run.examples.unwrap().train;
    assert!(counts.cut > 10 && counts.without_label > 5, "{counts:?}");
    let none = TrainRequest { seq: 1, ..request(folder.path(), &model, "", "none") };
    fs::write(folder.path().join("one.jsonl"), "{\"input_ids\": [1, 2, 3, 4], \"labels\": [-100, -100, -100, 4]}\n")
        .unwrap();
    let output = run(folder.path(), "tokenize one.jsonl --tokenizer . --out one");
    assert!(output.status.success());
    let one = folder.path().join("one");
    let none = TrainRequest { data: one.clone(), valid: Some(one), ..none };
    let why = train(&none, &mut Collected::default()).unwrap_err().message();
    assert!(why.contains("has no example with a label that counts in a window of 1 token"), "{why}");
}

#[test]
fn labels_that_are_cut_short_are_found() {
    let folder = folder();
    let labels = folder.path().join("examples.labels");
    let bytes = fs::read(&labels).unwrap();
    let mut strange = bytes.clone();
    strange[..4].copy_from_slice(&(-2i32).to_le_bytes());
    strange[4..8].copy_from_slice(&(-2i32).to_le_bytes());
    let request = request(folder.path(), &model("llama", &json!({})), "", "out");
    for (bytes, why) in [(&bytes[..bytes.len() - 4], "have labels of 32 bits"), (&strange, "has the number -2")] {
        fs::write(&labels, bytes).unwrap();
        let error = train(&request, &mut Collected::default()).unwrap_err().message();
        assert!(error.contains(why), "{error}");
    }
    fs::remove_file(&labels).unwrap();
    let error = train(&request, &mut Collected::default()).unwrap_err().message();
    assert!(error.contains("examples.labels"), "{error}");
}

fn run(folder: &Path, args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
    command.args(args.split_whitespace()).current_dir(folder).output().unwrap()
}

const TURNS: &str = "{% for message in messages %}<{{ message.role }}>{{ message.content }}</>\n{% endfor %}\
    {% if add_generation_prompt %}<assistant>{% endif %}";

/// A template that leaves out what the assistant thought before, once there is more.
const FORGETFUL: &str = "{% for message in messages %}<{{ message.role }}>{% if loop.last %}{{ message.content }}\
    {% endif %}</>\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}";

#[test]
fn what_is_wrong_with_an_example_is_named() {
    let folder = folder();
    fs::create_dir(folder.path().join("chat")).unwrap();
    fs::copy(folder.path().join("tokenizer.json"), folder.path().join("chat/tokenizer.json")).unwrap();
    fs::write(folder.path().join("chat/chat_template.jinja"), TURNS).unwrap();
    fs::write(folder.path().join("forgetful.jinja"), FORGETFUL).unwrap();
    fs::write(folder.path().join("broken.jinja"), "{% for %}").unwrap();
    fs::write(folder.path().join("raising.jinja"), "{{ raise_exception('no system') }}").unwrap();
    fs::write(folder.path().join("text.txt"), "text").unwrap();
    let good = r#"{"input_ids": [1, 2], "labels": [-100, 2]}"#;
    let said = r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}"#;
    let twice = r#"{"messages": [{"role": "assistant", "content": "b"}, {"role": "assistant", "content": "c"}]}"#;
    for (line, args, why) in [
        (r#"{"input_ids": [1, 2], "labels": [1]}"#, ".", "it has 2 input_ids, but 1 labels"),
        (r#"{"input_ids": [1, 340]}"#, ".", "the id 340 of token 1 is not from 0 to 339"),
        (
            r#"{"input_ids": [1, 2], "labels": [-100, 340]}"#,
            ".",
            "the label 340 of token 1 is neither -100 nor from 0 to 339",
        ),
        (r#"{"input_ids": [1, 2], "labels": [-1, 2]}"#, ".", "the label -1 of token 0 is neither"),
        (r#"{"prompt": "a", "completion": ""}"#, ".", "the completion is empty"),
        (r#"{"prompt": "a ", "completion": "the"}"#, ".", "the tokenizer joins what counts to the text before it"),
        (r#"{"prompt": "a", "completion": 5}"#, ".", "not two texts, nor two lists of messages"),
        (r#"{"prompt": "a"}"#, ".", "neither `messages`, nor `prompt` and `completion`, nor `input_ids`"),
        (r#"{"messages": 5}"#, "chat", "`messages` is no list of messages"),
        (r#"{"messages": [{"content": "a"}]}"#, "chat", "message 1 of `messages` has no `role`"),
        (r#"{"messages": [{"role": "user", "content": "a"}]}"#, "chat", "there is no message of the assistant"),
        (said, ".", "messages need a chat template"),
        (said, "chat --chat-template raising.jinja", "the chat template refuses the messages: no system (line 1"),
        (twice, "chat --chat-template forgetful.jinja", "renders the text before message 1 differently"),
        ("{\"messages\": [", "chat", "EOF while parsing"),
    ] {
        fs::write(folder.path().join("bad.jsonl"), format!("{good}\n\n{line}\n")).unwrap();
        let output = run(folder.path(), &format!("tokenize bad.jsonl --tokenizer {args} --out out"));
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            told.contains(&format!("bad.jsonl:3: {why}")) || told.contains("bad.jsonl:3: ") && told.contains(why),
            "{line}: {told}"
        );
        assert!(!folder.path().join("out.bin").exists() && !folder.path().join("out.labels").exists());
    }
    fs::write(folder.path().join("good.jsonl"), said).unwrap();
    for (args, why) in [
        (
            "good.jsonl --tokenizer chat --chat-template broken.jinja",
            "broken.jinja has no chat template that can be read",
        ),
        ("good.jsonl --tokenizer chat --chat-template nowhere.jinja", "nowhere.jinja has no chat template"),
        ("text.txt good.jsonl --tokenizer chat", "text.txt is text, but good.jsonl has examples"),
    ] {
        let output = run(folder.path(), &format!("tokenize {args} --out out"));
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.contains(why), "{args}: {told}");
    }
}

/// Conversations, prompts with completions, and lists of messages with those that answer.
#[test]
fn completions_count_alone() {
    let folder = folder();
    fs::write(folder.path().join("template.jinja"), TURNS).unwrap();
    let turn = |role: &str, content: &str| json!({"role": role, "content": content});
    let [asks, says] = [turn("user", "who"), turn("assistant", "me")];
    let lines = [
        json!({"prompt": "who", "completion": " me"}),
        json!({"messages": [asks, says, asks, says]}),
        json!({"prompt": [asks, says, asks], "completion": [says]}),
    ];
    fs::write(folder.path().join("in.jsonl"), lines.map(|line| line.to_string() + "\n").concat()).unwrap();
    let args = "tokenize in.jsonl --tokenizer . --chat-template template.jinja --append-eos 0 --out out --format json";
    let output = run(folder.path(), args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let bytes = fs::read(folder.path().join("out.labels")).unwrap();
    let labels: Vec<i32> = bytes.as_chunks::<4>().0.iter().map(|label| i32::from_le_bytes(*label)).collect();
    let parts: Vec<usize> = labels.chunk_by(|a, b| (*a < 0) == (*b < 0)).map(<[i32]>::len).collect();
    let ids = fs::read(folder.path().join("out.bin")).unwrap().len() / 2;
    assert_eq!(labels.len(), ids);
    // A completion and the end; two turns, of which the last has the end; the last turn alone.
    assert_eq!(parts.len(), 2 + 4 + 2, "{labels:?}");
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["counted"], labels.iter().filter(|&&label| label >= 0).count());
}
