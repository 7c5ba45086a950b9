//! Reshards between all pairs of shardings of a matrix: the planner's path gives every rank the part of the definition, and
//! takes no longer than the best of all sequences of collectives.
//!
//! The mesh of three axes is tested on a sample of the pairs; `cargo test --test programs reshard -- --ignored` takes them all.

mod execute;
mod sequences;
mod shardings;
mod shardy;

use cost::{CPU, Cluster, Link, PROGRAM, Platform};
use ir::mesh::{Axes, Mesh};
use ir::types::{DType, Dim, DimName, Dims, PartialKind, Type};
use planner::reshard::{NoPath, ReshardStep, Site, cheapest, naive};
use sequences::Sequences;
use shardings::shardings;
use std::sync::LazyLock;

/// Here bytes decide, on the processor's own cluster the number of messages does; pairs of neighbours are joined better.
static SLOW: LazyLock<Cluster> = LazyLock::new(|| Cluster {
    name: "slow".into(),
    links: vec![Link { joins: 2, ..Link::plain(1e6, 1e-6) }, Link::plain(1e5, 2e-6)],
    ..CPU.clone()
});

const SIZES: [[u64; 2]; 3] = [[16, 16], [5, 7], [3, 10]];

fn mesh(sizes: &[u64]) -> Mesh {
    let axes: Vec<(&str, u64)> = ["x", "y", "z"].into_iter().zip(sizes.iter().copied()).collect();
    Mesh::new("m", &axes)
}

/// Every `stride`-th pair of shardings.
fn pairs(shardings: &[Type], stride: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..shardings.len() * shardings.len()).step_by(stride).map(|pair| (pair / shardings.len(), pair % shardings.len()))
}

/// Checks pairs of shardings on a mesh: the costs against all sequences on both clusters, and what the ranks get.
fn check(sizes: &[u64], kinds: &[PartialKind], stride: usize) {
    let (mesh, dims) = (mesh(sizes), Dims::default());
    for shape in SIZES {
        let shardings = shardings(&mesh, &shape, kinds);
        for cluster in [&*CPU, &*SLOW] {
            let platform = Platform::of_program(cluster);
            let site = Site::new(&mesh, &dims, &platform);
            let sequences = Sequences::new(&site, &shardings);
            let mut ways = Vec::new();
            for (from, to) in pairs(&shardings, stride) {
                let way = cheapest(&site, &shardings[from], &shardings[to], &mesh.tensor_axes());
                same_cost(
                    &way,
                    sequences.best(from, to, &shardings[to].partial_axes()),
                    (&shardings[from], &shardings[to]),
                );
                ways.extend(way.map(|steps| (shardings[from].clone(), shardings[to].clone(), steps)));
            }
            execute::check(&mesh, &ways);
        }
    }
}

fn same_cost(way: &Result<Vec<ReshardStep>, NoPath>, best: f64, (from, to): (&Type, &Type)) {
    let cost = way.as_ref().map_or(f64::INFINITY, |steps| steps.iter().map(ReshardStep::weight).sum());
    // Ways that differ by less than some picoseconds are equal.
    let equal = cost == best || (cost - best).abs() <= 1e-6 * best + 5e-12;
    assert!(equal, "{cost} instead of {best} from {from:?} to {to:?}: {way:?}");
}

#[test]
fn one_axis() {
    check(&[2], &[PartialKind::Sum, PartialKind::Max], 1);
}

#[test]
fn two_equal_axes() {
    check(&[2, 2], &[PartialKind::Sum, PartialKind::Max], 1);
}

#[test]
fn two_axes() {
    check(&[2, 4], &[PartialKind::Sum], 1);
}

#[test]
fn three_axes() {
    check(&[2, 2, 2], &[PartialKind::Sum], 61);
}

#[test]
#[ignore = "takes minutes"]
fn three_axes_in_full() {
    check(&[2, 2, 2], &[PartialKind::Sum], 1);
}

/// On more axes a search takes seconds.
const FEW_AXES: usize = 5;

fn bytes(steps: &[ReshardStep]) -> f64 {
    steps.iter().map(|step| step.bytes).sum()
}

