//! Operands and results of the kernels that are timed.

use kernels::cpu::Par;
use kernels::cpu::narrow::{Floats, FloatsMut, Narrow, round};

/// Equal elements of f32, or of a narrower format.
pub enum TimedOperand {
    /// Elements of f32.
    Wide(Vec<f32>),
    /// The bytes of elements of a narrower format.
    Narrow(Narrow, Vec<u8>),
}

impl TimedOperand {
    /// Elements of a format, f32 without one.
    pub fn new(format: Option<Narrow>, value: f32, elements: usize) -> TimedOperand {
        let wide = vec![value; elements];
        match format {
            None => TimedOperand::Wide(wide),
            Some(format) => {
                let mut bytes = vec![0; elements * format.bytes()];
                round(format, &wide, &mut bytes, Par(1));
                TimedOperand::Narrow(format, bytes)
            }
        }
    }

    /// The elements, as a kernel's operand.
    pub fn read(&self) -> Floats<'_> {
        match self {
            TimedOperand::Wide(numbers) => Floats::Wide(numbers),
            TimedOperand::Narrow(format, bytes) => Floats::Narrow(*format, bytes),
        }
    }

    /// The elements, as a kernel's result.
    pub fn write(&mut self) -> FloatsMut<'_> {
        match self {
            TimedOperand::Wide(numbers) => FloatsMut::Wide(numbers),
            TimedOperand::Narrow(format, bytes) => FloatsMut::Narrow(*format, bytes),
        }
    }
}

/// Bytes of an element of a format, of f32 without one.
pub fn width(format: Option<Narrow>) -> usize {
    format.map_or(size_of::<f32>(), Narrow::bytes)
}
