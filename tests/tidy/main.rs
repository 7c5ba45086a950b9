//! The workspace stays in order: which crate imports which, one name for one thing, small files and functions, documents that name
//! nothing that is gone. Every message states the fix.

mod circles;
mod dialect;
mod prose;
mod unsafe_code;
mod words;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A crate: its name, its folder, and the crates of the workspace that it may import.
struct Layer {
    name: &'static str,
    folder: &'static str,
    imports: &'static [&'static str],
}

/// The import table. planner, scheduler, simulator and exec never import each other; the compiler joins the first two, and the root
/// package all of them.
const LAYERS: &[Layer] = &[
    Layer { name: "support", folder: "ir/support", imports: &[] },
    Layer { name: "ir", folder: "ir", imports: &[] },
    Layer { name: "transforms", folder: "ir/transforms", imports: &["ir"] },
    Layer { name: "pt2", folder: "ir/pt2", imports: &["support", "ir", "transforms"] },
    Layer { name: "kernels", folder: "kernels", imports: &[] },
    Layer { name: "cost", folder: "planner/cost", imports: &["ir", "transforms"] },
    Layer { name: "solver", folder: "planner/solver", imports: &[] },
    Layer { name: "planner", folder: "planner", imports: &["ir", "transforms", "cost", "solver"] },
    Layer { name: "fusion", folder: "scheduler/fusion", imports: &["ir", "cost", "solver"] },
    Layer { name: "scheduler", folder: "scheduler", imports: &["ir", "cost", "fusion", "solver"] },
    Layer {
        name: "codegen",
        folder: "scheduler/codegen",
        imports: &["ir", "transforms", "cost", "fusion", "scheduler"],
    },
    Layer { name: "view", folder: "scheduler/view", imports: &["support", "ir", "scheduler"] },
    Layer {
        name: "compiler",
        folder: "planner/compiler",
        imports: &["support", "ir", "transforms", "pt2", "cost", "planner", "scheduler", "codegen"],
    },
    Layer {
        name: "estimator",
        folder: "planner/estimator",
        imports: &["support", "ir", "transforms", "cost", "planner", "scheduler", "compiler", "view"],
    },
    Layer { name: "exports", folder: "planner/exports", imports: &["support", "ir", "cost"] },
    Layer {
        name: "autotune",
        folder: "planner/autotune",
        imports: &["support", "ir", "transforms", "cost", "planner", "scheduler", "compiler", "estimator", "view"],
    },
    Layer { name: "accuracy", folder: "planner/accuracy", imports: &["ir", "cost", "compiler", "estimator"] },
    Layer { name: "trace", folder: "runtime/trace", imports: &["ir"] },
    Layer { name: "simulator", folder: "runtime/simulator", imports: &["ir", "cost", "trace"] },
    Layer {
        name: "inspect",
        folder: "planner/inspect",
        imports: &[
            "support",
            "ir",
            "cost",
            "planner",
            "fusion",
            "scheduler",
            "codegen",
            "view",
            "compiler",
            "estimator",
            "exports",
            "trace",
            "simulator",
        ],
    },
    Layer { name: "device", folder: "runtime/device", imports: &["ir", "kernels"] },
    Layer { name: "reference", folder: "runtime/reference", imports: &["ir", "transforms", "kernels"] },
    Layer { name: "data", folder: "runtime/data", imports: &["support", "ir", "device"] },
    Layer { name: "cpu", folder: "runtime/cpu", imports: &["ir", "kernels", "trace", "device", "reference"] },
    Layer { name: "comm", folder: "runtime/comm", imports: &["ir", "kernels", "device", "cpu"] },
    Layer { name: "exec", folder: "runtime/exec", imports: &["ir", "kernels", "trace", "device", "cpu", "comm"] },
    Layer {
        name: "cuda",
        folder: "runtime/cuda",
        imports: &["ir", "kernels", "trace", "device", "reference", "cpu", "comm", "exec"],
    },
    Layer {
        name: "checkpoint",
        folder: "runtime/checkpoint",
        imports: &["support", "ir", "kernels", "device", "comm", "exec"],
    },
    Layer { name: "tokenize", folder: "runtime/tokenize", imports: &["support", "ir", "data"] },
    Layer { name: "mpi", folder: "runtime/mpi", imports: &["comm"] },
    Layer { name: "tcp", folder: "runtime/tcp", imports: &["support", "comm"] },
    Layer {
        name: "weights",
        folder: "runtime/weights",
        imports: &["support", "ir", "pt2", "kernels", "device", "data", "exec", "checkpoint"],
    },
    Layer {
        name: "trainer",
        folder: "runtime/trainer",
        imports: &[
            "mpi",
            "tcp",
            "support",
            "ir",
            "transforms",
            "kernels",
            "cost",
            "planner",
            "codegen",
            "compiler",
            "estimator",
            "inspect",
            "trace",
            "device",
            "data",
            "cpu",
            "comm",
            "exec",
            "cuda",
            "checkpoint",
            "tokenize",
            "weights",
        ],
    },
    Layer {
        name: "meshwright",
        folder: ".",
        imports: &[
            "tcp",
            "support",
            "ir",
            "transforms",
            "pt2",
            "cost",
            "planner",
            "fusion",
            "scheduler",
            "codegen",
            "view",
            "compiler",
            "estimator",
            "exports",
            "autotune",
            "accuracy",
            "inspect",
            "simulator",
            "device",
            "reference",
            "data",
            "cpu",
            "comm",
            "exec",
            "cuda",
            "checkpoint",
            "trainer",
            "tokenize",
            "trace",
            "weights",
        ],
    },
    Layer { name: "python", folder: "python", imports: &["meshwright"] },
];

