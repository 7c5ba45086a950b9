//! Reports as JSON.

use crate::error::Error;

/// The JSON text of a report, as `--format json` prints it; ends in a newline.
///
/// ```
/// let report = meshwright::estimate("tiny-llama").batch(8, 128).parallel("dp=2").run()?;
/// assert!(meshwright::json(&report)?.contains("\"step_time_s\": "));
/// # Ok::<(), meshwright::Error>(())
/// ```
///
/// # Errors
/// The report cannot be written as JSON, which is an internal error.
pub fn json(report: &impl serde::Serialize) -> Result<String, Error> {
    let text = serde_json::to_string_pretty(report).map_err(|why| Error::fault("json", why))?;
    Ok(text + "\n")
}
