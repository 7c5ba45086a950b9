//! Every kind of file that a subcommand reads, with something wrong in it or in place of it.

use crate::cases::{Cases, Failure};
use crate::process::{Folder, run};
use crate::random::Random;
use crate::seeds::{self, Seed, words};
use crate::spoil::spoil;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

const CASES: u64 = 120;

#[test]
fn inputs() {
    let seeds = seeds::all();
    Cases::asked(CASES).run("inputs", 2, |case| spoiled("inputs", &seeds, case));
}

/// Spoils a file of one of the seeds, and runs a command that reads it.
pub(crate) fn spoiled(name: &str, seeds: &[Seed], case: u64) -> Result<String, Failure> {
    let mut random = Random::new(case);
    let kind = *random.pick(&kinds(seeds));
    let alike: Vec<&Seed> = seeds.iter().filter(|seed| seed.kind == kind).collect();
    let seed = *random.pick(&alike);
    let folder = Folder::new(&format!("fuzz-{name}-{case}"));
    write(seed, folder.path());
    let file = random.pick(&seed.spoiled).clone();
    spoil_file(&mut random, &folder.path().join(&file), &texts(&alike, &file));
    let command = random.pick(&seed.commands).clone();
    let before = listed(folder.path());
    let ended = run(folder.path(), &words(&command));
    let judged = ended.judged().and_then(|()| match half_written(folder.path(), &before) {
        Some(path) if ended.code() != Some(0) => Err(format!("it leaves {path} half written")),
        _ => Ok(()),
    });
    match judged {
        Ok(()) => Ok(format!("{kind}: exit status {}", ended.code().unwrap_or(-1))),
        Err(why) => {
            let why = format!("`{file}` spoiled, meshwright {command}\n{why}");
            Err(Failure { why, folder: Some(folder.keep()) })
        }
    }
}

/// The names in a folder.
fn listed(folder: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(folder).unwrap().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// A new file that no command writes whole: a part of one, or one half of a pair.
fn half_written(folder: &Path, before: &BTreeSet<String>) -> Option<String> {
    let now = listed(folder);
    let is_part = |name: &&String| name.contains(".partial") || name.contains(".tmp") || name.starts_with("written");
    now.difference(before).find(is_part).cloned()
}

/// Every kind once, so that each is spoiled as often.
fn kinds(seeds: &[Seed]) -> Vec<&'static str> {
    let mut kinds: Vec<&str> = seeds.iter().map(|seed| seed.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

pub(crate) fn write(seed: &Seed, folder: &Path) {
    for (name, bytes) in &seed.files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

/// Files of the same kind as texts, to splice from.
fn texts(alike: &[&Seed], name: &str) -> Vec<String> {
    let found = alike.iter().filter_map(|seed| seed.files.get(name));
    found.map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect()
}

fn spoil_file(random: &mut Random, path: &Path, others: &[String]) {
    if random.chance(4) {
        return replace(random, path);
    }
    let mut bytes = fs::read(path).unwrap();
    let times = if random.chance(70) { 1 } else { random.between(2, 4) };
    for _ in 0..times {
        bytes = spoil(random, &bytes, others);
    }
    fs::write(path, bytes).unwrap();
}

/// Something that is no regular file in its place, or nothing.
fn replace(random: &mut Random, path: &Path) {
    fs::remove_file(path).unwrap();
    match random.below(6) {
        0 => {}
        1 => fs::create_dir(path).unwrap(),
        2 => symlink(path, path).unwrap(),
        3 => symlink("/dev/zero", path).unwrap(),
        4 => symlink("/dev/full", path).unwrap(),
        _ => assert!(Command::new("mkfifo").arg(path).status().unwrap().success()),
    }
}
