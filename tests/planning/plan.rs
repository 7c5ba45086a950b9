//! Plans: as good as trying all configurations, within the pins, the same each time, and clear where there is none.

use crate::sample::sampled;
use ir::config_key::ConfigKey;
use ir::options::Offload;
use meshwright::Plan;
use meshwright::autotune::plan::{Basis, Found, Objective, PlanReport, PlanRequest, find};
use meshwright::compiler::error::Error;
use meshwright::compiler::parallel::Pins;
use meshwright::estimator::{EstimateRequest, Estimator};

fn request(model: &str, cluster: &str, gpus: u64, global_batch: u64, pin: &str) -> PlanRequest {
    let seq = if model == "tiny-gpt2" { 256 } else { 512 };
    // Zero-bubble schedules are pinned that the stack does not support.
    let beyond_stack = pin.contains("schedule=zb");
    // V100 has no bf16.
    let precision = if cluster == "v100" { "fp16" } else { "bf16" }.into();
    let request = PlanRequest::new(model, cluster, gpus, seq, global_batch);
    PlanRequest { pin: pin.into(), top: 3, beyond_stack, precision, ..request }
}

fn plan(estimator: &Estimator, request: &PlanRequest) -> Found {
    find(estimator, request, &|_| {}).unwrap_or_else(|error| panic!("{request:?}: {error}"))
}

/// Fields that do not depend on the clock.
fn answer(found: &Found) -> (Vec<(String, f64)>, Option<String>, u64) {
    let text = |parallel| meshwright::compiler::parallel::print(parallel);
    let best = found.best.iter().map(|report| (text(&report.parallel), report.predicted.step_time_s)).collect();
    (best, found.closest.as_ref().map(|report| text(&report.parallel)), found.search.space)
}

/// Pins that leave each level open in turn.
const PINS: [&str; 10] = [
    "zero=1,offload=none,recompute=none,schedule=1f1b,tp_overlap=true,dp_overlap=true",
    "tp=1,pp=2,mbs=1,offload=none,zero=1,dp_overlap=true",
    "tp=2,sp=true,mbs=1,offload=none,recompute=auto,schedule=1f1b",
    "dp=2,tp=1,cp=1,mbs=1,zero=0,recompute=none",
    "pp=1,tp=1,mbs=1,dp_overlap=true",
    "pp=1,cp=2,offload=none,recompute=none,zero=0",
    "pp=4,tp=1,mbs=1,recompute=full,offload=none,zero=1,dp_overlap=true",
    "tp=2,pp=2,mbs=1,offload=none,recompute=selective,zero=1,schedule=zb-h1",
    "pp=2,cp=1,tp=1,schedule=interleaved-1f1b,offload=none,zero=2,recompute=auto,mbs=1",
    "dp=1,cp=1,tp=1,mbs=1,offload=none,recompute=none,zero=0",
];

#[test]
fn the_search_is_as_good_as_trying_all() {
    let estimator = Estimator::new();
    let mut cases = 0;
    for (model, cluster) in [("tiny-llama", "h100"), ("tiny-moe", "h800"), ("gpt2", "v100")] {
        for (number, pin) in PINS.into_iter().enumerate() {
            // A sample has one of the sizes for each of the pins.
            for gpus in sampled(&[4, 8][number % 2..=number % 2], &[4, 8]).iter().copied() {
                let mut request = request(model, cluster, gpus, 8, pin);
                request.beyond_stack |= gpus == 8;
                let all = PlanRequest { exhaustive: true, ..request.clone() };
                match (find(&estimator, &request, &|_| {}), find(&estimator, &all, &|_| {})) {
                    (Ok(found), Ok(all)) => {
                        assert_eq!(answer(&found), answer(&all), "{request:?}");
                        assert!(found.search.complete && !found.best.is_empty());
                        let basis = if model == "tiny-moe" { Basis::SampledBounds } else { Basis::CostModel };
                        assert_eq!(found.search.optimal_under, Some(basis), "{request:?}");
                        assert_eq!(all.search.optimal_under, Some(Basis::CostModel));
                        assert!(found.search.candidates <= all.search.candidates);
                        cases += 1;
                    }
                    (Err(found), Err(all)) => assert_eq!(Error::from(found), Error::from(all)),
                    (found, all) => panic!("{request:?}: {found:?}, {all:?}"),
                }
            }
        }
    }
    assert!(cases >= sampled(25, 50), "{cases} cases");
}

