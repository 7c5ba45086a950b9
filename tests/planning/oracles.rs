//! Tables of papers against the code that predicts steps. No figure here was fitted.

use cost::{CollectiveKind, Elements, Group, Platform, Recipe, SplitByExperts, Stack};
use meshwright::estimator::{EstimateReport, EstimateRequest, Estimator, ModelStates, recipe};
use std::path::PathBuf;

/// The number formats of a precision on a stack.
fn formats(precision: &str, grad_dtype: Option<&str>, stack: &str) -> Recipe {
    recipe(precision, grad_dtype, None, "adamw", &Stack::find(stack).unwrap()).unwrap()
}

/// Bytes of model states of a device, in units of 10^9, for a number of parameters in these units.
fn states(parameters: f64, ranks: f64, zero: u8, recipe: &Recipe) -> f64 {
    let elements = Elements::all_trained(SplitByExperts { dense: parameters, experts: 0.0 });
    let ranks = SplitByExperts { dense: ranks, experts: 1.0 };
    ModelStates::of(elements, ranks, zero, recipe).total()
}

/// A figure as it is printed: what its last digit counts.
fn unit(printed: &str) -> f64 {
    printed.split_once('.').map_or(1.0, |(_, digits)| 0.1_f64.powi(digits.len() as i32))
}

/// Rajbhandari et al. 2020 (ZeRO), table 1: GB of a device under stages 1, 2 and 3 with mixed-precision Adam.
#[test]
fn zero_saves_what_its_table_1_says() {
    let fp16 = formats("fp16", Some("fp16"), "megatron-2022");
    let rows = [
        (1.0, ["120 120 120", "2048 2048 2048", "16000 16000 16000"]),
        (4.0, ["52.5 41.3 30", "896 704 512", "7000 5500 4000"]),
        (16.0, ["35.6 21.6 7.5", "608 368 128", "4750 2875 1000"]),
        (64.0, ["31.4 16.6 1.88", "536 284 32", "4187 2218 250"]),
        (256.0, ["30.4 15.4 0.47", "518 263 8", "4046 2054 62.5"]),
        (1024.0, ["30.1 15.1 0.12", "513 257 2", "4011 2013 15.6"]),
    ];
    for (ranks, cells) in rows {
        for (billions, cells) in [7.5, 128.0, 1000.0].into_iter().zip(cells) {
            for (zero, printed) in (1..).zip(cells.split(' ')) {
                let ours = states(billions, ranks, zero, &fp16);
                let theirs: f64 = printed.parse().unwrap();
                assert!(
                    (ours - theirs).abs() <= unit(printed),
                    "{billions}B, dp={ranks}, zero={zero}: {ours}, {printed}"
                );
            }
        }
    }
}

/// The same, table 2: the most parameters, in units of 10^9, for which 32 GB hold the model states, on 64 data-parallel ranks
/// of as many model-parallel ones. 0.5T, 1T and 2T are printed for 512, 1024 and 2048.
#[test]
fn zero_trains_what_its_table_2_says() {
    let fp16 = formats("fp16", Some("fp16"), "megatron-2022");
    let rows = [
        (1.0, [2.0, 7.6, 14.4, 128.0]),
        (2.0, [4.0, 15.2, 28.8, 256.0]),
        (4.0, [8.0, 30.4, 57.6, 512.0]),
        (8.0, [16.0, 60.8, 115.2, 1024.0]),
        (16.0, [32.0, 121.6, 230.4, 2048.0]),
    ];
    for (tp, largest) in rows {
        for (zero, theirs) in (0..).zip(largest) {
            let ours = 32.0 / states(1.0, 64.0, zero, &fp16) * tp;
            assert!((ours / theirs - 1.0).abs() <= 0.01, "tp={tp}, zero={zero}: {ours}, {theirs}");
        }
    }
}

