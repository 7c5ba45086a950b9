//! Collectives between threads against their definition: a logical tensor, cut by extents.

use super::threads::{Fabric, Threads};
use super::*;
use crate::tensor::Pool;
use ir::entity::EntityRef;
use ir::ids::AxisId;
use ir::mesh::{Axes, Mesh};
use ir::ops::Collective;
use ir::types::{DType, DebtKind, Type};

/// Runs `f` on a thread for each rank and gives what they gave.
fn on_ranks<R: Send>(ranks: usize, f: impl Fn(usize, &mut Threads) -> R + Sync) -> Vec<R> {
    let ends = Fabric::join(ranks);
    std::thread::scope(|scope| {
        let f = &f;
        let start = |(rank, mut end): (usize, Threads)| scope.spawn(move || f(rank, &mut end));
        let threads: Vec<_> = ends.into_iter().enumerate().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

fn axes(ids: &[usize]) -> Axes {
    ids.iter().map(|&id| AxisId::new(id)).collect()
}

/// A type from (size, axes) per dim, storage axes and a debt.
fn ty(dims: &[(u64, &[usize])], storage: &[usize], debt: Option<(DebtKind, &[usize])>) -> Type {
    let mut ty = Type::of(DType::F32, &dims.iter().map(|dim| dim.0).collect::<Vec<_>>());
    ty.dims.iter_mut().zip(dims).for_each(|(dim, given)| dim.axes = axes(given.1));
    ty.storage = axes(storage);
    debt.map_or(ty.clone(), |(kind, over)| ty.owing(kind, &axes(over)))
}

/// What a rank contributes to a tensor: different along the axes of the debt only.
fn partial(ty: &Type, mesh: &Mesh, rank: usize) -> Vec<f32> {
    let share = mesh.index_along(&ty.debt_axes(), &mesh.coordinates(rank as u64));
    (0..ty.elements()).map(|i| ((i * 7 + share * 13) % 31) as f32).collect()
}

/// The definition: what was owed over `paid` is combined, and the rank's part is cut out.
fn expected(from: &Type, to: &Type, change: &Collective, mesh: &Mesh, rank: usize) -> Vec<f32> {
    let paid = from.debt_axes().without(&to.debt_axes());
    let peers = mesh.peers(rank as u64, &paid);
    let mut whole = partial(from, mesh, peers[0] as usize);
    for &peer in &peers[1..] {
        for (a, b) in whole.iter_mut().zip(partial(from, mesh, peer as usize)) {
            *a = if from.debt.as_ref().unwrap().kind == DebtKind::Sum { *a + b } else { a.max(b) };
        }
    }
    let coordinates = mesh.coordinates(rank as u64);
    if let Collective::Owe { over } = change
        && mesh.index_along(over, &coordinates) > 0
    {
        whole.fill(0.0);
    }
    let region = Region::of(to, mesh, &coordinates);
    let mut part = vec![0.0; region.len()];
    cut(&whole, to, &region, &mut part);
    part
}

/// Every rank's results of a bucket of tensors equal the definition, twice over (the second time in used memory).
fn check(mesh: &Mesh, change: &Collective, operands: &[Type]) {
    let types: Vec<&Type> = operands.iter().collect();
    on_ranks(mesh.devices() as usize, |rank, end| {
        let plan = Exchange::plan(mesh, rank, change, &types).unwrap();
        let (group, pool) = (end.join(&plan.ranks), Pool::new());
        let coordinates = mesh.coordinates(rank as u64);
        for _ in 0..2 {
            let source = |ty: &&Type| {
                let region = Region::of(ty, mesh, &coordinates);
                let mut part = vec![0.0; region.len()];
                cut(&partial(ty, mesh, rank), ty, &region, &mut part);
                pool.floats(&part)
            };
            let sources: Vec<Tensor> = types.iter().map(source).collect();
            let mut results: Vec<Tensor> = plan.tensors.iter().map(|tensor| pool.alloc(tensor.len)).collect();
            end.exchange(group, &plan, &sources, &mut results).unwrap();
            for (ty, result) in types.iter().zip(&results) {
                let to = change.result_type(ty).unwrap();
                assert_eq!(result.floats(), expected(ty, &to, change, mesh, rank), "{change:?} on rank {rank}");
            }
        }
    });
}

fn meshes() -> Vec<Mesh> {
    [&[("a", 3)][..], &[("a", 2), ("b", 3)], &[("a", 2), ("b", 2), ("c", 2)]].map(|axes| Mesh::new("m", axes)).into()
}

#[test]
fn gathers_and_shards_undo_each_other() {
    for mesh in meshes() {
        let all: Vec<usize> = (0..mesh.axes.len()).collect();
        for kept in 0..all.len() {
            for size in [1, 2, 7, 12] {
                let (kept, over) = all.split_at(kept);
                let gather = Collective::AllGather { dim: Some(1), over: axes(over) };
                let shard = Collective::Shard { dim: Some(1), over: axes(over) };
                check(&mesh, &gather, &[ty(&[(3, &[]), (size, &all), (2, &[])], &[], None)]);
                check(&mesh, &shard, &[ty(&[(3, &[]), (size, kept), (2, &[])], &[], None)]);
                let gather = Collective::AllGather { dim: None, over: axes(over) };
                let shard = Collective::Shard { dim: None, over: axes(over) };
                check(&mesh, &gather, &[ty(&[(3, &[]), (size, &[])], &all, None)]);
                check(&mesh, &shard, &[ty(&[(3, &[]), (size, &[])], kept, None)]);
            }
        }
    }
}

#[test]
fn reductions_pay_what_is_owed() {
    for mesh in meshes() {
        let all: Vec<usize> = (0..mesh.axes.len()).collect();
        for kind in [DebtKind::Sum, DebtKind::Max] {
            for over in [&all[..], &all[..1], &all[all.len() - 1..]] {
                let owed = Some((kind, &all[..]));
                let reduce = Collective::AllReduce { over: axes(over) };
                check(&mesh, &reduce, &[ty(&[(3, &[]), (5, &[])], &[], owed), ty(&[], &[], owed)]);
                check(&mesh, &reduce, &[ty(&[(9001, &[])], &[], owed), ty(&[(2, &[])], &[], owed)]);
                for dim in [Some(1), None] {
                    let scatter = Collective::ReduceScatter { dim, over: axes(over) };
                    check(
                        &mesh,
                        &scatter,
                        &[ty(&[(3, &[]), (5, &[])], &[], owed), ty(&[(2, &[]), (4, &[])], &[], owed)],
                    );
                }
            }
        }
    }
}

#[test]
fn axes_move_between_dims() {
    let mesh = Mesh::new("m", &[("a", 2), ("b", 3)]);
    for (from, to) in [(0, 1), (1, 0), (0, 2)] {
        for over in [&[1][..], &[0, 1]] {
            let kept: &[usize] = if over.len() == 1 { &[0] } else { &[] };
            let mut dims = [(7, &[][..]), (4, &[]), (5, &[])];
            let sharded = [kept, over].concat();
            dims[from].1 = &sharded;
            check(&mesh, &Collective::AllToAll { from, to, over: axes(over) }, &[ty(&dims, &[], None)]);
        }
    }
}

#[test]
fn blocks_change_hands() {
    let two = Mesh::new("m", &[("a", 2), ("b", 3), ("c", 2)]);
    let (a, b, c, ab, ba, cb, none) = (&[0][..], &[1][..], &[2][..], &[0, 1][..], &[1, 0][..], &[2, 1][..], &[][..]);
    let acb = &[0, 2, 1][..];
    for (before, after) in [
        ([a, none], [c, none]),
        ([a, b], [c, b]),
        ([a, c], [c, a]),
        ([ab, none], [ba, none]),
        ([ab, c], [ba, c]),
        ([ab, c], [cb, a]),
        ([&[0, 1, 2], none], [acb, none]),
    ] {
        // Even, and uneven: there a block comes in pieces.
        for sizes in [[12, 4], [7, 3], [13, 5]] {
            let from = ty(&[(sizes[0], before[0]), (3, none), (sizes[1], before[1])], &[], None);
            let change = Collective::permute(&from, vec![axes(after[0]), axes(none), axes(after[1])]);
            check(&two, &change, &[from]);
        }
    }
    let owing = ty(&[(6, a), (3, none)], &[], Some((DebtKind::Sum, b)));
    check(&two, &Collective::permute(&owing, vec![axes(c), axes(none)]), &[owing]);
}

#[test]
fn a_permute_gives_whole_even_blocks_once() {
    let mesh = Mesh::new("m", &[("a", 2), ("b", 2), ("c", 2)]);
    let from = ty(&[(8, &[0])], &[], None);
    let change = Collective::permute(&from, vec![axes(&[1])]);
    let mut given = vec![0; 8];
    for rank in 0..8 {
        let plan = Exchange::plan(&mesh, rank, &change, &[&from]).unwrap();
        assert_eq!(plan.ranks.len(), 4);
        let [only] = plan.tensors[0].moves.as_slice() else { panic!("{:?}", plan.tensors[0].moves) };
        given[plan.ranks[only.peer]] += 1;
    }
    assert_eq!(given, [1; 8]);
    let more = Collective::permute(&from, vec![axes(&[1, 2])]);
    assert!(Exchange::plan(&mesh, 0, &more, &[&from]).unwrap_err().contains("shards"));
}

#[test]
fn owing_leaves_the_value_on_one_rank() {
    for mesh in meshes() {
        check(&mesh, &Collective::Owe { over: axes(&[0]) }, &[ty(&[(4, &[])], &[], None)]);
        check(&mesh, &Collective::Owe { over: mesh.tensor_axes() }, &[ty(&[], &[], None)]);
    }
}

#[test]
fn storage_stays_while_sums_are_paid_but_dims_may_not_change() {
    let mesh = Mesh::new("m", &[("a", 2), ("b", 2)]);
    let stored = ty(&[(5, &[]), (3, &[])], &[0], Some((DebtKind::Sum, &[1])));
    check(&mesh, &Collective::AllReduce { over: axes(&[1]) }, &[stored]);
    let stored = ty(&[(5, &[1])], &[0], None);
    let gather = Collective::AllGather { dim: Some(0), over: axes(&[1]) };
    assert!(Exchange::plan(&mesh, 0, &gather, &[&stored]).is_err());
}

#[test]
fn tensors_change_hands_in_order() {
    let got = on_ranks(2, |rank, end| {
        let pool = Pool::new();
        if rank == 0 {
            let sent = [3.0, 4.0].map(|x| pool.floats(&[x]));
            let places = sent.each_ref().map(|tensor| tensor.floats().as_ptr() as usize);
            sent.into_iter().for_each(|tensor| end.send(1, 5, tensor));
            end.send(1, 6, pool.floats(&[7.0]));
            end.recv(1, 0).unwrap();
            return places.to_vec();
        }
        assert_eq!(end.recv(0, 6).unwrap().floats(), [7.0]);
        let got = [end.recv(0, 5).unwrap(), end.recv(0, 5).unwrap()];
        assert_eq!([got[0].floats()[0], got[1].floats()[0]], [3.0, 4.0]);
        end.send(0, 0, Tensor::EMPTY);
        got.iter().map(|tensor| tensor.floats().as_ptr() as usize).collect()
    });
    assert_eq!(got[0], got[1]);
}

#[test]
fn a_rank_that_fails_stops_those_that_wait() {
    let outcomes = on_ranks(4, |rank, end| {
        let pool = Pool::new();
        let group = end.join(&[0, 1, 2]);
        match rank {
            2 => {
                end.fail("out of luck".to_string());
                end.failure().unwrap()
            }
            3 => end.recv(2, 0).err().unwrap(),
            _ => {
                let plan = Exchange::sum(vec![0, 1, 2], rank, 10);
                end.exchange(group, &plan, &[pool.zeros(10)], &mut [pool.alloc(10)]).unwrap_err()
            }
        }
    });
    assert!(outcomes.iter().all(|stopped| *stopped == Stopped { rank: 2, why: "out of luck".to_string() }));
}

#[test]
fn a_panic_while_others_read_does_no_harm() {
    let outcomes = on_ranks(3, |rank, end| {
        let pool = Pool::new();
        let group = end.join(&[0, 1, 2]);
        let mut plan = Exchange::sum(vec![0, 1, 2], rank, 50_000);
        if rank == 1 {
            plan.tensors[0].moves[1].from = 1 << 40;
        }
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            end.exchange(group, &plan, &[pool.zeros(50_000)], &mut [pool.alloc(50_000)])
        }));
        match outcome {
            Ok(stopped) => stopped.unwrap_err().rank,
            Err(_) => {
                end.fail("panicked".to_string());
                rank
            }
        }
    });
    assert_eq!(outcomes, [1, 1, 1]);
}
