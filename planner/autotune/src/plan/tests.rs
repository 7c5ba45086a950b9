//! Bounds, prices and the count of the space, against the estimator and against all configurations.

use super::explore::{Explorer, beyond};
use super::found::find;
use super::large_microbatch::LargeMicrobatches;
use super::oracle::Costs;
use super::request::PlanRequest;
use super::simplest::{Complexity, simplest};
use super::space::{Subspace, space};
use crate::search::{Bound, Level, Limits, Oracle, SearchNode, Space, Task, count, has_usual_sizes, search};
use compiler::deadline::Deadline;
use compiler::parallel::{self, Pins};
use estimator::{
    BoundKind, BudgetSizes, EstimateReport, EstimateRequest, Estimator, Evaluator, MemoryChoices, StepCost,
};
use ir::options::{CpKind, Offload, ParallelConfig, Recompute};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Numbers that look random and are the same each time (Knuth's MMIX).
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % most
    }
}

/// Everything but offloading.
const ALL: Subspace = Subspace { offload: false, offload_optimizer: false, odd: true };

fn request(model: &str, cluster: &str, gpus: u64, global_batch: u64, pin: &str) -> PlanRequest {
    let seq = if model == "tiny-gpt2" { 256 } else { 512 };
    PlanRequest { pin: pin.into(), ..PlanRequest::new(model, cluster, gpus, seq, global_batch) }
}

/// A way from degrees to a single configuration, as the dice fall; none where it ends before.
fn way(space: &Space, axes: &[SearchNode], dice: &mut Dice) -> Option<Vec<SearchNode>> {
    let mut way = vec![axes[dice.below(axes.len())].clone()];
    while way[way.len() - 1].level != Level::Complete {
        let parts = space.parts(&way[way.len() - 1]);
        if parts.is_empty() {
            return None;
        }
        way.push(parts[dice.below(parts.len())].clone());
    }
    Some(way)
}

