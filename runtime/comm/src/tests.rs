//! Tests of collectives between threads against their definition: a logical tensor, sharded by extents.

use super::engine_tests::{EngineMember, make};
use super::rank_tests::{near_and_far, on_ranks};
use super::*;
use ir::entity::EntityRef;
use ir::ids::AxisId;
use ir::mesh::{Axes, Mesh};
use ir::ops::Collective;
use ir::types::{DType, PartialKind, Type};

pub(super) fn axes(ids: &[usize]) -> Axes {
    ids.iter().map(|&id| AxisId::new(id)).collect()
}

/// A type from (size, axes) per dim, storage axes and a debt.
fn ty(dims: &[(u64, &[usize])], storage: &[usize], partial: Option<(PartialKind, &[usize])>) -> Type {
    let mut ty = Type::of(DType::F32, &dims.iter().map(|dim| dim.0).collect::<Vec<_>>());
    ty.dims.iter_mut().zip(dims).for_each(|(dim, given)| dim.axes = axes(given.1));
    ty.storage = axes(storage);
    partial.map_or(ty.clone(), |(kind, over)| ty.partial_over(kind, &axes(over)))
}

/// Term of a rank in a partial tensor: it differs along the partial axes only.
fn partial(ty: &Type, mesh: &Mesh, rank: usize) -> Vec<f32> {
    let share = mesh.index_along(&ty.partial_axes(), &mesh.coordinates(rank as u64));
    (0..ty.elements()).map(|i| ((i * 7 + share * 13) % 31) as f32).collect()
}

/// The definition: what was owed over `paid` is combined, and the rank's part is cut out.
fn expected(from: &Type, to: &Type, change: &Collective, mesh: &Mesh, rank: usize) -> Vec<f32> {
    let reduced = from.partial_axes().without(&to.partial_axes());
    let peers = mesh.peers(rank as u64, &reduced);
    let mut whole = partial(from, mesh, peers[0] as usize);
    for &peer in &peers[1..] {
        for (a, b) in whole.iter_mut().zip(partial(from, mesh, peer as usize)) {
            *a = if from.partial.as_ref().unwrap().kind == PartialKind::Sum { *a + b } else { a.max(b) };
        }
    }
    let coordinates = mesh.coordinates(rank as u64);
    match change {
        Collective::ToPartial { dim: None, over } if mesh.index_along(over, &coordinates) > 0 => whole.fill(0.0),
        Collective::ToPartial { dim: Some(_), .. } => {
            let own = Region::of(from, mesh, &coordinates);
            let mut part = vec![0.0; own.len()];
            extract(&whole, from, &own, &mut part);
            whole.fill(0.0);
            assemble(&part, from, &own, &mut whole);
        }
        _ => {}
    }
    if let Collective::Shift { dim, by, .. } = change {
        // Element `i` of the dim goes to `i + by`.
        let (sizes, at) = (from.sizes(), *dim);
        let stride: u64 = sizes[at + 1..].iter().product();
        let source = |i: u64| i - i / stride % sizes[at] * stride + (i / stride + sizes[at] - by) % sizes[at] * stride;
        whole = (0..from.elements()).map(|i| whole[source(i) as usize]).collect();
    }
    let region = Region::of(to, mesh, &coordinates);
    let mut part = vec![0.0; region.len()];
    extract(&whole, to, &region, &mut part);
    part
}

/// Every rank's results of a bucket of tensors equal the definition, twice over (the second time in used memory).
fn check(mesh: &Mesh, change: &Collective, operands: &[Type]) {
    [DType::F32, DType::BF16].into_iter().for_each(|dtype| check_in(dtype, mesh, change, operands));
    check_engine(mesh, change, operands);
}

/// The part of a rank of a partial tensor.
fn part(ty: &Type, mesh: &Mesh, rank: usize) -> Vec<f32> {
    let region = Region::of(ty, mesh, &mesh.coordinates(rank as u64));
    let mut part = vec![0.0; region.len()];
    extract(&partial(ty, mesh, rank), ty, &region, &mut part);
    part
}

