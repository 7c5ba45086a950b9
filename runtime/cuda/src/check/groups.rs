//! Groups of statements on both backends, on random data: they agree within bounds that follow from the plan.

use super::bounds::{Numbers, Plane};
use super::numbers::{encoded, floats};
use super::{Bench, Found, Rows, updates, written};
use crate::backend::Cuda;
use crate::plan::{Plan, Work, plan, plan_group};
use comm::local_len;
use cpu::Cpu;
use device::backend::{Backend, GroupPlace, GroupSite, GroupStmt, GroupValue, LaunchSite, Span, updated};
use ir::fused::Fused;
use ir::graph::SectionKind;
use ir::types::DType;
use kernels::cpu::dropout::normal;

pub(super) const SITE: LaunchSite = LaunchSite { microbatch: 2, index: 1 };
pub(super) const SEED: u64 = 11;
pub(super) const STEP: u64 = 4;

/// The outcome of a comparison.
#[derive(Clone, PartialEq, Debug)]
pub struct Compared {
    /// The largest error, as a share of its bound.
    pub error: f64,
    /// The bytes of all results on the GPU.
    pub bytes: Vec<u8>,
}

/// How a group is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Run {
    /// As a group.
    Group,
    /// As the one op that it is, which adds to its result or stores it.
    Op(bool),
}

/// Numbers of tensors: of operand `[0, n]` or result `[1, n]`, by the element; where it has none they are random.
pub type Draw<'a> = &'a dyn Fn([usize; 2], u64) -> Option<f32>;

/// Runs a group on a GPU and on the processor. Its gradient sums are added to random numbers.
///
/// # Errors
/// A backend cannot run it, or a result is wrong by more than its bound; the message has the element.
pub fn compare(cuda: &mut Cuda, site: &GroupSite<'_>, how: Run) -> Result<Compared, String> {
    compare_on(cuda, site, how, &|_, _| None)
}

/// As [`compare`], on numbers that are given.
///
/// # Errors
/// As [`compare`].
pub fn compare_on(cuda: &mut Cuda, site: &GroupSite<'_>, how: Run, draw: Draw<'_>) -> Result<Compared, String> {
    if begins_with_update(site) {
        return updates::compare(cuda, site);
    }
    let tensors = Tensors::new(site, how, draw, cuda.capability())?;
    let right = tensors.run(site, how, &mut Cpu::new(1))?;
    let got = tensors.run(site, how, cuda)?;
    let bounds = tensors.bounds(site, how, &right)?;
    let mut worst = 0f64;
    for (number, (span, ((got, right), bound))) in
        tensors.spans[1].iter().zip(got.iter().zip(&right).zip(&bounds)).enumerate()
    {
        let [got, right] = [got, right].map(|bytes| floats(span.dtype, bytes));
        for (i, ((&got, &right), &bound)) in got.iter().zip(&right).zip(bound).enumerate() {
            if got == right || got.is_nan() && right.is_nan() {
                continue;
            }
            let share = f64::from((got - right).abs()) / f64::from(bound);
            if share.is_nan() || share > 1.0 {
                return Err(format!("result {number}, element {i}: {got} is not {right}, within {bound:e}"));
            }
            worst = worst.max(share);
        }
    }
    Ok(Compared { error: worst, bytes: got.concat() })
}

/// As [`compare_on`]; and run again, a group gives the same bits.
///
/// # Errors
/// As [`compare`].
pub fn compare_twice(cuda: &mut Cuda, site: &GroupSite<'_>, how: Run, draw: Draw<'_>) -> Result<Compared, String> {
    let compared = compare_on(cuda, site, how, draw)?;
    if begins_with_update(site) {
        // Its results are those of other launches to the bit.
        return Ok(compared);
    }
    let again = Tensors::new(site, how, draw, cuda.capability())?.run(site, how, cuda)?.concat();
    let other = compared.bytes.iter().zip(&again).filter(|(a, b)| a != b).count();
    match other {
        0 => Ok(compared),
        _ => Err(format!("{other} bytes of {} are others when it runs again", again.len())),
    }
}

