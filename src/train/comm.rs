//! Choice of the processes that the ranks of a run are in, and of what joins them.

use super::backend::Place;
use super::request::TrainRequest;
use super::run::kernel_threads;
use crate::error::Error;
use ir::catalogue::Code;
use runtime::comm::looped::deal;
use runtime::comm::wire::{Wire, World};
use runtime::exec::Threads;
use support::units::plural;

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
}

impl Comm {
    /// Reads `threads`, `tcp`, `mpi` or `looped:PROCESSES[:SEED]`.
    ///
    /// # Errors
    /// It is none of them.
    pub(super) fn parse(text: &str) -> Result<Comm, Error> {
        let mut parts = text.split(':');
        let comm = match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some("threads"), None, ..) => Some(Comm::Threads),
            (Some("mpi"), None, ..) => Some(Comm::Mpi),
            (Some("tcp"), None, ..) => Some(Comm::Tcp),
            (Some("looped"), Some(processes), seed, None) => {
                let seed = seed.map_or(Some(0), |seed| seed.parse().ok());
                let processes = processes.parse().ok().filter(|processes| *processes > 0);
                processes.zip(seed).map(|(processes, seed)| Comm::Looped { processes, seed })
            }
            _ => None,
        };
        let refused = || Error::input(Code::BadOption, format!("`comm` is `{text}`"));
        comm.ok_or_else(|| refused().help("--comm is threads, tcp, mpi, looped:PROCESSES or looped:PROCESSES:SEED"))
    }

    /// Checks that a run can have its ranks so.
    ///
    /// # Errors
    /// There are more processes than devices, or the backend needs all ranks in one process.
    pub(super) fn check(self, devices: u64, request: &TrainRequest) -> Result<(), Error> {
        let refused = |message: String, help: &str| Err(Error::input(Code::BadOption, message).help(help));
        if self == Comm::Threads {
            return Ok(());
        }
        if request.backend != "cpu" {
            let message = format!(
                "`comm` is `{}`, but `backend` = {} has all ranks in one process",
                request.comm, request.backend
            );
            return refused(message, "take --comm threads, or --backend cpu");
        }
        match self {
            Comm::Looped { processes, .. } if processes > devices => {
                let message = format!("`comm` puts {devices} devices into {processes} processes");
                refused(message, "each process has at least one device")
            }
            _ => Ok(()),
        }
    }

    /// The ranks of a run of `devices` devices, and their place.
    ///
    /// # Errors
    /// This program has no MPI, or the processes cannot be joined.
    pub(super) fn place(self, devices: usize) -> Result<(Threads, Place), Error> {
        let threads = || Threads::new(devices, kernel_threads(devices), None);
        let alone = || Place::threads("threads of this process".to_string(), None);
        match self {
            Comm::Threads | Comm::Looped { processes: 1, .. } => Ok((threads(), alone())),
            Comm::Looped { processes, seed } => {
                let dealt = deal(devices, processes as usize, None);
                let text = format!("threads of {processes} processes, looped in this one");
                Ok((threads().looped(dealt, seed, None), Place::threads(text, None)))
            }
            Comm::Mpi => join_by_mpi(devices),
            Comm::Tcp => {
                let help = "start it as meshwright launch -n P -- train .., where P divides the number of devices, or with torchrun \
                            or srun, which say where the processes are";
                let opened = tcp::Member::from_env().and_then(|member| tcp::open(&member, devices, tcp::PATIENCE));
                opened.map(|opened| joined(opened, "TCP")).map_err(|why| unjoined(&why).help(help))
            }
        }
    }
}

fn unjoined(why: &str) -> Error {
    Error::input(Code::BadOption, format!("the processes cannot be joined: {why}"))
}

/// The ranks of this process, of several that a wire joins.
fn joined((world, wire): (World, Box<dyn Wire>), by: &str) -> (Threads, Place) {
    let host = &world.processes[world.me].host;
    let near: usize = world.processes.iter().filter(|other| other.host == *host).map(|other| other.ranks.len()).sum();
    let mut hosts: Vec<&String> = world.processes.iter().map(|process| &process.host).collect();
    hosts.dedup();
    let hosts_of = plural(hosts.len() as u64, "host");
    let text = format!("threads of {} processes on {hosts_of}, joined by {by}", world.processes.len());
    let (kernel_threads, hosts) = (kernel_threads(near), hosts.len());
    let place = Place::threads(text, (hosts > 1).then_some(near as u64));
    (Threads::joined(world, wire, kernel_threads, None), place)
}

/// The ranks of this process of MPI.
#[cfg(feature = "mpi")]
fn join_by_mpi(devices: usize) -> Result<(Threads, Place), Error> {
    let help = "start it as mpirun -n P meshwright train .., where P divides the number of devices";
    mpi::open(devices).map(|opened| joined(opened, "MPI")).map_err(|why| unjoined(&why).help(help))
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
        Ok(Comm::Tcp) => tcp::process_number(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_can_be_is_taken() {
        let looped = |processes, seed| Comm::Looped { processes, seed };
        assert_eq!(["threads", "mpi", "tcp"].map(Comm::parse), [Ok(Comm::Threads), Ok(Comm::Mpi), Ok(Comm::Tcp)]);
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
            assert!(comm.check(4, &profiled).is_ok() && comm.check(4, &gpu).is_err());
        }
    }
}
