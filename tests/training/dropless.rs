//! Experts that drop no token: exchanges move the rows that tokens fill and no others, on every mesh the numbers are those of one device,
//! and checkers find counts that are not those of the rows.

use crate::meshes::compare::differences;
use crate::meshes::record::{Record, sgd};
use crate::meshes::text::{GLOBAL_BATCH, SEQ};
use crate::meshes::trained::{alone, trained_on};
use crate::meshes::training::{HIDDEN, Recipe, SEED, compiled, inputs, models};
use codegen::buffers::assign_buffers;
use codegen::lower;
use cost::PROGRAM;
use ir::catalogue::Code;
use ir::graph::{Block, Model, SectionKind, Stmt};
use ir::ids::Value;
use ir::models::{Clamp, Experts, LlamaConfig, ModelConfig};
use ir::ops::{Collective, KernelOp, Op, Reshape, Unary, UnaryKind};
use ir::program::Program;
use ir::text::File;
use ir::verify;
use meshwright::collectives::{Sent, collectives};
use meshwright::runtime::exec::{Executor, Options, StepOutput};
use std::sync::LazyLock;
use std::time::Instant;

const LAYERS: u64 = 2;
/// Experts of a token.
const CHOSEN: u64 = 2;

fn recipe(experts: Experts) -> Recipe {
    let [ModelConfig::Llama(plain), _] = models() else { panic!("the first is a Llama") };
    let config = ModelConfig::Llama(LlamaConfig { experts: Some(experts), layers: LAYERS as u32, ..plain });
    Recipe { config, optimizer: sgd(), lr: 0.05, steps: 2, precision: "f32" }
}

/// Four experts, and eight of which each token takes one, so that many get nothing; both route small groups, so that ranks may share a
/// sequence. The last ones give what rows without tokens would make other numbers of than zeros: they have biases.
fn recipes() -> Vec<Recipe> {
    let few = Experts { group: Some(4), ..Experts::softmax(4, CHOSEN, 20) };
    let many = Experts { group: Some(8), shared: 24, ..Experts::softmax(8, 1, 20) };
    let biased =
        Experts { biases: true, clamp: Some(Clamp { alpha: 1.7, limit: 7.0 }), ..Experts::softmax(4, CHOSEN, 20) };
    [few, many, Experts { group: Some(8), ..biased }].map(recipe).to_vec()
}

static ALONE: LazyLock<Vec<(Recipe, Record)>> = LazyLock::new(|| alone(recipes(), 4));

fn trains_as_on_one_device(mesh: &str, sequences: u64) {
    for (which, (recipe, alone)) in ALONE.iter().enumerate() {
        let found = differences(&trained_on(recipe, mesh, sequences), alone, &recipe.optimizer);
        assert!(found.is_empty(), "recipe {which} on {mesh}: {found:#?}");
    }
}

macro_rules! meshes {
    ($($name:ident $mesh:literal $sequences:literal;)*) => {$(
        #[test]
        fn $name() {
            trains_as_on_one_device($mesh, $sequences);
        }
    )*};
}

meshes! {
    expert_parallel "dp=4,ep=4,zero=2" 8;
    uneven_batches "dp=6,ep=2" 8;
    sequence_parallel "dp=2,tp=2,ep=4,sp=true" 4;
    sharded_experts "dp=2,tp=2,ep=2,etp=2,sp=true,recompute=full" 4;
    shared_sequences "dp=2,cp=2,cp_kind=ring,ep=4" 4;
    zero_bubbles "dp=2,pp=2,ep=2,schedule=zb-h1,offload=true" 4;
    split_backward "dp=2,pp=2,ep=2,schedule=zb-v,recompute=selective:moe_act" 4;
}