/// Words that the files under a path must not have, and why.
const ABSENT: &[(&str, &[&str], &str)] = &[
    ("ir/src", &["std::fs", "std::net", "std::env"], "`ir` is text in, text out; files are read in `src/`"),
    ("ir/transforms/src", &["std::fs", "std::net", "std::env", "std::time"], "a transform depends on its model alone"),
    ("kernels/src", &["std::fs", "std::net", "std::env"], "kernels compute on slices"),
    ("planner/src", &["std::fs", "std::net", "std::env", "std::time"], "planning depends on its input alone"),
    ("planner/cost/src", &["std::fs", "std::net", "std::env"], "costs depend on their input alone"),
    ("scheduler/src", &["std::fs", "std::net", "std::env"], "scheduling depends on its input alone"),
    ("planner/estimator/src", &["std::fs", "std::net", "std::env"], "an estimate depends on its request alone"),
    ("planner/autotune/src", &["std::fs", "std::net", "std::env"], "a plan depends on its request alone"),
    (
        "scheduler/codegen/src",
        &["std::fs", "std::net", "std::env", "std::time"],
        "programs depend on their input alone",
    ),
    ("scheduler/fusion/src", &["std::fs", "std::net", "std::env", "std::time"], "groups depend on their input alone"),
    ("scheduler/view/src", &["std::fs", "std::net", "std::env"], "files are read and written in `src/`"),
    ("runtime/comm/src", &["std::net"], "what joins processes is a wire, in a crate of its own"),
    ("runtime/exec/src", &["std::net"], "what joins processes is a wire, in a crate of its own"),
    ("runtime/cuda/src", &["std::net"], "what joins processes is a wire, in a crate of its own"),
    (
        "runtime/trace/src",
        &["std::fs", "std::net", "std::env", "std::thread"],
        "a trace is data; files are written in `src/`",
    ),
    (
        "runtime/simulator/src",
        &["std::fs", "std::net", "std::env", "std::time"],
        "a simulation depends on its input alone",
    ),
    (
        "ir/transforms/src",
        &["KernelOp::"],
        "transforms read `OpDef`; an op that they treat differently says so in its class",
    ),
    ("planner/src", &["KernelOp::"], "passes read `OpDef`; an op that they treat differently says so in its class"),
    ("ir/src/verify", &["crate::models"], "checkers share no code with producers"),
    ("scheduler/src/check.rs", &["crate::simulate", "crate::schedules"], "checkers share no code with producers"),
    (
        "scheduler/src/optimal",
        &["crate::schedules"],
        "schedules call the search and give it their orders to start from",
    ),
];

