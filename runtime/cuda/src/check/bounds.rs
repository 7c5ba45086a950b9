//! How far two computations of a plan may be apart: each value is computed with the processor's functions, and beside it the error that
//! operands with errors may cause and that its own function adds.
//!
//! Functions differ by `accuracy`, each sum of `n` numbers by `n u` of the sum of their magnitudes for each side (`u` = 2^-24, since
//! additions come in different orders), and products of matrices by as much. Numbers that differ may round to two neighbours.

use crate::matmul::Arithmetic;
use crate::plan::{Place, Plan, Stage, Work};
use device::backend::LaunchSite;
use kernels::cpu::Par;
use kernels::cpu::elementwise;
use kernels::cuda::accuracy::{self, Bound, Floor};
use kernels::cuda::gemm::{Contraction, Matrix};
use kernels::group::{Node, Out, Program, RandomContext, Read, Reduction};
use kernels::scalar::{Access, Element};
use std::collections::HashMap;

/// Half a unit in the last place of 1.
pub(super) const UNIT: f32 = f32::EPSILON / 2.0;

/// Numbers, and how far two computations of each may be apart.
#[derive(Clone, Debug)]
pub(super) struct Numbers {
    pub(super) value: Vec<f32>,
    pub(super) error: Vec<f32>,
}

impl Numbers {
    pub(super) fn exact(value: Vec<f32>) -> Numbers {
        Numbers { error: vec![0.0; value.len()], value }
    }

    fn from_fn(len: usize, f: impl Fn(usize) -> (f32, f32)) -> Numbers {
        let (value, error) = (0..len).map(f).unzip();
        Numbers { value, error }
    }

    fn map(&self, f: impl Fn(f32, f32) -> (f32, f32)) -> Numbers {
        Numbers::from_fn(self.value.len(), |i| f(self.value[i], self.error[i]))
    }

    /// Rounded to an element type.
    fn rounded(self, element: Element) -> Numbers {
        let Some((place, least)) = places(element) else { return self };
        self.map(|x, error| {
            let apart = if error == 0.0 { 0.0 } else { error + (place * (x.abs() + error)).max(least) };
            (element.nearest(x), apart)
        })
    }

    /// Rounded to an element type in one computation, and not in the other.
    fn rounded_in_one(self, element: Element) -> Numbers {
        let Some((place, least)) = places(element) else { return self };
        self.map(|x, error| (x, error + (place * (x.abs() + error)).max(least) / 2.0))
    }

    /// Not rounded here, but rounded to an element type elsewhere.
    fn apart_by(self, element: Element) -> Numbers {
        let rounded = self.clone().rounded(element);
        Numbers::from_fn(self.value.len(), |i| {
            let apart = (rounded.value[i] - self.value[i]).abs();
            (self.value[i], self.error[i].max(rounded.error[i] + apart))
        })
    }
}

/// The last place of normal numbers of an element type, relative to a power of two, and that of numbers below them; `None`: f32 and integers.
fn places(element: Element) -> Option<(f32, f32)> {
    match element {
        Element::F32 | Element::I32 => None,
        Element::Bf16 => Some((2f32.powi(-7), 0.0)),
        Element::F16 => Some((2f32.powi(-10), 2f32.powi(-24))),
        Element::F8E4M3 => Some((2f32.powi(-3), 2f32.powi(-9))),
        Element::F8E5M2 => Some((2f32.powi(-2), 2f32.powi(-16))),
    }
}

/// Tensors and random numbers of a launch.
pub(super) struct Plane<'a> {
    pub(super) operands: &'a [Numbers],
    pub(super) held: &'a [Numbers],
    pub(super) accumulate: bool,
    pub(super) seed: u64,
    pub(super) step: u64,
    pub(super) site: LaunchSite,
}

