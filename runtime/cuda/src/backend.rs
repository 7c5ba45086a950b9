//! A rank's GPU: its memory, its streams, and the kernels of its ops.

use super::border::Border;
use super::device::Device;
use super::error::{Error, must};
use super::fused::{Buffers, Fused, LaunchArgs};
use super::graph::StepGraph;
use super::lower::element;
use super::marks::Marks;
use super::matmul::{Addresses, Arithmetic, Matmul};
use super::medium::DeviceMemory;
use super::memory::{Arena, Pinned};
use super::plan::{Place, Plan, Stage, Work, plan, plan_group};
use super::staging::Staging;
use super::stream::{Event, Stream};
use super::text::Text;
use comm::ThreadRole;
use device::backend::{Backend, GroupSite, HostCopy, HostDirection, KernelSite, LaunchSite, Mark, Memory, Span};
use ir::ops::KernelOp;
use ir::types::DType;
use kernels::group::Program;
use kernels::scalar::Access;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Bytes of the seed and the step, and of the counts of choices behind them.
const RANDOM: usize = 16;
const TALLY: usize = 16;

/// A GPU, for one thread of a rank. Work is given to a stream and done later; [`Cuda::read`] waits for it, and what a kernel did
/// wrong comes to light there. Each thread of a rank has a stream.
pub struct Cuda {
    device: Arc<Device>,
    /// The stream of this thread, and those of all threads of the rank.
    stream: Arc<Stream>,
    streams: [Arc<Stream>; 2],
    /// Events of all threads of the rank, by number.
    events: Events,
    marks: Arc<Marks>,
    arena: Arc<Arena>,
    /// Memory of offloaded tensors, and the streams of the copies to the host and back; none if nothing is offloaded.
    host: Option<(Pinned, [Stream; 2])>,
    /// The seed and the step, and the counts of the experts' choices, of all threads of the rank.
    shared: Arc<Arena>,
    /// Scratch memory of launches; its size is that of the largest need.
    scratch: Arena,
    matmul: Matmul,
    staging: Staging,
    /// Kernels that add tensors, by their type.
    adding: Vec<(DType, Fused)>,
    border: Border,
    /// Recordings of steps, by number.
    recordings: Vec<Option<StepGraph>>,
}

/// Events by number.
type Events = Arc<Mutex<Vec<Arc<Event>>>>;

/// A kernel with its shapes, or several that run one after the other.
pub struct Kernel {
    plan: Plan,
    /// By stage, its kernel.
    compiled: Vec<Compiled>,
}

/// The kernel of a stage.
enum Compiled {
    /// A program's.
    Fused(Box<Fused>),
    /// One that is written by hand.
    Text(Text),
    /// A library's.
    Library,
}

/// The operands and results of a launch, and the flags that say whether results are added.
#[derive(Clone, Copy)]
struct Tensors<'a> {
    operands: &'a [Span],
    results: &'a [Span],
    accumulate: &'a [bool],
}

impl Cuda {
    /// The device for a rank, without memory yet.
    ///
    /// # Errors
    /// The driver failed, or there is no memory for workspaces.
    pub fn new(device: &Arc<Device>) -> Result<Cuda, Error> {
        let [arena, shared] = [0, RANDOM + TALLY].map(|bytes| Arena::new(device, bytes).map(Arc::new));
        let streams = [Arc::new(Stream::new(device)?), Arc::new(Stream::new(device)?)];
        let order = (Arc::default(), Arc::new(Marks::new(device)));
        let mut cuda = Cuda::on(device, (streams, ThreadRole::Main), order, [arena?, shared?])?;
        cuda.clear_tally()?;
        Ok(cuda)
    }

    fn on(
        device: &Arc<Device>,
        (streams, role): ([Arc<Stream>; 2], ThreadRole),
        (events, marks): (Events, Arc<Marks>),
        [arena, shared]: [Arc<Arena>; 2],
    ) -> Result<Cuda, Error> {
        Ok(Cuda {
            device: device.clone(),
            stream: streams[role as usize].clone(),
            streams,
            events,
            marks,
            arena,
            host: None,
            shared,
            scratch: Arena::new(device, 0)?,
            matmul: Matmul::new(device)?,
            staging: Staging::new(device)?,
            adding: Vec::new(),
            border: Border::new(device)?,
            recordings: Vec::new(),
        })
    }

    /// The memory of the rank.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// The compute capability of the device.
    pub(super) fn capability(&self) -> (u32, u32) {
        self.device.properties().capability
    }

    /// The medium that moves data between the memories of ranks, for this one.
    pub fn medium(&self) -> DeviceMemory {
        DeviceMemory::new(&self.device, self.streams.clone(), self.marks.clone())
    }

