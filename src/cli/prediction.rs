//! Text and JSON of a predicted step.

use super::TableFormat;
use crate::error::Error;
use crate::predicting::StepPrediction;

/// Formats the prediction.
pub(super) fn print(step: &StepPrediction, format: TableFormat) -> Result<String, Error> {
    if format == TableFormat::Json { super::json(step) } else { Ok(step.to_string()) }
}
