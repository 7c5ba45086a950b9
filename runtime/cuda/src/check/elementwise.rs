//! Checks of generated elementwise kernels: all functions in both element types, with and without full vectors, alignment,
//! accumulation and in-place results.

use super::numbers::{dtype, encoded, floats};
use super::{Bench, Found, Rows};
use crate::error::Error;
use crate::fused::{Buffers, Fused, LaunchArgs};
use crate::memory::Arena;
use kernels::cuda::accuracy::{self, Bound};
use kernels::group::{Node, Program, RandomContext, Read};
use kernels::scalar::{Access, Binary, Element, Strides, Unary};

pub(super) fn check(bench: &mut Bench, rows: &mut Rows<'_>) {
    for element in [Element::F32, Element::Bf16] {
        let kind = if element == Element::F32 { "f32" } else { "bf16" };
        for op in Unary::ALL {
            let name = format!("{op:?}").to_lowercase();
            let positive = matches!(op, Unary::Log | Unary::Sqrt | Unary::Rsqrt);
            let run = ProgramRun { positive, ..ProgramRun::default() };
            let program = |n| Program::unary(op, element, n);
            over_sizes(bench, rows, &format!("{name} {kind}"), &program, accuracy::unary(op), run);
        }
        for op in Binary::ALL {
            let program = |n| Program::binary(op, element, [(Access::Same, n), (Access::Same, n)], n);
            let name = format!("{op:?} {kind}").to_lowercase();
            over_sizes(bench, rows, &name, &program, accuracy::binary(op), ProgramRun::default());
        }
        let scaled = |n| Program::binary(Binary::Mul, element, [(Access::Same, n), (Access::One, 1)], n);
        let run = ProgramRun { accumulate: true, ..ProgramRun::default() };
        over_sizes(bench, rows, &format!("+= x c {kind}"), &scaled, Bound::EXACT, run);
        let run = ProgramRun { shift: 4, ..ProgramRun::default() };
        over_sizes(bench, rows, &format!("x c, out of line {kind}"), &scaled, Bound::EXACT, run);
        let run = ProgramRun { in_place: true, ..ProgramRun::default() };
        over_sizes(bench, rows, &format!("x c, in place {kind}"), &scaled, Bound::EXACT, run);
        let program = transpose(element, bench.extent.elements);
        rows.check(format!("transpose {kind}"), program.values[1].len.to_string(), "B/s", || {
            measure(bench, &program, Bound::EXACT, ProgramRun::default(), true)
        });
    }
    let n = bench.extent.elements;
    for (name, program, bound) in large(n) {
        rows.check(name, n.to_string(), "B/s", || measure(bench, &program, bound, ProgramRun::default(), true));
    }
}

/// The copy of a matrix of at most `elements` elements, read along its columns.
fn transpose(element: Element, elements: usize) -> Program {
    let columns = 1023;
    let rows = elements / columns;
    let strides = Strides { dims: vec![(columns, 1), (rows, columns)], offset: 0 };
    Program::copy([element; 2], (Access::Strided(strides), rows * columns), rows * columns)
}

