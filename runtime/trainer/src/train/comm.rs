//! Choice of the processes that the ranks of a run are in, and of what joins them.

use super::backend::Place;
use super::report::Progress;
use super::request::TrainRequest;
use crate::error::Error;
use comm::Sums;
use comm::looped::deal;
use comm::wire::{Wire, World};
use exec::Threads;
use ir::catalogue::Code;
use support::units::plural;
use tcp::NotAMember;

/// The connection of the ranks of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Comm {
    /// All are threads of this process.
    Threads,
    /// They are in a number of processes, which are all this one, joined by a wire in memory. Its delays come from the seed.
    Looped { processes: u64, seed: u64 },
    /// They are in the processes that a launcher of MPI has started, of which this is one.
    Mpi,
    /// They are in processes that find each other by variables of the environment, and are joined by TCP.
    Tcp,
    /// As with TCP, but each has a GPU of its own, and data goes by NCCL.
    Nccl,
}

/// Reads who adds the sums of ranks in several processes, `exact` or `engine`; none if that depends on what joins them.
///
/// # Errors
/// It is neither.
pub(super) fn sums(text: Option<&str>) -> Result<Option<Sums>, Error> {
    match text {
        None => Ok(None),
        Some("exact") => Ok(Some(Sums::Exact)),
        Some("engine") => Ok(Some(Sums::Engine)),
        Some(text) => {
            let refused = Error::input(Code::BadOption, format!("`sums` is `{text}`"));
            Err(refused.help("--sums is exact or engine"))
        }
    }
}

impl Comm {
    /// Reads `threads`, `tcp`, `mpi`, `nccl` or `looped:PROCESSES[:SEED]`.
    ///
    /// # Errors
    /// It is none of them.
    pub(super) fn parse(text: &str) -> Result<Comm, Error> {
        let mut parts = text.split(':');
        let comm = match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some("threads"), None, ..) => Some(Comm::Threads),
            (Some("mpi"), None, ..) => Some(Comm::Mpi),
            (Some("tcp"), None, ..) => Some(Comm::Tcp),
            (Some("nccl"), None, ..) => Some(Comm::Nccl),
            (Some("looped"), Some(processes), seed, None) => {
                let seed = seed.map_or(Some(0), |seed| seed.parse().ok());
                let processes = processes.parse().ok().filter(|processes| *processes > 0);
                processes.zip(seed).map(|(processes, seed)| Comm::Looped { processes, seed })
            }
            _ => None,
        };
        comm.ok_or_else(|| {
            Error::input(Code::BadOption, format!("`comm` is `{text}`"))
                .help("--comm is threads, tcp, mpi, nccl, looped:PROCESSES or looped:PROCESSES:SEED")
        })
    }

    /// Checks that a run can have its ranks so.
    ///
    /// # Errors
    /// There are more processes than devices, or the backend needs all ranks in one process.
    pub(super) fn check(self, devices: u64, request: &TrainRequest) -> Result<(), Error> {
        self.check_sums(request)?;
        if self == Comm::Threads {
            return Ok(());
        }
        match (self, request.backend.as_str()) {
            (Comm::Nccl, "cuda") | (Comm::Looped { .. } | Comm::Mpi | Comm::Tcp, "cpu") => {}
            (Comm::Nccl, backend) => {
                let message = format!("`comm` is `nccl`, which joins GPUs, but `backend` = {backend} has none");
                return Err(bad_option(message).help("take --backend cuda, or --comm tcp"));
            }
            (_, backend) => {
                let message = format!(
                    "`comm` is `{}`, which does not join the memories of GPUs (`backend` = {backend})",
                    request.comm
                );
                return Err(bad_option(message).help(
                    "take --comm nccl with a process for each GPU, --comm threads for all ranks on one, or --backend cpu",
                ));
            }
        }
        match self {
            Comm::Looped { processes, .. } if processes > devices => {
                let message = format!("`comm` puts {devices} devices into {processes} processes");
                Err(bad_option(message).help("each process has at least one device"))
            }
            Comm::Nccl if request.profile || request.trace.is_some() => {
                let message = "a profile or trace has no events of GPUs in other processes, and `comm` is `nccl`";
                Err(bad_option(message).help("leave out --profile and --trace, or measure with --comm threads"))
            }
            _ => Ok(()),
        }
    }

    /// Checks that who is to add can add.
    fn check_sums(self, request: &TrainRequest) -> Result<(), Error> {
        let adds = match self {
            Comm::Threads | Comm::Tcp => Some(Sums::Exact),
            Comm::Nccl => Some(Sums::Engine),
            Comm::Mpi | Comm::Looped { .. } => None,
        };
        let (message, help) = match sums(request.sums.as_deref())?.filter(|sums| adds.is_some_and(|adds| adds != *sums))
        {
            None => return Ok(()),
            Some(Sums::Engine) => ("has no engine that adds", "take --comm mpi, or leave out --sums: the ranks add"),
            Some(Sums::Exact) => {
                ("always adds itself", "leave out --sums, or take --comm threads for exact sums on one GPU")
            }
        };
        let message = format!(
            "`sums` is `{}`, but `comm` = {} {message}",
            request.sums.as_deref().unwrap_or("exact"),
            request.comm
        );
        Err(Error::input(Code::BadOption, message).help(help))
    }

    /// The ranks of a run of `devices` devices as threads, and their place.
    ///
    /// # Errors
    /// This program has no MPI, or the processes cannot be joined.
    pub(super) fn place(
        self,
        devices: usize,
        request: &TrainRequest,
        progress: &mut dyn Progress,
    ) -> Result<(Threads, Place), Error> {
        let threads = Threads::new(devices, kernel_threads(devices), None);
        match self {
            Comm::Threads | Comm::Looped { processes: 1, .. } => {
                Ok((threads, Place::threads("threads of this process".to_string(), None)))
            }
            Comm::Looped { processes, seed } => {
                let dealt = deal(devices, processes as usize, None);
                let text = format!("threads of {processes} processes, looped in this one");
                Ok((threads.looped(dealt, seed, None), Place::threads(text, None)))
            }
            Comm::Mpi => join_by_mpi(devices),
            Comm::Tcp | Comm::Nccl => {
                let (world, wire) = meet(devices, "P divides the number of devices", request, progress)?;
                Ok(joined(world, wire, "TCP"))
            }
        }
    }
}

