//! Tests of the waits of exchanges and messages: on a device that does its work as late as it may, or one stream of it as early as it may,
//! no wait can be left out.

use super::threads::{Fabric, ThreadCommunicator};
use super::*;
use device::arena::Arena;
use ir::types::DType;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};

/// A device whose streams do nothing until somebody runs them.
#[derive(Clone, Default)]
struct Late(Arc<Mutex<Device>>);

#[derive(Default)]
struct Device {
    streams: Vec<VecDeque<Work>>,
    events: Vec<Recorded>,
    /// The waits so far, each with its stream and the one that it waits for, and the number of that which is forgotten.
    waits: Vec<[usize; 2]>,
    forgotten: Option<usize>,
}

/// How often an event has been recorded and reached, and by which stream.
#[derive(Clone, Copy, Default)]
struct Recorded {
    recorded: usize,
    reached: usize,
    stream: usize,
}

enum Work {
    Run(Box<dyn FnOnce() + Send>),
    Record(usize, usize),
    Wait(usize, usize),
}

/// A rank's memory and the medium of its thread.
struct LateMedium {
    device: Late,
    own: usize,
}

/// A copy of where a peer's tensors are.
struct Located {
    memory: Arc<Arena>,
    sources: Vec<Span>,
    results: Vec<Span>,
}

impl Late {
    fn device(&self) -> MutexGuard<'_, Device> {
        self.0.lock().unwrap()
    }

    fn stream(&self) -> usize {
        let mut device = self.device();
        device.streams.push(VecDeque::new());
        device.streams.len() - 1
    }

    fn give(&self, stream: usize, work: Work) {
        self.device().streams[stream].push_back(work);
    }

    /// Does all work of a stream, and of others what it waits for.
    fn run(&self, stream: usize) {
        while self.step(stream) {}
    }

    fn step(&self, stream: usize) -> bool {
        let Some(work) = self.device().streams[stream].pop_front() else { return false };
        match work {
            Work::Run(run) => run(),
            Work::Record(event, mark) => self.device().events[event].reached = mark,
            Work::Wait(event, mark) => {
                let other = self.device().events[event].stream;
                while self.device().events[event].reached < mark {
                    assert!(self.step(other), "a stream waits for work that nobody has given");
                }
            }
        }
        true
    }
}

impl Medium for LateMedium {
    type Memory = Arc<Arena>;
    type Event = usize;
    type Stream = usize;

    fn fork(&self) -> LateMedium {
        LateMedium { device: self.device.clone(), own: self.own }
    }

    fn event(&self) -> Result<usize, String> {
        let mut device = self.device.device();
        device.events.push(Recorded::default());
        Ok(device.events.len() - 1)
    }

    fn stream(&self) -> Result<usize, String> {
        Ok(self.device.stream())
    }

    fn stream_of(&self, _: ThreadRole) -> usize {
        self.own
    }

    fn record(&self, stream: &usize, event: &usize) {
        let mark = {
            let mut device = self.device.device();
            let recorded = &mut device.events[*event];
            (recorded.recorded, recorded.stream) = (recorded.recorded + 1, *stream);
            recorded.recorded
        };
        self.device.give(*stream, Work::Record(*event, mark));
    }

    fn wait(&self, stream: &usize, event: &usize) {
        let (mark, is_forgotten) = {
            let mut device = self.device.device();
            let Recorded { recorded, stream: other, .. } = device.events[*event];
            device.waits.push([*stream, other]);
            (recorded, device.forgotten == Some(device.waits.len() - 1))
        };
        if !is_forgotten {
            self.device.give(*stream, Work::Wait(*event, mark));
        }
    }

