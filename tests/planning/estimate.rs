//! Predictions of configurations as a whole: parts sum to the whole, and what a change of configuration must do, it does.

use cost::{BlockOptions, CPU, Cluster, FusedKernel, Interval, Platform, Recipe, Stack, local_type, memory_traffic};
use ir::graph::Model;
use ir::options::ParallelConfig;
use ir::program::{Body, BodyInstr};
use meshwright::compiler::compile::{CompileRequest, compile_source};
use meshwright::compiler::error::Error;
use meshwright::compiler::model_source::ModelSource;
use meshwright::estimator::{ConfigLine, EstimateReport, EstimateRequest, Estimator, estimate_all};
use transforms::recompute::MODULES;

fn request(parallel: &str) -> EstimateRequest {
    EstimateRequest {
        model: "llama3-8b".into(),
        cluster: "h100".into(),
        gpus: Some(16),
        seq: 4096,
        global_batch: 64,
        parallel: parallel.into(),
        ..EstimateRequest::default()
    }
}

const LAYOUTS: [&str; 15] = [
    "zero=1",
    "zero=2",
    "zero=3",
    "zero=3,shard=8",
    "zero=3,gather=step",
    "tp=2,sp=true",
    "tp=8",
    "tp=4,pp=2,sp=true,zero=1",
    "tp=2,pp=4,vp=2,sp=true",
    "pp=4,schedule=gpipe",
    "pp=4,schedule=zb-h1",
    "pp=4,schedule=dualpipe",
    "pp=2,recompute=full",
    "pp=2,recompute=full:3",
    "tp=2,recompute=auto,mbs=4",
];

