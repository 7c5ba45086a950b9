//! Time of attention kernels.

use crate::cluster::Attention;
use crate::kernel::Kernel;
use crate::platform::{Format, Platform};
use crate::quantities::Passes;
use crate::traits::FusedKernel;

/// Shape of one attention on one rank.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AttentionShape {
    /// Number of sequences.
    pub batch: f64,
    /// Number of query heads.
    pub heads: f64,
    /// Number of key and value heads.
    pub kv_heads: f64,
    /// Queries per sequence on this rank.
    pub queries: f64,
    /// Keys per query, before any mask.
    pub keys: f64,
    /// Head size of queries and keys.
    pub d: f64,
    /// Head size of values.
    pub c: f64,
    /// Unmasked fraction of the query-key pairs: `(1 + 1/s)/2` for a causal mask.
    pub share: f64,
}

/// Rows of queries (of keys in the backward) per thread block (Dao 2023, section 3.3).
const BLOCK: f64 = 128.0;

/// Flash kernels are compiled for head sizes by this step, and pad others (Dao-AILab/flash-attention,
/// csrc/flash_attn/src/static_switch.h: HEADDIM_SWITCH).
const HEAD_STEP: f64 = 32.0;

/// Bytes at whose multiples operands must begin for tensor cores (NVIDIA, Matrix Multiplication Background User's Guide, Tensor
/// Core Requirements).
const ALIGNMENT: f64 = 16.0;

/// Bytes that softmax and dropout move per score if scores are in memory. Forward: softmax reads and writes 2, dropout
/// 2 and 2 and a mask of 1. Backward: dropout reads 2 and 1 and writes 2, softmax reads 2 and 2 and writes 2.
const SCORE_BYTES: Passes = Passes { forward: 9.0, backward: 11.0 };

/// Extra bytes if scale and mask are separate kernels: a quotient, a product and a difference, each reads and writes 2.
/// In the backward, the quotient's and the product's (Megatron-LM of 2019, mpu/transformer.py).
const MASK_BYTES: Passes = Passes { forward: 12.0, backward: 8.0 };

impl AttentionShape {
    /// Operations: `2 (d + c)` per query-key pair in the forward. The backward recomputes the scores and has five
    /// products, `2 (3 d + 2 c)` (Dao 2023, section 4.1: 2.5 times the forward).
    pub fn flops(&self, backward: bool) -> f64 {
        let pairs = self.batch * self.heads * self.queries * self.keys * self.share;
        pairs * 2.0 * if backward { 3.0 * self.d + 2.0 * self.c } else { self.d + self.c }
    }

    /// Bytes of queries, keys, values and result in half precision; in the backward also their gradients.
    fn bytes(&self, backward: bool) -> f64 {
        let queries = self.heads * self.queries * (self.d + self.c);
        let keys = self.kv_heads * self.keys * (self.d + self.c);
        2.0 * self.batch * (queries + keys) * if backward { 2.0 } else { 1.0 }
    }
}

