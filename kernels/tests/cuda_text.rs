//! Generated CUDA C, computed by this processor: the very text of each kernel is run, thread by thread, on random data, against the
//! meaning of its program.
#![cfg(target_os = "linux")]

mod stand_in;

use meshwright_kernels::cpu::Par;
use meshwright_kernels::cpu::dropout::normal;
use meshwright_kernels::cuda::accuracy::{self, Bound};
use meshwright_kernels::cuda::kernel::{CHUNKS, GROUP, Kernel, SLICES, WARP};
use meshwright_kernels::group::{
    Comparison, Index, Node, Out, Program, Random, RandomContext, Read, Reduction, Rotate, Select, Take,
};
use meshwright_kernels::scalar::{Access, Binary, Element, Strides, Unary};
use stand_in::{Field, Launch, StandIn};

/// The orders of threads and blocks in which all kernels run.
const ORDERS: [&str; 3] = ["forward", "reverse", "7"];

const RANDOM: RandomContext = RandomContext { seed: 5, step: 3, index: 2, microbatch: 4 };

/// A program on some data.
struct Case {
    name: String,
    program: Program,
    accumulate: bool,
    /// The inputs as f32, already rounded to their element types.
    inputs: Vec<Vec<f32>>,
    /// The outs before the kernel runs.
    held: Vec<Vec<f32>>,
    /// Bytes by which all buffers are out of line.
    shift: u64,
    bound: Bound,
}

/// The types of floats.
const ELEMENTS: [Element; 5] = [Element::F32, Element::Bf16, Element::F16, Element::F8E4M3, Element::F8E5M2];

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
    x.into_iter().map(|x| element.nearest(number(x))).collect()
}

/// Small integers.
fn integers(n: usize, seed: u32, most: i32) -> Vec<f32> {
    (0..n as u64).map(|i| (normal([seed, 6], i) * most as f32) as i32 % (most + 1)).map(|x| x as f32).collect()
}

/// The functions of single elements.
fn functions() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    let mut add = |name: String, program: Program, accumulate: bool, shift: u64, bound: Bound| {
        let seed = cases.len() as u32 + 1;
        let positive = name.contains("Log") || name.contains("qrt");
        let input = |(i, at): (usize, usize)| {
            let value = &program.values[at];
            numbers(value.len, 2 * seed + i as u32, positive, value.element)
        };
        let inputs = program.inputs().enumerate().map(input).collect();
        let held =
            program.outs.iter().map(|out| numbers(program.len(out), 2 * seed + 9, positive, out.element)).collect();
        let bound = bound.rounded_to(program.outs[0].element);
        cases.push(Case { name, program, accumulate, inputs, held, shift, bound });
    };
    for element in ELEMENTS {
        let (unary, binary) = match element {
            Element::F32 | Element::Bf16 => (&Unary::ALL[..], &Binary::ALL[..]),
            _ => (&[Unary::Silu, Unary::Recip][..], &[Binary::Add, Binary::Div][..]),
        };
        for &op in unary {
            add(format!("{op:?} {element:?}"), Program::unary(op, element, 203), false, 0, accuracy::unary(op));
        }
        let same = |n| [(Access::Same, n), (Access::Same, n)];
        for &op in binary {
            let program = Program::binary(op, element, same(203), 203);
            add(format!("{op:?} {element:?}"), program, false, 0, accuracy::binary(op));
        }
        let less_one = |n| Program::binary(Binary::Sub, element, [(Access::Same, n), (Access::One, 1)], n);
        add(format!("one {element:?}"), less_one(130), false, 0, Bound::EXACT);
        add(format!("out of line {element:?}"), less_one(131), true, 4, Bound::EXACT);
        for n in [1, 3, 4, 5] {
            add(format!("{n} {element:?}"), less_one(n), true, 0, Bound::EXACT);
        }
        let transposed = Access::Strided(Strides { dims: vec![(3, 1), (5, 0), (7, 3)], offset: 2 });
        let strided = Program::binary(Binary::Mul, element, [(transposed, 23), (Access::Same, 105)], 105);
        add(format!("strided {element:?}"), strided, true, 0, Bound::EXACT);
        // Four neighbours have neighbours, or the same.
        let (columns, rows) = (vec![(5, 0), (8, 1)], vec![(5, 1), (8, 0)]);
        let [columns, rows] = [columns, rows].map(|dims| Access::Strided(Strides { dims, offset: 0 }));
        let spread = Program::binary(Binary::Sub, element, [(columns, 8), (rows, 5)], 40);
        add(format!("spread {element:?}"), spread, false, 0, Bound::EXACT);
        // A stack of matrices that are transposed: tiles, some of which are not full.
        let turned = Access::Strided(Strides { dims: vec![(2, 33), (33, 1), (2, 2640), (40, 66)], offset: 3 });
        let moved = Program::copy([Element::F32, element], (turned, 5283), 5280);
        add(format!("turned to {element:?}"), moved, true, 0, Bound::EXACT);
        for from in ELEMENTS {
            let cast = Program::copy([from, element], (Access::Same, 301), 301);
            add(format!("{from:?} to {element:?}"), cast, false, 0, Bound::EXACT);
        }
    }
    cases
}