/// If memory binds, recomputation and ZeRO are chosen as by exhaustive search.
#[test]
fn the_search_is_as_good_as_trying_all_where_memory_binds() {
    let estimator = Estimator::new();
    for (model, gpus, pin) in [
        ("llama3-8b", 2, "pp=1,mbs=1,dp_overlap=true"),
        ("llama3-8b", 4, "tp=1,schedule=1f1b,mbs=1,zero=1,offload=none"),
        ("llama3-8b", 4, "tp=1,schedule=1f1b,mbs=2,zero=1,offload=auto"),
        ("llama3-8b", 1, "mbs=1,offload=none"),
    ] {
        for (objective, beyond_stack) in [(Objective::Time, false), (Objective::Time, true), (Objective::Memory, false)]
        {
            let request = PlanRequest { seq: 4096, objective, beyond_stack, ..request(model, "a100", gpus, 8, pin) };
            let all = PlanRequest { exhaustive: true, ..request.clone() };
            assert_eq!(answer(&plan(&estimator, &request)), answer(&plan(&estimator, &all)), "{request:?}");
        }
    }
}

#[test]
fn pins_hold_and_all_devices_are_used() {
    let estimator = Estimator::new();
    for (pin, holds) in [
        ("tp=4", "tp=4"),
        ("pp=2,vp=2", "pp=2"),
        ("zero=3,mbs=2", "zero=3,mbs=2"),
        ("recompute=full", "recompute=full"),
        ("schedule=zb-v", "schedule=zb-v"),
    ] {
        let found = plan(&estimator, &request("tiny-llama", "h100", 8, 32, pin));
        for report in &found.best {
            let text = meshwright::compiler::parallel::print(&report.parallel);
            assert!(text.contains(holds), "{pin}: {text}");
            assert_eq!(report.parallel.devices(), 8, "{text}");
        }
    }
    let fewer = PlanRequest { max_gpus: Some(8), ..request("tiny-llama", "h100", 5, 32, "mbs=1,pp=1") };
    assert_eq!(plan(&estimator, &fewer).best[0].parallel.devices(), 8);
}

/// Values of each key of a configuration that pins may have.
const VALUES: [(&str, &[&str]); 23] = [
    ("dp", &["1", "2", "8"]),
    ("tp", &["1", "2", "4"]),
    ("pp", &["1", "2", "4"]),
    ("cp", &["1", "2"]),
    ("ep", &["1", "2"]),
    ("etp", &["1", "2"]),
    ("sp", &["true", "false"]),
    ("zero", &["0", "1", "3", "0|1"]),
    ("mbs", &["1", "2", "4"]),
    ("schedule", &["1f1b", "gpipe", "interleaved-1f1b", "zb-v", "dualpipe", "zb-h1|1f1b"]),
    ("rank_order", &["pp,dp,tp", "dp,pp,cp,tp"]),
    ("vp", &["1", "2", "3"]),
    ("group", &["4"]),
    ("cp_kind", &["ring", "allgather", "ulysses"]),
    ("shard", &["2", "all"]),
    ("gather", &["use", "step"]),
    ("recompute", &["none", "full", "full:1", "selective:mlp", "auto"]),
    ("offload", &["none", "all", "all:1"]),
    ("offload_optimizer", &["true", "false"]),
    ("tp_overlap", &["true", "false", "default"]),
    ("dp_overlap", &["true", "false"]),
    ("slices", &["2"]),
    ("stages", &["1", "even"]),
];

