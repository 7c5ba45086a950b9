//! Every kind of file that a subcommand reads, with something wrong in it or in place of it.

use crate::cases::{Cases, Failure};
use crate::process::{Folder, run};
use crate::random::Random;
use crate::seeds::{self, Seed, words};
use crate::spoil::spoil;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

const CASES: u64 = 120;

#[test]
fn inputs() {
    let seeds = seeds::all();
    let kinds = kinds(&seeds);
    Cases::asked(CASES).run("inputs", 2, |case| {
        let mut random = Random::new(case);
        let kind = *random.pick(&kinds);
        let alike: Vec<&Seed> = seeds.iter().filter(|seed| seed.kind == kind).collect();
        let seed = *random.pick(&alike);
        let folder = Folder::new(&format!("fuzz-inputs-{case}"));
        write(seed, folder.path());
        let name = random.pick(&seed.spoiled).clone();
        spoil_file(&mut random, &folder.path().join(&name), &texts(&alike, &name));
        let command = random.pick(&seed.commands).clone();
        let ended = run(folder.path(), &words(&command));
        match ended.judged() {
            Ok(()) => Ok(format!("{kind}: exit status {}", ended.code().unwrap_or(-1))),
            Err(why) => Err(Failure {
                why: format!("`{name}` spoiled, meshwright {command}\n{why}"),
                folder: Some(folder.keep()),
            }),
        }
    });
}

/// Every kind once, so that each is spoiled as often.
fn kinds(seeds: &[Seed]) -> Vec<&'static str> {
    let mut kinds: Vec<&str> = seeds.iter().map(|seed| seed.kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

fn write(seed: &Seed, folder: &Path) {
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