/// True if statements follow an update.
fn begins_with_update(site: &GroupSite<'_>) -> bool {
    matches!(&site.stmts[..], [first, _, ..] if !updated(first.op).is_empty())
}

/// Groups as blocks whose results they leave, over a format. The sizes are those of `dims`.
const GROUPS: [(&str, &str); 7] = [
    (
        "swiglu and its gradient",
        "block @b(%x: T[m, h], %y: T[m, h]) -> T[m, h], T[m, h] {
           %a: T[m, h] = silu(%x)
           %b: T[m, h] = mul(%a, %y)
           %c: T[m, h] = silu_grad(%x, %y)
           return %b, %c
         }",
    ),
    (
        "sum and norm",
        "block @b(%x: T[m, h], %y: T[m, h], %g: T[h]) -> T[m, h], T[m, h], f32[m] {
           %a: T[m, h] = add(%x, %y)
           %n: T[m, h], %r: f32[m] = rms_norm(%a, %g, eps=1e-5)
           return %a, %n, %r
         }",
    ),
    (
        "gradients of a norm",
        "block @b(%x: f32[m, h], %g: f32[h], %r: f32[m], %y: f32[m, h]) -> f32[m, h], f32[h] {
           %d: f32[m, h] = rms_norm_dx(%x, %g, %r, %y)
           %s: f32[m, h] = add(%d, %y)
           %w: f32[h] = rms_norm_dgamma(%x, %r, %y)
           return %s, %w
         }",
    ),
    (
        "scaled softmax",
        "block @b(%x: T[m, v]) -> T[m, v] {
           %a: T[m, v] = scale(%x, by=0.3)
           %s: T[m, v] = softmax(%a)
           return %s
         }",
    ),
    (
        "rotation and dropout",
        "block @b(%x: T[m, k, n, d], %p: i32[m, k]) -> T[m, k, n, d] {
           %a: T[m, k, n, d] = rope(%x, %p, theta=10000.0)
           %s: T[m, k, n, d] = dropout(%a, p=0.1, path=\"a\")
           return %s
         }",
    ),
    (
        "product and sum",
        "block @b(%x: T[m, h], %w: T[h, n], %y: T[m, n]) -> T[m, n], T[m, n] {
           %p: T[m, n] = einsum(%x, %w, eq=\"m h, h n -> m n\")
           %a: T[m, n] = add(%y, %p)
           %n: T[m, n] = silu(%a)
           return %a, %n
         }",
    ),
    (
        "product and activation",
        "block @b(%x: T[m, h], %w: T[h, n], %c: T[n]) -> T[m, n] {
           %p: T[m, n] = einsum(%x, %w, eq=\"m h, h n -> m n\")
           %a: T[m, n] = add(%p, %c, eq=\"m n, n -> m n\")
           %s: T[m, n] = gelu(%a)
           return %s
         }",
    ),
];

/// Checks groups in all formats of floats.
pub(super) fn check(bench: &mut Bench, rows: &mut Rows<'_>) {
    let mut cuda = match Cuda::new(&bench.device) {
        Ok(cuda) => cuda,
        Err(why) => return rows.check("groups", "", "B/s", || Err(why)),
    };
    let long = bench.extent.matrix;
    let dims = format!("m=37, k=3, n=12, d=16, h={}, v={}", long + 5, 16 * long + 3);
    for (name, text) in GROUPS {
        let formats: &[&str] = if text.contains("T[") { &["f32", "bf16", "f16"] } else { &["f32"] };
        for format in formats {
            let text = format!("mesh @m = [dp=1]\ndims [{dims}]\n{}", text.replace("T[", &format!("{format}[")));
            rows.check(format!("{name} {format}"), dims.clone(), "B/s", || {
                block(&text, &mut cuda, Run::Group, &|_, _| None).map(|compared| Found::results(compared.error, 1.0))
            });
        }
    }
}