/// Pins are kept as they are given, or refused by name.
#[test]
fn an_answer_has_its_pins_or_names_them() {
    let mut dice = 3u64;
    let mut draw = |below: usize| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (dice >> 33) as usize % below
    };
    let estimator = Estimator::new();
    assert!(
        ConfigKey::ALL.iter().all(|key| VALUES.iter().any(|(name, _)| *name == key.name())),
        "each key may be pinned"
    );
    let (mut kept, mut refused) = (0, 0);
    for case in 0..sampled(40, 120) {
        let mut keys: Vec<usize> = (0..1 + draw(4)).map(|_| draw(VALUES.len())).collect();
        keys.sort_unstable();
        keys.dedup();
        let pins: Vec<String> = keys
            .into_iter()
            .map(|key| (VALUES[key].0, VALUES[key].1[draw(VALUES[key].1.len())]))
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        let pin = pins.join(",");
        let model = if case % 3 == 0 { "tiny-moe" } else { "tiny-llama" };
        let request = PlanRequest { beyond_stack: true, top: 2, ..request(model, "h100", 8, 32, &pin) };
        match find(&estimator, &request, &|_| {}).map_err(Error::from) {
            Ok(found) => {
                let pins = Pins::parse(&pin).unwrap();
                for report in &found.best {
                    let text = meshwright::compiler::parallel::print(&report.parallel);
                    assert!(pins.holds(&report.parallel), "{model} {pin}: {text}");
                }
                kept += usize::from(!found.best.is_empty());
            }
            Err(error) => {
                let message = error.to_string();
                let is_named = |pin: &String| message.contains(pin.split('=').next().unwrap());
                assert!(pins.iter().any(is_named), "{model} {pin}: {message}");
                refused += 1;
            }
        }
    }
    assert!(kept > sampled(13, 40) && refused > sampled(6, 20), "{kept} kept, {refused} refused");
}

/// 1F1B has one stage per rank. Interleaved 1F1B is another schedule, on one pipeline rank too.
#[test]
fn pinned_schedules_are_not_exchanged() {
    let estimator = Estimator::new();
    let told = |pin: &str| {
        let found = find(&estimator, &request("tiny-llama", "h100", 8, 32, pin), &|_| {}).map_err(Error::from);
        found.map(|found| text(&found))
    };
    for pin in ["schedule=1f1b,vp=2", "pp=4,vp=3,schedule=1f1b"] {
        let message = told(pin).unwrap_err().to_string();
        assert!(
            message.contains("it has 1 chunk per rank") && message.contains("interleaved-1f1b"),
            "{pin}: {message}"
        );
        let asked = request("tiny-llama", "h100", 8, 32, "").under(format!("dp=2,{pin}"));
        let message = Error::from(estimator.estimate(&asked).unwrap_err()).to_string();
        assert!(message.contains("it has 1 chunk per rank"), "{pin}: {message}");
    }
    for (pin, has) in [
        ("pp=1,vp=2", "schedule=interleaved-1f1b"),
        ("pp=2,vp=2", "schedule=interleaved-1f1b"),
        ("pp=2,vp=1", "vp=1"),
        ("pp=2,schedule=1f1b", "schedule=1f1b"),
    ] {
        assert!(told(pin).is_ok_and(|text| text.contains(has)), "{pin}: {:?}", told(pin));
    }
}

#[test]
fn the_same_request_has_the_same_answer() {
    let request = request("tiny-moe", "h100", 8, 32, "offload=none,cp=1");
    let [first, second] = [0, 1].map(|_| plan(&Estimator::new(), &request));
    assert_eq!(answer(&first), answer(&second));
    assert_eq!(first.search.candidates, second.search.candidates);
    assert!(first.search.deterministic);
    assert_eq!(first.best.len(), 3);
}

#[test]
fn what_does_not_fit_is_told_with_what_needs_least() {
    let found =
        plan(&Estimator::new(), &PlanRequest { seq: 8192, ..request("llama3-70b", "h100", 1, 1, "offload=none") });
    assert!(found.best.is_empty());
    let closest = found.closest.unwrap();
    assert!(!closest.predicted.fits && closest.predicted.memory_gib.total > 1000.0, "{closest:?}");
}

#[test]
fn what_cannot_be_is_refused() {
    let refused =
        |request: PlanRequest| Error::from(find(&Estimator::new(), &request, &|_| {}).unwrap_err()).to_string();
    for (gpus, pin, part) in [
        (7, "cp=1", "no configuration of 7 devices serves"),
        (8, "tp=4,pp=4", "with the pins tp=4,pp=4"),
        (8, "tp=3", "needs heads % tp == 0"),
        (8, "tpp=3", "there is no `tpp`"),
        (8, "schedule=1f2b", "no schedule `1f2b`"),
        (0, "", "--gpus"),
    ] {
        let message = refused(request("tiny-llama", "h100", gpus, 8, pin));
        assert!(message.contains(part), "{gpus} {pin}: {message}");
    }
    assert!(refused(request("tiny-lama", "h100", 8, 8, "")).contains("tiny-llama"));
}