/// Files that may have a word nevertheless: the e-graph translates from ops, each by its name.
const PRESENT: &[(&str, &str)] = &[("ir/transforms/src/egraph/encode.rs", "KernelOp::")];

/// The most lines of a file, of a function, and of the median source file.
const FILE_LINES: usize = 600;
const FUNCTION_LINES: usize = 100;
const MEDIAN_LINES: usize = 200;
/// The most lines of ARCHITECTURE.md, and of its columns.
const ARCHITECTURE_LINES: usize = 250;
const ARCHITECTURE_COLUMNS: usize = 110;

/// Paths in documents that a build, a run or a user makes: how they begin or end.
const MADE_ELSEWHERE: &[&str] = &["target/", "config.json", "tokenizer.json", "run.toml", "metrics.jsonl"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// A source file: its path from the root, with `/`, and its text.
struct Source {
    path: String,
    text: String,
}

impl Source {
    fn lines(&self) -> usize {
        self.text.lines().count()
    }

    fn is_under(&self, folder: &str) -> bool {
        Path::new(&self.path).starts_with(folder)
    }

    /// True if it is part of a crate, as against its tests and benches.
    fn is_library(&self) -> bool {
        self.path.split('/').any(|part| part == "src")
    }
}

fn sources() -> Vec<Source> {
    let mut paths = Vec::new();
    walk(root(), ".rs", &mut paths);
    paths.sort();
    let read = |path: PathBuf| {
        let inside = path.strip_prefix(root()).expect("walked from the root");
        let parts: Vec<_> = inside.components().map(|part| part.as_os_str().to_string_lossy()).collect();
        Source { path: parts.join("/"), text: fs::read_to_string(&path).expect("a source file is text") }
    };
    paths.into_iter().map(read).collect()
}

/// All files below a folder whose name ends so, except in hidden folders and `target`.
fn walk(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a readable folder").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = entry.path();
        if path.is_dir() && !name.starts_with('.') && name != "target" {
            walk(&path, ending, found);
        } else if name.ends_with(ending) {
            found.push(path);
        }
    }
}

/// Fails with all complaints at once.
fn none_of(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn crates_import_only_the_layers_below_them() {
    let mut complaints = Vec::new();
    for layer in LAYERS {
        let path = Path::new(layer.folder).join("Cargo.toml");
        let manifest = fs::read_to_string(root().join(&path)).expect("every crate has a manifest");
        for dependency in dependencies(&manifest) {
            let known = LAYERS.iter().any(|layer| layer.name == dependency);
            if known && dependency != layer.name && !layer.imports.contains(&dependency) {
                complaints.push(format!(
                    "{}: `{}` must not depend on `{dependency}`: pass what it needs in",
                    path.display(),
                    layer.name
                ));
            }
        }
    }
    none_of(complaints);
}

/// The names under `[dependencies]`, `[dev-dependencies]` and `[build-dependencies]`.
fn dependencies(manifest: &str) -> Vec<&str> {
    let mut inside = false;
    let mut names = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line.ends_with("dependencies]") && !line.contains("workspace");
        } else if inside && let Some((name, _)) = line.split_once(['.', ' ', '=']) {
            names.push(name);
        }
    }
    names
}