/// No configuration takes less than any node that it is in, and costs what `estimate` says.
#[test]
fn bounds_are_bounds_and_prices_are_those_of_estimate() {
    let requests = [
        request("tiny-llama", "h100", 8, 64, ""),
        request("tiny-moe", "h100", 8, 32, ""),
        request("gpt2", "a100", 4, 24, ""),
        request("llama3-8b", "h100", 16, 32, ""),
        request("deepseek-v2-lite", "h800", 16, 64, ""),
        request("mixtral-8x7b", "h100", 32, 64, ""),
        PlanRequest { beyond_stack: true, ..request("llama3-8b", "h100", 16, 32, "") },
        PlanRequest { beyond_stack: true, ..request("mixtral-8x7b", "h100", 32, 64, "") },
        PlanRequest {
            stack: "megatron-core-2026".into(),
            ..request("deepseek-v2-lite", "h800", 16, 64, "offload=all")
        },
        PlanRequest { beyond_stack: true, ..request("gpt2", "h100", 8, 64, "pp=4,schedule=interleaved-zb|looped-bfs") },
        PlanRequest { seq: 4096, ..request("deepseek-v2-lite", "h800", 64, 256, "") },
        PlanRequest { seq: 4096, ..request("qwen3-30b-a3b", "h100", 32, 256, "") },
        PlanRequest { seq: 4096, precision: "fp8-block".into(), ..request("deepseek-v3", "h800", 512, 3840, "") },
        PlanRequest { seq: 1024, ..request("deepseek-v3", "b200", 512, 512, "") },
        PlanRequest { stack: "nanotron-2024".into(), ..request("llama3-8b", "h100", 16, 64, "") },
        PlanRequest { stack: "fsdp-eager".into(), ..request("tiny-llama", "h100", 6, 36, "") },
        PlanRequest { stack: "meshwright-cuda".into(), ..request("llama3-8b", "h100", 16, 64, "zero=3") },
        PlanRequest { stack: "meshwright".into(), ..request("mixtral-8x7b", "h100", 32, 64, "zero=3,gather=step") },
        PlanRequest { stack: "meshwright".into(), ..request("mixtral-8x7b", "h100", 32, 64, "offload_optimizer=true") },
        request("deepseek-v2-lite", "h800", 16, 64, "offload_optimizer=true,zero=1"),
        PlanRequest { seq: 16384, ..request("llama3-8b", "h100", 8, 32, "recompute=auto,cp=1") },
        PlanRequest { seq: 16384, beyond_stack: true, ..request("llama3-8b", "h100", 8, 32, "offload=auto,cp=1") },
        PlanRequest {
            seq: 8192,
            beyond_stack: true,
            ..request("llama3-8b", "a100", 8, 32, "offload=auto,recompute=none")
        },
        PlanRequest { seq: 8192, beyond_stack: true, ..request("deepseek-v2-lite", "h800", 16, 64, "offload=all:2") },
        PlanRequest { seq: 16384, beyond_stack: true, ..request("llama3-8b", "h100", 8, 32, "recompute=auto,cp=1") },
    ];
    for request in requests {
        let estimator = Estimator::new();
        let evaluator = Evaluator::new(&estimator, request.under(String::new()), [request.gpus; 2]).unwrap();
        let work = evaluator.work().unwrap();
        let space = space(&request, &evaluator, Deadline::default(), ALL).unwrap();
        let axes = space.roots();
        let large = LargeMicrobatches::new(&evaluator, &space);
        let costs = Costs::new(&evaluator, work, &space, &large, false);
        let limited = Costs::new(&evaluator, work, &space, &large, true);
        let widest = evaluator.memory_budget(BudgetSizes::default());
        let (mut dice, mut costed) = (Dice(7), 0);
        for _ in 0..60 {
            let Some(mut way) = way(&space, &axes, &mut dice) else { continue };
            // Before its degrees are known, and those of its experts.
            let first = way[0].clone();
            let degrees = ParallelConfig { ep: 1, etp: 1, ..first.parallel.clone() };
            way.insert(0, SearchNode { parallel: degrees, level: Level::Degrees, ..first.clone() });
            way.insert(0, SearchNode { level: Level::Devices, devices: [1, request.gpus], ..first });
            let one = &way[way.len() - 1].parallel;
            let told = |text: &str| {
                estimator.estimate(&EstimateRequest { gpus: Some(request.gpus), ..request.under(text.to_string()) })
            };
            let unlimited = Limits { seconds: f64::INFINITY, bytes: None };
            let Some(cost) = costs.cost(one, unlimited) else {
                let text = parallel::print(one);
                // A configuration that the host does not hold has an estimate, but no cost.
                let lacks_host = matches!(evaluator.cost(one), Err(estimator::Error::HostMemory));
                let is_open = one.recompute == Recompute::Auto || one.offload == Offload::Auto;
                assert!(is_open || lacks_host || told(&text).is_err(), "{} {text}", request.model);
                continue;
            };
            costed += 1;
            // What is just of use is not given up.
            assert_eq!(costs.cost(one, Limits { seconds: cost.seconds, ..unlimited }).as_ref(), Some(&cost));
            let fits = cost.bytes <= evaluator.memory_budget(BudgetSizes::of(one));
            assert_eq!(limited.cost(one, unlimited).is_some(), fits, "{} {}", request.model, cost.text);
            let text = &cost.text;
            let seconds = told(text).unwrap().predicted.step_time_s;
            assert!((cost.seconds / seconds - 1.0).abs() < 1e-9, "{} {text}: {cost:?}, {seconds}", request.model);
            let mut known = Bound { seconds: 0.0, bytes: 0.0 };
            for node in &way {
                let bound = |known, limits| {
                    let none =
                        || panic!("{} {:?} {text} has no bound within {limits:?}: {cost:?}", request.model, node.level);
                    costs.bound(node, known, limits).unwrap_or_else(none)
                };
                known = bound(known, unlimited);
                // A device with just as much memory as the configuration needs, and just its time, leave little to choose.
                let room = Limits { seconds: cost.seconds * (1.0 + 1e-9), bytes: Some(cost.bytes) };
                let fitting = bound(known, room);
                let Bound { seconds, bytes } = known;
                let at = format!("{} {:?} {text}: {known:?}, {fitting:?}, {cost:?}", request.model, node.level);
                assert!(seconds.max(fitting.seconds) <= cost.seconds * (1.0 + 1e-9), "{at}");
                assert!(bytes.max(fitting.bytes) <= cost.bytes * (1.0 + 1e-9), "{at}");
                // The bound gives up no configuration that is within its own budget.
                let room = Limits { seconds: cost.seconds * (1.0 + 1e-9), bytes: Some(widest) };
                let own = fits.then(|| limited.bound(node, known, room).unwrap());
                let is_kept = |own: Bound| own.bytes <= cost.bytes * (1.0 + 1e-9) && own.seconds <= room.seconds;
                assert!(own.is_none_or(is_kept), "{at} {own:?}");
            }
        }
        assert!(costed > 30, "{} {costed}", request.model);
    }
}

