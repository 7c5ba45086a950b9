//! The collectives of each technique, counted in compiled programs, against the formulas of its authors. `BLESS=1 cargo test --test
//! collectives` writes the table docs/collectives.md; `meshwright compile MODEL --parallel CONFIG --collectives` prints those of a program.

use meshwright::collectives::{CollectiveReport, Sent, collectives};
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

`BLESS=1 cargo test --test collectives` writes this file; the test compares the numbers with the formulas. They are those of a layer of
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
        "docs/collectives.md has other numbers: BLESS=1 cargo test --test collectives rewrites them"
    );
}