impl Plane<'_> {
    /// The results of a plan.
    ///
    /// # Errors
    /// It writes an operand, or one of its programs is broken.
    pub(super) fn run(&self, plan: &Plan) -> Result<Vec<Numbers>, String> {
        let mut results = self.held.to_vec();
        let mut scratch: HashMap<usize, Numbers> = HashMap::new();
        for stage in &plan.stages {
            let operands: Vec<Numbers> = (stage.operands.iter())
                .map(|place| match *place {
                    Place::Operand(at) => self.operands[at].clone(),
                    Place::Result(at) => results[at].clone(),
                    Place::Scratch(at) => scratch[&at].clone(),
                    Place::Tally => Numbers::exact(Vec::new()),
                })
                .collect();
            for ((place, adds), made) in stage.results.iter().zip(&stage.adds).zip(self.stage(stage, &operands)?) {
                match *place {
                    Place::Scratch(at) => _ = scratch.insert(at, made),
                    Place::Result(at) if adds.is_some() && self.accumulate => {
                        // The library rounds some sums before it adds to them, and the processor none.
                        let element = match &stage.work {
                            Work::Product(_, formats, _) => formats.result,
                            _ => Element::F32,
                        };
                        let (made, held) = (made.rounded_in_one(element), &results[at]);
                        let sum = Numbers::from_fn(made.value.len(), |i| {
                            let sum = made.value[i] + held.value[i];
                            (sum, made.error[i] + 2.0 * UNIT * (made.value[i].abs() + held.value[i].abs()))
                        });
                        results[at] = sum.rounded(element);
                    }
                    Place::Result(at) => results[at] = made,
                    Place::Operand(_) | Place::Tally => return Err("an operand is written".to_string()),
                }
            }
        }
        Ok(results)
    }

    fn stage(&self, stage: &Stage, operands: &[Numbers]) -> Result<Vec<Numbers>, String> {
        match &stage.work {
            Work::Copy => Ok(vec![operands[0].clone()]),
            Work::Product(plan, formats, None) => {
                Ok(vec![product(plan, formats.arithmetic, operands).rounded(formats.result)])
            }
            Work::Product(plan, formats, Some(_)) => {
                let (with, operands) = operands.split_last().ok_or("a product without operands")?;
                let made = product(plan, formats.arithmetic, operands).apart_by(formats.result);
                Ok(vec![plus(&made, with).rounded(formats.result)])
            }
            Work::Written(_) => Err("a kernel that is written by hand, in a group of several ops".to_string()),
            Work::Kernel(program) => {
                let random = RandomContext {
                    seed: self.seed,
                    step: self.step,
                    index: self.site.index,
                    microbatch: self.site.microbatch,
                };
                kernel(program, operands, random)
            }
        }
    }
}

/// A sum in f32, whose second term begins again where it ends.
fn plus(made: &Numbers, with: &Numbers) -> Numbers {
    Numbers::from_fn(made.value.len(), |i| {
        let of = i % with.value.len().max(1);
        let sum = made.value[i] + with.value[of];
        (sum, made.error[i] + with.error[of] + 2.0 * UNIT * (made.value[i].abs() + with.value[of].abs()))
    })
}

fn kernel(program: &Program, operands: &[Numbers], random: RandomContext) -> Result<Vec<Numbers>, String> {
    let mut inputs = operands.iter();
    let mut values: Vec<Numbers> = Vec::new();
    for value in &program.values {
        let made = match &value.node {
            Node::Input => inputs.next().ok_or("an input is missing")?.clone(),
            node => self::node(node, value.len, &values, random)?,
        };
        values.push(made.rounded(value.element));
    }
    let out = |out: &Out| match out.columns {
        None => values[out.value].clone(),
        Some(width) => {
            let of = &values[out.value];
            Numbers::from_fn(width, |at| sum(of, (at..of.value.len()).step_by(width))).rounded(out.element)
        }
    };
    Ok(program.outs.iter().map(out).collect())
}

fn sum(of: &Numbers, places: impl Iterator<Item = usize>) -> (f32, f32) {
    let (mut total, mut error, mut size, mut count) = (0.0, 0.0, 0.0, 0.0);
    for at in places {
        total += f64::from(of.value[at]);
        error += of.error[at];
        size += of.value[at].abs();
        count += 1.0;
    }
    (total as f32, error + 2.0 * count * UNIT * size)
}

fn read(operand: &Read, len: usize, values: &[Numbers]) -> Numbers {
    let x = &values[operand.value];
    Numbers::from_fn(len, |i| {
        let at = match &operand.access {
            Access::Same => i,
            Access::One => 0,
            Access::Strided(strides) => strides.at(i),
        };
        (x.value[at], x.error[at])
    })
}

/// The value of a node that is not an input.
fn node(node: &Node, len: usize, values: &[Numbers], random: RandomContext) -> Result<Numbers, String> {
    let read = |operand: &Read| read(operand, len, values);
    Ok(match node {
        Node::Unary(op, x) => {
            let f = |x: f32| {
                let mut y = [0.0];
                elementwise::unary(*op, &[x][..], &mut y, Par(1));
                y[0]
            };
            read(x).map(|x, error| spread(f(x), &[f(x - error), f(x + error)], accuracy::unary(*op), 0.0))
        }
        Node::Binary(op, a, b) => {
            let (a, b) = (read(a), read(b));
            let f = |a: f32, b: f32| {
                let mut y = [0.0];
                elementwise::binary(*op, &[a][..], &[b][..], &mut y, Par(1));
                y[0]
            };
            Numbers::from_fn(len, |i| {
                let ([a, b], [ea, eb]) = ([a.value[i], b.value[i]], [a.error[i], b.error[i]]);
                let ends = [f(a - ea, b - eb), f(a - ea, b + eb), f(a + ea, b - eb), f(a + ea, b + eb)];
                spread(f(a, b), &ends, accuracy::binary(*op), b)
            })
        }
        Node::Convert(x) => read(x),
        Node::Select(select) => {
            let (mask, of, other) = (read(&select.mask), read(&select.of), select.other.as_ref().map(read));
            Numbers::from_fn(len, |i| match ((mask.value[i] != 0.0) == select.not, &other) {
                (false, _) => (of.value[i], of.error[i]),
                (true, Some(other)) => (other.value[i], other.error[i]),
                (true, None) => (0.0, 0.0),
            })
        }
        &Node::Reduce(kind, of, width) => Numbers::from_fn(len, |row| {
            let (of, row) = (&values[of], row * width..(row + 1) * width);
            match kind {
                Reduction::Sum => sum(of, row),
                Reduction::Max => {
                    let most = of.value[row.clone()].iter().copied().fold(f32::NEG_INFINITY, f32::max);
                    (most, of.error[row].iter().copied().fold(0.0, f32::max))
                }
            }
        }),
        node => return moved(node, len, values, random),
    })
}

