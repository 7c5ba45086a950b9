//! The collectives of each technique, counted in compiled programs, against the formulas of its authors. `BLESS=1 cargo test --test
//! collectives` writes the table docs/collectives.md; `meshwright compile MODEL --parallel CONFIG --collectives` prints those of a program.

use ir::text::File;
use meshwright::collectives::{CollectiveReport, Sent, collectives};
use meshwright::runtime::exec::{Executor, Input, Options, StepInput};
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// Sizes of tiny-llama on sequences of 128 tokens, of a layer and a micro-batch of one sequence; bytes are those of f32.
const LAYERS: u64 = 4;
const MICROBATCHES: u64 = 4;
/// The residual stream: 128 x 256.
const A: u64 = 4 * 128 * 256;
/// Queries, 128 x 8 x 32, and keys, as large as values, 128 x 4 x 32.
const Q: u64 = 4 * 128 * 8 * 32;
const K: u64 = 4 * 128 * 4 * 32;
/// Positions, as large as segments.
const INDICES: u64 = 4 * 128;
/// Two norms, projections of queries, keys, values and outputs, and three matrices of the feed-forward net.
const PARAMETERS: u64 = 4 * (2 * 256 + 2 * 256 * 256 + 2 * 256 * 128 + 3 * 256 * 768);
/// The norms of them.
const NORMS: u64 = 4 * 2 * 256;
/// Parameter tensors of a layer.
const TENSORS: u64 = 9;
/// Rows of tiny-moe's experts on a rank of two: 8 experts, each with capacity for 2 x 2 / 8 of 128 tokens, of 256 elements.
const DISPATCHED: u64 = 4 * 8 * 64 * 256;

/// Transfers that a technique needs.
struct Need {
    /// The body of the program.
    body: &'static str,
    kind: &'static str,
    /// How many in a step, and their bytes, of a layer.
    count: u64,
    bytes: u64,
    /// The formula of the bytes, and its source.
    formula: &'static str,
}

const fn need(body: &'static str, kind: &'static str, count: u64, bytes: u64, formula: &'static str) -> Need {
    Need { body, kind, count, bytes, formula }
}

/// A technique: its name, model and configuration, and all transfers of its layers in a step.
struct Technique {
    name: &'static str,
    model: &'static str,
    parallel: &'static str,
    needs: &'static [Need],
}

const fn technique(name: &'static str, parallel: &'static str, needs: &'static [Need]) -> Technique {
    Technique { name, model: "tiny-llama", parallel, needs }
}

/// Micro-batches of a step.
const M: u64 = MICROBATCHES;
/// Ranks that share sequences sum the gradients of their parameters.
const SUMMED: Need = need("layer.R", "all_reduce", 1, PARAMETERS, "P, once a step");

const TECHNIQUES: &[Technique] = &[
    technique("data parallelism", "dp=2", &[need("layer.R", "all_reduce", 1, PARAMETERS, "P, once a step")]),
    technique(
        "ZeRO-1",
        "dp=2,zero=1",
        &[
            need("layer.R", "reduce_scatter", 1, PARAMETERS, "P, once a step"),
            need("layer.U", "all_gather", 1, PARAMETERS, "P, once a step"),
        ],
    ),
    technique(
        "ZeRO-2",
        "dp=2,zero=2",
        &[
            need("layer.B", "reduce_scatter", M * TENSORS, M * PARAMETERS, "m P"),
            need("layer.U", "all_gather", 1, PARAMETERS, "P, once a step"),
        ],
    ),
    technique(
        "ZeRO-3",
        "dp=2,zero=3",
        &[
            need("layer.F", "all_gather", M * TENSORS, M * PARAMETERS, "m P"),
            need("layer.B", "all_gather", M * TENSORS, M * PARAMETERS, "m P"),
            need("layer.B", "reduce_scatter", M * TENSORS, M * PARAMETERS, "m P"),
        ],
    ),
    technique(
        "ZeRO-3, gathered once a step",
        "dp=2,zero=3,gather=step",
        &[
            need("layer.G", "all_gather", 1, PARAMETERS, "P, once a step"),
            need("layer.B", "reduce_scatter", M * TENSORS, M * PARAMETERS, "m P"),
        ],
    ),
    technique(
        "tensor parallelism",
        "tp=2",
        &[
            need("layer.F", "all_reduce", 2 * M, 2 * M * A, "2 m A"),
            need("layer.B", "all_reduce", 2 * M, 2 * M * A, "2 m A"),
        ],
    ),
    technique(
        "tensor and sequence parallelism",
        "tp=2,sp=true",
        &[
            need("layer.F", "all_gather", 2 * M, 2 * M * A, "2 m A"),
            need("layer.F", "reduce_scatter", 2 * M, 2 * M * A, "2 m A"),
            need("layer.B", "all_gather", 4 * M, 4 * M * A, "2 m A, and 2 m A of inputs that are not saved"),
            need("layer.B", "reduce_scatter", 2 * M, 2 * M * A, "2 m A"),
            need("layer.R", "all_reduce", 1, NORMS, "norms, once a step"),
        ],
    ),
    technique(
        "context parallelism by gathers",
        "cp=4,cp_kind=allgather",
        &[
            need("layer.F", "all_gather", 4 * M, M * (2 * K + 2 * INDICES), "m (2 K + i)"),
            need("layer.B", "all_gather", 4 * M, M * (2 * K + 2 * INDICES), "m (2 K + i)"),
            need("layer.B", "reduce_scatter", 2 * M, M * 2 * K, "2 m K"),
            SUMMED,
        ],
    ),
    technique(
        "context parallelism by a ring",
        "cp=4,cp_kind=ring",
        &[
            need("layer.F", "collective_shift", 3 * M, M * 3 * (2 * K + 2 * INDICES) / 4, "m (c-1)/c (2 K + i)"),
            need(
                "layer.B",
                "collective_shift",
                7 * M,
                M * (3 * (2 * K + 2 * INDICES) / 4 + 2 * K),
                "m (c-1)/c (2 K + i), and 2 m K of gradients",
            ),
            SUMMED,
        ],
    ),
    technique(
        "context parallelism by heads",
        "cp=2,cp_kind=ulysses",
        &[
            need("layer.F", "all_to_all", 4 * M, M * (2 * Q + 2 * K) / 2, "m (2 Q + 2 K)/c"),
            need("layer.F", "all_gather", 2 * M, M * 2 * INDICES, "m i"),
            need("layer.B", "all_to_all", 4 * M, M * (2 * Q + 2 * K) / 2, "m (2 Q + 2 K)/c"),
            need("layer.B", "all_gather", 2 * M, M * 2 * INDICES, "m i"),
            SUMMED,
        ],
    ),
    Technique {
        name: "expert parallelism",
        model: "tiny-moe",
        parallel: "dp=2,ep=2",
        needs: &[
            need("layer.F", "all_to_all", 2 * M, 2 * M * DISPATCHED, "2 m D"),
            need("layer.B", "all_to_all", 2 * M, 2 * M * DISPATCHED, "2 m D"),
        ],
    },
    technique("pipeline parallelism", "pp=2", &[need("pipeline", "send", M, M * A, "m A, at the border of a stage")]),
];