/// If nothing fits, the search for the smallest configuration is bounded by what degrees leave a device to hold, before any model is
/// planned for them: it goes through hundreds of experts on 32 devices.
#[test]
fn that_nothing_fits_is_known_soon() {
    let estimator = Estimator::new();
    for (model, gpus, seq, global_batch) in [("deepseek-v3", 32, 4096, 512), ("gpt3-175b", 8, 2048, 384)] {
        let deadline = Some(60.0);
        let request = PlanRequest { deadline, ..PlanRequest::new(model, "h100", gpus, seq, global_batch) };
        let found = plan(&estimator, &request);
        assert!(found.best.is_empty() && found.search.complete && found.closest_is_least, "{:?}", found.search);
        assert!(found.closest.is_some_and(|closest| !closest.predicted.fits));
    }
}

/// A search that was stopped gives no verdict, and stops in time: while it lists and counts what there is, too.
#[test]
fn a_deadline_is_kept_and_proves_nothing() {
    let estimator = Estimator::new();
    let heads = r#"{"model_type": "llama", "vocab_size": 128256, "max_position_embeddings": 1000000, "hidden_size": 5765760,
        "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 720720,
        "num_key_value_heads": 720720, "tie_word_embeddings": false}"#;
    let many = PlanRequest::new(heads, "h100", 720_720, 720_720, 720_720);
    let some = PlanRequest { max_gpus: Some(1 << 20), ..PlanRequest::new("llama3-8b", "h100", 1, 8192, 1024) };
    for (request, seconds) in [(&many, 1.0), (&some, 1.0), (&some, 1e-6)] {
        let began = std::time::Instant::now();
        let found = plan(&estimator, &PlanRequest { deadline: Some(seconds), ..request.clone() });
        assert!(began.elapsed().as_secs_f64() < seconds + 4.0, "{seconds}: {:?}", began.elapsed());
        assert!(!found.search.deterministic, "{seconds}: {:?}", found.search);
        assert!(!found.search.complete || found.search.seconds < seconds, "{seconds}: {:?}", found.search);
    }
}

/// Any number of devices up to a million: it is searched by halves, and the most are not always the best.
#[test]
fn the_number_of_devices_may_be_open() {
    let estimator = Estimator::new();
    let asked = |gpus, max_gpus| PlanRequest { max_gpus, ..request("tiny-llama", "h100", gpus, 12, "cp=1,pp=1") };
    // Heads and sequences are not shared by more.
    let alone = (1..=64).filter_map(|gpus| find(&estimator, &asked(gpus, None), &|_| {}).ok());
    let times: Vec<f64> = alone.map(|found| found.best[0].predicted.step_time_s).collect();
    let fastest = times.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(times.len() > 5);
    for most in [64, 1 << 20] {
        let found = plan(&estimator, &asked(1, Some(most)));
        assert_eq!(found.best[0].predicted.step_time_s, fastest, "up to {most}");
        assert!(found.search.complete);
    }
}

fn text(found: &Found) -> String {
    meshwright::compiler::parallel::print(&found.best[0].parallel)
}

/// Within the stack unless what is beyond is asked for: its schedules, modules and ZeRO stages.
#[test]
fn a_plan_is_within_its_stack() {
    let estimator = Estimator::new();
    let on = |stack: &str, pin: &str, seq: u64, beyond_stack: bool| {
        let request = request("llama3-8b", "h100", 8, 64, pin);
        plan(&estimator, &PlanRequest { stack: stack.into(), seq, beyond_stack, ..request })
    };
    for (stack, pin) in
        [("megatron-core-2025", "pp=4"), ("nanotron-2024", ""), ("foundry-2023", ""), ("fsdp-eager", "pp=2")]
    {
        for report in &on(stack, pin, 4096, false).best {
            assert_eq!(report.beyond_stack, [], "{stack}");
        }
    }
    let narrow = on("megatron-core-2025", "pp=4", 4096, false);
    let wide = on("megatron-core-2025", "pp=4", 4096, true);
    assert!(text(&narrow).contains("1f1b"), "{}", text(&narrow));
    assert!(wide.best[0].predicted.step_time_s < narrow.best[0].predicted.step_time_s);
    // Where memory asks for it, modules are recomputed, and no single values.
    let modules = text(&on("megatron-core-2025", "dp=8,zero=3,mbs=2", 8192, false));
    let values = text(&on("megatron-core-2025", "dp=8,zero=3,mbs=2", 8192, true));
    assert!(modules.contains("recompute=") && values.contains("recompute=selective:"), "{modules} {values}");
    assert_ne!(modules, values);
}

