//! Groups that begin with a product: their other statements run on each run of its elements as soon as some rows are complete, while
//! those are in the L2 cache.
//!
//! Sums over rows are made row by row for each chunk of rows ([`CHUNK`]), and those are added in order at the end, as in other groups.

use super::contract::plan;
use device::arena::Arena;
use device::backend::{GroupSite, GroupStmt, GroupValue, Span};
use device::host;
use device::region::local_len;
use device::scalar;
use ir::ops::KernelOp;
use ir::types::DType;
use kernels::cpu::columns::{CHUNK, Chunks, add_chunks};
use kernels::cpu::einsum::Einsum;
use kernels::cpu::elementwise::{binary, unary};
use kernels::cpu::finished::{Finish, NextRun, RUN};
use kernels::cpu::narrow::{Floats, round, settle, settle_to, widen};
use kernels::cpu::{Par, prefetch};
use kernels::scalar::{Binary, Unary};
use std::cell::RefCell;

thread_local! {
    /// The values of a run. It grows to what the longest group needs and stays.
    static LANE: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// A group with its shapes.
pub(super) struct ProductGroup {
    einsum: Einsum,
    /// The operands of the product, among those of the group.
    factors: [usize; 2],
    rows: usize,
    /// Elements of a row.
    columns: usize,
    product: Value,
    steps: Vec<Step>,
    /// The operands whose elements steps read, and the results that they and the product write.
    touched: [Vec<usize>; 2],
    /// Their places in this launch.
    places: Vec<Span>,
    sums: Vec<Sum>,
    /// For each value, the result in whose place it is computed in this launch.
    direct: Vec<Option<usize>>,
    par: Par,
    scratch: [Vec<f32>; 2],
}

/// A value that the group computes. Its elements of a run have a slot in the lane.
#[derive(Clone, Copy)]
struct Value {
    dtype: DType,
    /// The result of the group that it is, if it is left.
    result: Option<usize>,
    /// A later statement reads it.
    is_read: bool,
}

impl Value {
    /// True if it is not rounded.
    fn is_f32(self) -> bool {
        self.dtype == DType::F32
    }
}

/// A statement after the product. It computes the next value.
struct Step {
    function: Function,
    operands: Vec<Read>,
    value: Value,
}

enum Function {
    /// A cast rounds, and computes nothing.
    Cast,
    Unary(Unary),
    Binary(Binary),
    /// A sum over rows, by its number. It has no place in the lane.
    Sum(usize),
}

/// A sum over rows.
struct Sum {
    /// The result of the group.
    result: usize,
    /// It is a gradient sum.
    accumulate: bool,
}

/// An operand of a step.
#[derive(Clone, Copy)]
enum Read {
    /// A value of the group, by its number; the product is the first.
    Value(usize),
    /// The same elements of an operand of the group.
    Elements(usize),
    /// The elements of the same columns of an operand, which repeats after a number of elements.
    Repeated(usize, usize),
}

impl Read {
    fn is_value(&self, number: usize) -> bool {
        matches!(*self, Read::Value(of) if of == number)
    }
}

impl ProductGroup {
    /// Makes a group ready.
    ///
    /// # Errors
    /// A statement cannot run on its types, or does not work on single elements.
    pub(super) fn new(site: &GroupSite<'_>, threads: usize) -> Result<ProductGroup, String> {
        let (first, rest) = site.stmts.split_first().ok_or("it is empty")?;
        let KernelOp::Einsum(op) = first.op else { return Err("it begins with no product".to_string()) };
        let einsum = plan(op, &first.site)?;
        let dims = first.rows()?.product.ok_or("its product is not one of two matrices")?;
        let sizes = first.site.result(0)?;
        let [rows, columns] = [&sizes[..dims], &sizes[dims..]].map(|sizes| sizes.iter().product());
        let mut values: Vec<GroupValue> = vec![first.results[0]];
        let value = |stmt: &GroupStmt<'_>| {
            let result = if let GroupValue::Result(at) = stmt.results[0] { Some(at) } else { None };
            Value { dtype: stmt.site.results[0].dtype, result, is_read: false }
        };
        let (mut steps, mut sums) = (Vec::new(), Vec::new());
        for stmt in rest {
            let (operands, mut value) = (reads(stmt, &values)?, value(stmt));
            let law = stmt.rows()?;
            let function = match value.result {
                Some(result) if law.sums && law.dims == Some(dims) => {
                    value.result = None;
                    sums.push(Sum { result, accumulate: stmt.accumulate });
                    Function::Sum(sums.len() - 1)
                }
                _ => function(stmt.op)?,
            };
            steps.push(Step { function, operands, value });
            values.push(stmt.results[0]);
        }
        let factors = [0, 1].map(|at| if let GroupValue::Operand(of) = first.operands[at] { of } else { 0 });
        let (par, scratch) = (Par(threads), [Vec::new(), Vec::new()]);
        let direct = vec![None; values.len()];
        let mut product = value(first);
        for number in 0..values.len() {
            let is_read = steps.iter().flat_map(|step: &Step| &step.operands).any(|read| read.is_value(number));
            number.checked_sub(1).map_or(&mut product, |step| &mut steps[step].value).is_read = is_read;
        }
        let (touched, places) = (touched(product, &steps), Vec::new());
        Ok(ProductGroup { einsum, factors, rows, columns, product, steps, touched, places, sums, direct, par, scratch })
    }

    /// The elements that its sums over chunks have.
    pub(super) fn partials(&self) -> usize {
        self.rows.div_ceil(CHUNK) * self.columns * self.sums.len()
    }

    /// Runs the group. Its gradient sums, in order, are added to or stored; `partials` is room for sums over chunks.
    pub(super) fn run(
        &mut self,
        arena: &Arena,
        partials: &mut [f32],
        [operands, results]: [&[Span]; 2],
        accumulate: &[bool],
    ) {
        let partials = &mut partials[..self.partials()];
        let ProductGroup { einsum, factors, columns, product, steps, sums, direct, par, scratch, .. } = self;
        self.places.clear();
        for (spans, list) in [operands, results].into_iter().zip(&self.touched) {
            self.places.extend(list.iter().map(|&at| spans[at]));
        }
        let factor = |at: usize| {
            let span = operands[factors[at]];
            match host::narrow(span.dtype) {
                // SAFETY: nobody writes it now.
                Some(format) => Floats::Narrow(format, unsafe { arena.bytes(span) }),
                // SAFETY: nobody writes it now.
                None => Floats::Wide(unsafe { arena.elements(span) }),
            }
        };
        let left = product.result.filter(|_| product.is_f32()).map(|at| results[at]);
        // SAFETY: nobody else touches it now, and steps do not write it.
        let left = left.map(|span| unsafe { arena.elements_mut(span) });
        let (product, columns, is_made, [scratch, whole]) = (*product, *columns, left.is_some(), scratch);
        for (direct, step) in direct.iter_mut().skip(1).zip(&*steps) {
            // A place where no operand is, since others may be read after it is written.
            let is_free = |&at: &usize| !operands.iter().any(|operand| operand.meets(results[at]));
            *direct = step.value.result.filter(|_| step.value.is_f32()).filter(is_free);
        }
        let width = columns * sums.len();
        let chunks = Chunks::new(&mut *partials, width);
        let rest =
            Rest { arena, operands, results, columns, product, is_made, steps, places: &self.places, chunks, direct };
        einsum.run_finished((factor(0), factor(1)), (left, columns), *par, [scratch, whole], &rest);
        let mut accumulate = accumulate.iter();
        for (sum, number) in sums.iter().zip(0..) {
            let adds = sum.accumulate && *accumulate.next().expect("a flag for each gradient sum");
            // SAFETY: nobody else touches it now.
            let out = unsafe { arena.elements_mut(results[sum.result]) };
            add_chunks((partials, width), number * columns, out, adds);
        }
    }
}

