//! `train --backend cuda` on the stand-in: what it reports of every step is what the CPU reports.

use crate::stand_in::on_stand_in;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Steps of each run.
const STEPS: usize = 4;

/// Models of a few thousand parameters, as `config.json` states them.
pub(crate) const LLAMA: &str = r#"{"model_type": "llama", "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 257, "max_position_embeddings": 64}"#;
pub(crate) const MIXTRAL: &str = r#"{"model_type": "mixtral", "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 257, "max_position_embeddings": 64,
    "num_local_experts": 4, "num_experts_per_tok": 2}"#;
/// Routers with a loss and a bias that counts move.
pub(crate) const BALANCED: &str = r#"{"model_type": "deepseek_v3", "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 257, "max_position_embeddings": 64, "q_lora_rank": 8,
    "kv_lora_rank": 8, "qk_nope_head_dim": 4, "qk_rope_head_dim": 4, "v_head_dim": 8, "n_routed_experts": 4, "n_group": 2,
    "topk_group": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "first_k_dense_replace": 1, "router_balance": "sequence",
    "router_balance_coef": 0.1, "router_z_loss_coef": 0.01, "router_bias_update_rate": 0.01}"#;
pub(crate) const GPT2: &str = r#"{"model_type": "gpt2", "n_embd": 16, "n_layer": 1, "n_head": 4, "vocab_size": 257, "n_positions": 64,
    "resid_pdrop": 0.1, "attn_pdrop": 0.1, "embd_pdrop": 0.1}"#;

/// A folder with a model and a text, for runs of one test.
pub(crate) struct Runs<'a> {
    stand_in: &'a Path,
    folder: PathBuf,
}

/// The numbers that a run reported: for each step the loss and the norm of the gradient, and the validation loss at its end.
pub(crate) type Curve = Vec<f64>;

impl Runs<'_> {
    pub(crate) fn new<'a>(stand_in: &'a Path, name: &str, model: &str) -> Runs<'a> {
        let folder = stand_in.join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("config.json"), model).unwrap();
        let words = ["the", "river", "stone", "green", "light", "and", "of", "a"];
        let word = |i: usize| words[(i * i + i / 7) % words.len()];
        fs::write(folder.join("text.txt"), (0..2000).map(word).collect::<Vec<_>>().join(" ")).unwrap();
        Runs { stand_in, folder }
    }

    /// A path in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Trains on a backend, with options besides those of all runs.
    pub(crate) fn run(&self, backend: &str, options: &[&str]) -> Output {
        self.with(backend, options, &[])
    }

    /// The same with settings of the stand-in.
    pub(crate) fn with(&self, backend: &str, options: &[&str], settings: &[(&str, &str)]) -> Output {
        self.command(&[], backend, options).envs(settings.iter().copied()).output().unwrap()
    }

    /// The command of a run, behind that of a launcher if there is one. Its outputs are in a folder of the backend's name.
    pub(crate) fn command(&self, launcher: &[&str], backend: &str, options: &[&str]) -> Command {
        let mut train = Command::new(env!("CARGO_BIN_EXE_meshwright"));
        train.args(launcher).arg("train").arg(self.folder.join("config.json"));
        train.arg("--data").arg(self.folder.join("text.txt")).args(["--backend", backend, "--out"]);
        train.arg(self.folder.join(backend)).args(["--seq", "8", "--final-eval-batches", "2"]);
        for (name, number) in [("--steps", STEPS.to_string()), ("--global-batch", "4".to_string())] {
            let is_given = options.contains(&name);
            train.args([name, &number].into_iter().filter(|_| !is_given));
        }
        on_stand_in(train.args(options), self.stand_in);
        let _ = fs::remove_dir_all(self.folder.join(backend));
        train
    }

    /// The numbers that a run reported.
    ///
    /// # Panics
    /// If the run failed.
    pub(crate) fn curve(&self, backend: &str, options: &[&str]) -> Curve {
        self.curve_with(backend, options, &[])
    }

    /// The same with settings of the stand-in.
    pub(crate) fn curve_with(&self, backend: &str, options: &[&str], settings: &[(&str, &str)]) -> Curve {
        let output = self.with(backend, options, settings);
        assert!(output.status.success(), "{options:?}: {}", String::from_utf8_lossy(&output.stderr));
        let curve = self.reported(backend);
        assert_eq!(curve.len(), 2 * STEPS + 1);
        curve
    }

    /// The records of the last run on a backend.
    pub(crate) fn records(&self, backend: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.folder.join(backend).join("metrics.jsonl")).unwrap();
        text.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The numbers that the last run on a backend reported.
    pub(crate) fn reported(&self, backend: &str) -> Curve {
        let numbers = |record: Value| {
            let numbers = ["loss", "grad_norm", "valid_loss"].map(|key| record.get(key).cloned());
            numbers.into_iter().flatten().map(|number| number.as_f64().unwrap_or(f64::NAN)).collect::<Vec<_>>()
        };
        self.records(backend).into_iter().flat_map(numbers).collect()
    }
}

/// The largest relative difference of two curves.
pub(crate) fn apart(a: &Curve, b: &Curve) -> f64 {
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b).abs() / a.abs())
        .fold(0.0, |most, one| if one > most || one.is_nan() { one } else { most })
}