fn bad_option(message: impl Into<String>) -> Error {
    Error::input(Code::BadOption, message)
}

/// Meets the other processes of a run, which has as many of them as `wants` says.
pub(super) fn meet(
    devices: usize,
    wants: &str,
    request: &TrainRequest,
    progress: &mut dyn Progress,
) -> Result<(World, Box<dyn Wire>), Error> {
    let member = tcp::Member::from_env(network(request)).map_err(|why| {
        let help = match &why {
            NotAMember::Secret(_) => {
                "give all processes one secret, such as MESHWRIGHT_SECRET=$(openssl rand -hex 32); --trusted-network does without".to_string()
            }
            NotAMember::Unplaced(_) => format!(
                "start it as meshwright launch -n P -- train .., where {wants}, or with torchrun or srun, which say where the processes are"
            ),
        };
        unjoined(&why.to_string()).help(help)
    })?;
    tcp::open(&member, devices, tcp::PATIENCE, &mut |note| progress.noted(note)).map_err(|why| {
        unjoined(&why)
            .help(format!("start P processes, where {wants}, with one program, one secret and the same options"))
    })
}

/// Tells the other processes of a run, if it has any that wait, that this one does not take part.
pub fn decline(request: &TrainRequest, why: &str) {
    if let (Ok(Comm::Tcp | Comm::Nccl), Ok(member)) =
        (Comm::parse(&request.comm), tcp::Member::from_env(network(request)))
    {
        tcp::decline(&member, why);
    }
}

fn network(request: &TrainRequest) -> tcp::Network {
    if request.trusted_network { tcp::Network::Trusted } else { tcp::Network::Open }
}

/// The number of hosts of the processes.
pub(super) fn hosts_of(world: &World) -> usize {
    let mut hosts: Vec<&String> = world.processes.iter().map(|process| &process.host).collect();
    hosts.dedup();
    hosts.len()
}

/// The threads that the kernels of a device may use: devices share the cores evenly.
pub(super) fn kernel_threads(devices: usize) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get());
    (cores / devices).max(1)
}