/// tiny-moe, with experts that drop no token.
const DROPLESS: &str = r#"{"model_type": "mixtral", "hidden_size": 256, "intermediate_size": 256, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 257, "max_position_embeddings": 256,
    "num_local_experts": 8, "num_experts_per_tok": 2}"#;
/// Rows that two choices of 128 tokens fill, and room for all tokens at each of eight experts, of 256 elements.
const ROUTED: u64 = 4 * 2 * 128 * 256;
const ROOM: u64 = 4 * 8 * 128 * 256;

/// The model of dropless experts on two ranks.
fn dropless() -> File {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("dropless.json");
    fs::write(&path, DROPLESS).unwrap();
    let file = meshwright::compile(path.to_str().unwrap()).parallel("dp=2,ep=2").batch(2 * M, 128).run();
    file.unwrap_or_else(|why| panic!("{why}"))
}

/// Bytes of rows that the exchanges of a body have moved in a step, on average of the two ranks.
fn moved(file: &File, body: &str) -> u64 {
    let (model, program) = (&file.model, file.program.as_ref().expect("a program"));
    let mut executor = Executor::load(model, program, &Options { record: true, ..Options::default() }).unwrap();
    let input = |micro: u64| {
        let number = |i: u64, name: &str| match name {
            "tok" | "lab" => ((i + 977 * micro) * i % 257) as i32,
            "pos" => (i % 128) as i32,
            _ => 0,
        };
        let of_input = |input: &ir::graph::ModelInput| {
            let name = &model.values[input.value];
            (input.value, Input::Ints((0..input.ty.elements()).map(|i| number(i, name)).collect()))
        };
        model.inputs.iter().map(of_input).collect()
    };
    let microbatches = (0..M).map(input).collect();
    let valid_tokens = M * 2 * 128;
    executor.step(StepInput { microbatches, valid_tokens, loss_scale: 1.0, lr: 0.0, step: 1, update: 1 }).unwrap();
    let trace = executor.trace(model, program);
    let events = trace.tracks.iter().flat_map(|track| &track.events);
    let of_body = events.filter(|event| trace.site(event).name.starts_with(body));
    of_body.filter_map(|event| event.bytes).sum::<u64>() / 2
}

/// Rows of the table of experts that drop no token: planned, on average, and measured bytes of a layer.
fn ragged() -> Vec<(&'static str, [u64; 3])> {
    let file = dropless();
    let report = collectives(&file).expect("a program");
    let row = |body: &'static str| {
        let is_rows = |row: &&Sent| row.body == body && row.kind == "all_to_all";
        let row = report.classes[0].rows.iter().find(is_rows).expect("exchanges");
        // Those of counts are exchanges, too.
        let counts = if body == "layer.F" { LAYERS * M * 4 * 8 } else { 0 };
        (body, [row.bytes - counts, row.filled - counts, moved(&file, body)].map(|bytes| bytes / LAYERS))
    };
    ["layer.F", "layer.B"].map(row).to_vec()
}