#[test]
fn source_files_use_only_the_layers_below_them() {
    let mut complaints = Vec::new();
    for source in sources() {
        let layer = layer_of(&source.path);
        for (number, line) in source.text.lines().enumerate() {
            let Some(used) = used_crate(line) else { continue };
            // A module of the same name shadows the crate.
            let is_module = source.text.contains(&format!("mod {used};"));
            let known = !is_module && LAYERS.iter().any(|layer| layer.name == used);
            if known && used != layer.name && !layer.imports.contains(&used) {
                complaints.push(format!("{}:{}: `{}` must not use `{used}`", source.path, number + 1, layer.name));
            }
        }
    }
    none_of(complaints);
}

/// The crate whose folder holds the path: the deepest one.
fn layer_of(path: &str) -> &'static Layer {
    let holds = |layer: &&Layer| layer.folder == "." || Path::new(path).starts_with(layer.folder);
    LAYERS.iter().filter(holds).max_by_key(|layer| layer.folder.len()).expect("the root holds all")
}

/// `ir` of `pub use ir::..` and of `use meshwright_ir::..`.
fn used_crate(line: &str) -> Option<&str> {
    let (_, path) = line.split_once("use ").filter(|(before, _)| matches!(before.trim(), "" | "pub" | "pub(crate)"))?;
    let name = path.split([':', ';', ' ']).next()?;
    Some(name.strip_prefix("meshwright_").unwrap_or(name))
}

#[test]
fn what_must_be_absent_is_absent() {
    let sources = sources();
    let mut complaints = Vec::new();
    for (folder, words, why) in ABSENT {
        for source in sources.iter().filter(|source| source.is_under(folder)) {
            let may_have = |word: &str| PRESENT.contains(&(source.path.as_str(), word));
            for word in words.iter().filter(|word| source.text.contains(**word) && !may_have(word)) {
                complaints.push(format!("{}: take out `{word}`: {why}", source.path));
            }
        }
    }
    none_of(complaints);
}

#[test]
fn every_pass_is_the_file_of_its_name() {
    let names: BTreeSet<String> = planner::PASSES.iter().map(|pass| pass.name.to_string()).collect();
    same_names("planner/src/passes", "planner::PASSES", &names, &[]);
}

#[test]
fn every_pass_has_cases() {
    let has_cases = |name: &str| {
        let mut files = fs::read_dir(root().join("tests/cases").join(name)).into_iter().flatten().flatten();
        files.any(|file| file.path().extension().is_some_and(|extension| extension == "ir"))
    };
    let passes = meshwright::compiler::pipeline::passes().into_iter().map(|pass| pass.name);
    none_of(passes.filter(|pass| !has_cases(pass)).map(|pass| format!("tests/cases/{pass}: add a case")).collect());
}

#[test]
fn every_schedule_is_the_file_of_its_name() {
    let kinds = scheduler::schedules::SCHEDULES.iter();
    let names = kinds.map(|kind| identifier(kind.name)).collect();
    same_names("scheduler/src/schedules", "scheduler::schedules::SCHEDULES", &names, &["error", "table", "tests"]);
}

/// Identifier of a name: `zb_h1` of `zb-h1`, and `one_f_one_b` of `1f1b`, for no
/// identifier begins with a digit.
fn identifier(name: &str) -> String {
    let name = name.replace('-', "_");
    match name.strip_prefix("1f1b") {
        Some(rest) => format!("one_f_one_b{rest}"),
        None => name,
    }
}

/// The files and folders of a folder, but `mod.rs`, must be those names.
fn same_names(folder: &str, table: &str, names: &BTreeSet<String>, others: &[&str]) {
    let entries = fs::read_dir(root().join(folder)).expect("the folder is there").flatten();
    let stem = |entry: fs::DirEntry| entry.path().file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let files: BTreeSet<String> =
        entries.filter_map(stem).filter(|stem| stem != "mod" && !others.contains(&stem.as_str())).collect();
    let missing = names.difference(&files).map(|name| format!("{folder}/{name}.rs is missing: `{table}` has its row"));
    let extra = files.difference(names).map(|file| format!("{folder}/{file}.rs has no row of its name in `{table}`"));
    none_of(missing.chain(extra).collect());
}

