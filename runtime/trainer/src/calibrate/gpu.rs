//! Cluster file of a GPU that the ranks of a process share: the times from [`cuda::measure`] as constants of a device and a link.

use super::fit::{own, sums};
use super::{attention_of, link, rounded};
use cost::{Cluster, Device, Format, Kernel, Matmul, Platform, Recipe, Stack, Tile};
use cuda::measure::{GpuMeasured, GpuProduct};
use ir::types::DType;
use std::collections::BTreeMap;

/// The least shares of a peak and of the bandwidth of memory that a cluster may state.
const LEAST_SHARE: f64 = 0.01;

/// Depths of tiles that are tried: 0, and up to 4096 by ratios of 2^(1/4), as one step changes the rate of a product of a
/// thousand steps by a few per cent at most.
const DEPTHS: i32 = 48;

/// Types of measured operands.
const TYPES: [DType; 3] = [DType::F32, DType::BF16, DType::F8E4M3];

/// Halvings of the interval of a share: enough for the four digits that a file has.
const GOLDEN_STEPS: usize = 40;

/// Builds the cluster of a measured GPU, on which ranks take turns.
///
/// # Errors
/// The stack of the backend cannot be read.
pub fn gpu_cluster(measured: &GpuMeasured) -> Result<Cluster, crate::error::Error> {
    let mut stack = compiler::machine_source::stack("meshwright-cuda")?;
    stack.fitted.matmul.value = 1.0;
    // Measured operands of 8 bits are there already.
    stack.traits.kernels.quantise = 0.0;
    let device = device(measured);
    let about = format!("ranks that share one GPU ({}), measured by `meshwright calibrate`", measured.device.name);
    let mut cluster = Cluster {
        name: "this-gpu".into(),
        aliases: Vec::new(),
        about,
        cores: Some(1),
        shared_memory: Some(measured.free_memory),
        device,
        host: None,
        links: vec![link("memory of the GPU", sums(&measured.sums, 1), &measured.messages)],
    };
    fit_products(&mut cluster, &stack, &measured.products);
    cluster.device.attention.insert(Kernel::Flash2, attention(measured, &cluster.device));
    Ok(cluster)
}

/// The device without its shares of products and its attention. Peaks are those that its clocks and units give, if they are known and
/// measured rates are in the range of shares of them.
fn device(measured: &GpuMeasured) -> Device {
    let peaks = measured.device.peaks;
    let stated = [(DType::F32, peaks.f32), (DType::BF16, peaks.bf16), (DType::F8E4M3, peaks.f8)];
    let [f32, bf16, f8] = stated.map(|(dtype, peak)| {
        let products = measured.products.iter().filter(|one| one.dtype == dtype);
        within(peak, products.map(|one| flops(one) / one.product.seconds).fold(0.0, f64::max))
    });
    let has_f8 = measured.products.iter().any(|one| one.dtype == DType::F8E4M3);
    // Bytes of all groups over their seconds.
    let (bytes, seconds) = measured.groups.iter().fold((0.0, 0.0), |(bytes, seconds), &(_, moved, time)| {
        (bytes + moved as f64, seconds + own(time, measured.start))
    });
    let reached = bytes / seconds;
    let bandwidth = within(peaks.memory, reached.max(measured.copy_bandwidth)).min(reached / LEAST_SHARE);
    Device {
        name: measured.device.name.clone(),
        vendor: Some("nvidia".to_string()),
        capability: Some(u64::from(measured.device.capability.0)),
        flops_f32: rounded(f32),
        flops_bf16: rounded(bf16),
        widens_f16: false,
        flops_f8: has_f8.then(|| rounded(f8)),
        flops_f4: None,
        memory_bandwidth: rounded(bandwidth),
        memory_share: rounded(reached / bandwidth),
        memory_share_half: None,
        memory: measured.free_memory,
        host_bandwidth: rounded(measured.host_bandwidth[0].min(measured.host_bandwidth[1])),
        attention_like: None,
        precisions: None,
        start: rounded(measured.start),
        sms: u64::from(measured.device.multiprocessors.max(1)),
        matmul: Matmul { tiles: tiles(measured.device.capability.0), ..Matmul::default() },
        attention: BTreeMap::new(),
        attention_f32: BTreeMap::new(),
    }
}

