//! Choice of what ranks run on: the backend of each and the communicator that joins them are named here alone.

use super::error::Error;
use comm::looped::{Fault, looped};
use comm::threads::{Fabric, ThreadCommunicator};
use comm::wire::{Process, Wire, World};
use comm::{Communicator, HostMemory, Limits, RankFailure, Sums, WireRecord};
use cpu::Cpu;
use device::backend::Backend;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Devices of the ranks of this process, and their connection.
pub trait Platform {
    /// The device of a rank.
    type Backend: Backend + 'static;
    /// The connection of the ranks.
    type Communicator: Communicator;

    /// The device of a rank with memory of `bytes` bytes, and the endpoint of its main thread.
    ///
    /// # Errors
    /// There is no such device, or not so much memory.
    fn connect(&self, rank: usize, bytes: usize) -> Result<(Self::Backend, Self::Communicator), Error>;

    /// True if the async worker of each rank has a thread of its own.
    fn has_async_threads(&self) -> bool;

    /// True if devices that can may repeat steps by themselves.
    fn repeats(&self) -> bool;

    /// The reason why devices that could repeat steps do not, once all ranks are joined.
    fn eager(&self) -> Option<String> {
        None
    }

    /// Starts the clock of a step that is timed, while the devices are idle. Returns when it started.
    ///
    /// # Errors
    /// A device failed.
    fn start_clock(&self) -> Result<Instant, Error> {
        Ok(Instant::now())
    }