/// The statements after the product of a launch.
struct Rest<'a> {
    arena: &'a Arena,
    operands: &'a [Span],
    results: &'a [Span],
    columns: usize,
    product: Value,
    /// The product is in its place already.
    is_made: bool,
    steps: &'a [Step],
    /// The tensors of the product's shape that they read or write.
    places: &'a [Span],
    /// Their sums over rows, one next to the other.
    chunks: Chunks<'a>,
    /// For each value, the result in whose place it is computed.
    direct: &'a [Option<usize>],
}

impl Finish for Rest<'_> {
    /// Between statements it asks for the tensors of the next run, one after the other, since a core waits for few lines at a time.
    fn finish(&self, [row, column]: [usize; 2], run: &[f32], next: Option<NextRun>) {
        let steps = self.steps;
        let mut ahead = self.places.chunks(self.places.len().div_ceil(steps.len() + 1).max(1));
        let mut ask = || {
            let (Some(NextRun { at: [row, column], len }), Some(spans)) = (next, ahead.next()) else { return };
            for span in spans {
                let part = span.part(row * self.columns + column, len);
                prefetch(self.arena.at(part), part.bytes());
            }
        };
        LANE.with_borrow_mut(|lane| {
            let lane = Lane::new(lane, steps.len() + 1);
            let mut at = At { rest: self, run, first: row * self.columns + column, lane };
            ask();
            at.begin();
            for (step, number) in steps.iter().zip(1..) {
                ask();
                at.step(number, step);
            }
        });
    }
}

