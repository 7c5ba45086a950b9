//! Codes as text.

use super::{CATALOGUE, Code};
use std::fmt;

impl Code {
    /// Parses a code such as `MW0209`, `mw209` or `209`.
    pub fn from_text(text: &str) -> Option<Code> {
        let digits = text.strip_prefix("MW").or(text.strip_prefix("mw")).unwrap_or(text);
        let number = digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse::<u16>().ok()).flatten()?;
        CATALOGUE.iter().find(|entry| entry.number == number).map(|entry| entry.code)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MW{:04}", self.entry().number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_ascend_and_are_found_by_their_text() {
        assert!(CATALOGUE.windows(2).all(|pair| pair[0].number < pair[1].number));
        for entry in CATALOGUE {
            assert_eq!(Code::from_text(&entry.code.to_string()), Some(entry.code));
        }
        assert_eq!(Code::from_text("mw209"), Code::from_text("209"));
        for text in ["MW9999", "", "MW", "+209", "MWMW0209", "99999999"] {
            assert_eq!(Code::from_text(text), None, "{text}");
        }
    }
}
