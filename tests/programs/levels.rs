//! Every dump of a compilation is a text that goes on from its level: it parses back byte for byte, and compiled with the
//! same order it leads to the same later dumps.

use crate::sample::sampled;
use ir::text::{File, parse, print};
use meshwright::compiler::compile::{CompileRequest, compile_source};
use meshwright::compiler::error::Error;
use meshwright::compiler::model_source::ModelSource;
use meshwright::compiler::pipeline::passes;
use std::path::Path;

/// One device, then each parallelism.
const LAYOUTS: [&str; 6] =
    ["", "dp=2,tp=2", "dp=2,zero=1", "pp=2,tp=2", "dp=2,zero=3,recompute=full", "dp=2,zero=3,gather=step"];
/// For models with a sequence.
const SEQUENCE_LAYOUTS: [&str; 7] = [
    "dp=2,tp=2,sp=true",
    "dp=2,tp=2,pp=2,sp=true,zero=1,schedule=gpipe,offload=all",
    "tp=2,pp=2,schedule=seq1f1b",
    "dp=2,pp=2,recompute=full:1,offload=all:1,offload_optimizer=true,zero=2",
    "dp=4,cp=2,cp_kind=ulysses,recompute=selective:mlp",
    "cp=2,tp=2,cp_kind=ring,pp=2",
    "dp=2,pp=2,zero=3,gather=step,recompute=full:1",
];

/// Text after a pass.
struct Dump {
    pass: &'static str,
    text: String,
}

#[test]
fn example() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/example.ir");
    all_levels(&path.display().to_string(), &LAYOUTS, "f32");
}

#[test]
fn llama() {
    all_levels("tiny-llama", &some(&LAYOUTS, 0), "f32");
    all_levels("tiny-llama", &some(&SEQUENCE_LAYOUTS, 1), "f32");
}

#[test]
fn gpt2() {
    all_levels("tiny-gpt2", &some(&LAYOUTS, 1), "f32");
    all_levels("tiny-gpt2", &some(&SEQUENCE_LAYOUTS, 0), "f32");
}

/// All configurations, or in a sample every second one.
fn some<'a>(configs: &[&'a str], first: usize) -> Vec<&'a str> {
    configs.iter().copied().skip(sampled(first, 0)).step_by(sampled(2, 1)).collect()
}

/// Experts that drop no token.
#[test]
fn experts() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("experts.json");
    let config = r#"{"model_type": "mixtral", "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 257, "max_position_embeddings": 64,
        "num_local_experts": 4, "num_experts_per_tok": 2}"#;
    std::fs::write(&path, config).unwrap();
    all_levels(path.to_str().unwrap(), &["dp=2,ep=2", "dp=2,tp=2,pp=2,ep=2,recompute=full:1"], "f32");
}

#[test]
fn quantised() {
    all_levels("tiny-llama", &LAYOUTS[..2], "fp8-block");
    all_levels("tiny-llama", &LAYOUTS[2..], "fp8-delayed");
}

fn all_levels(model: &str, configs: &[&str], precision: &str) {
    for (number, &mesh) in configs.iter().enumerate() {
        let (model, parallel, precision) = (model.to_string(), mesh.into(), precision.to_string());
        let order = CompileRequest { model, parallel, precision, seq: 16, ..CompileRequest::default() };
        let model = &order.model;
        let compiled = ModelSource::open(model).and_then(|source| compile(&source, &order));
        let compiled = compiled.unwrap_or_else(|error| panic!("{model} on `{mesh}`: {error}"));
        let reached: Vec<&str> = compiled.dumps.iter().map(|dump| dump.pass).collect();
        // Only schedules of slices cut sequences, only rings go round, and no built-in model spells an op in primitives or has a move too many.
        let runs = |name: &&str| match *name {
            "recognise" | "simplify" => false,
            "slice" => mesh.contains("seq1f1b"),
            "quantise" => order.precision.starts_with("fp8"),
            "ring" => mesh.contains("cp_kind=ring"),
            "gather" => mesh.contains("gather=step"),
            _ => true,
        };
        let all: Vec<&str> = passes().iter().map(|pass| pass.name).filter(runs).collect();
        assert_eq!(reached, all, "{model} on `{mesh}`: the passes that are told of");
        // Rings, and gathers once a step, are made by passes that the configuration asks for.
        let last = ["gather", "ring"].into_iter().find(runs).unwrap_or("annotate");
        let seeded = all.iter().position(|&pass| pass == last).expect("a pass");
        let schedule = Some(order.parallel().expect("a configuration").schedule);
        let bare = CompileRequest { parallel: String::new(), schedule, ..order.clone() };
        // A sample has every third level, of other configurations other ones.
        for level in (sampled(number % 3, 0)..compiled.dumps.len()).step_by(sampled(3, 1)) {
            goes_on(&compiled, level, &order).unwrap_or_else(|why| panic!("{model} on `{mesh}`: {why}"));
            // From `seed` on the file says all that the configuration has said.
            if level >= seeded {
                goes_on(&compiled, level, &bare).unwrap_or_else(|why| panic!("{model} without `{mesh}`: {why}"));
            }
        }
    }
}

/// A compilation: what each pass has made, and the answer.
struct Compiled {
    dumps: Vec<Dump>,
    answer: String,
}

fn compile(source: &ModelSource, order: &CompileRequest) -> Result<Compiled, Error> {
    let mut dumps = Vec::new();
    let mut observer = |pass, file: &File| dumps.push(Dump { pass, text: print(file) });
    let answer = print(&compile_source(source, order, None, &mut observer)?);
    Ok(Compiled { dumps, answer })
}

/// A dump is its own print; the passes before it find nothing to do on it, those after it do what they did.
fn goes_on(compiled: &Compiled, level: usize, order: &CompileRequest) -> Result<(), String> {
    let Dump { pass, text } = &compiled.dumps[level];
    let file = parse(text).map_err(|why| format!("the dump of `{pass}`: {}", why.render(pass, text)))?;
    same(text, &print(&file)).map_err(|why| format!("the dump of `{pass}` is printed otherwise: {why}"))?;
    let planned = file.staged.is_none();
    let source = ModelSource::Text { from: pass.to_string(), source: text.clone(), file: Box::new(file) };
    let again = compile(&source, order).map_err(|error| format!("from `{pass}` on: {error}"))?;
    same(&compiled.answer, &again.answer).map_err(|why| format!("from `{pass}` on, the answer differs: {why}"))?;
    for (place, dump) in compiled.dumps.iter().enumerate() {
        let Some(now) = again.dumps.iter().find(|now| now.pass == dump.pass) else { continue };
        let wanted = match place > level {
            true => &dump.text,
            // Dumps of the planner's passes show the model alone.
            false if planned => text,
            false => continue,
        };
        same(wanted, &now.text).map_err(|why| format!("from `{pass}` on, `{}` differs: {why}", dump.pass))?;
    }
    Ok(())
}

/// The first line that differs.
fn same(want: &str, got: &str) -> Result<(), String> {
    if want == got {
        return Ok(());
    }
    let place = want.lines().zip(got.lines()).position(|(a, b)| a != b);
    let line = place.unwrap_or_else(|| want.lines().count().min(got.lines().count()));
    let shown = |text: &str| text.lines().nth(line).unwrap_or("the end").to_string();
    Err(format!("line {}\n  wanted {}\n  got    {}", line + 1, shown(want), shown(got)))
}