    unsafe fn exchange<'a>(
        &self,
        stream: &usize,
        plan: &Exchange,
        half: Half,
        me: usize,
        peer: impl Fn(usize) -> PeerBuffers<'a, Arc<Arena>>,
    ) -> Option<u64> {
        let (plan, peers) = (plan.clone(), located(plan, peer));
        let run = move || {
            let peer = |place: usize| peers[place].buffers();
            // SAFETY: one thread runs all streams.
            unsafe { HostMemory::default().exchange(&(), &plan, half, me, peer) };
        };
        self.device.give(*stream, Work::Run(Box::new(run)));
        None
    }

    unsafe fn copy(&self, stream: &usize, to: Buffer<'_, Arc<Arena>>, from: Buffer<'_, Arc<Arena>>) {
        let (memories, spans) = ([to.memory.clone(), from.memory.clone()], [to.span, from.span]);
        let run = move || {
            let [to, from] = [0, 1].map(|end| Buffer { memory: &*memories[end], span: spans[end] });
            // SAFETY: one thread runs all streams.
            unsafe { HostMemory::default().copy(&(), to, from) }
        };
        self.device.give(*stream, Work::Run(Box::new(run)));
    }
}

fn located<'a>(plan: &Exchange, peer: impl Fn(usize) -> PeerBuffers<'a, Arc<Arena>>) -> Vec<Located> {
    let one = |place| {
        let PeerBuffers { memory, sources, results } = peer(place);
        Located { memory: memory.clone(), sources: sources.to_vec(), results: results.to_vec() }
    };
    (0..plan.ranks.len()).map(one).collect()
}

impl Located {
    fn buffers(&self) -> PeerBuffers<'_, Arena> {
        PeerBuffers { memory: &self.memory, sources: &self.sources, results: &self.results }
    }
}

/// A rank: its end, its memory with a source, a result and places for what it saw in two rounds, and its stream.
struct LateRank {
    end: ThreadCommunicator<LateMedium>,
    memory: Arc<Arena>,
    stream: usize,
    source: Span,
    result: Span,
    seen: [Span; 2],
}

impl LateRank {
    /// Lets its stream write one number to all elements of a place.
    fn fill(&self, device: &Late, to: Span, number: f32) {
        let memory = self.memory.clone();
        // SAFETY: one thread runs all streams.
        let run = move || unsafe { memory.elements_mut::<f32>(to) }.fill(number);
        device.give(self.stream, Work::Run(Box::new(run)));
    }

    /// Lets its stream keep what it sees in a round.
    fn keep(&self, device: &Late, from: Span, round: usize) {
        let (memory, seen) = (self.memory.clone(), self.seen[round]);
        let run = move || {
            // SAFETY: one thread runs all streams, and the places are apart.
            unsafe { memory.elements_mut::<f32>(seen).copy_from_slice(memory.elements::<f32>(from)) }
        };
        device.give(self.stream, Work::Run(Box::new(run)));
    }

    fn saw(&self) -> [Vec<f32>; 2] {
        // SAFETY: all streams are done.
        self.seen.map(|seen| unsafe { self.memory.elements::<f32>(seen) }.to_vec())
    }
}

fn ranks(device: &Late, count: usize, len: usize) -> Vec<LateRank> {
    let fabric = Fabric::new(count, false);
    let rank = |rank| {
        let stream = device.stream();
        let memory = Arc::new(Arena::new(4 * 4 * len).unwrap());
        let medium = LateMedium { device: device.clone(), own: stream };
        let mut end = fabric.endpoint(rank, Arc::new(memory.clone()), medium);
        end.expect(1, 1);
        let [source, result, seen @ ..] = [0, 1, 2, 3].map(|place| Span::new(DType::F32, 4 * len * place, len));
        LateRank { end, memory, stream, source, result, seen }
    };
    (0..count).map(rank).collect()
}