/// Runs the group that is the one block of a text.
///
/// # Errors
/// As [`compare`].
pub(super) fn block(text: &str, cuda: &mut Cuda, how: Run, draw: Draw<'_>) -> Result<Compared, String> {
    let model = ir::text::parse(text).map_err(|why| format!("{why:?}"))?.model;
    let block = model.blocks.values().next().ok_or("there is no block")?;
    let section = &block[SectionKind::F];
    let fused = Fused { stmts: section.stmts.clone(), outs: section.ret.clone() };
    let at = GroupPlace { values: &block.values, mesh: &model.mesh, coordinates: &[0], forward: true };
    GroupSite::with(&fused, at, |site| compare_twice(cuda, site, how, draw))
}

/// The tensors of a group: its operands, and its results.
struct Tensors {
    spans: [Vec<Span>; 2],
    bytes: Vec<Vec<u8>>,
    size: usize,
    /// The compute capability of the GPU.
    capability: (u32, u32),
}

impl Tensors {
    fn new(site: &GroupSite<'_>, how: Run, draw: Draw<'_>, capability: (u32, u32)) -> Result<Tensors, String> {
        let mut types = [Vec::new(), Vec::new()];
        for stmt in &site.stmts {
            let operands = stmt.operands.iter().zip(stmt.site.operands);
            for (value, ty) in operands.chain(stmt.results.iter().zip(stmt.site.results)) {
                let (side, at) = match *value {
                    GroupValue::Operand(at) => (0, at),
                    GroupValue::Result(at) => (1, at),
                    GroupValue::Interior(_) => continue,
                };
                let len = local_len(ty, stmt.site.mesh, stmt.site.coordinates);
                types[side].resize(types[side].len().max(at + 1), None);
                types[side][at] = Some((ty.dtype, len));
            }
        }
        let mut tensors = Tensors { spans: [Vec::new(), Vec::new()], bytes: Vec::new(), size: 0, capability };
        for (side, types) in types.into_iter().enumerate() {
            for (at, ty) in types.into_iter().enumerate() {
                let (dtype, len) = ty.ok_or("a tensor has no statement")?;
                tensors.add(side, at, Span::new(dtype, tensors.size, len), draw);
            }
        }
        match (how, site.stmts.as_slice()) {
            (Run::Op(_), [stmt]) => Ok(tensors.of_op(stmt)),
            _ => Ok(tensors),
        }
    }

    /// The tensors of an op: those that it reads twice are there twice.
    fn of_op(self, stmt: &GroupStmt<'_>) -> Tensors {
        let number = |value: &GroupValue| if let GroupValue::Operand(at) = value { Some(*at) } else { None };
        let operands: Vec<usize> = stmt.operands.iter().filter_map(number).collect();
        let [given, results] = self.spans;
        let of_operands = operands.iter().map(|&at| self.bytes[at].clone());
        let bytes = of_operands.chain(self.bytes[given.len()..].iter().cloned()).collect();
        Tensors { spans: [operands.iter().map(|&at| given[at]).collect(), results], bytes, ..self }
    }

    /// A tensor of random numbers, or of those that are given.
    fn add(&mut self, side: usize, at: usize, span: Span, draw: Draw<'_>) {
        let random = |i| normal([side as u32, at as u32], i);
        // Places in a table, and some that are not there.
        let integer = |i| (random(i) * 20.0 + 10.0).max(-1.0);
        let number =
            |i| draw([side, at], i).unwrap_or_else(|| if span.dtype == DType::I32 { integer(i) } else { random(i) });
        self.bytes.push(encoded(span.dtype, &(0..span.len as u64).map(number).collect::<Vec<_>>()));
        self.size = (span.offset + span.bytes()).next_multiple_of(64);
        self.spans[side].push(span);
    }