    /// How a traced step was timed, if that needs a remark.
    fn trace_note(&self) -> &'static str {
        ""
    }

    /// The ranks of this process.
    fn ranks(&self) -> &[usize];

    /// Counts a thread of a rank as awake: before each step its main thread, and at load its async worker. The step is 0 at load.
    fn enter(&self, rank: usize, step: u64);

    /// Begins to hear the other processes, which this one has met. A second call changes nothing.
    ///
    /// # Errors
    /// The system has no thread.
    fn start(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Joins the ranks of this process with those of others, once all are loaded.
    ///
    /// # Errors
    /// There is no memory or no thread for what comes from them, or a rank failed.
    fn join(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Notes that the drivers of all processes have done all that they have to do. A process that ends without has failed.
    fn finish(&self) {}

    /// Notes why this process ends before that. The others hear the first cause.
    fn note_cause(&self, _why: &str) {}

    /// Ends the connection with other processes after a failure, and gives the last events on the wires of this one.
    fn wire_records(&self) -> Vec<WireRecord> {
        Vec::new()
    }

    /// The processes of the run, if there are several with a driver each.
    fn world(&self) -> Option<&World> {
        None
    }

    /// True in the process that writes all that is not a rank's.
    fn is_first(&self) -> bool {
        self.world().is_none_or(|world| world.me == 0)
    }

    /// Ends the run, since a rank of this process is stuck. Returns the first failure.
    fn give_up(&self, rank: usize, why: &str) -> RankFailure;

    /// True if a device waits inside of an operation for ranks of other processes, and its rank with it.
    fn device_waits(&self) -> bool {
        false
    }

    /// Gives bytes to the drivers of all processes and takes theirs, by process. All drivers call it in the same order.
    ///
    /// # Errors
    /// A rank failed.
    fn share(&self, own: Vec<u8>) -> Result<Vec<Vec<u8>>, RankFailure> {
        Ok(vec![own])
    }
}

/// Ranks as threads of this process, each on its share of the processor.
pub struct Threads {
    ranks: Vec<usize>,
    /// The fabrics of the ranks: one, but for processes that are looped. By rank, the number of each one's fabric.
    fabrics: Fabrics,
    homes: Vec<usize>,
    /// Wires to other processes, for the fabrics in their order, until they are joined.
    wires: Mutex<Vec<Box<dyn Wire>>>,
    limits: Limits,
    /// The processes, if this is one of several.
    world: Option<World>,
    /// Threads that the kernels of one rank may use.
    kernel_threads: usize,
    async_threads: bool,
}

impl Threads {
    /// A place for `ranks` ranks, the kernels of each on `kernel_threads` threads. `async_threads`: whether async workers have
    /// threads of their own; `None`: if cores are free.
    pub fn new(ranks: usize, kernel_threads: usize, async_threads: Option<bool>) -> Threads {
        let async_threads = async_threads.unwrap_or_else(|| has_free_cores(ranks * kernel_threads));
        Threads {
            ranks: (0..ranks).collect(),
            fabrics: Fabrics(vec![Fabric::new(ranks, async_threads)]),
            homes: vec![0; ranks],
            wires: Mutex::default(),
            limits: Limits::default(),
            world: None,
            kernel_threads,
            async_threads,
        }
    }

    /// The same place, where the ranks are dealt out to processes, which all are this one: what passes between two of them goes through a
    /// wire in memory. Its chance comes from a seed. Results are identical to the bit.
    #[must_use]
    pub fn looped(self, processes: Vec<Vec<usize>>, seed: u64, fault: Option<Fault>) -> Threads {
        let (mut fabrics, mut wires): (Vec<_>, Vec<Box<dyn Wire>>) = (Vec::new(), Vec::new());
        let mut homes = self.homes;
        for (world, wire) in looped(processes, seed, fault) {
            homes = world.homes();
            fabrics.push(Fabric::of(world, self.async_threads));
            wires.push(Box::new(wire));
        }
        Threads { fabrics: Fabrics(fabrics), homes, wires: Mutex::new(wires), ..self }
    }

    /// The ranks of one of several processes, which a wire joins.
    #[must_use]
    pub fn joined(world: World, wire: Box<dyn Wire>, kernel_threads: usize, async_threads: Option<bool>) -> Threads {
        let ranks = world.ranks().to_vec();
        let async_threads = async_threads.unwrap_or_else(|| has_free_cores(ranks.len() * kernel_threads));
        Threads {
            fabrics: Fabrics(vec![Fabric::of(world.clone(), async_threads)]),
            homes: vec![0; world.homes().len()],
            ranks,
            wires: Mutex::new(vec![wire]),
            limits: Limits::default(),
            world: Some(world),
            kernel_threads,
            async_threads,
        }
    }

    /// The same place, where the sums of ranks in several processes are added so. Those of an engine differ by rounding.
    #[must_use]
    pub fn sums(self, sums: Sums) -> Threads {
        self.fabrics.0.iter().for_each(|fabric| fabric.add_by(sums));
        self
    }

    /// The same place, with other limits on the time of processes.
    #[must_use]
    pub fn limits(self, limits: Limits) -> Threads {
        Threads { limits, ..self }
    }

    /// The processes of the ranks, looped ones too; none if all ranks are in one process.
    pub fn processes(&self) -> &[Process] {
        self.fabrics.0[0].courier().map_or(&[], |courier| &courier.world().processes)
    }

    fn fabric(&self, rank: usize) -> &Arc<Fabric> {
        &self.fabrics.0[self.homes[rank]]
    }
}

fn has_free_cores(threads: usize) -> bool {
    std::thread::available_parallelism().map_or(1, |cores| cores.get()) > threads
}

/// Fabrics whose couriers end with them.
struct Fabrics(Vec<Arc<Fabric>>);

impl Drop for Fabrics {
    fn drop(&mut self) {
        self.0.iter().filter_map(|fabric| fabric.courier()).for_each(|courier| courier.close());
    }
}

impl Platform for Threads {
    type Backend = Cpu;
    type Communicator = ThreadCommunicator;

    fn connect(&self, rank: usize, bytes: usize) -> Result<(Cpu, ThreadCommunicator), Error> {
        let mut backend = Cpu::new(self.kernel_threads);
        backend.reserve(bytes).map_err(Error::Resources)?;
        let endpoint = self.fabric(rank).endpoint(rank, backend.arena().clone(), HostMemory::default());
        Ok((backend, endpoint))
    }

    fn has_async_threads(&self) -> bool {
        self.async_threads
    }

    fn repeats(&self) -> bool {
        false
    }

    fn ranks(&self) -> &[usize] {
        &self.ranks
    }

    fn enter(&self, rank: usize, step: u64) {
        self.fabric(rank).enter(1);
        self.fabric(rank).note_step(step);
    }

    fn start(&self) -> Result<(), Error> {
        let wires = std::mem::take(&mut *self.wires.lock().unwrap_or_else(PoisonError::into_inner));
        let mut all = self.fabrics.0.iter().zip(wires);
        all.try_for_each(|(fabric, wire)| fabric.start(wire, self.limits)).map_err(Error::Resources)
    }

    fn join(&self) -> Result<(), Error> {
        self.start()?;
        // A process that joins sums sends no beat until all others join, so all come here first.
        self.share(Vec::new())?;
        let fabrics = &self.fabrics.0;
        fabrics.iter().try_for_each(|fabric| fabric.join(&HostMemory::default())).map_err(Error::Resources)
    }

    fn finish(&self) {
        self.fabrics.0.iter().filter_map(|fabric| fabric.courier()).for_each(|courier| courier.finish());
    }

    fn note_cause(&self, why: &str) {
        self.fabrics.0.iter().filter_map(|fabric| fabric.courier()).for_each(|courier| courier.note_cause(why));
    }

    fn wire_records(&self) -> Vec<WireRecord> {
        self.fabrics.0.iter().filter_map(|fabric| fabric.courier()?.record()).collect()
    }

    fn give_up(&self, rank: usize, why: &str) -> RankFailure {
        self.fabric(rank).give_up(rank, why)
    }

    fn world(&self) -> Option<&World> {
        self.world.as_ref()
    }

    fn share(&self, own: Vec<u8>) -> Result<Vec<Vec<u8>>, RankFailure> {
        match (&self.world, self.fabrics.0[0].courier()) {
            (Some(_), Some(courier)) => courier.share(&own),
            _ => Ok(vec![own]),
        }
    }
}
