//! Checkpoints: what one configuration saves any other loads to the bit, a resumed run is the unbroken one, and nothing damaged is
//! ever used.

#[cfg(unix)]
mod agreement;
#[cfg(target_os = "linux")]
mod chaos;
mod configurations;
#[cfg(unix)]
mod faults;
#[cfg(unix)]
mod launched;
#[cfg(unix)]
mod links;
mod runs;
mod skipped;
#[cfg(unix)]
mod stuck;

use runs::{Folder, copy, data_files, losses};
use std::fs;

/// A GPT-2 with dropout in all three places.
const CONFIG: &str = r#"{"model_type": "gpt2", "vocab_size": 257, "n_positions": 16, "n_embd": 16, "n_layer": 4,
    "n_head": 4, "n_inner": 50, "embd_pdrop": 0.1, "attn_pdrop": 0.1, "resid_pdrop": 0.1}"#;

const TRAIN: &str = "train config.json --data text.txt --seq 16 --global-batch 8 --lr 0.01 --warmup 2 --steps 6 \
    --eval-every 2 --eval-batches 1 --save-every 2 --parallel dp=2,tp=2,pp=2,zero=1";

/// A run of six steps in `a` that retained all its checkpoints, and the same in `b` as if it had been killed behind step 5.
fn broken_run() -> Folder {
    let folder = Folder::new();
    folder.write("config.json", CONFIG);
    folder.write("text.txt", &runs::text());
    folder.answer(&format!("{TRAIN} --keep-last 9 --out a"));
    copy(&folder.path("a"), &folder.path("b"));
    fs::rename(folder.path("b/step-00000006"), folder.path("b/step-00000006.partial")).unwrap();
    let metrics = folder.read("b/metrics.jsonl");
    let torn = metrics.rfind(r#"{"step":6"#).unwrap() + 20;
    folder.write("b/metrics.jsonl", &metrics[..torn]);
    folder
}

#[test]
fn a_resumed_run_is_the_unbroken_one() {
    let folder = broken_run();
    let answer = folder.answer("train --resume b");
    assert!(answer.contains("resumed   after step 4 of 6, from b/step-00000004"), "{answer}");
    assert_eq!(losses(&folder.read("b/metrics.jsonl")), losses(&folder.read("a/metrics.jsonl")));
    assert_eq!(data_files(&folder.path("b/step-00000006")), data_files(&folder.path("a/step-00000006")));
    assert_eq!(folder.steps("b"), [2, 4, 6]);

    // The end is as good as any other place.
    let metrics = losses(&folder.read("b/metrics.jsonl"));
    assert!(folder.answer("train --resume b").contains("train loss"));
    assert_eq!(losses(&folder.read("b/metrics.jsonl")), metrics);

    // Further on, with fewer checkpoints, by `out` and not by name; and from an older one, whose future is dropped.
    folder.answer("train --resume --out b --steps 8 --keep-last 2");
    assert_eq!(folder.steps("b"), [6, 8]);
    folder.answer("train --config b/run.toml --resume b/step-00000006 --steps 7");
    assert_eq!(folder.steps("b"), [6, 7]);
}

#[test]
fn a_run_goes_on_under_another_configuration() {
    let folder = broken_run();
    let want = folder.json("train --resume a --format json");
    for (out, mesh) in [("c", "dp=1"), ("d", "dp=4,zero=1"), ("e", "tp=4,sp=true"), ("f", "pp=4,schedule=gpipe")] {
        let got = folder.json(&format!("train --resume a/step-00000004 --out {out} --parallel {mesh} --format json"));
        let (got, want) = (got["valid_loss"].as_f64().unwrap(), want["valid_loss"].as_f64().unwrap());
        assert!((got - want).abs() < 1e-3 * want, "{mesh}: {got} is not {want}");
        assert_eq!(losses(&folder.read(&format!("{out}/metrics.jsonl")))[0].0, 4);
        assert_eq!(folder.steps(out), [6]);
    }
}

#[test]
fn a_run_that_cannot_resume_leaves_no_folder() {
    let folder = Folder::new();
    folder.write("config.json", CONFIG);
    folder.write("text.txt", &runs::text());
    let (status, message) = folder.failure(&format!("{TRAIN} --resume wrong --out a"));
    assert_eq!(status, 1, "{message}");
    assert!(message.contains("MW0720"), "{message}");
    assert!(!folder.path("a").exists() && !folder.path("wrong").exists());
}

#[test]
fn a_damaged_checkpoint_is_refused_by_name() {
    let folder = broken_run();
    let file = "b/step-00000004/data-0001.safetensors";
    let bytes = fs::read(folder.path(file)).unwrap();
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 4;
    let kinds = [(Some(&bytes[..bytes.len() - 1]), "bytes, not"), (Some(&flipped), "checksum"), (None, "is missing")];
    for (content, why) in kinds {
        match content {
            Some(content) => fs::write(folder.path(file), content).unwrap(),
            None => fs::remove_file(folder.path(file)).unwrap(),
        }
        let (status, message) = folder.failure("train --resume b");
        assert_eq!(status, 6, "{message}");
        for part in ["MW0721", "b/step-00000004 is damaged: data-0001.safetensors", why] {
            assert!(message.contains(part), "no `{part}` in {message}");
        }
        assert!(message.contains("meshwright train --resume b/step-00000002\n"), "{message}");
    }
    // What was offered is right, and ends as the unbroken run did.
    folder.answer("train --resume b/step-00000002");
    assert_eq!(losses(&folder.read("b/metrics.jsonl")), losses(&folder.read("a/metrics.jsonl")));
    assert_eq!(data_files(&folder.path("b/step-00000006")), data_files(&folder.path("a/step-00000006")));
}

#[test]
fn a_run_does_not_mix_with_another_one() {
    let folder = broken_run();
    let metrics = folder.read("a/metrics.jsonl");
    folder.write("other.txt", &runs::text().replace("fox", "dog"));
    folder.write("deeper.json", &CONFIG.replace("\"n_layer\": 4", "\"n_layer\": 5"));
    for (args, parts) in [
        ("--resume a --seq 8", &["MW0705", "`seq` is 8, in the checkpoint 16"][..]),
        ("--resume a --seed 7 --optimizer sgd", &["`optimizer` is sgd, in the checkpoint adamw; `seed` is 7"]),
        ("--resume a --beta1 0.8 --eps 1e-6", &["`beta1` is 0.8, in the checkpoint 0.9; `eps` is 1e-6"]),
        ("--resume a --data other.txt", &["`data.crc32` is", "in the checkpoint"]),
        ("deeper.json --resume a", &["`model.layers` is 5, in the checkpoint 4"]),
    ] {
        let (status, message) = folder.failure(&format!("train {args}"));
        assert_eq!(status, 6, "{message}");
        parts.iter().for_each(|part| assert!(message.contains(part), "no `{part}` in {message}"));
    }
    let (status, message) = folder.failure("train --resume nosuch/x");
    assert!(status == 6 || status == 1, "{message}");
    assert!(!folder.path("nosuch").exists(), "a run that cannot be resumed leaves no folder");
    let (status, message) = folder.failure("train --resume a --steps 3");
    assert!(status == 1 && message.contains("has done 6"), "{message}");
    let (status, message) = folder.failure(&format!("{TRAIN} --out a"));
    assert!(status == 1 && message.contains("MW0724"), "{message}");
    assert_eq!(folder.read("a/metrics.jsonl"), metrics);
}

/// A limit on the size of files stands for a full disk: the system refuses in the midst of a data file.
#[cfg(unix)]
#[test]
fn a_full_disk_leaves_what_was_there() {
    let folder = broken_run();
    let meshwright = env!("CARGO_BIN_EXE_meshwright");
    let script = format!("trap '' XFSZ; ulimit -f 16; exec {meshwright} train --resume b");
    let output = std::process::Command::new("sh").args(["-c", &script]).current_dir(folder.path("")).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{message}");
    for part in ["MW0723", "b/step-00000006 cannot be written: ", "--resume b resumes after step 4"] {
        assert!(message.contains(part), "no `{part}` in {message}");
    }
    assert_eq!(folder.steps("b"), [2, 4]);
    assert!(!folder.path("b/step-00000006.partial").exists());
    folder.answer("train --resume b");
    assert_eq!(losses(&folder.read("b/metrics.jsonl")), losses(&folder.read("a/metrics.jsonl")));
}

/// YaRN's factor of attention scores is `0.1 ln(factor) + 1`: 17 digits, of which a careless reader misses the last bit.
#[test]
fn a_run_with_yarn_goes_on() {
    let folder = Folder::new();
    folder.write("text.txt", &runs::text());
    for factor in ["4.0", "16.0", "32.0", "40.0"] {
        let scaling = format!(
            r#"{{"rope_type": "yarn", "factor": {factor}, "original_max_position_embeddings": 16, "beta_fast": 32, "beta_slow": 1}}"#
        );
        let config = format!(
            r#"{{"model_type": "llama", "vocab_size": 257, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
            "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 64, "rope_scaling": {scaling}}}"#
        );
        folder.write("config.json", &config);
        let options = "--data text.txt --seq 16 --global-batch 4 --steps 2 --save-every 1 --eval-batches 1";
        folder.answer(&format!("train config.json {options} --out yarn-{factor}"));
        let answer = folder.answer(&format!("train --resume yarn-{factor} --steps 3"));
        assert!(answer.contains("resumed   after step 2"), "{answer}");
    }
}
