//! Two processes that were started by hand with random flags: with the same ones they train or both refuse, with others both end before
//! the first step.

use crate::cases::{Cases, Failure};
use crate::models;
use crate::process::{Ended, Folder, start_rank};
use crate::random::Random;
use crate::seeds::{TEXT, text, words};
use std::fs;
use std::path::Path;

const CASES: u64 = 16;

/// Flags of `train`, each with values of which no two mean the same.
const FLAGS: [(&str, &[&str]); 30] = [
    ("--lr", &["0.01", "0.5", "0"]),
    ("--warmup", &["0", "1", "7"]),
    ("--lr-schedule", &["constant", "linear", "wsd", "nonsense"]),
    ("--seed", &["1", "2", "18446744073709551615"]),
    ("--optimizer", &["sgd", "muon", "nonsense"]),
    ("--weight-decay", &["0", "0.5", "-1"]),
    ("--clip", &["0", "0.5", "-1"]),
    ("--precision", &["bf16", "f16", "nonsense"]),
    ("--seq", &["4", "16", "0"]),
    ("--global-batch", &["4", "6", "3", "0"]),
    ("--valid-fraction", &["0.2", "0.5", "0"]),
    ("--eval-every", &["1", "2", "3"]),
    ("--eval-batches", &["1", "2"]),
    ("--final-eval-batches", &["1", "2", "0"]),
    ("--save-every", &["1", "2"]),
    ("--keep-last", &["1", "2", "0"]),
    ("--check-replicas", &["1", "2"]),
    ("--silence", &["3", "5", "0"]),
    ("--timeout", &["30", "90", "0"]),
    ("--parallel", &["tp=2", "pp=2", "dp=2,zero=1", "dp=4", "dp=1", "dp=3"]),
    ("--mbs", &["2", "3"]),
    ("--steps", &["1", "3", "0"]),
    ("--data", &["../other.txt", "../missing.txt", ".."]),
    ("--out", &["../b", "../c", "/dev/null/d"]),
    ("--no-fusion", &[""]),
    ("--poison", &[""]),
    ("--profile", &[""]),
    ("--compare-data", &[""]),
    ("--trace", &["../t.json", "/nowhere/t.json"]),
    ("--init-from", &["..", "../missing"]),
];

const BASE: &str = "train ../config.json --comm tcp";
const DEFAULTS: [(&str, &str); 8] = [
    ("--parallel", "dp=2"),
    ("--data", "../text.txt"),
    ("--seq", "8"),
    ("--global-batch", "2"),
    ("--mbs", "1"),
    ("--steps", "2"),
    ("--valid-fraction", "0.1"),
    ("--out", "../a"),
];

#[test]
fn ranks() {
    Cases::asked(CASES).run("ranks", 2, |case| {
        let mut random = Random::new(case);
        let folder = Folder::new(&format!("fuzz-ranks-{case}"));
        prepare(folder.path());
        let both = drawn(&mut random, 2);
        let second = if random.chance(40) { Vec::new() } else { drawn(&mut random, 2) };
        let one = command(&both, &[]);
        let other = command(&both, &second);
        let ended = run_both(folder.path(), [&one, &other], random.chance(50));
        match judged(&ended, one == other) {
            Ok(word) => Ok(word),
            Err(why) => {
                let folder = Some(folder.keep());
                Err(Failure { why: format!("{}\n{}\n{why}", one.join(" "), other.join(" ")), folder })
            }
        }
    });
}

fn prepare(folder: &Path) {
    fs::write(folder.join("config.json"), models::all()[1].to_string()).unwrap();
    fs::write(folder.join(TEXT), text()).unwrap();
    fs::write(folder.join("other.txt"), text().replace('e', "i")).unwrap();
}

/// Up to a number of flags with values.
fn drawn(random: &mut Random, most: u64) -> Vec<(&'static str, &'static str)> {
    (0..random.between(1, most))
        .map(|_| {
            let (flag, values) = *random.pick(&FLAGS);
            (flag, *random.pick(values))
        })
        .collect()
}

/// The words of a process: the defaults, replaced by what both have, and that by its own.
fn command(both: &[(&str, &str)], own: &[(&str, &str)]) -> Vec<String> {
    let mut flags: Vec<(&str, &str)> = Vec::new();
    for &(flag, value) in DEFAULTS.iter().chain(both).chain(own) {
        flags.retain(|(other, _)| *other != flag);
        flags.push((flag, value));
    }
    flags.sort_unstable();
    let mut args = words(BASE);
    args.extend(flags.iter().map(|(flag, value)| match *value {
        "" => (*flag).to_string(),
        value => format!("{flag}={value}"),
    }));
    args
}

/// Runs both processes, each in a folder of its own.
fn run_both(folder: &Path, args: [&[String]; 2], has_secret: bool) -> [Ended; 2] {
    let (port, secret) = (tcp::free_port().unwrap(), has_secret.then_some("what both processes know"));
    let started = [0, 1].map(|number| start_rank(folder, number, args[number], port, secret));
    started.map(|process| process.end())
}

fn judged(ended: &[Ended; 2], is_same: bool) -> Result<String, String> {
    for (number, ended) in ended.iter().enumerate() {
        ended.judged().map_err(|why| format!("process {number}: {why}"))?;
        if ended.is_interrupted() {
            return Err(format!("process {number} does not end"));
        }
    }
    let codes = [&ended[0], &ended[1]].map(Ended::code);
    let words = if is_same { "the same flags" } else { "other flags" };
    let said = || format!("{codes:?} by {words}\n{}\n{}", ended[0].stderr, ended[1].stderr);
    match codes {
        [Some(0), Some(0)] if is_same => Ok("train".to_string()),
        [Some(0), Some(0)] => Err(said()),
        [Some(0), _] | [_, Some(0)] => Err(said()),
        _ => Ok(format!("refuse {words}")),
    }
}
