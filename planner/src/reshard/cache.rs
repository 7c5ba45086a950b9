//! Cache of cheapest reshard paths, shared among tensors of many sizes.

use super::{NoPath, ReshardStep, Site, cheapest};
use ir::ids::AxisId;
use ir::mesh::Axes;
use ir::ops::Collective;
use ir::types::{DType, Dim, Partial, Type};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Arc, Mutex, PoisonError};

/// Thread-safe cache of reshard paths on one cluster.
///
/// If every split is even (dims of fixed size excepted), the cost of a path is affine in the tensor's bytes, for either
/// algorithm of a step. A path that is optimal at both ends of an interval of sizes is optimal inside the interval: its
/// cost difference to any other path is affine, and nonnegative at both ends. The cache therefore answers all sizes
/// between two known sizes with one path.
#[derive(Debug, Default)]
pub struct ReshardCache {
    known: Mutex<FxHashMap<Question, Known>>,
}

/// Paths by the tensor's bytes.
type Known = BTreeMap<u64, Arc<Path>>;

/// Cache key: a reshard without the sizes of evenly split dims.
#[derive(PartialEq, Eq, Hash, Debug)]
struct Question {
    /// Axes of both shardings: size, and the bits of link bandwidth and latency.
    axes: Vec<(AxisId, u64, [u64; 2])>,
    dtype: DType,
    /// Axes of each dim, and of the storage, before and after.
    dims: Vec<[Axes; 2]>,
    cuts: Vec<Cuts>,
    partials: [Option<Partial>; 2],
}

/// Shard counts that a dim allows.
#[derive(PartialEq, Eq, Hash, Debug)]
enum Cuts {
    /// Every shard count up to the dim's size is even: a bit per possible shard count.
    Even(u64),
    /// Some shard count is uneven: the dim's size, and whether the dim is indivisible.
    Sized(u64, bool),
}

/// Collectives of a path with their message counts, which identify the algorithm of each step.
#[derive(PartialEq, Debug)]
struct Path(Vec<(Collective, f64)>);

impl ReshardCache {
    /// Returns the result of [`cheapest`] without spare axes.
    ///
    /// # Errors
    /// No sequence of collectives produces `to` from `from`.
    pub fn cheapest(&self, site: &Site<'_>, from: &Type, to: &Type) -> Result<Vec<ReshardStep>, NoPath> {
        let find = || cheapest(site, from, to, &Axes::none());
        let Some(question) = Question::of(site, from, to) else { return find() };
        let bytes = from.bytes();
        if let Some(path) = self.between(&question, bytes)
            && let Some(steps) = path.steps(site, from)
        {
            return Ok(steps);
        }
        let steps = find()?;
        let path = Path(steps.iter().map(|step| (step.change.clone(), step.traffic.messages)).collect());
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(question).or_default().insert(bytes, Arc::new(path));
        Ok(steps)
    }

    /// Path known for exactly `bytes`, or for both a smaller and a larger size.
    fn between(&self, question: &Question, bytes: u64) -> Option<Arc<Path>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get(question)?;
        let (_, fewer) = known.range(..=bytes).next_back()?;
        let is_known = || known.contains_key(&bytes);
        let is_between = || known.range((Excluded(bytes), Unbounded)).next().is_some_and(|(_, more)| more == fewer);
        (is_known() || is_between()).then(|| Arc::clone(fewer))
    }
}

impl Question {
    /// Cache key of a reshard; `None` if a size is dynamic or flat shards would be uneven.
    fn of(site: &Site<'_>, from: &Type, to: &Type) -> Option<Question> {
        let used = from.used_axes().union(&to.used_axes());
        let parts = products(used.iter().map(|axis| site.mesh.axes[axis].size))?;
        let cuts = from.dims.iter().map(|dim| Cuts::of(dim, &parts, site)).collect::<Option<Vec<Cuts>>>()?;
        let even = from.dims.iter().zip(&cuts).filter(|(_, cuts)| matches!(cuts, Cuts::Even(_)));
        let elements: u64 = even.map(|(dim, _)| dim.size).product();
        if !elements.is_multiple_of(site.mesh.size(&used)) {
            return None;
        }
        let axis = |axis: AxisId| {
            let link = site.cluster.link(site.mesh, &Axes::one(axis));
            (axis, site.mesh.axes[axis].size, [link.bandwidth.to_bits(), link.latency.to_bits()])
        };
        let dims = from.dims.iter().zip(&to.dims).map(|(from, to)| [from.axes.clone(), to.axes.clone()]);
        Some(Question {
            axes: used.iter().map(axis).collect(),
            dtype: from.dtype,
            dims: dims.chain([[from.storage.clone(), to.storage.clone()]]).collect(),
            cuts,
            partials: [from.partial.clone(), to.partial.clone()],
        })
    }
}

/// Products of all subsets of the sizes, ascending; `None` if 64 bits cannot number the products.
fn products(sizes: impl Iterator<Item = u64>) -> Option<Vec<u64>> {
    let mut products = BTreeSet::from([1]);
    for size in sizes {
        let longer: Vec<u64> = products.iter().map(|product| product * size).collect();
        products.extend(longer);
    }
    (products.len() <= 64).then(|| products.into_iter().collect())
}

impl Cuts {
    /// Shard counts of a dim among `parts`; `None` if its size is dynamic.
    fn of(dim: &Dim, parts: &[u64], site: &Site<'_>) -> Option<Cuts> {
        let fit = parts.partition_point(|&parts| parts <= dim.size);
        let is_even = parts[..fit].iter().all(|&parts| dim.size.is_multiple_of(parts));
        let even = || Cuts::Even(parts[..fit].iter().enumerate().map(|(at, _)| 1 << at).sum());
        let sized = || Cuts::Sized(dim.size, dim.name.is_some_and(|name| site.dims[name].indivisible));
        dim.count.is_none().then(|| if is_even { even() } else { sized() })
    }
}

impl Path {
    /// Steps of the path from a type; `None` if a step does not apply.
    fn steps(&self, site: &Site<'_>, from: &Type) -> Option<Vec<ReshardStep>> {
        let mut steps: Vec<ReshardStep> = Vec::with_capacity(self.0.len());
        for (change, _) in &self.0 {
            let operand = steps.last().map_or(from, |step| &step.ty);
            steps.push(site.step(change.clone(), operand)?);
        }
        Some(steps)
    }
}
