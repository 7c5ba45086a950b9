//! Reshards from a value's sharding to its readers' shardings. If several statements of one pass (forward or backward)
//! read the value, one resharded copy may serve all.

use super::graph::Builder;
use super::problem::Node;
use crate::reshard::sharding::{Place, Sharding};
use ir::graph::SectionKind;
use ir::ids::{BlockId, Value};
use ir::mesh::Axes;
use std::collections::{BTreeSet, HashMap};

/// Sharding choices of a value.
pub(super) struct Home {
    /// Node whose choice decides the sharding.
    pub(super) node: Node,
    /// Index of the value's sharding table.
    pub(super) tensor: usize,
    /// Sharding number of each choice.
    pub(super) shardings: Vec<u32>,
    /// True if the value is a parameter; a gathered copy of a parameter lives for one statement.
    pub(super) is_param: bool,
}

/// Statement or boundary that reads a value.
pub(super) struct Reader {
    /// Node whose choice decides the required sharding.
    pub(super) node: Node,
    /// Required sharding number of each choice.
    pub(super) wants: Vec<u32>,
    /// Section of the reader.
    pub(super) kind: SectionKind,
    /// Tick of the reader.
    pub(super) tick: u32,
}

/// Adds the reshards between the values of a block and their readers.
pub(super) fn connect(
    builder: &mut Builder<'_, '_>,
    id: BlockId,
    homes: &HashMap<Value, Home>,
    readers: Vec<(Value, Reader)>,
) {
    let weight = builder.weights.step(id);
    let mut groups: Vec<(Value, bool, Vec<Reader>)> = Vec::new();
    for (value, reader) in readers {
        let forward = reader.kind == SectionKind::F;
        match groups.iter_mut().find(|(known, pass, _)| *known == value && *pass == forward) {
            Some((_, _, group)) => group.push(reader),
            None => groups.push((value, forward, vec![reader])),
        }
    }
    for (value, _, group) in groups {
        let home = &homes[&value];
        if group.len() > 1 || home.is_param {
            shared(builder, weight, home, &group);
        } else {
            group.iter().for_each(|reader| join(builder, weight, home, reader.node, &reader.wants));
        }
    }
}

/// Adds the cost of resharding a value for one reader.
pub(super) fn join(builder: &mut Builder<'_, '_>, weight: f64, home: &Home, reader: Node, wants: &[u32]) {
    let seconds = builder.prices.between(home.tensor, &home.shardings, wants);
    builder.problem.join(home.node, reader, |i, j| weight * seconds[i * wants.len() + j]);
}

/// Adds the cost of resharding a value for several readers, directly or through one shared copy.
fn shared(builder: &mut Builder<'_, '_>, weight: f64, home: &Home, readers: &[Reader]) {
    let pairs = pairs(builder, home, readers);
    let node = builder.problem.node(vec![0.0; pairs.len()]);
    let moved: Vec<f64> =
        pairs.iter().map(|&(from, copy)| builder.prices.between(home.tensor, &[from], &[copy])[0]).collect();
    builder.problem.join(home.node, node, |i, j| match pairs[j] {
        (from, _) if from != home.shardings[i] => f64::INFINITY,
        _ => weight * moved[j],
    });
    let froms: Vec<u32> = pairs.iter().map(|&(from, _)| from).collect();
    for reader in readers {
        let seconds = builder.prices.between(home.tensor, &froms, &reader.wants);
        builder.problem.join(node, reader.node, |i, j| match pairs[i] {
            (_, copy) if copy == reader.wants[j] => 0.0,
            _ => weight * seconds[i * reader.wants.len() + j],
        });
    }
    let table = builder.prices.table(home.tensor);
    let bytes = pairs.iter().map(|&(from, copy)| if from == copy { 0 } else { table.bytes(copy) }).collect();
    let ticks = readers.iter().map(|reader| reader.tick);
    if let (Some(first), Some(last)) = (ticks.clone().min(), ticks.max()) {
        builder.problem.hold(node, first..last + 1, bytes);
    }
}

/// Pairs of a value's sharding and a second sharding that a reader may require. The second differs in the use of one
/// axis, of several axes with equal use, or has some axes replicated.
fn pairs(builder: &mut Builder<'_, '_>, home: &Home, readers: &[Reader]) -> Vec<(u32, u32)> {
    let homes: BTreeSet<u32> = home.shardings.iter().copied().collect();
    let wanted: BTreeSet<u32> = readers.iter().flat_map(|reader| reader.wants.iter().copied()).collect();
    let axes = builder.prices.site.mesh.tensor_axes();
    let table = builder.prices.table(home.tensor);
    let itself = homes.iter().map(|&from| (from, from));
    let moved = homes.iter().flat_map(|&from| wanted.iter().map(move |&to| (from, to)));
    itself.chain(moved.filter(|&(from, to)| is_near(&axes, table.sharding(from), table.sharding(to)))).collect()
}

/// Returns whether two shardings differ in axes of one use, or by the replication of some axes.
fn is_near(axes: &Axes, from: &Sharding, to: &Sharding) -> bool {
    let places = axes.iter().map(|axis| (from.place(axis), to.place(axis)));
    let differ: Vec<(Place, Place)> = places.filter(|(from, to)| from != to).collect();
    let is_one = differ.windows(2).all(|two| two[0] == two[1]);
    !differ.is_empty() && (is_one || differ.iter().all(|(_, to)| *to == Place::Whole))
}