#[test]
fn experts_that_drop_nothing_exchange_the_rows_that_tokens_fill() {
    for (body, bytes) in ragged() {
        assert_eq!(bytes, [2 * M * ROOM, 2 * M * ROUTED, 2 * M * ROUTED], "{body}");
    }
}

fn report(technique: &Technique) -> CollectiveReport {
    let ranks = if technique.parallel.starts_with("dp=2") { 2 } else { 1 };
    let file = meshwright::compile(technique.model).parallel(technique.parallel).batch(ranks * M, 128).run();
    let file = file.unwrap_or_else(|why| panic!("{}: {why}", technique.parallel));
    collectives(&file).expect("a program")
}

/// Transfers of the layers, or of the pipeline, over the axes of the technique.
fn measured(technique: &Technique) -> Vec<Sent> {
    let report = report(technique);
    // Between stages there are also sums of losses, norms and tied parameters.
    let of_layers = |row: &&Sent| row.body.starts_with("layer.") || (row.body == "pipeline" && row.kind == "send");
    report.classes[0].rows.iter().filter(of_layers).cloned().collect()
}

/// Layers of a pipeline rank: all, but for the pipeline's border.
fn layers(need: &Need) -> u64 {
    if need.body == "pipeline" { 1 } else { LAYERS }
}

#[test]
fn every_technique_has_the_collectives_of_its_formula() {
    for technique in TECHNIQUES {
        let found = measured(technique);
        for need in technique.needs {
            let row = found.iter().find(|row| (row.body.as_str(), row.kind.as_str()) == (need.body, need.kind));
            let row =
                row.unwrap_or_else(|| panic!("{}: no {} in {}: {found:#?}", technique.name, need.kind, need.body));
            let want = [layers(need) * need.count, layers(need) * need.bytes];
            assert_eq!([row.count, row.bytes], want, "{}: {} of {}", technique.name, need.kind, need.body);
        }
        // Experts have a data-parallel group of their own, whose gradients are no part of the technique.
        let is_known = |row: &Sent| technique.needs.iter().any(|need| (need.body, need.kind) == (&row.body, &row.kind));
        let rest: Vec<&Sent> = found.iter().filter(|row| !is_known(row) && technique.model == "tiny-llama").collect();
        assert!(rest.is_empty(), "{}: {rest:#?}", technique.name);
    }
}

#[test]
fn the_table_is_that_of_the_programs() {
    let mut text = String::from(
        "# Collectives of the Techniques

`BLESS=1 cargo test --test planning collectives` writes this file; the test compares the numbers with the formulas. They are those of a layer of
tiny-llama and a step of m = 4 micro-batches of one sequence of 128 tokens, in f32, on a rank. `meshwright compile MODEL --parallel CONFIG
--collectives` prints all of a program.

P are the parameters of a layer, A is the residual stream of a micro-batch, Q are its queries, K its keys, and i its positions and segments. D are
the rows that are dispatched to experts, those of tiny-moe, with capacity for twice the mean. c are the ranks of a sequence. Bytes are those of the
larger side of a collective, operand or result. Of n ranks, each sends (n-1)/n of them, twice as much in an all-reduce, and all of a shift.

| technique | configuration | body | collective | a step | formula | bytes |
| --- | --- | --- | --- | --- | --- | --- |
",
    );
    for technique in TECHNIQUES {
        for (number, need) in technique.needs.iter().enumerate() {
            let Need { body, kind, count, bytes, formula } = need;
            let first = |text: &str| if number == 0 { text.to_string() } else { String::new() };
            let (name, parallel) = (first(technique.name), first(&format!("`{}`", technique.parallel)));
            let _ = writeln!(text, "| {name} | {parallel} | `{body}` | `{kind}` | {count} | {formula} | {bytes} |");
        }
    }
    text.push_str(
        "
Experts that drop no token have capacity for all tokens of a group, and few come. Exchanges move filled rows alone: with `dp=2,ep=2`,
tiny-moe's sizes and no capacity factor, on average of the ranks. Of 8 experts each token chooses 2, so that a quarter of the capacity is
filled. Counts of rows go before the rows, once: 32 bytes of a micro-batch.

| body | collective | planned capacity | filled if tokens choose alike | measured |
| --- | --- | --- | --- | --- |
",
    );
    for (body, [planned, filled, measured]) in ragged() {
        let _ = writeln!(text, "| `{body}` | `all_to_all` | {planned} | {filled} | {measured} |");
    }
    text.push_str(
        "
Sources: gradients and ZeRO, Rajbhandari et al. 2020 (ZeRO, section 7; 2 P, and 3 P with sharded parameters, in units of what a rank sends);
tensor parallelism, Shoeybi et al. 2019 (section 3); sequence parallelism, Korthikanti et al. 2022 (section 4.2.2); gathers of keys, Dubey et
al. 2024 (section 3.3.2); rings, Liu et al. 2023; heads, Jacobs et al. 2023 (section 3.2); experts, Lepikhin et al. 2021 (section 3.1).
",
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/collectives.md");
    if std::env::var_os("BLESS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        text == written,
        "docs/collectives.md has other numbers: BLESS=1 cargo test --test planning collectives rewrites them"
    );
}
