//! Foreign text on one line, for places whose language ends at the end of a line.

use std::borrow::Cow;

/// Characters without width that change how the text around them reads: marks and overrides of direction, and line separators that are no
/// control characters (Unicode 16, UAX 9 and UAX 14).
const HIDDEN: [std::ops::RangeInclusive<char>; 4] =
    ['\u{061c}'..='\u{061c}', '\u{200e}'..='\u{200f}', '\u{2028}'..='\u{202e}', '\u{2066}'..='\u{2069}'];

/// The text with control characters, line separators and overrides of direction written as escapes, such as `\n` and `\u{1b}`. It neither
/// ends a line nor steers a terminal.
pub fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, is_special)
}

/// The text with the same escapes, but with its own line feeds and tabs: lines that steer no terminal.
pub fn printable(text: &str) -> Cow<'_, str> {
    escaped(text, |character| is_special(character) && !matches!(character, '\n' | '\t'))
}

/// Text of JSON in which such characters are escapes of JSON, so that it means the same. They are in its strings alone, and JSON itself
/// escapes those below a blank there.
pub fn in_json(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|character| character != '\n' && is_special(character)) {
        return Cow::Borrowed(text);
    }
    let mut json = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character {
            '\n' => json.push('\n'),
            _ if is_special(character) => json.push_str(&format!("\\u{:04x}", u32::from(character))),
            _ => json.push(character),
        }
    }
    Cow::Owned(json)
}

fn escaped(text: &str, is_special: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.chars().any(&is_special) {
        return Cow::Borrowed(text);
    }
    let mut line = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match is_special(character) {
            true => line.extend(character.escape_default()),
            false => line.push(character),
        }
    }
    Cow::Owned(line)
}

fn is_special(character: char) -> bool {
    character.is_control() || HIDDEN.iter().any(|range| range.contains(&character))
}

#[cfg(test)]
mod tests {
    use super::{one_line, printable};

    #[test]
    fn no_character_ends_the_line_or_steers_a_terminal() {
        assert_eq!(one_line("llama3-8b, Größe 8"), "llama3-8b, Größe 8");
        assert_eq!(one_line("a\n$(b)\r\t\u{1b}[2J"), "a\\n$(b)\\r\\t\\u{1b}[2J");
        assert_eq!(printable("a\n\tb\r\u{1b}[2J"), "a\n\tb\\r\\u{1b}[2J");
        assert_eq!(one_line("\u{85}\u{2028}\u{202e}x\u{2069}"), "\\u{85}\\u{2028}\\u{202e}x\\u{2069}");
    }
}
