//! Ranks for tests of communication: threads of one process, or of several on a wire in memory.

use super::threads::{Fabric, ThreadCommunicator};
use super::*;
use cpu::Cpu;
use device::backend::Backend;
use device::host::{get, put};

/// Bytes of a rank's arena.
const ARENA: usize = 1 << 20;

/// A rank with its end and its memory, of which every tensor takes the next.
pub(super) struct TestRank {
    pub(super) end: ThreadCommunicator,
    pub(super) cpu: Cpu,
    used: usize,
    /// The type of tensors.
    pub(super) dtype: DType,
    /// Joins the processes, once all ranks are here.
    ready: Arc<dyn Fn() + Send + Sync>,
}

impl TestRank {
    pub(super) fn room(&mut self, len: usize) -> Span {
        let span = Span::new(self.dtype, self.used, len);
        self.used += span.bytes().next_multiple_of(64);
        span
    }

    pub(super) fn put(&mut self, data: &[f32]) -> Span {
        let span = self.room(data.len());
        put(&mut self.cpu, span, data);
        span
    }

    /// Sets all numbers of a tensor.
    pub(super) fn set(&mut self, span: Span, number: f32) {
        put(&mut self.cpu, span, &vec![number; span.len]);
    }

    pub(super) fn get(&mut self, span: Span) -> Vec<f32> {
        get(&mut self.cpu, span)
    }

    /// Waits until an exchange is complete.
    pub(super) fn finish(
        &self,
        group: &group::GroupMember<HostMemory>,
        plan: &FittedExchange,
        request: &mut Request,
    ) -> Result<(), RankFailure> {
        self.end.wait(&mut || {
            self.end.advance(group, plan, request);
            (!request.is_complete()).then(|| self.end.wait_reason(group, plan, request.number()))
        })
    }

    /// Joins the group of an exchange, and fits it.
    pub(super) fn fit(
        &mut self,
        dtypes: &[DType],
        of: &dyn Fn(usize) -> Exchange,
    ) -> (Arc<group::GroupMember<HostMemory>>, FittedExchange) {
        let group = self.end.join(&of(self.end.rank()).ranks, ThreadRole::Main).unwrap();
        let plan = self.end.fit(&group, "a sum", dtypes, &mut |rank| Ok(of(rank))).unwrap();
        (group, plan)
    }

    pub(super) fn ready(&self) {
        (self.ready)();
    }

    pub(super) fn exchange(
        &self,
        group: &group::GroupMember<HostMemory>,
        plan: &FittedExchange,
        sources: &[Span],
        results: &[Span],
    ) -> Result<(), RankFailure> {
        let mut request = self.end.start(group, plan, sources, results);
        self.finish(group, plan, &mut request)
    }

    pub(super) fn land(&self, channel: &channel::ChannelEnd<HostMemory>, number: u64) -> Result<(), RankFailure> {
        self.end.wait(&mut || self.end.pending(channel, number))
    }
}

/// Runs `f` on a thread for each rank, with room for three exchanges at a time, and gives what they gave.
pub(super) fn on_ranks<R: Send>(ranks: usize, f: impl Fn(usize, &mut TestRank) -> R + Sync) -> Vec<R> {
    let processes = Processes {
        ranks: vec![(0..ranks).collect()],
        seed: 0,
        fault: None,
        limits: Limits::default(),
        sums: Sums::Exact,
    };
    on_processes(processes, f)
}

/// Ranks of several processes on a wire in memory.
pub(super) struct Processes {
    pub(super) ranks: Vec<Vec<usize>>,
    pub(super) seed: u64,
    pub(super) fault: Option<looped::Fault>,
    pub(super) limits: Limits,
    pub(super) sums: Sums,
}

impl Processes {
    /// Ranks dealt out at random.
    pub(super) fn dealt(ranks: usize, seed: u64) -> Processes {
        let processes = 2 + seed as usize % (ranks - 1).max(1);
        let ranks = looped::deal(ranks, processes.min(ranks), Some(seed));
        Processes { ranks, seed, fault: None, limits: Limits::default(), sums: Sums::Exact }
    }
}

/// As [`on_ranks`], with the ranks in processes. Each rank says when it has joined its groups and channels.
pub(super) fn on_processes<R: Send>(
    Processes { ranks: dealt, seed, fault, limits, sums }: Processes,
    f: impl Fn(usize, &mut TestRank) -> R + Sync,
) -> Vec<R> {
    let ranks: usize = dealt.iter().map(Vec::len).sum();
    let (mut fabrics, mut wires, mut homes) = (Vec::new(), Vec::new(), Vec::new());
    for (world, wire) in looped::looped(dealt, seed, fault) {
        homes = world.homes();
        fabrics.push(Fabric::<HostMemory>::of(world, false));
        fabrics.iter().for_each(|fabric| fabric.add_by(sums));
        wires.push(wire);
    }
    let (joined, wires) = (fabrics.clone(), std::sync::Mutex::new(wires));
    let barrier = std::sync::Barrier::new(ranks);
    let ready = Arc::new(move || {
        if barrier.wait().is_leader() {
            for (fabric, wire) in joined.iter().zip(std::mem::take(&mut *wires.lock().unwrap())) {
                fabric.start(Box::new(wire), limits).unwrap();
            }
            joined.iter().for_each(|fabric| fabric.join(&HostMemory::default()).unwrap());
        }
        barrier.wait();
    });
    let rank = |rank: usize| {
        let mut cpu = Cpu::new(1);
        cpu.reserve(ARENA).unwrap();
        let fabric = &fabrics[homes[rank]];
        fabric.enter(1);
        let mut end = fabric.endpoint(rank, cpu.arena().clone(), HostMemory::default());
        end.expect(3, 3);
        TestRank { end, cpu, used: 0, dtype: DType::F32, ready: ready.clone() }
    };
    let all: Vec<TestRank> = (0..ranks).map(rank).collect();
    let given = std::thread::scope(|scope| {
        let f = &f;
        let start = |(number, mut rank): (usize, TestRank)| {
            scope.spawn(move || {
                let given = f(number, &mut rank);
                rank.end.leave();
                given
            })
        };
        let threads: Vec<_> = all.into_iter().enumerate().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    fabrics.iter().filter_map(|fabric| fabric.courier()).for_each(|courier| courier.close());
    given
}

/// Runs `f` on the ranks of one process, then on as many in several, and once more where the wire adds.
pub(super) fn near_and_far<R: Send>(ranks: usize, f: impl Fn(usize, &mut TestRank) -> R + Sync) -> [Vec<R>; 2] {
    static SEED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let seed = SEED.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    on_processes(Processes { sums: Sums::Engine, ..Processes::dealt(ranks, seed) }, &f);
    [on_ranks(ranks, &f), on_processes(Processes::dealt(ranks, seed), &f)]
}
