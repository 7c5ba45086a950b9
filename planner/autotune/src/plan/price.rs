//! A price in files: a number, or a text with its unit.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use support::quantities::Price;

/// Form of a price.
#[derive(Deserialize)]
#[serde(untagged)]
enum Form {
    Number(f64),
    Text(String),
}

pub(super) fn serialize<S: Serializer>(price: &Option<Price>, serializer: S) -> Result<S::Ok, S::Error> {
    match price {
        Some(price) if price.unit.is_empty() => price.amount.serialize(serializer),
        Some(price) => price.to_string().serialize(serializer),
        None => serializer.serialize_none(),
    }
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Price>, D::Error> {
    Ok(match Option::<Form>::deserialize(deserializer)? {
        None => None,
        Some(Form::Number(amount)) => Some(amount.into()),
        Some(Form::Text(text)) => Some(text.parse().map_err(de::Error::custom)?),
    })
}
