//! Pages of docs/engines: the flags of each framework by what a prediction does with them.
//!
//! `BLESS=1 cargo test -p meshwright-exports pages` writes them.

use crate::flag_table::{
    DEEPSPEED, FlagTable, Lists, MAXTEXT, MEGATRON, MEGATRON_BRIDGE, NANOTRON, TORCHTITAN, TORCHTITAN_TOML,
};
use crate::{Target, deepspeed_file, maxtext, megatron, megatron_bridge, nanotron_file, torchtitan_file};
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// The most characters of a line.
const WIDTH: usize = 118;

/// Flags of one version or several, as a part of a page.
struct Part<'t> {
    heading: &'static str,
    table: &'t FlagTable,
    asked: Vec<&'t str>,
    /// The flag of Megatron-LM that a key is, if it is one.
    flag_of: fn(&str) -> Option<&str>,
}

impl<'t> Part<'t> {
    fn of(heading: &'static str, table: &'t FlagTable, asked: Vec<&'t str>) -> Part<'t> {
        Part { heading, table, asked, flag_of: |_| None }
    }
}

/// Names, in lines of text.
fn wrapped(names: &[String]) -> String {
    let mut text = String::new();
    let mut length = 0;
    for (nth, name) in names.iter().enumerate() {
        let end = if nth + 1 == names.len() { "." } else { "," };
        if length + name.len() + 2 > WIDTH && length > 0 {
            text.push('\n');
            length = 0;
        } else if length > 0 {
            text.push(' ');
            length += 1;
        }
        text += &format!("{name}{end}");
        length += name.len() + 1;
    }
    if names.is_empty() { "None.".to_string() } else { text }
}

fn part(part: &Part<'_>) -> String {
    let Lists { written, read, harmless, unmodelled } = part.table.lists(&part.asked, part.flag_of);
    let harmless_count: usize = harmless.values().map(Vec::len).sum();
    let all = written.len() + read.len() + harmless_count + unmodelled.len();
    let mut text = format!("## {}\n\n{all} in all.\n\n", part.heading);
    let _ = write!(text, "### Written: {}\n\nExports have them.\n\n{}\n\n", written.len(), wrapped(&written));
    let _ = write!(
        text,
        "### Read: {}\n\nImports read them, and those that are written.\n\n{}\n\n",
        read.len(),
        wrapped(&read)
    );
    let _ = write!(
        text,
        "### Not modelled: {}\n\nImports report them with the part that they touch.\n\n",
        unmodelled.len()
    );
    for (name, told) in &unmodelled {
        let _ = writeln!(text, "- {name}: {told}");
    }
    let _ = write!(text, "\n### Harmless: {harmless_count}\n\nThey change no figure.\n");
    for (reason, names) in &harmless {
        let _ = write!(text, "\n**{reason}**\n\n{}\n", wrapped(names));
    }
    text
}

fn holds(name: &str, target: Target, parts: &[Part<'_>]) {
    let parts: Vec<String> = parts.iter().map(part).collect();
    let text = format!(
        "# {name}\n\nFlags and keys of the framework by what a prediction does with them. Exports are for {}. The lists come from\n\
         `planner/exports/engines/`: names by the framework's own parser or classes, with a judgement of each. \n\n{}",
        target.version(),
        parts.join("\n")
    );
    let text = text.replace(". \n", ".\n");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/engines");
    let path = folder.join(format!("{}.md", target.name()));
    if std::env::var_os("BLESS").is_some() {
        fs::create_dir_all(&folder).unwrap();
        fs::write(&path, text).unwrap();
    } else {
        let remedy = "BLESS=1 cargo test -p meshwright-exports pages rewrites it";
        assert!(fs::read_to_string(&path).is_ok_and(|written| written == text), "{}: {remedy}", path.display());
    }
}

#[test]
fn each_framework_has_a_page() {
    let (keys, of_maxtext) = (torchtitan_file::asked(), maxtext::asked());
    let keys = || keys.iter().map(String::as_str).collect::<Vec<_>>();
    let of_maxtext = of_maxtext.iter().map(String::as_str).collect();
    holds("Megatron-LM", Target::Megatron, &[Part::of("Flags of megatron-core 0.19.2", &MEGATRON, megatron::asked())]);
    let fields = Part {
        flag_of: megatron_bridge::flag_of,
        ..Part::of("Fields of the container of 0.6.2", &MEGATRON_BRIDGE, [megatron::asked(), FIELDS.to_vec()].concat())
    };
    holds("Megatron-Bridge", Target::MegatronBridge, &[fields]);
    holds(
        "torchtitan",
        Target::Torchtitan,
        &[
            Part::of("Python configurations of 0.3", &TORCHTITAN, keys()),
            Part::of("TOML files of 0.1 and 0.2", &TORCHTITAN_TOML, keys()),
        ],
    );
    let yaml = Part::of("YAML files of 0.4 and later sources", &NANOTRON, nanotron_file::READ.to_vec());
    holds("nanotron", Target::Nanotron, &[yaml]);
    let json = Part::of("JSON files of 0.19.8", &DEEPSPEED, deepspeed_file::READ.to_vec());
    holds("DeepSpeed", Target::Deepspeed, &[json]);
    holds("MaxText", Target::Maxtext, &[Part::of("Keys of 0.2.5", &MAXTEXT, of_maxtext)]);
}

/// Fields of Megatron-Bridge that are read and are no flags.
const FIELDS: [&str; 6] = [
    "comm_overlap.delay_wgrad_compute",
    "comm_overlap.overlap_grad_reduce",
    "comm_overlap.overlap_moe_expert_parallel_comm",
    "comm_overlap.overlap_param_gather",
    "comm_overlap.tp_comm_overlap",
    "mixed_precision",
];
