//! Explanations of small plans, over configurations that a plain loop tries.

use super::{Find, Planned, annotated_closest, brief, page_of_conflict, plan, why_not};
use crate::error::Error;
use crate::plan::{Basis, Found, Infeasible, PlanReport, PlanRequest, Search, find};
use compiler::deadline::Deadline;
use compiler::parallel::{parse_any, pinned, pins, print};
use estimator::{EstimateReport, Estimator, estimate_all};
use ir::catalogue::Code;
use ir::diag::Coded;
use ir::options::Recompute;

/// All powers of two over dp, tp and pp, ZeRO 0, 1 and 3, with as little recomputation as fits.
fn try_all(estimator: &Estimator, request: &PlanRequest) -> Result<Found, Error> {
    let mut asked = Vec::new();
    let powers = || (0..=request.gpus.ilog2()).map(|power| 1u64 << power);
    for (tp, pp) in powers().flat_map(|tp| powers().map(move |pp| (tp, pp))).filter(|(tp, pp)| tp * pp <= request.gpus)
    {
        for zero in [0, 1, 3] {
            let free =
                format!("dp={},tp={tp},pp={pp},zero={zero},sp={},recompute=auto", request.gpus / tp / pp, tp > 1);
            let free_pins = pins(&free);
            if pins(&request.pin).iter().all(|pin| free_pins.contains(pin)) {
                asked.push(request.under(free));
            }
        }
    }
    let mut all: Vec<EstimateReport> = estimate_all(estimator, &asked, &|_| ()).into_iter().flatten().collect();
    all.sort_by(|a, b| a.predicted.step_time_s.total_cmp(&b.predicted.step_time_s));
    let (best, not): (Vec<_>, Vec<_>) = all.into_iter().partition(|report| report.predicted.keeps_headroom);
    let closest = not.into_iter().min_by(|a, b| a.predicted.memory_gib.total.total_cmp(&b.predicted.memory_gib.total));
    let search = Search { pin: request.pin.clone(), complete: best.is_empty(), ..Search::default() };
    let best = best.into_iter().take(request.top).collect();
    Ok(Found { best, closest, closest_is_least: true, search, ..Found::default() })
}

fn request(model: &str, gpus: u64, global_batch: u64) -> PlanRequest {
    PlanRequest::new(model, "h100", gpus, 4096, global_batch)
}

fn planned(request: &PlanRequest) -> Planned {
    let estimator = Estimator::new();
    plan(&estimator, request, try_all(&estimator, request).unwrap()).unwrap()
}

fn best(request: &PlanRequest) -> PlanReport {
    match planned(request) {
        Planned::Best(best) => *best,
        Planned::Infeasible(answer) => panic!("{answer:?}"),
    }
}

fn infeasible(request: &PlanRequest) -> Infeasible {
    match planned(request) {
        Planned::Infeasible(answer) => *answer,
        Planned::Best(best) => panic!("{best:?}"),
    }
}

#[test]
fn notes_are_what_another_prediction_says() {
    let request = request("llama3-8b", 8, 64);
    let best = best(&request);
    let why = best.why.as_ref().unwrap();
    let estimator = Estimator::new();
    for key in ["tp", "pp", "zero", "mbs"] {
        assert!(why.choices.iter().any(|note| note.choice.split('=').next() == Some(key)), "{key}: {why:?}");
    }
    for note in why.choices.iter().filter(|note| note.saves_s.is_some()) {
        let parallel = pinned(&brief(&best.chosen.parallel), &note.against);
        let other = estimator.estimate(&request.under(parallel)).unwrap().predicted;
        let slower = other.step_time_s - best.chosen.predicted.step_time_s;
        assert!((slower - note.saves_s.unwrap()).abs() < 1e-9, "{note:?}");
        assert_eq!(note.comparison.contains("would not fit"), !other.keeps_headroom, "{note:?}");
        assert_eq!(
            other.keeps_headroom && note.comparison.contains("slower"),
            other.keeps_headroom && slower > 5e-4 * best.chosen.predicted.step_time_s,
            "{note:?}"
        );
    }
}

#[test]
fn runners_up_lost_by_the_part_that_grew() {
    let best = best(&request("llama3-8b", 8, 64));
    assert!(best.alternatives.len() > 2);
    for other in &best.alternatives {
        let difference = other.difference.as_ref().unwrap();
        assert!(difference.slower >= 0.0 && !difference.reason.is_empty(), "{difference:?}");
        let slower = other.predicted.step_time_s / best.chosen.predicted.step_time_s - 1.0;
        assert_eq!(difference.slower, slower);
    }
    let what_ifs = &best.why.as_ref().unwrap().what_if;
    assert!(
        what_ifs.iter().any(|what_if| what_if.condition.contains("fifth"))
            && what_ifs.iter().all(|what_if| what_if.gain >= 0.0),
        "{what_ifs:?}"
    );
}

