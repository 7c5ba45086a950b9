//! Reshard time on meshes with many axes, where the graph of all shardings is too large to search. One natural path is
//! costed, in time that depends only on the number of axes and dims.
//!
//! The path gathers the storage, slices, reduces, exchanges, gathers, and shards the storage again. Each kind of
//! collective runs once for all axes that change alike. If axes would have to move inside other axes, one permute is
//! added.

use super::sharding::{Place, Sharding};
use super::step_bound::StepBound;
use super::{STEP, Site};
use cost::{GroupShape, Pattern, Platform};
use ir::ids::AxisId;
use ir::mesh::{Axes, Mesh};
use ir::types::Type;

/// Cost of natural paths on a platform.
pub(crate) struct Fare<'a> {
    mesh: &'a Mesh,
    platform: &'a Platform<'a>,
    /// Set if the costs are a lower bound.
    least: Option<LeastFare>,
}

/// Costs that never exceed some axes' part of any path.
#[derive(Clone, Copy)]
struct LeastFare {
    shares: Least,
    bound: StepBound,
}

/// Parameters of costs over some axes that never exceed those axes' part of any path.
#[derive(Clone, Copy)]
pub(crate) struct Least {
    /// Number of devices along the other axes, which are assumed to shard every tensor evenly.
    pub(crate) others: f64,
    /// Fraction of an all-to-all that is counted.
    pub(crate) exchange: f64,
    /// Fraction counted of a message, which may serve all axes at once.
    pub(crate) message: f64,
}