/// Programs that are timed, on sizes beyond the cache.
fn large(n: usize) -> [(&'static str, Program, Bound); 4] {
    // `silu(gate) * up`; its product is exact up to one rounding on each side.
    let swiglu = |element| {
        let mut program = Program::default();
        let [gate, up] = [0, 1].map(|_| program.push(Node::Input, element, n));
        let silu = program.push(Node::Unary(Unary::Silu, Read::same(gate)), Element::F32, n);
        let y = program.push(Node::Binary(Binary::Mul, Read::same(silu), Read::same(up)), element, n);
        program.leave(y);
        program
    };
    let silu = accuracy::unary(Unary::Silu);
    let bound = Bound { units: silu.units + 1, ..silu };
    [
        ("copy f32", Program::copy([Element::F32; 2], (Access::Same, n), n), Bound::EXACT),
        (
            "add f32",
            Program::binary(Binary::Add, Element::F32, [(Access::Same, n), (Access::Same, n)], n),
            Bound::EXACT,
        ),
        ("swiglu f32", swiglu(Element::F32), bound),
        ("swiglu bf16", swiglu(Element::Bf16), bound),
    ]
}

/// How a program is run.
#[derive(Clone, Copy, Default)]
struct ProgramRun {
    /// On positive numbers only.
    positive: bool,
    /// Adding to the output.
    accumulate: bool,
    /// The output is the first input.
    in_place: bool,
    /// Bytes by which all buffers are out of line.
    shift: usize,
}

/// The worst over all sizes, as one row.
fn over_sizes(
    bench: &mut Bench,
    rows: &mut Rows<'_>,
    name: &str,
    program: &dyn Fn(usize) -> Program,
    bound: Bound,
    run: ProgramRun,
) {
    // One, less than a vector, whole vectors, and many with a rest.
    let sizes = [1, 3, 4096, bench.extent.elements / 16 + 3];
    rows.check(name, sizes.map(|n| n.to_string()).join(", "), "B/s", || {
        let mut worst = Found::results(0.0, f64::from(bound.rounded_to(program(1).outs[0].element).relative()));
        for n in sizes {
            worst.error = worst.error.max(measure(bench, &program(n), bound, run, false)?.error);
        }
        Ok::<_, Error>(worst)
    });
}

fn measure(bench: &mut Bench, program: &Program, bound: Bound, run: ProgramRun, timed: bool) -> Result<Found, Error> {
    let kernel = Fused::new(&bench.device, program)?;
    let (out, n) = (program.outs[0].element, program.len(&program.outs[0]));
    let inputs: Vec<Vec<f32>> = (program.inputs().enumerate())
        .map(|(i, at)| {
            let input = &program.values[at];
            let numbers = bench.normals(input.len, i).iter();
            numbers.map(|&x| input.element.nearest(if run.positive { x.abs() } else { x })).collect()
        })
        .collect();
    let held: Vec<f32> = bench.normals(n, 9).iter().map(|&x| out.nearest(x)).collect();

    // Each buffer begins at a multiple of 256 bytes, plus the shift.
    let elements: Vec<Element> = program.inputs().map(|at| program.values[at].element).chain([out]).collect();
    let buffers: Vec<Vec<u8>> =
        inputs.iter().chain([&held]).zip(&elements).map(|(x, e)| encoded(dtype(*e), x)).collect();
    let ends: Vec<usize> = buffers
        .iter()
        .scan(0, |end, buffer| {
            *end += (buffer.len() + run.shift).next_multiple_of(256);
            Some(*end)
        })
        .collect();
    let arena = Arena::new(&bench.device, ends[ends.len() - 1])?;
    let mut addresses = Vec::new();
    for (i, buffer) in buffers.iter().enumerate() {
        let start = if i == 0 { 0 } else { ends[i - 1] } + run.shift;
        addresses.push(arena.address(start, buffer.len()));
        // SAFETY: the buffer was just taken.
        unsafe { bench.staging.write(&bench.stream, addresses[i], buffer)? };
    }
    let (inputs_at, place) = addresses.split_at(inputs.len());
    let place = if run.in_place { addresses[0] } else { place[0] };
    let args = LaunchArgs { elements: n, adds: u64::from(run.accumulate), ..LaunchArgs::default() };
    let at = Buffers { inputs: inputs_at, outs: &[place], partials: 0 };
    // SAFETY: all buffers are in the arena and are as long as the program reads; this is the only stream.
    let launch = |stream: &_| unsafe { kernel.launch(stream, at, args) };
    launch(&bench.stream)?;
    let mut got = vec![0; n * out.bytes()];
    // SAFETY: as above.
    unsafe { bench.staging.read(&bench.stream, &mut got, place)? };

    let slices: Vec<&[f32]> = inputs.iter().map(|x| &x[..]).collect();
    let right = program.evaluate(&slices, RandomContext::default(), bench.par).map_err(Error::Program)?.swap_remove(0);
    let bound = bound.rounded_to(out);
    let second = |i: usize| inputs.get(1).map_or(0.0, |x| x[i % x.len()]);
    let errors = floats(dtype(out), &got).into_iter().zip(right).zip(&held).enumerate();
    let error = errors.map(|(i, ((got, right), held))| {
        let right = if run.accumulate { right + held } else { right };
        bound.error(got, out.nearest(right), second(i))
    });
    let found = Found::results(f64::from(error.fold(0.0, f32::max)), f64::from(bound.relative()));
    if !timed {
        return Ok(found);
    }
    let moved: usize = buffers.iter().map(Vec::len).sum();
    let seconds = bench.seconds(launch)?;
    Ok(found.at(moved as f64 / seconds, bench.device.properties().peaks.memory))
}
