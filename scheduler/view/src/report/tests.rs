//! Reports against closed forms, and requests that are rejected.

use super::*;

fn uniform(kind: &str, p: u32, m: u32, [f, i, w, comm]: [f64; 4]) -> ScheduleRequest {
    use scheduler::costs::PerStage::All;
    let costs = CostsFile { f: All(f), i: All(i), w: All(w), comm: All(comm), ..CostsFile::default() };
    ScheduleRequest { kind: kind.into(), stages: p, microbatches: m, costs, ..ScheduleRequest::default() }
}

/// Figures from the orders of the authors' own code: zero-bubble's basic 1F1B and torch's GPipe. The large ones are
/// the profiled times of the zero-bubble papers (arXiv 2401.10241), in microseconds.
#[test]
fn figures_of_published_code() {
    let cases = [
        ("1f1b", 2, 8, [1., 1., 1., 0.], 27., 0.1111),
        ("gpipe", 2, 8, [10., 11., 7., 1.], 254., 0.1181),
        ("1f1b", 2, 8, [10., 11., 7., 1.], 260., 0.1385),
        ("gpipe", 4, 4, [10., 11., 7., 1.], 202., 0.4455),
        ("1f1b", 4, 4, [10., 11., 7., 1.], 206., 0.4563),
        ("1f1b", 4, 8, [10., 11., 7., 0.], 308., 0.2727),
        ("gpipe", 8, 8, [10., 11., 7., 1.], 434., 0.4839),
        ("1f1b", 8, 8, [10., 11., 7., 1.], 446., 0.4978),
        ("gpipe", 8, 24, [10., 11., 7., 1.], 882., 0.2381),
        ("1f1b", 8, 24, [10., 11., 7., 1.], 922., 0.2711),
        ("1f1b", 8, 24, [18522., 18086., 9337., 601.], 1456749., 0.2431),
        ("1f1b", 16, 48, [11347., 11248., 8132., 377.], 1980287., 0.2552),
        ("1f1b", 32, 256, [18894., 19288., 14386., 887.], 15580188., 0.1362),
    ];
    for (kind, p, m, costs, makespan, bubble) in cases {
        let (report, _) = report(&uniform(kind, p, m, costs)).unwrap();
        assert_eq!((report.makespan, report.span), (makespan, makespan), "{kind} p={p} m={m}");
        assert!((report.bubble - bubble).abs() < 5e-5, "{kind} p={p} m={m}: {}", report.bubble);
    }
}

#[test]
fn the_json_has_these_fields() {
    let (report, _) = report(&uniform("gpipe", 2, 1, [1., 1., 1., 0.])).unwrap();
    let json = serde_json::to_string(&ScheduleReport { seconds: 0.5, ..report }).unwrap();
    let golden = concat!(
        r#"{"kind":"gpipe","stages":2,"microbatches":1,"chunks":1,"objective":"makespan","makespan":6.0,"span":6.0,"#,
        r#""bubble":0.5,"bubble_span":0.5,"lower_bound":5.0,"gap":0.16666666666666666,"optimal":false,"engine":"rule","#,
        r#""status":"feasible","unit":"s","deterministic":true,"peak_memory":[1.0,1.0],"#,
        r#""order":[["0F0","0B0"],["1F0","1B0"]],"seconds":0.5}"#
    );
    assert_eq!(json, golden);
}