/// The Ultra-Scale Playbook, "Memory for weights/grads/optimizer states": GB in f32 or in bf16 without f32 gradients, and in
/// bf16 with f32 gradients beside.
#[test]
fn parameters_take_what_the_playbook_says() {
    let rows = [(1.0, 16.0, 20.0), (7.0, 112.0, 140.0), (70.0, 1120.0, 1400.0), (405.0, 6480.0, 8100.0)];
    let lean = [formats("f32", None, "nanotron-2024"), formats("bf16", Some("bf16"), "nanotron-2024")];
    let full = formats("bf16", None, "nanotron-2024");
    for (billions, plain, accumulated) in rows {
        for recipe in &lean {
            assert_eq!(states(billions, 1.0, 0, recipe), plain);
        }
        assert_eq!(states(billions, 1.0, 0, &full), accumulated);
    }
}

/// A GPT in a file of its own.
struct Config(PathBuf);

impl Config {
    fn gpt(name: &str, layers: u64, hidden: u64, heads: u64) -> Config {
        let path = std::env::temp_dir().join(format!("meshwright-oracle-{}-{name}.json", std::process::id()));
        let text = format!(
            r#"{{"model_type": "gpt2", "vocab_size": 51200, "n_positions": 1024, "n_embd": {hidden}, "n_layer": {layers},
                "n_head": {heads}, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "resid_pdrop": 0.1,
                "embd_pdrop": 0.1, "attn_pdrop": 0.1, "tie_word_embeddings": true}}"#
        );
        std::fs::write(&path, text).unwrap();
        Config(path)
    }

    fn estimate(&self, [cluster, stack]: [&str; 2], batch: u64, parallel: &str) -> EstimateReport {
        let request = EstimateRequest {
            model: self.0.display().to_string(),
            cluster: cluster.into(),
            stack: stack.into(),
            seq: 1024,
            global_batch: batch,
            precision: "fp16".into(),
            grad_dtype: Some("fp16".into()),
            parallel: parallel.into(),
            ..EstimateRequest::default()
        };
        Estimator::new().estimate(&request).unwrap()
    }
}