fn unjoined(why: &str) -> Error {
    Error::input(Code::BadOption, format!("the processes cannot be joined: {why}"))
}

/// The ranks of this process, of several that a wire joins.
fn joined(world: World, wire: Box<dyn Wire>, by: &str) -> (Threads, Place) {
    let host = &world.processes[world.me].host;
    let near: usize = world.processes.iter().filter(|other| other.host == *host).map(|other| other.ranks.len()).sum();
    let hosts = hosts_of(&world);
    let on = plural(hosts as u64, "host");
    let text = format!("threads of {} processes on {on}, joined by {by}", world.processes.len());
    let kernel_threads = kernel_threads(near);
    let place = Place::threads(text, (hosts > 1).then_some(near as u64));
    (Threads::joined(world, wire, kernel_threads, None), place)
}

/// The ranks of this process of MPI.
#[cfg(feature = "mpi")]
fn join_by_mpi(devices: usize) -> Result<(Threads, Place), Error> {
    let help = "start it as mpirun -n P meshwright train .., where P divides the number of devices";
    let (world, wire) = mpi::open(devices).map_err(|why| unjoined(&why).help(help))?;
    Ok(joined(world, wire, "MPI"))
}

/// This program has no MPI.
#[cfg(not(feature = "mpi"))]
fn join_by_mpi(_: usize) -> Result<(Threads, Place), Error> {
    let help = "install Open MPI and build with --features mpi, or take --comm tcp, which needs none";
    Err(unjoined("this program was built without MPI").help(help))
}

/// The number that a launcher has given to this process, if it is one of several that are joined so.
pub fn process_number(comm: &str) -> Option<usize> {
    let variables = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"];
    match Comm::parse(comm) {
        Ok(Comm::Mpi) => variables.iter().find_map(|name| std::env::var(name).ok()?.parse().ok()),
        Ok(Comm::Tcp | Comm::Nccl) => tcp::process_number(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_is_taken() {
        let looped = |processes, seed| Comm::Looped { processes, seed };
        let named = [Comm::Threads, Comm::Mpi, Comm::Tcp, Comm::Nccl].map(Ok);
        assert_eq!(["threads", "mpi", "tcp", "nccl"].map(Comm::parse), named);
        assert_eq!(["looped:2", "looped:3:7"].map(Comm::parse), [Ok(looped(2, 0)), Ok(looped(3, 7))]);
        for text in ["", "looped", "looped:0", "looped:x", "looped:2:y", "looped:2:3:4", "threads:2", "sockets"] {
            assert!(Comm::parse(text).is_err(), "{text}");
        }
        let cpu = TrainRequest::default();
        let gpu = TrainRequest { backend: "cuda".to_string(), ..cpu.clone() };
        let profiled = TrainRequest { profile: true, ..cpu.clone() };
        assert!(looped(4, 0).check(4, &profiled).is_ok() && Comm::Threads.check(1, &gpu).is_ok());
        assert!(looped(5, 0).check(4, &cpu).is_err() && looped(2, 0).check(4, &gpu).is_err());
        for comm in [Comm::Mpi, Comm::Tcp] {
            assert!(comm.check(4, &profiled).is_ok() && comm.check(4, &cpu).is_ok() && comm.check(4, &gpu).is_err());
        }
        assert!(Comm::Nccl.check(4, &gpu).is_ok() && Comm::Nccl.check(4, &cpu).is_err());
        assert!(Comm::Nccl.check(4, &TrainRequest { profile: true, ..gpu.clone() }).is_err());
        let adding = |sums: &str, request: &TrainRequest| TrainRequest { sums: Some(sums.into()), ..request.clone() };
        assert!([Comm::Mpi, looped(2, 0)].iter().all(|comm| comm.check(4, &adding("engine", &cpu)).is_ok()));
        assert!([Comm::Threads, Comm::Tcp].iter().all(|comm| comm.check(4, &adding("engine", &cpu)).is_err()));
        assert!(
            Comm::Nccl.check(4, &adding("engine", &gpu)).is_ok()
                && Comm::Nccl.check(4, &adding("exact", &gpu)).is_err()
        );
    }
}
