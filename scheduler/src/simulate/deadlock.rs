//! A deadlocked schedule, shown in its own rows.

use ir::schedule::{Action, Item};
use std::fmt;

/// Where every rank stands when none can go on.
#[derive(Clone, Debug, PartialEq)]
pub struct Deadlock {
    /// One per rank.
    pub ranks: Vec<StalledRank>,
}

/// Where one rank stands.
#[derive(Clone, Debug, PartialEq)]
pub struct StalledRank {
    /// What it has done.
    pub done: Vec<Action>,
    /// What holds it up; `None` if its row is done.
    pub blocked: Option<Blocked>,
}

/// What holds a rank up.
#[derive(Clone, Debug, PartialEq)]
pub struct Blocked {
    /// The action that cannot start, or whose result cannot be sent.
    pub at: Action,
    /// What it waits for.
    pub on: WaitsFor,
    /// The rank that it waits for, and where that rank stands; `None` if there is none.
    pub other: Option<(usize, Action)>,
}

/// What a rank waits for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WaitsFor {
    /// The result of an item.
    Result(Item),
    /// That another rank receives the result of an item.
    Receipt(Item),
}

impl std::error::Error for Deadlock {}

/// How many of the actions done are shown of a row.
const SHOWN: usize = 6;

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done: usize = self.ranks.iter().map(|stand| stand.done.len()).sum();
        write!(f, "no rank can go on after {done} actions")?;
        let rows: Vec<String> = self.ranks.iter().map(StalledRank::row).collect();
        let waits: Vec<String> = self.ranks.iter().map(StalledRank::wait).collect();
        let width = |texts: &[String]| texts.iter().map(String::len).max().unwrap_or(0);
        let (rank_width, row_width) = ((rows.len().max(1) - 1).to_string().len(), width(&rows));
        for (rank, stand) in self.ranks.iter().enumerate() {
            let line = format!(
                "rank {rank:rank_width$}: {:row_width$}  {:wait_width$}  {}",
                rows[rank],
                waits[rank],
                stand.since(rank),
                wait_width = width(&waits)
            );
            write!(f, "\n{}", line.trim_end())?;
        }
        Ok(())
    }
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

    /// What it waits for, in words.
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
                format!("waits for {item}, which stands in no row")
            }
        }
    }

    fn since(&self, own: usize) -> String {
        match self.blocked.as_ref().and_then(|blocked| blocked.other) {
            Some((rank, _)) if rank == own => "<- it stands later in this row, or in the same pair".into(),
            Some((rank, at)) => format!("<- rank {rank} stands at {at}"),
            None => String::new(),
        }
    }
}
