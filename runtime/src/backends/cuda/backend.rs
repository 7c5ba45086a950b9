//! A rank's GPU: its memory, its streams, and the kernels of its ops.

use super::Error;
use super::device::Device;
use super::elementwise::Elementwise;
use super::matmul::{Arithmetic, Matmul};
use super::memory::Arena;
use super::plan::{Plan, plan};
use super::staging::Staging;
use super::stream::Stream;
use crate::backend::{Backend, GroupSite, KernelSite, LaunchSite, Memory, Span};
use crate::backends::border::Border;
use crate::host::get;
use ir::ops::KernelOp;
use ir::types::DType;
use kernels::cuda::gemm::Contraction;
use kernels::scalar::{Access, Element, Program};
use std::sync::Arc;

/// Bytes of an element.
const BYTES: usize = 4;
/// Pieces of scratch memory begin at multiples of this, which suits every algorithm.
const ALIGNED: usize = 256;

/// A GPU, for one thread of a rank. Work is given to a stream and done later; [`Cuda::read`] waits for it, and what a kernel did
/// wrong comes to light there. All threads of a rank give their work to one stream, so that it is done in the order in which
/// their threads gave it.
pub struct Cuda {
    device: Arc<Device>,
    stream: Arc<Stream>,
    arena: Arc<Arena>,
    /// Buffer to which contractions copy operands and results; its size is that of the largest contraction.
    scratch: Arena,
    matmul: Matmul,
    staging: Staging,
    copying: Elementwise,
    border: Border,
}

/// A kernel with its shapes.
pub enum Kernel {
    /// One elementwise kernel.
    Elementwise(Elementwise),
    /// A matrix product.
    Contract(Box<Contract>),
    /// A copy.
    Copy,
}

/// A matrix product and the copies around it.
pub struct Contract {
    plan: Contraction,
    pack: [Option<Elementwise>; 2],
    unpack: Option<Elementwise>,
}

impl Contract {
    fn new(device: &Device, plan: Contraction) -> Result<Contract, Error> {
        let copy = |access: &Option<Access>| {
            let program = access.clone().map(|access| Program::copy(Element::F32, access));
            program.map(|program| Elementwise::new(device, &program)).transpose()
        };
        let (pack, unpack) = ([copy(&plan.pack[0])?, copy(&plan.pack[1])?], copy(&plan.unpack)?);
        Ok(Contract { plan, pack, unpack })
    }

    /// Offsets in scratch memory of the copies of operands and result, and the end of the last copy.
    fn places(&self) -> [usize; 4] {
        let copied = [self.pack[0].is_some(), self.pack[1].is_some(), self.unpack.is_some()];
        let mut places = [0; 4];
        for i in 0..3 {
            let bytes = if copied[i] { BYTES * self.plan.sizes[i] } else { 0 };
            places[i + 1] = (places[i] + bytes).next_multiple_of(ALIGNED);
        }
        places
    }
}

impl Cuda {
    /// The device for a rank, without memory yet.
    ///
    /// # Errors
    /// The driver failed, or there is no memory for workspaces.
    pub fn new(device: &Arc<Device>) -> Result<Cuda, Error> {
        Cuda::on(device, Arc::new(Stream::new(device)?), Arc::new(Arena::new(device, 0)?))
    }

    fn on(device: &Arc<Device>, stream: Arc<Stream>, arena: Arc<Arena>) -> Result<Cuda, Error> {
        Ok(Cuda {
            device: device.clone(),
            stream,
            arena,
            scratch: Arena::new(device, 0)?,
            matmul: Matmul::new(device)?,
            staging: Staging::new(device)?,
            copying: Elementwise::new(device, &Program::copy(Element::F32, Access::Same))?,
            border: Border::default(),
        })
    }

    /// The address of a tensor in the arena.
    fn at(&self, span: Span) -> u64 {
        self.arena.address(span.offset, span.bytes())
    }

    fn ready(&mut self, plan: Plan) -> Result<Kernel, Error> {
        Ok(match plan {
            Plan::Copy => Kernel::Copy,
            Plan::Elementwise(program) => Kernel::Elementwise(Elementwise::new(&self.device, &program)?),
            Plan::Contract(plan) => {
                let contract = Contract::new(&self.device, *plan)?;
                let needed = contract.places()[3];
                if needed > self.scratch.bytes() {
                    self.scratch = Arena::new(&self.device, needed)?;
                }
                Kernel::Contract(Box::new(contract))
            }
        })
    }