#[test]
fn every_file_is_a_module() {
    let sources = sources();
    let orphans = sources.iter().filter(|source| source.is_library() && !is_declared(source, &sources));
    none_of(orphans.map(|source| format!("{}: no `mod` declares it: declare it or delete it", source.path)).collect());
}

/// True if a crate begins in this file, the file above it declares it, or one in its folder names it by path.
fn is_declared(source: &Source, sources: &[Source]) -> bool {
    let (folder, file) = source.path.rsplit_once('/').expect("a source file lies in a folder");
    let (parent, name) = match file {
        "lib.rs" | "main.rs" => return true,
        "mod.rs" => folder.rsplit_once('/').expect("a module's folder lies in src"),
        _ => (folder, file.trim_end_matches(".rs")),
    };
    let heads = ["/mod.rs", "/lib.rs", "/main.rs", ".rs"].map(|end| format!("{parent}{end}"));
    let declares = |text: &str| text.lines().any(|line| line.trim().ends_with(&format!("mod {name};")));
    let names = |text: &str| text.contains(&format!("#[path = \"{file}\"]"));
    sources.iter().any(|other| {
        (heads.contains(&other.path) && declares(&other.text)) || (other.is_under(folder) && names(&other.text))
    })
}

#[test]
fn files_are_small() {
    let sources = sources();
    let long = sources.iter().filter(|source| source.lines() > FILE_LINES);
    none_of(
        long.map(|source| format!("{}: {} lines; split it at {FILE_LINES}", source.path, source.lines())).collect(),
    );
    let mut lines: Vec<usize> = sources.iter().filter(|source| source.is_library()).map(Source::lines).collect();
    lines.sort_unstable();
    let median = lines[lines.len() / 2];
    assert!(median <= MEDIAN_LINES, "half of the files have more than {median} lines: split files by their job");
}

#[test]
fn functions_are_small() {
    let mut complaints = Vec::new();
    for source in sources() {
        let lines: Vec<&str> = source.text.lines().collect();
        for (first, line) in lines.iter().enumerate().filter(|(_, line)| starts_function(line)) {
            let length = block_lines(&lines[first..], indent(line));
            let body = &lines[first..first + length];
            if length > FUNCTION_LINES && !is_exhaustive_match(body) {
                complaints.push(format!(
                    "{}:{}: a function of {length} lines; give its parts names of their own",
                    source.path,
                    first + 1
                ));
            }
        }
    }
    none_of(complaints);
}

