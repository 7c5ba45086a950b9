//! Runs on GPUs: one that all ranks share, or one for each rank, joined by NCCL.

use super::backend::Place;
use super::comm::{hosts_of, meet};
use super::prepare::Prepared;
use super::report::{Progress, TrainReport};
use super::request::TrainRequest;
use super::run::run_on;
use crate::error::Error;
use comm::Limits;
use comm::wire::World;
use cuda::device::Device;
use cuda::measure::gpu_peak;
use cuda::{JoinedGpu, SharedGpu};
use ir::catalogue::Code;
use ir::types::DType;
use std::sync::Arc;
use std::time::Duration;
use support::units::plural;
use trace::Peak;

/// A GPU of this machine.
pub(super) struct Gpu(Arc<Device>);

impl Gpu {
    /// Measures the peak rates for products of a type.
    ///
    /// # Errors
    /// There is no memory for it, or the driver failed.
    pub(super) fn peak(&self, dtype: DType) -> Result<Peak, String> {
        gpu_peak(&self.0, dtype).map_err(|why| why.to_string())
    }
}

/// Checks that this machine has a GPU.
///
/// # Errors
/// The machine has no usable GPU, or a library is missing.
pub(super) fn check() -> Result<(), Error> {
    Device::open(0).map(drop).map_err(|why| no_gpu(&why))
}

/// Runs all ranks on one GPU.
///
/// # Errors
/// There is no GPU, or the run fails.
pub(super) fn run_shared(
    prepared: Prepared,
    devices: usize,
    progress: &mut dyn Progress,
) -> Result<TrainReport, Error> {
    let TrainRequest { no_graphs, time_products, .. } = prepared.request;
    let gpu = SharedGpu::open(0, devices).map_err(|why| no_gpu(&why))?;
    let gpu = gpu.graphs(!no_graphs).time_products(time_products);
    let place = place(gpu.device(), |name| format!("one GPU, {name}"), None)?;
    run_on(prepared, progress, gpu, place)
}

/// Runs the rank of this process on a GPU of its own.
///
/// # Errors
/// The processes cannot be joined, there is no GPU for each, or the run fails.
pub(super) fn run_joined(
    prepared: Prepared,
    devices: usize,
    progress: &mut dyn Progress,
) -> Result<TrainReport, Error> {
    let (gpu, place) = join(devices, &prepared.request, progress)?;
    run_on(prepared, progress, gpu, place)
}

/// Shares of a GPU, or all of it.
///
/// # Errors
/// The driver failed.
fn place(device: &Arc<Device>, text: impl FnOnce(&str) -> String, near: Option<u64>) -> Result<Place, Error> {
    let (free, _) = device.memory().map_err(|why| no_gpu(&why))?;
    Ok(Place::gpu(Gpu(device.clone()), text(&device.properties().name), near, free as u64))
}

/// The rank of this process, on a GPU of its own, and its place.
///
/// # Errors
/// The processes cannot be joined, there is no GPU for each, or not one rank in each.
fn join(devices: usize, request: &TrainRequest, progress: &mut dyn Progress) -> Result<(JoinedGpu, Place), Error> {
    let met = meet(devices, "P is the number of devices", request, progress)?;
    let (world, _) = &met;
    let processes = world.processes.len();
    if processes != devices {
        let message = format!("`comm` is `nccl`, but {processes} processes have {devices} devices");
        return Err(Error::input(Code::BadOption, message).help("start one process for each device of the mesh"));
    }
    let text = format!("GPUs of {processes} processes on {}, joined by NCCL", plural(hosts_of(world) as u64, "host"));
    let ordinal = ordinal(world);
    let limits = Limits { silence: Duration::from_secs_f64(request.silence) };
    let gpu = JoinedGpu::open(ordinal, met, limits).map_err(|why| match &why {
        cuda::Error::Shared { .. } => Error::input(Code::BadOption, why.to_string())
            .help("start one process for each GPU of a host; LOCAL_RANK and CUDA_VISIBLE_DEVICES say which is whose"),
        _ => no_gpu(&why),
    })?;
    let place = place(gpu.device(), |name| format!("{text}: {name}"), Some(1))?;
    Ok((gpu.graphs(!request.no_graphs).time_products(request.time_products), place))
}

/// The number of this process's GPU: what its launcher says, else its place among the processes of its host.
fn ordinal(world: &World) -> usize {
    let said = ["LOCAL_RANK", "SLURM_LOCALID"].iter().find_map(|name| std::env::var(name).ok()?.parse().ok());
    let host = &world.processes[world.me].host;
    let place = world.processes[..world.me].iter().filter(|other| other.host == *host).count();
    said.unwrap_or(place)
}

/// Returns the error for a missing GPU or library, with its fix.
pub fn no_gpu(why: &cuda::Error) -> Error {
    Error::input(Code::NoGpu, format!("no GPU can be used: {why}")).help(
        "install the NVIDIA driver, NVRTC and cuBLASLt of the CUDA 13 toolkit, and NCCL for --comm nccl; LD_LIBRARY_PATH adds \
         folders to search. --backend cpu needs none of them",
    )
}
