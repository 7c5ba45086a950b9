//! Carries ways out on threads, and compares what every rank gets with the definition: the logical tensor, cut by hand.

use ir::entity::EntityRef;
use ir::ids::AxisId;
use ir::mesh::{Axes, Mesh};
use ir::types::{PartialKind, Type};
use meshwright::runtime::backend::{Backend, Span};
use meshwright::runtime::backends::cpu::Cpu;
use meshwright::runtime::comm::threads::{Fabric, ThreadCommunicator};
use meshwright::runtime::comm::{Exchange, FittedExchange, HostMemory, Parking, ThreadRole, Transport};
use meshwright::runtime::host::{get, put};
use planner::reshard::ReshardStep;

/// A way: from, to, and the steps.
type Way = (Type, Type, Vec<ReshardStep>);

/// Bytes of a rank's arena: more than the tensors of one way.
const ARENA: usize = 1 << 16;

/// Runs all ways on one thread per rank and checks what they leave.
pub(crate) fn check(mesh: &Mesh, ways: &[Way]) {
    let ranks = mesh.devices() as usize;
    let fabric = Fabric::new(ranks, false);
    let joined = |rank| {
        let mut cpu = Cpu::new(1);
        cpu.reserve(ARENA).expect("some memory");
        let mut end = fabric.endpoint(rank, cpu.arena().clone(), HostMemory::default());
        end.expect(1, 1);
        (rank, cpu, end)
    };
    let ends: Vec<(usize, Cpu, ThreadCommunicator)> = (0..ranks).map(joined).collect();
    fabric.enter(ranks);
    let results: Vec<Vec<Vec<f32>>> = std::thread::scope(|scope| {
        let run = |(rank, mut cpu, mut end): (usize, Cpu, ThreadCommunicator)| {
            scope.spawn(move || {
                let results = ways.iter().map(|way| result(mesh, way, rank, &mut cpu, &mut end)).collect();
                end.leave();
                results
            })
        };
        let threads: Vec<_> = ends.into_iter().map(run).collect();
        threads.into_iter().map(|thread| thread.join().expect("no rank fails")).collect()
    });
    for (place, way) in ways.iter().enumerate() {
        for rank in 0..results.len() {
            let peers = mesh.peers(rank as u64, &way.1.partial_axes());
            let parts = peers.into_iter().map(|peer| results[peer as usize][place].as_slice());
            let got = combined(parts, way.1.partial.as_ref().map(|partial| partial.kind));
            let want = cut(mesh, &way.1, &logical(mesh, &way.0), rank);
            assert_eq!(got, want, "rank {rank} from {:?} to {:?} by {:?}", way.0, way.1, way.2);
        }
    }
}

/// Result of a reshard path on a rank. Each tensor of the path takes the next place of the arena.
fn result(mesh: &Mesh, (from, _, steps): &Way, rank: usize, cpu: &mut Cpu, end: &mut ThreadCommunicator) -> Vec<f32> {
    let data = cut(mesh, from, &partial(mesh, from, rank), rank);
    let mut tensor = Span::new(from.dtype, 0, data.len());
    put(cpu, tensor, &data);
    let mut ty = from;
    for step in steps {
        let plan = Exchange::plan(mesh, rank, &step.change, &[ty]).expect("a legal step");
        let next = tensor.offset + tensor.bytes().next_multiple_of(64);
        let made = Span::new(from.dtype, next, plan.tensors[0].len);
        let group = end.join(&plan.ranks, ThreadRole::Main).unwrap();
        let plan = FittedExchange::from(plan);
        let mut request = end.start(&group, &plan, &[tensor], &[made]);
        let waited = end.wait(&mut || {
            end.advance(&group, &plan, &mut request);
            (!request.is_complete()).then(|| end.wait_reason(&group, &plan, request.number()))
        });
        waited.expect("no rank fails");
        (tensor, ty) = (made, &step.ty);
    }
    get(cpu, tensor)
}

/// The tensor that a rank has a part of: it differs along the partial axes only. Whole numbers, so that sums are exact.
fn partial(mesh: &Mesh, ty: &Type, rank: usize) -> Vec<f32> {
    let share = mesh.index_along(&ty.partial_axes(), &mesh.coordinates(rank as u64));
    (0..ty.elements()).map(|i| ((i * 7919 + share * 104_729) % 1009) as f32).collect()
}

/// Value that the partial tensors represent.
fn logical(mesh: &Mesh, ty: &Type) -> Vec<f32> {
    let partials: Vec<Vec<f32>> =
        mesh.peers(0, &ty.partial_axes()).into_iter().map(|rank| partial(mesh, ty, rank as usize)).collect();
    combined(partials.iter().map(Vec::as_slice), ty.partial.as_ref().map(|partial| partial.kind))
}

fn combined<'a>(mut parts: impl Iterator<Item = &'a [f32]>, kind: Option<PartialKind>) -> Vec<f32> {
    let first = parts.next().expect("a rank is its own peer").to_vec();
    parts.fold(first, |mut all, part| {
        let add = |a: f32, b: f32| if kind == Some(PartialKind::Max) { a.max(b) } else { a + b };
        all.iter_mut().zip(part).for_each(|(a, &b)| *a = add(*a, b));
        all
    })
}

/// The elements of a matrix that a rank holds, in its order.
fn cut(mesh: &Mesh, ty: &Type, whole: &[f32], rank: usize) -> Vec<f32> {
    let own = |size: u64, axes: &Axes| own_indices(mesh, size, axes, rank);
    let [rows, columns] = [0, 1].map(|dim| own(ty.dims[dim].size, &ty.dims[dim].axes));
    let width = ty.dims[1].size as usize;
    let (columns, whole) = (&columns, &whole);
    let shard: Vec<f32> =
        rows.into_iter().flat_map(|row| columns.iter().map(move |column| whole[row * width + column])).collect();
    own(shard.len() as u64, &ty.storage).into_iter().map(|at| shard[at]).collect()
}

/// Nested ceilings: each axis in turn cuts what is left of the list into pieces of equal length but for the last.
fn own_indices(mesh: &Mesh, size: u64, axes: &Axes, rank: usize) -> Vec<usize> {
    let (mut own, mut bound): (Vec<usize>, usize) = ((0..size as usize).collect(), size as usize);
    let coordinates = mesh.coordinates(rank as u64);
    let place = |axis: AxisId| (coordinates[axis.index()] as usize, mesh.axes[axis].size as usize);
    for (coordinate, shards) in axes.iter().map(place) {
        bound = bound.div_ceil(shards);
        own = own.into_iter().skip(coordinate * bound).take(bound).collect();
    }
    own
}