/// Combinations of options that a stack does not support are not planned: those of experts, sequences and stages.
#[test]
fn a_plan_keeps_the_rules_of_its_stack() {
    let estimator = Estimator::new();
    let best = |stack: &str, model: &str, seq: u64, pin: &str| {
        let request = PlanRequest { stack: stack.into(), seq, ..request(model, "h100", 16, 32, pin) };
        let found = find(&estimator, &request, &|_| {}).map_err(Error::from)?;
        assert!(found.best.iter().all(|report| report.beyond_stack.is_empty()), "{stack} {pin}");
        Ok::<_, Error>(found.best.iter().map(|report| report.parallel.clone()).collect::<Vec<_>>())
    };
    for stack in ["nemo", "fsdp-compile", "automodel-2026", "megatron-core-2025"] {
        for parallel in best(stack, "mixtral-8x7b", 4096, "").unwrap() {
            assert!(stack != "nemo" || parallel.etp == parallel.tp, "{parallel:?}");
            assert!(stack != "automodel-2026" || parallel.tp == 1, "{parallel:?}");
        }
    }
    // 32 layers are no six equal stages.
    for parallel in best("megatron-2022", "llama3-8b", 4096, "pp=4").unwrap() {
        assert_eq!(32 % (4 * parallel.vp.unwrap_or(1)), 0, "{parallel:?}");
    }
    // 1028 is 2 x 2 x 257, so that it is cut into 4 chunks, but not into 8.
    assert!(best("megatron-core-2025", "llama3-8b", 1028, "cp=2").is_ok_and(|found| !found.is_empty()));
    let refused = best("megatron-core-2025", "llama3-8b", 1028, "cp=4").unwrap_err().to_string();
    assert!(refused.contains("seq % (2 * cp) == 0") && refused.contains("get_batch_on_this_cp_rank"), "{refused}");
    let wide = PlanRequest { seq: 1028, beyond_stack: true, ..request("llama3-8b", "h100", 16, 32, "cp=4") };
    assert!(!plan(&estimator, &wide).best.is_empty());
}

/// Plans for the stacks of `train` compile: random requests on small meshes.
#[test]
fn what_is_planned_for_train_compiles() {
    let mut dice = 7u64;
    let mut draw = |from: &[&'static str]| {
        dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        from[(dice >> 33) as usize % from.len()]
    };
    let mut planned = 0;
    for _ in 0..sampled(24, 48) {
        let model = draw(&["tiny-llama", "tiny-gpt2", "tiny-moe"]);
        let [gpus, each] = [draw(&["1", "2", "3", "4", "6", "8"]), draw(&["1", "2", "3", "4"])];
        let [gpus, each]: [u64; 2] = [gpus, each].map(|number| number.parse().unwrap());
        let pin = draw(&[
            "",
            "pp=2",
            "cp=2",
            "zero=1|2|3",
            "tp=2,sp=true",
            "ep=2",
            "schedule=zb-v|dualpipe|chimera",
            "mbs=1",
        ]);
        let request = PlanRequest {
            stack: draw(&["meshwright", "meshwright-threads", "meshwright-cuda"]).into(),
            precision: draw(&["f32", "bf16"]).into(),
            seq: draw(&["32", "48", "128"]).parse().unwrap(),
            top: 2,
            pin: pin.into(),
            ..PlanRequest::new(model, draw(&["cpu", "h100"]), gpus, 0, gpus * each)
        };
        let estimator = Estimator::new();
        let Ok(found) = find(&estimator, &request, &|_| {}) else { continue };
        for chosen in found.best {
            let text = format!("{request:?}: {}", meshwright::compiler::parallel::print(&chosen.parallel));
            let report = PlanReport { chosen, alternatives: Vec::new(), search: None, why: None };
            Plan::of(report, Estimator::new()).compile().unwrap_or_else(|error| panic!("{text}: {error}"));
            planned += 1;
        }
    }
    assert!(planned > sampled(20, 40), "{planned}");
}

