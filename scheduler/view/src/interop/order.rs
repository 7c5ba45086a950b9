//! Rows of a report that `schedule --format json` wrote.

use super::{ImportedSchedule, ReadError};
use ir::schedule::{Action, Schedule};
use scheduler::actions::with_step_end;
use serde::Deserialize;

/// Fields that are read from a report.
#[derive(Deserialize)]
struct Ordered {
    kind: String,
    order: Vec<Vec<String>>,
}

/// Reads the `kind` and the `order` of a report.
///
/// # Errors
/// The text is no such JSON, or a word of the order is no action.
pub fn read_report(text: &str) -> Result<ImportedSchedule, ReadError> {
    let report: Ordered = serde_json::from_str(text).map_err(|why| ReadError::Report(why.to_string()))?;
    let mut rows = Vec::with_capacity(report.order.len());
    for (rank, words) in report.order.iter().enumerate() {
        let mut row = Vec::with_capacity(words.len());
        for (at, word) in words.iter().enumerate() {
            let action: Option<Action> = word.parse().ok();
            let action = action.filter(|action| action.items().all(|i| i.stage.is_some() && i.microbatch.is_some()));
            row.push(action.ok_or_else(|| {
                ReadError::Report(format!("order[{rank}][{at}]: `{word}` is no action such as 2F0 or (0F3|7B1)"))
            })?);
        }
        rows.push(with_step_end(row));
    }
    if report.order.iter().all(Vec::is_empty) {
        return Err(ReadError::Empty);
    }
    Ok(ImportedSchedule { schedule: Schedule { name: report.kind, rows }, notes: Vec::new() })
}
