//! Schedules with one defect each, and the violations that the checker reports.

use super::*;
use crate::actions::with_step_end;
use crate::placement::Placement;
use crate::schedules::find;

fn costs() -> StageCosts {
    StageCosts::uniform(2, 1.0, 1.0, 1.0, 0.0)
}

/// 1F1B on 2 ranks, 3 micro-batches: `F0 F1 B0 F2 B1 B2 R N U` and `F0 B0 F1 B1 F2 B2 R N U`.
fn good() -> Schedule {
    let kind = find("1f1b").unwrap();
    kind.make(&costs(), &kind.pipeline(2, None, 3).unwrap()).unwrap()
}

fn violations(schedule: &Schedule, costs: &StageCosts) -> Vec<(Invariant, String)> {
    check(schedule, costs, 3, |stage, _| stage).into_iter().map(|v| (v.invariant, v.to_string())).collect()
}

fn invariants(change: impl Fn(&mut Vec<Vec<Action>>)) -> Vec<(Invariant, String)> {
    let mut schedule = good();
    change(&mut schedule.rows);
    violations(&schedule, &costs())
}

fn says(invariant: Invariant, text: &str) -> (Invariant, String) {
    (invariant, text.into())
}

#[test]
fn a_good_schedule_has_none() {
    assert_eq!(invariants(|_| ()), []);
}

