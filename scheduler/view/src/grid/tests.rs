//! Grids as text.

use super::*;
use crate::interop::{read_csv, report_imported};
use scheduler::actions::split_backward;
use scheduler::costs::StageCosts;
use scheduler::problem::Objective;
use scheduler::schedules::find;
use scheduler::simulate::simulate;

fn timeline(kind: &str, costs: &StageCosts, m: u32, split: bool) -> Timeline {
    let kind = find(kind).unwrap();
    let schedule = kind.make(costs, &kind.pipeline(costs.stages(), None, m).unwrap()).unwrap();
    simulate(&if split { split_backward(schedule) } else { schedule }, costs).unwrap()
}

#[test]
fn draws_1f1b() {
    let costs = StageCosts::uniform(3, 1.0, 1.0, 1.0, 0.0);
    let golden = "\
rank 0  F0=F1 F2 ........... B0--- F3 B1--- .. B2--- .. B3====
rank 1  .. F0=F1 ..... B0--- F2 B1--- F3 B2--- .. B3====.....
rank 2  ..... F0=B0====F1=B1====F2=B2====F3=B3====...........
time    0              5              10             15
        = critical path   . waits for another rank
";
    assert_eq!(grid(&timeline("1f1b", &costs, 4, false), 120, false), golden);
}

#[test]
fn idle_time_says_why() {
    let costs = StageCosts { limit: Some(vec![2.0; 2]), ..StageCosts::uniform(2, 1.0, 1.0, 1.0, 1.0) };
    let golden = "\
rank 0  F0=F1 ########### B0====F2=B1--- ......~~ B2====
rank 1  ...~~ F0=B0====F1 B1--- ...~~ F2=B2====........
time    0              5              10             15
        = critical path   . waits for another rank   ~ in flight   # blocked by the memory limit
";
    assert_eq!(grid(&timeline("1f1b", &costs, 3, false), 120, false), golden);
}

#[test]
fn folds_what_is_too_wide() {
    let costs = StageCosts::uniform(2, 1.0, 1.0, 1.0, 0.0);
    let golden = "\
rank 0  F0=F1 F2 F3 ..... I0=
rank 1  .. F0=F1=F2=F3=I0=W0
time    0              5

rank 0  W0=I1=W1=I2=W2=I3=W3=
rank 1  I1 W1 I2 W2 I3 W3 ..
time             10
        = critical path   . waits for another rank
";
    assert_eq!(grid(&timeline("gpipe", &costs, 4, true), 30, false), golden);
}

#[test]
fn stays_readable_at_64_microbatches_on_16_ranks() {
    let costs = StageCosts::uniform(16, 1.0, 1.0, 1.0, 0.0);
    let text = grid(&timeline("1f1b", &costs, 64, false), 100, false);
    assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    let words: Vec<&str> = text.split([' ', '.', '-', '=', '\n']).collect();
    for m in 0..64 {
        for label in [format!("F{m}"), format!("B{m}")] {
            assert_eq!(words.iter().filter(|word| **word == label).count(), 16, "{label}");
        }
    }
}

#[test]
fn pairs_are_drawn_at_their_own_length() {
    let schedule =
        read_csv("0F0,1F0,(0F1;1B0)OVERLAP_F_B,1F1,(0F2;0B0)OVERLAP_F_B,1B1,0B1,1F2,1B2,0B2").unwrap().schedule;
    let (_, timeline) =
        report_imported(&schedule, &scheduler::costs::CostsFile::default(), Objective::Makespan).unwrap();
    let text = grid(&timeline, 200, false);
    assert!(text.starts_with("rank 0  0F0=1F0=(0F1|1B0)===1F1="), "{text}");
}

#[test]
fn colours_wrap_whole_actions_and_the_critical_path_is_bold() {
    let costs = StageCosts::uniform(1, 1.0, 1.0, 1.0, 0.0);
    let coloured = grid(&timeline("1f1b", &costs, 1, true), 80, true);
    assert!(
        coloured.starts_with("rank 0  \x1b[1;34mF0=\x1b[0m\x1b[1;36mI0=\x1b[0m\x1b[1;32mW0=\x1b[0m\n"),
        "{coloured:?}"
    );
    let two = StageCosts::uniform(2, 1.0, 1.0, 1.0, 0.0);
    assert!(grid(&timeline("1f1b", &two, 3, false), 80, true).contains("\x1b[34mF1\x1b[0m"));
}

#[test]
fn odd_costs_do_not_break_it() {
    let tiny = StageCosts::uniform(2, 1e-6, 1.0, 0.0, 0.0);
    assert!(grid(&timeline("1f1b", &tiny, 3, true), 60, false).len() < 1500);
    let nothing = StageCosts::uniform(2, 0.0, 0.0, 0.0, 0.0);
    assert_eq!(grid(&timeline("1f1b", &nothing, 3, false), 60, false), "");
    let narrow = grid(&timeline("1f1b", &StageCosts::uniform(2, 1.0, 1.0, 1.0, 0.0), 3, false), 0, false);
    assert!(narrow.contains("F2"), "{narrow}");
}
