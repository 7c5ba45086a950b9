//! Programs of every level, spoiled by bytes and by tokens: each is compiled or answered with a message of its own. None
//! panics, and none is taken for an internal fault.

use crate::cases::{Cases, Failure};
use crate::process::Folder;
use crate::random::Random;
use crate::spoil::spoil;
use ir::text::{File, parse, print};
use ir::verify::verify_planned;
use meshwright::compiler::compile::{CompileRequest, compile_source};
use meshwright::compiler::error::Error;
use meshwright::compiler::model_source::ModelSource;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

const CASES: u64 = 600;
const MESHES: [&str; 4] = ["", "dp=2", "tp=2", "dp=2,tp=2,pp=2,zero=1"];

#[test]
fn texts() {
    let texts = every_level();
    Cases::asked(CASES).run("texts", 1, |case| {
        let mut random = Random::new(case);
        let mut text = random.pick(&texts).clone().into_bytes();
        for _ in 0..random.between(1, 3) {
            text = spoil(&mut random, &text, &texts);
        }
        let (text, mesh) = (String::from_utf8_lossy(&text).into_owned(), *random.pick(&MESHES));
        match catch_unwind(AssertUnwindSafe(|| answered(&text, mesh))) {
            Ok(Ok(())) => Ok("answered".into()),
            Ok(Err(why)) => Err(kept(case, &text, format!("on `{mesh}`: {why}"))),
            Err(_) => Err(kept(case, &text, format!("panics on `{mesh}`"))),
        }
    });
}

/// The failure of a case, with its text in a file.
fn kept(case: u64, text: &str, why: String) -> Failure {
    let folder = Folder::new(&format!("fuzz-texts-{case}"));
    std::fs::write(folder.path().join("spoiled.ir"), text).unwrap();
    Failure { why, folder: Some(folder.keep()) }
}

/// The example, and what every pass makes of it on the largest mesh.
fn every_level() -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/example.ir");
    let source = ModelSource::open(&path.display().to_string()).unwrap();
    let order = CompileRequest { parallel: MESHES[3].into(), ..CompileRequest::default() };
    let mut texts = vec![std::fs::read_to_string(&path).unwrap()];
    compile_source(&source, &order, None, &mut |_, file| texts.push(print(file))).unwrap();
    texts
}

/// Everything that is done with a text ends with an answer or a message.
fn answered(text: &str, mesh: &str) -> Result<(), String> {
    let file = match parse(text) {
        Ok(file) => file,
        Err(found) => return message(&found.render("spoiled.ir", text)),
    };
    if let Err(found) = verify_planned(&file.model) {
        message(&found.render("spoiled.ir", text))?;
    }
    let source = ModelSource::Text { from: "spoiled.ir".into(), source: text.into(), file: Box::new(file) };
    let order = CompileRequest { parallel: mesh.into(), ..CompileRequest::default() };
    match compile_source(&source, &order, None, &mut |_, _| {}) {
        Ok(file) => reads_back(&file),
        Err(fault @ Error::Fault { .. }) => Err(fault.to_string()),
        Err(error) => message(&error.to_string()),
    }
}

fn reads_back(file: &File) -> Result<(), String> {
    let printed = print(file);
    let again = parse(&printed).map_err(|found| format!("its program does not read back: {found}"))?;
    if print(&again) == printed { Ok(()) } else { Err("its program reads back otherwise".into()) }
}

/// A message has a code and says what to do.
fn message(text: &str) -> Result<(), String> {
    if text.starts_with("error[MW") && text.contains("= help: ") { Ok(()) } else { Err(text.to_string()) }
}