    /// The event of a number.
    fn event(&self, number: usize) -> Result<Arc<Event>, Error> {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        while events.len() <= number {
            events.push(Arc::new(Event::new(&self.device)?));
        }
        Ok(events[number].clone())
    }

    /// Lets kernels that are prepared from now on have the fastest algorithm of several for each product, instead of the first.
    pub fn time_products(&mut self) {
        self.matmul.set_timing(true);
    }

    fn clear_tally(&mut self) -> Result<(), Error> {
        let to = self.shared.address(RANDOM, TALLY);
        // SAFETY: as in `launch`.
        unsafe { self.staging.write(&self.stream, to, &[0; TALLY]) }
    }

    /// The address of a tensor in the arena.
    fn at(&self, span: Span) -> u64 {
        self.arena.address(span.offset, span.bytes())
    }

    fn ready(&mut self, plan: Plan) -> Result<Kernel, Error> {
        let mut compiled = Vec::new();
        for stage in &plan.stages {
            if let Work::Product(plan, formats, added) = &stage.work {
                self.matmul.prepare(&self.stream, &plan.gemm, *formats, *added)?;
            }
            compiled.push(match &stage.work {
                Work::Kernel(program) => Compiled::Fused(Box::new(Fused::new(&self.device, program)?)),
                Work::Written(written) => Compiled::Text(Text::new(&self.device, written)?),
                Work::Product(..) | Work::Copy => Compiled::Library,
            });
        }
        if plan.scratch > self.scratch.bytes() {
            self.scratch = Arena::new(&self.device, plan.scratch)?;
        }
        Ok(Kernel { plan, compiled })
    }

    fn run(&mut self, kernel: &Kernel, site: LaunchSite, tensors: Tensors<'_>) -> Result<(), Error> {
        for (stage, compiled) in kernel.plan.stages.iter().zip(&kernel.compiled) {
            let flag = |flag: &Option<usize>| flag.is_some_and(|flag| tensors.accumulate[flag]);
            let [operands, results] = [&stage.operands, &stage.results]
                .map(|places| places.iter().map(|place| self.address(*place, tensors)).collect::<Vec<u64>>());
            let adds =
                stage.adds.iter().enumerate().filter(|(_, adds)| flag(adds)).fold(0, |adds, (at, _)| adds | 1 << at);
            let random = [self.shared.address(0, RANDOM), site.microbatch, site.index];
            match (&stage.work, compiled) {
                (Work::Kernel(program), Compiled::Fused(fused)) => {
                    let elements = program.outs.first().map_or(0, |out| program.len(out));
                    self.fused(stage, fused, [operands, results], LaunchArgs { elements, adds, random })?;
                }
                // SAFETY: as in `launch`; the scratch memory is as long as the greatest need.
                (_, Compiled::Text(text)) => unsafe {
                    text.launch(&self.stream, &[operands, results], adds, random)?;
                },
                (Work::Product(plan, formats, added), _) => {
                    let (gemm, adds) = (&plan.gemm, adds != 0);
                    let [a, b] = gemm.ordered([operands[0], operands[1]]);
                    let is_scaled = matches!(formats.arithmetic, Arithmetic::F8(_));
                    let scales = is_scaled.then(|| gemm.ordered([operands[2], operands[3]]));
                    let added = added.zip(operands.last().copied());
                    let addresses = Addresses { matrices: [a, b, results[0]], scales, added };
                    // SAFETY: as in `launch`; the scratch memory is as long as the greatest need.
                    unsafe { self.matmul.launch(&self.stream, gemm, *formats, addresses, adds)? };
                }
                _ if adds != 0 => self.add(tensors.results[0], tensors.operands[0]),
                _ => self.copy(tensors.results[0], tensors.operands[0]),
            }
        }
        Ok(())
    }

    /// A place of host memory, when all that was launched before is done: the stream has waited for the copies of each step.
    fn pinned(&mut self, place: Span) -> &mut [u8] {
        must(self.stream.finish());
        let Some((memory, _)) = &mut self.host else { panic!("no host memory was reserved") };
        &mut memory.bytes_mut()[place.offset..place.offset + place.bytes()]
    }