/// Checks a collective with an engine; it has no ranks of its own, so each group is a list.
fn check_engine(mesh: &Mesh, change: &Collective, operands: &[Type]) {
    let types: Vec<&Type> = operands.iter().collect();
    let of = |rank: usize| Exchange::plan(mesh, rank, change, &types).unwrap();
    for first in 0..mesh.devices() as usize {
        let ranks = of(first).ranks;
        if ranks.len() == 1 || ranks[0] != first {
            continue;
        }
        let exchanges: Vec<Exchange> = ranks.iter().map(|&rank| of(rank)).collect();
        let sources = |rank: usize| types.iter().map(|ty| part(ty, mesh, rank)).collect();
        let member = |(place, &rank): (usize, &usize)| EngineMember::new(place, &exchanges, sources(rank));
        let mut group: Vec<EngineMember> = ranks.iter().enumerate().map(member).collect();
        make(&mut group);
        for (member, &rank) in group.iter().zip(&ranks) {
            for (ty, result) in types.iter().zip(&member.results) {
                let to = change.result_type(ty).unwrap();
                assert_eq!(*result, expected(ty, &to, change, mesh, rank), "{change:?} of an engine on rank {rank}");
            }
        }
    }
}

/// Compares results in a format, in which all numbers and sums of these tensors are exact.
fn check_in(dtype: DType, mesh: &Mesh, change: &Collective, operands: &[Type]) {
    let types: Vec<&Type> = operands.iter().collect();
    near_and_far(mesh.devices() as usize, |number, rank| {
        rank.dtype = dtype;
        let dtypes = vec![dtype; types.len()];
        let (group, plan) = rank.fit(&dtypes, &|rank| Exchange::plan(mesh, rank, change, &types).unwrap());
        rank.ready();
        let sources: Vec<Span> = types.iter().map(|ty| rank.put(&part(ty, mesh, number))).collect();
        let results: Vec<Span> = plan.exchange.tensors.iter().map(|tensor| rank.room(tensor.len)).collect();
        for _ in 0..2 {
            rank.exchange(&group, &plan, &sources, &results).unwrap();
            for (ty, &result) in types.iter().zip(&results) {
                let to = change.result_type(ty).unwrap();
                assert_eq!(rank.get(result), expected(ty, &to, change, mesh, number), "{change:?} on rank {number}");
            }
        }
    });
}

/// 256 and twice 1: added one by one in bf16, where neighbours of 256 are 2 apart, each 1 would be lost.
#[test]
fn narrow_sums_are_rounded_once() {
    let mesh = Mesh::new("m", &[("a", 3)]);
    let partial_sum = |size: u64| ty(&[(size, &[])], &[], Some((PartialKind::Sum, &[0])));
    let reduce = Collective::AllReduce { over: axes(&[0]) };
    let scatter = Collective::ReduceScatter { dim: Some(0), over: axes(&[0]) };
    for (change, size) in [(&reduce, 5), (&reduce, 9001), (&scatter, 6)] {
        near_and_far(3, |number, rank| {
            rank.dtype = DType::BF16;
            let of = |rank| Exchange::plan(&mesh, rank, change, &[&partial_sum(size)]).unwrap();
            let (group, plan) = rank.fit(&[DType::BF16], &of);
            rank.ready();
            let own = if number == 0 { 256.0 } else { 1.0 };
            let (source, result) = (rank.put(&vec![own; size as usize]), rank.room(plan.exchange.tensors[0].len));
            rank.exchange(&group, &plan, &[source], &[result]).unwrap();
            assert!(rank.get(result).iter().all(|&sum| sum == 258.0), "{change:?} of {size}");
        });
    }
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
                let shard = Collective::all_slice(Some(1), axes(over));
                check(&mesh, &gather, &[ty(&[(3, &[]), (size, &all), (2, &[])], &[], None)]);
                check(&mesh, &shard, &[ty(&[(3, &[]), (size, kept), (2, &[])], &[], None)]);
                let gather = Collective::AllGather { dim: None, over: axes(over) };
                let shard = Collective::all_slice(None, axes(over));
                check(&mesh, &gather, &[ty(&[(3, &[]), (size, &[])], &all, None)]);
                check(&mesh, &shard, &[ty(&[(3, &[]), (size, &[])], kept, None)]);
            }
        }
    }
}