/// The least memory and time that a configuration fits in, in two cases. Chains of stages end on the first rank, which has fewer
/// gradients than the last. Values recomputed together take less time than one after the other, since more compute hides the
/// communication.
#[test]
fn a_configuration_fits_where_it_fits() {
    let chained = "dp=8,tp=2,pp=2,cp=2,ep=4,etp=4,sp=true,zero=1,mbs=2,schedule=looped-bfs,vp=14,cp_kind=ulysses,shard=4,\
        recompute=full,tp_overlap=false,stages=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27";
    let together = "dp=2,tp=2,pp=2,cp=4,ep=4,etp=4,sp=false,zero=0,mbs=128,schedule=1f1b,stages=26,\
        recompute=selective:a+q0+q1+q+o+p+x1+n+ex+eg+eu+ep";
    let whole = MemoryChoices { selective: false, full: vec![u32::MAX], offload: vec![Offload::None] };
    let parts = MemoryChoices { selective: true, full: Vec::new(), offload: vec![Offload::None] };
    let cases = [("deepseek-v2-lite", "h800", 64, chained, whole), ("qwen3-30b-a3b", "h100", 32, together, parts)];
    for (model, cluster, gpus, text, choices) in cases {
        let request = PlanRequest { seq: 4096, beyond_stack: true, ..request(model, cluster, gpus, 256, "") };
        let estimator = Estimator::new();
        let evaluator = Evaluator::new(&estimator, request.under(String::new()), [gpus; 2]).unwrap();
        let parallel = parallel::parse_any(text).unwrap();
        let StepCost { seconds, bytes } = evaluator.cost(&parallel).unwrap();
        let enough = seconds * (1.0 + 1e-9);
        let ask = BoundKind::Seconds { enough, budget: bytes, choices, is_ordered: true };
        let floor = evaluator.floor(&ParallelConfig { recompute: Recompute::None, ..parallel }, &ask).unwrap();
        assert!(floor.seconds <= seconds * (1.0 + 1e-9), "{model}: {floor:?} {seconds}");
        assert!(floor.seconds > 0.95 * seconds, "{model}: {floor:?} {seconds}");
    }
}

/// A search that is stopped after any number of questions states a lower bound on the optimum, and a tighter one than the full rate
/// of all devices if it was nearly done.
#[test]
fn a_stopped_search_bounds_the_optimum() {
    let estimator = Estimator::new();
    for (model, pin, tight) in [("tiny-llama", "", 0.8), ("tiny-moe", "cp=1,mbs<=2", 0.4)] {
        let request = request(model, "h100", 8, 32, pin);
        let evaluator = Evaluator::new(&estimator, request.under(String::new()), [request.gpus; 2]).unwrap();
        let work = evaluator.work().unwrap();
        let memory = evaluator.memory_budget(BudgetSizes::default());
        let run = |most: usize| {
            let mut space = space(&request, &evaluator, Deadline::default(), ALL).unwrap();
            let roots = space.roots();
            let asked = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&asked);
            space.stop = Box::new(move || counted.fetch_add(1, Ordering::Relaxed) >= most);
            let large = LargeMicrobatches::new(&evaluator, &space);
            let costs = Costs::new(&evaluator, work, &space, &large, true);
            let task = Task {
                wanted: 1,
                memory: Some(memory),
                by_memory: false,
                exhaustive: false,
                below: f64::INFINITY,
                gap: 0.0,
                around: None,
                progress: &mut |_| (),
            };
            (search(&space, &roots, &costs, task), costs.of_all().seconds, asked.load(Ordering::Relaxed))
        };
        let (whole, floor, questions) = run(usize::MAX);
        let best = whole.best[0].cost.seconds;
        assert!(whole.finished && whole.open.is_none() && floor <= best, "{model}");
        let mut tightest: f64 = 0.0;
        for share in 1..20 {
            let (stopped, ..) = run(questions * share / 20);
            assert!(!stopped.finished || stopped.open.is_none(), "{model}");
            let open = stopped.open.unwrap_or(0.0);
            assert!(open <= best * (1.0 + 1e-9), "{model} {share}: {open} above {best}");
            tightest = tightest.max(open);
        }
        assert!(tightest > floor && tightest > tight * best, "{model}: {tightest} of {best}, {floor}");
    }
}