    /// How far each result may be off.
    fn bounds(&self, site: &GroupSite<'_>, how: Run, right: &[Vec<u8>]) -> Result<Vec<Vec<f32>>, String> {
        let plan = self.plan(site, how)?;
        let given: Vec<Vec<f32>> =
            self.spans.iter().flatten().zip(&self.bytes).map(|(span, bytes)| floats(span.dtype, bytes)).collect();
        let (operands, held) = given.split_at(self.spans[0].len());
        let accumulate = how != Run::Op(false);
        let written = plan.stages.iter().filter_map(|stage| match &stage.work {
            Work::Written(work) => Some(work.contracts),
            _ => None,
        });
        if let ([stmt], Some(on_tensor_cores)) = (&site.stmts[..], written.reduce(|a, b| a || b)) {
            let right: Vec<Vec<f32>> =
                self.spans[1].iter().zip(right).map(|(span, bytes)| floats(span.dtype, bytes)).collect();
            let held = if how == Run::Group { stmt.accumulate } else { accumulate }.then_some(held);
            return written::Compared { site: &stmt.site, operands, right: &right, held, on_tensor_cores }
                .errors(stmt.op, |operands| self.sizes(site, operands));
        }
        let [operands, held]: [Vec<Numbers>; 2] =
            [operands, held].map(|side| side.iter().cloned().map(Numbers::exact).collect());
        let plane = Plane { operands: &operands, held: &held, accumulate, seed: SEED, step: STEP, site: SITE };
        Ok(plane.run(&plan)?.into_iter().map(|numbers| numbers.error).collect())
    }

    /// The first result on the processor, of the magnitudes of some operands.
    fn sizes(&self, site: &GroupSite<'_>, operands: &[usize]) -> Result<Vec<f32>, String> {
        let mut tensors = Tensors { spans: self.spans.clone(), bytes: self.bytes.clone(), ..*self };
        for &at in operands {
            let dtype = self.spans[0][at].dtype;
            let sizes: Vec<f32> = floats(dtype, &self.bytes[at]).into_iter().map(f32::abs).collect();
            tensors.bytes[at] = encoded(dtype, &sizes);
        }
        let made = tensors.run(site, Run::Op(false), &mut Cpu::new(1))?;
        Ok(floats(self.spans[1][0].dtype, &made[0]))
    }

    fn plan(&self, site: &GroupSite<'_>, how: Run) -> Result<Plan, String> {
        match (how, site.stmts.as_slice()) {
            (Run::Op(_), [stmt]) => plan(stmt.op, &stmt.site, self.capability),
            _ => plan_group(site, self.capability),
        }
    }

    fn run<B: Backend>(&self, site: &GroupSite<'_>, how: Run, backend: &mut B) -> Result<Vec<Vec<u8>>, String> {
        backend.reserve(self.size)?;
        for (span, bytes) in self.spans.iter().flatten().zip(&self.bytes) {
            backend.write(*span, bytes);
        }
        backend.begin_step(SEED, STEP);
        let [operands, results] = &self.spans;
        match (how, site.stmts.as_slice()) {
            (Run::Op(accumulate), [stmt]) => {
                let mut kernel = backend.prepare(stmt.op, &stmt.site)?;
                backend.launch(&mut kernel, SITE, operands, results, accumulate);
            }
            (_, stmts) => {
                let flags = vec![true; stmts.iter().filter(|stmt| stmt.accumulate).count()];
                let mut kernel = backend.prepare_group(site)?;
                backend.launch_group(&mut kernel, SITE, operands, results, &flags);
            }
        }
        let read = |span: &Span| {
            let mut bytes = vec![0; span.bytes()];
            backend.read(*span, &mut bytes);
            bytes
        };
        Ok(results.iter().map(read).collect())
    }
}
