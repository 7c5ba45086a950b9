//! Tests of ragged all-to-alls against their definition, with random numbers of filled rows.

use super::engine_tests::{EngineMember, make};
use super::rank_tests::near_and_far;
use super::tests::axes;
use super::*;
use device::host::bytes_of;
use ir::mesh::Mesh;
use ir::ops::{Collective, Ragged};
use ir::types::{DType, Type};

/// Groups, experts, rows of a chunk and elements of a row; the dim that is sharded before, and the axes that move.
type Case = ([u64; 5], usize, &'static [usize], &'static [usize]);

const CASES: [Case; 6] = [
    ([4, 1, 4, 3, 5], 0, &[1], &[0]),
    ([7, 2, 6, 4, 2], 0, &[0, 1], &[]),
    ([5, 1, 3, 1, 1], 0, &[1], &[0]),
    ([3, 4, 2, 5, 3], 1, &[0], &[]),
    // Fewer chunks than ranks: some get or give nothing.
    ([2, 1, 6, 2, 4], 0, &[0, 1], &[]),
    ([1, 1, 6, 2, 4], 0, &[0, 1], &[]),
];

/// Kinds of routing: random, all to the first experts, none at all, all full, and numbers beyond the rows.
const KINDS: usize = 5;

/// The next number of a sequence that looks random.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    *state >> 33
}

fn numbers(kind: usize, sizes: [u64; 5], seed: u64) -> Vec<i32> {
    let ([groups, routings, experts, rows, _], mut state) = (sizes, seed);
    let number = |chunk: u64| match kind {
        0 => (next(&mut state) % (rows + 1)) as i32,
        1 => {
            if chunk.is_multiple_of(experts) {
                rows as i32
            } else {
                0
            }
        }
        2 => 0,
        3 => rows as i32,
        _ => (next(&mut state) % (3 * rows)) as i32 - rows as i32,
    };
    (0..groups * routings * experts).map(number).collect()
}

/// The tensor of rows, and that of their numbers.
fn types(dtype: DType, sizes: [u64; 5], dim: usize, over: &[usize]) -> [Type; 2] {
    let (mut rows, mut counts) = (Type::of(dtype, &sizes), Type::of(DType::I32, &sizes[..3]));
    [&mut rows, &mut counts].into_iter().for_each(|ty| ty.dims[dim].axes = axes(over));
    [rows, counts]
}

fn part<T: Copy + Default>(whole: &[T], ty: &Type, mesh: &Mesh, rank: usize) -> Vec<T> {
    let region = Region::of(ty, mesh, &mesh.coordinates(rank as u64));
    let mut part = vec![T::default(); region.len()];
    extract(whole, ty, &region, &mut part);
    part
}

/// Exchanges rows there and back, and returns the bytes that came to all ranks in each.
fn exchanged(mesh: &Mesh, (sizes, dim, over, kept): Case, dtype: DType, counts: &[i32]) -> [u64; 2] {
    let major: Vec<usize> = kept.iter().chain(over).copied().collect();
    let [rows, numbers] = types(dtype, sizes, dim, if dim == 0 { &major } else { over });
    let ragged = Some(Ragged { rows: 3, mean: 1 });
    let there = Collective::AllToAll { from: dim, to: 2, over: axes(over), ragged };
    let back = Collective::AllToAll { from: 2, to: dim, over: axes(over), ragged };
    let [moved, exchanged] = [&rows, &numbers].map(|ty| there.result_type(ty).unwrap());
    let chunk = (sizes[3] * sizes[4]) as usize;
    let is_filled = |i: usize| ((i % chunk / sizes[4] as usize) as i32) < counts[i / chunk];
    let whole: Vec<f32> = (0..rows.elements()).map(|i| (i % 200 + 1) as f32).collect();
    let filled: Vec<f32> = whole.iter().enumerate().map(|(i, &x)| if is_filled(i) { x } else { 0.0 }).collect();
    let [near, far] = near_and_far(mesh.devices() as usize, |number, rank| {
        rank.dtype = DType::I32;
        let [before, after] = [&numbers, &exchanged].map(|ty| {
            let own = part(counts, ty, mesh, number);
            let span = rank.room(own.len());
            device::backend::Memory::write(&mut rank.cpu, span, bytes_of(&own));
            span
        });
        rank.dtype = dtype;
        let source = rank.put(&part(&whole, &rows, mesh, number));
        let mut fit = |change: &Collective, types: [&Type; 3]| {
            rank.fit(&[dtype], &|rank| Exchange::plan(mesh, rank, change, &types).unwrap())
        };
        let [there, back] = [fit(&there, [&rows, &numbers, &exchanged]), fit(&back, [&moved, &exchanged, &numbers])];
        rank.ready();
        let mut turn =
            |(group, plan): &(Arc<group::GroupMember<HostMemory>>, FittedExchange), source: Span, counts: [Span; 2]| {
                let result = rank.put(&vec![f32::NAN; plan.exchange.tensors[0].len]);
                let mut request = rank.end.start(group, plan, &[source, counts[0], counts[1]], &[result]);
                rank.finish(group, plan, &mut request).unwrap();
                (result, request.filled_bytes().expect("the host knows"))
            };
        let (result, came) = turn(&there, source, [before, after]);
        let (home, returned) = turn(&back, result, [after, before]);
        assert_eq!(rank.get(result), part(&filled, &moved, mesh, number), "{sizes:?} on rank {number}");
        assert_eq!(rank.get(home), part(&filled, &rows, mesh, number), "{sizes:?} back on rank {number}");
        [came, returned]
    });
    assert_eq!(near, far);
    near.iter().fold([0; 2], |[there, back], [came, returned]| [there + came, back + returned])
}

