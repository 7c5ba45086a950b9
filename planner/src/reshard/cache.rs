//! Cache of cheapest reshard paths, shared among tensors that are split alike.

use super::fuse::Fused;
use super::search::{cheapest_fused, fused_path};
use super::{NoPath, ReshardStep, Site};
use ir::ids::AxisId;
use ir::mesh::Axes;
use ir::ops::Collective;
use ir::types::{DType, Dim, Partial, Type};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Thread-safe cache of reshard paths on one platform.
///
/// Of tensors that are split evenly (dims of fixed size excepted), the bytes alone decide between paths. The cache finds the cheapest ones
/// for tensors of 1 KiB, 1 MiB, 1 GiB .. . Where those of fewer and of more bytes agree, tensors between take the same path: of two paths
/// the one with less to wait for wins below some size, and the other one above. Else the path is that of exactly these bytes.
#[derive(Debug, Default)]
pub struct ReshardCache {
    known: Mutex<FxHashMap<(Question, Size), Path>>,
}

/// Collectives, in order.
type Path = Arc<[Collective]>;

/// Bytes of a tensor.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Size {
    /// A power of [`GRID`].
    Power(u32),
    Exactly(u64),
}

/// Adjacent axes always move together. So a path is the same whether one axis or two stand for the same ranks, and frameworks, too, have
/// one group for them.
pub(super) const TOGETHER: u64 = 0;

/// Factor between the sizes at which paths are compared.
const GRID: u64 = 1024;

/// A reshard without the sizes of evenly split dims.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Question {
    /// Axes of both shardings.
    axes: Vec<AxisRanks>,
    dtype: DType,
    /// Axes of each dim, and of the storage, before and after.
    dims: Vec<[Axes; 2]>,
    cuts: Vec<Cuts>,
    partials: [Option<Partial>; 2],
}

/// Ranks along an axis, which decide how long its collectives take.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct AxisRanks {
    axis: AxisId,
    ranks: u64,
    /// The ranks that each level of links joins.
    within: SmallVec<[u64; 4]>,
}

/// Shard counts that a dim allows.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Cuts {
    /// Every shard count up to the dim's size is even: a bit per possible shard count.
    Even(u64),
    /// Some shard count is uneven: the dim's size, and whether the dim is indivisible.
    Sized(u64, bool),
}

impl ReshardCache {
    /// Returns the cheapest path on which axes that are adjacent before and after move together: that of these bytes, or of fewer and
    /// of more.
    ///
    /// # Errors
    /// No sequence of collectives produces `to` from `from`.
    pub fn cheapest(&self, site: &Site<'_>, from: &Type, to: &Type) -> Result<Vec<ReshardStep>, NoPath> {
        let fused = Fused::of(site, from, to, TOGETHER);
        let small = fused.site(site);
        let [start, end] = &fused.ends;
        let known = match Question::of(&small, start, end) {
            Some(question) => fused.steps(site, from, &self.path(&question, &small, &fused.ends)?),
            None => None,
        };
        // A path of other sizes may not apply to these.
        known.map_or_else(|| cheapest_fused(site, from, to, TOGETHER), Ok)
    }

    /// The path of a tensor between two shardings.
    fn path(&self, question: &Question, site: &Site<'_>, ends: &[Type; 2]) -> Result<Path, NoPath> {
        let bytes = ends[0].bytes().max(1);
        let power = bytes.ilog(GRID);
        let fewer = self.path_of(question, Size::Power(power), site, ends)?;
        let more = self.path_of(question, Size::Power(power + 1), site, ends)?;
        if fewer == more { Ok(fewer) } else { self.path_of(question, Size::Exactly(bytes), site, ends) }
    }

    /// The path if the tensor had some bytes.
    fn path_of(&self, question: &Question, size: Size, site: &Site<'_>, ends: &[Type; 2]) -> Result<Path, NoPath> {
        let key = (question.clone(), size);
        if let Some(known) = self.known().get(&key) {
            return Ok(Arc::clone(known));
        }
        let bytes = match size {
            Size::Power(power) => (GRID as f64).powi(power as i32),
            Size::Exactly(bytes) => bytes as f64,
        };
        let scaled = Site { scale: bytes / ends[0].bytes().max(1) as f64, ..*site };
        let path = fused_path(&scaled, &ends[0], &ends[1])?.into();
        Ok(Arc::clone(self.known().entry(key).or_insert(path)))
    }

    fn known(&self) -> MutexGuard<'_, FxHashMap<(Question, Size), Path>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
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
        let links = &site.platform.cluster.links;
        let axes = used.iter().map(|axis| {
            let group = site.group(&Axes::one(axis));
            let within = links.iter().map(|link| group.ranks_within(link.joins)).collect();
            AxisRanks { axis, ranks: site.mesh.axes[axis].size, within }
        });
        let dims = from.dims.iter().zip(&to.dims).map(|(from, to)| [from.axes.clone(), to.axes.clone()]);
        Some(Question {
            axes: axes.collect(),
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
        if dim.count.is_some() {
            return None;
        }
        let fit = parts.partition_point(|&parts| parts <= dim.size);
        if parts[..fit].iter().all(|&parts| dim.size.is_multiple_of(parts)) {
            return Some(Cuts::Even((0..fit).map(|at| 1 << at).sum()));
        }
        Some(Cuts::Sized(dim.size, dim.name.is_some_and(|name| site.dims[name].indivisible)))
    }
}
