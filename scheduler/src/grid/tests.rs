//! Grids as text.

use super::*;
use crate::costs::StageCosts;
use crate::schedules::{find, split_backward};
use crate::simulate::simulate;

fn timeline(kind: &str, costs: &StageCosts, m: u32, split: bool) -> Timeline {
    let kind = find(kind).unwrap();
    let schedule = kind.make(costs, &kind.pipeline(costs.stages(), None, m).unwrap()).unwrap();
    simulate(&if split { split_backward(schedule) } else { schedule }, costs).unwrap()
}

#[test]
fn draws_1f1b() {
    let costs = StageCosts::uniform(3, 1.0, 1.0, 1.0, 0.0);
    let golden = "\
rank 0  F0 F1 F2 ........... B0--- F3 B1--- .. B2--- .. B3---
rank 1  .. F0 F1 ..... B0--- F2 B1--- F3 B2--- .. B3--- .....
rank 2  ..... F0 B0--- F1 B1--- F2 B2--- F3 B3--- ...........
";
    assert_eq!(grid(&timeline("1f1b", &costs, 4, false), 120, false), golden);
}

#[test]
fn draws_gpipe() {
    let costs = StageCosts::uniform(3, 1.0, 1.0, 1.0, 0.0);
    let golden = "\
rank 0  F0 F1 F2 F3 ................. B0--- B1--- B2--- B3---
rank 1  .. F0 F1 F2 F3 ........ B0--- B1--- B2--- B3--- .....
rank 2  ..... F0 F1 F2 F3 B0--- B1--- B2--- B3--- ...........
";
    assert_eq!(grid(&timeline("gpipe", &costs, 4, false), 120, false), golden);
}

#[test]
fn folds_what_is_too_wide() {
    let costs = StageCosts::uniform(2, 1.0, 1.0, 1.0, 0.0);
    let golden = "\
time 0 to 7
rank 0  F0 F1 F2 F3 ..... I0
rank 1  .. F0 F1 F2 F3 I0 W0

time 7 to 14
rank 0  W0 I1 W1 I2 W2 I3 W3
rank 1  I1 W1 I2 W2 I3 W3 ..
";
    assert_eq!(grid(&timeline("gpipe", &costs, 4, true), 30, false), golden);
}

#[test]
fn stays_readable_at_64_microbatches() {
    let costs = StageCosts::uniform(4, 1.0, 1.0, 1.0, 0.0);
    let text = grid(&timeline("1f1b", &costs, 64, false), 100, false);
    assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    for m in 0..64 {
        for label in [format!("F{m}"), format!("B{m}-")] {
            assert_eq!(text.split([' ', '.']).filter(|word| word.starts_with(&label)).count() % 4, 0, "{label}");
            assert!(text.contains(&label));
        }
    }
}

#[test]
fn colours_wrap_whole_actions() {
    let costs = StageCosts::uniform(1, 1.0, 1.0, 1.0, 0.0);
    let coloured = grid(&timeline("1f1b", &costs, 1, true), 80, true);
    assert_eq!(coloured, "rank 0  \x1b[34mF0\x1b[0m \x1b[36mI0\x1b[0m \x1b[32mW0\x1b[0m\n");
}

#[test]
fn odd_costs_do_not_break_it() {
    let tiny = StageCosts::uniform(2, 1e-6, 1.0, 0.0, 0.0);
    assert!(grid(&timeline("1f1b", &tiny, 3, true), 60, false).len() < 1000);
    let nothing = StageCosts::uniform(2, 0.0, 0.0, 0.0, 0.0);
    assert_eq!(grid(&timeline("1f1b", &nothing, 3, false), 60, false), "");
    let narrow = grid(&timeline("1f1b", &StageCosts::uniform(2, 1.0, 1.0, 1.0, 0.0), 3, false), 0, false);
    assert!(narrow.contains("F2"), "{narrow}");
}