/// Reports of some steps, and what the exchanges of the layers have moved: bytes of all ranks.
fn run(file: &File, recipe: &Recipe, poison: bool) -> (Vec<StepOutput>, u64) {
    let program = file.program.as_ref().expect("a program");
    let options = Options { seed: SEED, record: true, poison, ..Options::default() };
    let mut executor = Executor::load(&file.model, program, &options).expect("a machine");
    let outputs =
        inputs(&file.model, recipe, "").into_iter().map(|input| executor.step(input).expect("a step")).collect();
    let trace = executor.trace(&file.model, program);
    let events = trace.tracks.iter().flat_map(|track| &track.events);
    (outputs, events.filter_map(|event| event.bytes).sum())
}

/// Bytes of the rows that the layers exchange in a step: there and back, and so again in the backward.
const ROUTED: u64 = LAYERS * 4 * GLOBAL_BATCH * SEQ * CHOSEN * HIDDEN * 4;

#[test]
fn as_many_rows_move_as_tokens_choose() {
    let recipe = recipes().remove(0);
    for (mesh, sequences) in [("dp=2,ep=2", 4), ("dp=4,ep=4", 8), ("dp=4,ep=2,zero=1", 4), ("dp=2,pp=2,ep=2", 4)] {
        let file = compiled(&recipe, mesh, sequences);
        assert_eq!(run(&file, &recipe, false).1, ROUTED, "{mesh}");
        let report = collectives(&file).expect("a program");
        let is_layer =
            |row: &&Sent| row.body.starts_with("layer.") && row.kind == "all_to_all" && row.bytes != row.filled;
        let planned = |of: fn(&Sent) -> u64| -> u64 {
            let ranks = report.classes.iter().map(|class| class.rows.iter().filter(is_layer).map(of).sum::<u64>());
            ranks.sum::<u64>()
                * mesh.split(',').filter_map(|item| item.strip_prefix("dp=")?.parse::<u64>().ok()).sum::<u64>()
        };
        // The buffers have room for all tokens of a group at each of four experts.
        assert_eq!(planned(|row| row.bytes) / ROUTED, 2, "{mesh}");
    }
}

#[test]
fn no_bit_of_a_loss_depends_on_the_ranks_of_experts() {
    for recipe in recipes() {
        let loss = |mesh: &str| run(&compiled(&recipe, mesh, 8), &recipe, false).0[0].loss.expect("a loss").to_bits();
        let whole = loss("dp=4");
        assert_eq!(["dp=4,ep=2", "dp=4,ep=4"].map(loss), [whole; 2]);
    }
}

#[test]
fn no_rank_reads_what_is_not_filled() {
    for recipe in recipes() {
        let file = compiled(&recipe, "dp=2,tp=2,ep=4,sp=true", 4);
        let [plain, poisoned] = [false, true].map(|poison| run(&file, &recipe, poison).0);
        assert_eq!(plain, poisoned);
    }
}

/// A planned model with ragged exchanges.
fn planned() -> Model {
    compiled(&recipes().remove(0), "dp=2,ep=2", 4).model
}

fn layer(model: &mut Model) -> &mut Block {
    model.blocks.values_mut().find(|block| block.name == "layer").expect("a layer")
}

fn is_ragged(stmt: &Stmt) -> bool {
    matches!(&stmt.op, Op::Collective(change) if change.ragged().is_some())
}

/// The ragged exchanges of a section, in order.
fn ragged(block: &mut Block, kind: SectionKind) -> Vec<&mut Stmt> {
    block[kind].stmts.iter_mut().filter(|stmt| is_ragged(stmt)).collect()
}

fn codes(model: &Model) -> Vec<Code> {
    let found = verify::verify_planned(model).err().unwrap_or_default();
    found.0.iter().map(|diagnostic| diagnostic.code).collect()
}

#[test]
fn every_exchange_of_rows_is_ragged_and_counts_go_once() {
    let mut model = planned();
    assert_eq!(codes(&model), []);
    let block = layer(&mut model);
    let is_exchange = |stmt: &&Stmt| matches!(&stmt.op, Op::Collective(Collective::AllToAll { .. }));
    let all = |block: &mut Block, kind| block[kind].stmts.iter().filter(is_exchange).count();
    // In the forward, counts go before the rows go there and back; the backward knows them.
    assert_eq!([SectionKind::F, SectionKind::I, SectionKind::W].map(|kind| all(block, kind)), [3, 2, 0]);
    assert_eq!([SectionKind::F, SectionKind::I].map(|kind| ragged(block, kind).len()), [2, 2]);
    let sections = block.sections.iter().flat_map(|section| &section.stmts);
    let counted = sections.filter(|stmt| stmt.op.facts().counts.is_some()).count();
    // Three products of an expert, with two gradients each.
    assert_eq!(counted, 9);
}

