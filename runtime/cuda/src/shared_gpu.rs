//! Ranks that share one GPU.

use crate::device::Device;
use crate::{Cuda, DeviceMemory, Error};
use comm::RankFailure;
use comm::threads::{Fabric, ThreadCommunicator};
use device::backend::Backend;
use exec::Platform;
use std::sync::Arc;
use std::time::Instant;

/// Ranks as threads of this process that share one GPU, each with an arena and streams of its own.
pub struct SharedGpu {
    ranks: Vec<usize>,
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
    pub fn open(ordinal: usize, ranks: usize) -> Result<SharedGpu, Error> {
        // Threads of a rank give work and go on, so that one of them is enough.
        Ok(SharedGpu {
            ranks: (0..ranks).collect(),
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

    fn connect(&self, rank: usize, bytes: usize) -> Result<(Cuda, ThreadCommunicator<DeviceMemory>), exec::Error> {
        let mut backend = Cuda::new(&self.device).map_err(|why| exec::Error::Resources(why.to_string()))?;
        if self.times_products {
            backend.time_products();
        }
        backend.reserve(bytes).map_err(exec::Error::Resources)?;
        let endpoint = self.fabric.endpoint(rank, backend.arena().clone(), backend.medium());
        Ok((backend, endpoint))
    }

    fn has_async_threads(&self) -> bool {
        false
    }

    fn repeats(&self) -> bool {
        // Threads of several ranks must meet in every step.
        self.graphs && self.ranks.len() == 1
    }

    fn start_clock(&self) -> Result<Instant, exec::Error> {
        self.device.start_clock().map_err(|why| exec::Error::Resources(why.to_string()))
    }

    fn trace_note(&self) -> &'static str {
        "times are those of events in the streams of one GPU, which all ranks share; the step ran kernel by kernel, not as a CUDA graph"
    }

    fn ranks(&self) -> &[usize] {
        &self.ranks
    }

    fn enter(&self, _rank: usize, step: u64) {
        self.fabric.enter(1);
        self.fabric.note_step(step);
    }

    fn give_up(&self, rank: usize, why: &str) -> RankFailure {
        self.fabric.give_up(rank, why)
    }
}