#[test]
fn swapped_microbatches_that_deadlock() {
    let harmless = invariants(|rows| {
        rows[1].swap(2, 4);
        rows[1].swap(3, 5); // rank 1: F0 B0 F2 B2 F1 B1
    });
    assert_eq!(harmless, []);
    let found = invariants(|rows| rows[1].swap(1, 4)); // rank 1: F0 F2 F1 B1 B0 B2
    let expected = [
        says(Invariant::Order, "rank 0, position 2: deadlock: 0B0 waits for 1B0 of rank 1, which is at 1F2"),
        says(Invariant::Order, "rank 1, position 1: deadlock: 1F2 waits for 0F2 of rank 0, which is at 0B0"),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_weight_gradient_before_its_input_gradient() {
    let found = invariants(|rows| {
        let item = |kind| Action::One(Item::new(kind, 1, 0));
        rows[1].splice(1..2, [item(Kind::W), item(Kind::I)]);
    });
    let text = "rank 1, position 1: deadlock: 1W0 waits for 1I0 at position 2 of the same row";
    assert_eq!(found, [says(Invariant::Order, text)]);
}

#[test]
fn a_pair_that_needs_itself() {
    let found = invariants(|rows| {
        rows[1].splice(0..2, [Action::Pair(Item::new(Kind::F, 1, 0), Item::new(Kind::B, 1, 0))]);
    });
    let text = "rank 1, position 0: deadlock: (1F0|1B0) waits for 1F0 at position 0 of the same row";
    assert_eq!(found, [says(Invariant::Order, text)]);
}

#[test]
fn a_missing_action() {
    assert_eq!(
        invariants(|rows| {
            rows[0].remove(1);
        }),
        [says(Invariant::Missing, "rank 0: 0F1 does not run")]
    );
    assert_eq!(
        invariants(|rows| {
            rows[1].remove(5);
        }),
        [says(Invariant::Missing, "rank 1: neither 1B2 nor 1I2 runs")]
    );
    let found = invariants(|rows| rows[0][5] = Action::One(Item::new(Kind::I, 0, 2)));
    assert_eq!(found, [says(Invariant::Missing, "rank 0: 0I2 runs, but 0W2 does not")]);
}

#[test]
fn a_duplicate() {
    let found = invariants(|rows| rows[0].insert(2, Action::One(Item::new(Kind::F, 0, 1))));
    assert_eq!(found, [says(Invariant::Duplicate, "rank 0, position 2: 0F1 ran already on rank 0, position 1")]);
    let found = invariants(|rows| rows[0].insert(6, Action::One(Item::new(Kind::W, 0, 2))));
    assert_eq!(found, [says(Invariant::Duplicate, "rank 0, position 6: 0W2 is part of 0B2, which runs too")]);
}

#[test]
fn a_wrong_rank_and_a_wrong_index() {
    let found = invariants(|rows| {
        let action = rows[0].remove(5);
        rows[1].insert(6, action);
        rows[0][1] = Action::One(Item::new(Kind::F, 0, 7));
    });
    let expected = [
        says(Invariant::Range, "rank 0, position 1: 0F7 is none of 2 stages x 3 micro-batches"),
        says(Invariant::Missing, "rank 0: 0F1 does not run"),
        says(Invariant::Rank, "rank 1, position 6: 0B2 runs here, but its stage is on rank 0"),
    ];
    assert_eq!(found, expected);
}

#[test]
fn too_much_memory() {
    let mut costs = costs();
    costs.limit = Some(vec![1.5, 1.0]);
    let text = "rank 0, position 1: 0F1 brings the memory in use to 2, over the limit of 1.5";
    assert_eq!(violations(&good(), &costs), [says(Invariant::Memory, text)]);
    costs.limit = Some(vec![2.0, 1.0]);
    assert_eq!(violations(&good(), &costs), []);
}

#[test]
fn the_end_of_a_row() {
    let found = invariants(|rows| {
        rows[0].pop();
    });
    let expected = [
        says(Invariant::StepEnd, "rank 0: the row does not end R N U"),
        says(Invariant::StepEnd, "rank 0, position 6: R precedes the end of the row"),
        says(Invariant::StepEnd, "rank 0, position 7: N precedes the end of the row"),
    ];
    assert_eq!(found, expected);
    let found = invariants(|rows| rows[1].insert(0, Action::One(Item::step(Kind::N))));
    assert_eq!(found, [says(Invariant::StepEnd, "rank 1, position 0: N precedes the end of the row")]);
}

#[test]
fn all_is_reported_at_once() {
    let found = invariants(|rows| {
        rows[0].remove(1);
        rows[1].insert(2, Action::One(Item::new(Kind::F, 1, 0)));
    });
    assert_eq!(
        found.iter().map(|(invariant, _)| *invariant).collect::<Vec<_>>(),
        [Invariant::Missing, Invariant::Duplicate]
    );
}

/// Checks a schedule of a pipeline, given as one line of actions per rank.
fn of_pipeline(pipeline: Pipeline, limit: Option<f64>, lines: &[&str]) -> Vec<(Invariant, String)> {
    let mut costs = StageCosts::uniform(pipeline.stages(), 1.0, 1.0, 1.0, 0.0);
    costs.limit = limit.map(|limit| vec![limit; pipeline.ranks as usize]);
    let rows = lines.iter().map(|line| with_step_end(line.split_whitespace().map(action))).collect();
    let schedule = Schedule { name: "test".into(), rows };
    check_pipeline(&schedule, &costs, &pipeline).into_iter().map(|v| (v.invariant, v.to_string())).collect()
}

fn action(text: &str) -> Action {
    let item = |text: &str| {
        let (head, slice) = text.split_once(':').map_or((text, None), |(head, slice)| (head, slice.parse().ok()));
        let at = head.find(char::is_alphabetic).unwrap();
        let kind = Kind::from_letter(head[at..].chars().next().unwrap()).unwrap();
        Item { kind, stage: head[..at].parse().ok(), microbatch: head[at + 1..].parse().ok(), slice }
    };
    match text.trim_matches(['(', ')']).split_once('|') {
        Some((a, b)) => Action::Pair(item(a), item(b)),
        None => Action::One(item(text)),
    }
}

#[test]
fn a_loop() {
    let pipeline = Pipeline::new(Placement::Loop, 2, 1);
    assert_eq!(of_pipeline(pipeline, None, &["0F0 2F0 2B0 0B0", "1F0 3F0 3B0 1B0"]), []);
    let as_a_v = of_pipeline(pipeline, None, &["0F0 3F0 3B0 0B0", "1F0 2F0 2B0 1B0"]);
    let expected = [
        says(Invariant::Rank, "rank 1, position 1: 2F0 runs here, but its stage is on rank 0"),
        says(Invariant::Rank, "rank 1, position 2: 2B0 runs here, but its stage is on rank 0"),
        says(Invariant::Rank, "rank 0, position 1: 3F0 runs here, but its stage is on rank 1"),
        says(Invariant::Rank, "rank 0, position 2: 3B0 runs here, but its stage is on rank 1"),
    ];
    assert_eq!(as_a_v, expected);
    let found = of_pipeline(pipeline, None, &["2F0 0F0 2B0 0B0", "1F0 3F0 3B0 1B0"]);
    let expected = [
        says(Invariant::Order, "rank 0, position 0: deadlock: 2F0 waits for 1F0 of rank 1, which is at 1F0"),
        says(Invariant::Order, "rank 1, position 0: deadlock: 1F0 waits for 0F0 of rank 0, which is at 2F0"),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_v() {
    let pipeline = Pipeline::new(Placement::V, 2, 1);
    assert_eq!(of_pipeline(pipeline, Some(2.0), &["0F0 3F0 3B0 0B0", "1F0 2F0 2I0 1B0 2W0"]), []);
    let found = of_pipeline(pipeline, Some(1.0), &["0F0 3F0 3B0 0B0", "1F0 2F0 2I0 1B0 2W0"]);
    let expected = [
        says(Invariant::Memory, "rank 0, position 1: 3F0 brings the memory in use to 2, over the limit of 1"),
        says(Invariant::Memory, "rank 1, position 1: 2F0 brings the memory in use to 2, over the limit of 1"),
    ];
    assert_eq!(found, expected);
    let found = of_pipeline(pipeline, None, &["0F0 3F0 0B0 3B0", "1F0 2F0 2B0 1B0"]);
    assert_eq!(found.iter().map(|(invariant, _)| *invariant).collect::<Vec<_>>(), [Invariant::Order, Invariant::Order]);
    assert_eq!(found[0].1, "rank 0, position 2: deadlock: 0B0 waits for 1B0 of rank 1, which is at 2B0");
}

#[test]
fn two_chains() {
    let pipeline = Pipeline::new(Placement::Bidirectional, 2, 2);
    let good = ["0F0 1F1 1B1 0B0", "0F1 1F0 1B0 0B1"];
    assert_eq!(of_pipeline(pipeline, Some(2.0), &good), []);
    let found = of_pipeline(pipeline, None, &["0F0 1F0 1B0 0B0", "0F1 1F1 1B1 0B1"]);
    assert_eq!(found.iter().map(|(invariant, _)| *invariant).collect::<Vec<_>>(), [Invariant::Rank; 4]);
    assert_eq!(found[0].1, "rank 0, position 1: 1F0 runs here, but its stage is on rank 1");
    let both = "rank 0, position 1: 1F1 brings the memory in use to 2, over the limit of 1.5";
    assert_eq!(of_pipeline(pipeline, Some(1.5), &good)[0], says(Invariant::Memory, both));
}

#[test]
fn slices() {
    let pipeline = Pipeline { slices: 2, ..Pipeline::new(Placement::Chain, 1, 1) };
    assert_eq!(of_pipeline(pipeline, Some(2.0), &["0F0:0 0F0:1 0B0:1 0B0:0"]), []);
    let missing = [
        says(Invariant::Missing, "rank 0: 0F0:1 does not run"),
        says(Invariant::Missing, "rank 0: neither 0B0:1 nor 0I0:1 runs"),
    ];
    assert_eq!(of_pipeline(pipeline, None, &["0F0:0 0B0:0"]), missing);
    let whole = of_pipeline(pipeline, None, &["0F0 0B0"]);
    assert_eq!(
        whole[0],
        says(Invariant::Range, "rank 0, position 0: 0F0 is none of 1 stages x 1 micro-batches of 2 slices")
    );
    let ascending = "rank 0, position 2: deadlock: 0B0:0 waits for 0B0:1 at position 3 of the same row";
    assert_eq!(of_pipeline(pipeline, None, &["0F0:0 0F0:1 0B0:0 0B0:1"]), [says(Invariant::Order, ascending)]);
    let early = "rank 0, position 0: deadlock: 0F0:1 waits for 0F0:0 at position 1 of the same row";
    assert_eq!(of_pipeline(pipeline, None, &["0F0:1 0F0:0 0B0:1 0B0:0"]), [says(Invariant::Order, early)]);
    let unsliced = Pipeline { slices: 1, ..pipeline };
    let found = of_pipeline(unsliced, None, &["0F0:0 0F0:1 0B0:1 0B0:0"]);
    assert_eq!(found[0].1, "rank 0, position 1: 0F0:1 is none of 1 stages x 1 micro-batches of 1 slices");
}

#[test]
fn overlapped_pairs() {
    let pipeline = Pipeline::new(Placement::Chain, 1, 2);
    assert_eq!(of_pipeline(pipeline, Some(2.0), &["0F0 (0F1|0B0) 0B1"]), []);
    let both = "rank 0, position 1: (0F1|0B0) brings the memory in use to 2, over the limit of 1";
    assert_eq!(of_pipeline(pipeline, Some(1.0), &["0F0 (0F1|0B0) 0B1"]), [says(Invariant::Memory, both)]);
    let twice = "rank 0, position 2: 0B0 ran already on rank 0, position 1";
    let found = of_pipeline(pipeline, None, &["0F0 (0F1|0B0) 0B0"]);
    assert_eq!(
        found,
        [says(Invariant::Duplicate, twice), says(Invariant::Missing, "rank 0: neither 0B1 nor 0I1 runs")]
    );
    // Each of two pairs needs a half of the other pair.
    let two = Pipeline::new(Placement::Chain, 2, 2);
    let found = of_pipeline(two, None, &["0F0 (0F1|0B0) 0B1", "1F0 (1F1|1B0) 1B1"]);
    let expected = [
        says(
            Invariant::Order,
            "rank 0, position 1: deadlock: (0F1|0B0) waits for 1B0 of rank 1, which is at (1F1|1B0)",
        ),
        says(
            Invariant::Order,
            "rank 1, position 1: deadlock: (1F1|1B0) waits for 0F1 of rank 0, which is at (0F1|0B0)",
        ),
    ];
    assert_eq!(found, expected);
}