/// The count of a space equals its number of configurations.
#[test]
fn a_space_has_as_many_configurations_as_are_counted() {
    for (model, gpus, stack, pin) in [
        ("tiny-llama", 4, "megatron-core-2025", ""),
        ("tiny-moe", 4, "megatron-core-2025", "zero=1,mbs=1"),
        ("gpt2", 2, "megatron-core-2025", "recompute=auto"),
        ("tiny-llama", 4, "meshwright-cuda", "zero=0|3,tp=1,recompute=none"),
    ] {
        let request = PlanRequest { stack: stack.into(), ..request(model, "h100", gpus, 8, pin) };
        let estimator = Estimator::new();
        let evaluator = Evaluator::new(&estimator, request.under(String::new()), [gpus; 2]).unwrap();
        let space = space(&request, &evaluator, Deadline::default(), ALL).unwrap();
        let mut configs = 0;
        let mut open = space.roots();
        let counted = count(&space, &open, &|| false);
        while let Some(node) = open.pop() {
            configs += u64::from(node.level == Level::Complete);
            let parts = space.parts(&node);
            // Boundaries by predicted time have as many configurations below them as equal stages.
            let more = parts.first().filter(|_| space.is_open(&node)).cloned();
            open.extend(parts.into_iter().chain(more));
        }
        assert_eq!((configs, counted.is_all), (counted.configs, true), "{model}");
    }
}

/// Norms recomputed are bytes that nothing waits for: MT-NLG 530B with the host's memory is faster so than with all of it moved.
#[test]
fn values_are_made_again_where_copies_to_the_host_are_waited_for() {
    let request = PlanRequest {
        stack: "megatron-2022".into(),
        beyond_stack: true,
        ..PlanRequest::new("megatron-530b", "a100", 2240, 2048, 1920)
    };
    let estimator = Estimator::new();
    let evaluator = Evaluator::new(&estimator, request.under(String::new()), [request.gpus; 2]).unwrap();
    let parallel = |recompute: Recompute| ParallelConfig {
        dp: 16,
        tp: 4,
        pp: 35,
        sp: true,
        zero: 1,
        offload: Offload::All(None),
        recompute,
        ..ParallelConfig::default()
    };
    let (_, floor) = evaluator.fitting(&parallel(Recompute::Auto), f64::INFINITY).unwrap().unwrap();
    let seconds = |recompute: Recompute| evaluator.cost(&parallel(recompute)).unwrap().seconds;
    assert!(floor.seconds < seconds(Recompute::None));
    for module in ["layernorm", "mlp", "core_attn"] {
        let modules = seconds(Recompute::Selective(vec![module.to_string()]));
        assert!(floor.seconds <= modules * (1.0 + 1e-9), "{module}: {modules} {floor:?}");
    }
}

/// A program cuts keys over cp by heads, of which it needs as many as there are ranks, beside those that tp has taken: where
/// there are queries enough, but too few keys, nothing is planned or predicted.
#[test]
fn heads_that_no_program_cuts_are_not_planned() {
    let estimator = Estimator::new();
    for (degrees, can_be) in [("cp=4,tp=2", true), ("cp=8,tp=2", false), ("cp=16,tp=1", false)] {
        let pin = format!("{degrees},pp=1,cp_kind=ulysses");
        let request = request("mixtral-8x7b", "b200", 16, 16, &pin);
        let found = find(&estimator, &request, &|_| {});
        assert_eq!(found.is_ok_and(|found| !found.best.is_empty()), can_be, "{pin}");
        let told = estimator.estimate(&EstimateRequest { gpus: Some(16), ..request.under(pin.clone()) });
        assert_eq!(told.is_ok(), can_be, "{pin}");
    }
    let space = |pin: &str| {
        let request = request("mixtral-8x7b", "b200", 16, 16, pin);
        let evaluator = Evaluator::new(&estimator, request.under(String::new()), [16; 2]).unwrap();
        let space = space(&request, &evaluator, Deadline::default(), ALL).unwrap();
        let ways = |node: &SearchNode| space.sequence_shardings(&node.parallel);
        space.roots().iter().flat_map(ways).filter(|way| way.cp_kind == CpKind::Ulysses).count()
    };
    assert!(space("cp=8") > 0);
    assert_eq!(space("cp=16"), 0);
}

