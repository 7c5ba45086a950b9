//! An op of your own: a graph of existing ops in place of one of a model.
//!
//! The ops of the IR are a closed set, so that every op has a sharding rule, a gradient, a kernel and a reference. An op of your
//! own is a function that builds a graph of them. The gradient follows by differentiation, shardings and collectives follow
//! from the rules of the graph's ops, and the program runs on every mesh. (A kernel of its own needs a change of the crates:
//! CONTRIBUTING.md, "An Op".)
//!
//! ```sh
//! cargo run --release --example own_op
//! ```

use meshwright::ir::graph::Stmt;
use meshwright::ir::ids::Value;
use meshwright::ir::ops::{Binary, BinaryKind, Builder, Op, Unary, UnaryKind};
use meshwright::ir::optimizer::Optimizer;
use meshwright::ir::text::{parse, print};
use meshwright::runtime::exec::{Executor, Input, Options, StepInput};
use meshwright::runtime::reference::{Array, MicroBatch, Reference, Tensor};
use meshwright::transforms::differentiate::differentiate;
use meshwright::transforms::rewrite::rewrite;
use std::collections::BTreeMap;
use std::error::Error;
use std::io::{Write, stdout};

/// Two feed-forward layers with `silu` between their matmuls, and a classifier.
const MODEL: &str = include_str!("../docs/example.ir");
/// The sizes of `dims` in that text: samples of a micro-batch, hidden size, classes.
const B: usize = 8;
const H: usize = 16;
const V: usize = 32;
/// Seed of the initial parameters, and the learning rate.
const SEED: u64 = 1;
const RATE: f32 = 1e-2;

fn main() -> Result<(), Box<dyn Error>> {
    run(&mut stdout())
}

/// The op: `x * sigmoid(1.702 x)`, the sigmoid approximation of GELU (Hendrycks and Gimpel 2016), in place of every `silu`.
fn quick_gelu(builder: &mut Builder<'_>, stmt: &Stmt) -> Result<Option<Vec<Value>>, String> {
    if stmt.op != Op::from(Unary(UnaryKind::Silu)) {
        return Ok(None);
    }
    let x = stmt.operands[0];
    let scaled = builder.one(Unary(UnaryKind::Scale(1.702)), &[x])?;
    let gate = builder.one(Unary(UnaryKind::Sigmoid), &[scaled])?;
    let product = builder.one(Binary { kind: BinaryKind::Mul, equation: None }, &[x, gate])?;
    Ok(Some(vec![product]))
}

/// Builds, compiles and runs the model, and writes what comes of it to `out`.
///
/// # Errors
/// The model does not compile or run, or `out` cannot be written.
pub(crate) fn run(out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let mut model = parse(MODEL)?.model;
    let replaced = rewrite(&mut model, quick_gelu)?;
    writeln!(out, "{replaced} statement replaced")?;

    // On a mesh: F is the graph, I its gradient. Each of their values is sharded over tp by the rules of the ops alone.
    let request = || meshwright::compile(model.clone()).parallel("dp=2,tp=2").batch(B as u64, 1);
    let text = print(&request().stop_after("collectives").run()?);
    let layer = text.lines().skip_while(|line| !line.starts_with("block @layer"));
    for line in layer.take_while(|line| !line.starts_with("W:")) {
        writeln!(out, "{line}")?;
    }

    // The reference evaluator computes what the model means: unsharded, in f64, by the definition of each op.
    let input: Vec<f32> = (0..B * H).map(|at| (at as f32 * 0.7).sin()).collect();
    let labels: Vec<i32> = (0..B).map(|at| (at * 5 % V) as i32).collect();
    let float = Tensor { dims: vec![B, H], data: input.iter().map(|&x| f64::from(x)).collect() };
    let int = Tensor { dims: vec![B], data: labels.clone() };
    let inputs = BTreeMap::from([("in".to_string(), Array::Real(float)), ("lab".to_string(), Array::Int(int))]);
    let meaning = differentiate(model.clone(), &Optimizer::default())?;
    let mut reference = Reference::<f64>::new(&meaning, SEED);
    let expected = reference.step(&[MicroBatch { inputs, valid: B }], f64::from(RATE))?;

    // The executor runs the compiled program on four devices.
    let file = request().run()?;
    let program = file.program.as_ref().ok_or("no program")?;
    let mut executor = Executor::load(&file.model, program, &Options { seed: SEED, ..Options::default() })?;
    let feed = |name: &str| if name == "in" { Input::Floats(input.clone()) } else { Input::Ints(labels.clone()) };
    let inputs = file.model.inputs.iter().map(|input| (input.value, feed(&file.model.values[input.value]))).collect();
    let step =
        StepInput { microbatches: vec![inputs], valid_tokens: B as u64, loss_scale: 1.0, lr: RATE, step: 1, update: 1 };
    let loss = executor.step(step)?.loss.ok_or("no loss")?;
    writeln!(out, "\nloss: {:.5} by the reference, {loss:.5} on {} devices", expected.loss, file.model.mesh.devices())?;

    // So do the gradients, up to rounding of f32.
    let mut largest = 0.0_f64;
    for (name, gradient) in executor.gradients()? {
        let expected = &reference.gradients()[&name].data;
        let differences = gradient.data.iter().zip(expected).map(|(&got, want)| (f64::from(got) - want).abs());
        largest = differences.fold(largest, f64::max);
    }
    writeln!(out, "gradients differ by at most {largest:.0e}")?;
    Ok(())
}
