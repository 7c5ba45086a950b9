//! Loading: each rank gets its device, its kernels and its compiled instruction streams.

use super::Error;
use super::background::Background;
use super::cursor::ThreadContext;
use super::executor::Options;
use super::load_error::LoadError;
use super::platform::Platform;
use super::progress::{Note, Progress};
use super::rank_program::RankProgram;
use super::recorder::EventRecorder;
use super::row::{Loader, class_of};
use super::worker::{Report, Worker};
use crate::state::{Role, State};
use comm::Communicator;
use device::backend::Backend;
use device::memory;
use ir::arena::ALIGNMENT;
use ir::graph::Model;
use ir::program::Program;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Data of a rank that the executor shares with the threads of the rank.
pub(super) struct RankView<C: Communicator> {
    pub(super) rank: usize,
    pub(super) arena_bytes: usize,
    pub(super) rank_programs: Arc<[RankProgram<C>]>,
    /// Event buffers of the main thread and of the async worker.
    pub(super) recorders: Option<[EventRecorder; 2]>,
    /// For each row, the names of what it reports.
    pub(super) names: Vec<Vec<String>>,
    pub(super) report: Arc<Report>,
    /// Notes of the progress of the main thread and of the async worker.
    pub(super) notes: [Arc<Note>; 2],
    /// The names of the persistent tensors.
    pub(super) state: Vec<String>,
}

/// The worker of a rank on a platform.
pub(super) type PlatformWorker<P> = Worker<<P as Platform>::Backend, <P as Platform>::Communicator>;

/// The worker of a rank, and what the executor sees of it.
type LoadedRank<P> = (PlatformWorker<P>, RankView<<P as Platform>::Communicator>);

/// The workers of all ranks, and what the executor sees of them.
type LoadedRanks<P> = (Vec<PlatformWorker<P>>, Vec<RankView<<P as Platform>::Communicator>>);

/// Makes a program ready on all ranks of this process.
///
/// # Errors
/// The program is broken, the platform cannot run it, or there is not enough memory.
pub(super) fn load_ranks<P: Platform>(
    platform: &P,
    model: &Model,
    program: &Program,
    options: &Options<'_>,
) -> Result<LoadedRanks<P>, Error> {
    let programs: Vec<&Program> = [program].into_iter().chain(options.evaluation).collect();
    let (mut workers, mut views) = (Vec::new(), Vec::new());
    let taken = memory::taken();
    for (place, &rank) in platform.ranks().iter().enumerate() {
        let loaded = load_rank(platform, model, &programs, options, rank).map_err(|why| match why {
            Refused::Program(why) => Error::Load(format!("rank {rank}: {why}")),
            Refused::System(why) => Error::Resources(format!("rank {rank}: {why}")),
        });
        let (worker, view) = loaded?;
        workers.push(worker);
        views.push(view);
        if place + 1 == LOOKED_AT {
            let taken = memory::taken().saturating_sub(taken);
            check_memory(platform.ranks(), model, program, taken, options.memory_limit)?;
        }
    }
    Ok((workers, views))
}

/// Elements of each parameter and state.
pub(super) fn catalogue<B: Backend, C: Communicator>(workers: &[Worker<B, C>]) -> BTreeMap<String, u64> {
    let slots = workers.iter().flat_map(|worker| worker.state.slots());
    slots.filter(|slot| slot.role != Role::Gradient).map(|slot| (slot.name.clone(), slot.ty.elements())).collect()
}

/// The number of ranks after which what all will take is looked at: what they are made ready with grows with the groups
/// that they exchange in.
const LOOKED_AT: usize = 8;

/// Refuses a program of whose ranks the first few have taken so much that all would take more than there is. Their arenas
/// are not among it: nothing has been written there.
fn check_memory(ranks: &[usize], model: &Model, program: &Program, taken: u64, memory_limit: u64) -> Result<(), Error> {
    let devices = ranks.len() as u64;
    let classes = ranks.iter().map(|&rank| class_of(program, model, &model.mesh.coordinates(rank as u64)));
    let arenas = classes.filter_map(|class| class.ok()?.arena.as_ref());
    let arenas = arenas.map(|arena| arena.bytes.saturating_add(arena.host)).fold(0, u64::saturating_add);
    let needed = arenas.saturating_add((taken / LOOKED_AT as u64).saturating_mul(devices));
    if needed <= memory_limit {
        return Ok(());
    }
    let [needed, memory_limit] = [needed, memory_limit].map(|bytes| bytes as f64 / f64::from(1 << 30));
    Err(Error::Resources(format!(
        "the run needs {needed:.1} GiB of memory for its devices ({devices}), {memory_limit:.1} GiB are free"
    )))
}