fn estimate(estimator: &Estimator, parallel: &str) -> EstimateReport {
    estimator.estimate(&request(parallel)).unwrap_or_else(|error| panic!("{parallel}: {error}"))
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

#[test]
fn parts_sum_to_the_whole() {
    let estimator = Estimator::new();
    for parallel in LAYOUTS {
        let predicted = estimate(&estimator, parallel).predicted;
        assert!(near(predicted.time_s.total(), predicted.step_time_s), "{parallel}: {predicted:?}");
        for (name, seconds) in predicted.time_s.by_name() {
            assert!(seconds >= 0.0, "{parallel}: {name} takes {seconds} s");
        }
        let speed = 64.0 * 4096.0 / predicted.step_time_s / 16.0;
        assert!(near(predicted.tokens_per_s_per_gpu, speed), "{parallel}");
        let Interval { low, high } = predicted.interval_s;
        assert!(low < predicted.step_time_s && predicted.step_time_s < high, "{parallel}");
        let Interval { low, high } = predicted.memory_interval_gib;
        let (held, capacity) = (predicted.fullest().device, predicted.memory_gib.capacity);
        assert!(low < held && held < high, "{parallel}");
        // At the ends of the interval the chance is a tenth and nine tenths.
        let chance = predicted.chance_to_fit;
        assert_eq!((low < capacity, high < capacity), (chance > 0.1, chance > 0.9), "{parallel}");
        assert!(predicted.mfu < predicted.mfu_noncausal && predicted.mfu < predicted.hfu, "{parallel}");
        for stage in &predicted.memory_gib.per_stage {
            let parts = stage.parameters + stage.gradients + stage.optimizer + stage.activations + stage.logits;
            assert!(near(parts + stage.buffers, stage.allocated), "{parallel}: {stage:?}");
            assert!(stage.allocated <= stage.reserved && stage.reserved < stage.device, "{parallel}: {stage:?}");
        }
    }
}

#[test]
fn flops_do_not_depend_on_the_configuration() {
    let estimator = Estimator::new();
    let all = LAYOUTS.map(|parallel| estimate(&estimator, parallel).predicted.flops_per_token);
    // 6 FLOPs of each parameter in a product, and causal attention: 3 x 4 s h / 2 of each layer.
    let products = 8.03e9 - 128_256.0 * 4096.0;
    let theirs = 6.0 * products + 32.0 * 6.0 * 4096.0 * 4096.0;
    for (parallel, ours) in LAYOUTS.iter().zip(all) {
        assert!((ours / theirs - 1.0).abs() < 0.01, "{parallel}: {ours:e}, {theirs:e}");
    }
}

#[test]
fn what_saves_memory_does() {
    let estimator = Estimator::new();
    let total = |parallel: &str| estimate(&estimator, parallel).predicted.memory_gib.total;
    for (less, more) in [
        ("zero=1", "zero=0"),
        ("zero=2", "zero=1"),
        ("zero=3", "zero=2"),
        ("zero=3", "zero=3,gather=step"),
        ("tp=4", "tp=2"),
        ("tp=4,sp=true", "tp=4"),
        ("pp=2,recompute=full", "pp=2,recompute=full:3"),
        ("pp=2,recompute=full:3", "pp=2"),
        ("pp=4", "pp=4,schedule=gpipe"),
        ("mbs=1", "mbs=2"),
    ] {
        assert!(total(less) < total(more), "{less}: {}, {more}: {}", total(less), total(more));
    }
}

/// Without overlap, the gathers of a step take as long as those of one forward, up to the latencies of blocks. Memory grows by whole
/// parameters, less those of the blocks that are gathered at a time.
#[test]
fn parameters_are_gathered_once_and_held() {
    let estimator = Estimator::new();
    let on = |gather: &str, mbs: u64| {
        let parallel = format!("zero=3,gather={gather},mbs={mbs},dp_overlap=false");
        let request = EstimateRequest { stack: "meshwright".into(), ..request(&parallel) };
        estimator.estimate(&request).unwrap_or_else(|error| panic!("{parallel}: {error}"))
    };
    let dp = |report: &EstimateReport| report.predicted.time_s.dp;
    // Micro-batches of one sequence gather 4 x 2 times in a step, of 4 sequences 2 times.
    let [[many, few], [once, again]] = ["use", "step"].map(|gather| [on(gather, 1), on(gather, 4)]);
    let scatters = (dp(&once) - dp(&again)) / 3.0;
    let gather = dp(&again) - scatters;
    for (saved, gathers) in [(dp(&many) - dp(&once), 8.0), (dp(&few) - dp(&again), 2.0)] {
        let ratio = (saved + gather) / gathers / gather;
        assert!((1.0..1.25).contains(&ratio), "{gathers} gathers take {saved} s longer than one of {gather} s");
    }
    let parameters = |report: &EstimateReport| report.predicted.fullest().parameters;
    let held = (parameters(&once) - parameters(&many)) * 1024f64.powi(3);
    assert!((held / (2.0 * 8.03e9) - 1.0).abs() < 1e-3, "{held:e}");
    let more = once.predicted.fullest().device - many.predicted.fullest().device;
    assert!(more > 0.0 && more < held / 1024f64.powi(3), "{more}");
}

#[test]
fn automatic_recomputation_does_no_more_than_it_must() {
    let estimator = Estimator::new();
    let auto = estimate(&estimator, "tp=2,pp=2,mbs=4,zero=1,recompute=auto");
    assert!(auto.predicted.keeps_headroom, "{auto:?}");
    let none = estimate(&estimator, "tp=2,pp=2,mbs=4,zero=1");
    let all = estimate(&estimator, "tp=2,pp=2,mbs=4,zero=1,recompute=full");
    assert!(none.predicted.step_time_s <= auto.predicted.step_time_s);
    assert!(auto.predicted.step_time_s <= all.predicted.step_time_s);
    assert_eq!(none.predicted.keeps_headroom, none.predicted.step_time_s == auto.predicted.step_time_s);
}

/// If a configuration does not fit otherwise, values that are chosen by memory are no slower than any one or two modules that fit,
/// nor than whole layers.
#[test]
fn values_by_memory_are_as_fast_as_any_modules() {
    let job = |model: &str, cluster: &str, stack: &str, gpus: u64, seq: u64, global_batch: u64, parallel: &str| {
        let [model, cluster, stack, parallel] = [model, cluster, stack, parallel].map(str::to_string);
        let beyond_stack = true;
        EstimateRequest {
            model,
            cluster,
            stack,
            gpus: Some(gpus),
            seq,
            global_batch,
            parallel,
            beyond_stack,
            ..request("")
        }
    };
    let jobs = [
        job("llama3-8b", "h100", "megatron-core-2025", 8, 16384, 16, "zero=3"),
        job("llama3-8b", "h100", "fsdp-eager", 8, 8192, 16, "zero=3,mbs=2"),
        job("llama3-8b", "h100", "fsdp-compile", 8, 8192, 32, "zero=3,mbs=4"),
        job("llama2-13b", "a100-80gb", "fsdp-eager", 16, 4096, 64, "zero=3,mbs=4"),
        job("mixtral-8x7b", "h100", "megatron-core-2025", 64, 4096, 256, "tp=2,sp=true,ep=8,pp=4,zero=1,mbs=4"),
        job("deepseek-v2-lite", "h100", "megatron-core-2025", 8, 4096, 64, "ep=8,zero=1,mbs=8"),
        job("deepseek-v3", "h100", "megatron-core-2026", 1024, 4096, 4096, "pp=16,ep=64,zero=1,mbs=4"),
    ];
    let modules: Vec<&str> = MODULES.iter().map(|(name, _)| *name).collect();
    let pairs = modules.iter().flat_map(|a| modules.iter().map(move |b| format!("selective:{a}+{b}")));
    let others: Vec<String> = pairs.chain(["full", "full:1", "full:2"].map(String::from)).collect();
    let estimator = Estimator::new();
    for job in jobs {
        let under = |recompute: &str| {
            let parallel = format!("{},recompute={recompute}", job.parallel);
            estimator.estimate(&EstimateRequest { parallel, ..job.clone() }).unwrap_or_else(|error| panic!("{error}"))
        };
        let (auto, title) = (under("auto"), format!("{} {}", job.model, job.stack));
        assert!(auto.predicted.keeps_headroom && !under("none").predicted.keeps_headroom, "{title}");
        assert!(!auto.recomputed.is_empty() && auto.parallel.recompute.to_string().contains(':'), "{title}");
        for other in others.iter().map(|other| under(other)).filter(|other| other.predicted.keeps_headroom) {
            let times = [&auto, &other].map(|report| report.predicted.step_time_s);
            assert!(times[0] <= times[1] * (1.0 + 1e-3), "{title} {}: {times:?}", other.parallel.recompute);
        }
    }
}

#[test]
fn documents_of_their_own_leave_less_attention() {
    let estimator = Estimator::new();
    let whole = estimator.estimate(&request("tp=2")).unwrap().predicted;
    let request = EstimateRequest { lengths: vec![1024; 4], ..request("tp=2") };
    let parts = estimator.estimate(&request).unwrap().predicted;
    assert!(parts.time_s.attention < 0.5 * whole.time_s.attention);
    assert!(parts.flops_per_token < whole.flops_per_token);
    assert!(near(parts.time_s.gemm, whole.time_s.gemm));
}

#[test]
fn many_configurations_are_answered_in_their_order() {
    let requests: Vec<EstimateRequest> =
        LAYOUTS.iter().map(|parallel| request(parallel)).chain([request("tp=3")]).collect();
    let answers = estimate_all(&Estimator::new(), &requests, &|_| ());
    let alone = Estimator::new();
    for (request, answer) in requests.iter().zip(&answers) {
        match answer {
            Ok(report) => assert_eq!(report, &alone.estimate(request).unwrap(), "{}", request.parallel),
            Err(error) => assert!(error.to_string().contains("3 devices, not 16"), "{}: {error}", request.parallel),
        }
    }
    assert_eq!(answers.iter().filter(|answer| answer.is_err()).count(), 1);
}

#[test]
fn lines_of_a_file_are_configurations_or_requests() {
    let base = request("");
    let over = |line: &str| ConfigLine::parse(line).unwrap().over(&base);
    assert_eq!(over("tp=8,pp=2").parallel, "tp=8,pp=2");
    assert_eq!(over("\"tp=8\"").parallel, "tp=8");
    let line = over(r#"{"parallel": "tp=4", "model": "llama3-70b", "gpus": 64, "seq": 8192}"#);
    assert_eq!((line.model.as_str(), line.gpus, line.seq, line.global_batch), ("llama3-70b", Some(64), 8192, 64));
    assert!(ConfigLine::parse(r#"{"configurations": "tp=4"}"#).is_err());
}

#[test]
fn what_cannot_be_is_refused_with_the_reason() {
    let estimator = Estimator::new();
    let base = request("tp=2");
    let refused = |request: &EstimateRequest| match estimator.estimate(request) {
        Ok(report) => panic!("{} is no configuration, but takes {} s", request.parallel, report.predicted.step_time_s),
        Err(error) => {
            let error = Error::from(error);
            assert!(matches!(error, Error::Input { .. }), "{error}");
            error.to_string()
        }
    };
    for (parallel, part) in [
        ("tp=3", "3 devices, not 16"),
        ("dp=16,ep=32", "does not divide"),
        ("cp=16,cp_kind=ulysses", "does not divide dim `g`"),
        ("pp=2,mbs=5", "does not split"),
        ("pp=16,vp=4", "stages"),
        ("pp=2,vp=2,schedule=gpipe", "chunk"),
        ("shard=5", "does not divide"),
        ("cp_kind=spiral", "one of ring"),
        ("pp=2,stages=40", "ascend within"),
        ("pp=2,schedule=seq1f1b,slices=3", "3 of them do not divide one of 4096"),
    ] {
        let told = refused(&request(parallel));
        assert!(told.contains(part), "{parallel}: {told}");
    }
    for (request, part) in [
        (EstimateRequest { model: "llama3-8".into(), ..base.clone() }, "did you mean `llama3-8b`"),
        (EstimateRequest { cluster: "h10".into(), ..base.clone() }, "did you mean"),
        (EstimateRequest { stack: "megatron".into(), ..base.clone() }, "megatron-2022"),
        (EstimateRequest { precision: "fp7".into(), ..base.clone() }, "--precision is one of"),
        (EstimateRequest { optimizer: "lion".into(), ..base.clone() }, "--optimizer is one of"),
        (EstimateRequest { seq: 0, ..base.clone() }, "`--seq`"),
        (EstimateRequest { global_batch: 0, ..base.clone() }, "`--global-batch`"),
        (EstimateRequest { lengths: vec![0], ..base.clone() }, "0 tokens"),
    ] {
        let told = refused(&request);
        assert!(told.contains(part), "{request:?}: {told}");
    }
}

/// FLOPs that kernels execute: three times the products, flash attention without what the mask hides but with the scores once
/// more, and what is recomputed.
#[test]
fn hardware_flops_are_those_that_are_executed() {
    let estimator = Estimator::new();
    let executed = |parallel: &str, stack: &str| {
        let request = EstimateRequest { stack: stack.into(), ..request(parallel) };
        let predicted = estimator.estimate(&request).unwrap().predicted;
        predicted.hfu / predicted.mfu * predicted.flops_per_token
    };
    let (products, seq, hidden) = (8.03e9 - 128_256.0 * 4096.0, 4096.0, 4096.0);
    // A causal forward of a layer: 2 s h FLOPs a token, 5/2 of it backward where the scores are recomputed.
    let attention = 32.0 * 2.0 * seq * hidden;
    let flash = executed("dp=16", "megatron-core-2025");
    assert!((flash / (6.0 * products + 3.5 * attention) - 1.0).abs() < 0.01, "{flash:e}");
    let whole = executed("dp=16", "megatron-2022");
    assert!((whole / (6.0 * products + 6.0 * attention) - 1.0).abs() < 0.01, "{whole:e}");
    let layers = products - 128_256.0 * 4096.0;
    let full = executed("dp=16,recompute=full", "megatron-core-2025") - flash;
    assert!((full / (2.0 * layers + attention) - 1.0).abs() < 0.01, "{full:e}");
    assert!(near(executed("dp=16,recompute=selective:core_attn", "megatron-core-2025"), flash));
    let module = executed("dp=16,recompute=selective:mlp", "megatron-core-2025") - flash;
    assert!((module / (2.0 * 32.0 * 3.0 * 4096.0 * 14_336.0) - 1.0).abs() < 0.01, "{module:e}");
}

/// Bubble of equally loaded ranks: p - 1 of m + p - 1 micro-batches. The last rank, with the head, works more than the others,
/// which wait for it.
#[test]
fn the_bubble_is_the_idle_share_in_the_mean() {
    let predicted = estimate(&Estimator::new(), "dp=2,pp=8").predicted;
    let filled = 7.0 / (32.0 + 7.0);
    assert!(predicted.bubble > filled && predicted.bubble < filled + 0.25, "{}", predicted.bubble);
}

/// An estimate's groups are found by a rule, those of a program by an integer program. If a product's epilogue is a kernel apart, that
/// reads the result, which one kernel would not write.
#[test]
fn an_estimate_moves_the_bytes_of_the_program() {
    let mut one = Stack::find("meshwright-threads").unwrap();
    one.fitted.traffic.value = 1.0;
    let mut two = one.clone();
    two.traits.kernels.fused.remove(FusedKernel::Epilogue);
    let mut three = two.clone();
    three.traits.kernels.fused.insert(FusedKernel::ProductSum);
    let mut cluster: Cluster = CPU.clone();
    (cluster.device.start, cluster.device.memory_share) = (0.0, 1.0);
    let recipe = Recipe { activation: 4.0, ..Recipe::bf16() };
    let [one, two, three] = [&one, &two, &three].map(|stack| Platform { cluster: &cluster, stack, recipe: &recipe });
    let (mut seen, mut has_sum) = (false, false);
    for model in ["tiny-llama", "tiny-gpt2", "llama3.2-1b"] {
        let order = CompileRequest { model: model.into(), seq: 256, ..CompileRequest::default() };
        let file = compile_source(&ModelSource::open(model).unwrap(), &order, None, &mut |_, _| {}).unwrap();
        let (model, program) = (&file.model, file.program.as_ref().unwrap());
        let options = BlockOptions::of(&ParallelConfig::default(), 1);
        for block in model.blocks.values() {
            let [seconds, apart, sums] = [one, two, three].map(|platform| {
                let profile = cost::profile(model, block, &options, &platform);
                [("F", profile.f.memory_bound), ("B", profile.i.memory_bound + profile.w.memory_bound)]
            });
            for (((kind, seconds), (_, with_epilogues)), (_, with_sums)) in seconds.into_iter().zip(apart).zip(sums) {
                let name = format!("{}.{kind}", block.name);
                let Some(body) = program.bodies.values().find(|body| body.name == name) else { continue };
                let [apart, grouped] = memory_traffic(&model.mesh, body);
                if apart.launches == grouped.launches {
                    continue;
                }
                let bytes = |seconds: f64| seconds * cluster.device.memory_bandwidth;
                let ratio = bytes(seconds) / grouped.bytes as f64;
                assert!((0.9..1.1).contains(&ratio), "{name}: {ratio} of {grouped:?}");
                let (results, more) = (epilogues(model, body) as f64, bytes(with_epilogues - seconds));
                // In the backward the rule and the integer program may choose different products.
                let is_right = if kind == "F" { (more - 2.0 * results).abs() < 1.0 } else { more >= results };
                assert!(is_right, "{name}: {more} bytes more, for {results} of products");
                seen |= results > 0.0;
                // A product that leaves a sum saves that at most.
                assert!((seconds..=with_epilogues).contains(&with_sums), "{name}: {with_sums}");
                has_sum |= with_sums < with_epilogues;
            }
        }
    }
    assert!(seen && has_sum, "a product has an epilogue, and a sum is one");
}

/// Bytes of the results of products that something follows in their group.
fn epilogues(model: &Model, body: &Body) -> u64 {
    let groups = body.instrs.iter().filter_map(|instr| match instr {
        BodyInstr::Fused(fused) => fused.product(),
        _ => None,
    });
    groups.map(|product| local_type(&body.values[product.results[0]].ty, &model.mesh).bytes()).sum()
}
