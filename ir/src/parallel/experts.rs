//! Placement of experts: the parts of tp, cp and dp that the expert-parallel degrees use.
//!
//! The ranks below pp are factored a second time, innermost first: `etp` neighbours share an expert, `ep` such groups hold
//! different experts, and the remaining ranks hold copies (Megatron-Core's parallel folding, Liu et al. 2025, section 3.2).
//! With etp = tp and without cp, experts are sharded within dp, `dp=[edp,ep]`; if etp < tp, over tp before dp.

use crate::options::ParallelConfig;
use std::fmt;

/// The role of a part of an axis for experts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Its ranks share an expert.
    Shares,
    /// Its ranks hold different experts.
    Differs,
    /// Its ranks hold copies.
    Copies,
}

/// An axis and its parts with their sizes, innermost first.
pub type Folded = (&'static str, Vec<(Role, u64)>);

/// Error: the axes have no parts of sizes `ep` and `etp`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unfolded {
    /// Data parallel degree.
    pub dp: u64,
    /// Context parallel degree.
    pub cp: u64,
    /// Tensor parallel degree.
    pub tp: u64,
    /// Expert parallel degree.
    pub ep: u64,
    /// Tensor parallel degree within experts.
    pub etp: u64,
    /// The reason.
    pub why: String,
}

impl fmt::Display for Unfolded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unfolded { dp, cp, tp, ep, etp, why } = self;
        write!(f, "ep={ep} and etp={etp} do not fit in dp={dp}, cp={cp}, tp={tp}: {why}")
    }
}

impl std::error::Error for Unfolded {}

impl ParallelConfig {
    /// The parts of dp, cp and tp with their sizes, each axis innermost part first, parts of size 1 left out.
    ///
    /// # Errors
    /// The degrees are not products of such parts.
    pub fn fold(&self) -> Result<[Folded; 3], Unfolded> {
        let mut left = [(Role::Shares, self.etp), (Role::Differs, self.ep)];
        let tp = self.split("tp", self.tp, &mut left)?;
        let cp = self.split("cp", self.cp, &mut left)?;
        let dp = self.split("dp", self.dp, &mut left)?;
        if left.iter().any(|(_, left)| *left > 1) {
            let why = format!("they take {} ranks, but there are {}", self.ep * self.etp, self.dp * self.cp * self.tp);
            return Err(self.unfolded(why));
        }
        Ok([("tp", tp), ("cp", cp), ("dp", dp)])
    }

    /// The parts of an axis, which take what they can of the parts that are left.
    fn split(&self, axis: &str, degree: u64, left: &mut [(Role, u64)]) -> Result<Vec<(Role, u64)>, Unfolded> {
        let (mut parts, mut rest) = (Vec::new(), degree);
        for (role, left) in left {
            let size = rest.min(*left);
            if size == 0 || !rest.is_multiple_of(size) || !left.is_multiple_of(size) {
                let why = format!("of {axis} {rest} ranks are left, but {left} would be taken");
                return Err(self.unfolded(why));
            }
            parts.push((*role, size));
            (rest, *left) = (rest / size, *left / size);
        }
        parts.push((Role::Copies, rest));
        parts.retain(|(_, size)| *size > 1);
        Ok(parts)
    }

    fn unfolded(&self, why: String) -> Unfolded {
        let ParallelConfig { dp, cp, tp, ep, etp, .. } = *self;
        Unfolded { dp, cp, tp, ep, etp, why }
    }

    /// True if experts are sharded, or are placed on axes that shard attention. False for unsharded experts that differ only
    /// between data-parallel ranks.
    pub fn has_folded_experts(&self) -> bool {
        self.etp > 1 || (self.ep > 1 && self.tp * self.cp > 1)
    }

    /// The configuration of the ranks that compute one block together: no pp, no ZeRO, and only the part of dp that holds
    /// different experts. Its micro-batch is that of these ranks.
    ///
    /// # Errors
    /// As [`ParallelConfig::fold`].
    pub fn together(&self) -> Result<ParallelConfig, Unfolded> {
        let (dp, stages) = (self.dp_together()?, Vec::new());
        Ok(ParallelConfig { dp, pp: 1, zero: 0, shard: None, stages, vp: None, group: None, ..self.clone() })
    }

    /// The data-parallel ranks among those that compute one block together: they hold different experts.
    ///
    /// # Errors
    /// As [`ParallelConfig::fold`].
    pub fn dp_together(&self) -> Result<u64, Unfolded> {
        let [.., (_, parts)] = self.fold()?;
        Ok(parts.iter().filter(|(role, _)| *role != Role::Copies).map(|(_, size)| size).product())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fold(dp: u64, cp: u64, tp: u64, ep: u64, etp: u64) -> Result<String, Unfolded> {
        let parallel = ParallelConfig { dp, cp, tp, ep, etp, ..ParallelConfig::default() };
        let text = |(axis, parts): &Folded| {
            let parts: Vec<String> = parts.iter().rev().map(|(role, size)| format!("{role:?} {size}")).collect();
            format!("{axis}=[{}]", parts.join(", "))
        };
        parallel.fold().map(|folded| folded.iter().rev().map(text).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn experts_take_the_innermost_ranks() {
        assert_eq!(fold(8, 1, 2, 4, 2).unwrap(), "dp=[Copies 2, Differs 4] cp=[] tp=[Shares 2]");
        assert_eq!(fold(4, 1, 2, 8, 1).unwrap(), "dp=[Differs 4] cp=[] tp=[Differs 2]");
        assert_eq!(fold(8, 2, 4, 4, 2).unwrap(), "dp=[Copies 8] cp=[Differs 2] tp=[Differs 2, Shares 2]");
        assert_eq!(fold(2, 1, 2, 1, 1).unwrap(), "dp=[Copies 2] cp=[] tp=[Copies 2]");
    }

    #[test]
    fn what_does_not_divide_is_refused() {
        for (dp, cp, tp, ep, etp, why) in
            [(2, 1, 1, 4, 1, "they take 4 ranks"), (6, 1, 1, 4, 1, "of dp 6"), (8, 1, 3, 2, 1, "of tp 3")]
        {
            let error = fold(dp, cp, tp, ep, etp).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn of_data_parallelism_only_different_experts_work_together() {
        let parallel = ParallelConfig { dp: 64, tp: 2, pp: 4, ep: 8, zero: 1, ..ParallelConfig::default() };
        let together = parallel.together().unwrap();
        assert_eq!((together.dp, together.tp, together.pp, together.zero), (4, 2, 1, 0));
        assert_eq!(ParallelConfig { ep: 1, ..parallel }.together().unwrap().dp, 1);
    }
}
