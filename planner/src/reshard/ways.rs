//! The cheapest ways of tensors of many sizes, each found once for many.

use super::{NoWay, Site, Step, cheapest};
use ir::ids::AxisId;
use ir::mesh::Axes;
use ir::ops::Collective;
use ir::types::{DType, Dim, Partial, Type};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::{Arc, Mutex, PoisonError};

/// Ways that have been found on one cluster, for many threads.
///
/// Where all cuts that can be are even, but for those of dims that have one size, each step of a way, by the one algorithm or
/// the other, takes seconds that grow evenly with the bytes of the tensor. A way that takes least for fewer bytes and for more
/// does so for all between: how much longer another takes grows evenly too, and is nowhere negative if it is not so at the ends.
#[derive(Debug, Default)]
pub struct Ways {
    known: Mutex<FxHashMap<Question, Known>>,
}

/// By the bytes of the tensor.
type Known = BTreeMap<u64, Arc<Way>>;

/// What is asked for a way, but for the sizes of dims that are cut evenly.
#[derive(PartialEq, Eq, Hash, Debug)]
struct Question {
    /// The axes of both layouts: their sizes, and the bandwidth and the latency of their links.
    axes: Vec<(AxisId, u64, [u64; 2])>,
    dtype: DType,
    /// The axes of each dim, and of the storage, before and after.
    dims: Vec<[Axes; 2]>,
    cuts: Vec<Cuts>,
    partials: [Option<Partial>; 2],
}

/// Into how many parts a dim can be cut.
#[derive(PartialEq, Eq, Hash, Debug)]
enum Cuts {
    /// Evenly into all of these that it has elements for: a bit for each number that there is.
    Even(u64),
    /// Not so: it has this size, and may be uneven or not.
    Sized(u64, bool),
}

/// What is done, and in how many messages, which tells by which algorithm.
#[derive(PartialEq, Debug)]
struct Way(Vec<(Collective, f64)>);

impl Ways {
    /// As [`cheapest`], without spare axes.
    ///
    /// # Errors
    /// There is no way.
    pub fn cheapest(&self, site: &Site<'_>, from: &Type, to: &Type) -> Result<Vec<Step>, NoWay> {
        let find = || cheapest(site, from, to, &Axes::none());
        let Some(question) = Question::of(site, from, to) else { return find() };
        let bytes = from.bytes();
        if let Some(way) = self.between(&question, bytes)
            && let Some(steps) = way.steps(site, from)
        {
            return Ok(steps);
        }
        let steps = find()?;
        let way = Way(steps.iter().map(|step| (step.change.clone(), step.traffic.messages)).collect());
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.entry(question).or_default().insert(bytes, Arc::new(way));
        Ok(steps)
    }

    /// The way that is known for as many bytes, or for fewer and for more.
    fn between(&self, question: &Question, bytes: u64) -> Option<Arc<Way>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.get(question)?;
        let (_, fewer) = known.range(..=bytes).next_back()?;
        let is_known = || known.contains_key(&bytes);
        let is_between = || known.range((Excluded(bytes), Unbounded)).next().is_some_and(|(_, more)| more == fewer);
        (is_known() || is_between()).then(|| Arc::clone(fewer))
    }
}

impl Question {
    /// None where a size is not known, or parts of the storage would not be even.
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

/// The products of some of these, ascending, if they are not too many to be told apart by bits.
fn products(sizes: impl Iterator<Item = u64>) -> Option<Vec<u64>> {
    let mut products = BTreeSet::from([1]);
    for size in sizes {
        let longer: Vec<u64> = products.iter().map(|product| product * size).collect();
        products.extend(longer);
    }
    (products.len() <= 64).then(|| products.into_iter().collect())
}

impl Cuts {
    /// Into these numbers of parts; none of a dim of unknown size.
    fn of(dim: &Dim, parts: &[u64], site: &Site<'_>) -> Option<Cuts> {
        let fit = parts.partition_point(|&parts| parts <= dim.size);
        let is_even = parts[..fit].iter().all(|&parts| dim.size.is_multiple_of(parts));
        let even = || Cuts::Even(parts[..fit].iter().enumerate().map(|(at, _)| 1 << at).sum());
        let sized = || Cuts::Sized(dim.size, dim.name.is_some_and(|name| site.dims[name].indivisible));
        dim.count.is_none().then(|| if is_even { even() } else { sized() })
    }
}

impl Way {
    /// Its steps from a type; none if it does not lead on from there.
    fn steps(&self, site: &Site<'_>, from: &Type) -> Option<Vec<Step>> {
        let mut steps: Vec<Step> = Vec::with_capacity(self.0.len());
        for (change, _) in &self.0 {
            let operand = steps.last().map_or(from, |step| &step.ty);
            steps.push(site.step(change.clone(), operand)?);
        }
        Some(steps)
    }
}
