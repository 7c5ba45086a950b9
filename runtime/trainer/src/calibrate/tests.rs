//! Measurements computed from the formulas of the cost model, fitted and compared with the constants.

use super::*;
use crate::measure::{AttentionTime, Product, Sum};
use cost::{AttentionShape, CollectiveKind, Format, Group, Platform, Recipe, Stack};
use estimator::{EstimateRequest, Estimator, Evaluator};

/// Kernels that follow the formulas exactly, with rates of products and of attention in GFLOP/s, and of memory in GB/s.
fn computing(matmul: f64, depth: f64, attention: f64, half: f64, memory: f64) -> Computing {
    let product = |[m, n, k]: [usize; 3]| {
        let seconds = 1e-6 + 2e-9 * (m * n) as f64 * (k as f64 + depth) / matmul;
        Product { m, n, k, seconds }
    };
    let time = |length: usize, heads: usize, head: usize| {
        let looked_at = (length as f64 + 1.0) / 2.0;
        let at = |each: f64| {
            let flops = 1e-9 * (heads * length * head) as f64 * looked_at * each;
            flops / (attention * looked_at / (looked_at + half))
        };
        AttentionTime { heads, length, head, forward_s: at(4.0), backward_s: at(10.0) }
    };
    Computing {
        products: [[128, 256, 256], [1024, 768, 256], [256, 768, 1024]].map(product).to_vec(),
        attention: vec![time(128, 16, 32), time(1024, 2, 32), time(128, 16, 64), time(1024, 2, 64)],
        pointwise_bandwidth: 1e9 * memory,
    }
}

/// Measurements that follow the formulas exactly.
fn ideal() -> Measured {
    // All ranks share two cores.
    let sum = |ranks: u64, bytes: u64| {
        let hops = 2.0 * (ranks as f64 - 1.0);
        let own = 5e-6 + hops * (1e-6 + bytes as f64 / ranks as f64 / 10e9);
        Sum { ranks, bytes, seconds: own * ranks as f64 / 2.0 }
    };
    Measured {
        cores: 2,
        f32: computing(200.0, 20.0, 100.0, 50.0, 30.0),
        bf16: computing(900.0, 120.0, 270.0, 110.0, 10.0),
        sum_bandwidth: 40e9,
        start: 1e-6,
        sums: [2, 4, 8].into_iter().flat_map(|ranks| [256, 1 << 20, 8 << 20].map(|bytes| sum(ranks, bytes))).collect(),
        messages: vec![(256, 2e-6), (1 << 20, 2e-6 + 1e6 / 12e9), (8 << 20, 2e-6 + 8e6 / 12e9)],
    }
}

/// Checks that a figure lies within a share of another one.
fn near(got: f64, want: f64, within: f64, what: &str) {
    assert!((got / want - 1.0).abs() < within, "{what}: {got} for {want}");
}

/// Checks products and attention of a format against what was timed.
fn check_computing(platform: &Platform<'_>, format: Format, computing: &Computing) {
    near(platform.memory_bound(30e6), 30e6 / computing.pointwise_bandwidth, 0.01, "memory");
    for one in &computing.products {
        let got = platform.matmul(1.0, one.m as f64, one.n as f64, one.k as f64, format, false);
        near(got, one.seconds, 0.02, "product");
    }
    for one in &computing.attention {
        let (heads, length, head) = (one.heads as f64, one.length as f64, one.head as f64);
        let share = (1.0 + 1.0 / length) / 2.0;
        let shape = AttentionShape {
            batch: 1.0,
            heads,
            kv_heads: heads,
            queries: length,
            keys: length,
            d: head,
            c: head,
            share,
        };
        for backward in [false, true] {
            near(platform.attention(&shape, backward), one.seconds(backward), 0.05, "attention");
        }
    }
}

#[test]
fn the_model_gives_back_what_was_timed() {
    let measured = ideal();
    let cluster = cluster(&measured, 1 << 32);
    let stack = Stack::find("meshwright-threads").unwrap();
    let recipe = Recipe::bf16();
    let platform = Platform { cluster: &cluster, stack: &stack, recipe: &recipe };
    for (format, computing) in [(Format::F32, &measured.f32), (Format::Half, &measured.bf16)] {
        let recipe = Recipe { products: format, activation: format.bytes(), ..Recipe::bf16() };
        let platform = Platform { recipe: &recipe, ..platform };
        check_computing(&platform, format, computing);
    }
    let widened = cluster.clone().computing_in("fp16");
    let computing = Computing { pointwise_bandwidth: measured.bf16.pointwise_bandwidth, ..measured.f32.clone() };
    check_computing(&Platform { cluster: &widened, ..platform }, Format::Half, &computing);
    for one in &measured.sums {
        let got = platform.collective_time(
            CollectiveKind::AllReduce,
            one.bytes as f64,
            Group { ranks: one.ranks, stride: 1 },
        );
        near(got * one.ranks as f64 / 2.0, one.seconds, 0.05, "sum");
    }
    near(platform.copy(30e6), 1e-3, 0.01, "copy");
}

