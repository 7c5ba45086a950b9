//! `models --check` where there is no PyTorch, or a Python that says what it likes. `tests/transformers/checked.py` runs it with PyTorch.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn check(folder: &Path, model: &str, python: &str) -> Output {
    let words = ["models", "--check", model, "--python", python];
    Command::new(env!("CARGO_BIN_EXE_meshwright")).args(words).current_dir(folder).output().unwrap()
}

fn said(output: &Output) -> (Option<i32>, String, String) {
    let [text, complaint] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    (output.status.code(), text, complaint)
}

#[test]
fn what_is_not_compared_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let (status, text, _) = said(&check(folder.path(), "llama3-8b", "no-such-python"));
    assert_eq!(status, Some(0));
    assert!(text.contains("8030261248") && text.contains("LlamaForCausalLM"), "{text}");
    assert!(text.contains("not compared  count, logits and gradients: no-such-python: "), "{text}");
    fs::write(folder.path().join("a.ir"), include_str!("../../docs/example.ir")).unwrap();
    let (_, text, _) = said(&check(folder.path(), "llama3-8b", "true"));
    assert!(text.contains("true: it ended without an answer: is it a Python?"), "{text}");
    let (status, text, _) = said(&check(folder.path(), "a.ir", "no-such-python"));
    assert_eq!(status, Some(0));
    assert!(text.contains("4608") && text.contains("not compared  a.ir has no class in transformers"), "{text}");
    let (_, text, _) = said(&check(folder.path(), "nemotron4-15b+lora=8", "no-such-python"));
    assert!(text.contains("not compared  adapters: ") && !text.contains("compared with"), "{text}");
    assert_eq!(check(folder.path(), "no-such-model", "no-such-python").status.code(), Some(1));
}

/// A Python that writes a reply: the count of another model, or what is no reply.
#[cfg(unix)]
#[test]
fn another_count_is_a_fault() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let python = folder.path().join("python");
    let replies = [
        (
            r#"{"versions": "torch 1", "parameters": {"value": 7, "why": null}, "batch": [1, 1], "loss": {"value": null, "why": "no"}}"#,
            3,
            "its class has 7",
        ),
        (
            r#"{"versions": "torch 1", "parameters": {"value": 124439808, "why": null}, "batch": [1, 1], "loss": {"value": null, "why": "no"}}"#,
            0,
            "",
        ),
        ("none", 3, "a bad reply"),
    ];
    for (reply, status, why) in replies {
        fs::write(&python, format!("#!/bin/sh\ncat > \"$2/reply.json\" <<'END'\n{reply}\nEND\n")).unwrap();
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
        let (code, text, complaint) = said(&check(folder.path(), "gpt2", "./python"));
        assert_eq!(code, Some(status), "{complaint}");
        assert!(complaint.contains(why), "{complaint}");
        assert!(status != 0 || text.contains("not compared             logits and gradients: no"), "{text}");
    }
}