fn starts_function(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    let place = words.iter().position(|word| *word == "fn");
    let qualifiers = ["pub", "pub(crate)", "pub(super)", "const", "unsafe", "async", "extern", "\"C\""];
    place.is_some_and(|place| words[..place].iter().all(|word| qualifiers.contains(word)))
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Lines up to the one that closes at the indentation of the first; rustfmt sees to the indentation.
fn block_lines(lines: &[&str], depth: usize) -> usize {
    let closes = |line: &&str| indent(line) == depth && (line.trim_start().starts_with('}') || line.ends_with(';'));
    let first = lines[0].trim_end();
    if first.ends_with('}') || first.ends_with(';') {
        return 1;
    }
    lines.iter().skip(1).position(closes).map_or(lines.len(), |place| place + 2)
}

/// True if a function is little but one `match` that names every case.
fn is_exhaustive_match(body: &[&str]) -> bool {
    let is_match = |line: &&str| line.contains("match ") && line.ends_with('{');
    let Some(first) = body.iter().position(is_match) else { return false };
    let depth = indent(body[first]);
    let length = block_lines(&body[first..], depth);
    let names_all = body[first..first + length]
        .iter()
        .all(|line| !line.trim_start().starts_with("_ =>") || indent(line) > depth + 4);
    names_all && body.len() - length <= 10
}

#[test]
fn every_file_says_what_it_is() {
    let silent = sources().into_iter().filter(|source| !source.text.starts_with("//! "));
    none_of(
        silent.map(|source| format!("{}: begin with a `//!` line that says what it is for", source.path)).collect(),
    );
}

#[test]
fn nothing_is_left_half_done() {
    // In two parts each, so that this file has none of them.
    let words = [("to", "do!"), ("unimpl", "emented!"), ("TO", "DO"), ("FIX", "ME"), ("XX", "X"), ("db", "g!(")];
    let words = words.map(|(a, b)| format!("{a}{b}"));
    let mut complaints = Vec::new();
    for source in sources() {
        for (number, line) in source.text.lines().enumerate() {
            for word in words.iter().filter(|word| line.contains(*word)) {
                complaints.push(format!("{}:{}: `{word}`: finish it or take it out", source.path, number + 1));
            }
        }
    }
    none_of(complaints);
}

#[test]
fn documents_name_only_what_is_there() {
    let mut complaints = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(root().join(&document)).expect("a document is text");
        // Links of a page are relative to it.
        let folder = root().join(&document).parent().expect("a document lies in a folder").to_path_buf();
        for path in named_paths(&text) {
            if !root().join(&path).exists() && !folder.join(&path).exists() {
                complaints.push(format!("{document}: `{path}` is not there: correct the path"));
            }
        }
    }
    none_of(complaints);
}

#[test]
fn the_architecture_fits_its_pages() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the document is there");
    let lines = text.lines().count();
    assert!(lines <= ARCHITECTURE_LINES, "ARCHITECTURE.md: {lines} lines are too many; keep what a newcomer needs");
    let is_wide = |(_, line): &(usize, &str)| line.chars().count() > ARCHITECTURE_COLUMNS;
    let wide = text.lines().enumerate().filter(is_wide);
    none_of(wide.map(|(number, _)| format!("ARCHITECTURE.md:{}: the line is too wide", number + 1)).collect());
}

/// README.md, ARCHITECTURE.md, CONTRIBUTING.md, the page of the Python package, and the documents and the book in docs.
fn documents() -> Vec<String> {
    let mut documents =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "python/README.md"].map(str::to_string).to_vec();
    for folder in ["docs", "docs/book/src"] {
        let docs = fs::read_dir(root().join(folder)).expect("there is a folder of documents").flatten();
        let names = docs.map(|entry| entry.file_name().to_string_lossy().into_owned());
        documents.extend(names.filter(|name| name.ends_with(".md")).map(|name| format!("{folder}/{name}")));
    }
    documents
}

/// The paths among a document's `code` words and link targets, outside code blocks. A name in capitals is the reader's to
/// choose: of `passes/NAME.rs` the folder must be there.
fn named_paths(text: &str) -> Vec<String> {
    let mut inside = true;
    let prose = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        inside && !fence
    });
    let mut paths = Vec::new();
    for line in prose {
        let code = line.split('`').skip(1).step_by(2);
        let links = line.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        let named = code.chain(links).filter(|word| looks_like_path(word));
        paths.extend(named.map(|word| match word.rsplit_once('/') {
            Some((folder, file)) if file.starts_with(|c: char| c.is_ascii_uppercase()) && file.ends_with(".rs") => {
                folder
            }
            _ => word,
        }));
    }
    paths.into_iter().map(str::to_string).collect()
}

fn looks_like_path(word: &str) -> bool {
    let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    let ending = [".rs", ".md", ".toml", ".ir", ".json", ".jsonl", "/"].iter().any(|ending| word.ends_with(ending));
    let made = MADE_ELSEWHERE.iter().any(|made| word.starts_with(made) || word.ends_with(made));
    plain && !made && (ending || word.contains('/')) && !word.starts_with(['/', '-']) && word != ".ir"
}