    fn contract(&mut self, contract: &Contract, operands: &[Span], out: Span, accumulate: bool) -> Result<(), Error> {
        let places = contract.places();
        let scratch = |i: usize| self.scratch.address(places[i], places[i + 1] - places[i]);
        let mut inputs = [self.at(operands[0]), self.at(operands[1])];
        let stream = &self.stream;
        for (i, input) in inputs.iter_mut().enumerate() {
            if let Some(pack) = &contract.pack[i] {
                // SAFETY: as in `launch`; the scratch memory is as long as the greatest need.
                unsafe { pack.launch(stream, &[*input], scratch(i), contract.plan.sizes[i], false)? };
                *input = scratch(i);
            }
        }
        let gemm = &contract.plan.gemm;
        let [a, b] = if gemm.swapped { [inputs[1], inputs[0]] } else { inputs };
        let (d, adds) = match contract.unpack {
            Some(_) => (scratch(2), false),
            None => (self.at(out), accumulate),
        };
        // SAFETY: as in `launch`.
        unsafe { self.matmul.launch(stream, gemm, Arithmetic::F32, [a, b, d], adds)? };
        match &contract.unpack {
            // SAFETY: as in `launch`.
            Some(unpack) => unsafe { unpack.launch(stream, &[d], self.at(out), out.len, accumulate) },
            None => Ok(()),
        }
    }
}

/// A launch, a copy or a wait that the driver refuses ends the rank: work that was given before has failed.
impl Backend for Cuda {
    type Kernel = Kernel;

    fn reserve(&mut self, bytes: usize) -> Result<(), String> {
        self.arena = Arc::new(Arena::new(&self.device, bytes).map_err(|why| why.to_string())?);
        Ok(())
    }

    fn fork(&self) -> Result<Cuda, String> {
        Cuda::on(&self.device, self.stream.clone(), self.arena.clone()).map_err(|why| why.to_string())
    }

    fn prepare(&mut self, op: &KernelOp, site: &KernelSite<'_>) -> Result<Kernel, String> {
        let plan = plan(op, site)?;
        self.ready(plan).map_err(|why| why.to_string())
    }

    fn prepare_group(&mut self, _: &GroupSite<'_>) -> Result<Kernel, String> {
        Err("the cuda backend has no kernels for groups: compile with --no-fusion".to_string())
    }

    /// No kernel reads the seed or the step: ops with random numbers have none here.
    fn begin_step(&mut self, _: u64, _: u64) {}

    fn stage(&mut self, feed: usize, data: &[u8]) {
        self.border.stage(feed, data);
    }

    fn feed(&mut self, feed: usize, to: Span) {
        let border = std::mem::take(&mut self.border);
        self.write(to, border.staged(feed));
        self.border = border;
    }

    fn launch(&mut self, kernel: &mut Kernel, _: LaunchSite, operands: &[Span], results: &[Span], accumulate: bool) {
        let out = results[0];
        let done = match kernel {
            Kernel::Copy if accumulate => return self.add(out, operands[0]),
            Kernel::Copy => return self.copy(out, operands[0]),
            Kernel::Elementwise(kernel) => {
                let inputs: Vec<u64> = operands.iter().map(|span| self.at(*span)).collect();
                // SAFETY: spans are in the arena, aligned to elements; all work of the rank is on this stream; a result is
                // on an operand only exactly, and only for ops that read it in order.
                unsafe { kernel.launch(&self.stream, &inputs, self.at(out), out.len, accumulate) }
            }
            Kernel::Contract(contract) => self.contract(contract, operands, out, accumulate),
        };
        done.unwrap_or_else(|why| panic!("{why}"));
    }

    fn launch_group(&mut self, _: &mut Kernel, _: LaunchSite, _: &[Span], _: &[Span], _: &[bool]) {
        unreachable!("no group is made ready")
    }

    fn add(&mut self, into: Span, from: Span) {
        assert_eq!([into.dtype, from.dtype], [DType::F32; 2], "no op in a narrow format has a kernel here");
        // SAFETY: as in `launch`.
        let done = unsafe { self.copying.launch(&self.stream, &[self.at(from)], self.at(into), into.len, true) };
        done.unwrap_or_else(|why| panic!("{why}"));
    }

    fn copy(&mut self, to: Span, from: Span) {
        if to.offset != from.offset && to.len > 0 {
            // SAFETY: as in `launch`; tensors that are alive together do not overlap.
            let done = unsafe { self.stream.copy(self.at(to), self.at(from), to.bytes()) };
            done.unwrap_or_else(|why| panic!("{why}"));
        }
    }

    fn report(&mut self, out: usize, from: Span) {
        let scalar = get(self, from)[0];
        self.border.report(out, scalar);
    }

    fn reports(&mut self, outs: &mut [f32]) {
        self.border.reports(outs);
    }

    /// No op that chooses experts has a kernel here.
    fn take_choices(&mut self) -> [u64; 2] {
        [0, 0]
    }
}

impl Memory for Cuda {
    fn write(&mut self, to: Span, data: &[u8]) {
        assert_eq!(to.bytes(), data.len(), "equal numbers of bytes on both sides");
        let to = self.at(to);
        // SAFETY: as in `launch`.
        let done = unsafe { self.staging.write(&self.stream, to, data) };
        done.unwrap_or_else(|why| panic!("{why}"));
    }

    fn read(&mut self, from: Span, data: &mut [u8]) {
        assert_eq!(from.bytes(), data.len(), "equal numbers of bytes on both sides");
        let from = self.at(from);
        // SAFETY: as in `launch`.
        let done = unsafe { self.staging.read(&self.stream, data, from) };
        done.unwrap_or_else(|why| panic!("{why}"));
    }
}
