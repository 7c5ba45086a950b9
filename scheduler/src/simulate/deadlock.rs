//! A deadlock of a schedule, shown in the schedule's rows.

use ir::schedule::{Action, Item};
use std::fmt;

/// State of every rank in a deadlock.
#[derive(Clone, Debug, PartialEq)]
pub struct Deadlock {
    /// State of each rank.
    pub ranks: Vec<StalledRank>,
}

/// State of one rank in a deadlock.
#[derive(Clone, Debug, PartialEq)]
pub struct StalledRank {
    /// Actions that the rank has run.
    pub done: Vec<Action>,
    /// The wait of the rank; `None` if its row is finished.
    pub blocked: Option<Blocked>,
}

/// The wait of a rank.
#[derive(Clone, Debug, PartialEq)]
pub struct Blocked {
    /// Action that cannot start, or whose result cannot be sent.
    pub at: Action,
    /// The result or receipt that the rank waits for.
    pub on: WaitsFor,
    /// Rank that this rank waits for, and that rank's next action; `None` if there is none.
    pub other: Option<(usize, Action)>,
}

/// Cause of a wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WaitsFor {
    /// Result of an item.
    Result(Item),
    /// Receipt of an item's result by another rank.
    Receipt(Item),
}

impl std::error::Error for Deadlock {}

/// Number of finished actions shown per row.
const SHOWN: usize = 6;

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done: usize = self.ranks.iter().map(|stand| stand.done.len()).sum();
        write!(f, "no rank can go on after {done} actions")?;
        let rows: Vec<String> = self.ranks.iter().map(StalledRank::row).collect();
        let waits: Vec<String> = self.ranks.iter().map(StalledRank::wait).collect();
        let rank_width = (rows.len().max(1) - 1).to_string().len();
        let (row_width, wait_width) = (widest(&rows), widest(&waits));
        for (rank, stand) in self.ranks.iter().enumerate() {
            let line = format!(
                "rank {rank:rank_width$}: {:row_width$}  {:wait_width$}  {}",
                rows[rank],
                waits[rank],
                stand.since(rank)
            );
            write!(f, "\n{}", line.trim_end())?;
        }
        Ok(())
    }
}

fn widest(texts: &[String]) -> usize {
    texts.iter().map(String::len).max().unwrap_or(0)
}

impl StalledRank {
    fn row(&self) -> String {
        let hidden = self.done.len().saturating_sub(SHOWN);
        let mut words: Vec<String> = self.done[hidden..].iter().map(Action::to_string).collect();
        if hidden > 0 {
            words.insert(0, "..".into());
        }
        words.extend(self.blocked.iter().map(|blocked| format!("[{}]", blocked.at)));
        words.join(" ")
    }

    /// Describes the cause of the wait.
    pub fn wait(&self) -> String {
        match &self.blocked {
            None => "done".into(),
            Some(Blocked { on: WaitsFor::Receipt(item), other, .. }) => {
                let rank = other.map_or_else(String::new, |(rank, _)| format!(" to rank {rank}"));
                format!("sends {item}{rank}")
            }
            Some(Blocked { on: WaitsFor::Result(item), other: Some((rank, _)), .. }) => {
                format!("waits for {item} of rank {rank}")
            }
            Some(Blocked { on: WaitsFor::Result(item), other: None, .. }) => {
                format!("waits for {item}, which is in no row")
            }
        }
    }

    fn since(&self, own: usize) -> String {
        match self.blocked.as_ref().and_then(|blocked| blocked.other) {
            Some((rank, _)) if rank == own => "<- it is later in this row, or in the same pair".into(),
            Some((rank, at)) => format!("<- rank {rank} is at {at}"),
            None => String::new(),
        }
    }
}
