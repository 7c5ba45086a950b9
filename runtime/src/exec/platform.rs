//! Choice of what ranks run on: the backend of each and the communicator that joins them are named here alone.

use crate::backend::Backend;
use crate::backends::cpu::Cpu;
use crate::backends::cuda::device::Device;
use crate::backends::cuda::{self, Cuda, DeviceMemory};
use crate::comm::threads::{Fabric, ThreadCommunicator};
use crate::comm::{Communicator, HostMemory};
use std::sync::Arc;
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
    fn connect(&self, rank: usize, bytes: usize) -> Result<(Self::Backend, Self::Communicator), String>;

    /// True if the async worker of each rank has a thread of its own.
    fn has_async_threads(&self) -> bool;

    /// True if devices that can may repeat steps by themselves.
    fn repeats(&self) -> bool;

    /// Starts the clock of a step that is timed, while the devices are idle. Returns when it started.
    ///
    /// # Errors
    /// A device failed.
    fn start_clock(&self) -> Result<Instant, String> {
        Ok(Instant::now())
    }

    /// How a traced step was timed, if that needs a remark.
    fn trace_note(&self) -> &'static str {
        ""
    }

    /// Counts threads as awake: before each step all main threads, and at load all async workers.
    fn enter(&self, threads: usize);
}

/// Ranks as threads of this process, each on its share of the processor.
pub struct Threads {
    fabric: Arc<Fabric>,
    /// Threads that the kernels of one rank may use.
    kernel_threads: usize,
    async_threads: bool,
}

impl Threads {
    /// A place for `ranks` ranks, the kernels of each on `kernel_threads` threads. `async_threads`: whether async workers have
    /// threads of their own; `None`: if cores are free.
    pub fn new(ranks: usize, kernel_threads: usize, async_threads: Option<bool>) -> Threads {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
        let async_threads = async_threads.unwrap_or(cores > ranks * kernel_threads);
        Threads { fabric: Fabric::new(ranks, async_threads), kernel_threads, async_threads }
    }
}

impl Platform for Threads {
    type Backend = Cpu;
    type Communicator = ThreadCommunicator;

    fn connect(&self, rank: usize, bytes: usize) -> Result<(Cpu, ThreadCommunicator), String> {
        let mut backend = Cpu::new(self.kernel_threads);
        backend.reserve(bytes)?;
        let endpoint = self.fabric.endpoint(rank, backend.arena().clone(), HostMemory::default());
        Ok((backend, endpoint))
    }

    fn has_async_threads(&self) -> bool {
        self.async_threads
    }

    fn repeats(&self) -> bool {
        false
    }

    fn enter(&self, threads: usize) {
        self.fabric.enter(threads);
    }
}

/// Ranks as threads of this process that share one GPU, each with an arena and streams of its own.
pub struct SharedGpu {
    fabric: Arc<Fabric<DeviceMemory>>,
    device: Arc<Device>,
    graphs: bool,
    times_products: bool,
}

impl SharedGpu {
    /// A place for `ranks` ranks on the device of a number, from 0.
    ///
    /// # Errors
    /// A library of CUDA is missing, or there is no such device.
    pub fn open(ordinal: usize, ranks: usize) -> Result<SharedGpu, cuda::Error> {
        // Threads of a rank give work and go on, so that one of them is enough.
        Ok(SharedGpu {
            fabric: Fabric::new(ranks, false),
            device: Device::open(ordinal)?,
            graphs: true,
            times_products: false,
        })
    }

    /// The same place; with `graphs` a single rank repeats its steps as CUDA graphs. Results are identical to the bit.
    #[must_use]
    pub fn graphs(self, graphs: bool) -> SharedGpu {
        SharedGpu { graphs, ..self }
    }

    /// The same place; with `times_products` loading times several of cuBLASLt's algorithms for each product and takes the fastest, which may
    /// be another one in another run. Without, all runs have its first proposals.
    #[must_use]
    pub fn time_products(self, times_products: bool) -> SharedGpu {
        SharedGpu { times_products, ..self }
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }
}

impl Platform for SharedGpu {
    type Backend = Cuda;
    type Communicator = ThreadCommunicator<DeviceMemory>;

    fn connect(&self, rank: usize, bytes: usize) -> Result<(Cuda, ThreadCommunicator<DeviceMemory>), String> {
        let mut backend = Cuda::new(&self.device).map_err(|why| why.to_string())?;
        if self.times_products {
            backend.time_products();
        }
        backend.reserve(bytes)?;
        let endpoint = self.fabric.endpoint(rank, backend.arena().clone(), backend.medium());
        Ok((backend, endpoint))
    }

    fn has_async_threads(&self) -> bool {
        false
    }

    fn repeats(&self) -> bool {
        self.graphs
    }

    fn start_clock(&self) -> Result<Instant, String> {
        self.device.start_clock().map_err(|why| why.to_string())
    }

    fn trace_note(&self) -> &'static str {
        "times are those of events in the streams of one GPU, which all ranks share; the step ran kernel by kernel, not as a CUDA graph"
    }

    fn enter(&self, threads: usize) {
        self.fabric.enter(threads);
    }
}
