//! Elementwise kernels, generated as CUDA C from a scalar program: one version writes its results, one accumulates.
//!
//! `elementwise(in0, in1, .., out, n)` writes `n` elements; `elementwise_add` adds to them. A kernel checks the alignment
//! of all pointers and, if they permit it, reads and writes four neighbouring elements at once. It processes the remaining
//! elements one by one. The grid may have any size: each thread strides by the size of the grid.
//!
//! The result may overwrite any input that is read by [`Access::Same`], because a thread reads all inputs of an element
//! before it writes the element.

use crate::scalar::{Access, Binary, Element, Input, Program, Step, Strides, Unary, Value};
use std::fmt::{self, Write};

/// The name of the kernel that writes its results.
pub const WRITES: &str = "elementwise";
/// The name of the kernel that adds its results to what the output holds.
pub const ADDS: &str = "elementwise_add";

/// The functions that all kernels share.
const FUNCTIONS: &str = include_str!("functions.cu");

/// The CUDA C text of a program, with both kernels.
///
/// # Errors
/// The program is broken.
pub fn source(program: &Program) -> Result<String, String> {
    program.check()?;
    let mut text = format!("{FUNCTIONS}\n");
    write(&mut text, program).map_err(|why| why.to_string())?;
    Ok(text)
}

fn write(text: &mut String, program: &Program) -> fmt::Result {
    for (i, input) in program.inputs.iter().enumerate() {
        if let Access::Strided(strides) = &input.access {
            write_place(text, i, strides)?;
        }
    }
    write_value(text, program)?;
    write_kernel(text, program, false)?;
    text.push('\n');
    write_kernel(text, program, true)
}

/// The function from an index of the result to one of input `i`, with all sizes in the text.
fn write_place(text: &mut String, i: usize, strides: &Strides) -> fmt::Result {
    // A division in 32 bits takes a fraction of the time of one in 64.
    let elements: usize = strides.dims.iter().map(|dim| dim.0).product();
    let integer = if u32::try_from(elements).is_ok() { "unsigned int" } else { "unsigned long long" };
    writeln!(text, "static __device__ __forceinline__ unsigned long long place{i}(unsigned long long index) {{")?;
    writeln!(text, "    {integer} rest = ({integer})index;")?;
    writeln!(text, "    unsigned long long place = {}ull;", strides.offset)?;
    for &(size, stride) in strides.dims.iter().rev() {
        // Of an empty result no element is asked for; the text divides by something all the same.
        let size = size.max(1);
        writeln!(text, "    place += rest % {size}u * {stride}ull;")?;
        writeln!(text, "    rest /= {size}u;")?;
    }
    writeln!(text, "    return place;\n}}\n")
}

/// The function of one element of each input.
fn write_value(text: &mut String, program: &Program) -> fmt::Result {
    let arguments: Vec<String> = (0..program.inputs.len()).map(|i| format!("float x{i}")).collect();
    writeln!(text, "static __device__ __forceinline__ float value({}) {{", arguments.join(", "))?;
    for (i, step) in program.steps.iter().enumerate() {
        match *step {
            Step::Unary(op, x) => writeln!(text, "    float t{i} = {};", unary(op, x))?,
            Step::Binary(op, a, b) => writeln!(text, "    float t{i} = {}({}, {});", binary(op), name(a), name(b))?,
        }
    }
    writeln!(text, "    return {};\n}}\n", name(program.result))
}

fn name(value: Value) -> String {
    match value {
        Value::Input(i) => format!("x{i}"),
        Value::Step(i) => format!("t{i}"),
    }
}

fn unary(op: Unary, x: Value) -> String {
    let (function, constant) = match op {
        Unary::Neg => ("neg", None),
        Unary::Exp => ("exp", None),
        Unary::Log => ("log", None),
        Unary::Sqrt => ("sqrt", None),
        Unary::Rsqrt => ("rsqrt", None),
        Unary::Recip => ("recip", None),
        Unary::Square => ("square", None),
        Unary::Tanh => ("tanh", None),
        Unary::Erf => ("erf", None),
        Unary::Sin => ("sin", None),
        Unary::Cos => ("cos", None),
        Unary::Sigmoid => ("sigmoid", None),
        Unary::Silu => ("silu", None),
        Unary::Gelu => ("gelu", None),
        Unary::GeluErf => ("gelu_erf", None),
        Unary::ReluSquared => ("relu_squared", None),
        Unary::Scale(by) => ("scale", Some(by)),
        Unary::Shift(by) => ("shift", Some(by)),
        Unary::AtMost(max) => ("at_most", Some(max)),
        Unary::AtLeast(min) => ("at_least", Some(min)),
    };
    match constant {
        None => format!("unary_{function}({})", name(x)),
        Some(constant) => format!("unary_{function}({}, {})", name(x), literal(constant)),
    }
}

