//! The dialect: closures with a name, patterns of tuples as parameters, arrays of booleans and errors that are strings are counted by
//! crate. The budgets of `budgets.toml` only fall.

use super::{Source, block_lines, indent, none_of, root, sources};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const BUDGETS: &str = "tests/tidy/budgets.toml";

/// A way to write that a crate has a budget for.
struct Idiom {
    name: &'static str,
    /// Advice to its writer.
    remedy: &'static str,
    /// Occurrences in a line of code. The line after it is given too.
    count: fn(&str, &str) -> usize,
}

/// The idioms, in the order of a budget's numbers.
const IDIOMS: [Idiom; 4] = [
    Idiom {
        name: "local closures",
        remedy: "inline one that is used once, and make the others methods of what they capture, or functions",
        count: closures,
    },
    Idiom {
        name: "tuple or array patterns as parameters",
        remedy: "take a struct with named fields, or a parameter for each value",
        count: tuple_parameters,
    },
    Idiom {
        name: "arrays of booleans",
        remedy: "take a struct with named fields, or a set of an enum's variants",
        count: boolean_arrays,
    },
    Idiom {
        name: "`Result`s whose error is a `String`",
        remedy: "return an enum of the errors that implements `Display`",
        count: string_errors,
    },
];

type Counts = [usize; IDIOMS.len()];

/// The places of each idiom in a crate, `file:line`.
type Places = [Vec<String>; IDIOMS.len()];

#[test]
fn the_dialect_stays_within_its_budgets() {
    let crates = places_by_crate();
    let mut text = fs::read_to_string(root().join(BUDGETS)).expect("the budgets are there");
    if std::env::var_os("BLESS").is_some() {
        text = lowered(&text, &crates);
        fs::write(root().join(BUDGETS), &text).expect("the budgets can be written");
    }
    let budgets = budgets(&text);
    let mut complaints = Vec::new();
    for (name, places) in &crates {
        match budgets.get(name.as_str()) {
            Some(budget) => complaints.extend(complaints_of(name, places, budget)),
            None => complaints.push(format!("{BUDGETS}: add `{}`", budget_line(name, &counts(places)))),
        }
    }
    let gone = budgets.keys().filter(|name| !crates.contains_key(**name));
    complaints.extend(gone.map(|name| format!("{BUDGETS}: take out `{name}`: there is no such crate")));
    none_of(complaints);
}

fn complaints_of(name: &str, places: &Places, budget: &Counts) -> Vec<String> {
    let mut complaints = Vec::new();
    for ((idiom, places), budget) in IDIOMS.iter().zip(places).zip(budget) {
        let found = places.len();
        if found > *budget {
            let above = format!("`{name}`: {found} {}, where its budget is {budget}: {}", idiom.name, idiom.remedy);
            complaints.push(format!("{above}\n  {}", places.join("\n  ")));
        } else if found < *budget {
            complaints.push(format!(
                "{BUDGETS}: `{name}` has {found} {}: lower the budget from {budget} to {found}; `BLESS=1` lowers all",
                idiom.name
            ));
        }
    }
    complaints
}

/// Numbers by crate of lines `name = [closures, tuples, booleans, strings]`.
fn budgets(text: &str) -> BTreeMap<&str, Counts> {
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    lines.map(|line| budget(line).unwrap_or_else(|| panic!("{BUDGETS}: `{line}` is no budget"))).collect()
}

fn budget(line: &str) -> Option<(&str, Counts)> {
    let (name, numbers) = line.split_once(" = ")?;
    let numbers = numbers.strip_prefix('[')?.strip_suffix(']')?;
    let numbers: Vec<usize> = numbers.split(", ").map(str::parse).collect::<Result<_, _>>().ok()?;
    Some((name, numbers.try_into().ok()?))
}

fn budget_line(name: &str, counts: &Counts) -> String {
    format!("{name} = {counts:?}")
}

fn counts(places: &Places) -> Counts {
    places.each_ref().map(Vec::len)
}

/// The text of the budgets, where no number is above the crate's count.
fn lowered(text: &str, crates: &BTreeMap<String, Places>) -> String {
    let lines = text.lines().map(|line| match budget(line) {
        Some((name, budget)) if crates.contains_key(name) => {
            let found = counts(&crates[name]);
            budget_line(name, &std::array::from_fn(|idiom| budget[idiom].min(found[idiom])))
        }
        _ => line.to_string(),
    });
    lines.map(|line| line + "\n").collect()
}

