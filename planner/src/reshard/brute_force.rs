//! Tests of the searches against shortest paths over types, with every possible collective.

use super::cache::TOGETHER;
use super::search::{cheapest_fused, estimate};
use super::sharding::{Place, Sharding};
use super::table::Table;
use super::{ReshardCache, ReshardStep, Site, cheapest};
use cost::{CPU, Cluster, Link, PROGRAM, Platform};
use ir::mesh::{Axes, Mesh};
use ir::ops::Collective;
use ir::types::{DType, Dim, DimName, Dims, PartialKind, Type};

/// Least weight of a path from `from` to each reachable type (Dijkstra 1959), which makes whole tensors partial over `claims` alone.
fn distances(site: &Site<'_>, from: &Type, claims: &Axes) -> Vec<(Type, f64)> {
    let changes = changes(site.mesh, from);
    let is_claimed = |change: &Collective| match change {
        Collective::ToPartial { dim: None, over } => over.without(claims).is_empty(),
        _ => true,
    };
    let mut found: Vec<(Type, f64)> = vec![(from.clone(), 0.0)];
    let mut done = vec![false];
    loop {
        let waiting = (0..found.len()).filter(|&place| !done[place]);
        let Some(nearest) = waiting.min_by(|&a, &b| found[a].1.total_cmp(&found[b].1)) else { return found };
        done[nearest] = true;
        let (ty, so_far) = found[nearest].clone();
        let changes = changes.iter().map(|change| change(&ty)).filter(is_claimed);
        for step in changes.filter_map(|change| site.step(change, &ty)) {
            let weight = so_far + step.weight();
            match found.iter_mut().find(|(known, _)| *known == step.ty) {
                Some((_, least)) => *least = least.min(weight),
                None => {
                    found.push((step.ty, weight));
                    done.push(false);
                }
            }
        }
    }
}

type Change = Box<dyn Fn(&Type) -> Collective>;

/// Every collective over every axis sequence, including those that an operand does not permit.
fn changes(mesh: &Mesh, ty: &Type) -> Vec<Change> {
    let mut lists = vec![Axes::none()];
    for place in 0.. {
        let Some(list) = lists.get(place).cloned() else { break };
        let rest = mesh.tensor_axes().without(&list);
        lists.extend(rest.iter().map(|axis| list.union(&Axes::one(axis))));
    }
    let mut all: Vec<Collective> = Vec::new();
    let mut cuts = vec![Vec::new()];
    for _ in 0..ty.rank() {
        let longer = |cut: &Vec<Axes>| -> Vec<Vec<Axes>> {
            let free = lists.iter().filter(|list| cut.iter().all(|taken| taken.is_disjoint(list)));
            free.map(|list| [cut.as_slice(), std::slice::from_ref(list)].concat()).collect()
        };
        cuts = cuts.iter().flat_map(longer).collect();
    }
    for over in lists.into_iter().filter(|list| !list.is_empty()) {
        for dim in (0..ty.rank()).map(Some).chain([None]) {
            all.push(Collective::AllGather { dim, over: over.clone() });
            all.push(Collective::ReduceScatter { dim, over: over.clone() });
            all.push(Collective::all_slice(dim, over.clone()));
            all.push(Collective::ToPartial { dim, over: over.clone() });
        }
        for (from, to) in (0..ty.rank()).flat_map(|from| (0..ty.rank()).map(move |to| (from, to))) {
            all.push(Collective::AllToAll { from, to, over: over.clone(), ragged: None });
        }
        all.push(Collective::AllReduce { over });
    }
    let fixed = all.into_iter().map(|change| Box::new(move |_: &Type| change.clone()) as Change);
    let permutes =
        cuts.into_iter().map(|dims| Box::new(move |ty: &Type| Collective::permute(ty, dims.clone())) as Change);
    fixed.chain(permutes).collect()
}

/// SplitMix64 (Steele, Lea and Flood 2014).
struct Random(u64);

impl Random {
    /// A number below `n`.
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((mixed ^ (mixed >> 31)) % n as u64) as usize
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// A mesh with `axes` axes.
    fn mesh(&mut self, axes: usize) -> Mesh {
        let names = &["x", "y", "z", "w", "v"][..axes];
        let axes: Vec<(&str, u64)> = names.iter().map(|&name| (name, self.of(&[2, 2, 3, 4]))).collect();
        Mesh::new("m", &axes)
    }