    /// Copies on the stream of a direction, from one event to another.
    fn copy_on_stream(
        &mut self,
        copies: &[HostCopy],
        direction: HostDirection,
        [begin, end]: [usize; 2],
    ) -> Result<[Mark; 2], Error> {
        let (begin, end) = (self.event(begin)?, self.event(end)?);
        let (arena, marks) = (&self.arena, &self.marks);
        let Some((memory, streams)) = &mut self.host else { panic!("no host memory was reserved") };
        let stream = &streams[direction as usize];
        let mark = || Ok(marks.mark(stream)?.unwrap_or_else(|| Mark::Host(Instant::now())));
        stream.wait(&begin)?;
        let began = mark()?;
        for &HostCopy { span, host } in copies.iter().filter(|copy| copy.span.len > 0) {
            let (device, away) = (arena.address(span.offset, span.bytes()), host..host + span.bytes());
            match direction {
                // SAFETY: as in `launch`; the program gives no two tensors one place, and waits for the copy.
                HostDirection::Offload => unsafe { stream.download(&mut memory.bytes_mut()[away], device)? },
                // SAFETY: as above.
                HostDirection::Load => unsafe { stream.upload(device, &memory.bytes()[away])? },
            }
        }
        stream.record(&end)?;
        Ok([began, mark()?])
    }

    /// `into += from`, by a kernel that is compiled at first use.
    fn sum(&mut self, into: Span, from: Span) -> Result<(), Error> {
        let known = self.adding.iter().position(|(dtype, _)| *dtype == into.dtype);
        let known = match known {
            Some(known) => known,
            None => {
                let element = element(into.dtype);
                let program = Program::copy([element; 2], (Access::Same, into.len), into.len);
                self.adding.push((into.dtype, Fused::new(&self.device, &program)?));
                self.adding.len() - 1
            }
        };
        let args = LaunchArgs { elements: into.len, adds: 1, ..LaunchArgs::default() };
        let buffers = Buffers { inputs: &[self.at(from)], outs: &[self.at(into)], partials: 0 };
        // SAFETY: as in `launch`.
        unsafe { self.adding[known].1.launch(&self.stream, buffers, args) }
    }

    /// The address of a tensor of a launch.
    fn address(&self, place: Place, tensors: Tensors<'_>) -> u64 {
        match place {
            Place::Operand(at) => self.at(tensors.operands[at]),
            Place::Result(at) => self.at(tensors.results[at]),
            Place::Scratch(offset) => self.scratch.address(offset, 0),
            Place::Tally => self.shared.address(RANDOM, TALLY),
        }
    }

    fn fused(
        &self,
        stage: &Stage,
        fused: &Fused,
        [mut inputs, outs]: [Vec<u64>; 2],
        args: LaunchArgs,
    ) -> Result<(), Error> {
        for &(input, offset, bytes) in &stage.spare {
            if outs.contains(&inputs[input]) {
                let spare = self.scratch.address(offset, bytes);
                // SAFETY: as in `launch`.
                unsafe { self.stream.copy(spare, inputs[input], bytes)? };
                inputs[input] = spare;
            }
        }
        let partials = self.scratch.address(stage.partials, 0);
        let buffers = Buffers { inputs: &inputs, outs: &outs, partials };
        // SAFETY: as in `launch`; the scratch memory is as long as the greatest need.
        unsafe { fused.launch(&self.stream, buffers, args) }
    }
}

/// A launch, a copy or a wait that the driver refuses ends the rank: work that was given before has failed.
impl Backend for Cuda {
    type Kernel = Kernel;

    const RUNS_LATE: bool = true;

    fn reserve(&mut self, bytes: usize) -> Result<(), String> {
        self.arena = Arc::new(Arena::new(&self.device, bytes).map_err(|why| why.to_string())?);
        Ok(())
    }

    fn reserve_host(&mut self, bytes: usize) -> Result<(), String> {
        let taken =
            || Ok((Pinned::new(&self.device, bytes)?, [Stream::new(&self.device)?, Stream::new(&self.device)?]));
        self.host = Some(taken().map_err(|why: Error| why.to_string())?);
        Ok(())
    }

    fn copy_host(&mut self, copies: &[HostCopy], direction: HostDirection, [begin, end]: [usize; 2]) -> [Mark; 2] {
        self.record(begin);
        must(self.copy_on_stream(copies, direction, [begin, end]))
    }

    fn fork(&self) -> Result<Cuda, String> {
        let memory = [&self.arena, &self.shared].map(Arc::clone);
        let threads = (self.streams.clone(), ThreadRole::Async);
        let fork = Cuda::on(&self.device, threads, (self.events.clone(), self.marks.clone()), memory);
        let mut fork = fork.map_err(|why| why.to_string())?;
        fork.matmul.set_timing(self.matmul.is_timing());
        Ok(fork)
    }

    fn record(&mut self, event: usize) {
        must(self.event(event).and_then(|event| self.stream.record(&event)));
    }

    fn wait(&mut self, event: usize) {
        must(self.event(event).and_then(|event| self.stream.wait(&event)));
    }

    fn set_timing(&mut self, is_timed: bool) {
        self.marks.set_on(is_timed);
    }

    fn mark(&mut self) -> Mark {
        must(self.marks.mark(&self.stream)).unwrap_or_else(|| Mark::Host(Instant::now()))
    }