/// Why a rank cannot be made ready.
enum Refused {
    /// Its program is broken.
    Program(LoadError),
    /// There is no memory or no thread for it.
    System(String),
}

impl From<LoadError> for Refused {
    fn from(why: LoadError) -> Refused {
        Refused::Program(why)
    }
}

impl From<io::Error> for Refused {
    fn from(why: io::Error) -> Refused {
        Refused::System(why.to_string())
    }
}

fn load_rank<P: Platform>(
    platform: &P,
    model: &Model,
    programs: &[&Program],
    options: &Options<'_>,
    rank: usize,
) -> Result<LoadedRank<P>, Refused> {
    let coordinates = model.mesh.coordinates(rank as u64);
    let (mut bytes, mut host_bytes) = (0, 0);
    for program in programs {
        if let Some(arena) = &class_of(program, model, &coordinates)?.arena {
            (bytes, host_bytes) = (bytes.max(arena.bytes), host_bytes.max(arena.host));
        }
    }
    let arena_bytes = bytes.next_multiple_of(ALIGNMENT) as usize;
    let (mut backend, mut comm) =
        platform.connect(rank, arena_bytes).map_err(|why| Refused::System(why.to_string()))?;
    if host_bytes > 0 {
        backend.reserve_host(host_bytes as usize).map_err(Refused::System)?;
    }
    let (mut async_backend, mut state) = (backend.fork().map_err(LoadError::from)?, State::default());
    let backends = [&mut backend, &mut async_backend];
    let (comm_at, poison) = (&mut comm, options.poison);
    let mut loader = Loader { model, rank, coordinates, backends, comm: comm_at, state: &mut state, poison };
    let (mut rank_programs, mut kernels) = (Vec::new(), [Vec::new(), Vec::new()]);
    for program in programs {
        let (rank_program, of_program) = loader.row(program)?;
        rank_programs.push(rank_program);
        kernels.iter_mut().zip(of_program).for_each(|(all, kernels)| all.push(kernels));
    }
    let (mut message_slots, mut outs, mut completions) = (0, 0, 0);
    for program in &rank_programs {
        message_slots = message_slots.max(program.message_slots);
        outs = outs.max(program.outs.len());
        completions = completions.max(program.completions.iter().sum());
    }
    let (message_numbers, numbers) = (vec![0; message_slots], vec![0; completions]);
    let names = rank_programs.iter().map(|program| program.outs.clone()).collect();
    let rank_programs: Arc<[RankProgram<P::Communicator>]> = rank_programs.into();
    let recorders = options.record.then(|| EventRecorder::pair(&rank_programs));
    let [recorder, async_recorder] = recorders.clone().map_or([None, None], |recorders| recorders.map(Some));
    let (report, [own, async_kernels]) = (Arc::new(Report::new(outs)), kernels);
    let [progress, async_progress] = [Progress::default(), Progress::default()];
    let view = RankView {
        rank,
        arena_bytes,
        rank_programs: rank_programs.clone(),
        recorders,
        names,
        report: report.clone(),
        notes: [&progress, &async_progress].map(Progress::note),
        state: state.slots().iter().map(|slot| slot.name.clone()).collect(),
    };
    if platform.has_async_threads() {
        platform.enter(rank, 0);
    }
    let thread = platform.has_async_threads().then(|| format!("async {rank}"));
    let context = ThreadContext {
        backend: async_backend,
        kernels: async_kernels,
        recorder: async_recorder,
        numbers: numbers.clone(),
        progress: async_progress,
    };
    let background = Background::new(rank_programs.clone(), context, &comm, thread)?;
    let (context, seed) = (ThreadContext { backend, kernels: own, recorder, numbers, progress }, options.seed);
    let (fed, outs) = (Vec::new(), vec![0.0; outs]);
    let repeats = platform.repeats().then(|| vec![false; programs.len()]);
    let delay = options.faults.slow.filter(|(slow, _)| *slow == rank).map_or(Duration::ZERO, |(_, delay)| delay);
    let sticks_at = options.faults.stuck.filter(|(stuck, _)| *stuck == rank).map(|(_, step)| step);
    let worker = Worker {
        state,
        arena_bytes,
        rank_programs,
        context,
        comm,
        background,
        seed,
        message_numbers,
        fed,
        outs,
        report,
        repeats,
        delay,
        sticks_at,
    };
    Ok((worker, view))
}