#[test]
fn reductions_sum_what_is_partial() {
    for mesh in meshes() {
        let all: Vec<usize> = (0..mesh.axes.len()).collect();
        for kind in [PartialKind::Sum, PartialKind::Max] {
            for over in [&all[..], &all[..1], &all[all.len() - 1..]] {
                let unreduced = Some((kind, &all[..]));
                let reduce = Collective::AllReduce { over: axes(over) };
                check(&mesh, &reduce, &[ty(&[(3, &[]), (5, &[])], &[], unreduced), ty(&[], &[], unreduced)]);
                check(&mesh, &reduce, &[ty(&[(9001, &[])], &[], unreduced), ty(&[(2, &[])], &[], unreduced)]);
                for dim in [Some(1), None] {
                    let scatter = Collective::ReduceScatter { dim, over: axes(over) };
                    check(
                        &mesh,
                        &scatter,
                        &[ty(&[(3, &[]), (5, &[])], &[], unreduced), ty(&[(2, &[]), (4, &[])], &[], unreduced)],
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
            check(&mesh, &Collective::AllToAll { from, to, over: axes(over), ragged: None }, &[ty(&dims, &[], None)]);
        }
    }
}

#[test]
fn shards_go_round() {
    let mesh = Mesh::new("m", &[("a", 2), ("b", 3), ("c", 2)]);
    for (over, ranks) in [(&[1][..], 3), (&[0, 1], 6), (&[1, 0], 6), (&[2], 2)] {
        for by in 1..ranks {
            let change = Collective::Shift { dim: 1, by: 2 * by, over: axes(over) };
            let partial = Some((PartialKind::Sum, if over == [2] { &[0][..] } else { &[2] }));
            let wide = ty(&[(3, &[]), (2 * ranks, over), (5, &[])], &[], None);
            check(&mesh, &change, &[wide.clone(), ty(&[(1, &[]), (2 * ranks, over)], &[], None)]);
            assert_eq!(change.result_type(&wide), Ok(wide));
            let unreduced = ty(&[(3, &[]), (2 * ranks, over)], &[], partial);
            assert_eq!(change.result_type(&unreduced), Ok(unreduced.clone()));
            let plan = Exchange::plan(&mesh, 4, &change, &[&unreduced]).unwrap();
            assert_eq!((plan.tensors[0].moves.len(), plan.tensors[0].combine), (1, None));
        }
        let sharded = ty(&[(3, &[]), (2 * ranks, over)], &[], None);
        let refused = |dim, by, ty: &Type| {
            let change = Collective::Shift { dim, by, over: axes(over) };
            change.check_sizes(&mesh, ty).is_err() || change.result_type(ty).is_err()
        };
        assert!(refused(1, 1, &sharded) && refused(1, 2 * ranks, &sharded) && refused(1, 0, &sharded));
        assert!(refused(0, 1, &sharded) && refused(1, 2, &ty(&[(3, &[]), (2 * ranks + 1, over)], &[], None)));
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
    let unreduced = ty(&[(6, a), (3, none)], &[], Some((PartialKind::Sum, b)));
    check(&two, &Collective::permute(&unreduced, vec![axes(c), axes(none)]), &[unreduced]);
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
fn to_partial_leaves_the_value_on_one_rank() {
    for mesh in meshes() {
        check(&mesh, &Collective::ToPartial { dim: None, over: axes(&[0]) }, &[ty(&[(4, &[])], &[], None)]);
        check(&mesh, &Collective::ToPartial { dim: None, over: mesh.tensor_axes() }, &[ty(&[], &[], None)]);
    }
}

#[test]
fn a_part_of_a_dim_is_a_part_of_a_sum() {
    for mesh in meshes() {
        let all: Vec<usize> = (0..mesh.axes.len()).collect();
        for kept in 0..all.len() {
            let owe = Collective::ToPartial { dim: Some(1), over: axes(&all[kept..]) };
            for size in [1, 7, 12] {
                check(&mesh, &owe, &[ty(&[(3, &[]), (size, &all), (2, &[])], &[], None)]);
            }
        }
    }
}

#[test]
fn several_dims_are_sliced_at_once() {
    let mesh = Mesh::new("m", &[("a", 2), ("b", 3), ("c", 2)]);
    let slice = Collective::slice(vec![axes(&[2]), axes(&[]), axes(&[1])]);
    check(&mesh, &slice, &[ty(&[(7, &[0]), (2, &[]), (5, &[])], &[], None)]);
}

#[test]
fn blocks_go_to_other_shards_in_pieces() {
    let mesh = Mesh::new("m", &[("a", 4), ("b", 2), ("c", 3)]);
    for sizes in [[8, 8, 12], [5, 7, 6]] {
        for (before, after) in
            [([&[0][..], &[1], &[]], [&[1][..], &[0], &[]]), ([&[2, 1], &[], &[]], [&[1], &[], &[2]])]
        {
            let axes_of = |lists: [&[usize]; 3]| lists.map(axes).to_vec();
            let dims = [0, 1, 2].map(|dim| (sizes[dim], before[dim]));
            let from = ty(&dims, &[], None);
            check(&mesh, &Collective::permute(&from, axes_of(after)), &[from]);
        }
    }
}

#[test]
fn storage_stays_while_sums_are_paid_but_dims_may_not_change() {
    let mesh = Mesh::new("m", &[("a", 2), ("b", 2)]);
    let stored = ty(&[(5, &[]), (3, &[])], &[0], Some((PartialKind::Sum, &[1])));
    check(&mesh, &Collective::AllReduce { over: axes(&[1]) }, &[stored]);
    let stored = ty(&[(5, &[1])], &[0], None);
    let gather = Collective::AllGather { dim: Some(0), over: axes(&[1]) };
    assert!(Exchange::plan(&mesh, 0, &gather, &[&stored]).is_err());
}

#[test]
fn sums_in_place_need_no_second_tensor() {
    for (ranks, len) in [(2, 1), (3, 2), (3, 7), (4, 30_000)] {
        near_and_far(ranks, |number, rank| {
            let all: Vec<usize> = (0..ranks).collect();
            let (group, plan) = rank.fit(&[DType::F32], &|rank| Exchange::sum(all.clone(), rank, len));
            let (_, from_one) = rank.fit(&[DType::F32], &|rank| Exchange::broadcast(all.clone(), rank, 1, 1));
            rank.ready();
            let own: Vec<f32> = (0..len).map(|i| (i * 7 % 31 + number) as f32).collect();
            let (there, other) = (rank.put(&own), rank.room(len));
            rank.exchange(&group, &plan, &[there], &[other]).unwrap();
            assert_eq!(rank.get(there), own);
            rank.exchange(&group, &plan, &[there], &[there]).unwrap();
            let want: Vec<f32> = own.iter().map(|x| (x - number as f32) * ranks as f32).collect();
            let want: Vec<f32> = want.iter().map(|x| x + (ranks * (ranks - 1) / 2) as f32).collect();
            assert_eq!([rank.get(there), rank.get(other)], [want.clone(), want]);
            let given = rank.put(&[number as f32]);
            rank.exchange(&group, &from_one, &[given], &[given]).unwrap();
            assert_eq!(rank.get(given), [1.0]);
        });
    }
}

#[test]
fn several_exchanges_are_under_way_at_once() {
    near_and_far(3, |number, rank| {
        let (group, plan) = rank.fit(&[DType::F32], &|rank| Exchange::sum(vec![0, 1, 2], rank, 10));
        let (_, from_two) = rank.fit(&[DType::F32], &|rank| Exchange::broadcast(vec![0, 1, 2], rank, 2, 1));
        rank.ready();
        for step in 0..5 {
            // Of another kind, so that both use the same slots.
            let given = rank.put(&[(number + step) as f32]);
            rank.exchange(&group, &from_two, &[given], &[given]).unwrap();
            assert_eq!(rank.get(given), [(2 + step) as f32]);
            let own = [0, 1, 2].map(|n| vec![(step + n * number) as f32; 10]);
            let sources = own.each_ref().map(|data| rank.put(data));
            let results = sources.map(|span| rank.room(span.len));
            let mut requests = [0, 1, 2].map(|n| rank.end.start(&group, &plan, &[sources[n]], &[results[n]]));
            // Each rank ends them in another order.
            for n in [number, (number + 1) % 3, (number + 2) % 3] {
                let requests = &mut requests;
                rank.end
                    .wait(&mut || {
                        requests.iter_mut().for_each(|request| rank.end.advance(&group, &plan, request));
                        (!requests[n].is_complete()).then(|| rank.end.wait_reason(&group, &plan, requests[n].number()))
                    })
                    .unwrap();
                assert_eq!(rank.get(results[n]), vec![(3 * step + 3 * n) as f32; 10]);
            }
        }
    });
}

#[test]
fn who_comes_second_copies() {
    near_and_far(2, |number, rank| {
        for tag in [5, 6] {
            match number {
                0 => rank.end.channel_to(1, tag).unwrap(),
                _ => rank.end.channel_from(0, tag).unwrap(),
            };
        }
        match number {
            0 => rank.end.channel_from(1, 0).unwrap(),
            _ => rank.end.channel_to(0, 0).unwrap(),
        };
        rank.ready();
        for turn in 0..4 {
            if number == 0 {
                let (five, six) = (rank.end.channel_to(1, 5).unwrap(), rank.end.channel_to(1, 6).unwrap());
                let sent = [3.0, 4.0, 7.0].map(|x| rank.put(&[x + turn as f32]));
                let numbers = [(&five, sent[0]), (&five, sent[1]), (&six, sent[2])];
                let numbers = numbers.map(|(channel, span)| (channel, rank.end.start_message(channel, span).number));
                numbers.iter().for_each(|(channel, number)| rank.land(channel, *number).unwrap());
                let back = (rank.end.channel_from(1, 0).unwrap(), rank.room(0));
                let number = rank.end.start_message(&back.0, back.1).number;
                rank.land(&back.0, number).unwrap();
            } else {
                let (five, six) = (rank.end.channel_from(0, 5).unwrap(), rank.end.channel_from(0, 6).unwrap());
                let places = [0, 1, 2].map(|_| rank.room(1));
                // The other tag first; then both of the one, of which the second is posted before the first is there.
                for (channel, order) in [(&six, &[2][..]), (&five, &[0, 1])] {
                    let numbers: Vec<u64> =
                        order.iter().map(|&place| rank.end.start_message(channel, places[place]).number).collect();
                    numbers.iter().rev().for_each(|&number| rank.land(channel, number).unwrap());
                }
                assert_eq!(places.map(|place| rank.get(place)[0] - turn as f32), [3.0, 4.0, 7.0]);
                let back = (rank.end.channel_to(0, 0).unwrap(), rank.room(0));
                let number = rank.end.start_message(&back.0, back.1).number;
                rank.land(&back.0, number).unwrap();
            }
        }
    });
}

#[test]
fn a_rank_that_fails_stops_those_that_wait() {
    let [near, far] = near_and_far(4, |number, rank| {
        let three = if number < 3 {
            Some(rank.fit(&[DType::F32], &|rank| Exchange::sum(vec![0, 1, 2], rank, 10)))
        } else {
            rank.end.channel_from(2, 0).unwrap();
            None
        };
        if number == 2 {
            rank.end.channel_to(3, 0).unwrap();
        }
        rank.ready();
        match number {
            2 => {
                rank.end.fail("out of luck".to_string());
                rank.end.failure().unwrap()
            }
            3 => {
                let (channel, place) = (rank.end.channel_from(2, 0).unwrap(), rank.room(1));
                let number = rank.end.start_message(&channel, place).number;
                rank.land(&channel, number).unwrap_err()
            }
            _ => {
                let (group, plan) = three.unwrap();
                let (source, result) = (rank.put(&[0.0; 10]), rank.room(10));
                rank.exchange(&group, &plan, &[source], &[result]).unwrap_err()
            }
        }
    });
    assert!(near.iter().all(|failure| *failure == RankFailure::new(2, "out of luck")));
    let is_told = |failure: &RankFailure| failure.rank == 2 && failure.why.starts_with("out of luck (step 0, process ");
    assert!(far.iter().all(|failure| is_told(failure) && *failure == far[0]), "{far:?}");
}

#[test]
fn a_panic_while_others_read_does_no_harm() {
    let outcomes = on_ranks(3, |number, rank| {
        let group = rank.end.join(&[0, 1, 2], ThreadRole::Main).unwrap();
        let mut plan = Exchange::sum(vec![0, 1, 2], number, 50_000);
        if number == 1 {
            plan.tensors[0].moves[0].from = 1 << 40;
        }
        let plan = FittedExchange::from(plan);
        let (source, result) = (rank.put(&[0.0; 50_000]), rank.room(50_000));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            rank.exchange(&group, &plan, &[source], &[result])
        }));
        match outcome {
            Ok(failure) => failure.unwrap_err().rank,
            Err(_) => {
                rank.end.fail("panicked".to_string());
                number
            }
        }
    });
    assert_eq!(outcomes, [1, 1, 1]);
}

#[test]
fn when_all_wait_all_are_told_at_once() {
    let outcomes = on_ranks(4, |number, rank| {
        let group = rank.end.join(&[1, 2, 3], ThreadRole::Main).unwrap();
        let plan = FittedExchange::from(Exchange::sum(vec![1, 2, 3], number.saturating_sub(1), 1));
        let place = rank.put(&[1.0]);
        match number {
            // Ends without what the others wait for.
            0 => Ok(()),
            1 => {
                let channel = rank.end.channel_from(0, 7).unwrap();
                let number = rank.end.start_message(&channel, place).number;
                rank.land(&channel, number)
            }
            _ => rank.exchange(&group, &plan, &[place], &[place]),
        }
    });
    let (first, others) = outcomes.split_first().unwrap();
    assert_eq!(*first, Ok(()));
    let why = "all wait for each other: rank 1 waits for rank 0 to send tag 7; rank 2 waits for ranks 1, 3 in a \
               collective (exchange 0); rank 3 waits for ranks 1, 2 in a collective (exchange 0)";
    assert!(others.iter().all(|told| *told == Err(RankFailure::new(1, why))), "{others:?}");
}
