//! Programs of fused kernels: what several statements compute, element by element.
//!
//! A program is a list of values. Each is a dense tensor in row-major order, seen as its elements from 0 on: an input, or a function of
//! elements of values before it. What is left is written to a buffer as it is, or summed over rows. A program knows no op and no
//! sharding.
//!
//! All arithmetic on floats is in f32. A value of a narrower type is rounded to it wherever it is read.

mod evaluate;

pub use self::evaluate::RandomContext;
use crate::scalar::{Access, Binary, Element, Strides, Unary};

/// A program. Its buffers are its inputs, in order, and then its outs.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Program {
    /// The values, each after those that it reads.
    pub values: Vec<Value>,
    /// The results.
    pub outs: Vec<Out>,
}

/// A tensor of a program.
#[derive(Clone, PartialEq, Debug)]
pub struct Value {
    /// The meaning of its elements.
    pub node: Node,
    /// Their type.
    pub element: Element,
    /// Their number.
    pub len: usize,
}

/// A result of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Out {
    /// The value.
    pub value: usize,
    /// The type of what is written: that of the value, unless it is a sum.
    pub element: Element,
    /// `Some(n)`: what is written is the sum over rows of `n` elements.
    pub columns: Option<usize>,
    /// True if a launch may add to what is there.
    pub adds: bool,
}

/// An element of a value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Read {
    /// The value.
    pub value: usize,
    /// The element that belongs to one of the result.
    pub access: Access,
}

/// Elements of a value.
#[derive(Clone, PartialEq, Debug)]
pub enum Node {
    /// Those of a buffer.
    Input,
    /// One number.
    Number(f32),
    /// Those of another type.
    Convert(Read),
    /// A function of one number.
    Unary(Unary, Read),
    /// A function of two numbers.
    Binary(Binary, Read, Read),
    /// 1 where it holds, else 0.
    Compare(Comparison, Read, Read),
    /// An operand where the mask is not 0, or where it is 0.
    Select(Select),
    /// Indices along a dim.
    Index(Index),
    /// Those that another value names.
    Take(Take),
    /// Pairs turned by an angle.
    Rotate(Rotate),
    /// Random numbers, uniform in `[0, 1)`.
    Random(Random),
    /// The sum or the maximum of each row of a value.
    Reduce(Reduction, usize, usize),
}

/// A relation of two numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Comparison {
    /// `a < b`
    Less,
    /// `a <= b`
    LessEqual,
    /// `a == b`
    Equal,
}

/// A choice by a mask.
#[derive(Clone, PartialEq, Debug)]
pub struct Select {
    /// Integers.
    pub mask: Read,
    /// True: the operand is chosen where the mask is 0.
    pub not: bool,
    /// The chosen operand.
    pub of: Read,
    /// The operand elsewhere; 0 if none.
    pub other: Option<Read>,
}

/// The index of an element along a dim: `origin + element / inner % size`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Index {
    /// The first index.
    pub origin: i64,
    /// The size of the dim.
    pub size: usize,
    /// Elements behind it.
    pub inner: usize,
}

/// The element of a value at a place, and a number of strides from there; 0 if the number is outside.
#[derive(Clone, PartialEq, Debug)]
pub struct Take {
    /// The value.
    pub of: usize,
    /// The place.
    pub base: Strides,
    /// The number: an integer.
    pub index: Read,
    /// The integer that is number 0.
    pub origin: i64,
    /// How many numbers there are.
    pub size: usize,
    /// The elements from one to the next.
    pub stride: usize,
}

/// Turns elements `i` and `i + n` of each head, for `n` pairs, by `position x turns[i]` turns, and multiplies them by the gain.
/// Others stay.
#[derive(Clone, PartialEq, Debug)]
pub struct Rotate {
    /// The value.
    pub of: usize,
    /// Integers.
    pub position: Read,
    /// Turns per position of each pair.
    pub turns: Vec<f64>,
    /// Others in long sequences.
    pub beyond: Option<Beyond>,
    /// The factor of what turns.
    pub gain: f32,
    /// Elements of a head.
    pub head: usize,
}

/// The turns of elements in sequences that are longer than a context.
#[derive(Clone, PartialEq, Debug)]
pub struct Beyond {
    /// The length of each element's sequence: integers.
    pub length: Read,
    /// Tokens of the context.
    pub context: u64,
    /// Turns per position of each pair.
    pub turns: Vec<f64>,
}

/// The numbers of [`uniform`](crate::cpu::dropout::uniform), under a key of the run's seed, the step, the index of a launch, and a path.
#[derive(Clone, PartialEq, Debug)]
pub struct Random {
    /// Names the numbers.
    pub path: String,
    /// The counter of an element in the first micro-batch.
    pub counter: Strides,
    /// Counters of a micro-batch.
    pub microbatch: u64,
}

/// How a row becomes one number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reduction {
    /// Its sum.
    Sum,
    /// Its largest element.
    Max,
}

