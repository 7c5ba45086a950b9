//! Level 3, the schedule: a row of actions per pipeline rank.
//!
//! ```text
//! schedule @1f1b {
//!   rank 0: 0F0 0F1 0B0 0B1 R N U
//!   rank 1: 1F0 1B0 1F1 1B1 R N U
//! }
//! ```
//!
//! `2F3` is stage 2, micro-batch 3; `2F3:1` is slice 1 of that micro-batch; `(a|b)` is an overlapped pair.

use std::fmt;
use std::str::FromStr;

/// The kind of an action. The letters are those of the zero-bubble papers, with B as I and W in one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// Forward.
    F,
    /// Gradient of the inputs.
    I,
    /// Gradient of the weights.
    W,
    /// I and W in one.
    B,
    /// Gather a chunk's parameters.
    G,
    /// Drop a chunk's gathered parameters.
    D,
    /// Reduce gradients.
    R,
    /// The global norm: the barrier of a step.
    N,
    /// Update parameters.
    U,
    /// Offload saved activations to the host.
    O,
    /// Load offloaded activations back.
    L,
}

impl Kind {
    /// All kinds with their letters.
    pub const ALL: [(Kind, char); 11] = [
        (Kind::F, 'F'),
        (Kind::I, 'I'),
        (Kind::W, 'W'),
        (Kind::B, 'B'),
        (Kind::G, 'G'),
        (Kind::D, 'D'),
        (Kind::R, 'R'),
        (Kind::N, 'N'),
        (Kind::U, 'U'),
        (Kind::O, 'O'),
        (Kind::L, 'L'),
    ];

    /// The letter of this kind.
    pub fn letter(self) -> char {
        Self::ALL[self as usize].1
    }

    /// The kind of a letter.
    pub fn from_letter(letter: char) -> Option<Kind> {
        Self::ALL.iter().find(|(_, c)| *c == letter).map(|(kind, _)| *kind)
    }

    /// True if the action belongs to one micro-batch.
    pub fn per_microbatch(self) -> bool {
        matches!(self, Kind::F | Kind::I | Kind::W | Kind::B | Kind::O | Kind::L)
    }
}

/// One unit of work: `2F3:1`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Item {
    /// The kind.
    pub kind: Kind,
    /// The stage; `None` on rows whose action concerns all stages of the rank (`R`, `N`, `U`).
    pub stage: Option<u32>,
    /// The micro-batch.
    pub microbatch: Option<u32>,
    /// The slice of the micro-batch's sequences.
    pub slice: Option<u32>,
}

impl Item {
    /// An action of one stage and micro-batch, unsliced.
    pub fn new(kind: Kind, stage: u32, microbatch: u32) -> Item {
        Item { kind, stage: Some(stage), microbatch: Some(microbatch), slice: None }
    }

    /// An action of all of a rank's stages, once a step.
    pub fn step(kind: Kind) -> Item {
        Item { kind, stage: None, microbatch: None, slice: None }
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(stage) = self.stage {
            write!(f, "{stage}")?;
        }
        write!(f, "{}", self.kind.letter())?;
        if let Some(microbatch) = self.microbatch {
            write!(f, "{microbatch}")?;
        }
        match self.slice {
            Some(slice) => write!(f, ":{slice}"),
            None => Ok(()),
        }
    }
}

/// Error: the text is not an [`Item`] or [`Action`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoAction;

impl fmt::Display for NoAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an action; expected stage, letter and micro-batch, such as 2F3")
    }
}

impl std::error::Error for NoAction {}

impl FromStr for Item {
    type Err = NoAction;

    /// The printed form: `2F3:1`, `2F3`, `R`.
    fn from_str(text: &str) -> Result<Item, NoAction> {
        let (text, slice) = match text.split_once(':') {
            Some((text, slice)) => (text, Some(number(slice)?.ok_or(NoAction)?)),
            None => (text, None),
        };
        let at = text.find(|c: char| c.is_ascii_alphabetic()).ok_or(NoAction)?;
        let kind = text[at..].chars().next().and_then(Kind::from_letter).ok_or(NoAction)?;
        Ok(Item { kind, stage: number(&text[..at])?, microbatch: number(&text[at + 1..])?, slice })
    }
}

/// The number that these digits write; none of no digits.
fn number(digits: &str) -> Result<Option<u32>, NoAction> {
    match digits {
        "" => Ok(None),
        _ if !digits.bytes().all(|byte| byte.is_ascii_digit()) => Err(NoAction),
        _ => digits.parse().map(Some).map_err(|_| NoAction),
    }
}

/// A place in a row: one item, or two that run overlapped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Action {
    /// One item.
    One(Item),
    /// Two items that run at the same time: `(0F3|7B1)`.
    Pair(Item, Item),
}

impl Action {
    /// The items of this action, one or two.
    #[inline]
    pub fn items(&self) -> impl Iterator<Item = Item> + use<> {
        let (a, b) = match *self {
            Action::One(a) => (a, None),
            Action::Pair(a, b) => (a, Some(b)),
        };
        std::iter::once(a).chain(b)
    }
}

impl FromStr for Action {
    type Err = NoAction;

    /// The printed form: `2F3` or `(0F3|7B1)`.
    fn from_str(text: &str) -> Result<Action, NoAction> {
        let inside = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
        match inside.map(|inside| inside.split_once('|')) {
            None => text.parse().map(Action::One),
            Some(Some((a, b))) => Ok(Action::Pair(a.parse()?, b.parse()?)),
            Some(None) => Err(NoAction),
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Action::One(item) => write!(f, "{item}"),
            Action::Pair(a, b) => write!(f, "({a}|{b})"),
        }
    }
}

/// Rows of actions, one per pipeline rank.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Schedule {
    /// Its kind, as `--kind` names it: `gpipe`, `1f1b`.
    pub name: String,
    /// `rows[r]`: the actions of pipeline rank `r`, in order.
    pub rows: Vec<Vec<Action>>,
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "schedule @{} {{", self.name)?;
        for (rank, row) in self.rows.iter().enumerate() {
            write!(f, "  rank {rank}:")?;
            for action in row {
                write!(f, " {action}")?;
            }
            writeln!(f)?;
        }
        writeln!(f, "}}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read() {
        for text in ["2F3", "2F3:1", "R", "0G", "(0F3|7B1)", "(0F3:0|7W1:1)"] {
            assert_eq!(text.parse::<Action>().map(|action| action.to_string()), Ok(text.to_string()));
        }
        for text in
            ["", "2", "F3x", "2Q3", "2F3:", "2F:x", "+2F3", "2F-3", "2F99999999999", "(0F3)", "(0F3|)", "0F3|7B1"]
        {
            assert_eq!(text.parse::<Action>(), Err(NoAction), "{text}");
        }
    }
}