#[test]
fn a_request_needs_only_what_is_not_default() {
    let json = r#"{"stages":4,"microbatches":8,"backward":"split","objective":"span","costs":{"f":2,"limit":4}}"#;
    let request: ScheduleRequest = serde_json::from_str(json).unwrap();
    let (report, timeline) = report(&request).unwrap();
    assert_eq!((report.kind.as_str(), report.objective), ("1f1b", Objective::Span));
    assert_eq!(report.order[3][..3], ["3F0", "3I0", "3W0"]);
    assert_eq!(report.peak_memory, timeline.peak_memory);
    assert_eq!(report.gap, (report.span - report.lower_bound) / report.span);
    assert!(serde_json::from_str::<ScheduleRequest>(r#"{"stage":4}"#).is_err());
}

#[test]
fn status_tells_optimal_feasible_and_infeasible() {
    let mut request = uniform("1f1b", 4, 8, [1., 1., 1., 0.]);
    let status =
        |request: &ScheduleRequest| report(request).map(|(r, _)| (r.status, r.optimal, r.lower_bound)).unwrap();
    assert_eq!(status(&request), (Status::Feasible, false, 27.0));
    request.backward = Backward::Fused;
    assert_eq!(status(&request), (Status::Optimal, true, 33.0));
    request.costs.limit = Some(scheduler::costs::PerStage::Each(vec![4., 3., 2., 1.]));
    assert_eq!(status(&request), (Status::Optimal, true, 33.0));
    request.costs.limit = Some(scheduler::costs::PerStage::All(3.0));
    assert_eq!(status(&request), (Status::Infeasible, false, 33.0));
}

#[test]
fn groups_and_slices_are_those_of_the_request() {
    let sliced = ScheduleRequest { slices: Some(3), ..uniform("seq1f1b", 4, 8, [1., 1., 1., 0.]) };
    assert_eq!(report(&sliced).unwrap().0.makespan, 81.0);
    assert_eq!(report(&ScheduleRequest { slices: None, ..sliced }).unwrap().0.makespan, 57.0);
    let grouped = |group| ScheduleRequest { group, ..uniform("interleaved-1f1b", 4, 8, [1., 1., 1., 1.]) };
    assert_eq!([None, Some(8)].map(|group| report(&grouped(group)).unwrap().0.makespan), [71.0, 63.0]);
}

#[test]
fn a_limit_that_is_too_small_names_the_least() {
    let mut request = uniform("1f1b", 2, 4, [1., 1., 1., 0.]);
    request.costs.limit = Some(scheduler::costs::PerStage::All(1.0));
    let (of_this_order, _) = report(&request).unwrap();
    assert_eq!(
        of_this_order.over_limit,
        ["rank 0, position 1: 0F1 brings the memory in use to 2, over the limit of 1"]
    );
    assert_eq!(of_this_order.least_limit, Some(vec![1.0, 1.0]));
    request.costs.limit = Some(scheduler::costs::PerStage::Each(vec![2.0, 0.5]));
    let (of_any, _) = report(&request).unwrap();
    assert_eq!((of_any.status, of_any.over_limit.len()), (Status::Infeasible, 2));
    assert_eq!(of_any.over_limit[0], "rank 1: no order holds less than 1 at a time");
    request.costs.limit = None;
    assert_eq!(report(&request).unwrap().0.least_limit, None);
}

#[test]
fn sends_that_wait_may_be_too_much_for_an_order() {
    let mut request = uniform("1f1b", 2, 2, [1., 1., 1., 0.]);
    request.sends = Sends::Batched;
    assert!(report(&request).is_ok());
    request.sends = Sends::Blocking;
    let golden = "\
`1f1b` cannot be run with blocking sends: no rank can go on after 2 actions
rank 0: 0F0 [0F1]  sends 0F1 to rank 1  <- rank 1 is at 1B0
rank 1: 1F0 [1B0]  sends 1B0 to rank 0  <- rank 0 is at 0F1";
    assert_eq!(report(&request).unwrap_err().to_string(), golden);
}

#[test]
fn what_cannot_be_is_said() {
    let good = uniform("1f1b", 4, 8, [1., 1., 1., 0.]);
    let message = |request: ScheduleRequest| report(&request).unwrap_err().to_string();
    let unknown = ScheduleRequest { kind: "2f2b".into(), ..good.clone() };
    assert_eq!(message(unknown), "there is no schedule `2f2b`");
    let none = ScheduleRequest { stages: 0, ..good.clone() };
    assert_eq!(message(none), "`stages` is 0, but must be 1 or more");
    let chunks = ScheduleRequest { chunks: Some(2), ..good.clone() };
    assert_eq!(message(chunks), "`1f1b` cannot be had: it has 1 chunk per rank, not 2");
    let group = ScheduleRequest { group: Some(4), ..good.clone() };
    let has = "it has no groups: interleaved-1f1b, interleaved-zb, grouped-interleaved have them";
    assert_eq!(message(group), format!("`1f1b` cannot be had: {has}"));
    let fused = ScheduleRequest { kind: "zb-h1".into(), backward: Backward::Fused, ..good.clone() };
    assert_eq!(message(fused), "`zb-h1` cannot be had: it splits backwards, which are to be fused");
    let no_slices = ScheduleRequest { slices: Some(0), kind: "seq1f1b".into(), ..good.clone() };
    assert_eq!(message(no_slices), "`slices` is 0, but must be 1 or more");
    let vast = ScheduleRequest { microbatches: u32::MAX, ..good.clone() };
    assert_eq!(message(vast), "4 stages x 4294967295 micro-batches are more than 1048576");
    let costs = CostsFile { f: scheduler::costs::PerStage::Each(vec![1.0]), ..CostsFile::default() };
    assert_eq!(message(ScheduleRequest { costs, ..good }), "`f` lists 1 numbers, but there are 4 stages");
}

/// One of four stages takes 10^9 ms: gpipe and 1f1b differ by 5 ms of 8 x 10^9, more than rounding. No bound is above the
/// better one, and the worse one is not called the best.
#[test]
fn a_small_difference_is_one() {
    use scheduler::costs::PerStage::{All, Each};
    let costs = CostsFile {
        f: Each(vec![1.0, 1e9, 1.0, 1.0]),
        i: Each(vec![1.0, 1.0, 1.2, 1.0]),
        w: Each(vec![0.8, 1.0, 1.0, 0.5]),
        comm: All(0.1),
        ..CostsFile::default()
    };
    let report_of = |kind: &str| {
        let request = ScheduleRequest { costs: costs.clone(), ..uniform(kind, 4, 8, [1.; 4]) };
        report(&request).unwrap().0
    };
    let (gpipe, other) = (report_of("gpipe"), report_of("1f1b"));
    assert!(other.makespan < gpipe.makespan - 1.0, "{} {}", other.makespan, gpipe.makespan);
    assert!(!gpipe.optimal && gpipe.status == Status::Feasible && gpipe.gap > 0.0);
    assert!(gpipe.lower_bound <= other.makespan, "{} {}", gpipe.lower_bound, other.makespan);
}

/// Twenty thousand stages are no harder than many micro-batches: nothing looks at each pair of ranks.
#[test]
fn a_long_pipeline_is_told() {
    let (long, _) = report(&uniform("1f1b", 20_000, 2, [1., 1., 1., 0.])).unwrap();
    assert_eq!((long.makespan, long.lower_bound <= long.makespan), (60_003.0, true));
    let one = ScheduleRequest { backward: Backward::Fused, ..uniform("gpipe", 20_000, 1, [1., 1., 1., 0.5]) };
    assert_eq!(report(&one).unwrap().0.status, Status::Optimal);
}

/// At the deadline a search has what it began with.
#[test]
fn a_search_ends_at_its_deadline() {
    let asked = |kind: &str| ScheduleRequest { deadline: Some(0.0), ..uniform(kind, 8, 24, [1., 1.2, 0.9, 0.1]) };
    let (searched, _) = report(&asked("v-auto")).unwrap();
    let (greedy, _) = report(&asked("zb-v-greedy")).unwrap();
    assert_eq!((&searched.order, searched.deterministic), (&greedy.order, false));
    assert!(greedy.deterministic && report(&asked("optimal")).unwrap().0.status != Status::Infeasible);
}