impl Read {
    /// The same element.
    pub fn same(value: usize) -> Read {
        Read { value, access: Access::Same }
    }

    /// The first element.
    pub fn one(value: usize) -> Read {
        Read { value, access: Access::One }
    }
}

impl Node {
    /// The values that it reads.
    pub fn reads(&self) -> Vec<usize> {
        match self {
            Node::Input | Node::Number(_) | Node::Index(_) | Node::Random(_) => Vec::new(),
            Node::Convert(x) | Node::Unary(_, x) => vec![x.value],
            Node::Binary(_, a, b) | Node::Compare(_, a, b) => vec![a.value, b.value],
            Node::Select(Select { mask, of, other, .. }) => {
                [mask, of].into_iter().chain(other).map(|operand| operand.value).collect()
            }
            Node::Take(Take { of, index, .. }) => vec![*of, index.value],
            Node::Rotate(Rotate { of, position, beyond, .. }) => {
                [*of, position.value].into_iter().chain(beyond.iter().map(|beyond| beyond.length.value)).collect()
            }
            Node::Reduce(_, of, _) => vec![*of],
        }
    }
}

impl Program {
    /// Adds a value and gives its number.
    pub fn push(&mut self, node: Node, element: Element, len: usize) -> usize {
        self.values.push(Value { node, element, len });
        self.values.len() - 1
    }

    /// Leaves a value.
    pub fn leave(&mut self, value: usize) {
        self.outs.push(Out { value, element: self.values[value].element, columns: None, adds: false });
    }

    /// A function of one buffer, which may be added.
    pub fn unary(op: Unary, element: Element, len: usize) -> Program {
        let mut program = Program::default();
        let x = program.push(Node::Input, element, len);
        program.push(Node::Unary(op, Read::same(x)), element, len);
        program.added()
    }

    /// A function of two buffers, of these lengths, which may be added.
    pub fn binary(op: Binary, element: Element, operands: [(Access, usize); 2], len: usize) -> Program {
        let mut program = Program::default();
        let [a, b] = operands.map(|(access, len)| Read { value: program.push(Node::Input, element, len), access });
        program.push(Node::Binary(op, a, b), element, len);
        program.added()
    }

    /// A copy of a buffer of a length to another type, which may be added.
    pub fn copy([from, to]: [Element; 2], (access, of): (Access, usize), len: usize) -> Program {
        let mut program = Program::default();
        let value = program.push(Node::Input, from, of);
        program.push(Node::Convert(Read { value, access }), to, len);
        program.added()
    }

    fn added(mut self) -> Program {
        self.leave(self.values.len() - 1);
        self.outs[0].adds = true;
        self
    }

    /// Its inputs, by their values.
    pub fn inputs(&self) -> impl Iterator<Item = usize> + '_ {
        self.values.iter().enumerate().filter(|(_, value)| value.node == Node::Input).map(|(at, _)| at)
    }

    /// True if it draws random numbers.
    pub fn is_random(&self) -> bool {
        self.values.iter().any(|value| matches!(value.node, Node::Random(_)))
    }

    /// The elements that an out has.
    pub fn len(&self, out: &Out) -> usize {
        out.columns.unwrap_or(self.values[out.value].len)
    }

    /// Checks that every value reads what is there.
    ///
    /// # Errors
    /// Which one does not.
    pub fn check(&self) -> Result<(), String> {
        for (at, value) in self.values.iter().enumerate() {
            if let Some(read) = value.node.reads().into_iter().find(|read| *read >= at) {
                return Err(format!("value {at} reads value {read}, which is not before it"));
            }
            if let Node::Reduce(_, of, width) = value.node
                && self.values[of].len != value.len * width
            {
                return Err(format!("value {at} reduces rows that value {of} has not"));
            }
        }
        for (at, out) in self.outs.iter().enumerate() {
            let value = self.values.get(out.value).ok_or_else(|| format!("out {at} leaves no value"))?;
            if out.columns.is_some_and(|width| width == 0 || value.len % width != 0) {
                return Err(format!("out {at} has no whole rows"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_reads_only_what_is_before_it() {
        let mut program = Program::unary(Unary::Neg, Element::F32, 6);
        assert_eq!(program.check(), Ok(()));
        let sum = program.push(Node::Reduce(Reduction::Sum, 1, 3), Element::F32, 2);
        assert_eq!(program.check(), Ok(()));
        program.values[sum].len = 4;
        assert!(program.check().unwrap_err().contains("value 2 reduces rows"));
        program.values[sum].node = Node::Unary(Unary::Neg, Read::same(sum));
        assert!(program.check().unwrap_err().contains("value 2 reads value 2"));
        program.values.pop();
        program.outs[0].columns = Some(4);
        assert!(program.check().unwrap_err().contains("no whole rows"));
        program.outs[0].value = 2;
        assert!(program.check().unwrap_err().contains("leaves no value"));
    }
}