/// Activations are offloaded only if nothing else fits, and never beyond the host's memory.
#[test]
fn activations_are_offloaded_where_nothing_else_fits() {
    let estimator = Estimator::new();
    let on = |gpus: u64, pin: &str, seq: u64, global_batch: u64| {
        let request = request("llama3-70b", "h100", gpus, global_batch, pin);
        plan(&estimator, &PlanRequest { stack: "megatron-core-2026".into(), seq, ..request })
    };
    let roomy = on(64, "tp=8,mbs=1,cp=1", 8192, 64);
    assert!(roomy.best.iter().all(|report| report.parallel.offload.is_none() && report.predicted.offloaded() == 0.0));
    let crowded = on(32, "tp=4,pp=1,cp=1,mbs=1,recompute=full", 131_072, 64);
    for report in crowded.best.iter().filter(|report| !report.parallel.offload.is_none()) {
        let memory = &report.predicted.memory_gib;
        assert!(report.predicted.offloaded() <= memory.host_capacity.unwrap(), "{report:?}");
    }
    assert!(crowded.best.iter().any(|report| !report.parallel.offload.is_none()), "{:?}", crowded.closest);
    // No host has the memory per device that this saves.
    let pin = "dp=8,tp=1,pp=8,cp=1,mbs=8,offload=all,recompute=none,schedule=1f1b,zero=1";
    let request = PlanRequest { seq: 8192, ..request("llama3-70b", "h100", 64, 512, pin) };
    let request = PlanRequest { stack: "megatron-core-2026".into(), ..request };
    assert!(find(&estimator, &request, &|_| {}).map_or(true, |found| found.best.is_empty()));
}

/// States go to the host if they do not fit on the device, and the wait for them has its place in the step.
#[test]
fn optimizer_states_are_offloaded_where_nothing_else_fits() {
    let estimator = Estimator::new();
    let on = |gpus: u64, pin: &str| {
        let request = request("llama3-8b", "h100", gpus, 16, pin);
        plan(&estimator, &PlanRequest { seq: 2048, stack: "meshwright".into(), ..request })
    };
    let crowded = on(1, "");
    let best = &crowded.best[0];
    assert!(best.parallel.offload_optimizer && best.predicted.fits, "{:?}", crowded.best);
    assert!(best.predicted.time_s.host > 0.0 && best.predicted.memory_gib.per_stage[0].optimizer == 0.0);
    // Two moments and a master, each f32.
    let states = 12.0 * 8.03e9 / f64::from(1 << 30);
    assert!((best.predicted.offloaded() / states - 1.0).abs() < 0.01, "{}", best.predicted.offloaded());
    assert!(on(1, "offload_optimizer=false").best.is_empty());
    // Four devices hold the states between them.
    let roomy = on(4, "");
    assert!(roomy.best.iter().all(|report| !report.parallel.uses_host()), "{:?}", roomy.best);
    let always = on(1, "offload_optimizer=true");
    assert_eq!(always.best[0].predicted.step_time_s, best.predicted.step_time_s);
}

/// No more layers are offloaded than must be: with one less a device has too much. More free memory takes more of them, and more
/// time; and all of them are what `estimate` says.
#[test]
fn as_few_layers_are_offloaded_as_must_be() {
    let estimator = Estimator::new();
    let base = "dp=8,tp=1,pp=1,mbs=2,zero=1,schedule=1f1b,recompute=none";
    let estimate = |offload: &str, margin: f64| {
        let parallel = format!("{base},offload={offload}");
        let stack = "megatron-core-2025".to_string();
        let request = request("llama3-8b", "h100", 8, 64, "");
        let request = PlanRequest { seq: 8192, stack, memory_margin: Some(margin), beyond_stack: true, ..request };
        estimator.estimate(&EstimateRequest { gpus: Some(8), ..request.under(parallel) }).unwrap()
    };
    let mut before: Option<(u32, f64)> = None;
    for margin in [0.0, 0.1, 0.2] {
        let report = estimate("auto", margin);
        let Offload::All(Some(layers)) = report.parallel.offload else { panic!("{:?}", report.parallel) };
        assert!(report.predicted.fits && (1..32).contains(&layers), "{layers}");
        let less = if layers == 1 { "none".to_string() } else { format!("all:{}", layers - 1) };
        assert!(!estimate(&less, margin).predicted.fits, "{layers}");
        let same = estimate(&format!("all:{layers}"), margin);
        assert_eq!(same.predicted.step_time_s, report.predicted.step_time_s);
        let all = estimate("all", margin).predicted;
        assert!(report.predicted.offloaded() < all.offloaded() && report.predicted.step_time_s <= all.step_time_s);
        let each = report.predicted.offloaded() / f64::from(layers);
        assert!((each * 32.0 / all.offloaded() - 1.0).abs() < 0.2, "{each} GiB a layer of {}", all.offloaded());
        if let Some((fewer, seconds)) = before {
            assert!(layers > fewer && report.predicted.step_time_s >= seconds, "{layers}, {fewer}");
        }
        before = Some((layers, report.predicted.step_time_s));
    }
}

