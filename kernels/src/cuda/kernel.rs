//! Kernels of programs: their text, and how many threads run them.

use super::spell::{BINARY, UNARY, spelling};
use super::{flat, rows, tiles};
use crate::group::Program;
use std::fmt::Write;

/// The name of the kernel of a program.
///
/// Its arguments are the inputs, the outs that are no sums over rows, and the sums of chunks if it has some. The number of elements follows
/// if it goes by elements, and the outs to which it adds if it may. If it is random, the last ones are the address of the seed and the
/// step, the micro-batch, and the index.
pub const GROUP: &str = "group";
/// The name of the kernel that adds up sums of chunks. Its arguments are those, the outs that are sums over rows, and the outs to which it
/// adds.
pub const CHUNKS: &str = "chunks";

/// The argument whose bit `i` says that a launch adds to out `i`.
pub(super) const ADDS: &str = "adds";

/// Threads of a warp.
pub const WARP: usize = 32;
/// Warps of a block of [`CHUNKS`]: each adds up a slice of the chunks, of [`WARP`] columns at a time.
pub const SLICES: usize = 16;

/// The functions that all kernels share.
pub(super) const FUNCTIONS: &str = include_str!("functions.cu");
/// The functions of threads that reduce a row together.
pub(super) const TEAMS: &str = include_str!("teams.cu");
/// The functions of a thread that takes several elements at once.
pub(super) const VECTORS: &str = include_str!("vectors.cu");

/// A generated kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kernel {
    /// The CUDA C text, of [`GROUP`] and, if there are sums of chunks, of [`CHUNKS`].
    pub source: String,
    /// The threads of a launch.
    pub shape: Threads,
    /// The number of sums of chunks, in f32.
    pub partials: usize,
    /// Inputs, by number, of which no result may have the place: they are read at other elements than those that are written with them.
    pub apart: Vec<usize>,
    /// True if it goes by rows of fewer elements than a warp has threads, though nothing is reduced or summed over: a kernel for each number
    /// of elements is faster.
    pub is_narrow: bool,
}

/// The threads of a launch. A grid of any size does all the work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Threads {
    /// Threads of a block.
    pub block: u32,
    /// The most elements that a thread takes at once, if the number of elements is an argument.
    pub elements: Option<usize>,
    /// Otherwise the teams of threads that have work.
    pub teams: usize,
    /// Teams of a block.
    pub of_block: usize,
}

impl Kernel {
    /// The kernel of a program.
    ///
    /// # Errors
    /// The program is broken, or needs several kernels.
    pub fn new(program: &Program) -> Result<Kernel, String> {
        program.check()?;
        let mut lens = program.outs.iter().map(|out| program.values[out.value].len);
        let first = lens.next().ok_or("a kernel without results")?;
        let is_flat = lens.all(|len| len == first) && program.outs.iter().all(|out| out.columns.is_none());
        let kernel = match (tiles::kernel(program), flat::kernel(program)) {
            (Some(kernel), _) => kernel,
            (None, Ok(kernel)) if is_flat => kernel,
            _ => rows::kernel(program)?,
        };
        let (teams, vectors) = if kernel.shape.elements.is_none() { (TEAMS, VECTORS) } else { ("", "") };
        Ok(Kernel { source: format!("{FUNCTIONS}{UNARY}{BINARY}{teams}{vectors}\n{}", kernel.source), ..kernel })
    }

    /// The blocks that a launch needs, for this number of elements if that is an argument.
    pub fn blocks(&self, elements: usize) -> usize {
        match self.shape.elements {
            Some(at_once) => elements.div_ceil(at_once * self.shape.block as usize),
            None => self.shape.teams.div_ceil(self.shape.of_block),
        }
    }
}

/// The head of the kernel, with its bounds if it has some, and some arguments after the results.
pub(super) fn parameters(program: &Program, bounds: &str, others: &[&str]) -> String {
    let mut list = Vec::new();
    for (number, value) in program.inputs().enumerate() {
        list.push(format!("const {}* in{number}", spelling(program.values[value].element).scalar));
    }
    for (at, out) in program.outs.iter().enumerate().filter(|(_, out)| out.columns.is_none()) {
        list.push(format!("{}* out{at}", spelling(out.element).scalar));
    }
    list.extend(others.iter().map(ToString::to_string));
    if program.outs.iter().any(|out| out.adds && out.columns.is_none()) {
        list.push(format!("unsigned long long {ADDS}"));
    }
    if program.is_random() {
        list.extend(
            ["const unsigned long long* random", "unsigned long long microbatch", "unsigned long long index"]
                .map(String::from),
        );
    }
    format!("extern \"C\" __global__ void {bounds}{GROUP}(\n    {}\n)", list.join(",\n    "))
}

/// Lines at a depth of nesting.
pub(super) fn indented(text: &mut String, depth: usize, lines: &[String]) {
    for line in lines {
        let _ = writeln!(text, "{}{line}", "    ".repeat(depth));
    }
}
