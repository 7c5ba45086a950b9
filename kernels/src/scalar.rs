//! Scalar programs: the computation of a fused elementwise kernel for each element of its result.
//!
//! A program reads one element of each input, applies unary and binary functions in f32, and returns one number. A program
//! without steps is a copy that only rearranges elements.

use crate::cpu::Par;
use crate::cpu::elementwise;

pub use crate::cpu::elementwise::{Binary, Unary};

/// The element type of a buffer. Programs compute in f32 whatever they read and write.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Element {
    /// 4 bytes.
    F32,
    /// 2 bytes; results are rounded to nearest, ties to even.
    Bf16,
}

impl Element {
    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            Element::F32 => 4,
            Element::Bf16 => 2,
        }
    }
}

/// Map from element `i` of the result to an element of an input.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Access {
    /// Element `i`.
    Same,
    /// The first one, for all `i`.
    One,
    /// The result is a dense row-major tensor; along each of its dims the input is walked by a stride.
    Strided(Strides),
}

/// A walk over an input along the dims of the result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Strides {
    /// Size of each dim of the result and the input's stride in it, in elements; 0 where the input repeats.
    pub dims: Vec<(usize, usize)>,
    /// The input's element that belongs to element 0.
    pub offset: usize,
}

impl Strides {
    /// The input's element that belongs to element `i` of the result.
    pub fn at(&self, i: usize) -> usize {
        let (mut rest, mut place) = (i, self.offset);
        for &(size, stride) in self.dims.iter().rev() {
            place += rest % size * stride;
            rest /= size;
        }
        place
    }
}

/// An input buffer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Input {
    /// Its element type.
    pub element: Element,
    /// How its elements are found.
    pub access: Access,
}

/// A number that a step reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// The element of an input.
    Input(usize),
    /// The result of an earlier step.
    Step(usize),
}

/// One function.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Step {
    /// An operation on one number.
    Unary(Unary, Value),
    /// An operation on two numbers.
    Binary(Binary, Value, Value),
}

/// A scalar program.
#[derive(Clone, PartialEq, Debug)]
pub struct Program {
    /// The inputs.
    pub inputs: Vec<Input>,
    /// The functions, each after those that it reads.
    pub steps: Vec<Step>,
    /// The value written.
    pub result: Value,
    /// The element type it is written in.
    pub output: Element,
}

impl Program {
    /// A function of one buffer.
    pub fn unary(op: Unary, element: Element) -> Program {
        Program {
            inputs: vec![Input { element, access: Access::Same }],
            steps: vec![Step::Unary(op, Value::Input(0))],
            result: Value::Step(0),
            output: element,
        }
    }

    /// A function of two buffers.
    pub fn binary(op: Binary, element: Element, a: Access, b: Access) -> Program {
        Program {
            inputs: vec![Input { element, access: a }, Input { element, access: b }],
            steps: vec![Step::Binary(op, Value::Input(0), Value::Input(1))],
            result: Value::Step(0),
            output: element,
        }
    }

    /// A copy.
    pub fn copy(element: Element, access: Access) -> Program {
        let inputs = vec![Input { element, access }];
        Program { inputs, steps: Vec::new(), result: Value::Input(0), output: element }
    }

    /// True if every step reads what is there.
    ///
    /// # Errors
    /// Which one does not.
    pub fn check(&self) -> Result<(), String> {
        let known = |value: Value, steps: usize, what: &str| match value {
            Value::Input(i) if i >= self.inputs.len() => Err(format!("{what} reads input {i}, which is not there")),
            Value::Step(i) if i >= steps => Err(format!("{what} reads step {i}, which is not before it")),
            _ => Ok(()),
        };
        for (i, step) in self.steps.iter().enumerate() {
            let what = format!("step {i}");
            match *step {
                Step::Unary(_, x) => known(x, i, &what)?,
                Step::Binary(_, a, b) => known(a, i, &what).and_then(|()| known(b, i, &what))?,
            }
        }
        known(self.result, self.steps.len(), "the result")
    }

    /// Runs the program step by step with the processor's kernels, on inputs widened to f32. The `len` results are not
    /// rounded to the output's element type.
    ///
    /// # Errors
    /// The program is broken.
    ///
    /// # Panics
    /// If an input is too short.
    pub fn evaluate(&self, inputs: &[&[f32]], len: usize, par: Par) -> Result<Vec<f32>, String> {
        self.check()?;
        let read = |(input, x): (&Input, &&[f32])| match &input.access {
            Access::Same => x[..len].to_vec(),
            Access::One => vec![x[0]; len],
            Access::Strided(strides) => (0..len).map(|i| x[strides.at(i)]).collect(),
        };
        let inputs: Vec<Vec<f32>> = self.inputs.iter().zip(inputs).map(read).collect();
        let mut steps: Vec<Vec<f32>> = Vec::new();
        for step in &self.steps {
            let at = |value| match value {
                Value::Input(i) => &inputs[i][..],
                Value::Step(i) => &steps[i][..],
            };
            let mut out = vec![0.0; len];
            match *step {
                Step::Unary(op, x) => elementwise::unary(op, at(x), &mut out, par),
                Step::Binary(op, a, b) => elementwise::binary(op, at(a), at(b), &mut out, par),
            }
            steps.push(out);
        }
        Ok(match self.result {
            Value::Input(i) => inputs[i].clone(),
            Value::Step(i) => steps.swap_remove(i),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_reads_only_what_is_before_it() {
        let mut program = Program::unary(Unary::Neg, Element::F32);
        assert_eq!(program.check(), Ok(()));
        program.steps.push(Step::Binary(Binary::Add, Value::Step(0), Value::Step(1)));
        assert!(program.check().unwrap_err().contains("step 1 reads step 1"));
        program.steps[1] = Step::Unary(Unary::Neg, Value::Input(1));
        assert!(program.check().unwrap_err().contains("input 1"));
        program.steps.clear();
        assert!(program.check().unwrap_err().contains("the result reads step 0"));
    }

    #[test]
    fn strides_walk_a_transposed_tensor() {
        // x is 2 x 3, the result its transpose, 3 x 2.
        let access = Access::Strided(Strides { dims: vec![(3, 1), (2, 3)], offset: 0 });
        let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        let y = Program::copy(Element::F32, access).evaluate(&[&x], 6, Par(1)).unwrap();
        assert_eq!(y, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    }

    #[test]
    fn steps_run_in_order() {
        let program = Program {
            inputs: vec![
                Input { element: Element::F32, access: Access::Same },
                Input { element: Element::F32, access: Access::One },
            ],
            steps: vec![
                Step::Binary(Binary::Mul, Value::Input(0), Value::Input(1)),
                Step::Unary(Unary::Shift(1.0), Value::Step(0)),
            ],
            result: Value::Step(1),
            output: Element::F32,
        };
        assert_eq!(program.evaluate(&[&[1.0, 2.0], &[10.0]], 2, Par(1)).unwrap(), [11.0, 21.0]);
    }
}
