//! Time and bytes of a collective by the way in which its ranks exchange data.

use crate::collective_time::CollectiveKind;
use crate::group_shape::GroupShape;
use crate::pieces::pieces;
use crate::platform::Platform;
use ir::mesh::Mesh;
use ir::ops::Collective;
use ir::types::Type;

/// Communication pattern of a collective.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Pattern {
    /// Each rank receives the parts of all others.
    Gather,
    /// Each rank receives its part of the sum.
    Scatter,
    /// A reduce-scatter followed by an all-gather.
    Sum,
    /// Each rank has a part for each other rank.
    Exchange,
    /// Each rank receives its part in this number of pieces: a permute, or a shift.
    Pieces(u64),
    /// Local operation without communication.
    Local,
}

impl Pattern {
    /// Patterns that communicate; a permute in one piece.
    pub const COMMUNICATING: [Pattern; 5] =
        [Pattern::Gather, Pattern::Scatter, Pattern::Sum, Pattern::Exchange, Pattern::Pieces(1)];

    /// The pattern of a collective on a tensor.
    pub fn of(mesh: &Mesh, collective: &Collective, operand: &Type) -> Pattern {
        match collective {
            Collective::AllGather { .. } => Pattern::Gather,
            Collective::ReduceScatter { .. } => Pattern::Scatter,
            Collective::AllReduce { .. } => Pattern::Sum,
            Collective::AllToAll { .. } => Pattern::Exchange,
            Collective::Permute { dims, .. } => {
                let dims = operand.dims.iter().zip(dims);
                Pattern::Pieces(dims.map(|(dim, after)| pieces(mesh, dim.size, &dim.axes, after)).product())
            }
            Collective::Shift { .. } => Pattern::Pieces(1),
            Collective::AllSlice { .. } | Collective::ToPartial { .. } => Pattern::Local,
        }
    }

    /// Bytes that each of n ranks receives, with these bytes per rank before and after (Thakur, Rabenseifner and Gropp 2005,
    /// section 4).
    pub fn received(self, n: u64, before: f64, after: f64) -> f64 {
        let others = n.saturating_sub(1) as f64 / n.max(1) as f64;
        match self {
            Pattern::Gather => others * after,
            Pattern::Scatter | Pattern::Exchange => others * before,
            Pattern::Sum => 2.0 * others * before,
            Pattern::Pieces(_) if n == 1 => 0.0,
            Pattern::Pieces(_) => after,
            Pattern::Local => 0.0,
        }
    }
}