/// The plan keeps the pins and the limits of the request, is at most as much slower as asked, and simpler than the fastest one.
#[test]
fn the_plan_is_the_simplest_of_a_tie() {
    let estimator = Estimator::new();
    let cluster = estimator.cluster("h100").unwrap();
    for (pin, gpus, tie) in [("", 256, 0.02), ("cp=2", 256, 0.02), ("tp<=2,zero=0|2", 64, 0.05), ("zero=0", 64, 0.05)] {
        let request = PlanRequest { tie, ..request("llama3-8b", "h100", gpus, 4 * gpus, pin) };
        let found = find(&estimator, &request, &|_| {}).unwrap();
        let (nominal, others) = found.best.split_first().unwrap();
        let explorer = Explorer::new(&estimator, &request, &nominal.parallel, Deadline::default()).unwrap();
        let plan = simplest(&explorer, nominal, others, tie);
        let zero = explorer.usual_zero(&nominal.parallel);
        let [ours, theirs] = [&plan, nominal].map(|report| Complexity::of(report, &cluster, zero));
        assert!(Pins::parse(pin).unwrap().holds(&plan.parallel), "{pin}: {:?}", plan.parallel);
        assert!(
            plan.predicted.keeps_headroom && plan.predicted.step_time_s <= (1.0 + tie) * nominal.predicted.step_time_s
        );
        assert!(ours < theirs || plan.parallel == nominal.parallel, "{pin}: {ours:?}, {theirs:?}");
        let is_simpler = |other: &EstimateReport| {
            let is_close = other.predicted.step_time_s <= (1.0 + tie) * nominal.predicted.step_time_s;
            is_close && Complexity::of(other, &cluster, zero) < ours
        };
        assert!(!others.iter().any(is_simpler), "{pin}: a known one is simpler than {:?}", plan.parallel);
    }
}

/// A plan of `meshwright` that gathers parameters once a layer has a faster one within the stack, which is not beyond it.
#[test]
fn what_the_stack_has_is_not_beyond_it() {
    let estimator = Estimator::new();
    let told = |stack: &str, plan: &str| {
        let base = request("llama3-8b", "h200", 64, 512, "");
        let request = PlanRequest { stack: stack.into(), seq: 4096, ..base };
        let asked = EstimateRequest { gpus: Some(64), ..request.under(plan.to_string()) };
        let best = estimator.estimate(&asked).unwrap();
        let found = beyond(&estimator, &request, &best, Deadline::default()).unwrap();
        let lacks = |parallel: &ParallelConfig| estimator.beyond(&asked, [parallel]).unwrap().concat();
        assert!(found.as_ref().is_none_or(|found| !lacks(&found.parallel).is_empty()), "{stack} {plan}: {found:?}");
        found.is_some()
    };
    assert!(!told("meshwright", "dp=64,zero=2,mbs=8,recompute=selective:a+n"));
    assert!(told("megatron-core-2025", "dp=64,zero=3,mbs=8,recompute=full"));
}

/// ZeRO-3 across nodes with recomputed layers is as many techniques as a pipeline with experts, and recomputes. Where ZeRO-3 is usual it
/// is none. Experts sharded by a degree of their own are one more.
#[test]
fn zero_3_recomputed_layers_and_etp_are_techniques() {
    let estimator = Estimator::new();
    let cluster = estimator.cluster("h100").unwrap();
    let complexity = |parallel: &str, usual_zero: u8| {
        let request = PlanRequest { seq: 4096, ..request("qwen3-30b-a3b", "h100", 32, 512, "") };
        let asked = EstimateRequest { gpus: Some(32), ..request.under(parallel.to_string()) };
        Complexity::of(&estimator.estimate(&asked).unwrap(), &cluster, usual_zero)
    };
    let [plain, sharded] = ["dp=32,zero=1", "dp=32,zero=3"];
    let pipeline = "dp=16,pp=2,ep=8,zero=1,mbs=2";
    assert!(complexity(plain, 1) < complexity(sharded, 1) && complexity(sharded, 3) < complexity(plain, 3));
    assert!(complexity(sharded, 1) < complexity(pipeline, 1));
    assert!(complexity(pipeline, 1) < complexity("dp=32,zero=3,mbs=16,recompute=full", 1));
    // Nodes have eight devices: parameters that are sharded within one are gathered there.
    assert!(complexity("dp=32,zero=3,shard=8", 1) < complexity("dp=32,zero=3,shard=16", 1));
    let experts = |etp| complexity(&format!("dp=8,tp=4,sp=true,ep=2,etp={etp},zero=1"), 1);
    assert!(experts(1) < experts(2) && experts(4) < experts(2));
}

/// Sizes with odd factors are planned only where no others can be.
#[test]
fn odd_sizes_are_the_last_resort() {
    let estimator = Estimator::new();
    let best = |gpus, batch, pin: &str| {
        // Stacks cut a sequence of 512 tokens into powers of two.
        let beyond_stack = pin.starts_with("dp=1");
        let request = PlanRequest { beyond_stack, ..request("llama3-8b", "h100", gpus, batch, pin) };
        let found = find(&estimator, &request, &|_| {}).unwrap();
        found.best[0].parallel.clone()
    };
    assert!(has_usual_sizes(&best(8, 100, "")) && has_usual_sizes(&best(7, 98, "")));
    assert_eq!(best(4, 100, "mbs=25").mbs, 25);
    assert_eq!(best(7, 7, "dp=1,pp=1").cp, 7);
}