/// The other kinds of values, on integers, of which sums in any order are exact.
fn kinds(rows: usize, width: usize) -> Program {
    let n = rows * width;
    let mut program = Program::default();
    let input = |program: &mut Program, element, len| program.push(Node::Input, element, len);
    let x = input(&mut program, Element::Bf16, n);
    let [row, column] = [rows, width].map(|len| input(&mut program, Element::I32, len));
    let table = input(&mut program, Element::F32, 10 * width);
    let along = |value, dims: [(usize, usize); 2]| Read {
        value,
        access: Access::Strided(Strides { dims: dims.to_vec(), offset: 0 }),
    };
    let of_row = |value| along(value, [(rows, 1), (width, 0)]);
    let of_column = |value| along(value, [(rows, 0), (width, 1)]);
    let place = program.push(Node::Index(Index { origin: -2, size: width, inner: 1 }), Element::I32, n);
    let hit = Node::Compare(Comparison::LessEqual, Read::same(place), of_column(column));
    let hit = program.push(hit, Element::I32, n);
    let base = Strides { dims: vec![(rows, 0), (width, 1)], offset: 0 };
    let take = Take { of: table, base, index: of_row(row), origin: -4, size: 10, stride: width };
    let taken = program.push(Node::Take(take), Element::F32, n);
    let select = Select { mask: Read::same(hit), not: true, of: Read::same(x), other: Some(Read::same(taken)) };
    let chosen = program.push(Node::Select(select), Element::F32, n);
    let most = program.push(Node::Reduce(Reduction::Max, chosen, width), Element::F32, rows);
    let less = program.push(Node::Binary(Binary::Sub, Read::same(chosen), of_row(most)), Element::F32, n);
    let sum = program.push(Node::Reduce(Reduction::Sum, less, width), Element::F32, rows);
    let total = program.push(Node::Binary(Binary::Add, Read::same(less), of_row(sum)), Element::F32, n);
    // An element of each row, by an integer that may be outside.
    let base = Strides { dims: vec![(rows, width)], offset: 0 };
    let pick = Take { of: less, base, index: Read::same(row), origin: 1, size: width, stride: 1 };
    let picked = program.push(Node::Take(pick), Element::F32, rows);
    let random = Random { path: "a.b".into(), counter: Strides { dims: vec![(n, 3)], offset: 7 }, microbatch: 1000 };
    let random = program.push(Node::Random(random), Element::F32, n);
    for value in [total, sum, picked, random] {
        program.leave(value);
    }
    program.outs.push(Out { value: total, element: Element::F32, columns: Some(width), adds: true });
    program.outs.push(Out { value: picked, element: Element::Bf16, columns: Some(1), adds: true });
    program
}

/// Sums over rows of differences of numbers of a type, and these, on integers.
fn sum_case([rows, width]: [usize; 2], element: Element, shift: u64) -> Case {
    let (n, mut program) = (rows * width, Program::default());
    let [x, column] = [n, width].map(|len| program.push(Node::Input, element, len));
    let along = Access::Strided(Strides { dims: vec![(rows, 0), (width, 1)], offset: 0 });
    let less = Node::Binary(Binary::Sub, Read::same(x), Read { value: column, access: along });
    let less = program.push(less, element, n);
    program.leave(less);
    program.outs[0].adds = true;
    program.outs.push(Out { value: less, element: Element::F32, columns: Some(width), adds: true });
    let inputs = vec![integers(n, 1, 6), integers(width, 2, 6)];
    let held = vec![integers(n, 3, 6), integers(width, 4, 6)];
    let name = format!("sums of {rows} x {width} {element:?}, out of line by {shift}");
    Case { name, program, accumulate: shift > 0, inputs, held, shift, bound: Bound::EXACT }
}

fn kind_case([rows, width]: [usize; 2], accumulate: bool) -> Case {
    let program = kinds(rows, width);
    let input = |(i, at): (usize, usize)| integers(program.values[at].len, i as u32, 6);
    let inputs = program.inputs().enumerate().map(input).collect();
    let held = program.outs.iter().map(|out| integers(program.len(out), 9, 9)).collect();
    Case { name: format!("{rows} x {width}"), program, accumulate, inputs, held, shift: 0, bound: Bound::EXACT }
}