/// Times that are the same for all lengths have no half length that a share of the peak could make up for.
#[test]
fn attention_that_never_levels_off_is_not_priced_above_what_was_timed() {
    let mut measured = ideal();
    for time in &mut measured.bf16.attention {
        let pairs = (time.heads * time.length * (time.length + 1) / 2 * time.head) as f64;
        // Rates grow with the number of keys, to an eighth of the peak at 1,024 tokens.
        let rate = 900e9 / 8.0 * time.length as f64 / 1024.0;
        (time.forward_s, time.backward_s) = (4.0 * pairs / rate, 10.0 * pairs / rate);
    }
    let attention = &cluster(&measured, 1 << 32).device.attention[&Kernel::Flash2];
    let shares = attention.forward.0.iter().chain(&attention.backward.0);
    assert!(shares.clone().all(|share| (0.5..=1.0).contains(&share.value)), "{attention:?}");
    for half in [attention.half.forward, attention.half.backward] {
        let rate = 512.5 / (512.5 + half);
        assert!(
            (0.08..0.2).contains(&rate),
            "{rate} of the peak at 1,024 tokens, of which 0.125 were timed: {attention:?}"
        );
    }
}

#[test]
fn the_file_is_read_as_it_was_written() {
    let cluster = cluster(&ideal(), 1 << 32);
    let text = toml::to_string(&cluster).unwrap();
    assert_eq!(Cluster::parse(&text).unwrap(), cluster);
    assert!(text.contains("cores = 2"), "{text}");
}

/// A measurement without a time is refused: no file has a figure that is no number.
#[test]
fn figures_that_are_no_numbers_are_not_written() {
    let whole = cluster(&ideal(), 1 << 32);
    assert!(cluster_file(&whole).is_ok());
    let mut measured = ideal();
    measured.bf16.attention.iter_mut().for_each(|time| time.forward_s = f64::INFINITY);
    let why = cluster_file(&cluster(&measured, 1 << 32)).unwrap_err();
    assert_eq!(why.code(), Some(ir::catalogue::Code::BadCluster));
    assert!(why.to_string().contains("device.attention.flash2.forward"), "{why}");
    let mut stack = Stack::find("megatron-2022").unwrap();
    assert!(stack_file(&stack).is_ok());
    stack.fitted.matmul.value = f64::NAN;
    let why = stack_file(&stack).unwrap_err().to_string();
    assert!(why.contains("fitted.matmul"), "{why}");
}

/// The rates of a search are those of single predictions, whether devices share cores or not.
#[test]
fn fp16_has_the_rates_of_f32_where_kernels_widen_it() {
    let path = std::env::temp_dir().join(format!("meshwright-widens-{}.toml", std::process::id()));
    for cores in [None, Some(8)] {
        let cluster = Cluster { cores, ..cluster(&ideal(), 1 << 32) };
        compiler::text_files::write_text(&path, &toml::to_string(&cluster).unwrap()).unwrap();
        let request = EstimateRequest {
            model: "tiny-llama".into(),
            cluster: path.to_string_lossy().into_owned(),
            stack: "meshwright-threads".into(),
            seq: 128,
            global_batch: 16,
            precision: "fp16".into(),
            ..EstimateRequest::default()
        };
        let evaluator = Evaluator::new(&Estimator::new(), request, [2, 2]).unwrap();
        let got = &evaluator.platform(2).cluster.device;
        assert!(got.flops_bf16 >= cluster.device.flops_f32 && got.flops_bf16 < cluster.device.flops_bf16, "{got:?}");
        assert_eq!(got.attention, cluster.device.attention_f32);
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn devices_wait_for_the_cores_that_they_share() {
    let folder = std::env::temp_dir().join(format!("meshwright-calibrate-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let step = |cores: Option<u64>, parallel: &str| {
        let path = folder.join(format!("{}.toml", cores.unwrap_or(0)));
        let cluster = Cluster { cores, ..cluster(&ideal(), 1 << 32) };
        compiler::text_files::write_text(&path, &toml::to_string(&cluster).unwrap()).unwrap();
        let request = EstimateRequest {
            model: "tiny-llama".into(),
            cluster: path.to_string_lossy().into_owned(),
            stack: "meshwright-threads".into(),
            seq: 128,
            global_batch: 16,
            precision: "f32".into(),
            parallel: parallel.into(),
            ..EstimateRequest::default()
        };
        let predicted = Estimator::new().estimate(&request).unwrap().predicted;
        let (sum, step) = (predicted.time_s.total(), predicted.step_time_s);
        assert!((sum / step - 1.0).abs() < 1e-9, "{parallel}: the parts are {sum} of {step}");
        step
    };
    let [own, eight, two] = [None, Some(8), Some(2)].map(|cores| step(cores, "dp=8,mbs=2"));
    assert_eq!(own, eight);
    assert!((3.9..=4.1).contains(&(two / own)), "eight devices on two cores take {two}, on eight {own}");
    // One device has both cores, except for the start of kernels.
    let [one, both] = [Some(1), Some(2)].map(|cores| step(cores, "dp=1,mbs=8"));
    assert!((0.5..0.6).contains(&(both / one)), "{both} on two cores, {one} on one");
    std::fs::remove_dir_all(&folder).unwrap();
}