fn binary(op: Binary) -> &'static str {
    match op {
        Binary::Add => "binary_add",
        Binary::Sub => "binary_sub",
        Binary::Mul => "binary_mul",
        Binary::Div => "binary_div",
        Binary::Max => "binary_max",
        Binary::Min => "binary_min",
        Binary::SigmoidGrad => "binary_sigmoid_grad",
        Binary::SiluGrad => "binary_silu_grad",
        Binary::GeluGrad => "binary_gelu_grad",
        Binary::GeluErfGrad => "binary_gelu_erf_grad",
        Binary::ReluSquaredGrad => "binary_relu_squared_grad",
    }
}

/// The very bits of a number as C: Rust prints the shortest decimal that reads back as the same float.
fn literal(x: f32) -> String {
    if x.is_finite() { format!("{x:?}f") } else { format!("__uint_as_float({:#x}u)", x.to_bits()) }
}

/// How an element type is written in C.
struct Spelling {
    scalar: &'static str,
    four: &'static str,
    /// Suffix of `load_` and `store_`.
    suffix: &'static str,
}

fn spelling(element: Element) -> Spelling {
    match element {
        Element::F32 => Spelling { scalar: "float", four: "float4", suffix: "f32" },
        Element::Bf16 => Spelling { scalar: "unsigned short", four: "ushort4", suffix: "bf16" },
    }
}

fn write_kernel(text: &mut String, program: &Program, accumulate: bool) -> fmt::Result {
    let out = spelling(program.output);
    let name = if accumulate { ADDS } else { WRITES };
    writeln!(text, "extern \"C\" __global__ void {name}(")?;
    for (i, input) in program.inputs.iter().enumerate() {
        writeln!(text, "    const {}* in{i},", spelling(input.element).scalar)?;
    }
    writeln!(text, "    {}* out, unsigned long long n\n) {{", out.scalar)?;
    writeln!(text, "    unsigned long long first = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;")?;
    writeln!(text, "    unsigned long long threads = (unsigned long long)gridDim.x * blockDim.x;")?;
    for (i, input) in program.inputs.iter().enumerate().filter(|(_, input)| input.access == Access::One) {
        writeln!(text, "    float x{i} = load_{}(in{i}[0]);", spelling(input.element).suffix)?;
    }
    let strided = |input: &Input| matches!(input.access, Access::Strided(_));
    if program.inputs.iter().any(strided) {
        writeln!(text, "    for (unsigned long long i = first; i < n; i += threads) {{")?;
    } else {
        write_fours(text, program, accumulate)?;
        writeln!(text, "    for (unsigned long long i = 4 * fours + first; i < n; i += threads) {{")?;
    }
    let arguments = program.inputs.iter().enumerate().map(|(i, input)| {
        let load = format!("load_{}", spelling(input.element).suffix);
        match input.access {
            Access::Same => format!("{load}(in{i}[i])"),
            Access::One => format!("x{i}"),
            Access::Strided(_) => format!("{load}(in{i}[place{i}(i)])"),
        }
    });
    let value = format!("value({})", arguments.collect::<Vec<_>>().join(", "));
    let held = if accumulate { format!("load_{}(out[i]) + ", out.suffix) } else { String::new() };
    writeln!(text, "        out[i] = store_{}({held}{value});\n    }}\n}}", out.suffix)
}

/// The loop over groups of four. Without alignment there are none of them.
fn write_fours(text: &mut String, program: &Program, accumulate: bool) -> fmt::Result {
    let out = spelling(program.output);
    let same: Vec<(usize, &Input)> =
        program.inputs.iter().enumerate().filter(|(_, input)| input.access == Access::Same).collect();
    let aligned = |pointer: &str, element: Element| format!("(unsigned long long){pointer} % {}", 4 * element.bytes());
    let mut rests: Vec<String> = same.iter().map(|(i, input)| aligned(&format!("in{i}"), input.element)).collect();
    rests.push(aligned("out", program.output));
    writeln!(text, "    unsigned long long fours = {} == 0 ? n / 4 : 0;", rests.join(" + "))?;
    writeln!(text, "    for (unsigned long long i = first; i < fours; i += threads) {{")?;
    for (i, input) in &same {
        let four = spelling(input.element).four;
        writeln!(text, "        {four} v{i} = ((const {four}*)in{i})[i];")?;
    }
    let held = if accumulate { format!(" = (({}*)out)[i]", out.four) } else { String::new() };
    writeln!(text, "        {} y{held};", out.four)?;
    for part in ["x", "y", "z", "w"] {
        let arguments = program.inputs.iter().enumerate().map(|(i, input)| match input.access {
            Access::Same => format!("load_{}(v{i}.{part})", spelling(input.element).suffix),
            _ => format!("x{i}"),
        });
        let value = format!("value({})", arguments.collect::<Vec<_>>().join(", "));
        let held = if accumulate { format!("load_{}(y.{part}) + ", out.suffix) } else { String::new() };
        writeln!(text, "        y.{part} = store_{}({held}{value});", out.suffix)?;
    }
    writeln!(text, "        (({}*)out)[i] = y;\n    }}", out.four)
}

#[cfg(test)]
#[path = "elementwise_tests.rs"]
mod tests;
