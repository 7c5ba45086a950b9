//! What is wanted of a compilation: the layout and the rules that seed it. Plain data that crosses the floors.

use serde::{Deserialize, Serialize};

/// Where a seed rule applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SeedTarget {
    /// The model's inputs.
    Inputs,
    /// Parameters.
    Params,
    /// The values that pass from block to block.
    Values,
}

/// `tp: g, f, v`: an axis shards every dim of one of the names.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SeedRule {
    /// The axis or group.
    pub axis: String,
    /// The names of the dims.
    pub dims: Vec<String>,
    /// On which tensors.
    pub on: SeedTarget,
}

/// How many devices share each parallelism, and what else is decided by hand.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Layout {
    /// Data parallel degree.
    pub dp: u64,
    /// Tensor parallel degree.
    pub tp: u64,
    /// Pipeline parallel degree: ranks, each with `vp` stages.
    pub pp: u64,
    /// Sequence parallelism: the residual stream is sharded over tp along the sequence.
    pub sp: bool,
    /// ZeRO stage: 0, or 1 for sharded optimizer state.
    pub zero: u8,
    /// Sequences per micro-batch and data-parallel rank.
    pub mbs: u64,
    /// The pipeline schedule.
    pub schedule: String,
    /// Stages per pipeline rank; left out: as the schedule has it by itself.
    pub vp: Option<u32>,
    /// Micro-batches that go through one stage of a rank before its next one; left out: as the schedule has it by itself.
    pub group: Option<u32>,
    /// Rank order, outermost first.
    pub order: Vec<String>,
    /// The first block run of each stage but the first; empty: balanced by cost.
    pub stages: Vec<u32>,
}

impl Default for Layout {
    fn default() -> Layout {
        let order = Layout::AXES.map(str::to_string).to_vec();
        let schedule = "1f1b".to_string();
        Layout {
            dp: 1,
            tp: 1,
            pp: 1,
            sp: false,
            zero: 0,
            mbs: 1,
            schedule,
            vp: None,
            group: None,
            order,
            stages: Vec::new(),
        }
    }
}

impl Layout {
    /// The axes that a layout has, in the rank order that it has unless told otherwise.
    pub const AXES: [&str; 3] = ["pp", "dp", "tp"];

    /// The devices that it takes.
    pub fn devices(&self) -> u64 {
        self.dp * self.tp * self.pp
    }

    /// The degree of an axis by name.
    pub fn degree(&self, axis: &str) -> Option<u64> {
        match axis {
            "dp" => Some(self.dp),
            "tp" => Some(self.tp),
            "pp" => Some(self.pp),
            _ => None,
        }
    }

    /// The rules of this layout on a transformer: batch over dp, heads, feed-forward and vocabulary over tp (Shoeybi et
    /// al. 2019), and with `sp` the sequence between the matmuls too (Korthikanti et al. 2022).
    pub fn seed_rules(&self) -> Vec<SeedRule> {
        let rule = |axis: &str, dims: &[&str], on| SeedRule {
            axis: axis.to_string(),
            dims: dims.iter().map(|dim| dim.to_string()).collect(),
            on,
        };
        let mut rules = vec![rule("dp", &["b"], SeedTarget::Inputs), rule("tp", &["g", "f", "v"], SeedTarget::Params)];
        if self.sp {
            rules.push(rule("tp", &["s"], SeedTarget::Values));
        }
        rules
    }
}

/// Gradients are reduced in buckets of at most this many bytes: the `bucket_cap_mb=25` of common trainers.
pub const BUCKET_BYTES: u64 = 25 << 20;

/// What is wanted.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Goal {
    /// The layout.
    pub layout: Layout,
    /// What seeds the shardings.
    pub rules: Vec<SeedRule>,
    /// The number of devices within each link level, innermost first: axes are split so that each lies in one level.
    pub levels: Vec<u64>,
    /// The most bytes of a gradient bucket.
    pub bucket_bytes: u64,
}

impl Goal {
    /// The goal of a layout with its own rules, on one link level.
    pub fn of(layout: Layout) -> Goal {
        let rules = layout.seed_rules();
        Goal { layout, rules, levels: Vec::new(), bucket_bytes: BUCKET_BYTES }
    }
}