/// Exchanges rows by an engine, which has no ranks of its own, and returns the bytes that came to all ranks.
fn exchanged_by_engine(mesh: &Mesh, (sizes, dim, over, kept): Case, counts: &[i32]) -> u64 {
    let major: Vec<usize> = kept.iter().chain(over).copied().collect();
    let [rows, numbers] = types(DType::F32, sizes, dim, if dim == 0 { &major } else { over });
    let change = Collective::AllToAll { from: dim, to: 2, over: axes(over), ragged: Some(Ragged { rows: 3, mean: 1 }) };
    let [moved, exchanged] = [&rows, &numbers].map(|ty| change.result_type(ty).unwrap());
    let chunk = (sizes[3] * sizes[4]) as usize;
    let is_filled = |i: usize| ((i % chunk / sizes[4] as usize) as i32) < counts[i / chunk];
    let whole: Vec<f32> = (0..rows.elements()).map(|i| (i + 1) as f32).collect();
    let filled: Vec<f32> = whole.iter().enumerate().map(|(i, &x)| if is_filled(i) { x } else { 0.0 }).collect();
    let of = |rank: usize| Exchange::plan(mesh, rank, &change, &[&rows, &numbers, &exchanged]).unwrap();
    let mut came = 0;
    for first in 0..mesh.devices() as usize {
        let ranks = of(first).ranks;
        if ranks[0] != first {
            continue;
        }
        let exchanges: Vec<Exchange> = ranks.iter().map(|&rank| of(rank)).collect();
        let member = |(place, &rank): (usize, &usize)| {
            let [gives, gets] = [&numbers, &exchanged].map(|ty| part(counts, ty, mesh, rank));
            EngineMember::new(place, &exchanges, vec![part(&whole, &rows, mesh, rank)]).filled([&gives, &gets])
        };
        let mut group: Vec<EngineMember> = ranks.iter().enumerate().map(member).collect();
        make(&mut group);
        for (member, &rank) in group.iter().zip(&ranks) {
            assert_eq!(member.results, [part(&filled, &moved, mesh, rank)], "{sizes:?} on rank {rank}");
            came += member.rows.bytes;
        }
    }
    came
}

#[test]
fn only_filled_rows_move_and_others_become_zeros() {
    let mesh = Mesh::new("m", &[("a", 2), ("b", 3)]);
    for (case, seed) in CASES.into_iter().zip(1..) {
        let sizes = case.0;
        for kind in 0..KINDS {
            let counts = numbers(kind, sizes, seed);
            let filled: u64 = counts.iter().map(|&count| (count.max(0) as u64).min(sizes[3])).sum();
            // Ranks along an axis that shards nothing have copies.
            let shards: Vec<usize> = case.2.iter().chain(case.3).copied().collect();
            let copies: u64 = (0..2).filter(|axis| !shards.contains(axis)).map(|axis| [2, 3][axis]).product();
            for dtype in [DType::F32, DType::BF16] {
                let want = copies * filled * sizes[4] * dtype.bytes();
                assert_eq!(exchanged(&mesh, case, dtype, &counts), [want; 2], "{sizes:?}, kind {kind}");
            }
            let want = copies * filled * sizes[4] * DType::F32.bytes();
            assert_eq!(exchanged_by_engine(&mesh, case, &counts), want, "{sizes:?}, kind {kind}");
        }
    }
}

#[test]
fn counts_must_be_those_of_the_chunks() {
    let mesh = Mesh::new("m", &[("a", 2), ("b", 3)]);
    let [rows, counts] = types(DType::F32, [6, 1, 6, 4, 2], 0, &[1]);
    let change =
        |rows| Collective::AllToAll { from: 0, to: 2, over: axes(&[1]), ragged: Some(Ragged { rows, mean: 2 }) };
    let after = change(3).result_type(&counts).unwrap();
    let plan = |change: &Collective, types: &[&Type]| Exchange::plan(&mesh, 0, change, types).map(drop);
    assert_eq!(plan(&change(3), &[&rows, &counts, &after]), Ok(()));
    let floats = Type { dtype: DType::F32, ..counts.clone() };
    let sharded = {
        let mut ty = rows.clone();
        ty.dims[3].axes = axes(&[0]);
        ty
    };
    for (change, types, why) in [
        (change(3), vec![&rows], "missing"),
        (change(3), vec![&counts, &after], "moves no tensor"),
        (change(3), vec![&rows, &after, &counts], "before"),
        (change(3), vec![&rows, &counts, &counts], "after"),
        (change(3), vec![&rows, &floats, &after], "before"),
        (change(3), vec![&sharded, &counts, &after], "must be replicated"),
        (change(2), vec![&rows, &counts, &after], "must be replicated"),
        (change(7), vec![&rows, &counts, &after], "no dim 7"),
    ] {
        let found = plan(&change, &types).unwrap_err();
        assert!(found.contains(why), "{found}, where {why} is wrong");
    }
}
