//! Recipes that others published: what of each is read, and what is not modelled.
//!
//! `BLESS=1 cargo test -p meshwright-exports recipes` writes the list.

use super::*;
use crate::maxtext::Devices;
use serde::Deserialize;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// A recipe with its origin.
#[derive(Deserialize)]
struct Recipe {
    file: String,
    /// Repository, path and commit, or package and version.
    source: String,
    gpus: u64,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/exports/recipes")
}

impl Recipe {
    fn read(&self) -> Result<Present, FlagError> {
        let text = fs::read_to_string(folder().join(&self.file)).unwrap();
        match self.file.split('/').next().unwrap() {
            "megatron" => megatron::read(&text, Some(self.gpus)),
            "torchtitan" => torchtitan_file::read(&text, Form::Toml, Some(self.gpus)),
            "nanotron" => nanotron_file::read(&text),
            "deepspeed" => deepspeed_file::read(&text, Some(self.gpus)),
            "maxtext" => maxtext::read(&text, Some(Devices { count: self.gpus, per_node: 8 })),
            other => panic!("{other} is no framework"),
        }
    }

    /// Lines of the list: the parts that are read, and those that are not.
    fn told(&self) -> String {
        let Recipe { file, source, gpus } = self;
        let mut text = format!("{file}\n    {gpus} devices; {source}\n");
        let present = match self.read() {
            Ok(present) => present,
            Err(fault) => return text + &format!("    refused: {fault}\n"),
        };
        let mut stated = vec![present.precision.clone(), present.optimizer.clone()];
        stated.extend(present.grad_dtype.iter().map(|dtype| format!("gradients {dtype}")));
        stated.extend(present.seq.iter().map(|seq| format!("{seq} tokens")));
        stated.extend(present.global_batch.iter().map(|batch| format!("{batch} sequences")));
        stated.extend(present.stack.clone());
        let _ = writeln!(text, "    {}\n    {}", present.parallel, stated.join(", "));
        let model = present.model.clone().or_else(|| present.stated.preset().map(str::to_string));
        let _ = writeln!(text, "    model: {}", model.unwrap_or_else(|| "MODEL says".to_string()));
        for warning in &present.warnings {
            let _ = writeln!(text, "    {warning}");
        }
        text
    }
}

#[test]
fn recipes_are_read_without_a_dropped_flag() {
    let sources = fs::read_to_string(folder().join("sources.jsonl")).unwrap();
    let recipes: Vec<Recipe> = sources.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let refused = recipes.iter().filter(|recipe| recipe.read().is_err()).count();
    assert!(recipes.len() - refused >= 40, "{refused} of {} are refused", recipes.len());
    let list: String = recipes.iter().map(|recipe| recipe.told() + "\n").collect();
    let path = folder().join("read.txt");
    if std::env::var_os("BLESS").is_some() {
        fs::write(path, list).unwrap();
    } else {
        let remedy = "BLESS=1 cargo test -p meshwright-exports recipes rewrites it";
        assert!(fs::read_to_string(&path).is_ok_and(|written| written == list), "{}: {remedy}", path.display());
    }
}
