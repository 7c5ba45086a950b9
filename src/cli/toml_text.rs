//! TOML text of a value, with short numbers.

use crate::error::Error;
use serde::Serialize;

/// Longest number that is written without an exponent: 17 digits, a sign, a point and some zeros.
const LONG: usize = 24;

/// Returns the TOML of a value. The TOML writer prints 1e-150 with 150 digits; such numbers get an exponent here.
pub(super) fn text(verb: &'static str, value: &impl Serialize) -> Result<String, Error> {
    let written = toml::to_string(value).map_err(|why| Error::fault(verb, why))?;
    let shorter = |piece: &str| {
        let number = piece.trim_end_matches([' ', ',', ']', '\n']);
        let (is_long, end) = (number.len() > LONG, &piece[number.len()..]);
        match number.parse::<f64>() {
            Ok(float) if is_long && float.is_finite() => format!("{float:?}{end}"),
            _ => piece.to_string(),
        }
    };
    Ok(written.split_inclusive([' ', ',', '[', '\n']).map(shorter).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn long_numbers_have_a_power_of_ten() {
        let value = BTreeMap::from([("a", vec![1e-150, 0.1, -3e200]), ("b", vec![f64::MAX])]);
        let text = text("clusters", &value).unwrap();
        assert!(
            text.contains("1e-150") && text.contains("-3e200") && text.lines().all(|line| line.len() < 60),
            "{text}"
        );
        let read: BTreeMap<String, Vec<f64>> = toml::from_str(&text).unwrap();
        assert_eq!((&read["a"], &read["b"]), (&value["a"], &value["b"]));
    }
}