/// The operands of a statement that follows a product, for the values so far.
fn reads(stmt: &GroupStmt<'_>, values: &[GroupValue]) -> Result<Vec<Read>, String> {
    let (law, at) = (stmt.rows()?, &stmt.site);
    let read = |(place, value): (usize, &GroupValue)| match (values.iter().position(|other| other == value), value) {
        (Some(number), _) => Ok(Read::Value(number)),
        (None, &GroupValue::Operand(of)) if law.operands[place] => Ok(Read::Elements(of)),
        (None, &GroupValue::Operand(of)) => {
            Ok(Read::Repeated(of, local_len(at.operands[place], at.mesh, at.coordinates).max(1)))
        }
        (None, _) => Err("reads what is not computed".to_string()),
    };
    stmt.operands.iter().enumerate().map(read).collect()
}

/// The operands whose elements steps read, each once, and the results that they and the product write.
fn touched(product: Value, steps: &[Step]) -> [Vec<usize>; 2] {
    let operand = |read: &Read| if let Read::Elements(of) = *read { Some(of) } else { None };
    let mut read: Vec<usize> = steps.iter().flat_map(|step| step.operands.iter().filter_map(operand)).collect();
    read.sort_unstable();
    read.dedup();
    let values = steps.iter().map(|step| step.value);
    [read, values.chain([product]).filter_map(|value| value.result).collect()]
}

fn function(op: &KernelOp) -> Result<Function, String> {
    match op {
        KernelOp::Unary(op) => Ok(scalar::unary(op.0).map_or(Function::Cast, Function::Unary)),
        KernelOp::Binary(op) => Ok(Function::Binary(scalar::binary(op.kind))),
        op => Err(format!("`{}` does not work on single elements", op.def().name())),
    }
}

/// Room for the values of a run that have no other place, and behind them for two operands in f32.
struct Lane<'a> {
    values: &'a mut [f32],
    wide: [&'a mut [f32]; 2],
}

impl<'a> Lane<'a> {
    fn new(room: &'a mut Vec<f32>, values: usize) -> Lane<'a> {
        let needed = (values + 2) * RUN;
        if room.len() < needed {
            room.resize(needed, 0.0);
        }
        let (values, rest) = room.split_at_mut(values * RUN);
        let (one, rest) = rest.split_at_mut(RUN);
        Lane { values, wide: [one, &mut rest[..RUN]] }
    }
}

/// A run of elements on which statements work.
struct At<'a> {
    rest: &'a Rest<'a>,
    /// The elements of the product, unrounded.
    run: &'a [f32],
    /// The first element in the tensors of the product's shape.
    first: usize,
    lane: Lane<'a>,
}

