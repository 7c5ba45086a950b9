//! The text of a line of JSON. Other keys are skipped without being stored.

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor};
use std::fmt;

/// The text under a key of a JSON object.
///
/// # Errors
/// Says what the line has instead.
pub fn text_of(line: &[u8], key: &str) -> Result<String, String> {
    let mut read = serde_json::Deserializer::from_slice(line);
    let text = Key(key).deserialize(&mut read).and_then(|text| read.end().map(|()| text));
    // The reader counts the lines of what it was given, which is one.
    text.map_err(|why| why.to_string().split(" at line ").next().unwrap_or_default().to_string())
}

struct Key<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<String, D::Error> {
        from.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Key<'_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an object with a text under the key `{}`", self.0)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<String, A::Error> {
        let mut text = None;
        while let Some(key) = map.next_key::<String>()? {
            match key == self.0 {
                true => text = Some(map.next_value::<String>()?),
                false => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        text.ok_or_else(|| A::Error::custom(format!("there is no key `{}`", self.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_a_text_or_an_error() {
        let line = r#"{"meta": {"text": [1, null]}, "text": "a \u00e9\ud83d\ude00", "n": 1e400}"#;
        assert_eq!(text_of(line.as_bytes(), "text").as_deref(), Ok("a é😀"));
        for (line, why) in [
            ("{\"text\": 5}", "invalid type: integer `5`, expected a string"),
            ("[\"text\"]", "expected an object with a text under the key `text`"),
            ("{\"body\": \"\"}", "there is no key `text`"),
            ("{\"text\": \"a\"} {", "trailing characters"),
            ("{\"text\": \"a", "EOF while parsing a string"),
            ("{\"text\": \"\\ud800\"}", "hex escape"),
        ] {
            let error = text_of(line.as_bytes(), "text").unwrap_err();
            assert!(error.contains(why) && !error.contains("line 1"), "{line}: {error}");
        }
    }
}