/// An unfinished search ends in the best configuration that its answer knows. From the start of the first case, the best is two
/// changes away, and was shown as faster than the plan.
#[test]
fn nothing_in_the_answer_of_an_unfinished_search_is_better_than_its_plan() {
    let estimator = Estimator::new();
    for (model, gpus, global_batch, start) in [
        ("llama3-70b", 64, 512, "dp=4,tp=4,pp=4,sp=true,zero=1,recompute=selective:layernorm"),
        ("llama3-8b", 8, 64, "dp=2,pp=4,zero=1,recompute=full"),
    ] {
        let request = PlanRequest { seq: 8192, ..request(model, gpus, global_batch) };
        let start = estimator.estimate(&request.of(&parse_any(start).unwrap())).unwrap();
        let bound = start.predicted.step_time_s / 10.0;
        let found = Found { best: vec![start.clone()], bound: Some((bound, Basis::CostModel)), ..Found::default() };
        let Planned::Best(best) = plan(&estimator, &request, found).unwrap() else { panic!("{model} fits") };
        let step = best.chosen.predicted.step_time_s;
        assert!(step < start.predicted.step_time_s, "{model}");
        let gap = best.search.as_ref().unwrap().gap.unwrap();
        assert!((gap.at_most - (step / bound - 1.0)).abs() < 1e-12 && gap.is_wide(), "{gap:?}");
        assert!(best.to_string().contains("warning   the search was stopped early"), "{best}");
        assert!(best.alternatives.iter().all(|other| other.predicted.step_time_s >= step), "{best}");
        let why = best.why.as_ref().unwrap();
        let whole = print(&best.chosen.parallel);
        let noted = why.choices.iter().filter(|note| note.saves_s.is_some()).map(|note| pinned(&whole, &note.against));
        for parallel in noted.chain(why.what_if.iter().map(|what_if| what_if.parallel.clone())) {
            let other = estimator.estimate(&request.under(parallel.clone())).unwrap().predicted;
            assert!(
                !other.keeps_headroom || other.step_time_s >= step,
                "{parallel}: {} and {step}\n{best}",
                other.step_time_s
            );
        }
        assert!(why.what_if.iter().all(|what_if| what_if.gain >= 0.0 && what_if.step_time_s <= step), "{why:?}");
    }
}

/// A choice that means nothing without another one is compared under the same value of that.
#[test]
fn kinds_of_context_parallelism_are_compared_under_one_degree() {
    let estimator = Estimator::new();
    let request = PlanRequest { seq: 32768, pin: "cp<=4,tp<=4".into(), ..request("llama3-8b", 16, 16) };
    let found = find(&estimator, &request, &|_| {}).unwrap();
    let Planned::Best(best) = plan(&estimator, &request, found).unwrap() else { panic!("it fits") };
    assert!(best.chosen.parallel.cp > 1, "{best}");
    let mut kinds = 0;
    for note in &best.why.as_ref().unwrap().choices {
        let key = note.choice.split('=').next().unwrap();
        let context = match key {
            "cp_kind" => "cp=",
            "sp" | "tp_overlap" => "tp=",
            "vp" | "schedule" | "stages" => "pp=",
            _ => continue,
        };
        assert!(note.against.split(',').all(|item| !item.starts_with(context)), "{note:?}");
        kinds += usize::from(key == "cp_kind");
    }
    assert!(kinds > 0, "{best}");
}

#[test]
fn a_pin_that_is_not_to_blame_is_not_blamed() {
    // 70.6e9 parameters of 16 bytes are more than 8 devices of 79 GiB hold, whatever ZeRO cuts.
    let answer = infeasible(&PlanRequest { pin: "zero=0".into(), ..request("llama3-70b", 8, 64) });
    let conflict: Vec<&str> = answer.conflict.iter().map(|conflict| conflict.constraint.as_str()).collect();
    assert_eq!(conflict, ["--gpus 8", "memory 79.1 GiB"]);
    let ways: Vec<&str> = answer.relaxations.iter().map(|way| way.change.as_str()).collect();
    assert!(ways.contains(&"--gpus 16"), "{ways:?}");
    assert_eq!(answer.status, "infeasible");
}

#[test]
fn a_pin_that_is_to_blame_is_the_first_way_out() {
    let answer = infeasible(&PlanRequest { pin: "tp=1,pp=1,zero=0".into(), ..request("llama3-8b", 8, 64) });
    assert!(answer.conflict.iter().any(|conflict| conflict.constraint.starts_with("--pin")), "{:?}", answer.conflict);
    assert!(answer.relaxations[0].change.starts_with("without --pin"), "{:?}", answer.relaxations);
    // Each of the clash is needed: the way out without it fits.
    for conflict in answer.conflict.iter().filter(|conflict| conflict.constraint.starts_with("--pin")) {
        let without = format!("without {}", conflict.constraint);
        assert!(answer.relaxations.iter().any(|way| way.change == without), "{without}: {:?}", answer.relaxations);
    }
}