/// A result between those of operands that are off, and the error of the function.
fn spread(y: f32, ends: &[f32], bound: Bound, second: f32) -> (f32, f32) {
    let floor = match bound.floor {
        Floor::Result => 0.0,
        Floor::Number(floor) => floor,
        Floor::Second => second.abs(),
    };
    let off = ends.iter().map(|end| (end - y).abs()).fold(0.0, f32::max);
    // The ends are rounded too.
    let rounding = if off == 0.0 { 0.0 } else { 4.0 * UNIT * y.abs() };
    (y, off + rounding + bound.relative() * y.abs().max(floor))
}

/// A value whose elements are those of others, or made of no others: the meaning of the program, with the errors of what it moves.
fn moved(node: &Node, len: usize, values: &[Numbers], random: RandomContext) -> Result<Numbers, String> {
    let mut program = Program::default();
    for value in values {
        program.push(Node::Input, Element::F32, value.value.len());
    }
    let made = program.push(node.clone(), Element::F32, len);
    program.leave(made);
    let evaluate = |inputs: Vec<&[f32]>| program.evaluate(&inputs, random, Par(1)).map(|mut outs| outs.swap_remove(0));
    let value = evaluate(values.iter().map(|value| &value.value[..]).collect())?;
    Ok(match node {
        Node::Take(take) => {
            let errors: Vec<&[f32]> = (values.iter().enumerate())
                .map(|(at, value)| if at == take.of { &value.error[..] } else { &value.value[..] })
                .collect();
            Numbers { error: evaluate(errors)?, value }
        }
        Node::Rotate(rotate) => {
            let (pairs, of) = (rotate.turns.len(), &values[rotate.of]);
            Numbers::from_fn(len, |i| {
                let place = i % rotate.head;
                let other = if place < pairs { i + pairs } else { i - pairs.min(i) };
                let size = of.value[i].abs() + of.value[other.min(len - 1)].abs();
                // Sine and cosine are off by 3e-7 on each side, and two products, their sum and its product are rounded.
                let error = of.error[i] + of.error[other.min(len - 1)] + 9e-7 * size;
                (value[i], rotate.gain.abs().max(1.0) * error)
            })
        }
        _ => Numbers::exact(value),
    })
}

/// Terms that a tensor core adds to a sum at once, of operands of 8 bits.
const AT_ONCE: usize = 32;
/// The part that it cuts off each of them and off the sum, relative to the largest: of 14 bits, one is the sign, and two are before the
/// point (DeepSeek-V3 technical report, section 3.5.2).
const CUT: f32 = 1.0 / 2048.0;

/// How far the sums of a number of terms may be apart, relative to the sum of their magnitudes.
fn apart(terms: usize, arithmetic: Arithmetic) -> f32 {
    let nearest = 2.0 * (terms as f32 + 1.0) * UNIT;
    match arithmetic {
        Arithmetic::F8(_) => nearest + (terms + terms.div_ceil(AT_ONCE)) as f32 * CUT,
        _ => nearest,
    }
}

/// A matrix product, with the errors of its sums. Its operands are exact or rounded; of 8 bits, they are followed by exact scales.
fn product(plan: &Contraction, arithmetic: Arithmetic, operands: &[Numbers]) -> Numbers {
    let gemm = &plan.gemm;
    let scale: f32 = operands[2..].iter().map(|scale| scale.value[0]).product();
    let at = |matrix: &Matrix, batch: usize, row: usize, column: usize| {
        let (row, column) = if matrix.transposed { (column, row) } else { (row, column) };
        batch * matrix.batch_stride + column * matrix.leading + row
    };
    let [a, b] = gemm.ordered([&operands[0], &operands[1]]);
    let mut made = Numbers::exact(vec![0.0; plan.sizes[2]]);
    for batch in 0..gemm.batch {
        for (row, column) in (0..gemm.m).flat_map(|row| (0..gemm.n).map(move |column| (row, column))) {
            let (mut total, mut size, mut error) = (0.0, 0.0, 0.0);
            for k in 0..gemm.k {
                let (i, j) = (at(&gemm.a, batch, row, k), at(&gemm.b, batch, k, column));
                total += f64::from(a.value[i]) * f64::from(b.value[j]);
                size += (a.value[i] * b.value[j]).abs();
                error += a.error[i] * b.value[j].abs() + (a.value[i].abs() + a.error[i]) * b.error[j];
            }
            let place = at(&gemm.d, batch, row, column);
            made.value[place] = total as f32 * scale;
            made.error[place] = (error + apart(gemm.k, arithmetic) * size) * scale.abs();
        }
    }
    made
}