/// Counts, or rows, that a checker must not take for those of an exchange.
#[test]
fn counts_of_other_rows_are_found() {
    type Break = fn(&mut Block);
    let swap: Break = |block| ragged(block, SectionKind::F)[0].operands.swap(1, 2);
    let drop: Break = |block| drop_counts(ragged(block, SectionKind::F)[0]);
    let before_twice: Break = |block| {
        let exchange = ragged(block, SectionKind::F).remove(0);
        exchange.operands[2] = exchange.operands[1];
    };
    for (what, change, code) in [
        ("counts before and after have each other's place", swap, Code::BadCollective),
        ("an exchange without its counts", drop, Code::ResultCount),
        ("the counts before are those after", before_twice, Code::BadCollective),
        ("other rows move", other_rows as Break, Code::BadCollective),
        ("counts of another routing", other_routing as Break, Code::BadCollective),
        ("counts of nothing", numbers_of_nothing as Break, Code::BadCollective),
        ("a product by counts of rows that have none", product_of_others as Break, Code::OperandMismatch),
    ] {
        let mut model = planned();
        change(layer(&mut model));
        assert!(codes(&model).contains(&code), "{what}: {:?}", codes(&model));
    }
}

fn drop_counts(exchange: &mut Stmt) {
    exchange.operands.truncate(1);
}

/// Puts an op between an operand and the first statement of the forward that is wanted.
fn between(block: &mut Block, wanted: fn(&Stmt) -> bool, operand: usize, op: impl Into<Op>) {
    let at = block[SectionKind::F].stmts.iter().position(wanted).expect("a statement");
    let stmt = block[SectionKind::F].stmts[at].clone();
    let from = stmt.operands[operand];
    let ty = block.ty(from).clone();
    let to = block.add_value("", ty);
    let (results, operands, op) = (vec![to], vec![from], op.into());
    block[SectionKind::F].stmts.insert(at, Stmt { results, operands, op, accumulate: false, ..stmt });
    block[SectionKind::F].stmts[at + 1].operands[operand] = to;
}

/// Rows that are not filled are no zeros.
fn other_rows(block: &mut Block) {
    between(block, is_ragged, 0, Unary(UnaryKind::Shift(1.0)));
}

/// Another dispatch, by the choices of the lowest scores.
fn other_routing(block: &mut Block) {
    let (mut made, stmts) = (Vec::new(), block[SectionKind::F].stmts.clone());
    let find = |name: &str| stmts.iter().find(|stmt| stmt.op.name() == name).expect("a statement");
    let mut add = |op: Op, operands: Vec<Value>, like: &[Value]| {
        let alike = |&value: &Value| {
            let ty = block.ty(value).clone();
            block.add_value("", ty)
        };
        let results: Vec<Value> = like.iter().map(alike).collect();
        made.push(Stmt { results: results.clone(), accumulate: false, op, operands, ..stmts[0].clone() });
        results
    };
    let (top_k, dispatch) = (find("top_k"), find("dispatch"));
    let lowest = add(Unary(UnaryKind::Neg).into(), vec![top_k.operands[0]], &top_k.operands[..1]);
    let chosen = add(top_k.op.clone(), lowest, &top_k.results);
    let routed = add(dispatch.op.clone(), vec![dispatch.operands[0], chosen[1]], &dispatch.results);
    let at = stmts.iter().position(|stmt| stmt.results == dispatch.results).expect("the dispatch");
    block[SectionKind::F].stmts.splice(at..at, made);
    ragged(block, SectionKind::F)[0].operands[1] = routed[1];
}