impl<'a> Fare<'a> {
    /// Costs of collectives on a site.
    pub(crate) fn new(site: &Site<'a>) -> Fare<'a> {
        Fare { mesh: site.mesh, platform: site.platform, least: None }
    }

    /// Costs that are a lower bound on any path of tensors of at most `most` bytes: every byte takes the least time that any takes, and
    /// copies are free.
    pub(crate) fn least(site: &Site<'a>, shares: Least, most: f64) -> Fare<'a> {
        let bound = StepBound::of(site, &site.mesh.tensor_axes(), most);
        Fare { least: Some(LeastFare { shares, bound }), ..Fare::new(site) }
    }

    /// Seconds from one sharding of a tensor to another.
    pub(crate) fn seconds(&self, ty: &Type, from: &Sharding, to: &Sharding) -> f64 {
        if from == to {
            return 0.0;
        }
        let renamed = self.renaming(ty, from, to);
        Path::new(self, ty, from, to).seconds().min(renamed)
    }

    /// Cost of one permute, if only the axis names change.
    fn renaming(&self, ty: &Type, from: &Sharding, to: &Sharding) -> f64 {
        let same = from.dims.iter().zip(&to.dims).all(|(old, new)| self.mesh.size(old) == self.mesh.size(new));
        if !same || from.unreduced != to.unreduced || !from.storage.is_empty() || !to.storage.is_empty() {
            return f64::INFINITY;
        }
        let changed = from.dims.iter().zip(&to.dims).filter(|(old, new)| old != new);
        let over: Axes = changed.fold(Axes::none(), |all, (old, new)| all.union(old).union(new));
        let bytes = from.bytes(ty, self.mesh);
        self.price(Pattern::Pieces(1), &over, bytes, bytes)
    }

    fn price(&self, pattern: Pattern, over: &Axes, before: u64, after: u64) -> f64 {
        if over.is_empty() {
            return 0.0;
        }
        let (n, before, after) = (self.mesh.size(over), before as f64, after as f64);
        match (&self.least, pattern) {
            // No rank waits for another.
            (None, Pattern::Local) => STEP,
            (Some(_), Pattern::Local) => 0.0,
            (None, _) => self.platform.pattern_time(pattern, before, after, &GroupShape::of(self.mesh, over)) + STEP,
            (Some(LeastFare { shares, bound }), _) => {
                let share = if pattern == Pattern::Exchange { shares.exchange } else { 1.0 };
                // A step may serve all axes at once.
                bound.seconds(shares.message, pattern.received(n, before, after) * share / shares.others)
            }
        }
    }
}

/// State of a path while it is traversed.
struct Path<'p, 'a> {
    fare: &'p Fare<'a>,
    ty: &'p Type,
    to: &'p Sharding,
    /// Current and target use of each axis.
    axes: Vec<(AxisId, Place, Place)>,
    /// Current number of shards of each dim.
    shards: Vec<u64>,
    /// Current number of flat shards.
    stored: u64,
    seconds: f64,
    /// True if axes to be removed are inside axes that stay.
    is_mixed: bool,
}

impl<'p, 'a> Path<'p, 'a> {
    fn new(fare: &'p Fare<'a>, ty: &'p Type, from: &'p Sharding, to: &'p Sharding) -> Path<'p, 'a> {
        let axes = fare.mesh.tensor_axes();
        let axes = axes.iter().map(|axis| (axis, from.place(axis), to.place(axis))).collect();
        let shards = from.dims.iter().map(|axes| fare.mesh.size(axes)).collect();
        let mut dims = from.dims.iter().zip(&to.dims);
        let is_mixed = fare.least.is_none()
            && dims.any(|(old, new)| {
                let stay = old.intersection(new);
                !(stay.is_prefix_of(old) && stay.is_prefix_of(new))
            });
        let stored = fare.mesh.size(&from.storage);
        Path { fare, ty, to, axes, shards, stored, seconds: 0.0, is_mixed }
    }

    fn seconds(mut self) -> f64 {
        self.unstore();
        let dims = 0..self.ty.rank();
        let sliced = self.over(|from, to| from == Place::Whole && matches!(to, Place::Dim(_)));
        self.go(Pattern::Local, &sliced);
        for dim in dims.clone() {
            let over = self.over(|from, to| from == Place::Partial && to == Place::Dim(dim));
            self.go(Pattern::Scatter, &over);
        }
        let summed = self.over(|from, to| from == Place::Partial && to == Place::Whole);
        self.go(Pattern::Sum, &summed);
        self.exchange();
        for dim in dims {
            let over = self.over(|from, to| from == Place::Dim(dim) && to != from && to != Place::Partial);
            self.go(Pattern::Gather, &over);
        }
        let unreduced = self.over(|from, to| from != to && to == Place::Partial);
        self.go(Pattern::Local, &unreduced);
        self.store();
        self.seconds
    }

    /// Gathers the storage, unless the target only adds storage axes.
    fn unstore(&mut self) {
        let mut moved = self.axes.iter().filter(|(_, from, to)| from != to);
        let dims_stay = !moved.any(|(_, from, to)| [from, to].iter().any(|place| matches!(place, Place::Dim(_))));
        let grows = self.axes.iter().all(|(_, from, to)| *from != Place::Stored || *to == Place::Stored);
        if !(dims_stay && grows) {
            let over = self.over(|from, _| from == Place::Stored);
            let before = self.bytes();
            self.stored = 1;
            self.walk(Pattern::Gather, &over, before);
            let stored = self.axes.iter_mut().filter(|(axis, ..)| over.contains(*axis));
            stored.for_each(|(_, from, _)| *from = Place::Whole);
        }
    }

    /// Exchanges axes between dims, one all-to-all per pair of dims; uses one permute if other axes block the exchange.
    fn exchange(&mut self) {
        if self.is_mixed {
            let over = self.over(|from, to| from != to || matches!(from, Place::Dim(_)));
            let bytes = self.bytes();
            self.walk(Pattern::Pieces(1), &over, bytes);
        }
        for a in 0..self.ty.rank() {
            for b in 0..self.ty.rank() {
                let over = self.over(|from, to| a != b && from == Place::Dim(a) && to == Place::Dim(b));
                self.go(Pattern::Exchange, &over);
            }
        }
    }

    fn store(&mut self) {
        let scattered = self.over(|from, to| from == Place::Partial && to == Place::Stored);
        self.go(Pattern::Scatter, &scattered);
        let sliced = self.over(|from, to| from != to && to == Place::Stored);
        self.go(Pattern::Local, &sliced);
        debug_assert!(self.axes.iter().all(|(_, from, to)| from == to), "{:?}", self.to);
    }

    fn over(&self, changes: impl Fn(Place, Place) -> bool) -> Axes {
        self.axes.iter().filter(|(_, from, to)| changes(*from, *to)).map(|(axis, ..)| *axis).collect()
    }

    /// Applies one collective that brings all these axes to their target; gathered axes with another target are
    /// replicated first.
    fn go(&mut self, pattern: Pattern, over: &Axes) {
        if over.is_empty() {
            return;
        }
        let before = self.bytes();
        for axis in over.iter() {
            let size = self.fare.mesh.axes[axis].size;
            let Some((_, from, to)) = self.axes.iter_mut().find(|(known, ..)| *known == axis) else { continue };
            let gathered = pattern == Pattern::Gather && matches!(from, Place::Dim(_));
            let next = if gathered { Place::Whole } else { *to };
            match *from {
                Place::Dim(dim) => self.shards[dim] /= size,
                Place::Stored => self.stored /= size,
                Place::Whole | Place::Partial => {}
            }
            match next {
                Place::Dim(dim) => self.shards[dim] *= size,
                Place::Stored => self.stored *= size,
                Place::Whole | Place::Partial => {}
            }
            *from = next;
        }
        self.walk(pattern, over, before);
    }

    fn walk(&mut self, pattern: Pattern, over: &Axes, before: u64) {
        self.seconds += self.fare.price(pattern, over, before, self.bytes());
    }

    /// Bytes of the largest shard so far.
    fn bytes(&self) -> u64 {
        let elements: u64 =
            self.ty.dims.iter().zip(&self.shards).map(|(dim, shards)| dim.size.div_ceil(*shards)).product();
        elements.div_ceil(self.stored) * self.ty.dtype.bytes()
    }
}
