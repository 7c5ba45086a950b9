//! The least cost of all sequences of collectives, found by trying every collective on every sharding.

use cost::Traffic;
use ir::mesh::Axes;
use ir::ops::Collective;
use ir::types::Type;
use planner::reshard::Site;

/// The least cost between any two shardings.
pub(crate) struct Sequences(Vec<Vec<f64>>);

/// The cost of a change: seconds that ranks wait for each other, and a nanosecond for each step but a local slice, which
/// costs a picosecond.
pub(crate) fn cost_of(change: &Collective, seconds: f64) -> f64 {
    match change {
        Collective::AllSlice { .. } => 1e-12,
        Collective::ToPartial { .. } => 1e-9,
        _ => seconds + 1e-9,
    }
}

impl Sequences {
    /// Least costs of sequences of any length through these shardings: one step is added until none is cheaper.
    pub(crate) fn new(site: &Site<'_>, shardings: &[Type]) -> Sequences {
        let changes = changes(site, shardings);
        let edges: Vec<Vec<(usize, f64)>> = shardings.iter().map(|ty| edges(site, shardings, &changes, ty)).collect();
        let from = |start: usize| {
            let mut least = vec![f64::INFINITY; shardings.len()];
            least[start] = 0.0;
            loop {
                let before = least.clone();
                for (edges, cost) in edges.iter().zip(&before) {
                    edges.iter().for_each(|&(to, step)| least[to] = least[to].min(cost + step));
                }
                if least == before {
                    return least;
                }
            }
        };
        Sequences((0..shardings.len()).map(from).collect())
    }

    /// The least cost from one sharding to another; infinite where no sequence leads there.
    pub(crate) fn best(&self, from: usize, to: usize) -> f64 {
        self.0[from][to]
    }
}

/// Every collective of a matrix on the mesh.
fn changes(site: &Site<'_>, shardings: &[Type]) -> Vec<Collective> {
    let mut lists = vec![Axes::none()];
    for list in (1..=site.mesh.axes.len()).flat_map(|len| lists_of(site, len)) {
        lists.push(list);
    }
    let mut all = Vec::new();
    for over in lists.iter().filter(|list| !list.is_empty()) {
        all.push(Collective::AllReduce { over: over.clone() });
        for dim in [None, Some(0), Some(1)] {
            all.push(Collective::AllGather { dim, over: over.clone() });
            all.push(Collective::ReduceScatter { dim, over: over.clone() });
            all.push(Collective::all_slice(dim, over.clone()));
            all.push(Collective::ToPartial { dim, over: over.clone() });
        }
        all.extend([(0, 1), (1, 0)].map(|(from, to)| Collective::AllToAll {
            from,
            to,
            over: over.clone(),
            ragged: None,
        }));
    }
    let mut dims: Vec<Vec<Axes>> = Vec::new();
    for ty in shardings {
        let axes = ty.dims.iter().map(|dim| dim.axes.clone()).collect();
        if !dims.contains(&axes) {
            dims.push(axes);
        }
    }
    let sets: Vec<&Axes> = lists.iter().filter(|list| !list.is_empty() && list.sorted() == **list).collect();
    let permutes = dims.iter().flat_map(|dims| sets.iter().map(|over| (dims.clone(), (*over).clone())));
    all.extend(permutes.map(|(dims, over)| Collective::Permute { dims, over }));
    all
}

/// All lists of `len` axes.
fn lists_of(site: &Site<'_>, len: usize) -> Vec<Axes> {
    let mut lists = vec![Axes::none()];
    for _ in 0..len {
        let longer = |list: &Axes| -> Vec<Axes> {
            let rest = site.mesh.tensor_axes().without(list);
            rest.iter().map(|axis| list.union(&Axes::one(axis))).collect()
        };
        lists = lists.iter().flat_map(longer).collect();
    }
    lists
}

fn edges(site: &Site<'_>, shardings: &[Type], changes: &[Collective], ty: &Type) -> Vec<(usize, f64)> {
    let edge = |change: &Collective| {
        change.check_sizes(site.mesh, ty).ok()?;
        let result = change.result_type(ty).ok()?;
        let to = shardings.iter().position(|sharding| *sharding == result)?;
        let traffic = Traffic::of(site.cluster, site.mesh, change, ty, &result);
        Some((to, cost_of(change, traffic.seconds(site.cluster, site.mesh, change.over()))))
    };
    changes.iter().filter_map(edge).collect()
}