/// Two sums of all ranks, the second in the memory that the first leaves.
fn sums(device: &Late, in_place: bool, len: usize) -> Vec<LateRank> {
    let mut ranks = ranks(device, 3, len);
    let groups: Vec<_> = ranks.iter_mut().map(|rank| rank.end.join(&[0, 1, 2], ThreadRole::Main).unwrap()).collect();
    let plans: Vec<FittedExchange> = (0..3)
        .map(|me| {
            let mut plan = Exchange::sum(vec![0, 1, 2], me, len);
            plan.tensors[0].in_place = in_place;
            plan.into()
        })
        .collect();
    for round in 0..2 {
        let mut requests = Vec::new();
        for (number, rank) in ranks.iter().enumerate() {
            let result = if in_place { rank.source } else { rank.result };
            rank.fill(device, rank.source, (1 << (3 * round + number)) as f32);
            requests.push(rank.end.start(&groups[number], &plans[number], &[rank.source], &[result]));
        }
        while requests.iter().any(|request| !request.is_complete()) {
            for (number, request) in requests.iter_mut().enumerate() {
                ranks[number].end.advance(&groups[number], &plans[number], request);
            }
        }
        for (number, rank) in ranks.iter().enumerate() {
            rank.end.receive(&groups[number], requests[number].number());
            rank.keep(device, if in_place { rank.source } else { rank.result }, round);
            // The memory is free again.
            rank.fill(device, rank.source, -1e6);
            rank.fill(device, rank.result, -1e6);
        }
    }
    ranks
}

/// Two messages from rank 0 to rank 1.
fn messages(device: &Late) -> Vec<LateRank> {
    let mut ranks = ranks(device, 2, 8);
    let channels = [ranks[0].end.channel_to(1, 0).unwrap(), ranks[1].end.channel_from(0, 0).unwrap()];
    for round in 0..2 {
        ranks[0].fill(device, ranks[0].source, (round + 1) as f32);
        ranks[1].fill(device, ranks[1].source, -2.0);
        let numbers = [0, 1].map(|rank| ranks[rank].end.start_message(&channels[rank], ranks[rank].source).number);
        for (rank, number) in numbers.into_iter().enumerate() {
            assert_eq!(ranks[rank].end.pending(&channels[rank], number), None);
            ranks[rank].end.receive_message(&channels[rank], number);
            ranks[rank].keep(device, ranks[rank].source, round);
            ranks[rank].fill(device, ranks[rank].source, -1e6);
        }
    }
    ranks
}

/// True if all ranks saw the right numbers in both rounds whichever stream runs first; and all waits.
fn is_right(
    scenario: &dyn Fn(&Late) -> Vec<LateRank>,
    right: [f32; 2],
    forgotten: Option<usize>,
) -> (bool, Vec<[usize; 2]>) {
    let mut first = 0;
    loop {
        let device = Late::default();
        device.device().forgotten = forgotten;
        let ranks = scenario(&device);
        let streams = device.device().streams.len();
        let waits = device.device().waits.clone();
        [first].into_iter().chain(0..streams).for_each(|stream| device.run(stream));
        let sees = |(saw, right): (Vec<f32>, f32)| saw.into_iter().all(|x| x == right);
        let all = ranks.iter().all(|rank| rank.saw().into_iter().zip(right).all(sees));
        first += 1;
        if !all || first == streams {
            return (all, waits);
        }
    }
}

/// The scenario comes out right, and no longer if any wait is forgotten.
fn check(scenario: &dyn Fn(&Late) -> Vec<LateRank>, right: [f32; 2]) {
    let (all, waits) = is_right(scenario, right, None);
    assert!(all);
    let unnoticed: Vec<usize> = (0..waits.len()).filter(|&wait| is_right(scenario, right, Some(wait)).0).collect();
    assert!(unnoticed.is_empty(), "of {waits:?} nobody misses {unnoticed:?}");
}

#[test]
fn no_wait_of_an_exchange_can_be_left_out() {
    check(&|device| sums(device, false, 12), [7.0, 56.0]);
    check(&|device| sums(device, true, 12), [7.0, 56.0]);
}

#[test]
fn no_wait_of_a_message_can_be_left_out() {
    check(&|device| messages(device), [1.0, 2.0]);
}