impl Drop for Config {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// ZeRO, section 6.1: a model of 100B with a batch of 32 on 16 model-parallel ranks keeps about 33 GB of checkpoints, about
/// 2 GB once they are cut among these ranks. 125 layers of 8192 keep 33.5e9 elements: the paper's figures count elements.
#[test]
fn checkpoints_cut_among_tensor_parallel_ranks_are_as_small_as_zero_r_says() {
    let model = Config::gpt("100b", 125, 8192, 64);
    let elements = |parallel: &str| {
        let report = model.estimate(["v100-dgx2", "megatron-2022"], 32, parallel);
        report.predicted.memory_gib.per_stage[0].activations * 1024.0_f64.powi(3) / 2.0 / 1e9
    };
    let whole = elements("tp=16,mbs=32,recompute=full");
    let cut = elements("tp=16,mbs=32,recompute=full,sp=true");
    assert!((whole / 33.0 - 1.0).abs() < 0.05, "{whole}");
    assert!((cut / 2.0 - 1.0).abs() < 0.1, "{cut}");
}

/// Shoeybi et al. 2019 (Megatron-LM), figure 5: weak scaling on V100 in per cent of the 39 TFLOP/s of one device, with full
/// recomputation. The 39 TFLOP/s count recomputation: NVIDIA's version 1.0 takes 1288 ms for the same step at 62.4 TFLOP/s, which
/// is 8 operations per parameter and token (nv-adlr.github.io/MegatronLMV1).
#[test]
fn megatron_scales_on_v100_as_it_did() {
    let rows = [
        ("1.2b", 40, 1536, 16, "tp=1", 8, 100.0),
        ("2.5b", 54, 1920, 20, "tp=2", 8, 94.0),
        ("4.2b", 64, 2304, 24, "tp=4", 8, 88.0),
        ("8.3b", 72, 3072, 32, "tp=8", 8, 81.0),
        ("8.3b", 72, 3072, 32, "tp=8,dp=64", 512, 76.0),
    ];
    let mut first = None;
    for (name, layers, hidden, heads, parallel, batch, theirs) in rows {
        let model = Config::gpt(name, layers, hidden, heads);
        let parallel = format!("{parallel},mbs=8,recompute=full");
        let report = model.estimate(["v100-dgx2", "megatron-2019"], batch, &parallel).predicted;
        let first = *first.get_or_insert(report.mfu);
        assert!((125.0 * first * 4.0 / 3.0 / 39.0 - 1.0).abs() < 0.05, "{first}");
        let ours = 100.0 * report.mfu / first;
        assert!((ours - theirs).abs() <= 4.0, "{name} {parallel}: {ours:.1} %, not {theirs} %");
    }
}

/// An ideal cluster: no latency, no start-up time, all of the peak.
const IDEAL: &str = r#"
name = "ideal"
links = [{ bandwidth = 1e11, latency = 0.0 }]
[device]
flops_f32 = 1e15
flops_bf16 = 1e15
memory_bandwidth = 1e13
memory_share = 1.0
memory = 80000000000
[device.matmul]
half = 1.0
"#;

/// The Ultra-Scale Playbook, appendix A3: communication over the computation that could hide it, for layers of 16 h^2
/// parameters. Of data parallelism as it is when the gradients of all parameters are counted on both sides: tokens alone
/// decide. Two bytes an element.
#[test]
fn communication_over_computation_is_as_the_appendix_says() {
    let cluster = cost::Cluster::parse(IDEAL).unwrap();
    let mut stack = Stack::find("meshwright").unwrap();
    for (name, constant) in stack.fitted.by_name() {
        let value = if ["matmul", "network"].contains(&name) { 1.0 } else { constant.value };
        *constant = cost::Constant { value, ..*constant };
    }
    let recipe = recipe("bf16", Some("bf16"), None, "adamw", &stack).unwrap();
    let platform = Platform { cluster: &cluster, stack: &stack, recipe: &recipe };
    let (h, n, bytes, flops, bandwidth) = (8192.0, 64, 2.0, 1e15, 1e11);
    let share = (n - 1) as f64 / n as f64;
    let group = Group { ranks: n, stride: 1 };
    let near =
        |ours: f64, theirs: f64, what: &str| assert!((ours / theirs - 1.0).abs() < 1e-6, "{what}: {ours}, {theirs}");
    let layer = 16.0 * h * h;
    for tokens in [2048.0, 16384.0] {
        // Products of all parameters with all tokens, 2 FLOPs each.
        let forward = platform.matmul(1.0, tokens, 16.0 * h, h, cost::Format::Half, false);
        near(forward, 2.0 * tokens * layer / flops, "forward");
        let dp = platform.collective_time(CollectiveKind::AllReduce, layer * bytes, group) / (2.0 * forward);
        near(dp, bytes / (2.0 * tokens) * share * flops / bandwidth, "data parallelism");
        let zero = platform.collective_time(CollectiveKind::AllGather, layer * bytes, group) / forward;
        near(zero, bytes / (2.0 * tokens) * share * flops / bandwidth, "ZeRO-3");
        let linear = platform.matmul(1.0, tokens, h / n as f64, h, cost::Format::Half, false);
        let tp = platform.collective_time(CollectiveKind::AllGather, tokens * h * bytes, group) / linear;
        near(tp, bytes * (n - 1) as f64 / (2.0 * h) * flops / bandwidth, "tensor parallelism");
        let next = 4.0;
        let pp = platform.collective_time(CollectiveKind::Send, tokens * h * bytes, Group { ranks: 2, stride: 1 })
            / (next * forward);
        near(pp, bytes * flops / (32.0 * h * next * bandwidth), "pipeline parallelism");
    }
}