    fn take_times(&mut self) -> Vec<Instant> {
        must(self.marks.take_times())
    }

    fn prepare(&mut self, op: &KernelOp, site: &KernelSite<'_>) -> Result<Kernel, String> {
        let plan = plan(op, site, self.capability())?;
        self.ready(plan).map_err(|why| why.to_string())
    }

    fn prepare_group(&mut self, site: &GroupSite<'_>) -> Result<Kernel, String> {
        let plan = plan_group(site, self.capability())?;
        self.ready(plan).map_err(|why| why.to_string())
    }

    fn replay(&mut self, recording: usize) -> bool {
        let Some(Some(graph)) = self.recordings.get_mut(recording) else { return false };
        must(graph.launch());
        true
    }

    fn begin_recording(&mut self) -> bool {
        must(self.stream.begin_capture());
        true
    }

    fn end_recording(&mut self, recording: usize) {
        let graph = must(self.stream.end_capture());
        self.recordings.resize_with(self.recordings.len().max(recording + 1), || None);
        self.recordings[recording] = Some(graph);
        self.replay(recording);
    }

    fn begin_step(&mut self, seed: u64, step: u64) {
        let to = self.shared.address(0, RANDOM);
        // SAFETY: as in `launch`.
        must(unsafe { self.staging.write(&self.stream, to, [seed, step].map(u64::to_le_bytes).as_flattened()) });
    }

    fn stage(&mut self, feed: usize, data: &[u8]) {
        must(self.border.stage(feed, data));
    }

    fn feed(&mut self, feed: usize, to: Span) {
        let staged = self.border.staged(feed);
        assert_eq!(to.bytes(), staged.len(), "equal numbers of bytes on both sides");
        if !staged.is_empty() {
            // SAFETY: as in `launch`; what is staged changes when the step is done.
            must(unsafe { self.stream.upload(self.at(to), staged) });
        }
    }

    fn launch(&mut self, kernel: &mut Kernel, site: LaunchSite, operands: &[Span], results: &[Span], accumulate: bool) {
        self.launch_group(kernel, site, operands, results, &[accumulate]);
    }

    fn launch_group(
        &mut self,
        kernel: &mut Kernel,
        site: LaunchSite,
        operands: &[Span],
        results: &[Span],
        accumulate: &[bool],
    ) {
        // Spans are in the arena, aligned to elements. All work of a thread is on its stream, and events order the threads. A result is on
        // an operand only exactly.
        must(self.run(kernel, site, Tensors { operands, results, accumulate }));
    }

    fn add(&mut self, into: Span, from: Span) {
        must(self.sum(into, from));
    }

    fn copy(&mut self, to: Span, from: Span) {
        if to.offset != from.offset && to.len > 0 {
            // SAFETY: as in `launch`; tensors that are alive together do not overlap.
            must(unsafe { self.stream.copy(self.at(to), self.at(from), to.bytes()) });
        }
    }

    fn poison(&mut self, at: Span) {
        // SAFETY: as in `launch`.
        must(unsafe { self.stream.fill(self.at(at), 0xff, at.bytes()) });
    }

    fn report(&mut self, out: usize, from: Span) {
        let at = self.at(from);
        // SAFETY: as in `launch`.
        must(unsafe { self.border.report(&self.stream, out, from, at) });
    }

    fn reports(&mut self, outs: &mut [f32]) {
        must(self.border.reports(&self.stream, outs));
    }

    fn take_choices(&mut self) -> [u64; 2] {
        let (from, mut bytes) = (self.shared.address(RANDOM, TALLY), [0; TALLY]);
        // SAFETY: as in `launch`.
        let done = unsafe { self.staging.read(&self.stream, &mut bytes, from) };
        must(done.and_then(|()| self.clear_tally()));
        let (counts, _) = bytes.as_chunks();
        [counts[0], counts[1]].map(u64::from_le_bytes)
    }
}

impl Memory for Cuda {
    fn write(&mut self, to: Span, data: &[u8]) {
        assert_eq!(to.bytes(), data.len(), "equal numbers of bytes on both sides");
        let to = self.at(to);
        // SAFETY: as in `launch`.
        must(unsafe { self.staging.write(&self.stream, to, data) });
    }

    fn read(&mut self, from: Span, data: &mut [u8]) {
        assert_eq!(from.bytes(), data.len(), "equal numbers of bytes on both sides");
        let from = self.at(from);
        // SAFETY: as in `launch`.
        must(unsafe { self.staging.read(&self.stream, data, from) });
    }

    fn write_host(&mut self, to: Span, data: &[u8]) {
        self.pinned(to).copy_from_slice(data);
    }

    fn read_host(&mut self, from: Span, data: &mut [u8]) {
        data.copy_from_slice(self.pinned(from));
    }
}
