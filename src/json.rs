//! Reports as JSON.

use crate::error::Error;
use support::one_line::is_special;

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
    Ok(escaped(text) + "\n")
}

/// Text of JSON in which characters that steer a terminal are escapes. JSON has such characters in its strings alone, and itself escapes
/// those below a blank.
fn escaped(text: String) -> String {
    match text.chars().any(is_hidden) {
        false => text,
        true => text.chars().fold(String::new(), |mut escaped, character| {
            match is_hidden(character) {
                true => escaped.push_str(&format!("\\u{:04x}", u32::from(character))),
                false => escaped.push(character),
            }
            escaped
        }),
    }
}

fn is_hidden(character: char) -> bool {
    character != '\n' && is_special(character)
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
