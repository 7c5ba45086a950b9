//! One rank on a GPU of its own, joined by NCCL with those of other processes.

use crate::device::Device;
use crate::nccl::{Joint, NcclTransport};
use crate::{Cuda, Error};
use comm::wire::{Wire, World};
use comm::{Limits, RankFailure};
use device::backend::Backend;
use exec::Platform;
use std::sync::Arc;

/// The only rank of a process, and its GPU.
pub struct JoinedGpu {
    ranks: Vec<usize>,
    world: World,
    joint: Arc<Joint>,
    graphs: bool,
    times_products: bool,
}

impl JoinedGpu {
    /// The rank of this process of several, on the device of a number, from 0. The wire carries what processes tell each other; the data of
    /// ranks goes by NCCL.
    ///
    /// # Errors
    /// A library is missing, there is no such device, two processes have the same one, or a process has several ranks.
    pub fn open(ordinal: usize, (world, wire): (World, Box<dyn Wire>), limits: Limits) -> Result<JoinedGpu, Error> {
        let joint = Joint::open(ordinal, (world.clone(), wire), limits)?;
        Ok(JoinedGpu { ranks: vec![joint.rank()], world, joint, graphs: true, times_products: false })
    }

    /// The same place; with `graphs` ranks repeat their steps as CUDA graphs, if all of them can. Results are identical to the bit.
    #[must_use]
    pub fn graphs(mut self, graphs: bool) -> JoinedGpu {
        self.graphs = graphs;
        self
    }

    /// The same place; with `times_products` loading times several of cuBLASLt's algorithms for each product and takes the fastest.
    #[must_use]
    pub fn time_products(mut self, times_products: bool) -> JoinedGpu {
        self.times_products = times_products;
        self
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        self.joint.device()
    }
}

impl Platform for JoinedGpu {
    type Backend = Cuda;
    type Communicator = NcclTransport;

    fn connect(&self, _rank: usize, bytes: usize) -> Result<(Cuda, NcclTransport), exec::Error> {
        let mut backend = Cuda::new(self.joint.device()).map_err(|why| exec::Error::Resources(why.to_string()))?;
        if self.times_products {
            backend.time_products();
        }
        backend.reserve(bytes).map_err(exec::Error::Resources)?;
        let endpoint = NcclTransport::new(&self.joint, backend.arena(), backend.medium());
        Ok((backend, endpoint))
    }

    fn has_async_threads(&self) -> bool {
        false
    }

    fn repeats(&self) -> bool {
        self.graphs
    }

    fn eager(&self) -> Option<String> {
        self.joint.eager().filter(|_| self.graphs)
    }

    fn ranks(&self) -> &[usize] {
        &self.ranks
    }

    fn enter(&self, _rank: usize, step: u64) {
        self.joint.control().enter(step);
    }

    fn join(&self) -> Result<(), exec::Error> {
        // Of a rank that failed, and whose communicators ended, the failure is the cause.
        let cause = |why| self.joint.control().failure().map_or(exec::Error::Resources(why), exec::Error::RankFailure);
        self.joint.join().map_err(cause)
    }

    fn finish(&self) {
        self.joint.finish();
    }

    fn note_cause(&self, why: &str) {
        self.joint.control().note_cause(why);
    }

    fn give_up(&self, rank: usize, why: &str) -> RankFailure {
        self.joint.control().give_up(rank, why)
    }

    fn device_waits(&self) -> bool {
        self.joint.control().device_waits()
    }

    fn world(&self) -> Option<&World> {
        Some(&self.world)
    }

    fn share(&self, own: Vec<u8>) -> Result<Vec<Vec<u8>>, RankFailure> {
        self.joint.control().share(own)
    }
}

impl Drop for JoinedGpu {
    fn drop(&mut self) {
        self.joint.close();
    }
}
