//! Case files: the first line is `// meshwright: <command>`, then the input, a line `----`, the whole answer. `BLESS=1`
//! writes the answers again. An input that parses must have a printed form that is a fixed point of parse and print.

use ir::text::{parse, print};
use std::fs;
use std::path::{Path, PathBuf};

const COMMAND: &str = "// meshwright: ";
const LINE: &str = "\n----\n";

/// A case: what to do with which text.
pub(crate) struct Case<'a> {
    /// The name of the file, without folders.
    pub(crate) file: &'a str,
    /// The command after `meshwright:`.
    pub(crate) command: &'a str,
    /// The input; the line of the command is empty, so that line numbers are those of the case file.
    pub(crate) input: &'a str,
}

/// Runs all cases in a folder and those below it; panics with every case that went wrong.
pub(crate) fn run(folder: &Path, answer: impl Fn(&Case<'_>) -> String) {
    let mut files = Vec::new();
    collect(folder, &mut files);
    assert!(!files.is_empty(), "there are no cases in {}", folder.display());
    let wrong: Vec<String> = files.iter().filter_map(|file| check(file, &answer).err()).collect();
    assert!(wrong.is_empty(), "{} of {} cases are wrong\n\n{}", wrong.len(), files.len(), wrong.join("\n\n"));
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("a folder's entry").path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "ir") {
            files.push(path);
        }
    }
}

fn check(path: &Path, answer: &impl Fn(&Case<'_>) -> String) -> Result<(), String> {
    let wrong = |what: String| format!("{}: {what}", path.display());
    let text = fs::read_to_string(path).map_err(|why| wrong(why.to_string()))?;
    let (head, want) = text.split_once(LINE).unwrap_or((&text, ""));
    let (first, rest) = head.split_once('\n').unwrap_or((head, ""));
    let command = first.strip_prefix(COMMAND).ok_or_else(|| wrong(format!("begins without `{COMMAND}`")))?;
    let input = format!("\n{}\n", rest.trim_end());
    let file = path.file_name().and_then(|name| name.to_str()).unwrap_or("case.ir");
    round_trip(&input).map_err(wrong)?;
    let got = answer(&Case { file, command, input: &input });
    if std::env::var_os("BLESS").is_some() {
        let whole = format!("{first}\n{}{LINE}{got}", rest.trim_end());
        return fs::write(path, whole).map_err(|why| wrong(why.to_string()));
    }
    if got == want { Ok(()) } else { Err(wrong(format!("the answer differs\n-- wanted --\n{want}\n-- got --\n{got}"))) }
}

/// The printed form of a text that parses is a fixed point.
pub(crate) fn round_trip(source: &str) -> Result<(), String> {
    let Ok(file) = parse(source) else { return Ok(()) };
    let printed = print(&file);
    let again =
        parse(&printed).map_err(|why| format!("its print does not parse:\n{}", why.render("print", &printed)))?;
    let twice = print(&again);
    if twice == printed { Ok(()) } else { Err(format!("its print is no fixed point:\n{printed}\n-- then --\n{twice}")) }
}

/// The commands of the text form: `parse` and `verify`.
pub(crate) fn text_answer(case: &Case<'_>) -> Option<String> {
    let verify = match case.command {
        "parse" => false,
        "verify" => true,
        _ => return None,
    };
    let file = match parse(case.input) {
        Ok(file) => file,
        Err(why) => return Some(why.render(case.file, case.input)),
    };
    if !verify {
        return Some(print(&file));
    }
    match ir::verify::verify_planned(&file.model) {
        Ok(()) => Some("ok\n".to_string()),
        Err(why) => Some(why.render(case.file, case.input)),
    }
}