/// A share of each device stays free.
#[test]
fn plans_leave_a_margin() {
    let estimator = Estimator::new();
    let with = |margin: f64| {
        let request = request("llama3-8b", "h100", 8, 64, "tp=1,pp=1,cp=1,zero=1,recompute=auto");
        let request = PlanRequest { seq: 8192, memory_margin: Some(margin), beyond_stack: true, ..request };
        plan(&estimator, &request).best[0].predicted.clone()
    };
    for margin in [0.0, 0.05, 0.2] {
        let predicted = with(margin);
        let memory = &predicted.memory_gib;
        assert!((memory.usable / memory.capacity - (1.0 - margin)).abs() < 1e-9, "{memory:?}");
        assert!(predicted.fullest().device <= memory.usable, "{margin}: {memory:?}");
    }
    assert!(with(0.2).step_time_s > with(0.0).step_time_s);
    let wrong = PlanRequest { memory_margin: Some(1.0), ..request("tiny-llama", "h100", 8, 8, "") };
    assert!(find(&estimator, &wrong, &|_| {}).unwrap_err().to_string().contains("--memory-margin"));
}

/// A plan keeps the chance to run out of memory below the headroom, and takes the time that this needs. A search that predicts
/// everything finds the same.
#[test]
fn plans_keep_their_headroom() {
    let estimator = Estimator::new();
    let with = |headroom: f64, exhaustive: bool| {
        let request =
            request("llama3-8b", "h100", 8, 64, "tp=1,cp=1,zero=1,vp=1,schedule=1f1b,mbs<=2,recompute=none|full|auto");
        let found = plan(&estimator, &PlanRequest { seq: 8192, headroom, exhaustive, ..request });
        found.best[0].predicted.clone()
    };
    for headroom in [70.0, 50.0, 20.0, 10.0, 5.0, 0.1] {
        let predicted = with(headroom, false);
        assert!(predicted.chance_to_fit >= 1.0 - headroom / 100.0 - 1e-9, "{headroom}: {predicted:?}");
        assert_eq!(predicted.step_time_s, with(headroom, true).step_time_s, "{headroom}");
    }
    assert!(with(0.01, false).step_time_s > with(10.0, false).step_time_s);
    for headroom in [0.0, 100.0, -1.0, f64::NAN] {
        let wrong = PlanRequest { headroom, ..request("tiny-llama", "h100", 8, 8, "") };
        assert!(find(&estimator, &wrong, &|_| {}).unwrap_err().to_string().contains("--headroom"));
    }
}

#[test]
fn pins_beyond_the_stack_are_refused() {
    let refused = |pin: &str| {
        let request = PlanRequest { pin: pin.into(), ..PlanRequest::new("tiny-llama", "h100", 8, 512, 8) };
        Error::from(find(&Estimator::new(), &request, &|_| {}).unwrap_err()).to_string()
    };
    for (pin, part) in [
        ("schedule=zb-v", "megatron-core-2025 does not support it: it has 1f1b, interleaved-1f1b"),
        ("recompute=selective:op", "`recompute=selective:op` is pinned"),
        ("pp=2,offload=all", "needs offload == 0 || pp == 1 && recompute == 0"),
    ] {
        let message = refused(pin);
        assert!(message.contains(part) && message.contains("--beyond-stack"), "{message}");
    }
}
