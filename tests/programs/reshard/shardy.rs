//! Table of Shardy's own reshard cases, with their bytes.

use ir::mesh::{Axes, Mesh};
use ir::types::{DType, PartialKind, Type};

const TABLE: &str = include_str!("shardy.txt");

/// A case: the mesh, and the types from the first to the last with what leads to each.
pub(crate) struct Case {
    pub(crate) name: String,
    mesh: Mesh,
    types: Vec<Type>,
    steps: Vec<String>,
}

/// The cases with so many powers of two as many elements; where `merged`, sub-axes are one axis again, if both ends permit it.
pub(crate) fn cases(powers: usize, merged: bool) -> Vec<(Case, [Type; 2], Mesh)> {
    let lines = TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.filter_map(|line| read(line, powers, merged)).collect()
}

impl Case {
    /// True if no dim has more shards than elements, as Shardy lets it have.
    pub(crate) fn is_legal(&self) -> bool {
        let holds = |ty: &Type| ty.dims.iter().all(|dim| self.mesh.size(&dim.axes) <= dim.size);
        self.types.iter().all(holds)
    }

    /// Bytes that a rank gets by Shardy's steps.
    pub(crate) fn bytes(&self) -> f64 {
        let pairs = self.types.windows(2).zip(&self.steps);
        pairs.map(|(pair, step)| bytes(&self.mesh, step, &pair[0], &pair[1])).sum()
    }
}

/// An all-gather gets what is missing; an all-to-all all but the own share among the ranks that take part; a permute may get
/// all.
fn bytes(mesh: &Mesh, step: &str, from: &Type, to: &Type) -> f64 {
    let [before, after] = [from, to].map(|ty| ty.local_bytes(mesh) as f64);
    match step {
        "gather" => after - before,
        "permute" => after,
        "exchange" => {
            let gone = from.dims.iter().zip(&to.dims).map(|(from, to)| from.axes.without(&to.axes));
            let moved = gone.fold(Axes::none(), |all, axes| all.union(&axes));
            before * (1.0 - 1.0 / mesh.size(&moved) as f64)
        }
        "slice" | "pend" => 0.0,
        other => panic!("`{other}` is no step"),
    }
}

/// The case of a line, the types at its ends and the mesh on which they are.
fn read(line: &str, powers: usize, merge: bool) -> Option<(Case, [Type; 2], Mesh)> {
    let parts: Vec<&str> = line.split('|').map(str::trim).collect();
    let [name, axes, shape, from, steps @ ..] = parts.as_slice() else { panic!("{line}") };
    let sizes = || shape.split(',').map(|size| size.parse::<u64>().expect("a size"));
    let shape: Vec<u64> = sizes().map(|size| size << (powers / sizes().count())).collect();
    let axes: Vec<(&str, u64)> = axes.split(',').map(|axis| axis.split_once('=').expect("x=2")).map(sized).collect();
    let mesh = Mesh::new("m", &axes);
    let steps: Vec<(&str, &str)> = steps.iter().map(|step| step.split_once(' ').expect("a step")).collect();
    let shardings: Vec<&str> = [*from].into_iter().chain(steps.iter().map(|step| step.1)).collect();
    let types: Vec<Type> = shardings.iter().map(|sharding| ty(&mesh, &shape, sharding)).collect();
    let ends = [shardings[0], shardings[shardings.len() - 1]];
    let (whole, ends) = if merge {
        let all = wholes(&axes);
        let whole = Mesh::new("m", &all.iter().map(|(name, size, _)| (name.as_str(), *size)).collect::<Vec<_>>());
        let [from, to] = ends.map(|sharding| merged(sharding, &all));
        let ends = [ty(&whole, &shape, &from?), ty(&whole, &shape, &to?)];
        (whole, ends)
    } else {
        (mesh.clone(), ends.map(|sharding| ty(&mesh, &shape, sharding)))
    };
    let steps = steps.into_iter().map(|(step, _)| step.to_string()).collect();
    Some((Case { name: (*name).to_string(), mesh, types, steps }, ends, whole))
}

fn sized<'a>((name, size): (&'a str, &str)) -> (&'a str, u64) {
    (name, size.parse().expect("a size"))
}

/// The axes whose parts are in a mesh: name, size and the parts, major to minor.
fn wholes(axes: &[(&str, u64)]) -> Vec<(String, u64, String)> {
    let mut all: Vec<(String, u64, String)> = Vec::new();
    for (part, size) in axes {
        let name = part.trim_end_matches(|c: char| c.is_ascii_digit());
        match all.iter_mut().find(|(known, ..)| known == name) {
            Some((_, product, parts)) => {
                *product *= size;
                parts.push_str(&format!(",{part}"));
            }
            None => all.push((name.to_string(), *size, (*part).to_string())),
        }
    }
    all
}

/// A sharding by the axes instead of their parts; none where a part is alone.
fn merged(sharding: &str, all: &[(String, u64, String)]) -> Option<String> {
    let merged = all.iter().fold(sharding.to_string(), |sharding, (name, _, parts)| sharding.replace(parts, name));
    (!merged.contains(|c: char| c.is_ascii_digit())).then_some(merged)
}

/// `{x},{}+{y}` of a tensor.
fn ty(mesh: &Mesh, shape: &[u64], sharding: &str) -> Type {
    let (dims, pending) = sharding.split_once('+').unwrap_or((sharding, "{}"));
    let axes = |list: &str| -> Axes {
        let names = list.trim_matches(['{', '}', ',']).split(',').filter(|name| !name.is_empty());
        names.fold(Axes::none(), |all, name| all.union(&mesh.lookup(name).expect("an axis")))
    };
    let mut ty = Type::of(DType::F32, shape);
    let dims: Vec<&str> = dims.split_inclusive('}').collect();
    assert_eq!(dims.len(), shape.len(), "{sharding}");
    ty.dims.iter_mut().zip(dims).for_each(|(dim, list)| dim.axes = axes(list));
    ty.partial_over(PartialKind::Sum, &axes(pending))
}