/// At sizes where bandwidth decides, with axes that are not used on the way or without them.
#[test]
fn shardy_never_sends_less() {
    let dims = Dims::default();
    for merged in [false, true] {
        for (case, [from, to], mesh) in shardy::cases(24, merged) {
            let site = Site::new(&mesh, &dims, &PROGRAM);
            let spare = (mesh.axes.len() <= FEW_AXES).then(|| mesh.tensor_axes());
            for spare in [Axes::none()].into_iter().chain(spare) {
                let steps = cheapest(&site, &from, &to, &spare).expect("sums can always be owed");
                let (ours, theirs) = (bytes(&steps), case.bytes());
                assert!(ours <= theirs * (1.0 + 1e-9), "{}: {ours} bytes, not {theirs}: {steps:?}", case.name);
            }
        }
    }
}

/// Also where dims are as small as in the cases, so that they cannot be cut much, and another dim, which cannot be cut, is large.
#[test]
fn shardy_never_sends_less_of_small_dims() {
    let mut dims = Dims::new();
    let prime = dims.push(DimName::new("p", 1_048_583, None).undivided());
    let is_legal = |(case, _, mesh): &(shardy::Case, [Type; 2], Mesh)| case.is_legal() && mesh.axes.len() <= FEW_AXES;
    for (case, mut ends, mesh) in shardy::cases(0, false).into_iter().filter(is_legal) {
        ends.iter_mut().for_each(|ty| ty.dims.push(Dim::named(&dims, prime)));
        let site = Site::new(&mesh, &dims, &PROGRAM);
        let steps = cheapest(&site, &ends[0], &ends[1], &Axes::none()).expect("sums can always be owed");
        let (ours, theirs) = (bytes(&steps), case.bytes() * 1_048_583.0);
        assert!(ours <= theirs * (1.0 + 1e-9), "{}: {ours} bytes, not {theirs}: {steps:?}", case.name);
    }
}

#[test]
fn the_plain_way_never_sends_less_where_bandwidth_decides() {
    let dims = Dims::default();
    for sizes in [&[2, 4][..], &[2, 2, 2]] {
        let mesh = mesh(sizes);
        let site = Site::new(&mesh, &dims, &PROGRAM);
        let shardings = shardings(&mesh, &[1 << 13, 1 << 14], &[PartialKind::Sum]);
        for (from, to) in pairs(&shardings, if sizes.len() == 2 { 1 } else { 97 }) {
            let (from, to) = (&shardings[from], &shardings[to]);
            let best = cheapest(&site, from, to, &mesh.tensor_axes()).expect("a way");
            let naive = naive(&site, from, to).expect("sums can always be owed");
            assert!(bytes(&best) <= bytes(&naive), "from {from:?} to {to:?}: {best:?}");
        }
    }
}

#[test]
fn a_slice_of_several_dims_is_one_step_and_sends_nothing() {
    let (mesh, dims) = (mesh(&[2, 4]), Dims::default());
    let site = Site::new(&mesh, &dims, &PROGRAM);
    let from = Type::of(DType::F32, &[4096, 4096]);
    let mut to = from.clone();
    to.dims.iter_mut().zip(mesh.axes.keys()).for_each(|(dim, axis)| dim.axes = Axes::one(axis));
    let steps = cheapest(&site, &from, &to, &mesh.tensor_axes()).expect("a way");
    assert_eq!((steps.len(), bytes(&steps)), (1, 0.0), "{steps:?}");
}

#[test]
fn the_plain_way_arrives_too_and_is_never_faster() {
    let (mesh, dims) = (mesh(&[2, 4]), Dims::default());
    let site = Site::new(&mesh, &dims, &PROGRAM);
    let shardings = shardings(&mesh, &[5, 7], &[PartialKind::Sum]);
    let mut ways = Vec::new();
    for (from, to) in pairs(&shardings, 3) {
        let (from, to) = (shardings[from].clone(), shardings[to].clone());
        let steps = naive(&site, &from, &to).expect("sums can always be owed");
        let best = cheapest(&site, &from, &to, &Axes::none()).expect("a way");
        let cost = |steps: &[ReshardStep]| steps.iter().map(ReshardStep::weight).sum::<f64>();
        assert!(cost(&best) <= cost(&steps) + 1e-12, "from {from:?} to {to:?}");
        ways.push((from, to, steps));
    }
    execute::check(&mesh, &ways);
}
