//! Examples with labels of their own, as files of tokens.

use crate::random::Random;
use meshwright::tokenize::{Tokenize, tokenize};
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};

/// Writes `count` examples of 2 to `longest` tokens below `vocabulary` into a folder. Returns the prefix of the files.
///
/// Labels count in runs: of some examples nearly all do, of others few, and of every eighth none.
pub(crate) fn write(folder: &Path, count: u64, longest: u64, vocabulary: u64) -> PathBuf {
    let mut random = Random::new(count);
    let mut lines = String::new();
    for number in 0..count {
        let length = 2 + random.below(longest as usize - 1);
        let ids: Vec<usize> = (0..length).map(|_| random.below(vocabulary as usize)).collect();
        let (mut counts, change) = (false, 10 + 80 * (number % 2));
        let labels = ids.iter().map(|&id| {
            counts ^= random.chance(change);
            if counts && number % 8 != 7 { id as i64 } else { -100 }
        });
        lines += &format!("{}\n", json!({"input_ids": ids, "labels": labels.collect::<Vec<i64>>()}));
    }
    let (input, tokenizer, out) = (folder.join("lines.jsonl"), folder.join("tokenizer.json"), folder.join("examples"));
    fs::write(&input, lines).unwrap();
    fs::write(&tokenizer, include_str!("../tokenize/tokenizer.json")).unwrap();
    let inputs = [input];
    let order = Tokenize {
        inputs: &inputs,
        tokenizer: &tokenizer,
        out: &out,
        append_eos: None,
        text_key: None,
        chat_template: None,
    };
    tokenize(&order, &mut |_| true).unwrap_or_else(|why| panic!("{why}"));
    out
}