impl Platform<'_> {
    /// Seconds of a pattern whose ranks have these bytes before and after it. A local one reads and writes what is after it.
    ///
    /// A library may run one pattern in place of another: a sum as its two parts, and a gather or a scatter as a sum of zeros and parts. So
    /// none takes longer than what stands for it, and the collective that says what is meant is the one that is chosen.
    pub fn pattern_time(&self, pattern: Pattern, before: f64, after: f64, group: &GroupShape) -> f64 {
        match pattern {
            Pattern::Gather => self.gather_time(after, group).min(self.sum_time(after, group)),
            Pattern::Scatter => self.scatter_time(before, group).min(self.sum_time(before, group)),
            Pattern::Sum => self.sum_time(before, group),
            Pattern::Exchange => {
                let whole = before * group.ranks() as f64;
                self.time(CollectiveKind::AllToAll, before, group).min(self.gather_time(whole, group))
            }
            Pattern::Pieces(pieces) => {
                let pieces = pieces.max(1) as f64;
                pieces * self.time(CollectiveKind::Send, after / pieces, group)
            }
            Pattern::Local => self.copy(2.0 * after),
        }
    }

    fn sum_time(&self, bytes: f64, group: &GroupShape) -> f64 {
        let parts = self.scatter_time(bytes, group) + self.gather_time(bytes, group);
        self.time(CollectiveKind::AllReduce, bytes, group).min(parts)
    }

    fn gather_time(&self, bytes: f64, group: &GroupShape) -> f64 {
        self.isolated_time(CollectiveKind::AllGather, bytes, group)
    }

    fn scatter_time(&self, bytes: f64, group: &GroupShape) -> f64 {
        self.isolated_time(CollectiveKind::ReduceScatter, bytes, group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{CPU, Cluster, Link};
    use crate::collective_time::Group;
    use crate::presets::{CLUSTERS, STACKS};
    use crate::stack::Stack;
    use ir::mesh::Axes;
    use ir::types::DType;

    fn cluster() -> Cluster {
        Cluster { links: vec![Link { joins: 8, ..Link::plain(1e9, 1e-6) }], ..CPU.clone() }
    }

    fn sharded(size: u64, axes: &Axes) -> Type {
        let mut ty = Type::of(DType::F32, &[size]);
        ty.dims[0].axes = axes.clone();
        ty
    }

    fn seconds(mesh: &Mesh, change: &Collective, operand: &Type) -> f64 {
        let cluster = cluster();
        Platform::of_program(&cluster).change(mesh, change, &[operand], &[&change.result_type(operand).unwrap()])
    }

    #[test]
    fn a_permute_is_a_message_for_each_piece() {
        let mesh = Mesh::new("m", &[("x", 2), ("y", 4)]);
        let axes: Vec<Axes> = mesh.axes.keys().map(Axes::one).collect();
        let swapped = vec![axes[1].union(&axes[0])];
        let of = |size| {
            let ty = sharded(size, &mesh.tensor_axes());
            seconds(&mesh, &Collective::permute(&ty, swapped.clone()), &ty)
        };
        assert!((of(16) - (8.0 / 1e9 + 1e-6)).abs() < 1e-15);
        // Over {x,y} shards of 17 begin at 0 3 6 9 | 9 12 15 17, over {y,x} at 0 3 | 5 8 | 10 13 | 15 17: 5..8 meets two.
        assert!((of(17) - (12.0 / 1e9 + 2e-6)).abs() < 1e-15);
    }

    #[test]
    fn a_local_slice_takes_memory_only() {
        let mesh = Mesh::new("m", &[("x", 4)]);
        let whole = sharded(1000, &Axes::none());
        let shard = Collective::all_slice(Some(0), mesh.tensor_axes());
        assert_eq!(seconds(&mesh, &shard, &whole), 2000.0 / CPU.device.memory_bandwidth);
    }

    const GROUPS: [(u64, u64); 9] = [(2, 1), (2, 8), (4, 1), (8, 1), (3, 2), (6, 4), (16, 1), (32, 8), (256, 1)];

    /// Bytes from which the seconds of a byte, beyond some that any message takes, rise by more than rounding.
    fn rise(platform: &Platform<'_>, pattern: Pattern, group: &GroupShape, least: f64) -> Option<f64> {
        let bytes: Vec<f64> = (0..=160).map(|step| 2f64.powf(f64::from(step) / 4.0)).collect();
        let seconds: Vec<f64> =
            bytes.iter().map(|&bytes| platform.pattern_time(pattern, bytes, bytes, group)).collect();
        let step = (0..160).find(|&step| {
            let [fewer, more] = [step, step + 1].map(|step| (seconds[step] - least) / bytes[step]);
            more > fewer + 1e-12 * seconds[step] / bytes[step]
        });
        step.map(|step| bytes[step])
    }

    /// The search for reshards rests on it: what is true of some bytes bounds fewer.
    #[test]
    fn fewer_bytes_take_no_less_time_for_each() {
        let mut wrong: Vec<String> = Vec::new();
        for cluster in CLUSTERS.iter().map(|preset| Cluster::find(preset.name).unwrap()) {
            for stack in STACKS.iter().map(|preset| Stack::find(preset.name).unwrap()) {
                let platform = Platform { stack: &stack, ..Platform::of_program(&cluster) };
                for group in GROUPS.map(|(ranks, stride)| GroupShape::from(Group { ranks, stride })) {
                    for pattern in Pattern::COMMUNICATING {
                        let rises = [0.0, platform.least_wait()]
                            .into_iter()
                            .find_map(|it| rise(&platform, pattern, &group, it));
                        let place = rises.map(|bytes| {
                            format!("{}, {}: {pattern:?}, {group:?}, {bytes} bytes", cluster.name, stack.name)
                        });
                        wrong.extend(place);
                    }
                }
            }
        }
        assert!(wrong.is_empty(), "{} places: {:#?}", wrong.len(), &wrong[..wrong.len().min(10)]);
    }
}
