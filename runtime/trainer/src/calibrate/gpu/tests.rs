//! Measurements computed from the formulas of the cost model for a GPU whose constants are known, and the constants fitted to them.

use super::*;
use crate::measure::AttentionTime;
use crate::measure::{Product, Sum};
use cost::{AttentionShape, CollectiveKind, Group, Table, TablePoint};
use cuda::device::Properties;
use cuda::peaks::Peaks;

/// A GPU as the presets state an H100, with figures of its own for what is fitted. The ranks of a process share it.
fn known() -> Cluster {
    let mut cluster = Cluster::find("h100").unwrap();
    cluster.cores = Some(1);
    cluster.links.truncate(1);
    let link = &mut cluster.links[0];
    (link.joins, link.start, link.latency, link.bandwidth) = (u64::MAX, 4e-6, 3e-6, 900e9);
    (link.share, link.pair, link.switch) = (Table::default(), Some(1.2e12), None);
    let device = &mut cluster.device;
    (device.start, device.memory_share, device.memory, device.host_bandwidth) = (2.5e-6, 0.88, 80 << 30, 50e9);
    (device.matmul.f32, device.matmul.half, device.matmul.f8) = (0.75, 0.66, 0.55);
    (device.matmul.depth, device.matmul.power) = (256.0, 1.0);
    let table = |points: [[f64; 2]; 2]| Table(points.map(TablePoint::from).to_vec());
    let attention = cost::Attention {
        forward: table([[64.0, 0.2], [128.0, 0.3]]),
        backward: table([[64.0, 0.15], [128.0, 0.25]]),
        half: cost::Passes { forward: 200.0, backward: 400.0 },
        f32: Some(0.05),
    };
    device.attention = BTreeMap::from([(Kernel::Flash2, attention)]);
    cluster
}

/// The stack of the backend, on operands that are quantised.
fn stack() -> Stack {
    let mut stack = Stack::find("meshwright-cuda").unwrap();
    stack.traits.kernels.quantise = 0.0;
    stack
}

/// A recipe by the bytes of an activation.
fn recipe(activation: f64) -> Recipe {
    Recipe { activation, ..Recipe::bf16() }
}

/// Seconds of attention by a cluster, of as many heads of queries as of keys.
fn attention_s(cluster: &Cluster, stack: &Stack, time: &AttentionTime, activation: f64, backward: bool) -> f64 {
    let [heads, length, d] = [time.heads, time.length, time.head].map(|size| size as f64);
    let share = (1.0 + 1.0 / length) / 2.0;
    let shape = AttentionShape { batch: 1.0, heads, kv_heads: heads, queries: length, keys: length, d, c: d, share };
    Platform { cluster, stack, recipe: &recipe(activation) }.attention(&shape, backward)
}

fn attention_times(
    cluster: &Cluster,
    stack: &Stack,
    activation: f64,
    lengths: &[(usize, usize)],
) -> Vec<AttentionTime> {
    let all = [64, 128].into_iter().flat_map(|head| lengths.iter().map(move |&(length, heads)| (head, length, heads)));
    let time = |(head, length, heads)| {
        let shape = AttentionTime { heads, length, head, forward_s: 0.0, backward_s: 0.0 };
        let [forward_s, backward_s] =
            [false, true].map(|backward| attention_s(cluster, stack, &shape, activation, backward));
        AttentionTime { forward_s, backward_s, ..shape }
    };
    all.map(time).collect()
}

/// Measurements of a cluster by the cost model.
fn measured(cluster: &Cluster, stack: &Stack) -> GpuMeasured {
    let device = &cluster.device;
    let platform = Platform { cluster, stack, recipe: &Recipe::bf16() };
    let shapes = [
        [1, 1024, 1024, 1024],
        [1, 4096, 4096, 4096],
        [1, 4096, 512, 2048],
        [1, 4096, 14336, 4096],
        [1, 128, 4096, 4096],
        [1, 4096, 4096, 64],
        [32, 1024, 1024, 128],
    ];
    let mut products = Vec::new();
    for ([batch, m, n, k], adds) in shapes.map(|shape| (shape, false)).into_iter().chain([(shapes[1], true)]) {
        for dtype in TYPES {
            let product = Product { m, n, k, seconds: 0.0 };
            let one = GpuProduct { dtype, batch, product, adds };
            let seconds = predicted(cluster, stack, &one);
            products.push(GpuProduct { product: Product { seconds, ..product }, ..one });
        }
    }
    let group = |bytes: u64| platform.copy(bytes as f64);
    let sum = |ranks: u64, bytes: u64| {
        let part = platform.collective_time(CollectiveKind::AllReduce, bytes as f64, Group { ranks, stride: 1 });
        Sum { ranks, bytes, seconds: ranks as f64 * part }
    };
    // The fit takes a sum's bytes to be a tenth of its time at least, as they are here.
    let sizes = [256, 16 << 20, 64 << 20];
    let pair = cluster.links[0].pair.unwrap();
    GpuMeasured {
        device: Properties {
            name: "a GPU".into(),
            capability: (9, 0),
            memory_bytes: 85 << 30,
            multiprocessors: device.sms as u32,
            peaks: Peaks {
                memory: Some(device.memory_bandwidth),
                f32: Some(device.flops_f32),
                tf32: None,
                bf16: Some(device.flops_bf16),
                f8: device.flops_f8,
            },
            driver: "13.2".into(),
            nvrtc: "13.2".into(),
            cublaslt: "13.4.0".into(),
        },
        free_memory: device.memory,
        products,
        attention: attention_times(cluster, stack, 2.0, &[(512, 128), (2048, 32), (8192, 8)]),
        attention_f32: attention_times(cluster, stack, 4.0, &[(2048, 32)]),
        copy_bandwidth: 0.9 * device.memory_bandwidth,
        groups: [("gate", 200 << 20), ("sum and norm", 268 << 20)]
            .map(|(name, bytes)| (name, bytes, group(bytes)))
            .to_vec(),
        start: device.start,
        launch: 3e-6,
        host_bandwidth: [55e9, 50e9],
        sums: [2, 4, 8].into_iter().flat_map(|ranks| sizes.map(|bytes| sum(ranks, bytes))).collect(),
        messages: sizes.map(|bytes| (bytes, 2e-6 + bytes as f64 / pair)).to_vec(),
    }
}

