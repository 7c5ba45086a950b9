//! GPU launch plan of a group of statements on a rank's sizes, as data: built and tested without a GPU.
//!
//! A plan is a list of stages: matrix products, and kernels of programs, each of as many of the next statements as one kernel can do. What
//! only later stages read is in scratch memory.

use super::addend::{self, Addend, Sum};
use super::lower::{Lowering, Made, element, len, of_blocks};
use super::matmul::{Arithmetic, Formats};
use super::scaled;
use super::written::{self, At, Steps, Tiles};
use device::backend::{GroupSite, GroupStmt, GroupValue, KernelSite};
use ir::ops::{Einsum, KernelOp, Unary, UnaryKind};
use ir::types::Type;
use kernels::cuda::gemm::Contraction;
use kernels::cuda::kernel::Kernel;
use kernels::cuda::written::Written;
use kernels::group::{Node, Out, Program, Read};
use kernels::scalar::{Access, Element};

/// Pieces of scratch memory begin at multiples of this, which suits every algorithm.
const ALIGNED: usize = 256;

/// The launches of a group.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Plan {
    /// The launches, in order.
    pub stages: Vec<Stage>,
    /// Bytes of scratch memory.
    pub scratch: usize,
}

/// A launch.
#[derive(Clone, PartialEq, Debug)]
pub struct Stage {
    /// Its work.
    pub work: Work,
    /// Places of its operands.
    pub operands: Vec<Place>,
    /// Places of its results.
    pub results: Vec<Place>,
    /// By result, the number of the flag that says whether it is added, if there is one.
    pub adds: Vec<Option<usize>>,
    /// Offset in scratch memory of the sums of chunks.
    pub partials: usize,
    /// Operands that are copied to an offset in scratch memory first if a result has their place, with their bytes.
    pub spare: Vec<(usize, usize, usize)>,
}

/// The work of a stage.
#[derive(Clone, PartialEq, Debug)]
pub enum Work {
    /// The kernel of a program.
    Kernel(Box<Program>),
    /// A kernel that is written by hand.
    Written(Box<Written>),
    /// A matrix product; operands of 8 bits are followed by their scales, and all operands by what is added.
    Product(Box<Contraction>, Formats, Option<Addend>),
    /// The operand's elements in their own order.
    Copy,
}

/// The place of a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// An operand of the group.
    Operand(usize),
    /// A result of the group.
    Result(usize),
    /// An offset in scratch memory.
    Scratch(usize),
    /// The counts of the experts' choices.
    Tally,
}

/// Plans an op for a GPU of a compute capability.
///
/// # Errors
/// The op has no kernel for these types.
pub fn plan(op: &KernelOp, site: &KernelSite<'_>, capability: (u32, u32)) -> Result<Plan, String> {
    let results = (0..site.results.len()).map(GroupValue::Result).collect();
    let operands = (0..site.operands.len()).map(GroupValue::Operand).collect();
    // Only kernels of one result are asked to add.
    let stmt = GroupStmt { op, site: *site, operands, results, accumulate: site.results.len() == 1 };
    if let KernelOp::Reshape(_) = op {
        let (operands, results) = (vec![Place::Operand(0)], vec![Place::Result(0)]);
        let stage = Stage { work: Work::Copy, operands, results, adds: vec![Some(0)], partials: 0, spare: vec![] };
        return Ok(Plan { stages: vec![stage], scratch: 0 });
    }
    plan_group(&GroupSite { stmts: vec![stmt] }, capability)
}

/// Plans a group for a GPU of a compute capability.
///
/// # Errors
/// One of its ops has no kernel for its types.
pub fn plan_group(site: &GroupSite<'_>, capability: (u32, u32)) -> Result<Plan, String> {
    Planner::run(site, capability, true).or_else(|_| Planner::run(site, capability, false))
}

/// Plans an attention, or its gradient, on tensor cores by tiles that are given; it is the only statement. No attention has other
/// kernels by the compute capability.
///
/// # Errors
/// It is another op, or there are more.
pub(super) fn plan_tiles(site: &GroupSite<'_>, tiles: Tiles) -> Result<Plan, String> {
    let [stmt] = &site.stmts[..] else { return Err("tiles are those of one op".to_string()) };
    let mut planner = Planner::new(site, (8, 0));
    planner.written(&written::by_tiles(stmt.op, &stmt.site, tiles)?, &[stmt], None)?;
    Ok(planner.plan)
}

/// A value that a stage has left.
struct Left {
    value: GroupValue,
    place: Place,
    element: Element,
    len: usize,
}