/// The places of all idioms in the code of each crate that has any.
fn places_by_crate() -> BTreeMap<String, Places> {
    let sources = sources();
    let tests = test_modules(&sources);
    let folders = crate_folders();
    let mut crates: BTreeMap<String, Places> =
        folders.iter().map(|(_, name)| (name.clone(), Places::default())).collect();
    for source in &sources {
        let holders = folders.iter().filter(|(folder, _)| source.is_under(folder));
        let (folder, name) = holders.max_by_key(|(folder, _)| folder.len()).expect("the root holds all");
        let is_code = source.is_under(&join(folder, "src")) && !tests.iter().any(|test| source.is_under(test));
        if is_code {
            let places = crates.get_mut(name).expect("each crate has its places");
            add_places(source, places);
        }
    }
    crates
}

fn add_places(source: &Source, places: &mut Places) {
    let lines = code(&source.text);
    for (at, (number, line)) in lines.iter().enumerate() {
        let next = lines.get(at + 1).map_or("", |(_, next)| next);
        for (idiom, places) in IDIOMS.iter().zip(&mut *places) {
            let place = format!("{}:{number}", source.path);
            places.extend(std::iter::repeat_n(place, (idiom.count)(line, next)));
        }
    }
}

/// Folder and name of each crate, without the prefix that all names have. The root's folder is empty.
fn crate_folders() -> Vec<(String, String)> {
    let mut manifests = Vec::new();
    super::walk(root(), "Cargo.toml", &mut manifests);
    let mut crates = Vec::new();
    for path in manifests {
        let manifest = fs::read_to_string(&path).expect("a manifest is text");
        let name = manifest.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
        let name = name.expect("a manifest names its crate");
        let folder = path.parent().and_then(|folder| folder.strip_prefix(root()).ok()).expect("walked from the root");
        let folder = folder.to_string_lossy().replace('\\', "/");
        crates.push((folder, name.strip_prefix("meshwright-").unwrap_or(name).to_string()));
    }
    crates
}

/// Files and folders of the modules that are declared for tests alone.
fn test_modules(sources: &[Source]) -> BTreeSet<String> {
    let mut modules = BTreeSet::new();
    for source in sources {
        let path = Path::new(&source.path);
        let folder = path.parent().map_or(String::new(), |folder| folder.to_string_lossy().into_owned());
        let stem = path.file_stem().expect("a file has a name").to_string_lossy();
        let inner = if matches!(&*stem, "mod" | "lib" | "main") { folder.clone() } else { join(&folder, &stem) };
        let lines: Vec<&str> = source.text.lines().map(str::trim).collect();
        for (at, _) in lines.iter().enumerate().filter(|(_, line)| **line == "#[cfg(test)]") {
            let attributes = lines[at + 1..].iter().take_while(|line| line.starts_with("#["));
            let named = attributes.clone().find_map(|line| line.strip_prefix("#[path = \"")?.strip_suffix("\"]"));
            let item = lines.get(at + 1 + attributes.count()).copied().unwrap_or_default();
            let module = item.split_once("mod ").and_then(|(_, module)| module.strip_suffix(';'));
            match (named, module) {
                (Some(file), Some(_)) => _ = modules.insert(join(&folder, file)),
                (None, Some(name)) => {
                    modules.extend([join(&inner, &format!("{name}.rs")), join(&inner, name)]);
                }
                _ => {}
            }
        }
    }
    modules
}

fn join(folder: &str, inner: &str) -> String {
    if folder.is_empty() { inner.to_string() } else { format!("{folder}/{inner}") }
}

/// The lines of code with their numbers, without comments and items of tests.
fn code(text: &str) -> Vec<(usize, &str)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut code = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        if line.trim() == "#[cfg(test)]" {
            at += 1 + block_lines(&lines[at + 1..], indent(line));
            continue;
        }
        if !line.trim_start().starts_with("//") {
            code.push((at + 1, line));
        }
        at += 1;
    }
    code
}

/// `let name = |..|`, also where the closure has a line of its own.
fn closures(line: &str, next: &str) -> usize {
    let statements = line.split("let ").skip(1).filter(|statement| {
        let statement = statement.strip_prefix("mut ").unwrap_or(statement);
        let name = statement.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || c == '_');
        let has_name = name.len() < statement.len() && (name.starts_with(" =") || name.starts_with(": "));
        has_name
            && (name.split_once(" = ").is_some_and(|(_, value)| is_closure(value))
                || (name.ends_with(" =") && is_closure(next)))
    });
    statements.count()
}

