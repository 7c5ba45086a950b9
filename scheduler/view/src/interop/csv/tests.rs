//! CSV export and import, and the inputs that the import rejects.

use super::*;
use scheduler::actions::split_backward;
use scheduler::costs::StageCosts;
use scheduler::schedules::{SCHEDULES, find};

fn made(kind: &str, ranks: u32, microbatches: u32, split: bool) -> Schedule {
    let kind = find(kind).unwrap();
    let pipeline = kind.pipeline(ranks, None, microbatches).unwrap();
    let costs = StageCosts::uniform(pipeline.stages(), 1.0, 1.0, 1.0, 0.0);
    let schedule = kind.make(&costs, &pipeline).unwrap();
    if split { split_backward(schedule) } else { schedule }
}

#[test]
fn what_is_written_is_what_torch_writes() {
    assert_eq!(write_csv(&made("1f1b", 2, 2, false)).unwrap(), "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n");
    assert_eq!(write_csv(&made("gpipe", 1, 1, true)).unwrap(), "0F0,0I0,0W0\n");
    let item = |kind, stage, microbatch| Item::new(kind, stage, microbatch);
    let pair = Action::Pair(item(Kind::F, 0, 3), item(Kind::B, 7, 1));
    let schedule = Schedule { name: "pair".into(), rows: vec![vec![pair]] };
    assert_eq!(write_csv(&schedule).unwrap(), "(0F3;7B1)OVERLAP_F_B\n");
    let sliced = Action::One(Item { slice: Some(1), ..item(Kind::F, 0, 0) });
    let schedule = Schedule { name: "sliced".into(), rows: vec![vec![sliced]] };
    assert_eq!(write_csv(&schedule), Err(ReadError::Sliced));
}

#[test]
fn every_kind_comes_back_as_it_was() {
    for kind in SCHEDULES {
        let Ok(pipeline) = kind.pipeline(4, None, 8) else { continue };
        let costs = StageCosts::uniform(pipeline.stages(), 1.0, 1.0, 1.0, 0.0);
        let Ok(schedule) = kind.make(&costs, &pipeline) else { continue };
        let Ok(text) = write_csv(&schedule) else { continue };
        assert_eq!(read_csv(&text).unwrap().schedule.rows, schedule.rows, "{}", kind.name);
    }
}

#[test]
fn idle_steps_messages_and_care_are_read_past() {
    let text = "0UNSHARD,0F0,0SEND_F0,,,0RECV_B0,0B0,0WAIT_SEND_F0,0REDUCE_GRAD,0RESHARD\r\n,1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD\r\n";
    let foreign = read_csv(text).unwrap();
    assert_eq!(write_csv(&foreign.schedule).unwrap(), "0F0,0B0\n1F0,1B0\n");
    assert_eq!(
        foreign.notes,
        [
            "2 messages have a sender and a receiver each, in the same order at both ends",
            "left out, since they take no time here: 2 REDUCE_GRAD, 1 RESHARD, 1 UNSHARD, 1 WAIT_SEND_F",
        ]
    );
}

#[test]
fn cells_that_are_none_are_named() {
    let wrong = |text: &str| read_csv(text).unwrap_err().to_string();
    let no_action = "is no action: stage, then F, I, W or B, then micro-batch, such as 2F0";
    assert_eq!(wrong("0F0,0B0\n1F0,1G0"), format!("line 2, cell 2: `1G0` {no_action}"));
    for text in ["F0", "0F", "0F0:1", "0F-1", "0F99999999999", "0SEND_X1", "R", "0ö0", "+0F1", "0F+1"] {
        assert_eq!(wrong(text), format!("line 1, cell 1: `{text}` {no_action}"));
    }
    let no_pair = "should be a pair such as (0F3;7B1)OVERLAP_F_B";
    assert_eq!(wrong("0F0,(0F1;0B0)"), format!("line 1, cell 2: `(0F1;0B0)` {no_pair}"));
    assert_eq!(wrong("\n"), "there is no action in it");
    assert_eq!(wrong(",,\n,"), "there is no action in it");
}

#[test]
fn messages_must_fit() {
    let wrong = |text: &str| read_csv(text).unwrap_err().to_string();
    let good = "0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0";
    assert_eq!(read_csv(good).unwrap().notes.len(), 1);
    assert_eq!(wrong(&good.replace(",1SEND_B0", "")), "line 1, cell 3: `0RECV_B0` has no 1SEND_B0");
    assert_eq!(wrong(&good.replace("1RECV_F0,", "")), "line 1, cell 2: `0SEND_F0` has no 1RECV_F0");
    let neither = good.replace("1RECV_F0,", "").replace("0SEND_F0,", "");
    assert_eq!(wrong(&neither), "line 2, cell 1: `1F0` has no 1RECV_F0, which would bring what rank 0 computes");
    let early = good.replace("0F0,0SEND_F0", "0SEND_F0,0F0");
    assert_eq!(wrong(&early), "line 1, cell 1: `0SEND_F0` is sent before it is computed there");
    let late = good.replace("1RECV_F0,1F0", "1F0,1RECV_F0");
    assert_eq!(wrong(&late), "line 2, cell 2: `1RECV_F0` is received after it is used there");
    assert_eq!(wrong(&good.replace("0B0", "0B0,0RECV_B0")), "line 1, cell 5: `0RECV_B0` appears twice");
    let same = "line 1, cell 3: `1RECV_F0` has its 0SEND_F0 on the same rank, where nothing is sent";
    assert_eq!(wrong("0F0,0SEND_F0,1RECV_F0,1F0"), same);
    assert_eq!(wrong("0B0,0SEND_B0"), "line 1, cell 2: `0SEND_B0` has no stage before it");
}

#[test]
fn messages_that_pass_each_other_are_found() {
    let text = "0F0,0SEND_F0,0F1,0SEND_F1\n1RECV_F1,1RECV_F0,1F0,1F1";
    let why = "line 2, cell 1: `1RECV_F1` is received where rank 0 sends what 1RECV_F0 should receive";
    assert_eq!(read_csv(text).unwrap_err().to_string(), why);
}
