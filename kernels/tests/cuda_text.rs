//! Generated CUDA C, computed by this processor: the very text of each kernel is run, thread by thread, on random data, against the
//! kernels of `kernels::cpu`.
#![cfg(target_os = "linux")]

mod stand_in;

use meshwright_kernels::cpu::Par;
use meshwright_kernels::cpu::dropout::normal;
use meshwright_kernels::cuda::accuracy::{self, Bound};
use meshwright_kernels::cuda::elementwise::{ADDS, WRITES, source};
use meshwright_kernels::scalar::{Access, Binary, Element, Input, Program, Step, Strides, Unary, Value};
use stand_in::{Field, Launch, StandIn};

/// A program on some data.
struct Case {
    name: String,
    program: Program,
    accumulate: bool,
    /// Elements of the result.
    n: usize,
    /// The inputs as f32, already rounded to their element types.
    inputs: Vec<Vec<f32>>,
    /// The output before the kernel runs.
    held: Vec<f32>,
    /// Bytes by which all buffers are out of line.
    shift: u64,
    bound: Bound,
}

/// Numbers that a function of this name is defined for, with some at its edges.
fn numbers(n: usize, seed: u32, positive: bool, element: Element) -> Vec<f32> {
    let finite =
        [0.0, 1.0, 20.0, 88.0, 89.0, 100.0, 1e10, 1e20, 1e30, f32::MAX, 1e-20, f32::MIN_POSITIVE, 1e-39, 1e-45];
    let edges = finite.into_iter().flat_map(|x: f32| [x, -x]).chain([f32::INFINITY, f32::NEG_INFINITY, f32::NAN]);
    let mut x: Vec<f32> = (0..n as u64).map(|i| normal([seed, 5], i) * 1.6).collect();
    if seed.is_multiple_of(2) {
        x.iter_mut().zip(edges).for_each(|(x, edge)| *x = edge);
    }
    let number = |x: f32| if positive { x.abs() } else { x };
    x.into_iter().map(|x| rounded(number(x), element)).collect()
}

/// A float rounded to an element type, by comparing the two neighbours.
fn rounded(x: f32, element: Element) -> f32 {
    if element == Element::F32 || !x.is_finite() {
        return x;
    }
    let below = f32::from_bits(x.to_bits() & 0xffff_0000);
    let above = f32::from_bits((x.to_bits() & 0xffff_0000).wrapping_add(0x1_0000));
    // Infinity stands for the next number after the largest, and rounding treats it so.
    let next = if above.is_finite() { f64::from(above) } else { 2f64.powi(128).copysign(f64::from(x)) };
    let (down, up) = ((f64::from(x) - f64::from(below)).abs(), (next - f64::from(x)).abs());
    let even = below.to_bits() & 0x1_0000 == 0;
    if down < up || (down == up && even) { below } else { above }
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut seed = 0;
    let mut add = |name: String, program: Program, accumulate: bool, n: usize, shift: u64, bound: Bound| {
        seed += 1;
        let positive = name.contains("Log") || name.contains("qrt");
        let len = |access: &Access| match access {
            Access::Same => n,
            Access::One => 1,
            Access::Strided(strides) => {
                strides.offset + 1 + strides.dims.iter().map(|(size, stride)| (size - 1) * stride).sum::<usize>()
            }
        };
        let input =
            |(i, input): (usize, &Input)| numbers(len(&input.access), 2 * seed + i as u32, positive, input.element);
        let inputs = program.inputs.iter().enumerate().map(input).collect();
        let held = numbers(n, 2 * seed + 9, positive, program.output);
        let bound = bound.rounded_to(program.output);
        cases.push(Case { name, program, accumulate, n, inputs, held, shift, bound });
    };
    for element in [Element::F32, Element::Bf16] {
        for op in Unary::ALL {
            add(format!("{op:?} {element:?}"), Program::unary(op, element), false, 1003, 0, accuracy::unary(op));
        }
        for op in Binary::ALL {
            let program = Program::binary(op, element, Access::Same, Access::Same);
            add(format!("{op:?} {element:?}"), program, false, 1003, 0, accuracy::binary(op));
        }
        let exact = |op, a, b| Program::binary(op, element, a, b);
        let add_one = exact(Binary::Sub, Access::Same, Access::One);
        add(format!("one {element:?}"), add_one.clone(), false, 130, 0, Bound::EXACT);
        add(format!("out of line {element:?}"), add_one.clone(), true, 131, 4, Bound::EXACT);
        for n in [0, 1, 3, 4, 5] {
            add(format!("{n} {element:?}"), add_one.clone(), true, n, 0, Bound::EXACT);
        }
        let transposed = Access::Strided(Strides { dims: vec![(3, 1), (5, 0), (7, 3)], offset: 2 });
        add(format!("strided {element:?}"), exact(Binary::Mul, transposed, Access::Same), true, 105, 0, Bound::EXACT);
    }
    let swiglu = Program {
        inputs: [Element::F32, Element::Bf16].map(|element| Input { element, access: Access::Same }).to_vec(),
        steps: vec![
            Step::Unary(Unary::Silu, Value::Input(0)),
            Step::Binary(Binary::Mul, Value::Step(0), Value::Input(1)),
        ],
        result: Value::Step(1),
        output: Element::Bf16,
    };
    add("chain".into(), swiglu, false, 999, 0, accuracy::unary(Unary::Silu));
    let narrow = Program { output: Element::Bf16, ..Program::copy(Element::F32, Access::Same) };
    add("cast".into(), narrow, false, 1001, 0, Bound::EXACT);
    cases
}

