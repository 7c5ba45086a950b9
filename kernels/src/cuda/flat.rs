//! Kernels on single elements, whose number is an argument: each thread strides by the size of the grid.
//!
//! If the alignment of all pointers permits it, a thread reads and writes four neighbouring elements at once, and the remaining ones one
//! by one. A thread reads all that it needs of an element before it writes the element, so a result may be in the place of an input that
//! is read in order.

use super::kernel::{ADDS, Kernel, Threads, parameters};
use super::scope::{ELEMENT, FOUR, Nest, PARTS, Scope, are_used};
use super::spell::spelling;
use crate::group::Program;
use crate::scalar::Element;
use std::fmt::Write;

/// Threads of a block.
const BLOCK: u32 = 256;

/// Adds a line of a kernel.
fn add(text: &mut String, line: &str) {
    _ = writeln!(text, "    {line}");
}

/// The kernel of a program whose outs have the same number of elements.
///
/// # Errors
/// It reduces rows.
pub(super) fn kernel(program: &Program) -> Result<Kernel, String> {
    let mut scope = Scope::new(program, None);
    let fours = fours(program, &mut scope)?;
    let single = single(program, &mut scope)?;
    let mut text = format!("{} {{\n", parameters(program, "", &["unsigned long long n"]));
    add(&mut text, "unsigned long long first = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;");
    add(&mut text, "unsigned long long threads = (unsigned long long)gridDim.x * blockDim.x;");
    scope.take(Nest::Once).iter().for_each(|line| add(&mut text, line));
    let begin = match fours {
        Some(fours) => {
            text += &fours;
            "4 * fours + first"
        }
        None => "first",
    };
    add(&mut text, &format!("for (unsigned long long {ELEMENT} = {begin}; {ELEMENT} < n; {ELEMENT} += threads) {{"));
    single.iter().for_each(|line| add(&mut text, &format!("    {line}")));
    text += "    }\n}\n";
    let apart = scope.apart.iter().copied().collect();
    let shape = Threads { block: BLOCK, elements: Some(4), teams: 0, of_block: 1 };
    Ok(Kernel { source: scope.tables() + &text, shape, partials: 0, apart, is_narrow: false })
}

/// The lines of one element.
fn single(program: &Program, scope: &mut Scope<'_>) -> Result<Vec<String>, String> {
    let mut stores = Vec::new();
    for (at, out) in program.outs.iter().enumerate() {
        let value = scope.exact(out.value, ELEMENT)?;
        stores.push(store(program, at, ELEMENT, &value));
    }
    let mut lines = scope.take(Nest::Element);
    lines.extend(stores);
    Ok(lines)
}

/// The line that writes an element of an out, or adds it.
pub(super) fn store(program: &Program, at: usize, index: &str, value: &str) -> String {
    let suffix = spelling(program.outs[at].element).suffix;
    format!("out{at}[{index}] = store_{suffix}({});", left(program, at, index, value))
}

/// The number that an element of an out is to be.
pub(super) fn left(program: &Program, at: usize, index: &str, value: &str) -> String {
    let out = program.outs[at];
    match out.adds {
        true => {
            let suffix = spelling(out.element).suffix;
            format!("{ADDS} >> {at} & 1 ? load_{suffix}(out{at}[{index}]) + {value} : {value}")
        }
        false => value.to_string(),
    }
}

/// The loop over groups of four. Without alignment there are none of them. None if elements are scattered.
fn fours(program: &Program, scope: &mut Scope<'_>) -> Result<Option<String>, String> {
    let mut stores = Vec::new();
    for (part, (index, of)) in FOUR.iter().zip(PARTS).enumerate() {
        for (at, out) in program.outs.iter().enumerate() {
            let Spelled { suffix, four, .. } = spelled(out.element);
            let value = scope.exact(out.value, index)?;
            if part == 0 {
                stores.push(format!("{four} y{at};"));
            }
            stores.push(format!("y{at}.{of} = store_{suffix}({value});"));
        }
    }
    let lines = scope.take(Nest::Element);
    let vectors: Vec<usize> = std::mem::take(&mut scope.vectors).into_iter().collect();
    if scope.is_scattered {
        return Ok(None);
    }
    let inputs: Vec<usize> = program.inputs().collect();
    let mut rests = Vec::new();
    let mut loads = Vec::new();
    for number in vectors {
        let Spelled { four, bytes, .. } = spelled(program.values[inputs[number]].element);
        rests.push(format!("(unsigned long long)in{number} % {}", 4 * bytes));
        loads.push(format!("{four} a{number} = ((const {four}*)in{number})[i];"));
    }
    for (at, out) in program.outs.iter().enumerate() {
        let Spelled { four, bytes, .. } = spelled(out.element);
        rests.push(format!("(unsigned long long)out{at} % {}", 4 * bytes));
        stores.push(format!("(({four}*)out{at})[i] = y{at};"));
    }
    if program.outs.iter().any(|out| out.adds) {
        rests.push(ADDS.to_string());
    }
    let mut text = format!("    unsigned long long fours = {} == 0 ? n / 4 : 0;\n", rests.join(" + "));
    text += "    for (unsigned long long i = first; i < fours; i += threads) {\n";
    let indices = FOUR.iter().enumerate().filter(|(_, four)| are_used(&lines, four));
    let indices: Vec<String> =
        indices.map(|(part, four)| format!("unsigned long long {four} = 4 * i + {part};")).collect();
    for line in indices.iter().chain(&loads).chain(&lines).chain(&stores) {
        let _ = writeln!(text, "        {line}");
    }
    Ok(Some(text + "    }\n"))
}

/// The C of a value's elements.
struct Spelled {
    suffix: &'static str,
    four: &'static str,
    bytes: usize,
}

fn spelled(element: Element) -> Spelled {
    let spelling = spelling(element);
    Spelled { suffix: spelling.suffix, four: spelling.four, bytes: element.bytes() }
}

#[cfg(test)]
#[path = "flat_tests.rs"]
mod tests;