impl Platform<'_> {
    /// Seconds of an attention, or of its gradient.
    pub fn attention(&self, shape: &AttentionShape, backward: bool) -> f64 {
        if shape.flops(backward) <= 0.0 {
            return 0.0;
        }
        match self.attention_kernel() {
            Some((kernel, rates)) => {
                let (rates, peak) = self.rates_on_activations(kernel, rates);
                self.flash(shape, backward, rates, peak)
            }
            None => self.unfused(shape, backward),
        }
    }

    /// Returns whether attention never stores scores in memory.
    pub fn has_flash(&self) -> bool {
        self.attention_kernel().is_some()
    }

    /// Best kernel that both stack and device support. If the device is newer than all of the stack's kernels, its own
    /// simplest kernel is used, which comes with the device's libraries.
    fn attention_kernel(&self) -> Option<(Kernel, &Attention)> {
        let best = self.stack.traits.kernels.attention;
        let on_device = &self.cluster.device.attention;
        if best == Kernel::Unfused {
            return None;
        }
        on_device.range(..=best).next_back().or_else(|| on_device.iter().next()).map(|(&kernel, rates)| (kernel, rates))
    }

    /// Speeds of a kernel on operands of the format that activations have, with operations per second of which they are fractions.
    fn rates_on_activations<'a>(&'a self, kernel: Kernel, half: &'a Attention) -> (&'a Attention, f64) {
        let device = &self.cluster.device;
        let is_f32 = self.has_f32_activations();
        match device.attention_f32.get(&kernel).filter(|_| is_f32) {
            Some(rates) => (rates, device.flops_f32),
            None if is_f32 => (half, device.flops_bf16 * half.f32.unwrap_or(1.0)),
            None => (half, device.flops_bf16),
        }
    }

    fn has_f32_activations(&self) -> bool {
        self.recipe.activation > Format::Half.bytes()
    }

    /// Operations over the kernel's rate for this head size and sequence length. The rate is scaled by the
    /// multiprocessors in use, one per block.
    fn flash(&self, shape: &AttentionShape, backward: bool, kernel: &Attention, peak: f64) -> f64 {
        let device = &self.cluster.device;
        let (shares, half, rows) = if backward {
            (&kernel.backward, kernel.half.backward, shape.keys)
        } else {
            (&kernel.forward, kernel.half.forward, shape.queries)
        };
        let looked_at = shape.keys * shape.share;
        let padded = (shape.d / HEAD_STEP).ceil() * HEAD_STEP;
        let share = shares.at(padded) * shape.d / padded * looked_at / (looked_at + half);
        let waves = shape.batch * shape.heads * (rows / BLOCK).ceil() / device.sms as f64;
        let busy = if waves < 0.5 { waves } else { waves / (waves + 0.5) };
        let rate = peak * share * busy * self.stack.fitted.attention.value;
        (device.start + shape.flops(backward) / rate).max(self.copy(shape.bytes(backward)))
    }

    /// Products with all scores in memory, with softmax and dropout between them, at the rate of what activations are. Heads lie side by side,
    /// so that a head size off the alignment keeps products from tensor cores: they run at the rate of f32 too.
    fn unfused(&self, shape: &AttentionShape, backward: bool) -> f64 {
        let AttentionShape { batch, heads, queries, keys, d, c, .. } = *shape;
        let is_aligned = [d, c].iter().all(|size| size * Format::Half.bytes() % ALIGNMENT == 0.0);
        let format = if is_aligned && !self.has_f32_activations() { Format::Half } else { Format::F32 };
        let bytes = if self.stack.fuses(FusedKernel::Softmax) { SCORE_BYTES } else { SCORE_BYTES + MASK_BYTES };
        let bytes = if backward { bytes.backward } else { bytes.forward };
        let scores = self.memory_bound(batch * heads * queries * keys * bytes);
        // Rows, columns and depth of each product.
        let sizes: &[[f64; 3]] = if backward {
            &[[queries, keys, c], [keys, c, queries], [queries, d, keys], [keys, d, queries]]
        } else {
            &[[queries, keys, d], [queries, c, keys]]
        };
        let products = sizes.iter().map(|&[m, n, k]| self.matmul(batch * heads, m, n, k, format, false));
        products.sum::<f64>() + scores
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Cluster;
    use crate::platform::Recipe;
    use crate::stack::Stack;

    fn platform<R>(cluster: &str, kernel: Kernel, of: impl FnOnce(&Platform<'_>) -> R) -> R {
        let cluster = Cluster::find(cluster).unwrap();
        let mut stack = Stack::find("megatron-core-2025").unwrap();
        stack.traits.kernels.attention = kernel;
        stack.fitted.attention.value = 1.0;
        of(&Platform { cluster: &cluster, stack: &stack, recipe: &Recipe::bf16() })
    }

    /// The shapes of the published benchmarks: 16k tokens, 16 heads of 128.
    fn shape(s: f64, causal: bool) -> AttentionShape {
        let (heads, share) = (16.0, if causal { (1.0 + 1.0 / s) / 2.0 } else { 1.0 });
        let (d, kv_heads) = (128.0, heads);
        AttentionShape { batch: 16384.0 / s, heads, kv_heads, queries: s, keys: s, d, c: d, share }
    }

    fn tflops(kernel: Kernel, s: f64, backward: bool) -> f64 {
        let shape = shape(s, !backward);
        platform("h100", kernel, |platform| shape.flops(backward) / platform.attention(&shape, backward) / 1e12)
    }

    #[test]
    fn attention_on_h100_takes_what_was_measured() {
        // Shah et al. 2024, figures 5 (forward, causal) and 6 (backward): heads of 128, 512 to 16k tokens, TFLOP/s.
        let figures = [
            (Kernel::Flash2, false, [191.0, 260.0, 298.0, 319.0, 333.0, 335.0]),
            (Kernel::Cudnn, false, [315.0, 410.0, 484.0, 518.0, 529.0, 539.0]),
            (Kernel::Flash3, false, [292.0, 423.0, 521.0, 579.0, 602.0, 616.0]),
            (Kernel::Flash2, true, [214.0, 260.0, 291.0, 310.0, 318.0, 322.0]),
            (Kernel::Cudnn, true, [305.0, 408.0, 465.0, 499.0, 518.0, 516.0]),
            (Kernel::Flash3, true, [316.0, 424.0, 501.0, 542.0, 559.0, 561.0]),
        ];
        for (kernel, backward, measured) in figures {
            for (power, measured) in measured.into_iter().enumerate() {
                let predicted = tflops(kernel, 512.0 * f64::from(1 << power), backward);
                let error = predicted / measured - 1.0;
                assert!(error.abs() < 0.1, "{kernel:?} backward {backward} 512 << {power}: {predicted} {measured}");
            }
        }
    }

    #[test]
    fn a_gradient_is_five_products_for_two() {
        let shape = shape(4096.0, true);
        assert_eq!(shape.flops(true), 2.5 * shape.flops(false));
        assert_eq!(shape.flops(false), 4.0 * 4.0 * 16.0 * 4096.0 * 128.0 * 4097.0 / 2.0);
    }

    /// BLOOM's prequel (BigScience, chronicles-prequel.md): 13824 of width with 96 heads of 144 or 128 of 108. The layers of the
    /// latter took 1.33 times as long; attention had a tenth of it.
    #[test]
    fn heads_off_the_alignment_run_without_tensor_cores() {
        let [aligned, off, padded] = [(12.0, 144.0), (16.0, 108.0), (16.0, 112.0)].map(|(heads, d)| {
            let shape = AttentionShape { heads, kv_heads: heads, d, c: d, ..shape(2048.0, false) };
            platform("a100", Kernel::Unfused, |platform| platform.attention(&shape, false))
        });
        assert!(off > 2.0 * aligned);
        assert!(padded < 1.5 * aligned);
    }

    #[test]
    fn flash_pads_a_head_to_the_next_step() {
        let [of_64, of_80, of_96] = [64.0, 80.0, 96.0].map(|d| {
            let shape = AttentionShape { d, c: d, ..shape(4096.0, false) };
            platform("h100", Kernel::Flash2, |platform| shape.flops(false) / platform.attention(&shape, false))
        });
        // 80 of 96 columns are of use.
        assert!((of_80 / of_96 - 80.0 / 96.0).abs() < 0.01);
        assert!(of_96 > of_64);
    }

    #[test]
    fn f32_takes_longer_where_the_device_states_it() {
        let seconds = |ratio: Option<f64>, activation: f64| {
            let mut cluster = Cluster::find("h100").unwrap();
            cluster.device.start = 0.0;
            cluster.device.attention.values_mut().for_each(|kernel| kernel.f32 = ratio);
            let stack = Stack::find("meshwright-cuda").unwrap();
            let recipe = Recipe { activation, ..Recipe::bf16() };
            Platform { cluster: &cluster, stack: &stack, recipe: &recipe }.attention(&shape(4096.0, true), false)
        };
        assert_eq!(seconds(None, 4.0), seconds(None, 2.0));
        assert_eq!(seconds(Some(0.25), 2.0), seconds(None, 2.0));
        assert!((seconds(Some(0.25), 4.0) / seconds(None, 4.0) - 4.0).abs() < 1e-9);
    }

    #[test]
    fn f32_has_the_speeds_that_are_stated_for_it() {
        let [wide, narrow] = [4.0, 2.0].map(|activation| {
            let mut cluster = Cluster::find("h100").unwrap();
            let device = &mut cluster.device;
            (device.start, device.flops_f32) = (0.0, device.flops_bf16 / 2.0);
            device.attention_f32 = device.attention.clone();
            let stack = Stack::find("meshwright-cuda").unwrap();
            let recipe = Recipe { activation, ..Recipe::bf16() };
            Platform { cluster: &cluster, stack: &stack, recipe: &recipe }.attention(&shape(4096.0, true), false)
        });
        assert!((wide / narrow - 2.0).abs() < 1e-9);
    }

    #[test]
    fn scores_of_f32_are_multiplied_at_its_rate() {
        let [wide, narrow] = [4.0, 2.0].map(|activation| {
            let (cluster, stack) = (Cluster::find("cpu").unwrap(), Stack::find("meshwright").unwrap());
            let recipe = Recipe { activation, ..Recipe::bf16() };
            let platform = Platform { cluster: &cluster, stack: &stack, recipe: &recipe };
            assert!(!platform.has_flash());
            platform.attention(&shape(4096.0, false), false)
        });
        assert!(wide > 1.5 * narrow, "{wide} {narrow}");
    }

    #[test]
    fn scores_in_memory_take_longer_and_devices_without_flash_have_them() {
        let shape = shape(2048.0, true);
        let of = |cluster, kernel| platform(cluster, kernel, |platform| platform.attention(&shape, false));
        assert!(of("a100", Kernel::Unfused) > 3.0 * of("a100", Kernel::Flash2));
        assert!(platform("a100", Kernel::Flash3, |platform| platform.has_flash()));
        assert!(!platform("v100-dgx2", Kernel::Flash2, |platform| platform.has_flash()));
        assert_eq!(of("v100-dgx2", Kernel::Flash2), of("v100-dgx2", Kernel::Unfused));
    }
}