struct Planner<'a> {
    site: &'a GroupSite<'a>,
    capability: (u32, u32),
    plan: Plan,
    left: Vec<Left>,
    /// The kernel that grows.
    next: Growing,
    /// Gradient sums so far.
    flags: usize,
    /// Statements that a product has done.
    done: Vec<usize>,
}

/// A program and where its inputs and results are.
#[derive(Clone, Default)]
struct Growing {
    program: Program,
    operands: Vec<Place>,
    known: Vec<(GroupValue, Made)>,
    /// Results that a flag adds.
    flags: Vec<(GroupValue, usize)>,
    /// The element types of results.
    elements: Vec<Element>,
}

impl<'a> Planner<'a> {
    fn new(site: &'a GroupSite<'a>, capability: (u32, u32)) -> Planner<'a> {
        let (plan, next) = (Plan::default(), Growing::default());
        Planner { site, capability, plan, left: Vec::new(), next, flags: 0, done: Vec::new() }
    }
}

impl Planner<'_> {
    /// Plans stages of as many statements as fit into one kernel, or of one each.
    fn run(site: &GroupSite<'_>, capability: (u32, u32), grows: bool) -> Result<Plan, String> {
        let mut planner = Planner::new(site, capability);
        for (at, stmt) in site.stmts.iter().enumerate() {
            if planner.done.contains(&at) {
                continue;
            }
            let flag = stmt.accumulate.then_some(planner.flags);
            planner.flags += usize::from(stmt.accumulate);
            if let Some(steps) = written::steps(stmt.op, &stmt.site) {
                planner.flush(at)?;
                match planner.copied(at) {
                    Some((steps, copy)) => planner.written(&steps, &[stmt, &site.stmts[copy]], flag)?,
                    None => planner.written(&steps?, &[stmt], flag)?,
                }
                continue;
            }
            if let KernelOp::Einsum(op) = stmt.op {
                planner.flush(at)?;
                planner.product(op, at, flag)?;
                continue;
            }
            let grown = planner.grown(stmt, flag).ok().filter(|_| grows);
            let is_one =
                |grown: &Growing| planner.outs(grown, &stmt.results).is_ok_and(|(.., kernel)| !kernel.is_narrow);
            let grown = grown.filter(is_one);
            planner.next = match grown {
                Some(grown) => grown,
                None => {
                    planner.flush(at)?;
                    planner.grown(stmt, flag)?
                }
            };
        }
        planner.flush(site.stmts.len())?;
        Ok(planner.plan)
    }

    /// The growing kernel with a statement more.
    fn grown(&self, stmt: &GroupStmt<'_>, flag: Option<usize>) -> Result<Growing, String> {
        let mut next = self.next.clone();
        let mut operands = Vec::new();
        for (value, ty) in stmt.operands.iter().zip(stmt.site.operands) {
            operands.push(self.operand(&mut next, *value, ty, &stmt.site)?);
        }
        let made = Lowering { program: &mut next.program, site: &stmt.site, operands }.lower(stmt.op)?;
        for ((value, made), ty) in stmt.results.iter().zip(made).zip(stmt.site.results) {
            next.known.push((*value, made));
            next.elements.push(element(ty.dtype));
            next.flags.extend(flag.map(|flag| (*value, flag)));
        }
        Ok(next)
    }

    /// The value of an operand in a program: a value that it has, or another input.
    fn operand(
        &self,
        next: &mut Growing,
        value: GroupValue,
        ty: &Type,
        site: &KernelSite<'_>,
    ) -> Result<usize, String> {
        match next.known.iter().find(|(known, _)| *known == value) {
            Some((_, Made::Value(known))) => return Ok(*known),
            Some(_) => return Err("a sum over rows is read in its kernel".to_string()),
            None => {}
        }
        let (place, element, len) = match (self.left.iter().find(|left| left.value == value), value) {
            (Some(left), _) => (left.place, left.element, left.len),
            (None, GroupValue::Operand(at)) => (Place::Operand(at), element(ty.dtype), len(ty, site)),
            (None, _) => return Err("reads what is not computed".to_string()),
        };
        let made = next.program.push(Node::Input, element, len);
        next.operands.push(place);
        next.known.push((value, Made::Value(made)));
        next.elements.push(element);
        Ok(made)
    }

    /// The kernel of a growing program that leaves results of the group, and the interior values that are wanted.
    fn outs(&self, next: &Growing, wanted: &[GroupValue]) -> Result<(Program, Vec<GroupValue>, Kernel), String> {
        let (program, values) = self.leaving(next, wanted);
        let kernel = Kernel::new(&program)?;
        Ok((program, values, kernel))
    }

    /// The growing program with its outs, and the values that they are.
    fn leaving(&self, next: &Growing, wanted: &[GroupValue]) -> (Program, Vec<GroupValue>) {
        let mut program = next.program.clone();
        let is_there = |value: GroupValue| self.left.iter().any(|left| left.value == value);
        let is_left = |value: GroupValue| match value {
            GroupValue::Operand(_) => false,
            GroupValue::Result(_) => !is_there(value),
            GroupValue::Interior(_) => wanted.contains(&value) && !is_there(value),
        };
        let mut values = Vec::new();
        for ((value, made), element) in next.known.iter().zip(&next.elements).filter(|((value, _), _)| is_left(*value))
        {
            let (made, columns) = match *made {
                Made::Value(made) => (made, None),
                Made::Sum(made, width) => (made, Some(width)),
            };
            let adds = next.flags.iter().any(|(flagged, _)| flagged == value);
            program.outs.push(Out { value: made, element: *element, columns, adds });
            values.push(*value);
        }
        (program, values)
    }

    /// Room in scratch memory.
    fn scratch(&mut self, bytes: usize) -> usize {
        let at = self.plan.scratch;
        self.plan.scratch = (at + bytes).next_multiple_of(ALIGNED);
        at
    }

    /// Makes a stage of the growing kernel, unless nothing reads what it computes; the statements from a number on are in others.
    fn flush(&mut self, from: usize) -> Result<(), String> {
        let next = std::mem::take(&mut self.next);
        if next.program.values.is_empty() {
            return Ok(());
        }
        let wanted: Vec<GroupValue> = self.site.stmts[from..].iter().flat_map(|stmt| &stmt.operands).copied().collect();
        let (program, values) = self.leaving(&next, &wanted);
        if values.is_empty() {
            return Ok(());
        }
        let kernel = Kernel::new(&program)?;
        let (mut results, mut adds) = (Vec::new(), Vec::new());
        for (value, out) in values.iter().zip(&program.outs) {
            let place = match *value {
                GroupValue::Result(at) => Place::Result(at),
                _ => Place::Scratch(self.scratch(program.len(out) * out.element.bytes())),
            };
            results.push(place);
            adds.push(next.flags.iter().find(|(flagged, _)| flagged == value).map(|(_, flag)| *flag));
            self.left.push(Left { value: *value, place, element: out.element, len: program.len(out) });
        }
        let partials = self.scratch(kernel.partials * size_of::<f32>());
        let bytes = |value: usize| program.values[value].len * program.values[value].element.bytes();
        let inputs: Vec<usize> = program.inputs().map(bytes).collect();
        let is_result =
            |bytes: usize| program.outs.iter().any(|out| bytes > 0 && program.len(out) * out.element.bytes() == bytes);
        let apart: Vec<usize> = kernel.apart.into_iter().filter(|&input| is_result(inputs[input])).collect();
        let spare = apart.into_iter().map(|input| (input, self.scratch(inputs[input]), inputs[input])).collect();
        let work = Work::Kernel(Box::new(program));
        self.plan.stages.push(Stage { work, operands: next.operands, results, adds, partials, spare });
        Ok(())
    }

    /// The place of a value that is there.
    fn place(&self, value: GroupValue) -> Result<Place, String> {
        match (value, self.left.iter().find(|left| left.value == value)) {
            (_, Some(left)) => Ok(left.place),
            (GroupValue::Operand(of), None) => Ok(Place::Operand(of)),
            _ => Err("reads what is not computed".to_string()),
        }
    }

    /// The update at a statement with the first cast of its weights that follows, and the number of that: one kernel does both.
    fn copied(&mut self, at: usize) -> Option<(Steps, usize)> {
        let stmt = &self.site.stmts[at];
        let casts = |other: &GroupStmt<'_>| match other.op {
            KernelOp::Unary(Unary(UnaryKind::Cast(to))) if other.operands[0] == stmt.results[0] => Some(*to),
            _ => None,
        };
        let (copy, to) = (at + 1..self.site.stmts.len()).find_map(|at| Some((at, casts(&self.site.stmts[at])?)))?;
        let steps = written::update(stmt.op, &stmt.site, Some(element(to)))?;
        self.done.push(copy);
        Some((steps, copy))
    }

    /// A stage for each step of an op whose kernels are written by hand. The results are those of all statements. The operands are those of
    /// the first one, of which some may be results that it updates.
    fn written(&mut self, steps: &Steps, stmts: &[&GroupStmt<'_>], flag: Option<usize>) -> Result<(), String> {
        let scratch: Vec<usize> = steps.scratch.iter().map(|&bytes| self.scratch(bytes)).collect();
        let mut results = Vec::new();
        let all = stmts.iter().flat_map(|stmt| stmt.results.iter().zip(stmt.site.results).map(move |one| (stmt, one)));
        for (stmt, (value, ty)) in all {
            let (element, len) = (element(ty.dtype), len(ty, &stmt.site));
            let place = match *value {
                GroupValue::Result(at) => Place::Result(at),
                _ => Place::Scratch(self.scratch(len * element.bytes())),
            };
            results.push(place);
            self.left.push(Left { value: *value, place, element, len });
        }
        let operands = stmts[0].operands.iter().map(|value| self.place(*value)).collect::<Result<Vec<_>, _>>()?;
        let place = |at: &At| match *at {
            At::Operand(at) => operands[at],
            At::Result(at) => results[at],
            At::Scratch(at) => Place::Scratch(scratch[at]),
            At::Tally => Place::Tally,
        };
        for step in &steps.steps {
            let [operands, results] = [&step.operands, &step.results].map(|side| side.iter().map(place).collect());
            let adds = step.results.iter().map(|at| flag.filter(|_| matches!(at, At::Result(_)))).collect();
            let work = Work::Written(Box::new(step.work.clone()));
            self.plan.stages.push(Stage { work, operands, results, adds, partials: 0, spare: vec![] });
        }
        Ok(())
    }

    /// A matrix product. A result in f32, or in a format that the arithmetic rounds to, is written as the statement rounds it, with what a
    /// later statement adds to it. Another one, and one whose dims have another order, becomes the first value of the next kernel.
    fn product(&mut self, op: &Einsum, at: usize, flag: Option<usize>) -> Result<(), String> {
        let stmt = &self.site.stmts[at];
        let (plan, arithmetic, mut operands) = match op.scaled {
            None => self.multiplied(op, stmt)?,
            Some(_) => self.scaled(op, stmt)?,
        };
        let (mut value, result, size) = (stmt.results[0], stmt.site.results[0], plan.sizes[2]);
        let (to, unpack) = (element(result.dtype), plan.unpack.clone());
        let mut formats = Formats { arithmetic, result: Element::F32 };
        // A number that is moved and then added is rounded when it is added.
        if arithmetic.rounds_to(to) && (unpack.is_none() || flag.is_none()) {
            formats.result = to;
        }
        let is_direct = unpack.is_none() && to == formats.result;
        let sum = self.sum(at, &plan, formats).filter(|_| is_direct && flag.is_none());
        if let Some((sum, place)) = sum {
            operands.push(place);
            self.done.push(sum.stmt);
            value = self.site.stmts[sum.stmt].results[0];
        }
        let place = match value {
            GroupValue::Result(at) if is_direct => Place::Result(at),
            _ => Place::Scratch(self.scratch(size * formats.result.bytes())),
        };
        let adds = vec![flag.filter(|_| is_direct)];
        let work = Work::Product(Box::new(plan), formats, sum.map(|(sum, _)| sum.addend));
        self.plan.stages.push(Stage { work, operands, results: vec![place], adds, partials: 0, spare: vec![] });
        if is_direct {
            self.left.push(Left { value, place, element: to, len: size });
            return Ok(());
        }
        let of = self.next.program.push(Node::Input, formats.result, size);
        self.next.operands.push(place);
        let access = unpack.unwrap_or(Access::Same);
        let made = self.next.program.push(Node::Convert(Read { value: of, access }), to, size);
        self.next.known.push((value, Made::Value(made)));
        self.next.elements.push(to);
        self.next.flags.extend(flag.map(|flag| (value, flag)));
        Ok(())
    }

    /// The addition that a product does, and the place of what is added, which is there.
    fn sum(&self, product: usize, plan: &Contraction, formats: Formats) -> Option<(Sum, Place)> {
        let sum = addend::sum(&self.site.stmts, product)?;
        let stmt = &self.site.stmts[sum.stmt];
        let other = stmt.operands.iter().position(|&read| read == sum.with)?;
        let (len, gemm) = (len(stmt.site.operands[other], &stmt.site), &plan.gemm);
        // The library adds biases to products of 8 bits in some formats only ("cublasLtMatmul", table of FP8 kernels). Without terms
        // there is no launch.
        let is_taken = match sum.addend {
            Addend::Same => len == plan.sizes[2],
            Addend::Row => gemm.batch == 1 && gemm.d.rows == len && !matches!(formats.arithmetic, Arithmetic::F8(_)),
        };
        let place = self.place(sum.with).ok()?;
        (is_taken && gemm.k > 0).then_some((sum, place))
    }

    /// A product of operands as they are; those that it cannot read are copied.
    fn multiplied(&mut self, op: &Einsum, stmt: &GroupStmt<'_>) -> Result<Multiplied, String> {
        let plan = contraction(op, &stmt.site, Contraction::new)?;
        let elements = [0, 1].map(|at| element(stmt.site.operands[at].dtype));
        let arithmetic = match elements {
            [Element::Bf16, Element::Bf16] => Arithmetic::Bf16,
            [Element::F16, Element::F16] => Arithmetic::F16,
            _ => Arithmetic::F32,
        };
        let mut operands = Vec::new();
        for (at, (from, to)) in elements.into_iter().zip(arithmetic.operands()).enumerate() {
            let place = self.place(stmt.operands[at])?;
            operands.push(match &plan.pack[at] {
                None if from == to => place,
                pack => self.copy(place, [from, to], pack.clone(), plan.sizes[at]),
            });
        }
        Ok((plan, arithmetic, operands))
    }

    /// A product of operands of 8 bits times their scales: on tensor cores that take them as they are, or in bf16.
    fn scaled(&mut self, op: &Einsum, stmt: &GroupStmt<'_>) -> Result<Multiplied, String> {
        let elements = [0, 1].map(|at| element(stmt.site.operands[at].dtype));
        let scales = [2, 3].map(|at| len(stmt.site.operands[at], &stmt.site));
        let places = stmt.operands.iter().map(|value| self.place(*value)).collect::<Result<Vec<_>, _>>()?;
        let plan = contraction(op, &stmt.site, Contraction::by_terms)?;
        if scaled::is_direct(self.capability, elements, scales, &plan.gemm) {
            let mut operands = places.clone();
            for at in 0..2 {
                if let Some(pack) = &plan.pack[at] {
                    operands[at] = self.copy(places[at], [elements[at]; 2], Some(pack.clone()), plan.sizes[at]);
                }
            }
            return Ok((plan, Arithmetic::F8(elements), operands));
        }
        let plan = contraction(op, &stmt.site, Contraction::new)?;
        let mut operands = Vec::new();
        for at in 0..2 {
            let access = of_blocks(&stmt.site.operand(at)?, &stmt.site.operand(at + 2)?)?;
            let program = scaled::widened((elements[at], plan.sizes[at]), (access, scales[at]), plan.pack[at].clone());
            operands.push(self.made(program, vec![places[at], places[at + 2]]));
        }
        Ok((plan, Arithmetic::Bf16, operands))
    }

    /// A stage that copies a tensor to scratch memory, and its place there.
    fn copy(&mut self, from: Place, elements: [Element; 2], pack: Option<Access>, size: usize) -> Place {
        let mut program = Program::copy(elements, (pack.unwrap_or(Access::Same), size), size);
        program.outs[0].adds = false;
        self.made(program, vec![from])
    }

    /// A stage whose one result is in scratch memory, and the place of the result.
    fn made(&mut self, program: Program, operands: Vec<Place>) -> Place {
        let out = program.outs[0];
        let place = Place::Scratch(self.scratch(program.len(&out) * out.element.bytes()));
        let (work, results) = (Work::Kernel(Box::new(program)), vec![place]);
        self.plan.stages.push(Stage { work, operands, results, adds: vec![None], partials: 0, spare: vec![] });
        place
    }
}

/// A matrix product, its arithmetic, and the places of its operands.
type Multiplied = (Contraction, Arithmetic, Vec<Place>);

/// How a contraction becomes a matrix product: [`Contraction::new`], or [`Contraction::by_terms`].
type Planned = fn(&[char], &[char], &[char], &[usize], &[usize]) -> Result<Contraction, String>;

/// The matrix product of an einsum.
fn contraction(op: &Einsum, site: &KernelSite<'_>, planned: Planned) -> Result<Contraction, String> {
    let equation = &op.equation;
    let [a, b] = &equation.operands[..] else { return Err("a product has two operands".to_string()) };
    let names: Vec<&String> = a.iter().chain(b).collect();
    // The planner of the kernel goes by characters.
    let letter = |name: &String| names.iter().position(|known| *known == name).and_then(|i| char::from_u32(i as u32));
    let letters = |names: &[String]| names.iter().filter_map(letter).collect::<Vec<_>>();
    let plan = planned(&letters(a), &letters(b), &letters(&equation.result), &site.operand(0)?, &site.operand(1)?);
    plan.map_err(|why| format!("einsum on the cuda backend: {why}"))
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
