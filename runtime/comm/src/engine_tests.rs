//! Exchanges as calls of an engine: a model of one, on the host, gives each rank what the definition gives.

use super::exchange::Exchange;
use super::*;
use ir::types::{DType, PartialKind};
use kernels::cpu::shape::{View, copy_strided};

/// A member with its tensors and staging memory, all of f32.
pub(super) struct EngineMember {
    plan: EngineExchange,
    sources: Vec<Vec<f32>>,
    pub(super) results: Vec<Vec<f32>>,
    staging: Vec<f32>,
    /// The moves of rows, if rows move.
    pub(super) rows: RowMoves,
}

impl EngineMember {
    /// The member at a place; memory that nobody has written has no numbers.
    pub(super) fn new(place: usize, exchanges: &[Exchange], sources: Vec<Vec<f32>>) -> EngineMember {
        let dtypes = vec![DType::F32; exchanges[place].tensors.len()];
        let ranks = &exchanges[place].ranks;
        let plan = EngineExchange::of(place, ranks, &dtypes, &mut |member| Ok(exchanges[member].clone())).unwrap();
        let results = exchanges[place].tensors.iter().map(|tensor| vec![f32::NAN; tensor.len]).collect();
        let staging = vec![f32::NAN; plan.bytes / 4];
        EngineMember { plan, sources, results, staging, rows: RowMoves::default() }
    }

    /// A copy with the numbers of filled rows of the chunks that it gives and gets.
    pub(super) fn filled(mut self, counts: [&[i32]; 2]) -> EngineMember {
        let moves = self.plan.rows.as_ref().expect("rows move").moves(counts);
        self.results.iter_mut().for_each(|result| result.fill(0.0));
        self.plan.calls.clone_from(&moves.calls);
        EngineMember { rows: moves, ..self }
    }

    fn copy(&mut self, copies: &[RowCopy]) {
        for copy in copies {
            let data = self.buffer(copy.from)[..copy.bytes / 4].to_vec();
            self.buffer(copy.to)[..data.len()].copy_from_slice(&data);
        }
    }

    fn buffer(&mut self, place: CallPlace) -> &mut [f32] {
        match place {
            CallPlace::Source(tensor, at) => &mut self.sources[tensor][at..],
            CallPlace::Result(tensor, at) => &mut self.results[tensor][at..],
            CallPlace::Staging(byte) => &mut self.staging[byte / 4..],
        }
    }

    fn begin(&mut self) {
        let copies = std::mem::take(&mut self.rows.packs);
        self.copy(&copies);
        let EngineMember { plan, sources, results, staging, .. } = self;
        plan.packs
            .iter()
            .for_each(|staged| place(&staged.block, &sources[staged.tensor], &mut staging[staged.at / 4..]));
        plan.own.iter().for_each(|(tensor, block)| place(block, &sources[*tensor], &mut results[*tensor]));
    }

    fn end(&mut self) {
        let copies = std::mem::take(&mut self.rows.unpacks);
        self.copy(&copies);
        let EngineMember { plan, results, staging, .. } = self;
        plan.unpacks
            .iter()
            .for_each(|staged| place(&staged.block, &staging[staged.at / 4..], &mut results[staged.tensor]));
    }

    fn is_message(call: &EngineCall) -> bool {
        matches!(call, EngineCall::Send { .. } | EngineCall::Receive { .. })
    }
}

fn place(block: &Move, from: &[f32], to: &mut [f32]) {
    let (source, target) = (
        View { offset: block.from, strides: &block.from_strides },
        View { offset: block.to, strides: &block.to_strides },
    );
    copy_strided(from, source, to, target, &block.sizes);
}