/// Four figures of four digits each, which a time depends on at most.
const ROUNDING: f64 = 4.0 * 5e-4;

#[test]
fn the_constants_of_a_known_gpu_are_recovered() {
    let (known, stack) = (known(), stack());
    let measured = measured(&known, &stack);
    let fitted = gpu_cluster(&measured).unwrap();
    let near = |got: f64, want: f64, within: f64, what: &str| {
        assert!((got / want - 1.0).abs() < within, "{what}: {got} for {want}");
    };
    let [got, want] = [&fitted.device, &known.device];
    assert_eq!((fitted.cores, got.sms, got.memory, &got.matmul.tiles), (Some(1), 132, 80 << 30, &want.matmul.tiles));
    assert_eq!(fitted.shared_memory, Some(80 << 30));
    assert_eq!([1, 8].map(|ranks| fitted.for_devices(ranks).device.memory), [80 << 30, 10 << 30]);
    assert_eq!([got.flops_f32, got.flops_bf16, got.host_bandwidth], [67e12, 989.5e12, 50e9]);
    assert_eq!(got.flops_f8, want.flops_f8);
    near(got.start, want.start, ROUNDING, "start");
    near(got.memory_bandwidth * got.memory_share, want.memory_bandwidth * want.memory_share, ROUNDING, "memory");
    near(got.matmul.depth, want.matmul.depth, ROUNDING, "depth");
    near(got.matmul.f32, want.matmul.f32, ROUNDING, "share of f32");
    near(got.matmul.half, want.matmul.half, ROUNDING, "share of bf16");
    near(got.matmul.f8, want.matmul.f8, ROUNDING, "share of 8 bits");
    for one in &measured.attention {
        for backward in [false, true] {
            near(
                attention_s(&fitted, &stack, one, 2.0, backward),
                one.seconds(backward),
                ROUNDING,
                "attention in bf16",
            );
        }
    }
    for one in &measured.attention_f32 {
        for backward in [false, true] {
            near(attention_s(&fitted, &stack, one, 4.0, backward), one.seconds(backward), ROUNDING, "attention in f32");
        }
    }
    let recipe = Recipe::bf16();
    let platform = Platform { cluster: &fitted, stack: &stack, recipe: &recipe };
    for one in &measured.sums {
        let group = Group { ranks: one.ranks, stride: 1 };
        let part = platform.collective_time(CollectiveKind::AllReduce, one.bytes as f64, group);
        near(part * one.ranks as f64, one.seconds, ROUNDING, "sum");
    }
    near(fitted.links[0].pair.unwrap(), 1.2e12, ROUNDING, "message");
    let text = toml::to_string(&fitted).unwrap();
    assert_eq!(Cluster::parse(&text).unwrap(), fitted);
}

#[test]
fn a_gpu_far_below_its_peaks_is_in_the_range_of_a_file() {
    let (mut known, stack) = (known(), stack());
    // Without it all times grow alike.
    known.device.start = 0.0;
    let mut slow = measured(&known, &stack);
    for one in &mut slow.products {
        one.product.seconds *= 1e4;
    }
    slow.groups.iter_mut().for_each(|(_, _, seconds)| *seconds *= 1e4);
    for one in slow.attention.iter_mut().chain(&mut slow.attention_f32) {
        (one.forward_s, one.backward_s) = (1e4 * one.forward_s, 1e4 * one.backward_s);
    }
    let fitted = gpu_cluster(&slow).unwrap();
    Cluster::parse(&toml::to_string(&fitted).unwrap()).unwrap();
    for one in &slow.products {
        let ratio = predicted(&fitted, &stack, one) / one.product.seconds;
        assert!((ratio - 1.0).abs() < ROUNDING, "{one:?}: {ratio}");
    }
}

#[test]
fn a_gpu_without_8_bits_states_none() {
    let mut measured = measured(&known(), &stack());
    measured.products.retain(|one| one.dtype != DType::F8E4M3);
    let device = gpu_cluster(&measured).unwrap().device;
    assert_eq!((device.flops_f8, device.matmul.f8), (None, Matmul::default().f8));
}