impl At<'_> {
    /// Notes the elements of the product.
    fn begin(&mut self) {
        let product = self.rest.product;
        let place = product.result.filter(|_| !self.rest.is_made).map(|at| self.place(at));
        let Some(format) = host::narrow(product.dtype) else {
            // SAFETY: nobody else touches these elements now.
            return place
                .into_iter()
                .for_each(|to| unsafe { self.rest.arena.elements_mut(to) }.copy_from_slice(self.run));
        };
        if let Some(to) = place {
            // SAFETY: as above.
            round(format, self.run, unsafe { self.rest.arena.bytes_mut(to) }, Par(1));
        }
        if product.is_read {
            settle_to(format, self.run, &mut self.lane.values[..self.run.len()]);
        }
    }

    /// The place of the run in a result.
    fn place(&self, result: usize) -> Span {
        self.rest.results[result].part(self.first, self.run.len())
    }

    /// Computes the value of a number.
    fn step(&mut self, number: usize, step: &Step) {
        let &mut At { rest, run, first, ref mut lane } = self;
        let len = run.len();
        let (before, own) = lane.values.split_at_mut(number * RUN);
        let mut wide = lane.wide.iter_mut();
        let mut read = |read: &Read| -> &[f32] {
            let span = match *read {
                Read::Value(0) if rest.product.is_f32() => return run,
                Read::Value(of) => match rest.direct[of] {
                    // SAFETY: this thread has computed them, and no step writes them again.
                    Some(to) => return unsafe { rest.arena.elements(rest.results[to].part(first, len)) },
                    None => return &before[of * RUN..][..len],
                },
                Read::Elements(of) => rest.operands[of].part(first, len),
                // A scalar is the same for all elements of a run.
                Read::Repeated(of, 1) => rest.operands[of].part(0, 1),
                Read::Repeated(of, period) => rest.operands[of].part(first % period, len),
            };
            let room = &mut wide.next().expect("an op has at most two operands")[..len];
            // Nobody else writes these elements now, and this run not before it has read them.
            match (span.dtype, host::narrow(span.dtype)) {
                // SAFETY: as above.
                (_, Some(format)) => widen(format, unsafe { rest.arena.bytes(span) }, &mut room[..span.len], Par(1)),
                (DType::I32, _) => {
                    // SAFETY: as above.
                    let ints = unsafe { rest.arena.elements::<i32>(span) };
                    room.iter_mut().zip(ints).for_each(|(x, &int)| *x = int as f32);
                }
                // SAFETY: as above.
                _ if span.len == len => return unsafe { rest.arena.elements(span) },
                // SAFETY: as above.
                _ => room[..span.len].copy_from_slice(unsafe { rest.arena.elements(span) }),
            }
            if span.len < len {
                let scalar = room[0];
                room.fill(scalar);
            }
            room
        };
        let direct = rest.direct[number];
        let out = match direct {
            // SAFETY: nobody else touches these elements now, and no operand is there.
            Some(to) => unsafe { rest.arena.elements_mut(rest.results[to].part(first, len)) },
            None => &mut own[..len],
        };
        match (&step.function, step.operands.as_slice()) {
            (Function::Unary(kind), [x]) => unary(*kind, read(x), out, Par(1)),
            (Function::Binary(kind), [x, y]) => binary(*kind, read(x), read(y), out, Par(1)),
            (&Function::Sum(sum), [x]) => {
                let (row, column) = (first / rest.columns, first % rest.columns);
                // SAFETY: the rows of a chunk come on this thread.
                return unsafe { rest.chunks.add(row, sum * rest.columns + column, read(x)) };
            }
            (_, operands) => out.copy_from_slice(read(&operands[0])),
        }
        if direct.is_none() {
            self.leave(number, step.value);
        }
    }

    /// Rounds a value of the lane to its type, and writes it to its place if it is left.
    fn leave(&mut self, number: usize, value: Value) {
        let place = value.result.map(|at| self.place(at));
        let arena = self.rest.arena;
        let slot = &mut self.lane.values[number * RUN..][..self.run.len()];
        let Some(format) = host::narrow(value.dtype) else {
            // SAFETY: nobody else touches these elements now.
            return place.into_iter().for_each(|to| unsafe { arena.elements_mut(to) }.copy_from_slice(slot));
        };
        if let Some(to) = place {
            // SAFETY: as above.
            round(format, slot, unsafe { arena.bytes_mut(to) }, Par(1));
        }
        if value.is_read {
            settle(format, slot);
        }
    }
}