/// The bytes of numbers in an element type that holds them.
fn bytes(x: &[f32], element: Element) -> Vec<u8> {
    let bits = x.iter().map(|x| x.to_bits());
    match element {
        Element::F32 => bits.flat_map(u32::to_le_bytes).collect(),
        Element::Bf16 => bits.flat_map(|bits| ((bits >> 16) as u16).to_le_bytes()).collect(),
    }
}

fn floats(bytes: &[u8], element: Element) -> Vec<f32> {
    match element {
        Element::F32 => bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
        Element::Bf16 => bytes.chunks_exact(2).map(|b| f32::from_le_bytes([0, 0, b[0], b[1]])).collect(),
    }
}

/// All kernels in one text, each under names of its own. The shared functions come once.
fn kernels(cases: &[Case]) -> String {
    let mut text = String::new();
    for (number, case) in cases.iter().enumerate() {
        let source = source(&case.program).unwrap();
        let own = source
            .find("static __device__ __forceinline__ unsigned long long place0")
            .or_else(|| source.find("static __device__ __forceinline__ float value"))
            .expect("a kernel has a value");
        if number == 0 {
            text.push_str(&source[..own]);
        }
        let names = [WRITES, ADDS, "value", "place0"];
        text.push_str(&names.iter().fold(source[own..].to_string(), |text, name| numbered(&text, name, number)));
    }
    text
}

/// The text with a number behind the name of a function.
fn numbered(text: &str, name: &str, number: usize) -> String {
    let call = format!("{name}(");
    let numbered = |part: &str| match part.strip_suffix(&call) {
        Some(before) if !before.ends_with(|c: char| c.is_alphanumeric() || c == '_') => {
            format!("{before}{name}_{number}(")
        }
        _ => part.to_string(),
    };
    text.split_inclusive(&call).map(numbered).collect()
}

/// The buffers of a case and its launch, whose buffers begin with number `first`.
fn launch(case: &Case, number: usize, first: usize) -> (Vec<Vec<u8>>, String, Vec<Vec<Field>>) {
    let elements = case.program.inputs.iter().map(|input| input.element).chain([case.program.output]);
    let shifted = |(x, element): (&Vec<f32>, Element)| [vec![0; case.shift as usize], bytes(x, element)].concat();
    let buffers: Vec<Vec<u8>> = case.inputs.iter().chain([&case.held]).zip(elements).map(shifted).collect();
    let name = if case.accumulate { ADDS } else { WRITES };
    let arguments = (first..first + buffers.len()).map(|buffer| vec![Field::At(buffer, case.shift)]);
    let n = vec![Field::Value((case.n as u64).to_le_bytes().to_vec())];
    (buffers, format!("{name}_{number}"), arguments.chain([n]).collect())
}

/// Compiles and runs all cases; gives the bytes of each output.
fn run(cases: &[Case]) -> Vec<Vec<u8>> {
    let (mut buffers, mut launches, mut outputs) = (Vec::new(), Vec::new(), Vec::new());
    for (number, case) in cases.iter().enumerate() {
        let (own, name, arguments) = launch(case, number, buffers.len());
        buffers.extend(own);
        outputs.push(buffers.len() - 1);
        launches.push((name, arguments));
    }
    let launches: Vec<Launch<'_>> =
        launches.iter().map(|(name, arguments)| Launch::new(name, [2, 1, 1], [8, 1, 1], arguments.clone())).collect();
    let held = StandIn::new("cuda_text").run(&kernels(cases), &buffers, &launches, "1").unwrap();
    outputs.iter().zip(cases).map(|(output, case)| held[*output][case.shift as usize..].to_vec()).collect()
}

#[test]
fn generated_text_computes_what_the_processor_computes() {
    let cases = cases();
    for (case, bytes) in cases.iter().zip(run(&cases)) {
        let got = floats(&bytes, case.program.output);
        assert_eq!(got.len(), case.n);
        let inputs: Vec<&[f32]> = case.inputs.iter().map(|x| &x[..]).collect();
        let mut right = case.program.evaluate(&inputs, case.n, Par(1)).unwrap();
        if case.accumulate {
            right.iter_mut().zip(&case.held).for_each(|(right, held)| *right += held);
        }
        let second = |i: usize| case.inputs.get(1).map_or(0.0, |x| x[i % x.len()]);
        for (i, (&got, &right)) in got.iter().zip(&right).enumerate() {
            let right = rounded(right, case.program.output);
            let error = case.bound.error(got, right, second(i));
            let (name, bound) = (&case.name, case.bound.relative());
            assert!(error <= bound, "{name}, element {i}: {got} is not {right} (off by {error:e}, at most {bound:e})");
        }
    }
}
