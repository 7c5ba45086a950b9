//! Between all pairs of layouts of a matrix: the way that the planner finds gives every rank what the definition says, and
//! takes no longer than the best of all sequences of collectives.
//!
//! Of the mesh of three axes a sample of the pairs is taken; `cargo test --test reshard -- --ignored` takes them all.

#[path = "reshard/execute.rs"]
mod execute;
#[path = "reshard/layouts.rs"]
mod layouts;
#[path = "reshard/sequences.rs"]
mod sequences;

use cost::{CPU, Cluster, Link};
use ir::mesh::{Axes, Mesh};
use ir::types::{DebtKind, Dims, Type};
use layouts::layouts;
use planner::reshard::{NoWay, Site, Step, cheapest, plain};
use sequences::Sequences;
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

/// Every `stride`-th pair of layouts.
fn pairs(layouts: &[Type], stride: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..layouts.len() * layouts.len()).step_by(stride).map(|pair| (pair / layouts.len(), pair % layouts.len()))
}

/// Checks pairs of layouts on a mesh: the costs against all sequences on both clusters, and what the ranks get.
fn check(sizes: &[u64], kinds: &[DebtKind], stride: usize) {
    let (mesh, dims) = (mesh(sizes), Dims::default());
    for shape in SIZES {
        let layouts = layouts(&mesh, &shape, kinds);
        for cluster in [&*CPU, &*SLOW] {
            let site = Site { mesh: &mesh, dims: &dims, cluster };
            let sequences = Sequences::new(&site, &layouts);
            let mut ways = Vec::new();
            for (from, to) in pairs(&layouts, stride) {
                let way = cheapest(&site, &layouts[from], &layouts[to], &mesh.tensor_axes());
                same_cost(&way, sequences.best(from, to), (&layouts[from], &layouts[to]));
                ways.extend(way.map(|steps| (layouts[from].clone(), layouts[to].clone(), steps)));
            }
            execute::check(&mesh, &ways);
        }
    }
}

fn same_cost(way: &Result<Vec<Step>, NoWay>, best: f64, (from, to): (&Type, &Type)) {
    let cost = way.as_ref().map_or(f64::INFINITY, |steps| steps.iter().map(sequences::cost_of).sum());
    // Ways that differ by less than some picoseconds are equal.
    let equal = cost == best || (cost - best).abs() <= 1e-6 * best + 5e-12;
    assert!(equal, "{cost} instead of {best} from {from:?} to {to:?}: {way:?}");
}

#[test]
fn one_axis() {
    check(&[2], &[DebtKind::Sum, DebtKind::Max], 1);
}

#[test]
fn two_equal_axes() {
    check(&[2, 2], &[DebtKind::Sum, DebtKind::Max], 1);
}

#[test]
fn two_axes() {
    check(&[2, 4], &[DebtKind::Sum], 1);
}

#[test]
fn three_axes() {
    check(&[2, 2, 2], &[DebtKind::Sum], 61);
}

#[test]
#[ignore = "takes minutes"]
fn three_axes_in_full() {
    check(&[2, 2, 2], &[DebtKind::Sum], 1);
}

#[test]
fn the_plain_way_arrives_too_and_is_never_faster() {
    let (mesh, dims) = (mesh(&[2, 4]), Dims::default());
    let site = Site { mesh: &mesh, dims: &dims, cluster: &CPU };
    let layouts = layouts(&mesh, &[5, 7], &[DebtKind::Sum]);
    let mut ways = Vec::new();
    for (from, to) in pairs(&layouts, 3) {
        let (from, to) = (layouts[from].clone(), layouts[to].clone());
        let steps = plain(&site, &from, &to).expect("sums can always be owed");
        let best = cheapest(&site, &from, &to, &Axes::none()).expect("a way");
        let cost = |steps: &[Step]| steps.iter().map(sequences::cost_of).sum::<f64>();
        assert!(cost(&best) <= cost(&steps) + 1e-12, "from {from:?} to {to:?}");
        ways.push((from, to, steps));
    }
    execute::check(&mesh, &ways);
}