/// Heads of a size turned by positions; sines and cosines are off by 3e-7 on each side.
fn rotation(head: usize) -> Case {
    let (rows, heads) = (5, 3);
    let (n, mut program) = (rows * heads * head, Program::default());
    let x = program.push(Node::Input, Element::F32, n);
    let position = program.push(Node::Input, Element::I32, rows);
    let shifted = program.push(Node::Unary(Unary::Shift(0.5), Read::same(x)), Element::F32, n);
    let access = Access::Strided(Strides { dims: vec![(rows, 1), (heads * head, 0)], offset: 0 });
    let turns = (0..head / 2).map(|i| 0.3 / (1.0 + 7.0 * i as f64)).collect();
    let rotate =
        Rotate { of: shifted, position: Read { value: position, access }, turns, beyond: None, gain: 1.25, head };
    let y = program.push(Node::Rotate(rotate), Element::F32, n);
    program.leave(y);
    let inputs = vec![integers(n, 1, 1), vec![0.0, 1.0, 1000.0, 65_535.0, 1_048_576.0]];
    let bound = Bound { units: 12, floor: accuracy::Floor::Number(2.0) };
    Case {
        name: format!("rotation of {head}"),
        program,
        accumulate: false,
        inputs,
        held: vec![vec![0.0; n]],
        shift: 0,
        bound,
    }
}

/// The bytes of numbers in an element type that holds them.
fn bytes(x: &[f32], element: Element) -> Vec<u8> {
    use meshwright_kernels::cpu::narrow::round;
    match element.narrow() {
        Some(format) => {
            let mut bytes = vec![0; x.len() * element.bytes()];
            round(format, x, &mut bytes, Par(1));
            bytes
        }
        None if element == Element::I32 => x.iter().flat_map(|x| (*x as i32).to_le_bytes()).collect(),
        None => x.iter().flat_map(|x| x.to_le_bytes()).collect(),
    }
}

fn floats(bytes: &[u8], element: Element) -> Vec<f32> {
    use meshwright_kernels::cpu::narrow::widen;
    match element.narrow() {
        Some(format) => {
            let mut x = vec![0.0; bytes.len() / element.bytes()];
            widen(format, bytes, &mut x, Par(1));
            x
        }
        None => bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
    }
}

/// The text with a number behind the name of a function or a table.
fn numbered(text: &str, name: &str, number: usize) -> String {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(name) {
        let (before, after) = rest.split_at(at);
        let digits = after[name.len()..].find(|c: char| !c.is_ascii_digit()).unwrap_or(0);
        let (word, after) = after.split_at(name.len() + digits);
        out += before;
        out += word;
        let is_word = !before.ends_with(is_part) && !after.starts_with(is_part);
        if is_word && after.starts_with(['(', '[', ',']) {
            out += &format!("_{number}");
        }
        rest = after;
    }
    out + rest
}

/// All kernels in one text, each under names of its own. The shared functions come once.
fn kernels(cases: &[Case]) -> (String, Vec<Kernel>) {
    let kernels: Vec<Kernel> = cases.iter().map(|case| Kernel::new(&case.program).unwrap()).collect();
    let shared =
        kernels.iter().max_by_key(|kernel| kernel.shape.elements.is_none()).map_or("", |kernel| &kernel.source);
    let own = |source: &str| {
        let first = ["FUNCTION unsigned long long place0", "static __device__ const", "extern \"C\""];
        first.iter().filter_map(|start| source.find(start)).min().expect("a kernel")
    };
    let mut text = shared[..own(shared)].to_string();
    for (number, kernel) in kernels.iter().enumerate() {
        let source = kernel.source[own(&kernel.source)..].to_string();
        let names = [GROUP, CHUNKS, "place", "turns", "path"];
        text += &names.iter().fold(source, |text, name| numbered(&text, name, number));
    }
    (text, kernels)
}

/// A job: buffers and launches.
#[derive(Default)]
struct Job {
    buffers: Vec<Vec<u8>>,
    launches: Vec<(String, u32, Vec<Vec<Field>>)>,
    /// For each case, the buffers of its outs.
    outs: Vec<Vec<usize>>,
}

impl Job {
    fn buffer(&mut self, bytes: Vec<u8>, shift: u64) -> Vec<Field> {
        self.buffers.push([vec![0; shift as usize], bytes].concat());
        vec![Field::At(self.buffers.len() - 1, shift)]
    }

