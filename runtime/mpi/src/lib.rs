//! MPI as the [`Wire`] between the processes of a run. It moves bytes; sums are made by the ranks, in the order of their group, so that
//! a run has the same bits wherever its ranks are. Where a run asks for it, MPI adds too, in an order of its own.
//!
//! ```no_run
//! // Inside of `mpirun -n 4`: the processes of a run of eight ranks, and the wire that joins this one with the others.
//! let (world, wire) = meshwright_mpi::open(8)?;
//! assert_eq!((world.processes.len(), world.ranks().len()), (4, 2));
//! # drop(wire);
//! # Ok::<(), String>(())
//! ```

mod library;

use comm::wire::{Finished, Wire, WireError, World, by_host};
use library::{Communicator, Library, Outstanding};
use std::collections::VecDeque;

/// Bytes of the name of a host.
const HOST: usize = 256;

/// The tag of notices, which have a communicator of their own.
const NOTICE: u32 = 0;

/// Variables in which launchers state the number of processes.
const SIZES: [&str; 3] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"];

/// The ends of all messages of this process.
struct Mpi {
    library: Library,
    /// The number of each process among those of MPI, and back.
    numbers: Vec<usize>,
    processes: Vec<usize>,
    under_way: Outstanding,
    /// Notices that are on their way.
    said: VecDeque<(usize, Vec<u8>)>,
    saying: Outstanding,
}

/// Starts MPI, and deals `ranks` ranks out to its processes: those of a host one after the other, each with as many consecutive ranks.
///
/// # Errors
/// There is no launcher or no usable MPI, or the processes do not divide the ranks.
pub fn open(ranks: usize) -> Result<(World, Box<dyn Wire>), String> {
    let library = Library::start()?;
    let (own, count) = (library.number, library.count);
    let started = SIZES.iter().find_map(|name| std::env::var(name).ok()?.parse::<usize>().ok());
    if let Some(started) = started.filter(|started| *started != count) {
        return Err(format!(
            "the launcher has started {started} processes, but MPI sees {count}: they are of different versions of MPI, or srun lacks --mpi"
        ));
    }
    if !ranks.is_multiple_of(count) {
        return Err(format!("{count} processes do not divide the {ranks} devices"));
    }
    let mut host = library.host()?.into_bytes();
    host.resize(HOST, 0);
    let hosts = library.all_gather(&host)?;
    let name = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_string();
    let hosts: Vec<String> = hosts.chunks_exact(HOST).map(name).collect();
    let (world, numbers) = by_host(own, &hosts, ranks);
    let mut processes = vec![0; count];
    numbers.iter().enumerate().for_each(|(process, &number)| processes[number] = process);
    let (under_way, said, saying) = Default::default();
    let mpi = Mpi { library, numbers, processes, under_way, said, saying };
    Ok((world, Box::new(mpi)))
}

impl Wire for Mpi {
    unsafe fn send(&mut self, ticket: usize, to: usize, tag: u32, bytes: *const [u8]) -> Result<(), WireError> {
        // SAFETY: by the caller's contract.
        unsafe { Communicator::Messages.send(&mut self.under_way, ticket, (self.numbers[to], tag), bytes) }
            .map_err(WireError::from)
    }

    unsafe fn receive(&mut self, ticket: usize, from: usize, tag: u32, bytes: *mut [u8]) -> Result<(), WireError> {
        // SAFETY: by the caller's contract.
        unsafe { Communicator::Messages.receive(&mut self.under_way, ticket, (self.numbers[from], tag), bytes) }
            .map_err(WireError::from)
    }

    fn join_sums(&mut self, groups: &[Vec<usize>]) -> Result<(), WireError> {
        let numbers =
            |processes: &Vec<usize>| processes.iter().map(|&process| self.numbers[process]).collect::<Vec<_>>();
        groups.iter().try_for_each(|group| self.library.join(&numbers(group))).map_err(WireError::from)
    }

    unsafe fn sum(
        &mut self,
        ticket: usize,
        group: usize,
        numbers: *mut [f32],
        to: Option<usize>,
    ) -> Result<(), WireError> {
        // SAFETY: by the caller's contract.
        unsafe { self.library.sum(&mut self.under_way, ticket, group, numbers, to) }.map_err(WireError::from)
    }

    fn poll(&mut self, finished: &mut Vec<Finished>) -> Result<(), WireError> {
        self.under_way.test(|ticket, bytes| finished.push(Finished { ticket, bytes })).map_err(WireError::from)
    }

    fn notify(&mut self, to: usize, notice: &[u8]) -> Result<(), WireError> {
        let said = &mut self.said;
        self.saying.test(|ticket, _| said.retain(|(other, _)| *other != ticket)).map_err(WireError::from)?;
        let ticket = self.said.back().map_or(0, |(last, _)| last + 1);
        self.said.push_back((ticket, notice.to_vec()));
        let bytes = std::ptr::from_ref(self.said[self.said.len() - 1].1.as_slice());
        // SAFETY: the bytes stay where they are until the ticket comes back; a queue that grows moves only their owner.
        unsafe { Communicator::Notices.send(&mut self.saying, ticket, (self.numbers[to], NOTICE), bytes) }
            .map_err(WireError::from)
    }

    fn hear(&mut self) -> Result<Option<(usize, Vec<u8>)>, WireError> {
        let heard = Communicator::Notices.take(NOTICE).map_err(WireError::from)?;
        Ok(heard.map(|(number, notice)| (self.processes[number], notice)))
    }

    fn end(mut self: Box<Self>, is_well: bool) {
        // After a failure others may not come here: the launcher ends them when this process has ended.
        if !is_well {
            return std::mem::forget(self);
        }
        let ended = self.saying.wait().and_then(|()| self.library.barrier());
        let heard = ended.and_then(|()| {
            while Communicator::Notices.take(NOTICE)?.is_some() {}
            Ok(())
        });
        if heard.is_ok() {
            self.library.finish();
        }
    }
}
