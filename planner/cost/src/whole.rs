//! Whole numbers of files, which TOML may write as `48e9` too.

use serde::de::{Error, Unexpected};
use serde::{Deserialize, Deserializer};

/// Expected value in errors.
const EXPECTED: &str = "a whole number, such as 48e9 or 48_000_000_000";

/// A number of a file.
#[derive(Deserialize)]
#[serde(untagged)]
enum Number {
    Whole(u64),
    Float(f64),
    Other(toml::Value),
}

impl Number {
    fn whole<E: Error>(self) -> Result<u64, E> {
        match self {
            Number::Whole(number) => Ok(number),
            Number::Float(number) if number.fract() == 0.0 && (0.0..u64::MAX as f64).contains(&number) => {
                Ok(number as u64)
            }
            Number::Float(number) => Err(E::invalid_value(Unexpected::Float(number), &EXPECTED)),
            Number::Other(value) => Err(E::invalid_value(Unexpected::Other(&value.to_string()), &EXPECTED)),
        }
    }
}

/// A number that a file must have.
pub(crate) fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Number::deserialize(deserializer)?.whole()
}

/// A number that a file may leave out, or state as `null` in JSON.
pub(crate) fn optional<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Option::<Number>::deserialize(deserializer)?.map(Number::whole).transpose()
}
