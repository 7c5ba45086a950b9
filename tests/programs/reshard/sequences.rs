//! The least cost of all sequences of collectives, found by trying every collective on every sharding.

use ir::mesh::Axes;
use ir::ops::Collective;
use ir::types::Type;
use planner::reshard::Site;

/// The least cost between any two shardings, by the axes over which whole tensors may become partial.
pub(crate) struct Sequences {
    claims: Vec<Axes>,
    /// By claims, then by both shardings.
    least: Vec<Vec<Vec<f64>>>,
}

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
    /// Least costs of sequences of any length through these shardings.
    pub(crate) fn new(site: &Site<'_>, shardings: &[Type]) -> Sequences {
        let mut claims: Vec<Axes> = Vec::new();
        for axes in shardings.iter().map(Type::partial_axes) {
            if !claims.contains(&axes) {
                claims.push(axes);
            }
        }
        let changes = changes(site, shardings);
        let allowed = |claims: &Axes| -> Vec<Collective> {
            let is_claimed = |change: &&Collective| match change {
                Collective::ToPartial { dim: None, over } => over.without(claims).is_empty(),
                _ => true,
            };
            changes.iter().filter(is_claimed).cloned().collect()
        };
        let least = claims.iter().map(|claims| Sequences::least(site, shardings, &allowed(claims))).collect();
        Sequences { claims, least }
    }

    /// Least costs by some collectives: one step is added until none is cheaper.
    fn least(site: &Site<'_>, shardings: &[Type], changes: &[Collective]) -> Vec<Vec<f64>> {
        let edges: Vec<Vec<(usize, f64)>> = shardings.iter().map(|ty| edges(site, shardings, changes, ty)).collect();
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
        (0..shardings.len()).map(from).collect()
    }

    /// The least cost from one sharding to another, which is partial over `claims`; infinite where no sequence leads there.
    pub(crate) fn best(&self, from: usize, to: usize, claims: &Axes) -> f64 {
        let at = self.claims.iter().position(|known| known == claims).expect("the axes of some sharding");
        self.least[at][from][to]
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
        Some((to, cost_of(change, site.platform.change(site.mesh, change, &[ty], &[&result]))))
    };
    changes.iter().filter_map(edge).collect()
}
