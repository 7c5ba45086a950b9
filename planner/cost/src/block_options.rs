//! The fields of a configuration that the cost of a planned block depends on.

use crate::conditions::Refused;
use ir::options::{CpKind, Offload, ParallelConfig, Recompute};

/// Options of a block that are not in its plan, which has the degrees. Costs see nothing else of a configuration, so two
/// configurations with equal options and equal plans have equal costs.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BlockOptions {
    /// Tensor parallel degree.
    pub tp: u64,
    /// True if the residual stream is sharded over tp along the sequence.
    pub sp: bool,
    /// The context-parallel algorithm of attention.
    pub cp_kind: CpKind,
    /// The recomputed values. `Full` is of an entire block, for any number of layers.
    pub recompute: Recompute,
    /// True if saved activations are offloaded to host memory, those of all blocks.
    pub offload: bool,
    /// True to overlap tensor-parallel communication with matmuls; `None`: as the stack does.
    pub tp_overlap: Option<bool>,
    /// Properties of the stack that do not hold.
    pub refused: Refused,
    /// Distances between the ranks of the block's mesh.
    pub spread: Spread,
}

impl BlockOptions {
    /// Options under a configuration, of whose data-parallel ranks `together` are in the block's mesh. All properties of the stack hold.
    pub fn of(parallel: &ParallelConfig, together: u64) -> BlockOptions {
        let ParallelConfig { tp, sp, cp_kind, tp_overlap, .. } = *parallel;
        let offload = parallel.offload == Offload::All(None);
        let recompute = match &parallel.recompute {
            Recompute::Full(_) => Recompute::Full(None),
            other => other.clone(),
        };
        let (refused, spread) = (Refused::default(), Spread::of(parallel, together));
        BlockOptions { tp, sp, cp_kind, recompute, offload, tp_overlap, refused, spread }
    }
}

/// Factors by which neighbours on each axis are further apart than in the block's mesh. The rank order may place pp, or
/// data-parallel ranks with copies of the block, inside the axis.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Spread {
    /// Factor of tp.
    pub tp: u64,
    /// Factor of cp.
    pub cp: u64,
    /// Factor of dp.
    pub dp: u64,
}

impl Spread {
    /// Factors under a configuration, of whose data-parallel ranks `together` are in the block's mesh.
    pub fn of(parallel: &ParallelConfig, together: u64) -> Spread {
        let [tp, cp, dp] = ["tp", "cp", "dp"].map(|axis| {
            let inner = parallel.rank_order.iter().skip_while(|name| *name != axis).skip(1);
            let degrees = inner.map(|name| match name.as_str() {
                "pp" => parallel.pp,
                "dp" => (parallel.dp / together).max(1),
                _ => 1,
            });
            degrees.product()
        });
        Spread { tp, cp, dp }
    }

    /// Factor of an axis by name; 1 for other axes than tp, cp and dp.
    pub fn along(&self, axis: &str) -> u64 {
        match axis {
            "tp" => self.tp,
            "cp" => self.cp,
            "dp" => self.dp,
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2 of 8 data-parallel ranks are in the block's mesh. In the default order they are outside tp and cp. With dp and pp
    /// innermost, 4 copies and 3 stages are between neighbours.
    #[test]
    fn ranks_inside_an_axis_spread_it() {
        let spread = |order: [&str; 4]| {
            let rank_order = order.map(str::to_string).into();
            let parallel = ParallelConfig { dp: 8, tp: 2, cp: 2, pp: 3, rank_order, ..ParallelConfig::default() };
            Spread::of(&parallel, 2)
        };
        assert_eq!(spread(["pp", "dp", "cp", "tp"]), Spread { tp: 1, cp: 1, dp: 1 });
        assert_eq!(spread(["cp", "tp", "dp", "pp"]), Spread { tp: 12, cp: 12, dp: 3 });
        assert_eq!(spread(["cp", "dp", "tp", "pp"]).along("cp"), 12);
    }
}
