//! Cost model of a cluster under a framework: seconds of kernels and collectives. All estimates use it.

use crate::cluster::{CPU, Cluster};
use crate::stack::Stack;
use std::sync::LazyLock;

/// A cluster, a stack on it, and the precision recipe of the run.
#[derive(Clone, Copy, Debug)]
pub struct Platform<'a> {
    /// Hardware description.
    pub cluster: &'a Cluster,
    /// Software description.
    pub stack: &'a Stack,
    /// Number formats of the tensors.
    pub recipe: &'a Recipe,
}

/// Format of the operands of matrix products.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// 32 bits.
    F32,
    /// bf16 or fp16.
    Half,
    /// 8 bits, with one scale per tensor, row or block.
    F8,
    /// 4 bits.
    F4,
}

/// Precision recipe: number formats of a run, in bytes per element (Micikevicius et al. 2018; DeepSeek-V3, section
/// 3.3). Frozen parameters have neither gradients nor a master copy nor states.
#[derive(Clone, PartialEq, Debug)]
pub struct Recipe {
    /// Name, as given to `--precision`: bf16, fp16, fp8-tensor, fp8-delayed, fp8-block, mxfp8, nvfp4, f32.
    pub name: String,
    /// Format of the layers' matrix products; attention, head and norms stay in half precision.
    pub products: Format,
    /// True if scales are per block within a row, so that the transposed copy of an operand is quantised separately.
    pub blocks: bool,
    /// Bytes of a parameter as read by kernels.
    pub parameter: f64,
    /// Bytes of an accumulated gradient.
    pub gradient: f64,
    /// Bytes of a communicated gradient.
    pub comm_gradient: f64,
    /// Bytes of the master copy of a parameter; 0 without a master copy.
    pub master: f64,
    /// Bytes of a parameter's optimizer states: 8 for two f32 moments.
    pub states: f64,
    /// Bytes of temporary f32 copies of a parameter's states during its update.
    pub widened: f64,
    /// Bytes of an element of an activation.
    pub activation: f64,
}

impl Format {
    /// Bytes per element.
    pub fn bytes(self) -> f64 {
        match self {
            Format::F32 => 4.0,
            Format::Half => 2.0,
            Format::F8 => 1.0,
            Format::F4 => 0.5,
        }
    }
}

impl Recipe {
    /// Mixed precision in bf16 with f32 gradients, master copy and Adam's two moments (Micikevicius et al. 2018).
    pub fn bf16() -> Recipe {
        Recipe {
            name: "bf16".into(),
            products: Format::Half,
            blocks: false,
            parameter: 2.0,
            gradient: 4.0,
            comm_gradient: 4.0,
            master: 4.0,
            states: 8.0,
            widened: 0.0,
            activation: 2.0,
        }
    }
}

impl Recipe {
    /// All tensors in f32.
    pub fn f32() -> Recipe {
        Recipe {
            name: "f32".into(),
            products: Format::F32,
            parameter: 4.0,
            master: 0.0,
            activation: 4.0,
            ..Recipe::bf16()
        }
    }
}

/// Formats of programs, whose types state them, on tensors of 32 bits, and of 16 bits and fewer.
pub(crate) static SINGLE: LazyLock<Recipe> = LazyLock::new(Recipe::f32);
pub(crate) static HALF: LazyLock<Recipe> = LazyLock::new(Recipe::bf16);

/// The platform on which programs are compiled unless another is given, so that their text does not depend on the machine.
pub static PROGRAM: LazyLock<Platform<'static>> = LazyLock::new(|| Platform::of_program(&CPU));

impl<'a> Platform<'a> {
    /// The platform of a program that Meshwright itself runs on a cluster.
    pub fn of_program(cluster: &'a Cluster) -> Platform<'a> {
        Platform { cluster, stack: Stack::own(cluster), recipe: &SINGLE }
    }
}

impl Platform<'_> {
    /// Seconds of a memory-bound kernel of the stack's fused groups: its bytes times the stack's `traffic`, over the
    /// memory bandwidth that such kernels reach on activations.
    pub fn memory_bound(&self, bytes: f64) -> f64 {
        let device = &self.cluster.device;
        let half = device.memory_share_half.filter(|_| self.recipe.activation <= Format::Half.bytes());
        self.copy(bytes * self.stack.fitted.traffic.value * half.map_or(1.0, |half| device.memory_share / half))
    }

    /// Seconds of a kernel that moves exactly these bytes.
    pub fn copy(&self, bytes: f64) -> f64 {
        let device = &self.cluster.device;
        if bytes > 0.0 { device.start + bytes / (device.memory_bandwidth * device.memory_share) } else { 0.0 }
    }

    /// CPU seconds per kernel launch; 0 under graph replay. Kernels whose row count `varies` are in a graph only if the
    /// stack has graphs for experts.
    pub fn launch(&self, varies: bool) -> f64 {
        if self.stack.traits.launch.graphs.replay(varies) { 0.0 } else { self.single_launch() }
    }

    /// CPU seconds of a kernel launch outside of graphs.
    pub fn single_launch(&self) -> f64 {
        self.stack.fitted.launch_us.value * 1e-6
    }

    /// Slowdown of compute under overlapped communication, which occupies some of the multiprocessors: `1 / (1 -
    /// comm_sms / sms)`. A device with fewer parts than that communicates without them.
    pub fn contention(&self) -> f64 {
        if self.stack.traits.kernels.comm_sms >= self.cluster.device.sms as f64 {
            return 1.0;
        }
        let share = self.stack.traits.kernels.comm_sms / self.cluster.device.sms.max(1) as f64;
        1.0 / (1.0 - share.min(0.5))
    }

    /// Constant seconds per step.
    pub fn fixed(&self) -> f64 {
        self.stack.fitted.step_ms.value * 1e-3
    }

    /// Straggler factor on the time of a step of n devices: `1 + spread sqrt(2 ln n)`, from the expected maximum of n
    /// normal deviates.
    pub fn stragglers(&self, devices: u64) -> f64 {
        1.0 + self.stack.fitted.spread.value * (2.0 * (devices.max(1) as f64).ln()).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_of_what_is_in_no_graph_take_time() {
        let cluster = Cluster::find("h100").unwrap();
        let launches = |stack| {
            let stack = Stack::find(stack).unwrap();
            let platform = Platform { cluster: &cluster, stack: &stack, recipe: &Recipe::bf16() };
            [platform.launch(false) > 0.0, platform.launch(true) > 0.0]
        };
        assert_eq!(launches("nanotron-2024"), [true, true]);
        assert_eq!(launches("megatron-core-2025"), [false, true]);
        assert_eq!(launches("megatron-core-2026"), [false, false]);
    }
}