/// Makes the exchange of a group.
pub(super) fn make(group: &mut [EngineMember]) {
    group.iter_mut().for_each(EngineMember::begin);
    let calls: Vec<Vec<EngineCall>> = group.iter().map(|member| member.plan.calls.clone()).collect();
    let of = |messages: bool| {
        let is_one = move |call: &&EngineCall| EngineMember::is_message(call) == messages;
        calls.iter().map(|calls| calls.iter().filter(is_one).cloned().collect()).collect::<Vec<Vec<EngineCall>>>()
    };
    let collectives = of(false);
    assert!(collectives.iter().all(|calls| calls.len() == collectives[0].len()), "{collectives:?}");
    for at in 0..collectives[0].len() {
        collective(group, &mut collectives.iter().map(|calls| calls[at]).collect::<Vec<_>>());
    }
    messages(group, &of(true));
    group.iter_mut().for_each(EngineMember::end);
}

/// The buffers of a collective, from which and to which.
fn ends(call: &mut EngineCall) -> [&mut CallPlace; 2] {
    match call {
        EngineCall::AllReduce { from, to, .. }
        | EngineCall::ReduceScatter { from, to, .. }
        | EngineCall::AllGather { from, to, .. }
        | EngineCall::Broadcast { from, to, .. } => [from, to],
        call => panic!("{call:?}"),
    }
}

/// Makes a collective, on which all members agree but for their buffers. Sums begin with the last member: an engine has any order.
fn collective(group: &mut [EngineMember], calls: &mut [EngineCall]) {
    let places: Vec<[CallPlace; 2]> = calls.iter_mut().map(|call| ends(call).map(|place| *place)).collect();
    for call in calls.iter_mut() {
        ends(call).into_iter().for_each(|place| *place = CallPlace::Staging(0));
    }
    assert!(calls.iter().all(|call| *call == calls[0]), "{calls:?}");
    let mut give = |len: usize| -> Vec<Vec<f32>> {
        group.iter_mut().zip(&places).map(|(member, [from, _])| member.buffer(*from)[..len].to_vec()).collect()
    };
    let members = places.len();
    let sums = |kind: PartialKind, all: &[Vec<f32>]| -> Vec<f32> {
        let combine = |a: f32, b: f32| if kind == PartialKind::Sum { a + b } else { a.max(b) };
        (0..all[0].len()).map(|at| all.iter().rev().map(|one| one[at]).reduce(combine).unwrap()).collect()
    };
    let made: Vec<Vec<f32>> = match calls[0] {
        EngineCall::AllReduce { len, kind, .. } => vec![sums(kind, &give(len)); members],
        EngineCall::ReduceScatter { len, kind, .. } => {
            sums(kind, &give(members * len)).chunks(len).map(<[f32]>::to_vec).collect()
        }
        EngineCall::AllGather { bytes, .. } => vec![give(bytes / 4).concat(); members],
        EngineCall::Broadcast { root, bytes, .. } => vec![give(bytes / 4)[root].clone(); members],
        EngineCall::Send { .. } | EngineCall::Receive { .. } => Vec::new(),
    };
    for ((member, [_, to]), data) in group.iter_mut().zip(&places).zip(made) {
        member.buffer(*to)[..data.len()].copy_from_slice(&data);
    }
}

fn messages(group: &mut [EngineMember], calls: &[Vec<EngineCall>]) {
    let mut sent: Vec<(usize, usize, Vec<f32>)> = Vec::new();
    for (member, calls) in calls.iter().enumerate() {
        for call in calls {
            if let EngineCall::Send { to, from, bytes } = call {
                sent.push((member, *to, group[member].buffer(*from)[..bytes / 4].to_vec()));
            }
        }
    }
    for (member, calls) in calls.iter().enumerate() {
        for call in calls {
            if let EngineCall::Receive { from, to, bytes } = call {
                let at =
                    sent.iter().position(|(by, whom, _)| (*by, *whom) == (*from, member)).expect("somebody sends it");
                let (_, _, data) = sent.remove(at);
                assert_eq!(data.len(), bytes / 4);
                group[member].buffer(*to)[..data.len()].copy_from_slice(&data);
            }
        }
    }
    assert!(sent.is_empty(), "nobody receives {sent:?}");
}