    fn case(&mut self, number: usize, case: &Case, kernel: &Kernel) {
        let program = &case.program;
        let value = |n: u64| vec![Field::Value(n.to_le_bytes().to_vec())];
        let mut arguments = Vec::new();
        for (at, x) in program.inputs().zip(&case.inputs) {
            arguments.push(self.buffer(bytes(x, program.values[at].element), case.shift));
        }
        let first = self.buffers.len();
        let outs: Vec<Vec<Field>> = (program.outs.iter().zip(&case.held))
            .map(|(out, held)| self.buffer(bytes(held, out.element), case.shift))
            .collect();
        self.outs.push((first..self.buffers.len()).collect());
        let (sums, each): (Vec<_>, Vec<_>) = program.outs.iter().zip(outs).partition(|(out, _)| out.columns.is_some());
        let adds = each.iter().any(|(out, _)| out.adds);
        arguments.extend(each.into_iter().map(|(_, argument)| argument));
        let partials = (!sums.is_empty()).then(|| self.buffer(vec![0xff; 4 * kernel.partials], 0));
        arguments.extend(partials.clone());
        arguments.extend(kernel.shape.elements.map(|_| value(program.len(&program.outs[0]) as u64)));
        let flags = value(if case.accumulate { u64::MAX } else { 0 });
        arguments.extend(adds.then(|| flags.clone()));
        if program.is_random() {
            let random = [RANDOM.seed, RANDOM.step].map(u64::to_le_bytes).concat();
            arguments.extend([self.buffer(random, 0), value(RANDOM.microbatch), value(RANDOM.index)]);
        }
        self.launches.push((format!("{GROUP}_{number}"), kernel.shape.block, arguments));
        if let Some(partials) = partials {
            let sums = sums.into_iter().map(|(_, argument)| argument);
            let arguments = std::iter::once(partials).chain(sums).chain([flags]).collect();
            self.launches.push((format!("{CHUNKS}_{number}"), (WARP * SLICES) as u32, arguments));
        }
    }

    fn run(&self, stand_in: &StandIn, text: &str, order: &str) -> Vec<Vec<u8>> {
        let launches: Vec<Launch<'_>> = self
            .launches
            .iter()
            .map(|(name, block, arguments)| Launch::new(name, [2, 1, 1], [*block, 1, 1], arguments.clone()))
            .collect();
        stand_in.run(text, &self.buffers, &launches, order).unwrap()
    }
}

#[test]
fn generated_text_computes_what_programs_mean() {
    let mut cases = functions();
    let shapes = [[5, 7], [37, 40], [3, 1100], [1, 1], [1, 9], [600, 2]];
    cases.extend(shapes.iter().flat_map(|shape| [false, true].map(|accumulate| kind_case(*shape, accumulate))));
    // Rows of whole vectors, some of which are out of line.
    for shape in [[3, 128], [5, 256], [2, 3072]] {
        cases.extend([0, 4].map(|shift| Case { shift, ..kind_case(shape, shift > 0) }));
        for element in ELEMENTS {
            cases.extend([0, 4].map(|shift| sum_case(shape, element, shift)));
        }
    }
    // Rows that are read again from memory.
    let mut long = kind_case([2, 40_000], false);
    long.program.outs.truncate(4);
    long.held.truncate(4);
    cases.push(long);
    cases.extend([2, 7, 8].map(rotation));
    let (text, kernels) = kernels(&cases);
    let mut job = Job::default();
    cases.iter().zip(&kernels).enumerate().for_each(|(number, (case, kernel))| job.case(number, case, kernel));
    let stand_in = StandIn::new("cuda_text");
    let results = ORDERS.map(|order| job.run(&stand_in, &text, order));
    for (case, outs) in cases.iter().zip(&job.outs) {
        let inputs: Vec<&[f32]> = case.inputs.iter().map(|x| &x[..]).collect();
        let right = case.program.evaluate(&inputs, RANDOM, Par(1)).unwrap();
        for ((at, out), (buffer, right)) in case.program.outs.iter().enumerate().zip(outs.iter().zip(right)) {
            assert!(
                results.iter().all(|result| result[*buffer] == results[0][*buffer]),
                "{}: an order changes bits",
                case.name
            );
            let got = floats(&results[0][*buffer][case.shift as usize..], out.element);
            check(case, at, &got, &right);
        }
    }
}

fn check(case: &Case, at: usize, got: &[f32], right: &[f32]) {
    assert_eq!(got.len(), right.len(), "{}", case.name);
    let out = &case.program.outs[at];
    for (i, (&got, &right)) in got.iter().zip(right).enumerate() {
        let right = if case.accumulate && out.adds { right + case.held[at][i] } else { right };
        let second = case.inputs.get(1).map_or(0.0, |x| x[i % x.len()]);
        let error = case.bound.error(got, out.element.nearest(right), second);
        let (name, bound) = (&case.name, case.bound.relative());
        assert!(
            error <= bound,
            "{name}, out {at}, element {i}: {got} is not {right} (off by {error:e}, at most {bound:e})"
        );
    }
}