    /// An unsharded tensor with `rank` dims, some of them indivisible.
    fn tensor(&mut self, dims: &mut Dims, rank: usize) -> Type {
        let mut dim = |_| {
            let (size, indivisible) = (self.of(&[5, 12, 16, 64, 1024]), self.below(3) == 0);
            let name = dims.push(DimName { indivisible, ..DimName::new("d", size, None) });
            Dim::named(dims, name)
        };
        let shape = (0..rank).map(&mut dim).collect();
        Type::new(DType::BF16, shape)
    }

    /// A sharding that the mesh allows for the tensor.
    fn sharding(&mut self, site: &Site<'_>, ty: &Type) -> Sharding {
        loop {
            let sharding = self.anywhere(ty, site.mesh.tensor_axes());
            if site.holds(&sharding.on(ty)) {
                return sharding;
            }
        }
    }

    /// Assigns the axes in random order, each to a random use.
    fn anywhere(&mut self, ty: &Type, mut rest: Axes) -> Sharding {
        let mut sharding = Sharding::whole(ty);
        while !rest.is_empty() {
            let axis = self.of(rest.as_slice());
            rest = rest.without(&Axes::one(axis));
            let place = match self.below(ty.rank() + 4) {
                0 => Place::Whole,
                1 => Place::Stored,
                2 | 3 => Place::Partial,
                place => Place::Dim(place - 4),
            };
            sharding = sharding.with(axis, place);
        }
        sharding
    }
}

/// Clusters on which bytes decide between some paths, and message counts between others.
fn clusters() -> [Cluster; 2] {
    let slow = vec![Link { joins: 2, ..Link::plain(1e7, 1e-6) }, Link::plain(1e6, 2e-6)];
    [CPU.clone(), Cluster { links: slow, ..CPU.clone() }]
}

/// Returns whether two weights agree; merged slices weigh a few picoseconds less than separate slices.
fn is_equal(found: f64, wanted: f64) -> bool {
    found == wanted || (found - wanted).abs() <= 5e-12
}

#[test]
fn no_sequence_of_collectives_is_cheaper_and_no_estimate_too_high() {
    let mut random = Random(7);
    for (axes, rank) in [(2, 0), (2, 2), (2, 3), (3, 1), (3, 2), (3, 2), (3, 3), (4, 1), (4, 2)] {
        for cluster in clusters() {
            let (mesh, mut dims) = (random.mesh(axes), Dims::new());
            let ty = random.tensor(&mut dims, rank);
            let platform = Platform::of_program(&cluster);
            let site = Site::new(&mesh, &dims, &platform);
            let kind = random.of(&[PartialKind::Sum, PartialKind::Sum, PartialKind::Max]);
            let from = random.sharding(&site, &ty).on(&ty);
            let from = from.partial_over(kind, &from.partial_axes());
            let every = distances(&site, &from, &mesh.tensor_axes());
            let mut known: Vec<(Axes, Vec<(Type, f64)>)> = Vec::new();
            for _ in 0..40 {
                let to = &every[random.below(every.len())].0;
                let claims = to.partial_axes();
                if !known.iter().any(|(axes, _)| *axes == claims) {
                    known.push((claims.clone(), distances(&site, &from, &claims)));
                }
                let of_claims = known.iter().find(|(axes, _)| *axes == claims).map(|(_, distances)| distances);
                let (_, wanted) =
                    of_claims.and_then(|it| it.iter().find(|(ty, _)| ty == to)).expect("no zeros are needed");
                let path = cheapest(&site, &from, to, &mesh.tensor_axes()).expect("collectives lead there");
                let found = path.iter().map(ReshardStep::weight).sum();
                assert!(is_equal(found, *wanted), "{found}, not {wanted}, from {from:?} to {to:?} on {mesh:?}");
                let estimate = estimate(&site, &from, to, &mesh.tensor_axes());
                assert!(estimate <= *wanted, "at least {estimate}, not {wanted}, from {from:?} to {to:?} on {mesh:?}");
            }
        }
    }
}