#[test]
fn a_way_out_takes_no_more_devices_than_it_must() {
    let pin = "schedule=1f1b,offload=none,mbs=1,cp=1".to_string();
    let asked = |gpus| PlanRequest {
        pin: pin.clone(),
        precision: "fp16".into(),
        ..PlanRequest::new("llama3-8b", "v100", gpus, 2048, 60)
    };
    let answer = infeasible(&asked(2));
    let way = answer.relaxations.iter().find_map(|way| way.change.strip_prefix("--gpus ")).unwrap();
    let enough: u64 = way.parse().unwrap();
    assert!(!enough.is_power_of_two(), "{way}");
    for gpus in 3..=enough {
        let found = find(&Estimator::new(), &asked(gpus), &|_| {}).unwrap();
        assert_eq!(found.best.is_empty(), gpus < enough, "on {gpus}");
    }
}

/// With all else pinned, more memory buys that fewer values are recomputed.
#[test]
fn more_memory_lets_layers_keep_more() {
    let pin = "dp=8,tp=1,pp=1,zero=3".into();
    let best = best(&PlanRequest { pin, seq: 16384, beyond_stack: true, ..request("llama3-8b", 8, 8) });
    assert!(matches!(best.chosen.parallel.recompute, Recompute::Selective(_)), "{:?}", best.chosen.parallel);
    let what_ifs = &best.why.as_ref().unwrap().what_if;
    let more = what_ifs.iter().find(|what_if| what_if.condition.contains("a fifth more")).unwrap();
    assert!(more.gain > 0.0 && more.parallel.len() < brief(&best.chosen.parallel).len(), "{more:?}");
}

#[test]
fn that_nothing_fits_is_drawn_and_annotated() {
    let answer = infeasible(&PlanRequest { pin: "tp=1".into(), ..request("llama3-70b", 8, 64) });
    let closest = answer.closest.as_ref().unwrap();
    let page = page_of_conflict(&Estimator::new(), &answer).unwrap();
    let told = answer
        .conflict
        .iter()
        .map(|conflict| &conflict.constraint)
        .chain(answer.relaxations.iter().map(|way| &way.change));
    for text in told.chain([&brief(&closest.parallel).replace(',', ",<wbr>")]) {
        assert!(page.contains(text.as_str()), "`{text}` is not in\n{page}");
    }
    assert!(page.contains("class=\"limit\"") && !page.contains("{{"), "{page}");
    let text = annotated_closest(&answer).unwrap();
    assert!(text.starts_with("// Nothing fits.") && text.contains("mesh @mesh"), "{text}");
    let unknown = Infeasible { closest: None, ..answer };
    assert!(page_of_conflict(&Estimator::new(), &unknown).is_ok());
    assert_eq!(annotated_closest(&unknown).unwrap_err().code(), Some(Code::NothingFits));
}

#[test]
fn why_not_compares_with_the_best_that_has_it() {
    let estimator = Estimator::new();
    let best = best(&request("llama3-8b", 8, 64));
    let slower = why_not(&estimator, &best, "pp=8", (&try_all, &Deadline::default())).unwrap();
    assert_eq!((slower.verdict, slower.difference.is_some_and(|difference| difference.slower > 0.1)), ("slower", true));
    let grown = slower.predicted.unwrap().step_time_s - best.chosen.predicted.step_time_s;
    assert!((slower.seconds.iter().map(|(_, by)| by).sum::<f64>() - grown).abs() < 1e-9);
    // A plan that was given need not be the best.
    let given = estimator.estimate(&request("llama3-8b", 8, 64).under("dp=1,tp=1,pp=8,recompute=full".into())).unwrap();
    let given = PlanReport { chosen: given, alternatives: Vec::new(), search: None, why: None };
    let faster = why_not(&estimator, &given, "pp=2", (&try_all, &Deadline::default())).unwrap();
    assert_eq!(faster.verdict, "faster");
    assert!(faster.message.contains("% faster") && !faster.text(&given, 100).contains("slower"), "{faster:?}");
    // The nominally fastest configuration is less simple than the plan.
    let request = PlanRequest { seq: 8192, ..request("llama3-8b", 64, 64) };
    let Planned::Best(plan) = plan(&estimator, &request, find(&estimator, &request, &|_| {}).unwrap()).unwrap() else {
        panic!("it fits")
    };
    let fastest = plan.search.as_ref().unwrap().fastest.as_ref().expect("the plan is the simplest");
    let all: &Find<'_> = &|estimator, request| find(estimator, request, &|_| {});
    let tied = why_not(&estimator, &plan, &brief(&fastest.parallel), (all, &Deadline::default())).unwrap();
    assert_eq!(tied.verdict, "faster");
    assert!(tied.message.ends_with("the plan is simpler"), "{tied:?}");
    let own = format!("tp={}", best.chosen.parallel.tp);
    assert_eq!(why_not(&estimator, &best, &own, (&try_all, &Deadline::default())).unwrap().verdict, "same");
    assert_eq!(
        why_not(&estimator, &best, "tp=1,pp=1,zero=0", (&try_all, &Deadline::default())).unwrap().verdict,
        "does not fit"
    );
    assert!(why_not(&estimator, &best, "tp=none", (&try_all, &Deadline::default())).is_err());
}
