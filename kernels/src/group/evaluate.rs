//! The meaning of programs, value by value.

use super::{Comparison, Node, Program, Random, Read, Reduction, Rotate, Select, Take, Value};
use crate::cpu::Par;
use crate::cpu::dropout::uniform;
use crate::cpu::elementwise;
use crate::scalar::{Access, Element};

/// The place of a launch in a run, on which random numbers depend.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RandomContext {
    /// The seed of the run.
    pub seed: u64,
    /// The step, from 1.
    pub step: u64,
    /// The index of the launch.
    pub index: u64,
    /// The micro-batch, from 0.
    pub microbatch: u64,
}

impl Program {
    /// The outs, from inputs widened to f32, integers too. They are not rounded to their element types. Sums are rounded once.
    ///
    /// # Errors
    /// The program is broken.
    ///
    /// # Panics
    /// If an input is too short.
    pub fn evaluate(&self, inputs: &[&[f32]], context: RandomContext, par: Par) -> Result<Vec<Vec<f32>>, String> {
        self.check()?;
        let (mut exact, mut values): (Vec<Vec<f32>>, Vec<Vec<f32>>) = (Vec::new(), Vec::new());
        let mut inputs = inputs.iter();
        for value in &self.values {
            let numbers = match value.node {
                Node::Input => inputs.next().ok_or("an input is missing")?[..value.len].to_vec(),
                _ => elements(value, &values, context, par),
            };
            values.push(numbers.iter().map(|&x| value.element.nearest(x)).collect());
            exact.push(numbers);
        }
        let outs = self.outs.iter().map(|out| match out.columns {
            None => exact[out.value].clone(),
            Some(width) => column_sums(&values[out.value], width),
        });
        Ok(outs.collect())
    }
}

/// The sum of each column, rounded once.
fn column_sums(of: &[f32], width: usize) -> Vec<f32> {
    let columns = (0..width).map(|at| of.iter().skip(at).step_by(width));
    columns.map(|column| column.map(|&x| f64::from(x)).sum::<f64>() as f32).collect()
}

/// The numbers of an operand that a value of `len` elements reads.
fn read(operand: &Read, values: &[Vec<f32>], len: usize) -> Vec<f32> {
    let x = &values[operand.value];
    match &operand.access {
        Access::Same => x[..len].to_vec(),
        Access::One => vec![x.first().copied().unwrap_or_default(); len],
        Access::Strided(strides) => (0..len).map(|i| x[strides.at(i)]).collect(),
    }
}

/// The numbers of a value, not rounded.
fn elements(value: &Value, values: &[Vec<f32>], context: RandomContext, par: Par) -> Vec<f32> {
    let len = value.len;
    let mut out = vec![0.0; len];
    match &value.node {
        Node::Input => {}
        Node::Number(x) => out.fill(*x),
        Node::Convert(x) => out = read(x, values, len),
        Node::Unary(op, x) => elementwise::unary(*op, &read(x, values, len), &mut out, par),
        Node::Binary(op, a, b) => {
            let [a, b] = [a, b].map(|operand| read(operand, values, len));
            elementwise::binary(*op, &a, &b, &mut out, par);
        }
        Node::Compare(kind, a, b) => {
            let pairs = read(a, values, len).into_iter().zip(read(b, values, len));
            let holds = pairs.map(|(a, b)| match kind {
                Comparison::Less => a < b,
                Comparison::LessEqual => a <= b,
                Comparison::Equal => a == b,
            });
            out = holds.map(f32::from).collect();
        }
        Node::Select(Select { mask, not, of, other }) => {
            let [mask, of] = [mask, of].map(|operand| read(operand, values, len));
            let other = other.as_ref().map_or_else(|| vec![0.0; len], |other| read(other, values, len));
            out = (0..len).map(|i| if (mask[i] != 0.0) == *not { other[i] } else { of[i] }).collect();
        }
        Node::Index(index) => {
            let numbers = (0..len).map(|i| index.origin + (i / index.inner % index.size) as i64);
            out = numbers.map(|number| number as f32).collect();
        }
        Node::Take(take) => {
            let index = read(&take.index, values, len);
            out = (0..len).map(|i| taken(take, index[i] as i64, i, &values[take.of])).collect();
        }
        Node::Rotate(rotate) => out = rotation(rotate, values, len),
        Node::Random(random) => out = (0..len).map(|i| drawn(random, i, context)).collect(),
        &Node::Reduce(kind, of, width) => {
            let rows = (0..len).map(|i| values[of][i * width..][..width].iter().copied());
            out = match kind {
                Reduction::Sum => rows.map(|row| row.map(f64::from).sum::<f64>() as f32).collect(),
                Reduction::Max => rows.map(|row| row.fold(f32::NEG_INFINITY, f32::max)).collect(),
            };
        }
    }
    debug_assert!(value.element != Element::I32 || out.iter().all(|x| x.fract() == 0.0));
    out
}

/// The elements of a rotation; rows of long sequences have turns of their own.
fn rotation(rotate: &Rotate, values: &[Vec<f32>], len: usize) -> Vec<f32> {
    let position = read(&rotate.position, values, len);
    let lengths = rotate.beyond.as_ref().map(|beyond| read(&beyond.length, values, len));
    let rotated = (0..len).map(|i| {
        let long = rotate.beyond.as_ref().zip(lengths.as_ref());
        let long = long.filter(|(beyond, lengths)| f64::from(lengths[i]) > beyond.context as f64);
        let turns = long.map_or(&rotate.turns, |(beyond, _)| &beyond.turns);
        rotated(rotate, turns, f64::from(position[i]), i, &values[rotate.of])
    });
    rotated.collect()
}

fn taken(take: &Take, index: i64, at: usize, of: &[f32]) -> f32 {
    let number = usize::try_from(index - take.origin).ok().filter(|&number| number < take.size);
    number.map_or(0.0, |number| of[take.base.at(at) + number * take.stride])
}

fn rotated(rotate: &Rotate, turns: &[f64], position: f64, at: usize, of: &[f32]) -> f32 {
    let (pairs, place) = (turns.len(), at % rotate.head);
    if place >= 2 * pairs {
        return of[at];
    }
    let (sin, cos) = (position * turns[place % pairs] * std::f64::consts::TAU).sin_cos();
    let other = if place < pairs { -of[at + pairs] } else { of[at - pairs] };
    ((f64::from(of[at]) * cos + f64::from(other) * sin) * f64::from(rotate.gain)) as f32
}

fn drawn(random: &Random, at: usize, context: RandomContext) -> f32 {
    let numbers = [context.seed, context.step, context.index].map(u64::to_le_bytes);
    let bytes = numbers.as_flattened().iter().chain(random.path.as_bytes());
    let hash = bytes
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let counter = random.counter.at(at) as u64 + context.microbatch * random.microbatch;
    uniform([hash as u32, (hash >> 32) as u32], counter)
}