/// A peak, at least what was measured, of which that is a share in range.
fn within(peak: Option<f64>, measured: f64) -> f64 {
    peak.unwrap_or(measured).clamp(measured, measured / LEAST_SHARE)
}

fn flops(one: &GpuProduct) -> f64 {
    2.0 * (one.batch * one.product.m * one.product.n * one.product.k) as f64
}

/// Tiles of the presets of a device's generation.
fn tiles(major: u32) -> Vec<Tile> {
    let preset = if major < 9 { "a100-80gb" } else { "h100-dgx-ndr" };
    Cluster::find(preset).map_or_else(|_| Matmul::default().tiles, |cluster| cluster.device.matmul.tiles)
}

/// Sets the depth of tiles and the share of each peak such that the cost model's times of products differ least from those measured, by
/// the squares of their logarithms.
fn fit_products(cluster: &mut Cluster, stack: &Stack, products: &[GpuProduct]) {
    let powers = (0..=DEPTHS).map(|power| f64::from(power) / 4.0).map(f64::exp2);
    let mut best = (f64::INFINITY, cluster.device.matmul.clone());
    for depth in [0.0].into_iter().chain(powers) {
        cluster.device.matmul.depth = rounded(depth);
        let error: f64 = TYPES.map(|dtype| fit_share(cluster, stack, products, dtype)).iter().sum();
        if error < best.0 {
            best = (error, cluster.device.matmul.clone());
        }
    }
    cluster.device.matmul = best.1;
}

/// Sets the share of a type's peak by golden section, and gives the error. Without products the share stays.
fn fit_share(cluster: &mut Cluster, stack: &Stack, products: &[GpuProduct], dtype: DType) -> f64 {
    if products.iter().all(|one| one.dtype != dtype) {
        return 0.0;
    }
    let part = (5f64.sqrt() - 1.0) / 2.0;
    let (mut low, mut high) = (LEAST_SHARE.ln(), 0.0);
    for _ in 0..GOLDEN_STEPS {
        let tried = [high - part * (high - low), low + part * (high - low)];
        let [left, right] = tried.map(|log| set_share(cluster, stack, products, dtype, log.exp()));
        if left <= right { high = tried[1] } else { low = tried[0] }
    }
    set_share(cluster, stack, products, dtype, ((low + high) / 2.0).exp())
}

/// Sets the share of a type's peak, and gives the error of its products.
fn set_share(cluster: &mut Cluster, stack: &Stack, products: &[GpuProduct], dtype: DType, value: f64) -> f64 {
    let matmul = &mut cluster.device.matmul;
    let share = match dtype {
        DType::F32 => &mut matmul.f32,
        DType::F8E4M3 => &mut matmul.f8,
        _ => &mut matmul.half,
    };
    *share = rounded(value);
    let of_type = products.iter().filter(|one| one.dtype == dtype);
    of_type.map(|one| (predicted(cluster, stack, one) / one.product.seconds).ln().powi(2)).sum()
}

/// Seconds of products under the cost model.
fn predicted(cluster: &Cluster, stack: &Stack, one: &GpuProduct) -> f64 {
    let format = match one.dtype {
        DType::F32 => Format::F32,
        DType::F8E4M3 => Format::F8,
        _ => Format::Half,
    };
    let recipe = Recipe::bf16();
    let platform = Platform { cluster, stack, recipe: &recipe };
    let [batch, m, n, k] = [one.batch, one.product.m, one.product.n, one.product.k].map(|size| size as f64);
    platform.matmul(batch, m, n, k, format, one.adds)
}

/// Attention in bf16, and the rate in f32 relative to it: the geometric mean of the shapes in both.
fn attention(measured: &GpuMeasured, device: &Device) -> cost::Attention {
    let mut logs = Vec::new();
    for wide in &measured.attention_f32 {
        let same = measured.attention.iter().find(|narrow| (narrow.head, narrow.length) == (wide.head, wide.length));
        let Some(narrow) = same else { continue };
        for backward in [false, true] {
            let [narrow, wide] = [narrow, wide].map(|time| own(time.seconds(backward), device.start));
            logs.push((narrow / wide).ln());
        }
    }
    let ratio = (logs.iter().sum::<f64>() / logs.len().max(1) as f64).exp();
    cost::Attention {
        f32: Some(rounded(ratio.clamp(1e-4, 1.0))),
        ..attention_of(&measured.attention, device, device.flops_bf16)
    }
}

#[cfg(test)]
mod tests;