fn is_closure(value: &str) -> bool {
    let value = value.trim_start().trim_start_matches('&');
    let value = value.strip_prefix("mut ").unwrap_or(value);
    value.strip_prefix("move ").unwrap_or(value).starts_with('|')
}

/// `(a, b): (usize, usize)` and `[a, b]: [usize; 2]` in a list of parameters.
fn tuple_parameters(line: &str, _: &str) -> usize {
    [('(', "): "), ('[', "]: ")]
        .into_iter()
        .map(|(open, end)| {
            let ends = line.match_indices(end).filter(|(at, _)| {
                let kind = line[at + end.len()..].trim_start_matches('&');
                let kind = kind.strip_prefix("mut ").unwrap_or(kind);
                let Some((before, names)) = line[..*at].rsplit_once(open) else { return false };
                let are_names = names.chars().all(|c| c.is_ascii_alphanumeric() || "_, &".contains(c));
                let is_parameter = before.trim().is_empty() || before.trim_end().ends_with(['(', ',']);
                kind.starts_with(['(', '[']) && are_names && is_parameter
            });
            ends.count()
        })
        .sum()
}

fn boolean_arrays(line: &str, _: &str) -> usize {
    line.matches("[bool; ").count()
}

/// `Result<.., String>`.
fn string_errors(line: &str, _: &str) -> usize {
    line.match_indices(", String>")
        .filter(|(at, _)| {
            let mut depth = 0;
            let open = line[..*at].rfind(|c: char| {
                depth += i32::from(c == '>') - i32::from(c == '<');
                depth < 0
            });
            open.is_some_and(|open| line[..open].ends_with("Result"))
        })
        .count()
}

#[test]
fn idioms_are_found_in_code() {
    let text = r#"
/// let comment = |x: u32| x;
fn first((a, b): (usize, usize), [c]: &[u32; 1], d: u32) -> Result<Vec<(u32, u32)>, String> {
    let double = |x: u32| 2 * x;
    let mut add = move |x: u32| total += x;
    let long: &dyn Fn(u32) -> u32 =
        &|x| x;
    let (left, right): (u32, u32) = pair;
    let both = left | right;
    let closed = [false; 2].map(|open: bool| !open);
    let flags: [bool; 2] = closed;
    let map: Result<u32, Vec<(u32, String)>> = f(|x| x);
}

#[cfg(test)]
mod tests {
    let in_test = |x: u32| x;
}
"#;
    let mut places = Places::default();
    add_places(&Source { path: "a.rs".into(), text: text.into() }, &mut places);
    let lines = |idiom: usize| places[idiom].join(" ");
    assert_eq!(lines(0), "a.rs:4 a.rs:5 a.rs:6");
    assert_eq!(lines(1), "a.rs:3 a.rs:3");
    assert_eq!(lines(2), "a.rs:11");
    assert_eq!(lines(3), "a.rs:3");
}

#[test]
fn budgets_only_fall() {
    let text = "# Comment\nlow = [1, 2, 3, 4]\n";
    let place = || vec!["a.rs:1".to_string()];
    let crates = BTreeMap::from([("low".to_string(), [Vec::new(), vec![place(); 3].concat(), place(), place()])]);
    assert_eq!(lowered(text, &crates), "# Comment\nlow = [0, 2, 1, 1]\n");
    let complaints = complaints_of("low", &crates["low"], &budgets(text)["low"]).join("\n");
    assert!(complaints.contains("lower the budget from 1 to 0"), "{complaints}");
    assert!(complaints.contains("3 tuple or array patterns as parameters, where its budget is 2"), "{complaints}");
}

#[test]
fn modules_of_tests_are_told_from_the_others() {
    let text = "#[cfg(test)]\nmod tests;\n#[cfg(test)]\n#[path = \"b_tests.rs\"]\nmod far;\nmod code;\n";
    let source = |path: &str| Source { path: path.into(), text: text.into() };
    let found: Vec<String> = test_modules(&[source("x/src/b.rs")]).into_iter().collect();
    assert_eq!(found, ["x/src/b/tests", "x/src/b/tests.rs", "x/src/b_tests.rs"]);
    assert!(test_modules(&[source("x/src/lib.rs")]).contains("x/src/tests.rs"));
}