/// Counts that no routing makes.
fn numbers_of_nothing(block: &mut Block) {
    let counts = ragged(block, SectionKind::F)[0].operands[1];
    let dims = block.ty(counts).logical().dims;
    between(block, is_ragged, 1, Reshape { dims });
}

/// A product of shifted rows: those that are not filled are no zeros.
fn product_of_others(block: &mut Block) {
    let is_product = |stmt: &Stmt| stmt.op.facts().counts.is_some();
    between(block, is_product, 0, Unary(UnaryKind::Shift(1.0)));
}

/// The program in which whole chunks move, and experts compute with all of their rows.
fn of_whole_chunks(file: &File) -> Program {
    let mut model = file.model.clone();
    for stmt in model.blocks.values_mut().flat_map(|block| &mut block.sections).flat_map(|section| &mut section.stmts) {
        match &mut stmt.op {
            Op::Collective(change) if change.ragged().is_some() => {
                *change = change.clone().whole();
                stmt.operands.truncate(1);
            }
            Op::Kernel(KernelOp::Einsum(product)) if product.ragged.is_some() => {
                product.ragged = None;
                stmt.operands.truncate(2);
            }
            _ => {}
        }
    }
    let (Some(staged), Some(schedule), Some(program)) = (&file.staged, &file.schedule, &file.program) else {
        panic!("no schedule")
    };
    let mut whole = lower(&model, staged, schedule, program.microbatches, &PROGRAM).expect("a program");
    assign_buffers(&model, &mut whole, None);
    whole
}

#[test]
fn whole_chunks_give_the_same_bits() {
    for recipe in recipes() {
        let file = compiled(&recipe, "dp=2,tp=2,ep=4,sp=true", 4);
        let whole = of_whole_chunks(&file);
        let losses = |program: &Program| {
            let mut executor =
                Executor::load(&file.model, program, &Options { seed: SEED, ..Options::default() }).unwrap();
            executor.step(inputs(&file.model, &recipe, "").remove(0)).unwrap().loss.unwrap().to_bits()
        };
        assert_eq!(losses(&whole), losses(file.program.as_ref().expect("a program")));
    }
}

/// The fastest of some steps, in milliseconds.
fn fastest(file: &File, program: &Program, recipe: &Recipe) -> f64 {
    let mut executor = Executor::load(&file.model, program, &Options { seed: SEED, ..Options::default() }).unwrap();
    let step = inputs(&file.model, recipe, "").remove(0);
    let time = |_| {
        let (input, began) = (step.clone(), Instant::now());
        executor.step(input).unwrap();
        began.elapsed().as_secs_f64() * 1e3
    };
    (0..12).map(time).fold(f64::INFINITY, f64::min)
}

/// `cargo test --release --test training dropless -- --ignored --nocapture` prints the times of docs/benchmarks.md.
#[test]
#[ignore = "it measures"]
fn times_of_a_step() {
    let experts = Experts { group: Some(16), ..Experts::softmax(8, 2, 512) };
    let wide = |experts: Experts| {
        let mut recipe = recipe(experts);
        if let ModelConfig::Llama(config) = &mut recipe.config {
            (config.hidden, config.layers) = (384, 1);
        }
        recipe
    };
    for mesh in ["dp=4", "dp=4,ep=4"] {
        let dropless = wide(experts.clone());
        let file = compiled(&dropless, mesh, 16);
        let capacity = wide(Experts { capacity: Some(1.0), ..experts.clone() });
        let dropping = compiled(&capacity, mesh, 16);
        let [ragged, tight] = [&file, &dropping].map(|file| file.program.as_ref().expect("a program"));
        let times = [
            ("whole chunks", fastest(&file, &of_whole_chunks(&file), &dropless)),
            ("filled rows", fastest(&file, ragged, &dropless)),
            ("capacity 1.0", fastest(&dropping, tight, &capacity)),
        ];
        println!("{mesh}: {times:.1?} ms, {} bytes of rows move", run(&file, &dropless, false).1);
    }
}
