//! Commands in README.md, ARCHITECTURE.md, the pages of docs and the book print the output shown there.
//!
//! In a block fenced as `console`, a line `$ meshwright ARGS` is run in the root of the project, and the lines after it must
//! be its output; a line `...` stands for any number of lines. Blocks fenced otherwise are only read by people.

use meshwright::compiler::pipeline::passes;
use scheduler::schedules::SCHEDULES;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The most lines of README.md.
const README_LINES: usize = 200;

/// One command and what the document shows of its output.
struct Shown<'a> {
    line: usize,
    args: &'a str,
    output: Vec<String>,
}

#[test]
fn documents_show_what_is_printed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut wrong = String::new();
    let pages = ["README.md", "ARCHITECTURE.md", "docs/config-keys.md", "docs/schedules.md"].map(str::to_string);
    let chapters = chapters().into_iter().filter(|page| read(page).contains("```console"));
    for document in pages.into_iter().chain(chapters) {
        let text = read(&document);
        let commands = commands(&text);
        assert!(!commands.is_empty(), "{document} shows no command");
        for shown in commands {
            let printed = run(root, shown.args);
            if let Some(missing) = first_missing(&shown.output, &printed) {
                wrong += &format!(
                    "\n{document}:{}: `meshwright {}` does not print, in this place,\n{missing}\nbut all in all\n{printed}",
                    shown.line, shown.args
                );
            }
        }
    }
    assert!(wrong.is_empty(), "correct the documents or the program:\n{wrong}");
}

#[test]
fn every_schedule_has_a_section_with_the_facts_of_its_row() {
    let text = read("docs/schedules.md");
    for row in SCHEDULES {
        let section = section(&text, "## ", &format!("(`{}`)", row.name));
        let facts = section.lines().find(|line| line.starts_with("- **Bubble:**"));
        let facts = facts.unwrap_or_else(|| panic!("{} states no bubble", row.name)).replace(['`', '*'], "");
        let wanted =
            format!("- Bubble: {}. Memory of rank r: {}. Constraint: {}.", row.bubble, row.memory, row.constraint);
        assert_eq!(facts, wanted, "docs/schedules.md, {}", row.name);
    }
    assert_eq!(text.matches("\n## ").count(), SCHEDULES.len(), "a section of docs/schedules.md is of no schedule");
}

#[test]
fn every_pass_has_a_section_in_the_order_of_the_table() {
    let text = read("docs/passes.md");
    let sections = text.lines().filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`'));
    let passes: Vec<&str> = passes().iter().map(|pass| pass.name).collect();
    assert_eq!(sections.collect::<Vec<_>>(), passes);
}

/// The pages of the book, in its order.
fn chapters() -> Vec<String> {
    let summary = read("docs/book/src/SUMMARY.md");
    let names = summary.lines().filter_map(|line| line.split_once("](")?.1.strip_suffix(')'));
    names.map(|name| format!("docs/book/src/{name}")).collect()
}

#[test]
fn the_book_has_all_its_pages_and_no_other() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/book/src");
    let entries = fs::read_dir(folder).expect("the book is there").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let pages = names.filter(|name| name.ends_with(".md") && name != "SUMMARY.md");
    let mut files: Vec<String> = pages.map(|name| format!("docs/book/src/{name}")).collect();
    let mut chapters = chapters();
    files.sort();
    chapters.sort();
    assert_eq!(files, chapters);
    for link in chapters.iter().flat_map(|page| links(&read(page))) {
        assert!(chapters.contains(&format!("docs/book/src/{link}")), "{link} is no page of the book");
    }
}

/// The pages that a page links to, without the places in them.
fn links(text: &str) -> Vec<String> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    targets.filter(|target| target.ends_with(".md")).map(str::to_string).collect()
}

#[test]
fn the_front_page_is_short_and_shows_a_complete_plan() {
    let text = read("README.md");
    let lines = text.lines().count();
    assert!(lines <= README_LINES, "README.md: {lines} lines are too many: the manual is the book, docs/book/src");
    let commands = commands(&text);
    let plan = commands.iter().find(|shown| shown.args.starts_with("plan ")).expect("README.md shows a plan");
    let dots = plan.output.iter().filter(|line| line.trim() == "...").count();
    assert_eq!(dots, 0, "README.md shows a plan as it is printed");
}

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).expect("the document is there")
}

/// The section whose heading begins and ends with these texts, up to the next heading of the level.
fn section<'a>(text: &'a str, level: &str, end: &str) -> &'a str {
    let heading = text.lines().find(|line| line.starts_with(level) && line.ends_with(end));
    let heading = heading.unwrap_or_else(|| panic!("no section `{end}`"));
    let begin = text.find(heading).expect("the heading is a line of the text") + heading.len();
    let rest = &text[begin..];
    &rest[..rest.find(&format!("\n{level}")).unwrap_or(rest.len())]
}

/// The commands of all `console` blocks.
fn commands(text: &str) -> Vec<Shown<'_>> {
    let mut commands: Vec<Shown<'_>> = Vec::new();
    let mut fence = None;
    for (number, line) in text.lines().enumerate() {
        match (fence, line.strip_prefix("```")) {
            (None, Some(kind)) => fence = Some(kind),
            (Some(_), Some(_)) => fence = None,
            (Some("console"), None) => match line.strip_prefix("$ meshwright ") {
                Some(args) => commands.push(Shown { line: number + 1, args, output: Vec::new() }),
                None => {
                    let last = commands.last_mut().expect("a console block begins with a command");
                    last.output.push(comparable(line));
                }
            },
            _ => {}
        }
    }
    commands
}