/// The calls of all members of a group of `ranks` ranks.
fn calls_of(exchanges: &[Exchange]) -> Vec<Vec<EngineCall>> {
    let none = |place: usize| exchanges[place].tensors.iter().map(|_| Vec::new()).collect();
    (0..exchanges.len()).map(|place| EngineMember::new(place, exchanges, none(place)).plan.calls).collect()
}

#[test]
fn what_an_engine_takes_as_it_is_is_not_packed() {
    use super::tests::axes;
    use ir::mesh::Mesh;
    use ir::ops::Collective;
    use ir::types::Type;
    let mesh = Mesh::new("m", &[("a", 2)]);
    let over = || axes(&[0]);
    let ty = |sizes: &[u64], sharded: Option<usize>, partial: bool| {
        let mut ty = Type::of(DType::F32, sizes);
        sharded.into_iter().for_each(|dim| ty.dims[dim].axes = over());
        if partial { ty.partial_over(PartialKind::Sum, &over()) } else { ty }
    };
    let first = |change: Collective, types: &[Type]| {
        let types: Vec<&Type> = types.iter().collect();
        let of = |rank| Exchange::plan(&mesh, rank, &change, &types).unwrap();
        let calls = calls_of(&[of(0), of(1)]);
        (calls[0].len(), calls[0][0])
    };
    let (source, result, staging) = (CallPlace::Source(0, 0), CallPlace::Result(0, 0), CallPlace::Staging(0));
    let sum = |from, to, len| EngineCall::AllReduce { from, to, len, dtype: DType::F32, kind: PartialKind::Sum };
    let reduce = || Collective::AllReduce { over: over() };
    assert_eq!(first(reduce(), &[ty(&[4, 3], None, true)]), (1, sum(source, result, 12)));
    // Two tensors share a call, each from an even place on.
    let two = [ty(&[3], None, true), ty(&[5], None, true)];
    assert_eq!(first(reduce(), &two), (1, sum(staging, staging, 12)));
    let gather = |dim| Collective::AllGather { dim: Some(dim), over: over() };
    let gathered = |from, to, bytes| EngineCall::AllGather { from, to, bytes };
    assert_eq!(first(gather(0), &[ty(&[4, 3], Some(0), false)]), (1, gathered(source, result, 24)));
    let packed = gathered(staging, CallPlace::Staging(48), 48);
    assert_eq!(first(gather(0), &[ty(&[5, 3], Some(0), false)]), (1, gathered(staging, CallPlace::Staging(48), 48)));
    assert_eq!(first(gather(1), &[ty(&[3, 6], Some(1), false)]), (1, packed));
    let scattered =
        |from, to, len| EngineCall::ReduceScatter { from, to, len, dtype: DType::F32, kind: PartialKind::Sum };
    let scatter = |dim| Collective::ReduceScatter { dim: Some(dim), over: over() };
    assert_eq!(first(scatter(0), &[ty(&[4, 3], None, true)]), (1, scattered(source, result, 6)));
    assert_eq!(first(scatter(1), &[ty(&[2, 4], None, true)]), (1, scattered(staging, CallPlace::Staging(32), 4)));
    let shift = Collective::Shift { dim: 0, by: 2, over: over() };
    let sent = EngineCall::Send { to: 1, from: source, bytes: 24 };
    assert_eq!(first(shift, &[ty(&[4, 3], Some(0), false)]), (2, sent));
    let copied = |me| Exchange::broadcast(vec![4, 7], me, 1, 9);
    let calls = calls_of(&[copied(0), copied(1)]);
    assert_eq!(calls[0], [EngineCall::Broadcast { root: 1, from: source, to: result, bytes: 36 }]);
    assert_eq!(calls[0], calls[1]);
}
