//! Rows of a check in order: those that are chosen run, and each is told as soon as it is found.

use super::{CheckRow, Found, row};
use crate::device::Device;
use device::at_once::panic_message;
use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The name of a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowName {
    /// Its kernel.
    pub what: String,
    /// Its sizes.
    pub shape: String,
}

/// The rows that run, by their numbers from 1.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Choice {
    /// The number of the first.
    pub from: usize,
    /// A text that kernel or sizes must contain; none for all rows.
    pub only: Option<String>,
}

/// Rows, as far as they have been found.
pub struct Rows<'a> {
    how: How<'a>,
    count: usize,
}

/// Use of a row.
enum How<'a> {
    /// Its name is kept.
    List(Vec<RowName>),
    Run {
        device: Arc<Device>,
        choice: Choice,
        tell: &'a mut dyn FnMut(CheckRow),
        /// The number of the row at which the device was lost.
        lost: Option<usize>,
    },
}

impl Choice {
    /// True if a row runs.
    pub fn has(&self, number: usize, row: &RowName) -> bool {
        let fits = |only: &String| row.what.contains(only) || row.shape.contains(only);
        number >= self.from && self.only.as_ref().is_none_or(fits)
    }
}

impl<'a> Rows<'a> {
    /// The names of all rows, of which none runs.
    pub fn names(all: impl FnOnce(&mut Rows<'_>)) -> Vec<RowName> {
        let mut rows = Rows { how: How::List(Vec::new()), count: 0 };
        all(&mut rows);
        if let How::List(names) = rows.how { names } else { Vec::new() }
    }

    /// Rows that run on a device; `tell` gets each.
    pub fn new(device: &Arc<Device>, choice: Choice, tell: &'a mut dyn FnMut(CheckRow)) -> Rows<'a> {
        Rows { how: How::Run { device: device.clone(), choice, tell, lost: None }, count: 0 }
    }

    /// The number of the row after which nothing runs any more, since the driver reports an error to every call.
    pub fn lost(&self) -> Option<usize> {
        if let How::Run { lost, .. } = &self.how { *lost } else { None }
    }

    /// Runs a row, if it is chosen. A panic in it is its failure.
    pub fn check<E: Display>(
        &mut self,
        what: impl Into<String>,
        shape: impl Into<String>,
        unit: &'static str,
        run: impl FnOnce() -> Result<Found, E>,
    ) {
        self.count += 1;
        let name = RowName { what: what.into(), shape: shape.into() };
        match &mut self.how {
            How::List(names) => names.push(name),
            How::Run { lost: Some(_), .. } => {}
            How::Run { device, choice, tell, lost } if choice.has(self.count, &name) => {
                let found = catch_unwind(AssertUnwindSafe(run));
                let found = match found {
                    Ok(found) => found.map_err(|why| why.to_string()),
                    Err(panic) => Err(panic_message(panic.as_ref())),
                };
                let found = CheckRow { number: self.count, ..row(name.what, name.shape, unit, found) };
                if !found.right && device.finish().is_err() {
                    *lost = Some(self.count);
                }
                tell(found);
            }
            How::Run { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_goes_by_number_and_by_what_a_row_contains() {
        let name = |what: &str| RowName { what: what.into(), shape: "4096".into() };
        let choice = |from, only: Option<&str>| Choice { from, only: only.map(str::to_string) };
        assert!(choice(0, None).has(1, &name("add")) && choice(2, None).has(2, &name("add")));
        assert!(!choice(3, None).has(2, &name("add")));
        assert!(choice(0, Some("dd")).has(1, &name("add")) && choice(0, Some("409")).has(1, &name("add")));
        assert!(!choice(0, Some("mul")).has(1, &name("add")));
    }

    #[test]
    fn names_are_kept_and_nothing_runs() {
        let names = Rows::names(|rows| {
            rows.check("add", "1", "B/s", || -> Result<Found, String> { panic!("it runs") });
            rows.check("mul", "2", "B/s", || Err("it runs"));
        });
        let [add, mul] = [("add", "1"), ("mul", "2")].map(|(a, b)| RowName { what: a.into(), shape: b.into() });
        assert_eq!(names, [add, mul]);
    }
}