/// A line of an output without the seconds that the search of a plan took.
fn comparable(line: &str) -> String {
    match line.split_once("pruned by bounds, in ") {
        Some((before, rest)) => format!("{before}pruned by bounds, in ..{}", rest.trim_start_matches(|c| c != ';')),
        None => line.to_string(),
    }
}

/// Output of a command, on both streams; lines end without blanks. Single quotes are for the shell.
fn run(root: &Path, args: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_meshwright"));
    let output =
        command.args(args.replace('\'', "").split_whitespace()).current_dir(root).env_remove("COLUMNS").output();
    let output = output.expect("the binary runs");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    text.lines().map(|line| comparable(line.trim_end()) + "\n").collect()
}

/// The first run of lines that is not printed after the runs before it. The first starts the output and the last ends it,
/// unless there are dots.
fn first_missing(shown: &[impl AsRef<str>], printed: &str) -> Option<String> {
    let printed: Vec<&str> = printed.lines().collect();
    let shown: Vec<&str> = shown.iter().map(AsRef::as_ref).collect();
    let runs: Vec<&[&str]> = shown.split(|line| line.trim() == "...").collect();
    let mut from = 0;
    for (place, run) in runs.iter().enumerate() {
        let last = place + 1 == runs.len();
        let starts = if last && !run.is_empty() && place > 0 {
            vec![printed.len().saturating_sub(run.len()).max(from)]
        } else if place == 0 {
            vec![0]
        } else {
            (from..=printed.len()).collect()
        };
        let found = starts.into_iter().find(|&start| printed[start..].starts_with(run));
        match found {
            Some(start) => from = start + run.len(),
            None => return Some(run.join("\n")),
        }
    }
    let dots_at_the_end = runs.last().is_some_and(|run| run.is_empty()) && runs.len() > 1;
    (from < printed.len() && !dots_at_the_end).then(|| "(the end of the output)".to_string())
}

#[test]
fn the_lines_of_rust_are_those_of_the_tested_front_page() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let front = fs::read_to_string(root.join("src/lib.rs")).expect("the library has a front page");
    let front: Vec<&str> = front.lines().filter_map(|line| line.strip_prefix("//! ")).collect();
    let chapter = read("docs/book/src/library.md");
    let (_, block) = chapter.split_once("```rust\n").expect("the chapter shows the library");
    let (block, _) = block.split_once("```").expect("a block ends");
    let lines: Vec<&str> = block.lines().collect();
    assert!(
        front.windows(lines.len()).any(|window| window == lines),
        "copy the example of src/lib.rs to docs/book/src/library.md"
    );
}

#[test]
fn dots_stand_for_any_lines() {
    let holds = |shown: &[&str]| first_missing(shown, "a\nb\nc\nd\n").is_none();
    assert!(
        holds(&["a", "b", "c", "d"]) && holds(&["..."]) && holds(&["a", "...", "d"]) && holds(&["...", "c", "..."])
    );
    assert!(
        !holds(&["a", "b"]) && !holds(&["b", "..."]) && !holds(&["...", "d", "c", "..."]) && !holds(&["a", "...", "c"])
    );
}
