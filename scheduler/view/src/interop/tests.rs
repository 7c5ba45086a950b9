//! Imported schedules: their times, their inferred placement, and the positions that rejections name.

use super::*;
use crate::report::{ScheduleRequest, report};

fn timed(csv: &str) -> Result<(ScheduleReport, Timeline), ImportError> {
    report_imported(&read_csv(csv).unwrap().schedule, &CostsFile::default(), Objective::Makespan)
}

fn refused(csv: &str) -> String {
    timed(csv).unwrap_err().to_string()
}

#[test]
fn a_schedule_of_ours_comes_back_with_its_figures() {
    for kind in ["gpipe", "1f1b"] {
        let request = ScheduleRequest { kind: kind.into(), stages: 4, microbatches: 8, ..ScheduleRequest::default() };
        let (ours, timeline) = report(&request).unwrap();
        let rows = timeline.rows.iter().map(|row| row.iter().map(|slot| slot.action).collect()).collect();
        let csv = write_csv(&Schedule { name: kind.into(), rows }).unwrap();
        let (theirs, again) = timed(&csv).unwrap();
        assert_eq!(again, timeline);
        let same =
            ScheduleReport { kind: "foreign".into(), engine: "file".into(), seconds: theirs.seconds, ..ours.clone() };
        assert_eq!(theirs, same);
        let json = serde_json::to_string(&ours).unwrap();
        let from_json = read_report(&json).unwrap().schedule;
        assert_eq!(report_imported(&from_json, &CostsFile::default(), Objective::Makespan).unwrap().1, timeline);
    }
}

#[test]
fn placements_are_read_off_the_rows() {
    let told = |csv: &str| {
        let laid = InferredPlacement::of(&read_csv(csv).unwrap().schedule).unwrap();
        (laid.pipeline().map(|pipeline| pipeline.placement.to_string()), laid.chunks())
    };
    assert_eq!(told("0F0,0B0\n1F0,1B0"), (Some("chain".into()), 1));
    assert_eq!(told("0F0,2F0,2B0,0B0\n1F0,3F0,3B0,1B0"), (Some("loop".into()), 2));
    assert_eq!(told("0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0"), (Some("v".into()), 2));
    assert_eq!(told("0F0,1F1,1B1,0B0\n1F0,0F1,0B1,1B0"), (Some("bidirectional".into()), 2));
    assert_eq!(told("0F0,1F0,1B0,0B0\n2F0,2B0"), (None, 2));
    // Without a name the bound is the load of a rank.
    let (report, _) = timed("0F0,1F0,1B0,0B0\n2F0,2B0").unwrap();
    assert_eq!((report.makespan, report.lower_bound, report.chunks), (9.0, 6.0, 2));
}

#[test]
fn a_missing_action_is_refused_where_it_is_waited_for() {
    let text = refused("0F0,0F1,0B0,0B1\n1F0,1B0,1F1");
    let golden = "\
rank 1: neither 1B1 nor 1I1 runs

rank 0  F0 F1 ..... B0--- <-- 0B1 waits for 1I1, which is in no row
rank 1  .. F0 B0--- F1 <-- neither 1B1 nor 1I1 runs
";
    assert_eq!(text, golden);
}

#[test]
fn a_doubled_action_is_refused_where_it_stands() {
    let text = refused("0F0,0F1,0F0,0B0,0B1\n1F0,1B0,1F1,1B1");
    let golden = "\
rank 0, position 2: 0F0 ran already on rank 0, position 0

rank 0  F0 F1 <-- 0F0 ran already on rank 0, position 0
rank 1  .. F0 B0--- F1 B1---
";
    assert_eq!(text, golden);
}

#[test]
fn a_deadlock_is_refused_where_each_rank_stands() {
    let text = refused("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1");
    let golden = "\
rank 0, position 1: deadlock: 0B0 waits for 1B0 of rank 1, which is at 1F1
  rank 1, position 1: deadlock: 1F1 waits for 0F1 of rank 0, which is at 0B0

rank 0  F0 <-- 0B0 waits for 1B0 of rank 1
rank 1  .. F0 <-- 1F1 waits for 0F1 of rank 0
";
    assert_eq!(text, golden);
    let text = refused("0B0,0F0");
    assert!(text.ends_with("\nrank 0  <-- 0B0 waits for 0F0 of rank 0\n"), "{text}");
}

#[test]
fn a_stage_on_two_ranks_and_numbers_out_of_range_are_refused() {
    let text = refused("0F0,0B0\n1F0,1B0,0F1,0B1,1F1,1B1");
    assert!(text.starts_with("rank 1, position 2: 0F1 runs here, but its stage is on rank 0"), "{text}");
    let text = refused("0F0,0B0,0F4000000000");
    assert!(text.starts_with("it names stages up to 0, micro-batches up to 4000000000 and"), "{text}");
}

#[test]
fn the_memory_limit_is_no_reason_to_refuse() {
    let costs = CostsFile { limit: Some(scheduler::costs::PerStage::All(1.0)), ..CostsFile::default() };
    let schedule = read_csv("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1").unwrap().schedule;
    let (report, _) = report_imported(&schedule, &costs, Objective::Span).unwrap();
    assert_eq!((report.status, report.over_limit.len()), (Status::Infeasible, 1));
}

#[test]
fn reports_that_are_none_are_refused() {
    let wrong = |text: &str| read_report(text).unwrap_err().to_string();
    assert!(wrong("{}").starts_with("missing field `kind`"));
    assert_eq!(wrong(r#"{"kind":"x","order":[[]]}"#), "there is no action in it");
    assert_eq!(
        wrong(r#"{"kind":"x","order":[["0F0","0Q0"]]}"#),
        "order[0][1]: `0Q0` is no action such as 2F0 or (0F3|7B1)"
    );
    let sliced = read_report(r#"{"kind":"x","order":[["0F0:0","0F0:1","(0F1:0|0B0:1)"]]}"#).unwrap();
    assert_eq!(sliced.schedule.rows[0][1].to_string(), "0F0:1");
    assert_eq!(sliced.schedule.rows[0][2].to_string(), "(0F1:0|0B0:1)");
}
