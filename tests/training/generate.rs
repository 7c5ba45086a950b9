//! Text that trained models continue: with bytes and with a tokenizer, from checkpoints of any mesh.

#[path = "../../runtime/weights/tests/folder/families.rs"]
mod families;
mod forward;

use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use tempfile::TempDir;

const LLAMA: &str = r#"{"model_type": "llama", "vocab_size": 257, "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 32}"#;

const GPT2: &str =
    r#"{"model_type": "gpt2", "n_embd": 32, "n_head": 4, "n_layer": 1, "n_positions": 32, "vocab_size": 340}"#;

const MIXTRAL: &str = r#"{"model_type": "mixtral", "vocab_size": 257, "hidden_size": 32, "intermediate_size": 48,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2,
    "max_position_embeddings": 32, "output_router_logits": true}"#;

const SHORT: &str = "--seq 16 --global-batch 16 --lr 1e-2 --warmup 5 --eval-every 0 --final-eval-batches 1";

fn run(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_meshwright")).args(args).current_dir(folder).output().unwrap()
}

fn answer(folder: &Path, args: &[&str]) -> String {
    let output = run(folder, args);
    assert!(output.status.success(), "meshwright {args:?}\n{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn words(folder: &Path, args: &str) -> String {
    answer(folder, &args.split_whitespace().collect::<Vec<_>>())
}

fn generated(folder: &Path, more: &[&str]) -> Value {
    let args = [&["generate", "out", "--format", "json"], more].concat();
    serde_json::from_str(&answer(folder, &args)).unwrap()
}

fn folder(config: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("config.json"), config).unwrap();
    fs::write(folder.path().join("text.txt"), "abcdefgh".repeat(2000)).unwrap();
    folder
}

#[test]
fn a_model_of_bytes_continues_what_it_was_trained_on() {
    let folder = folder(LLAMA);
    let folder = folder.path();
    let train = "train config.json --data text.txt --steps 40 --save-every 40 --parallel dp=2,tp=2,zero=1,mbs=4";
    words(folder, &format!("{train} {SHORT}"));
    let greedy = ["--prompt", "cdefgh", "--tokens", "30", "--temperature", "0"];
    let told = generated(folder, &greedy);
    // The text becomes longer than a sequence of the training.
    assert_eq!(told["text"], "abcdefgh".repeat(4)[..30]);
    assert_eq!((&told["step"], &told["prompt_tokens"], &told["ended"]), (&40.into(), &6.into(), &false.into()));
    assert_eq!(answer(folder, &[&["generate", "out"][..], &greedy[..4]].concat()).len(), 37);
    let drawn = |seed: &str| generated(folder, &["--prompt", "a", "--temperature", "9", "--seed", seed])["ids"].clone();
    assert_eq!(drawn("1"), drawn("1"));
    assert_ne!(drawn("1"), drawn("2"));
    // The checkpoint goes on under another mesh, and gives the same text.
    words(folder, "train --resume out --steps 41 --save-every 41 --parallel pp=2,mbs=8");
    let told = generated(folder, &greedy);
    assert_eq!((&told["step"], told["text"].as_str()), (&41.into(), Some(&"abcdefgh".repeat(4)[..30])));
}

/// The frequencies of a text go by its own length, not by the sequences of the training or by how many tokens follow. Each token is the
/// one that a request for it alone gives, on both sides of the context of 8 tokens.
/// Counts of experts' tokens and their loss are of training alone.
#[test]
fn a_model_of_balanced_experts_continues_what_it_was_trained_on() {
    let folder = folder(MIXTRAL);
    let folder = folder.path();
    let train = "train config.json --data text.txt --steps 60 --save-every 60 --parallel dp=2,ep=2,mbs=4";
    words(folder, &format!("{train} {SHORT}"));
    let told = generated(folder, &["--prompt", "cdefgh", "--tokens", "12", "--temperature", "0"]);
    assert_eq!(told["text"], "abcdefgh".repeat(2)[..12]);
}

#[test]
fn frequencies_go_by_the_length_of_the_text() {
    let folder = folder(
        r#"{"model_type": "phi3", "vocab_size": 257, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0, "max_position_embeddings": 32,
        "original_max_position_embeddings": 8, "rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.0, 1.0, 1.0],
        "long_factor": [9.0, 5.0, 3.0, 2.0]}}"#,
    );
    let folder = folder.path();
    words(folder, &format!("train config.json --data text.txt --steps 3 --save-every 3 {SHORT}"));
    for prompt in ["a", "bcd", "gfedc"] {
        let (mut text, mut ids) = (prompt.to_string(), Vec::new());
        for _ in 0..10 {
            let one = generated(folder, &["--prompt", &text, "--tokens", "1", "--temperature", "0"]);
            text += one["text"].as_str().unwrap();
            ids.extend(one["ids"].as_array().unwrap().clone());
        }
        let all = generated(folder, &["--prompt", prompt, "--tokens", "10", "--temperature", "0"]);
        assert_eq!(all["ids"].as_array().unwrap(), &ids, "{prompt}");
    }
}

#[test]
fn a_model_of_tokens_continues_text_and_ends_it() {
    let folder = folder(GPT2);
    let folder = folder.path();
    fs::write(folder.join("tokenizer.json"), include_str!("../tokenize/tokenizer.json")).unwrap();
    fs::write(folder.join("a.jsonl"), "{\"text\": \"one two three\"}\n".repeat(300)).unwrap();
    words(folder, "tokenize a.jsonl --tokenizer . --append-eos 0 --out tokens");
    words(folder, &format!("train config.json --data tokens --steps 40 --save-every 40 {SHORT}"));
    let told = generated(
        folder,
        &["--prompt", "one", "--tokenizer", ".", "--eos", "<|endoftext|>", "--temperature", "0", "--tokens", "60"],
    );
    assert_eq!((told["text"].as_str(), &told["ended"]), (Some(" two three"), &true.into()));
}

#[test]
fn what_is_wrong_with_a_request_is_named() {
    let folder = folder(GPT2);
    let folder = folder.path();
    words(folder, &format!("train config.json --data text.txt --steps 1 --save-every 1 {SHORT}"));
    fs::write(folder.join("tokenizer.json"), include_str!("../tokenize/tokenizer.json")).unwrap();
    let small = GPT2.replace("340", "300");
    fs::write(folder.join("small.json"), small).unwrap();
    for (args, code, said) in [
        (&["--prompt", ""][..], "MW0805", "the prompt has no tokens"),
        (&["--prompt", "a", "--temperature", "-1"], "MW0805", "`temperature` is -1"),
        (&["--prompt", "a", "--top-p", "0"], "MW0805", "`top_p` is 0"),
        (&["--prompt", "a", "--eos", "0"], "MW0805", "without a tokenizer its tokens are bytes"),
        (&["--prompt", "a", "--tokenizer", ".", "--eos", "none"], "MW0805", "`none` is no token"),
        (&["--prompt", "a", "--tokenizer", "config.json"], "MW0714", "config.json is no tokenizer"),
        (&["--prompt", "a", "--model", "small.json"], "MW0705", "`wte` is [340, 32] in out/step-00000001"),
        (&["--prompt", "a", "--model", "nothing"], "MW", "nothing"),
    ] {
        let output = run(folder, &[&["generate", "out"], args].concat());
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(&format!("error[{code}")), "{args:?}: {stderr}");
        assert!(stderr.contains(said), "{args:?}: {stderr}");
    }
    let output = run(folder, &["generate", "nowhere", "--prompt", "a"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("error[MW0720]"));
}
