//! Files that begin from others.

use super::*;
use crate::traits::{Graphs, Hidden};
use ir::diag::Coded;
use std::collections::BTreeMap;

/// A stack from files by name, the presets among them.
fn read(files: &[(&str, &str)], first: &str) -> Result<Stack, PresetError> {
    let files: BTreeMap<&str, &str> = files.iter().copied().collect();
    Stack::read(files[first], &mut |name| match files.get(name) {
        Some(text) => Ok(BaseFile { place: name.into(), text: text.to_string() }),
        None => BaseFile::stack(name),
    })
}

const MINE: &str = "name = \"mine\"\nabout = \"ours\"\nfrom = \"megatron-core-2026\"\n";

#[test]
fn what_a_file_states_is_its_own_and_the_rest_is_as_it_began() {
    let yours = "name = \"yours\"\nabout = \"theirs\"\nfrom = \"mine\"\n[traits]\nhides = [\"dp\"]\n\
                 [traits.saved]\nnorm = 2.0\n";
    let mine = format!(
        "{MINE}[fitted]\nmatmul = {{ value = 0.8 }}\n[traits.zero]\nbucket = 1e6\n[traits.saved]\nrope = 1.0\n"
    );
    let stack = read(&[("mine", &mine), ("yours", yours)], "yours").unwrap();
    let (first, second) = (Stack::find("megatron-core-2025").unwrap(), Stack::find("megatron-core-2026").unwrap());
    assert_eq!((stack.name.as_str(), stack.about.as_str()), ("yours", "theirs"));
    let matmul = &stack.fitted.matmul;
    assert_eq!([matmul.value, matmul.low, matmul.high], [0.8, first.fitted.matmul.low, first.fitted.matmul.high]);
    assert_eq!((stack.fitted.overlap, &stack.residual), (first.fitted.overlap, &second.residual));
    assert_eq!((stack.traits.zero.bucket, stack.traits.hides), (1e6, [Hidden::Dp].into_iter().collect()));
    assert_eq!((stack.traits.saved.norm, stack.traits.saved.rope), (2.0, 1.0));
    let graphs = [&first, &second, &stack].map(|stack| stack.traits.launch.graphs);
    assert_eq!(graphs, [Graphs::Dense, Graphs::All, Graphs::All]);
}

/// A rule is restated by its name; each key has the comment before it as its source.
#[test]
fn rules_and_sources_are_inherited() {
    let mine = "name = \"mine\"\nabout = \"ours\"\nfrom = \"yours\"\n[supports.rules]\n# Ours.\nring = \"tp == 1\"\n";
    let yours = "name = \"yours\"\nabout = \"theirs\"\nfrom = \"nemo\"\n[supports]\n# A page,\n# its end.\nzero = [0]\n\n\
                 [supports.rules]\nring = \"cp == 1\"\n# Theirs.\nstages = \"layers % pp == 0\"\n";
    let supports = read(&[("mine", mine), ("yours", yours)], "mine").unwrap().supports;
    assert_eq!((supports.rules["ring"].text(), supports.rules["stages"].text()), ("tp == 1", "layers % pp == 0"));
    assert_eq!(["ring", "stages", "zero"].map(|key| supports.source(key)), ["Ours", "Theirs", "A page, its end"]);
    let wrong =
        read(&[("mine", &mine.replace("tp == 1", "tpp == 1")), ("yours", yours)], "mine").unwrap_err().to_string();
    assert!(wrong.contains("`tpp`"), "{wrong}");
}

#[test]
fn what_is_wrong_with_it_is_told() {
    let said = |files: &[(&str, &str)]| read(files, "mine").unwrap_err();
    let unknown = said(&[("mine", "from = \"fsdp-compil\"")]);
    assert_eq!(unknown.code(), Some(Code::UnknownStack));
    assert!(unknown.help().unwrap().contains("`fsdp-compile`"), "{unknown}");
    let circle = said(&[("mine", "from = \"yours\""), ("yours", "from = \"mine\"")]).to_string();
    assert!(circle.contains("circle: yours begins from mine begins from yours"), "{circle}");
    let number = said(&[("mine", "from = 3")]).to_string();
    assert!(number.contains("`from` is 3, expected the name"), "{number}");
    let unnamed = said(&[("mine", "from = \"nemo\"")]).to_string();
    assert!(unnamed.contains("missing field `name`"), "{unnamed}");
    let below =
        said(&[("mine", MINE.replace("megatron-core-2026", "yours").as_str()), ("yours", "from =")]).to_string();
    assert!(below.starts_with("yours: TOML parse error"), "{below}");
    let key = said(&[("mine", &format!("{MINE}[traits.zero]\nbuckets = 1e6\n"))]).to_string();
    assert!(key.contains("unknown field `buckets`") && key.contains("in `traits.zero"), "{key}");
    let member = said(&[("mine", &format!("{MINE}[traits]\nhides = [\"pp\"]\n"))]).to_string();
    assert!(member.contains("`pp` is none of tp, ") && member.contains("in `traits.hides"), "{member}");
    let range = said(&[("mine", &format!("{MINE}[fitted]\nmatmul = {{ value = 2.0 }}\n"))]).to_string();
    assert!(range.contains("`fitted.matmul` is 2"), "{range}");
}
