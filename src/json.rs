//! Reports as JSON.

use crate::error::Error;
use support::one_line::in_json;

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
    Ok(in_json(&text).into_owned() + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_keeps_its_characters_and_steers_no_terminal() {
        let name = "Größe \u{1b}[31m\u{9b}\u{202e}\n";
        let text = json(&[name]).unwrap();
        assert!(text.contains("Größe \\u001b[31m\\u009b\\u202e\\n"), "{text}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&text).unwrap(), [name]);
    }
}