#[test]
fn what_a_table_says_is_what_the_cheapest_way_takes() {
    let mut random = Random(11);
    for (axes, rank) in [(2, 2), (2, 3), (3, 1), (3, 2), (3, 3), (4, 2)] {
        let (mesh, mut dims) = (random.mesh(axes), Dims::new());
        let ty = random.tensor(&mut dims, rank);
        for cluster in clusters() {
            let platform = Platform::of_program(&cluster);
            let site = Site::new(&mesh, &dims, &platform);
            let mut table = Table::new(site, &ty, true, None);
            let from = random.sharding(&site, &ty);
            for _ in 0..40 {
                let to = random.sharding(&site, &ty);
                let ends = (table.place(&from), table.place(&to));
                let wanted = table.seconds(ends.0, ends.1);
                let path = cheapest(&site, &from.on(&ty), &to.on(&ty), &Axes::none());
                let found = path.map_or(f64::INFINITY, |path| path.iter().map(ReshardStep::weight).sum());
                // The table may move axes that stay on a path, and axes apart that move together on one.
                assert!(
                    is_equal(found, wanted) || found > wanted,
                    "{found}, not {wanted}, from {from:?} to {to:?} of {ty:?} on {mesh:?}"
                );
            }
        }
    }
}

#[test]
fn an_axis_of_one_rank_asks_for_no_message() {
    let (mesh, dims) = (Mesh::new("m", &[("x", 3), ("y", 1)]), Dims::new());
    let site = Site::new(&mesh, &dims, &PROGRAM);
    let ty = Type::of(DType::F32, &[1024]);
    let axes: Vec<Axes> = mesh.axes.keys().map(Axes::one).collect();
    let mut from = ty.partial_over(PartialKind::Sum, &axes[0]);
    from.dims[0].axes = axes[1].clone();
    let to = ty.partial_over(PartialKind::Sum, &mesh.tensor_axes());
    let path = cheapest(&site, &from, &to, &Axes::none()).expect("the naive path");
    assert_eq!(path.iter().map(|step| step.bytes).sum::<f64>(), 0.0);
}

/// Even splits; with uneven splits each size has its own entry.
#[test]
fn what_fewer_and_more_bytes_take_takes_least_between() {
    takes_least_between(48, 17);
}

/// Uneven splits of dims of fixed size.
#[test]
fn what_fewer_and_more_bytes_take_takes_least_between_uneven_cuts() {
    takes_least_between(1, 8);
}

/// Factor between a path that is the cheapest for fewer and for more bytes, and the cheapest one: the two may change places twice.
const NEAR: f64 = 1.05;

/// Multiplies the sizes of all dims but the first by `others`, and the first by a random power of two below `2^powers`.
fn takes_least_between(others: u64, powers: usize) {
    let mut random = Random(13);
    for (axes, rank) in [(2, 2), (2, 3), (3, 1), (3, 2), (3, 3), (4, 2)] {
        for cluster in clusters() {
            let (mesh, mut dims) = (random.mesh(axes), Dims::new());
            let ty = random.tensor(&mut dims, rank);
            let platform = Platform::of_program(&cluster);
            let site = Site::new(&mesh, &dims, &platform);
            let paths = ReshardCache::default();
            for _ in 0..10 {
                let (from, to) = (random.sharding(&site, &ty), random.sharding(&site, &ty));
                for _ in 0..20 {
                    let times = 1 << random.below(powers);
                    let sized = |sharding: &Sharding| {
                        let mut ty = sharding.on(&ty);
                        ty.dims.iter_mut().take(1).for_each(|dim| dim.size *= 48 * times);
                        ty.dims.iter_mut().skip(1).for_each(|dim| dim.size *= others);
                        ty
                    };
                    let path = |path: Result<Vec<ReshardStep>, _>| {
                        path.map(|path| path.iter().map(ReshardStep::weight).sum()).ok()
                    };
                    let wanted: Option<f64> = path(cheapest_fused(&site, &sized(&from), &sized(&to), TOGETHER));
                    let found = path(paths.cheapest(&site, &sized(&from), &sized(&to)));
                    let is_least = found
                        .zip(wanted)
                        .is_none_or(|(found, wanted)| is_equal(found, wanted) || found < NEAR * wanted);
                    assert!(
                        is_least && found.is_some() == wanted.is_some(),
                        "{found:?}, not {wanted:?}: {from:?} {to:?}"
                    );
                }
            }
        }
    }
}
