//! Software description: how well a framework uses the hardware. A file of `planner/cost/stacks/`.

use crate::cluster::Cluster;
use crate::conditions::{Conditions, Refused};
use crate::residual::Residual;
use crate::supports::Supports;
use crate::traits::{FusedKernel, Graphs, Hidden, StackTraits};
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;

/// Framework profile of one version.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stack {
    /// Name, as given to `--stack`.
    pub name: String,
    /// One-line description, with the sources of its facts.
    pub about: String,
    /// Constants fitted to measured runs.
    pub fitted: Fitted,
    /// Properties of the framework's code.
    #[serde(default)]
    pub traits: StackTraits,
    /// Conditions of properties on the configuration.
    #[serde(default)]
    pub conditions: Conditions,
    /// Supported configuration options.
    #[serde(default)]
    pub supports: Supports,
    /// Errors on the runs that the constants were fitted to. A file may state the ends for step time alone, `[low, high]`.
    #[serde(default, deserialize_with = "crate::residual::read")]
    pub residual: Residual,
}

/// Constants of a stack that are fitted to measured runs. There are no others.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fitted {
    /// Fraction of the device's sustained matrix-product rate.
    pub matmul: Constant,
    /// Fraction of the rate of the device's attention kernel.
    pub attention: Constant,
    /// Ratio of the bytes that elementwise kernels move to those of the stack's fused groups.
    pub traffic: Constant,
    /// CPU time per kernel launch, in microseconds.
    pub launch_us: Constant,
    /// Constant time per step, in milliseconds.
    pub step_ms: Constant,
    /// Fraction of the bandwidth between nodes.
    pub network: Constant,
    /// Fraction of the hideable communication that is hidden.
    pub overlap: Constant,
    /// Standard deviation of a device's step time over its mean (jitter).
    pub spread: Constant,
}

/// Fitted value with its physical interval.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Constant {
    /// Fitted value.
    pub value: f64,
    /// Lower limit.
    pub low: f64,
    /// Upper limit.
    pub high: f64,
}

/// The stacks of Meshwright's own runtime, on processors and on GPUs.
static OWN: LazyLock<[Stack; 2]> = LazyLock::new(|| {
    ["meshwright-threads", "meshwright-cuda"].map(|name| Stack::find(name).expect("a test reads every preset"))
});

impl Stack {
    /// The stack by which Meshwright itself runs a program on a cluster. Processors have no maker here.
    pub fn own(cluster: &Cluster) -> &'static Stack {
        &OWN[usize::from(cluster.device.vendor.is_some())]
    }

    /// Returns whether a group of ops is one kernel.
    pub fn fuses(&self, group: FusedKernel) -> bool {
        self.traits.kernels.fused.contains(group)
    }

    /// Properties of the framework's code without those that a configuration excludes.
    pub fn traits_without(&self, refused: Refused) -> StackTraits {
        let mut traits = self.traits.clone();
        if refused.exchanges {
            traits.hides.remove(Hidden::Ep);
        }
        if refused.graphs {
            traits.launch.graphs = Graphs::None;
        }
        traits
    }

    /// Returns whether a kind of communication overlaps with compute.
    pub fn hides(&self, communication: Hidden) -> bool {
        self.traits.hides.contains(communication)
    }
}

impl Fitted {
    /// Constants by name, in a fixed order.
    pub fn by_name(&mut self) -> [(&'static str, &mut Constant); 8] {
        [
            ("matmul", &mut self.matmul),
            ("attention", &mut self.attention),
            ("traffic", &mut self.traffic),
            ("launch_us", &mut self.launch_us),
            ("step_ms", &mut self.step_ms),
            ("network", &mut self.network),
            ("overlap", &mut self.overlap),
            ("spread", &mut self.spread),
        ]
    }
}
